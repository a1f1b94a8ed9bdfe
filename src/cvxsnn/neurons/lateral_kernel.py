"""Statistics of the spikes of lateral neurons on a processor: sums over taps and counts in one pass.

Neurons that read the same values with the same weights share their sums, so that a further threshold costs a comparison
a step. Rows of values are as in :mod:`.tap_kernel`: the values of all steps, the samples of a step side by side.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .exact import INPUT_UNIT, product_dtype, weight_unit
from .lateral import LateralLayer
from .statistics import STATISTICS, Statistic
from .tap_kernel import TapTable, _compiled, _n_sums, _sum_taps, in_threads

Array = npt.NDArray[Any]

# Numbers of the statistics, for the kernel.
_MEAN, _BURST, _ROOT, _EVER, _LAST, _FIRST = range(len(STATISTICS))


@dataclass(frozen=True, eq=False)
class LateralTable:
    """The neurons of a layer in the order of the kernel: those that share their sums, or compete, follow each other.

    Parameters
    ----------
    order : array of shape (n_neurons,)
        The neurons, ``subnetwork * width + neuron``.
    edges : array of shape (n_bundles + 1,)
        The first place in ``order`` of each bundle: neurons with the same taps, or a group that competes.
    competes : array of shape (n_bundles,), dtype bool
        Whether a bundle is a group.
    lifts : array of shape (n_bundles,), dtype bool
        Whether it is a group with biases, which float32 would round when they are added to sums.
    levels : array of shape (n_bundles, n_views)
        Sums of the absolute weights of each view in units of the lowest bit of a neuron, the largest of a bundle.
    source, delay, weight : Tensor of shape (n_neurons, n_taps)
        The taps, in the order of the layer.
    level : array of shape (n_neurons,), dtype float64
        The sum from which a neuron fires: minus its bias.
    """

    order: Array
    edges: Array
    competes: Array
    lifts: Array
    levels: Array
    source: Tensor
    delay: Tensor
    weight: Tensor
    level: Array

    @classmethod
    def of(cls, layer: LateralLayer) -> "LateralTable":
        """Return the table of a layer."""
        n_taps, n_neurons, n_views = layer.n_taps, layer.n_subnetworks * layer.width, len(layer.views)

        def rows(value: Tensor) -> Tensor:
            return value.cpu().transpose(1, 2).reshape(n_neurons, n_taps)

        source, delay, weight = (rows(value) for value in (layer.source, layer.delay, layer.weight))
        subnetwork = torch.arange(layer.n_subnetworks)[:, None] * (layer.width + 1)
        group = layer.group.cpu().to(torch.int64)
        group = torch.where(group > 0, group + subnetwork, 0).flatten().numpy()
        order = np.argsort(group, kind="stable")
        at = torch.from_numpy(order)
        is_same = (source[at[1:]] == source[at[:-1]]) & (delay[at[1:]] == delay[at[:-1]])
        shares = (is_same & (weight[at[1:]] == weight[at[:-1]])).all(1).numpy()
        of_place = group[order]
        joins = np.where(of_place[1:] > 0, of_place[1:] == of_place[:-1], shares)
        starts = np.flatnonzero(np.r_[True, ~joins])
        # Weights are whole multiples of their neuron's lowest bit, and inputs of their unit.
        whole = (weight.T / weight_unit(weight.T, layer.weight_bits)).abs().to(torch.int64).T
        lowest = torch.where(whole == 0, 2**62, whole & -whole).amin(1, keepdim=True)
        view = (source // layer.n_inputs).long()
        levels = torch.zeros(n_neurons, n_views, dtype=torch.float64).scatter_add_(1, view, (whole / lowest).double())
        largest = np.maximum.reduceat(levels.numpy()[order], starts)
        edges, competes = np.r_[starts, n_neurons], of_place[starts] > 0
        level = -layer.bias.flatten().cpu().numpy()
        lifts = competes & np.logical_or.reduceat(level[order] != 0, starts)
        return cls(order, edges, competes, lifts, largest, source, delay, weight, level)


def scan_lateral(
    layer: LateralLayer, table: LateralTable, values: Tensor, lengths: Tensor | None, columns: Array, numbers: Array
) -> None:
    """Write statistics of the spikes of a layer.

    Parameters
    ----------
    layer : LateralLayer
        The layer.
    table : LateralTable
        Its table.
    values : Tensor of shape (n_steps, n_samples, n_values), dtype float64
        The views of the inputs.
    lengths : Tensor of shape (n_samples,), optional
        The number of steps of each sequence, if they differ.
    columns : array of shape (n_neurons, n_statistics), dtype int64
        The row of ``numbers`` for each neuron and statistic; negative if it is not read.
    numbers : array of shape (n_columns, n_samples), dtype int32
        The whole numbers of the statistics, which are written.
    """
    n_steps, n_samples, n_values = values.shape
    rows = values.permute(2, 0, 1).reshape(n_values, n_steps * n_samples)
    ends = np.full(n_samples, n_steps) if lengths is None else lengths.numpy().astype(np.int64)
    largest = rows.abs().amax(1).view(len(layer.views), -1).amax(1) / INPUT_UNIT
    needed = table.levels @ largest.numpy()
    dtypes = [product_dtype(float(bits), 1.0) for bits in (needed.max(), needed.min())]
    narrow = (needed <= (2.0**24 if torch.float32 in dtypes else -1.0)) & ~table.lifts
    for dtype, bundles in ((torch.float32, np.flatnonzero(narrow)), (torch.float64, np.flatnonzero(~narrow))):
        if not len(bundles):
            continue
        # One tap list for each neuron of a group, and one for each other bundle.
        heads = [
            table.order[table.edges[b] : table.edges[b + 1] if table.competes[b] else table.edges[b] + 1]
            for b in bundles
        ]
        sizes = np.array([len(head) for head in heads])
        at = torch.from_numpy(np.concatenate(heads))
        taps = TapTable.of_rows(table.source[at].long(), table.delay[at].long(), table.weight[at].to(dtype))
        level = table.level
        if dtype == torch.float32:  # the least float32 that is at least the level: sums are float32
            rounded = level.astype(np.float32)
            level = np.where(rounded < level, np.nextafter(rounded, np.float32(np.inf)), rounded)
        arguments = (
            rows.to(dtype).numpy(),
            *(value.numpy() for value in (taps.starts, taps.row, taps.delay * n_samples, taps.weight)),
            np.r_[0, np.cumsum(sizes)],
            table.order,
            table.edges[bundles],
            table.edges[bundles + 1],
            table.competes[bundles],
            level.astype(rows.to(dtype).numpy().dtype),
            ends,
            columns,
            numbers,
        )
        in_threads(partial(_scan, *arguments), len(bundles), len(taps.weight) * rows.shape[1])


@_compiled
def _scan(  # type: ignore[no-untyped-def]
    values, starts, row, shift, weight, heads, order, begins, ends, competes, level, lengths, columns, numbers, lo, hi
):
    n_values, n_samples = values.shape[1], len(lengths)
    shortest = lengths.min()
    sums = np.empty(_n_sums(n_samples), values.dtype)
    several = np.empty((32, max(n_samples, 512 // n_samples * n_samples)), values.dtype)
    largest, winner = np.empty(n_samples, values.dtype), np.empty(n_samples, np.int32)
    count, run = np.empty((1, n_samples), np.int32), np.empty((1, n_samples), np.int32)
    longest, first = np.empty((1, n_samples), np.int32), np.empty((1, n_samples), np.int32)
    last = np.empty((1, n_samples), np.int32)
    for bundle in range(lo, hi):
        members = order[begins[bundle] : ends[bundle]]
        n = len(members)
        if n > len(count):
            count, run = np.empty((n, n_samples), np.int32), np.empty((n, n_samples), np.int32)
            longest, first = np.empty((n, n_samples), np.int32), np.empty((n, n_samples), np.int32)
            last = np.empty((n, n_samples), np.int32)
        count[:n], run[:n], longest[:n], first[:n], last[:n] = 0, 0, 0, 0, 0
        head = heads[bundle]
        needs_all, needs_largest = False, False
        for k in range(n):
            reads = columns[members[k]]
            needs_all |= max(reads[_MEAN], reads[_BURST], reads[_ROOT], reads[_FIRST]) >= 0
            needs_largest |= reads[_EVER] >= 0
        if competes[bundle]:
            if n > len(several):
                several = np.empty((n, several.shape[1]), values.dtype)
            width = several.shape[1]
            for at in range(0, n_values, width):
                here = min(width, n_values - at)
                for k in range(n):
                    total = several[k, :here]
                    _sum_taps(total, values, at, row, shift, weight, starts[head + k], starts[head + k + 1])
                    lift = -level[members[k]]
                    if lift != 0:  # in float64, as in a roll-out
                        for i in range(here):
                            total[i] += lift
                for offset in range(0, here, n_samples):
                    step = (at + offset) // n_samples
                    for i in range(n_samples):
                        largest[i] = several[0, offset + i]
                        winner[i] = 0
                    for k in range(1, n):
                        total = several[k, offset : offset + n_samples]
                        for i in range(n_samples):
                            if total[i] > largest[i]:
                                largest[i] = total[i]
                                winner[i] = k
                    if step >= shortest:
                        for i in range(n_samples):
                            if step >= lengths[i]:
                                winner[i] = -1
                    for k in range(n):
                        _count(winner, k, step, count[k], run[k], longest[k], first[k])
                    for i in range(n_samples):
                        if step == lengths[i] - 1:
                            last[winner[i], i] = 1
        elif not needs_all and not needs_largest:  # the last step alone
            for i in range(n_samples):
                total = values.dtype.type(0)
                at = (lengths[i] - 1) * n_samples + i
                for tap in range(starts[head], starts[head + 1]):
                    if shift[tap] <= at:
                        total += weight[tap] * values[row[tap], at - shift[tap]]
                for k in range(n):
                    last[k, i] = total >= level[members[k]]
        else:
            largest[:] = -np.inf
            for at in range(0, n_values, len(sums)):
                total = sums[: n_values - at]
                _sum_taps(total, values, at, row, shift, weight, starts[head], starts[head + 1])
                for offset in range(0, len(total), n_samples):
                    step, now = (at + offset) // n_samples, total[offset : offset + n_samples]
                    if step >= shortest:
                        for i in range(n_samples):
                            if step >= lengths[i]:
                                now[i] = -np.inf
                    if needs_largest:
                        for i in range(n_samples):
                            largest[i] = max(largest[i], now[i])
                    for i in range(n_samples) if step + 1 >= shortest else range(0):
                        if step == lengths[i] - 1:
                            for k in range(n):
                                last[k, i] = now[i] >= level[members[k]]
                if needs_all:
                    for k in range(n):
                        reads, least = columns[members[k]], level[members[k]]
                        if reads[_BURST] >= 0 or reads[_FIRST] >= 0:
                            for offset in range(0, len(total), n_samples):
                                now = total[offset : offset + n_samples]
                                step = (at + offset) // n_samples
                                _count_above(now, least, count[k], run[k], longest[k])
                                if reads[_FIRST] >= 0:
                                    for i in range(n_samples):
                                        if count[k, i] == 1 and first[k, i] == 0:
                                            first[k, i] = step + 1
                        else:
                            for offset in range(0, len(total), n_samples):
                                now, counted = total[offset : offset + n_samples], count[k]
                                for i in range(n_samples):
                                    counted[i] += now[i] >= least
        for k in range(n):
            reads = columns[members[k]]
            for i in range(n_samples):
                if reads[_MEAN] >= 0:
                    numbers[reads[_MEAN], i] = count[k, i]
                if reads[_ROOT] >= 0:
                    numbers[reads[_ROOT], i] = count[k, i]
                if reads[_BURST] >= 0:
                    numbers[reads[_BURST], i] = longest[k, i]
                if reads[_EVER] >= 0:
                    fires = count[k, i] > 0 if competes[bundle] else largest[i] >= level[members[k]]
                    numbers[reads[_EVER], i] = fires
                if reads[_LAST] >= 0:
                    numbers[reads[_LAST], i] = last[k, i]
                if reads[_FIRST] >= 0:
                    numbers[reads[_FIRST], i] = lengths[i] + 1 - first[k, i] if first[k, i] > 0 else 0


@partial(_compiled, inline="always")
def _count_above(now, least, count, run, longest):  # type: ignore[no-untyped-def]
    """Count a step in which the neuron fires where ``now`` is at least its level."""
    for i in range(len(now)):
        fires = np.int32(now[i] >= least)
        count[i] += fires
        run[i] = (run[i] + 1) * fires
        longest[i] = max(longest[i], run[i])


@partial(_compiled, inline="always")
def _count(winner, k, step, count, run, longest, first):  # type: ignore[no-untyped-def]
    """Count a step in which neuron k of a group fires where it wins."""
    for i in range(len(winner)):
        fires = np.int32(winner[i] == k)
        count[i] += fires
        run[i] = (run[i] + 1) * fires
        longest[i] = max(longest[i], run[i])
        if fires and first[i] == 0:
            first[i] = step + 1


def columns_read(layer_reads: Tensor, statistics: tuple[Statistic, ...]) -> Tensor:
    """Return the columns that are read, ``neuron * n_statistics + number``, in rising order.

    Parameters
    ----------
    layer_reads : Tensor of shape (n_neurons,), dtype int64
        Which statistics are read of each neuron, as bits; -1 for all.
    statistics : tuple of str
        The statistics of the read-out.

    Returns
    -------
    Tensor of shape (n_columns,), dtype int64
        The columns.
    """
    bit = torch.tensor([1 << STATISTICS.index(name) for name in statistics], device=layer_reads.device)
    return torch.nonzero(((layer_reads[:, None] & bit) != 0).flatten()).squeeze(1)
