"""The contract of a solver: what it accepts, what it is given, what it returns."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Literal

from torch import Tensor

from ...core.errors import BudgetError
from ...core.memory import check_fits, dense_bytes
from ..problem import ConvexProblem

Callback = Callable[[float, float, int], None]
"""Called as ``callback(primal, bound, n_active)`` after an iteration."""

_DENSE_BUDGET = 4 * 2**30
"""Bytes for a matrix of float64 that a solver may hold."""

DENSE_COPIES = 4
"""Matrices of rows × atoms alive in an interior-point step: columns, margins, margins weighted, and their transpose."""


class Status(Enum):
    """How a solve ended."""

    CONVERGED = "the certified relative gap is within the tolerance"
    ITERATION_LIMIT = "the solver used up its iterations"
    STALLED = "the solver could not improve further in float64"
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
        How the solver thinks that it ended. Only a certificate decides.
    dual : Tensor of shape (n_rows, n_outputs), optional
        A guess of the dual point λ. The gradient at the coefficients is used when there is none.
    """

    coef: Tensor
    intercept: Tensor
    status: Status
    dual: Tensor | None = None


class Solver(ABC):
    """The contract of a solver.

    Attributes
    ----------
    name : str
        The name by which :func:`cvxsnn.solve` asks for it.
    solves : "output", "head" or "problem"
        What it is given at once where the penalty is separable: one output (all of a loss that couples them), one head,
        or the whole problem.
    merges_rows : bool
        Whether it is given the reduced problem, with equal rows merged.
    max_iterations : int
        Iterations after which it gives up, unless the caller says otherwise.
    """

    name: ClassVar[str]
    solves: ClassVar[Literal["output", "head", "problem"]] = "output"
    merges_rows: ClassVar[bool] = True
    max_iterations: ClassVar[int]

    @abstractmethod
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
        callback: Callback,
    ) -> SolverResult:
        """Minimise to a relative gap of ``tolerance``.

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
        callback : callable
            Called as ``callback(primal, bound, n_active)`` after an iteration.

        Returns
        -------
        SolverResult
            The best point found.
        """


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
        """All moments so far."""
        return tuple(self._history)

    def record(self, primal: float, bound: float, n_active: int) -> None:
        """Add a moment."""
        self._history.append(Progress(self.seconds, (primal - bound) / max(primal, 1e-300), n_active))


@dataclass(frozen=True)
class Progress:
    """One moment of a solve, as the solver saw it.

    Parameters
    ----------
    seconds : float
        Time since the start.
    relative_gap : float
        The gap as a share of the objective.
    n_active : int
        Coefficients that are not zero.
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
