"""Statistics of the spikes of the last hidden layer, for read-outs of them."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ..core import gpu
from ..core.checks import Array
from ..core.formatting import plural
from ..core.memory import check_fits
from ..data.sequences import Sequences, similar_lengths
from .exact import ScratchArrays, snap_inputs
from .lateral import LateralLayer
from .lateral_kernel import LateralTable, columns_read, scan_lateral
from .layer import HiddenLayer, check_stack
from .rollout import iterate_rollout
from .statistics import STATISTICS, Counters, Statistic

_LANES = 64
_BLOCK = 2**18
"""Numbers of the views of a block of sequences: rows that neurons read again and again stay in the L2 cache."""


def read_columns(layers: Sequence[HiddenLayer], statistics: tuple[Statistic, ...]) -> Tensor:
    """Return the columns of a read-out of statistics, ``neuron * n_statistics + number``, in rising order.

    Parameters
    ----------
    layers : sequence of HiddenLayer
        The stack, from the inputs up.
    statistics : tuple of str
        The statistics that are read of each neuron; of lateral neurons those of them that the neurons name.

    Returns
    -------
    Tensor of shape (n_columns,), dtype int64
        The columns.
    """
    top = layers[-1]
    n_neurons, device = top.n_subnetworks * top.width, top.weight.device
    reads = top.statistics.flatten() if isinstance(top, LateralLayer) else torch.full((n_neurons,), -1.0, device=device)
    return columns_read(reads.to(torch.int64), statistics)


def roll_statistics(
    layers: Sequence[HiddenLayer],
    inputs: Sequences | Array,
    statistics: tuple[Statistic, ...],
    columns: Tensor | None = None,
) -> Tensor:
    """Return statistics of the spikes of the last hidden layer as whole numbers.

    Parameters
    ----------
    layers : sequence of HiddenLayer
        The stack, from the inputs up.
    inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
        The sequences.
    statistics : tuple of str
        The statistics.
    columns : Tensor of shape (n_columns,), optional
        Some of the columns of :func:`read_columns`, in any order; by default all.

    Returns
    -------
    Tensor of shape (n_columns, n_samples), of an integer dtype
        The numbers.
    """
    sequences = Sequences.of(inputs)
    (top, *lower), n_samples = list(reversed(check_stack(layers, sequences.n_features))), len(sequences)
    columns = (read_columns(layers, statistics) if columns is None else columns).to(sequences.device)
    # The narrowest type that holds the number of steps.
    dtype = torch.uint8 if sequences.n_steps < 2**8 else torch.int16 if sequences.n_steps < 2**15 else torch.int32
    n_bytes = len(columns) * n_samples * dtype.itemsize
    check_fits(
        n_bytes,
        sequences.device,
        f"{plural(len(columns), 'column')} of {plural(n_samples, 'row')}",
        "use fewer neurons",
    )
    numbers = torch.empty(len(columns), n_samples, dtype=dtype, device=sequences.device)
    if isinstance(top, LateralLayer) and not lower and not gpu.is_gpu(sequences.device):
        _scan(top, sequences, statistics, columns, numbers)
        return numbers
    for rows, block in iterate_trains(layers, sequences):
        part = sequences.take(rows)
        numbers[:, rows] = _numbers(block, part.lengths, statistics, columns).to(dtype)
    return numbers


def iterate_trains(layers: Sequence[HiddenLayer], sequences: Sequences) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield samples and all spikes of all neurons, (n_samples, n_steps, n_neurons), a block of samples at a time."""
    n_neurons = layers[-1].n_subnetworks * layers[-1].width
    step = max(1, 2**26 // (n_neurons * sequences.n_steps))
    for start in range(0, len(sequences), step):
        rows = torch.arange(start, min(start + step, len(sequences)), device=sequences.device)
        part = sequences.take(rows)
        spikes = torch.empty(len(part), part.n_steps, n_neurons, dtype=torch.bool, device=part.device)
        for some, columns, block in iterate_rollout(layers, part, "all"):
            spikes[some, :, columns] = block
        yield rows, spikes


def _numbers(spikes: Tensor, lengths: Tensor | None, statistics: tuple[Statistic, ...], columns: Tensor) -> Tensor:
    """Return the statistics of spikes (n_samples, n_steps, n_neurons), counted step by step: (n_columns, n_samples)."""
    n_samples, n_steps, n_neurons = spikes.shape
    counters = Counters.start(n_samples, n_neurons, spikes.device)
    ended = torch.empty(len(statistics), n_samples, n_neurons, dtype=torch.int64, device=spikes.device)
    ends = torch.full((n_samples,), n_steps, device=spikes.device) if lengths is None else lengths
    is_end = torch.zeros(n_steps + 1, dtype=torch.bool, device=spikes.device)
    is_end[ends] = True
    for step in range(n_steps):
        counters = counters.after(spikes[:, step])
        if is_end[step + 1]:
            done = ends == step + 1
            for number, name in enumerate(statistics):
                ended[number, done] = counters.number(name)[done]
    return ended.permute(2, 0, 1).flatten(0, 1)[columns]


def _scan(
    layer: LateralLayer, sequences: Sequences, statistics: tuple[Statistic, ...], columns: Tensor, numbers: Tensor
) -> None:
    """Write the statistics of lateral neurons by the compiled kernel."""
    table, n_neurons = layer.kept("table", LateralTable.of), layer.n_subnetworks * layer.width
    place = np.full((n_neurons, len(STATISTICS)), -1, dtype=np.int64)
    of_statistic = np.array([STATISTICS.index(name) for name in statistics])
    column = columns.numpy()
    neuron, number = column // len(statistics), of_statistic[column % len(statistics)]
    place[neuron, number] = np.arange(len(column))
    scratch = ScratchArrays()
    for group in [slice(0, len(sequences))] if sequences.lengths is None else similar_lengths(sequences.lengths):
        part = sequences.take(group).trim()
        # A multiple of what the kernel computes at once.
        n_rows = max(1, _BLOCK // (layer.n_values * part.n_steps * _LANES)) * _LANES
        for start in range(0, len(part), n_rows):
            block = part.take(slice(start, start + n_rows))
            margins = table.margins(layer.largest_views(block.inputs))
            values = layer.view(snap_inputs(block.inputs).transpose(0, 1))
            counted = scratch.array("counted", (len(column), len(block)), torch.int32, numbers.device)
            scan_lateral(table, margins, values, block.lengths, place, counted.numpy(), scratch)
            if isinstance(group, slice):
                numbers[:, start : start + n_rows] = counted
            else:
                numbers[:, group[start : start + n_rows]] = counted.to(numbers.dtype)
    again = np.flatnonzero(place[neuron, number] != np.arange(len(column)))  # columns that are listed more than once
    if len(again):
        numbers[torch.from_numpy(again)] = numbers[torch.from_numpy(place[neuron, number][again])]
