import pytest
import torch
from convex.problems import Kind
from tolerances import ROUNDING
from torch import Tensor

from cvxsnn import ConvexProblem
from cvxsnn.convex import Validation
from cvxsnn.convex.left_out import row_classes, row_hits, row_losses

SCORES = torch.tensor([[2.0, 1.0, 0.0], [0.0, -1.0, -0.5], [0.3, 0.2, 0.4]], dtype=torch.float64)


def numbers(*rows: object) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_means_are_weighted() -> None:
    loss, accuracy, weight = numbers([1.0, 5.0], [2.0, 2.0]), numbers([1.0, 0.0], [0.5, 0.0]), numbers(0.75, 0.25)
    validation = Validation("two folds", loss, accuracy, weight)
    assert validation.mean().tolist() == [2.0, 2.0]
    assert validation.mean("accuracy").tolist() == [0.75, 0.375]


def test_the_standard_error_of_equal_parts_is_that_of_a_mean() -> None:
    loss = torch.rand(3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    validation = Validation("seven folds", loss, 1 - loss, torch.full_like(loss[0], 1 / 7))
    expected = loss.std(1, correction=1) / 7**0.5
    torch.testing.assert_close(validation.standard_error(), expected, rtol=ROUNDING, atol=0)
    torch.testing.assert_close(validation.standard_error("accuracy"), expected, rtol=ROUNDING, atol=0)


@pytest.mark.parametrize("loss", ["squared", "softmax + logistic"])
def test_losses_of_rows_add_up_to_the_weighted_loss(loss: str) -> None:
    problem = Kind(loss, weighted=True).draw(0)
    scores = torch.randn(24, problem.n_outputs, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    total = problem.row_weight @ row_losses(problem.heads, scores)
    torch.testing.assert_close(total, problem.loss_value(scores), rtol=ROUNDING, atol=0)


@pytest.mark.parametrize(
    ("targets", "loss", "hits"),
    [
        ([0, 0, 2], "softmax", [1, 1, 1]),
        ([0, 1, 1], "softmax", [1, 0, 0]),
        ([[1, 0, 0], [0, 0, 1], [0, 1, 0]], "squared", [1, 0, 0]),  # one of the outputs: the largest
        ([[1, -1, -1], [-1, 1, -1], [-1, -1, 1]], "logistic", [1, 0, 1]),
        ([[1, 1, -1], [-1, -1, -1], [1, 1, 1]], "logistic", [1, 1, 1]),  # labels of their own: all of them
        ([[1, 1, 1], [-1, -1, -1], [1, 1, -1]], "logistic", [0, 1, 0]),
        ([[0, 0, 0], [0, 0, 0], [1, 1, 1]], "squared", [0, 1, 0]),  # the middle is ½
        ([[0.1, 0, 0], [0, 0, 0], [1, 1, 1]], "squared", None),
        ([[1, 1, 1], [1, 1, 1], [1, 1, 1]], "squared", None),
    ],
)
def test_hits(targets: list[object], loss: str, hits: list[float] | None) -> None:
    problem = ConvexProblem(torch.eye(3), numbers(*targets), loss)
    found = row_hits(problem.heads, SCORES[:, : problem.n_outputs])
    assert found is None if hits is None else found.tolist() == hits


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (3.0, 7.0)])
def test_one_output_names_a_class_by_the_side_of_the_middle(low: float, high: float) -> None:
    middle = (low + high) / 2
    problem = ConvexProblem(torch.eye(4), numbers(low, low, high, high), "squared")
    found = row_hits(problem.heads, numbers([middle - 0.1], [middle + 0.1], [middle - 0.1], [middle + 0.1]))
    assert found is not None
    assert found.tolist() == [1, 0, 0, 1]


def test_hits_are_averaged_over_the_heads_with_classes() -> None:
    targets = {"class": numbers(0, 1, 2), "sign": numbers(1, -1, 1), "value": numbers(0.1, 0.2, 0.3)}
    losses = {"class": "softmax", "sign": "logistic", "value": "squared"}
    problem = ConvexProblem(torch.eye(3), targets, losses)
    scores = numbers([9, 0, 0, -1, 0], [0, 9, 0, -1, 0], [9, 0, 0, -1, 0])
    found = row_hits(problem.heads, scores)
    assert found is not None
    assert found.tolist() == [0.5, 1, 0]


@pytest.mark.parametrize(
    ("targets", "classes"),
    [
        ([[1], [-1], [1]], [1, 0, 1]),
        ([[0, 0, 1], [1, 0, 0], [0, 1, 0]], [2, 0, 1]),
        ([[1, 0], [1, 1], [0, 0]], None),  # labels of their own
        ([[0.1], [0.2], [0.3]], None),
    ],
)
def test_classes_of_rows(targets: list[object], classes: list[int] | None) -> None:
    found = row_classes(numbers(*targets))
    assert found is None if classes is None else found.tolist() == classes
