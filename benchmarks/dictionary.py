"""Removing duplicate columns and merging equal rows of a real dictionary: ours beside ``np.unique``."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from cvxsnn import build_dictionary, gaussian_witnesses, roll_out
from cvxsnn.data.tasks import addition
from cvxsnn.witnesses import Normal

from .measure import best_seconds, console, make_table, verdict

GOAL = 10.0

Matrix = npt.NDArray[np.uint8]
Reduced = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Atom of each column, and group of each row."""


def make_spikes() -> tuple[Matrix, npt.NDArray[np.int64]]:
    """Spikes of all steps of base-3 addition, 13,824 × 1,024, and the joint label of each row."""
    train = addition(base=3).train
    witnesses = gaussian_witnesses(3, (256, 512), 2, decay=0.1, threshold=0.1, bias=Normal(0, 0.5))
    spikes = roll_out(witnesses.layers, train.inputs, "all").flatten(0, 1)
    return spikes.numpy().view(np.uint8), (2 * train.heads["sum"] + train.heads["carry"]).ravel()


def reduce_with_numpy(spikes: Matrix, labels: npt.NDArray[np.int64]) -> Reduced:
    """Sort the columns, then the rows with their label as one more byte."""
    columns, atoms = np.unique(spikes, axis=1, return_inverse=True)
    labelled = np.concatenate([columns, labels[:, None].astype(np.uint8)], axis=1)
    rows = np.unique(labelled, axis=0, return_inverse=True)[1]
    return atoms.ravel(), rows.ravel()


def reduce_with_bits(spikes: Matrix, labels: npt.NDArray[np.int64]) -> Reduced:
    """Pack the bits, and group by hash with a comparison."""
    dictionary = build_dictionary(spikes)
    return dictionary.atom_of_column.numpy(), dictionary.group_rows(torch.from_numpy(labels)).inverse.numpy()


def is_same_partition(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> bool:
    """Whether two numberings put the same things together."""
    pairs = len(set(zip(first.tolist(), second.tolist(), strict=True)))
    return pairs == len(np.unique(first)) == len(np.unique(second))


def main() -> None:
    """Check that both find the same groups, time both, print."""
    spikes, labels = make_spikes()
    ours, theirs = reduce_with_bits(spikes, labels), reduce_with_numpy(spikes, labels)
    assert all(is_same_partition(*pair) for pair in zip(ours, theirs, strict=True)), "np.unique finds other groups"
    runs: dict[str, Callable[[], object]] = {
        "cvxsnn": lambda: reduce_with_bits(spikes, labels),
        "np.unique": lambda: reduce_with_numpy(spikes, labels),
    }
    seconds = best_seconds(runs, n_rounds=7)
    ratio = seconds["np.unique"] / seconds["cvxsnn"]
    n_atoms, n_groups = (int(numbering.max()) + 1 for numbering in ours)
    title = f"{spikes.shape[0]:,} × {spikes.shape[1]:,} to {n_groups:,} × {n_atoms:,}"
    table = make_table(f"Dictionary, {title}", "same groups", "ms", "ours is faster by")
    table.add_row("cvxsnn, packing included", f"{1e3 * seconds['cvxsnn']:.1f}", "")
    table.add_row(
        "np.unique, axis 1 then 0",
        f"{1e3 * seconds['np.unique']:.1f}",
        verdict(f"{ratio:.1f} ×", f"{GOAL:g} ×", ratio >= GOAL),
    )
    console.print(table)
