"""The solvers of the convex program, by name."""

from ...core.checks import Registry
from .active_set import ActiveSet
from .base import Progress, Solver, SolverResult, Status
from .group_newton import GroupNewton
from .interior_point import InteriorPoint
from .newton import Newton
from .proximal_gradient import ProximalGradient

SOLVERS: Registry[Solver] = Registry("solver")
"""Solvers by name. ``solver="auto"`` chooses the first that accepts a problem and is fast for it."""

for _solver in (ActiveSet(), Newton(), InteriorPoint(), GroupNewton(), ProximalGradient()):
    SOLVERS.register(_solver.name, _solver)

__all__ = [
    "SOLVERS",
    "ActiveSet",
    "GroupNewton",
    "InteriorPoint",
    "Newton",
    "Progress",
    "ProximalGradient",
    "Solver",
    "SolverResult",
    "Status",
]
