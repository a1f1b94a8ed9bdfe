"""The convex program: problems, certificates, solvers."""

from .certificate import Certificate, certify, certify_with_bound
from .losses import Loss, Softmax
from .objective import Objective
from .path import RegularizationPath, solve_path
from .problem import ConvexProblem
from .solution import Progress, Solution, Status
from .solve import solve
from .statistics import (
    SquaredStatistics,
    StatisticsProblem,
    StatisticsSolution,
    certify_statistics,
    gather_statistics,
    solve_statistics,
    solve_statistics_path,
)

__all__ = [
    "Certificate",
    "ConvexProblem",
    "Loss",
    "Objective",
    "Progress",
    "RegularizationPath",
    "Softmax",
    "Solution",
    "SquaredStatistics",
    "StatisticsProblem",
    "StatisticsSolution",
    "Status",
    "certify",
    "certify_statistics",
    "certify_with_bound",
    "gather_statistics",
    "solve",
    "solve_path",
    "solve_statistics",
    "solve_statistics_path",
]
