"""The convex program: dictionary, targets, loss, penalty. A value that checks itself once."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

from ..core.checks import Array, as_tensor
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..data.sequences import TrainingSet
from ..dictionary import Dictionary, build_dictionary
from .losses import Loss, Squared
from .objective import Head, Objective, TimestepWeighting, check_weighting, make_heads, make_row_weight, weighted_loss
from .penalties import Penalty, check_strengths, half_square, make_penalty

Result = TypeVar("Result")


class Workspace:
    """Results of functions of a problem's data, each computed once.

    A problem has two: one is shared with the same problem at other strengths; the other has the results that depend on
    dictionary and row weights alone, and is shared with other losses too. Solutions and pickles keep neither.
    """

    def __init__(self) -> None:
        self._results: dict[tuple[Hashable, ...], Any] = {}

    def get(self, function: Callable[..., Result], argument: Any, *key: Hashable) -> Result:
        """Return ``function(argument, *key)``, computed at the first call with this function and key."""
        if (function, *key) not in self._results:
            self._results[function, *key] = function(argument, *key)
        result: Result = self._results[function, *key]
        return result

    def has(self, function: Callable[..., Any]) -> bool:
        """Return whether a function was called before."""
        return (function,) in self._results

    def put(self, function: Callable[..., Result], result: Result) -> None:
        """Keep what ``function(argument)`` would return, if it is known."""
        self._results[(function,)] = result

    def clear(self) -> None:
        """Forget all results, such as a Gram matrix that is not needed any more."""
        self._results.clear()

    def __reduce__(self) -> tuple[type["Workspace"], tuple[()]]:
        """Pickle and copy as an empty workspace."""
        return Workspace, ()


class ConvexProblem:
    r"""Minimise a loss plus a penalty over coefficients W and, optionally, an intercept b.

    .. math::
        \sum_h \lambda_h \sum_i \omega_i\, \ell_h\big((DW + b)_{i,h}; y_{i,h}\big)
        + s\,\Omega(W) + \tfrac{r}{2} \|W - W_0\|_2^2

    with row weights ω that sum to one, ``s = l1_strength``, ``r = l2_strength`` and ``W₀ = centre``.

    Parameters
    ----------
    dictionary : Dictionary, or a 0/1 array of shape (n_rows, n_columns)
        With ``readout="last"`` this is the paper's finite convex formulation; with ``readout="all"`` the per-timestep
        program with a shared output layer, one row for each step of each sample.
    targets : array, or a mapping of heads to arrays
        One entry per row: (n_rows,), or (n_samples, n_steps) for a trajectory dictionary; real targets or binary labels
        may have several columns, (n_rows, n_outputs).
    loss : str, Loss, or a mapping of heads to them
        The loss: "squared", "hinge", "squared_hinge", "logistic", "softmax", or one of your own.
    l1_strength : float
        The number s that multiplies the norm; nothing else is scaled. Zero is ridge, and requires an ``l2_strength``
        above zero.
    l2_strength : float
        The number r that multiplies half the sum of squares, for the elastic nets.
    penalty : str or Penalty
        The penalty: "l1", the sum of absolute values; "group", the sum over atoms of the Euclidean norm of their
        outputs; "elastic-net" and "group-elastic-net", which are these plus the sum of squares; or one of your own.
    intercept : bool
        Whether to add an unpenalised constant to the scores.
    row_weight : array of shape (n_rows,), optional
        Relative importance of the rows; normalised to sum to one. Uniform when not given.
    timestep_weighting : "uniform" or "ramped"
        For trajectory dictionaries: weight step t by 1, or by t (so that the last step of T counts T times the first).
    head_weights : mapping of heads to float, optional
        The λ of each head; 1 when not given.
    centre : array of shape (n_atoms, n_outputs), optional
        The coefficients W₀ to which the quadratic draws W; requires an ``l2_strength`` above zero. Zero when not given.

    Attributes
    ----------
    groups : Tensor of shape (n_rows,), dtype int64, or None
        The group of each row, see :meth:`with_groups`. It is no part of the program.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> D = np.array([[1, 0], [1, 1], [0, 1], [0, 0]])
    >>> cs.ConvexProblem(D, [1, 1, 0, 0], loss="logistic", l1_strength=0.05)
    ConvexProblem(4 rows × 2 atoms → 1 output, logistic + 0.05·l1)
    """

    def __init__(
        self,
        dictionary: Dictionary | Array,
        targets: Array | Mapping[str, Array],
        loss: str | Loss | Mapping[str, str | Loss] = "logistic",
        l1_strength: float = 0.1,
        *,
        l2_strength: float = 0.0,
        penalty: str | Penalty = "l1",
        intercept: bool = False,
        row_weight: Array | None = None,
        timestep_weighting: TimestepWeighting = "uniform",
        head_weights: Mapping[str, float] | None = None,
        centre: Array | None = None,
    ) -> None:
        self.dictionary = dictionary if isinstance(dictionary, Dictionary) else build_dictionary(dictionary)
        self.penalty = make_penalty(penalty)
        self.l1_strength, self.l2_strength = check_strengths(l1_strength, l2_strength, self.penalty)
        self.intercept = bool(intercept)
        check_weighting(timestep_weighting, self.dictionary.readout)
        n_steps = self.dictionary.n_steps if self.dictionary.readout == "all" else 1
        rows = self.dictionary.n_rows // n_steps, n_steps, self.dictionary.device
        self.heads = make_heads(targets, loss, head_weights or {}, *rows)
        self.row_weight = make_row_weight(row_weight, timestep_weighting, *rows)
        self.centre = self._checked_centre(centre)
        self.groups: Tensor | None = None
        self.workspace, self.row_workspace = Workspace(), Workspace()
        # An intercept sees only the rows that have weight.
        _check_contrast(self.heads, self.row_weight > 0 if self.intercept else None)

    @classmethod
    def of(
        cls,
        objective: Objective,
        dictionary: Dictionary,
        data: TrainingSet,
        *,
        l1_strength: float = 1.0,
        l2_strength: float = 0.0,
        penalty: str | Penalty = "l1",
        intercept: bool = False,
        centre: Array | None = None,
    ) -> "ConvexProblem":
        """Return the program of a training objective, over a dictionary that was built from its sequences.

        Parameters
        ----------
        objective : Objective
            The loss part.
        dictionary : Dictionary
            Spikes of some witnesses on the sequences of ``data``.
        data : TrainingSet
            Sequences with their targets.
        l1_strength, l2_strength : float
            The numbers that multiply the norm and half the sum of squares.
        penalty : str or Penalty
            The penalty.
        intercept : bool
            Whether to add an unpenalised constant to the scores.
        centre : array of shape (n_atoms, n_outputs), optional
            The coefficients to which the quadratic draws; zero when not given.

        Returns
        -------
        ConvexProblem
            The program.
        """
        n_steps = dictionary.n_rows // len(data)
        problem = cls(
            dictionary,
            data.targets,
            objective.loss,
            l1_strength,
            l2_strength=l2_strength,
            penalty=penalty,
            intercept=intercept,
            row_weight=objective.row_weight(data, n_steps),
            timestep_weighting=objective.timestep_weighting,
            head_weights=objective.head_weights,
            centre=centre,
        )
        return problem.with_groups(None if data.groups is None else data.groups.repeat_interleave(n_steps))

    @property
    def n_outputs(self) -> int:
        """Number of output columns of all heads together."""
        return int(self.heads[-1].columns.stop)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The sizes ``(n_rows, n_atoms, n_outputs)``."""
        return *self.dictionary.shape, self.n_outputs

    def with_strength(self, l1_strength: float, l2_strength: float | None = None) -> Self:
        """Return the same problem at another strength; results that depend on the data alone are shared.

        Parameters
        ----------
        l1_strength : float
            The number that multiplies the norm.
        l2_strength : float, optional
            The number that multiplies half the sum of squares; unchanged when not given.

        Returns
        -------
        ConvexProblem
            The other problem.
        """
        l2_strength = self.l2_strength if l2_strength is None else l2_strength
        l1_strength, l2_strength = check_strengths(l1_strength, l2_strength, self.penalty)
        _check_quadratic(self.centre, l2_strength)
        return self._replace(l1_strength=l1_strength, l2_strength=l2_strength)

    def with_centre(self, centre: Array | None) -> Self:
        """Return the same problem with another centre; results that depend on the data alone are shared.

        Parameters
        ----------
        centre : array of shape (n_atoms, n_outputs), or None
            The coefficients W₀ to which the quadratic draws W; zero for None.

        Returns
        -------
        ConvexProblem
            The other problem.
        """
        return self._replace(centre=self._checked_centre(centre))

    def with_heads(self, heads: tuple[Head, ...]) -> Self:
        """Return a problem over the same rows and atoms with other losses.

        Parameters
        ----------
        heads : tuple of Head
            The losses with their targets.

        Returns
        -------
        ConvexProblem
            The other problem.
        """
        # The other workspace stays valid: it depends on rows and atoms alone.
        return self._replace(heads=heads, workspace=Workspace())

    def with_groups(self, groups: Tensor | None) -> Self:
        """Return the same problem with rows that are left out together.

        Parameters
        ----------
        groups : Tensor of shape (n_rows,), dtype int64, or None
            The group of each row. None leaves out rows, or samples if every step is a row, one by one.

        Returns
        -------
        ConvexProblem
            The same program.
        """
        if groups is not None:
            # If each row is its own group, there is nothing to leave out together.
            groups = groups.to(self.row_weight.device) if len(torch.unique(groups)) < len(groups) else None
        return self._replace(groups=groups)

    def take_rows(self, rows: Tensor) -> Self:
        """Return the problem over some of the rows, whose weights again sum to one.

        Parameters
        ----------
        rows : Tensor of shape (n_chosen,), dtype int64
            The rows to keep, in this order; not all of them without weight.

        Returns
        -------
        ConvexProblem
            The other problem. Outputs stay as they are, those of classes that do not occur any more among them.
        """
        weight = self.row_weight[rows]
        return self._replace(
            dictionary=self.dictionary.take_rows(rows),
            row_weight=weight / weight.sum(),
            heads=tuple(replace(head, targets=head.targets[rows]) for head in self.heads),
            groups=None if self.groups is None else self.groups[rows],
            workspace=Workspace(),
            row_workspace=Workspace(),
        )

    def take_atoms(self, atoms: Tensor) -> Self:
        """Return the problem over some of the atoms.

        Parameters
        ----------
        atoms : Tensor of shape (n_chosen,), dtype int64
            The atoms to keep, in this order.

        Returns
        -------
        ConvexProblem
            The other problem.
        """
        taken = self.dictionary.take_atoms(atoms)
        centre = None if self.centre is None else self.centre[atoms]
        return self._replace(dictionary=taken, centre=centre, workspace=Workspace(), row_workspace=Workspace())

    def simplified(self) -> Self:
        """Return the problem with the simplest penalty that is equal to its own.

        Returns
        -------
        ConvexProblem
            The same program.
        """
        penalty = self.penalty.simplest(self.n_outputs, self.l1_strength, self.l2_strength)
        return self if penalty is self.penalty else self._replace(penalty=penalty)

    @property
    def is_smooth(self) -> bool:
        """Whether every loss is smooth."""
        return all(head.loss.is_smooth for head in self.heads)

    def smoothed(self, width: float) -> Self:
        """Return the problem with the corners of its losses rounded.

        Parameters
        ----------
        width : float
            The width over which corners are rounded.

        Returns
        -------
        ConvexProblem
            A problem with smooth losses.
        """
        return self.with_heads(tuple(replace(head, loss=head.loss.smoothed(width)) for head in self.heads))

    def without_workspace(self) -> Self:
        """Return the problem without cached results, as a solution keeps it.

        Returns
        -------
        ConvexProblem
            The same program.
        """
        return self._replace(workspace=Workspace(), row_workspace=Workspace())

    def loss_value(self, scores: Tensor) -> Tensor:
        """Return the weighted loss.

        Parameters
        ----------
        scores : Tensor of shape (n_rows, n_outputs)
            The scores DW + b.

        Returns
        -------
        Tensor
            A scalar.
        """
        return weighted_loss(self.heads, self.row_weight, scores)

    def objective(self, coef: Tensor, scores: Tensor) -> float:
        """Return the weighted loss plus the penalty.

        Parameters
        ----------
        coef : Tensor of shape (n_atoms, n_outputs)
            The coefficients W.
        scores : Tensor of shape (n_rows, n_outputs)
            The scores DW + b that they give.

        Returns
        -------
        float
            The objective.
        """
        return float(self.loss_value(scores) + self.penalty_value(coef))

    def penalty_value(self, coef: Tensor, l1_strength: float | None = None) -> Tensor:
        """Return s·Ω(W) + ½r‖W − W₀‖².

        Parameters
        ----------
        coef : Tensor of shape (n_atoms, n_outputs)
            The coefficients W.
        l1_strength : float, optional
            Another strength s than that of the problem.

        Returns
        -------
        Tensor
            A scalar.
        """
        l1_strength = self.l1_strength if l1_strength is None else l1_strength
        if self.centre is None:
            return self.penalty.value(coef, l1_strength, self.l2_strength)
        return self.penalty.value(coef, l1_strength) + half_square(coef - self.centre, self.l2_strength)

    def quadratic_slope(self, coef: Tensor) -> Tensor:
        """Return r(W − W₀), the gradient of the quadratic.

        Parameters
        ----------
        coef : Tensor of shape (n_atoms, n_outputs)
            The coefficients W.

        Returns
        -------
        Tensor of shape (n_atoms, n_outputs)
            The gradient.
        """
        return self.l2_strength * (coef if self.centre is None else coef - self.centre)

    def unit_dual(self, scores: Tensor) -> Tensor:
        """Return the gradient of the loss, divided by the row weights.

        Parameters
        ----------
        scores : Tensor of shape (n_rows, n_outputs)
            The scores DW + b.

        Returns
        -------
        Tensor of shape (n_rows, n_outputs)
            A dual point per unit of row weight.
        """
        return self._by_head(lambda h: h.weight * h.loss.gradient(scores[:, h.columns], h.targets))

    def curvature(self, scores: Tensor) -> Tensor:
        """Return the diagonal of each loss's Hessian, without weights.

        Parameters
        ----------
        scores : Tensor of shape (n_rows, n_outputs)
            The scores DW + b.

        Returns
        -------
        Tensor of shape (n_rows, n_outputs)
            The diagonals.
        """
        return self._by_head(lambda h: h.loss.curvature(scores[:, h.columns], h.targets))

    def dual_domain(self, unit_dual: Tensor) -> Tensor:
        """Return a nearby dual point with a finite conjugate and, with an intercept, orthogonal to it.

        Parameters
        ----------
        unit_dual : Tensor of shape (n_rows, n_outputs)
            A dual point per unit of row weight.

        Returns
        -------
        Tensor of shape (n_rows, n_outputs)
            A point of the domain.
        """

        def project(head: Head) -> Tensor:
            dual = head.loss.project(unit_dual[:, head.columns] / head.weight, head.targets)
            return head.weight * (head.loss.balance(dual, head.targets, self.row_weight) if self.intercept else dual)

        return self._by_head(project)

    def correlation(self, unit_dual: Tensor) -> Tensor:
        """Return the gradient of the loss with respect to the coefficients.

        Parameters
        ----------
        unit_dual : Tensor of shape (n_rows, n_outputs)
            The gradient with respect to the scores, per unit of row weight.

        Returns
        -------
        Tensor of shape (n_atoms, n_outputs)
            The correlation of each atom with the dual point.
        """
        return self.dictionary.rmatvec(self.row_weight[:, None] * unit_dual)

    @property
    def null_intercept(self) -> Tensor:
        """The best intercept when no atom is active, shape (n_outputs,); zero without one."""
        return self.workspace.get(_null_intercept, self)

    @property
    def null_dual(self) -> Tensor:
        """Dual point, divided by the row weights, that proves zero coefficients optimal if they are."""
        if not self.intercept:
            return self.unit_dual(self.row_weight.new_zeros(len(self.row_weight), self.n_outputs))
        return self._by_head(lambda h: h.weight * h.loss.null_dual(h.targets, self.row_weight))

    @property
    def centred(self) -> tuple["ConvexProblem", Tensor]:
        """The program with targets of squared losses measured from their means, and the means, shape (n_outputs,).

        An intercept makes the two equal, but sums of small numbers lose less to rounding than sums of large ones. The
        means are zero for other losses and without an intercept.
        """
        if not (self.intercept and any(type(head.loss) is Squared for head in self.heads)):
            return self, self.row_weight.new_zeros(self.n_outputs)
        centred, means = self.workspace.get(_centre_targets, self)
        return self._penalised(centred), means

    @property
    def critical_strength(self) -> float:
        """A strength at and above which zero coefficients are optimal.

        The smallest such strength, except for the hinge with an intercept, whose subgradient at zero is not unique.
        """
        # With a centre it depends on it and on the quadratic, which problems with this workspace need not share.
        return self.workspace.get(_critical_strength, self) if self.centre is None else _critical_strength(self)

    @property
    def null_correlation(self) -> Tensor:
        """Gradient of the loss with respect to the coefficients at zero, shape (n_atoms, n_outputs)."""
        return self.workspace.get(_null_correlation, self)

    @property
    def null_slope(self) -> Tensor:
        """Gradient of loss and quadratic at zero coefficients, shape (n_atoms, n_outputs)."""
        return self.null_correlation if self.centre is None else self.null_correlation - self.l2_strength * self.centre

    @property
    def reduced(self) -> tuple["ConvexProblem", Tensor]:
        """The problem with equal rows (same spikes, same targets) merged and weightless ones dropped.

        It comes with the reduced row that stands for each row, shape (n_rows,). Rows on disk stay as they are.
        """
        if not self.dictionary.is_in_memory:
            return self, torch.arange(self.dictionary.n_rows)
        reduced, row_of = self.workspace.get(_merge_rows, self)
        return self._penalised(reduced), row_of

    def independent_outputs(self) -> list[slice]:
        """Return the output columns of the independent parts of the objective.

        Returns
        -------
        list of slice
            One per part; a single one if the penalty couples the outputs.
        """
        if not self.penalty.is_separable:
            return [slice(0, self.n_outputs)]
        parts = []
        for head in self.heads:
            width = 1 if head.loss.is_separable else head.targets.shape[1]
            starts = range(head.columns.start, head.columns.stop, width)
            parts += [slice(start, start + width) for start in starts]
        return parts

    def part(self, columns: slice) -> "ConvexProblem":
        """Return the problem of some outputs of one head alone, for a separable penalty.

        Parameters
        ----------
        columns : slice
            Columns of one head.

        Returns
        -------
        ConvexProblem
            The problem; the objectives of parts that cover all columns add up to that of the whole.
        """
        if columns == slice(0, self.n_outputs):
            return self
        return self._penalised(self.workspace.get(_take_outputs, self, columns.start, columns.stop), columns)

    def _penalised(self, other: "ConvexProblem", columns: slice = slice(None)) -> "ConvexProblem":
        """Return another problem, of some outputs of this one, with the penalty of this one."""
        centre = None if self.centre is None else self.centre[:, columns]
        strengths = {"l1_strength": self.l1_strength, "l2_strength": self.l2_strength}
        return other._replace(penalty=self.penalty, centre=centre, **strengths)

    def _checked_centre(self, centre: Array | None) -> Tensor | None:
        """Return a centre in float64 that fits atoms and outputs, beside a quadratic."""
        _check_quadratic(centre, self.l2_strength)
        if centre is None:
            return None
        checked = as_tensor("the centre", centre).to(self.row_weight, copy=True)
        expected = (self.dictionary.n_atoms, self.n_outputs)
        if tuple(checked.shape) != expected:
            raise InvalidInputError(
                f"expected a centre of shape {expected}, one number per atom and output, got {tuple(checked.shape)}"
            )
        if not bool(checked.isfinite().all()):
            raise InvalidInputError("expected a centre of finite numbers, got NaN or infinite values")
        return checked

    def _by_head(self, function: Callable[[Head], Tensor]) -> Tensor:
        return torch.cat([function(head) for head in self.heads], dim=1)

    def _replace(self, **changes: Any) -> Self:
        # Not __init__: its checks and encodings were done when this problem was made.
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__ | changes)
        return other

    def __repr__(self) -> str:
        """Return sizes and terms on one line."""
        losses = " + ".join(head.loss.name for head in self.heads)
        n_rows, n_atoms, n_outputs = self.shape
        difference = "W" if self.centre is None else "W − W₀"
        quadratic = f" + {self.l2_strength:g}·½‖{difference}‖²" if self.l2_strength else ""
        return (
            f"ConvexProblem({plural(n_rows, 'row')} × {plural(n_atoms, 'atom')} → {plural(n_outputs, 'output')}, "
            f"{losses} + {self.l1_strength:g}·{self.penalty.name}{quadratic}{', intercept' if self.intercept else ''})"
        )


def _null_intercept(problem: ConvexProblem) -> Tensor:
    if not problem.intercept:
        return problem.row_weight.new_zeros(problem.n_outputs)
    return torch.cat([h.loss.null_intercept(h.targets, problem.row_weight) for h in problem.heads])


def _null_correlation(problem: ConvexProblem) -> Tensor:
    return problem.correlation(problem.null_dual)


def _critical_strength(problem: ConvexProblem) -> float:
    norm = float(problem.penalty.dual_norm(problem.null_slope))
    mass = float((problem.row_weight @ problem.null_dual.abs()).max())
    # Constant atoms beside an intercept explain nothing: their correlation is rounding, a share of the dual's mass.
    return norm if norm > 1e-14 * mass else 0.0


def _centre_targets(problem: ConvexProblem) -> tuple[ConvexProblem, Tensor]:
    means = problem.null_intercept.clone()
    heads = []
    for head in problem.heads:
        if type(head.loss) is not Squared:  # a subclass may not be a function of the difference
            means[head.columns] = 0.0
        heads.append(replace(head, targets=head.targets - means[head.columns]))
    return problem.with_heads(tuple(heads)), means


def _take_outputs(problem: ConvexProblem, start: int, stop: int) -> ConvexProblem:
    head = next(head for head in problem.heads if start < head.columns.stop)
    inside = slice(start - head.columns.start, stop - head.columns.start)
    return problem.with_heads((replace(head, columns=slice(0, stop - start), targets=head.targets[:, inside]),))


def _merge_rows(problem: ConvexProblem) -> tuple[ConvexProblem, Tensor]:
    labels = torch.cat([h.targets for h in problem.heads], dim=1)
    weightless = (problem.row_weight == 0).to(labels)[:, None]
    groups = problem.dictionary.group_rows(torch.cat((labels, weightless), dim=1))
    weight = torch.zeros_like(problem.row_weight[: len(groups.first)])
    weight = weight.index_add_(0, groups.inverse, problem.row_weight)
    kept = torch.nonzero(weight > 0).squeeze(1)
    # Dropped rows stand for row 0: without weight, their dual point is zero whichever row it is taken from.
    row_of_group = torch.zeros_like(groups.inverse[: len(weight)])
    row_of_group[kept] = torch.arange(len(kept), device=kept.device)
    reduced = problem.take_rows(groups.first[kept])._replace(row_weight=weight[kept])
    return reduced, row_of_group[groups.inverse]


def _check_quadratic(centre: Array | None, l2_strength: float) -> None:
    if centre is not None and not l2_strength:
        raise InvalidInputError(
            "expected l2_strength above zero for a centre, got 0: only the quadratic of penalty='elastic-net' or "
            "'group-elastic-net' has one"
        )


def _check_contrast(heads: tuple[Head, ...], is_weighted: Tensor | None) -> None:
    """Refuse rows of one class, and rows with weight of one class beside an intercept, which fits them perfectly.

    The best intercept would be infinite, or not unique.
    """
    for head in heads:
        if head.loss.lacks_contrast(head.targets):
            raise InvalidInputError(
                f"expected two classes or more in head {head.name!r}, in each of its columns, got one class only: "
                "there is nothing to separate"
            )
        if is_weighted is not None and head.loss.lacks_contrast(head.targets[is_weighted]):
            raise InvalidInputError(
                f"expected two classes among the rows with weight in head {head.name!r}, got one class only, which an "
                "intercept separates by itself: give rows of both classes weight, or use intercept=False"
            )
