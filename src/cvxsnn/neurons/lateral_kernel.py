"""Statistics of the spikes of lateral neurons on a processor: sums over taps and counts in one pass.

Neurons that read the same values with the same weights share their sums, so that a further threshold costs a comparison
a step. Neurons that read the same values with weights of which most are -1 share the sum of these values: the other
weights are added to it (:func:`_split`). A group whose weights are those of the group before with the other sign shares
its sums: the smallest of them wins. Rows of values are as in :mod:`.tap_kernel`: the values of all steps, the samples
of a step side by side.

Sums that may need more bits than float32 has are computed in float32 first where a bound on their error decides most
spikes, and in float64 where it does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .exact import INPUT_UNIT, ScratchArrays, product_dtype, weight_unit
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
    levels, sums : array of shape (n_bundles, n_views)
        Sums of the absolute weights of each view, the largest of a bundle: in units of the lowest bit of a neuron, and
        themselves.
    n_terms : array of shape (n_bundles,)
        The largest number of terms of a sum, one of which is the sum that it shares.
    taps, shared : TapTable
        The taps of the neurons whose sums are computed: of each neuron of a group, and of one of each other bundle;
        and those of the sums that they share, which are rows after those of the values. Weights are in float64.
    twins : array of shape (n_heads,), dtype bool
        Whether such a neuron reads what the next one does, with other weights.
    level : array of shape (n_neurons,), dtype float64
        The sum from which a neuron fires: minus its bias.
    """

    order: Array
    edges: Array
    rivals: Array
    lifts: Array
    levels: Array
    sums: Array
    n_terms: Array
    taps: TapTable
    shared: TapTable
    twins: Array
    level: Array

    @classmethod
    def of(cls, layer: LateralLayer) -> "LateralTable":
        """Return the table of a layer."""
        n_taps = layer.n_taps
        n_neurons = layer.n_subnetworks * layer.width
        n_views = len(layer.views)

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
        levels, sums = (
            np.maximum.reduceat(part.new_zeros(n_neurons, n_views).scatter_add_(1, view, part).numpy()[order], starts)
            for part in (parts.double() / lowest, own.abs() + is_shared)
        )
        n_terms = np.maximum.reduceat(((own != 0).sum(1) + 1).numpy()[order], starts)
        level = -layer.bias.flatten().cpu().numpy()
        edges = np.r_[starts, n_neurons]
        lifts = (rivals > 0) & np.logical_or.reduceat(level[order] != 0, starts)
        # A shared sum is one more tap, of weight one.
        number = torch.where(has_shared, has_shared.cumsum(0) - 1, -1)[shared][:, None]
        is_summed = torch.from_numpy(np.arange(n_neurons) < np.repeat(starts + np.maximum(rivals, 1), np.diff(edges)))
        heads = at[is_summed]
        columns = (
            ((layer.n_values + number).clamp_min(0), source),
            (torch.zeros_like(number), delay),
            ((number >= 0).to(own), own),
        )
        taps = TapTable.of_rows(*(torch.cat(pair, dim=1)[heads] for pair in columns))
        patterns, base = patterns[has_shared], int(delay.max()) + 1
        is_read = patterns >= 0
        shared_taps = TapTable.of_rows(patterns // base, patterns % base * is_read, -is_read.to(own))
        return cls(order, edges, rivals, lifts, levels, sums, n_terms, taps, shared_taps, _twins(taps), level)

    def margins(self, largest: Sequence[float]) -> Array:
        """Return bounds on the errors of sums in float32: one for each bundle.

        Parameters
        ----------
        largest : sequence of float
            The largest absolute value of each view (:meth:`.lateral.LateralLayer.largest_views`).

        Returns
        -------
        array of shape (n_bundles,), dtype float64
            Zero where no sum is rounded, infinity where float32 is of no use.
        """
        needed = self.levels @ np.array(largest) / INPUT_UNIT
        dtypes = [product_dtype(float(bits), 1.0) for bits in (needed.max(), needed.min())]
        is_exact = (needed <= (2.0**24 if torch.float32 in dtypes else -1.0)) & ~self.lifts
        size = self.sums @ np.array(largest)
        # Values, shared sums, weights and products are rounded, and each sum but the first; what underflows is lost.
        margin = 1.01 * (self.n_terms + 4) * (2.0**-24 * size + 2.0**-126)
        return np.where(is_exact, 0.0, np.where(self.lifts | (size > 2.0**100), np.inf, margin))

    def rows(self, values: Tensor, scratch: ScratchArrays, pad: int = 0) -> Array:
        """Return the rows that taps read, of values (n_steps, n_samples, n_values), after ``pad`` zeros."""
        n_steps, n_samples, n_values = values.shape
        shape = n_values + len(self.shared.starts) - 1, pad + n_steps * n_samples
        # NumPy, since threads of torch spin for milliseconds after each small task.
        read, sums = scratch.array("rows", shape, torch.float64, values.device).numpy(), _arrays(self.shared, n_samples)
        read[:, :pad] = 0
        read[:n_values, pad:] = values.numpy().transpose(2, 0, 1).reshape(n_values, -1)
        in_threads(partial(_sum_rows, read, n_values, *sums), len(sums[0]) - 1, len(sums[1]) * read.shape[1])
        return read


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


def _twins(taps: TapTable) -> npt.NDArray[np.bool_]:
    """Return which neurons read the same rows with the same delays as the next one."""
    starts, row, delay = (value.numpy() for value in (taps.starts, taps.row, taps.delay))
    number, of_tap = np.diff(starts), np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    is_twin: npt.NDArray[np.bool_] = np.r_[number[1:] == number[:-1], False]
    place = np.arange(len(row)) + number[of_tap]  # the same tap of the next neuron
    differs = is_twin[of_tap]
    at, other = np.flatnonzero(differs), place[differs]
    differs = (row[at] != row[other]) | (delay[at] != delay[other])
    is_twin[of_tap[at[differs]]] = False
    return is_twin


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


def scan_lateral(
    table: LateralTable,
    margins: Array,
    values: Tensor,
    lengths: Tensor | None,
    columns: Array,
    numbers: Array,
    scratch: ScratchArrays,
) -> None:
    """Write statistics of the spikes of a layer.

    Parameters
    ----------
    table : LateralTable
        The table of the layer.
    margins : array of shape (n_bundles,)
        Its margins, for inputs among which are those of the values.
    values : Tensor of shape (n_steps, n_samples, n_values), dtype float64
        The views of the inputs.
    lengths : Tensor of shape (n_samples,), optional
        The number of steps of each sequence, if they differ.
    columns : array of shape (n_neurons, n_statistics), dtype int64
        The row of ``numbers`` for each neuron and statistic; negative if it is not read.
    numbers : array of shape (n_columns, n_samples), dtype int32
        The whole numbers of the statistics, which are written.
    scratch : ScratchArrays
        Memory for rows of values.
    """
    starts, row, shift, weight = _arrays(table.taps, values.shape[1])
    level = table.level.astype(np.float32)  # sums that need no more bits: the least one that is at least the level
    level = np.where(level < table.level, np.nextafter(level, np.float32(np.inf)), level)
    # For a single sequence, zeros before the first step spare the work on taps that reach back before it.
    pad = int(shift.max(initial=0)) if values.shape[1] == 1 else 0
    rows = table.rows(values, scratch, pad)
    rows32 = scratch.array("rows32", rows.shape, torch.float32, values.device).numpy()
    np.copyto(rows32, rows, casting="same_kind")
    coarse, fine = (rows32, weight.astype(np.float32), level), (rows, weight, table.level)
    arguments = (
        *coarse,
        *fine,
        pad,
        starts,
        row,
        shift,
        table.twins,
        np.r_[0, np.cumsum(np.maximum(table.rivals, 1))],
        table.order,
        table.edges,
        table.rivals,
        margins,
        _ends(values, lengths),
        columns,
        numbers,
    )
    in_threads(partial(_scan, *arguments), len(table.rivals), len(row) * coarse[0].shape[1])


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
    table = LateralTable.of(layer)
    table.margins(layer.largest_views(values[:, :, : layer.n_inputs].transpose(0, 1)))  # refuses what no type holds
    n_bundles, taps = len(table.rivals), _arrays(table.taps, values.shape[1])
    read, largest = table.rows(values, ScratchArrays()), np.empty((n_bundles, values.shape[1]))
    in_threads(partial(_maxima, read, *taps, _ends(values, lengths), largest), n_bundles, len(taps[1]) * read.shape[1])
    of_neuron = np.empty((len(table.order), values.shape[1]))
    of_neuron[table.order] = np.repeat(largest, np.diff(table.edges), axis=0)  # with the same taps, the same drives
    return of_neuron


def _ends(values: Tensor, lengths: Tensor | None) -> npt.NDArray[np.int64]:
    """Return the number of steps of each sequence."""
    return np.full(values.shape[1], values.shape[0]) if lengths is None else lengths.numpy().astype(np.int64)


def _arrays(taps: TapTable, n_samples: int) -> list[Array]:
    """Return the taps of neurons as arrays, with their delays as shifts in rows."""
    starts, row, delay, weight = (value.numpy() for value in (taps.starts, taps.row, taps.delay, taps.weight))
    return [starts, row, delay * n_samples, weight]


# Products are exact wherever sums are, so that adding them without rounding them first changes no bit.
_fused = partial(_compiled, fastmath={"contract"})
_free_of_nan = partial(_compiled, fastmath={"contract", "nnan", "nsz"})


@_fused
def _sum_one(total, values, at, row, shift, weight, tap, stop):  # type: ignore[no-untyped-def]
    """Write the sums of one neuron; compiled once for all that call it."""
    _sum_taps(total, values, at, row, shift, weight, tap, stop)


@_fused
def _sum_three(totals, n, values, at, row, shift, weight, tap, stop):  # type: ignore[no-untyped-def]
    """Write the sums of three neurons that read the same, one after the other: values are loaded once for all."""
    own = stop - tap
    while stop > tap and shift[stop - 1] >= at + n:
        stop -= 1
    complete = stop
    while complete > tap and shift[complete - 1] > at:
        complete -= 1
    a, b, c = totals[0, :n], totals[1, :n], totals[2, :n]
    if tap + 2 >= complete:
        a[:], b[:], c[:] = 0, 0, 0
    is_first = True
    while tap + 2 < complete:
        x0, x1 = values[row[tap], at - shift[tap] :], values[row[tap + 1], at - shift[tap + 1] :]
        x2 = values[row[tap + 2], at - shift[tap + 2] :]
        a0, a1, a2 = weight[tap], weight[tap + 1], weight[tap + 2]
        b0, b1, b2 = weight[tap + own], weight[tap + own + 1], weight[tap + own + 2]
        c0, c1, c2 = weight[tap + 2 * own], weight[tap + 2 * own + 1], weight[tap + 2 * own + 2]
        if is_first:
            for i in range(n):
                y0, y1, y2 = x0[i], x1[i], x2[i]  # before any sum is written
                a[i] = a0 * y0 + a1 * y1 + a2 * y2
                b[i] = b0 * y0 + b1 * y1 + b2 * y2
                c[i] = c0 * y0 + c1 * y1 + c2 * y2
            is_first = False
        else:
            for i in range(n):
                y0, y1, y2 = x0[i], x1[i], x2[i]  # before any sum is written
                a[i] += a0 * y0 + a1 * y1 + a2 * y2
                b[i] += b0 * y0 + b1 * y1 + b2 * y2
                c[i] += c0 * y0 + c1 * y1 + c2 * y2
        tap += 3
    while tap < stop:
        a0 = weight[tap]
        b0 = weight[tap + own]
        c0 = weight[tap + 2 * own]
        skipped = max(0, shift[tap] - at)
        x0 = values[row[tap], at + skipped - shift[tap] :]
        late_a = a[skipped:]
        late_b = b[skipped:]
        late_c = c[skipped:]
        for i in range(n - skipped):
            y0 = x0[i]
            late_a[i] += a0 * y0
            late_b[i] += b0 * y0
            late_c[i] += c0 * y0
        tap += 1


@_fused
def _sum_rows(values, n_rows, starts, row, shift, weight, first, last):  # type: ignore[no-untyped-def]
    """Write sums of rows as further rows."""
    for number in range(first, last):
        for at in range(0, values.shape[1], 2048):
            total = values[n_rows + number, at : at + 2048]
            _sum_one(total, values, at, row, shift, weight, starts[number], starts[number + 1])


@_fused
def _maxima(values, starts, row, shift, weight, lengths, largest, first, last):  # type: ignore[no-untyped-def]
    sums = np.empty((1, _n_sums(len(lengths))), values.dtype)
    for bundle in range(first, last):
        most = largest[bundle : bundle + 1]
        _largest_sums(values, 0, starts[bundle], starts[bundle + 1], row, shift, weight, lengths, sums, most, 1)


@_free_of_nan
def _largest_sums(  # type: ignore[no-untyped-def]
    values, pad, tap, stop, row, shift, weight, lengths, sums, largest, together
):
    """Write the largest sum on each sequence of a neuron, or of three that read the same."""
    n_values = values.shape[1]
    n_samples = len(lengths)
    shortest = lengths.min()
    largest[:together] = -np.inf
    for at in range(pad, n_values, sums.shape[1]):
        n, begin = min(sums.shape[1], n_values - at), (at - pad) // n_samples
        if together == 3:
            _sum_three(sums, n, values, at, row, shift, weight, tap, stop)
        else:
            _sum_one(sums[0, :n], values, at, row, shift, weight, tap, stop)
        for k in range(together):
            total, most = sums[k, :n], largest[k]
            if n_samples == 1:
                rest = n
                while rest > 16:  # the larger half and the smaller, which the processor compares side by side
                    half = (rest + 1) // 2
                    low, high = total[:half], total[half:rest]
                    for i in range(len(high)):
                        low[i] = max(low[i], high[i])
                    rest = half
                for i in range(rest):
                    most[0] = max(most[0], total[i])
                continue
            step, n_common = begin, min(begin + n // n_samples, shortest)
            while step + _TOGETHER <= n_common:
                now = total[(step - begin) * n_samples : (step - begin + _TOGETHER) * n_samples]
                for i in range(n_samples):
                    highest = most[i]
                    for later in range(_TOGETHER):
                        highest = max(highest, now[later * n_samples + i])
                    most[i] = highest
                step += _TOGETHER
            for offset in range((step - begin) * n_samples, n, n_samples):
                for i in range(n_samples):
                    if step < lengths[i]:
                        most[i] = max(most[i], total[offset + i])
                step += 1


@_fused
def _count_levels(  # type: ignore[no-untyped-def]
    values,
    pad,
    tap,
    stop,
    row,
    shift,
    weight,
    level,
    members,
    lengths,
    columns,
    sums,
    silent,
    count,
    run,
    longest,
    first,
):
    """Count the steps in which each neuron of a bundle fires: where its sum is at least its level."""
    n_values = values.shape[1]
    n_samples = len(lengths)
    shortest = lengths.min()
    for at in range(pad, n_values, len(sums)):
        total, begin = sums[: n_values - at], (at - pad) // n_samples
        _sum_one(total, values, at, row, shift, weight, tap, stop)
        if begin + len(total) // n_samples > shortest:
            for offset in range(0, len(total), n_samples):
                step = begin + offset // n_samples
                for i in range(n_samples):
                    if step >= lengths[i]:
                        total[offset + i] = -np.inf
        for k in range(len(members)):
            own, least = members[k], level[members[k]]
            if columns[own, _FIRST] >= 0:
                for offset in range(0, len(total), n_samples):
                    for i in range(n_samples):
                        if first[k, i] == 0 and total[offset + i] >= least:
                            first[k, i] = begin + offset // n_samples + 1
            if columns[own, _BURST] >= 0:
                _count_runs(total, n_samples, least, k, silent, count, run, longest)
            else:
                _count_steps(total, n_samples, least, k, count)


@_compiled
def _count_steps(total, n_samples, least, k, count):  # type: ignore[no-untyped-def]
    """Count the steps of each sequence with at least the level."""
    if n_samples == 1:
        n = 0
        for i in range(len(total)):
            n += total[i] >= least
        count[k, 0] += n
        return
    for offset in range(0, len(total), n_samples):
        now = total[offset : offset + n_samples]
        for i in range(n_samples):
            count[k, i] += now[i] >= least


_TOGETHER = 4
"""Steps that are counted at once, so that counts are loaded and stored less often."""


@_compiled
def _count_runs(total, n_samples, least, k, silent, count, run, longest):  # type: ignore[no-untyped-def]
    """Count the steps of each sequence with at least the level, and the longest run of them."""
    if n_samples == 1:
        # A list of the other steps needs no branches, and the longest gap between them no chain of additions.
        n_silent = 0
        for i in range(len(total)):
            silent[n_silent] = i
            n_silent += not total[i] >= least
        silent[n_silent] = len(total)
        most, before = longest[k, 0], -1 - run[k, 0]
        for i in range(n_silent + 1):
            most = max(most, silent[i] - before - 1)
            before = silent[i]
        count[k, 0] += len(total) - n_silent
        longest[k, 0] = most
        run[k, 0] = len(total) - 1 - silent[n_silent - 1] if n_silent > 0 else run[k, 0] + len(total)
        return
    offset = 0
    while offset < len(total):
        if offset + _TOGETHER * n_samples <= len(total):
            now = total[offset : offset + _TOGETHER * n_samples]
            for i in range(n_samples):
                n = count[k, i]
                run_now = run[k, i]
                most = longest[k, i]
                for step in range(_TOGETHER):
                    fires = np.int32(now[step * n_samples + i] >= least)
                    n += fires
                    run_now = (run_now + np.int32(1)) * fires
                    most = max(most, run_now)
                count[k, i] = n
                run[k, i] = run_now
                longest[k, i] = most
            offset += _TOGETHER * n_samples
        else:
            now = total[offset : offset + n_samples]
            for i in range(n_samples):
                fires = np.int32(now[i] >= least)
                count[k, i] += fires
                run[k, i] = (run[k, i] + 1) * fires
                longest[k, i] = max(longest[k, i], run[k, i])
            offset += n_samples


@_fused
def _sum_rivals(  # type: ignore[no-untyped-def]
    values, at, starts, row, shift, weight, twins, level, members, head, n_rivals, several
):
    """Write the drives of a group, from position ``at`` of the rows on."""
    n, k = values.shape[1] - at, 0
    while k < n_rivals:
        total = several[k, :n]
        tap = starts[head + k]
        stop = starts[head + k + 1]
        if k + 2 < n_rivals and twins[head + k] and twins[head + k + 1]:
            _sum_three(several[k : k + 3], len(total), values, at, row, shift, weight, tap, stop)
            k += 3
        else:
            _sum_one(total, values, at, row, shift, weight, tap, stop)
            k += 1
    for k in range(n_rivals):
        total = several[k, :n]
        lift = -level[members[k]]
        if lift != 0:  # in float64, as in a roll-out
            for i in range(len(total)):
                total[i] += lift


@_compiled
def _find_winners(several, n_rivals, sign, margin, top, winner):  # type: ignore[no-untyped-def]
    """Write the number of the largest drive, and return at how many places another may be the largest."""
    n = len(winner)
    largest = top[0, : len(winner)]
    second = top[1, : len(winner)]
    one = several[0, :n]
    for i in range(n):
        largest[i] = sign * one[i]
        second[i] = -np.inf
        winner[i] = 0
    k = 1
    while k + 1 < n_rivals:  # two at once; all values are loaded first, so that the compiler needs no branches
        one = several[k, :n]
        two = several[k + 1, :n]
        number = np.int32(k)
        next_number = np.int32(k + 1)
        for i in range(n):
            x = sign * one[i]
            y = sign * two[i]
            most = largest[i]
            other = second[i]
            who = winner[i]
            high = max(x, y)
            low = min(x, y)
            who_high = next_number if y > x else number
            second[i] = max(max(other, low), min(high, most))
            largest[i] = max(high, most)
            winner[i] = who_high if high > most else who
        k += 2
    if k < n_rivals:
        one, number = several[k, :n], np.int32(k)
        for i in range(n):
            x = sign * one[i]
            most = largest[i]
            other = second[i]
            who = winner[i]
            second[i] = max(other, min(x, most))
            largest[i] = max(x, most)
            winner[i] = number if x > most else who
    n_close = 0
    for i in range(n):
        n_close += largest[i] - second[i] <= margin
    return n_close


@_fused
def _sum_at(values, place, tap, stop, row, shift, weight):  # type: ignore[no-untyped-def]
    """Return the sum of one neuron at one place of the rows."""
    total = 0.0
    while tap < stop and shift[tap] <= place:
        total += weight[tap] * values[row[tap], place - shift[tap]]
        tap += 1
    return total


@_fused
def _winner_at(values, place, starts, row, shift, weight, head, n_rivals, sign):  # type: ignore[no-untyped-def]
    """Return the number of the largest drive of a group at one place of the rows."""
    winner, most = 0, -np.inf
    for k in range(n_rivals):
        total = sign * _sum_at(values, place, starts[head + k], starts[head + k + 1], row, shift, weight)
        if total > most:
            winner, most = k, total
    return winner


@_compiled
def _count_wins(  # type: ignore[no-untyped-def]
    winner, step, lengths, begin, n_rivals, needs_order, count, run, longest, first, last
):
    """Count the steps, from ``step`` on, in which each neuron of a group wins; ``begin`` is the first of them."""
    n_samples, shortest = len(lengths), lengths.min()
    if step + len(winner) // n_samples >= shortest:
        for offset in range(0, len(winner), n_samples):
            now = step + offset // n_samples
            for i in range(n_samples):
                if now >= lengths[i]:
                    winner[offset + i] = -1
                elif now == lengths[i] - 1:
                    last[begin + winner[offset + i], i] = 1
    for k in range(n_rivals):
        counted, number = count[begin + k], np.int32(k)
        if n_samples == 1:
            n_wins = 0
            for i in range(len(winner)):
                n_wins += winner[i] == number
            counted[0] += n_wins
        else:
            offset = 0
            while offset + _TOGETHER * n_samples <= len(winner):
                now = winner[offset : offset + _TOGETHER * n_samples]
                for i in range(n_samples):
                    n_wins = counted[i]
                    for later in range(_TOGETHER):
                        n_wins += np.int32(now[later * n_samples + i] == number)
                    counted[i] = n_wins
                offset += _TOGETHER * n_samples
            for first_of_step in range(offset, len(winner), n_samples):
                now = winner[first_of_step : first_of_step + n_samples]
                for i in range(n_samples):
                    counted[i] += now[i] == number
        if needs_order:
            own_run = run[begin + k]
            own_longest = longest[begin + k]
            own_first = first[begin + k]
            for offset in range(0, len(winner), n_samples):
                for i in range(n_samples):
                    wins = np.int32(winner[offset + i] == k)
                    own_run[i] = (own_run[i] + 1) * wins
                    own_longest[i] = max(own_longest[i], own_run[i])
                    if wins and own_first[i] == 0:
                        own_first[i] = step + offset // n_samples + 1


@_compiled
def _scan(  # type: ignore[no-untyped-def]
    values32,
    weight32,
    level32,
    values,
    weight,
    level,
    pad,
    starts,
    row,
    shift,
    twins,
    heads,
    order,
    edges,
    rivals,
    margins,
    lengths,
    columns,
    numbers,
    lo,
    hi,
):
    n_values, n_samples = values.shape[1], len(lengths)
    sums32, sums = np.empty((3, _n_sums(n_samples)), np.float32), np.empty((1, _n_sums(n_samples)))
    width = _n_sums(n_samples)
    several32, several = np.empty((16, width), np.float32), np.empty((16, width))
    top32, top = np.empty((2, width), np.float32), np.empty((2, width))
    winner = np.empty(width, np.int32)
    most32, most = np.empty((3, n_samples), np.float32), np.empty((1, n_samples))
    summed = lo
    n_summed = 0
    silent = np.empty(sums.shape[1] + 1, np.int32)
    count, run = np.empty((1, n_samples), np.int32), np.empty((1, n_samples), np.int32)
    longest, first = np.empty((1, n_samples), np.int32), np.empty((1, n_samples), np.int32)
    last = np.empty((1, n_samples), np.int32)
    for bundle in range(lo, hi):
        members = order[edges[bundle] : edges[bundle + 1]]
        n = len(members)
        n_rivals = rivals[bundle]
        margin = margins[bundle]
        head = heads[bundle]
        tap, stop = starts[head], starts[head + 1]
        if n > len(count):
            count, run = np.empty((n, n_samples), np.int32), np.empty((n, n_samples), np.int32)
            longest, first = np.empty((n, n_samples), np.int32), np.empty((n, n_samples), np.int32)
            last = np.empty((n, n_samples), np.int32)
        for k in range(n):
            for i in range(n_samples):
                count[k, i] = 0
                run[k, i] = 0
                longest[k, i] = 0
                first[k, i] = 0
                last[k, i] = 0
        needs_all = False
        needs_largest = False
        needs_last = False
        needs_order = False
        for k in range(n):
            own = members[k]
            needs_order |= max(columns[own, _BURST], columns[own, _FIRST]) >= 0
            needs_all |= max(columns[own, _MEAN], columns[own, _ROOT]) >= 0
            needs_largest |= columns[own, _EVER] >= 0
            needs_last |= columns[own, _LAST] >= 0
        needs_all |= needs_order
        if not (needs_all or needs_largest or needs_last):
            continue
        if n_rivals > 0:
            if n_rivals > len(several):
                several32, several = np.empty((n_rivals, width), np.float32), np.empty((n_rivals, width))
            for at in range(pad, n_values, width):
                here = min(width, n_values - at)
                won, has_sums = winner[:here], False
                if margin < np.inf:
                    _sum_rivals(
                        values32, at, starts, row, shift, weight32, twins, level32, members, head, n_rivals, several32
                    )
                # The largest sums of the group, and the smallest, which are the largest of the group that mirrors it.
                for begin in range(0, n, n_rivals):
                    sign = 1 if begin == 0 else -1
                    n_close = 1
                    margin32 = np.float32(2 * margin)
                    if margin < np.inf:
                        sign32 = np.float32(sign)
                        n_close = _find_winners(several32, n_rivals, sign32, margin32, top32, won)
                    if margin > 0 and 0 < n_close <= 32 and margin < np.inf:
                        for i in range(here):
                            if top32[0, i] - top32[1, i] <= margin32:
                                won[i] = _winner_at(values, at + i, starts, row, shift, weight, head, n_rivals, sign)
                    elif margin > 0 and n_close > 0:
                        if not has_sums:
                            _sum_rivals(
                                values, at, starts, row, shift, weight, twins, level, members, head, n_rivals, several
                            )
                            has_sums = True
                        _find_winners(several, n_rivals, np.float64(sign), 0.0, top, won)
                    _count_wins(
                        won,
                        (at - pad) // n_samples,
                        lengths,
                        begin,
                        n_rivals,
                        needs_order,
                        count,
                        run,
                        longest,
                        first,
                        last,
                    )
        else:
            if needs_last:
                for i in range(n_samples):
                    total = _sum_at(values, pad + (lengths[i] - 1) * n_samples + i, tap, stop, row, shift, weight)
                    for k in range(n):
                        last[k, i] = total >= level[members[k]]
            if needs_all:
                if margin == 0:
                    _count_levels(
                        values32,
                        pad,
                        tap,
                        stop,
                        row,
                        shift,
                        weight32,
                        level32,
                        members,
                        lengths,
                        columns,
                        sums32[0],
                        silent,
                        count,
                        run,
                        longest,
                        first,
                    )
                else:
                    _count_levels(
                        values,
                        pad,
                        tap,
                        stop,
                        row,
                        shift,
                        weight,
                        level,
                        members,
                        lengths,
                        columns,
                        sums[0],
                        silent,
                        count,
                        run,
                        longest,
                        first,
                    )
            elif needs_largest:
                n_close = n_samples if margin == np.inf else 0
                if margin < np.inf:
                    if bundle >= summed + n_summed:
                        are_three = bundle + 2 < hi and twins[head] and twins[head + 1] and rivals[bundle + 2] == 0
                        summed, n_summed = bundle, 3 if are_three else 1
                        _largest_sums(values32, pad, tap, stop, row, shift, weight32, lengths, sums32, most32, n_summed)
                    at = bundle - summed
                    for k in range(n):
                        least = level[members[k]]
                        for i in range(n_samples):
                            distance = most32[at, i] - least  # in float64
                            count[k, i] = distance >= 0
                            n_close += abs(distance) <= margin
                if margin > 0 and n_close > 0:
                    _largest_sums(values, pad, tap, stop, row, shift, weight, lengths, sums, most, 1)
                    for k in range(n):
                        least = level[members[k]]
                        for i in range(n_samples):
                            count[k, i] = most[0, i] >= least
        for k in range(n):
            for statistic in range(columns.shape[1]):
                written = columns[members[k], statistic]
                if written >= 0:
                    _write(numbers, written, statistic, k, count, longest, last, first, lengths)


@_compiled
def _write(numbers, written, statistic, k, count, longest, last, first, lengths):  # type: ignore[no-untyped-def]
    """Write a statistic of one neuron."""
    n_samples = numbers.shape[1]
    if statistic == _FIRST:
        for i in range(n_samples):
            numbers[written, i] = lengths[i] + 1 - first[k, i] if first[k, i] > 0 else 0
    elif statistic == _EVER:
        for i in range(n_samples):
            numbers[written, i] = count[k, i] > 0
    else:
        source = longest if statistic == _BURST else last if statistic == _LAST else count
        for i in range(n_samples):
            numbers[written, i] = source[k, i]


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
