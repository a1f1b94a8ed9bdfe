"""LIF neurons with delays on a processor: sums over taps, membranes and spike counts in one pass.

A tap reads a row of values that is shifted in time. Samples are the last axis in here, so that each tap adds a
contiguous row to the sums of all samples, and the sums stay in cache. The equation is that of
:func:`cvxsnn.neurons.lif.lif_membrane`, each operation rounded by itself, so that spikes are the same to the bit.
"""

from concurrent.futures import ThreadPoolExecutor
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


@numba.njit(nogil=True, cache=True)
def _scan(  # type: ignore[no-untyped-def]
    values, starts, row, delay, weight, bias, decay, threshold, membranes, spikes, slots, tie_fires, counts, first, last
):
    n_steps, _, n_samples = values.shape
    total = np.empty(n_samples, values.dtype)
    membrane = np.empty(n_samples, bias.dtype)
    spike = np.empty(n_samples, bias.dtype)
    number = bias.dtype.type
    is_common = slots.shape[1] == 1
    for neuron in range(first, last):
        own_bias, own_decay, own_threshold = bias[neuron], decay[neuron], threshold[neuron]
        membrane[:] = membranes[neuron]
        spike[:] = spikes[neuron]
        for step in range(n_steps):
            total[:] = 0
            tap, stop = starts[neuron], starts[neuron + 1]
            while tap + 3 < stop and delay[tap + 3] <= step:  # taps come in the order of their delays
                w0, w1, w2, w3 = weight[tap], weight[tap + 1], weight[tap + 2], weight[tap + 3]
                x0 = values[step - delay[tap], row[tap]]
                x1 = values[step - delay[tap + 1], row[tap + 1]]
                x2 = values[step - delay[tap + 2], row[tap + 2]]
                x3 = values[step - delay[tap + 3], row[tap + 3]]
                for i in range(n_samples):
                    total[i] += (w0 * x0[i] + w1 * x1[i]) + (w2 * x2[i] + w3 * x3[i])
                tap += 4
            while tap < stop and delay[tap] <= step:
                w0 = weight[tap]
                x0 = values[step - delay[tap], row[tap]]
                for i in range(n_samples):
                    total[i] += w0 * x0[i]
                tap += 1
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
    n_neurons = len(counts)
    n_threads = torch.get_num_threads() if len(table.weight) * values[:, 0].numel() >= _MIN_WORK else 1
    edges = [n_neurons * k // n_threads for k in range(n_threads + 1)]

    def scan(first: int, last: int) -> None:
        _scan(*arguments, first, last)  # type: ignore[call-arg]

    if n_threads == 1:
        scan(0, n_neurons)
    else:
        with ThreadPoolExecutor(n_threads) as threads:
            list(threads.map(scan, edges[:-1], edges[1:]))


def _array(value: Tensor) -> npt.NDArray[Any]:
    return value.contiguous().numpy()
