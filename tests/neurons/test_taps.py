"""Synapses with delays, against a plain definition and against each other."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layers import draw_layer, draw_stack
from naive import tap_spikes, window_counts
from small_models import assert_one_sentence

from cvxsnn import InvalidInputError, LIFLayer, ThresholdLayer, roll_out
from cvxsnn.data import Sequences
from cvxsnn.neurons import Stepper, Taps
from cvxsnn.neurons.exact import snap_inputs
from cvxsnn.neurons.layer import stack_layers, with_taps
from cvxsnn.neurons.rollout import count_spikes
from cvxsnn.neurons.taps import last_window, lift, lifted_weight, read_taps


def draw_inputs(seed, n_samples=9, n_steps=7, n_inputs=3):
    return np.random.default_rng(seed).normal(size=(n_samples, n_steps, n_inputs))


def exact(inputs):
    return snap_inputs(torch.as_tensor(inputs)).numpy()


@given(st.integers(0, 10**6), st.sampled_from([torch.float32, torch.float64]), st.sampled_from(["ge", "gt"]))
def test_spikes_are_those_of_the_definition(seed, dtype, tie):
    layer, inputs = draw_layer(seed, dtype=dtype, tie=tie), draw_inputs(seed)
    assert np.array_equal(roll_out([layer], inputs, "all").numpy(), tap_spikes(layer, exact(inputs)))


@given(st.integers(0, 10**6), st.integers(1, 8))
def test_counts_in_windows_and_last_spikes_of_unequal_lengths(seed, n_windows):
    layer, inputs = draw_layer(seed), draw_inputs(seed)
    lengths = np.random.default_rng(seed).integers(1, 8, size=9)
    expected = tap_spikes(layer, exact(inputs), lengths)
    for own in (lengths, np.full(9, 7)):
        sequences = Sequences(inputs, own)
        expected = tap_spikes(layer, exact(inputs), own)
        assert np.array_equal(roll_out([layer], sequences, "all").numpy(), expected)
        assert np.array_equal(roll_out([layer], sequences, "last").numpy(), expected[np.arange(9), own - 1])
        counts = count_spikes([layer], sequences, n_windows).numpy()
        assert np.array_equal(counts, window_counts(expected, own, n_windows))


@pytest.mark.parametrize("has_lengths", [False, True])
def test_sequences_of_more_steps_than_a_byte_counts(has_lengths):
    layer, inputs = draw_layer(1, bias=3.0), draw_inputs(1, n_steps=300)
    lengths = np.arange(292, 301) if has_lengths else np.full(9, 300)
    sequences, expected = Sequences(inputs, lengths), tap_spikes(layer, exact(inputs), lengths)
    assert expected.sum(1).max() > 255
    assert np.array_equal(roll_out([layer], sequences, "last").numpy(), expected[np.arange(9), lengths - 1])
    for n_windows in (1, 2, 300):
        counts = count_spikes([layer], sequences, n_windows).numpy()
        assert np.array_equal(counts, window_counts(expected, lengths, n_windows))


@given(st.integers(0, 10**6), st.integers(1, 8))
def test_dense_layers_are_counted_in_windows_too(seed, n_windows):
    inputs, lengths = draw_inputs(seed), np.random.default_rng(seed).integers(1, 8, size=9)
    layer = draw_layer(seed, n_taps=3, source=None, delay=None, n_sources=None)
    for own in (lengths, np.full(9, 7)):
        expected = window_counts(tap_spikes(layer, exact(inputs), own), own, n_windows)
        assert np.array_equal(count_spikes([layer], Sequences(inputs, own), n_windows).numpy(), expected)


@given(st.integers(0, 10**6))
def test_taps_without_delay_are_a_dense_layer(seed):
    dense = draw_layer(seed, n_taps=3, source=None, delay=None, n_sources=None)
    inputs = draw_inputs(seed)
    assert torch.equal(roll_out([with_taps(dense, 5)], inputs, "all"), roll_out([dense], inputs, "all"))


@given(st.integers(0, 10**6), st.integers(0, 9))
def test_a_delay_is_a_shift_of_the_input(seed, delay):
    dense, inputs = draw_layer(seed, n_taps=3, source=None, delay=None, n_sources=None), draw_inputs(seed)
    delayed = with_taps(dense, 3).with_tensors({"delay": torch.full(dense.weight.shape, delay)})
    shifted = np.concatenate([np.zeros((9, delay, 3)), inputs], axis=1)[:, :7]
    assert torch.equal(roll_out([delayed], inputs, "all"), roll_out([dense], shifted, "all"))


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_spikes_do_not_depend_on_later_inputs(seed, step):
    layer, inputs = draw_layer(seed), draw_inputs(seed)
    changed = inputs.copy()
    changed[:, step:] = draw_inputs(seed + 1)[:, step:]
    before, after = (roll_out([layer], values, "all")[:, :step] for values in (inputs, changed))
    assert torch.equal(before, after)


@given(st.integers(0, 10**6))
def test_a_stack_is_its_layers_one_by_one(seed):
    layers, inputs = draw_stack(seed), draw_inputs(seed)
    spikes = tap_spikes(layers[0], exact(inputs))
    for layer in layers[1:]:
        spikes = tap_spikes(layer, np.split(spikes.astype(float), 2, axis=2))
    assert np.array_equal(roll_out(layers, inputs, "all").numpy(), spikes)


@given(st.integers(0, 10**6))
def test_stepping_is_the_roll_out_and_leaves_states_as_they_are(seed):
    layers, inputs = draw_stack(seed), draw_inputs(seed)
    expected = roll_out(layers, inputs, "all")
    stepper = Stepper(layers)
    states = [stepper.start(9)]
    for t in range(7):
        state, spikes = stepper.step(states[-1], inputs[:, t])
        assert torch.equal(spikes, expected[:, t])
        states.append(state)
    assert torch.equal(stepper.step(states[3], inputs[:, 3])[1], expected[:, 3])


@given(st.integers(0, 10**6), st.integers(1, 2000), st.sampled_from(["last", "all"]))
def test_blocks_and_batches_do_not_matter(seed, chunk_bytes, steps):
    layers, inputs = draw_stack(seed), draw_inputs(seed)
    whole = roll_out(layers, inputs, steps)
    assert torch.equal(roll_out(layers, inputs, steps, chunk_bytes=chunk_bytes), whole)
    assert torch.equal(torch.cat([roll_out(layers, part[None], steps) for part in inputs]), whole)


@given(st.integers(0, 10**6), st.integers(2, 40))
def test_torch_sums_over_taps_as_the_kernel_does(seed, n_taps):
    """Neuron models without a kernel gather, or multiply densely where a neuron reads most of its past."""
    lif, inputs = draw_layer(seed, n_taps=n_taps, decay=0.0, threshold=0.0, initial_spikes=0.0), draw_inputs(seed)
    taps = {"source": lif.source, "delay": lif.delay, "n_sources": 3}
    other = ThresholdLayer(lif.weight, bias=lif.bias, **taps)
    assert torch.equal(roll_out([other], inputs, "all"), roll_out([lif], inputs, "all"))


@given(st.integers(0, 10**6))
def test_joined_layers_keep_their_spikes(seed):
    layers = [
        draw_layer(seed),
        draw_layer(seed + 1, n_taps=2, max_delay=9),
        draw_layer(seed + 2, n_taps=3, source=None, delay=None, n_sources=None),
    ]
    inputs = draw_inputs(seed)
    together = torch.cat([roll_out([layer], inputs, "all") for layer in layers], dim=2)
    assert torch.equal(roll_out([stack_layers(layers)], inputs, "all"), together)


@given(st.integers(0, 10**6))
def test_fewer_inputs_and_neurons(seed):
    layer, inputs = draw_layer(seed, n_inputs=4), draw_inputs(seed, n_inputs=4)
    chosen = torch.tensor([[3, 1], [0, 2]])
    fewer = layer.take_inputs(chosen)
    for k in range(2):
        alone = inputs.copy()
        alone[:, :, [f for f in range(4) if f not in chosen[k]]] = 0
        expected = roll_out([layer.take(slice(k, k + 1))], alone, "all")
        assert torch.equal(roll_out([fewer.take(slice(k, k + 1))], inputs[:, :, chosen[k]], "all"), expected)
    one = layer.take_neuron(torch.tensor([2, 4]))
    assert torch.equal(roll_out([one], inputs, "all"), roll_out([layer], inputs, "all")[:, :, [2, 10]])
    read = [[int(((layer.source[k] == f) & (layer.weight[k] != 0)).sum()) for f in range(4)] for k in range(2)]
    assert layer.fan_out().tolist() == read


def test_conversion_keeps_taps_whole():
    layer = draw_layer(0).to(dtype=torch.float64)
    assert layer.source.dtype == layer.delay.dtype == torch.int32
    assert layer.weight.dtype == torch.float64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delay": torch.full((2, 5, 6), -1)}, "delay from 0 to"),
        ({"delay": torch.full((2, 5, 6), 0.5)}, "delay in whole numbers"),
        ({"delay": torch.full((2, 5, 6), float("nan"))}, "delay in whole numbers"),
        ({"delay": torch.zeros(2, 5, 1)}, "delay of shape"),
        ({"source": torch.full((2, 5, 6), 3)}, "source from 0 to 2"),
        ({"source": None}, "source, delay and n_sources together"),
        ({"n_sources": 0}, "n_sources"),
    ],
)
def test_bad_taps_are_refused(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        replace(draw_layer(0), **changes)


def draw_taps(seed, n_taps=4, max_delay=6, n_sources=3):
    """Distinct taps in any order."""
    places = np.random.default_rng(seed).permutation((max_delay + 1) * n_sources)[:n_taps]
    return Taps(places % n_sources, places // n_sources, n_sources)


@given(st.integers(0, 10**6), st.booleans())
def test_a_lifted_input_is_what_the_taps_read(seed, is_unequal):
    taps, inputs = draw_taps(seed), draw_inputs(seed)
    lengths = np.random.default_rng(seed).integers(1, 7, size=9) if is_unequal else None
    lifted = taps.lift(Sequences(inputs, lengths))
    for tap, (source, delay) in enumerate(zip(taps.source, taps.delay, strict=True)):
        for t in range(7):
            expected = inputs[:, t - delay, source] if t >= delay else np.zeros(9)
            assert np.array_equal(lifted.inputs[:, t, tap], expected)
    assert lifted.lengths is None if lengths is None else lifted.lengths.tolist() == lengths.tolist()


@given(st.integers(0, 10**6), st.sampled_from(["last", "all"]))
def test_taps_over_the_inputs_are_a_dense_layer_over_lifted_ones(seed, steps):
    taps, inputs = draw_taps(seed), draw_inputs(seed)
    dense = draw_layer(seed, n_taps=4, source=None, delay=None, n_sources=None)
    sequences = Sequences(inputs, np.random.default_rng(seed).integers(1, 8, size=9))
    tapped = taps.attach(dense)
    assert (tapped.n_inputs, tapped.n_taps) == (3, 4)
    assert torch.equal(roll_out([tapped], sequences, steps), roll_out([dense], taps.lift(sequences), steps))
    assert torch.equal(roll_out([tapped], inputs, steps), roll_out([dense], taps.lift(inputs), steps))


@given(st.integers(0, 10**6))
def test_the_geometry_of_a_layer_is_that_of_all_weights_that_are_not_zero(seed):
    taps, dense = draw_taps(seed), draw_layer(seed, n_taps=4, source=None, delay=None, n_sources=None)
    layer = taps.attach(dense)
    assert Taps.of(dense) == Taps([0, 1, 2, 3], [0, 0, 0, 0], 4)
    weight = layer.weight.clone()
    weight[0, 0, 0] = 0.0
    assert Taps.of(layer.with_tensors({"weight": weight})) == taps
    assert Taps.of(layer) == Taps.of(with_taps(layer, 6)) == taps  # others of weight zero read input 0 without delay
    both = stack_layers([layer, draw_taps(seed + 1).attach(dense)])
    pairs = {(s, d) for one in (taps, draw_taps(seed + 1)) for s, d in zip(one.source, one.delay, strict=True)}
    found = Taps.of(both)
    assert set(zip(found.source, found.delay, strict=True)) == pairs
    assert len(found) == len(pairs)


def test_taps_that_always_read_zero_are_left_out_if_wanted():
    layer = Taps([0, 1, 2], [3, 0, 4], 3).attach(LIFLayer(torch.ones(1, 3, 2)))
    assert [len(Taps.of(layer, n_steps)) for n_steps in (None, 5, 4, 3)] == [3, 3, 2, 1]
    assert Taps.of(layer, 4) == Taps([0, 1], [3, 0], 3)


def test_a_geometry_is_a_value_and_says_what_it_reads():
    taps = Taps(torch.tensor([1, 0, 1, 1]), np.array([2.0, 0.0, 0.0, 5.0]), 2)
    assert taps == Taps([1, 0, 1, 1], (2, 0, 0, 5), 2)
    assert hash(taps) == hash(Taps([1, 0, 1, 1], (2, 0, 0, 5), 2))
    assert str(taps) == "input 0 at delay 0, input 1 at delays 0, 2 and 5"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], [-1], 1), "delay from 0 to"),
        (([0], [0.5], 1), "delay in whole numbers"),
        (([0], [float("nan")], 1), "delay in whole numbers"),
        (([0], [2**20 + 1], 1), "delay from 0 to 1048576"),
        (([0, 2], [0, 0], 2), "source from 0 to 1, got values from 0 to 2"),
        (([-1], [0], 2), "source from 0 to 1"),
        (([], [], 2), "at least one tap"),
        (([0, 1], [0], 2), "a source and a delay for each tap, got 2 and 1"),
        (([0, 1, 0], [3, 3, 3], 2), "taps that differ in source or delay"),
        ((0, 0, 2), "source to be a list of whole numbers"),
        (([0], ["one"], 2), "delay to be a list of whole numbers"),
        (([0], [0], 0), "n_sources to be a positive integer"),
    ],
)
def test_a_bad_geometry_is_refused_in_one_sentence(arguments, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        Taps(*arguments)
    assert_one_sentence(caught.value)


def test_sequences_and_layers_that_do_not_fit_a_geometry_are_refused_in_one_sentence():
    taps = Taps([0, 1], [0, 3], 2)
    dense = draw_layer(0, n_taps=3, source=None, delay=None, n_sources=None)
    assert len(taps.lift(np.ones((1, 4, 2)))) == 1
    for refused, message in [
        (lambda: taps.lift(np.ones((1, 3, 2))), "delays shorter than the sequences of 3 steps, got 3"),
        (lambda: taps.lift(np.ones((1, 4, 3))), "sequences of 2 features, which these taps read, got 3"),
        (lambda: taps.attach(dense), "reads 2 values, one per tap, got one without delays that has 3"),
        (lambda: taps.attach(draw_layer(0, n_taps=2)), "got one with delays"),
    ]:
        with pytest.raises(InvalidInputError, match=message) as caught:
            refused()
        assert_one_sentence(caught.value)


@given(st.integers(0, 10**6), st.booleans())
def test_reading_taps_is_a_product_with_lifted_inputs(seed, is_shared):
    layer = draw_layer(seed, dtype=torch.float64)
    layer = layer.with_tensors(
        {"delay": layer.delay + 50 * (layer.weight == 0)}
    )  # a tap without a weight reads nothing
    shape = (7, 4, 3) if is_shared else (2, 7, 4, 3)
    block = torch.tensor(np.random.default_rng(seed).normal(size=shape)).requires_grad_()
    weight = torch.randn(layer.weight.shape, dtype=torch.float64).requires_grad_()
    gathered = (read_taps(layer, block) * weight[:, None, None]).sum(-2)
    lifted = lift(block, layer.max_delay).flatten(-3, -2) @ lifted_weight(layer, weight)
    torch.testing.assert_close(gathered.flatten(1, 2), lifted)
    pairs = [torch.autograd.grad(own.square().sum(), (block, weight)) for own in (gathered, lifted)]
    for one, other in zip(*pairs, strict=True):
        torch.testing.assert_close(one, other)
    assert not bool(pairs[0][1][layer.weight == 0].any())


def test_steps_one_by_one_lose_no_bit_of_weights_inputs_and_the_past():
    # Exactly, both sums are below zero by one unit in a place that float32 does not have.
    weight = torch.tensor([[[-(1 + 2.0**-13), -1.0], [1.0, 1.0]]])
    source = torch.tensor([[[0, 0], [1, 1]]])
    delay = torch.tensor([[[0, 1], [0, 0]]])
    layer = LIFLayer(weight, source=source, delay=delay, n_sources=2, decay=0.0)
    inputs = torch.tensor(
        [[[1 + 2.0**-16, 1 + 2.0**-13 + 2.0**-16], [256 + 2.0**-16, 0.0], [0.0, 256.0]]], dtype=torch.float64
    )
    together = roll_out([layer], inputs, "all")
    assert not together[0, 0, 0]
    assert not together[0, 2, 1]
    stepper = Stepper([layer])
    state = stepper.start(1)
    for t in range(3):
        state, spikes = stepper.step(state, inputs[:, t])
        assert torch.equal(spikes, together[:, t])


@pytest.mark.parametrize("max_delay", [0, 3, 9])
@pytest.mark.parametrize("is_shared", [False, True])
def test_the_last_window_is_the_last_row_of_lifted_inputs(max_delay, is_shared):
    block = torch.randn((7, 5, 3) if is_shared else (2, 7, 5, 3), generator=torch.Generator().manual_seed(0))
    lifted = lift(block, max_delay)
    assert torch.equal(last_window(block, max_delay), lifted[..., -1:, :, :])
    lengths = torch.tensor([7, 1, 3, 4, 7])
    found = last_window(block, max_delay, lengths)
    for sample, length in enumerate(lengths.tolist()):
        assert torch.equal(found[..., 0, sample, :], lifted[..., length - 1, sample, :])


MEMORYLESS = {"decay": 0.0, "threshold": 0.0}


def stacks_without_memory(seed):
    """One layer, of few and of many neurons, with and without delays; and such a layer above another."""
    return [
        [draw_layer(seed, **MEMORYLESS)],
        [draw_layer(seed, n_taps=3, source=None, delay=None, n_sources=None, **MEMORYLESS)],
        [draw_layer(seed), draw_layer(seed + 1, n_inputs=6, width=3, **MEMORYLESS)],
        [draw_layer(seed), draw_layer(seed + 1, n_inputs=6, width=80, **MEMORYLESS)],
    ]


@given(st.integers(0, 10**6), st.integers(1, 7))
def test_the_last_spikes_of_neurons_without_memory_are_the_last_of_all(seed, n_steps):
    inputs = draw_inputs(seed, n_steps=n_steps)
    lengths = np.random.default_rng(seed).integers(1, n_steps + 1, size=9)
    for layers in stacks_without_memory(seed):
        assert layers[-1].is_memoryless
        spikes = roll_out(layers, inputs, "all")
        assert torch.equal(roll_out(layers, inputs, "last", chunk_bytes=64), spikes[:, -1])
        unequal = roll_out(layers, Sequences(torch.tensor(inputs), lengths), "last")
        assert torch.equal(unequal, spikes[torch.arange(9), torch.tensor(lengths) - 1])


def test_neurons_with_a_leak_or_a_reset_have_a_memory():
    assert not draw_layer(0, decay=0.5, threshold=0.0).is_memoryless
    assert not draw_layer(0, decay=0.0, threshold=0.5).is_memoryless
    assert not ThresholdLayer(torch.ones(1, 1, 1), recurrent_weight=torch.ones(1, 1, 1)).is_memoryless
