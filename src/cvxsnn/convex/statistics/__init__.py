"""The squared-loss program, from sums over its rows."""

from .certificate import certify_statistics
from .problem import StatisticsProblem
from .solution import StatisticsSolution
from .solve import solve_statistics, solve_statistics_path
from .sums import SquaredStatistics, gather_statistics

__all__ = [
    "SquaredStatistics",
    "StatisticsProblem",
    "StatisticsSolution",
    "certify_statistics",
    "gather_statistics",
    "solve_statistics",
    "solve_statistics_path",
]
