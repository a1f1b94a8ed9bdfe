"""The spike dictionary: distinct spike patterns as bit-packed columns, each with the witnesses that produce it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ..core import bits
from ..core.checks import check_positive_int
from ..core.errors import InvalidInputError
from ..witnesses import WitnessSet
from .base import add_row_products
from .health import DictionaryHealth
from .integer_products import assemble, iterate_column_products, join_counts, row_products
from .lookup import MAX_LOOKUP_OUTPUTS, lookup_product
from .readout import ParsedReadout, Readout, parse_readout

_PRODUCT_BLOCK, _PRODUCT_BLOCK_GPU = 2**18, 2**27
"""Numbers unpacked at once for a product: 2 MiB of float64, which stays in cache; a GiB on a GPU, to keep it busy."""

_SUM_ROWS = 128
"""Rows of a sum on a GPU, and the number of such sums that are added up at once: with sums of sums of sums, a
certificate allows for fewer roundings."""


GROUPING_COPIES = 2
"""Packed dictionaries alive while equal columns or rows are found: all of them, and those that are kept."""


def dictionary_bytes(n_rows: int, n_columns: int, n_planes: int = 1) -> int:
    """Return the bytes of packed columns: one bit per entry and plane, rows padded to whole 64-bit words."""
    return n_columns * n_planes * bits.packed_bytes(n_rows)


@dataclass(frozen=True, eq=False)
class SpikeDictionary:
    """Distinct columns of spikes, packed.

    A column's entries are ``scale · Σ_b 2^b · plane_b``. Spikes need one plane and scale 1; spike counts over T steps,
    read as means, need ⌈log2(T + 1)⌉ planes and scale 1/T, with each row's own T where sequences differ in length.
    Counts in k windows need ⌈log2(⌈T/k⌉ + 1)⌉ planes and scale k/T: a window is T/k steps long, and contains so many
    steps or one more or less.

    Parameters
    ----------
    packed : Tensor of shape (n_atoms, n_planes, n_bytes), dtype uint8
        The bits, which run over the rows (:mod:`cvxsnn.core.bits`).
    n_rows : int
        Number of rows.
    atom_of_column : Tensor of shape (n_columns,), dtype int64
        The atom that each column is equal to. Witness j in window w of k is column ``j * k + w``.
    column_of_atom : Tensor of shape (n_atoms,), dtype int64
        The first column that is equal to each atom.
    witnesses : WitnessSet or None
        The witnesses that made the columns; None for a dictionary made from a plain array.
    readout : "last", "all", "mean" or "windows-k"
        What a row holds of a sequence: the spikes of its last step, of one of its steps, or their mean, over all steps
        or in windows.
    n_steps : int
        Steps of the longest sequence. With readout "all", row ``i * n_steps + t`` is step t of sample i.
    lengths : Tensor of shape (n_rows,), dtype int64, optional
        Steps of each row's sequence, for means over sequences of unequal length.
    is_complete : bool
        Whether the atoms are *all* patterns that witnesses of some family produce on these sequences, as an exact
        enumeration found them; it decides what a certificate is about.

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

    packed: Tensor
    n_rows: int
    atom_of_column: Tensor
    column_of_atom: Tensor
    witnesses: WitnessSet | None
    readout: Readout
    n_steps: int
    lengths: Tensor | None = None
    is_complete: bool = False

    @property
    def n_atoms(self) -> int:
        """Number of distinct columns."""
        return self.packed.shape[0]

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
        """Where the bits are."""
        return self.packed.device

    @property
    def is_binary(self) -> bool:
        """Whether every entry is 0 or 1; means are not."""
        return self._parsed.kind != "mean"

    @property
    def n_windows(self) -> int:
        """Windows of time that each witness is read in."""
        return self._parsed.n_windows

    @cached_property
    def largest_entry(self) -> float:
        """Spikes and their means are at most one; in a window that contains more than n/k steps they may be more."""
        if self.n_windows == 1:
            return 1.0
        steps = torch.unique(self.row_counts())
        most = (steps + self.n_windows - 1) // self.n_windows
        return float((most * self._parsed.scale(steps.double())).max())

    @property
    def _parsed(self) -> ParsedReadout:
        return parse_readout(self.readout)

    @property
    def _has_scale(self) -> bool:
        """Whether entries are other numbers than counts."""
        return not self.is_binary and (self.lengths is not None or self.n_steps != self.n_windows)

    @property
    def is_in_memory(self) -> bool:
        """The rows are in memory."""
        return True

    def columns(self, atoms: Tensor | slice = slice(None), dtype: torch.dtype = torch.float64) -> Tensor:
        """Return columns as numbers.

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
        return self._numbers(self.packed[atoms], slice(0, self.n_rows), dtype).T

    def iterate_rows(
        self, n_rows: int = 4096, dtype: torch.dtype = torch.float64, atoms: Tensor | None = None
    ) -> Iterator[tuple[slice, Tensor]]:
        """Iterate over blocks of rows.

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
        step = max(8, check_positive_int("n_rows", n_rows) // 8 * 8)
        packed = self.packed if atoms is None else self.packed[atoms]
        for start in range(0, self.n_rows, step):
            stop = min(start + step, self.n_rows)
            block = packed[:, :, start // 8 : (stop + 7) // 8]
            yield slice(start, stop), self._numbers(block, slice(start, stop), dtype).T

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
        # Narrow matrices are held as rows: BLAS is up to four times as fast on them as on columns.
        across = coef.T.contiguous()
        scores = coef.new_zeros(coef.shape[1], self.n_rows)
        active = torch.nonzero(coef.any(1)).squeeze(1)
        for atoms, block in self._iterate_atoms(active):
            if scores.is_cuda:  # sums of blocks, then of their sums: fewer roundings than one long sum
                scores += across[:, atoms] @ block
            else:
                scores.addmm_(across[:, atoms], block)
        return scores.T.contiguous()

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
        if self.device.type == "cpu" and rows.shape[1] <= MAX_LOOKUP_OUTPUTS:
            return lookup_product(self.packed.flatten(1), self._rows_of_planes(rows))
        across = rows.T.contiguous()
        product = rows.new_empty(self.n_atoms, rows.shape[1])
        for atoms, block in self._iterate_atoms(torch.arange(self.n_atoms, device=self.device)):
            if product.is_cuda:
                product[atoms] = _sum_in_levels(across, block)
            else:
                product[atoms] = (across @ block.T).T
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
        if not self.packed.is_cuda:
            return n_active
        return min(n_active, self._atoms_at_once) + -(-n_active // self._atoms_at_once)

    @property
    def correlation_roundings(self) -> int:
        """How often a term of a sum of :meth:`rmatvec` is rounded at most, from its product to the end."""
        return _level_roundings(self.n_rows) if self.packed.is_cuda else self.n_rows

    def gram(self) -> Tensor:
        """Return the Gram matrix DᵀD: integers, free of rounding, over the squared scale where there is one.

        Returns
        -------
        Tensor of shape (n_atoms, n_atoms), dtype float64
            The products of all pairs of columns.
        """
        if self._is_product_whole:
            return assemble(self.iterate_gram(), self.n_atoms, torch.float64, self.device)
        total = torch.zeros(self.n_atoms, self.n_atoms, dtype=torch.float64, device=self.device)
        for _, numbers in self.iterate_rows():
            total.addmm_(numbers.T, numbers)
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
        if not self._is_product_whole:
            yield slice(0, self.n_atoms), self.gram()
            return
        for atoms, products in iterate_column_products(self.packed):
            yield atoms, self._scaled(products)

    def row_gram(self) -> Tensor:
        """Return the products of rows DDᵀ: integers, free of rounding, over the squared scale where there is one.

        Returns
        -------
        Tensor of shape (n_rows, n_rows), dtype float64
            The products of all pairs of rows.
        """
        if not self._is_product_whole:
            return add_row_products(self)
        return self._scaled(row_products(self.packed, self.n_rows))

    @property
    def _is_product_whole(self) -> bool:
        """Whether products are whole numbers of bytes, over one scale."""
        return self.lengths is None and self.packed.shape[1] <= 8

    def _scaled(self, products: Tensor) -> Tensor:
        """Divide products of counts by the squared scale, in place."""
        if not self._has_scale:
            return products
        steps, windows = self.n_steps, self.n_windows
        if steps % windows:
            products.mul_(windows**2)
        else:
            steps //= windows
        # Divided by an array: by a number, a GPU would multiply with its inverse, which rounds otherwise.
        return products.div_(torch.full((1, 1), float(steps**2), dtype=torch.float64, device=self.device))

    def take_rows(self, rows: Tensor) -> "SpikeDictionary":
        """Return the dictionary restricted to some rows; atoms keep their places, even where they become equal.

        Parameters
        ----------
        rows : Tensor of shape (n_chosen,), dtype int64
            The rows to keep, in this order.

        Returns
        -------
        SpikeDictionary
            A dictionary in memory.
        """
        planes = [
            bits.transpose(bits.transpose(self.packed[:, plane].contiguous(), self.n_rows)[rows], self.n_atoms)
            for plane in range(self.packed.shape[1])
        ]
        lengths = None if self.lengths is None else self.lengths[rows]
        return replace(self, packed=torch.stack(planes, dim=1), n_rows=len(rows), lengths=lengths)

    @property
    def _atoms_at_once(self) -> int:
        n_numbers = 8 * self.packed[0].numel()
        return max(1, (_PRODUCT_BLOCK_GPU if self.packed.is_cuda else _PRODUCT_BLOCK) // n_numbers)

    def _iterate_atoms(self, atoms: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``(atoms, their columns as rows of a float64 matrix)`` in blocks that stay in cache.

        A block is overwritten by the next.
        """
        n_numbers, step = 8 * self.packed[0].numel(), self._atoms_at_once
        buffer = torch.empty(min(step, len(atoms)) * n_numbers, dtype=torch.float64, device=self.device)
        for start in range(0, len(atoms), step):
            chosen = atoms[start : start + step]
            yield chosen, self._numbers(self.packed[chosen], slice(0, self.n_rows), torch.float64, buffer)

    def group_rows(self, labels: Tensor | None = None) -> bits.Groups:
        """Group the rows that have equal spikes and, where given, equal labels.

        Parameters
        ----------
        labels : Tensor of shape (n_rows,) or (n_rows, n_labels), optional
            Labels, which are compared bit for bit.

        Returns
        -------
        Groups
            The first row and the number of rows of each group, and the group of each row.
        """
        words = [self.row_words()]
        if labels is not None:
            if labels.shape[0] != self.n_rows:
                raise InvalidInputError(f"expected one label for each of {self.n_rows} rows, got {labels.shape[0]}")
            labels = labels.reshape(self.n_rows, -1).to(self.device)
            # Real labels are compared as the 64 bits of a double; adding zero makes the two zeros one.
            real = labels.is_floating_point()
            words.append((labels.double() + 0.0).view(torch.int64) if real else labels.to(torch.int64))
        return bits.group_equal(torch.cat(words, dim=1))

    def row_words(self) -> Tensor:
        """Return what tells rows apart: their lengths, where these differ, and their bits.

        Returns
        -------
        Tensor of shape (n_rows, n_words), dtype int64
            Equal words for equal rows, and no others.
        """
        planes = [
            bits.transpose(self.packed[:, plane].contiguous(), self.n_rows) for plane in range(self.packed.shape[1])
        ]
        words = [plane.view(torch.int64) for plane in planes]
        return torch.cat(words if self.lengths is None else [self.lengths[:, None], *words], dim=1)

    def health(self) -> DictionaryHealth:
        """Count dead, saturated, duplicate and complementary columns.

        Returns
        -------
        DictionaryHealth
            The counts; as a string, one line.
        """
        weights = 2 ** torch.arange(self.packed.shape[1], device=self.device)
        totals = (bits.count(self.packed) * weights).sum(1)
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
        if not self.is_binary:
            most = self.row_counts()
            own = torch.round(self.columns().T * most).to(torch.int64).contiguous()
            negated = most - own
        else:
            own = self.packed.view(torch.int64).flatten(1)
            negated = bits.complement(self.packed, self.n_rows).view(torch.int64).flatten(1)
        # An atom and its complement are distinct, and atoms are distinct: equal rows below come in pairs.
        groups = bits.group_equal(torch.cat((own, negated)))
        return int((2 * self.n_atoms - len(groups.first)) // 2)

    def _numbers(self, packed: Tensor, rows: slice, dtype: torch.dtype, buffer: Tensor | None = None) -> Tensor:
        """Return columns as the rows of a matrix, for a slice of the dictionary's rows."""
        n_rows = rows.stop - rows.start
        if packed.shape[1] == 1:
            numbers = bits.unpack(packed[:, 0], n_rows, dtype, buffer)
            return numbers.mul_(self._scale(rows, dtype)) if self._has_scale else numbers
        counts = join_counts(packed, torch.uint8 if packed.shape[1] <= 8 else torch.int32)[:, :n_rows]
        scale = torch.as_tensor(self._scale(rows, dtype), dtype=dtype, device=packed.device).view(-1)
        return torch.mul(counts, scale, out=None if buffer is None else buffer[: counts.numel()].view(counts.shape))

    def _rows_of_planes(self, rows: Tensor) -> Tensor:
        """Return what each bit of an atom multiplies in Dᵀ·R: the planes in order, each padded as its bits are."""
        n_planes, n_bytes = self.packed.shape[1:]
        if not self._has_scale:
            return rows
        padded = rows.new_zeros(n_planes, 8 * n_bytes, rows.shape[1])
        scale = self._scale(slice(0, self.n_rows), rows.dtype)
        weights = 2.0 ** torch.arange(n_planes, device=rows.device, dtype=rows.dtype)
        padded[:, : self.n_rows] = weights[:, None, None] * (rows.T * scale).T
        return padded.flatten(0, 1)

    def _scale(self, rows: slice, dtype: torch.dtype) -> Tensor | float:
        steps = self.n_steps if self.lengths is None else self.lengths[rows].to(dtype)
        return self._parsed.scale(steps)

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
        return f"SpikeDictionary({self.n_rows} rows × {self.n_atoms} atoms, readout={self.readout!r}, from {origin})"


def _sum_in_levels(across: Tensor, block: Tensor) -> Tensor:
    """Return the products of columns, the rows of a block, with rows of numbers; sums of few terms at each level.

    Parameters
    ----------
    across : Tensor of shape (n_outputs, n_rows)
    block : Tensor of shape (n_atoms, n_rows)

    Returns
    -------
    Tensor of shape (n_atoms, n_outputs)
    """
    n_whole = across.shape[1] // _SUM_ROWS * _SUM_ROWS
    whole = (values[:, :n_whole].reshape(len(values), n_whole // _SUM_ROWS, _SUM_ROWS) for values in (block, across))
    first, second = next(whole).transpose(0, 1), next(whole).permute(1, 2, 0)  # one matrix for each sum
    parts = [own.sum(0) for own in torch.split(torch.bmm(first, second), _SUM_ROWS)]
    if n_whole < across.shape[1]:
        parts.append(block[:, n_whole:] @ across[:, n_whole:].T)
    return torch.stack(parts).sum(0)


def _level_roundings(n_rows: int) -> int:
    """Return how often a term of such a sum is rounded at most."""
    n_sums = -(-n_rows // _SUM_ROWS)
    n_parts = -(-n_sums // _SUM_ROWS) + 1
    return min(n_rows, _SUM_ROWS) + min(n_sums, _SUM_ROWS) + n_parts
