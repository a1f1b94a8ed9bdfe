"""What a read-out minimises: its loss, its penalty, and the strengths to try."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from ..convex import ConvexProblem
from ..convex.left_out import mean_eigenvalue
from ..convex.losses import Squared
from ..convex.objective import Objective
from ..convex.penalties import PENALTIES, Penalty, check_prices, check_strengths, make_penalty
from ..core.checks import check_choice, check_positive_int
from ..core.errors import InvalidInputError
from ..data.sequences import TrainingSet
from ..dictionary import Dictionary
from ..network.spiking_network import OutputHead, SpikingNetwork

Strengths = float | Sequence[float] | Literal["auto"]
"""One strength, several to choose from, or the grid of the library."""

Point = tuple[float, float]
"""A point of the grid: the strength of the norm and that of the quadratic, as :meth:`Program.at` reads them."""

QUADRATIC_RATIOS: tuple[float, ...] = tuple((10.0 ** np.arange(3, -5.1, -0.5)).tolist())
"""Strengths of the quadratic, relative to the mean eigenvalue of the products of rows: from no fit to no penalty."""


@dataclass(frozen=True)
class Program:
    """The convex program of a read-out. Several strengths, or "auto", leave the choice to a judge.

    Parameters
    ----------
    objective : Objective
        The loss, and which spikes are read.
    penalty : "auto", "l1", "group", "elastic-net" or "group-elastic-net"
        The penalty of the coefficients. "auto" is "l1"; over trained neurons, :meth:`around` says what it is.
    l1_strength : float, sequence of float, or "auto"
        The strength of the norm. "auto" is a path of ``n_strengths``. With the elastic nets it may be zero, which is
        ridge, and "auto" includes that.
    l2_strength : float, sequence of float, or "auto"
        The strength of the quadratic. "auto" is a grid for the elastic nets, and zero for penalties without one.
    n_strengths : int
        The number of strengths on the path.
    smallest_ratio : float
        The end of the path, relative to the strength at which all coefficients vanish.
    intercept : bool
        Whether the read-out has an unpenalised constant.
    tol : float
        The relative gap to certify.
    pool : int
        Solve over a pool of this many witnesses, which are priced and never held at once. With 0, solve over the
        witnesses that were sampled.
    centre : SpikingNetwork or Tensor, optional
        A network with the same hidden neurons, to whose output weights the quadratic draws; or these weights for each
        column, of shape (n_outputs, n_columns). By default it draws to zero.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import Program
    >>> objective = cs.convex.Objective("logistic")
    >>> Program(objective, l1_strength=0.01).is_fixed, Program(objective).is_fixed
    (True, False)
    """

    objective: Objective
    penalty: str = "auto"
    l1_strength: Strengths = "auto"
    l2_strength: Strengths = "auto"
    n_strengths: int = 12
    smallest_ratio: float = 1e-3
    intercept: bool = field(default=False, kw_only=True)
    tol: float = field(default=1e-6, kw_only=True)
    pool: int = field(default=0, kw_only=True)
    centre: SpikingNetwork | Tensor | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse invalid settings."""
        check_choice("penalty", self.penalty, (*PENALTIES, "auto"))
        check_positive_int("n_strengths", self.n_strengths)
        if not 0 < self.smallest_ratio < 1:
            raise InvalidInputError(f"expected smallest_ratio between 0 and 1, got {self.smallest_ratio!r}")
        norm, quadratic = (_as_list(name, getattr(self, name)) for name in ("l1_strength", "l2_strength"))
        for l1_strength in [1.0] if norm is None else norm:
            for l2_strength in [float(self.has_quadratic)] if quadratic is None else quadratic:
                check_strengths(l1_strength, l2_strength, self.kind)
        if self.pool and norm is not None:
            check_prices(min(norm), "a pool of witnesses")

    @classmethod
    def ridge(cls, objective: Objective, *, intercept: bool = True, tol: float = 1e-6) -> Self:
        """Return ridge regression at the strength that a judge finds best.

        Parameters
        ----------
        objective : Objective
            The squared loss, and which spikes are read.
        intercept : bool
            Whether the read-out has an unpenalised constant.
        tol : float
            The relative gap to certify.

        Returns
        -------
        Program
            An elastic net without a norm.
        """
        return cls(objective, "elastic-net", 0.0, intercept=intercept, tol=tol)

    @property
    def kind(self) -> Penalty:
        """The penalty of a program that is not around a trained network."""
        return make_penalty("l1" if self.penalty == "auto" else self.penalty)

    @property
    def has_quadratic(self) -> bool:
        """Whether the penalty is an elastic net."""
        return self.kind.has_quadratic

    @property
    def is_fixed(self) -> bool:
        """Whether there is one pair of strengths and nothing to choose."""
        return isinstance(self.l1_strength, Real) and (isinstance(self.l2_strength, Real) or not self.has_quadratic)

    @property
    def is_ridge(self) -> bool:
        """Whether there is no norm."""
        return self.norms() == [0.0]

    @property
    def is_open_ridge(self) -> bool:
        """Whether there is no norm, and the quadratic is chosen from the grid of the library."""
        return self.is_ridge and self.l2_strength == "auto"

    def with_readout(self, readout: str) -> Self:
        """Return the program for another read-out.

        Parameters
        ----------
        readout : str
            Which spikes are read.

        Returns
        -------
        Program
            The same program with this read-out.
        """
        return replace(self, objective=replace(self.objective, readout=readout))

    def around(self, network: SpikingNetwork | Tensor) -> tuple[Self, ...]:
        """Return the programs to choose from for the neurons of a trained network.

        If penalty and strengths are "auto", the penalty is ridge, since few trained neurons are all of use. If ridge of
        any strength is left open, it is tried around the output weights of the network, too. The stronger it is there,
        the closer is the optimum to the network itself.

        Parameters
        ----------
        network : SpikingNetwork or Tensor
            The trained network, or its output weights.

        Returns
        -------
        tuple of Program
            Ridge around the network if that is left open, then the program itself.
        """
        program = self
        if self.penalty == self.l1_strength == "auto":
            program = replace(self, penalty="elastic-net", l1_strength=0.0)
        is_open = program.has_quadratic and program.l2_strength == "auto" and 0.0 in program.norms()
        return (replace(program, l1_strength=0.0, centre=network), program) if is_open else (program,)

    def problem(self, dictionary: Dictionary, data: TrainingSet) -> ConvexProblem:
        """Return the program over a dictionary, at strengths that still have to be set.

        Parameters
        ----------
        dictionary : Dictionary
            The spikes of the witnesses on the data.
        data : TrainingSet
            The data, whose targets are encoded as the loss needs them.

        Returns
        -------
        ConvexProblem
            The problem; :meth:`at` sets its strengths.
        """
        l1_strength, l2_strength = (0.0, 1.0) if self.has_quadratic else (1.0, 0.0)
        return ConvexProblem.of(
            self.objective,
            dictionary,
            data,
            l1_strength=l1_strength,
            l2_strength=l2_strength,
            penalty=self.kind,
            intercept=self.intercept,
            centre=self.centre_of(dictionary),
        )

    def centre_of(self, dictionary: Dictionary) -> Tensor | None:
        """Return what the quadratic draws to, as coefficients of a dictionary; None for zero.

        Parameters
        ----------
        dictionary : Dictionary
            The columns that are read.

        Returns
        -------
        Tensor of shape (n_atoms, n_outputs) or None
            The coefficients.
        """
        if self.centre is None:
            return None
        if isinstance(self.centre, Tensor):
            return dictionary.coefficients(torch.arange(dictionary.n_columns), self.centre.T)
        return dictionary.coefficients(self.centre.columns, self.centre.weight)

    def norms(self) -> list[float]:
        """Return the strengths of the norm on the grid.

        Returns
        -------
        list of float
            Falling strengths: as given, or relative to the critical strength.
        """
        strengths = _as_list("l1_strength", self.l1_strength)
        if strengths is not None:
            return sorted(set(map(float, strengths)), reverse=True)
        path: list[float] = np.geomspace(1.0, self.smallest_ratio, self.n_strengths).tolist()
        # Without a norm every witness is active, so a pool cannot be priced; without either term nothing is penalised.
        can_vanish = self.has_quadratic and not self.pool and 0 not in self.quadratics()
        return [*path, 0.0] if can_vanish else path

    def quadratics(self) -> list[float]:
        """Return the strengths of the quadratic on the grid.

        Returns
        -------
        list of float
            Falling strengths: as given, or relative to the mean eigenvalue.
        """
        if not self.has_quadratic:
            return [0.0]
        strengths = _as_list("l2_strength", self.l2_strength)
        return list(QUADRATIC_RATIOS) if strengths is None else sorted(set(map(float, strengths)), reverse=True)

    def at(self, problem: ConvexProblem, point: Point, share: float = 1.0) -> ConvexProblem:
        """Return a problem at a point of the grid.

        Parameters
        ----------
        problem : ConvexProblem
            The program over a dictionary.
        point : tuple of two float
            The strengths: absolute if the user gave them, relative to the data for "auto".
        share : float
            The share of the rows on which the point was chosen. The noise in a correlation falls with the square root
            of the number of rows, and so does the strength of a norm that suppresses it. The quadratic needs no
            correction: the mean eigenvalue already falls with the number of rows.

        Returns
        -------
        ConvexProblem
            The same problem at these strengths.
        """
        norm, quadratic = point
        if norm and self.l1_strength == "auto":
            # The critical strength is zero if no atom correlates with the targets; then any norm gives the constant.
            norm *= (problem.critical_strength or 1.0) * share**0.5
        if quadratic and self.l2_strength == "auto":
            quadratic *= quadratic_unit(problem)
        return problem.with_strength(norm, quadratic)


CONSTANT = 1e-12
"""Mean eigenvalue up to which no column varies: the remainder is rounding."""


def quadratic_unit(problem: ConvexProblem) -> float:
    """Return the unit of strengths of the quadratic: the mean eigenvalue times the weight of the loss."""
    # Without variation any strength gives the same constant; 1 keeps it above zero.
    unit = mean_eigenvalue(problem)
    return unit * max(head.weight for head in problem.heads) if unit > CONSTANT else 1.0


def ridge_of(problem: ConvexProblem) -> ConvexProblem:
    """Return ridge regression on the encoded targets of a problem; a problem with the squared loss as it is.

    It ranks families and selects neurons for every loss, because its errors on rows left out have a closed form.
    """
    is_squared = len(problem.heads) == 1 and type(problem.heads[0].loss) is Squared and problem.penalty.has_l1_norm
    if is_squared and problem.penalty.has_quadratic:
        return problem
    ridge = ConvexProblem(
        problem.dictionary,
        torch.cat([head.targets for head in problem.heads], dim=1),
        "squared",
        0.0,
        l2_strength=1.0,
        penalty="elastic-net",
        intercept=problem.intercept,
        row_weight=problem.row_weight,
    )
    return ridge.with_groups(problem.groups)


def with_heads_of(problem: ConvexProblem, network: SpikingNetwork) -> SpikingNetwork:
    """Return a network that ridge regression has read with the heads of the problem that it stands for."""
    network.heads = tuple(
        OutputHead(head.name, head.loss.name, head.columns.start, head.columns.stop) for head in problem.heads
    )
    return network


def _as_list(name: str, strength: Strengths) -> list[float] | None:
    """Return one or several strengths as a list; None for "auto"."""
    if isinstance(strength, str):
        check_choice(name, strength, ("auto",))
        return None
    strengths: list[Any] = list(strength) if isinstance(strength, Sequence) else [strength]
    if len(strengths) == 0:
        raise InvalidInputError(f"expected at least one strength, got none: pass {name}='auto'")
    if not all(isinstance(value, Real) for value in strengths):
        raise InvalidInputError(f"expected {name} to be a number, a list of numbers, or 'auto', got {strength!r}")
    return strengths
