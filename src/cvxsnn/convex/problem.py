"""The convex program: dictionary, targets, loss, penalty. A value that checks itself once."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

from ..core.checks import Array
from ..core.errors import BudgetError, InvalidInputError
from ..core.memory import DENSE_COPIES, check_fits, dense_bytes
from ..dictionary import DenseDictionary, Dictionary, ShardedDictionary, SpikeDictionary, build_dictionary
from .heads import Head, Rows, TimestepWeighting, make_heads, make_row_weight, weighted_loss
from .losses import Loss
from .penalties import Penalty, make_penalty

T = TypeVar("T")

_ROUNDING = 1e-14
"""Share of the dual's mass below which a correlation is nothing but rounding."""

_DENSE_BUDGET = 4 * 2**30
"""Bytes for a matrix of float64 that a solver may hold."""


class ConvexProblem:
    r"""Minimise a loss plus a norm over coefficients W and, where wanted, an intercept b.

    .. math:: \sum_h \lambda_h \sum_i \omega_i\, \ell_h\big((DW + b)_{i,h}; y_{i,h}\big) + s\,\Omega(W)

    with row weights ω that sum to one and ``s = l1_strength``.

    Parameters
    ----------
    dictionary : SpikeDictionary, DenseDictionary, ShardedDictionary, or a 0/1 array of shape (n_rows, n_columns)
        With ``readout="last"`` this is the paper's finite convex formulation; with ``readout="all"`` the per-timestep
        program with a shared output layer, one row for each step of each sample.
    targets : array, or a mapping of heads to arrays
        One entry a row: (n_rows,), or (n_samples, n_steps) for a trajectory dictionary; real targets or binary labels
        may have several columns, (n_rows, n_outputs).
    loss : str, Loss, or a mapping of heads to them
        "squared", "hinge", "squared_hinge", "logistic" or "softmax".
    l1_strength : float
        The number s that multiplies the norm. Nothing else is scaled.
    penalty : "l1" or "group"
        Sum of absolute values, or sum over atoms of the Euclidean norm of their outputs.
    intercept : bool
        Whether to add an unpenalised constant to the scores.
    row_weight : array of shape (n_rows,), optional
        Relative importance of the rows; normalised to sum to one. Uniform when not given.
    timestep_weighting : "uniform" or "ramped"
        For trajectory dictionaries: weight step t by 1, or by t (so that the last step of T counts T times the first).
    head_weights : mapping of heads to float, optional
        The λ of each head; 1 when not given.
    """

    def __init__(
        self,
        dictionary: Dictionary | Array,
        targets: Array | Mapping[str, Array],
        loss: str | Loss | Mapping[str, str | Loss] = "logistic",
        l1_strength: float = 0.1,
        *,
        penalty: str | Penalty = "l1",
        intercept: bool = False,
        row_weight: Array | None = None,
        timestep_weighting: TimestepWeighting = "uniform",
        head_weights: Mapping[str, float] | None = None,
    ) -> None:
        is_dictionary = isinstance(dictionary, (SpikeDictionary, DenseDictionary, ShardedDictionary))
        self.dictionary: Dictionary = dictionary if is_dictionary else build_dictionary(dictionary)  # type: ignore[assignment,arg-type]
        self.l1_strength = check_strength(l1_strength)
        self.penalty = make_penalty(penalty)
        self.intercept = bool(intercept)
        are_steps = self.dictionary.readout == "all"
        n_steps = self.dictionary.n_steps if are_steps else 1
        rows = Rows(self.dictionary.n_rows, n_steps, are_steps, self.dictionary.device)
        self.heads = make_heads(rows, targets, loss, head_weights or {})
        self.row_weight = make_row_weight(rows, row_weight, timestep_weighting)
        self._shared: dict[str, Any] = {}
        self._shared_rows: dict[str, Any] = {}
        if self.intercept:
            _check_contrast(self.heads, self.row_weight)

    @property
    def n_outputs(self) -> int:
        """Number of output columns of all heads together."""
        return int(self.heads[-1].columns.stop)

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(n_rows, n_atoms, n_outputs)``."""
        return *self.dictionary.shape, self.n_outputs

    def with_strength(self, l1_strength: float) -> Self:
        """The same problem at another strength; what was computed from the data alone is shared."""
        return self._replace(l1_strength=check_strength(l1_strength), _shared=self._shared)

    def with_heads(self, heads: tuple[Head, ...]) -> Self:
        """The same rows and atoms with other losses."""
        return self._replace(heads=heads, _shared={})

    def share(self, name: str, compute: Callable[[], T]) -> T:
        """A value that depends on the data and not on the strength, computed once for all strengths."""
        if name not in self._shared:
            self._shared[name] = compute()
        value: T = self._shared[name]
        return value

    def share_rows(self, name: str, compute: Callable[[], T]) -> T:
        """A value that depends on the dictionary and the row weights alone, computed once for all losses as well."""
        if name not in self._shared_rows:
            self._shared_rows[name] = compute()
        value: T = self._shared_rows[name]
        return value

    def has_rows(self, name: str) -> bool:
        """Whether :meth:`share_rows` has computed this already."""
        return name in self._shared_rows

    def loss_value(self, scores: Tensor) -> Tensor:
        """The weighted loss at scores of shape (n_rows, n_outputs)."""
        return weighted_loss(self.heads, self.row_weight, scores)

    def objective(self, coef: Tensor, scores: Tensor) -> float:
        """The weighted loss at ``scores`` plus the penalty of the coefficients that gave them."""
        return float(self.loss_value(scores) + self.l1_strength * self.penalty.value(coef))

    def unit_dual(self, scores: Tensor) -> Tensor:
        """Gradient of the loss at ``scores``, divided by the row weights; shape (n_rows, n_outputs)."""
        return self._by_head(lambda h: h.weight * h.loss.gradient(scores[:, h.columns], h.targets))

    def curvature(self, scores: Tensor) -> Tensor:
        """What each loss says of its Hessian at ``scores``, weightless; shape (n_rows, n_outputs)."""
        return self._by_head(lambda h: h.loss.curvature(scores[:, h.columns], h.targets))

    def conjugate(self, unit_dual: Tensor) -> Tensor:
        """Conjugate of the weighted loss at ``row_weight * unit_dual``."""
        weightless = self.row_weight == 0  # zero at zero, whatever their unit dual

        def of_head(head: Head) -> Tensor:
            rows = head.loss.conjugate(unit_dual[:, head.columns] / head.weight, head.targets)
            return head.weight * (self.row_weight @ rows.masked_fill(weightless, 0.0))

        return torch.stack([of_head(head) for head in self.heads]).sum()

    def dual_domain(self, unit_dual: Tensor) -> Tensor:
        """A nearby dual point with a finite conjugate and, where there is an intercept, orthogonal to it."""

        def project(head: Head) -> Tensor:
            dual = head.loss.project(unit_dual[:, head.columns] / head.weight, head.targets)
            return head.weight * (head.loss.balance(dual, head.targets, self.row_weight) if self.intercept else dual)

        return self._by_head(project)

    def correlation(self, unit_dual: Tensor) -> Tensor:
        """Gradient of the loss with respect to the coefficients, shape (n_atoms, n_outputs)."""
        return self.dictionary.rmatvec(self.row_weight[:, None] * unit_dual)

    @property
    def null_intercept(self) -> Tensor:
        """The best intercept when no atom is active, shape (n_outputs,); zero without one."""
        if not self.intercept:
            return self.row_weight.new_zeros(self.n_outputs)
        return self.share(
            "null_intercept",
            lambda: torch.cat([h.loss.null_intercept(h.targets, self.row_weight) for h in self.heads]),
        )

    @property
    def null_dual(self) -> Tensor:
        """Dual point, divided by the row weights, that proves zero coefficients optimal where they are."""
        if not self.intercept:
            return self.unit_dual(self.row_weight.new_zeros(len(self.row_weight), self.n_outputs))
        return self._by_head(lambda h: h.weight * h.loss.null_dual(h.targets, self.row_weight))

    @property
    def critical_strength(self) -> float:
        """A strength at and above which zero coefficients are optimal.

        The smallest such strength, save for the hinge with an intercept, whose subgradient at zero is not unique.
        """

        def measure() -> float:
            norm = float(self.penalty.dual_norm(self.null_correlation))
            mass = float((self.row_weight @ self.null_dual.abs()).max())
            return norm if norm > _ROUNDING * mass else 0.0  # constant atoms beside an intercept explain nothing

        return self.share("critical_strength", measure)

    @property
    def null_correlation(self) -> Tensor:
        """Gradient with respect to the coefficients where all are zero, shape (n_atoms, n_outputs)."""
        return self.share("null_correlation", lambda: self.correlation(self.null_dual))

    @property
    def reduced(self) -> "ReducedProblem":
        """The problem with equal rows (same spikes, same targets) merged and weightless ones dropped.

        Rows on disk stay as they are.
        """
        if isinstance(self.dictionary, ShardedDictionary):
            return ReducedProblem(self, torch.arange(self.dictionary.n_rows))
        reduced = self.share("reduced", self._merge_rows)
        return replace(reduced, problem=reduced.problem.with_strength(self.l1_strength))

    def check_dense(self, purpose: str) -> None:
        """Refuse work that needs the whole matrix as numbers where that would not fit."""
        needed = dense_bytes(*self.dictionary.shape)
        if needed > _DENSE_BUDGET:
            raise BudgetError(
                f"expected at most {_DENSE_BUDGET / 2**30:.0f} GiB for {purpose}, but {self.dictionary.n_rows:,} "
                f"distinct rows × {self.dictionary.n_atoms:,} atoms need {needed / 2**30:.1f} GiB: use "
                "loss='squared_hinge' with penalty='l1', which works in blocks, or fewer witnesses"
            )
        check_fits(DENSE_COPIES * needed, self.dictionary.device, purpose)

    def independent_outputs(self, kept: Collection[str] = ()) -> list[slice]:
        """Output columns of the largest parts into which the objective falls apart, save for the losses ``kept``."""
        if self.penalty.name != "l1":
            return [slice(0, self.n_outputs)]
        parts = []
        for head in self.heads:
            width = 1 if head.loss.is_separable and head.loss.name not in kept else head.targets.shape[1]
            starts = range(head.columns.start, head.columns.stop, width)
            parts += [slice(start, start + width) for start in starts]
        return parts

    def split(self, kept: Collection[str] = ()) -> list[tuple[Self, slice]]:
        """A problem for each of the independent outputs, with their columns; their objectives add up to the whole.

        Outputs of one head stay together if its loss is among those ``kept``.
        """
        columns_of = self.independent_outputs(kept)
        if len(columns_of) == 1:
            return [(self, columns_of[0])]
        parts = self.share(f"parts {columns_of}", lambda: [self._part(columns) for columns in columns_of])
        return [
            (part.with_strength(self.l1_strength), columns) for part, columns in zip(parts, columns_of, strict=True)
        ]

    def _part(self, columns: slice) -> Self:
        head = next(head for head in self.heads if columns.start < head.columns.stop)
        inside = slice(columns.start - head.columns.start, columns.stop - head.columns.start)
        part = replace(head, columns=slice(0, columns.stop - columns.start), targets=head.targets[:, inside])
        return self.with_heads((part,))

    def _merge_rows(self) -> "ReducedProblem":
        labels = torch.cat([h.targets for h in self.heads], dim=1)
        weightless = (self.row_weight == 0).to(labels)[:, None]
        groups = self.dictionary.group_rows(torch.cat((labels, weightless), dim=1))
        weight = torch.zeros_like(self.row_weight[: len(groups.first)]).index_add_(0, groups.inverse, self.row_weight)
        kept = torch.nonzero(weight > 0).squeeze(1)
        place = torch.zeros_like(groups.inverse[: len(weight)])
        place[kept] = torch.arange(len(kept), device=kept.device)
        rows = groups.first[kept]
        problem = self._replace(
            dictionary=self.dictionary.take_rows(rows),
            row_weight=weight[kept],
            heads=tuple(replace(h, targets=h.targets[rows]) for h in self.heads),
            _shared={},
            _shared_rows={},
        )
        return ReducedProblem(problem, place[groups.inverse])

    def _by_head(self, function: Callable[[Head], Tensor]) -> Tensor:
        return torch.cat([function(head) for head in self.heads], dim=1)

    def _replace(self, **changes: Any) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__ | changes)
        return other

    def __repr__(self) -> str:
        """Sizes and terms on one line."""
        losses = " + ".join(head.loss.name for head in self.heads)
        n_rows, n_atoms, n_outputs = self.shape
        return (
            f"ConvexProblem({n_rows} rows × {n_atoms} atoms → {n_outputs} outputs, {losses} + "
            f"{self.l1_strength:g}·{self.penalty.name}{', intercept' if self.intercept else ''})"
        )


@dataclass(frozen=True, eq=False)
class ReducedProblem:
    """A smaller problem with the same optimum.

    Attributes
    ----------
    problem : ConvexProblem
    row_of : Tensor of shape (n_rows of the full problem,)
        The reduced row that stands for each full row.
    """

    problem: ConvexProblem
    row_of: Tensor


def check_strength(strength: float) -> float:
    """Return a strength that is finite and above zero."""
    if not strength > 0 or strength == float("inf"):
        raise InvalidInputError(
            f"expected l1_strength to be a finite number above zero, got {strength!r}: without it no dual bound exists"
        )
    return float(strength)


def _check_contrast(heads: tuple[Head, ...], row_weight: Tensor) -> None:
    """Refuse an intercept that alone explains all rows: the best one is infinite, or as good as any larger one."""
    for head in heads:
        if head.loss.lacks_contrast(head.targets[row_weight > 0]):
            raise InvalidInputError(
                f"expected two classes among the rows with weight in head {head.name!r}, got one class only, which an "
                "intercept separates by itself: give rows of both classes weight, or use intercept=False"
            )
