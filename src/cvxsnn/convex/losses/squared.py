"""The squared loss."""

import torch
from torch import Tensor

from ...core.checks import Array
from .base import Loss, as_columns


class Squared(Loss):
    """½ (f − y)², summed over outputs."""

    name = "squared"
    is_regression = True
    max_curvature = 1.0

    def encode(self, targets: Array) -> Tensor:
        """Return real targets, one column per output."""
        return as_columns(targets)

    def value(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return ½ Σ (f − y)²."""
        return 0.5 * (scores - targets).square().sum(1)

    def gradient(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the residual f − y."""
        return scores - targets

    def conjugate(self, dual: Tensor, targets: Tensor) -> Tensor:
        """Return Σ ½u² + uy."""
        return (0.5 * dual.square() + dual * targets).sum(1)

    def project(self, dual: Tensor, targets: Tensor) -> Tensor:
        """Return the point itself: every point is in the domain."""
        return dual

    def balance(self, dual: Tensor, targets: Tensor, row_weight: Tensor) -> Tensor:
        """Return the point minus its weighted mean, and minus the mean that rounding leaves of a large one."""
        for _ in range(2):
            dual = dual - (row_weight @ dual) / row_weight.sum()
        return dual

    def curvature(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return ones."""
        return torch.ones_like(scores)
