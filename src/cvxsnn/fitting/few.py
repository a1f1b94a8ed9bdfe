r"""Few neurons for a read-out by ridge regression: which, and how many.

Neurons enter one after the other, and later a few at a time. The next one is the neuron that lowers the objective of
ridge the most when its weights are added and those of the others are fitted again. For one column d, with row weights Ω
and the columns S of the neurons so far, that is

.. math:: \frac{\|d^\top \Omega M Y\|^2}{\rho + d^\top \Omega M d} , \qquad M = (I + D_S D_S^\top \Omega / \rho)^{-1} ,

up to a factor. A neuron that is read in several windows of time is worth the sum over its columns.

The choice depends on the targets, so that errors of rows that took part in it are too low. Numbers of neurons are
therefore compared on rows for which neurons were chosen without these rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..convex import ConvexProblem
from ..convex.left_out import Validation, deal_rows, paired_difference, ridge_fold_scores, validation_of
from ..convex.linear import column_means, factorise
from ..convex.objective import Objective
from ..core.errors import InvalidInputError
from ..core.seeds import child_generator
from ..dictionary import Dictionary
from ..dictionary.base import parse_readout
from .choosing import GRID, choose
from .judges import Criterion, FitsWithoutRows, Part, Verdict, parts_without
from .program import CONSTANT, Program, quadratic_unit

Sparsity = int | Literal["few"]


@dataclass(frozen=True)
class FewSettings:
    """How neurons are selected."""

    sizes: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
    """Numbers of neurons that "few" chooses from, besides all."""

    per_batch: int = 16
    """Neurons enter in batches of one sixteenth of those already chosen; one at a time would take too long."""

    shrinkage: float = 0.1
    """Strength ρ at which neurons are chosen, relative to the mean variance of the columns."""

    n_folds: int = 5
    """Folds in which neurons are chosen without a part of the rows."""

    max_unpacked: int = 2**27
    """Entries up to which the dictionary is unpacked: half a GiB of float32."""

    rounding: float = 1e-9
    """Relative rounding of an error: a single row is a difference of exactly one standard error."""


FEW = FewSettings()


@dataclass(frozen=True, eq=False)
class Selection:
    """Numbers of neurons, and their errors on rows that took no part in the selection.

    Parameters
    ----------
    order : Tensor of shape (n_most,), dtype int64
        The witnesses in the order in which they enter; the first n are those that n neurons are.
    verdicts : mapping of int to Verdict
        For each number of neurons that was tried, the strength of ridge with the scores of rows left out, by as many
        neurons that were selected without them.
    n_chosen : int or None
        The number of neurons to read; None for all.
    """

    order: Tensor
    verdicts: Mapping[int, Verdict]
    n_chosen: int | None


def select_neurons(problem: ConvexProblem, sparsity: Sparsity, dense: Verdict, seed: int = 0) -> Selection | None:
    """Choose the neurons that a read-out uses, by ridge regression.

    Parameters
    ----------
    problem : ConvexProblem
        Ridge over all neurons.
    sparsity : int or "few"
        The number of neurons; or the fewest of ``FEW.sizes`` whose error exceeds that of the best number by at most the
        standard error of the difference. The error is the share of rows that are misclassified, or for real targets
        the loss.
    dense : Verdict
        The judgement of ridge over all neurons.
    seed : int
        The seed of the folds.

    Returns
    -------
    Selection or None
        The choice; None if there are no fewer distinct neurons to choose from.
    """
    n_distinct = len(_distinct_neurons(problem.dictionary)[0])
    sizes = [size for size in (FEW.sizes if sparsity == "few" else (int(sparsity),)) if size < n_distinct]
    if not sizes:
        return None
    fold_of_row, dense_scores = _leave_out(problem, dense, seed)
    parts = parts_without(problem, fold_of_row)
    orders = [order_neurons(part.problem, max(sizes)) for part in parts]
    ridge = Program.ridge(Objective("squared"), intercept=problem.intercept)
    # The fit without a fold reads other neurons than those selected on all rows, so the last solve cannot start there.
    verdicts = {
        size: replace(
            choose(problem, ridge, _Selected(parts, [order[:size] for order in orders])), solution=None, share=1.0
        )
        for size in sizes
    }
    chosen = 0
    if sparsity == "few":
        judged = problem.take_rows(torch.nonzero(fold_of_row >= 0).squeeze(1))
        scores = [verdict.scores for verdict in verdicts.values() if verdict.scores is not None]
        chosen = _fewest(validation_of(judged, [*scores, dense_scores]))
    return Selection(order_neurons(problem, max(sizes)), verdicts, [*sizes, None][chosen])


@dataclass(frozen=True, eq=False)
class _Selected(FitsWithoutRows):
    """Judges ridge over neurons that were selected without the rows that judge them."""

    without: list[Part]
    neurons: list[Tensor]
    tol: float = 1e-4
    by: Criterion = "loss"

    def _parts(self, problem: ConvexProblem) -> list[list[Part]]:
        columns = problem.dictionary.atom_of_column.reshape(-1, _n_windows(problem.dictionary))
        parts = []
        for part, neurons in zip(self.without, self.neurons, strict=True):
            atoms = torch.unique(columns[neurons])
            parts.append(Part(part.problem.take_atoms(atoms), part.held, part.dictionary.take_atoms(atoms)))
        return [parts]


def _leave_out(problem: ConvexProblem, dense: Verdict, seed: int) -> tuple[Tensor, Tensor]:
    """Return the fold of each row, and the scores of rows left out by ridge over all neurons."""
    weight = problem.row_weight
    # The neurons of many rows were judged on rows held out. Fewer neurons are judged on the same ones, so that the
    # difference is paired.
    if len(weight) > GRID.max_left_out and dense.rows is not None and dense.scores is not None:
        rows = dense.rows.to(weight.device)
        return torch.full(weight.shape, -1, device=weight.device).index_fill_(0, rows, 0), dense.scores
    n_counted = int((weight > 0).sum())
    if n_counted < 2 * FEW.n_folds:
        raise InvalidInputError(
            f"expected at least {2 * FEW.n_folds} samples with weight to choose neurons, got {n_counted}: pass more "
            "samples or sparsity=None"
        )
    fold_of_row = deal_rows(problem, FEW.n_folds, child_generator(seed, "few", "folds"))
    return fold_of_row, ridge_fold_scores(problem, [dense.point[1] * quadratic_unit(problem)], fold_of_row)[0]


def order_neurons(problem: ConvexProblem, n_most: int) -> Tensor:
    """Return neurons in the order in which they enter the read-out.

    Parameters
    ----------
    problem : ConvexProblem
        A problem with the squared loss.
    n_most : int
        The number of neurons after which to stop.

    Returns
    -------
    Tensor of shape (n_chosen,), dtype int64
        Witnesses, at most ``n_most``; of those with equal spikes the first.
    """
    dictionary, weight = problem.dictionary, problem.row_weight[:, None]
    (head,) = problem.heads
    neurons, atoms_of = _distinct_neurons(dictionary)
    n_most = min(n_most, len(neurons))
    means = _means(problem)
    product = _product(problem)
    targets = weight * (head.targets - problem.intercept * (problem.row_weight @ head.targets))
    linear, spread = dictionary.rmatvec(targets), _second_moments(problem) - means.square()
    shrinkage = FEW.shrinkage * float(spread.mean())
    if not FEW.shrinkage * CONSTANT < shrinkage < inf:  # nothing varies, or squares overflow
        return neurons[:n_most]
    basis = weight.new_empty(len(weight), 0)
    is_open, chosen = torch.ones_like(spread), torch.empty_like(neurons[:0])
    while len(chosen) < n_most:
        gain = (is_open * linear.square().sum(1) / (shrinkage + spread))[atoms_of].sum(1)
        gain[chosen] = -1.0  # below the gain of a neuron that adds nothing
        entering = gain.topk(min(max(1, len(chosen) // FEW.per_batch), n_most - len(chosen))).indices
        chosen = torch.cat((chosen, entering))
        # Neurons may share atoms: one that is read already has no further gain.
        atoms = torch.unique(atoms_of[entering])
        atoms = atoms[is_open[atoms] > 0]
        is_open[atoms] = 0.0
        # With V = M D of the new columns D, M becomes M − V (ρI + DᵀΩV)⁻¹ VᵀΩ. Q is V times a root of the inverse.
        columns = dictionary.columns(atoms) - means[atoms]
        projected = columns - basis @ (basis.T @ (weight * columns))
        system = columns.T @ (weight * projected)
        system.diagonal().add_(shrinkage)
        factor = factorise(system)
        if factor is None:  # squares have overflowed, and further gains mean nothing
            break
        new = torch.linalg.solve_triangular(factor, projected.T, upper=False).T
        basis = torch.cat((basis, new), dim=1)
        shared = product(weight * new)
        linear = linear - shared @ (new.T @ targets)
        # dᵀΩMd cannot be negative, but its update in float32 may leave less than zero.
        spread = (spread - shared.square().sum(1)).clamp_min(0)
    return neurons[chosen]


def _fewest(validation: Validation) -> int:
    """Return the first solution whose error is within one standard error of the best."""
    errors = validation.loss if validation.accuracy is None else 1 - validation.accuracy
    best = errors[int((errors @ validation.weight).argmin())]
    for number, candidate in enumerate(errors):
        more, error = paired_difference(candidate, best, validation.weight)
        if more <= (1 + FEW.rounding) * error:
            return number
    raise AssertionError("the best is within one standard error of itself")


def _distinct_neurons(dictionary: Dictionary) -> tuple[Tensor, Tensor]:
    """Return the first of all neurons with equal columns, and the atoms of each, (n_neurons, n_windows)."""
    atoms = dictionary.atom_of_column.reshape(-1, _n_windows(dictionary))
    _, first = np.unique(atoms.cpu().numpy(), axis=0, return_index=True)
    neurons = torch.from_numpy(np.sort(first)).to(atoms.device)
    return neurons, atoms[neurons]


def _n_windows(dictionary: Dictionary) -> int:
    return parse_readout(dictionary.readout).n_windows


def _means(problem: ConvexProblem) -> Tensor:
    """Return what columns are centred by: their means, or zeros without an intercept."""
    means = problem.row_workspace.get(column_means, problem)
    return means if problem.intercept else torch.zeros_like(means)


def _second_moments(problem: ConvexProblem) -> Tensor:
    """Return the weighted mean square of each column."""
    moments = problem.row_weight.new_zeros(problem.dictionary.n_atoms)
    for rows, block in problem.dictionary.iterate_rows(512):
        moments += problem.row_weight[rows] @ block.square()
    return moments


def _product(problem: ConvexProblem) -> Callable[[Tensor], Tensor]:
    """Return the product of vectors with all columns; it is faster if these fit into memory as numbers."""
    dictionary = problem.dictionary
    if dictionary.n_rows * dictionary.n_atoms > FEW.max_unpacked:
        return dictionary.rmatvec
    # float32 is enough: the products only rank neurons, whose read-out is fitted and certified in float64.
    across = dictionary.columns(dtype=torch.float32).T.contiguous()
    return lambda vectors: (across @ vectors.float()).double()
