"""The convex program: problems, certificates, solvers."""

from .certificate import Certificate, certify, certify_with_bound
from .folds import cross_validate
from .leave_one_out import leave_one_out
from .losses import LOSSES, Loss
from .objective import Objective
from .path import RegularizationPath, solve_path
from .penalties import PENALTIES, Penalty
from .problem import ConvexProblem
from .solution import Solution
from .solve import solve
from .solvers import SOLVERS, Progress, Solver, SolverResult, Status
from .statistics import (
    SquaredStatistics,
    StatisticsProblem,
    StatisticsSolution,
    certify_statistics,
    gather_statistics,
    solve_statistics,
    solve_statistics_path,
)
from .validation import Validation

__all__ = [
    "LOSSES",
    "PENALTIES",
    "SOLVERS",
    "Certificate",
    "ConvexProblem",
    "Loss",
    "Objective",
    "Penalty",
    "Progress",
    "RegularizationPath",
    "Solution",
    "Solver",
    "SolverResult",
    "SquaredStatistics",
    "StatisticsProblem",
    "StatisticsSolution",
    "Status",
    "Validation",
    "certify",
    "certify_statistics",
    "certify_with_bound",
    "cross_validate",
    "gather_statistics",
    "leave_one_out",
    "solve",
    "solve_path",
    "solve_statistics",
    "solve_statistics_path",
]
