"""Choosing a solver, running it on the reduced problem, and having the outcome certified on the real one."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..core.checks import check_choice, check_positive_int
from ..core.errors import ConvergenceError, ConvergenceWarning, InvalidInputError
from .certificate import Candidate, certify_all
from .problem import ConvexProblem
from .solution import Proven, Solution, Status
from .solvers.active_set import forms_gram, solve_squared
from .solvers.group_newton import solve_group_newton
from .solvers.interior_point import solve_hinge
from .solvers.linear_program import solve_highs
from .solvers.newton import solve_newton
from .solvers.proximal_gradient import solve_proximal_gradient
from .solvers.recorder import Recorder
from .solvers.reference import solve_reference

Solver = Literal[
    "auto", "active-set", "newton", "interior-point", "highs", "group-newton", "proximal-gradient", "reference"
]

_LOSSES_OF = {
    "active-set": ("squared",),
    "newton": ("squared", "squared_hinge", "logistic", "softmax"),
    "interior-point": ("hinge",),
    "highs": ("hinge",),
}
"""Losses that each of the L1 solvers takes. The others take everything."""

_TAKE_EVERYTHING = ("group-newton", "proximal-gradient", "reference")

_TOLERANCE_LEFT_TO_SOLVER = 0.5
"""Solvers stop at this share of the tolerance, so that rounding in the certificate does not undo their work."""


def solve(
    problem: ConvexProblem,
    tol: float = 1e-6,
    solver: Solver = "auto",
    *,
    start: Solution | None = None,
    max_iterations: int | None = None,
    strict: bool = False,
) -> Solution:
    """Solve a convex program to a certified relative gap of ``tol``.

    Parameters
    ----------
    problem : ConvexProblem
    tol : float
        On the certificate's relative gap.
    solver : str
        "auto" takes the fastest for the loss: "active-set" for squared, "newton" for logistic, squared hinge and
        softmax, "interior-point" for hinge, "group-newton" for every loss with the group penalty. "proximal-gradient"
        takes every loss and penalty, "highs" is a linear program for the hinge, "reference" goes through cvxpy.
    start : Solution, optional
        Of a problem with the same atoms and outputs, to start from; not used if zero coefficients are better.
    max_iterations : int, optional
    strict : bool
        Whether to raise :class:`ConvergenceError` instead of warning when the tolerance is not reached.
    """
    run = minimise(problem, tol, solver, start, max_iterations)
    (solution,) = finish([run], tol)
    judge(solution, tol, strict, stacklevel=3)
    return solution


@dataclass(frozen=True, eq=False)
class Run:
    """A solver's outcome, not yet certified."""

    candidate: Candidate
    status: Status
    solver: str
    recorder: Recorder


def minimise(
    problem: ConvexProblem,
    tol: float,
    solver: Solver,
    start: Solution | Run | None = None,
    max_iterations: int | None = None,
) -> Run:
    """Run a solver."""
    check_choice("solver", solver, ("auto", *_LOSSES_OF, *_TAKE_EVERYTHING))
    if not 0 < tol < 1:
        raise InvalidInputError(f"expected tol between 0 and 1, got {tol!r}")
    if max_iterations is not None:
        check_positive_int("max_iterations", max_iterations)
    recorder = Recorder()
    coef = problem.row_weight.new_zeros(problem.dictionary.n_atoms, problem.n_outputs)
    intercept = problem.null_intercept.clone()
    if problem.l1_strength >= problem.critical_strength:
        candidate = Candidate(problem, coef, intercept, (-problem.row_weight[:, None] * problem.null_dual,))
        return Run(candidate, Status.CONVERGED, "none needed", recorder)
    if start is not None:
        begin = _checked_start(problem, start.candidate if isinstance(start, Run) else start)
        # From a start that is worse than nothing, Newton steps may not find the way back. What was optimal on a path
        # before is better than nothing now: a weaker penalty lowers its objective, and not that of zero.
        is_better = (
            isinstance(start, Run)
            and start.status is Status.CONVERGED
            and start.candidate.problem.l1_strength >= problem.l1_strength
        )
        if is_better or _objective(problem, *begin) < _objective(problem, coef, intercept):
            coef, intercept = begin
    coef, intercept, duals, status, name = _minimise(problem, coef, intercept, recorder, tol, solver, max_iterations)
    return Run(Candidate(problem, coef, intercept, tuple(duals)), status, name, recorder)


def finish(runs: Sequence[Run], tol: float) -> list[Solution]:
    """Certify what solvers found for problems with one dictionary."""
    begin = time.perf_counter()
    proofs = certify_all([run.candidate for run in runs])
    share = (time.perf_counter() - begin) / len(runs)
    solutions = []
    for run, (certificate, dual_point) in zip(runs, proofs, strict=True):
        status = run.status
        if certificate.relative_gap <= tol:
            status = Status.CONVERGED
        elif status is Status.CONVERGED:
            status = Status.STALLED
        found, recorder = run.candidate, run.recorder
        recorder.record(certificate.primal, certificate.dual, int((found.coef != 0).sum()))
        solutions.append(
            Solution(
                problem=found.problem,
                coef=found.coef,
                intercept=found.intercept,
                dual_point=dual_point,
                status=status,
                certificate=certificate,
                solver=run.solver,
                history=recorder.history,
                seconds=recorder.stop() + share,
            )
        )
    return solutions


def judge(solution: Proven, tol: float, strict: bool, stacklevel: int) -> None:
    if solution.has_converged:
        return
    message = (
        f"expected a certified relative gap of {tol:g}, got {solution.certificate.relative_gap:.2e} with solver "
        f"{solution.solver!r}: {solution.status.value}; the best point found is returned with its gap"
    )
    if strict:
        raise ConvergenceError(message)
    warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel)


def _minimise(
    problem: ConvexProblem,
    coef: Tensor,
    intercept: Tensor,
    recorder: Recorder,
    tol: float,
    solver: Solver,
    max_iterations: int | None,
) -> tuple[Tensor, Tensor, list[Tensor], Status, str]:
    """Coefficients, intercept, dual candidates on the full rows, status, and the solvers' names."""
    tolerance = _TOLERANCE_LEFT_TO_SOLVER * tol
    limit = {} if max_iterations is None else {"max_iterations": max_iterations}
    # For one output the two penalties are the same.
    is_l1 = problem.penalty.name == "l1" or problem.n_outputs == 1
    name: str = "group-newton" if solver == "auto" and not is_l1 else solver
    if name == "group-newton" and problem.penalty.name == "l1" and problem.n_outputs > 1:
        raise InvalidInputError("expected the group penalty for solver 'group-newton', got 'l1': use solver='auto'")
    if name in _TAKE_EVERYTHING:
        whole = problem.reduced.problem
        coef, intercept, dual, status = _solve_whole(whole, coef, intercept, recorder, tolerance, name, limit)
        return coef, intercept, [_spread(problem, dual)], status, name
    if not is_l1:
        raise InvalidInputError(
            f"expected the L1 penalty for solver {solver!r}, got {problem.penalty.name!r}: use solver='auto'"
        )
    coef, intercept = coef.clone(), intercept.clone()
    dual = torch.full_like(problem.row_weight[:, None].expand(-1, problem.n_outputs), torch.nan)
    statuses, names = [], []
    # Outputs with the squared loss share a Gram matrix, and are told apart by the solver itself.
    kept = ("squared",) if solver == "active-set" or (solver == "auto" and forms_gram(problem)) else ()
    for part, columns in problem.split(kept):
        (head,) = part.heads
        name = _solver_for(part, head.loss.name) if solver == "auto" else solver
        if name in _LOSSES_OF and head.loss.name not in _LOSSES_OF[name]:
            raise InvalidInputError(
                f"expected one of the losses {_LOSSES_OF[name]} for solver {name!r}, got {head.loss.name!r}: "
                "use solver='auto'"
            )
        names.append(name)
        status = Status.CONVERGED
        if name == "active-set":
            coef[:, columns], intercept[columns] = solve_squared(part, coef[:, columns], intercept[columns], recorder)
        elif name == "newton":
            coef[:, columns], intercept[columns], status = solve_newton(
                part.reduced.problem, coef[:, columns], intercept[columns], recorder, tolerance=tolerance, **limit
            )
        else:
            small = part.reduced.problem
            coef[:, columns], intercept[columns], part_dual, status = (
                solve_highs(small) if name == "highs" else solve_hinge(small, recorder, tolerance=tolerance, **limit)
            )
            dual[:, columns] = _spread(part, part_dual)
        statuses.append(status)
    # Where a dual point is known for some outputs only, the gradient, which certifies smooth losses, is the rest of it.
    unknown = dual.isnan()
    if bool(unknown.any()) and not bool(unknown.all()):
        scores = problem.dictionary.matvec(coef) + intercept
        dual = torch.where(unknown, -problem.row_weight[:, None] * problem.unit_dual(scores), dual)
    duals = [] if bool(dual.isnan().any()) else [dual]
    return coef, intercept, duals, max(statuses, key=list(Status).index), " + ".join(dict.fromkeys(names))


def _solve_whole(
    problem: ConvexProblem,
    coef: Tensor,
    intercept: Tensor,
    recorder: Recorder,
    tolerance: float,
    name: str,
    limit: dict[str, int],
) -> tuple[Tensor, Tensor, Tensor, Status]:
    if name == "reference":
        return solve_reference(problem)
    search = solve_group_newton if name == "group-newton" else solve_proximal_gradient
    return search(problem, coef, intercept, recorder, tolerance=tolerance, **limit)


def _solver_for(problem: ConvexProblem, loss: str) -> str:
    if loss == "squared" and forms_gram(problem):
        return "active-set"
    return "interior-point" if loss == "hinge" else "newton"


def _spread(problem: ConvexProblem, dual: Tensor) -> Tensor:
    """A dual point of the reduced rows, shared out over the full rows in proportion to their weights."""
    reduced = problem.reduced
    unit = dual / reduced.problem.row_weight[:, None]
    return problem.row_weight[:, None] * unit[reduced.row_of]


def _objective(problem: ConvexProblem, coef: Tensor, intercept: Tensor) -> float:
    return problem.objective(coef, problem.dictionary.matvec(coef) + intercept)


def _checked_start(problem: ConvexProblem, start: Solution | Candidate) -> tuple[Tensor, Tensor]:
    expected = (problem.dictionary.n_atoms, problem.n_outputs)
    if tuple(start.coef.shape) != expected:
        raise InvalidInputError(
            f"expected a start with coefficients of shape {expected}, got {tuple(start.coef.shape)}"
        )
    return start.coef.clone(), start.intercept.clone() if problem.intercept else torch.zeros_like(start.intercept)
