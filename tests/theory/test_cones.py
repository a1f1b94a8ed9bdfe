import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from theory.families import SEEDS
from tolerances import GENERATED

from cvxsnn.theory.cones import WALL, Cone, Frontier

SIZES = st.sampled_from([3, 2**40])
"""Largest coordinate of a normal: products of the second leave 64 bits."""


def generators(cone):
    return np.array([*cone.rays, *cone.lines, *(tuple(-x for x in line) for line in cone.lines)], dtype=object)


def is_in(cone, point):
    rays = generators(cone)
    if len(rays) == 0:
        return not np.any(point)
    scaled = np.array([[float(x) for x in ray] for ray in rays])
    scaled /= np.linalg.norm(scaled, axis=1, keepdims=True)
    goal = np.array([float(x) for x in point])
    return nnls(scaled.T, goal)[1] <= GENERATED * max(1.0, np.linalg.norm(goal))


def draw_cuts(seed, dimension, size, n_cuts=6):
    """The whole space cut again and again: each time the cone, its constraints, the next normal, and the halves."""
    rng = np.random.default_rng(seed)
    cone, constraints = Cone.whole_space(dimension), []
    for number in range(1, n_cuts + 1):
        normal = tuple(int(x) for x in rng.integers(-size, size + 1, dimension))
        halves = cone.cut(normal, WALL << number)
        yield rng, cone, constraints, normal, halves
        side = int(rng.integers(2))
        cone = halves[side]
        constraints = [*constraints, np.array(normal, dtype=object) * (1 - 2 * side)]


@settings(max_examples=80)
@given(SEEDS, st.integers(1, 4), SIZES)
def test_generators_obey_every_constraint_and_masks_name_those_that_are_tight(seed, dimension, size):
    for _, _, constraints, normal, halves in draw_cuts(seed, dimension, size):
        for half, sign in zip(halves, (1, -1), strict=True):
            everything = [*constraints, sign * np.array(normal, dtype=object)]
            for ray, mask in zip(half.rays, half.tight, strict=True):
                values = [int(a @ np.array(ray, dtype=object)) for a in everything]
                assert min(values) >= 0
                assert [bool(mask & (WALL << k)) for k in range(1, len(values) + 1)] == [v == 0 for v in values]
            for line in half.lines:
                assert not any(int(a @ np.array(line, dtype=object)) for a in everything)


@settings(max_examples=80)
@given(SEEDS, st.integers(1, 4))
def test_rays_are_extreme_and_come_once(seed, dimension):
    for _, _, constraints, normal, halves in draw_cuts(seed, dimension, 3, n_cuts=8):
        for half, sign in zip(halves, (1, -1), strict=True):
            everything = np.array([*constraints, sign * np.array(normal)], dtype=float)
            assert len(set(half.rays)) == len(half.rays)
            for ray in half.rays:
                tight = everything[everything @ np.array(ray, dtype=float) == 0]
                rank = np.linalg.matrix_rank(tight) if len(tight) else 0
                assert rank == dimension - len(half.lines) - 1


@settings(max_examples=50)
@given(SEEDS, st.integers(1, 4), st.sampled_from([3, 2**20]))
def test_halves_together_are_the_cone_and_meet_in_the_hyperplane(seed, dimension, size):
    for rng, cone, _, normal, halves in draw_cuts(seed, dimension, size, n_cuts=5):
        rays = generators(cone)
        if len(rays) == 0:
            continue
        for _ in range(4):
            point = rng.integers(0, 4, len(rays)) @ rays
            value = int(np.array(normal, dtype=object) @ point)
            assert is_in(halves[0], point) or value < 0
            assert is_in(halves[1], point) or value > 0
        for half in halves:
            inside = generators(half)
            if len(inside):
                assert is_in(cone, rng.integers(0, 4, len(inside)) @ inside)


@settings(max_examples=60)
@given(SEEDS, st.integers(1, 4), SIZES)
def test_a_frontier_s_witnesses_lie_where_their_spikes_say_and_its_sets_are_disjoint(seed, dimension, size):
    rng = np.random.default_rng(seed)
    frontier = Frontier(Cone.whole_space(dimension), dimension)
    spikes, normals = np.zeros((1, 0), dtype=bool), []
    for _ in range(5):
        normals.append(rng.integers(-size, size + 1, dimension).astype(object))
        frontier.cut(np.broadcast_to(normals[-1], (len(frontier), dimension)))
        spikes = np.concatenate((spikes[frontier.origin], frontier.spikes[:, None]), axis=1)
        witnesses = np.array(list(frontier.witnesses()), dtype=object).reshape(-1, dimension)
        assert np.array_equal((witnesses @ np.array(normals).T >= 0).astype(bool), spikes)
        assert len({row.tobytes() for row in spikes}) == len(frontier)


def test_the_apex_alone_has_no_rays_to_sum():
    assert Cone([], [], []).interior() == ()


def test_sets_that_were_not_cut_are_the_first_one():
    frontier = Frontier(Cone.whole_space(2), 2)
    assert np.array(["first"])[frontier.origin].tolist() == ["first"]
