"""Paths: solutions at many strengths, and the choice of one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..core.checks import check_choice, check_positive_int
from ..core.errors import InvalidInputError
from .problem import ConvexProblem
from .solvers.base import Solver
from .solving import Run, Solution, deadline_after, finish, minimise, prepare, report_gap

if TYPE_CHECKING:
    from .left_out import Validation

_ROUNDING = 1e-12
"""Relative differences of sums over the rows that are only rounding."""


def solve_path(
    problem: ConvexProblem,
    strengths: Sequence[float] | None = None,
    *,
    l2_strengths: Sequence[float] | None = None,
    n_strengths: int = 50,
    smallest_ratio: float = 1e-3,
    tol: float = 1e-6,
    solver: str | Solver = "auto",
    max_seconds: float = inf,
) -> RegularizationPath:
    """Solve at many strengths; solvers that can be warm-started begin at the previous solution.

    With ``l2_strengths`` the path has two dimensions, and every pair of strengths is solved. Gram matrices and
    other results that depend on the data alone are shared.

    Parameters
    ----------
    problem : ConvexProblem
        The program; its own strength is not used.
    strengths : sequence of float, optional
        The strengths of the norm. By default ``n_strengths`` in geometric progression from the strength at which all
        coefficients vanish down to ``smallest_ratio`` times that. For the elastic nets zero may be among them.
    l2_strengths : sequence of float, optional
        For the elastic nets, the strengths of the quadratic; each is combined with each of ``strengths``. By default
        that of the problem.
    n_strengths : int
        The number of strengths, if ``strengths`` is not given.
    smallest_ratio : float
        The smallest strength relative to the largest, if ``strengths`` is not given.
    tol : float
        The relative gap of each certificate to reach.
    solver : str or Solver
        As for :func:`cvxsnn.solve`.
    max_seconds : float
        Time for all strengths. When it is up, each remaining strength gets the solution of the previous one, with a
        certificate of its own.

    Returns
    -------
    RegularizationPath
        One certified solution for each strength, or pair of strengths.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> problem = cs.ConvexProblem([[1, 0], [1, 1], [0, 1]], [2.0, 2.0, 0.0], loss="squared")
    >>> path = cs.solve_path(problem, n_strengths=3, smallest_ratio=0.01)
    >>> path.strengths.round(decimals=4).tolist()
    [1.3333, 0.1333, 0.0133]
    """
    begin, deadline = time.perf_counter(), deadline_after(max_seconds)
    if strengths is None:
        check_positive_int("n_strengths", n_strengths)
        if not 0 < smallest_ratio < 1:
            raise InvalidInputError(f"expected smallest_ratio between 0 and 1, got {smallest_ratio!r}")
        # Zero if no atom explains anything: all coefficients vanish at any strength.
        largest = problem.critical_strength or 1.0
        strengths = np.geomspace(largest, largest * smallest_ratio, n_strengths).tolist()
    elif len(strengths) == 0:
        raise InvalidInputError("expected at least one strength, got none")
    if l2_strengths is not None and len(l2_strengths) == 0:
        raise InvalidInputError("expected at least one of l2_strengths, got none")
    prepare(problem, solver)
    runs: list[Run] = []
    for l2_strength in sorted([problem.l2_strength] if l2_strengths is None else l2_strengths, reverse=True):
        start: Run | None = None
        # Downwards: an optimum at a larger strength is a better start than zero, and supports grow from small ones.
        for strength in sorted(strengths, reverse=True):
            at_strength = problem.with_strength(strength, l2_strength)
            start = minimise(at_strength, tol, solver, start=start, deadline=deadline)
            runs.append(start)
    solutions: list[Solution] = []
    # Up to 64 certificates share one pass over the dictionary, if 512 MiB hold their scores.
    n_together = max(1, min(64, 2**26 // (problem.dictionary.n_rows * problem.n_outputs)))
    for first in range(0, len(runs), n_together):
        solutions += finish(runs[first : first + n_together], tol)
    report_gap(max(solutions, key=lambda solution: solution.certificate.relative_gap), tol, strict=False, stacklevel=3)
    return RegularizationPath(tuple(solutions), time.perf_counter() - begin)


@dataclass(frozen=True, eq=False)
class RegularizationPath:
    """Solutions at falling strengths; with several ``l2_strengths``, those of the largest one first.

    Parameters
    ----------
    solutions : tuple of Solution
        One per strength, or pair of strengths, each with its certificate.
    seconds : float
        The time for all of them.
    validation : Validation, optional
        Errors of the solutions on rows left out, from :func:`cvxsnn.convex.leave_one_out`.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> problem = cs.ConvexProblem([[1, 0], [1, 1], [0, 1]], [2.0, 2.0, 0.0], loss="squared")
    >>> path = cs.solve_path(problem, [1.0, 0.1])
    >>> [len(solution.support) for solution in path]
    [1, 1]
    """

    solutions: tuple[Solution, ...]
    seconds: float
    validation: Validation | None = None

    @property
    def strengths(self) -> Tensor:
        """The ``l1_strength`` of each solution."""
        return torch.tensor([solution.problem.l1_strength for solution in self.solutions], dtype=torch.float64)

    @property
    def l2_strengths(self) -> Tensor:
        """The ``l2_strength`` of each solution."""
        return torch.tensor([solution.problem.l2_strength for solution in self.solutions], dtype=torch.float64)

    @property
    def n_neurons(self) -> Tensor:
        """Number of active atoms of each solution."""
        return torch.tensor([len(solution.support) for solution in self.solutions])

    def __len__(self) -> int:
        """Return the number of strengths."""
        return len(self.solutions)

    def __iter__(self) -> Iterator[Solution]:
        """Go from the largest strength to the smallest."""
        return iter(self.solutions)

    def __getitem__(self, index: int) -> Solution:
        """Return the solution at one strength."""
        return self.solutions[index]

    def select(
        self,
        by: Callable[[Solution], Any] | Literal["loss", "accuracy"] = "loss",
        *,
        n_neurons: int | None = None,
        one_standard_error: bool = False,
    ) -> Solution:
        """Return the best solution, by its ``validation`` or by a score of your own.

        Parameters
        ----------
        by : "loss", "accuracy" or callable
            The criterion: the validation's loss or accuracy; or a function that accepts a solution and returns a
            number, or anything else that can be compared. The highest is best.
        n_neurons : int, optional
            The most active atoms that the solution may have.
        one_standard_error : bool
            Whether to return, instead of the best, the solution with the fewest active atoms among those that are
            within one standard error of the best. It needs a validation.

        Returns
        -------
        Solution
            The best one; of equal ones the one with fewer active atoms, then with the larger strengths.
        """
        sizes = self.n_neurons.tolist()
        allowed = [index for index, size in enumerate(sizes) if n_neurons is None or size <= n_neurons]
        if not allowed:
            raise InvalidInputError(
                f"expected a solution with at most {n_neurons} active atoms, but the sparsest of the path has "
                f"{min(sizes)}: solve at a larger l1_strength"
            )
        if callable(by):
            if one_standard_error:
                raise InvalidInputError("expected by='loss' or 'accuracy' for one_standard_error, got a function")
            scores: list[Any] = [by(solution) for solution in self.solutions]
            lowest = max(scores[index] for index in allowed)
        else:
            check_choice("by", by, ("loss", "accuracy"))
            if self.validation is None or (by == "accuracy" and self.validation.accuracy is None):
                raise InvalidInputError(
                    f"expected a path with the {by} on rows left out, got one without: use leave_one_out "
                    "first, or pass a function"
                )
            means = self.validation.mean(by)
            scores = (means if by == "accuracy" else -means).tolist()
            best = max(allowed, key=scores.__getitem__)
            slack = float(self.validation.standard_error(by)[best]) if one_standard_error else 0.0
            lowest = scores[best] - slack - _ROUNDING * abs(scores[best])
        good = [index for index in allowed if scores[index] >= lowest]

        def rank(index: int) -> tuple[int, float, float]:
            problem = self.solutions[index].problem
            return sizes[index], -problem.l1_strength, -problem.l2_strength

        return self.solutions[min(good, key=rank)]
