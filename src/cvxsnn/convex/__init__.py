"""The convex program: problems, certificates, solvers."""

from .certificate import Certificate, CertificateError, certify, certify_with_bound
from .losses import Loss, Softmax
from .path import Path, solve_path
from .problem import ConvexProblem
from .solution import ConvergenceError, ConvergenceWarning, Progress, Solution, Status
from .solve import solve

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
    "Status",
    "certify",
    "certify_with_bound",
    "solve",
    "solve_path",
]
