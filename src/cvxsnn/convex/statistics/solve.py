"""Solving from sums over the rows: the active-set engine, and the certificate that those sums allow."""

import time
from collections.abc import Sequence
from math import inf

import numpy as np
import torch

from ...core.checks import check_positive_int
from ...core.errors import InvalidInputError
from ..solve import deadline_after, report_gap
from ..solvers.active_set import minimise_quadratic
from ..solvers.base import Status, is_late
from .certificate import certify_statistics
from .problem import StatisticsProblem
from .solution import StatisticsSolution
from .sums import SquaredStatistics


def solve_statistics(
    statistics: SquaredStatistics,
    l1_strength: float,
    tol: float = 1e-6,
    *,
    l2_strength: float = 0.0,
    intercept: bool = False,
    max_seconds: float = inf,
    strict: bool = False,
) -> StatisticsSolution:
    """Solve the squared-loss program to a certified relative gap of ``tol``, whatever the number of rows.

    Parameters
    ----------
    statistics : SquaredStatistics
        The sums over the rows.
    l1_strength : float
        The number that multiplies the norm. It may be zero, which is ridge, if ``l2_strength`` is not.
    tol : float
        The relative gap of the certificate to reach, which includes what rounding may have done to the sums.
    l2_strength : float
        The number that multiplies half the sum of squares.
    intercept : bool
        Whether to add an unpenalised constant to the scores.
    max_seconds : float
        Time after which the solver gives up, as for :func:`cvxsnn.solve`.
    strict : bool
        Whether to raise :class:`ConvergenceError` instead of warning when the tolerance is not reached.

    Returns
    -------
    StatisticsSolution
        Coefficients with their certificate.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> batches = [(inputs[:20], inputs[:20, -1, 0]), (inputs[20:], inputs[20:, -1, 0])]
    >>> statistics = cs.convex.gather_statistics(cs.gaussian_witnesses(2, (16,), seed=0), batches)
    >>> solution = cs.convex.solve_statistics(statistics, l1_strength=0.01)
    >>> solution.certificate.relative_gap <= 1e-6
    True
    """
    problem = StatisticsProblem(statistics, l1_strength, intercept, l2_strength)
    (solution,) = _solve_falling(problem, [l1_strength], tol, deadline_after(max_seconds))
    report_gap(solution, tol, strict, stacklevel=3)
    return solution


def solve_statistics_path(
    statistics: SquaredStatistics,
    strengths: Sequence[float] | None = None,
    tol: float = 1e-6,
    *,
    l2_strength: float = 0.0,
    intercept: bool = False,
    n_strengths: int = 50,
    smallest_ratio: float = 1e-3,
) -> tuple[StatisticsSolution, ...]:
    """Solve at many strengths, from the largest to the smallest, each started from the one before.

    Parameters
    ----------
    statistics : SquaredStatistics
        The sums over the rows.
    strengths : sequence of float, optional
        The strengths. By default ``n_strengths`` in geometric progression from the strength at which all coefficients
        vanish down to ``smallest_ratio`` times that.
    tol : float
        The relative gap of each certificate to reach.
    l2_strength : float
        The number that multiplies half the sum of squares, at every strength.
    intercept : bool
        Whether to add an unpenalised constant to the scores.
    n_strengths : int
        The number of strengths, where none are given.
    smallest_ratio : float
        The smallest strength relative to the largest, where none are given.

    Returns
    -------
    tuple of StatisticsSolution
        One per strength; ``max(path, key=score)`` is the one with the highest score; ties go to the larger strength.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> batches = [(inputs[:20], inputs[:20, -1, 0]), (inputs[20:], inputs[20:, -1, 0])]
    >>> statistics = cs.convex.gather_statistics(cs.gaussian_witnesses(2, (16,), seed=0), batches)
    >>> path = cs.convex.solve_statistics_path(statistics, [0.1, 0.01])
    >>> [solution.certificate.relative_gap <= 1e-6 for solution in path]
    [True, True]
    """
    if strengths is None:
        check_positive_int("n_strengths", n_strengths)
        if not 0 < smallest_ratio < 1:
            raise InvalidInputError(f"expected smallest_ratio between 0 and 1, got {smallest_ratio!r}")
        _, linear = StatisticsProblem(statistics, 1.0, intercept).quadratic()
        largest = float(linear.abs().max()) or 1.0
        strengths = np.geomspace(largest, largest * smallest_ratio, n_strengths).tolist()
    elif len(strengths) == 0:
        raise InvalidInputError("expected at least one strength, got none")
    falling = sorted(strengths, reverse=True)
    path = _solve_falling(StatisticsProblem(statistics, falling[0], intercept, l2_strength), falling, tol)
    for solution in path:
        report_gap(solution, tol, strict=False, stacklevel=3)
    return path


def _solve_falling(
    problem: StatisticsProblem, strengths: Sequence[float], tol: float, deadline: float = inf
) -> tuple[StatisticsSolution, ...]:
    if not 0 < tol < 1:
        raise InvalidInputError(f"expected tol between 0 and 1, got {tol!r}")
    gram, linear = problem.quadratic()
    gram.diagonal().add_(problem.l2_strength)
    coef = torch.zeros_like(linear)
    solutions = []
    for strength in strengths:
        begin = time.perf_counter()
        problem = problem.with_strength(strength)
        coef = minimise_quadratic(gram, linear, strength, problem.l2_strength, coef, deadline)
        status = Status.TIME_LIMIT if is_late(deadline) else Status.STALLED
        constant = problem.best_intercept(coef)
        certificate, scale, correlation = certify_statistics(problem, coef, constant)
        solutions.append(
            StatisticsSolution(
                problem=problem,
                coef=coef,
                intercept=constant,
                dual_scale=scale,
                dual_correlation=correlation,
                status=Status.CONVERGED if certificate.relative_gap <= tol else status,
                certificate=certificate,
                solver="active-set",
                seconds=time.perf_counter() - begin,
            )
        )
    return tuple(solutions)
