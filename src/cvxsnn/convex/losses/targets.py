"""Targets of any kind as numbers."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ...core.checks import Array, as_array, check_tensor
from ...core.errors import InvalidInputError


def as_numbers(targets: Array | Sequence[object]) -> Tensor:
    """Return targets of any kind as a tensor of real numbers."""
    if isinstance(targets, Tensor):
        targets = check_tensor("targets", targets)
        if targets.is_complex():
            raise InvalidInputError(f"expected numeric targets, got {targets.dtype}: encode labels as numbers first")
        return targets
    try:
        array = np.array(as_array("targets", targets))
    except ValueError as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            "expected targets that form an array, got rows of unequal length: give every row as many entries"
        ) from None
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(f"expected numeric targets, got {array.dtype}: encode labels as numbers first")
    return torch.from_numpy(array)


def as_columns(targets: Array) -> Tensor:
    """Return finite real targets in float64, one column per output."""
    columns = as_numbers(targets).to(torch.float64)
    if not bool(torch.isfinite(columns).all()):
        raise InvalidInputError("expected finite targets, got NaN or infinite values: impute or drop those rows")
    if columns.ndim not in (1, 2):
        raise InvalidInputError(
            f"expected targets of shape (n_rows,) or (n_rows, n_outputs), got {tuple(columns.shape)}"
        )
    return columns[:, None] if columns.ndim == 1 else columns
