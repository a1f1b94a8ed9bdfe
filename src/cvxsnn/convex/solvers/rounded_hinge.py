"""The hinge made smooth, for solvers that need a gradient."""

from dataclasses import replace

from torch import Tensor

from ..losses import Hinge
from ..problem import ConvexProblem

NARROWEST = 1e-12
"""Width below which float64 cannot tell the rounded hinge from the hinge."""


class RoundedHinge(Hinge):
    """½ (z + √(z² + width²)) with z = 1 − yf: at most ``width / 2`` above the hinge, and smooth.

    Gradients are feasible dual points of the hinge itself.
    """

    is_smooth = True

    def __init__(self, width: float) -> None:
        self.width = width

    def value(self, scores: Tensor, targets: Tensor) -> Tensor:
        """½ (z + √(z² + width²))."""
        short = 1 - targets * scores
        return 0.5 * (short + self.rounded(short)).sum(1)

    def gradient(self, scores: Tensor, targets: Tensor) -> Tensor:
        """−½ y (1 + z / √(z² + width²))."""
        short = 1 - targets * scores
        return -0.5 * targets * (1 + short / self.rounded(short))

    def curvature(self, scores: Tensor, targets: Tensor) -> Tensor:
        """½ width² / (z² + width²)^{3/2}."""
        return 0.5 * self.width**2 / self.rounded(1 - targets * scores) ** 3

    def rounded(self, short: Tensor) -> Tensor:
        """√(z² + width²)."""
        return (short.square() + self.width**2).sqrt()


def has_hinge(problem: ConvexProblem) -> bool:
    """Whether some loss of the problem is not smooth."""
    return any(not head.loss.is_smooth for head in problem.heads)


def smoothed(problem: ConvexProblem, width: float) -> ConvexProblem:
    """The problem with every hinge rounded."""
    return problem.with_heads(
        tuple(head if head.loss.is_smooth else replace(head, loss=RoundedHinge(width)) for head in problem.heads)
    )
