"""The solvers of the convex program; ``choice.py`` decides which one runs."""

from .base import Budget, Progress, Solver, SolverResult, Status
from .group import Group
from .hinge import InteriorPoint
from .l1 import ADMM, ActiveSet
from .newton import Newton
from .reference import Reference
from .ridge import DirectRidge, RidgeCG

__all__ = [
    "ADMM",
    "ActiveSet",
    "Budget",
    "DirectRidge",
    "Group",
    "InteriorPoint",
    "Newton",
    "Progress",
    "Reference",
    "RidgeCG",
    "Solver",
    "SolverResult",
    "Status",
]
