"""LIF neurons with delays on a processor: sums over taps, membranes and spike counts in one pass.

A tap reads a row of values that is shifted in time. Samples are the last axis in here, so that each tap adds a
contiguous row to the sums of all samples, and the sums stay in cache. The equation is that of
:func:`cvxsnn.neurons.lif.lif_membrane`, each operation rounded by itself, so that spikes are the same to the bit.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

if TYPE_CHECKING:
    from .lif import LIFLayer
    from .taps import TapTable

_MIN_WORK = 2**22
"""Products below which a second thread is not worth its start."""


def _compiled(function: Callable[..., None], **options: Any) -> Any:
    """Compile a kernel, kept on disk for the next process where there is a folder that can be written."""
    try:
        return numba.njit(function, nogil=True, cache=True, **options)
    except RuntimeError:  # what Numba raises where there is none
        return numba.njit(function, nogil=True, **options)


@partial(_compiled, inline="always")
def _sum_taps(total, values, step, row, delay, weight, tap, stop):  # type: ignore[no-untyped-def]
    """Write the sums of one neuron at one step; its taps come in the order of their delays."""
    n_read = stop - tap
    while n_read > 0 and delay[tap + n_read - 1] > step:
        n_read -= 1
    stop = tap + n_read
    first = tap
    while tap + 7 < stop:  # eight rows at once, so that the sums are loaded and stored less often
        w0, w1, w2, w3 = weight[tap], weight[tap + 1], weight[tap + 2], weight[tap + 3]
        w4, w5, w6, w7 = weight[tap + 4], weight[tap + 5], weight[tap + 6], weight[tap + 7]
        x0, x1 = values[step - delay[tap], row[tap]], values[step - delay[tap + 1], row[tap + 1]]
        x2, x3 = values[step - delay[tap + 2], row[tap + 2]], values[step - delay[tap + 3], row[tap + 3]]
        x4, x5 = values[step - delay[tap + 4], row[tap + 4]], values[step - delay[tap + 5], row[tap + 5]]
        x6, x7 = values[step - delay[tap + 6], row[tap + 6]], values[step - delay[tap + 7], row[tap + 7]]
        if tap == first:
            for i in range(len(total)):
                left = (w0 * x0[i] + w1 * x1[i]) + (w2 * x2[i] + w3 * x3[i])
                total[i] = left + ((w4 * x4[i] + w5 * x5[i]) + (w6 * x6[i] + w7 * x7[i]))
        else:
            for i in range(len(total)):
                left = (w0 * x0[i] + w1 * x1[i]) + (w2 * x2[i] + w3 * x3[i])
                total[i] += left + ((w4 * x4[i] + w5 * x5[i]) + (w6 * x6[i] + w7 * x7[i]))
        tap += 8
    if tap == first:
        total[:] = 0
    while tap < stop:
        w0 = weight[tap]
        x0 = values[step - delay[tap], row[tap]]
        for i in range(len(total)):
            total[i] += w0 * x0[i]
        tap += 1


@_compiled
def _integrate(  # type: ignore[no-untyped-def]
    values, starts, row, delay, weight, decay, n_running, steps, samples, membranes, first, last
):
    n_places, (_, n_rows, n_samples) = len(steps), values.shape
    flat, where = values.ravel(), steps * (n_rows * n_samples) + samples
    total, membrane = np.empty(n_samples, values.dtype), np.empty(n_samples, values.dtype)
    for neuron in range(first, last):
        own, own_decay = membranes[neuron], decay[neuron]
        if own_decay == 0:  # nothing but the places themselves matters
            own[:] = 0
            for tap in range(starts[neuron], starts[neuron + 1]):
                back, own_weight = (delay[tap] * n_rows - row[tap]) * n_samples, weight[tap]
                for place in range(np.searchsorted(steps, delay[tap]), n_places):
                    own[place] += own_weight * flat[np.uint64(where[place] - back)]
            continue
        membrane[:] = 0
        place = 0
        for step in range(steps[-1] + 1):
            n = n_running[step]
            _sum_taps(total[:n], values, step, row, delay, weight, starts[neuron], starts[neuron + 1])
            for i in range(n):
                leaked = membrane[i] * own_decay
                membrane[i] = leaked + total[i]
            while place < n_places and steps[place] == step:
                own[place] = membrane[samples[place]]
                place += 1


@_compiled
def _scan(  # type: ignore[no-untyped-def]
    values, starts, row, delay, weight, bias, decay, threshold, membranes, spikes, slots, tie_fires, counts, first, last
):
    n_steps, _, n_samples = values.shape
    total = np.empty(n_samples, values.dtype)
    membrane = np.empty(n_samples, bias.dtype)
    spike = np.empty(n_samples, bias.dtype)
    number = bias.dtype.type
    is_common = slots.shape[1] == 1
    is_counted = np.zeros(n_steps, np.bool_)
    for step in range(n_steps):
        is_counted[step] = slots[step].max() >= 0
    for neuron in range(first, last):
        own_bias, own_decay, own_threshold = bias[neuron], decay[neuron], threshold[neuron]
        is_memoryless = own_decay == 0 and own_threshold == 0
        membrane[:] = membranes[neuron]
        spike[:] = spikes[neuron]
        for step in range(n_steps):
            if is_memoryless and not is_counted[step]:
                continue
            _sum_taps(total, values, step, row, delay, weight, starts[neuron], starts[neuron + 1])
            if is_memoryless and is_common and tie_fires:
                own = counts[neuron, slots[step, 0]]
                for i in range(n_samples):
                    own[i] += number(total[i]) + own_bias >= 0
                continue
            for i in range(n_samples):
                leaked = membrane[i] * own_decay
                driven = leaked + (number(total[i]) + own_bias)
                membrane[i] = driven - spike[i] * own_threshold
            if tie_fires:
                for i in range(n_samples):
                    spike[i] = membrane[i] >= 0
            else:
                for i in range(n_samples):
                    spike[i] = membrane[i] > 0
            if is_common:
                slot = slots[step, 0]
                if slot >= 0:
                    own = counts[neuron, slot]
                    for i in range(n_samples):
                        own[i] += spike[i] != 0
            else:
                for i in range(n_samples):
                    slot = slots[step, i]
                    if slot >= 0:
                        counts[neuron, slot, i] += spike[i] != 0


def scan_taps(layer: "LIFLayer", table: "TapTable", values: Tensor, slots: Tensor, counts: Tensor) -> None:
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
    own = [_array(value.flatten()) for value in (layer.bias, layer.decay, layer.threshold)]
    start = [_array(value.flatten()) for value in (layer.initial_membrane, layer.initial_spikes)]
    taps = [_array(value) for value in (table.starts, table.row, table.delay, table.weight)]
    arguments: tuple[Any, ...] = (_array(values), *taps, *own, *start, _array(slots), layer.tie == "ge", counts.numpy())
    _run(_scan, arguments, len(counts), len(table.weight) * values[:, 0].numel())


def integrate_taps(
    table: "TapTable", values: Tensor, decay: Tensor, lengths: Tensor, steps: Tensor, samples: Tensor
) -> Tensor:
    """Return membranes of neurons that never fire at some places, in float64.

    Parameters
    ----------
    table : TapTable
        Their taps, with weights in float64.
    values : Tensor of shape (n_steps, n_rows, n_samples), dtype float64
        The inputs that the taps read.
    decay : Tensor of shape (n_neurons,), dtype float64
        The leak of each neuron.
    lengths : Tensor of shape (n_samples,), dtype int64
        The number of steps of each sequence, the longest first.
    steps, samples : Tensor of shape (n_places,), dtype int64
        Step and sequence of each place, in the order of the steps.

    Returns
    -------
    Tensor of shape (n_neurons, n_places), dtype float64
        The membranes, from zero before the first step.
    """
    membranes = torch.empty(len(decay), len(steps), dtype=torch.float64)
    taps = [_array(value) for value in (table.starts, table.row, table.delay, table.weight)]
    n_running = (torch.arange(len(values))[:, None] < lengths).sum(1)
    where = [_array(value) for value in (decay, n_running, steps, samples)]
    work = len(table.weight) * (values[:, 0].numel() if bool(decay.any()) else len(steps))
    _run(_integrate, (_array(values), *taps, *where, membranes.numpy()), len(decay), work)
    return membranes


def _run(kernel: Callable[..., None], arguments: tuple[Any, ...], n_neurons: int, work: int) -> None:
    """Run a kernel over all neurons, which the threads of torch share."""
    n_threads = torch.get_num_threads() if work >= _MIN_WORK else 1
    if n_threads == 1:
        kernel(*arguments, 0, n_neurons)
        return
    edges = [n_neurons * k // n_threads for k in range(n_threads + 1)]
    with ThreadPoolExecutor(n_threads) as threads:
        list(threads.map(lambda first, last: kernel(*arguments, first, last), edges[:-1], edges[1:]))


def _array(value: Tensor) -> npt.NDArray[Any]:
    return value.contiguous().numpy()
