"""Solving: the solvers that ``choice.py`` plans run one after the other, and their result is certified."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

import torch
from torch import Tensor

from ..core.checks import check_positive_int
from ..core.errors import ConvergenceError, ConvergenceWarning, InvalidInputError
from ..core.formatting import plural, round_up
from .certificate import Candidate, Certificate, certify_all, check_scale, relative_gap
from .choice import check_solver, condition, plan
from .problem import ConvexProblem
from .solvers.base import Budget, Progress, Solver, Status


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """Coefficients with a certificate.

    Parameters
    ----------
    problem : ConvexProblem
        The program that was solved.
    coef : Tensor of shape (n_atoms, n_outputs), float64
        The coefficients.
    intercept : Tensor of shape (n_outputs,)
        The intercept, zero for problems without one.
    dual_point : Tensor of shape (n_rows, n_outputs)
        The point λ behind the lower bound. If the penalty is a norm, ``|λᵀd| ≤ l1_strength`` for every atom d.
    status : Status
        How the solve ended.
    certificate : Certificate
        The proof of how far from optimal the coefficients can be.
    solver : str
        The solver that ran; several joined by " + " if heads have different ones.
    history : tuple of Progress
        The gap that the solver computed, over time.
    seconds : float
        The time that it took, certificate included.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> problem = cs.ConvexProblem([[1, 0], [1, 1], [0, 1]], [2.0, 2.0, 0.0], loss="squared", l1_strength=0.1)
    >>> solution = cs.solve(problem)
    >>> solution.support.tolist()
    [0]
    """

    problem: ConvexProblem
    coef: Tensor
    intercept: Tensor
    dual_point: Tensor
    status: Status
    certificate: Certificate
    solver: str
    history: tuple[Progress, ...]
    seconds: float

    @property
    def has_converged(self) -> bool:
        """Whether the certificate is within the tolerance asked for."""
        return self.status is Status.CONVERGED

    @property
    def support(self) -> Tensor:
        """Atoms with a nonzero coefficient."""
        return torch.nonzero(self.coef.any(1)).squeeze(1)

    def scores(self) -> Tensor:
        """Return the fitted scores on the dictionary's rows.

        Returns
        -------
        Tensor of shape (n_rows, n_outputs)
            The scores DW + b.
        """
        return self.problem.dictionary.matvec(self.coef) + self.intercept

    def __repr__(self) -> str:
        """Return status, support and certificate on one line."""
        return (
            f"Solution({self.status.name}, {len(self.support)} of {plural(len(self.coef), 'atom')}, {self.certificate})"
        )


def solve(
    problem: ConvexProblem,
    tol: float = 1e-6,
    solver: str | Solver = "auto",
    *,
    start: Solution | Candidate | None = None,
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
        "auto" chooses the fastest: "ridge" for smooth losses without an L1 norm, "l1" for smooth losses with one,
        "hinge" for the hinge, "group" for the group penalties with several outputs. "reference" is slow and accepts
        every loss and penalty. You can also pass a :class:`cvxsnn.convex.Solver` of your own.
    start : Solution or Candidate, optional
        A point to start from, of a problem with the same atoms and outputs. Ignored if zero coefficients are
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
    """The result of solvers, not yet certified, with the time that they took."""

    candidate: Candidate
    status: Status
    solver: str
    history: list[Progress] = field(default_factory=list)
    seconds: float = 0.0


def deadline_after(max_seconds: float) -> float:
    """Return the value that ``time.perf_counter()`` will have after ``max_seconds``."""
    if isinstance(max_seconds, (str, bool)) or max_seconds is None or not max_seconds > 0:
        raise InvalidInputError(f"expected max_seconds above zero, got {max_seconds!r}")
    return time.perf_counter() + max_seconds


def prepare(problem: ConvexProblem, solver: str | Solver) -> None:
    """Let solvers compute results that do not depend on the strength, once for a whole path."""
    for part in plan(problem.centred[0], check_solver(solver)):
        part.solver.prepare(part.problem)


def minimise(
    problem: ConvexProblem,
    tol: float,
    solver: str | Solver,
    start: Solution | Candidate | Run | None = None,
    max_iterations: int | None = None,
    deadline: float = inf,
) -> Run:
    """Run solvers on the conditioned problem, and return their result for the problem as it was given."""
    begin = time.perf_counter()
    if not 0 < tol < 1:
        raise InvalidInputError(f"expected tol between 0 and 1, got {tol!r}")
    if max_iterations is not None:
        check_positive_int("max_iterations", max_iterations)
    solver = check_solver(solver)
    _check_l2_strength(problem)
    check_scale(problem.centred[0])
    scaled, means, of_targets, of_entries = condition(problem)
    null = Candidate.null(scaled)
    if scaled.l1_strength >= scaled.critical_strength:
        run = Run(null, Status.CONVERGED, "none needed")
    else:
        first = null
        if start is not None:
            coef, intercept = _checked_start(problem, start.candidate if isinstance(start, Run) else start)
            warm = Candidate(scaled, coef * (of_entries / of_targets), (intercept - means) / of_targets)
            # From a start that is worse than zero, Newton steps may not find the way back. An optimum at a larger
            # strength is better: a weaker penalty lowers its objective, and not that of zero.
            is_better = (
                isinstance(start, Run)
                and start.status is Status.CONVERGED
                and start.candidate.problem.l1_strength >= problem.l1_strength
            )
            first = warm if is_better or warm.objective < null.objective else null
        # Half the tolerance, so that rounding in the certificate does not undo the work of a solver.
        run = _run_parts(first, solver, Budget(0.5 * tol, max_iterations or 0, deadline), begin)
        result = run.candidate
        is_lost = run.status is not Status.CONVERGED or not bool(result.coef.isfinite().all())
        if is_lost and not result.objective <= first.objective:  # rounding has led the solver astray
            status = Status.STALLED if run.status is Status.CONVERGED else run.status
            run = replace(run, candidate=replace(first, duals=result.duals + first.duals), status=status)
    candidate = replace(
        run.candidate,
        problem=problem,
        coef=run.candidate.coef * (of_targets / of_entries),
        intercept=run.candidate.intercept * of_targets + means,
        duals=tuple(of_targets * dual for dual in run.candidate.duals),
    )
    return replace(run, candidate=candidate, seconds=time.perf_counter() - begin)


def _run_parts(start: Candidate, solver: str | Solver, budget: Budget, begin: float) -> Run:
    """Solve the parts of a problem one after the other."""
    problem = start.problem
    coef = start.coef.clone()
    intercept = start.intercept.clone()
    statuses, names = [], []
    history: list[Progress] = []

    def record(primal: float, bound: float, n_active: int) -> None:
        history.append(Progress(time.perf_counter() - begin, relative_gap(primal, bound), n_active))

    # NaN marks outputs whose solver gives no dual point.
    dual = torch.full_like(problem.row_weight[:, None].expand(-1, problem.n_outputs), torch.nan)
    for part in plan(problem, solver):
        columns = part.columns
        row_of = None
        seen = part.problem
        if part.solver.merges_rows:
            seen, row_of = seen.reduced
        n_most = budget.max_iterations or part.solver.max_iterations
        part_budget = replace(budget, max_iterations=n_most, record=record)
        result = part.solver.solve(seen, coef[:, columns], intercept[columns], part_budget)
        coef[:, columns], intercept[columns] = result.coef, result.intercept
        if result.dual is not None:
            unit = result.dual / seen.row_weight[:, None]
            # Merged rows share their dual point in proportion to their weights.
            dual[:, columns] = result.dual if row_of is None else problem.row_weight[:, None] * unit[row_of]
        statuses.append(result.status)
        names.append(part.solver.name)
    # If only some outputs have a dual point, the gradient, which certifies smooth losses, is the rest of it.
    unknown = dual.isnan()
    if bool(unknown.any()) and not bool(unknown.all()):
        scores = problem.dictionary.matvec(coef) + intercept
        dual = torch.where(unknown, -problem.row_weight[:, None] * problem.unit_dual(scores), dual)
    duals = () if bool(dual.isnan().any()) else (dual,)
    status = max(statuses, key=list(Status).index)
    return Run(Candidate(problem, coef, intercept, duals), status, " + ".join(dict.fromkeys(names)), history)


def finish(runs: Sequence[Run], tol: float) -> list[Solution]:
    """Certify the results of solvers for problems with one dictionary."""
    begin = time.perf_counter()
    proofs = certify_all([run.candidate for run in runs])
    seconds_each = (time.perf_counter() - begin) / len(runs)
    solutions = []
    for run, (certificate, dual_point) in zip(runs, proofs, strict=True):
        candidate, status = run.candidate, run.status
        # A solver judges by its own rounded or reduced problem; only the certificate decides.
        if certificate.relative_gap <= tol:
            status = Status.CONVERGED
        elif status is Status.CONVERGED:
            status = Status.ROUNDED if _is_rounded(candidate, tol * certificate.primal) else Status.STALLED
        gap = relative_gap(certificate.primal, certificate.dual)
        last = Progress(run.seconds, gap, int((candidate.coef != 0).sum()))
        solutions.append(
            Solution(
                problem=candidate.problem.without_workspace(),
                coef=candidate.coef,
                intercept=candidate.intercept,
                dual_point=dual_point,
                status=status,
                certificate=certificate,
                solver=run.solver,
                history=(*run.history, last),
                seconds=run.seconds + seconds_each,
            )
        )
    return solutions


def _is_rounded(candidate: Candidate, allowed: float) -> bool:
    """Return whether rounding the intercept may add more than ``allowed`` to a squared loss."""
    problem, means = candidate.problem, candidate.problem.centred[1]
    # An intercept near a mean m can be off by 2⁻⁵³ m, which shifts all scores of its output.
    losses = [head.weight * (2.0**-53 * means[head.columns]).square().sum() for head in problem.heads]
    return float(0.5 * sum(losses)) > allowed


def report_gap(solution: Solution, tol: float, strict: bool, stacklevel: int) -> None:
    """Warn, or raise if ``strict``, when a certificate has not reached the tolerance."""
    if solution.has_converged:
        return
    gap = round_up(solution.certificate.relative_gap, 3)
    message = (
        f"expected a certified relative gap of {tol:g}, got {gap:.2e} with solver "
        f"{solution.solver!r}: {solution.status.value}; the best point found is returned with its gap"
    )
    if strict:
        raise ConvergenceError(message)
    warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel)


def _check_l2_strength(problem: ConvexProblem) -> None:
    """Refuse a quadratic that rounding removes beside the squares of the columns, or that removes them."""
    scale = problem.dictionary.largest_entry * problem.dictionary.largest_entry or 1.0
    if problem.l2_strength and not 2.0**-52 * scale <= problem.l2_strength <= 2.0**52 * scale:
        raise InvalidInputError(
            f"expected l2_strength=0 or between {2.0**-52 * scale:.2g} and {2.0**52 * scale:.2g} for these columns, "
            f"got {problem.l2_strength:g}, which in float64 equals zero or infinity beside them"
        )


def _checked_start(problem: ConvexProblem, start: Solution | Candidate) -> tuple[Tensor, Tensor]:
    if not isinstance(start, (Solution, Candidate)):
        raise InvalidInputError(f"expected a Solution to start from, got {type(start).__name__}")
    expected = (problem.dictionary.n_atoms, problem.n_outputs)
    if tuple(start.coef.shape) != expected:
        raise InvalidInputError(
            f"expected a start with coefficients of shape {expected}, got {tuple(start.coef.shape)}"
        )
    return start.coef.clone(), start.intercept.clone() if problem.intercept else torch.zeros_like(start.intercept)
