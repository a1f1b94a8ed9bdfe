"""Losses of the margin y·f: hinge, squared hinge and logistic."""

from typing import ClassVar

import torch
from torch import Tensor

from ...core.checks import Array
from ...core.errors import InvalidInputError
from .base import INFEASIBLE, OPERATIONS, PERTURBED, Loss, as_columns, gamma, ratio

SURE = 40.0
"""Score above which log(1 + exp(score)) equals the score in float64."""


class MarginLoss(Loss):
    """A loss of the margin y·f for labels y = ±1, one binary problem per column."""

    def encode(self, targets: Array) -> Tensor:
        """Return labels {0, 1} or {−1, 1} as −1 and 1."""
        labels = as_columns(targets)
        if bool(((labels == 0) | (labels == 1)).all()):
            labels = 2 * labels - 1
        if bool((labels.abs() != 1).any()):
            raise InvalidInputError(
                f"expected labels in {{0, 1}} or {{-1, 1}} for the {self.name} loss, got values from {labels.min():g} "
                f"to {labels.max():g}: use loss='softmax' for more classes or 'squared' for real targets"
            )
        return labels

    def lacks_contrast(self, targets: Tensor) -> bool:
        """Return whether some column is constant."""
        return bool((targets.amin(0) == targets.amax(0)).any())

    largest_dual: ClassVar[float] = 1.0
    """Bound on −uy in the domain of the conjugate; the lower bound is zero."""

    def project(self, dual: Tensor, targets: Tensor) -> Tensor:
        """Return the point with −uy clipped to the domain."""
        return -targets * (-dual * targets).clamp(0, self.largest_dual)

    def balance(self, dual: Tensor, targets: Tensor, row_weight: Tensor) -> Tensor:
        """Return the point with the heavier class shrunk; duals have the sign of −y, so they stay in the domain."""
        mass = row_weight[:, None] * dual
        up, down = mass.clamp_min(0).sum(0), -mass.clamp_max(0).sum(0)
        lighter = torch.minimum(up, down)
        return torch.where(dual > 0, dual * ratio(lighter, up), dual * ratio(lighter, down))


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
