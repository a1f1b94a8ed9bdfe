"""A dictionary of real columns, for features that are not spikes."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from ..core import bits
from ..core.checks import check_positive_int
from ..core.errors import InvalidInputError
from ..core.memory import check_fits, dense_bytes
from .base import Dictionary, group_labelled


@dataclass(frozen=True, eq=False)
class DenseDictionary(Dictionary):
    """Real columns. The convex program over them has its certificate like any other; they come from no witnesses.

    Parameters
    ----------
    values : Tensor of shape (n_rows, n_atoms)
        The columns, kept in float64.

    Examples
    --------
    >>> import torch
    >>> from cvxsnn.dictionary import DenseDictionary
    >>> DenseDictionary(torch.rand(20, 5, dtype=torch.float64)).shape
    (20, 5)
    """

    values: Tensor
    n_rows: int = field(init=False)
    atom_of_column: Tensor = field(init=False)
    column_of_atom: Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Refuse anything but a finite matrix that fits into memory as float64."""
        if self.values.ndim != 2 or 0 in self.values.shape:
            raise InvalidInputError(
                f"expected columns of shape (n_rows, n_columns), not empty, got shape {tuple(self.values.shape)}"
            )
        needed = dense_bytes(*self.values.shape)
        purpose = f"real columns of {len(self.values):,} rows × {self.values.shape[1]:,} atoms"
        check_fits(needed, self.values.device, purpose, "use fewer rows")
        if not bool(torch.isfinite(self.values).all()):
            raise InvalidInputError("expected finite columns, got NaN or infinite values")
        each = torch.arange(self.values.shape[1], device=self.values.device)  # no column is merged with another
        derived = {"values": self.values.to(torch.float64), "n_rows": len(self.values)}
        for name, value in {**derived, "atom_of_column": each, "column_of_atom": each}.items():
            object.__setattr__(self, name, value)

    @property
    def is_binary(self) -> bool:
        return False

    @cached_property
    def largest_entry(self) -> float:
        return float(self.values.abs().max())

    def columns(self, atoms: Tensor | slice = slice(None), dtype: torch.dtype = torch.float64) -> Tensor:
        return self.values[:, atoms].to(dtype)

    def iterate_rows(
        self, n_rows: int = 4096, dtype: torch.dtype = torch.float64, atoms: Tensor | None = None
    ) -> Iterator[tuple[slice, Tensor]]:
        step = check_positive_int("n_rows", n_rows)
        for start in range(0, self.n_rows, step):
            rows = slice(start, min(start + step, self.n_rows))
            block = self.values[rows] if atoms is None else self.values[rows][:, atoms]
            yield rows, block.to(dtype)

    def matvec(self, coef: Tensor) -> Tensor:
        active = torch.nonzero(coef.any(1)).squeeze(1)
        return self.values @ coef if 2 * len(active) > self.n_atoms else self.values[:, active] @ coef[active]

    def rmatvec(self, rows: Tensor) -> Tensor:
        return self.values.T @ rows

    def gram(self) -> Tensor:
        if self.device.type != "cpu":
            return self.values.T @ self.values
        numbers = self.values.numpy()
        return torch.from_numpy(numbers.T @ numbers)  # NumPy does half the work of a symmetric product

    def take_rows(self, rows: Tensor) -> "DenseDictionary":
        return replace(self, values=self.values[rows])

    def group_rows(self, labels: Tensor | None = None) -> bits.Groups:
        return group_labelled((self.values + 0.0).view(torch.int64), labels)

    def __repr__(self) -> str:
        """Return sizes on one line."""
        return f"DenseDictionary({self.n_rows} rows × {self.n_atoms} real columns)"
