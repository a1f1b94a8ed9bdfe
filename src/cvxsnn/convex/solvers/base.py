"""The contract of a solver: its arguments and its result. ``choice.py`` decides which solver runs."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import ClassVar, Literal

from torch import Tensor

from ...core.errors import BudgetError
from ...core.formatting import plural
from ...core.memory import check_fits, dense_bytes
from ..problem import ConvexProblem

DENSE_COPIES = 4
"""Matrices of float64 as large as the columns that are alive in a step of a solver that holds them."""

NARROWEST = 1e-12
"""Width below which float64 cannot distinguish a rounded corner from the corner."""


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
    ROUNDED = "target variation is below float64 resolution; subtract the mean"
    STOPPED = "it was stopped before the end"


@dataclass(frozen=True, eq=False)
class SolverResult:
    """The result of a solver, before it is certified.

    Parameters
    ----------
    coef : Tensor of shape (n_atoms, n_outputs)
        The coefficients.
    intercept : Tensor of shape (n_outputs,)
        The intercept, zero for a problem without one.
    status : Status
        How the solver ended in its own judgement. Only a certificate decides.
    dual : Tensor of shape (n_rows, n_outputs), optional
        A guess of the dual point λ. By default the gradient at the coefficients is used.

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


def _ignore(primal: float, bound: float, n_active: int) -> None:
    """Record nothing.

    Parameters
    ----------
    primal : float
        The objective.
    bound : float
        The lower bound.
    n_active : int
        The number of coefficients that are not zero.
    """


@dataclass(frozen=True)
class Budget:
    """The limits of a solve, and a function to report its progress.

    Parameters
    ----------
    tolerance : float
        The relative gap to reach.
    max_iterations : int
        Iterations after which to give up.
    deadline : float
        Value of ``time.perf_counter()`` after which to give up.
    record : callable
        Called as ``record(primal, bound, n_active)`` after an iteration.

    Examples
    --------
    >>> from cvxsnn.convex import Budget
    >>> Budget(tolerance=1e-6, max_iterations=100).is_late
    False
    """

    tolerance: float
    max_iterations: int
    deadline: float = inf
    record: Callable[[float, float, int], None] = _ignore

    @property
    def is_late(self) -> bool:
        """Whether the time is up."""
        return is_late(self.deadline)


class Solver(ABC):
    """The contract of a solver.

    Attributes
    ----------
    name : str
        The name in ``solution.solver``.
    max_iterations : int
        Default number of iterations after which it gives up.
    scope : "output", "head" or "problem"
        How much of a problem it is given at once if the penalty is separable: one output (all outputs of a loss that
        couples them), one head, or the whole problem.
    merges_rows : bool
        Whether equal rows are merged first.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> problem = cs.ConvexProblem([[1, 0], [1, 1], [0, 1]], [2.0, 2.0, 0.0], loss="squared", l1_strength=0.1)
    >>> cs.solve(problem, solver=cs.convex.solvers.Newton()).solver
    'l1'
    """

    name: ClassVar[str]
    max_iterations: ClassVar[int]
    scope: ClassVar[Literal["output", "head", "problem"]] = "problem"
    merges_rows: bool = True

    def prepare(self, problem: ConvexProblem) -> None:
        """Compute results that all strengths of a path share.

        Parameters
        ----------
        problem : ConvexProblem
            The problem at any strength.
        """
        return

    @abstractmethod
    def solve(self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, budget: Budget) -> SolverResult:
        """Minimise to a relative gap of ``budget.tolerance``. Numerical trouble is a status, not an exception.

        Parameters
        ----------
        problem : ConvexProblem
            One output, one head or all of them, according to ``scope``.
        coef : Tensor of shape (n_atoms, n_outputs)
            Coefficients to start from.
        intercept : Tensor of shape (n_outputs,)
            The intercept to start from.
        budget : Budget
            When to stop.

        Returns
        -------
        SolverResult
            The best point found.
        """


def is_late(deadline: float) -> bool:
    """Return whether ``time.perf_counter()`` is beyond a deadline."""
    return deadline < inf and time.perf_counter() > deadline


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
        Number of nonzero coefficients.

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
    """Refuse work that needs the whole matrix as numbers if it does not fit into 4 GiB and the memory."""
    n_rows, n_atoms = problem.dictionary.shape
    gib = dense_bytes(n_rows, n_atoms) / 2**30
    if gib > 4:
        raise BudgetError(
            f"expected at most 4 GiB for {purpose}, but {plural(n_rows, 'distinct row')} × {plural(n_atoms, 'atom')} "
            f"need {gib:.1f} "
            "GiB: use loss='squared_hinge' with penalty='l1', which works in blocks, or fewer witnesses"
        )
    check_fits(DENSE_COPIES * dense_bytes(n_rows, n_atoms), problem.dictionary.device, purpose)
