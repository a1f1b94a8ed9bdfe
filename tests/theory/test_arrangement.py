from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from theory.families import SEEDS, as_set
from tolerances import GENERATED

from cvxsnn.core.errors import BudgetError, InvalidInputError
from cvxsnn.theory import count_cells, enumerate_patterns

ROWS = st.integers(1, 7)
DIMENSIONS = st.integers(1, 4)


def draw_points(seed, n_points, dimension, kind):
    rng = np.random.default_rng(seed)
    points = rng.integers(-2, 3, (n_points, dimension)).astype(float)
    if kind == "general":
        return rng.normal(size=(n_points, dimension))
    if kind == "degenerate":  # opposite, repeated and collinear rows, and one of zeros
        points[n_points // 2 :] = (
            points[: n_points - n_points // 2] * rng.choice([-1, 1, 3, 0], (n_points + 1) // 2)[:, None]
        )
    return points


KINDS = st.sampled_from(["general", "integers", "degenerate"])


def exact_pattern(points, vector):
    return [sum(Fraction(float(z)) * int(u) for z, u in zip(row, vector, strict=True)) >= 0 for row in points]


def cone_of_ones_is_a_cell(points):
    """Whether some u has Zu > 0."""
    n_points, dimension = points.shape
    found = linprog(
        [0.0] * dimension + [-1.0],
        A_ub=np.hstack((-points, np.ones((n_points, 1)))),
        b_ub=np.zeros(n_points),
        bounds=[(-1, 1)] * dimension + [(None, 1)],
    )
    return -found.fun > GENERATED


@settings(max_examples=80)
@given(SEEDS, ROWS, DIMENSIONS, KINDS)
def test_every_pattern_is_its_witness_s_exactly_and_none_comes_twice(seed, n_points, dimension, kind):
    points = draw_points(seed, n_points, dimension, kind)
    found = enumerate_patterns(points)
    assert found.patterns.shape == (len(found), n_points)
    assert found.witnesses.shape == (len(found), dimension)
    assert (found.patterns.dtype, found.witnesses.dtype) == (bool, object)
    for pattern, witness in zip(found.patterns, found.witnesses, strict=True):
        assert pattern.tolist() == exact_pattern(points, witness)
    assert len(as_set(found.patterns)) == len(found)


@settings(max_examples=80)
@given(SEEDS, ROWS, DIMENSIONS, KINDS)
def test_every_vector_has_an_enumerated_pattern(seed, n_points, dimension, kind):
    points = draw_points(seed, n_points, dimension, kind)
    enumerated = as_set(enumerate_patterns(points).patterns)
    rng = np.random.default_rng(seed)
    generic = points @ rng.normal(size=(dimension, 300)) >= 0
    enough = 2 if dimension > 2 else 4
    whole = np.array(list(product(range(-enough, enough + 1), repeat=dimension)))
    ties = [exact_pattern(points, u) for u in whole[rng.permutation(len(whole))[:60]]] if kind == "general" else []
    if kind != "general":  # small integers: float64 is exact
        ties = (points @ whole.T >= 0).T
    assert as_set(generic.T) | as_set(ties) <= enumerated


@settings(max_examples=60)
@given(SEEDS, st.integers(1, 9), DIMENSIONS)
def test_in_general_position_the_count_is_cover_s_and_one_for_the_tie_at_zero(seed, n_points, dimension):
    points = draw_points(seed, n_points, dimension, "general")
    expected = count_cells(n_points, dimension) + (not cone_of_ones_is_a_cell(points))
    assert len(enumerate_patterns(points)) == expected


def test_cover_s_formula_counts_all_patterns_of_few_points_and_all_parts_of_a_line_and_a_plane():
    assert [count_cells(n, 5) for n in (1, 3, 5)] == [2, 8, 32]
    assert [count_cells(n, 1) for n in (1, 4)] == [2, 2]
    assert [count_cells(n, 2) for n in (1, 4, 10)] == [2, 8, 20]
    assert count_cells(4, 3) == 14


@settings(max_examples=80)
@given(st.lists(st.integers(-2, 2), min_size=1, max_size=6))
def test_on_a_line_the_patterns_are_those_of_three_numbers(values):
    points = np.array(values, dtype=float)[:, None]
    assert as_set(enumerate_patterns(points).patterns) == as_set((points @ [[-1, 0, 1]] >= 0).T)


@settings(max_examples=120)
@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=1, max_size=8))
def test_in_a_plane_the_patterns_are_those_between_normals_and_on_them(rows):
    points = np.array(rows)
    turned = points[:, ::-1] * [-1, 1]
    directions = np.concatenate((points, -points, turned, -turned, np.eye(2, dtype=int), -np.eye(2, dtype=int)))
    directions = directions[directions.any(1)]
    order = np.argsort(np.arctan2(directions[:, 1], directions[:, 0]))
    directions = directions[order]
    between = [a + b for a, b in pairwise([*directions, directions[0]])]
    candidates = np.concatenate((directions, between, np.zeros((1, 2), dtype=int)))
    assert as_set(enumerate_patterns(points).patterns) == as_set((points @ candidates.T >= 0).T)


@settings(max_examples=40)
@given(SEEDS, ROWS, st.integers(1, 3))
def test_patterns_do_not_depend_on_positive_factors_of_the_rows_however_large_or_small(seed, n_points, dimension):
    points = draw_points(seed, n_points, dimension, "integers")
    expected = as_set(enumerate_patterns(points).patterns)
    rng = np.random.default_rng(seed)
    beyond_int64 = points.astype(np.int64) * (2 * rng.integers(2**40, 2**42, (n_points, 1)) + 1)
    of_all_sizes = points * rng.choice([2.0**1000, 1.0, 2.0**-1000], (n_points, 1))
    for scaled in (beyond_int64, of_all_sizes):
        assert as_set(enumerate_patterns(scaled).patterns) == expected


def test_floats_are_taken_for_exactly_what_they_are():
    points = np.array([[1e300, 2.0**-1000], [1e300, -(2.0**-1000)], [1.0, np.nextafter(1.0, 2)], [1.0, 1.0]])
    found = enumerate_patterns(points)
    assert len(found) == count_cells(4, 2)
    for pattern, witness in zip(found.patterns, found.witnesses, strict=True):
        assert pattern.tolist() == exact_pattern(points, witness)


def test_points_of_zero_always_fire_and_opposite_points_fire_together_at_ties_only():
    assert as_set(enumerate_patterns(np.zeros((3, 2))).patterns) == as_set([[1, 1, 1]])
    assert as_set(enumerate_patterns([[1.0, 0.0], [-1.0, 0.0]]).patterns) == as_set([[1, 0], [0, 1], [1, 1]])


def test_more_patterns_than_allowed_are_refused_with_the_estimate():
    with pytest.raises(BudgetError, match=r"at most 400 patterns, but about 464 may exist"):
        enumerate_patterns(np.ones((12, 4)), max_patterns=400)
    with pytest.raises(BudgetError, match="2,000,000 patterns"):
        enumerate_patterns(np.ones((300, 8)))
    assert len(enumerate_patterns(np.ones((12, 4)), max_patterns=464)) == 2


@pytest.mark.parametrize("points", [np.ones(3), np.ones((2, 2, 2)), np.array([[np.nan]]), np.ones((0, 3)), [["a"]]])
def test_what_are_no_points_is_refused(points):
    with pytest.raises(InvalidInputError, match="expected"):
        enumerate_patterns(points)
