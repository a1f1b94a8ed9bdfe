"""Statistics of the spikes of lateral neurons on a processor: sums over taps and counts in one pass.

Neurons that read the same values with the same weights share their sums, so that a further threshold costs a comparison
a step. Neurons that read the same values with weights of which most are -1 share the sum of these values: the other
weights are added to it (:func:`_split`). A group whose weights are those of the group before with the other sign shares
its sums: the smallest of them wins. Rows of values are as in :mod:`.tap_kernel`: the values of all steps, the samples
of a step side by side.
"""

from collections.abc import Sequence
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
        The first place in ``order`` of each bundle: neurons with the same taps, a group that competes, or two groups of
        which the second has the weights of the first with the other sign.
    rivals : array of shape (n_bundles,)
        The number of neurons of a group; 0 for bundles that do not compete.
    lifts : array of shape (n_bundles,), dtype bool
        Whether it is a group with biases, which float32 would round when they are added to sums.
    levels : array of shape (n_bundles, n_views)
        Sums of the absolute weights of each view in units of the lowest bit of a neuron, the largest of a bundle.
    source, delay, weight : Tensor of shape (n_neurons, n_taps)
        The taps, in the order of the layer, without what is shared.
    shared : Tensor of shape (n_neurons,), dtype int64
        The sum that a neuron shares; negative if none.
    shared_taps : tuple of two Tensors of shape (n_shared, n_taps)
        The values of each shared sum, and their delays; the values are negative in the padding.
    level : array of shape (n_neurons,), dtype float64
        The sum from which a neuron fires: minus its bias.
    """

    order: Array
    edges: Array
    rivals: Array
    lifts: Array
    levels: Array
    source: Tensor
    delay: Tensor
    weight: Tensor
    shared: Tensor
    shared_taps: tuple[Tensor, Tensor]
    level: Array

    @classmethod
    def of(cls, layer: LateralLayer) -> "LateralTable":
        """Return the table of a layer."""
        n_taps, n_neurons, n_views = layer.n_taps, layer.n_subnetworks * layer.width, len(layer.views)

        def rows(value: Tensor) -> Tensor:
            return value.cpu().transpose(1, 2).reshape(n_neurons, n_taps)

        source, delay, weight = (rows(value) for value in (layer.source, layer.delay, layer.weight))
        source, delay = source.long(), delay.long()
        group = layer.own_groups.cpu().flatten()
        view = (source // layer.n_inputs).long()
        is_shared = _split(weight, view, n_views) & (group == 0)[:, None]
        # Neurons with the same shared sum follow each other, so that it stays in the cache.
        read = torch.where(is_shared, source * (int(delay.max()) + 1) + delay, -1)
        patterns, shared, n_uses = torch.unique(read, dim=0, return_inverse=True, return_counts=True)
        has_shared = (patterns >= 0).any(1) & (n_uses > 1)
        is_shared &= has_shared[shared][:, None]
        order = np.lexsort((shared.numpy(), group.numpy()))
        at = torch.from_numpy(order)
        is_same = (source[at[1:]] == source[at[:-1]]) & (delay[at[1:]] == delay[at[:-1]])
        shares = (is_same & (weight[at[1:]] == weight[at[:-1]])).all(1).numpy()
        of_place = group.numpy()[order]
        joins = np.where(of_place[1:] > 0, of_place[1:] == of_place[:-1], shares)
        starts = np.flatnonzero(np.r_[True, ~joins])
        rivals = np.where(of_place[starts] > 0, np.diff(np.r_[starts, n_neurons]), 0)
        is_mirror = _mirrors(starts, rivals, at, source, delay, weight, layer.bias.flatten().cpu())
        starts, rivals = starts[~is_mirror], rivals[~is_mirror]
        # Weights are whole multiples of their neuron's lowest bit, and inputs of their unit.
        own = torch.where(is_shared, weight + 1, weight)
        unit = weight_unit(weight.T, layer.weight_bits)
        whole = (weight.T / unit).abs().to(torch.int64).T
        lowest = torch.where(whole == 0, 2**62, whole & -whole).amin(1, keepdim=True)
        parts = ((own.T / unit).abs() + (is_shared.T / unit)).to(torch.int64).T
        levels = torch.zeros(n_neurons, n_views, dtype=torch.float64).scatter_add_(1, view, (parts / lowest).double())
        largest = np.maximum.reduceat(levels.numpy()[order], starts)
        number = torch.where(has_shared, has_shared.cumsum(0) - 1, -1)
        patterns = patterns[has_shared]
        base = int(delay.max()) + 1
        shared_taps = torch.where(patterns >= 0, patterns // base, -1), torch.where(patterns >= 0, patterns % base, 0)
        level = -layer.bias.flatten().cpu().numpy()
        edges = np.r_[starts, n_neurons]
        lifts = (rivals > 0) & np.logical_or.reduceat(level[order] != 0, starts)
        return cls(order, edges, rivals, lifts, largest, source, delay, own, number[shared], shared_taps, level)


def _split(weight: Tensor, view: Tensor, n_views: int) -> Tensor:
    """Return which values are summed with weight -1 before their own weights, plus 1, are added.

    They are those of the views of which a neuron reads most with weight -1: so all combinations of a weight 2 at three
    of nine values and -1 at the others have one sum in common, and all patterns that squares are compared with.
    """
    is_read = weight != 0
    count = torch.zeros(len(weight), n_views, dtype=torch.int64)
    n_read = count.scatter_add(1, view, is_read.long())
    n_minus = count.scatter_add(1, view, (weight == -1).long())
    return is_read & (2 * n_minus > n_read).gather(1, view)


def _mirrors(
    starts: Array, rivals: Array, order: Tensor, source: Tensor, delay: Tensor, weight: Tensor, bias: Tensor
) -> npt.NDArray[np.bool_]:
    """Return which bundles are groups with the taps of the group before, all weights negated, and no bias."""
    is_mirror = np.zeros(len(starts), dtype=bool)
    pairs = np.flatnonzero((rivals[1:] > 0) & (rivals[1:] == rivals[:-1])) + 1
    for size in np.unique(rivals[pairs]):
        own = pairs[rivals[pairs] == size]
        members = torch.from_numpy(starts[own][:, None] + np.arange(size))
        mine, before = order[members], order[members - int(size)]
        equal = [(value[mine] == value[before]).flatten(1).all(1) for value in (source, delay)]
        negated = (weight[mine] == -weight[before]).flatten(1).all(1)
        is_mirror[own] = (equal[0] & equal[1] & negated & (bias[mine] == 0).all(1) & (bias[before] == 0).all(1)).numpy()
    # A third of a row would mirror the second, which has joined the first.
    for place in np.flatnonzero(is_mirror):
        is_mirror[place] = not is_mirror[place - 1]
    return is_mirror


@dataclass(frozen=True, eq=False)
class Part:
    """Bundles whose sums are exact in one dtype, ready for the kernel.

    Parameters
    ----------
    dtype : torch.dtype
        The dtype.
    bundles : array of shape (n_bundles,)
        The bundles.
    heads : array of shape (n_heads,)
        The neurons whose sums are computed: each neuron of a group, and one of each other bundle.
    taps, shared : TapTable
        Their taps, and those of the sums that they share, which are rows after those of the values.
    level : array of shape (n_neurons,)
        The least number of the dtype from which each neuron of the layer fires.
    """

    dtype: torch.dtype
    bundles: Array
    heads: Array
    taps: TapTable
    shared: TapTable
    level: Array

    def rows(self, values: Tensor) -> tuple[Array, list[Array]]:
        """Return the rows that taps read, of values (n_steps, n_samples, n_values), and the taps with their shifts."""
        n_steps, n_samples, n_values = values.shape
        rows = torch.empty(n_values + len(self.shared.starts) - 1, n_steps * n_samples, dtype=self.dtype)
        rows[:n_values] = values.permute(2, 0, 1).reshape(n_values, -1)
        read, sums = rows.numpy(), _arrays(self.shared, n_samples)
        in_threads(partial(_sum_rows, read, n_values, *sums), len(sums[0]) - 1, len(sums[1]) * rows.shape[1])
        return read, _arrays(self.taps, n_samples)


def parts_of(layer: LateralLayer, table: LateralTable, inputs: Tensor) -> list[Part]:
    """Divide the bundles of a table by the dtypes in which no sum over the inputs is rounded.

    Parameters
    ----------
    layer : LateralLayer
        The layer.
    table : LateralTable
        Its table.
    inputs : Tensor of shape (n_samples, n_steps, n_inputs)
        The inputs.

    Returns
    -------
    list of Part
        The parts that have any bundles.
    """
    needed = table.levels @ np.array(layer.largest_views(inputs)) / INPUT_UNIT
    dtypes = [product_dtype(float(bits), 1.0) for bits in (needed.max(), needed.min())]
    narrow = (needed <= (2.0**24 if torch.float32 in dtypes else -1.0)) & ~table.lifts
    level = table.level.astype(np.float32)  # sums are float32: the least one that is at least the level
    level = np.where(level < table.level, np.nextafter(level, np.float32(np.inf)), level)
    divided = ((torch.float32, narrow, level), (torch.float64, ~narrow, table.level))
    return [_part(layer, table, dtype, np.flatnonzero(mine), level) for dtype, mine, level in divided if mine.any()]


def _part(layer: LateralLayer, table: LateralTable, dtype: torch.dtype, bundles: Array, level: Array) -> Part:
    sizes = np.maximum(table.rivals[bundles], 1)
    place = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    heads = table.order[np.repeat(table.edges[bundles], sizes) + place]
    at = torch.from_numpy(heads)
    used, number = torch.unique(table.shared[at], return_inverse=True)
    source, delay = (value[used[used >= 0]] for value in table.shared_taps)
    shared = TapTable.of_rows(source, delay, -(source >= 0).to(dtype))
    # A shared sum is one more tap, of weight one.
    row = (layer.n_values + number - (len(used) - len(source)))[:, None]
    is_shared = (table.shared[at] >= 0)[:, None].to(table.weight)
    own = ((row.clamp_min(0), table.source), (torch.zeros_like(row), table.delay), (is_shared, table.weight))
    source, delay, weight = (torch.cat((added, value[at]), dim=1) for added, value in own)
    return Part(dtype, bundles, heads, TapTable.of_rows(source, delay, weight.to(dtype)), shared, level)


def scan_lateral(
    table: LateralTable, parts: Sequence[Part], values: Tensor, lengths: Tensor | None, columns: Array, numbers: Array
) -> None:
    """Write statistics of the spikes of a layer.

    Parameters
    ----------
    table : LateralTable
        The table of the layer.
    parts : sequence of Part
        Its parts, for inputs among which are those of the values.
    values : Tensor of shape (n_steps, n_samples, n_values), dtype float64
        The views of the inputs.
    lengths : Tensor of shape (n_samples,), optional
        The number of steps of each sequence, if they differ.
    columns : array of shape (n_neurons, n_statistics), dtype int64
        The row of ``numbers`` for each neuron and statistic; negative if it is not read.
    numbers : array of shape (n_columns, n_samples), dtype int32
        The whole numbers of the statistics, which are written.
    """
    ends = _ends(values, lengths)
    for part in parts:
        read, taps = part.rows(values)
        rivals = table.rivals[part.bundles]
        arguments = (
            read,
            *taps,
            np.r_[0, np.cumsum(np.maximum(rivals, 1))],
            table.order,
            table.edges[part.bundles],
            table.edges[part.bundles + 1],
            rivals,
            part.level,
            ends,
            columns,
            numbers,
        )
        in_threads(partial(_scan, *arguments), len(part.bundles), len(taps[1]) * read.shape[1])


def largest_drives(layer: LateralLayer, values: Tensor, lengths: Tensor | None) -> npt.NDArray[np.float64]:
    """Return the largest drive of each neuron on each sequence, without its bias.

    Parameters
    ----------
    layer : LateralLayer
        The layer, whose neurons belong to no group.
    values : Tensor of shape (n_steps, n_samples, n_values), dtype float64
        The views of the inputs.
    lengths : Tensor of shape (n_samples,), optional
        The number of steps of each sequence, if they differ.

    Returns
    -------
    array of shape (n_neurons, n_samples)
        The drives.
    """
    table, ends = LateralTable.of(layer), _ends(values, lengths)
    largest = np.empty((len(table.order), values.shape[1]))
    for part in parts_of(layer, table, values[:, :, : layer.n_inputs].transpose(0, 1)):
        read, taps = part.rows(values)
        in_threads(
            partial(_maxima, read, *taps, part.heads, ends, largest), len(part.heads), len(taps[1]) * read.shape[1]
        )
        for bundle in part.bundles:  # neurons with the same taps have the same drives
            members = table.order[table.edges[bundle] : table.edges[bundle + 1]]
            largest[members] = largest[members[0]]
    return largest


def _ends(values: Tensor, lengths: Tensor | None) -> npt.NDArray[np.int64]:
    """Return the number of steps of each sequence."""
    return np.full(values.shape[1], values.shape[0]) if lengths is None else lengths.numpy().astype(np.int64)


def _arrays(taps: TapTable, n_samples: int) -> list[Array]:
    """Return the taps of neurons as arrays, with their delays as shifts in rows."""
    return [value.numpy() for value in (taps.starts, taps.row, taps.delay * n_samples, taps.weight)]


@_compiled
def _sum_rows(values, n_rows, starts, row, shift, weight, first, last):  # type: ignore[no-untyped-def]
    """Write sums of rows as further rows."""
    for number in range(first, last):
        for at in range(0, values.shape[1], 2048):
            total = values[n_rows + number, at : at + 2048]
            _sum_taps(total, values, at, row, shift, weight, starts[number], starts[number + 1])


@_compiled
def _maxima(  # type: ignore[no-untyped-def]
    values, starts, row, shift, weight, neurons, lengths, largest, first, last
):
    n_values, n_samples = values.shape[1], len(lengths)
    sums = np.empty(_n_sums(n_samples), values.dtype)
    for neuron in range(first, last):
        most = largest[neurons[neuron]]
        most[:] = -np.inf
        for at in range(0, n_values, len(sums)):
            total = sums[: n_values - at]
            _sum_taps(total, values, at, row, shift, weight, starts[neuron], starts[neuron + 1])
            for offset in range(0, len(total), n_samples):
                step = (at + offset) // n_samples
                for i in range(n_samples):
                    if step < lengths[i]:
                        most[i] = max(most[i], total[offset + i])


@_compiled
def _scan(  # type: ignore[no-untyped-def]
    values, starts, row, shift, weight, heads, order, begins, ends, rivals, level, lengths, columns, numbers, lo, hi
):
    n_values, n_samples = values.shape[1], len(lengths)
    shortest = lengths.min()
    sums = np.empty(_n_sums(n_samples), values.dtype)
    several = np.empty((16, max(n_samples, 512 // n_samples * n_samples)), values.dtype)
    largest, winner = np.empty(n_samples, values.dtype), np.empty(n_samples, np.int32)
    count, run = np.empty((1, n_samples), np.int32), np.empty((1, n_samples), np.int32)
    longest, first = np.empty((1, n_samples), np.int32), np.empty((1, n_samples), np.int32)
    last = np.empty((1, n_samples), np.int32)
    for bundle in range(lo, hi):
        members = order[begins[bundle] : ends[bundle]]
        n, n_rivals = len(members), rivals[bundle]
        if n > len(count):
            count, run = np.empty((n, n_samples), np.int32), np.empty((n, n_samples), np.int32)
            longest, first = np.empty((n, n_samples), np.int32), np.empty((n, n_samples), np.int32)
            last = np.empty((n, n_samples), np.int32)
        count[:n], run[:n], longest[:n], first[:n], last[:n] = 0, 0, 0, 0, 0
        head = heads[bundle]
        needs_all, needs_largest, needs_order = False, False, False
        for k in range(n):
            reads = columns[members[k]]
            needs_all |= max(reads[_MEAN], reads[_BURST], reads[_ROOT], reads[_FIRST]) >= 0
            needs_largest |= reads[_EVER] >= 0
            needs_order |= max(reads[_BURST], reads[_FIRST]) >= 0
        if n_rivals > 0:
            if n_rivals > len(several):
                several = np.empty((n_rivals, several.shape[1]), values.dtype)
            width = several.shape[1]
            for at in range(0, n_values, width):
                here = min(width, n_values - at)
                for k in range(n_rivals):
                    total = several[k, :here]
                    _sum_taps(total, values, at, row, shift, weight, starts[head + k], starts[head + k + 1])
                    lift = -level[members[k]]
                    if lift != 0:  # in float64, as in a roll-out
                        for i in range(here):
                            total[i] += lift
                # The largest sums of the group, and the smallest, which are the largest of the group that mirrors it.
                for begin in range(0, n, n_rivals):
                    sign = values.dtype.type(1 if begin == 0 else -1)
                    for offset in range(0, here, n_samples):
                        step = (at + offset) // n_samples
                        for i in range(n_samples):
                            largest[i] = sign * several[0, offset + i]
                            winner[i] = begin
                        for k in range(1, n_rivals):
                            total = several[k, offset : offset + n_samples]
                            for i in range(n_samples):
                                if sign * total[i] > largest[i]:
                                    largest[i] = sign * total[i]
                                    winner[i] = begin + k
                        if step >= shortest:
                            for i in range(n_samples):
                                if step >= lengths[i]:
                                    winner[i] = -1
                        for k in range(begin, begin + n_rivals):
                            if needs_order:
                                _count(winner, k, step, count[k], run[k], longest[k], first[k])
                            else:
                                counted = count[k]
                                for i in range(n_samples):
                                    counted[i] += winner[i] == k
                        for i in range(n_samples) if step + 1 >= shortest else range(0):
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
                    fires = count[k, i] > 0 if n_rivals > 0 else largest[i] >= level[members[k]]
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
