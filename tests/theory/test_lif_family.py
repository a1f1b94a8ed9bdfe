from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory.families import FAMILIES, SEEDS, draw_parameters, draw_sequences, exact_spikes

from cvxsnn import roll_out
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data.sequences import as_inputs
from cvxsnn.neurons.exact import snap_inputs
from cvxsnn.theory import LIFFamily

KINDS = st.sampled_from(["ties", "generic"])


def draw_neurons(rng, family, events, n_neurons, kind):
    """Integer parameters, bias and threshold counted in the inputs' unit."""
    drawn = draw_parameters(rng, family, n_neurons, events.n_weights, kind)
    scale = np.array([1.0] * events.n_weights + [1 / events.unit] * (events.dimension - events.n_weights))
    return np.rint(drawn * scale * (1 if kind == "ties" else 2**10)).astype(np.int64).astype(object)


@settings(max_examples=40)
@given(FAMILIES, SEEDS, st.integers(1, 4), st.integers(1, 2), KINDS)
def test_simulated_spikes_are_those_of_the_membrane_s_recurrence(family, seed, n_steps, n_features, kind):
    rng = np.random.default_rng(seed)
    inputs = draw_sequences(rng, 3, n_steps, n_features, kind)
    events = family.on(inputs)
    parameters = draw_neurons(rng, family, events, 6, kind)
    snapped = snap_inputs(as_inputs(inputs)).numpy()
    for neuron, spikes in zip(parameters, events.simulate(parameters), strict=True):
        assert np.array_equal(spikes, exact_spikes(family, neuron, snapped, events.unit))


@settings(max_examples=60)
@given(FAMILIES, SEEDS, st.integers(1, 5), st.integers(1, 3), KINDS)
def test_a_layer_rolled_out_has_the_simulated_spikes_bit_for_bit(family, seed, n_steps, n_features, kind):
    rng = np.random.default_rng(seed)
    inputs = draw_sequences(rng, 5, n_steps, n_features, kind)
    events = family.on(inputs)
    parameters = draw_neurons(rng, family, events, 40, kind)
    rolled = roll_out([events.layer(parameters)], inputs, "all").numpy()
    assert np.array_equal(rolled.transpose(2, 0, 1), events.simulate(parameters))


def test_parameters_too_long_for_weights_are_shortened_without_a_change_of_spikes():
    family, inputs = LIFFamily(0.5), draw_sequences(np.random.default_rng(0), 5, 3, 2)
    events = family.on(inputs)
    rng = np.random.default_rng(1)
    parameters = np.array([[int(x) << 50 for x in row] for row in rng.integers(-9, 10, (20, 3))], dtype=object)
    parameters[:, -1] = abs(parameters[:, -1])
    layer = events.layer(parameters)
    assert float(layer.weight.abs().max()) < 2**31
    assert np.array_equal(roll_out([layer], inputs, "all").numpy().transpose(2, 0, 1), events.simulate(parameters))


def test_a_neuron_near_the_edge_of_its_cell_gets_the_short_weights_of_the_middle():
    rng = np.random.default_rng(0)
    inputs = rng.integers(-9, 10, (12, 1, 2)).astype(float)
    events = LIFFamily(0.5, bias=True).on(inputs)
    edge = np.array([*inputs[0, 0].astype(int)[::-1] * [1, -1], 0, 0], dtype=object)  # a tie of the first sample
    for step in (1, -1):
        neuron = edge * 2**50
        neuron[2] += step
        short = events.representable(neuron[None])
        assert abs(int(abs(short).max())) < 2**16
        assert np.array_equal(events.simulate(short), events.simulate(neuron[None]))
    assert not np.array_equal(events.simulate(edge[None] * 2**50 + [0, 0, 1, 0]), events.simulate(neuron[None]))


@pytest.mark.parametrize("n_steps", [1, 3])
def test_a_neuron_whose_rounded_weights_all_have_ties_gets_those_of_the_middle(n_steps):
    rng = np.random.default_rng(0)
    inputs = rng.integers(-9, 10, (6, n_steps, 2)).astype(float)
    inputs[0] = rng.integers(1, 9, (n_steps, 1))
    for family in (LIFFamily(0.5, bias=True), LIFFamily(0.5, bias=True, negative_threshold=True)):
        events = family.on(inputs)
        # The first sample is just below the threshold: without the last bit of the bias it fires.
        neuron = np.array([[2**60, -(2**60), -1, 2**60]], dtype=object)
        assert not events.simulate(neuron)[0, 0].any()
        short = events.representable(neuron)
        assert 0 < abs(short).max() < 2**31
        assert np.array_equal(events.simulate(short), events.simulate(neuron))


def test_weights_of_more_than_32_bits_are_shortened():
    events = LIFFamily(0.5).on(np.ones((1, 2, 1)))
    for weight, is_short in ((2**31 - 1, True), (2**31, False), (2**31 + 1, False), (-(2**32), False)):
        neuron = np.array([[weight, 2**20]], dtype=object)
        short = events.representable(neuron)
        assert abs(short[0, 0]) < 2**31
        assert np.array_equal(short, neuron) == is_short
        assert np.array_equal(events.simulate(short), events.simulate(neuron))


@pytest.mark.parametrize("decay", [243 / 256, 255 / 256])
def test_ties_of_counts_with_more_than_53_bits_are_exact(decay):
    numerator, denominator = decay.as_integer_ratio()
    rng, n_steps, n_ties = np.random.default_rng(0), 8, 0
    for _ in range(10):
        inputs = rng.integers(-40_000, 40_001, (1, n_steps, 1)).astype(float)
        events = LIFFamily(decay, negative_threshold=True).on(inputs)
        for history in product((False, True), repeat=n_steps - 1):
            counted = 0
            for step, fired in enumerate(history, 1):
                counted = numerator * counted + denominator**step * fired
            neuron = np.array([counted, int(events.sums[0, -1, 0])], dtype=object)
            spikes = events.simulate(neuron[None])[0, 0]
            if tuple(spikes[:-1]) == history:  # a tie in the end
                n_ties += 1
                assert np.array_equal(spikes[None], exact_spikes(events.family, neuron, inputs, events.unit))
    assert n_ties > 10


def test_parameters_that_no_weights_of_32_bits_stand_for_are_refused():
    # Only multiples of (2**33, -2**33 - 1) fire on both.
    inputs = np.array([[[2.0**17 + 2.0**-16, 2.0**17]], [[-(2.0**17) - 2.0**-16, -(2.0**17)]]])
    events = LIFFamily(0.0).on(inputs)
    with pytest.raises(InvalidInputError, match=r"32 bits can represent.*round the inputs to fewer bits"):
        events.layer(np.array([[2**33, -(2**33) - 1, 0]], dtype=object))


@pytest.mark.parametrize("decay", [-0.5, 1.5, 0.9, 1 / 512, float("nan")])
def test_a_decay_that_cannot_be_exact_is_refused(decay):
    with pytest.raises(InvalidInputError, match=r"decay between 0 and 1 and a multiple of 1/256"):
        LIFFamily(decay)


@pytest.mark.parametrize("decay", [0.0, 1 / 256, 0.5, 255 / 256, 1.0])
def test_multiples_of_one_256th_are_decays(decay):
    assert LIFFamily(decay).on(np.ones((1, 2, 1))).dimension == 2


def test_counts_of_spikes_that_outgrow_64_bits_are_python_s_integers():
    inputs = np.zeros((1, 12, 1))
    inputs[0, 0] = 1.0
    events = LIFFamily(1 / 128).on(inputs)
    parameters = np.array([[1, 1], [-1, 0], [128**10, 1]], dtype=object)
    for neuron, spikes in zip(parameters, events.simulate(parameters), strict=True):
        assert np.array_equal(spikes, exact_spikes(events.family, neuron, inputs, events.unit))
    assert events.sums.dtype == object


@pytest.mark.parametrize("inputs", [np.ones((2, 2)), np.full((1, 1, 1), np.nan), np.ones((0, 1, 1))])
def test_what_are_no_sequences_is_refused(inputs):
    with pytest.raises(InvalidInputError, match="expected"):
        LIFFamily(0.5).on(inputs)


def test_a_family_says_which_neurons_it_has():
    assert str(LIFFamily(0.5)) == "LIF neurons with decay 0.5, without bias and with thresholds of at least zero"
    assert str(LIFFamily(0.5, True, True)).endswith("with bias and with thresholds of either sign")
    assert str(LIFFamily(0.0, True, resets=False)) == "threshold neurons, with bias"
    assert str(LIFFamily(0.5, resets=False)) == "neurons with decay 0.5 that are not reset, without bias"


@pytest.mark.parametrize(("n_steps", "kind"), [(4, np.int64), (12, object)])
def test_sums_are_whole_numbers_of_64_bits_where_they_fit(n_steps, kind):
    sums = LIFFamily(1 / 256, bias=True).on(draw_sequences(np.random.default_rng(0), 3, n_steps, 2)).sums
    assert sums.dtype == kind
    assert all(isinstance(value, int) for value in sums.ravel().tolist())


def test_no_neurons_have_no_spikes():
    events = LIFFamily(0.5).on(np.ones((2, 3, 1)))
    assert events.simulate(np.zeros((0, 2), dtype=object)).shape == (0, 2, 3)
