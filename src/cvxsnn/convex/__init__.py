"""The convex program: problems, certificates, solvers."""

from .certificate import Certificate, certify, certify_with_bound
from .choice import SOLVERS
from .left_out import Validation, leave_one_out
from .losses import LOSSES, Loss
from .objective import Objective
from .path import RegularizationPath, solve_path
from .penalties import PENALTIES, Penalty
from .problem import ConvexProblem
from .solvers import Budget, Progress, Solver, SolverResult, Status
from .solving import Solution, solve

__all__ = [
    "LOSSES",
    "PENALTIES",
    "SOLVERS",
    "Budget",
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
    "Status",
    "Validation",
    "certify",
    "certify_with_bound",
    "leave_one_out",
    "solve",
    "solve_path",
]
