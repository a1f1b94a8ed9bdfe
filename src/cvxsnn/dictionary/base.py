"""The contract of a dictionary: the content of its rows, and the methods that problems and networks use."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from ..core import bits
from ..core.checks import check_positive_int
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..neurons.statistics import STATISTICS, Statistic
from ..witnesses import WitnessSet
from .products import self_product

Readout = str
"""The content of a row: the spikes of a sequence's last step ("last"), of one of its steps ("all"), their mean over the
steps ("mean"), their means in windows of time, for example four of equal length ("windows-4"), or several statistics of
them joined by a plus ("mean+burst", :mod:`cvxsnn.neurons.statistics`). :func:`parse_readout` checks it.

Examples
--------
>>> import numpy as np
>>> import cvxsnn as cs
>>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
>>> witnesses = cs.gaussian_witnesses(2, (16,), seed=0)
>>> cs.build_dictionary(witnesses, inputs, readout="windows-2").n_columns
32
"""


@dataclass(frozen=True)
class ParsedReadout:
    """A checked read-out; as a string, its :data:`~cvxsnn.dictionary.Readout`.

    Parameters
    ----------
    kind : "last", "all", "mean" or "statistics"
        Spikes of the last step, of every step, means, or statistics.
    n_windows : int
        The columns of a neuron: equal windows of time in which means are taken, or statistics; else 1.
    statistics : tuple of str
        The statistics.
    """

    kind: Literal["last", "all", "mean", "statistics"]
    n_windows: int = 1
    statistics: tuple[Statistic, ...] = ()

    def __str__(self) -> str:
        """Return the read-out as one string."""
        if self.statistics:
            return "+".join(self.statistics)
        return self.kind if self.n_windows == 1 else f"windows-{self.n_windows}"

    @property
    def columns_are(self) -> str:
        """What one column is, in the plural and for a person."""
        parts = "statistics of " if self.kind == "statistics" else "windows of "
        return ("" if self.n_windows == 1 else parts) + "neurons"

    def n_rows(self, n_samples: int, n_steps: int) -> int:
        """Return the rows of a dictionary: one per sample or, with readout "all", one per sample and step."""
        return n_samples * n_steps if self.kind == "all" else n_samples

    def most(self, n_steps: int) -> int:
        """Return the largest entry before scaling: 1 for spikes, the steps of the longest window for counts."""
        return -(-int(n_steps) // self.n_windows) if self.kind == "mean" else 1

    def dtype(self, n_steps: int) -> torch.dtype:
        """Return the type in which a dictionary stores entries: bytes of eight spikes, or the narrowest for counts."""
        most = self.most(n_steps)
        return torch.uint8 if most < 2**8 else torch.int16 if most < 2**15 else torch.int32

    def column_bytes(self, n_rows: int, n_steps: int) -> int:
        """Return the bytes of a stored column, padded to whole 64-bit words."""
        return bits.packed_bytes(n_rows * (8 * self.dtype(n_steps).itemsize if self.kind == "mean" else 1))

    def scale(self, n_steps: int | Tensor) -> Tensor | float:
        """Return the factor k/n that turns counts into means, for k windows of n steps: rounded once, everywhere."""
        # A number over a tensor would be rounded twice, as the number times the tensor's inverse.
        above = torch.full_like(n_steps, self.n_windows) if isinstance(n_steps, Tensor) else self.n_windows
        return above / n_steps

    def check_length(self, n_steps: int) -> None:
        """Refuse more windows than the longest sequence has steps."""
        if self.kind == "mean" and self.n_windows > n_steps:
            raise InvalidInputError(
                f"expected at most {plural(n_steps, 'window')}, the steps of the longest sequence, got "
                f"{plural(self.n_windows, 'window')}"
            )


def parse_readout(readout: Any, windows: Any = None) -> ParsedReadout:
    """Return a checked read-out.

    Parameters
    ----------
    readout : "last", "all", "mean", or a string such as "windows-4" or "mean+burst"
        The read-out.
    windows : int, optional
        The number of windows, in place of the number in the string; for readout "mean".

    Returns
    -------
    ParsedReadout
        The read-out; one window is "mean".
    """
    names = tuple(readout.split("+")) if isinstance(readout, str) else ()
    is_statistics = len(names) > 1 or (names and names[0] in STATISTICS and names[0] not in ("last", "mean"))
    if is_statistics and windows is None and {*names} <= {*STATISTICS} and len({*names}) == len(names):
        return ParsedReadout("statistics", len(names), names)  # type: ignore[arg-type]
    name, _, number = readout.partition("-") if isinstance(readout, str) else ("", "", "")
    # int() would also accept signs, spaces and underscores.
    has_number = name == "windows" and number.isdecimal() and int(number) > 0
    if not has_number and (not isinstance(readout, str) or readout not in ("last", "all", "mean")):
        raise InvalidInputError(
            "expected readout to be one of 'last', 'all', 'mean', 'windows-4' with any number, or statistics such as "
            f"'mean+burst', got {readout!r}"
        )
    if windows is None:
        return ParsedReadout("mean", int(number)) if has_number else ParsedReadout(readout)
    n_windows = check_positive_int("windows", windows)
    if has_number and n_windows != int(number):
        raise InvalidInputError(f"expected one number of windows, got readout={readout!r} and windows={windows!r}")
    if readout in ("last", "all"):
        raise InvalidInputError(f"expected readout='mean' with windows={n_windows}, got {readout!r}: drop one of them")
    return ParsedReadout("mean", n_windows)


@dataclass(frozen=True, eq=False, kw_only=True)
class Dictionary(ABC):
    """A matrix D of shape (n_rows, n_atoms) whose columns are the atoms, however it is stored.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    atom_of_column : Tensor of shape (n_columns,), dtype int64
        The atom that each column is equal to. Witness j in window w of k is column ``j * k + w``.
    column_of_atom : Tensor of shape (n_atoms,), dtype int64
        The first column that is equal to each atom.
    readout : "last", "all", "mean" or "windows-k"
        The content of a row: the spikes of a sequence's last step, of one of its steps, or their mean over all steps
        or in windows.
    n_steps : int
        Steps of the longest sequence. With readout "all", row ``i * n_steps + t`` is step t of sample i.
    witnesses : WitnessSet or None
        The witnesses that made the columns; None for columns that do not come from witnesses.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import build_dictionary
    >>> from cvxsnn.dictionary import Dictionary
    >>> isinstance(build_dictionary(np.eye(3)), Dictionary)
    True
    """

    n_rows: int
    atom_of_column: Tensor
    column_of_atom: Tensor
    readout: Readout = "last"
    n_steps: int = 1
    witnesses: WitnessSet | None = None
    # Not an argument: neither a constructor nor `replace` can pass it on to other atoms.
    _is_complete: bool = field(default=False, init=False, repr=False)

    is_in_memory: ClassVar[bool] = True
    """Whether the rows are in memory, so that equal rows can be merged."""

    @property
    def n_atoms(self) -> int:
        """Number of columns without duplicates."""
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
    def is_complete(self) -> bool:
        """Whether the atoms are *all* patterns that a family can produce on these rows, as an enumeration has shown."""
        return self._is_complete

    @property
    def is_selection(self) -> bool:
        """Whether the atoms are a part of those of its columns, or the witnesses were chosen from a larger sample."""
        is_part = bool((self.atom_of_column < 0).any())
        return is_part or (self.witnesses is not None and self.witnesses.is_selection)

    def as_complete(self) -> Self:
        """Declare that the atoms are all patterns of a family on these rows; for enumerations only.

        Returns
        -------
        Dictionary
            The same object.
        """
        object.__setattr__(self, "_is_complete", True)
        return self

    def _derived(self, **fields: Any) -> Self:
        """Return the dictionary with other rows or fewer atoms. All patterns on some rows are all on fewer rows."""
        derived = replace(self, **fields)
        return derived.as_complete() if self.is_complete and not derived.is_selection else derived

    @property
    def units(self) -> Tensor:
        """What the entries of each atom are multiples of: a network reads it with its coefficient times the unit."""
        return torch.ones(self.n_atoms, dtype=torch.float64, device=self.device)

    def coefficients(self, columns: Tensor, weight: Tensor) -> Tensor:
        """Return the coefficients of atoms whose columns a network reads; weights of equal columns add up.

        Parameters
        ----------
        columns : Tensor of shape (n_read,), dtype int64
            The columns that are read.
        weight : Tensor of shape (n_read, n_outputs)
            Their output weights: coefficients times units.

        Returns
        -------
        Tensor of shape (n_atoms, n_outputs), dtype float64
            The coefficients.
        """
        atoms = self.atom_of_column[columns.to(self.device)]
        coef = torch.zeros(self.n_atoms, weight.shape[1], dtype=torch.float64, device=self.device)
        coef = coef.index_add_(0, atoms, weight.detach().to(coef))
        # Columns without a unit are zero, whatever their weights.
        return torch.where(self.units[:, None] > 0, coef / self.units[:, None], 0.0)

    @property
    def device(self) -> torch.device:
        """Device on which products are computed."""
        return self.column_of_atom.device

    @cached_property
    def _read(self) -> ParsedReadout:
        return parse_readout(self.readout)

    @property
    def is_binary(self) -> bool:
        """Whether every entry is 0 or 1, so that products of columns are counts without rounding."""
        return self._read.kind in ("last", "all")

    @property
    @abstractmethod
    def largest_entry(self) -> float:
        """A bound on the absolute value of every entry."""

    @abstractmethod
    def _numbers(self, atoms: Tensor | slice, rows: slice, dtype: torch.dtype) -> Tensor:
        """Return a block of entries, of shape (rows, atoms); slices of rows start at multiples of 8."""

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
        return self._numbers(atoms, slice(0, self.n_rows), dtype)

    def iterate_rows(
        self, n_rows: int = 4096, dtype: torch.dtype = torch.float64, atoms: Tensor | None = None
    ) -> Iterator[tuple[slice, Tensor]]:
        """Iterate over blocks of rows.

        Parameters
        ----------
        n_rows : int
            Approximate number of rows of a block.
        dtype : torch.dtype
            The type of the numbers.
        atoms : Tensor, optional
            The columns to return; all of them by default.

        Yields
        ------
        rows : slice
            The rows of the block.
        block : Tensor of shape (n_rows_of_block, n_chosen)
            Their entries.
        """
        # Blocks start at whole bytes of packed spikes.
        step = max(8, check_positive_int("n_rows", n_rows) // 8 * 8)
        for start in range(0, self.n_rows, step):
            rows = slice(start, min(start + step, self.n_rows))
            yield rows, self._numbers(slice(None) if atoms is None else atoms, rows, dtype)

    @abstractmethod
    def matvec(self, coef: Tensor) -> Tensor:
        """Return the product D·W.

        Parameters
        ----------
        coef : Tensor of shape (n_atoms, n_outputs), dtype float64
            The matrix W. Rows of zeros cost nothing.

        Returns
        -------
        Tensor of shape (n_rows, n_outputs), dtype float64
            The product.
        """

    @abstractmethod
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

    def score_roundings(self, n_active: int) -> int:
        """Return a bound on the roundings of a term in :meth:`matvec`, from its product to the end of the sum.

        Parameters
        ----------
        n_active : int
            Number of rows of W that are not zero.

        Returns
        -------
        int
            The number of roundings.
        """
        return n_active

    @property
    def correlation_roundings(self) -> int:
        """A bound on the roundings of a term in :meth:`rmatvec`, from its product to the end of the sum."""
        return self.n_rows

    @abstractmethod
    def gram(self) -> Tensor:
        """Return the Gram matrix DᵀD.

        Returns
        -------
        Tensor of shape (n_atoms, n_atoms), dtype float64
            The products of all pairs of columns.
        """

    def iterate_gram(self) -> Iterator[tuple[slice, Tensor]]:
        """Iterate over blocks of the Gram matrix DᵀD, on and above its diagonal.

        Yields
        ------
        atoms : slice
            The rows of the matrix in this block. Its columns begin at the same atom and go to the end.
        products : Tensor, dtype float64
            The products of these atoms with the first of them and all that follow. The caller may overwrite it.
        """
        yield slice(0, self.n_atoms), self.gram()

    def row_gram(self) -> Tensor:
        """Return the products of rows DDᵀ.

        Returns
        -------
        Tensor of shape (n_rows, n_rows), dtype float64
            The products of all pairs of rows.
        """
        return self_product(self.columns().T)

    @abstractmethod
    def take_atoms(self, atoms: Tensor) -> Self:
        """Return the dictionary of some atoms, which get new numbers.

        Parameters
        ----------
        atoms : Tensor of shape (n_chosen,), dtype int64
            The atoms to keep, in this order.

        Returns
        -------
        Dictionary
            The columns of the witnesses stay; those of other atoms have ``atom_of_column`` −1.
        """

    def _renumbered(self, atoms: Tensor) -> dict[str, Any]:
        """Return ``atom_of_column`` and ``column_of_atom`` of some atoms."""
        new = torch.full_like(self.column_of_atom, -1)
        new[atoms] = torch.arange(len(atoms), device=new.device)
        return {"atom_of_column": new[self.atom_of_column], "column_of_atom": self.column_of_atom[atoms]}

    @abstractmethod
    def take_rows(self, rows: Tensor) -> "Dictionary":
        """Return the dictionary restricted to some rows; atoms keep their numbers, even if they become equal.

        Parameters
        ----------
        rows : Tensor of shape (n_chosen,), dtype int64
            The rows to keep, in this order.

        Returns
        -------
        Dictionary
            A dictionary in memory.
        """

    def refine(self, atom_of_column: Tensor) -> tuple[Self, Tensor]:
        """Return the dictionary whose atoms are the columns that are distinct here or on other rows.

        Parameters
        ----------
        atom_of_column : Tensor of shape (n_columns,), dtype int64
            The atoms of the same columns on other rows.

        Returns
        -------
        dictionary : Dictionary
            The same columns on the same rows, with as many atoms or more.
        others : Tensor of shape (n_atoms,), dtype int64
            The atom on the other rows of each new atom.
        """
        groups = bits.group_equal(torch.stack((self.atom_of_column, atom_of_column), dim=1))
        taken = self.take_atoms(self.atom_of_column[groups.first])
        refined = replace(taken, atom_of_column=groups.inverse, column_of_atom=groups.first)
        return refined, atom_of_column[groups.first]

    def append(self, other: "Dictionary") -> "Dictionary":
        """Return the dictionary of the rows of both, as if they had been built together.

        Parameters
        ----------
        other : Dictionary
            The columns of the same witnesses on other rows.

        Returns
        -------
        Dictionary
            A dictionary in memory.
        """
        if type(self) is not type(other) or self.n_columns != other.n_columns or self.readout != other.readout:
            raise InvalidInputError(f"expected a dictionary of the same columns on other rows, got {other!r}")
        first, second = self.refine(other.atom_of_column)[0], other.refine(self.atom_of_column)[0]
        n_rows, n_steps = self.n_rows + other.n_rows, max(self.n_steps, other.n_steps)
        return replace(first, n_rows=n_rows, n_steps=n_steps, **first._append_rows(second, n_steps))

    def _append_rows(self, other: Any, n_steps: int) -> dict[str, Any]:
        """Return the fields with the entries of both, whose atoms are the same; ``n_steps`` is the larger."""
        raise InvalidInputError(f"expected spikes in memory, to which rows can be appended, got {self!r}")

    @abstractmethod
    def group_rows(self, labels: Tensor | None = None) -> bits.Groups:
        """Group the rows that are equal and, if labels are given, have equal labels.

        Parameters
        ----------
        labels : Tensor of shape (n_rows,) or (n_rows, n_labels), optional
            Labels, which are compared bit for bit.

        Returns
        -------
        Groups
            The first row and the number of rows of each group, and the group of each row.
        """


def group_labelled(words: Tensor, labels: Tensor | None) -> bits.Groups:
    """Group rows by their words, of shape (n_rows, n_words) and dtype int64, and by their labels."""
    if labels is None:
        return bits.group_equal(words)
    n_rows = len(words)
    if labels.shape[0] != n_rows:
        raise InvalidInputError(f"expected one label for each of {plural(n_rows, 'row')}, got {labels.shape[0]}")
    labels = labels.reshape(n_rows, -1).to(words.device)
    # Real labels are compared as the 64 bits of a double; adding zero turns −0 into 0.
    real = labels.is_floating_point()
    words_of_labels = (labels.double() + 0.0).view(torch.int64) if real else labels.to(torch.int64)
    return bits.group_equal(torch.cat((words, words_of_labels), dim=1))
