"""A dictionary whose rows are on disk, in shards: each pass reads every shard once.

A shard is a :class:`SpikeDictionary` of its own rows, mapped into memory while it is in use, so a product needs memory
for one shard and for arrays with an entry per row or per atom. A folder has one safetensors file per shard, which is
written atomically, and ``dictionary.safetensors``, which is written last and lists the shards.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..core import bits
from ..core.errors import DataFileError, first_line
from ..core.formatting import plural
from ..core.storage import check_memory
from .base import Dictionary
from .spikes import SpikeDictionary, pad_words

INDEX = "dictionary.safetensors"

ATOMS, COLUMNS = "atom_of_witness", "witness_of_atom"
"""Names in files of ``atom_of_column`` and ``column_of_atom``."""


def shard_path(folder: Path, number: int) -> Path:
    """Return the path of a shard's file."""
    return folder / f"shard-{number:06d}.safetensors"


@dataclass(frozen=True, eq=False)
class ShardedDictionary(Dictionary):
    """Distinct columns of spikes or spike counts, with their rows in files.

    :func:`cvxsnn.dictionary.stream_dictionary` makes one.

    Parameters
    ----------
    folder : Path
        The folder of the shards.
    shard_rows : tuple of int
        Rows of each shard.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn.dictionary import open_dictionary, stream_dictionary
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> batches = [(inputs[:20], inputs[:20, -1, 0]), (inputs[20:], inputs[20:, -1, 0])]
    >>> witnesses = cs.gaussian_witnesses(2, (16,), seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dictionary, targets = stream_dictionary(witnesses, batches, folder)
    ...     again, _ = open_dictionary(folder, witnesses)
    >>> dictionary.n_rows == again.n_rows == len(targets)
    True
    """

    folder: Path
    shard_rows: tuple[int, ...]
    n_rows: int = field(init=False)

    is_in_memory = False

    def __post_init__(self) -> None:
        """Add the rows up."""
        object.__setattr__(self, "n_rows", sum(self.shard_rows))

    @cached_property
    def largest_entry(self) -> float:
        # Means over all steps are at most one; in windows of unequal length they may be larger.
        return max(shard.largest_entry for _, shard in self.iterate_shards()) if self._read.n_windows > 1 else 1.0

    def iterate_shards(self) -> Iterator[tuple[slice, SpikeDictionary]]:
        """Iterate over the shards.

        Yields
        ------
        rows : slice
            The rows of the shard.
        shard : SpikeDictionary
            The dictionary of these rows.
        """
        start = 0
        for number, n_rows in enumerate(self.shard_rows):
            yield slice(start, start + n_rows), self._open(number)
            start += n_rows

    def _numbers(self, atoms: Tensor | slice, rows: slice, dtype: torch.dtype) -> Tensor:
        # Only `columns` calls this, for all rows; `iterate_rows` goes from shard to shard.
        chosen = torch.arange(self.n_atoms)[atoms]
        numbers = torch.empty(self.n_rows, len(chosen), dtype=dtype)
        for shard_rows, block in self.iterate_rows(dtype=dtype, atoms=chosen):
            numbers[shard_rows] = block
        return numbers[rows]

    def iterate_rows(
        self, n_rows: int = 4096, dtype: torch.dtype = torch.float64, atoms: Tensor | None = None
    ) -> Iterator[tuple[slice, Tensor]]:
        for all_rows, shard in (self if atoms is None else self.take_atoms(atoms)).iterate_shards():
            for rows, block in shard.iterate_rows(n_rows, dtype):
                yield slice(all_rows.start + rows.start, all_rows.start + rows.stop), block

    def matvec(self, coef: Tensor) -> Tensor:
        scores = coef.new_zeros(self.n_rows, coef.shape[1])
        active = torch.nonzero(coef.any(1)).squeeze(1)
        if len(active) > 0:
            # Only the active atoms of a mapped shard are read from disk.
            for rows, shard in self.take_atoms(active).iterate_shards():
                scores[rows] = shard.matvec(coef[active])
        return scores

    def rmatvec(self, rows: Tensor) -> Tensor:
        product = rows.new_zeros(self.n_atoms, rows.shape[1])
        for shard_rows, shard in self.iterate_shards():
            product += shard.rmatvec(rows[shard_rows])
        return product

    def score_roundings(self, n_active: int) -> int:
        return n_active + 2 * (not self.is_binary)  # as in a shard

    @property
    def correlation_roundings(self) -> int:
        # A term is rounded in the sum over its shard, then once for each other shard: at most once per row in all.
        return self.n_rows + 2 * (not self.is_binary)

    def gram(self) -> Tensor:
        total = torch.zeros(self.n_atoms, self.n_atoms, dtype=torch.float64)
        for _, shard in self.iterate_shards():
            total += shard.gram()
        return total

    def take_atoms(self, atoms: Tensor) -> Self:
        return replace(self, **self._renumbered(atoms))

    def take_rows(self, rows: Tensor) -> SpikeDictionary:
        words: list[Tensor] = []
        positions: list[Tensor] = []
        for shard_rows, shard in self.iterate_shards():
            inside = torch.nonzero((rows >= shard_rows.start) & (rows < shard_rows.stop)).squeeze(1)
            words.append(shard.row_words()[rows[inside] - shard_rows.start])
            positions.append(inside)
        taken = torch.cat(words)[torch.argsort(torch.cat(positions))]  # back into the order of ``rows``
        if self.is_binary:
            return self._spikes(bits.transpose(taken.view(torch.uint8), self.n_atoms), None, len(rows))
        counts = taken[:, 1:].contiguous().view(self._read.dtype(self.n_steps))[:, : self.n_atoms]
        return self._spikes(pad_words(counts.T), taken[:, 0], len(rows))

    def _spikes(self, patterns: Tensor, lengths: Tensor | None, n_rows: int) -> SpikeDictionary:
        """Return spikes of these atoms as a dictionary in memory."""
        return SpikeDictionary(
            patterns,
            lengths,
            n_rows=n_rows,
            atom_of_column=self.atom_of_column,
            column_of_atom=self.column_of_atom,
            witnesses=self.witnesses,
            readout=self.readout,
            n_steps=self.n_steps,
        )

    def group_rows(self, labels: Tensor | None = None) -> bits.Groups:
        # Each row by itself: to find equal ones, all would have to be in memory at once.
        each = torch.arange(self.n_rows)
        return bits.Groups(each, each, torch.ones_like(each))

    def _open(self, number: int) -> SpikeDictionary:
        path, n_rows = shard_path(self.folder, number), self.shard_rows[number]
        check_memory(0)  # safetensors aborts the process if memory is short
        try:
            # Mapped: pages that are not used are not read.
            with safe_open(path, framework="pt") as file:
                patterns, atom_of_column = file.get_tensor("patterns"), file.get_tensor(ATOMS)
                lengths = None if self.is_binary else file.get_tensor("lengths")
        except (SafetensorError, OSError, RuntimeError, ValueError) as error:
            raise DataFileError(
                f"expected a dictionary shard at {path}, but it is missing, truncated or damaged ({first_line(error)}):"
                " call stream_dictionary again, which writes missing shards"
            ) from None
        n_bits = n_rows * (1 if self.is_binary else 8 * patterns.element_size())
        if patterns[0].nbytes != bits.packed_bytes(n_bits) or len(atom_of_column) != self.n_columns:
            raise DataFileError(
                f"expected {plural(n_rows, 'row')} in {path}, got others: the folder has been rewritten"
            )
        dtype = self._read.dtype(self.n_steps)
        if patterns.dtype != dtype:  # sequences of this shard are shorter, and their counts needed fewer bits
            patterns = pad_words(patterns[:, :n_rows].to(dtype))
        atoms = atom_of_column[self.column_of_atom]
        if not torch.equal(atoms, torch.arange(len(patterns))):
            patterns = patterns[atoms]
        return self._spikes(patterns, lengths, n_rows)

    def __repr__(self) -> str:
        """Return sizes and folder on one line."""
        return (
            f"ShardedDictionary({plural(self.n_rows, 'row')} × {plural(self.n_atoms, 'atom')}, "
            f"readout={self.readout!r}, in {plural(len(self.shard_rows), 'shard')} at {self.folder})"
        )
