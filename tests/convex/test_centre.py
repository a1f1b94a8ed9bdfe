"""A quadratic that draws to coefficients W₀ and not to zero."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from convex.problems import (
    COLUMNS,
    ELASTIC_NETS,
    LOSSES,
    TWO_HEADS,
    Kind,
    assert_agree,
    draw_dual,
    draw_point,
    objective,
)
from convex.reference import Reference
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import CLARABEL, ROUNDING
from torch import Tensor

from cvxsnn import ConvexProblem, InvalidInputError, certify, solve, solve_path
from cvxsnn.convex import leave_one_out
from cvxsnn.convex.certificate import lower_bound
from cvxsnn.convex.solvers import ADMM, RidgeCG
from cvxsnn.dictionary import DenseDictionary

KINDS = st.builds(
    Kind,
    loss=st.sampled_from((*LOSSES, *TWO_HEADS)),
    penalty=st.sampled_from(ELASTIC_NETS),
    intercept=st.booleans(),
    columns=st.sampled_from(COLUMNS),
    weighted=st.booleans(),
    n_outputs=st.integers(1, 2),
    l2_strength=st.sampled_from([1e3, 1.0, 1e-2, 1e-6]),
    centre=st.sampled_from([1e-3, 1.0, 30.0]),
)
SEEDS = st.integers(0, 2**32 - 1)
RATIOS = st.sampled_from([2.0, 0.9, 0.1, 1e-3, 0.0])
SIZES = st.sampled_from([0.0, 1e-3, 1.0, 30.0])


def centre_of(problem: ConvexProblem) -> Tensor:
    assert problem.centre is not None
    return problem.centre


def tolerance(problem: ConvexProblem) -> float:
    """The gap to certify: the solver of a norm over groups rounds its corners."""
    return 1e-8 if problem.penalty.is_separable or not problem.l1_strength else 1e-6


@pytest.mark.parametrize("centre", [1.0, 30.0])
@pytest.mark.parametrize("ratio", [0.0, 1e-3, 0.1, 0.7])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", ELASTIC_NETS)
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_optimum_is_certified_and_that_of_cvxpy(
    loss: str, penalty: str, intercept: bool, ratio: float, centre: float
) -> None:
    kind = Kind(loss, penalty, intercept, weighted=True, n_outputs=2, l2_strength=0.1, centre=centre)
    problem = kind.draw(0, ratio)
    solution = solve(problem, tolerance(problem))
    assert solution.certificate.relative_gap <= tolerance(problem)
    assert solution.certificate.primal == pytest.approx(
        objective(problem, solution.coef, solution.intercept if intercept else None), rel=ROUNDING
    )
    assert_agree(solution, solve(problem, CLARABEL, Reference()))


@pytest.mark.parametrize("l2_strength", [1e-4, 10.0])
@pytest.mark.parametrize("ratio", [0.0, 0.05])
@pytest.mark.parametrize("penalty", ELASTIC_NETS)
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_solvers_agree_at_weak_and_strong_quadratics(loss: str, penalty: str, ratio: float, l2_strength: float) -> None:
    problem = Kind(loss, penalty, True, "collinear", n_outputs=2, l2_strength=l2_strength, centre=1.0).draw(1, ratio)
    solution = solve(problem, 1e-6)
    assert solution.has_converged
    # First-order steps are slow where the corners of hinges must be sharp.
    reference = solve(problem, 1e-6, "reference") if problem.is_smooth else solve(problem, CLARABEL, Reference())
    assert_agree(solution, reference)


@pytest.mark.parametrize("solver", [ADMM(), RidgeCG(), RidgeCG(is_streamed=True)], ids=["admm", "cg", "streamed"])
@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge", "softmax"])
def test_solvers_for_large_problems_use_the_centre(loss: str, solver: ADMM | RidgeCG) -> None:
    ratio = 0.02 if isinstance(solver, ADMM) else 0.0
    problem = Kind(loss, "elastic-net", True, weighted=True, l2_strength=0.01, centre=1.0).draw(2, ratio)
    solution = solve(problem, 1e-6, solver)
    assert solution.has_converged
    assert_agree(solution, solve(problem, 1e-8))


@pytest.mark.parametrize("intercept", [False, True])
def test_few_of_many_atoms_are_found_by_the_slope_of_loss_and_quadratic(intercept: bool) -> None:
    rng = np.random.default_rng(0)
    columns = rng.random((100, 2000)) < 0.3
    terms = {"l2_strength": 0.05, "penalty": "elastic-net", "intercept": intercept}
    problem = ConvexProblem(columns, rng.normal(size=100), "squared", centre=rng.normal(size=(2000, 1)), **terms)
    solution = solve(problem.with_strength(0.5 * problem.critical_strength), 1e-8)
    assert len(solution.support) > 48  # more than the first working set has
    assert solution.certificate.relative_gap <= 1e-8


@pytest.mark.parametrize("columns", ["random", "few_rows"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", ELASTIC_NETS)
def test_ridge_of_a_squared_loss_is_the_centre_plus_the_fit_of_what_it_leaves(
    penalty: str, intercept: bool, columns: str
) -> None:
    kind = Kind("squared", penalty, intercept, columns, True, 2, l2_strength=0.1, centre=1.0)  # type: ignore[arg-type]
    problem = kind.draw(3, 0.0)
    (head,), centre = problem.heads, centre_of(problem)
    left = replace(head, targets=head.targets - problem.dictionary.matvec(centre))
    moved = solve(problem.with_centre(None).with_heads((left,)), 1e-10)
    solution = solve(problem, 1e-10)
    torch.testing.assert_close(solution.coef, centre + moved.coef, rtol=0, atol=ROUNDING)
    torch.testing.assert_close(solution.intercept, moved.intercept, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", ELASTIC_NETS)
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_strong_quadratic_gives_the_centre_back(loss: str, penalty: str, intercept: bool) -> None:
    problem = Kind(loss, penalty, intercept, n_outputs=2, l2_strength=1e8, centre=1.0).draw(0)
    for strength in (0.0, 0.1):
        solution = solve(problem.with_strength(strength), 1e-6)
        assert solution.has_converged
        torch.testing.assert_close(solution.coef, centre_of(problem), rtol=0, atol=1e-6)


def test_centre_of_zeros_is_none() -> None:
    problem = Kind("logistic", "elastic-net", l2_strength=0.1).draw(0)
    assert_agree(solve(problem), solve(problem.with_centre(np.zeros(problem.shape[1:]))))


@settings(max_examples=400)
@given(KINDS, SEEDS, RATIOS, SIZES, SIZES)
def test_no_dual_value_exceeds_the_objective_at_any_coefficients(
    kind: Kind, seed: int, ratio: float, size: float, dual_size: float
) -> None:
    problem = kind.draw(seed, ratio)
    centre, strength = centre_of(problem), problem.l1_strength
    certificate, _ = certify(problem, *draw_point(problem, seed, size), [draw_dual(problem, seed, dual_size)])
    bound, unit_dual = lower_bound(problem, draw_dual(problem, seed, dual_size))
    # The minimiser of the penalty plus the linear function of a dual point: the lowest objective that it can point to.
    lowest = centre - problem.correlation(unit_dual) / problem.l2_strength
    attaining = problem.penalty.prox(lowest, strength / problem.l2_strength)
    drawn, intercept = draw_point(problem, seed + 1, size)
    for coef in (drawn, attaining, centre, problem.penalty.prox(centre, strength / problem.l2_strength)):
        value = objective(problem, coef, intercept)
        assert max(bound, certificate.dual) <= value + ROUNDING * max(1.0, value)


@settings(max_examples=60)
@given(KINDS, SEEDS, RATIOS, SIZES)
def test_no_dual_value_exceeds_the_optimum(kind: Kind, seed: int, ratio: float, size: float) -> None:
    problem = kind.draw(seed, ratio)
    optimum = solve(problem, CLARABEL, Reference())
    noise = draw_dual(problem, seed, 0.1 * size)
    for factor in (1.0, 1.1, 0.9, 1 + noise):
        certificate, _ = certify(problem, *draw_point(problem, seed, size), [optimum.dual_point * factor])
        assert certificate.dual <= optimum.certificate.primal * (1 + ROUNDING)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("penalty", ELASTIC_NETS)
@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax", "squared_hinge"])
def test_critical_strength_is_the_least_at_which_zero_is_optimal(loss: str, penalty: str, ratio: float) -> None:
    problem = Kind(loss, penalty, True, n_outputs=2, l2_strength=1.0, centre=1.0).draw(0, ratio)
    assert bool(solve(problem).coef.any()) == (ratio < 1)


PROBLEM = Kind("squared", "elastic-net", n_outputs=2, l2_strength=0.1).draw(0)
CENTRE = np.ones(PROBLEM.shape[1:])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PROBLEM.with_strength(1.0, 0.0).with_centre(CENTRE), r"l2_strength above zero for a centre, got 0"),
        (lambda: PROBLEM.with_centre(CENTRE).with_strength(1.0, 0.0), r"l2_strength above zero for a centre, got 0"),
        (lambda: ConvexProblem(PROBLEM.dictionary, [0.0, 1.0] * 12, "squared", centre=CENTRE[:, :1]), "above zero"),
        (lambda: PROBLEM.with_centre(CENTRE.T), r"of shape \(12, 2\), one number per atom and output, got \(2, 12\)"),
        (lambda: PROBLEM.with_centre(np.nan * CENTRE), "finite numbers, got NaN or infinite"),
        (lambda: PROBLEM.with_centre([["a"]]), "the centre to be real numbers, got text"),
        (lambda: solve_path(PROBLEM.with_centre(CENTRE), l2_strengths=[1.0, 0.0]), r"l2_strength above zero"),
    ],
    ids=["no quadratic", "none later", "no elastic net", "shape", "NaN", "text", "path"],
)
def test_bad_centre_is_one_clear_sentence(make: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make()  # type: ignore[operator]


def test_centre_is_copied_and_shown() -> None:
    given = torch.ones(PROBLEM.shape[1:], dtype=torch.float64)
    problem = PROBLEM.with_centre(given)
    given.zero_()
    assert bool((centre_of(problem) == 1).all())
    assert "‖W − W₀‖²" in repr(problem)
    assert "‖W‖²" in repr(problem.with_centre(None))


@pytest.mark.parametrize("penalty", ELASTIC_NETS)
def test_atoms_and_outputs_take_their_part_of_the_centre(penalty: str) -> None:
    problem = Kind("squared + logistic", penalty, True, n_outputs=2, l2_strength=0.1, centre=1.0).draw(0)
    centre, atoms = centre_of(problem), torch.tensor([5, 0, 7])
    assert torch.equal(centre_of(problem.take_atoms(atoms)), centre[atoms])
    for columns in problem.independent_outputs():
        assert torch.equal(centre_of(problem.part(columns)), centre[:, columns])
    # Parts are shared with the same problem at other centres.
    other = problem.with_centre(2 * centre)
    assert torch.equal(centre_of(other.part(problem.independent_outputs()[-1]))[:, -1], 2 * centre[:, -1])
    assert problem.with_centre(None).part(problem.independent_outputs()[0]).centre is None


def test_merged_rows_and_centred_targets_keep_the_centre() -> None:
    problem = Kind("squared", "elastic-net", True, "equal_rows", l2_strength=0.1, centre=1.0).draw(0)
    reduced, _ = problem.reduced
    assert reduced.dictionary.n_rows < problem.dictionary.n_rows
    for other in (reduced, problem.centred[0], problem.without_workspace(), problem.take_rows(torch.arange(9))):
        assert torch.equal(centre_of(other), centre_of(problem))
    coef, intercept = draw_point(problem, 0, 1.0)
    assert objective(reduced, coef, intercept) == pytest.approx(objective(problem, coef, intercept), rel=ROUNDING)
    assert problem.with_centre(None).reduced[0].centre is None


@pytest.mark.parametrize(("of_targets", "of_entries"), [(2.0**60, 1.0), (1.0, 2.0**50), (2.0**-60, 2.0**50)])
@pytest.mark.parametrize("ratio", [0.0, 0.1])
def test_centre_is_scaled_with_targets_and_columns(ratio: float, of_targets: float, of_entries: float) -> None:
    rng = np.random.default_rng(0)
    columns, centre = rng.normal(size=(24, 6)), rng.normal(size=(6, 1))
    targets = columns[:, 0] + rng.normal(size=24)
    terms = {"loss": "squared", "penalty": "elastic-net", "intercept": True}
    plain = ConvexProblem(DenseDictionary(torch.from_numpy(columns)), targets, l2_strength=0.1, centre=centre, **terms)
    strength = ratio * plain.critical_strength
    scaled = ConvexProblem(
        DenseDictionary(torch.from_numpy(columns * of_entries)),
        targets * of_targets,
        l1_strength=strength * of_targets * of_entries,
        l2_strength=0.1 * of_entries**2,
        centre=centre * of_targets / of_entries,
        **terms,
    )
    expected = solve(plain.with_strength(strength), 1e-8)
    found = solve(scaled, 1e-8)
    assert found.certificate.relative_gap <= 1e-8
    torch.testing.assert_close(found.coef * (of_entries / of_targets), expected.coef, rtol=0, atol=1e-6)


@pytest.mark.parametrize("penalty", ELASTIC_NETS)
@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_path_solves_each_problem_with_the_centre(loss: str, penalty: str) -> None:
    problem = Kind(loss, penalty, True, n_outputs=2, l2_strength=0.1, centre=1.0).draw(0)
    strengths = [ratio * problem.critical_strength for ratio in (0.5, 0.05)]
    path = solve_path(problem, [*strengths, 0.0], l2_strengths=[1.0, 0.01], tol=1e-6)
    assert all(solution.has_converged for solution in path)
    for solution in path:
        assert torch.equal(centre_of(solution.problem), centre_of(problem))
        at = problem.without_workspace().with_strength(solution.problem.l1_strength, solution.problem.l2_strength)
        assert_agree(solution, solve(at, 1e-6))


@pytest.mark.parametrize("columns", ["random", "few_rows"])
@pytest.mark.parametrize("l2_strengths", [[0.1], [1.0, 0.3, 0.1, 0.03, 0.01]], ids=["one", "many"])
@pytest.mark.parametrize("intercept", [False, True])
def test_ridge_without_a_row_is_as_if_fitted_again(intercept: bool, l2_strengths: list[float], columns: str) -> None:
    kind = Kind("squared", "elastic-net", intercept, columns, n_outputs=2, l2_strength=0.1, centre=1.0)  # type: ignore[arg-type]
    problem = kind.draw(0, 0.0)
    path = leave_one_out(solve_path(problem, [0.0], l2_strengths=l2_strengths, tol=1e-8))
    assert path.validation is not None
    n_rows, entries = problem.dictionary.n_rows, problem.dictionary.columns()
    share = (n_rows - 1) / n_rows
    for row in range(n_rows):
        kept = problem.take_rows(torch.tensor([other for other in range(n_rows) if other != row]))
        for number, solution in enumerate(path):
            fit = solve(kept.with_strength(0.0, solution.problem.l2_strength / share), 1e-10)
            error = entries[row] @ fit.coef + fit.intercept - problem.heads[0].targets[row]
            expected = 0.5 * float(error.square().sum())
            assert float(path.validation.loss[number, row]) == pytest.approx(expected, rel=1e-8, abs=ROUNDING)
