"""The cross-entropy of several classes."""

import torch
from torch import Tensor

from ...core.checks import Array
from ...core.errors import InvalidInputError
from .base import INFEASIBLE, OPERATIONS, PERTURBED, SMALLEST, UNIT, Loss, as_numbers, gamma, ratio
from .margin import SURE, entropy_bound


class Softmax(Loss):
    """Cross-entropy log Σ_c exp(f_c) − f_y over n_outputs classes."""

    name = "softmax"
    is_separable = False
    is_shift_invariant = True
    max_curvature = 0.5

    def __init__(self, n_classes: int | None = None) -> None:
        self.n_classes = n_classes

    def encode(self, targets: Array) -> Tensor:
        """Return integer classes 0, 1, ... as one-hot rows."""
        labels = as_numbers(targets)
        if labels.ndim != 1:
            raise InvalidInputError(f"expected one class per row for the softmax loss, got shape {tuple(labels.shape)}")
        classes = labels.to(torch.int64)
        if bool((classes != labels).any()) or bool((classes < 0).any()):
            raise InvalidInputError(
                "expected integer classes 0, 1, 2, ... for the softmax loss, got other values: number them first, for "
                "example with np.unique(y, return_inverse=True)"
            )
        n_classes = self.n_classes or int(classes.max()) + 1
        if int(classes.max()) >= n_classes:
            raise InvalidInputError(f"expected classes below {n_classes}, got class {int(classes.max())}")
        return torch.nn.functional.one_hot(classes, n_classes).to(torch.float64)

    def lacks_contrast(self, targets: Tensor) -> bool:
        """Return whether all rows are equal."""
        return bool((targets == targets[0]).all())

    def value(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy log Σ exp(f) − f_y."""
        is_true = targets > 0
        ahead = scores - torch.where(is_true, scores, 0.0).sum(1, keepdim=True)
        # The same as log Σ exp(f) − f_y, which would lose a small loss to the rounding of f_y.
        others = torch.logsumexp(ahead.masked_fill(is_true, -torch.inf), 1)
        return torch.nn.functional.softplus(others, threshold=SURE)

    def value_error(self, scores: Tensor, targets: Tensor, error: Tensor) -> Tensor:
        """Return a bound on the errors: slopes p are at most exp(4e) times as steep where scores are off by e."""
        n_roundings = OPERATIONS + targets.shape[1]
        largest = 4 * error.amax(1, keepdim=True)
        slope = torch.where(largest < 1, self.gradient(scores, targets).abs() * largest.clamp_max(1.0).exp(), 2.0)
        rounded = error + 4 * UNIT * scores.abs().amax(1, keepdim=True)
        return (1 + gamma(n_roundings)) * (rounded * slope).sum(1) + gamma(n_roundings) * self.value(scores, targets)

    def gradient(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the probabilities minus the truth, p − e_y; 1 − p_y is the sum of the others, which may be tiny."""
        return self._closed(torch.softmax(scores, 1), targets)

    def conjugate(self, dual: Tensor, targets: Tensor) -> Tensor:
        """Return Σ_c p_c log p_c with p = u + e_y in the simplex."""
        probability = dual + targets
        outside = (probability.amin(1) < -INFEASIBLE) | (dual.sum(1).abs() > INFEASIBLE)
        return self._terms(dual, targets).sum(1).masked_fill(outside, torch.inf)

    def conjugate_error(self, dual: Tensor, targets: Tensor) -> Tensor:
        """Return a bound on the errors, with those of probabilities that do not sum to one.

        Two probabilities at a distance d differ in −p log p by at most −d log d. Divided by their sum 1 + e, they
        differ in entropy by at most 2e times one plus the entropy.
        """
        n_classes = targets.shape[1]
        entropy = -self._terms(dual, targets).sum(1)
        changed = entropy_bound(PERTURBED * dual.abs()).sum(1)
        return gamma(OPERATIONS + n_classes) * entropy + 2 * self._excess(dual, targets) * (1 + entropy) + changed

    def repair(self, dual: Tensor, targets: Tensor, row_weight: Tensor, *, is_balanced: bool) -> tuple[Tensor, Tensor]:
        """Return what it takes to divide probabilities by their sums, and to move them between classes.

        If at most a share of each class is moved, the entropy falls by at most that share of it, as it is concave.
        """
        probability = (dual + targets).clamp_min(0)
        moved = (row_weight * self._excess(dual, targets)) @ probability
        if not is_balanced:
            return row_weight.new_zeros(()), moved
        n_roundings = len(dual) + OPERATIONS
        lost = (row_weight @ dual).abs() + gamma(n_roundings) * (row_weight @ dual.abs()) + len(dual) * SMALLEST
        lost = lost + moved
        mass = row_weight @ probability
        return torch.where(mass > 0, 2 * lost / mass, 0.0).max(), moved + lost.sum()

    def project(self, dual: Tensor, targets: Tensor) -> Tensor:
        """Return the point with the probabilities of the other classes clipped, and divided by a sum above one."""
        others = torch.where(targets > 0, 0.0, dual).clamp_min(0)
        return self._closed(others / others.sum(1, keepdim=True).clamp_min(1.0), targets)

    def balance(self, dual: Tensor, targets: Tensor, row_weight: Tensor) -> Tensor:
        """Return the point with probability moved from classes that have too much to those that have too little."""
        for _ in range(2):  # the second time for what rounding leaves
            probability, surplus = dual + targets, row_weight @ dual
            freed = probability * ratio(surplus.clamp_min(0), row_weight @ probability).clamp_max(1.0)
            lacking = (-surplus).clamp_min(0)
            dual = dual - freed + freed.sum(1, keepdim=True) * ratio(lacking, lacking.sum())
        return dual

    def _closed(self, probability: Tensor, targets: Tensor) -> Tensor:
        """Return p − e_y from the probabilities of the other classes alone, so that it sums to zero."""
        others = torch.where(targets > 0, 0.0, probability)
        return others - targets * others.sum(1, keepdim=True)

    def _terms(self, dual: Tensor, targets: Tensor) -> Tensor:
        """Return p log p of each class, without cancellation where p_y is close to one."""
        others, true = dual.clamp(0, 1), dual.clamp(-1, 0)
        of_true = torch.where(true > -1, (1 + true) * torch.log1p(true), 0.0)
        return torch.where(targets > 0, of_true, torch.xlogy(others, others))

    def _excess(self, dual: Tensor, targets: Tensor) -> Tensor:
        """Return a bound on how much the sum of the probabilities is off one."""
        clipped = torch.where(targets > 0, dual.clamp(-1, 0), dual.clamp(0, 1))
        return clipped.sum(1).abs() + gamma(targets.shape[1] + OPERATIONS) * clipped.abs().sum(1)

    def null_intercept(self, targets: Tensor, row_weight: Tensor) -> Tensor:
        """Return the logarithms of the classes' shares, a tiny one for a class that does not occur."""
        return (row_weight @ targets / row_weight.sum()).clamp_min(INFEASIBLE**2).log()

    def curvature(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the class probabilities p."""
        return torch.softmax(scores, 1)

    def coupling(self, curvature: Tensor) -> Tensor:
        """Return the class probabilities p again: the Hessian is diag(p) − ppᵀ."""
        return curvature
