"""What losses of the margin y·f have in common: hinge, squared hinge and logistic."""

from typing import ClassVar

import torch
from torch import Tensor

from ...core.checks import Array
from ...core.errors import InvalidInputError
from .base import Loss, ratio
from .targets import as_columns


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
