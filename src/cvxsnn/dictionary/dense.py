"""A dictionary of real columns, for features that are not spikes."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from ..core import bits
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..core.memory import check_fits, dense_bytes
from .base import Dictionary, group_labelled
from .products import self_product


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
        purpose = f"real columns of {plural(len(self.values), 'row')} × {plural(self.values.shape[1], 'atom')}"
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

    def _numbers(self, atoms: Tensor | slice, rows: slice, dtype: torch.dtype) -> Tensor:
        return self.values[rows][:, atoms].to(dtype)

    def matvec(self, coef: Tensor) -> Tensor:
        # Few active columns are worth a copy; with many, the copy costs more than the products with zeros.
        active = torch.nonzero(coef.any(1)).squeeze(1)
        return self.values @ coef if 2 * len(active) > self.n_atoms else self.values[:, active] @ coef[active]

    def rmatvec(self, rows: Tensor) -> Tensor:
        return self.values.T @ rows

    def gram(self) -> Tensor:
        return self_product(self.values)

    def take_atoms(self, atoms: Tensor) -> Self:
        return replace(self, values=self.values[:, atoms])

    def take_rows(self, rows: Tensor) -> Self:
        return replace(self, values=self.values[rows])

    def group_rows(self, labels: Tensor | None = None) -> bits.Groups:
        # Bits are compared: adding zero turns −0 into 0.
        return group_labelled((self.values + 0.0).view(torch.int64), labels)

    def __repr__(self) -> str:
        """Return sizes on one line."""
        return f"DenseDictionary({plural(self.n_rows, 'row')} × {plural(self.n_atoms, 'real column')})"
