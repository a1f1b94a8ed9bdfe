import numpy as np
import pytest
import torch
from convex.linear_program import LinearProgram
from convex.problems import COLUMNS, Columns, Kind
from tolerances import ROUNDING

from cvxsnn import ConvexProblem, solve
from cvxsnn.convex.solvers import interior_point


def exclusive_or_problem(intercept: bool, ratio: float) -> ConvexProblem:
    """The exclusive or of two of ten bits by 60 random half-spaces: hundreds of rows, and degenerate."""
    rng = np.random.default_rng(0)
    bits = rng.random((300, 10)) < 0.5
    columns = (bits - 0.5) @ rng.normal(size=(10, 60)) + rng.normal(size=60) >= 0
    problem = ConvexProblem(columns, bits[:, 0] ^ bits[:, -1], "hinge", 1.0, intercept=intercept)
    return problem.with_strength(ratio * problem.critical_strength)


@pytest.mark.parametrize("ratio", [0.9, 0.1, 1e-3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
def test_interior_point_and_simplex_agree(columns: Columns, intercept: bool, weighted: bool, ratio: float) -> None:
    problem = Kind("hinge", "l1", intercept, columns, weighted, n_outputs=2).draw(0, ratio)
    ours, theirs = (solve(problem, 1e-9, solver) for solver in ("interior-point", LinearProgram()))
    assert ours.has_converged
    assert theirs.has_converged
    gap = max(ours.certificate.gap, theirs.certificate.gap)
    assert abs(ours.certificate.primal - theirs.certificate.primal) <= gap + ROUNDING


@pytest.mark.parametrize("seed", range(40))
def test_weighted_problems_with_an_intercept_converge(seed: int) -> None:
    kind = Kind("hinge", intercept=True, columns=COLUMNS[seed % 4], weighted=True)
    assert solve(kind.draw(seed, [0.1, 0.01, 1e-3][seed % 3]), 1e-8).has_converged


@pytest.mark.parametrize("ratio", [0.1, 0.01, 1e-3])
@pytest.mark.parametrize("intercept", [False, True])
def test_few_iterations_are_enough_down_to_small_strengths(intercept: bool, ratio: float) -> None:
    problem = exclusive_or_problem(intercept, ratio)
    solution = solve(problem, 1e-9, "interior-point")
    assert solution.has_converged
    assert len(solution.history) <= 40


def test_history_shows_a_falling_gap() -> None:
    *gaps, _ = (moment.relative_gap for moment in solve(exclusive_or_problem(True, 0.1), 1e-9).history)
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] <= 1e-9 < gaps[0]


def test_polished_solutions_are_exact() -> None:
    # Margins of one, reached with the coefficients 1 and −1 of two rows: nothing is left but the norm.
    problem = ConvexProblem(np.eye(2), np.array([1, 0]), "hinge", 0.125)
    solution = solve(problem, 1e-12)
    torch.testing.assert_close(solution.coef[:, 0], torch.tensor([1.0, -1.0]).double(), rtol=0, atol=ROUNDING)
    assert solution.certificate.primal == pytest.approx(0.25, rel=ROUNDING)


@pytest.mark.parametrize("ratio", [0.1, 0.01])
@pytest.mark.parametrize("intercept", [False, True])
def test_polishing_jumps_to_rounding(intercept: bool, ratio: float) -> None:
    *gaps, _ = (moment.relative_gap for moment in solve(exclusive_or_problem(intercept, ratio), 1e-11).history)
    assert gaps[-1] < 1e-5 * gaps[-2]


def test_a_lower_bound_is_known_from_the_first_step() -> None:
    assert solve(exclusive_or_problem(True, 0.1)).history[0].relative_gap < 1


def test_a_matrix_too_rough_to_factor_is_formed_again_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    advance, asked = interior_point._State.advance, []

    def refuse_float32(self, margin, weight, strength, precision):  # type: ignore[no-untyped-def]
        asked.append(precision)
        return precision == torch.float64 and advance(self, margin, weight, strength, precision)

    monkeypatch.setattr(interior_point._State, "advance", refuse_float32)
    assert solve(Kind("hinge").draw(0, 0.01), 1e-8, "interior-point").has_converged
    assert asked[:2] == [torch.float32, torch.float64]
