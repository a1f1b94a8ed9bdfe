import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from convex.problems import (
    COLUMNS,
    LOSSES,
    PENALTIES,
    SMOOTH_LOSSES,
    TWO_HEADS,
    Kind,
    assert_agree,
    draw_columns,
    draw_targets,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import ROUNDING

from cvxsnn import Certificate, ConvexProblem, Solution, Status, solve, solve_path
from cvxsnn.convex import Solver
from cvxsnn.convex.solvers import ADMM, ActiveSet, Group, InteriorPoint, Newton, Reference, RidgeCG
from cvxsnn.core.errors import ConvergenceError, ConvergenceWarning, InvalidInputError
from cvxsnn.dictionary import DenseDictionary

KINDS = st.builds(
    Kind,
    loss=st.sampled_from((*LOSSES, *TWO_HEADS)),
    intercept=st.booleans(),
    columns=st.sampled_from(COLUMNS),
    weighted=st.booleans(),
)
SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(
    ("loss", "penalty", "solver"),
    [
        ("squared", "l1", "l1"),
        ("logistic", "l1", "l1"),
        ("softmax", "l1", "l1"),
        ("hinge", "l1", "hinge"),
        ("squared + logistic", "l1", "l1"),
        ("hinge + squared_hinge", "l1", "hinge + l1"),
        ("softmax", "group", "group"),
        ("logistic", "group", "l1"),
    ],
)
def test_auto_takes_the_solver_of_the_loss(loss: str, penalty: str, solver: str) -> None:
    solution = solve(Kind(loss, penalty, intercept=True).draw(0), 1e-8)
    assert (solution.solver, solution.status) == (solver, Status.CONVERGED)
    assert solution.certificate.relative_gap <= 1e-8


@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
def test_history_ends_with_the_certificate(loss: str) -> None:
    solution = solve(Kind(loss).draw(0))
    assert solution.history[-1].relative_gap == solution.certificate.relative_gap
    assert solution.history[-1].n_active == int((solution.coef != 0).sum())
    assert 0 < solution.history[-1].seconds <= solution.seconds


@pytest.mark.parametrize(
    ("solver", "loss", "message"),
    [
        ("ridge", "logistic", "solver 'auto', 'l1' or 'reference' for loss 'logistic' .* got 'ridge'"),
        ("l1", "hinge", "solver 'auto', 'hinge' or 'reference' for loss 'hinge' with penalty 'l1' .* got 'l1'"),
        ("hinge", "hinge + squared_hinge", "'l1' or 'reference' for loss 'squared_hinge' .* got 'hinge'"),
        ("group", "softmax", "'l1' or 'reference' for loss 'softmax' with penalty 'l1' .* got 'group'"),
    ],
)
def test_a_solver_that_does_not_fit_the_problem_is_refused(solver: str, loss: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        solve(Kind(loss).draw(0), solver=solver)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: solve(p, solver="simplex"), "solver to be one of 'auto', .* got 'simplex'"),
        (lambda p: solve(p, solver=Newton), "solver to be one of 'auto', .* got <class .*Newton'>"),
        (lambda p: solve(p, solver=None), "solver to be one of 'auto', .* got None"),
        (lambda p: solve(p, start=p), "a Solution to start from, got ConvexProblem"),
        (lambda p: solve(p.with_strength("auto")), "l1_strength to be a finite number above zero, got 'auto'"),
        (lambda p: solve(p, 0.0), "tol between 0 and 1, got 0.0"),
        (lambda p: solve(p, 1.0), "tol between 0 and 1, got 1.0"),
        (lambda p: solve(p, float("nan")), "tol between 0 and 1, got nan"),
        (
            lambda p: solve(p, start=solve(Kind("logistic", columns="few_rows").draw(1))),
            r"start with coefficients of shape \(12, 1\), got",
        ),
        (
            lambda _: solve(Kind("softmax", "group").draw(0), solver="l1"),
            "'group' or 'reference' for loss 'softmax' with penalty 'group' .* got 'l1'",
        ),
    ],
)
def test_arguments_that_mean_nothing_are_refused(call: Callable[[ConvexProblem], Solution], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call(Kind("logistic").draw(0))


@pytest.mark.parametrize(
    ("solver", "kind"),
    [
        ("l1", Kind("logistic")),
        ("hinge", Kind("hinge")),
        ("reference", Kind("squared")),
        ("group", Kind("squared", "group", n_outputs=2)),
    ],
)
def test_too_few_iterations_are_a_status_and_a_warning(solver: str, kind: Kind) -> None:
    problem = kind.draw(0, 0.01)
    with pytest.warns(ConvergenceWarning, match=f"gap of 1e-06, got .* with solver '{solver}': the solver used up"):
        solution = solve(problem, solver=solver, max_iterations=1)
    assert solution.status is Status.ITERATION_LIMIT
    assert not solution.has_converged
    assert solution.certificate.relative_gap > 1e-6


@pytest.mark.parametrize("max_iterations", [0, -1, 2.5, True])
def test_numbers_of_iterations_below_one_are_refused(max_iterations: int) -> None:
    with pytest.raises(InvalidInputError, match=f"max_iterations to be a positive integer, got {max_iterations}"):
        solve(Kind("logistic").draw(0), max_iterations=max_iterations)


def test_too_few_iterations_are_an_error_where_asked_for() -> None:
    with pytest.raises(ConvergenceError, match=r"certified relative gap of 1e-06, got .*: the solver used up its"):
        solve(Kind("logistic").draw(0, 0.01), max_iterations=1, strict=True)


def test_a_tolerance_below_rounding_is_a_stall() -> None:
    with pytest.warns(ConvergenceWarning, match="could not improve further in float64"):
        solution = solve(Kind("logistic", columns="collinear").draw(0, 0.01), 1e-18)
    assert solution.status is Status.STALLED


@pytest.mark.parametrize("factor", [1.0, 2.0])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_strengths_from_the_critical_one_on_give_exact_zeros(
    loss: str, penalty: str, intercept: bool, factor: float
) -> None:
    problem = Kind(loss, penalty, intercept, weighted=True, n_outputs=2).draw(0, factor)
    solution = solve(problem, 1e-9)
    assert not bool(solution.coef.any())
    assert len(solution.support) == 0
    assert abs(solution.certificate.relative_gap) <= ROUNDING


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_silent_dictionary_leaves_the_best_constant(loss: str, intercept: bool) -> None:
    targets = draw_targets(np.random.default_rng(0), loss, draw_columns(np.random.default_rng(0), "random"))
    problem = ConvexProblem(np.zeros((24, 3)), targets, loss, 1e-6, intercept=intercept)
    solution = solve(problem, 1e-9)
    assert (len(solution.support), solution.has_converged) == (0, True)
    constant = problem.loss_value(problem.null_intercept.expand(24, -1))
    assert solution.certificate.primal == pytest.approx(float(constant), rel=ROUNDING)


@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_a_silent_atom_changes_nothing(loss: str) -> None:
    problem = Kind(loss, intercept=True).draw(0)
    columns = problem.dictionary.columns().numpy()
    assert columns.any(0).all()
    with_silent = np.column_stack([columns, np.zeros(len(columns))])
    solution = solve(rebuilt(problem, with_silent), 1e-8)
    assert not bool(solution.coef[-1].any())
    assert_agree(solution, solve(problem, 1e-8))


def rebuilt(
    problem: ConvexProblem, columns: np.ndarray, rows: np.ndarray | None = None, factor: float = 1.0
) -> ConvexProblem:
    """The problem with other columns, some of its rows, and row weights times ``factor``."""
    rows = np.arange(problem.shape[0]) if rows is None else rows
    targets = {head.name: head.targets.numpy()[rows] for head in problem.heads}
    return ConvexProblem(
        columns[rows],
        {name: y.argmax(1) if name == "softmax" else y for name, y in targets.items()},
        {name: name for name in targets},
        problem.l1_strength,
        penalty=problem.penalty,
        intercept=problem.intercept,
        row_weight=factor * problem.row_weight.numpy()[rows],
        head_weights={head.name: head.weight for head in problem.heads},
    )


@settings(max_examples=30)
@given(KINDS, SEEDS)
def test_repeating_all_rows_and_scaling_all_weights_change_nothing(kind: Kind, seed: int) -> None:
    problem = kind.draw(seed, 0.05)
    columns = problem.dictionary.columns().numpy()
    twice = rebuilt(problem, columns, np.r_[: len(columns), : len(columns)])
    heavier = rebuilt(problem, columns, factor=2.0)
    solution = solve(problem, 1e-8)
    assert_agree(solve(twice, 1e-8), solution)
    assert_agree(solve(heavier, 1e-8), solution)


@settings(max_examples=30)
@given(KINDS, SEEDS)
def test_the_order_of_rows_changes_nothing(kind: Kind, seed: int) -> None:
    problem = kind.draw(seed, 0.05)
    order = np.random.default_rng(seed).permutation(problem.shape[0])
    shuffled = rebuilt(problem, problem.dictionary.columns().numpy(), order)
    assert_agree(solve(shuffled, 1e-8), solve(problem, 1e-8))


@settings(max_examples=30)
@given(KINDS, SEEDS)
def test_the_optimum_never_rises_when_atoms_are_added(kind: Kind, seed: int) -> None:
    problem = kind.draw(seed, 0.05)
    columns = problem.dictionary.columns().numpy()
    more = np.column_stack([columns, np.random.default_rng(seed).random((len(columns), 5)) < 0.5])
    fewer, all_atoms = solve(problem, 1e-8).certificate, solve(rebuilt(problem, more), 1e-8).certificate
    assert all_atoms.dual <= fewer.primal + ROUNDING
    assert all_atoms.primal <= fewer.primal + all_atoms.gap + ROUNDING


@settings(max_examples=30)
@given(KINDS, SEEDS)
def test_the_optimum_is_increasing_and_concave_in_the_strength(kind: Kind, seed: int) -> None:
    # The optimum is the least of functions that are increasing and linear in the strength.
    problem = kind.draw(seed, 0.1)
    low, middle, high = (
        solve(problem.with_strength(factor * problem.l1_strength), 1e-8).certificate for factor in (0.5, 1.0, 1.5)
    )
    assert low.dual <= middle.primal + ROUNDING
    assert middle.dual <= high.primal + ROUNDING
    assert middle.primal >= 0.5 * (low.dual + high.dual) - ROUNDING


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["squared", "squared_hinge", "logistic", "hinge"])
def test_several_outputs_are_as_many_problems(loss: str, intercept: bool) -> None:
    problem = Kind(loss, intercept=intercept, weighted=True, n_outputs=2).draw(0)
    solution = solve(problem, 1e-8)
    parts = [
        solve(
            ConvexProblem(
                problem.dictionary,
                problem.heads[0].targets[:, output],
                loss,
                problem.l1_strength,
                intercept=intercept,
                row_weight=problem.row_weight,
            ),
            1e-8,
        ).certificate
        for output in range(2)
    ]
    together = Certificate(sum(part.primal for part in parts), sum(part.dual for part in parts))
    assert_agree(solution, together)


@pytest.mark.parametrize("loss", TWO_HEADS)
def test_heads_are_as_many_problems_each_with_its_share_of_the_strength(loss: str) -> None:
    problem = Kind(loss, intercept=True).draw(0)
    parts = []
    for head in problem.heads:
        targets = head.targets.argmax(1) if head.name == "softmax" else head.targets
        strength = problem.l1_strength / head.weight
        part = solve(ConvexProblem(problem.dictionary, targets, head.name, strength, intercept=True), 1e-8).certificate
        parts.append((head.weight * part.primal, head.weight * part.dual))
    primals, duals = zip(*parts, strict=True)
    assert_agree(solve(problem, 1e-8), Certificate(sum(primals), sum(duals)))


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", [*SMOOTH_LOSSES, *TWO_HEADS[:2]])
def test_a_start_changes_the_way_and_not_the_optimum(loss: str, penalty: str) -> None:
    problem = Kind(loss, penalty, intercept=True, n_outputs=2).draw(0)
    start = solve(problem.with_strength(2 * problem.l1_strength), 1e-7)
    before = start.coef.clone()
    warm, cold = solve(problem, 1e-7, start=start), solve(problem, 1e-7)
    assert_agree(warm, cold)
    assert torch.equal(start.coef, before)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
@pytest.mark.parametrize("factor", [-1000.0, float("nan")])
def test_a_start_that_is_worse_than_zero_is_not_used(factor: float, loss: str, penalty: str) -> None:
    problem = Kind(loss, penalty, intercept=True, n_outputs=2).draw(0)
    cold = solve(problem, 1e-7)
    far = replace(cold, coef=factor * cold.coef, intercept=factor * cold.intercept)
    warm = solve(problem, 1e-7, start=far)
    assert warm.has_converged
    assert torch.equal(warm.coef, cold.coef)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_start_with_an_intercept_gives_none_to_a_problem_without_one(loss: str) -> None:
    start = solve(Kind(loss, intercept=True).draw(0, 0.05), 1e-8)
    problem = Kind(loss).draw(0, 0.05)
    solution = solve(problem, 1e-8, start=start)
    assert bool(start.intercept.any())
    assert not bool(solution.intercept.any())
    assert_agree(solution, solve(problem, 1e-8))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_solution_carries_scores_support_and_a_summary(loss: str, intercept: bool) -> None:
    problem = Kind(loss, intercept=intercept).draw(0, 0.3)
    solution = solve(problem, 1e-8)
    _, n_atoms, n_outputs = problem.shape
    assert (solution.coef.shape, solution.intercept.shape) == ((n_atoms, n_outputs), (n_outputs,))
    assert solution.support.tolist() == [atom for atom in range(n_atoms) if bool(solution.coef[atom].any())]
    scores = problem.dictionary.columns() @ solution.coef + solution.intercept
    torch.testing.assert_close(solution.scores(), scores, rtol=0, atol=ROUNDING)
    assert repr(solution).startswith(f"Solution(CONVERGED, {len(solution.support)} of {n_atoms} atoms, objective ")
    if not intercept:
        assert not bool(solution.intercept.any())


@pytest.mark.parametrize("l2_strength", [1e-17, 1e17, 1e-300, 1e300])
def test_quadratics_that_float64_cannot_tell_from_zero_or_infinity_are_refused(l2_strength: float) -> None:
    problem = Kind("squared", "elastic-net", l2_strength=l2_strength).draw(0)
    message = rf"l2_strength=0 or between 2.2e-16 and 4.5e\+15 for these columns, got {re.escape(f'{l2_strength:g}')}"
    with pytest.raises(InvalidInputError, match=message):
        solve(problem)
    with pytest.raises(InvalidInputError, match=message):
        solve_path(problem, [0.1], l2_strengths=[l2_strength])


@pytest.mark.parametrize(("l2_strength", "accepting", "refusing"), [(1e-15, 1, 10), (1e17, 10, 1)])
def test_how_small_or_large_a_quadratic_may_be_depends_on_the_columns(
    l2_strength: float, accepting: float, refusing: float
) -> None:
    def problem(scale: float) -> ConvexProblem:
        columns = DenseDictionary(scale * torch.eye(5, dtype=torch.float64))
        return ConvexProblem(columns, np.arange(5.0), "squared", 0.1, l2_strength=l2_strength, penalty="elastic-net")

    assert solve(problem(accepting)).has_converged
    with pytest.raises(InvalidInputError, match="which in float64 equals zero or infinity beside them"):
        solve(problem(refusing))


@pytest.mark.parametrize(
    ("solver", "kind"),
    [
        (ActiveSet(), Kind("squared")),
        (ActiveSet(), Kind("squared", "elastic-net", l2_strength=0.01)),
        (Newton(), Kind("logistic")),
        (RidgeCG(), Kind("softmax", "elastic-net", l2_strength=0.01)),
        (ADMM(), Kind("logistic", "elastic-net", l2_strength=0.01)),
        (InteriorPoint(), Kind("hinge")),
        (Group(), Kind("softmax", "group")),
        (Reference(), Kind("hinge", "group")),
    ],
)
def test_a_solve_that_is_out_of_time_ends_with_a_true_certificate(solver: Solver, kind: Kind) -> None:
    problem = kind.draw(0, 1e-3)
    problem = problem.with_strength(0.0) if solver.name == "ridge" else problem
    with pytest.warns(ConvergenceWarning, match="the time was up; the best point found is returned"):
        found = solve(problem, 1e-9, solver, max_seconds=1e-9)
    assert found.status is Status.TIME_LIMIT
    assert 0 <= found.certificate.gap <= found.certificate.primal
    best = solve(problem, 1e-6).certificate
    assert found.certificate.dual <= best.primal
    assert found.certificate.primal >= best.dual


@pytest.mark.parametrize("max_seconds", [0, -1.0, float("nan"), None, "1", True])
def test_a_time_that_is_not_above_zero_is_refused(max_seconds: object) -> None:
    with pytest.raises(InvalidInputError, match="expected max_seconds above zero, got"):
        solve(Kind("logistic").draw(0), max_seconds=max_seconds)


def test_a_solver_that_returns_what_is_not_a_number_leaves_the_start_and_a_certificate() -> None:
    class Lost(Newton):
        name = "lost"

        def solve(self, problem, coef, intercept, budget):
            return replace(super().solve(problem, coef, intercept, budget), coef=coef * torch.nan)

    problem = Kind("logistic").draw(0, 0.1)
    with pytest.warns(ConvergenceWarning, match="could not improve further"):
        found = solve(problem, solver=Lost())
    assert found.status is Status.STALLED
    assert not bool(found.coef.any())
    assert 0 < found.certificate.gap <= found.certificate.primal
