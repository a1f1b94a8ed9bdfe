import warnings
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from convex.problems import COLUMNS, SMOOTH_LOSSES, TWO_HEADS, Columns, Kind
from tolerances import FINITE_DIFFERENCE, NEWTON_HISTORY, ROUNDING, SINGLE_PRECISION
from torch import Tensor

from cvxsnn import ConvexProblem, solve
from cvxsnn.convex.losses import Softmax
from cvxsnn.convex.solvers import ActiveSet, Newton, Status
from cvxsnn.convex.solvers import newton as module
from cvxsnn.convex.solvers.newton import loss_hessian
from cvxsnn.core.errors import ConvergenceWarning
from cvxsnn.dictionary.products import self_product


@pytest.mark.parametrize("intercept", [False, True])
def test_newton_and_active_set_agree_on_the_squared_loss(intercept: bool) -> None:
    problem = Kind("squared", intercept=intercept, columns="collinear", weighted=True, n_outputs=2).draw(0, 0.01)
    newton, active_set = (solve(problem, 1e-9, solver).certificate for solver in (Newton(), ActiveSet()))
    assert abs(newton.primal - active_set.primal) <= max(newton.gap, active_set.gap) + ROUNDING


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
def test_a_head_weight_that_multiplies_the_objective_changes_no_iterate(loss: str, intercept: bool) -> None:
    problem = Kind(loss, intercept=intercept, weighted=True).draw(0, 0.01)
    (head,) = problem.heads
    heavier = problem.with_heads((replace(head, weight=4.0),)).with_strength(4.0 * problem.l1_strength)
    light, heavy = (solve(one, 1e-9, Newton()) for one in (problem, heavier))
    gaps = [moment.relative_gap for moment in light.history]
    assert [moment.relative_gap for moment in heavy.history] == pytest.approx(gaps, rel=NEWTON_HISTORY, abs=ROUNDING)
    assert heavy.certificate.primal == pytest.approx(4.0 * light.certificate.primal, rel=ROUNDING)


@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
def test_relative_gap_falls_quadratically_at_the_end(loss: str) -> None:
    problem = Kind(loss, weighted=True).draw(0, 0.1)
    solution = solve(problem, 1e-9, Newton())
    *history, last = solution.history
    gaps = [moment.relative_gap for moment in history]
    assert gaps[-1] <= 1e-9 < gaps[0]
    assert gaps[-1] < 0.01 * gaps[-2]
    assert last.relative_gap == solution.certificate.relative_gap
    assert all(after.seconds >= before.seconds for before, after in pairwise(solution.history))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
def test_a_dozen_steps_are_enough_near_a_solution(loss: str, intercept: bool) -> None:
    problem = Kind(loss, intercept=intercept, weighted=True).draw(0, 0.1)
    start = solve(problem, 1e-9)
    near = problem.with_strength(0.9 * problem.l1_strength)
    assert len(solve(near, 1e-9, Newton(), start=start).history) <= 12


@pytest.mark.parametrize("size", [10.0, 100.0])
@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
def test_a_start_far_away_is_left_behind(loss: str, size: float) -> None:
    problem = Kind(loss, columns="few_rows").draw(1, 0.01)
    solution = solve(problem, 1e-9, Newton())
    far = replace(solution, coef=size * solution.coef)
    assert solve(problem, 1e-9, Newton(), start=far).has_converged


def test_a_class_that_never_occurs_is_no_obstacle() -> None:
    usual = Kind("softmax", intercept=True).draw(0)
    labels = usual.heads[0].targets.argmax(1)
    problem = ConvexProblem(usual.dictionary, labels, Softmax(n_classes=5), 0.01, intercept=True)
    assert solve(problem, 1e-8).has_converged


def test_columns_that_differ_in_one_row_are_no_obstacle() -> None:
    rng = np.random.default_rng(0)
    column = rng.random(60) < 0.5
    columns = np.column_stack([column ^ (np.arange(60) == row) for row in range(40)])
    problem = ConvexProblem(columns, rng.random(60) < 0.3 + 0.4 * column, "logistic", 1e-4)
    assert solve(problem, 1e-9, Newton()).has_converged


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic", "softmax"])
def test_singular_hessians_are_no_obstacle(loss: str, seed: int) -> None:
    problem = Kind(loss, intercept=seed % 2 == 0, columns=COLUMNS[1 + seed % 3], weighted=True).draw(seed, 1e-3)
    assert solve(problem, 1e-8).has_converged


STEP = 1e-5


def draw_entries(problem: ConvexProblem) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores, all atoms, and the place and output of every coefficient."""
    n_rows, n_atoms, n_outputs = problem.shape
    scores = torch.randn(n_rows, n_outputs, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    place, outputs = torch.arange(n_atoms).repeat(n_outputs), torch.arange(n_outputs).repeat_interleave(n_atoms)
    return scores, torch.arange(n_atoms), place, outputs


@pytest.mark.parametrize(
    ("precision", "tolerance"), [(torch.float32, SINGLE_PRECISION), (torch.float64, FINITE_DIFFERENCE)]
)
@pytest.mark.parametrize("loss", [*SMOOTH_LOSSES, *TWO_HEADS[:2]])
def test_hessian_is_the_slope_of_the_gradient(loss: str, precision: torch.dtype, tolerance: float) -> None:
    problem = Kind(loss, columns="few_rows", weighted=True).draw(0)
    scores, atoms, place, outputs = draw_entries(problem)
    hessian = loss_hessian(problem, problem.curvature(scores), atoms, place, outputs, precision)
    for entry, (atom, output) in enumerate(zip(place, outputs, strict=True)):
        move = torch.zeros_like(scores)
        move[:, output] = STEP * problem.dictionary.columns()[:, atom]
        ahead, behind = (problem.correlation(problem.unit_dual(scores + sign * move)) for sign in (1, -1))
        slope = ((ahead - behind) / (2 * STEP)).T.flatten()
        torch.testing.assert_close(hessian[entry], slope, rtol=0, atol=tolerance)


def test_intercepts_are_a_column_of_ones() -> None:
    problem = Kind("softmax", intercept=True, weighted=True).draw(0)
    scores, *_ = draw_entries(problem)
    outputs = torch.arange(3)
    hessian = loss_hessian(problem, problem.curvature(scores), torch.arange(0), torch.zeros_like(outputs), outputs)
    probability, weight = torch.softmax(scores, 1), problem.row_weight[:, None]
    expected = torch.diag((weight * probability).sum(0)) - probability.T @ (weight * probability)
    torch.testing.assert_close(hessian, expected, rtol=0, atol=ROUNDING)


def test_blocks_of_rows_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Kind("softmax", weighted=True).draw(0)
    scores, *entries = draw_entries(problem)
    whole = loss_hessian(problem, problem.curvature(scores), *entries)
    monkeypatch.setattr(module, "_TUNING", replace(module._TUNING, block=1))
    blocked = loss_hessian(problem, problem.curvature(scores), *entries)
    torch.testing.assert_close(blocked, whole, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_rough_hessians_of_singular_problems_are_not_indefinite(loss: str) -> None:
    problem = Kind(loss, columns="collinear").draw(0)
    scores, *entries = draw_entries(problem)
    hessian = loss_hessian(problem, problem.curvature(scores), *entries, torch.float32)
    assert float(torch.linalg.eigvalsh(hessian)[0]) > 0


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, SINGLE_PRECISION), (torch.float64, ROUNDING)])
@pytest.mark.parametrize("size", [0, 1, 7, 200])
def test_self_product_is_the_product_with_the_transpose(size: int, dtype: torch.dtype, tolerance: float) -> None:
    factor = torch.randn(30, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 30**0.5
    product = self_product(factor.to(dtype))
    torch.testing.assert_close(product.double(), factor.T @ factor, rtol=0, atol=tolerance)


def test_a_step_to_an_infinite_objective_is_not_taken() -> None:
    problem = Kind("logistic", "elastic-net", l2_strength=1.0).draw(0, 0.05)
    here = torch.zeros(problem.dictionary.n_atoms, 1, dtype=torch.float64)
    there = torch.full_like(here, 1e200)  # its square overflows, and so does the predicted change
    intercept = torch.zeros(1, dtype=torch.float64)
    start, end = (module._Point(coef, intercept, problem.dictionary.matvec(coef)) for coef in (here, there))
    assert module._line_search(problem, start, end, problem.l1_strength) is None
    nearer = module._Point(1e-9 - here, intercept, problem.dictionary.matvec(1e-9 - here))
    assert module._line_search(problem, nearer, start, problem.l1_strength) is start


@pytest.mark.parametrize("columns", ["equal_rows", "collinear"])
def test_a_tiny_strength_is_reached_where_steps_in_single_precision_are_short(columns: Columns) -> None:
    problem = Kind("softmax", columns=columns).draw(0, 1e-9)
    solution = solve(problem, 1e-8, max_iterations=100)
    assert solution.status is Status.CONVERGED
    assert solution.certificate.relative_gap <= 1e-8


def test_a_step_in_single_precision_that_leads_nowhere_is_the_last_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[torch.dtype, bool]] = []
    newton_point, line_search = module._newton_point, module._line_search

    def step(*arguments: Any) -> module._Point:
        steps.append((arguments[4], True))
        return newton_point(*arguments)

    def search(*arguments: Any) -> module._Point | None:
        found = line_search(*arguments)
        steps[-1] = (steps[-1][0], found is not None)
        return found

    monkeypatch.setattr(module, "_newton_point", step)
    monkeypatch.setattr(module, "_line_search", search)
    assert solve(Kind("softmax").draw(0, 1e-8), 1e-8, Newton()).status is Status.CONVERGED
    lost = steps.index((torch.float32, False))
    assert len(steps) > lost + 1
    assert all(precision == torch.float64 for precision, _ in steps[lost + 1 :])


@pytest.mark.parametrize("tol", [1e-13, 3e-14, 3e-16])
@pytest.mark.parametrize("penalty", ["l1", "elastic-net"])
@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
def test_a_head_whose_optimum_is_zero_is_solved_at_tolerances_below_rounding(
    loss: str, penalty: str, tol: float
) -> None:
    rng = np.random.default_rng(0)
    columns, labels = rng.random((30, 8)) < 0.5, rng.integers(0, 2, (2, 30))
    problem = ConvexProblem(
        columns,
        {"heavy": labels[0], "light": labels[1]},
        loss,
        1.0,
        l2_strength=1e-3 * (penalty == "elastic-net"),
        penalty=penalty,
        head_weights={"light": 1e-3},
    )
    problem = problem.with_strength(0.3 * problem.critical_strength)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = solve(problem, tol, Newton())
    assert solution.certificate.relative_gap <= ROUNDING
    light = problem.heads[1].columns
    assert not bool(solution.coef[:, light].any())
    assert bool(solution.coef.any())
