r"""A network as tables of whole numbers, from which the C source is written.

Weights are whole multiples of a power of two per neuron, inputs of :data:`~cvxsnn.neurons.exact.INPUT_UNIT`, so drives
are whole numbers, too. A neuron without memory fires where this number reaches a level, which is found here by the
arithmetic of the layer; no floating-point number is left in it. Only membranes that leak remain floating-point numbers.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...core.checks import check_positive_int
from ...core.errors import InvalidInputError
from ...dictionary.base import parse_readout
from ...network import SpikingNetwork
from ...neurons import HiddenLayer, LIFLayer, ThresholdLayer
from ...neurons.exact import INPUT_UNIT, weight_unit
from ...neurons.lateral import LateralLayer
from ...neurons.layer import with_taps
from ...neurons.statistics import Statistic

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Kind = Literal["level", "group", "membrane", "recurrent"]

_EXACT_SUM = 2**62
"""Sums in C stay below this number, whatever the inputs."""

_LARGEST_INPUT = 2**51
"""Largest input in its unit: up to here, adding and subtracting 1.5 · 2^52 rounds to whole numbers."""

_COLUMN_ORDER: tuple[Statistic, ...] = ("mean", "root", "ever", "burst", "first", "last")


@dataclass(frozen=True, eq=False)
class Taps:
    """What some neurons read, neuron after neuron.

    Parameters
    ----------
    start : array of shape (n_neurons + 1,)
        The first tap of each neuron, and the end.
    place : array of shape (n_taps,)
        Where a tap reads: ``delay * n_rows + row``.
    weight : array of shape (n_taps,)
        The weight in the unit of the neuron.
    unit : array of shape (n_neurons,), float64
        The unit of the neuron's sum: a power of two.
    """

    start: Integers
    place: Integers
    weight: Integers
    unit: Floats

    @property
    def levels(self) -> Integers:
        """Sums of the absolute weights of the neurons."""
        ends = np.r_[0, np.cumsum(abs(self.weight))]
        levels: Integers = ends[self.start[1:]] - ends[self.start[:-1]]
        return levels


@dataclass(frozen=True)
class Block:
    """Neurons of a layer from ``first`` to before ``last`` that follow one equation.

    Those that are not ``is_lazy`` are computed in every step. Lazy ones have no memory and are read at the last step
    alone: they are computed when scores are asked for.
    """

    kind: Kind
    is_lazy: bool
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class CLayer:
    """One layer, without the neurons on which no score depends.

    Parameters
    ----------
    neurons : array of shape (n_neurons,)
        The neurons, ``subnetwork * width + neuron``, in the order of the blocks.
    blocks : tuple of Block
        The equations.
    rows : array of shape (n_rows, 2)
        The values of a step that are read: number of the view and of the input. Of a layer above others the second
        number is the place of the neuron below.
    depth : int
        Number of steps that are kept of these values.
    taps : Taps
        What the neurons read.
    recurrent : Taps or None
        What neurons read of their own layer, one step late.
    level : array of shape (n_neurons,)
        The sum from which a neuron without memory fires.
    group_ends : array
        The last neuron, plus one, of each group.
    shift : array of shape (n_neurons,)
        The power of two by which sums of a group are multiplied to have one unit.
    layer : HiddenLayer
        The layer itself.
    """

    neurons: Integers
    blocks: tuple[Block, ...]
    rows: Integers
    depth: int
    taps: Taps
    recurrent: Taps | None
    level: Integers
    group_ends: Integers
    shift: Integers
    layer: HiddenLayer

    @property
    def n_rows(self) -> int:
        """Number of values of a step that are read."""
        return len(self.rows)

    def parameter(self, name: str) -> Floats:
        """Return a parameter of the neurons."""
        values: Floats = getattr(self.layer, name).flatten().double().numpy()[self.neurons]
        return values

    def has(self, kind: Kind) -> bool:
        """Return whether any neurons are of a kind."""
        return any(block.kind == kind for block in self.blocks)

    def n_taps(self, *, is_lazy: bool) -> int:
        """Return the number of taps that are read in every step, or when scores are asked for."""
        total = sum(
            self.taps.start[block.last] - self.taps.start[block.first]
            for block in self.blocks
            if block.is_lazy == is_lazy
        )
        return int(total + (0 if self.recurrent is None or is_lazy else len(self.recurrent.place)))


@dataclass(frozen=True)
class Segment:
    """Columns of the read-out from ``first`` to before ``last`` that are entries of one statistic."""

    statistic: Statistic
    is_lazy: bool
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Program:
    """A network as it is written.

    Parameters
    ----------
    layers : tuple of CLayer
        The layers, from the inputs up.
    views : tuple of str
        The views of the inputs that rows of the first layer have.
    columns : array of shape (n_columns,)
        The columns of ``network.features`` in the order in which they are added up.
    places : array of shape (n_columns,)
        The neuron of each column, as a place in the last layer.
    segments : tuple of Segment
        The statistics of the columns.
    windows : array of shape (n_columns,) or None
        The window of each column.
    n_windows, n_steps : int
        Number of windows, and of the steps of a sequence; 0 if there are no windows.
    weight, intercept : arrays of shape (n_columns, n_outputs) and (n_outputs,)
        The read-out.
    largest : int
        The largest input, in its unit.
    size : float
        Sum of the absolute weights and of the intercept, of the largest output.
    """

    layers: tuple[CLayer, ...]
    views: tuple[str, ...]
    columns: Integers
    places: Integers
    segments: tuple[Segment, ...]
    windows: Integers | None
    n_windows: int
    n_steps: int
    weight: Floats
    intercept: Floats
    largest: int
    size: float

    def scores(self, features: Tensor) -> Floats:
        """Return scores, summed in the order of the C source.

        Parameters
        ----------
        features : Tensor of shape (n_samples, n_read)
            What ``network.features`` returns.

        Returns
        -------
        array of shape (n_samples, n_outputs)
            The scores, to the last bit.
        """
        scores = np.tile(self.intercept, (len(features), 1))
        for column, weight in zip(self.columns, self.weight, strict=True):
            scores += features[:, column : column + 1].numpy() * weight
        return scores

    @property
    def tolerance(self) -> float:
        """Largest difference between scores in this order of the columns and in another."""
        # Each order errs by n rounded sums and products at most; entries are below two.
        return 4 * (len(self.weight) + 2) * 2.0**-53 * self.size


def compile_network(network: SpikingNetwork, n_steps: int | None = None) -> Program:
    """Return the tables of a network.

    Parameters
    ----------
    network : SpikingNetwork
        A network of LIF, threshold or lateral neurons.
    n_steps : int, optional
        Number of steps of all sequences; required for windows of time.

    Returns
    -------
    Program
        The tables.
    """
    parsed = parse_readout(network.readout)
    stack = [layer.to("cpu") for layer in network.layers]
    if parsed.kind != "mean" or parsed.n_windows == 1:
        n_steps = 0
    elif n_steps is None:
        raise InvalidInputError(
            f"expected the number of steps of all sequences for windows of time ({network.readout!r}), got none: pass "
            "n_steps"
        )
    else:
        n_steps = check_positive_int("n_steps", n_steps)
        parsed.check_length(n_steps)
    weight, intercept = (value.detach().cpu().numpy() for value in (network.weight, network.intercept))
    neurons = network.neurons.cpu().numpy()
    window = np.zeros_like(neurons) if network.windows_read is None else network.windows_read.cpu().numpy()
    names = parsed.statistics or ("mean" if parsed.kind == "mean" else "last",)
    statistic = np.array([_COLUMN_ORDER.index(name) for name in names])[window if parsed.statistics else 0 * window]
    columns = np.flatnonzero(weight.any(1)) if weight.any() else np.arange(1)
    read = _read_neurons(stack, neurons[columns])
    is_last = statistic == _COLUMN_ORDER.index("last")
    layers: list[CLayer] = []
    for layer, needed in zip(stack, read, strict=True):
        lazy = np.full(len(needed), layer is stack[-1])
        lazy[neurons[columns[~is_last[columns]]] if layer is stack[-1] else slice(0)] = False
        layers.append(_layer(layer, needed, lazy, layers[-1].neurons if layers else None))
    place = np.full(read[-1].shape, -1)
    place[layers[-1].neurons] = np.arange(len(layers[-1].neurons))
    lazy = np.zeros(len(layers[-1].neurons), dtype=bool)
    for block in layers[-1].blocks:
        lazy[block.first : block.last] = block.is_lazy
    order = np.lexsort((window[columns], place[neurons[columns]], lazy[place[neurons[columns]]], statistic[columns]))
    columns = columns[order]
    places = place[neurons[columns]]
    keys = zip(statistic[columns].tolist(), lazy[places].tolist(), strict=True)
    first = layers[0]
    largest = min(_LARGEST_INPUT, int(_EXACT_SUM // max(1, (first.taps.levels << first.shift).max())))
    return Program(
        layers=tuple(layers),
        views=stack[0].views if isinstance(stack[0], LateralLayer) else ("values",),
        columns=columns,
        places=places,
        segments=tuple(Segment(_COLUMN_ORDER[which], *rest) for (which, *rest) in runs(keys)),
        windows=window[columns] if n_steps else None,
        n_windows=parsed.n_windows if n_steps else 0,
        n_steps=n_steps,
        weight=weight[columns],
        intercept=intercept,
        largest=largest,
        size=float((abs(weight[columns]).sum(0) + abs(intercept)).max()),
    )


def runs(keys: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield each key that differs from the one before, where it begins, and where the next one does."""
    first = 0
    for key, same in groupby(keys):
        last = first + sum(1 for _ in same)
        yield *key, first, last
        first = last


def _read_neurons(stack: Sequence[HiddenLayer], neurons: Integers) -> list[npt.NDArray[np.bool_]]:
    """Return which neurons of each layer the scores depend on, of shape (n_subnetworks * width,)."""
    top = stack[-1]
    needed = torch.zeros(top.n_subnetworks * top.width, dtype=torch.bool)
    needed[torch.from_numpy(neurons)] = True
    read = []
    for depth, layer in reversed(list(enumerate(stack))):
        needed = layer.needed_by(needed.view(layer.n_subnetworks, layer.width))
        read.append(needed.flatten().numpy())
        if depth:
            taps = with_taps(layer, layer.n_taps)
            is_read = (taps.weight != 0) & needed[:, None]
            below = torch.zeros(layer.n_subnetworks, layer.n_inputs, dtype=torch.int64)
            below.scatter_add_(1, taps.source.flatten(1).long(), is_read.flatten(1).long())
            # A layer of which nothing is read still has its place.
            needed = below > 0 if bool(below.any()) else torch.arange(below.numel()).view(below.shape) == 0
    return read[::-1]


def _layer(
    layer: HiddenLayer, needed: npt.NDArray[np.bool_], lazy: npt.NDArray[np.bool_], below: Integers | None
) -> CLayer:
    """Return the tables of the needed neurons of a layer."""
    supported = (LIFLayer, ThresholdLayer, LateralLayer) if below is None else (LIFLayer, ThresholdLayer)
    if type(layer) not in supported:
        raise InvalidInputError(
            f"expected LIF or threshold neurons, or lateral neurons in the first layer, got {type(layer).__name__}: "
            "others are not exported; export_xylo and export_loihi write neurons of chips"
        )
    group = np.zeros(len(needed), dtype=np.int64)
    kind = np.array(["membrane"] * len(needed), dtype=object)
    if isinstance(layer, LateralLayer):
        group = layer.own_groups.flatten().numpy()
        kind[:] = np.where(group > 0, "group", "level")
        if bool(layer.bias[layer.group > 0].any()):
            raise InvalidInputError("expected groups of neurons without biases, got some: these are not exported")
    elif isinstance(layer, LIFLayer):
        kind[((layer.decay == 0) & (layer.threshold == 0)).flatten().numpy()] = "level"
    else:
        kind[:] = "level" if layer.recurrence is None or not bool(layer.recurrence.any()) else "recurrent"
    lazy = lazy & np.isin(kind, ("level", "group"))
    for number in np.unique(group[group > 0]):  # rivals are computed together
        lazy[group == number] = lazy[group == number].all()
    chosen = np.flatnonzero(needed)
    rank = np.array([get_args(Kind).index(each) for each in kind[chosen]])
    chosen = chosen[np.lexsort((chosen, group[chosen], rank, ~lazy[chosen]))]
    blocks = [Block(*values) for values in runs(zip(kind[chosen].tolist(), lazy[chosen].tolist(), strict=True))]
    taps, rows, depth = _taps(layer, chosen, below)
    ends = np.flatnonzero(np.diff(group[chosen], append=-1)) + 1
    is_group = group[chosen] > 0
    shift = np.zeros(len(chosen), dtype=np.int64)
    for number in np.unique(group[chosen][is_group]):
        mine = group[chosen] == number
        shift[mine] = np.log2(taps.unit[mine] / taps.unit[mine].min())
    bias = layer.bias.flatten().numpy()[chosen]
    is_strict = isinstance(layer, LIFLayer) and layer.tie == "gt"
    return CLayer(
        neurons=chosen,
        blocks=tuple(blocks),
        rows=rows,
        depth=depth,
        taps=taps,
        recurrent=_recurrence(layer, chosen) if "recurrent" in kind else None,
        level=_levels(taps.unit, bias, is_strict),
        group_ends=ends[is_group[ends - 1]],
        shift=shift,
        layer=layer,
    )


def _taps(layer: HiddenLayer, chosen: Integers, below: Integers | None) -> tuple[Taps, Integers, int]:
    """Return the taps of chosen neurons, the rows that they read, and for how many steps those are kept."""
    full = with_taps(layer, layer.n_taps)
    source, delay = (_per_neuron(value, chosen).astype(np.int64) for value in (full.source, full.delay))
    weight, unit = _whole(full.weight, full.weight_bits, chosen)
    is_read = weight != 0
    if below is None:
        unit = unit * INPUT_UNIT
        values = np.unique(source[is_read]) if is_read.any() else np.zeros(1, dtype=np.int64)
        rows = np.stack((values // layer.n_inputs, values % layer.n_inputs), axis=1)
        row = np.searchsorted(values, source).clip(max=len(values) - 1)
    else:
        rows = np.stack((np.zeros_like(below), np.arange(len(below))), axis=1)
        place = np.zeros(layer.n_subnetworks * layer.n_inputs, dtype=np.int64)
        place[below] = np.arange(len(below))
        row = place[source + (chosen // layer.width * layer.n_inputs)[:, None]]
    depth = 1 + int((delay * is_read).max())
    start = np.r_[0, is_read.sum(1).cumsum()]
    return Taps(start, (delay * len(rows) + row)[is_read], weight[is_read], unit), rows, depth


def _recurrence(layer: HiddenLayer, chosen: Integers) -> Taps:
    """Return what chosen neurons read of each other."""
    recurrent = layer.recurrence
    assert recurrent is not None
    width = layer.width
    place = np.full(layer.n_subnetworks * width, -1)
    place[chosen] = np.arange(len(chosen))
    weight, unit = _whole(recurrent, layer.weight_bits, chosen)
    source = place[(chosen // width * width)[:, None] + np.arange(width)]
    is_read = weight != 0
    return Taps(np.r_[0, is_read.sum(1).cumsum()], source[is_read], weight[is_read], unit)


def _per_neuron(value: Tensor, chosen: Integers) -> npt.NDArray[Any]:
    """Return a value per tap, (n_subnetworks, n_taps, width), as rows of chosen neurons."""
    rows: npt.NDArray[Any] = value.transpose(1, 2).flatten(0, 1).numpy()[chosen]
    return rows


def _whole(weight: Tensor, weight_bits: int, chosen: Integers) -> tuple[Integers, Floats]:
    """Return the weights of chosen neurons as whole numbers, and the largest units in which they are."""
    units = weight_unit(weight, weight_bits)
    weights, unit = (_per_neuron(value, chosen).astype(np.float64) for value in (weight, units))
    numbers = np.rint(weights / unit).astype(np.int64)
    lowest = np.bitwise_or.reduce(numbers, axis=1, keepdims=True)
    lowest = np.where(lowest == 0, 1, lowest & -lowest)
    return numbers // lowest, (unit * lowest)[:, 0]


def _levels(unit: Floats, bias: npt.NDArray[Any], is_strict: bool) -> Integers:
    """Return the least sum at which each neuron without memory fires, in the arithmetic of the layer.

    A layer rounds the exact sum to its type, then adds the bias. Both operations keep the order of sums, so the least
    sum that fires is found by bisection.
    """

    def fires(number: Integers) -> npt.NDArray[np.bool_]:
        membrane = (number.astype(np.float64) * unit).astype(bias.dtype) + bias
        result: npt.NDArray[np.bool_] = membrane > 0 if is_strict else membrane >= 0
        return result

    silent = np.full(len(unit), -_EXACT_SUM)
    firing = np.full(len(unit), _EXACT_SUM)  # beyond all sums
    while (firing > silent + 1).any():
        middle = (silent + firing) // 2
        reached = fires(middle)
        firing, silent = np.where(reached, middle, firing), np.where(reached, silent, middle)
    return firing
