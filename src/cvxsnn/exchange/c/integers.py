"""Membranes in fixed point and a read-out of whole numbers, for machines without floating-point numbers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from ...core.errors import InvalidInputError
from ...data.sequences import Sequences
from ...network import SpikingNetwork
from ...neurons import roll_out
from ...neurons.exact import INPUT_UNIT, snap_inputs
from .program import CLayer, Floats, Integers, Program, Taps

LONGEST = 2**16 - 1
"""Number of steps up to which no score overflows."""

_BITS_OF_DECAY = 30
_BITS_OF_MEMBRANE = 29
"""Bits of the largest membrane on the data, without its sign; a membrane has 31, so four times as much is left."""

_ROOT_BITS = 15
"""Bits of a square root after the point."""

_RAISED = (0, *(sign * 2**power for power in range(13) for sign in (1, -1)))
"""By how much biases are raised."""

_BLOCK = 2**24
"""Spikes that are compared at once."""


@dataclass(frozen=True, eq=False)
class FixedLayer:
    """Neurons with membranes, in the units of their membranes.

    Parameters
    ----------
    shift, recurrent_shift : arrays of shape (n_neurons,)
        By how many bits sums are shifted to the right.
    bias, threshold, decay, start : arrays of shape (n_neurons,)
        The parameters; the decay has 30 bits after the point, and ``start`` is the membrane before the first step.
        Recurrent neurons have a bias only.
    first : array of shape (n_neurons,), dtype bool
        The spikes before the first step.
    is_strict : bool
        Whether a membrane of zero does not fire.
    """

    shift: Integers
    recurrent_shift: Integers | None
    bias: Integers
    threshold: Integers | None
    decay: Integers | None
    start: Integers | None
    first: npt.NDArray[np.bool_]
    is_strict: bool

    def take(self, neurons: Integers, raised: int) -> "FixedLayer":
        """Return some neurons with their biases raised."""
        values = {
            name: value if value is None or name == "is_strict" else value[neurons]
            for name, value in vars(self).items()
        }
        return replace(self, **values | {"bias": values["bias"] + raised})

    def run(self, sums: Integers, feedback: Integers | None) -> npt.NDArray[np.bool_]:
        """Return the spikes (n_steps, n_samples, n_neurons) for sums of the same shape, as in C."""
        drive = _scaled(sums, self.shift) + self.bias
        if self.decay is None or self.threshold is None or self.start is None:
            assert feedback is not None
            assert self.recurrent_shift is not None
            fires: npt.NDArray[np.bool_] = drive + _scaled(feedback, self.recurrent_shift) >= 0
            return fires
        spikes = np.empty(sums.shape, dtype=bool)
        membrane, spike = self.start, self.first
        for step in range(len(sums)):
            leaked = (membrane * self.decay + 2 ** (_BITS_OF_DECAY - 1)) >> _BITS_OF_DECAY
            membrane = np.clip(leaked + drive[step] - spike * self.threshold, 1 - 2**31, 2**31 - 1)
            spike = spikes[step] = membrane > 0 if self.is_strict else membrane >= 0
        return spikes


@dataclass(frozen=True, eq=False)
class IntegerModel:
    """A program in whole numbers.

    Parameters
    ----------
    layers : tuple of FixedLayer or None
        The parameters of each layer that has membranes.
    weight, intercept : arrays of shape (n_columns, n_outputs) and (n_outputs,)
        The read-out.
    unit : float
        The unit of a score; divided by the number of steps if ``has_shares``.
    has_shares : bool
        Whether a statistic is divided by the number of steps.
    root_bits : int
        Bits of entries after the point.
    """

    layers: tuple[FixedLayer | None, ...]
    weight: Integers
    intercept: Integers
    unit: float
    has_shares: bool
    root_bits: int

    def scores(self, program: Program, features: torch.Tensor, n_steps: Integers) -> Integers:
        """Return the whole scores of sequences from ``network.features`` and their numbers of steps."""
        steps = n_steps[:, None]
        scores = self.intercept * (steps if self.has_shares else 1)
        for segment in program.segments:
            columns = slice(segment.first, segment.last)
            entries = features[:, program.columns[columns]].numpy()
            if segment.statistic == "root":
                whole = np.rint(entries**2 * steps).astype(np.int64) * steps << 2 * self.root_bits
                roots = np.sqrt(whole.astype(np.float64)).astype(np.int64)
                numbers = roots - (roots * roots > whole) + ((roots + 1) ** 2 <= whole)
            elif segment.statistic in ("ever", "last"):
                numbers = entries.astype(np.int64) * (steps if self.has_shares else 1) << self.root_bits
            else:
                numbers = np.rint(entries * steps).astype(np.int64) << self.root_bits
            scores = scores + numbers @ self.weight[columns]
        return scores


def in_integers(network: SpikingNetwork, program: Program, sequences: Sequences) -> tuple[Program, IntegerModel]:
    """Return a program in whole numbers whose spikes on some sequences are those of the network.

    Parameters
    ----------
    network : SpikingNetwork
        The network.
    program : Program
        Its program.
    sequences : Sequences
        Sequences as the network reads them.

    Returns
    -------
    program : Program
        The program, with a limit of inputs below which nothing overflows.
    whole : IntegerModel
        Its parameters as whole numbers.
    """
    largest = float(sequences.inputs.abs().max())
    if largest / INPUT_UNIT > 2**31 - 1:
        raise InvalidInputError(
            f"expected inputs up to {2**15:,}, which fit into 32 bits, got {largest:.6g}: scale them, or export "
            "without integers"
        )
    layers: list[FixedLayer | None] = []
    changed = 0
    for depth, layer in enumerate(program.layers):
        if not (layer.has("membrane") or layer.has("recurrent")):
            layers.append(None)
            continue
        fixed, n_changed = _settle(network, program, depth, sequences)
        layers.append(fixed)
        changed += n_changed
        shifted = int((layer.taps.levels[_dynamic(layer)] << np.maximum(0, -fixed.shift)).max())
        program = replace(program, largest=min(program.largest, 2**62 // max(1, shifted))) if depth == 0 else program
    if changed:
        raise InvalidInputError(
            f"expected the same spikes with membranes of 32 bits, got {changed:,} that differ on X: export without "
            "integers"
        )
    return program, _whole_readout(program, tuple(layers))


def _settle(network: SpikingNetwork, program: Program, depth: int, sequences: Sequences) -> tuple[FixedLayer, int]:
    """Return the neurons of a layer in fixed point, and how many of their spikes differ.

    Levels are often taken from the data, so membranes of exactly zero are common, which fixed point rounds up or down.
    The biases of neurons that would differ are raised or lowered by as little as possible.
    """
    layer = program.layers[depth]
    fixed = _fix(layer, _largest_membranes(network, program, depth, sequences))
    everyone = np.arange(len(fixed.bias))

    def n_changed(neurons: Integers, raised: tuple[int, ...]) -> Integers:
        changed = np.zeros((len(raised), len(neurons)), dtype=np.int64)
        for sums, feedback, spikes, inside in _blocks(network, program, depth, sequences) if len(neurons) else ():
            own = None if feedback is None else feedback[..., neurons]
            for trial, change in zip(changed, raised, strict=True):
                differs = fixed.take(neurons, change).run(sums[..., neurons], own) != spikes[..., neurons]
                trial += (differs & inside).sum((0, 1))
        return changed

    wrong = np.flatnonzero(n_changed(everyone, (0,))[0])
    changed = n_changed(wrong, _RAISED)
    fixed.bias[wrong] += np.array(_RAISED)[changed.argmin(0)]
    return fixed, int(changed.min(0).sum())


def _whole_readout(program: Program, layers: tuple[FixedLayer | None, ...]) -> IntegerModel:
    statistics = {segment.statistic for segment in program.segments}
    has_shares = not statistics <= {"ever", "last"}
    root_bits = _ROOT_BITS if "root" in statistics else 0
    longest = (program.n_steps + program.n_windows or LONGEST) if has_shares else 1
    weight, intercept = abs(program.weight), abs(program.intercept)
    largest = max(weight.max(), intercept.max(), np.finfo(np.float64).tiny)
    total = max((weight.sum(0) + intercept).max(), largest)
    unit = max(largest / (2**31 - 1), total * longest * 2.0 ** (root_bits - 61))
    return IntegerModel(
        layers=layers,
        weight=np.rint(program.weight / unit).astype(np.int64),
        intercept=np.rint(program.intercept / unit).astype(np.int64) << root_bits,
        unit=unit / 2**root_bits,
        has_shares=has_shares,
        root_bits=root_bits,
    )


def _dynamic(layer: CLayer) -> slice:
    """Return the neurons of a layer that have membranes."""
    (block,) = (block for block in layer.blocks if block.kind in ("membrane", "recurrent"))
    return slice(block.first, block.last)


def _blocks(
    network: SpikingNetwork, program: Program, depth: int, sequences: Sequences
) -> Iterator[tuple[Integers, Integers | None, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]]:
    """Yield sums, sums of feedback and spikes (n_steps, n_samples, n_neurons), and which steps count."""
    layer, stack = program.layers[depth], [layer.to("cpu") for layer in network.layers]
    mine = _dynamic(layer)
    width = max(each.n_subnetworks * each.width for each in stack)
    for rows in torch.split(torch.arange(len(sequences)), max(1, _BLOCK // (sequences.n_steps * width))):
        part = sequences.take(rows)
        if depth == 0:
            values = (snap_inputs(part.inputs) / INPUT_UNIT).to(torch.int64)[..., layer.rows[:, 1]]
        else:
            values = roll_out(stack[:depth], part, "all")[..., program.layers[depth - 1].neurons].to(torch.int64)
        read = values.transpose(0, 1).numpy()
        spikes = roll_out(stack[: depth + 1], part, "all")[..., layer.neurons].transpose(0, 1).numpy()
        feedback = None
        if layer.recurrent is not None:
            start = np.broadcast_to(layer.parameter("initial_spikes") != 0, spikes[:1].shape)
            feedback = _sums(layer.recurrent, np.concatenate((start, spikes[:-1])).astype(np.int64), mine)
        mask = part.is_inside()
        inside = np.ones(spikes.shape[:2], dtype=bool) if mask is None else mask.T.numpy()
        yield _sums(layer.taps, read, mine), feedback, spikes[..., mine], inside[..., None]


def _sums(taps: Taps, values: Integers, neurons: slice) -> Integers:
    """Return the sums of some neurons over values (n_steps, n_samples, n_rows)."""
    n_steps, n_samples, n_rows = values.shape
    sums = np.zeros((n_steps, n_samples, neurons.stop - neurons.start), dtype=np.int64)
    for place, neuron in enumerate(range(neurons.start, neurons.stop)):
        for tap in range(taps.start[neuron], taps.start[neuron + 1]):
            delay, row = divmod(int(taps.place[tap]), n_rows)
            sums[delay:, :, place] += taps.weight[tap] * values[: max(0, n_steps - delay), :, row]
    return sums


def _largest_membranes(network: SpikingNetwork, program: Program, depth: int, sequences: Sequences) -> Floats:
    """Return the largest absolute membrane of each neuron on the sequences, about."""
    layer = program.layers[depth]
    mine = _dynamic(layer)
    bias = layer.parameter("bias")[mine]
    largest = np.zeros(len(bias))
    for sums, feedback, spikes, inside in _blocks(network, program, depth, sequences):
        drive = sums * layer.taps.unit[mine] + bias
        if feedback is not None:
            assert layer.recurrent is not None
            largest = np.maximum(largest, abs((drive + feedback * layer.recurrent.unit[mine]) * inside).max((0, 1)))
            continue
        decay, threshold = (layer.parameter(name)[mine] for name in ("decay", "threshold"))
        membrane = np.broadcast_to(layer.parameter("initial_membrane")[mine], drive[0].shape)
        before = np.broadcast_to(layer.parameter("initial_spikes")[mine], drive[0].shape)
        for step in range(len(drive)):
            membrane = membrane * decay + drive[step] - before * threshold
            before = spikes[step]
            largest = np.maximum(largest, abs(membrane * inside[step]).max(0))
    return largest


def _fix(layer: CLayer, largest: Floats) -> FixedLayer:
    """Return parameters in units of which the largest membrane has a given number."""
    mine = _dynamic(layer)
    exponent = np.frexp(np.where(largest > 0, largest, 1.0))[1] - _BITS_OF_MEMBRANE
    unit = np.ldexp(1.0, exponent)

    def shift(taps: Taps) -> Integers:
        bits = exponent - (np.frexp(taps.unit[mine])[1] - 1)
        # Sums that are shifted to the left must not overflow.
        room = 61 - np.frexp(taps.levels[mine].astype(np.float64))[1]
        shifts: Integers = np.clip(bits, -room, 62)
        return shifts

    def fixed(values: Floats) -> Integers:
        numbers: Integers = np.clip(np.rint(values / unit), 1 - 2**31, 2**31 - 1).astype(np.int64)
        return numbers

    bias = fixed(layer.parameter("bias")[mine])
    first = layer.parameter("initial_spikes")[mine] != 0
    if layer.recurrent is not None:
        shifts = shift(layer.taps), shift(layer.recurrent)
        return FixedLayer(*shifts, bias, None, None, None, first, is_strict=False)
    decay = np.rint(layer.parameter("decay")[mine] * 2**_BITS_OF_DECAY).astype(np.int64)
    threshold = fixed(layer.parameter("threshold")[mine])
    start = fixed(layer.parameter("initial_membrane")[mine])
    is_strict = getattr(layer.layer, "tie", "ge") == "gt"
    return FixedLayer(shift(layer.taps), None, bias, threshold, decay, start, first, is_strict)


def _scaled(sums: Integers, shift: Integers) -> Integers:
    """Return sums shifted to the right and rounded to the nearest, or shifted to the left."""
    right = np.maximum(shift, 0)
    scaled: Integers = ((sums << np.maximum(-shift, 0)) + (1 << right >> 1)) >> right
    return scaled
