import time
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import ROUNDING
from torch import Tensor

from cvxsnn.convex.solvers import quadratic
from cvxsnn.convex.solvers.quadratic import minimise_l1_quadratic as minimise_together

TOLERANCE = 1e-9
SIZES = st.tuples(st.integers(1, 12), st.integers(1, 12))
SEEDS = st.integers(0, 2**32 - 1)
VALUES = st.sampled_from(["real", "binary"])


def minimise_l1_quadratic(
    gram: Tensor, linear: Tensor, strength: Tensor, start: Tensor, *, tolerance: float, **limits: Any
) -> Tensor:
    """Minimise a single problem."""
    rows = (values[None] for values in (linear, strength, start))
    return minimise_together(gram, *rows, tolerance=linear.new_full((1,), tolerance), **limits)[0]


def draw(seed: int, size: tuple[int, int], values: str) -> tuple[Tensor, Tensor, Tensor]:
    """Gram matrix of rank at most ``min(size)``, linear term in its range, strengths of which some are zero."""
    generator = torch.Generator().manual_seed(seed)
    rank, n = size
    factor = torch.randn(rank, n, generator=generator, dtype=torch.float64)
    factor = factor if values == "real" else (factor > 0).double()
    right = torch.randn(rank, generator=generator, dtype=torch.float64)
    strength = torch.rand(n, generator=generator, dtype=torch.float64)
    free = torch.rand(n, generator=generator) < 0.2
    return factor.T @ factor, factor.T @ right, strength.masked_fill(free, 0.0)


def draw_start(seed: int, n: int, size: float) -> Tensor:
    start = size * torch.randn(n, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    return torch.where(start > 0, start, 0.0)


def value(gram: Tensor, linear: Tensor, strength: Tensor, x: Tensor) -> float:
    return float(0.5 * x @ gram @ x - linear @ x + strength @ x.abs())


def violation(gram: Tensor, linear: Tensor, strength: Tensor, x: Tensor) -> float:
    """Distance of zero from the subdifferential, in the largest coordinate."""
    slope = gram @ x - linear
    return float(torch.where(x == 0, (slope.abs() - strength).clamp_min(0), (slope + strength * x.sign()).abs()).max())


@settings(max_examples=200)
@given(SEEDS, SIZES, VALUES, st.sampled_from([0.0, 1e-6, 1.0, 100.0]))
def test_result_satisfies_the_optimality_conditions(seed: int, size: tuple[int, int], values: str, far: float) -> None:
    quadratic = draw(seed, size, values)
    x = minimise_l1_quadratic(*quadratic, draw_start(seed, size[1], far), tolerance=TOLERANCE)
    assert violation(*quadratic, x) <= TOLERANCE


@settings(max_examples=100)
@given(SEEDS, SIZES, VALUES, st.sampled_from([0.0, 1.0, 100.0]), st.integers(1, 3))
def test_objective_is_never_above_that_of_the_start(
    seed: int, size: tuple[int, int], values: str, far: float, max_iterations: int
) -> None:
    quadratic = draw(seed, size, values)
    start = draw_start(seed, size[1], far)
    x = minimise_l1_quadratic(*quadratic, start, tolerance=TOLERANCE, max_iterations=max_iterations)
    before = value(*quadratic, start)
    assert value(*quadratic, x) <= before + ROUNDING * max(1.0, abs(before))


@settings(max_examples=50)
@given(SEEDS, SIZES, VALUES)
def test_a_minimiser_stays_where_it_is(seed: int, size: tuple[int, int], values: str) -> None:
    quadratic = draw(seed, size, values)
    x = minimise_l1_quadratic(*quadratic, draw_start(seed, size[1], 1.0), tolerance=TOLERANCE)
    assert torch.equal(minimise_l1_quadratic(*quadratic, x, tolerance=TOLERANCE), x)


def test_each_of_many_minimisers_stays_where_it_is() -> None:
    # Two equal columns: only the sum of the coordinates matters, and one is its best value.
    gram, linear, strength = torch.ones(2, 2).double(), torch.full((2,), 1.5).double(), torch.full((2,), 0.5).double()
    for first in (0.0, 0.25, 1.0):
        start = torch.tensor([first, 1 - first], dtype=torch.float64)
        assert torch.equal(minimise_l1_quadratic(gram, linear, strength, start, tolerance=TOLERANCE), start)


def test_the_start_is_left_as_it_was() -> None:
    quadratic = draw(0, (5, 5), "real")
    start = torch.ones(5, dtype=torch.float64)
    minimise_l1_quadratic(*quadratic, start, tolerance=TOLERANCE)
    assert start.tolist() == [1] * 5


def test_diagonal_quadratics_are_solved_by_soft_thresholding() -> None:
    gram = torch.diag(torch.tensor([1.0, 2.0, 4.0, 1.0], dtype=torch.float64))
    linear = torch.tensor([3.0, -3.0, 0.5, 2.0], dtype=torch.float64)
    strength = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    x = minimise_l1_quadratic(gram, linear, strength, torch.zeros(4).double(), tolerance=TOLERANCE)
    assert x.tolist() == pytest.approx([2, -1, 0, 2], rel=ROUNDING)
    assert x[2] == 0


def test_free_coordinates_alone_give_the_least_squares_solution() -> None:
    gram, linear, _ = draw(3, (8, 6), "real")
    x = minimise_l1_quadratic(gram, linear, torch.zeros(6).double(), torch.zeros(6).double(), tolerance=TOLERANCE)
    torch.testing.assert_close(gram @ x, linear, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_numbers_that_overflowed_leave_the_start_as_it_is(value: float) -> None:
    gram, one = torch.full((2, 2), value).double(), torch.ones(2).double()
    assert torch.equal(minimise_l1_quadratic(gram, one, one, one, tolerance=TOLERANCE), one)


def test_a_strength_that_rounding_swallows_takes_few_iterations() -> None:
    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(8, 6, generator=generator, dtype=torch.float64)
    gram, linear = factor.T @ factor, factor.T @ torch.randn(8, generator=generator, dtype=torch.float64)
    start, strength = torch.zeros_like(linear), torch.full_like(linear, 1e-16)
    with mock.patch.object(quadratic, "_sign_step", wraps=quadratic._sign_step) as step:
        x = minimise_l1_quadratic(gram, linear, strength, start, tolerance=1e-26)
    assert step.call_count < 50
    torch.testing.assert_close(gram @ x, linear, rtol=0, atol=TOLERANCE)


def test_the_time_limit_stops_between_two_steps() -> None:
    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(8, 6, generator=generator, dtype=torch.float64)
    gram, linear = factor.T @ factor, factor.T @ torch.randn(8, generator=generator, dtype=torch.float64)
    zero = torch.zeros_like(linear)
    with mock.patch.object(quadratic, "_sign_step", wraps=quadratic._sign_step) as step:
        minimise_l1_quadratic(gram, linear, zero + 0.01, zero, tolerance=TOLERANCE, deadline=time.perf_counter() - 1)
    assert step.call_count == 1


def test_a_zero_gram_matrix_gives_zero() -> None:
    zero = torch.zeros(3, dtype=torch.float64)
    start = torch.ones(3, dtype=torch.float64)
    x = minimise_l1_quadratic(torch.zeros(3, 3).double(), zero, zero + 0.5, start, tolerance=TOLERANCE)
    assert x.tolist() == [0, 0, 0]


@settings(max_examples=100)
@given(SEEDS, SIZES, VALUES, st.integers(1, 4), st.sampled_from([0.0, 1.0, 100.0]))
def test_problems_solved_in_step_end_where_each_ends_alone(
    seed: int, size: tuple[int, int], values: str, n_problems: int, far: float
) -> None:
    gram, linear, strength = draw(seed, size, values)
    scales = 2.0 ** -torch.arange(n_problems, dtype=torch.float64)
    linears, strengths = scales[:, None] * linear, strength.expand(n_problems, -1)
    starts = torch.stack([draw_start(seed + k, size[1], far) for k in range(n_problems)])
    limits = torch.full((n_problems,), TOLERANCE, dtype=torch.float64)
    together = minimise_together(gram, linears, strengths, starts, tolerance=limits)
    for k in range(n_problems):
        alone = minimise_l1_quadratic(gram, linears[k], strength, starts[k], tolerance=TOLERANCE)
        assert violation(gram, linears[k], strength, together[k]) <= TOLERANCE
        assert value(gram, linears[k], strength, together[k]) == pytest.approx(
            value(gram, linears[k], strength, alone), abs=ROUNDING, rel=1e-9
        )
