import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory.families import FAMILIES, SEEDS, draw_parameters

from cvxsnn.theory import LIFFamily
from cvxsnn.theory.spike_trees import SpikeTrees
from cvxsnn.theory.tree_reduction import _implied

KINDS = st.sampled_from(["repeated", "scaled", "small"])


def draw_inputs(rng, n_steps, kind):
    """Sequences in which many steps are parallel to others."""
    first = rng.integers(-2, 3, (4, 1, 2))
    if kind == "repeated":
        return np.repeat(first, n_steps, axis=1).astype(float)
    if kind == "scaled":
        return (first * rng.integers(0, 3, (4, n_steps, 1))).astype(float)
    return rng.integers(-1, 2, (4, n_steps, 2)).astype(float)


@settings(max_examples=120, deadline=None)
@given(FAMILIES, SEEDS, KINDS, st.integers(1, 4))
def test_trees_give_every_neuron_the_sum_of_its_spikes(family, seed, kind, n_steps):
    rng = np.random.default_rng(seed)
    inputs = draw_inputs(rng, n_steps, kind)
    weights = rng.integers(-9, 10, (4, n_steps, 2))
    events = family.on(inputs)
    drawn = draw_parameters(rng, family, 60, 2, "ties" if seed % 2 else "generic")
    neurons = np.rint(drawn * 2**10).astype(np.int64).astype(object)
    neurons[0] = 0
    expected = np.einsum("pnt,ntk->pk", events.simulate(neurons), weights)
    assert np.array_equal(SpikeTrees.of(events, weights).values_at(neurons), expected)


@pytest.mark.parametrize(
    ("normal", "other", "after_silence", "after_a_spike"),
    [
        ((1, 0, 0), (1, 0, 0), 0, 1),
        ((2, -2, 4), (1, -1, 2), 0, 1),
        ((0, 1, -1), (0, 3, -3), 0, 1),
        ((1, 0, 1), (1, 0, 0), None, 1),  # the threshold is added, which is not negative
        ((1, 0, -1), (1, 0, 0), 0, None),
        ((0, 3, 1), (0, 2, 0), None, 1),
        ((-1, 0, 0), (1, 0, 0), None, None),
        ((1, 0, 0), (1, 1, 0), None, None),
        ((0, 0, -1), (1, 0, 0), None, None),  # a neuron with threshold zero fires
        ((1, 0, 0), (0, 0, -1), None, None),
    ],
)
def test_events_decide_others_in_the_same_direction(normal, other, after_silence, after_a_spike):
    assert _implied(normal, other, 0, True) == after_silence
    assert _implied(normal, other, 1, True) == after_a_spike
    for side in (0, 1):  # with thresholds of either sign only an equal event is decided
        decided = side if (after_silence, after_a_spike) == (0, 1) else None
        assert _implied(normal, other, side, False) == decided


def test_two_equal_steps_are_one_event_and_three_are_three():
    rng = np.random.default_rng(0)
    for n_steps, n_events in ((1, 1), (2, 1), (3, 3)):
        inputs = np.repeat(rng.normal(size=(6, 1, 2)), n_steps, axis=1)
        inputs[0, :, 0] = 0
        weights = np.zeros((6, n_steps, 1), dtype=np.int64)
        weights[:, -1] = 1
        trees = SpikeTrees.of(LIFFamily(0.5, bias=True).on(inputs), weights)
        assert len(trees.normals) == 6 * n_events
        either = SpikeTrees.of(LIFFamily(0.5, bias=True, negative_threshold=True).on(inputs), weights)
        assert len(either.normals) >= len(trees.normals)
