import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from convex.linear_program import LinearProgram
from convex.problems import (
    COLUMNS,
    ELASTIC_NETS,
    LOSSES,
    PENALTIES,
    SMOOTH_LOSSES,
    TWO_HEADS,
    Kind,
    draw_columns,
    draw_targets,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import ROUNDING

from cvxsnn import Certificate, ConvexProblem, RegularizationPath, Solution, Status, solve, solve_path
from cvxsnn.convex import Solver, Validation
from cvxsnn.convex.solve import l2_strengths_of
from cvxsnn.convex.solvers import Newton, active_set
from cvxsnn.core.errors import ConvergenceError, ConvergenceWarning, InvalidInputError
from cvxsnn.dictionary import DenseDictionary, SpikeDictionary

KINDS = st.builds(
    Kind,
    loss=st.sampled_from((*LOSSES, *TWO_HEADS)),
    intercept=st.booleans(),
    columns=st.sampled_from(COLUMNS),
    weighted=st.booleans(),
)
SEEDS = st.integers(0, 2**32 - 1)


def assert_agree(first: Solution | Certificate, second: Solution | Certificate) -> None:
    """Both objectives are within the larger gap of each other."""
    one, other = (given if isinstance(given, Certificate) else given.certificate for given in (first, second))
    assert abs(one.primal - other.primal) <= max(one.gap, other.gap) + ROUNDING * max(1.0, one.primal)


@pytest.mark.parametrize(
    ("loss", "penalty", "solver"),
    [
        ("squared", "l1", "active-set"),
        ("logistic", "l1", "newton"),
        ("squared_hinge", "l1", "newton"),
        ("softmax", "l1", "newton"),
        ("hinge", "l1", "interior-point"),
        ("squared + logistic", "l1", "active-set + newton"),
        ("hinge + squared_hinge", "l1", "interior-point + newton"),
        ("softmax", "group", "group-newton"),
        ("logistic", "group", "newton"),
    ],
)
def test_auto_takes_the_solver_of_the_loss(loss: str, penalty: str, solver: str) -> None:
    solution = solve(Kind(loss, penalty, intercept=True).draw(0), 1e-8)
    assert (solution.solver, solution.status) == (solver, Status.CONVERGED)
    assert solution.certificate.relative_gap <= 1e-8


def test_auto_takes_newton_where_the_gram_matrix_would_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_set, "MAX_ATOMS", 11)
    assert solve(Kind("squared").draw(0)).solver == "newton"


@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
def test_history_ends_with_the_certificate(loss: str) -> None:
    solution = solve(Kind(loss).draw(0))
    assert solution.history[-1].relative_gap == solution.certificate.relative_gap
    assert solution.history[-1].n_active == int((solution.coef != 0).sum())
    assert 0 < solution.history[-1].seconds <= solution.seconds


@pytest.mark.parametrize(
    ("solver", "loss", "message"),
    [
        (
            "active-set",
            "logistic",
            "the loss 'squared' for solver 'active-set', got loss 'logistic' .* use solver='auto'",
        ),
        ("newton", "hinge", "a smooth loss for solver 'newton', got loss 'hinge' with penalty 'l1'"),
        ("interior-point", "softmax", "the loss 'hinge' for solver 'interior-point', got loss 'softmax'"),
        (LinearProgram(), "squared", "the loss 'hinge' for solver 'highs', got loss 'squared'"),
        ("newton", "hinge + squared_hinge", "for solver 'newton', got loss 'hinge'"),
        (
            "group-newton",
            "softmax",
            "the penalty 'group' or 'group-elastic-net' for solver 'group-newton', got .* with penalty 'l1'",
        ),
    ],
)
def test_a_solver_that_does_not_fit_the_loss_is_refused(solver: str | Solver, loss: str, message: str) -> None:
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
            lambda _: solve(Kind("softmax", "group").draw(0), solver="newton"),
            "a penalty with the L1 norm for solver 'newton', got loss 'softmax' with penalty 'group'",
        ),
    ],
)
def test_arguments_that_mean_nothing_are_refused(call: Callable[[ConvexProblem], Solution], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call(Kind("logistic").draw(0))


@pytest.mark.parametrize(
    ("solver", "loss"),
    [
        ("newton", "logistic"),
        ("interior-point", "hinge"),
        ("proximal-gradient", "squared"),
        ("group-newton", "squared"),
    ],
)
def test_too_few_iterations_are_a_status_and_a_warning(solver: str, loss: str) -> None:
    problem = Kind(loss).draw(0, 0.01)
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


TOL = 1e-7


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", [*LOSSES, "softmax + logistic"])
def test_every_solution_is_certified_and_the_one_found_alone(loss: str, intercept: bool) -> None:
    problem = Kind(loss, intercept=intercept, columns="collinear", weighted=True).draw(0)
    path = solve_path(problem, n_strengths=7, tol=TOL)
    assert len(path) == 7
    for solution in path:
        alone = solve(problem.with_strength(solution.problem.l1_strength), TOL)
        assert solution.has_converged
        assert solution.certificate.relative_gap <= TOL
        gap = max(solution.certificate.gap, alone.certificate.gap)
        assert abs(solution.certificate.primal - alone.certificate.primal) <= gap + ROUNDING


def test_the_group_penalty_has_paths_too() -> None:
    path = solve_path(Kind("softmax", "group", intercept=True).draw(0), n_strengths=5, tol=TOL)
    assert [solution.solver for solution in path] == ["none needed", *["group-newton"] * 4]
    assert all(solution.has_converged for solution in path)


def test_strengths_fall_in_equal_ratios_from_the_critical_one() -> None:
    problem = Kind("logistic", intercept=True).draw(0)
    path = solve_path(problem, n_strengths=5, smallest_ratio=1e-2)
    expected = problem.critical_strength * 10 ** torch.linspace(0, -2, 5, dtype=torch.float64)
    torch.testing.assert_close(path.strengths, expected, rtol=ROUNDING, atol=0)
    assert len(path[0].support) == 0 < len(path[1].support)


def test_given_strengths_are_sorted() -> None:
    path = solve_path(Kind("squared").draw(0), [0.01, 0.1, 0.03])
    assert path.strengths.tolist() == [0.1, 0.03, 0.01]
    assert [solution.problem.l1_strength for solution in path] == path.strengths.tolist()


def test_the_loss_falls_and_the_norm_grows_along_the_path() -> None:
    path = solve_path(Kind("logistic").draw(0), n_strengths=10, tol=1e-9)
    losses = [float(solution.problem.loss_value(solution.scores())) for solution in path]
    norms = [float(solution.problem.penalty.norm(solution.coef)) for solution in path]
    assert all(after <= before + ROUNDING for before, after in pairwise(losses))
    assert all(after >= before - ROUNDING for before, after in pairwise(norms))


def test_the_strength_of_the_problem_is_not_used() -> None:
    problem = Kind("squared").draw(0)
    first, second = (solve_path(problem.with_strength(s), n_strengths=3) for s in (0.5, 5.0))
    assert torch.equal(first.strengths, second.strengths)


def test_select_takes_the_highest_score() -> None:
    path = solve_path(Kind("squared").draw(0), n_strengths=5)
    assert path.select(lambda solution: -abs(solution.problem.l1_strength - float(path.strengths[3]))) is path[3]


def test_select_takes_the_sparser_of_equals() -> None:
    path = solve_path(Kind("squared").draw(0), n_strengths=5)
    assert path.select(lambda solution: float(len(solution.support) > 0)) is path[1]
    assert path.select(lambda solution: 1.0) is path[0]


def judged(*losses: float, accuracy: list[float] | None = None, spread: float = 0.0) -> RegularizationPath:
    """A path with falling strengths, growing supports, and two parts around the given losses and accuracies."""
    path = solve_path(Kind("squared").draw(0), n_strengths=len(losses))
    assert path.n_neurons.diff().min() > 0
    around = torch.tensor([-spread, spread], dtype=torch.float64)
    loss = torch.tensor(losses, dtype=torch.float64)[:, None] + around
    hits = None if accuracy is None else torch.tensor(accuracy, dtype=torch.float64)[:, None] + around
    return replace(path, validation=Validation("two halves", loss, hits, torch.full_like(around, 0.5)))


def test_select_takes_the_lowest_loss_or_the_highest_accuracy_on_rows_left_out() -> None:
    path = judged(3.0, 1.0, 2.0, 4.0, accuracy=[0.1, 0.5, 0.9, 0.3])
    assert path.select() is path.select("loss") is path[1]
    assert path.select("accuracy") is path[2]


def test_select_takes_the_best_of_those_with_few_enough_atoms() -> None:
    path = judged(4.0, 3.0, 2.0, 1.0, accuracy=[0.1, 0.5, 0.9, 0.3])
    sizes = path.n_neurons.tolist()
    assert [path.select(n_neurons=size) for size in sizes] == list(path)
    assert path.select(n_neurons=sizes[2] - 1) is path[1]
    assert path.select(lambda solution: len(solution.support), n_neurons=sizes[2]) is path[2]
    assert path.select("accuracy", n_neurons=sizes[1]) is path[1]


def test_select_takes_the_sparsest_within_one_standard_error() -> None:
    # Two parts at ±0.5 around the mean: its standard error is 0.5.
    path = judged(4.0, 1.51, 1.49, 1.0, accuracy=[0.0, 1.49, 1.51, 2.0], spread=0.5)
    assert path.select(one_standard_error=True) is path[2]
    assert path.select("accuracy", one_standard_error=True) is path[2]
    assert path.select() is path[3]
    assert path.select(one_standard_error=True, n_neurons=int(path.n_neurons[1])) is path[1]


@pytest.mark.parametrize("one_standard_error", [False, True])
def test_select_takes_equals_that_differ_in_rounding_for_equal(one_standard_error: bool) -> None:
    path = judged(4.0, 1.0 + 2.0**-50, 1.0, 1.0 + 2.0**-50, accuracy=[0.1, 0.3, 0.1 + 0.2, 0.3])
    assert path.select(one_standard_error=one_standard_error) is path[1]
    assert path.select("accuracy", one_standard_error=one_standard_error) is path[1]


def test_select_takes_the_larger_strengths_of_equals_with_as_many_atoms() -> None:
    path = solve_path(Kind("squared", "elastic-net").draw(0), [0.0], l2_strengths=[0.1, 1.0])
    assert path.select(lambda solution: 1.0).problem.l2_strength == 1.0
    zeros = solve_path(Kind("squared", "elastic-net").draw(0), [20.0, 10.0], l2_strengths=[0.1, 1.0])
    chosen = zeros.select(lambda solution: 1.0).problem
    assert (chosen.l1_strength, chosen.l2_strength) == (20.0, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: path.select("size"), "by to be one of 'loss', 'accuracy', got 'size'"),
        (lambda path: path.select("accuracy"), "a path with the accuracy on rows left out, got one without"),
        (
            lambda path: replace(path, validation=None).select(),
            "a path with the loss on rows left out, got one without",
        ),
        (lambda path: path.select(len, one_standard_error=True), "by='loss' or 'accuracy' for one_standard_error"),
        (lambda path: path.select(n_neurons=-1), "at most -1 active atoms, but the sparsest of the path has 0"),
    ],
)
def test_selections_that_mean_nothing_are_refused(call: Callable[[RegularizationPath], Solution], message: str) -> None:
    path = judged(2.0, 1.0)
    with pytest.raises(InvalidInputError, match=message):
        call(path)


@pytest.mark.parametrize("penalty", ELASTIC_NETS)
@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
def test_a_path_in_two_dimensions_has_every_pair_of_strengths(loss: str, penalty: str) -> None:
    problem = Kind(loss, penalty, intercept=True, weighted=True, l2_strength=7.0).draw(0)
    strengths, l2_strengths = [0.0, 0.05, 0.01], [0.01, 1.0]
    path = solve_path(problem, strengths, l2_strengths=l2_strengths, tol=TOL)
    assert path.l2_strengths.tolist() == [1.0] * 3 + [0.01] * 3
    assert path.strengths.tolist() == [0.05, 0.01, 0.0] * 2
    for solution in path:
        assert solution.has_converged
        assert solution.certificate.relative_gap <= TOL
        alone = solve(problem.with_strength(solution.problem.l1_strength, solution.problem.l2_strength), TOL)
        assert_agree(solution, alone)
        torch.testing.assert_close(solution.coef, alone.coef, rtol=0, atol=1e-2)


def test_the_quadratic_of_the_problem_is_that_of_the_path_where_none_is_given() -> None:
    path = solve_path(Kind("squared", "elastic-net", l2_strength=0.3).draw(0), n_strengths=3)
    assert path.l2_strengths.tolist() == [0.3] * 3


def test_all_strengths_share_one_gram_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    n_formed, gram = 0, SpikeDictionary.gram

    def counted(dictionary: SpikeDictionary) -> torch.Tensor:
        nonlocal n_formed
        n_formed += 1
        return gram(dictionary)

    monkeypatch.setattr(SpikeDictionary, "gram", counted)
    problem = Kind("squared", "elastic-net", intercept=True, n_outputs=2).draw(0)
    path = solve_path(problem, [0.1, 0.01, 0.0], l2_strengths=[1.0, 0.1])
    assert n_formed == 1
    assert active_set.has_gram(problem)
    assert not any(active_set.has_gram(solution.problem) for solution in path)


def test_a_path_forms_the_gram_matrix_even_where_one_solve_would_not() -> None:
    rng = np.random.default_rng(0)
    problem = ConvexProblem(rng.random((50, 800)) < 0.5, rng.normal(size=50), "squared")
    solve(problem.with_strength(0.9 * problem.critical_strength))
    assert not active_set.has_gram(problem)
    solve_path(problem, [0.9 * problem.critical_strength])
    assert active_set.has_gram(problem)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", [*COLUMNS, "constant", "silent"])
def test_strengths_of_the_quadratic_fall_from_nearly_no_fit_to_nearly_no_penalty(columns: str, intercept: bool) -> None:
    rng = np.random.default_rng(0)
    given = {"constant": np.full((24, 3), 0.1), "silent": np.zeros((24, 3))}.get(columns)
    values = draw_columns(rng, columns).astype(float) if given is None else given
    problem = ConvexProblem(
        DenseDictionary(torch.from_numpy(values)),
        rng.normal(size=len(values)),
        "squared",
        penalty="elastic-net",
        intercept=intercept,
        row_weight=rng.random(len(values)),
    )
    strengths = l2_strengths_of(problem, 7)
    assert len(strengths) == 7
    assert all(0 < after < before for before, after in pairwise(strengths))
    assert all(solution.has_converged for solution in solve_path(problem, [0.0], l2_strengths=strengths))
    if given is None:
        largest = float(torch.linalg.eigvalsh(active_set.weighted_gram(problem))[-1])
        assert strengths[-1] < 1e-6 * largest
        assert largest < 10 * strengths[0] <= len(values[0]) * largest * (1 + ROUNDING)
        scaled = ConvexProblem(
            DenseDictionary(torch.from_numpy(10 * values)),
            rng.normal(size=len(values)),
            "squared",
            penalty="elastic-net",
            intercept=intercept,
            row_weight=problem.row_weight,
        )
        assert l2_strengths_of(scaled, 7) == pytest.approx([100 * s for s in strengths], rel=ROUNDING)


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
    with pytest.raises(InvalidInputError, match="which float64 cannot tell from zero or from infinity"):
        solve(problem(refusing))


def test_a_silent_dictionary_has_a_path_of_zeros() -> None:
    path = solve_path(ConvexProblem(np.zeros((4, 2)), np.arange(4.0), "squared"), n_strengths=3)
    assert [len(solution.support) for solution in path] == [0, 0, 0]
    assert path.strengths.tolist() == pytest.approx([1, 10**-1.5, 1e-3], rel=ROUNDING)


def test_solutions_that_do_not_converge_are_warned_about() -> None:
    with pytest.warns(ConvergenceWarning, match="certified relative gap of 1e-18"):
        path = solve_path(Kind("logistic", columns="collinear").draw(0), [0.001], tol=1e-18)
    assert not path[0].has_converged


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: solve_path(p, []), "at least one strength, got none"),
        (lambda p: solve_path(p, l2_strengths=[]), "at least one of l2_strengths, got none"),
        (lambda p: solve_path(p, [0.1], l2_strengths=[0.1]), "l2_strength=0 for the penalty 'l1', got 0.1"),
        (lambda p: solve_path(p, [0.1, 0.0]), "l1_strength to be a finite number above zero, got 0.0"),
        (lambda p: solve_path(p, n_strengths=0), "n_strengths to be a positive integer, got 0"),
        (lambda p: solve_path(p, smallest_ratio=1.0), "smallest_ratio between 0 and 1, got 1.0"),
        (lambda p: solve_path(p, smallest_ratio=0.0), "smallest_ratio between 0 and 1, got 0.0"),
        (lambda p: solve_path(p, solver="interior-point"), "for solver 'interior-point', got loss 'logistic'"),
        (lambda p: solve_path(p, solver="simplex"), "solver to be one of .* got 'simplex'"),
        (lambda p: solve_path(p, tol=0.0), "tol between 0 and 1, got 0.0"),
    ],
)
def test_paths_that_mean_nothing_are_refused(call: Callable[[ConvexProblem], RegularizationPath], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call(Kind("logistic").draw(0))


@pytest.mark.parametrize(
    ("solver", "kind"),
    [
        ("active-set", Kind("squared")),
        ("active-set", Kind("squared", "elastic-net", l2_strength=0.01)),
        ("newton", Kind("logistic")),
        ("newton-cg", Kind("softmax", "elastic-net", l2_strength=0.01)),
        ("admm", Kind("logistic", "elastic-net", l2_strength=0.01)),
        ("interior-point", Kind("hinge")),
        ("group-newton", Kind("softmax", "group")),
        ("proximal-gradient", Kind("hinge", "group")),
    ],
)
def test_a_solve_that_is_out_of_time_ends_with_a_true_certificate(solver: str, kind: Kind) -> None:
    problem = kind.draw(0, 1e-3)
    problem = problem.with_strength(0.0) if solver == "newton-cg" else problem
    with pytest.warns(ConvergenceWarning, match="the time was up; the best point found is returned"):
        found = solve(problem, 1e-9, solver, max_seconds=1e-9)
    assert found.status is Status.TIME_LIMIT
    assert 0 <= found.certificate.gap <= found.certificate.primal
    best = solve(problem, 1e-6).certificate
    assert found.certificate.dual <= best.primal
    assert found.certificate.primal >= best.dual


def test_a_path_that_is_out_of_time_has_a_certificate_at_every_strength() -> None:
    problem = Kind("logistic").draw(0)
    with pytest.warns(ConvergenceWarning, match="the time was up"):
        path = solve_path(problem, n_strengths=4, max_seconds=1e-9)
    assert [solution.status for solution in path] == [Status.CONVERGED, *[Status.TIME_LIMIT] * 3]
    assert all(solution.certificate.gap >= 0 for solution in path)


@pytest.mark.parametrize("max_seconds", [0, -1.0, float("nan"), None, "1", True])
def test_a_time_that_is_not_above_zero_is_refused(max_seconds: object) -> None:
    with pytest.raises(InvalidInputError, match="expected max_seconds above zero, got"):
        solve(Kind("logistic").draw(0), max_seconds=max_seconds)


def test_a_solver_that_returns_what_is_not_a_number_leaves_the_start_and_a_certificate() -> None:
    class Lost(Newton):
        name = "lost"

        def solve(self, problem, coef, intercept, **_):
            return replace(super().solve(problem, coef, intercept, **_), coef=coef * torch.nan)

    problem = Kind("logistic").draw(0, 0.1)
    with pytest.warns(ConvergenceWarning, match="could not improve further"):
        found = solve(problem, solver=Lost())
    assert found.status is Status.STALLED
    assert not bool(found.coef.any())
    assert 0 < found.certificate.gap <= found.certificate.primal
