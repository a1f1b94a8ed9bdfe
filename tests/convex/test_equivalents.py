import numpy as np
import pytest
import torch
from convex.problems import LOSSES, TWO_HEADS, Kind, draw_scores
from tolerances import ROUNDING

from cvxsnn import ConvexProblem


@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_reduced_problem_has_distinct_rows_and_the_same_objective(loss: str) -> None:
    problem = Kind(loss, columns="equal_rows", weighted=True).draw(0)
    reduced, row_of = problem.reduced.problem, problem.reduced.row_of
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
    assert problem.reduced.row_of.tolist() == [0, 1, 0, 2]
    assert problem.reduced.problem.row_weight.tolist() == [0.5, 0.25, 0.25]


@pytest.mark.parametrize(("penalty", "widths"), [("l1", [3, 1, 1]), ("group", [5])])
def test_independent_parts_add_up_to_the_whole(penalty: str, widths: list[int]) -> None:
    targets = {"digit": np.array([0, 1, 2, 0]), "amount": np.arange(8.0).reshape(4, 2)}
    problem = ConvexProblem(np.eye(4, dtype=bool), targets, {"digit": "softmax", "amount": "squared"}, penalty=penalty)
    scores = draw_scores(problem)
    parts = [(problem.part(columns), columns) for columns in problem.independent_outputs()]
    assert [part.n_outputs for part, _ in parts] == widths
    total = sum(float(part.loss_value(scores[:, columns])) for part, columns in parts)
    assert total == pytest.approx(float(problem.loss_value(scores)), rel=ROUNDING)
