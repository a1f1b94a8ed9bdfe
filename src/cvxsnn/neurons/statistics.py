"""What a read-out takes from the spikes of a neuron beside single spikes: statistics of a sequence of them.

A statistic is a whole number, counted while the spikes are made (:class:`Counters` step by step, :mod:`.lateral_kernel`
in one pass), and an entry, the number that the read-out multiplies (:func:`entries`).

==========  ============================================  ====================
statistic   whole number                                  entry
==========  ============================================  ====================
mean        c, the number of spikes                       c/T
burst       b, the longest run of spikes                  b/T
root        c                                             √(c/T)
ever        1 if the neuron fires at all                  the same
last        1 if it fires in the last step                the same
first       T − t for the first spike in step t, from 0   (T − t)/T, 0 if none
==========  ============================================  ====================

T is the number of steps of the sequence. :func:`steps_that_make` says which spikes an entry is due to.
"""

from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..core import gpu

Statistic = Literal["mean", "burst", "root", "ever", "last", "first"]
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)
_AS_THEY_ARE = ("ever", "last")


def entries(numbers: Tensor, statistic: Statistic, n_steps: Tensor | int) -> Tensor:
    """Return the entries of a statistic.

    Parameters
    ----------
    numbers : Tensor of shape (..., n_rows), of a floating-point type
        The whole numbers, which may be overwritten.
    statistic : str
        The statistic.
    n_steps : Tensor of shape (n_rows,) or int
        The number of steps of each sequence.

    Returns
    -------
    Tensor of the same shape
        The entries.
    """
    if statistic in _AS_THEY_ARE:
        return numbers
    # A count times a rounded reciprocal, as for other read-outs: the same on every path to the last bit.
    scale = 1 / n_steps.to(numbers) if isinstance(n_steps, Tensor) else 1 / n_steps
    shares = numbers.mul_(scale)
    return _root(shares) if statistic == "root" else shares


def _root(shares: Tensor) -> Tensor:
    """Return the square roots of shares, which may be overwritten, rounded to the nearest number."""
    if gpu.is_gpu(shares.device):
        return shares.sqrt_()
    # torch.sqrt on a processor is not always the nearest number, as IEEE 754 and so C and NumPy have it. Its threads
    # would spin for milliseconds after each small task, too.
    return torch.from_numpy(np.sqrt(shares.numpy()))


def column_entries(
    numbers: Tensor, statistic: Tensor, statistics: tuple[Statistic, ...], n_steps: Tensor | int
) -> Tensor:
    """Return the entries of columns of several statistics.

    Parameters
    ----------
    numbers : Tensor of shape (n_columns, n_rows)
        The whole numbers.
    statistic : Tensor of shape (n_columns,), dtype int64
        The statistic of each column, as its place in ``statistics``.
    statistics : tuple of str
        The statistics.
    n_steps : Tensor of shape (n_rows,) or int
        The number of steps of each sequence.

    Returns
    -------
    Tensor of shape (n_columns, n_rows), dtype float64
        The entries.
    """
    values = numbers.to(torch.float64, copy=True)
    if len(statistics) == 1:
        return entries(values, statistics[0], n_steps)
    # As entries() of each statistic alone, without copies of its columns: a factor of one changes no bit.
    is_share = torch.tensor([name not in _AS_THEY_ARE for name in statistics], device=values.device)[statistic][:, None]
    scale = 1 / torch.as_tensor(n_steps, device=values.device).to(values)
    values.mul_(torch.where(is_share, scale, torch.ones_like(scale)))
    if "root" in statistics:
        roots = np.flatnonzero((statistic == statistics.index("root")).cpu().numpy())
        values[roots] = _root(values[roots])
    return values


def steps_that_make(spikes: npt.NDArray[np.bool_], statistic: Statistic) -> npt.NDArray[np.bool_]:
    """Return the spikes of a sequence that an entry is due to, each with an equal share.

    The mean and the root are due to every spike, the longest run to its spikes (of equally long runs to those of the
    first), whether and when a neuron fires first to its first spike, and the last step to itself.

    Parameters
    ----------
    spikes : array of shape (n_steps, n_columns), dtype bool
        The spikes of the sequence.
    statistic : str
        The statistic.

    Returns
    -------
    array of shape (n_steps, n_columns), dtype bool
        Some of the spikes; none of a neuron that never fires.
    """
    step = np.arange(len(spikes))[:, None]
    made: npt.NDArray[np.bool_] = spikes
    if statistic == "last":
        made = spikes & (step == len(spikes) - 1)
    elif statistic in ("ever", "first"):
        made = spikes & (step == spikes.argmax(0))
    elif statistic == "burst":
        runs = spikes.astype(np.int64)
        for now in range(1, len(runs)):
            runs[now] += runs[now] * runs[now - 1]
        end = runs.argmax(0)  # the first of equal maxima
        made = (step <= end) & (step > end - runs.max(0))
    return made


@dataclass(frozen=True, eq=False)
class Counters:
    """The statistics of spikes so far.

    Parameters
    ----------
    count, run, longest, first, last : Tensor of shape (n_samples, n_read), dtype int64
        Number of spikes; length of the run that ends now, and of the longest; the step of the first spike, from 1, or
        0; whether the present step has a spike.
    n_steps : int
        Number of steps so far.
    """

    count: Tensor
    run: Tensor
    longest: Tensor
    first: Tensor
    last: Tensor
    n_steps: int

    @classmethod
    def start(cls, n_samples: int, n_read: int, device: torch.device) -> Self:
        """Return counters before the first step."""
        zeros = torch.zeros(n_samples, n_read, dtype=torch.int64, device=device)
        return cls(zeros, zeros, zeros, zeros, zeros, 0)

    def after(self, spikes: Tensor) -> Self:
        """Return the counters after a step with spikes (n_samples, n_read)."""
        fired, n_steps = spikes.to(torch.int64), self.n_steps + 1
        run = (self.run + 1) * fired
        first = torch.where((self.first == 0) & (fired > 0), n_steps, self.first)
        return type(self)(self.count + fired, run, torch.maximum(self.longest, run), first, fired, n_steps)

    def number(self, statistic: Statistic) -> Tensor:
        """Return the whole numbers of a statistic, (n_samples, n_read)."""
        if statistic == "burst":
            return self.longest
        if statistic == "ever":
            return (self.count > 0).to(torch.int64)
        if statistic == "last":
            return self.last
        if statistic == "first":
            return torch.where(self.first > 0, self.n_steps + 1 - self.first, 0)
        return self.count
