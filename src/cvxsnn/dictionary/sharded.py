"""A dictionary whose rows lie on disk, in shards of packed bits: each pass reads every shard once.

A shard is a :class:`SpikeDictionary` of its own rows, mapped into memory while it is in use, so a product holds one
shard and what has an entry for each row or each atom, and nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from ..core import bits
from ..witnesses import WitnessSet
from .base import add_row_products
from .health import DictionaryHealth
from .packed import SpikeDictionary
from .readout import Readout, parse_readout
from .shard_files import map_shard, shard_name


@dataclass(frozen=True, eq=False)
class ShardedDictionary:
    """Distinct columns of spikes, packed, with their rows in files.

    :func:`cvxsnn.dictionary.stream_dictionary` makes one.

    Parameters
    ----------
    folder : Path
        The folder of the shards.
    shard_rows : tuple of int
        Rows of each shard.
    atom_of_column : Tensor of shape (n_columns,), dtype int64
        The atom that each column is equal to. Witness j in window w of k is column ``j * k + w``.
    column_of_atom : Tensor of shape (n_atoms,), dtype int64
        The first column that is equal to each atom.
    witnesses : WitnessSet or None
        The witnesses that made the columns, where they are known.
    readout : "last", "all", "mean" or "windows-k"
        What a row holds of a sequence.
    n_steps : int
        Steps of the longest sequence.
    is_complete : bool
        Whether the atoms are all patterns of a family of witnesses.

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
    atom_of_column: Tensor
    column_of_atom: Tensor
    witnesses: WitnessSet | None
    readout: Readout
    n_steps: int
    is_complete: bool = False

    @property
    def n_rows(self) -> int:
        """Number of rows of all shards."""
        return sum(self.shard_rows)

    @property
    def n_atoms(self) -> int:
        """Number of distinct columns."""
        return len(self.column_of_atom)

    @property
    def n_columns(self) -> int:
        """Number of columns before duplicates were removed: one for each witness and window of time."""
        return len(self.atom_of_column)

    @property
    def shape(self) -> tuple[int, int]:
        """``(n_rows, n_atoms)``."""
        return self.n_rows, self.n_atoms

    @property
    def device(self) -> torch.device:
        """Shards are mapped into the processor's memory."""
        return self.atom_of_column.device

    @property
    def is_binary(self) -> bool:
        """Whether every entry is 0 or 1; means are not."""
        return parse_readout(self.readout).kind != "mean"

    @property
    def n_windows(self) -> int:
        """Windows of time that each witness is read in."""
        return parse_readout(self.readout).n_windows

    @cached_property
    def largest_entry(self) -> float:
        """Spikes and their means are at most one; in a window that contains more than n/k steps they may be more."""
        return 1.0 if self.n_windows == 1 else max(shard.largest_entry for _, shard in self.iterate_shards())

    @property
    def is_in_memory(self) -> bool:
        """The rows are on disk."""
        return False

    def iterate_shards(self, atoms: Tensor | None = None) -> Iterator[tuple[slice, SpikeDictionary]]:
        """Iterate over the shards.

        Parameters
        ----------
        atoms : Tensor, optional
            The columns to return; all of them when not given.

        Yields
        ------
        rows : slice
            Which rows these are.
        shard : SpikeDictionary
            The dictionary of these rows.
        """
        start = 0
        for number, n_rows in enumerate(self.shard_rows):
            yield slice(start, start + n_rows), self._open(number, atoms)
            start += n_rows

    def columns(self, atoms: Tensor | slice = slice(None), dtype: torch.dtype = torch.float64) -> Tensor:
        """Return columns as numbers, which must fit into memory.

        Parameters
        ----------
        atoms : Tensor or slice
            The columns to return; all of them by default.
        dtype : torch.dtype
            The type of the numbers.

        Returns
        -------
        Tensor of shape (n_rows, n_chosen)
            The columns.
        """
        chosen = torch.arange(self.n_atoms)[atoms]
        columns = torch.empty(self.n_rows, len(chosen), dtype=dtype)
        for rows, block in self.iterate_rows(dtype=dtype, atoms=chosen):
            columns[rows] = block
        return columns

    def iterate_rows(
        self, n_rows: int = 4096, dtype: torch.dtype = torch.float64, atoms: Tensor | None = None
    ) -> Iterator[tuple[slice, Tensor]]:
        """Iterate over blocks of rows; blocks end where shards do.

        Parameters
        ----------
        n_rows : int
            About how many rows a block has.
        dtype : torch.dtype
            The type of the numbers.
        atoms : Tensor, optional
            The columns to return; all of them when not given.

        Yields
        ------
        rows : slice
            Which rows these are.
        block : Tensor of shape (n_rows_of_block, n_chosen)
            Their entries.
        """
        for own, shard in self.iterate_shards(atoms):
            for rows, block in shard.iterate_rows(n_rows, dtype):
                yield slice(own.start + rows.start, own.start + rows.stop), block

    def matvec(self, coef: Tensor) -> Tensor:
        """Return the product D·W, from the rows of W that are not zero.

        Parameters
        ----------
        coef : Tensor of shape (n_atoms, n_outputs), dtype float64
            The matrix W.

        Returns
        -------
        Tensor of shape (n_rows, n_outputs), dtype float64
            The product.
        """
        scores = coef.new_zeros(self.n_rows, coef.shape[1])
        active = torch.nonzero(coef.any(1)).squeeze(1)
        if len(active) > 0:
            for rows, shard in self.iterate_shards(active):
                scores[rows] = shard.matvec(coef[active])
        return scores

    def rmatvec(self, rows: Tensor) -> Tensor:
        """Return the product Dᵀ·R.

        Parameters
        ----------
        rows : Tensor of shape (n_rows, n_outputs), dtype float64
            The matrix R.

        Returns
        -------
        Tensor of shape (n_atoms, n_outputs), dtype float64
            The product.
        """
        product = rows.new_zeros(self.n_atoms, rows.shape[1])
        for own, shard in self.iterate_shards():
            product += shard.rmatvec(rows[own])
        return product

    def score_roundings(self, n_active: int) -> int:
        """Return how often an entry of :meth:`matvec` is rounded at most.

        Parameters
        ----------
        n_active : int
            Number of rows of W that are not zero.

        Returns
        -------
        int
            The roundings of a term, from its product to the end of the sum.
        """
        return n_active

    @property
    def correlation_roundings(self) -> int:
        """How often a term of a sum of :meth:`rmatvec` is rounded at most, from its product to the end."""
        return self.n_rows

    def gram(self) -> Tensor:
        """Return the Gram matrix DᵀD, free of rounding where columns are spikes and not means.

        Returns
        -------
        Tensor of shape (n_atoms, n_atoms), dtype float64
            The products of all pairs of columns.
        """
        total = torch.zeros(self.n_atoms, self.n_atoms, dtype=torch.float64)
        if not self.is_binary:
            for _, block in self.iterate_rows():
                total.addmm_(block.T, block)
        else:
            for _, shard in self.iterate_shards():
                total += shard.gram()
        return total

    def iterate_gram(self) -> Iterator[tuple[slice, Tensor]]:
        """Iterate over blocks of the Gram matrix DᵀD, on and above its diagonal.

        Yields
        ------
        atoms : slice
            The rows of the matrix that a block has. Its columns begin where these do, and go to the end.
        products : Tensor, dtype float64
            The products of these atoms and all that follow the first of them. The caller may overwrite it.
        """
        yield slice(0, self.n_atoms), self.gram()

    def row_gram(self) -> Tensor:
        """Return the products of rows DDᵀ, for few rows.

        Returns
        -------
        Tensor of shape (n_rows, n_rows), dtype float64
            The products of all pairs of rows.
        """
        return add_row_products(self)

    def take_rows(self, rows: Tensor) -> SpikeDictionary:
        """Return the dictionary of some rows, in memory; atoms keep their places, even where they become equal.

        Parameters
        ----------
        rows : Tensor of shape (n_chosen,), dtype int64
            The rows to keep, in this order.

        Returns
        -------
        SpikeDictionary
            A dictionary in memory.
        """
        n_planes = parse_readout(self.readout).n_planes(self.n_steps)
        taken = torch.zeros(n_planes, len(rows), bits.packed_bytes(self.n_atoms), dtype=torch.uint8)
        lengths = torch.zeros(len(rows), dtype=torch.int64)
        for own, shard in self.iterate_shards():
            place = torch.nonzero((rows >= own.start) & (rows < own.stop)).squeeze(1)
            chosen = rows[place] - own.start
            for plane in range(shard.packed.shape[1]):
                taken[plane, place] = bits.transpose(shard.packed[:, plane].contiguous(), shard.n_rows)[chosen]
            if shard.lengths is not None:
                lengths[place] = shard.lengths[chosen]
        return SpikeDictionary(
            packed=torch.stack([bits.transpose(plane, self.n_atoms) for plane in taken], dim=1),
            n_rows=len(rows),
            atom_of_column=self.atom_of_column,
            column_of_atom=self.column_of_atom,
            witnesses=self.witnesses,
            readout=self.readout,
            n_steps=self.n_steps,
            lengths=None if self.is_binary else lengths,
        )

    def group_rows(self, labels: Tensor | None = None) -> bits.Groups:
        """Return each row by itself: to find equal ones, all would have to be held at once.

        Parameters
        ----------
        labels : Tensor of shape (n_rows,) or (n_rows, n_labels), optional
            Labels, which make no difference.

        Returns
        -------
        Groups
            The first row and the number of rows of each group, and the group of each row.
        """
        own = torch.arange(self.n_rows)
        return bits.Groups(own, own, torch.ones_like(own))

    def health(self) -> DictionaryHealth:
        """Count dead, saturated, duplicate and complementary columns; rows are told apart by two 64-bit hashes.

        Returns
        -------
        DictionaryHealth
            The counts; as a string, one line.
        """
        gram, sums = self.gram(), self.rmatvec(torch.ones(self.n_rows, 1, dtype=torch.float64))
        # ‖d + e − 1‖², which is zero for complements and at least one over the squared steps for others.
        distance = gram.diagonal() + gram.diagonal()[:, None] + self.n_rows + 2 * (gram - sums - sums.T)
        parsed = parse_readout(self.readout)
        of_column = sums[self.atom_of_column, 0].view(-1, parsed.n_windows)
        width = (parsed.n_planes(self.n_steps) * bits.packed_bytes(self.n_atoms)) // 8 + 1
        hashes, most = [], sums.new_zeros(parsed.n_windows)
        for _, shard in self.iterate_shards():
            most += (shard.window_steps() * parsed.scale(shard.row_counts()[:, None].double())).sum(0)
            words = shard.row_words()
            words = torch.nn.functional.pad(words, (0, width - words.shape[1]))
            hashes.append(torch.stack([bits.hash_rows(words, salt) for salt in range(2)], dim=1))
        return DictionaryHealth(
            n_columns=self.n_columns,
            n_atoms=self.n_atoms,
            n_dead=int((of_column == 0).sum()),
            n_saturated=int((of_column > most - 0.5 / self.n_steps).sum()),
            n_duplicate=self.n_columns - self.n_atoms,
            n_complementary=int((distance < 0.5 / self.n_steps**2).sum()) // 2,
            density=float(of_column.mean() / self.n_rows),
            n_rows=self.n_rows,
            n_distinct_rows=len(torch.unique(torch.cat(hashes), dim=0)),
        )

    def _open(self, number: int, atoms: Tensor | None) -> SpikeDictionary:
        path, n_rows = self.folder / shard_name(number), self.shard_rows[number]
        packed, atom_of_column, lengths = map_shard(path, n_rows, self.n_columns, has_lengths=not self.is_binary)
        column = self.column_of_atom if atoms is None else self.column_of_atom[atoms]
        own = self.atom_of_column if atoms is None else torch.arange(len(column))
        place = atom_of_column[column]
        if not torch.equal(place, torch.arange(len(packed))):
            packed = packed[place]
        return SpikeDictionary(packed, n_rows, own, column, None, self.readout, self.n_steps, lengths)

    def __repr__(self) -> str:
        """Return sizes and place on one line."""
        return (
            f"ShardedDictionary({self.n_rows} rows × {self.n_atoms} atoms, readout={self.readout!r}, in "
            f"{len(self.shard_rows)} shards at {self.folder})"
        )
