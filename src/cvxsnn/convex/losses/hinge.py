"""The hinge, and a smooth loss close to it."""

import torch
from torch import Tensor

from .base import INFEASIBLE, Loss
from .margin import MarginLoss


class Hinge(MarginLoss):
    """max(0, 1 − yf)."""

    name = "hinge"
    is_smooth = False

    def value(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return max(0, 1 − yf)."""
        return (1 - targets * scores).clamp_min(0).sum(1)

    def gradient(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return −y where the margin is below one, else zero: a subgradient."""
        return torch.where(targets * scores < 1, -targets, torch.zeros_like(scores))

    def conjugate(self, dual: Tensor, targets: Tensor) -> Tensor:
        """Return the product uy, for −1 ≤ uy ≤ 0."""
        product = dual * targets
        outside = (product > INFEASIBLE) | (product < -1 - INFEASIBLE)
        return product.masked_fill(outside, torch.inf).sum(1)

    def curvature(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return zeros: the loss is piecewise linear."""
        return torch.zeros_like(scores)

    def null_intercept(self, targets: Tensor, row_weight: Tensor) -> Tensor:
        """Return the label of the majority."""
        return torch.where(row_weight @ targets >= 0, 1.0, -1.0).to(targets)

    def smoothed(self, width: float) -> Loss:
        """Return the hinge with a rounded corner."""
        return RoundedHinge(width)

    def null_dual(self, targets: Tensor, row_weight: Tensor) -> Tensor:
        """Return full duals for the minority and an equal share for the majority, whose margin is exactly one."""
        return self.balance(-targets, targets, row_weight)


class RoundedHinge(Hinge):
    """½ (z + √(z² + width²)) with z = 1 − yf: at most ``width / 2`` above the hinge, and smooth.

    Gradients are feasible dual points of the hinge itself.
    """

    is_smooth = True
    name = "rounded hinge"

    def __init__(self, width: float) -> None:
        self.width, self.max_curvature = width, 0.5 / width

    def value(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return ½ (z + √(z² + width²))."""
        short = 1 - targets * scores
        return 0.5 * (short + self.rounded(short)).sum(1)

    def gradient(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return −½ y (1 + z / √(z² + width²))."""
        short = 1 - targets * scores
        return -0.5 * targets * (1 + short / self.rounded(short))

    def curvature(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return ½ width² / (z² + width²)^{3/2}."""
        return 0.5 * self.width**2 / self.rounded(1 - targets * scores) ** 3

    def rounded(self, short: Tensor) -> Tensor:
        """Return √(z² + width²)."""
        return (short.square() + self.width**2).sqrt()
