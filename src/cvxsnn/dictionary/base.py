"""The contract of a dictionary: all that a convex program, a certificate and a reconstruction need of one."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from ..core.bits import Groups
from ..witnesses import WitnessSet
from .health import DictionaryHealth
from .readout import Readout


@runtime_checkable
class Dictionary(Protocol):
    """A matrix D of shape (n_rows, n_atoms) whose columns are the atoms, however it is stored."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def n_atoms(self) -> int:
        """Number of columns."""
        ...

    @property
    def n_columns(self) -> int:
        """Number of columns before duplicates were removed: one for each witness and window of time."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """``(n_rows, n_atoms)``."""
        ...

    @property
    def device(self) -> torch.device:
        """Where products are computed."""
        ...

    @property
    def readout(self) -> Readout:
        """What a row holds of a sequence."""
        ...

    @property
    def n_steps(self) -> int:
        """Steps of the longest sequence."""
        ...

    @property
    def witnesses(self) -> WitnessSet | None:
        """The witnesses that made the columns; None where no witness stands behind them."""
        ...

    @property
    def atom_of_column(self) -> Tensor:
        """The atom that each column is equal to, shape (n_columns,). Witness j in window w is ``j * n_windows + w``."""
        ...

    @property
    def column_of_atom(self) -> Tensor:
        """The first column that is equal to each atom, shape (n_atoms,)."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether the atoms are *all* patterns of a family of witnesses on these rows, as an enumeration found them."""
        ...

    @property
    def is_binary(self) -> bool:
        """Whether every entry is 0 or 1, so that products of columns are counts without rounding."""
        ...

    @property
    def largest_entry(self) -> float:
        """A bound on the absolute value of every entry."""
        ...

    @property
    def is_in_memory(self) -> bool:
        """Whether the rows are in memory, so that equal ones can be found and merged."""
        ...

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
        ...

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
        ...

    def matvec(self, coef: Tensor) -> Tensor:
        """Return the product D·W.

        Parameters
        ----------
        coef : Tensor of shape (n_atoms, n_outputs), dtype float64
            The matrix W. Only rows that are not zero cost anything.

        Returns
        -------
        Tensor of shape (n_rows, n_outputs), dtype float64
            The product.
        """
        ...

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
        ...

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
        ...

    @property
    def correlation_roundings(self) -> int:
        """How often a term of a sum of :meth:`rmatvec` is rounded at most, from its product to the end."""
        ...

    def gram(self) -> Tensor:
        """Return the Gram matrix DᵀD.

        Returns
        -------
        Tensor of shape (n_atoms, n_atoms), dtype float64
            The products of all pairs of columns.
        """
        ...

    def iterate_gram(self) -> Iterator[tuple[slice, Tensor]]:
        """Iterate over blocks of the Gram matrix DᵀD, on and above its diagonal.

        Yields
        ------
        atoms : slice
            The rows of the matrix that a block has. Its columns begin where these do, and go to the end.
        products : Tensor, dtype float64
            The products of these atoms and all that follow the first of them. The caller may overwrite it.
        """
        ...

    def row_gram(self) -> Tensor:
        """Return the products of rows DDᵀ.

        Returns
        -------
        Tensor of shape (n_rows, n_rows), dtype float64
            The products of all pairs of rows.
        """
        ...

    def take_rows(self, rows: Tensor) -> "Dictionary":
        """Return the dictionary restricted to some rows; atoms keep their places, even where they become equal.

        Parameters
        ----------
        rows : Tensor of shape (n_chosen,), dtype int64
            The rows to keep, in this order.

        Returns
        -------
        Dictionary
            A dictionary in memory.
        """
        ...

    def group_rows(self, labels: Tensor | None = None) -> Groups:
        """Group the rows that are equal and, where given, have equal labels.

        Parameters
        ----------
        labels : Tensor of shape (n_rows,) or (n_rows, n_labels), optional
            Labels, which are compared bit for bit.

        Returns
        -------
        Groups
            The first row and the number of rows of each group, and the group of each row.
        """
        ...

    def health(self) -> DictionaryHealth:
        """Count the columns that are useful.

        Returns
        -------
        DictionaryHealth
            The counts; as a string, one line.
        """
        ...


def add_row_products(dictionary: Dictionary, n_atoms: int = 4096) -> Tensor:
    """Return the products of all pairs of rows, added up over blocks of so many columns in float64."""
    total = torch.zeros(dictionary.n_rows, dictionary.n_rows, dtype=torch.float64, device=dictionary.device)
    for start in range(0, dictionary.n_atoms, n_atoms):
        block = dictionary.columns(slice(start, start + n_atoms))
        if block.device.type == "cpu":
            numbers = block.numpy()
            total += torch.from_numpy(numbers @ numbers.T)  # NumPy sees that this is symmetric, and does half the work
        else:
            total.addmm_(block, block.T)
    return total
