"""The contract of a dictionary: all that a convex program, a certificate and a reconstruction need from one."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import bits
from ..core.errors import InvalidInputError
from ..witnesses import WitnessSet
from .readout import Readout


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
        What a row contains: the spikes of a sequence's last step, of one of its steps, or their mean, over all steps or
        in windows.
    n_steps : int
        Steps of the longest sequence. With readout "all", row ``i * n_steps + t`` is step t of sample i.
    witnesses : WitnessSet or None
        The witnesses that made the columns; None for columns that do not come from witnesses.
    is_complete : bool
        Whether the atoms are *all* patterns that a family of witnesses can produce on these rows, as an exact
        enumeration has shown; it decides what a certificate is about.

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
    is_complete: bool = False

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
    def device(self) -> torch.device:
        """Device on which products are computed."""
        return self.column_of_atom.device

    @property
    @abstractmethod
    def is_binary(self) -> bool:
        """Whether every entry is 0 or 1, so that products of columns are counts without rounding."""

    @property
    @abstractmethod
    def largest_entry(self) -> float:
        """A bound on the absolute value of every entry."""

    @property
    def is_in_memory(self) -> bool:
        """Whether the rows are in memory, so that equal rows can be merged."""
        return True

    @abstractmethod
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

    @abstractmethod
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
        n_at_once = 4096
        total = torch.zeros(self.n_rows, self.n_rows, dtype=torch.float64, device=self.device)
        for start in range(0, self.n_atoms, n_at_once):
            block = self.columns(slice(start, start + n_at_once))
            if block.device.type == "cpu":
                numbers = block.numpy()
                total += torch.from_numpy(numbers @ numbers.T)  # NumPy does half the work of a symmetric product
            else:
                total.addmm_(block, block.T)
        return total

    @abstractmethod
    def take_rows(self, rows: Tensor) -> "Dictionary":
        """Return the dictionary restricted to some rows; atoms keep their numbers, even where they become equal.

        Parameters
        ----------
        rows : Tensor of shape (n_chosen,), dtype int64
            The rows to keep, in this order.

        Returns
        -------
        Dictionary
            A dictionary in memory.
        """

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
        raise InvalidInputError(f"expected one label for each of {n_rows} rows, got {labels.shape[0]}")
    labels = labels.reshape(n_rows, -1).to(words.device)
    # Real labels are compared as the 64 bits of a double; adding zero turns −0 into 0.
    real = labels.is_floating_point()
    words_of_labels = (labels.double() + 0.0).view(torch.int64) if real else labels.to(torch.int64)
    return bits.group_equal(torch.cat((words, words_of_labels), dim=1))
