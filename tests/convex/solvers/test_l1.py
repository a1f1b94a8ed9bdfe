from dataclasses import replace
from math import inf

import numpy as np
import pytest
import torch
from convex.problems import COLUMNS, Columns, Kind
from tolerances import FACTORED, ROUNDING

from cvxsnn import ConvexProblem, solve
from cvxsnn.convex.linear import weighted_gram
from cvxsnn.convex.solvers import ActiveSet, l1
from cvxsnn.convex.solvers.l1 import minimise_quadratic
from cvxsnn.convex.solvers.quadratic import follow


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("ratio", [0.9, 0.1, 1e-3])
def test_squared_problems_are_solved_to_rounding(
    columns: Columns, intercept: bool, weighted: bool, ratio: float
) -> None:
    problem = Kind("squared", "l1", intercept, columns, weighted, n_outputs=2).draw(0, ratio)
    solution = solve(problem, 1e-9, ActiveSet())
    assert solution.solver == "l1"
    assert solution.certificate.relative_gap <= FACTORED


@pytest.mark.parametrize("intercept", [False, True])
def test_products_of_columns_are_weighted_and_centred_for_an_intercept(intercept: bool) -> None:
    problem = Kind("squared", intercept=intercept, weighted=True, n_outputs=2).draw(0)
    columns, targets = problem.dictionary.columns(), problem.heads[0].targets
    weight = problem.row_weight[:, None]
    if intercept:
        columns = columns - (weight * columns).sum(0)
        targets = targets - (weight * targets).sum(0)
    gram = columns.T @ (weight * columns)
    atoms = torch.tensor([0, 3, 7])
    torch.testing.assert_close(weighted_gram(problem), gram, rtol=0, atol=ROUNDING)
    torch.testing.assert_close(weighted_gram(problem, atoms), gram[atoms][:, atoms], rtol=0, atol=ROUNDING)
    torch.testing.assert_close(-problem.null_correlation, columns.T @ (weight * targets), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("intercept", [False, True])
def test_a_growing_working_set_ends_where_the_whole_gram_matrix_does(
    intercept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    columns = rng.random((300, 80)) < 0.5
    targets = columns[:, :6] @ np.array([3.0, -2, 2, -1, 1, 1]) + 0.1 * rng.normal(size=300)
    problem = ConvexProblem(columns, targets, "squared", intercept=intercept)
    problem = problem.with_strength(0.2 * problem.critical_strength)
    monkeypatch.setattr(l1, "_TUNING", replace(l1._TUNING, first=2))
    asked = []
    monkeypatch.setattr(l1, "weighted_gram", lambda *own: asked.append(own[1:]) or weighted_gram(*own))
    few = solve(problem, 1e-9)
    assert len(asked) > 1
    assert all(len(own) == 1 for own in asked)  # never the whole matrix
    monkeypatch.setattr(l1, "_TUNING", replace(l1._TUNING, few_above=2.0))
    whole = solve(problem, 1e-9)
    assert few.certificate.primal == pytest.approx(whole.certificate.primal, rel=FACTORED)
    assert few.certificate.relative_gap <= FACTORED


def test_outputs_share_one_gram_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(l1, "weighted_gram", lambda *own: calls.append(1) or weighted_gram(*own))
    assert solve(Kind("squared", n_outputs=3).draw(0, 0.01), 1e-9).has_converged
    assert len(calls) == 1


def test_disjoint_columns_are_soft_thresholded() -> None:
    problem = ConvexProblem(np.eye(4), np.array([3.0, -2.0, 0.5, 0.0]), "squared", 0.25)
    solution = solve(problem, 1e-9)
    # Each row weighs 1/4: 1/8 (w − y)² + |w|/4 is least at y moved towards zero by one.
    assert solution.coef[:, 0].tolist() == pytest.approx([2, -1, 0, 0], rel=ROUNDING)
    assert len(solution.support) == 2


def test_an_exact_fit_by_the_intercept_leaves_no_coefficients() -> None:
    problem = ConvexProblem(np.eye(4), np.full(4, 3.0), "squared", 1e-6, intercept=True)
    solution = solve(problem)
    assert (solution.intercept.tolist(), len(solution.support)) == ([3.0], 0)
    assert solution.certificate.primal == 0


def test_numbers_whose_squares_overflow_leave_the_start_as_it_is():
    gram, linear = torch.full((2, 2), torch.inf, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
    assert torch.equal(follow(gram, linear, 0.1, torch.zeros_like(linear)), torch.zeros_like(linear))
    found = minimise_quadratic(gram, linear, 0.1, 1.0, torch.zeros_like(linear), inf)
    assert torch.equal(found, torch.zeros_like(linear))


def test_outputs_that_have_few_active_atoms_and_those_that_have_many_are_solved_alike():
    """The first output is simple, the others are not: the working sets of some fail, and the Gram matrix serves."""
    generator = torch.Generator().manual_seed(0)
    columns = (torch.rand(300, 80, generator=generator) < 0.5).double()
    targets = torch.cat((columns[:, :1], torch.randn(300, 3, generator=generator, dtype=torch.float64)), dim=1)
    problem = ConvexProblem(columns, targets, "squared")
    problem = problem.with_strength(0.07 * problem.critical_strength)
    together = solve(problem, 1e-9)
    alone = [solve(ConvexProblem(columns, own[:, None], "squared", problem.l1_strength), 1e-9) for own in targets.T]
    assert together.has_converged
    assert together.certificate.primal == pytest.approx(sum(own.certificate.primal for own in alone), abs=1e-9)
