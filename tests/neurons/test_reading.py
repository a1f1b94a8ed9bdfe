import naive
import numpy as np
import pytest
import torch
from gpu_stand_in import paths_of_the_cpu
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from layers import draw_stack
from neurons.stacks import draw_inputs, draw_lateral

from cvxsnn import LIFLayer, SpikingNetwork, roll_out
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data import sequences as sequences_module
from cvxsnn.data.sequences import Sequences
from cvxsnn.network import OutputHead
from cvxsnn.neurons import LateralLayer, reading
from cvxsnn.neurons.exact import INPUT_UNIT, snap_inputs
from cvxsnn.neurons.lateral_kernel import largest_drives
from cvxsnn.neurons.reading import read_columns, roll_statistics
from cvxsnn.neurons.statistics import STATISTICS, Counters, entries

SEEDS = st.integers(0, 2**32 - 1)
ORDERS = st.lists(st.sampled_from(STATISTICS), min_size=1, unique=True).map(tuple)


def draw(seed=0, width=12, **changes):
    """Lateral neurons of which some share their taps or read the last step only, and of each its own statistics."""
    generator = torch.Generator().manual_seed(seed)
    layer = draw_lateral(width, 2, 2, seed)
    shared = torch.randint(width, (2, 1, width), generator=generator).expand_as(layer.weight) // 3 * 3
    tensors = {name: getattr(layer, name).gather(2, shared) for name in ("weight", "source", "delay")}
    reads = torch.randint(64, (2, width), generator=generator)
    single = 2 ** torch.randint(6, (2, width), generator=generator)
    is_single = torch.rand(2, width, generator=generator) < 0.4
    return layer.with_tensors({**tensors, "statistics": torch.where(is_single, single, reads).double(), **changes})


def read_directly(*bias):
    """Neurons without delays that add a bias each to the only input."""
    places = torch.zeros(1, 1, len(bias))
    taps = {"source": places, "delay": places, "n_sources": 1}
    return LateralLayer(torch.ones_like(places), bias=torch.tensor([bias], dtype=torch.float64), **taps)


def expected_numbers(layers, sequences, statistics):
    """The statistics that are read, (n_columns, n_samples), by their definitions."""
    lengths = [sequences.n_steps] * len(sequences) if sequences.lengths is None else sequences.lengths.tolist()
    columns = read_columns(layers, statistics).tolist()
    numbers = np.empty((len(columns), len(sequences)), dtype=np.int64)
    for row, (spikes, length) in enumerate(zip(roll_out(layers, sequences, "all").numpy(), lengths, strict=True)):
        each = [naive.train_numbers(train) for train in spikes[:length].T]
        numbers[:, row] = [each[place // len(statistics)][statistics[place % len(statistics)]] for place in columns]
    return torch.from_numpy(numbers)


@pytest.fixture
def three_threads(monkeypatch):
    monkeypatch.setattr("cvxsnn.neurons.tap_kernel._MIN_WORK", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


# Numbers and entries of spike trains.


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_statistics_are_those_of_the_definition_at_every_step(train):
    counters = Counters.start(1, 1, torch.device("cpu"))
    for step, fires in enumerate(train, 1):
        counters = counters.after(torch.tensor([[float(fires)]]))
        so_far = np.array(train[:step])
        assert {name: int(counters.number(name)) for name in STATISTICS} == naive.train_numbers(so_far)
        for name, entry in naive.train_entries(so_far).items():
            for n_steps in (step, torch.tensor([step])):
                assert float(entries(counters.number(name)[0].double(), name, n_steps)) == entry


@given(SEEDS, ORDERS)
def test_columns_are_the_statistics_that_neurons_name(seed, statistics):
    layer = draw(seed)
    expected = [
        neuron * len(statistics) + number
        for neuron, reads in enumerate(layer.statistics.flatten().tolist())
        for number, name in enumerate(statistics)
        if int(reads) >> STATISTICS.index(name) & 1
    ]
    assert read_columns([layer], statistics).tolist() == expected
    every = layer.with_tensors({"statistics": torch.full((2, 12), -1.0)})
    other = LIFLayer(torch.ones(2, 3, 12))
    assert len(read_columns([every], statistics)) == len(read_columns([other], statistics)) == 24 * len(statistics)


# The kernel, and counting step by step.


@given(SEEDS, st.lists(st.integers(1, 9), min_size=1, max_size=9), ORDERS, st.sampled_from([1, 200, 2**18]))
@settings(max_examples=60)
def test_statistics_of_a_roll_out_are_those_of_the_definition(seed, lengths, statistics, block):
    inputs = draw_inputs(len(lengths), 9, 2, seed)
    layer = draw(seed)
    for kept in (Sequences(inputs), Sequences(inputs, np.array(lengths))):
        for layers in ([layer], draw_stack(seed % 1000)):
            sequences = kept if layers[0] is layer else Sequences(draw_inputs(len(lengths), 9, 3, seed), kept.lengths)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(reading, "_BLOCK", block)
                found = roll_statistics(layers, sequences, statistics)
            assert torch.equal(found.long(), expected_numbers(layers, sequences, statistics))


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("is_whole", [False, True])
@pytest.mark.parametrize(("n_samples", "n_steps"), [(1, 2500), (3, 700), (70, 33), (2500, 2), (1, 1)])
def test_the_kernel_counts_what_a_roll_out_fires(n_samples, n_steps, is_whole):
    """Whatever the shape of its blocks, with sums in float32 and in float64, by several threads."""
    layer = draw(n_steps)
    inputs = draw_inputs(n_samples, n_steps, 2) / 4
    if is_whole:
        whole = torch.randint(-1, 2, layer.weight.shape, generator=torch.Generator().manual_seed(0)).double()
        layer = layer.with_tensors({"weight": whole, "bias": layer.bias.round()})  # rivals are often equal
        inputs = inputs.mul(8).round()
    lengths = np.random.default_rng(0).integers(1, n_steps + 1, n_samples)
    for sequences in (Sequences(inputs), Sequences(inputs, lengths)):
        found = roll_statistics([layer], sequences, STATISTICS)
        counted = reading._numbers(
            roll_out([layer], sequences, "all"), sequences.lengths, STATISTICS, read_columns([layer], STATISTICS)
        )
        assert torch.equal(found.long(), counted)
        assert len(found.unique(dim=0)) > 10 or n_samples * n_steps == 1


@pytest.mark.parametrize("n_samples", [1, 3, 64, 130])
def test_sums_that_float32_does_not_tell_apart_are_decided_exactly(n_samples):
    """Rivals whose drives differ by 2**-30, and neurons that miss the largest drive of a sequence by as little."""
    generator = torch.Generator().manual_seed(n_samples)
    inputs = torch.randn(n_samples, 30, 2, generator=generator, dtype=torch.float64)
    inputs[:, :, 1] = torch.randint(-1, 2, (n_samples, 30), generator=generator) * INPUT_UNIT
    weight = torch.randn(1, 3, 4, generator=generator, dtype=torch.float64).round(decimals=2) + 1
    weight = weight.repeat_interleave(8, dim=2)
    weight[:, 2] = torch.arange(32) % 8 * 2.0**-14
    source, delay = torch.tensor([0, 0, 1])[None, :, None], torch.tensor([0, 3, 0])[None, :, None]
    taps = {"source": source.expand(1, 3, 32), "delay": delay.expand(1, 3, 32), "n_sources": 2}
    layer = LateralLayer(weight, **taps)
    values = layer.view(snap_inputs(inputs).transpose(0, 1))
    largest = torch.from_numpy(largest_drives(layer, values, None)[:, 0])
    is_rival = torch.arange(32) < 16
    bias = torch.where(is_rival, 0.0, -largest + torch.tensor([0, 1, -1])[torch.arange(32) % 3] * 2.0**-30)
    group, statistics = torch.where(is_rival, torch.arange(32) // 8 + 1, 0), torch.where(is_rival, 4, 8)
    layer = layer.with_tensors({"bias": bias[None], "group": group[None], "statistics": statistics[None]})
    found = roll_statistics([layer], inputs, ("root", "ever"))
    assert torch.equal(found.long(), expected_numbers([layer], Sequences(inputs), ("root", "ever")))
    assert found[16:, 0].tolist() == [int(neuron % 3 < 2) for neuron in range(16, 32)]


@given(SEEDS, st.lists(st.integers(0, 2**30), min_size=1, max_size=12))
@settings(max_examples=20)
def test_columns_are_read_in_any_order_and_more_than_once(seed, places):
    layer, inputs = draw(seed), draw_inputs(5, 9, 2, seed)
    columns = read_columns([layer], STATISTICS)
    chosen = torch.tensor(places) % len(columns)
    expected = roll_statistics([layer], inputs, STATISTICS)[chosen]
    assert torch.equal(roll_statistics([layer], inputs, STATISTICS, columns[chosen]), expected)


def test_biases_of_rivals_are_added_without_rounding():
    """Sums that float32 holds, and biases that it would lose beside them."""
    generator = torch.Generator().manual_seed(0)
    layer = draw_lateral(40, 2, 1, views=("values",), n_sources=2, source=torch.zeros(1, 4, 40)).with_tensors(
        {
            "weight": torch.randint(-3, 4, (1, 4, 40), generator=generator).double(),
            "bias": 1e-7 * torch.rand(1, 40, generator=generator, dtype=torch.float64),
            "group": torch.arange(40)[None] // 8 + 1.0,
        }
    )
    inputs = torch.randint(-10, 10, (100, 20, 2), generator=generator) + 0.5
    found = roll_statistics([layer], inputs, ("mean", "last"))
    assert torch.equal(found.long(), expected_numbers([layer], Sequences(inputs), ("mean", "last")))


@pytest.mark.parametrize("level", [0.1, 1 / 3, 1 + 1e-12, -1e-30, 1e-30, 16.0, -16.0])
def test_levels_between_numbers_of_float32_are_met_from_the_same_side(level):
    layer = read_directly(-level, level)
    near = np.round(level * 2**16) + np.arange(-3, 4)
    inputs = (near[:, None, None] * np.array([1, -1])[:, None, None, None]).reshape(-1, 1, 1) / 2**16
    found = roll_statistics([layer], inputs, ("ever", "mean", "last"))
    assert torch.equal(found.long(), expected_numbers([layer], Sequences(inputs), ("ever", "mean", "last")))


@pytest.mark.parametrize(("n_steps", "dtype"), [(255, torch.uint8), (256, torch.int16), (40_000, torch.int32)])
def test_numbers_of_long_sequences_do_not_overflow(n_steps, dtype):
    layer = read_directly(0.0, -2.0)
    found = roll_statistics([layer], torch.ones(2, n_steps, 1), STATISTICS)
    assert found.dtype == dtype
    assert found.tolist() == [[one, one] for one in (n_steps, n_steps, n_steps, 1, 1, n_steps, 0, 0, 0, 0, 0, 0)]


@pytest.mark.usefixtures("gpu_stand_in")
@pytest.mark.parametrize("stack", ["lateral", "delays"])
def test_statistics_on_the_paths_of_a_gpu_are_the_same(stack, monkeypatch):
    layers = [draw()] if stack == "lateral" else draw_stack(0)
    inputs = draw_inputs(30, 9, layers[0].n_inputs)
    for lengths in (None, np.random.default_rng(0).integers(1, 10, 30)):
        sequences = Sequences(inputs, lengths)
        with paths_of_the_cpu():
            expected = roll_statistics(layers, sequences, STATISTICS)
        assert torch.equal(roll_statistics(layers, sequences, STATISTICS), expected)


def test_statistics_do_not_depend_on_order_padding_or_groups_of_similar_length(monkeypatch):
    layer, inputs = draw(), draw_inputs(40, 20, 2)
    lengths = torch.from_numpy(np.random.default_rng(0).integers(1, 21, 40))
    expected = roll_statistics([layer], Sequences(inputs, lengths), STATISTICS)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    shuffled = Sequences(inputs[order], lengths[order])
    assert torch.equal(roll_statistics([layer], shuffled, STATISTICS), expected[:, order])
    other = torch.where(torch.arange(20)[:, None] >= lengths[:, None, None], 31.5, inputs)
    assert torch.equal(roll_statistics([layer], Sequences(other, lengths), STATISTICS), expected)
    assert torch.equal(roll_statistics([layer], Sequences(snap_inputs(inputs), lengths), STATISTICS), expected)
    monkeypatch.setattr(sequences_module, "_STEP_ROWS", 0)  # a group for each power of two
    assert torch.equal(roll_statistics([layer], Sequences(inputs, lengths), STATISTICS), expected)


def test_sums_that_float64_would_round_are_refused_in_one_sentence():
    with pytest.raises(InvalidInputError, match=r"fit into 53 bits.*scale the inputs down") as caught:
        roll_statistics([draw()], draw_inputs(3, 4, 2) * 2.0**20, STATISTICS)
    assert "\n" not in str(caught.value)


# In a network.


@given(SEEDS, ORDERS, st.lists(st.integers(1, 9), min_size=1, max_size=6))
@settings(max_examples=30)
def test_a_network_has_the_same_features_in_a_batch_and_step_by_step(seed, statistics, lengths):
    inputs, layer = draw_inputs(len(lengths), 9, 2, seed), draw(seed)
    columns = read_columns([layer], statistics)
    assume(len(columns) and statistics not in (("mean",), ("last",)))  # read-outs of spikes
    weight = torch.randn(len(columns), 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    network = SpikingNetwork([layer], weight, [OutputHead("y", "softmax", 0, 2)], readout="+".join(statistics))
    expected = naive.lateral_spikes(layer, inputs)
    together = network.features(Sequences(inputs, np.array(lengths)))
    for row, length in enumerate(lengths):
        own = [naive.train_entries(train) for train in expected[row, :length].T]
        entry = [own[column // len(statistics)][statistics[column % len(statistics)]] for column in columns.tolist()]
        assert together[row].tolist() == entry
        state = network.start(1)
        for step in inputs[row, :length]:
            state, scores = network.step(state, step[None])
        assert torch.equal(scores, torch.tensor([entry], dtype=torch.float64) @ weight)


def test_statistics_that_neurons_do_not_name_are_refused():
    layer = draw().with_tensors({"statistics": torch.full((2, 12), 1.0)})
    heads = [OutputHead("y", "squared", 0, 1)]
    one = {"neurons": torch.tensor([3]), "readout": "mean+last"}
    SpikingNetwork([layer], torch.ones(1, 1), heads, windows_read=torch.tensor([0]), **one)
    with pytest.raises(InvalidInputError, match="expected statistics that the neurons of the last layer name"):
        SpikingNetwork([layer], torch.ones(1, 1), heads, windows_read=torch.tensor([1]), **one)
