from collections.abc import Callable

import numpy as np
import pytest
import torch
from convex.problems import Kind
from tolerances import REFITTED, ROUNDING

from cvxsnn import ConvexProblem, RegularizationPath, build_dictionary, gaussian_witnesses, solve_path
from cvxsnn.convex import Validation, cross_validate, leave_one_out
from cvxsnn.convex.left_out import row_hits, row_losses
from cvxsnn.core.errors import InvalidInputError

GROUPS = np.repeat([2, 0, 5], [5, 8, 11])
"""Three groups of 24 rows for three folds, so that each group is a fold."""


def validated(path: RegularizationPath, **options: object) -> Validation:
    validation = cross_validate(path, **options).validation
    assert validation is not None
    return validation


def by_hand(path: RegularizationPath, groups: np.ndarray) -> Validation:
    """The definition: for each group, a program over the other rows, and its errors on the group."""
    problem, l2_strengths = path[0].problem, sorted(set(path.l2_strengths.tolist()), reverse=True)
    losses, accuracies, weights = [], [], []
    for group in np.unique(groups):
        left, kept = (torch.from_numpy(np.flatnonzero(which)) for which in (groups == group, groups != group))
        strengths = sorted(set(path.strengths.tolist()))
        fits = solve_path(problem.take_rows(kept), strengths, l2_strengths=l2_strengths, tol=1e-8)
        scores = [problem.dictionary.columns() @ fit.coef + fit.intercept for fit in fits]
        weight = problem.row_weight[left]
        weights.append(weight.sum())
        losses.append([weight @ row_losses(problem.heads, own)[left] / weight.sum() for own in scores])
        hits = [row_hits(problem.heads, own) for own in scores]
        accuracies.append([weight @ hit[left] / weight.sum() for hit in hits if hit is not None])
    accuracy = torch.tensor(accuracies, dtype=torch.float64).T if accuracies[0] else None
    return Validation("", torch.tensor(losses, dtype=torch.float64).T, accuracy, torch.stack(weights))


@pytest.mark.parametrize(
    ("kind", "l2_strengths"),
    [
        (Kind("squared", intercept=True), None),
        (Kind("squared", "elastic-net", n_outputs=2, weighted=True), [0.1, 0.01]),
        (Kind("logistic", intercept=True, weighted=True), None),
        (Kind("squared_hinge", "elastic-net"), [0.1]),
        (Kind("softmax", "group", weighted=True), None),
        (Kind("softmax", "group-elastic-net", intercept=True), [1.0, 0.1]),
        (Kind("hinge", weighted=True), None),
        (Kind("squared + logistic", intercept=True), None),
    ],
    ids=lambda given: repr(given)[:60],
)
def test_each_fold_is_judged_by_solutions_of_the_other_rows(kind: Kind, l2_strengths: list[float] | None) -> None:
    path = solve_path(kind.draw(3), n_strengths=3, smallest_ratio=0.05, l2_strengths=l2_strengths)
    found = validated(path, n_folds=3, groups=GROUPS, tol=1e-8)
    expected = by_hand(path, GROUPS)
    order, place = found.weight.argsort(), expected.weight.argsort()
    torch.testing.assert_close(found.weight[order], expected.weight[place], rtol=0, atol=ROUNDING)
    torch.testing.assert_close(found.loss[:, order], expected.loss[:, place], rtol=1e-3, atol=1e-4)
    if expected.accuracy is None:
        assert found.accuracy is None
    else:
        assert found.accuracy is not None
        torch.testing.assert_close(found.accuracy[:, order], expected.accuracy[:, place], rtol=0, atol=ROUNDING)


def test_ridge_with_a_fold_per_row_has_the_errors_of_leave_one_out() -> None:
    problem = Kind("squared", "elastic-net", intercept=True).draw(0)
    exact = leave_one_out(solve_path(problem, [0.0], l2_strengths=[0.3, 0.01]))
    # Without row i the other weights grow by 24/23; so must the strengths for the same fit.
    path = solve_path(problem, [0.0], l2_strengths=[0.3 * 24 / 23, 0.01 * 24 / 23])
    found = validated(path, n_folds=24)
    assert exact.validation is not None
    torch.testing.assert_close(found.mean(), exact.validation.mean(), rtol=ROUNDING, atol=0)
    torch.testing.assert_close(
        found.loss.sort(1).values, exact.validation.loss.sort(1).values, rtol=ROUNDING, atol=ROUNDING
    )


def test_all_steps_of_a_sequence_are_left_out_together() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 2, (7, 4, 3)).astype(float)
    dictionary = build_dictionary(gaussian_witnesses(3, (4, 6), 2, seed=0), inputs, readout="all")
    targets = inputs.sum(2).cumsum(1) + 0.1 * rng.normal(size=(7, 4))
    path = solve_path(ConvexProblem(dictionary, targets, "squared", timestep_weighting="ramped"), n_strengths=4)
    found = validated(path, n_folds=7, tol=1e-8)
    expected = by_hand(path, np.repeat(np.arange(7), 4))
    torch.testing.assert_close(found.weight, torch.full((7,), 1 / 7, dtype=torch.float64))
    torch.testing.assert_close(found.loss.sort(1).values, expected.loss.sort(1).values, rtol=REFITTED, atol=REFITTED)
    with pytest.raises(InvalidInputError, match=r"groups of shape \(7,\), one per sample, got \(28,\)"):
        cross_validate(path, groups=np.arange(28))
    in_groups = validated(path, n_folds=2, groups=torch.tensor([0, 0, 0, 0, 0, 1, 1]), tol=1e-8)
    assert in_groups.weight.sort().values.tolist() == pytest.approx([2 / 7, 5 / 7])


@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared"])
def test_every_fold_has_its_share_of_each_class(loss: str) -> None:
    rng = np.random.default_rng(0)
    targets = rng.permutation(np.repeat([0, 1], [10, 30]))
    problem = ConvexProblem(rng.random((40, 6)) < 0.5, targets, loss, intercept=True)
    path = solve_path(problem, [2 * problem.critical_strength])  # the best constant: the larger class
    found = validated(path, n_repeats=3)
    assert found.accuracy is not None
    torch.testing.assert_close(found.accuracy, torch.full((1, 15), 0.75, dtype=torch.float64))
    torch.testing.assert_close(found.weight, torch.full((15,), 1 / 15, dtype=torch.float64))


def test_the_first_head_with_classes_is_the_one_that_is_stratified() -> None:
    rng = np.random.default_rng(0)
    classes, others = (rng.permutation(np.repeat([0, 1], [10, 30])) for _ in range(2))
    targets = {"value": rng.normal(size=40), "class": classes, "other": others}
    losses = {"value": "squared", "class": "logistic", "other": "logistic"}
    problem = ConvexProblem(rng.random((40, 6)) < 0.5, targets, losses, intercept=True)
    found = validated(solve_path(problem, [2 * problem.critical_strength]))
    assert found.accuracy is not None
    of_other = 2 * found.accuracy - 0.75
    assert of_other.mean() == pytest.approx(0.75)
    assert 0.01 < of_other.std() < 0.2  # 1/8 and more from fold to fold: this head is not


def test_a_class_with_two_samples_is_always_among_the_rows_that_remain() -> None:
    rng = np.random.default_rng(0)
    targets = np.zeros(20)
    targets[[4, 11]] = 1
    path = solve_path(ConvexProblem(rng.random((20, 6)) < 0.5, targets, "hinge", intercept=True), n_strengths=3)
    for seed in range(5):
        found = validated(path, seed=seed)
        assert found.accuracy is not None
        assert sorted(found.accuracy[0].tolist()) == pytest.approx([0.75, 0.75, 1, 1, 1])


@pytest.mark.parametrize("penalty", ["l1", "group"])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_only_sample_of_a_class_is_never_left_out(intercept: bool, penalty: str) -> None:
    rng = np.random.default_rng(0)
    columns, targets = rng.random((21, 6)) < 0.5, np.arange(21) % 2
    targets[7] = 2
    problem = ConvexProblem(columns, targets, "softmax", penalty=penalty, intercept=intercept)
    found = validated(solve_path(problem, n_strengths=3), n_folds=20)
    assert found.loss.shape == (3, 20)
    torch.testing.assert_close(found.weight, torch.full((20,), 1 / 20, dtype=torch.float64))
    with pytest.raises(InvalidInputError, match="n_folds=21 for 20"):
        cross_validate(solve_path(problem, n_strengths=3), n_folds=21)


def test_the_only_sequence_with_steps_of_a_class_is_never_left_out() -> None:
    inputs = np.random.default_rng(0).integers(0, 2, (8, 3, 3)).astype(float)
    dictionary = build_dictionary(gaussian_witnesses(3, (4, 6), 2, seed=0), inputs, readout="all")
    targets = np.repeat(np.arange(8) % 2, 3).reshape(8, 3)
    targets[5, 0] = 2
    path = solve_path(ConvexProblem(dictionary, targets, "softmax", intercept=True), n_strengths=3)
    assert validated(path, n_folds=7).weight.tolist() == pytest.approx([1 / 7] * 7)
    with pytest.raises(InvalidInputError, match="n_folds=8 for 7"):
        cross_validate(path, n_folds=8)


def test_a_class_of_another_head_may_be_missing_from_the_rows_that_remain() -> None:
    rng = np.random.default_rng(0)
    targets = {"sign": np.arange(20) % 2, "class": np.r_[2, np.arange(19) % 2]}
    losses = {"sign": "logistic", "class": "softmax"}
    path = solve_path(ConvexProblem(rng.random((20, 6)) < 0.5, targets, losses, intercept=True), n_strengths=3)
    found = validated(path)
    assert bool(found.loss.isfinite().all())
    assert float(found.loss.max()) > 10  # of the row whose class was never seen


def test_rows_without_weight_have_no_part() -> None:
    rng = np.random.default_rng(0)
    columns, targets = rng.random((20, 6)) < 0.5, rng.normal(size=20)
    weight = np.where(np.arange(20) < 12, 2.0, 0.0)
    given = solve_path(ConvexProblem(columns, targets, "squared", row_weight=weight), [0.1, 0.01])
    alone = solve_path(ConvexProblem(columns[:12], targets[:12], "squared"), [0.1, 0.01])
    found, expected = (validated(path, n_folds=12).mean() for path in (given, alone))
    torch.testing.assert_close(found, expected, rtol=ROUNDING, atol=0)
    with pytest.raises(InvalidInputError, match="as many folds as samples that can be left out, got n_folds=13 for 12"):
        cross_validate(given, n_folds=13)


def test_folds_depend_on_the_seed_and_the_repeat_alone() -> None:
    path = solve_path(Kind("squared").draw(0), [0.1, 0.01])
    once, twice, other = validated(path), validated(path, n_repeats=2), validated(path, seed=1)
    assert (once.method, twice.method) == ("5 folds, 1 time", "5 folds, 2 times")
    assert (once.n_repeats, twice.n_repeats) == (1, 2)
    assert torch.equal(twice.loss[:, :5], once.loss)
    assert not torch.allclose(twice.loss[:, 5:].sort(1).values, once.loss.sort(1).values)
    assert not torch.allclose(other.loss.sort(1).values, once.loss.sort(1).values)
    assert float(twice.weight.sum()) == pytest.approx(1)


def test_solutions_stay_as_they_are_and_one_can_be_selected() -> None:
    path = solve_path(Kind("squared").draw(0), n_strengths=4)
    found = cross_validate(path)
    assert found.solutions is path.solutions
    assert found.validation is not None
    assert found.select("loss") is path[int(found.validation.mean().argmin())]


def test_cells_may_be_in_any_order() -> None:
    path = solve_path(Kind("squared", "elastic-net").draw(0), [0.1, 0.01], l2_strengths=[1.0, 0.1])
    places = [2, 1, 3]
    some = RegularizationPath(tuple(path[place] for place in places), 0.0)
    torch.testing.assert_close(validated(some).loss, validated(path).loss[places], rtol=ROUNDING, atol=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: cross_validate(path, n_folds=1), "n_folds to be an integer of at least 2, got 1"),
        (lambda path: cross_validate(path, n_folds=2.5), "n_folds to be an integer of at least 2, got 2.5"),
        (lambda path: cross_validate(path, n_folds=25), "at most as many folds as samples .* n_folds=25 for 24"),
        (lambda path: cross_validate(path, n_repeats=0), "n_repeats to be a positive integer, got 0"),
        (lambda path: cross_validate(path, seed=-1), "seed to be a non-negative integer, got -1"),
        (lambda path: cross_validate(path, tol=0.0), "tol between 0 and 1, got 0.0"),
        (lambda path: cross_validate(path, groups=np.zeros(3)), r"groups of shape \(24,\), one per sample, got \(3,\)"),
        (lambda path: cross_validate(path, groups=np.arange(24) % 4), "n_folds=5 for 4"),
    ],
)
def test_folds_that_mean_nothing_are_refused(call: Callable[[RegularizationPath], object], message: str) -> None:
    path = solve_path(Kind("squared").draw(0), [0.1])
    with pytest.raises(InvalidInputError, match=message):
        call(path)


def test_rows_of_one_class_beside_an_intercept_are_refused() -> None:
    columns = np.random.default_rng(0).random((20, 6)) < 0.5
    targets = {"first": np.arange(20) % 2, "second": np.arange(20) == 7}
    problem = ConvexProblem(columns, targets, "logistic", intercept=True)
    with pytest.raises(InvalidInputError, match=r"two classes in head 'second' among the rows that remain .* got one"):
        cross_validate(solve_path(problem, [0.1]))
