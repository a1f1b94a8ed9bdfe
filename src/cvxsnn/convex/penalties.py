r"""Penalties on the coefficients: a norm, and where wanted a quadratic beside it.

A penalty of strength s and curvature r is

.. math:: P(W) = s\,\Omega(W) + \tfrac{r}{2} \|W\|_2^2 .

A kind of penalty says what its norm Ω is; the rest follows from that, here and in the solvers.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

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
        The name by which a problem asks for it.
    is_separable : bool
        Whether it is a sum over the entries, so that outputs can be solved one by one.
    curvature : float
        The number r above; zero for a norm alone.
    """

    name: ClassVar[str]
    is_separable: ClassVar[bool] = False
    curvature: float = 0.0

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
        """Return one number for each atom, of which the dual norm is the maximum.

        Parameters
        ----------
        correlation : Tensor of shape (n_atoms, n_outputs)
            Correlations of the atoms with a dual point.

        Returns
        -------
        Tensor of shape (n_atoms,)
            An atom of zero coefficients is optimal where this is at most the strength.
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
            A scalar. Zero coefficients are optimal where it is at most the strength.
        """
        return self.atom_norms(correlation).max()

    def value(self, coef: Tensor, strength: float) -> Tensor:
        """Return P(W) = s·Ω(W) + ½r‖W‖².

        Parameters
        ----------
        coef : Tensor of shape (n_atoms, n_outputs)
            The coefficients W.
        strength : float
            The strength s.

        Returns
        -------
        Tensor
            A scalar.
        """
        penalty = strength * self.norm(coef)
        return penalty + 0.5 * self.curvature * coef.square().sum() if self.curvature else penalty

    def conjugate(self, correlation: Tensor, strength: float) -> Tensor:
        """Return P*(C), the supremum of ⟨C, W⟩ − P(W).

        With curvature it is ‖C − Π(C)‖² / 2r for the projection Π on the dual ball of radius s, and C − Π(C) is the
        proximal point of the norm (Moreau). Without, it is zero on that ball and infinite outside.

        Parameters
        ----------
        correlation : Tensor of shape (n_atoms, n_outputs)
            The point C.
        strength : float
            The strength s.

        Returns
        -------
        Tensor
            A scalar.
        """
        if self.curvature:
            return self.prox(correlation, strength).square().sum() / (2 * self.curvature)
        inside = self.dual_norm(correlation) <= strength
        return torch.where(inside, 0.0, torch.inf).to(correlation)

    def descend(self, coef: Tensor, step: float, strength: float) -> Tensor:
        """Return the proximal point of the whole penalty, argmin_V ½‖V − W‖² + step · P(V).

        Parameters
        ----------
        coef : Tensor of shape (n_atoms, n_outputs)
            The point W.
        step : float
            The weight of the penalty.
        strength : float
            The strength s.

        Returns
        -------
        Tensor of shape (n_atoms, n_outputs)
            The proximal point.
        """
        shrink = 1 + step * self.curvature
        return self.prox(coef / shrink, step * strength / shrink)

    def for_outputs(self, n_outputs: int) -> "Penalty":
        """Return the simplest penalty that is equal to this one for so many outputs.

        Parameters
        ----------
        n_outputs : int
            Number of columns of the coefficients.

        Returns
        -------
        Penalty
            The penalty itself, unless a kind knows better.
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
        return coef * (1 - step / norms.clamp_min(step)).clamp_min(0)

    def for_outputs(self, n_outputs: int) -> Penalty:
        """Return the L1 penalty for a single output: the two are the same norm then."""
        is_same = n_outputs == 1 and type(self) is GroupL2 and not self.curvature
        return L1() if is_same else self


def _row_norms(matrix: Tensor) -> Tensor:
    return matrix.square().sum(1).sqrt()


PENALTIES: Registry[type[Penalty]] = Registry("penalty", Penalty)
"""Kinds of penalties by name."""

for _kind in (L1, GroupL2):
    PENALTIES.register(_kind.name, _kind)


def name_of_penalty(penalty: Penalty) -> str:
    """Return the name from which :func:`make_penalty` makes the same penalty; one that has no such name is refused."""
    named, given = vars(PENALTIES.of(penalty)()), vars(penalty)
    if named.keys() != given.keys() or not all(bool(np.array_equal(named[key], given[key])) for key in named):
        raise InvalidInputError(
            f"expected the penalty {penalty.name!r} with its default parameters, which its name stands for, got other "
            "ones: a file keeps the name only"
        )
    return penalty.name


def make_penalty(penalty: str | Penalty) -> Penalty:
    """Return the penalty of that name, or the one given."""
    return penalty if isinstance(penalty, Penalty) else PENALTIES.find(penalty)()
