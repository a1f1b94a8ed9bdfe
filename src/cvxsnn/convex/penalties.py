"""Penalties on the coefficients: value, dual norm, proximal map."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from ..core.checks import check_choice


class Penalty(ABC):
    """A norm Ω of the coefficients, an array of shape (n_atoms, n_outputs)."""

    name: ClassVar[str]

    @abstractmethod
    def value(self, coef: Tensor) -> Tensor:
        """Ω(W)."""

    @abstractmethod
    def atom_norms(self, correlation: Tensor) -> Tensor:
        """What the dual norm is the maximum of: one number for each atom."""

    @abstractmethod
    def prox(self, coef: Tensor, step: float) -> Tensor:
        """argmin_V ½‖V − W‖² + step · Ω(V)."""

    def dual_norm(self, correlation: Tensor) -> Tensor:
        """Ω°(C) = max over the unit ball of ⟨C, W⟩; zero is optimal where it is at most the strength."""
        return self.atom_norms(correlation).max()


class L1(Penalty):
    """Sum of absolute values: the penalty of the paper's algorithms."""

    name = "l1"

    def value(self, coef: Tensor) -> Tensor:
        """Σ |w|."""
        return coef.abs().sum()

    def atom_norms(self, correlation: Tensor) -> Tensor:
        """Largest absolute value of each row."""
        return correlation.abs().amax(1)

    def prox(self, coef: Tensor, step: float) -> Tensor:
        """Soft thresholding."""
        return coef - coef.clamp(-step, step)


class GroupL2(Penalty):
    """Sum over atoms of the Euclidean norm of their output weights: the theory's Σ_k ‖P_k,out‖₂."""

    name = "group"

    def value(self, coef: Tensor) -> Tensor:
        """Σ_j ‖w_j‖₂."""
        return _row_norms(coef).sum()

    def atom_norms(self, correlation: Tensor) -> Tensor:
        """Euclidean norm of each row."""
        return _row_norms(correlation)

    def prox(self, coef: Tensor, step: float) -> Tensor:
        """Shrink each row."""
        norms = _row_norms(coef)[:, None]
        return coef * (1 - step / norms.clamp_min(step)).clamp_min(0)


def _row_norms(matrix: Tensor) -> Tensor:
    return matrix.square().sum(1).sqrt()


PENALTIES: dict[str, type[Penalty]] = {kind.name: kind for kind in (L1, GroupL2)}


def make_penalty(penalty: str | Penalty) -> Penalty:
    """The penalty of that name."""
    return penalty if isinstance(penalty, Penalty) else PENALTIES[check_choice("penalty", penalty, tuple(PENALTIES))]()
