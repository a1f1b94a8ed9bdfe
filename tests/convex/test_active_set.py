import numpy as np
import pytest
import torch
from convex.problems import COLUMNS, Columns, Kind
from tolerances import FACTORED, ROUNDING

from cvxsnn import ConvexProblem, solve
from cvxsnn.convex.active_set import normal_equations


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("ratio", [0.9, 0.1, 1e-3])
def test_squared_problems_are_solved_to_rounding(
    columns: Columns, intercept: bool, weighted: bool, ratio: float
) -> None:
    problem = Kind("squared", "l1", intercept, columns, weighted, n_outputs=2).draw(0, ratio)
    solution = solve(problem, 1e-9, "active-set")
    assert solution.solver == "active-set"
    assert solution.certificate.relative_gap <= FACTORED


@pytest.mark.parametrize("intercept", [False, True])
def test_normal_equations_are_weighted_and_centred_for_an_intercept(intercept: bool) -> None:
    problem = Kind("squared", intercept=intercept, weighted=True, n_outputs=2).draw(0)
    columns, targets = problem.dictionary.columns(), problem.heads[0].targets
    weight = problem.row_weight[:, None]
    if intercept:
        columns = columns - (weight * columns).sum(0)
        targets = targets - (weight * targets).sum(0)
    gram, linear, means = normal_equations(problem)
    torch.testing.assert_close(gram, columns.T @ (weight * columns), rtol=0, atol=ROUNDING)
    torch.testing.assert_close(linear, columns.T @ (weight * targets), rtol=0, atol=ROUNDING)
    torch.testing.assert_close(means, problem.dictionary.columns().T @ problem.row_weight, rtol=0, atol=ROUNDING)


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
