from dataclasses import replace

import numpy as np
import pytest
import torch
from convex.problems import COLUMNS, LOSSES, TWO_HEADS, Columns, Kind
from convex.reference import Reference
from tolerances import CLARABEL, ROUNDING

from cvxsnn import ConvexProblem, solve
from cvxsnn.convex.solvers import Group
from cvxsnn.convex.solvers import group as module


@pytest.mark.parametrize("ratio", [0.3, 0.01, 0.001])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_every_loss_converges_at_every_strength(loss: str, columns: Columns, intercept: bool, ratio: float) -> None:
    problem = Kind(loss, "group", intercept, columns, weighted=True, n_outputs=2).draw(0, ratio)
    solution = solve(problem, 1e-7)
    assert (solution.solver, solution.has_converged) == ("group", True)


@pytest.mark.parametrize("loss", ["softmax", "hinge"])
def test_working_sets_grow_where_atoms_are_many(loss: str) -> None:
    rng = np.random.default_rng(0)
    columns = rng.random((200, 120)) < 0.5
    scores = columns[:, :3] + 0.5 * rng.normal(size=(200, 3))
    targets = scores.argmax(1) if loss == "softmax" else scores > 0.5
    problem = ConvexProblem(columns, targets, loss, 1.0, penalty="group", intercept=True)
    solution = solve(problem.with_strength(problem.critical_strength / 30), 1e-6)
    assert solution.has_converged
    assert len(solution.support) > 20  # more than are let in at once


def test_atoms_that_do_not_help_are_exactly_zero() -> None:
    solution = solve(Kind("softmax", "group").draw(0, 0.3), 1e-7)
    assert 0 < len(solution.support) < len(solution.coef)
    silent = torch.ones(len(solution.coef), dtype=torch.bool)
    silent[solution.support] = False
    assert not bool(solution.coef[silent].any())


@pytest.mark.parametrize("loss", ["squared", "squared_hinge", "logistic", "hinge"])
def test_one_output_gives_the_optimum_of_the_other_penalty(loss: str) -> None:
    group, l1 = (Kind(loss, penalty, weighted=True).draw(0) for penalty in ("group", "l1"))
    ours, other = solve(group, 1e-8, Group()).certificate, solve(l1, 1e-8).certificate
    assert abs(ours.primal - other.primal) <= max(ours.gap, other.gap) + ROUNDING


def test_outputs_that_copy_each_other_scale_the_penalty() -> None:
    # Two equal outputs have rows (w, w) of norm √2 |w|: one output at 1/√2 of the strength, twice.
    single = Kind("squared").draw(0)
    (head,) = single.heads
    doubled = replace(head, columns=slice(0, 2), targets=head.targets.repeat(1, 2))
    pair = Kind("squared", "group").draw(0).with_heads((doubled,)).with_strength(single.l1_strength)
    whole = solve(pair, 1e-8).certificate
    half = solve(single.with_strength(single.l1_strength / 2**0.5), 1e-8).certificate
    assert abs(whole.primal - 2 * half.primal) <= max(whole.gap, 2 * half.gap) + ROUNDING


@pytest.mark.parametrize("l2_strength", [1e-6, 1e-2, 1.0])
@pytest.mark.parametrize("ratio", [0.03])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_every_loss_converges_with_a_quadratic(
    loss: str, columns: Columns, intercept: bool, ratio: float, l2_strength: float
) -> None:
    kind = Kind(loss, "group-elastic-net", intercept, columns, True, 2, l2_strength)
    solution = solve(kind.draw(0, ratio), 1e-8)
    assert (solution.solver, solution.has_converged) == ("group", True)


@pytest.mark.parametrize("l2_strength", [1e-6, 1e-2, 1.0])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_with_a_quadratic_it_has_the_objective_of_the_reference(loss: str, intercept: bool, l2_strength: float) -> None:
    problem = Kind(loss, "group-elastic-net", intercept, "random", True, 2, l2_strength).draw(1, 0.05)
    ours, theirs = solve(problem, 1e-8, Group()), solve(problem, CLARABEL, Reference())
    assert theirs.has_converged
    gap = max(ours.certificate.gap, theirs.certificate.gap)
    assert abs(ours.certificate.primal - theirs.certificate.primal) <= gap + ROUNDING


@pytest.mark.parametrize("ratio", [1e-6, 1e-11, 1e-300, 0.0])
@pytest.mark.parametrize("loss", ["softmax", "hinge", "hinge + squared_hinge"])
def test_the_norm_may_vanish_beside_a_quadratic(loss: str, ratio: float) -> None:
    problem = Kind(loss, "group-elastic-net", True, "collinear", n_outputs=2, l2_strength=0.01).draw(0, ratio)
    assert solve(problem, 1e-6, Group()).has_converged


def test_outputs_that_copy_each_other_scale_the_norm_and_not_the_quadratic() -> None:
    # Two equal outputs have ½r‖(w, w)‖² = 2 · ½r w², and rows of norm √2 |w|.
    single = Kind("squared", "elastic-net", l2_strength=0.05).draw(0)
    (head,) = single.heads
    doubled = replace(head, columns=slice(0, 2), targets=head.targets.repeat(1, 2))
    group = Kind("squared", "group-elastic-net", l2_strength=0.05).draw(0)
    whole = solve(group.with_heads((doubled,)).with_strength(single.l1_strength), 1e-8, Group()).certificate
    half = solve(single.with_strength(single.l1_strength / 2**0.5), 1e-8).certificate
    assert abs(whole.primal - 2 * half.primal) <= max(whole.gap, 2 * half.gap) + ROUNDING


@pytest.mark.parametrize("predicted", [np.inf, -np.inf, np.nan])
def test_a_step_whose_predicted_change_is_not_finite_is_not_taken(predicted: float) -> None:
    problem = Kind("logistic", "group").draw(0, 0.05)
    coef = torch.zeros(problem.dictionary.n_atoms, problem.n_outputs, dtype=torch.float64)
    search = module._SmoothedSearch(problem, coef, torch.zeros(problem.n_outputs, dtype=torch.float64), 1e-6)
    search.assess()
    atoms = torch.nonzero(search.working).squeeze(1)
    step = torch.zeros_like(coef).index_fill_(0, atoms, 1e200)  # its square overflows
    assert search._line_search(atoms, step, problem.dictionary.matvec(step), predicted) == 0
