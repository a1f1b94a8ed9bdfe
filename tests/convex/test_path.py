from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from convex.problems import ELASTIC_NETS, LOSSES, SMOOTH_LOSSES, Kind, assert_agree
from tolerances import ROUNDING

from cvxsnn import ConvexProblem, RegularizationPath, Solution, Status, solve, solve_path
from cvxsnn.convex import Validation
from cvxsnn.convex.linear import has_gram
from cvxsnn.core.errors import ConvergenceWarning, InvalidInputError
from cvxsnn.dictionary import SpikeDictionary

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
    assert [solution.solver for solution in path] == ["none needed", *["group"] * 4]
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


def judged(*losses: float, accuracy: list[float] | None = None, spread: float = 0.0) -> RegularizationPath:
    """A path with falling strengths, growing supports, and two parts around the given losses and accuracies."""
    path = solve_path(Kind("squared").draw(0), n_strengths=len(losses))
    assert path.n_neurons.diff().min() > 0
    around = torch.tensor([-spread, spread], dtype=torch.float64)
    loss = torch.tensor(losses, dtype=torch.float64)[:, None] + around
    hits = None if accuracy is None else torch.tensor(accuracy, dtype=torch.float64)[:, None] + around
    return replace(path, validation=Validation("two halves", loss, hits, torch.full_like(around, 0.5)))


def test_select_takes_the_lowest_loss_or_the_highest_accuracy_on_rows_left_out() -> None:
    path = judged(3.0, 1.0, 2.0, 4.0, accuracy=[0.1, 0.5, 0.9, 0.3])
    assert path.select() is path.select("loss") is path[1]
    assert path.select("accuracy") is path[2]


def test_select_takes_the_best_of_those_with_few_enough_atoms() -> None:
    path = judged(4.0, 3.0, 2.0, 1.0, accuracy=[0.1, 0.5, 0.9, 0.3])
    sizes = path.n_neurons.tolist()
    assert [path.select(n_neurons=size) for size in sizes] == list(path)
    assert path.select(n_neurons=sizes[2] - 1) is path[1]
    assert path.select(lambda solution: len(solution.support), n_neurons=sizes[2]) is path[2]
    assert path.select("accuracy", n_neurons=sizes[1]) is path[1]


def test_select_takes_the_sparsest_within_one_standard_error() -> None:
    # Two parts at ±0.5 around the mean: its standard error is 0.5.
    path = judged(4.0, 1.51, 1.49, 1.0, accuracy=[0.0, 1.49, 1.51, 2.0], spread=0.5)
    assert path.select(one_standard_error=True) is path[2]
    assert path.select("accuracy", one_standard_error=True) is path[2]
    assert path.select() is path[3]
    assert path.select(one_standard_error=True, n_neurons=int(path.n_neurons[1])) is path[1]


@pytest.mark.parametrize("one_standard_error", [False, True])
def test_select_takes_equals_that_differ_in_rounding_for_equal(one_standard_error: bool) -> None:
    path = judged(4.0, 1.0 + 2.0**-50, 1.0, 1.0 + 2.0**-50, accuracy=[0.1, 0.3, 0.1 + 0.2, 0.3])
    assert path.select(one_standard_error=one_standard_error) is path[1]
    assert path.select("accuracy", one_standard_error=one_standard_error) is path[1]


def test_select_takes_the_larger_strengths_of_equals_with_as_many_atoms() -> None:
    path = solve_path(Kind("squared", "elastic-net").draw(0), [0.0], l2_strengths=[0.1, 1.0])
    assert path.select(lambda solution: 1.0).problem.l2_strength == 1.0
    zeros = solve_path(Kind("squared", "elastic-net").draw(0), [20.0, 10.0], l2_strengths=[0.1, 1.0])
    chosen = zeros.select(lambda solution: 1.0).problem
    assert (chosen.l1_strength, chosen.l2_strength) == (20.0, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: path.select("size"), "by to be one of 'loss', 'accuracy', got 'size'"),
        (lambda path: path.select("accuracy"), "a path with the accuracy on rows left out, got one without"),
        (
            lambda path: replace(path, validation=None).select(),
            "a path with the loss on rows left out, got one without",
        ),
        (lambda path: path.select(len, one_standard_error=True), "by='loss' or 'accuracy' for one_standard_error"),
        (lambda path: path.select(n_neurons=-1), "at most -1 active atoms, but the sparsest of the path has 0"),
    ],
)
def test_selections_that_mean_nothing_are_refused(call: Callable[[RegularizationPath], Solution], message: str) -> None:
    path = judged(2.0, 1.0)
    with pytest.raises(InvalidInputError, match=message):
        call(path)


@pytest.mark.parametrize("penalty", ELASTIC_NETS)
@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
def test_a_path_in_two_dimensions_has_every_pair_of_strengths(loss: str, penalty: str) -> None:
    problem = Kind(loss, penalty, intercept=True, weighted=True, l2_strength=7.0).draw(0)
    strengths, l2_strengths = [0.0, 0.05, 0.01], [0.01, 1.0]
    path = solve_path(problem, strengths, l2_strengths=l2_strengths, tol=TOL)
    assert path.l2_strengths.tolist() == [1.0] * 3 + [0.01] * 3
    assert path.strengths.tolist() == [0.05, 0.01, 0.0] * 2
    for solution in path:
        assert solution.has_converged
        assert solution.certificate.relative_gap <= TOL
        alone = solve(problem.with_strength(solution.problem.l1_strength, solution.problem.l2_strength), TOL)
        assert_agree(solution, alone)
        torch.testing.assert_close(solution.coef, alone.coef, rtol=0, atol=1e-2)


def test_the_quadratic_of_the_problem_is_that_of_the_path_where_none_is_given() -> None:
    path = solve_path(Kind("squared", "elastic-net", l2_strength=0.3).draw(0), n_strengths=3)
    assert path.l2_strengths.tolist() == [0.3] * 3


def test_all_strengths_share_one_gram_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    n_formed, gram = 0, SpikeDictionary.gram

    def counted(dictionary: SpikeDictionary) -> torch.Tensor:
        nonlocal n_formed
        n_formed += 1
        return gram(dictionary)

    monkeypatch.setattr(SpikeDictionary, "gram", counted)
    problem = Kind("squared", "elastic-net", intercept=True, n_outputs=2).draw(0)
    path = solve_path(problem, [0.1, 0.01, 0.0], l2_strengths=[1.0, 0.1])
    assert n_formed == 1
    assert has_gram(problem)
    assert not any(has_gram(solution.problem) for solution in path)


def test_a_path_forms_the_gram_matrix_even_where_one_solve_would_not() -> None:
    rng = np.random.default_rng(0)
    problem = ConvexProblem(rng.random((50, 800)) < 0.5, rng.normal(size=50), "squared")
    solve(problem.with_strength(0.9 * problem.critical_strength))
    assert not has_gram(problem)
    solve_path(problem, [0.9 * problem.critical_strength])
    assert has_gram(problem)


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
        (lambda p: solve_path(p, l2_strengths=[]), "at least one of l2_strengths, got none"),
        (lambda p: solve_path(p, [0.1], l2_strengths=[0.1]), "l2_strength=0 for the penalty 'l1', got 0.1"),
        (lambda p: solve_path(p, [0.1, 0.0]), "l1_strength to be a finite number above zero, got 0.0"),
        (lambda p: solve_path(p, n_strengths=0), "n_strengths to be a positive integer, got 0"),
        (lambda p: solve_path(p, smallest_ratio=1.0), "smallest_ratio between 0 and 1, got 1.0"),
        (lambda p: solve_path(p, smallest_ratio=0.0), "smallest_ratio between 0 and 1, got 0.0"),
        (
            lambda p: solve_path(p, solver="hinge"),
            "solver 'auto', 'l1' or 'reference' for loss 'logistic' .* got 'hinge'",
        ),
        (lambda p: solve_path(p, solver="simplex"), "solver to be one of .* got 'simplex'"),
        (lambda p: solve_path(p, tol=0.0), "tol between 0 and 1, got 0.0"),
    ],
)
def test_paths_that_mean_nothing_are_refused(call: Callable[[ConvexProblem], RegularizationPath], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call(Kind("logistic").draw(0))


def test_a_path_that_is_out_of_time_has_a_certificate_at_every_strength() -> None:
    problem = Kind("logistic").draw(0)
    with pytest.warns(ConvergenceWarning, match="the time was up"):
        path = solve_path(problem, n_strengths=4, max_seconds=1e-9)
    assert [solution.status for solution in path] == [Status.CONVERGED, *[Status.TIME_LIMIT] * 3]
    assert all(solution.certificate.gap >= 0 for solution in path)
