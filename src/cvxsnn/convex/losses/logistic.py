"""The logistic loss."""

import torch
from torch import Tensor

from ..rounding import gamma
from .base import INFEASIBLE, OPERATIONS, PERTURBED
from .margin import MarginLoss

SURE = 40.0
"""Score above which log(1 + exp(score)) and the score are the same number."""


class Logistic(MarginLoss):
    """log(1 + exp(−yf))."""

    name = "logistic"
    max_curvature = 0.25

    def value(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return log(1 + exp(−yf))."""
        return torch.nn.functional.softplus(-targets * scores, threshold=SURE).sum(1)

    def gradient(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return −y / (1 + exp(yf))."""
        return -targets * torch.sigmoid(-targets * scores)

    def conjugate(self, dual: Tensor, targets: Tensor) -> Tensor:
        """Return the negative entropy a log a + (1 − a) log(1 − a) of a = −uy in [0, 1]."""
        share = -dual * targets
        outside = (share < -INFEASIBLE) | (share > 1 + INFEASIBLE)
        share = share.clamp(0, 1)
        rest = torch.where(share < 1, (1 - share) * torch.log1p(-share), 0.0)  # log(1 − a) would lose a small a
        return (torch.xlogy(share, share) + rest).masked_fill(outside, torch.inf).sum(1)

    def conjugate_error(self, dual: Tensor, targets: Tensor) -> Tensor:
        """Return a bound on the errors; two points at a distance d differ in entropy by at most that of d."""
        share = dual.abs()
        entropy = -self.conjugate(self.project(dual, targets), targets)
        return gamma(OPERATIONS + targets.shape[1]) * entropy + entropy_bound(PERTURBED * share).sum(1)

    def curvature(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return σ(f) σ(−f)."""
        return torch.sigmoid(scores) * torch.sigmoid(-scores)


def entropy_bound(share: Tensor) -> Tensor:
    """Return a bound on the entropy of a share a of at most ½ and the rest: a − a log a."""
    return share - torch.xlogy(share, share)
