from dataclasses import replace

import pytest
import torch
from convex.problems import SMOOTH_LOSSES, TWO_HEADS, Columns, Kind
from tolerances import ROUNDING

from cvxsnn import solve


@pytest.mark.parametrize("ratio", [0.3, 0.03])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", ["few_rows", "collinear"])
@pytest.mark.parametrize("loss", [*SMOOTH_LOSSES, *TWO_HEADS[:2]])
def test_smooth_losses_converge(loss: str, columns: Columns, intercept: bool, ratio: float) -> None:
    problem = Kind(loss, "group", intercept, columns, weighted=True, n_outputs=2).draw(0, ratio)
    solution = solve(problem, 1e-7)
    assert (solution.solver, solution.has_converged) == ("group-newton", True)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_hinge_converges(intercept: bool) -> None:
    problem = Kind("hinge", "group", intercept, weighted=True, n_outputs=2).draw(0, 0.3)
    assert solve(problem, 1e-4).has_converged


def test_atoms_that_do_not_help_are_exactly_zero() -> None:
    solution = solve(Kind("softmax", "group").draw(0, 0.3), 1e-7)
    assert 0 < len(solution.support) < len(solution.coef)
    silent = torch.ones(len(solution.coef), dtype=torch.bool)
    silent[solution.support] = False
    assert not bool(solution.coef[silent].any())


@pytest.mark.parametrize("loss", ["squared", "squared_hinge", "logistic"])
def test_one_output_gives_the_optimum_of_the_other_penalty(loss: str) -> None:
    group, l1 = (Kind(loss, penalty, weighted=True).draw(0) for penalty in ("group", "l1"))
    ours, other = solve(group, 1e-8, "group-newton").certificate, solve(l1, 1e-8).certificate
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
