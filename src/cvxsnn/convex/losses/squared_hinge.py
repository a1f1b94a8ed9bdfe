"""The squared hinge."""

import torch
from torch import Tensor

from .base import INFEASIBLE
from .margin import MarginLoss


class SquaredHinge(MarginLoss):
    """max(0, 1 − yf)²."""

    name = "squared_hinge"
    max_curvature = 2.0
    largest_dual = torch.inf

    def value(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return max(0, 1 − yf)²."""
        return (1 - targets * scores).clamp_min(0).square().sum(1)

    def gradient(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return −2y max(0, 1 − yf)."""
        return -2 * targets * (1 - targets * scores).clamp_min(0)

    def conjugate(self, dual: Tensor, targets: Tensor) -> Tensor:
        """Return the sum uy + ¼u², for uy ≤ 0."""
        product = dual * targets
        return (product + 0.25 * dual.square()).masked_fill(product > INFEASIBLE, torch.inf).sum(1)

    def curvature(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return two where the margin is below one."""
        return 2 * (targets * scores < 1).to(scores)
