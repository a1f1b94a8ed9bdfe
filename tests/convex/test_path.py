from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from convex.problems import LOSSES, Kind
from tolerances import ROUNDING

from cvxsnn import ConvexProblem, RegularizationPath, solve, solve_path
from cvxsnn.core.errors import ConvergenceWarning, InvalidInputError

TOL = 1e-7


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", [*LOSSES, "softmax + logistic"])
def test_every_solution_is_certified_and_the_one_found_alone(loss: str, intercept: bool) -> None:
    problem = Kind(loss, intercept=intercept, columns="collinear", weighted=True).draw(0)
    path = solve_path(problem, n_strengths=7, tol=TOL)
    assert len(path) == 7
    for solution in path:
        alone = solve(problem.with_strength(solution.problem.l1_strength), TOL)
        assert solution.has_converged
        assert solution.certificate.relative_gap <= TOL
        gap = max(solution.certificate.gap, alone.certificate.gap)
        assert abs(solution.certificate.primal - alone.certificate.primal) <= gap + ROUNDING


def test_the_group_penalty_has_paths_too() -> None:
    path = solve_path(Kind("softmax", "group", intercept=True).draw(0), n_strengths=5, tol=TOL)
    assert [solution.solver for solution in path] == ["none needed", *["group-newton"] * 4]
    assert all(solution.has_converged for solution in path)


def test_strengths_fall_in_equal_ratios_from_the_critical_one() -> None:
    problem = Kind("logistic", intercept=True).draw(0)
    path = solve_path(problem, n_strengths=5, smallest_ratio=1e-2)
    expected = problem.critical_strength * 10 ** torch.linspace(0, -2, 5, dtype=torch.float64)
    torch.testing.assert_close(path.strengths, expected, rtol=ROUNDING, atol=0)
    assert len(path[0].support) == 0 < len(path[1].support)


def test_given_strengths_are_sorted() -> None:
    path = solve_path(Kind("squared").draw(0), [0.01, 0.1, 0.03])
    assert path.strengths.tolist() == [0.1, 0.03, 0.01]
    assert [solution.problem.l1_strength for solution in path] == path.strengths.tolist()


def test_the_loss_falls_and_the_norm_grows_along_the_path() -> None:
    path = solve_path(Kind("logistic").draw(0), n_strengths=10, tol=1e-9)
    losses = [float(solution.problem.loss_value(solution.scores())) for solution in path]
    norms = [float(solution.problem.penalty.norm(solution.coef)) for solution in path]
    assert all(after <= before + ROUNDING for before, after in pairwise(losses))
    assert all(after >= before - ROUNDING for before, after in pairwise(norms))


def test_the_strength_of_the_problem_is_not_used() -> None:
    problem = Kind("squared").draw(0)
    first, second = (solve_path(problem.with_strength(s), n_strengths=3) for s in (0.5, 5.0))
    assert torch.equal(first.strengths, second.strengths)


def test_select_takes_the_highest_score() -> None:
    path = solve_path(Kind("squared").draw(0), n_strengths=5)
    assert path.select(lambda solution: -abs(solution.problem.l1_strength - float(path.strengths[3]))) is path[3]


def test_select_takes_the_sparser_of_equals() -> None:
    path = solve_path(Kind("squared").draw(0), n_strengths=5)
    assert path.select(lambda solution: float(len(solution.support) > 0)) is path[1]
    assert path.select(lambda solution: 1.0) is path[0]


def test_a_silent_dictionary_has_a_path_of_zeros() -> None:
    path = solve_path(ConvexProblem(np.zeros((4, 2)), np.arange(4.0), "squared"), n_strengths=3)
    assert [len(solution.support) for solution in path] == [0, 0, 0]
    assert path.strengths.tolist() == pytest.approx([1, 10**-1.5, 1e-3], rel=ROUNDING)


def test_solutions_that_do_not_converge_are_warned_about() -> None:
    with pytest.warns(ConvergenceWarning, match="certified relative gap of 1e-18"):
        path = solve_path(Kind("logistic", columns="collinear").draw(0), [0.001], tol=1e-18)
    assert not path[0].has_converged


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: solve_path(p, []), "at least one strength, got none"),
        (lambda p: solve_path(p, [0.1, 0.0]), "l1_strength to be a finite number above zero, got 0.0"),
        (lambda p: solve_path(p, n_strengths=0), "n_strengths to be a positive integer, got 0"),
        (lambda p: solve_path(p, smallest_ratio=1.0), "smallest_ratio between 0 and 1, got 1.0"),
        (lambda p: solve_path(p, smallest_ratio=0.0), "smallest_ratio between 0 and 1, got 0.0"),
        (lambda p: solve_path(p, solver="interior-point"), "for solver 'interior-point', got loss 'logistic'"),
        (lambda p: solve_path(p, solver="simplex"), "solver to be one of .* got 'simplex'"),
        (lambda p: solve_path(p, tol=0.0), "tol between 0 and 1, got 0.0"),
    ],
)
def test_paths_that_mean_nothing_are_refused(call: Callable[[ConvexProblem], RegularizationPath], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call(Kind("logistic").draw(0))
