"""Read-outs: what a row of a dictionary contains. One string, checked and interpreted here."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

from ..core.bits import packed_bytes
from ..core.checks import check_positive_int
from ..core.errors import InvalidInputError

Readout = str
"""What a row contains: the spikes of a sequence's last step ("last"), of one of its steps ("all"), their mean over the
steps ("mean"), or their means in windows of time, for example four of equal length ("windows-4").
:func:`parse_readout` checks it.

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
    kind : "last", "all" or "mean"
        Spikes of the last step, of every step, or means.
    n_windows : int
        The equal windows of time in which means are taken; 1 for all steps together, and for spikes.
    """

    kind: Literal["last", "all", "mean"]
    n_windows: int = 1

    def __str__(self) -> str:
        """Return the read-out as one string."""
        return self.kind if self.n_windows == 1 else f"windows-{self.n_windows}"

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
        return packed_bytes(n_rows * (8 * self.dtype(n_steps).itemsize if self.kind == "mean" else 1))

    def scale(self, n_steps: int | Tensor) -> Tensor | float:
        """Return what a count is multiplied by, k/n for k windows of n steps: rounded once, and the same everywhere."""
        # A number over a tensor would be rounded twice, as the number times the tensor's inverse.
        above = torch.full_like(n_steps, self.n_windows) if isinstance(n_steps, Tensor) else self.n_windows
        return above / n_steps

    def check_length(self, n_steps: int) -> None:
        """Refuse more windows than the longest sequence has steps."""
        if self.n_windows > n_steps:
            raise InvalidInputError(
                f"expected at most {n_steps} windows, the steps of the longest sequence, got {self.n_windows} windows"
            )


def parse_readout(readout: Any, windows: Any = None) -> ParsedReadout:
    """Return a checked read-out.

    Parameters
    ----------
    readout : "last", "all", "mean", or a string such as "windows-4"
        The read-out.
    windows : int, optional
        The number of windows, in place of the number in the string; for readout "mean".

    Returns
    -------
    ParsedReadout
        The read-out; one window is "mean".
    """
    if not isinstance(readout, str):
        raise _unknown(readout)
    parsed = _parse(readout)
    if windows is None:
        return parsed
    if readout.startswith("windows-"):
        if windows != parsed.n_windows:
            raise InvalidInputError(f"expected one number of windows, got readout={readout!r} and windows={windows!r}")
        return parsed
    n_windows = check_positive_int("windows", windows)
    if readout != "mean":
        raise InvalidInputError(f"expected readout='mean' with windows={n_windows}, got {readout!r}: drop one of them")
    return ParsedReadout("mean", n_windows)


@lru_cache(maxsize=256)
def _parse(readout: str) -> ParsedReadout:
    name, _, number = readout.partition("-")
    if name == "windows" and number.isdecimal() and int(number) > 0:
        return ParsedReadout("mean", int(number))
    if readout not in ("last", "all", "mean"):
        raise _unknown(readout)
    return ParsedReadout(readout)  # type: ignore[arg-type]


def _unknown(readout: object) -> InvalidInputError:
    return InvalidInputError(
        f"expected readout to be one of 'last', 'all', 'mean', or 'windows-4' with any number, got {readout!r}"
    )
