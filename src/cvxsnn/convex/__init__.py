"""The convex program: problems, certificates, solvers."""

from .certificate import Certificate, CertificateError, certify, certify_with_bound
from .losses import Loss, Softmax
from .path import Path, solve_path
from .problem import ConvexProblem
from .solution import ConvergenceError, ConvergenceWarning, Progress, Solution, Status
from .solve import solve
from .statistics.certificate import certify_statistics
from .statistics.problem import StatisticsProblem
from .statistics.solution import StatisticsSolution
from .statistics.solve import solve_statistics, solve_statistics_path
from .statistics.sums import SquaredStatistics, gather_statistics

__all__ = [
    "Certificate",
    "CertificateError",
    "ConvergenceError",
    "ConvergenceWarning",
    "ConvexProblem",
    "Loss",
    "Path",
    "Progress",
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
