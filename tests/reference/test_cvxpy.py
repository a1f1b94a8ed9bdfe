"""Objectives against cvxpy with Clarabel, on hundreds of small problems, most of them with singular dictionaries."""

import warnings

import pytest
from convex.problems import COLUMNS, ELASTIC_NETS, LOSSES, PENALTIES, TWO_HEADS, Columns, Kind
from convex.reference import Reference
from tolerances import CLARABEL, ROUNDING

from cvxsnn import ConvexProblem, Solution, solve
from cvxsnn.core.errors import ConvergenceWarning

pytest.importorskip("cvxpy", reason="cvxpy is not installed: pip install cvxpy clarabel")

CASES = [(0.9, False), (0.1, True), (0.1, False), (1e-3, True)]
"""Strength as a share of the critical one, and whether rows have weights."""


def solve_both(problem: ConvexProblem, tol: float) -> Solution:
    """Our solution, after its objective was found within the certified gaps of the reference's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours = solve(problem, tol)
        theirs = solve(problem, CLARABEL, Reference())
    assert theirs.certificate.relative_gap <= CLARABEL
    gap = max(ours.certificate.gap, theirs.certificate.gap)
    difference = abs(ours.certificate.primal - theirs.certificate.primal)
    assert difference <= gap + ROUNDING * max(1.0, ours.certificate.primal)
    return ours


@pytest.mark.parametrize(("ratio", "weighted"), CASES)
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_l1_objectives_agree_within_the_certified_gaps(
    loss: str, intercept: bool, columns: Columns, weighted: bool, ratio: float
) -> None:
    assert solve_both(Kind(loss, "l1", intercept, columns, weighted).draw(1, ratio), 1e-8).has_converged


@pytest.mark.parametrize(("ratio", "weighted"), CASES)
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_group_objectives_agree_within_the_certified_gaps(
    loss: str, intercept: bool, columns: Columns, weighted: bool, ratio: float
) -> None:
    problem = Kind(loss, "group", intercept, columns, weighted, n_outputs=2).draw(1, ratio)
    assert solve_both(problem, 1e-6).has_converged


ELASTIC_CASES: list[tuple[float, float, Columns, bool]] = [
    (0.9, 1.0, "equal_rows", False),
    (0.1, 1e-2, "random", False),
    (0.1, 1e-4, "collinear", True),
    (1e-3, 1e-2, "equal_rows", True),
    (1e-3, 1e-4, "few_rows", False),
    (0.0, 1.0, "few_rows", True),
    (0.0, 1e-2, "random", True),
    (0.0, 1e-4, "collinear", False),
]
"""Strength of the norm as a share of the critical one, that of the quadratic, columns, whether rows have weights."""


@pytest.mark.parametrize(("ratio", "l2_strength", "columns", "weighted"), ELASTIC_CASES)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", ELASTIC_NETS)
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_objectives_of_elastic_nets_agree_within_the_certified_gaps(
    loss: str, penalty: str, intercept: bool, columns: Columns, weighted: bool, ratio: float, l2_strength: float
) -> None:
    kind = Kind(loss, penalty, intercept, columns, weighted, 1 if penalty == "elastic-net" else 2, l2_strength)
    assert solve_both(kind.draw(1, ratio), 1e-6).has_converged


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_the_reference_is_certified_like_every_solver(loss: str, penalty: str) -> None:
    solution = solve(Kind(loss, penalty, intercept=True, weighted=True).draw(2), CLARABEL, Reference())
    assert (solution.solver, solution.has_converged) == ("clarabel", True)
