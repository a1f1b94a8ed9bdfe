"""Losses: the contract, and the squared loss, three losses of a margin and the cross-entropy.

Value, gradient, curvature and conjugate are per row; the problem weights and sums the rows. Every loss is convex in the
scores, non-negative, and has zero in the domain of its conjugate, so that any dual point may be shrunk towards zero.

A certificate asks how much rounding changes a loss (:meth:`Loss.value_error`) and a conjugate
(:meth:`Loss.conjugate_error`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from ..core.checks import Array, Registry, as_tensor
from ..core.errors import InvalidInputError
from ..core.formatting import plural

UNIT = 2.0**-53
"""Unit of rounding of float64: the relative error of one operation."""

SMALLEST = 2.0**-1074
"""Error of one operation by underflow."""

INFEASIBLE = 1e-12
"""How far outside its domain rounding may push the argument of a conjugate."""

OPERATIONS = 16
"""Roundings behind one row of a loss or a conjugate, at most; functions such as exp err by a few units each."""

PERTURBED = 8 * UNIT
"""Relative change of the entries of a dual point for which :meth:`Loss.conjugate_error` accounts: they are multiplied
and divided by the weights of rows and heads."""

SURE = 40.0
"""Score above which log(1 + exp(score)) equals the score in float64."""


def gamma(n_roundings: int) -> float:
    """Return the relative error of n roundings one after the other, nu / (1 − nu) for u = 2⁻⁵³.

    A sum of n products, in whatever order and with fused operations or without, is wrong by at most γ_n times the sum
    of their absolute values (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).
    """
    share = n_roundings * UNIT
    return share / (1 - share)


class Loss(ABC):
    """The contract of a loss: one row's ℓ(f; y), for scores f and encoded targets y of shape (n_rows, n_outputs).

    The Hessian of a row is diag(c) − vvᵀ, with c from :meth:`curvature` and v from :meth:`coupling`.

    Attributes
    ----------
    name : str
        The name to pass to a problem.
    is_smooth : bool
        Whether the gradient is continuous, as Newton's method requires.
    is_separable : bool
        Whether the loss is a sum over outputs, so that they can be solved one by one.
    is_shift_invariant : bool
        Whether adding one number to all scores of a row changes nothing.
    is_regression : bool
        Whether the targets are real numbers rather than classes.
    max_curvature : float
        The largest eigenvalue that the Hessian of a row can have.

    Examples
    --------
    >>> from cvxsnn.convex import LOSSES
    >>> loss = LOSSES["hinge"]()
    >>> loss.is_smooth, loss.is_separable
    (False, True)
    """

    name: ClassVar[str]
    is_smooth: ClassVar[bool] = True
    is_separable: ClassVar[bool] = True
    is_shift_invariant: ClassVar[bool] = False
    is_regression: ClassVar[bool] = False
    max_curvature: float = torch.inf

    @abstractmethod
    def encode(self, targets: Array) -> Tensor:
        """Return targets in the form that the other methods accept; refuse targets that the loss does not accept.

        Parameters
        ----------
        targets : array
            As the user gave them, one entry or one row of entries per row.

        Returns
        -------
        Tensor of shape (n_rows, n_outputs), float64
            The encoded targets y.
        """

    @abstractmethod
    def value(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return ℓ(f; y).

        Parameters
        ----------
        scores : Tensor of shape (n_rows, n_outputs)
            The scores f.
        targets : Tensor of shape (n_rows, n_outputs)
            The encoded targets y.

        Returns
        -------
        Tensor of shape (n_rows,)
            The loss of each row.
        """

    @abstractmethod
    def gradient(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return ∇ℓ(f; y), or a subgradient.

        Parameters
        ----------
        scores : Tensor of shape (n_rows, n_outputs)
            The scores f.
        targets : Tensor of shape (n_rows, n_outputs)
            The encoded targets y.

        Returns
        -------
        Tensor of shape (n_rows, n_outputs)
            The gradient of each row.
        """

    @abstractmethod
    def curvature(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the diagonal c of the Hessian diag(c) − vvᵀ.

        Parameters
        ----------
        scores : Tensor of shape (n_rows, n_outputs)
            The scores f.
        targets : Tensor of shape (n_rows, n_outputs)
            The encoded targets y.

        Returns
        -------
        Tensor of shape (n_rows, n_outputs)
            The diagonal of each row.
        """

    def coupling(self, curvature: Tensor) -> Tensor | None:
        """Return the vector v of the Hessian diag(c) − vvᵀ.

        Parameters
        ----------
        curvature : Tensor of shape (n_rows, n_outputs)
            The diagonal c.

        Returns
        -------
        Tensor of shape (n_rows, n_outputs), or None
            None for a separable loss, which has no such part.
        """
        return None

    @abstractmethod
    def conjugate(self, dual: Tensor, targets: Tensor) -> Tensor:
        """Return ℓ*(u; y) = sup_f ⟨u, f⟩ − ℓ(f; y).

        Parameters
        ----------
        dual : Tensor of shape (n_rows, n_outputs)
            The point u.
        targets : Tensor of shape (n_rows, n_outputs)
            The encoded targets y.

        Returns
        -------
        Tensor of shape (n_rows,)
            The conjugate of each row, infinite outside its domain.
        """

    @abstractmethod
    def project(self, dual: Tensor, targets: Tensor) -> Tensor:
        """Return a point of the conjugate's domain near u; points of the domain stay where they are.

        Parameters
        ----------
        dual : Tensor of shape (n_rows, n_outputs)
            The point u.
        targets : Tensor of shape (n_rows, n_outputs)
            The encoded targets y.

        Returns
        -------
        Tensor of shape (n_rows, n_outputs)
            A point with a finite conjugate.
        """

    @abstractmethod
    def balance(self, dual: Tensor, targets: Tensor, row_weight: Tensor) -> Tensor:
        """Return a point of the conjugate's domain near u whose weighted sum over the rows is zero.

        The dual of an unpenalised intercept requires this.

        Parameters
        ----------
        dual : Tensor of shape (n_rows, n_outputs)
            A point u of the domain.
        targets : Tensor of shape (n_rows, n_outputs)
            The encoded targets y.
        row_weight : Tensor of shape (n_rows,)
            The weights of the rows.

        Returns
        -------
        Tensor of shape (n_rows, n_outputs)
            The balanced point.
        """

    def value_error(self, scores: Tensor, targets: Tensor, error: Tensor) -> Tensor:
        """Return a bound on the error of :meth:`value`.

        A convex function rises by no more than the distance times the slope at the end. A separable loss is steepest at
        one end of the interval that contains the true score.

        Parameters
        ----------
        scores : Tensor of shape (n_rows, n_outputs)
            The scores f as computed.
        targets : Tensor of shape (n_rows, n_outputs)
            The encoded targets y.
        error : Tensor of shape (n_rows, n_outputs)
            A bound on the errors of the scores.

        Returns
        -------
        Tensor of shape (n_rows,)
            A bound on the difference between the number computed and the loss at the true scores.
        """
        # Twice the error: the sum is rounded, too.
        ends = (self.gradient(scores + sign * error, targets).abs() for sign in (2, -2))
        steepest = torch.maximum(*ends) * (1 + gamma(OPERATIONS))
        return (error * steepest).sum(1) + gamma(OPERATIONS + targets.shape[1]) * self.value(scores, targets)

    def conjugate_error(self, dual: Tensor, targets: Tensor) -> Tensor:
        """Return a bound on the error of :meth:`conjugate`, also at points a few units of rounding away.

        The default is for a conjugate whose terms are at most u² and ``|uy|``.

        Parameters
        ----------
        dual : Tensor of shape (n_rows, n_outputs)
            The point u.
        targets : Tensor of shape (n_rows, n_outputs)
            The encoded targets y.

        Returns
        -------
        Tensor of shape (n_rows,)
            A bound on the difference between the number computed and ℓ*, nearest to the point in the domain.
        """
        size = (dual.abs() * (dual.abs() + targets.abs())).sum(1)
        # Twice: u² changes by twice the relative change of u.
        return (gamma(OPERATIONS + targets.shape[1]) + 2 * PERTURBED) * size

    def repair(self, dual: Tensor, targets: Tensor, row_weight: Tensor, *, is_balanced: bool) -> tuple[Tensor, Tensor]:
        """Bound the change that makes a point exactly feasible, if it is feasible up to rounding.

        If the sum over the rows is off by e, the entries of the sign that has more mass m are shrunk by a share e/m.
        ℓ* is convex and at most zero at zero, so that this costs at most the same share of the conjugate.

        Parameters
        ----------
        dual : Tensor of shape (n_rows, n_outputs)
            The point u, from :meth:`project` and :meth:`balance`, or shrunk after that.
        targets : Tensor of shape (n_rows, n_outputs)
            The encoded targets y.
        row_weight : Tensor of shape (n_rows,)
            The weights of the rows.
        is_balanced : bool
            Whether the weighted sum over the rows must be zero.

        Returns
        -------
        share : Tensor
            A scalar: the share of the conjugate that is lost, at most.
        moved : Tensor of shape (n_outputs,)
            Weighted sums of the absolute changes of the entries, at most.
        """
        if not is_balanced:
            return row_weight.new_zeros(()), row_weight.new_zeros(dual.shape[1])
        mass, total = row_weight @ dual.abs(), (row_weight @ dual).abs()
        moved = total + gamma(len(dual) + OPERATIONS) * mass + len(dual) * SMALLEST
        # The heavier sign has at least half of the mass, so e/m is at most 2e over all of it.
        return torch.where(mass > 0, 2 * moved / mass, 0.0).max(), moved

    def lacks_contrast(self, targets: Tensor) -> bool:
        """Return whether encoded targets show one class only, so that a constant separates them.

        Parameters
        ----------
        targets : Tensor of shape (n_rows, n_outputs)
            The encoded targets y.

        Returns
        -------
        bool
            False for real targets.
        """
        return False

    def smoothed(self, width: float) -> "Loss":
        """Return a smooth loss that is at most ``width / 2`` above this one.

        Parameters
        ----------
        width : float
            The width over which corners are rounded.

        Returns
        -------
        Loss
            The loss itself if it is smooth.
        """
        return self

    def null_intercept(self, targets: Tensor, row_weight: Tensor) -> Tensor:
        """Return the best constant scores, for a problem with an intercept and no active atom.

        A loss that couples its outputs must define it.

        Parameters
        ----------
        targets : Tensor of shape (n_rows, n_outputs)
            The encoded targets y.
        row_weight : Tensor of shape (n_rows,)
            The weights of the rows.

        Returns
        -------
        Tensor of shape (n_outputs,)
            The scores.
        """
        if not self.is_separable:
            raise NotImplementedError(f"the loss {self.name!r} couples its outputs: define its null_intercept")
        return _root_of_slope(self, targets, row_weight)

    def null_dual(self, targets: Tensor, row_weight: Tensor) -> Tensor:
        """Return an optimal dual point of the best constant.

        Parameters
        ----------
        targets : Tensor of shape (n_rows, n_outputs)
            The encoded targets y.
        row_weight : Tensor of shape (n_rows,)
            The weights of the rows.

        Returns
        -------
        Tensor of shape (n_rows, n_outputs)
            The dual point, per unit of row weight.
        """
        constant = self.null_intercept(targets, row_weight).expand_as(targets)
        return self.balance(self.gradient(constant, targets), targets, row_weight)


class Squared(Loss):
    """½ (f − y)², summed over outputs.

    Parameters
    ----------
    shift : sequence of float
        What is added to the targets of each output; none when empty. An intercept absorbs it: the optimal weights are
        the same, and the optimal intercept is larger by the shift.
    """

    name = "squared"
    is_regression = True
    max_curvature = 1.0

    def __init__(self, shift: Sequence[float] = ()) -> None:
        self.shift = tuple(shift)

    def encode(self, targets: Array) -> Tensor:
        """Return real targets plus the shift, one column per output."""
        columns = as_columns(targets)
        if self.shift and len(self.shift) != columns.shape[1]:
            raise InvalidInputError(
                f"expected targets of {plural(len(self.shift), 'output')}, which are shifted, got {columns.shape[1]}"
            )
        return columns + columns.new_tensor(self.shift) if self.shift else columns

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


class MarginLoss(Loss):
    """A loss of the margin y·f for labels y = ±1, one binary problem per column."""

    def encode(self, targets: Array) -> Tensor:
        """Return labels {0, 1} or {−1, 1} as −1 and 1."""
        labels = as_columns(targets)
        if bool(((labels == 0) | (labels == 1)).all()):
            # Labels that are all 1 are valid in both encodings, and mean the same.
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
        # torch's default threshold of 20 drops exp(−20), which is far above the rounding of float64.
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
        # σ(f)(1 − σ(f)) would cancel where σ(f) is close to one.
        return torch.sigmoid(scores) * torch.sigmoid(-scores)


def entropy_bound(share: Tensor) -> Tensor:
    """Return a bound on the entropy of a share a of at most ½ and the rest: a − a log a."""
    return share - torch.xlogy(share, share)


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
        labels = as_tensor("targets", targets)
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
        # Entries of p − e_y are at most one, so two is a bound whatever the errors of the scores are.
        slope = torch.where(largest < 1, self.gradient(scores, targets).abs() * largest.clamp_max(1.0).exp(), 2.0)
        # The loss sees differences of scores, which are rounded in turn.
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
        """Bound the change that divides probabilities by their sums, and moves them between classes.

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


LOSSES: Registry[type[Loss]] = Registry("loss", Loss)
"""Kinds of losses by name.

Examples
--------
>>> from cvxsnn.convex import LOSSES
>>> LOSSES["hinge"].is_smooth
False
"""

for _kind in (Squared, Hinge, SquaredHinge, Logistic, Softmax):
    LOSSES.register(_kind.name, _kind)


def make_loss(loss: str | Loss) -> Loss:
    """Return the loss of that name, or the one given."""
    return loss if isinstance(loss, Loss) else LOSSES.find(loss)()


def as_columns(targets: Array) -> Tensor:
    """Return finite real targets in float64, one column per output."""
    columns = as_tensor("targets", targets).to(torch.float64)
    if not bool(torch.isfinite(columns).all()):
        raise InvalidInputError("expected finite targets, got NaN or infinite values: impute or drop those rows")
    if columns.ndim not in (1, 2):
        raise InvalidInputError(
            f"expected targets of shape (n_rows,) or (n_rows, n_outputs), got {tuple(columns.shape)}"
        )
    return columns[:, None] if columns.ndim == 1 else columns


def ratio(part: Tensor, total: Tensor) -> Tensor:
    """Return part over total, zero where the total is zero."""
    return torch.where(total > 0, part / total.clamp_min(torch.finfo(total.dtype).tiny), torch.zeros_like(part))


def _root_of_slope(loss: Loss, targets: Tensor, row_weight: Tensor) -> Tensor:
    """Return the constants at which the slope, which rises, is zero: for the squared loss the weighted means.

    Real targets have any scale, so the search starts at their means; the squared loss ends there. Otherwise steps
    double until the slope changes its sign. Then follow Newton steps, or halvings of the interval if they lead out.
    """
    constant, scale = torch.zeros_like(targets[0]), torch.ones_like(targets[0])
    if loss.is_regression:
        constant = row_weight @ targets
        scale = row_weight @ (targets - constant).abs()
    low = torch.full_like(constant, -torch.inf)
    high = torch.full_like(constant, torch.inf)
    reach = scale
    for _ in range(200):
        shifted = constant.expand_as(targets)
        slope = row_weight @ loss.gradient(shifted, targets)
        curvature = row_weight @ loss.curvature(shifted, targets)
        # Where the loss is flat, the Newton step leaves the interval, and a halving replaces it.
        step = slope / curvature.clamp_min(torch.finfo(slope.dtype).tiny)
        newton = constant - step
        low, high = torch.where(slope <= 0, constant, low), torch.where(slope >= 0, constant, high)
        inside = torch.where((newton > low) & (newton < high), newton, low + 0.5 * (high - low))
        ahead = torch.where(low.isinf() | high.isinf(), constant - reach * slope.sign(), inside)
        is_done = step.abs() <= 1e-14 * (scale + constant.abs())
        ahead = torch.where(is_done, newton, ahead)
        is_over = bool((is_done | (ahead == constant) | ~ahead.isfinite()).all())
        constant, reach = ahead, 2 * reach
        if is_over:
            break
    return constant
