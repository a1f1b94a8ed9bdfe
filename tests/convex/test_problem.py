import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from convex.problems import LOSSES, PENALTIES, TWO_HEADS, Kind, conjugate, draw_scores
from tolerances import ROUNDING

from cvxsnn import ConvexProblem, certify, solve
from cvxsnn.convex.linear import weighted_gram
from cvxsnn.convex.losses import make_loss
from cvxsnn.core.errors import InvalidInputError

COLUMNS = np.eye(4, dtype=bool)
LABELS = np.array([0, 1, 0, 1])


@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_unit_dual_is_the_gradient_of_the_loss_divided_by_the_row_weights(loss: str) -> None:
    problem = Kind(loss, weighted=True).draw(0)
    scores = draw_scores(problem).requires_grad_()
    (gradient,) = torch.autograd.grad(problem.loss_value(scores), scores)
    weighted = problem.row_weight[:, None] * problem.unit_dual(scores.detach())
    torch.testing.assert_close(weighted, gradient, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_conjugate_of_the_weighted_loss_is_tight_at_its_gradient(loss: str) -> None:
    problem = Kind(loss, weighted=True).draw(0)
    scores = draw_scores(problem)
    dual = problem.unit_dual(scores)
    inner = (problem.row_weight[:, None] * dual * scores).sum()
    total = problem.loss_value(scores) + conjugate(problem, dual)
    assert float(total) == pytest.approx(float(inner), rel=ROUNDING, abs=ROUNDING)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_zero_is_optimal_at_the_critical_strength(loss: str, penalty: str, intercept: bool) -> None:
    problem = Kind(loss, penalty, intercept, weighted=True, n_outputs=2).draw(0, 1.0)
    dual = -problem.row_weight[:, None] * problem.null_dual
    zero = torch.zeros(problem.shape[1:], dtype=torch.float64)
    certificate, _ = certify(problem, zero, problem.null_intercept if intercept else None, [dual])
    assert certificate.relative_gap <= ROUNDING


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", ["squared", "squared_hinge", "logistic", "softmax", "squared + logistic"])
def test_zero_is_not_optimal_just_below_the_critical_strength(loss: str, penalty: str, intercept: bool) -> None:
    problem = Kind(loss, penalty, intercept, weighted=True, n_outputs=2).draw(0, 0.99)
    null_value = float(problem.loss_value(problem.null_intercept.expand(problem.shape[0], -1)))
    solution = solve(problem, 1e-9)
    assert len(solution.support) > 0
    assert solution.certificate.primal < null_value


def one_class_with_weight(loss: str, intercept: bool, penalty: str = "l1") -> ConvexProblem:
    """A problem in which a class has rows, but none with weight."""
    columns = np.random.default_rng(0).random((12, 5)) < 0.5
    labels = np.arange(12) % 2
    return ConvexProblem(columns, labels, loss, 0.01, penalty=penalty, intercept=intercept, row_weight=labels)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic", "softmax"])
def test_one_class_with_weight_is_refused_with_an_intercept_and_solved_without(loss: str) -> None:
    with pytest.raises(InvalidInputError, match="two classes among the rows with weight in head 'label', got one"):
        one_class_with_weight(loss, intercept=True)
    assert solve(one_class_with_weight(loss, intercept=False)).has_converged


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("loss", "targets"), [("hinge", [1, 1]), ("logistic", [[0, 1], [1, 1]]), ("softmax", [1, 1]), ("hinge", [-1, -1])]
)
def test_one_class_only_is_encoded_but_makes_no_problem(loss: str, targets: list[object], intercept: bool) -> None:
    assert len(make_loss(loss).encode(np.array(targets))) == 2
    with pytest.raises(InvalidInputError, match=r"two classes or more in head 'label', .* got one class only"):
        ConvexProblem(np.eye(2), np.array(targets), loss, 0.1, intercept=intercept)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_third_class_without_weight_does_not_spoil_the_certificate(penalty: str) -> None:
    columns = np.random.default_rng(0).random((24, 8)) < 0.5
    labels = np.arange(24) % 3
    options = {"penalty": penalty, "intercept": True, "row_weight": labels > 0}
    assert solve(ConvexProblem(columns, labels, "softmax", 0.01, **options)).has_converged


def test_rows_without_weight_add_nothing_to_the_conjugate() -> None:
    problem = ConvexProblem(COLUMNS, LABELS, row_weight=np.array([1, 1, 0, 1]))
    dual = problem.unit_dual(draw_scores(problem))
    outside = dual.clone()
    outside[2] = 7.0
    assert float(conjugate(problem, outside)) == float(conjugate(problem, dual))


def test_with_strength_changes_nothing_else() -> None:
    problem = Kind("logistic", intercept=True).draw(0)
    critical = problem.critical_strength
    other = problem.with_strength(0.5)
    assert (other.l1_strength, other.critical_strength) == (0.5, critical)
    assert other.dictionary is problem.dictionary
    assert other.reduced[0].l1_strength == 0.5
    assert problem.reduced[0].l1_strength == problem.l1_strength


def test_repr_names_sizes_and_terms() -> None:
    targets = {"digit": np.array([0, 1, 2, 0]), "carry": LABELS}
    problem = ConvexProblem(
        COLUMNS, targets, {"digit": "softmax", "carry": "hinge"}, 0.25, penalty="group", intercept=True
    )
    assert repr(problem) == "ConvexProblem(4 rows × 4 atoms → 4 outputs, softmax + hinge + 0.25·group, intercept)"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ConvexProblem(COLUMNS, LABELS, l1_strength=0), "finite number above zero, got 0: without it"),
        (lambda: ConvexProblem(COLUMNS, LABELS, l1_strength=-1.0), "finite number above zero, got -1.0"),
        (lambda: ConvexProblem(COLUMNS, LABELS, l1_strength=float("nan")), "finite number above zero, got nan"),
        (lambda: ConvexProblem(COLUMNS, LABELS, l1_strength=float("inf")), "finite number above zero, got inf"),
        (lambda: ConvexProblem(COLUMNS, LABELS).with_strength(0.0), "finite number above zero, got 0.0"),
        (lambda: ConvexProblem(COLUMNS, LABELS, "absolute"), "loss to be one of .* got 'absolute'"),
        (lambda: ConvexProblem(COLUMNS, LABELS, penalty="l2"), r"penalty to be one of 'l1', 'group'.*, got 'l2'"),
        (lambda: ConvexProblem(COLUMNS + 0.5, LABELS), "0/1 array, got other values"),
    ],
)
def test_problems_that_mean_nothing_are_refused(build: Callable[[], ConvexProblem], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        build()


def test_some_rows_are_the_problem_built_from_them() -> None:
    rng = np.random.default_rng(0)
    columns, targets, weight = rng.random((9, 4)) < 0.5, np.arange(9) % 3, rng.random(9)
    problem = ConvexProblem(columns, targets, "softmax", row_weight=weight, intercept=True)
    rows = torch.tensor([7, 0, 1, 5, 3])
    some = problem.take_rows(rows)
    built = ConvexProblem(columns[rows], targets[rows], "softmax", row_weight=weight[rows], intercept=True)
    assert torch.equal(some.dictionary.columns(), built.dictionary.columns())
    assert torch.equal(some.heads[0].targets, built.heads[0].targets)
    torch.testing.assert_close(some.row_weight, built.row_weight, rtol=ROUNDING, atol=0)
    assert some.critical_strength == pytest.approx(built.critical_strength) != problem.critical_strength


def test_outputs_of_classes_that_are_in_no_row_any_more_stay() -> None:
    problem = ConvexProblem(COLUMNS, [0, 1, 2, 0], "softmax")
    assert problem.take_rows(torch.tensor([0, 1])).shape == (2, 4, 3)


@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_reduced_problem_has_distinct_rows_and_the_same_objective(loss: str) -> None:
    problem = Kind(loss, columns="equal_rows", weighted=True).draw(0)
    reduced, row_of = problem.reduced
    rows = torch.cat([reduced.dictionary.columns(), *(head.targets for head in reduced.heads)], dim=1)
    assert len(torch.unique(rows, dim=0)) == len(rows) < problem.shape[0]
    assert bool((reduced.row_weight > 0).all())
    assert float(reduced.row_weight.sum()) == pytest.approx(1, rel=ROUNDING)
    kept = problem.row_weight > 0
    torch.testing.assert_close(reduced.dictionary.columns()[row_of][kept], problem.dictionary.columns()[kept])
    for head, merged in zip(problem.heads, reduced.heads, strict=True):
        assert torch.equal(merged.targets[row_of][kept], head.targets[kept])
    scores = draw_scores(reduced)
    value = float(problem.loss_value(scores[row_of]))
    assert value == pytest.approx(float(reduced.loss_value(scores)), rel=ROUNDING)


def test_rows_with_equal_spikes_and_other_targets_stay_apart() -> None:
    columns = np.ones((4, 1))
    problem = ConvexProblem(columns, np.array([1.0, 2.0, 1.0, -0.0]), "squared", 0.1)
    reduced, row_of = problem.reduced
    assert row_of.tolist() == [0, 1, 0, 2]
    assert reduced.row_weight.tolist() == [0.5, 0.25, 0.25]


@pytest.mark.parametrize(("penalty", "widths"), [("l1", [3, 1, 1]), ("group", [5])])
def test_independent_parts_add_up_to_the_whole(penalty: str, widths: list[int]) -> None:
    targets = {"digit": np.array([0, 1, 2, 0]), "amount": np.arange(8.0).reshape(4, 2)}
    problem = ConvexProblem(np.eye(4, dtype=bool), targets, {"digit": "softmax", "amount": "squared"}, penalty=penalty)
    scores = draw_scores(problem)
    parts = [(problem.part(columns), columns) for columns in problem.independent_outputs()]
    assert [part.n_outputs for part, _ in parts] == widths
    total = sum(float(part.loss_value(scores[:, columns])) for part, columns in parts)
    assert total == pytest.approx(float(problem.loss_value(scores)), rel=ROUNDING)


def test_strengths_share_a_workspace_and_solutions_and_copies_do_not_keep_it() -> None:
    problem = Kind("squared", intercept=True).draw(0)
    other = problem.with_strength(0.5 * problem.l1_strength)
    solution = solve(other, 1e-9)
    assert problem.row_workspace.has(weighted_gram)
    assert problem.workspace is other.workspace
    for kept in (solution.problem, pickle.loads(pickle.dumps(problem)), copy.deepcopy(problem)):
        assert not kept.row_workspace.has(weighted_gram)
    assert solve(solution.problem, 1e-9).certificate.primal == pytest.approx(solution.certificate.primal, rel=ROUNDING)


def test_smoothing_replaces_hinges_only() -> None:
    problem = Kind("hinge + squared_hinge").draw(0)
    assert not problem.is_smooth
    smooth = problem.smoothed(0.5)
    assert smooth.is_smooth
    assert smooth.heads[1].loss is problem.heads[1].loss
