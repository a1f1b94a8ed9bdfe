"""Problems whose losses are made smooth, for solvers that need a gradient."""

from dataclasses import replace

from ..problem import ConvexProblem

NARROWEST = 1e-12
"""Width below which float64 cannot tell a rounded corner from the corner."""


def is_smooth(problem: ConvexProblem) -> bool:
    """Return whether every loss of the problem is smooth."""
    return all(head.loss.is_smooth for head in problem.heads)


def smoothed(problem: ConvexProblem, width: float) -> ConvexProblem:
    """Return the problem with every corner rounded over a width."""
    return problem.with_heads(tuple(replace(head, loss=head.loss.smoothed(width)) for head in problem.heads))
