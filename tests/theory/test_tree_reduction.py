import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from theory.families import FAMILIES, SEEDS, draw_parameters

from cvxsnn.theory import LIFFamily
from cvxsnn.theory.spike_trees import SpikeTrees

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


def test_two_equal_steps_are_one_event_and_three_are_three():
    rng = np.random.default_rng(0)
    for n_steps, n_events in ((1, 1), (2, 1), (3, 3)):
        inputs = np.repeat(rng.normal(size=(6, 1, 2)), n_steps, axis=1)
        weights = np.zeros((6, n_steps, 1), dtype=np.int64)
        weights[:, -1] = 1
        trees = SpikeTrees.of(LIFFamily(0.5, bias=True).on(inputs), weights)
        assert len(trees.normals) == 6 * n_events
        either = SpikeTrees.of(LIFFamily(0.5, bias=True, negative_threshold=True).on(inputs), weights)
        assert len(either.normals) >= len(trees.normals)
