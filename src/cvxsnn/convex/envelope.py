"""The hinge made smooth, for solvers that need a gradient."""

from dataclasses import replace

from torch import Tensor

from .losses import Hinge
from .problem import ConvexProblem

NARROWEST = 1e-12
"""Width below which float64 cannot tell the envelope from the hinge."""


class HingeEnvelope(Hinge):
    """The hinge with its corner rounded over a margin of ``width``: its Moreau envelope, at most ``width / 2`` lower.

    Gradients are feasible dual points of the hinge itself.
    """

    is_smooth = True

    def __init__(self, width: float) -> None:
        self.width = width

    def value(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Quadratic near the corner, linear beyond."""
        short = 1 - targets * scores
        share = (short / self.width).clamp(0, 1)
        return (share * short - 0.5 * self.width * share.square()).sum(1)

    def gradient(self, scores: Tensor, targets: Tensor) -> Tensor:
        """−y times the share of the way from the corner."""
        return -targets * ((1 - targets * scores) / self.width).clamp(0, 1)

    def curvature(self, scores: Tensor, targets: Tensor) -> Tensor:
        """One over the width near the corner."""
        short = 1 - targets * scores
        return ((short > 0) & (short < self.width)).to(scores) / self.width


def has_hinge(problem: ConvexProblem) -> bool:
    """Whether some loss of the problem is not smooth."""
    return any(not head.loss.is_smooth for head in problem.heads)


def smoothed(problem: ConvexProblem, width: float) -> ConvexProblem:
    """The problem with every hinge replaced by its envelope."""
    return problem.with_heads(
        tuple(head if head.loss.is_smooth else replace(head, loss=HingeEnvelope(width)) for head in problem.heads)
    )
