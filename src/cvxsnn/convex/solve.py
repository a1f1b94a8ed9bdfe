"""Solving: a solver runs on the reduced problem, and its result is certified on the original one and returned."""

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from ..core.checks import check_positive_int
from ..core.errors import ConvergenceError, ConvergenceWarning, InvalidInputError
from .certificate import Candidate, certify_all, check_scale
from .problem import ConvexProblem
from .solution import Certified, Solution
from .solvers.base import Recorder, Solver, Status, choose_solver, find_solver

_TOLERANCE_LEFT_TO_SOLVER = 0.5
"""Solvers stop at this share of the tolerance, so that rounding in the certificate does not undo their work."""

_NEGLIGIBLE = 1e-12
"""Strength of the norm, relative to the critical one, at which an elastic net is solved as ridge. It is certified as it
is."""

_SMALLEST, _LARGEST = 2.0**-52, 2.0**52
"""Strengths of the quadratic, relative to the square of the largest entry, beyond which float64 cannot tell them from
zero, or the coefficients from zeros."""


def solve(
    problem: ConvexProblem,
    tol: float = 1e-6,
    solver: str | Solver = "auto",
    *,
    start: Solution | None = None,
    max_iterations: int | None = None,
    max_seconds: float = inf,
    strict: bool = False,
) -> Solution:
    """Solve a convex program to a certified relative gap.

    Parameters
    ----------
    problem : ConvexProblem
        The program.
    tol : float
        The relative gap of the certificate to reach.
    solver : str or Solver
        "auto" chooses the fastest: "active-set" for squared, "newton" for logistic, squared hinge and softmax (for
        ridge "newton-cg", and "admm" for elastic nets with many active coefficients), "interior-point" for hinge,
        "group-newton" for these losses with the group penalties. "proximal-gradient" accepts every loss and penalty. A
        solver of your own is passed as it is.
    start : Solution, optional
        Where to start: a solution of a problem with the same atoms and outputs. Not used if zero coefficients are
        better.
    max_iterations : int, optional
        Iterations after which the solver gives up.
    max_seconds : float
        Time after which the solver gives up, between two of its iterations: the best point so far is certified, and
        its status is ``Status.TIME_LIMIT``. The certificate is not part of this time.
    strict : bool
        Whether to raise :class:`ConvergenceError` instead of warning when the tolerance is not reached.

    Returns
    -------
    Solution
        Coefficients with their certificate.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> problem = cs.ConvexProblem([[1, 0], [1, 1], [0, 1]], [2.0, 2.0, 0.0], loss="squared", l1_strength=0.1)
    >>> solution = cs.solve(problem)
    >>> solution.coef.round(decimals=3).flatten().tolist()
    [1.85, 0.0]
    """
    run = minimise(problem, tol, solver, start, max_iterations, deadline_after(max_seconds))
    (solution,) = finish([run], tol)
    report_gap(solution, tol, strict, stacklevel=3)
    return solution


@dataclass(frozen=True, eq=False)
class Run:
    """What solvers found, not yet certified."""

    candidate: Candidate
    status: Status
    solver: str
    recorder: Recorder


def deadline_after(max_seconds: float) -> float:
    """Return when a time that begins now is up, as ``time.perf_counter()`` will show it."""
    if isinstance(max_seconds, (str, bool)) or max_seconds is None or not max_seconds > 0:
        raise InvalidInputError(f"expected max_seconds above zero, got {max_seconds!r}")
    return time.perf_counter() + max_seconds


def prepare(problem: ConvexProblem, solver: str | Solver) -> None:
    """Let solvers compute what solves at several strengths share."""
    for part in _parts(problem.centred[0].simplified(), solver):
        part.solver.prepare(part.problem)


def minimise(
    problem: ConvexProblem,
    tol: float,
    solver: str | Solver,
    start: Solution | Run | None = None,
    max_iterations: int | None = None,
    deadline: float = inf,
) -> Run:
    """Run a solver, on targets that are centred if an intercept allows it, and on numbers around one."""
    if not 0 < tol < 1:
        raise InvalidInputError(f"expected tol between 0 and 1, got {tol!r}")
    if max_iterations is not None:
        check_positive_int("max_iterations", max_iterations)
    if solver != "auto" and not isinstance(solver, Solver):
        solver = find_solver(solver)
    _check_l2_strength(problem)
    centred, means = problem.centred
    check_scale(centred)
    begin = None if start is None else _checked_start(problem, start.candidate if isinstance(start, Run) else start)
    scaled, of_targets, of_entries = centred.scaled
    if begin is not None:
        begin = begin[0] * (of_entries / of_targets), (begin[1] - means) / of_targets
    # What was optimal on a path before is better than nothing now: a weaker penalty lowers its objective, and not that
    # of zero.
    is_better = (
        isinstance(start, Run)
        and start.status is Status.CONVERGED
        and start.candidate.problem.l1_strength >= problem.l1_strength
    )
    run = _minimise(scaled, tol, solver, begin, is_better, max_iterations, deadline)
    found = replace(
        run.candidate,
        problem=problem,
        coef=run.candidate.coef * (of_targets / of_entries),
        intercept=run.candidate.intercept * of_targets + means,
        duals=tuple(of_targets * dual for dual in run.candidate.duals),
    )
    return replace(run, candidate=found)


def _minimise(
    problem: ConvexProblem,
    tol: float,
    solver: str | Solver,
    begin: tuple[Tensor, Tensor] | None,
    is_better: bool,
    max_iterations: int | None,
    deadline: float,
) -> Run:
    """Run a solver from where to begin, if that is known to be better than zero coefficients, or found to be."""
    recorder = Recorder()
    coef = problem.row_weight.new_zeros(problem.dictionary.n_atoms, problem.n_outputs)
    intercept = problem.null_intercept.clone()
    null = Candidate(problem, coef, intercept, (-problem.row_weight[:, None] * problem.null_dual,))
    if problem.l1_strength >= problem.critical_strength:
        return Run(null, Status.CONVERGED, "none needed", recorder)
    # From a start that is worse than nothing, Newton steps may not find the way back.
    if begin is not None and (is_better or _objective(problem, *begin) < _objective(problem, coef, intercept)):
        coef, intercept = begin
    is_negligible = 0 < problem.l1_strength <= _NEGLIGIBLE * problem.critical_strength
    if solver == "auto" and problem.l2_strength and is_negligible:
        ridge = problem.with_strength(0.0)
        run = _run_parts(ridge, coef, intercept, recorder, tol, solver, max_iterations, deadline)
        run = replace(run, candidate=replace(run.candidate, problem=problem))
    else:
        run = _run_parts(problem, coef, intercept, recorder, tol, solver, max_iterations, deadline)
    found = run.candidate
    is_lost = run.status is not Status.CONVERGED or not bool(found.coef.isfinite().all())
    if is_lost and not _objective(problem, found.coef, found.intercept) <= _objective(problem, coef, intercept):
        # Rounding has led the solver astray: where it began is better.
        duals = found.duals + null.duals if coef is null.coef else found.duals
        status = Status.STALLED if run.status is Status.CONVERGED else run.status
        return replace(run, candidate=Candidate(problem, coef, intercept, duals), status=status)
    return run


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
            status = Status.ROUNDED if _is_rounded(run.candidate, tol * certificate.primal) else Status.STALLED
        found, recorder = run.candidate, run.recorder
        recorder.record(certificate.primal, certificate.dual, int((found.coef != 0).sum()))
        solutions.append(
            Solution(
                problem=found.problem.without_workspace(),
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


def _is_rounded(found: Candidate, allowed: float) -> bool:
    """Return whether the rounding of the intercept may cost more than is allowed in a squared loss."""
    losses = [
        head.weight * (2.0**-53 * found.problem.centred[1][head.columns]).square().sum() for head in found.problem.heads
    ]
    return float(0.5 * sum(losses)) > allowed


def report_gap(solution: Certified, tol: float, strict: bool, stacklevel: int) -> None:
    """Warn, or raise if ``strict``, when a certificate has not reached the tolerance."""
    if solution.has_converged:
        return
    message = (
        f"expected a certified relative gap of {tol:g}, got {solution.certificate.relative_gap:.2e} with solver "
        f"{solution.solver!r}: {solution.status.value}; the best point found is returned with its gap"
    )
    if strict:
        raise ConvergenceError(message)
    warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel)


@dataclass(frozen=True, eq=False)
class _Part:
    """Outputs that one solver is given at once."""

    problem: ConvexProblem
    columns: slice
    solver: Solver


def _run_parts(
    problem: ConvexProblem,
    coef: Tensor,
    intercept: Tensor,
    recorder: Recorder,
    tol: float,
    solver: str | Solver,
    max_iterations: int | None,
    deadline: float,
) -> Run:
    """Solve the independent parts of a problem one after the other."""
    coef, intercept = coef.clone(), intercept.clone()
    dual = torch.full_like(problem.row_weight[:, None].expand(-1, problem.n_outputs), torch.nan)
    statuses, names = [], []
    for part in _parts(problem.simplified(), solver):
        own, columns = part.problem, part.columns
        result = part.solver.solve(
            own.reduced.problem if part.solver.merges_rows else own,
            coef[:, columns],
            intercept[columns],
            tolerance=_TOLERANCE_LEFT_TO_SOLVER * tol,
            max_iterations=max_iterations or part.solver.max_iterations,
            deadline=deadline,
            callback=recorder.record,
        )
        coef[:, columns], intercept[columns] = result.coef, result.intercept
        if result.dual is not None:
            dual[:, columns] = _spread(own, result.dual) if part.solver.merges_rows else result.dual
        statuses.append(result.status)
        names.append(part.solver.name)
    # Where a dual point is known for some outputs only, the gradient, which certifies smooth losses, is the rest of it.
    unknown = dual.isnan()
    if bool(unknown.any()) and not bool(unknown.all()):
        scores = problem.dictionary.matvec(coef) + intercept
        dual = torch.where(unknown, -problem.row_weight[:, None] * problem.unit_dual(scores), dual)
    duals = () if bool(dual.isnan().any()) else (dual,)
    status = max(statuses, key=list(Status).index)
    return Run(Candidate(problem, coef, intercept, duals), status, " + ".join(dict.fromkeys(names)), recorder)


def _parts(problem: ConvexProblem, solver: str | Solver) -> Iterator[_Part]:
    """Yield what to solve, and by which solver: as much at once as the solver wants, and the penalty allows."""
    everything = slice(0, problem.n_outputs)
    chosen = solver if solver == "auto" or isinstance(solver, Solver) else find_solver(solver)
    is_whole = isinstance(chosen, Solver) and chosen.solves == "problem"
    if is_whole or not problem.penalty.is_separable:
        yield _Part(problem, everything, choose_solver(problem, chosen))
        return
    for head in problem.heads:
        whole = problem.part(head.columns)
        own = choose_solver(whole, chosen)
        if own.solves == "head" or not head.loss.is_separable:
            yield _Part(whole, head.columns, own)
            continue
        for place in range(head.columns.start, head.columns.stop):
            column = slice(place, place + 1)
            yield _Part(problem.part(column), column, own)


def _spread(problem: ConvexProblem, dual: Tensor) -> Tensor:
    """Return a dual point of the full rows: that of each reduced row, shared in proportion to the weights."""
    reduced = problem.reduced
    unit = dual / reduced.problem.row_weight[:, None]
    return problem.row_weight[:, None] * unit[reduced.row_of]


def _check_l2_strength(problem: ConvexProblem) -> None:
    """Refuse a quadratic that rounding would swallow, or that would swallow all else."""
    scale = problem.dictionary.largest_entry * problem.dictionary.largest_entry or 1.0
    if problem.l2_strength and not _SMALLEST * scale <= problem.l2_strength <= _LARGEST * scale:
        raise InvalidInputError(
            f"expected l2_strength=0 or between {_SMALLEST * scale:.2g} and {_LARGEST * scale:.2g} for these columns, "
            f"got {problem.l2_strength:g}, which float64 cannot tell from zero or from infinity"
        )


def _objective(problem: ConvexProblem, coef: Tensor, intercept: Tensor) -> float:
    if not bool(coef.isfinite().all() and intercept.isfinite().all()):
        return inf
    return problem.objective(coef, problem.dictionary.matvec(coef) + intercept)


def _checked_start(problem: ConvexProblem, start: Solution | Candidate) -> tuple[Tensor, Tensor]:
    if not isinstance(start, (Solution, Candidate)):
        raise InvalidInputError(f"expected a Solution to start from, got {type(start).__name__}")
    expected = (problem.dictionary.n_atoms, problem.n_outputs)
    if tuple(start.coef.shape) != expected:
        raise InvalidInputError(
            f"expected a start with coefficients of shape {expected}, got {tuple(start.coef.shape)}"
        )
    return start.coef.clone(), start.intercept.clone() if problem.intercept else torch.zeros_like(start.intercept)
