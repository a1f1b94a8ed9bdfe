"""The solvers of the convex program, by name."""

from .active_set import ActiveSet
from .admm import ADMM
from .base import SOLVERS, Progress, Solver, SolverResult, Status
from .group_newton import GroupNewton
from .interior_point import InteriorPoint
from .newton import Newton
from .newton_cg import NewtonCG
from .newton_stream import NewtonStream
from .proximal_gradient import ProximalGradient

for _solver in (
    ActiveSet(),
    NewtonStream(),
    NewtonCG(),
    ADMM(),
    Newton(),
    InteriorPoint(),
    GroupNewton(),
    ProximalGradient(),
):
    SOLVERS.register(_solver.name, _solver)

__all__ = [
    "ADMM",
    "SOLVERS",
    "ActiveSet",
    "GroupNewton",
    "InteriorPoint",
    "Newton",
    "NewtonCG",
    "NewtonStream",
    "Progress",
    "ProximalGradient",
    "Solver",
    "SolverResult",
    "Status",
]
