import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from theory.families import SEEDS

from cvxsnn.theory import LIFFamily, enumerate_lif, price
from cvxsnn.theory.box_search import BoxSearch, Coordinates, Found
from cvxsnn.theory.line_search import climb, random_points
from cvxsnn.theory.spike_trees import SpikeTrees


def draw_trees(seed, shape):
    rng = np.random.default_rng(seed)
    inputs, weights = rng.normal(size=shape), rng.integers(-99, 100, (*shape[:2], 1))
    events = LIFFamily(0.5, bias=True).on(inputs)
    return inputs, weights, SpikeTrees.of(events, weights)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.sampled_from([(20, 1, 2), (8, 2, 1), (4, 4, 1)]))
def test_the_sizes_of_points_are_those_of_their_neurons(seed, shape):
    _, _, trees = draw_trees(seed, shape)
    frame = Coordinates.of(trees)
    events = frame.problem.events._replace(
        normals=frame.normals.astype(float), gains=trees.gains[:, :, 0].astype(float)
    )
    problem = frame.problem._replace(events=events, offset=float(trees.offset[0]))
    points, sizes = climb(problem, frame.has_wall, random_points(4, len(frame.columns), frame.has_wall, 0), 5, 0)
    for point, size in zip(points, sizes, strict=True):
        neuron = frame.parameters(np.rint(point * 2.0**30).astype(np.int64))
        assert abs(trees.value_at(neuron)[0]) == size
        assert not frame.has_wall or neuron[-1] >= 0


def test_lines_find_the_best_of_all_neurons_of_small_problems_more_often_than_not():
    n_best = 0
    for seed in range(20):
        inputs, weights, trees = draw_trees(seed, (6, 2, 1))
        best = abs(np.einsum("pnt,ntk->pk", enumerate_lif(LIFFamily(0.5, bias=True), inputs).spikes, weights)).max()
        found = Found()
        BoxSearch()._look_around(Coordinates.of(trees), found)
        assert found.value <= best
        n_best += found.value == best
    assert n_best > 10


def test_a_search_that_need_not_be_thorough_stops_without_boxes_if_lines_find_enough():
    inputs, weights, _ = draw_trees(0, (30, 1, 2))
    events, dual = LIFFamily(0.5, bias=True).on(inputs), weights[:, :, 0].astype(float)
    best = price(events, dual)
    quick = price(events, dual, enough=0.7 * best.value, is_thorough=False)
    assert quick.n_boxes == 0
    assert 0.7 * best.value < quick.value <= best.value <= quick.bound
    assert price(events, dual, enough=0.7 * best.value, is_thorough=False, start=best.parameters).value == best.value


def test_random_points_are_the_same_for_a_seed_and_on_the_surface_of_the_cube():
    free, walled = random_points(200, 3, False, 5), random_points(200, 3, True, 5)
    assert np.array_equal(free, random_points(200, 3, False, 5))
    assert not np.array_equal(free, random_points(200, 3, False, 6))
    for points in (free, walled):
        assert np.array_equal(abs(points).max(1), np.ones(200))
    assert np.array_equal(walled[:, :2], free[:, :2])
    assert np.array_equal(walled[:, 2], abs(free[:, 2]))
    assert (free < 0).any(0).all()
