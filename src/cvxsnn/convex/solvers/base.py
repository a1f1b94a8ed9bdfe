"""The contract of a solver: what it accepts, what it is given, what it returns."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any, ClassVar, Literal

from torch import Tensor

from ...core.checks import Registry
from ...core.errors import BudgetError, InvalidInputError
from ...core.memory import check_fits, dense_bytes
from ..losses import Loss
from ..penalties import Penalty
from ..problem import ConvexProblem

Callback = Callable[[float, float, int], None]
"""Called as ``callback(primal, bound, n_active)`` after an iteration."""

_DENSE_BUDGET = 4 * 2**30
"""Bytes for a matrix of float64 that a solver may hold."""

DENSE_COPIES = 4
"""Matrices of rows × atoms alive in an interior-point step: columns, margins, margins weighted, and their transpose."""


class Status(Enum):
    """How a solve ended.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> problem = cs.ConvexProblem([[1, 0], [1, 1], [0, 1]], [2.0, 2.0, 0.0], loss="squared", l1_strength=0.1)
    >>> cs.solve(problem).status is cs.Status.CONVERGED
    True
    """

    CONVERGED = "the certified relative gap is within the tolerance"
    ITERATION_LIMIT = "the solver used up its iterations"
    TIME_LIMIT = "the time was up"
    STALLED = "the solver could not improve further in float64"
    ROUNDED = "float64 cannot tell targets apart that differ so little from their mean, so subtract the mean from them"
    STOPPED = "it was stopped before the end"


@dataclass(frozen=True, eq=False)
class SolverResult:
    """What a solver found, before it is certified.

    Parameters
    ----------
    coef : Tensor of shape (n_atoms, n_outputs)
        The coefficients.
    intercept : Tensor of shape (n_outputs,)
        The intercept, zero for a problem without one.
    status : Status
        How the solver ended in its own judgement. Only a certificate decides.
    dual : Tensor of shape (n_rows, n_outputs), optional
        A guess of the dual point λ. The gradient at the coefficients is used when there is none.

    Examples
    --------
    >>> import torch
    >>> from cvxsnn.convex import SolverResult, Status
    >>> result = SolverResult(torch.zeros(3, 1), torch.zeros(1), Status.STALLED)
    >>> result.dual is None
    True
    """

    coef: Tensor
    intercept: Tensor
    status: Status
    dual: Tensor | None = None


class Solver(ABC):
    """The contract of a solver, and what it accepts.

    Attributes
    ----------
    name : str
        The name by which :func:`cvxsnn.solve` asks for it.
    max_iterations : int
        Iterations after which it gives up, unless the caller says otherwise.
    solves : "output", "head" or "problem"
        What it is given at once where the penalty is separable: one output (all of a loss that couples them), one head,
        or the whole problem.
    merges_rows : bool
        Whether it is given the reduced problem, with equal rows merged.
    loss_kinds : tuple of Loss types, or None
        The losses that it accepts, by exact type; None for all smooth ones and those in ``corner_kinds``.
    corner_kinds : tuple of Loss types
        Losses that are not smooth and accepted all the same.
    smooths_losses : bool
        Whether it also accepts every other loss whose ``smoothed`` form is smooth and of bounded curvature.
    penalty_kinds : tuple of Penalty types, or None
        The penalties that it accepts, by exact type; None for all with the L1 norm.
    accepts_any_penalty : bool
        Whether it accepts every penalty.
    needs : None, "ridge" or "elastic net"
        Whether ``l2_strength`` must be above zero, with ``l1_strength`` zero (ridge) or above it (elastic net).

    Examples
    --------
    >>> import cvxsnn as cs
    >>> problem = cs.ConvexProblem([[1, 0], [1, 1], [0, 1]], [2.0, 2.0, 0.0], loss="squared", l1_strength=0.1)
    >>> solver = cs.convex.SOLVERS["active-set"]
    >>> solver.refusal(problem) is None
    True
    """

    name: ClassVar[str]
    max_iterations: ClassVar[int]
    solves: ClassVar[Literal["output", "head", "problem"]] = "output"
    merges_rows: ClassVar[bool] = True
    loss_kinds: ClassVar[tuple[type[Loss], ...] | None] = None
    corner_kinds: ClassVar[tuple[type[Loss], ...]] = ()
    smooths_losses: ClassVar[bool] = False
    penalty_kinds: ClassVar[tuple[type[Penalty], ...] | None] = None
    accepts_any_penalty: ClassVar[bool] = False
    needs: ClassVar[Literal["ridge", "elastic net"] | None] = None

    def refusal(self, problem: ConvexProblem) -> str | None:
        """Return what the problem lacks for this solver.

        Parameters
        ----------
        problem : ConvexProblem
            What would be solved.

        Returns
        -------
        str or None
            For example "a smooth loss"; None if the problem is accepted.
        """
        return self._penalty_refusal(problem) or next(
            filter(None, (self._loss_refusal(h.loss) for h in problem.heads)), None
        )

    def _loss_refusal(self, loss: Loss) -> str | None:
        if self.loss_kinds is not None:
            names = " or ".join(repr(kind.name) for kind in self.loss_kinds)
            return None if type(loss) in self.loss_kinds else f"the loss {names}"
        if self.smooths_losses:
            smooth = loss.smoothed(1.0)
            return (
                None
                if smooth.is_smooth and smooth.max_curvature < inf
                else "a loss of bounded curvature, when smoothed"
            )
        return None if loss.is_smooth or type(loss) in self.corner_kinds else "a smooth loss"

    def _penalty_refusal(self, problem: ConvexProblem) -> str | None:
        penalty = problem.penalty
        if self.accepts_any_penalty:
            return None
        if self.needs is not None and not problem.l2_strength:
            return "l2_strength above zero"
        if self.needs is not None and (self.needs == "ridge") != (problem.l1_strength == 0):
            return "l1_strength=0" if self.needs == "ridge" else "l1_strength above zero"
        if self.penalty_kinds is None:
            return None if penalty.has_l1_norm else "a penalty with the L1 norm"
        strengths = problem.l1_strength, problem.l2_strength
        simplest = {type(kind().simplest(problem.n_outputs, *strengths)) for kind in self.penalty_kinds}
        kinds = simplest | {*self.penalty_kinds}
        names = " or ".join(repr(kind.name) for kind in self.penalty_kinds)
        return None if type(penalty) in kinds else f"the penalty {names}"

    def is_fast_for(self, problem: ConvexProblem) -> bool:
        """Return whether ``solver="auto"`` should choose this solver for a problem that it accepts.

        Parameters
        ----------
        problem : ConvexProblem
            What would be solved.

        Returns
        -------
        bool
            True unless a solver knows better.
        """
        return True

    def prepare(self, problem: ConvexProblem) -> None:
        """Compute what all strengths of a path share.

        Parameters
        ----------
        problem : ConvexProblem
            The problem at any strength.
        """
        return

    @abstractmethod
    def solve(
        self,
        problem: ConvexProblem,
        coef: Tensor,
        intercept: Tensor,
        *,
        tolerance: float,
        max_iterations: int,
        deadline: float = inf,
        callback: Callback,
    ) -> SolverResult:
        """Minimise to a relative gap of ``tolerance``. What goes wrong in its arithmetic is a status, not an exception.

        Parameters
        ----------
        problem : ConvexProblem
            As much of a problem as the attribute ``solves`` says.
        coef : Tensor of shape (n_atoms, n_outputs)
            Coefficients to start from.
        intercept : Tensor of shape (n_outputs,)
            The intercept to start from.
        tolerance : float
            The relative gap to reach.
        max_iterations : int
            Iterations after which to give up.
        deadline : float
            What :func:`is_late` compares with, to return the best point so far with ``Status.TIME_LIMIT``.
        callback : callable
            Called as ``callback(primal, bound, n_active)`` after an iteration.

        Returns
        -------
        SolverResult
            The best point found.
        """


SOLVERS: Registry[Solver] = Registry("solver", Solver)
"""Solvers by name. ``solver="auto"`` chooses the first that accepts a problem and is fast for it.

Examples
--------
>>> from cvxsnn.convex import SOLVERS
>>> sorted(SOLVERS)
['active-set', 'admm', 'group-newton', 'interior-point', 'newton', 'newton-cg', 'newton-stream', 'proximal-gradient']
"""


def find_solver(name: Any) -> Solver:
    """Return the solver of that name."""
    if not isinstance(name, str) or name not in SOLVERS:
        known = ", ".join(map(repr, ("auto", *SOLVERS)))
        raise InvalidInputError(f"expected solver to be one of {known}, got {name!r}")
    return SOLVERS[name]


def choose_solver(problem: ConvexProblem, solver: str | Solver) -> Solver:
    """Return the solver asked for, if it accepts the problem, or the first that does and is fast for it."""
    losses = " + ".join(repr(head.loss.name) for head in problem.heads)
    if isinstance(solver, Solver):
        lacking = solver.refusal(problem)
        if lacking is not None:
            raise InvalidInputError(
                f"expected {lacking} for solver {solver.name!r}, got loss {losses} with penalty "
                f"{problem.penalty.name!r}: use solver='auto'"
            )
        return solver
    refusals = {}
    accepted = None
    for own in SOLVERS.values():
        refusals[own.name] = own.refusal(problem)
        if refusals[own.name] is None:
            accepted = accepted or own
            if own.is_fast_for(problem):
                return own
    if accepted is None:
        needs = "; ".join(f"{name!r} needs {lacking}" for name, lacking in refusals.items())
        raise InvalidInputError(
            f"expected a problem that some solver accepts, got loss {losses} with penalty {problem.penalty.name!r}: "
            f"{needs}"
        )
    return accepted


def is_late(deadline: float) -> bool:
    """Return whether ``time.perf_counter()`` is beyond a deadline."""
    return deadline < inf and time.perf_counter() > deadline


class Recorder:
    """Keeps the time and the history of a solve."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._stop = 0.0
        self._history: list[Progress] = []

    @property
    def seconds(self) -> float:
        """Time since the start, or from the start to the stop."""
        return (self._stop or time.perf_counter()) - self._start

    def stop(self) -> float:
        """Stop the clock, once, and return the time it shows."""
        self._stop = self._stop or time.perf_counter()
        return self.seconds

    @property
    def history(self) -> "tuple[Progress, ...]":
        """All iterations so far."""
        return tuple(self._history)

    def record(self, primal: float, bound: float, n_active: int) -> None:
        """Add an iteration."""
        self._history.append(Progress(self.seconds, (primal - bound) / max(primal, 1e-300), n_active))


@dataclass(frozen=True)
class Progress:
    """One iteration of a solve, as the solver reported it.

    Parameters
    ----------
    seconds : float
        Time since the start.
    relative_gap : float
        The gap as a share of the objective.
    n_active : int
        Coefficients that are not zero.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> problem = cs.ConvexProblem([[1, 0], [1, 1], [0, 1]], [2.0, 2.0, 0.0], loss="squared", l1_strength=0.1)
    >>> last = cs.solve(problem).history[-1]
    >>> last.n_active
    1
    """

    seconds: float
    relative_gap: float
    n_active: int


def check_dense(problem: ConvexProblem, purpose: str) -> None:
    """Refuse work that needs the whole matrix as numbers where that would not fit."""
    n_rows, n_atoms = problem.dictionary.shape
    needed = dense_bytes(n_rows, n_atoms)
    if needed > _DENSE_BUDGET:
        raise BudgetError(
            f"expected at most {_DENSE_BUDGET / 2**30:.0f} GiB for {purpose}, but {n_rows:,} distinct rows × "
            f"{n_atoms:,} atoms need {needed / 2**30:.1f} GiB: use loss='squared_hinge' with penalty='l1', which works "
            "in blocks, or fewer witnesses"
        )
    check_fits(DENSE_COPIES * needed, problem.dictionary.device, purpose)
