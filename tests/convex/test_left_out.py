import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from convex.problems import Kind, draw_weight
from tolerances import ROUNDING
from torch import Tensor

from cvxsnn import ConvexProblem, Solution, solve_path
from cvxsnn.convex import leave_one_out
from cvxsnn.dictionary.dense import DenseDictionary

MODULE = sys.modules["cvxsnn.convex.left_out"]
FEW, MANY = [0.3, 1e-3], np.geomspace(1, 1e-4, 7).tolist()
"""Strengths of ridge: a Cholesky factor for each, or one eigendecomposition for all."""


def draw(seed: int, n_rows: int, n_atoms: int, targets: Tensor | None = None, **options: object) -> ConvexProblem:
    """Squared loss on random 0/1 columns, of which the first five explain the targets in part."""
    rng = np.random.default_rng(seed)
    columns = rng.random((n_rows, n_atoms)) < 0.4
    drawn = columns[:, :5] @ rng.normal(size=5) + 0.5 * rng.normal(size=n_rows)
    return ConvexProblem(columns, drawn if targets is None else targets, "squared", penalty="elastic-net", **options)


def fit_without(problem: ConvexProblem, row: int, strengths: list[float], l2_strengths: list[float]) -> list[Solution]:
    """Solutions without a row; the other weights sum to one again, so strengths are divided by their former share."""
    kept = torch.tensor([other for other in range(problem.dictionary.n_rows) if other != row])
    share = float(problem.row_weight[kept].sum())
    without = ConvexProblem(
        problem.dictionary.take_rows(kept),
        problem.heads[0].targets[kept],
        "squared",
        penalty="elastic-net",
        intercept=problem.intercept,
        row_weight=problem.row_weight[kept],
        head_weights={"label": problem.heads[0].weight},
    )
    weaker = [r / share for r in l2_strengths]
    return list(solve_path(without, [s / share for s in strengths], l2_strengths=weaker, tol=1e-8))


def scores_of(problem: ConvexProblem, row: int, solution: Solution) -> Tensor:
    return problem.dictionary.columns()[row] @ solution.coef + solution.intercept


def losses_of_fits(problem: ConvexProblem, strengths: list[float], l2_strengths: list[float]) -> Tensor:
    """The loss of each row by the fits without it, of shape (n_solutions, n_rows)."""
    head = problem.heads[0]
    losses = [
        [
            head.weight * 0.5 * (scores_of(problem, row, solution) - head.targets[row]).square().sum()
            for solution in fit_without(problem, row, strengths, l2_strengths)
        ]
        for row in range(problem.dictionary.n_rows)
    ]
    return torch.tensor(losses, dtype=torch.float64).T


@pytest.mark.parametrize("l2_strengths", [FEW, MANY], ids=["few", "many"])
@pytest.mark.parametrize("n_atoms", [9, 40], ids=["tall", "wide"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_ridge_without_a_row_is_as_if_fitted_again(
    weighted: bool, intercept: bool, n_atoms: int, l2_strengths: list[float]
) -> None:
    rng = np.random.default_rng(1)
    options = {"row_weight": draw_weight(rng, 25), "head_weights": {"label": 2.5}} if weighted else {}
    problem = draw(0, 25, n_atoms, rng.normal(size=(25, 3)), intercept=intercept, **options)
    path = leave_one_out(solve_path(problem, [0.0], l2_strengths=l2_strengths, tol=1e-8))
    assert path.validation is not None
    assert path.validation.method == "leave one out"
    assert torch.equal(path.validation.weight, problem.row_weight)
    expected = losses_of_fits(problem, [0.0], l2_strengths)
    # With more atoms than rows, leverages have little room below one, in which rounding shows.
    rounding = 1e-6 if n_atoms > 25 else ROUNDING
    torch.testing.assert_close(path.validation.loss, expected, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("l2_strengths", [FEW, MANY], ids=["few", "many"])
def test_blocks_of_rows_change_nothing(
    monkeypatch: pytest.MonkeyPatch, intercept: bool, l2_strengths: list[float]
) -> None:
    path = solve_path(draw(0, 25, 9, intercept=intercept), [0.01, 0.0], l2_strengths=l2_strengths)
    at_once = leave_one_out(path).validation
    monkeypatch.setattr(MODULE, "_BLOCK", 9 * 8)
    in_blocks = leave_one_out(path).validation
    assert at_once is not None
    assert in_blocks is not None
    torch.testing.assert_close(in_blocks.loss, at_once.loss, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("l2_strength", [0.0, 0.1])
@pytest.mark.parametrize("intercept", [False, True])
def test_errors_are_exact_for_rows_without_which_the_same_atoms_are_active(intercept: bool, l2_strength: float) -> None:
    problem = draw(2, 60, 20, intercept=intercept)
    strength = 0.2 * problem.critical_strength
    path = leave_one_out(solve_path(problem, [strength], l2_strengths=[l2_strength], tol=1e-8))
    assert path.validation is not None
    assert 3 <= len(path[0].support) <= 15
    n_same = 0
    for row in range(60):
        (fit,) = fit_without(problem, row, [strength], [l2_strength])
        if torch.equal(fit.coef.sign(), path[0].coef.sign()):
            n_same += 1
            error = scores_of(problem, row, fit) - problem.heads[0].targets[row]
            assert float(path.validation.loss[0, row]) == pytest.approx(float(0.5 * error**2), rel=1e-8, abs=ROUNDING)
    assert n_same >= 10


@pytest.mark.parametrize(("seed", "n_rows", "n_atoms", "l2_strength"), [(3, 60, 20, 0.0), (4, 70, 60, 0.05)])
def test_means_are_as_close_to_those_of_fits_as_documented(
    seed: int, n_rows: int, n_atoms: int, l2_strength: float
) -> None:
    problem = draw(seed, n_rows, n_atoms, intercept=True)
    strengths = [ratio * problem.critical_strength for ratio in (0.3, 0.1, 0.03)]
    path = leave_one_out(solve_path(problem, strengths, l2_strengths=[l2_strength]))
    assert path.validation is not None
    means = losses_of_fits(problem, strengths, [l2_strength]).mean(1)
    for n_neurons, found, mean in zip(path.n_neurons.tolist(), path.validation.mean(), means, strict=True):
        share = n_neurons / n_rows
        bound = 0.05 if share <= 0.25 else 0.15 if share <= 0.5 else 0.1
        assert float(found) == pytest.approx(float(mean), rel=bound)


def test_accuracy_of_one_hot_targets_is_that_of_the_largest_output() -> None:
    columns = np.random.default_rng(0).random((30, 8)) < 0.5
    classes = torch.from_numpy(columns[:, :3].argmax(1))
    problem = draw(0, 30, 8, torch.eye(3)[classes], intercept=True)
    path = leave_one_out(solve_path(problem, [0.0], l2_strengths=[0.5, 0.01]))
    expected = [
        [
            float(scores_of(problem, row, fit).argmax() == classes[row])
            for fit in fit_without(problem, row, [0.0], [0.5, 0.01])
        ]
        for row in range(30)
    ]
    assert path.validation is not None
    assert path.validation.accuracy is not None
    assert path.validation.accuracy.T.tolist() == expected
    assert 0 < path.validation.mean("accuracy").max() < 1


@pytest.mark.parametrize("low", [-1.0, 0.0])
def test_accuracy_of_two_targets_is_that_of_the_nearer_one(low: float) -> None:
    rng = np.random.default_rng(5)
    targets = np.where(rng.random(30) < 0.6, 1.0, low)
    problem = draw(0, 30, 8, targets, intercept=True)
    path = leave_one_out(solve_path(problem, [0.0], l2_strengths=[0.01]))
    assert path.validation is not None
    assert path.validation.accuracy is not None
    for row in range(30):
        (fit,) = fit_without(problem, row, [0.0], [0.01])
        is_high = float(scores_of(problem, row, fit)) > (1 + low) / 2
        assert float(path.validation.accuracy[0, row]) == (is_high == (targets[row] == 1))
    assert 0 < float(path.validation.mean("accuracy")) < 1


def test_real_targets_have_no_accuracy() -> None:
    path = leave_one_out(solve_path(draw(0, 25, 9), [0.1], l2_strengths=[0.1]))
    assert path.validation is not None
    assert path.validation.accuracy is None


def test_solutions_stay_as_they_are() -> None:
    path = solve_path(Kind("squared").draw(0), [0.1, 0.01])
    assert leave_one_out(path).solutions is path.solutions


@pytest.mark.parametrize(
    "kind", [Kind("logistic"), Kind("squared", "group", n_outputs=2), Kind("squared + logistic")], ids=repr
)
def test_other_losses_and_penalties_are_sent_to_fits_without_folds(kind: Kind) -> None:
    path = solve_path(kind.draw(0), [0.1])
    with pytest.raises(ValueError, match=r"the squared loss with the penalty 'l1' or .*: use cvxsnn\.fitting\.Folds"):
        leave_one_out(path)


@pytest.mark.parametrize("n_atoms", [12, 60])
@pytest.mark.parametrize("intercept", [True, False])
def test_scores_without_a_fold_are_those_of_a_fit_without_it(n_atoms, intercept):
    problem = draw(3, 30, n_atoms, intercept=intercept, row_weight=np.random.default_rng(1).uniform(0.2, 1.0, 30))
    fold_of_row = torch.arange(30) % 3 - (torch.arange(30) == 29).long() * 9  # the last row is never left out
    scores = MODULE.ridge_fold_scores(problem, [0.01], fold_of_row)[0]
    assert scores.shape == (29, 1)
    for fold in range(3):
        kept, left = torch.nonzero(fold_of_row != fold).squeeze(1), torch.nonzero(fold_of_row == fold).squeeze(1)
        share = float(problem.row_weight[kept].sum())
        (fitted,) = solve_path(problem.take_rows(kept), [0.0], l2_strengths=[0.01 / share], tol=1e-10)
        expected = problem.dictionary.columns()[left] @ fitted.coef + fitted.intercept
        assert torch.allclose(scores[left], expected, atol=1e-6)


def test_active_atoms_that_depend_on_each_other_have_errors_too() -> None:
    columns = np.zeros((8, 3), dtype=bool)
    columns[:2, 0] = columns[2:4, 1] = columns[:4, 2] = True  # the third is the sum of the others
    targets = torch.tensor([1.0, 3.0, 2.0, 6.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)[:, None]
    path = solve_path(ConvexProblem(columns, targets, "squared"), [0.01])
    coef = torch.tensor([[1.0], [3.0], [1.0]], dtype=torch.float64)
    (solution,) = path
    path = leave_one_out(replace(path, solutions=(replace(solution, coef=coef),)))
    residuals = targets - torch.tensor([2.0, 2.0, 4.0, 4.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)[:, None]
    expected = 0.5 * (2 * residuals).square()  # each row is one of two that have its coefficient
    torch.testing.assert_close(path.validation.loss[0], expected[:, 0], rtol=1e-6, atol=0)


def test_rows_that_depend_on_each_other_are_inverted_with_the_smallest_ridge(monkeypatch) -> None:
    problem = draw(3, 30, 5)
    monkeypatch.setattr(MODULE, "_MANY_ROWS", 0)
    assert bool(torch.isfinite(MODULE.ridge_scores(problem, [1e-18])).all())
    ((_, residuals, left),) = MODULE._residuals_by_inverses(problem, problem.heads[0].targets, [1e-18])
    assert bool(torch.isfinite(residuals).all())
    assert bool((left >= 0).all())


def test_columns_whose_squares_overflow_have_errors_that_are_no_exception() -> None:
    columns = torch.tensor([[1e200, 0.0], [0.0, 1.0], [1e200, 1.0], [1.0, 0.0]], dtype=torch.float64)
    problem = ConvexProblem(DenseDictionary(columns), [1.0, 0.0, 1.0, 0.0], "squared", row_weight=[1.0, 1.0, 0.0, 1.0])
    weighted = problem.row_weight * MODULE._quadratic_forms(problem, torch.tensor([0, 1]), 0.0)
    assert weighted.tolist() == pytest.approx([1.0, 1.0, 0.0, 1.0])


@pytest.mark.parametrize("intercept", [False, True])
def test_an_inverse_for_each_strength_gives_the_scores_of_one_eigendecomposition(monkeypatch, intercept):
    problem = draw(3, 30, 50, intercept=intercept, row_weight=torch.linspace(0, 1, 30))
    expected = MODULE.ridge_scores(problem, MANY)
    monkeypatch.setattr(MODULE, "_MANY_ROWS", 0)
    monkeypatch.setattr(MODULE, "_Spectrum", None)
    assert torch.allclose(MODULE.ridge_scores(problem, MANY), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_columns", [10, 50])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_mean_eigenvalue_is_that_of_the_products_of_rows(monkeypatch, intercept, n_columns):
    monkeypatch.setattr(MODULE, "_BLOCK", 8 * n_columns)
    problem = draw(3, 30, n_columns, intercept=intercept, row_weight=torch.linspace(0, 1, 30))
    values = torch.linalg.eigvalsh(MODULE.row_products(problem))
    assert MODULE.mean_eigenvalue(problem) == pytest.approx(float(values.mean()), rel=1e-12)


@pytest.mark.parametrize("n_atoms", [12, 60])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("is_weighted", [True, False])
def test_errors_of_groups_are_those_of_fits_without_them(n_atoms, intercept, n_outputs, is_weighted):
    rng, strengths = np.random.default_rng(1), [1.0, 0.1, 0.003]
    weight = rng.uniform(0.2, 1.0, 30) if is_weighted else None
    columns, groups = rng.random((30, n_atoms)) < 0.5, torch.from_numpy(rng.permutation(np.repeat([7, 2, 5, 4], 7)))
    groups = torch.cat((groups, torch.tensor([9, 9])))
    problem = ConvexProblem(
        columns,
        columns[:, :3] @ rng.normal(size=(3, n_outputs)) + rng.normal(size=(30, n_outputs)),
        "squared",
        0.0,
        l2_strength=1.0,
        penalty="elastic-net",
        intercept=intercept,
        row_weight=weight,
    ).with_groups(groups)
    scores = MODULE.ridge_scores(problem, strengths)
    validation = MODULE.validation_of(problem, scores)
    for number, group in enumerate([2, 4, 5, 7, 9]):
        kept, left = torch.nonzero(groups != group).squeeze(1), torch.nonzero(groups == group).squeeze(1)
        share = float(problem.row_weight[kept].sum())
        own = problem.row_weight[left] / problem.row_weight[left].sum()
        assert validation.weight[number] == pytest.approx(1 - share)
        for at, strength in enumerate(strengths):
            (fitted,) = solve_path(problem.take_rows(kept), [0.0], l2_strengths=[strength / share], tol=1e-12)
            expected = problem.dictionary.columns()[left] @ fitted.coef + fitted.intercept
            torch.testing.assert_close(scores[at, left], expected, rtol=0, atol=1e-5)
            loss = 0.5 * own @ (expected - problem.heads[0].targets[left]).square().sum(1)
            assert float(validation.loss[at, number]) == pytest.approx(float(loss), rel=1e-4)
    assert (validation.method, validation.is_by_group) == ("leave one group out", True)


def test_groups_of_one_row_each_change_nothing():
    problem = draw(3, 30, 12, intercept=True)
    alone = problem.with_groups(torch.randperm(30))
    assert torch.equal(MODULE.ridge_scores(alone, [1.0, 0.1]), MODULE.ridge_scores(problem, [1.0, 0.1]))


def test_groups_without_weight_have_no_part_in_the_errors():
    weight = torch.ones(30, dtype=torch.float64)
    weight[20:] = 0.0
    groups = torch.arange(30) // 5
    problem = draw(3, 30, 12, intercept=True, row_weight=weight).with_groups(groups)
    found = MODULE.validation_of(problem, MODULE.ridge_scores(problem, [0.1]))
    counted = problem.take_rows(torch.arange(20))
    expected = MODULE.validation_of(counted, MODULE.ridge_scores(counted, [0.1]))
    torch.testing.assert_close(found.mean(), expected.mean())
    torch.testing.assert_close(found.standard_error(), expected.standard_error())


def test_one_group_cannot_be_left_out():
    problem = draw(3, 30, 12).with_groups(torch.zeros(30, dtype=torch.int64))
    with pytest.raises(ValueError, match="at least two groups of samples, to leave each of them out, got one"):
        MODULE.ridge_scores(problem, [0.1])


def test_errors_of_groups_need_ridge_or_fits():
    problem = draw(3, 30, 12, intercept=True).with_groups(torch.arange(30) // 3)
    exact = leave_one_out(solve_path(problem, [0.0], l2_strengths=[0.1]))
    assert exact.validation.loss.shape == (1, 10)
    with pytest.raises(ValueError, match=r"groups that are left out, got more: use cvxsnn\.fitting\.Folds"):
        leave_one_out(solve_path(problem, [0.1]))
