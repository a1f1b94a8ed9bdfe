import pickle

import naive
import numpy as np
import pytest
import torch
from gpu_stand_in import paths_of_the_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from neurons.stacks import draw_inputs, draw_lateral
from small_models import assert_one_sentence

from cvxsnn import WitnessSet, roll_out
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data.sequences import Sequences
from cvxsnn.neurons import LateralLayer, Stepper, count_spikes
from cvxsnn.neurons.exact import INPUT_UNIT, snap_inputs
from cvxsnn.neurons.lateral import VIEWS, view_inputs
from cvxsnn.neurons.layer import stack_layers
from cvxsnn.witnesses import Provenance, join_witnesses

SEEDS = st.integers(0, 2**32 - 1)
INPUTS = draw_inputs(30, 7, 2)


def draw(seed=0, **changes):
    return draw_lateral(**{"width": 9, "n_features": 2, "n_subnetworks": 2, "seed": seed, **changes})


def draw_whole(seed=0, width=9, **changes):
    """A layer whose drives are whole numbers without biases, so that rivals are often equal."""
    layer = draw(seed, width=width, **changes)
    weight = torch.randint(-1, 2, layer.weight.shape, generator=torch.Generator().manual_seed(seed))
    return layer.with_tensors({"weight": weight.double(), "bias": torch.zeros_like(layer.bias)})


def step_by_step(layer, inputs):
    stepper, spikes = Stepper([layer]), []
    state = stepper.start(len(inputs))
    for step in inputs.unbind(1):
        state, fired = stepper.step(state, step)
        spikes.append(fired)
    return torch.stack(spikes, dim=1)


# Spikes.


@given(SEEDS, st.lists(st.integers(1, 7), min_size=1, max_size=9), st.sampled_from([1, 3000, 2**24]), st.booleans())
@settings(max_examples=40)
def test_spikes_are_those_of_the_definition_in_every_way_of_rolling_out(seed, lengths, chunk_bytes, is_whole):
    layer, inputs = (draw_whole if is_whole else draw)(seed), draw_inputs(len(lengths), 7, 2, seed)
    inputs = inputs.round() if is_whole else inputs
    expected = torch.tensor(naive.lateral_spikes(layer, inputs))
    assert torch.equal(roll_out([layer], inputs, "all", chunk_bytes=chunk_bytes), expected)
    assert torch.equal(roll_out([layer], inputs, "last", chunk_bytes=chunk_bytes), expected[:, -1])
    assert torch.equal(step_by_step(layer, inputs), expected)
    sequences = Sequences(inputs, np.array(lengths))
    last, counts = roll_out([layer], sequences, "last", chunk_bytes=chunk_bytes), count_spikes([layer], sequences)
    for row, length in enumerate(lengths):
        own = expected[row, :length]
        assert torch.equal(last[row], own[-1])
        assert torch.equal(counts[row].long(), own.sum(0))
        assert torch.equal(roll_out([layer], inputs[row : row + 1, :length], "all")[0], own)


@pytest.mark.usefixtures("gpu_stand_in")
def test_spikes_on_the_paths_of_a_gpu_are_those_of_the_definition():
    for layer in (draw(), draw_whole()):
        with paths_of_the_cpu():
            expected = torch.tensor(naive.lateral_spikes(layer, INPUTS))
        for steps in ("last", "all"):
            assert torch.equal(roll_out([layer], INPUTS, steps), expected if steps == "all" else expected[:, -1])


@given(SEEDS)
@settings(max_examples=20)
def test_of_equal_drives_the_first_wins_and_of_a_group_one_neuron_fires_at_any_step(seed):
    layer = draw_whole(seed, width=12, n_subnetworks=1)
    drives = torch.tensor(
        np.stack([naive.tap_drive(layer, 0, naive.lateral_views(INPUTS.round(), VIEWS), t) for t in range(7)], axis=1)
    )
    spikes, n_tied = roll_out([layer], INPUTS.round(), "all"), 0
    for group in layer.group[0][layer.group[0] > 0].unique():
        members = torch.nonzero(layer.group[0] == group).squeeze(1)
        assert bool((spikes[..., members].sum(2) == 1).all())
        own = drives[..., members]
        is_largest = own == own.amax(2, keepdim=True)
        n_tied += int((is_largest.sum(2) > 1).sum())
        first = torch.where(is_largest, torch.arange(len(members)), len(members)).amin(2)
        assert torch.equal(spikes[..., members].to(torch.int8).argmax(2), first)
    assert n_tied or not layer.has_groups or max(torch.bincount(layer.group[0].long())[1:]) == 1


@given(SEEDS, st.integers(1, 6))
@settings(max_examples=20)
def test_distance_neurons_fire_exactly_inside_their_ball(seed, n_steps):
    """On multiples of 2**-8, whose squares lie on the grid of inputs: also where the distance equals the radius."""
    rng = np.random.default_rng(seed)
    inputs, window = (rng.integers(-512, 513, size=size) / 256 for size in ((40, 9, 1), (n_steps,)))
    past = np.pad(inputs[:, :, 0], ((0, 0), (n_steps - 1, 0)))
    # Taps that reach back before the first step read zeros.
    windows = np.lib.stride_tricks.sliding_window_view(past, n_steps, axis=1)[..., ::-1]
    distance = ((windows - window) ** 2).sum(2)
    radius = np.quantile(distance, 0.3, method="nearest")
    layer = LateralLayer(
        torch.tensor(np.r_[2 * window, -np.ones(n_steps)])[None, :, None],
        bias=radius - (window**2).sum(),
        source=torch.arange(2).repeat_interleave(n_steps)[None, :, None],
        delay=torch.arange(n_steps).repeat(2)[None, :, None],
        n_sources=2,
        views=("values", "squares"),
    )
    fires = roll_out([layer], inputs, "all")[:, :, 0].numpy()
    assert np.array_equal(fires, distance <= radius)
    assert bool((distance == radius).any())


@pytest.mark.parametrize("before", [None, draw_inputs(5, 1, 3, seed=9)[:, 0]])
def test_views_are_values_changes_and_squares_rounded_to_the_grid(before):
    block = snap_inputs(draw_inputs(5, 6, 3).transpose(0, 1))
    before = None if before is None else snap_inputs(before)
    value, change, square, square_of_change = view_inputs(block, before, VIEWS).unflatten(2, (4, 3)).unbind(2)
    assert torch.equal(value, block)
    assert torch.equal(change[1:], block[1:] - block[:-1])
    assert torch.equal(change[0], torch.zeros_like(block[0]) if before is None else block[0] - before)
    for view, exact in ((square, value**2), (square_of_change, change**2)):
        assert torch.equal(view, snap_inputs(view))
        assert float((view - exact).abs().max()) <= INPUT_UNIT / 2
    assert torch.equal(view_inputs(block, before, ("squares", "values")), torch.cat((square, value), dim=2))


@pytest.mark.parametrize("view", VIEWS)
def test_the_largest_level_bounds_every_value_that_is_read(view):
    layer = draw(views=(view,), n_sources=2, source=torch.zeros(2, 4, 9))
    values = naive.lateral_views(INPUTS, (view,))
    assert np.abs(values).max() / INPUT_UNIT <= layer.levels_of(INPUTS) <= 1.001 * np.abs(values).max() / INPUT_UNIT


# Parts of a layer.


@given(SEEDS, st.booleans())
@settings(max_examples=30)
def test_neurons_that_are_taken_spike_as_before_with_their_rivals_unread(seed, is_whole):
    layer = (draw_whole if is_whole else draw)(seed, width=15, n_subnetworks=1)
    witnesses, inputs = WitnessSet((layer,), Provenance("pretrained")), INPUTS.round() if is_whole else INPUTS
    chosen = torch.tensor(np.sort(np.random.default_rng(seed).permutation(15)[:4]))
    part = witnesses.take_neurons(chosen).layers[0]
    is_read = part.statistics[0] != 0
    assert int(is_read.sum()) == 4
    assert torch.equal(roll_out([part], inputs, "all")[..., is_read], roll_out([layer], inputs, "all")[..., chosen])
    rivals = {int(group) for group in layer.group[0, chosen] if group}
    assert part.width == 4 + sum(int(g) in rivals for i, g in enumerate(layer.group[0]) if i not in chosen.tolist())


def test_few_neurons_keep_the_groups_of_a_wide_layer():
    layer = draw(width=15, n_subnetworks=1, group=torch.arange(15)[None] // 3 * 2)
    part, spikes = layer.take_neurons(torch.tensor([10, 14])), roll_out([layer], INPUTS, "all")[..., 9:]
    assert part.group.tolist() == [[6, 6, 6, 8, 8, 8]]
    for same in (part, part.with_tensors({}), part.side_by_side()):
        assert torch.equal(roll_out([same], INPUTS, "all"), spikes)
    twice = stack_layers([part, part])
    assert torch.equal(roll_out([twice.side_by_side()], INPUTS, "all"), torch.cat((spikes, spikes), dim=2))
    needed = torch.zeros(2, 6, dtype=torch.bool)
    needed[0, 1] = needed[1, 5] = True
    assert twice.needed_by(needed).int().tolist() == [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]


def test_parts_that_would_change_spikes_are_refused_in_one_sentence():
    group = torch.tensor([[1, 1, 0, 2, 2, 2, 0]])
    whole = WitnessSet((draw(width=7, n_subnetworks=1, group=group),), Provenance("pretrained"))
    part = whole.take_neurons(torch.tensor([1, 2]))
    assert part.n_witnesses == 3
    assert whole.take_neurons(torch.tensor([6, 2])).n_witnesses == 2
    for call, message in (
        (lambda: whole.take_neurons(torch.tensor([4, 3])), "in rising order, got others"),
        (lambda: part.take_neurons(torch.tensor([0])), "expected neurons that are read, got rivals of such"),
        (lambda: whole.layers[0].take_neuron(3), "got lateral neurons of groups, which compete"),
        (lambda: whole.layers[0].take_inputs(torch.tensor([[0]])), "lateral neurons, which read inputs"),
    ):
        with pytest.raises(InvalidInputError, match=message) as caught:
            call()
        assert_one_sentence(caught.value)
    alone = whole.layers[0].take_neuron(2)
    assert torch.equal(roll_out([alone], INPUTS, "all")[..., 0], roll_out(whole.layers, INPUTS, "all")[..., 2])


@given(SEEDS)
@settings(max_examples=20)
def test_silence_of_whole_groups_changes_no_other_spike(seed):
    layer = draw(seed)
    needed = layer.needed_by(torch.rand(2, 9, generator=torch.Generator().manual_seed(seed)) < 0.3)
    for k, j in np.ndindex(2, 9):  # closed under rivalry
        rivals = (layer.group[k] == layer.group[k, j]) & (layer.group[k] > 0)
        assert not needed[k, j] or bool(needed[k][rivals].all())
    spikes, silenced = (roll_out([one], INPUTS, "all") for one in (layer, layer.silence(needed)))
    assert torch.equal(silenced, spikes & needed.flatten())
    assert not layer.silence(needed).statistics[~needed].any()


@given(SEEDS)
@settings(max_examples=20)
def test_layers_side_by_side_and_stacked_spike_as_each(seed):
    one, other = draw(seed), draw(seed + 1, n_taps=6)
    apart = torch.cat([roll_out([layer], INPUTS, "all") for layer in (one, other)], dim=2)
    stacked = stack_layers([one, other])
    assert torch.equal(roll_out([stacked], INPUTS, "all"), apart)
    assert torch.equal(roll_out([stacked.side_by_side()], INPUTS, "all"), apart)
    assert torch.equal(roll_out([stacked], INPUTS, "last"), apart[:, -1])
    assert torch.equal(roll_out([stacked.take(slice(2, 4))], INPUTS, "all"), apart[..., 18:])
    sets = [WitnessSet((layer,), Provenance("pretrained")) for layer in (one, other)]
    assert torch.equal(roll_out(join_witnesses(sets).layers, INPUTS, "all"), apart)


def test_layers_with_other_views_are_not_stacked():
    with pytest.raises(InvalidInputError, match="expected layers with equal settings to stack"):
        stack_layers([draw(), draw(views=tuple(reversed(VIEWS)))])


def test_layers_survive_pickling_and_conversion():
    layer = draw(bias=torch.full((2, 9), 0.1, dtype=torch.float64))
    again = pickle.loads(pickle.dumps(layer))
    narrow = layer.to(dtype=torch.float32)
    assert narrow.weight.dtype == torch.float64
    for other in (again, narrow, LateralLayer(**layer.tensors(), **layer.settings())):
        assert other.views == layer.views
        assert torch.equal(other.bias, layer.bias)
        assert torch.equal(roll_out([other], INPUTS, "all"), roll_out([layer], INPUTS, "all"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group": 2.0**31 + 1}, "group in whole numbers from 0 to 2147483648"),
        ({"group": -1}, "group in whole numbers from 0 to"),
        ({"group": 0.5}, "group in whole numbers from 0 to"),
        ({"statistics": 64}, "statistics in whole numbers from -1 to 63"),
        ({"statistics": 1.5}, "statistics in whole numbers from -1 to 63"),
        ({"views": ()}, r"views from 'values', 'changes', 'squares', 'squared changes', got \(\)"),
        ({"views": ("value",)}, "views from 'values'"),
        ({"views": 3}, "views from 'values'"),
        ({"views": VIEWS[:3]}, "taps that read 3 views of the inputs, got 8 sources"),
        ({"source": None, "delay": None, "n_sources": None}, "taps that read 4 views of the inputs, got 0 sources"),
    ],
)
def test_what_is_no_lateral_layer_is_refused_in_one_sentence(change, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        draw(**change)
    assert_one_sentence(caught.value)
