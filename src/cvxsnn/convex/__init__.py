"""The convex program: problems, certificates, solvers."""

from .certificate import Certificate, CertificateError, certify
from .losses import Loss, Softmax
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
    "Progress",
    "Softmax",
    "Solution",
    "Status",
    "certify",
    "solve",
]
