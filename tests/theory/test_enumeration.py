import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory.families import (
    FAMILIES,
    SEEDS,
    as_set,
    columns_of,
    draw_parameters,
    draw_sequences,
    float_spikes,
    grid,
)

from cvxsnn import build_dictionary
from cvxsnn.core.errors import BudgetError, CvxsnnError, InvalidInputError, RealisationError
from cvxsnn.theory import (
    LIFFamily,
    complete_dictionary,
    count_cells,
    enumerate_lif,
    enumerate_patterns,
)
from cvxsnn.theory.lif_family import LIFEvents

READOUTS = ("last", "all", "mean")
KINDS = st.sampled_from(["ties", "generic"])


@settings(max_examples=60)
@given(FAMILIES, SEEDS, st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), KINDS)
def test_every_trajectory_is_its_witness_s_exactly_and_none_comes_twice(
    family, seed, n_samples, n_steps, n_features, kind
):
    inputs = draw_sequences(np.random.default_rng(seed), n_samples, n_steps, n_features, kind)
    found = enumerate_lif(family, inputs)
    assert found.spikes.shape == (len(found), n_samples, n_steps)
    assert np.array_equal(family.on(inputs).simulate(found.parameters), found.spikes)
    assert len(as_set(found.spikes)) == len(found)
    assert family.negative_threshold or all(int(u) >= 0 for u in found.parameters[:, -1])


@settings(max_examples=60)
@given(FAMILIES, SEEDS, st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), KINDS)
def test_every_neuron_has_an_enumerated_trajectory(family, seed, n_samples, n_steps, n_features, kind):
    rng = np.random.default_rng(seed)
    inputs = draw_sequences(rng, n_samples, n_steps, n_features)
    parameters = draw_parameters(rng, family, 500, n_features, kind)
    assert as_set(float_spikes(family, parameters, inputs)) <= as_set(enumerate_lif(family, inputs).spikes)


@settings(max_examples=60)
@given(FAMILIES, SEEDS, st.integers(1, 2), st.integers(1, 2))
def test_trajectories_are_those_of_a_fine_grid_of_parameters(family, seed, n_samples, n_steps):
    inputs = draw_sequences(np.random.default_rng(seed), n_samples, n_steps, 1)
    everything = grid(family, 1, 10 if family.bias else 40)
    assert as_set(enumerate_lif(family, inputs).spikes) == as_set(float_spikes(family, everything, inputs))


@settings(max_examples=30)
@given(FAMILIES, SEEDS)
def test_neither_order_nor_repetition_of_samples_changes_the_trajectories(family, seed):
    rng = np.random.default_rng(seed)
    inputs = draw_sequences(rng, 3, 2, 2)
    order = rng.integers(0, 3, 6)
    order[:3] = rng.permutation(3)
    found, shuffled = enumerate_lif(family, inputs), enumerate_lif(family, inputs[order])
    assert as_set(found.spikes[:, order]) == as_set(shuffled.spikes)
    assert len(found) == len(shuffled)


@settings(max_examples=30)
@given(SEEDS, st.integers(1, 5), st.integers(1, 2), KINDS)
def test_of_single_steps_the_trajectories_are_the_patterns_of_hyperplanes(seed, n_samples, n_features, kind):
    inputs = draw_sequences(np.random.default_rng(seed), n_samples, 1, n_features, kind)
    rows = np.round(inputs[:, 0] * 2**16)
    found = enumerate_lif(LIFFamily(0.5), inputs)
    assert as_set(found.spikes[:, :, 0]) == as_set(enumerate_patterns(rows).patterns)


def test_a_negative_threshold_and_a_bias_each_add_trajectories():
    inputs = np.array([[[1.0], [-2.0], [1.0]], [[-1.0], [1.0], [1.0]]])
    plain = as_set(enumerate_lif(LIFFamily(0.5), inputs).spikes)
    for larger in (LIFFamily(0.5, bias=True), LIFFamily(0.5, negative_threshold=True)):
        assert plain < as_set(enumerate_lif(larger, inputs).spikes)


def test_late_blank_steps_do_not_outgrow_64_bits():
    rows = [[-6, 7, 0, 0, 0, 0, 0, 0, 0, 0], [-5, -6, 0, 0, 0, 0, 0, 0, 0, 0]]
    inputs = np.array(rows, dtype=float)[:, :, None]
    family = LIFFamily(1 / 128)
    found = enumerate_lif(family, inputs)
    assert np.array_equal(family.on(inputs).simulate(found.parameters), found.spikes)
    assert as_set(float_spikes(family, grid(family, 1, 30), inputs)) <= as_set(found.spikes)


@pytest.mark.parametrize("readout", READOUTS)
@settings(max_examples=12)
@given(FAMILIES, SEEDS, KINDS)
def test_the_complete_dictionary_is_what_a_read_out_sees_of_all_trajectories(readout, family, seed, kind):
    inputs = draw_sequences(np.random.default_rng(seed), 4, 3, 1, kind)
    spikes = enumerate_lif(family, inputs).spikes
    seen = {"last": spikes[:, :, -1], "all": spikes.reshape(len(spikes), -1), "mean": spikes.sum(2) / 3}[readout]
    dictionary = complete_dictionary(inputs, family, readout=readout)
    assert dictionary.is_complete
    assert dictionary.n_atoms == dictionary.n_columns
    atoms = np.unique(dictionary.columns().numpy().T.round(9), axis=0)
    assert np.array_equal(atoms, np.unique(seen.astype(float).round(9), axis=0))


def test_without_a_family_the_dictionary_is_that_of_hyperplanes():
    points = np.random.default_rng(0).integers(-2, 3, (5, 2)).astype(float)
    expected = as_set(enumerate_patterns(points).patterns)
    assert columns_of(complete_dictionary(points[:, None])) == expected


@pytest.mark.parametrize("readout", ["last", "all"])
@pytest.mark.parametrize("lower", [(1,), (2,), (1, 1)])
@pytest.mark.parametrize("family", [LIFFamily(0.5), LIFFamily(1.0, bias=True)], ids=["leaky", "bias"])
def test_every_deep_network_has_its_pattern_in_the_complete_dictionary(family, lower, readout):
    rng = np.random.default_rng(len(lower))
    inputs = draw_sequences(rng, 3, 2, 1)
    atoms = columns_of(complete_dictionary(inputs, family, lower, readout))
    seen = set()
    for number in range(600):
        values, kind = inputs, "ties" if number % 2 else "generic"
        for width in (*lower, 3):
            parameters = draw_parameters(rng, family, width, values.shape[2], kind)
            values = float_spikes(family, parameters, values).transpose(1, 2, 0).astype(float)
        seen |= as_set((values[:, -1] if readout == "last" else values.reshape(-1, 3)).T)
    assert seen <= atoms
    assert len(seen) > len(atoms) / 3


def test_wider_lower_layers_never_take_a_pattern_away():
    inputs = draw_sequences(np.random.default_rng(1), 3, 2, 1)
    sizes = [columns_of(complete_dictionary(inputs, LIFFamily(0.5), (width,), "all")) for width in (1, 2, 40)]
    assert sizes[0] <= sizes[1] <= sizes[2]


def test_witnesses_of_a_complete_dictionary_say_what_they_are():
    found = complete_dictionary(draw_sequences(np.random.default_rng(0), 2, 2, 1), LIFFamily(0.5), (1,), "mean")
    recipe = {"family": LIFFamily(0.5).record(), "lower": (1,), "readout": "mean"}
    assert found.witnesses.provenance.recipe == recipe


def test_witnesses_that_do_not_produce_their_patterns_are_an_error(monkeypatch):
    inputs = draw_sequences(np.random.default_rng(0), 4, 2, 1)
    real = LIFEvents.layer
    monkeypatch.setattr(LIFEvents, "layer", lambda self, parameters: real(self, 0 * parameters))
    with pytest.raises(RealisationError, match=r"expected \d+ patterns from their witnesses, got 1"):
        complete_dictionary(inputs, LIFFamily(0.5))
    assert issubclass(RealisationError, CvxsnnError)


def test_more_patterns_than_allowed_are_refused_before_the_work_and_during_it():
    inputs = np.random.default_rng(0).normal(size=(4, 2, 1))
    with pytest.raises(BudgetError, match=r"at most 5 patterns, but about 16 may exist"):
        enumerate_lif(LIFFamily(0.5), inputs, max_patterns=5)
    with pytest.raises(BudgetError, match=r"at most 20 patterns, but about \d+ may exist"):
        complete_dictionary(inputs, LIFFamily(0.5), (2,), max_patterns=20)
    # Trajectories part where pasts differ, so that there can be more of them than hyperplanes in general position cut.
    steps, family = np.random.default_rng(0).normal(size=(1, 8, 1)), LIFFamily(0.5, negative_threshold=True)
    assert len(enumerate_lif(family, steps)) > count_cells(8, 2) == 16
    with pytest.raises(BudgetError, match=r"at most 16 patterns, and found more than \d+: raise max_patterns"):
        enumerate_lif(family, steps, max_patterns=16)


@pytest.mark.parametrize("width", [0, -1, 1.5])
def test_widths_that_are_no_numbers_of_neurons_are_refused(width):
    with pytest.raises(InvalidInputError, match="lower"):
        complete_dictionary(np.ones((1, 1, 1)), LIFFamily(0.5), (width,))


def test_witnesses_of_a_complete_dictionary_are_only_sampled_on_other_sequences():
    rng = np.random.default_rng(0)
    dictionary = complete_dictionary(draw_sequences(rng, 4, 2, 1), LIFFamily(0.5))
    other = build_dictionary(dictionary.witnesses, draw_sequences(rng, 9, 2, 1))
    assert dictionary.is_complete
    assert not other.is_complete
