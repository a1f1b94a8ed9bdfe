"""The convex program with the squared loss and the L1 norm or the elastic net, from sums over its rows."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ...dictionary import Readout
from ...witnesses import WitnessSet
from ..losses import Squared
from ..objective import Head
from ..penalties import L1, ElasticNet, Penalty
from ..strengths import check_strengths
from .sums import SquaredStatistics


@dataclass(frozen=True, eq=False)
class StatisticsProblem:
    r"""Minimise the mean squared loss plus the L1 norm or the elastic net, from the sums in :class:`SquaredStatistics`.

    .. math:: \frac{1}{2n} \| Y - DW - 1b^\top \|^2 + s\,\|W\|_1 + \tfrac{r}{2} \|W\|_2^2

    the same program as ``ConvexProblem(..., loss="squared", penalty="elastic-net")`` over all rows with equal weights.
    The sum of squares is over atoms: columns of 0 and 1 that are equal have one coefficient. Equal columns of means are
    not recognised in the sums, and have one each, which only makes a difference for r > 0.

    Parameters
    ----------
    statistics : SquaredStatistics
        The sums over the rows.
    l1_strength : float
        The number s that multiplies the norm. It may be zero, which is ridge, if ``l2_strength`` is not.
    intercept : bool
        Whether to add an unpenalised constant to the scores.
    l2_strength : float
        The number r that multiplies half the sum of squares.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> batches = [(inputs[:20], inputs[:20, -1, 0]), (inputs[20:], inputs[20:, -1, 0])]
    >>> statistics = cs.convex.gather_statistics(cs.gaussian_witnesses(2, (16,), seed=0), batches)
    >>> problem = cs.convex.StatisticsProblem(statistics, l1_strength=0.01)
    >>> problem.n_rows, problem.n_outputs
    (40, 1)
    """

    statistics: SquaredStatistics
    l1_strength: float
    intercept: bool = False
    l2_strength: float = 0.0

    def __post_init__(self) -> None:
        """Refuse strengths without a dual bound."""
        l1_strength, l2_strength = check_strengths(self.l1_strength, self.l2_strength, self.penalty)
        object.__setattr__(self, "l1_strength", l1_strength)
        object.__setattr__(self, "l2_strength", l2_strength)

    @property
    def penalty(self) -> Penalty:
        """The elastic net, or the L1 norm for r = 0."""
        return ElasticNet() if self.l2_strength != 0 else L1()

    @property
    def n_rows(self) -> int:
        """Number of rows that were summed."""
        return self.statistics.n_rows

    @property
    def n_atoms(self) -> int:
        """Number of distinct columns."""
        return len(self.column_of_atom)

    @property
    def n_outputs(self) -> int:
        """Number of outputs."""
        return self.statistics.n_outputs

    @property
    def witnesses(self) -> WitnessSet | None:
        """The witnesses that made the columns."""
        return self.statistics.witnesses

    @property
    def column_of_atom(self) -> Tensor:
        """The first column that is equal to each atom, shape (n_atoms,)."""
        return self.statistics.atoms.first

    @property
    def readout(self) -> Readout:
        """How spikes were read."""
        return self.statistics.readout

    @property
    def heads(self) -> tuple[Head, ...]:
        """One head with the squared loss; its targets have no rows."""
        return (Head("label", Squared(), 1.0, slice(0, self.n_outputs), self.statistics.cross[:0]),)

    @cached_property
    def gram(self) -> Tensor:
        """Products of the atoms and, last, a column of ones; shape (n_atoms + 1, n_atoms + 1)."""
        kept = self.column_of_atom
        sums = self.statistics.column_sums[kept]
        gram = torch.empty(len(kept) + 1, len(kept) + 1, dtype=torch.float64, device=sums.device)
        gram[:-1, :-1] = self.statistics.gram[kept][:, kept]
        gram[-1, :-1] = gram[:-1, -1] = sums
        gram[-1, -1] = self.n_rows
        return gram

    @cached_property
    def cross(self) -> Tensor:
        """Products of the atoms and, last, a column of ones with the targets; shape (n_atoms + 1, n_outputs)."""
        return torch.cat((self.statistics.cross[self.column_of_atom], self.statistics.target_sums[None]))

    @property
    def target_squares(self) -> Tensor:
        """Σ y² of each output."""
        return self.statistics.target_squares

    def quadratic(self) -> tuple[Tensor, Tensor]:
        """Return the loss of each output as ½ wᵀGw − cᵀw and a constant.

        An optimal intercept makes the residual's mean zero, which is the same as centring columns and targets.

        Returns
        -------
        gram : Tensor of shape (n_atoms, n_atoms)
            The matrix G.
        linear : Tensor of shape (n_atoms, n_outputs)
            The vectors c, one per column.
        """
        gram, linear = self.gram[:-1, :-1] / self.n_rows, self.cross[:-1] / self.n_rows
        if self.intercept:
            means, target_means = self.gram[:-1, -1] / self.n_rows, self.cross[-1] / self.n_rows
            gram, linear = gram - means[:, None] * means, linear - means[:, None] * target_means
        return gram, linear

    def best_intercept(self, coef: Tensor) -> Tensor:
        """Return the best constant beside some coefficients.

        Parameters
        ----------
        coef : Tensor of shape (n_atoms, n_outputs)
            The coefficients.

        Returns
        -------
        Tensor of shape (n_outputs,)
            The intercept; zero for a problem without one.
        """
        if not self.intercept:
            return coef.new_zeros(self.n_outputs)
        return (self.cross[-1] - self.gram[-1, :-1] @ coef) / self.n_rows

    def with_strength(self, l1_strength: float, l2_strength: float | None = None) -> "StatisticsProblem":
        """Return the same problem at another strength; what was computed from the data alone is shared.

        Parameters
        ----------
        l1_strength : float
            The number that multiplies the norm.
        l2_strength : float, optional
            The number that multiplies half the sum of squares; as it is when not given.

        Returns
        -------
        StatisticsProblem
            The other problem.
        """
        l2_strength = self.l2_strength if l2_strength is None else l2_strength
        other = replace(self, l1_strength=l1_strength, l2_strength=l2_strength)
        other.__dict__.update({name: self.__dict__[name] for name in ("gram", "cross") if name in self.__dict__})
        return other

    def __repr__(self) -> str:
        """Return sizes and terms on one line."""
        quadratic = f" + {self.l2_strength:g}·½‖W‖²" if self.l2_strength else ""
        return (
            f"StatisticsProblem({self.n_rows} rows × {self.n_atoms} atoms → {self.n_outputs} outputs, squared + "
            f"{self.l1_strength:g}·{self.penalty.name}{quadratic}{', intercept' if self.intercept else ''})"
        )
