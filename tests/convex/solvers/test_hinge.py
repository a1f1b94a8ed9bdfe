import numpy as np
import pytest
import torch
from convex.linear_program import LinearProgram
from convex.problems import COLUMNS, Columns, Kind
from convex.reference import Reference
from sklearn.svm import SVC
from tolerances import CLARABEL, COORDINATE_DESCENT, ROUNDING

from cvxsnn import ConvergenceWarning, ConvexProblem, certify, solve
from cvxsnn.convex.solvers import hinge


def exclusive_or_problem(intercept: bool, ratio: float, l2_strength: float = 0.0) -> ConvexProblem:
    """The exclusive or of two of ten bits by 60 random half-spaces: hundreds of rows, and degenerate."""
    rng = np.random.default_rng(0)
    bits = rng.random((300, 10)) < 0.5
    columns = (bits - 0.5) @ rng.normal(size=(10, 60)) + rng.normal(size=60) >= 0
    problem = ConvexProblem(
        columns,
        bits[:, 0] ^ bits[:, -1],
        "hinge",
        1.0,
        l2_strength=l2_strength,
        penalty="elastic-net" if l2_strength else "l1",
        intercept=intercept,
    )
    return problem.with_strength(ratio * problem.critical_strength)


@pytest.mark.parametrize("ratio", [0.9, 0.1, 1e-3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
def test_interior_point_and_simplex_agree(columns: Columns, intercept: bool, weighted: bool, ratio: float) -> None:
    problem = Kind("hinge", "l1", intercept, columns, weighted, n_outputs=2).draw(0, ratio)
    ours, theirs = (solve(problem, 1e-9, solver) for solver in ("hinge", LinearProgram()))
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
    solution = solve(problem, 1e-9, "hinge")
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
    *gaps, _ = (moment.relative_gap for moment in solve(exclusive_or_problem(intercept, ratio), 1e-10).history)
    assert gaps[-1] < 1e-5 * gaps[-2]


def test_a_lower_bound_is_known_from_the_first_step() -> None:
    assert solve(exclusive_or_problem(True, 0.1)).history[0].relative_gap < 1


def test_a_matrix_too_rough_to_factor_is_formed_again_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    advance, asked = hinge._State.advance, []

    def refuse_float32(self, margin, weight, strength, precision):  # type: ignore[no-untyped-def]
        asked.append(precision)
        return precision == torch.float64 and advance(self, margin, weight, strength, precision)

    monkeypatch.setattr(hinge._State, "advance", refuse_float32)
    assert solve(Kind("hinge").draw(0, 0.01), 1e-8, "hinge").has_converged
    assert asked[:2] == [torch.float32, torch.float64]


L2_STRENGTHS = [1e-6, 1e-2, 1.0]


@pytest.mark.parametrize("l2_strength", L2_STRENGTHS)
@pytest.mark.parametrize("ratio", [0.0, 0.01, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
def test_elastic_nets_converge(
    columns: Columns, intercept: bool, weighted: bool, ratio: float, l2_strength: float
) -> None:
    for n_outputs in (1, 2):
        kind = Kind("hinge", "elastic-net", intercept, columns, weighted, n_outputs, l2_strength)
        solution = solve(kind.draw(n_outputs, ratio), 1e-8)
        assert (solution.solver, solution.has_converged) == ("hinge", True)


@pytest.mark.parametrize("l2_strength", L2_STRENGTHS)
@pytest.mark.parametrize("ratio", [0.0, 0.1])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
def test_elastic_nets_have_the_objective_of_the_reference(
    columns: Columns, intercept: bool, ratio: float, l2_strength: float
) -> None:
    problem = Kind("hinge", "elastic-net", intercept, columns, True, l2_strength=l2_strength).draw(3, ratio)
    ours, theirs = solve(problem, 1e-8, "hinge"), solve(problem, CLARABEL, Reference())
    assert theirs.has_converged
    gap = max(ours.certificate.gap, theirs.certificate.gap)
    assert abs(ours.certificate.primal - theirs.certificate.primal) <= gap + ROUNDING


@pytest.mark.parametrize("l2_strength", [1e-3, 1e-2, 1.0])
@pytest.mark.parametrize("columns", COLUMNS)
def test_without_a_norm_it_is_the_support_vector_machine(columns: Columns, l2_strength: float) -> None:
    problem = Kind("hinge", "elastic-net", True, columns, l2_strength=l2_strength).draw(0, 0.0)
    model = SVC(kernel="linear", C=1 / (problem.shape[0] * l2_strength), tol=1e-10)
    model.fit(problem.dictionary.columns().numpy(), problem.heads[0].targets[:, 0].numpy())
    ours = solve(problem, 1e-9, "hinge")
    coef = torch.from_numpy(model.coef_.T.copy())
    theirs, _ = certify(problem, coef, model.intercept_, [ours.dual_point])
    assert theirs.relative_gap <= COORDINATE_DESCENT
    # The objective grows at least like ½r‖w − w*‖² from the optimal coefficients.
    distance = float((ours.coef - coef).norm())
    assert distance <= sum((2 * own.gap / l2_strength) ** 0.5 for own in (ours.certificate, theirs)) + ROUNDING


@pytest.mark.parametrize("l2_strength", L2_STRENGTHS)
@pytest.mark.parametrize("ratio", [0.0, 1e-3, 0.1])
@pytest.mark.parametrize("intercept", [False, True])
def test_few_iterations_are_enough_for_elastic_nets(intercept: bool, ratio: float, l2_strength: float) -> None:
    solution = solve(exclusive_or_problem(intercept, ratio, l2_strength), 1e-9, "hinge")
    assert solution.has_converged
    assert len(solution.history) <= 30


@pytest.mark.parametrize("strengths", [(1e-6, 1e-2), (1e-12, 1e-6), (1e-300, 1e-2), (0.0, 1e-12), (0.1, 1e-15)])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
def test_either_strength_may_nearly_vanish(columns: Columns, intercept: bool, strengths: tuple[float, float]) -> None:
    ratio, l2_strength = strengths
    problem = Kind("hinge", "elastic-net", intercept, columns, True, 2, l2_strength).draw(2, ratio)
    assert solve(problem, 1e-6, "hinge").has_converged


@pytest.mark.parametrize("intercept", [False, True])
def test_elastic_nets_keep_the_zeros_of_the_norm(intercept: bool) -> None:
    solution = solve(exclusive_or_problem(intercept, 0.1, 1e-2), 1e-9, "hinge")
    is_small = solution.coef.abs() < 1e-3
    assert 0 < int(is_small.sum()) < len(is_small)
    # All but at most one, without which the gap would be above the tolerance.
    assert int((solution.coef[is_small] != 0).sum()) <= 1
    # At the optimum, an atom is active where its correlation is beyond the strength.
    correlation = solution.problem.dictionary.columns().T @ solution.dual_point
    assert torch.equal(correlation.abs() > solution.problem.l1_strength + 1e-6, ~is_small)


def test_coefficients_that_vanish_as_slowly_as_their_slacks_are_kept() -> None:
    # Setting them to zero, as sparsity suggests, would leave a gap of their size.
    problem = Kind("hinge", "elastic-net", False, "few_rows", True, 1, l2_strength=1.0).draw(1, 0.01)
    solution = solve(problem, 1e-10, "hinge")
    assert solution.has_converged
    assert len(solution.history) <= 15


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("l1_strength", "l2_strength"), [(1e-3, 0.0), (1e-5, 0.0), (0.0, 1e-4), (1e-6, 1e-6)])
def test_more_atoms_than_rows_take_factors_of_the_size_of_the_rows(
    monkeypatch: pytest.MonkeyPatch, l1_strength: float, l2_strength: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    columns, labels = rng.random((40, 200)) < rng.uniform(0.05, 0.9), rng.random(40) < 0.5
    sizes, factorise = set(), torch.linalg.cholesky_ex
    monkeypatch.setattr(torch.linalg, "cholesky_ex", lambda matrix: sizes.add(len(matrix)) or factorise(matrix))
    for intercept in (False, True):
        problem = ConvexProblem(
            columns, labels, "hinge", l1_strength, l2_strength=l2_strength, penalty="elastic-net", intercept=intercept
        )
        solution = solve(problem, 1e-6, "hinge")
        assert solution.has_converged
        assert len(solution.history) <= 40
    assert max(sizes) <= 40


@pytest.mark.parametrize("l1_strength", [0.0, 5.6e-15])
def test_a_tolerance_below_rounding_ends_where_nothing_is_left_to_follow(l1_strength):
    """The products of the interior point vanish in float64 before the tolerance is reached."""
    columns = np.ones((6, 7))
    columns[2, :2] = columns[5, 3] = 0
    penalty = {"penalty": "elastic-net", "l1_strength": l1_strength, "l2_strength": 0.02574, "intercept": True}
    problem = ConvexProblem(columns, [1, 1, 0, 1, 1, 0], loss="hinge", **penalty)
    with pytest.warns(ConvergenceWarning):
        solution = solve(problem, 1e-15)
    assert 0 <= solution.certificate.relative_gap < 1e-11
