"""LIF neurons with delays on a processor: sums over taps, membranes and spike counts in one pass.

A tap reads a row of values that is shifted in time. In here, the rows are the first axis and the samples the last, so
that each tap adds a contiguous part of its row to the sums of all samples at several steps, and the sums stay in cache.
The equation is that of :func:`cvxsnn.neurons.lif.lif_membrane`, each operation rounded by itself, so that spikes are
the same to the bit.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..core.parallel import n_threads
from .layer import HiddenLayer

if TYPE_CHECKING:
    from .lif import LIFLayer

_MIN_WORK = 2**22
"""Products below which a second thread is not worth its start."""


@dataclass(frozen=True, eq=False)
class TapTable:
    """The taps of a layer as lists, neuron after neuron, each in the order of its delays.

    Parameters
    ----------
    starts : Tensor of shape (n_neurons + 1,), dtype int64
        The first tap of each neuron, and the end.
    row : Tensor of shape (n_taps,), dtype int64
        The row of values that a tap reads: the input, counted over the subnetworks where each has inputs of its own.
    delay : Tensor of shape (n_taps,), dtype int64
        The delay of each tap.
    weight : Tensor of shape (n_taps,)
        The weight of each tap, in a dtype in which sums are exact. No weight is zero.
    """

    starts: Tensor
    row: Tensor
    delay: Tensor
    weight: Tensor

    @classmethod
    def of(cls, layer: HiddenLayer, dtype: torch.dtype, *, inputs_are_shared: bool) -> "TapTable":
        """Return the taps of a layer that has delays.

        Parameters
        ----------
        layer : HiddenLayer
            The layer.
        dtype : torch.dtype
            A type in which sums over the taps are exact.
        inputs_are_shared : bool
            Whether all subnetworks read the same inputs.

        Returns
        -------
        TapTable
            The taps whose weight is not zero.
        """
        n_subnetworks, n_taps, width = layer.weight.shape
        offset = torch.arange(n_subnetworks, device=layer.weight.device) * (0 if inputs_are_shared else layer.n_inputs)
        rows = (layer.source.long() + offset[:, None, None], layer.delay.long(), layer.weight.to(dtype))
        return cls.of_rows(*(value.transpose(1, 2).reshape(n_subnetworks * width, n_taps) for value in rows))

    @classmethod
    def of_rows(cls, row: Tensor, delay: Tensor, weight: Tensor) -> "TapTable":
        """Return the taps of neurons whose rows of values, delays and weights have shape (n_neurons, n_taps)."""
        delay, order = delay.sort(dim=1, stable=True)
        weight = weight.gather(1, order)
        kept = weight != 0  # without the padding of neurons that have fewer taps than others
        starts = torch.zeros(len(kept) + 1, dtype=torch.int64, device=kept.device)
        torch.cumsum(kept.sum(1), 0, out=starts[1:])
        return cls(starts, row.gather(1, order)[kept], delay[kept], weight[kept])


def _compiled(function: Callable[..., None], **options: Any) -> Any:
    """Compile a kernel, and cache it on disk if a folder can be written."""
    try:
        return numba.njit(function, nogil=True, cache=True, **options)
    except RuntimeError:  # Numba raises this if it finds no folder for its cache
        return numba.njit(function, nogil=True, **options)


@_compiled
def _n_sums(n_samples):  # type: ignore[no-untyped-def]
    """Return the number of sums to compute at once: those of whole steps, in a part of the L1 cache."""
    return max(n_samples, 2048 // n_samples * n_samples)


@partial(_compiled, inline="always")
def _four_taps(values, at, row, shift, weight, tap):  # type: ignore[no-untyped-def]
    """Return the weights of four taps and the rows that they read."""
    return (
        weight[tap],
        weight[tap + 1],
        weight[tap + 2],
        weight[tap + 3],
        values[row[tap], at - shift[tap] :],
        values[row[tap + 1], at - shift[tap + 1] :],
        values[row[tap + 2], at - shift[tap + 2] :],
        values[row[tap + 3], at - shift[tap + 3] :],
    )


@partial(_compiled, inline="always")
def _sum_taps(total, values, at, row, shift, weight, tap, stop):  # type: ignore[no-untyped-def]
    """Write the sums of one neuron, from position ``at`` of the rows on; its taps are sorted by their shifts."""
    n = len(total)
    while stop > tap and shift[stop - 1] >= at + n:  # such taps read zeros only, before the first step
        stop -= 1
    # Taps from ``complete`` on reach back before the first step in a part of the block, which they skip.
    complete = stop
    while complete > tap and shift[complete - 1] > at:
        complete -= 1
    # Sums are exact in the dtype of the weights, so any grouping of the taps gives the same bits.
    # Several rows at once, so that sums are loaded and stored less often: nine, the usual number of taps, or four, then
    # eights.
    if (complete - tap) % 8 == 1 and tap + 8 < complete:
        w0, w1, w2, w3, x0, x1, x2, x3 = _four_taps(values, at, row, shift, weight, tap)
        w4, w5, w6, w7, x4, x5, x6, x7 = _four_taps(values, at, row, shift, weight, tap + 4)
        w8 = weight[tap + 8]
        x8 = values[row[tap + 8], at - shift[tap + 8] :]
        for i in range(n):
            first_four = (w0 * x0[i] + w1 * x1[i]) + (w2 * x2[i] + w3 * x3[i])
            total[i] = first_four + ((w4 * x4[i] + w5 * x5[i]) + (w6 * x6[i] + w7 * x7[i])) + w8 * x8[i]
        tap += 9
    elif tap + 3 < complete:
        w0, w1, w2, w3, x0, x1, x2, x3 = _four_taps(values, at, row, shift, weight, tap)
        for i in range(n):
            total[i] = (w0 * x0[i] + w1 * x1[i]) + (w2 * x2[i] + w3 * x3[i])
        tap += 4
    else:
        total[:] = 0
    while tap + 7 < complete:
        w0, w1, w2, w3, x0, x1, x2, x3 = _four_taps(values, at, row, shift, weight, tap)
        w4, w5, w6, w7, x4, x5, x6, x7 = _four_taps(values, at, row, shift, weight, tap + 4)
        for i in range(n):
            first_four = (w0 * x0[i] + w1 * x1[i]) + (w2 * x2[i] + w3 * x3[i])
            total[i] += first_four + ((w4 * x4[i] + w5 * x5[i]) + (w6 * x6[i] + w7 * x7[i]))
        tap += 8
    while tap + 3 < complete:
        w0, w1, w2, w3, x0, x1, x2, x3 = _four_taps(values, at, row, shift, weight, tap)
        for i in range(n):
            total[i] += (w0 * x0[i] + w1 * x1[i]) + (w2 * x2[i] + w3 * x3[i])
        tap += 4
    while tap < stop:
        w0, skipped = weight[tap], max(0, shift[tap] - at)
        x0, rest = values[row[tap], at + skipped - shift[tap] :], total[skipped:]
        for i in range(len(rest)):
            rest[i] += w0 * x0[i]
        tap += 1


@_compiled
def _integrate(  # type: ignore[no-untyped-def]
    values, n_samples, starts, row, shift, weight, decay, places, membranes, first, last
):
    n_values, n_places = values.shape[1], len(places)
    sums, membrane = np.empty(_n_sums(n_samples), values.dtype), np.empty(n_samples)
    for neuron in range(first, last):
        written, leak = membranes[neuron], decay[neuron]
        if leak == 0:  # a membrane without memory is needed at these places only
            written[:] = 0
            for tap in range(starts[neuron], starts[neuron + 1]):
                tap_row = values[row[tap]]
                tap_shift = shift[tap]
                tap_weight = weight[tap]
                for place in range(np.searchsorted(places, tap_shift), n_places):
                    # An unsigned index spares the check for a negative one.
                    written[place] += tap_weight * tap_row[np.uint64(places[place] - tap_shift)]
            continue
        membrane[:] = 0
        place = 0
        for at in range(0, min(n_values, places[-1] + 1), len(sums)):
            total = sums[: n_values - at]
            _sum_taps(total, values, at, row, shift, weight, starts[neuron], starts[neuron + 1])
            for step in range(0, len(total), n_samples):
                for i in range(n_samples):
                    leaked = membrane[i] * leak
                    membrane[i] = leaked + total[step + i]
                while place < n_places and places[place] < at + step + n_samples:
                    written[place] = membrane[places[place] - at - step]
                    place += 1


@_compiled
def _scan(  # type: ignore[no-untyped-def]
    values, starts, row, shift, weight, bias, decay, reset, membranes, spikes, slots, tie_fires, counts, first, last
):
    n_values, n_samples = values.shape[1], counts.shape[2]
    n_steps, n_slot_columns = slots.shape
    sums = np.empty(_n_sums(n_samples), values.dtype)
    # In the dtype of the layer, whose rounding decides spikes; only the sums are wider.
    membrane = np.empty(n_samples, bias.dtype)
    spike = np.empty(n_samples, bias.dtype)
    number = bias.dtype.type
    is_common = n_slot_columns == 1
    is_counted = np.zeros(n_steps, np.bool_)
    for step in range(n_steps):
        is_counted[step] = slots[step].max() >= 0
    n_together = len(sums) // n_samples
    for neuron in range(first, last):
        drive = bias[neuron]
        leak = decay[neuron]
        jump = reset[neuron]
        is_memoryless = leak == 0 and jump == 0
        membrane[:] = membranes[neuron]
        spike[:] = spikes[neuron]
        for begin in range(0, n_steps, n_together):
            end = min(begin + n_together, n_steps)
            # Nothing reads these spikes, and no membrane carries them on.
            if is_memoryless and not is_counted[begin:end].any():
                continue
            at = begin * n_samples
            sums_here = sums[: n_values - at]
            _sum_taps(sums_here, values, at, row, shift, weight, starts[neuron], starts[neuron + 1])
            for step in range(begin, end):
                if is_memoryless and not is_counted[step]:
                    continue
                total = sums_here[(step - begin) * n_samples : (step - begin + 1) * n_samples]
                if is_memoryless and is_common and tie_fires:
                    counted = counts[neuron, slots[step, 0]]
                    for i in range(n_samples):
                        counted[i] += number(total[i]) + drive >= 0
                    continue
                for i in range(n_samples):
                    # Each operation is rounded by itself, in the order of lif_membrane.
                    leaked = membrane[i] * leak
                    driven = leaked + (number(total[i]) + drive)
                    membrane[i] = driven - spike[i] * jump
                for i in range(n_samples):
                    spike[i] = membrane[i] > 0 or (tie_fires and membrane[i] == 0)
                if is_common:
                    slot = slots[step, 0]
                    if slot >= 0:
                        counted = counts[neuron, slot]
                        for i in range(n_samples):
                            counted[i] += spike[i] != 0
                else:
                    for i in range(n_samples):
                        slot = slots[step, i]
                        if slot >= 0:
                            counts[neuron, slot, i] += spike[i] != 0


def scan_taps(layer: "LIFLayer", table: TapTable, values: Tensor, slots: Tensor, counts: Tensor) -> None:
    """Count the spikes of a layer.

    Parameters
    ----------
    layer : LIFLayer
        The layer.
    table : TapTable
        Its taps.
    values : Tensor of shape (n_steps, n_rows, n_samples)
        The inputs that the taps read, in a dtype in which sums are exact; contiguous.
    slots : Tensor of shape (n_steps, n_samples or 1), dtype int32
        Where a spike is counted; nowhere if negative.
    counts : Tensor of shape (n_neurons, n_slots, n_samples), of an integer dtype
        The counts, to which spikes are added; contiguous in its last axis.
    """
    parameters = (layer.bias, layer.decay, layer.threshold, layer.initial_membrane, layer.initial_spikes)
    per_neuron = (_array(value.flatten()) for value in parameters)
    rows, taps = _rows_and_taps(table, values)
    arguments = (rows, *taps, *per_neuron, _array(slots), layer.tie == "ge", counts.numpy())
    work = len(table.weight) * values[:, 0].numel()
    in_threads(partial(_scan, *arguments), len(counts), work)


def integrate_taps(table: TapTable, values: Tensor, decay: Tensor, places: Tensor) -> Tensor:
    """Return membranes of neurons that never fire at some places, in float64.

    Parameters
    ----------
    table : TapTable
        Their taps, with weights in float64.
    values : Tensor of shape (n_steps, n_rows, n_samples), dtype float64
        The inputs that the taps read.
    decay : Tensor of shape (n_neurons,), dtype float64
        The leak of each neuron.
    places : Tensor of shape (n_places,), dtype int64
        Where to look, in rising order: sample i at step t is place ``t * n_samples + i``.

    Returns
    -------
    Tensor of shape (n_neurons, n_places), dtype float64
        The membranes, from zero before the first step.
    """
    membranes = torch.empty(len(decay), len(places), dtype=torch.float64)
    rows, taps = _rows_and_taps(table, values)
    work = len(table.weight) * (values[:, 0].numel() if bool(decay.any()) else len(places))
    arguments = (rows, values.shape[2], *taps, _array(decay), _array(places), membranes.numpy())
    in_threads(partial(_integrate, *arguments), len(decay), work)
    return membranes


def sorted_membranes(
    row: Tensor, delay: Tensor, weight: Tensor, decay: Tensor, looks: Sequence[tuple[Tensor, Tensor]]
) -> npt.NDArray[np.float64]:
    """Return the membranes of neurons that never fire at all places of several groups of sequences, in rising order.

    Parameters
    ----------
    row, delay, weight : Tensors of shape (n_neurons, n_taps)
        The row of values, the delay and the weight of each tap.
    decay : Tensor of shape (n_neurons,), dtype float64
        The leak of each neuron.
    looks : sequence of tuple of Tensor
        The values and the places of each group, as in :func:`integrate_taps`.

    Returns
    -------
    array of shape (n_neurons, n_places), dtype float64
        The membranes of each neuron, sorted.
    """
    table = TapTable.of_rows(row, delay, weight)
    membranes = torch.cat([integrate_taps(table, values, decay, places) for values, places in looks], dim=1).numpy()
    in_threads(lambda first, last: membranes[first:last].sort(axis=1), len(membranes), 4 * membranes.size)
    return membranes


def _rows_and_taps(table: TapTable, values: Tensor) -> tuple[npt.NDArray[Any], list[npt.NDArray[Any]]]:
    """Return values as rows of all steps and samples, and taps with their delays as shifts in these rows."""
    rows = values.transpose(0, 1).reshape(values.shape[1], -1)
    taps = (table.starts, table.row, table.delay * values.shape[2], table.weight)
    return _array(rows), [_array(value) for value in taps]


def in_threads(function: Callable[[int, int], None], n_rows: int, work: int) -> None:
    """Call ``function(first, last)`` for ranges of rows, which the threads of torch share.

    These are plain threads: unlike those of OpenMP, they do not spin while they wait for a core that is taken.
    """
    n_workers = n_threads() if work >= _MIN_WORK else 1
    if n_workers == 1:
        function(0, n_rows)
        return
    n_parts = 4 * n_workers  # several per thread: one that is held up takes fewer
    edges = [n_rows * k // n_parts for k in range(n_parts + 1)]
    with ThreadPoolExecutor(n_workers) as threads:
        list(threads.map(function, edges[:-1], edges[1:]))


def _array(value: Tensor) -> npt.NDArray[Any]:
    return value.contiguous().numpy()
