"""The optimal read-out of the recorded data, at given strengths or at those that do best on samples held out."""

from dataclasses import replace
from functools import partial

from torch import Tensor

from ...convex import Solution, solve
from ...convex.objective import Objective
from ...fitting.choosing import choose
from ...fitting.judges import HeldOut
from ...fitting.program import Program
from .data import ProgressCallback, ReadoutData

_HALVINGS = 24
"""How often strengths are halved to get below the model's own loss: by a factor of 10⁷."""


def solve_readout(
    data: ReadoutData,
    program: Program,
    loss_before: float,
    seed: int,
    notify: ProgressCallback,
    centre: Tensor | None = None,
) -> Solution:
    """Solve for the read-out at the given strengths, or at those that do best held out and lower the training loss.

    The quadratic draws to the layer's weights ``centre``, of shape (n_outputs, n_inputs), or to zero.
    """
    program = replace(program, objective=Objective(data.loss), n_strengths=9, smallest_ratio=1e-4)
    problem = data.problem(program.penalty, program.intercept, centre)
    if program.is_fixed:
        (norm,), (quadratic, *_) = program.norms(), program.quadratics()
        return solve(problem.with_strength(norm, quadratic), program.tol)
    judge = HeldOut(10, max_rows=10_000, tol=1e-3, seed=seed)
    verdict = choose(problem, program, judge, notify=partial(notify, "choosing the strength"))
    notify("solving", 0, 1)
    problem = program.at(problem, verdict.point, verdict.share)
    solution = solve(problem, program.tol, start=verdict.solution)
    # The strengths were chosen for new data; the loss on these data must not rise, so those that were not given fall.
    is_given = [not isinstance(strength, str) for strength in (program.l1_strength, program.l2_strength)]
    for _ in range(_HALVINGS):
        strengths = (problem.l1_strength, problem.l2_strength)
        weaker = tuple(strength if fixed else strength / 2 for strength, fixed in zip(strengths, is_given, strict=True))
        if float(problem.loss_value(solution.scores())) < loss_before or weaker == strengths:
            break
        problem = problem.with_strength(*weaker)
        solution = solve(problem, program.tol, start=solution)
    notify("solving", 1, 1)
    return solution
