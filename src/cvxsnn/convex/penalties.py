r"""Penalties on the coefficients: a norm, and optionally a quadratic beside it.

.. math:: P(W) = s\,\Omega(W) + \tfrac{r}{2} \|W\|_2^2

with the strengths ``l1_strength`` s and ``l2_strength`` r of a problem. A kind of penalty defines its norm Ω, and
whether r may be above zero; everything else follows, here and in the solvers.
"""

from abc import ABC, abstractmethod
from math import inf, sqrt
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..core.checks import Registry
from ..core.errors import InvalidInputError


class Penalty(ABC):
    """The contract of a penalty on coefficients of shape (n_atoms, n_outputs).

    Attributes
    ----------
    name : str
        The name to pass to a problem.
    is_separable : bool
        Whether it is a sum over the entries, so that outputs can be solved one by one.
    has_quadratic : bool
        Whether r may be above zero, and s may then be zero.

    Examples
    --------
    >>> import torch
    >>> from cvxsnn.convex import PENALTIES
    >>> penalty = PENALTIES["l1"]()
    >>> float(penalty.norm(torch.tensor([[1.0], [-2.0]])))
    3.0
    """

    name: ClassVar[str]
    is_separable: ClassVar[bool] = False
    has_quadratic: ClassVar[bool] = False

    @property
    def has_l1_norm(self) -> bool:
        """Whether the norm is that of :class:`L1`, as solvers by active sets require; a weighted L1 norm is another."""
        return type(self).norm is L1.norm

    @abstractmethod
    def norm(self, coef: Tensor) -> Tensor:
        """Return Ω(W).

        Parameters
        ----------
        coef : Tensor of shape (n_atoms, n_outputs)
            The coefficients W.

        Returns
        -------
        Tensor
            A scalar.
        """

    @abstractmethod
    def atom_norms(self, correlation: Tensor) -> Tensor:
        """Return one number for each atom; the dual norm is their maximum.

        Parameters
        ----------
        correlation : Tensor of shape (n_atoms, n_outputs)
            Correlations of the atoms with a dual point.

        Returns
        -------
        Tensor of shape (n_atoms,)
            If this is at most the strength, zero coefficients are optimal for the atom.
        """

    @abstractmethod
    def prox(self, coef: Tensor, step: float) -> Tensor:
        """Return the proximal point of the norm, argmin_V ½‖V − W‖² + step · Ω(V).

        Parameters
        ----------
        coef : Tensor of shape (n_atoms, n_outputs)
            The point W.
        step : float
            The weight of the norm.

        Returns
        -------
        Tensor of shape (n_atoms, n_outputs)
            The proximal point.
        """

    def dual_norm(self, correlation: Tensor) -> Tensor:
        """Return Ω°(C), the maximum of ⟨C, W⟩ over Ω(W) ≤ 1.

        Parameters
        ----------
        correlation : Tensor of shape (n_atoms, n_outputs)
            The point C.

        Returns
        -------
        Tensor
            A scalar. Zero coefficients are optimal if it is at most the strength.
        """
        return self.atom_norms(correlation).max()

    def project(self, correlation: Tensor, radius: float) -> Tensor:
        """Return the nearest point whose dual norm is at most a radius, C − prox(C), up to rounding.

        Parameters
        ----------
        correlation : Tensor of shape (n_atoms, n_outputs)
            The point C.
        radius : float
            The largest dual norm.

        Returns
        -------
        Tensor of shape (n_atoms, n_outputs)
            The projection.
        """
        # A clamp does not round, however far away the point is.
        return correlation.clamp(-radius, radius) if self.has_l1_norm else correlation - self.prox(correlation, radius)

    def value(self, coef: Tensor, l1_strength: float, l2_strength: float = 0.0) -> Tensor:
        """Return P(W) = s·Ω(W) + ½r‖W‖².

        Parameters
        ----------
        coef : Tensor of shape (n_atoms, n_outputs)
            The coefficients W.
        l1_strength, l2_strength : float
            The strengths s and r.

        Returns
        -------
        Tensor
            A scalar.
        """
        penalty = l1_strength * self.norm(coef)
        return penalty + half_square(coef, l2_strength) if l2_strength else penalty

    def descend(self, coef: Tensor, step: float, l1_strength: float, l2_strength: float = 0.0) -> Tensor:
        """Return the proximal point of the whole penalty, argmin_V ½‖V − W‖² + step · P(V).

        Parameters
        ----------
        coef : Tensor of shape (n_atoms, n_outputs)
            The point W.
        step : float
            The weight of the penalty.
        l1_strength, l2_strength : float
            The strengths s and r.

        Returns
        -------
        Tensor of shape (n_atoms, n_outputs)
            The proximal point.
        """
        # Completing the square: the quadratic divides both the point and the step of the norm by this.
        shrink = 1 + step * l2_strength
        return self.prox(coef / shrink, step * l1_strength / shrink)

    def simplest(self, n_outputs: int, l1_strength: float, l2_strength: float) -> "Penalty":
        """Return the simplest penalty that equals this one for this number of outputs and these strengths.

        Parameters
        ----------
        n_outputs : int
            Number of columns of the coefficients.
        l1_strength, l2_strength : float
            The strengths s and r.

        Returns
        -------
        Penalty
            The penalty itself by default.
        """
        return self


class L1(Penalty):
    """The sum of absolute values: the penalty of the paper's algorithms."""

    name = "l1"
    is_separable = True

    def norm(self, coef: Tensor) -> Tensor:
        """Return Σ |w|."""
        return coef.abs().sum()

    def atom_norms(self, correlation: Tensor) -> Tensor:
        """Return the largest absolute value of each row."""
        return correlation.abs().amax(1)

    def prox(self, coef: Tensor, step: float) -> Tensor:
        """Return the coefficients, soft-thresholded."""
        return coef - coef.clamp(-step, step)


class GroupL2(Penalty):
    """The sum over atoms of the Euclidean norm of their output weights: the theory's Σ_k ‖P_k,out‖₂."""

    name = "group"

    def norm(self, coef: Tensor) -> Tensor:
        """Return Σ_j ‖w_j‖₂."""
        return _row_norms(coef).sum()

    def atom_norms(self, correlation: Tensor) -> Tensor:
        """Return the Euclidean norm of each row."""
        return _row_norms(correlation)

    def prox(self, coef: Tensor, step: float) -> Tensor:
        """Return the coefficients with each row shrunk."""
        norms = _row_norms(coef)[:, None]
        return coef * torch.where(norms > step, 1 - step / norms, 0.0)

    def simplest(self, n_outputs: int, l1_strength: float, l2_strength: float) -> Penalty:
        """Return the L1 penalty for a single output: the two are the same norm then."""
        # A subclass may have another norm.
        return L1() if n_outputs == 1 and type(self) is GroupL2 else self


class ElasticNet(L1):
    """The sum of absolute values and half the sum of squares. For s = 0 it is ridge, for r = 0 it is :class:`L1`."""

    name = "elastic-net"
    has_quadratic = True

    def simplest(self, n_outputs: int, l1_strength: float, l2_strength: float) -> Penalty:
        """Return the L1 penalty for r = 0."""
        return L1() if type(self) is ElasticNet and not l2_strength else self


class GroupElasticNet(GroupL2):
    """The norm of :class:`GroupL2` and half the sum of squares. For s = 0 it is ridge."""

    name = "group-elastic-net"
    has_quadratic = True

    def simplest(self, n_outputs: int, l1_strength: float, l2_strength: float) -> Penalty:
        """Return the elastic net for a single output and for s = 0, the group penalty for r = 0."""
        if type(self) is not GroupElasticNet:
            return self
        if not l2_strength:
            return GroupL2().simplest(n_outputs, l1_strength, l2_strength)
        return ElasticNet() if n_outputs == 1 or not l1_strength else self


def _row_norms(matrix: Tensor) -> Tensor:
    largest = matrix.abs().amax(1, keepdim=True)  # squares of multiples of it neither overflow nor vanish
    unit = torch.where(largest > 0, matrix / largest, matrix)
    return largest[:, 0] * unit.square().sum(1).sqrt()


def frobenius_norm(matrix: Tensor) -> Tensor:
    """Return ‖M‖₂, also where squares of the entries would overflow or vanish."""
    return _row_norms(matrix.reshape(1, -1))[0]


def half_square(matrix: Tensor, strength: float) -> Tensor:
    """Return ½r‖M‖², which vanishes only if it is as small as that."""
    return 0.5 * (sqrt(strength) * frobenius_norm(matrix)).square()


PENALTIES: Registry[type[Penalty]] = Registry("penalty", Penalty)
"""Kinds of penalties by name.

Examples
--------
>>> from cvxsnn.convex import PENALTIES
>>> list(PENALTIES)
['l1', 'group', 'elastic-net', 'group-elastic-net']
"""

for _kind in (L1, GroupL2, ElasticNet, GroupElasticNet):
    PENALTIES.register(_kind.name, _kind)


def name_of_penalty(penalty: Penalty) -> str:
    """Return the name from which :func:`make_penalty` makes the same penalty; one that has no such name is refused."""
    default, actual = vars(PENALTIES.of(penalty)()), vars(penalty)
    if default.keys() != actual.keys() or not all(bool(np.array_equal(default[key], actual[key])) for key in default):
        raise InvalidInputError(
            f"expected the penalty {penalty.name!r} with its default parameters, got other ones: a file stores only "
            "the name"
        )
    return penalty.name


def make_penalty(penalty: str | Penalty) -> Penalty:
    """Return the penalty of that name, or the one given."""
    return penalty if isinstance(penalty, Penalty) else PENALTIES.find(penalty)()


def check_strengths(l1_strength: float, l2_strength: float, penalty: Penalty) -> tuple[float, float]:
    """Return strengths that a penalty can have: finite, not negative, and not both zero."""
    if not penalty.has_quadratic:
        if l2_strength != 0:
            raise InvalidInputError(
                f"expected l2_strength=0 for the penalty {penalty.name!r}, got {l2_strength!r}: use "
                "penalty='elastic-net' or 'group-elastic-net'"
            )
        if not _is_number(l1_strength) or l1_strength == 0:
            raise InvalidInputError(
                f"expected l1_strength to be a finite number above zero, got {l1_strength!r}: without it no dual bound "
                "exists"
            )
    for name, strength in (("l1_strength", l1_strength), ("l2_strength", l2_strength)):
        if not _is_number(strength):
            raise InvalidInputError(f"expected {name} to be a finite number, zero or above, got {strength!r}")
    if l1_strength == l2_strength == 0:
        raise InvalidInputError(
            "expected l1_strength or l2_strength above zero, got zero for both: without a penalty no dual bound exists"
        )
    return float(l1_strength), float(l2_strength)


def check_prices(l1_strength: float, over: str) -> None:
    """Refuse an ``l1_strength`` of zero: every atom would be active, so prices could not decide which are needed."""
    if l1_strength == 0:
        raise InvalidInputError(
            f"expected l1_strength above zero for an optimum over {over}, got 0, at which all of them are active: "
            "raise it, or solve over a dictionary of all of them"
        )


def _is_number(strength: Any) -> bool:
    # True is an int, and would pass as a strength of 1.
    return not isinstance(strength, (str, bool)) and strength is not None and bool(0 <= strength < inf)
