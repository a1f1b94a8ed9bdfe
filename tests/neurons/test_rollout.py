import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layers import draw_layer, draw_stack
from neurons.stacks import NEURONS, draw_inputs, draw_layers

from cvxsnn import LIFLayer, roll_out
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data import sequences as sequences_module
from cvxsnn.data.sequences import Sequences
from cvxsnn.neurons import LateralLayer, Stepper, rollout
from cvxsnn.neurons.exact import snap_inputs
from cvxsnn.neurons.layer import stack_layers
from cvxsnn.neurons.rollout import count_spikes, iterate_rollout


@pytest.fixture
def restored_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("hidden", [(20,), (33, 20), (10, 15, 20)], ids=str)
@pytest.mark.parametrize("neuron", NEURONS)
def test_spikes_do_not_depend_on_the_batch(neuron, hidden):
    layers, inputs = draw_layers(neuron, hidden), draw_inputs()
    together = roll_out(layers, inputs, "all")
    assert 0.1 < together.double().mean() < 0.9
    for size in (1, 7, 64):
        apart = torch.cat([roll_out(layers, block, "all") for block in inputs.split(size)])
        assert torch.equal(apart, together)


@pytest.mark.parametrize("chunk_bytes", [1, 5_000, 100_000, 2**30])
@pytest.mark.parametrize("steps", ["last", "all"])
def test_spikes_do_not_depend_on_the_chunk(layers, steps, chunk_bytes):
    inputs = draw_inputs()
    assert torch.equal(roll_out(layers, inputs, steps, chunk_bytes=chunk_bytes), roll_out(layers, inputs, steps))


@pytest.mark.usefixtures("restored_threads")
@pytest.mark.parametrize("neuron", NEURONS)
def test_spikes_do_not_depend_on_the_number_of_threads(neuron):
    # Large enough for products and elementwise work to be shared out.
    layers, inputs = draw_layers(neuron, (128, 96), n_subnetworks=2), draw_inputs(n_samples=600)
    torch.set_num_threads(1)
    single = roll_out(layers, inputs, "all")
    torch.set_num_threads(2)
    assert torch.equal(roll_out(layers, inputs, "all"), single)


def test_spikes_do_not_depend_on_the_order_of_the_samples(layers):
    inputs = draw_inputs()
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(2))
    assert torch.equal(roll_out(layers, inputs[order], "all"), roll_out(layers, inputs, "all")[order])


def test_spikes_do_not_depend_on_how_wide_the_products_must_be(layers):
    # Whole numbers multiply in float32; one fraction or one large value in the batch, and all do in float64.
    # Squares need twice the bits.
    whole, large = draw_inputs().round(), 1e3 if isinstance(layers[0], LateralLayer) else 1e6
    other = torch.full_like(whole[:1], large + 0.25)
    assert torch.equal(roll_out(layers, torch.cat([whole, other]), "all")[:-1], roll_out(layers, whole, "all"))


def test_near_ties_flip_in_a_plain_product_and_never_in_ours():
    # Each input comes twice, once with weight w and once with −w: every sum is zero, and every neuron fires. Floating
    # point finds zero only if the two meet in the right order.
    generator = torch.Generator().manual_seed(0)
    half, weight = torch.rand(64, 5, 32, generator=generator), torch.randn(1, 32, 100, generator=generator)
    inputs, weight = torch.cat([half, half], dim=2), torch.cat([weight, -weight], dim=1)
    orders = [torch.randperm(64, generator=generator) for _ in range(4)]
    dynamics = {"decay": 0.5, "threshold": 0.0}

    def plain(order):
        drive = (inputs[:, :, order].flatten(0, 1) @ weight[0, order]).unflatten(0, (64, 5))
        layer = LIFLayer(weight, **dynamics)
        state, spikes = layer.initial_state(64), []
        for t in range(5):
            layer.step(drive[None, :, t], state)
            spikes.append(state.spikes[0] == 1)
        return torch.stack(spikes, dim=1)

    first, *others = [plain(order) for order in orders]
    assert all(bool((spikes != first).any()) for spikes in others)

    for order in orders:
        layers = [LIFLayer(weight[:, order], **dynamics)]
        assert bool(roll_out(layers, inputs[:, :, order], "all").all())
        assert all(bool(roll_out(layers, row[None, :, order], "all").all()) for row in inputs)


@given(st.integers(0, 2**32 - 1), st.integers(0, 8), st.sampled_from(NEURONS), st.sampled_from([0.5, 1e-4, 1234.5678]))
@settings(max_examples=40)
def test_no_spike_depends_on_a_later_input(seed, step, neuron, change):
    layers, inputs = draw_layers(neuron, (8, 6), n_subnetworks=2, seed=seed), draw_inputs(4, seed=seed).round()
    changed = inputs.clone()
    changed[:, step:] += change
    before, after = roll_out(layers, inputs, "all"), roll_out(layers, changed, "all")
    assert torch.equal(before[:, :step], after[:, :step])


def test_the_last_step_is_the_last_of_all_steps(layers):
    inputs = draw_inputs()
    assert torch.equal(roll_out(layers, inputs, "last"), roll_out(layers, inputs, "all")[:, -1])


def test_layers_feed_the_next_one_step_by_step_and_subnetwork_by_subnetwork(layers):
    inputs = draw_inputs()
    lower = roll_out(layers[:1], inputs, "all").unflatten(-1, (3, 33))
    upper = [roll_out([layers[1].take(slice(k, k + 1))], lower[:, :, k].float(), "all") for k in range(3)]
    assert torch.equal(torch.cat(upper, dim=-1), roll_out(layers, inputs, "all"))


def test_columns_run_over_the_neurons_of_a_subnetwork_before_the_next(layers):
    inputs = draw_inputs()
    apart = [roll_out([layer.take(slice(k, k + 1)) for layer in layers], inputs) for k in range(3)]
    assert torch.equal(torch.cat(apart, dim=1), roll_out(layers, inputs))


@pytest.mark.parametrize("steps", ["last", "all"])
@pytest.mark.parametrize("chunk_bytes", [1, 20_000, 200_000, 2**30])
def test_blocks_tile_the_spikes_and_keep_within_the_chunk(layers, steps, chunk_bytes):
    inputs = draw_inputs()
    spikes, seen = roll_out(layers, inputs, steps), torch.zeros(70, 60, dtype=torch.int64)
    for rows, columns, block in iterate_rollout(layers, inputs, steps, chunk_bytes=chunk_bytes, row_multiple=8):
        seen[rows, columns] += 1
        assert torch.equal(block, spikes[rows, ..., columns])
        assert rows.start % 8 == 0
        assert rows.stop % 8 == 0 or rows.stop == 70
        n_rows, n_subnetworks = rows.stop - rows.start, (columns.stop - columns.start) // 20
        assert n_rows * 9 * 33 * n_subnetworks * 4 <= chunk_bytes or (n_rows, n_subnetworks) == (min(8, n_rows), 1)
    assert bool((seen == 1).all())


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float16, np.float32])
def test_numbers_of_any_type_array_or_tensor_mean_the_same(layers, dtype):
    inputs = (draw_inputs() > 0).numpy().astype(dtype)
    expected = roll_out(layers, inputs.astype(np.float64))
    inputs.flags.writeable = False
    assert torch.equal(roll_out(layers, inputs), expected)
    assert torch.equal(roll_out(layers, torch.tensor(inputs)), expected)
    assert torch.equal(roll_out(layers, inputs.tolist()), expected)


def test_inputs_are_left_as_they_were(layers):
    inputs = draw_inputs()
    before = inputs.clone()
    roll_out(layers, inputs)
    assert torch.equal(inputs, before)


def test_inputs_are_read_in_their_unit(layers):
    inputs = draw_inputs()
    assert torch.equal(roll_out(layers, snap_inputs(inputs), "all"), roll_out(layers, inputs, "all"))


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(NEURONS),
    st.sampled_from([(6,), (8, 6), (4, 5, 6)]),
    st.lists(st.integers(1, 7), min_size=1, max_size=12),
    st.sampled_from([1, 2000, 2**24]),
)
@settings(max_examples=60)
def test_sequences_padded_at_the_end_spike_as_each_alone(seed, neuron, hidden, lengths, chunk_bytes):
    layers = draw_layers(neuron, hidden, n_subnetworks=2, seed=seed)
    inputs = draw_inputs(len(lengths), 7, seed=seed)
    sequences = Sequences(inputs, np.array(lengths))
    last, steps = (roll_out(layers, sequences, steps, chunk_bytes=chunk_bytes) for steps in ("last", "all"))
    for row, length in enumerate(lengths):
        alone = roll_out(layers, inputs[row : row + 1, :length], "all")[0]
        assert torch.equal(last[row], alone[-1])
        assert torch.equal(steps[row, :length], alone)
        assert not steps[row, length:].any()


UNEQUAL = [1, 40, 3, 9, 2, 17, 33, 1, 5, 40, 8, 1]


@pytest.mark.parametrize("delays", [False, True])
def test_groups_of_similar_length_change_no_spike(monkeypatch, delays):
    monkeypatch.setattr(sequences_module, "_STEP_ROWS", 0)  # a group for each power of two
    layers = draw_stack(3) if delays else draw_layers("lif", (5, 6), n_features=3)
    inputs = draw_inputs(len(UNEQUAL), 40, n_features=3)
    sequences = Sequences(inputs, np.array(UNEQUAL))
    last, steps = (roll_out(layers, sequences, steps) for steps in ("last", "all"))
    counts = count_spikes(layers, sequences, 3)
    for row, length in enumerate(UNEQUAL):
        alone = inputs[row : row + 1, :length]
        assert torch.equal(last[row], roll_out(layers, alone)[0])
        assert torch.equal(steps[row, :length], roll_out(layers, alone, "all")[0])
        assert not steps[row, length:].any()
        assert torch.equal(counts[row], count_spikes(layers, alone, 3)[0])


@pytest.mark.parametrize("delays", [False, True])
def test_the_work_is_that_of_steps_and_not_of_padding(monkeypatch, delays):
    layers = draw_stack(3) if delays else draw_layers("lif", (5, 6), n_features=3)
    rolled, roll_block = [], rollout._roll_block

    def roll(layers, sequences, *others):
        rolled.append(len(sequences) * sequences.n_steps)
        return roll_block(layers, sequences, *others)

    monkeypatch.setattr(rollout, "_roll_block", roll)
    lengths = np.array([1] * 29 + [2000] + [3] * 30 + [500] * 4)
    count_spikes(layers, Sequences(draw_inputs(len(lengths), 2000, n_features=3), lengths))
    assert lengths.sum() <= sum(rolled) <= 2 * lengths.sum()  # and not 64 times 2000


def test_the_last_step_of_neurons_without_memory_is_that_of_all_steps():
    layer = draw_layer(0, n_inputs=5, decay=0.0, threshold=0.0)
    leaky = draw_layer(0, n_inputs=5, decay=0.5, threshold=0.0)
    both = stack_layers([layer, leaky])
    inputs = draw_inputs(3, 1500)
    expected = roll_out([both], inputs, "all")
    assert torch.equal(roll_out([both], inputs, "last"), expected[:, -1])
    n_own = layer.n_subnetworks * layer.width
    assert torch.equal(expected[..., :n_own], roll_out([layer], inputs, "all"))


def test_the_content_of_the_padding_does_not_matter(layers):
    inputs, lengths = draw_inputs(), torch.arange(70) % 9 + 1
    padding = torch.arange(9) >= lengths[:, None]
    changed = torch.where(padding[:, :, None], -31.5, inputs)
    for steps in ("last", "all"):
        found = roll_out(layers, Sequences(changed, lengths), steps)
        assert torch.equal(found, roll_out(layers, Sequences(inputs, lengths), steps))
        assert not torch.equal(found, roll_out(layers, inputs, steps))


def test_full_lengths_are_the_same_as_none(layers):
    inputs = draw_inputs()
    for lengths in (np.full(70, 9), torch.full((70,), 9), [9] * 70, np.full(70, 9, dtype=np.uint8)):
        assert torch.equal(roll_out(layers, Sequences(inputs, lengths), "all"), roll_out(layers, inputs, "all"))


INPUTS = draw_inputs(4, 3)
LAYERS = draw_layers("lif")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (INPUTS * torch.nan, "finite inputs, got NaN or infinite values: impute or drop"),
        (INPUTS.numpy() * np.inf, "finite inputs"),
        (INPUTS[0], r"\(n_samples, n_steps, n_features\), got 2 dimensions \(3, 5\): give static data one step"),
        (INPUTS[..., None], "got 4 dimensions"),
        (INPUTS[:0], r"non-empty inputs, got shape \(0, 3, 5\)"),
        (INPUTS[:, :0], "non-empty inputs"),
        (INPUTS[:, :, :0], "non-empty inputs"),
        (INPUTS[:, :, :4], "layer 1 to read 4 values, got weights for 5: the inputs and the witnesses disagree"),
        ([[[0.0] * 5], [[0.0] * 5] * 2], "numbers in rows of equal length, got others: use Sequences.from_raw"),
        (np.array([None, "text"], dtype=object), "inputs to be real numbers, got text"),
        (INPUTS * 2.0**40, r"fit into 53 bits.*scale the inputs down by 2\*\*\d+ or more"),
    ],
)
def test_inputs_that_cannot_be_rolled_out_are_refused_in_one_sentence(inputs, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        roll_out(LAYERS, inputs)
    assert "\n" not in str(caught.value)


def advance_one(inputs):
    stepper = Stepper(LAYERS)
    return stepper.step(stepper.start(4), inputs)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: roll_out([], INPUTS), "at least one hidden layer"),
        (lambda: Stepper([]), "at least one hidden layer"),
        (lambda: roll_out([torch.ones(3)], INPUTS), "hidden layers such as LIFLayer, got Tensor"),
        (lambda: roll_out([LAYERS[0]] * 2, INPUTS), "layer 2 to read 33 values, got weights for 5: widths must chain"),
        (lambda: roll_out([LAYERS[0], LAYERS[1].take(slice(1))], INPUTS), "same number of subnetworks"),
        (lambda: roll_out([LAYERS[0], LAYERS[1].to(dtype=torch.float64)], INPUTS), "the same dtype"),
        (lambda: roll_out(LAYERS, INPUTS, "first"), "steps to be one of 'last', 'all', got 'first'"),
        (lambda: roll_out(LAYERS, Sequences(INPUTS, [3, 3, 3])), r"4 integers, got torch.int64 of shape \(3,\)"),
        (lambda: roll_out(LAYERS, Sequences(INPUTS, [[3]] * 4)), r"4 integers, got torch.int64 of shape \(4, 1\)"),
        (lambda: roll_out(LAYERS, Sequences(INPUTS, [3.0] * 4)), "lengths to be 4 integers, got torch.float64"),
        (lambda: roll_out(LAYERS, Sequences(INPUTS, [True] * 4)), "lengths to be 4 integers, got torch.bool"),
        (lambda: roll_out(LAYERS, Sequences(INPUTS, [0, 1, 2, 3])), "lengths from 1 to 3, got values from 0 to 3"),
        (lambda: roll_out(LAYERS, Sequences(INPUTS, [1, 2, 3, 4])), "lengths from 1 to 3, got values from 1 to 4"),
        (lambda: roll_out(LAYERS, INPUTS, chunk_bytes=0), "chunk_bytes to be a positive integer, got 0"),
        (lambda: advance_one(INPUTS[:1, 0]), r"shape \(4, 5\), got shape \(1, 5\)"),
        (lambda: advance_one(INPUTS[:, 0, :2]), r"shape \(4, 5\), got shape \(4, 2\)"),
        (lambda: advance_one(INPUTS[:, 0] * torch.nan), "finite inputs"),
    ],
)
def test_misuse_is_refused_in_one_sentence(call, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
