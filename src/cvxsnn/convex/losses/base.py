"""The contract of a loss: value, gradient, curvature and conjugate, all per row; the problem weights and sums the rows.

Every loss is convex in the scores, non-negative, and has zero in the domain of its conjugate, so that any dual point
may be shrunk towards zero.

A certificate needs to know what rounding does to a loss (:meth:`Loss.value_error`) and to a conjugate
(:meth:`Loss.conjugate_error`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...core.checks import Array, Registry, as_array, check_tensor
from ...core.errors import InvalidInputError

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
        The name by which a problem asks for it.
    is_smooth : bool
        Whether the gradient is continuous, as Newton's method needs it.
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
        """Return a bound on what is wrong with :meth:`value`.

        A convex function rises by no more than the distance times its slope there. The slope of a separable loss is
        largest at one end of the interval in which the true score is.

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
        """Return a bound on what is wrong with :meth:`conjugate`, also at points a few units of rounding away.

        This one is that of a conjugate whose terms are at most u² and ``|uy|``.

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
        return (gamma(OPERATIONS + targets.shape[1]) + 2 * PERTURBED) * size

    def repair(self, dual: Tensor, targets: Tensor, row_weight: Tensor, *, is_balanced: bool) -> tuple[Tensor, Tensor]:
        """Return what it takes to make a point feasible exactly, which rounding has left nearly so.

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


LOSSES: Registry[type[Loss]] = Registry("loss", Loss)
"""Kinds of losses by name.

Examples
--------
>>> from cvxsnn.convex import LOSSES
>>> list(LOSSES)
['squared', 'hinge', 'squared_hinge', 'logistic', 'softmax']
"""


def make_loss(loss: str | Loss) -> Loss:
    """Return the loss of that name, or the one given."""
    return loss if isinstance(loss, Loss) else LOSSES.find(loss)()


def ratio(part: Tensor, whole: Tensor) -> Tensor:
    """Return part over whole, zero where the whole is zero."""
    return torch.where(whole > 0, part / whole.clamp_min(torch.finfo(whole.dtype).tiny), torch.zeros_like(part))


def as_numbers(targets: Array | Sequence[object]) -> Tensor:
    """Return targets of any kind as a tensor of real numbers."""
    if isinstance(targets, Tensor):
        targets = check_tensor("targets", targets)
        if targets.is_complex():
            raise InvalidInputError(f"expected numeric targets, got {targets.dtype}: encode labels as numbers first")
        return targets
    try:
        array = np.array(as_array("targets", targets))
    except ValueError as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            "expected targets that form an array, got rows of unequal length: give every row as many entries"
        ) from None
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(f"expected numeric targets, got {array.dtype}: encode labels as numbers first")
    return torch.from_numpy(array)


def as_columns(targets: Array) -> Tensor:
    """Return finite real targets in float64, one column per output."""
    columns = as_numbers(targets).to(torch.float64)
    if not bool(torch.isfinite(columns).all()):
        raise InvalidInputError("expected finite targets, got NaN or infinite values: impute or drop those rows")
    if columns.ndim not in (1, 2):
        raise InvalidInputError(
            f"expected targets of shape (n_rows,) or (n_rows, n_outputs), got {tuple(columns.shape)}"
        )
    return columns[:, None] if columns.ndim == 1 else columns


def _root_of_slope(loss: Loss, targets: Tensor, row_weight: Tensor) -> Tensor:
    """Return the constants at which the slope, which rises, is zero: for the squared loss the weighted means.

    Real targets have any scale, so the search starts at their means; the squared loss ends there. Otherwise steps
    double until the slope changes its sign. Then follow Newton steps, or halvings of the interval if they lead out.
    """
    constant, scale = torch.zeros_like(targets[0]), torch.ones_like(targets[0])
    if loss.is_regression:
        constant = row_weight @ targets
        scale = row_weight @ (targets - constant).abs()
    low, high, reach = torch.full_like(constant, -torch.inf), torch.full_like(constant, torch.inf), scale
    for _ in range(200):
        shifted = constant.expand_as(targets)
        slope = row_weight @ loss.gradient(shifted, targets)
        curvature = row_weight @ loss.curvature(shifted, targets)
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
