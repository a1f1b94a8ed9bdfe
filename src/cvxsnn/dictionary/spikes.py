"""The spike dictionary: distinct spike patterns as columns, each with the witnesses that produce it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..core import bits, gpu
from ..core.formatting import plural
from .base import Dictionary, Readout, group_labelled, parse_readout
from .products import (
    TUNING,
    Entries,
    assemble,
    iterate_column_products,
    level_roundings,
    lookup_product,
    row_products,
    sum_in_levels,
)

PRODUCT_BLOCK, PRODUCT_BLOCK_GPU = 2**18, 2**27
"""Numbers converted at once for a product: 2 MiB of float64, which stays in cache; a GiB on a GPU, to keep it busy."""

GROUPING_COPIES = 2
"""Dictionaries in memory while equal columns or rows are merged: all columns, and those that are kept."""


def dictionary_bytes(n_rows: int, n_columns: int, readout: Readout = "last", n_steps: int = 1) -> int:
    """Return the bytes of the columns: one bit per spike, one byte per count up to 255 and two up to 32,767."""
    return n_columns * parse_readout(readout).column_bytes(n_rows, n_steps)


@dataclass(frozen=True)
class DictionaryHealth:
    """How many columns are distinct, and how many are dead, saturated or duplicates.

    A witness has one column or, if it is read in windows of time, one per window.

    Parameters
    ----------
    n_columns : int
        Columns before duplicates were removed.
    n_atoms : int
        Columns after duplicates were removed.
    n_dead : int
        Columns that are always 0.
    n_saturated : int
        Columns of neurons that fire at every step that is read.
    n_duplicate : int
        Columns equal to an earlier one.
    n_complementary : int
        Pairs of atoms that are each other's negation.
    density : float
        Mean of all columns.
    n_rows : int
        Number of rows.
    n_distinct_rows : int
        Number of different rows. No read-out can separate rows that are equal.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> witnesses = cs.gaussian_witnesses(2, (16,), seed=0)
    >>> health = cs.build_dictionary(witnesses, inputs).health()
    >>> health.n_columns, health.n_rows
    (16, 40)
    """

    n_columns: int
    n_atoms: int
    n_dead: int
    n_saturated: int
    n_duplicate: int
    n_complementary: int
    density: float
    n_rows: int
    n_distinct_rows: int

    @property
    def shares(self) -> dict[str, float]:
        """Shares of distinct, otherwise duplicate, saturated and dead columns, which add up to one."""
        # A dead or saturated column is a duplicate of the first of its kind: count it under one name only.
        constant = self.n_dead + self.n_saturated
        distinct = self.n_atoms - (self.n_dead > 0) - (self.n_saturated > 0)
        counts = {
            "distinct": distinct,
            "other duplicates": self.n_columns - constant - distinct,
            "saturated": self.n_saturated,
            "dead": self.n_dead,
        }
        return {label: count / self.n_columns for label, count in counts.items()}

    def __str__(self) -> str:
        """Return one line for a person."""
        return (
            f"{plural(self.n_columns, 'column')} gave {plural(self.n_atoms, 'atom')} (density {self.density:.3f}): "
            f"{self.n_dead} dead, "
            f"{self.n_saturated} saturated, {self.n_duplicate} duplicate, {self.n_complementary} complementary pairs; "
            f"{self.n_distinct_rows} of {plural(self.n_rows, 'row')} distinct"
        )


@dataclass(frozen=True, eq=False)
class SpikeDictionary(Dictionary):
    """Distinct columns of spikes, as bits, or of spike counts, as bytes or 16-bit integers.

    An entry of readout "last" or "all" is a spike: 0 or 1. An entry of readout "mean" is the number of spikes over the
    T steps of the row's sequence, times 1/T. In k windows it is the number of spikes in a window times k/T: a window is
    T/k steps long, and contains that many steps or one more or less.

    Parameters
    ----------
    patterns : Tensor of shape (n_atoms, n_words)
        The spikes of each atom as bits (:mod:`cvxsnn.core.bits`), dtype uint8; or its counts, one per row, dtype uint8,
        int16 or int32. Zeros pad them to whole 64-bit words.
    lengths : Tensor of shape (n_rows,), dtype int64, optional
        Steps of each row's sequence, for means over sequences of unequal length.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import build_dictionary
    >>> dictionary = build_dictionary(np.array([[1, 0, 1], [0, 1, 0], [1, 1, 1]]))
    >>> dictionary
    SpikeDictionary(3 rows × 2 atoms, readout='last', from a plain array)
    >>> dictionary.atom_of_column.tolist()
    [0, 1, 0]
    """

    patterns: Tensor
    lengths: Tensor | None = None

    @property
    def n_windows(self) -> int:
        """Number of windows of time in which each witness is read."""
        return self._read.n_windows

    @cached_property
    def largest_entry(self) -> float:
        # Means are at most one; in a window that contains more than T/k steps they may be more.
        if self.n_windows == 1:
            return 1.0
        steps = torch.unique(self.row_counts())
        most = (steps + self.n_windows - 1) // self.n_windows
        return float((most * self._read.scale(steps.double())).max())

    @property
    def _has_scale(self) -> bool:
        """Whether entries are other numbers than counts."""
        return not self.is_binary and (self.lengths is not None or self.n_steps != self.n_windows)

    def _scale(self, rows: slice, dtype: torch.dtype = torch.float64) -> Tensor | float:
        """Return the factors that turn the counts of rows into means."""
        return self._read.scale(self.n_steps if self.lengths is None else self.lengths[rows].to(dtype))

    def _entries(self, atoms: Tensor | slice, rows: slice, dtype: torch.dtype, buffer: Tensor | None = None) -> Tensor:
        """Return spikes or counts, of shape (atoms, rows); slices of rows start at multiples of 8."""
        # Rows first: atoms that are chosen by their numbers are copied, and then only within the block.
        if self.is_binary:
            packed = self.patterns[:, rows.start // 8 : (rows.stop + 7) // 8][atoms]
            return bits.unpack(packed, rows.stop - rows.start, dtype, buffer)
        counts = self.patterns[:, rows][atoms]
        return counts.to(dtype) if buffer is None else buffer[: counts.numel()].view(counts.shape).copy_(counts)

    def _numbers(self, atoms: Tensor | slice, rows: slice, dtype: torch.dtype) -> Tensor:
        entries = self._entries(atoms, rows, dtype)
        return (entries.mul_(self._scale(rows, dtype)) if self._has_scale else entries).T

    def matvec(self, coef: Tensor) -> Tensor:
        # Narrow matrices are stored as rows: BLAS is up to four times as fast on them as on columns.
        across = coef.T.contiguous()
        scores = coef.new_zeros(coef.shape[1], self.n_rows)
        active = torch.nonzero(coef.any(1)).squeeze(1)
        for atoms, block in self._iterate_atoms(active):
            if gpu.is_gpu(self.device):  # sums of blocks, then of their sums: fewer roundings than one long sum
                scores += across[:, atoms] @ block
            else:
                scores.addmm_(across[:, atoms], block)
        if self._has_scale:  # the scale belongs to rows, so it is applied once, and not to every entry
            scores *= self._scale(slice(0, self.n_rows))
        return scores.T.contiguous()

    def rmatvec(self, rows: Tensor) -> Tensor:
        if self.is_binary and not gpu.is_gpu(self.device) and rows.shape[1] <= TUNING.max_lookup_outputs:
            return lookup_product(self.patterns, rows)
        across = rows.T.contiguous()
        if self._has_scale:
            across = across * self._scale(slice(0, self.n_rows))
        product = rows.new_empty(self.n_atoms, rows.shape[1])
        for atoms, block in self._iterate_atoms():
            product[atoms] = sum_in_levels(across, block) if gpu.is_gpu(self.device) else (across @ block.T).T
        return product

    def score_roundings(self, n_active: int) -> int:
        # A mean is rounded itself, and a sum of counts is rounded once more when it is scaled.
        scaling = 2 * self._has_scale
        if not gpu.is_gpu(self.device):
            return n_active + scaling
        return min(n_active, self._atoms_at_once) + -(-n_active // self._atoms_at_once) + scaling

    @property
    def correlation_roundings(self) -> int:
        return (level_roundings(self.n_rows) if gpu.is_gpu(self.device) else self.n_rows) + 2 * self._has_scale

    @property
    def _n_padded(self) -> int:
        """Number of rows with those that pad the last word."""
        return self.patterns.shape[1] * (8 if self.is_binary else 1)

    @property
    def _atoms_at_once(self) -> int:
        return max(1, (PRODUCT_BLOCK_GPU if gpu.is_gpu(self.device) else PRODUCT_BLOCK) // self._n_padded)

    def _iterate_atoms(self, atoms: Tensor | None = None) -> Iterator[tuple[Tensor | slice, Tensor]]:
        """Yield atoms and their spikes or counts as rows of a float64 matrix, in blocks that stay in cache.

        A block is overwritten by the next.
        """
        n_atoms, step = self.n_atoms if atoms is None else len(atoms), self._atoms_at_once
        is_all = n_atoms == self.n_atoms
        buffer = torch.empty(min(step, n_atoms) * self._n_padded, dtype=torch.float64, device=self.device)
        for start in range(0, n_atoms, step):
            part = slice(start, start + step)
            chosen = part if is_all or atoms is None else atoms[part]
            yield chosen, self._entries(chosen, slice(0, self.n_rows), torch.float64, buffer)

    @property
    def _whole_numbers(self) -> Entries:
        most = self._read.most(self.n_steps)
        return Entries(self._entries, self.n_atoms, self.n_rows, most, self.device)

    def gram(self) -> Tensor:
        # Whole numbers, free of rounding, over the squared scale if all rows have the same.
        if self.lengths is None:
            return assemble(self.iterate_gram(), self.n_atoms, torch.float64, self.device)
        total = torch.zeros(self.n_atoms, self.n_atoms, dtype=torch.float64, device=self.device)
        for _, numbers in self.iterate_rows():
            total.addmm_(numbers.T, numbers)
        return total

    def iterate_gram(self) -> Iterator[tuple[slice, Tensor]]:
        if self.lengths is not None:
            yield slice(0, self.n_atoms), self.gram()
            return
        for atoms, products in iterate_column_products(self._whole_numbers):
            yield atoms, self._scaled(products)

    def row_gram(self) -> Tensor:
        products = row_products(self._whole_numbers)
        if self.lengths is None:
            return self._scaled(products)
        scale = torch.as_tensor(self._scale(slice(0, self.n_rows)))
        return products.mul_(scale[:, None]).mul_(scale)

    def _scaled(self, products: Tensor) -> Tensor:
        """Divide products of counts by the squared scale, in place."""
        if not self._has_scale:
            return products
        steps, windows = self.n_steps, self.n_windows
        # Whole numbers stay whole when multiplied by k²: either way, only the division rounds.
        if steps % windows:
            products.mul_(windows**2)
        else:
            steps //= windows
        # Divided by an array: by a number, a GPU would multiply with its inverse, which rounds otherwise.
        return products.div_(torch.full((1, 1), float(steps**2), dtype=torch.float64, device=self.device))

    def take_atoms(self, atoms: Tensor) -> Self:
        return self._derived(patterns=self.patterns[atoms], **self._renumbered(atoms))

    def take_rows(self, rows: Tensor) -> Self:
        if self.is_binary:
            # Rows are picked as whole bytes of packed atoms, without unpacking any.
            patterns = bits.transpose(bits.transpose(self.patterns, self.n_rows)[rows], self.n_atoms)
        else:
            patterns = pad_words(self.patterns[:, rows])
        lengths = None if self.lengths is None else self.lengths[rows]
        return self._derived(patterns=patterns, n_rows=len(rows), lengths=lengths)

    def _append_rows(self, other: Self, n_steps: int) -> dict[str, Any]:
        if self.is_binary:
            rows = torch.cat([bits.transpose(part.patterns, part.n_rows) for part in (self, other)])
            return {"patterns": bits.transpose(rows, self.n_atoms)}
        dtype = self._read.dtype(n_steps)  # counts of longer sequences may need more bits
        counts = torch.cat([part.patterns[:, : part.n_rows].to(dtype) for part in (self, other)], dim=1)
        is_equal = self.lengths is None and other.lengths is None and self.n_steps == other.n_steps
        lengths = None if is_equal else torch.cat((self.row_counts(), other.row_counts()))
        return {"patterns": pad_words(counts), "lengths": lengths}

    def group_rows(self, labels: Tensor | None = None) -> bits.Groups:
        return group_labelled(self.row_words(), labels)

    def row_words(self) -> Tensor:
        """Return rows as words, which are equal if and only if the rows are.

        Returns
        -------
        Tensor of shape (n_rows, n_words), dtype int64
            The lengths of the sequences, if these differ, and the spikes or counts.
        """
        if self.is_binary:
            rows = bits.transpose(self.patterns.contiguous(), self.n_rows)
        else:
            rows = pad_words(self.patterns[:, : self.n_rows].T)
        words = rows.view(torch.int64)
        return words if self.lengths is None else torch.cat((self.lengths[:, None], words), dim=1)

    def health(self) -> DictionaryHealth:
        """Count dead, saturated, duplicate and complementary columns.

        Returns
        -------
        DictionaryHealth
            The counts; as a string, one line.
        """
        totals = bits.count(self.patterns) if self.is_binary else self.patterns.sum(1, dtype=torch.int64)
        most = self.window_steps().sum(0)
        of_column = totals[self.atom_of_column].view(-1, self.n_windows)
        return DictionaryHealth(
            n_columns=self.n_columns,
            n_atoms=self.n_atoms,
            n_dead=int((of_column == 0).sum()),
            n_saturated=int(((of_column == most) & (most > 0)).sum()),
            n_duplicate=self.n_columns - self.n_atoms,
            n_complementary=self._count_complementary(),
            density=float(of_column.double().mean() * self.n_windows / most.sum()),
            n_rows=self.n_rows,
            n_distinct_rows=len(self.group_rows().first),
        )

    def _count_complementary(self) -> int:
        if self.is_binary:
            words = self.patterns.view(torch.int64)
            # The padding stays zero, as in every pattern.
            negated = bits.complement(self.patterns, self.n_rows).view(torch.int64)
        else:
            # In whole numbers: means c·k/T and 1 − c·k/T are complements if their counts times k add up to T.
            words = self._entries(slice(None), slice(0, self.n_rows), torch.int64) * self.n_windows
            negated = self.row_counts() - words
        # An atom and its complement are distinct, and atoms are distinct: equal rows below come in pairs.
        groups = bits.group_equal(torch.cat((words, negated)))
        return int((2 * self.n_atoms - len(groups.first)) // 2)

    def window_steps(self) -> Tensor:
        """Return the steps in each window of each row: the most spikes that a neuron can have there.

        Returns
        -------
        Tensor of shape (n_rows, n_windows), dtype int64
            One for a spike; the steps of each row's sequence for readout "mean".
        """
        starts = torch.arange(self.n_windows + 1, device=self.device) * self.row_counts()[:, None]
        return ((starts + self.n_windows - 1) // self.n_windows).diff(dim=1)

    def row_counts(self) -> Tensor:
        """Return the most spikes that a neuron can have in each row, in all windows together.

        Returns
        -------
        Tensor of shape (n_rows,), dtype int64
            One, or the steps of each row's sequence for means.
        """
        if self.lengths is not None:
            return self.lengths
        most = 1 if self.is_binary else self.n_steps
        return torch.full((self.n_rows,), most, dtype=torch.int64, device=self.device)

    def __repr__(self) -> str:
        """Return sizes and origin on one line."""
        origin = "a plain array" if self.witnesses is None else repr(self.witnesses)
        size = f"{plural(self.n_rows, 'row')} × {plural(self.n_atoms, 'atom')}"
        return f"SpikeDictionary({size}, readout={self.readout!r}, from {origin})"


def pad_words(counts: Tensor) -> Tensor:
    """Return counts with rows padded by zeros to whole 64-bit words, contiguous."""
    per_word = 8 // counts.element_size()
    padded = pad(counts, (0, -counts.shape[1] % per_word)).contiguous()
    return padded.flatten().view(padded.shape)  # a single row counts as contiguous whatever its stride
