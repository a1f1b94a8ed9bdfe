from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory.families import SEEDS, draw_parameters, float_spikes
from theory.sweeps import sweep

from cvxsnn.core.errors import BudgetError
from cvxsnn.theory import LIFFamily, enumerate_lif, enumerate_patterns, price, spike_trees
from cvxsnn.theory.box_kernel import END, explore
from cvxsnn.theory.box_search import Boxes, BoxSearch, Coordinates, Found, Proof, bound_boxes
from cvxsnn.theory.spike_trees import SpikeTrees, common_zero, pivot_columns

KINDS = st.sampled_from(["generic", "grid", "line", "repeated"])


def draw_points(rng, kind, n_points):
    if kind == "generic":
        return rng.integers(-1000, 1001, (n_points, 2))
    points = rng.integers(-2, 3, (n_points, 2))
    if kind == "line":
        points[:, 1] = 2 * points[:, 0] + 1
    return points[rng.integers(0, n_points, n_points)] if kind == "repeated" else points


@settings(max_examples=60, deadline=None)
@given(SEEDS, KINDS, st.integers(1, 14))
def test_boxes_a_sweep_and_an_enumeration_find_the_same_price(seed, kind, n_points):
    rng = np.random.default_rng(seed)
    points, weights = draw_points(rng, kind, n_points), rng.integers(-9, 10, n_points)
    found = price(LIFFamily(0.5, bias=True).on(points[:, None].astype(float)), weights[:, None].astype(float))
    patterns = enumerate_patterns(np.column_stack((points, np.ones(n_points)))).patterns
    assert found.value == found.bound == sweep(points, weights.tolist()) == abs(patterns @ weights).max()


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.sampled_from([(30, 1, 2), (12, 2, 2), (6, 3, 1)]))
def test_no_sampled_neuron_is_above_the_bound(seed, shape):
    rng, family = np.random.default_rng(seed), LIFFamily(0.5, bias=True)
    inputs, dual = rng.integers(-20, 21, shape).astype(float), rng.normal(size=shape[:2])
    drawn = draw_parameters(rng, family, 300, shape[2], "generic")
    prices = np.abs((float_spikes(family, drawn, inputs) * dual).sum((1, 2)))
    found = price(family.on(inputs), dual)
    assert prices.max() <= found.bound
    assert found.bound <= found.value * (1 + 1e-9)


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_the_price_of_several_outputs_is_the_largest_of_them(seed):
    rng, family = np.random.default_rng(seed), LIFFamily(0.5, bias=True)
    inputs, dual = rng.integers(-3, 4, (5, 2, 1)).astype(float), rng.normal(size=(5, 2, 3))
    sums = np.einsum("pnt,ntk->pk", enumerate_lif(family, inputs).spikes, dual)
    expected = abs(sums).max()
    found = price(family.on(inputs), dual)
    assert found.value == pytest.approx(expected, rel=1e-9)
    assert expected * (1 - 1e-12) <= found.bound <= expected * (1 + 1e-9)


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_the_price_of_a_group_is_the_largest_norm(seed):
    rng, family = np.random.default_rng(seed), LIFFamily(0.5, bias=True)
    inputs, dual = rng.integers(-3, 4, (5, 2, 1)).astype(float), rng.normal(size=(5, 2, 3))
    expected = np.linalg.norm(np.einsum("pnt,ntk->pk", enumerate_lif(family, inputs).spikes, dual), axis=1).max()
    found = price(family.on(inputs), dual, is_group=True)
    assert found.value == pytest.approx(expected, rel=1e-9)
    assert expected * (1 - 1e-12) <= found.bound <= expected * (1 + 1e-9)
    hasty = price(family.on(inputs), dual, is_group=True, max_boxes=3)
    assert expected * (1 - 1e-12) <= hasty.bound


def test_a_hasty_search_finds_neurons_above_what_is_enough_and_a_valid_bound():
    rng = np.random.default_rng(0)
    inputs, dual = rng.normal(size=(60, 1, 3)), rng.normal(size=(60, 1))
    events = LIFFamily(0.5, bias=True).on(inputs)
    largest = price(events, dual)
    hasty = price(events, dual, enough=0.5 * largest.value, is_thorough=False, n_found=50)
    assert len(hasty.parameters) > 5
    assert hasty.value <= largest.bound
    assert hasty.bound >= largest.value * (1 - 1e-12)


def test_columns_that_depend_on_earlier_ones_are_left_out():
    rows = np.array([[1, 2, 0, 3], [2, 4, 1, 7], [0, 0, 5, 5]])
    assert pivot_columns(rows) == [0, 2]
    assert pivot_columns(rows.astype(object) * 10**30) == [0, 2]
    assert pivot_columns(np.zeros((2, 3), dtype=np.int64)) == []


def test_a_common_zero_is_on_all_hyperplanes_and_near():
    normals = np.array([[1, 2, -1], [3, 6, -3]])
    point = common_zero(normals, np.array([5, -1, 1], dtype=object))
    assert not (normals @ point).any()
    assert point.any()
    assert point @ np.array([5, -1, 1]) > 0


@pytest.mark.parametrize("n_samples", [1, 3])
def test_trees_have_as_many_events_as_allowed_and_no_more(n_samples, monkeypatch):
    events = LIFFamily(0.5).on(np.random.default_rng(0).normal(size=(n_samples, 4, 3)))
    weights = np.arange(1, 4 * n_samples + 1).reshape(n_samples, 4, 1)
    monkeypatch.setattr(spike_trees, "_MAX_EVENTS", 15 * n_samples)
    trees = SpikeTrees.of(events, weights)
    assert len(trees.normals) == 15 * n_samples
    assert trees.depth == 4
    assert (trees.edges[-8 * n_samples :] == -1).all()  # the last step of every history
    monkeypatch.setattr(spike_trees, "_MAX_EVENTS", 15 * n_samples - 1)
    with pytest.raises(BudgetError, match=f"got {15 * n_samples}: use fewer steps or samples"):
        SpikeTrees.of(events, weights)


@pytest.mark.parametrize(
    ("inputs", "has_lift"),
    [([[1, -1], [2, -9]], True), ([[3, -1], [-1, 2]], True), ([[1, -1], [-1, 1]], False), ([[0, 0], [1, 1]], False)],
)
def test_a_lift_is_a_feature_or_the_sum_of_all_that_is_positive_everywhere(inputs, has_lift):
    inputs = np.array(inputs, dtype=float)[:, None]
    weights = np.ones((2, 1, 1), dtype=np.int64)
    assert SpikeTrees.of(LIFFamily(0.5).on(inputs), weights).has_lift == has_lift
    assert SpikeTrees.of(LIFFamily(0.5, bias=True).on(inputs), weights).has_lift


def trees_of(normals, gains):
    """Trees of one event each."""
    n_events = len(normals)
    added = np.zeros((n_events, 2, 1), dtype=np.int64)
    added[:, 1, 0] = gains
    ends, roots = np.full((n_events, 2), -1, dtype=np.int64), np.arange(n_events)
    return SpikeTrees(np.array(normals, dtype=object), ends, added, roots, np.zeros(1, dtype=np.int64), False, False)


def test_what_is_found_near_a_point_is_moved_as_near_to_it_as_its_spikes_need():
    # Where the first event meets (1, 1), a neuron is best on its lower side, and close enough to keep the second.
    trees = trees_of([[1, -1], [100, -99]], [-5, 7])
    frame, centre, found = Coordinates.of(trees, np.eye(2, dtype=np.int64).astype(object)), np.array([1, 1]), Found()
    near = replace(trees, normals=trees.normals[:1], edges=trees.edges[:1], gains=trees.gains[:1], roots=np.array([0]))
    search = BoxSearch()
    bound, _ = search._search_near(frame, replace(near, offset=np.array([7])), centre, found)
    assert found.value == bound == 7
    assert trees.value_at(found.parameters[0][1]) == [7]
    for step in ((-1, 0), (0, 1)):
        assert abs(trees.value_at(np.array([1, 1], dtype=object) + step)[0]) < 7


def test_bounds_of_divided_normals_are_constant_ones():
    # Without its last bits the second and third event are silent on the box, and fire there.
    trees = trees_of([[2**50, 2**50], [-(2**13), 2**13 - 1], [-(2**13) + 1, 2**13 - 1]], [1, 100, 100])
    frame = Coordinates.of(trees, np.eye(2, dtype=np.int64).astype(object))
    assert (frame.slack, frame.n_excess) == (1, 13)
    assert frame.normals[1:].tolist() == [[-1, 0], [-1, 0]]
    boxes = Boxes(np.array([[2**19, 2**20]]), np.array([[2**17, 0]]), np.zeros(1), np.array([2**20]))
    for target in (0.0, 150.0, 199.0):
        bounds, is_tilted = bound_boxes(frame.problem, boxes, target)
        assert (bounds[0], is_tilted[0]) == (201.0, False)
        found = explore(frame.problem, boxes.centres, boxes.halves, boxes.closest, target, 1, 43, False, True)
        assert END.tilted not in found.codes[0, : found.n_codes[0]]


@settings(max_examples=60)
@given(SEEDS, st.integers(2, 9), st.booleans())
def test_no_neuron_is_above_the_bound_of_divided_normals(seed, n_events, is_whitened):
    rng = np.random.default_rng(seed)
    scales = 2 ** rng.integers(2, 14, n_events)
    normals = np.array([rng.integers(-s, s + 1, 2).tolist() for s in scales.tolist()], dtype=object)
    normals[0] = (2**50 + 1, 2**49 - 1)
    weights = rng.integers(-9, 10, n_events)
    trees = trees_of(normals, weights)
    frame = Coordinates.of(trees, None if is_whitened else np.eye(2, dtype=np.int64).astype(object))
    assert frame.slack == 1
    found = BoxSearch(max_boxes=500).run(trees, Proof(frame))
    largest = abs(enumerate_patterns(normals.astype(np.int64)).patterns @ weights).max()
    assert found.value <= largest <= found.bound
