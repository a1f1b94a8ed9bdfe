"""The columns of a dictionary as numbers: all of them at once, or a block of rows at a time."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from ...dictionary import Dictionary

_BLOCK, _BLOCK_GPU = 2**22, 2**28
"""Numbers of a block: 16 MiB of float32, a GiB on a GPU."""


class Columns(ABC):
    """Columns as numbers of one type, in blocks of rows.

    Attributes
    ----------
    dtype : torch.dtype
        Their type.
    """

    dtype: torch.dtype

    @abstractmethod
    def iterate(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield rows, and their entries, shape (n_rows, n_atoms)."""


class HeldColumns(Columns):
    """Columns that are held in memory, as one block."""

    def __init__(self, values: Tensor) -> None:
        self.values, self.dtype = values, values.dtype

    def iterate(self) -> Iterator[tuple[slice, Tensor]]:
        yield slice(0, len(self.values)), self.values


class StreamedColumns(Columns):
    """Columns that are unpacked a block at a time, each time they are asked for."""

    def __init__(self, dictionary: Dictionary, dtype: torch.dtype) -> None:
        self._dictionary, self.dtype = dictionary, dtype
        self._n_rows = max(1, (_BLOCK_GPU if dictionary.device.type == "cuda" else _BLOCK) // dictionary.n_atoms)

    def iterate(self) -> Iterator[tuple[slice, Tensor]]:
        return self._dictionary.iterate_rows(self._n_rows, self.dtype)
