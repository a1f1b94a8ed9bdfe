"""Regularisation paths: one certified solution for each of many strengths."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..core.checks import check_positive_int
from ..core.errors import InvalidInputError
from ..core.memory import dense_bytes
from .problem import ConvexProblem
from .solution import Solution
from .solve import Run, Solver, finish, judge, minimise
from .solvers.active_set import prepare_path

_CERTIFIED_TOGETHER, _CERTIFIED_BYTES = 64, 2**29
"""Most solutions whose certificates share one pass over the dictionary, and the room for their scores."""


@dataclass(frozen=True, eq=False)
class RegularizationPath:
    """Solutions at falling strengths.

    Attributes
    ----------
    solutions : tuple of Solution, each with its certificate
    seconds : float, for all of them
    """

    solutions: tuple[Solution, ...]
    seconds: float

    @property
    def strengths(self) -> Tensor:
        """The strengths, falling."""
        return torch.tensor([solution.problem.l1_strength for solution in self.solutions], dtype=torch.float64)

    def __len__(self) -> int:
        """Number of strengths."""
        return len(self.solutions)

    def __iter__(self) -> Iterator[Solution]:
        """From the largest strength to the smallest."""
        return iter(self.solutions)

    def __getitem__(self, index: int) -> Solution:
        """The solution at one strength."""
        return self.solutions[index]

    def select(self, score: Callable[[Solution], float]) -> Solution:
        """The solution with the highest score, for example accuracy on validation data; ties go to the sparser one."""
        scores = [score(solution) for solution in self.solutions]
        return self.solutions[int(np.argmax(scores))]


def solve_path(
    problem: ConvexProblem,
    strengths: Sequence[float] | None = None,
    *,
    n_strengths: int = 50,
    smallest_ratio: float = 1e-3,
    tol: float = 1e-6,
    solver: Solver = "auto",
) -> RegularizationPath:
    """Solve at many strengths, each started from the one before where the solver can make use of it.

    Parameters
    ----------
    problem : ConvexProblem
        Its own strength is not used.
    strengths : sequence of float, optional
        By default ``n_strengths`` in geometric progression from the strength at which all coefficients vanish down to
        ``smallest_ratio`` times that.
    """
    begin = time.perf_counter()
    if strengths is None:
        check_positive_int("n_strengths", n_strengths)
        if not 0 < smallest_ratio < 1:
            raise InvalidInputError(f"expected smallest_ratio between 0 and 1, got {smallest_ratio!r}")
        largest = problem.critical_strength or 1.0
        strengths = np.geomspace(largest, largest * smallest_ratio, n_strengths).tolist()
    elif len(strengths) == 0:
        raise InvalidInputError("expected at least one strength, got none")
    prepare_path(problem)
    runs: list[Run] = []
    for strength in sorted(strengths, reverse=True):
        runs.append(minimise(problem.with_strength(strength), tol, solver, start=runs[-1] if runs else None))
        runs[-1].recorder.stop()
    solutions: list[Solution] = []
    scores = dense_bytes(problem.dictionary.n_rows, problem.n_outputs)
    n_together = max(1, min(_CERTIFIED_TOGETHER, _CERTIFIED_BYTES // scores))
    for first in range(0, len(runs), n_together):
        solutions += finish(runs[first : first + n_together], tol)
    for solution in solutions:
        judge(solution, tol, strict=False, stacklevel=3)
    return RegularizationPath(tuple(solutions), time.perf_counter() - begin)
