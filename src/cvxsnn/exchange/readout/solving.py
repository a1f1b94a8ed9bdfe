"""The optimal read-out of the recorded data, at given strengths or at those that do best on samples held out."""

from ...convex import ConvexProblem, Solution, solve
from ...convex.objective import Objective
from ...fitting.choosing import choose
from ...fitting.judges import HeldOut
from ...fitting.program import Program
from .data import ReadoutData
from .options import ReadoutOptions

_HALVINGS = 24
"""How often strengths are halved to get below the model's own loss: by a factor of 10⁷."""


def solve_readout(data: ReadoutData, has_bias: bool, loss_before: float, options: ReadoutOptions) -> Solution:
    """Solve for the read-out at the given strengths, or at those that do best held out and lower the training loss."""
    problem = data.problem(options.penalty, has_bias)
    has_quadratic = problem.penalty.has_quadratic
    l2_strength = options.l2_strength if has_quadratic or options.l2_strength != "auto" else 0.0
    program = Program(
        Objective(data.targets.loss),
        problem.penalty.name,
        options.l1_strength,
        l2_strength,
        n_strengths=9,
        smallest_ratio=1e-4,
        intercept=has_bias,
    )
    if program.is_fixed:
        (norm,), (quadratic, *_) = program.norms(), program.quadratics()
        return solve(problem.with_strength(norm, quadratic), options.tol)
    judge = HeldOut(10, max_rows=10_000, tol=1e-3, seed=options.seed)
    verdict = choose(
        problem, program, judge, notify=lambda done, total: options.notify("choosing the strength", done, total)
    )
    options.notify("solving", 0, 1)
    problem = program.at(problem, verdict.point, verdict.share)
    solution = solve(problem, options.tol, start=verdict.solution)
    for _ in range(_HALVINGS):
        weaker = _halved(problem, options)
        if float(problem.loss_value(solution.scores())) < loss_before or weaker is None:
            break
        problem, solution = weaker, solve(weaker, options.tol, start=solution)
    options.notify("solving", 1, 1)
    return solution


def _halved(problem: ConvexProblem, options: ReadoutOptions) -> ConvexProblem | None:
    """Return the problem at half the strengths that were chosen; None if there is none to halve."""
    l1_strength = problem.l1_strength * (0.5 if options.l1_strength == "auto" else 1.0)
    l2_strength = problem.l2_strength * (0.5 if options.l2_strength == "auto" else 1.0)
    if (l1_strength, l2_strength) == (problem.l1_strength, problem.l2_strength):  # ridge at a given strength
        return None
    return problem.with_strength(l1_strength, l2_strength)
