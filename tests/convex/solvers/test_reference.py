import pytest
from convex.problems import LOSSES, PENALTIES, SMOOTH_LOSSES, Kind
from tolerances import ROUNDING

from cvxsnn import solve


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_and_penalty_reaches_the_certified_optimum(loss: str, penalty: str, intercept: bool) -> None:
    problem = Kind(loss, penalty, intercept, weighted=True, n_outputs=2).draw(0, 0.3)
    tol = 1e-6 if loss in SMOOTH_LOSSES else 1e-3
    ours = solve(problem, tol, "reference")
    other = solve(problem, tol)
    assert ours.has_converged
    assert other.solver != ours.solver
    gap = max(ours.certificate.gap, other.certificate.gap)
    assert abs(ours.certificate.primal - other.certificate.primal) <= gap + ROUNDING


def test_history_shows_a_falling_gap() -> None:
    solution = solve(Kind("logistic").draw(0), 1e-6, "reference")
    *gaps, _ = (moment.relative_gap for moment in solution.history)
    assert gaps == sorted(gaps, reverse=True)
