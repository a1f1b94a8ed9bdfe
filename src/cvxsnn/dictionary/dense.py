"""A dictionary of real columns, for features that are not spikes: everything but the packing is as for spikes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ..core import bits
from ..core.checks import check_positive_int
from ..core.errors import BudgetError, InvalidInputError
from .base import add_row_products
from .health import DictionaryHealth
from .readout import Readout

MEMORY_BUDGET = 8 * 2**30
"""Bytes that real columns may take, unless the caller says otherwise."""


@dataclass(frozen=True, eq=False)
class DenseDictionary:
    """Real columns. The convex program over them has its certificate like any other; no witness stands behind them.

    Parameters
    ----------
    values : Tensor of shape (n_rows, n_atoms)
        The columns, kept in float64.
    readout : "last", "all", "mean" or "windows-k"
        What a row holds of a sequence.
    n_steps : int
        Steps of the longest sequence.
    is_complete : bool
        Whether the columns are all that there can be.
    witnesses : None
        No witness stands behind real columns.
    memory_budget : int
        Bytes that the columns may take.

    Examples
    --------
    >>> import torch
    >>> from cvxsnn.dictionary import DenseDictionary
    >>> DenseDictionary(torch.rand(20, 5, dtype=torch.float64)).shape
    (20, 5)
    """

    values: Tensor
    readout: Readout = "last"
    n_steps: int = 1
    is_complete: bool = False
    witnesses: None = None
    memory_budget: int = MEMORY_BUDGET

    def __post_init__(self) -> None:
        """Refuse what is no matrix of numbers, and what does not fit."""
        if self.values.ndim != 2 or 0 in self.values.shape:
            raise InvalidInputError(
                f"expected columns of shape (n_rows, n_columns), not empty, got shape {tuple(self.values.shape)}"
            )
        if 8 * self.values.numel() > self.memory_budget:
            raise BudgetError(
                f"expected real columns within {self.memory_budget / 2**30:.2g} GiB, but {len(self.values):,} rows × "
                f"{self.values.shape[1]:,} columns need {8 * self.values.numel() / 2**30:.1f} GiB: use fewer rows"
            )
        if not bool(torch.isfinite(self.values).all()):
            raise InvalidInputError("expected finite columns, got NaN or infinite values")
        object.__setattr__(self, "values", self.values.to(torch.float64))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.values)

    @property
    def n_atoms(self) -> int:
        """Number of columns."""
        return self.values.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        """``(n_rows, n_atoms)``."""
        return self.n_rows, self.n_atoms

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self.values.device

    @property
    def n_columns(self) -> int:
        """Number of columns: none is dropped."""
        return self.n_atoms

    @property
    def column_of_atom(self) -> Tensor:
        """Each column stands for itself."""
        return torch.arange(self.n_atoms, device=self.device)

    @property
    def atom_of_column(self) -> Tensor:
        """Each column stands for itself."""
        return self.column_of_atom

    @property
    def is_binary(self) -> bool:
        """Entries may be any numbers."""
        return False

    @cached_property
    def largest_entry(self) -> float:
        """The largest absolute value."""
        return float(self.values.abs().max())

    @property
    def is_in_memory(self) -> bool:
        """The rows are in memory."""
        return True

    def columns(self, atoms: Tensor | slice = slice(None), dtype: torch.dtype = torch.float64) -> Tensor:
        """Return columns.

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
        return self.values[:, atoms].to(dtype)

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
        step = check_positive_int("n_rows", n_rows)
        for start in range(0, self.n_rows, step):
            rows = slice(start, min(start + step, self.n_rows))
            block = self.values[rows] if atoms is None else self.values[rows][:, atoms]
            yield rows, block.to(dtype)

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
        active = torch.nonzero(coef.any(1)).squeeze(1)
        return self.values @ coef if 2 * len(active) > self.n_atoms else self.values[:, active] @ coef[active]

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
        return self.values.T @ rows

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
        """Return the Gram matrix DᵀD.

        Returns
        -------
        Tensor of shape (n_atoms, n_atoms), dtype float64
            The products of all pairs of columns.
        """
        if self.device.type != "cpu":
            return self.values.T @ self.values
        numbers = self.values.numpy()
        return torch.from_numpy(numbers.T @ numbers)  # NumPy sees that this is symmetric, and does half the work

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
        """Return the products of rows DDᵀ.

        Returns
        -------
        Tensor of shape (n_rows, n_rows), dtype float64
            The products of all pairs of rows.
        """
        return add_row_products(self)

    def take_rows(self, rows: Tensor) -> "DenseDictionary":
        """Return the dictionary restricted to some rows.

        Parameters
        ----------
        rows : Tensor of shape (n_chosen,), dtype int64
            The rows to keep, in this order.

        Returns
        -------
        DenseDictionary
            A dictionary in memory.
        """
        return replace(self, values=self.values[rows])

    def group_rows(self, labels: Tensor | None = None) -> bits.Groups:
        """Group the rows that are equal to the bit and, where given, have equal labels.

        Parameters
        ----------
        labels : Tensor of shape (n_rows,) or (n_rows, n_labels), optional
            Labels, which are compared bit for bit.

        Returns
        -------
        Groups
            The first row and the number of rows of each group, and the group of each row.
        """
        parts = [self.values] if labels is None else [self.values, labels.reshape(self.n_rows, -1).to(self.values)]
        return bits.group_equal(torch.cat([(part + 0.0).view(torch.int64) for part in parts], dim=1))

    def health(self) -> DictionaryHealth:
        """Count columns that are always zero, that are constant otherwise, and that repeat another.

        Returns
        -------
        DictionaryHealth
            The counts; as a string, one line.
        """
        is_constant = (self.values == self.values[:1]).all(0)
        is_dead = is_constant & (self.values[0] == 0)
        n_distinct = len(bits.group_equal((self.values.T.contiguous() + 0.0).view(torch.int64)).first)
        return DictionaryHealth(
            n_columns=self.n_atoms,
            n_atoms=self.n_atoms,
            n_dead=int(is_dead.sum()),
            n_saturated=int((is_constant & ~is_dead).sum()),
            n_duplicate=self.n_atoms - n_distinct,
            n_complementary=0,
            density=float((self.values != 0).double().mean()),
            n_rows=self.n_rows,
            n_distinct_rows=len(self.group_rows().first),
        )

    def __repr__(self) -> str:
        """Return sizes on one line."""
        return f"DenseDictionary({self.n_rows} rows × {self.n_atoms} real columns)"
