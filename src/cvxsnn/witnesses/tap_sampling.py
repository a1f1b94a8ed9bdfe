"""Drawing one layer of neurons with synaptic delays: where taps are, what they weigh, and at which level neurons fire.

Inside this file, the neurons of all subnetworks are rows, subnetwork by subnetwork.
"""

import hashlib
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..core.errors import InvalidInputError
from ..core.memory import check_fits
from ..core.seeds import child_generator
from ..data.sequences import Sequences, similar_lengths
from ..neurons import HiddenLayer, roll_out
from ..neurons.exact import snap_inputs
from ..neurons.tap_kernel import TapTable, in_threads, integrate_taps
from ..neurons.taps import last_window

Geometry = Literal["scattered", "box", "dilated", "correlated"]
Weights = Literal["gaussian", "centred", "two-valued", "differences"]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

N_CALIBRATION = 256
"""Default number of training sequences from which firing levels and weights are taken."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """Training sequences from which firing levels, weights and correlations are taken, on the host and on their grid.

    Parameters
    ----------
    sequences : Sequences
        The sequences.
    """

    sequences: Sequences

    @classmethod
    def of(cls, sequences: Sequences, n_calibration: int, seed: int) -> "Calibration":
        """Return a seeded subset of at most ``n_calibration`` sequences, in their order."""
        chosen = np.arange(sequences.n_samples)
        if sequences.n_samples > n_calibration:
            generator = child_generator(seed, "delayed", "calibration")
            chosen = np.sort(generator.choice(sequences.n_samples, n_calibration, replace=False))
        subset = sequences.take(torch.from_numpy(chosen).to(sequences.device)).to("cpu")
        return cls(Sequences(snap_inputs(subset.inputs), subset.lengths))

    @cached_property
    def lengths(self) -> Integers:
        """Number of steps of each sequence."""
        given = self.sequences.lengths
        return np.full(len(self.sequences), self.sequences.n_steps) if given is None else given.numpy()

    @cached_property
    def values(self) -> Tensor:
        """The inputs, (n_steps, n_features, n_samples)."""
        return _time_major(self.sequences.inputs)

    @cached_property
    def digest(self) -> str:
        """A digest that witnesses record, to recognise the sequences that they were drawn from."""
        digest, inputs, inside = hashlib.sha256(), self.sequences.inputs, self.sequences.is_inside()
        digest.update(repr(tuple(inputs.shape)).encode())
        values = inputs if inside is None else inputs.masked_fill(~inside[:, :, None], 0)
        digest.update(np.ascontiguousarray(values.double().numpy() + 0.0).tobytes())  # + 0.0 turns -0.0 into 0.0
        digest.update(np.ascontiguousarray(self.lengths).tobytes())
        return digest.hexdigest()

    def values_above(self, layers: list[HiddenLayer]) -> Tensor:
        """Return what a layer above others reads, (n_steps, n_rows, n_samples): the inputs, or spikes."""
        return _time_major(roll_out(layers, self.sequences, "all")) if layers else self.values


def _time_major(block: Tensor) -> Tensor:
    return block.permute(1, 2, 0).to(torch.float64).contiguous()


def has_variation(sequences: Sequences) -> bool:
    """Return whether firing levels and weights can be taken from sequences: there are several, and they vary."""
    inside = sequences.is_inside()
    values = sequences.inputs if inside is None else sequences.inputs[inside]
    return sequences.n_samples > 1 and bool((values != values.flatten()[0]).any())


def log_calibration(n_sequences: int, n_calibration: int = N_CALIBRATION) -> None:
    """Log if firing levels and weights are taken from a subset."""
    if n_sequences > n_calibration:
        message = "thresholds and weights are taken from %d of %d samples"
        logging.getLogger("cvxsnn").info(message, n_calibration, n_sequences)


@dataclass(frozen=True)
class LayerPlan:
    """The settings of one layer, as :class:`cvxsnn.witnesses.Delayed` describes them."""

    geometry: Geometry
    fan_in: int | None
    max_delay: int
    box: tuple[int, ...] | None
    feature_shape: tuple[int, ...] | None
    period: int | None
    neighbours: int | None
    weights: Weights
    is_differenced: bool
    quantiles: tuple[float, float] | None
    is_last: bool

    @property
    def needs_values(self) -> bool:
        """Whether the values of training sequences matter, and not only their shape."""
        return self.quantiles is not None or self.weights == "differences" or self.geometry == "correlated"


class TapSampler:
    """Draws the taps of one layer.

    Parameters
    ----------
    plan : LayerPlan
        The settings of the layer.
    shape : tuple of int
        Number of subnetworks, and neurons per subnetwork.
    calibration : Calibration
        Training sequences.
    values : Tensor of shape (n_steps, n_rows, n_samples)
        What the layer reads there: the inputs, or the spikes below, subnetwork by subnetwork.
    n_inputs : int
        Number of values that a subnetwork reads per step.
    generator : function
        Returns the random stream of a named property of the layer.
    """

    block_bytes = 2**28
    """Size of the membranes that are held at once."""

    def __init__(
        self,
        plan: LayerPlan,
        shape: tuple[int, int],
        calibration: Calibration,
        values: Tensor,
        n_inputs: int,
        generator: Callable[[str], np.random.Generator],
    ) -> None:
        self.plan, self.n_inputs, self.generator = plan, n_inputs, generator
        (self.n_subnetworks, self.width), self.n_neurons = shape, math.prod(shape)
        self.values, self.lengths, self.n_samples = values, calibration.lengths, len(calibration.sequences)
        self.max_delay = plan.max_delay - int(plan.is_differenced)

    def by_layer(self, value: npt.NDArray[Any]) -> Tensor:
        """Return rows, one per neuron, in the shape of a layer's parameters."""
        rows = torch.from_numpy(np.ascontiguousarray(value))
        return rows.view(self.n_subnetworks, self.width, *value.shape[1:]).movedim(1, -1)

    def taps(self) -> tuple[Integers, Integers, Floats]:
        """Return the source, the delay and the weight of all taps, (n_neurons, n_taps) each."""
        source, delay = GEOMETRIES[self.plan.geometry](self)
        weight = self._weights(source, delay)
        if self.plan.is_differenced:
            source, delay = np.concatenate((source, source), axis=1), np.concatenate((delay, delay + 1), axis=1)
            weight = np.concatenate((weight, -weight), axis=1)
        return source, delay, weight

    def _weights(self, source: Integers, delay: Integers) -> Floats:
        generator, (n_neurons, n_taps), kind = self.generator("weight"), source.shape, self.plan.weights
        if kind == "two-valued":
            order = generator.random((n_neurons, n_taps)).argsort(axis=1)
            return np.where(order < max(1, round(n_taps / 3)), 2.0, -1.0)
        normal = generator.standard_normal((n_neurons, n_taps), dtype=np.float32).astype(np.float64)
        if kind == "centred":
            if n_taps == 1:
                raise InvalidInputError(
                    "expected at least 2 taps for centred weights, which sum to zero, got 1: pass other weights, a "
                    "larger fan_in or a larger max_delay"
                )
            normal -= normal.mean(axis=1, keepdims=True)
        if kind == "differences":
            difference = self._differences(generator, source, delay)
            differs = difference.any(axis=1)  # two equal windows give no weights: those stay Gaussian
            normal[differs] = difference[differs]
            return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True))
        return np.asarray(normal / math.sqrt(n_taps))

    def _differences(self, generator: np.random.Generator, source: Integers, delay: Integers) -> Floats:
        """Return what the taps read in one training sequence minus what they read in another.

        Both are read at the same random step, or each at its last.
        """
        pairs = generator.integers(self.n_samples, size=(2, self.n_neurons))
        random_step = (generator.random(self.n_neurons) * self.lengths[pairs].min(axis=0)).astype(np.int64)
        # Above the first layer, each subnetwork reads its own rows of values.
        offset = np.arange(self.n_neurons) // self.width * self.n_inputs * (not self._is_shared)
        row, values = source + offset[:, None], self.values.numpy()

        def read(step: Integers, sample: Integers) -> Floats:
            return np.asarray(np.where(step >= 0, values[np.maximum(step, 0), row, sample[:, None]], 0.0))

        def changes(sample: Integers) -> Floats:
            step = (self.lengths[sample] - 1 if self.plan.is_last else random_step)[:, None] - delay
            return read(step, sample) - (read(step - 1, sample) if self.plan.is_differenced else 0.0)

        return np.asarray(changes(pairs[0]) - changes(pairs[1]))

    def windows(self) -> Floats:
        """Return what taps can read at one step of each sequence: a column for each delay and input, in this order."""
        lengths = torch.from_numpy(self.lengths)
        if not self.plan.is_last:
            lengths = 1 + (torch.from_numpy(self.generator("windows").random(len(lengths))) * lengths).long()
        window = last_window(self.values.transpose(1, 2), self.max_delay, lengths)[0]
        # The oldest values come first in a window.
        return np.asfortranarray(window.view(len(lengths), -1, self.n_inputs).flip(1).flatten(1).numpy())

    @property
    def _is_shared(self) -> bool:
        """Whether all subnetworks read the same values."""
        return self.values.shape[1] == self.n_inputs

    def levels(self, layer: HiddenLayer, decay: Floats) -> tuple[Floats, Floats]:
        """Return a random quantile of each neuron's membrane when it never fires, and the membrane's deviation."""
        assert self.plan.quantiles is not None
        generator, n_membranes = self.generator("quantile"), 1024  # quantiles of more values differ little
        quantile = generator.uniform(*self.plan.quantiles, size=self.n_neurons)
        # Long sequences have many steps, so fewer of them are enough, but from at least 32.
        n_wanted = n_membranes if self.plan.is_last else math.ceil(4 * n_membranes / self.lengths.mean())
        n_chosen = min(self.n_samples, max(32, n_wanted))
        samples = np.sort(generator.choice(self.n_samples, n_chosen, replace=False))
        step, last = np.arange(len(self.values))[:, None], self.lengths[samples] - 1
        places = np.flatnonzero(step == last if self.plan.is_last else step <= last)
        if len(places) > n_membranes:
            places = np.sort(generator.choice(places, n_membranes, replace=False))
        rank = np.minimum((quantile * len(places)).astype(np.int64), len(places) - 1)
        chosen = torch.from_numpy(samples)
        looks = [(self.values[:, :, chosen], torch.from_numpy(places))]
        if decay.any():  # then all steps before a place matter, but no padding
            looks = [_look(*looks[0], group) for group in similar_lengths(torch.from_numpy(self.lengths)[chosen])]
        level, spread = np.empty(self.n_neurons), np.empty(self.n_neurons)
        n_taken = max(1, self.block_bytes // (8 * len(places) * self.width))
        for k in range(0, self.n_subnetworks, n_taken):
            part = layer.take(slice(k, min(k + n_taken, self.n_subnetworks)))
            read = slice(0, None) if self._is_shared else slice(k * self.n_inputs, (k + n_taken) * self.n_inputs)
            table = TapTable.of(part, torch.float64, inputs_are_shared=self._is_shared)
            rows = slice(k * self.width, (k + part.n_subnetworks) * self.width)
            leak = torch.from_numpy(decay[rows])
            membranes = [integrate_taps(table, values[:, read], leak, seen) for values, seen in looks if len(seen)]
            level[rows], spread[rows] = _order_statistics(membranes, rank[rows])
        return level, spread


def _order_statistics(membranes: list[Tensor], rank: Integers) -> tuple[Floats, Floats]:
    """Return the value of each row that has the given rank, and the standard deviation of each row."""
    values = (membranes[0] if len(membranes) == 1 else torch.cat(membranes, dim=1)).numpy()
    spread = np.empty(len(values))

    def sort(first: int, last: int) -> None:
        values[first:last].sort(axis=1)
        # The deviation is that of sorted values: its last bit depends on their order.
        spread[first:last] = values[first:last].std(axis=1)

    in_threads(sort, len(values), 4 * values.size)
    return np.take_along_axis(values, rank[:, None], axis=1)[:, 0], spread


def _look(values: Tensor, places: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
    """Return what some of the sequences read up to the last of their places, and these places among them."""
    n_samples = values.shape[2]
    number = torch.full((n_samples,), -1).index_put_((group,), torch.arange(len(group)))[places % n_samples]
    step, number = (places // n_samples)[number >= 0], number[number >= 0]
    n_steps = int(step[-1]) + 1 if len(step) else 0
    return values[:n_steps, :, group], step * len(group) + number


def _scattered(sampler: TapSampler) -> tuple[Integers, Integers]:
    n_places = (sampler.max_delay + 1) * sampler.n_inputs
    n_taps = min(sampler.plan.fan_in or n_places, n_places)
    place = _distinct(sampler.generator("taps"), n_places, (sampler.n_neurons, n_taps))
    return place % sampler.n_inputs, place // sampler.n_inputs


def _box(sampler: TapSampler) -> tuple[Integers, Integers]:
    generator, plan = sampler.generator("taps"), sampler.plan
    delays = _delay_grid(sampler)
    shape = (*delays, *(plan.feature_shape or (sampler.n_inputs,)))
    size = [min(wanted, most) for wanted, most in zip(plan.box or (8,) * len(shape), shape, strict=True)]
    corner = [generator.integers(most - n + 1, size=sampler.n_neurons) for n, most in zip(size, shape, strict=True)]
    n_places = math.prod(size)
    n_taps = min(plan.fan_in or n_places, n_places)
    inside = np.unravel_index(_distinct(generator, n_places, (sampler.n_neurons, n_taps)), size)
    place = [start[:, None] + offset for start, offset in zip(corner, inside, strict=True)]
    n = len(delays)
    return np.ravel_multi_index(place[n:], shape[n:]), np.ravel_multi_index(place[:n], delays)


def _delay_grid(sampler: TapSampler) -> tuple[int, ...]:
    """Return the number of delays, or of whole periods and steps in each."""
    n_delays, period = sampler.max_delay + 1, sampler.plan.period
    if period is None:
        return (n_delays,)
    if period > n_delays:
        raise InvalidInputError(
            f"expected a period of at most {n_delays} steps, max_delay + 1, got {period}: pass a longer max_delay"
        )
    return n_delays // period, period


def _dilated(sampler: TapSampler) -> tuple[Integers, Integers]:
    generator, n_taps = sampler.generator("taps"), min(sampler.plan.fan_in or 9, sampler.max_delay + 1)
    largest = max(1.0, sampler.max_delay / max(1, n_taps - 1))
    dilation = np.exp(generator.uniform(0, math.log(largest), sampler.n_neurons))
    feature = generator.integers(sampler.n_inputs, size=sampler.n_neurons)
    delay = np.arange(n_taps) * np.minimum(dilation.astype(np.int64), int(largest))[:, None]
    return np.broadcast_to(feature[:, None], delay.shape).copy(), delay


def _correlated(sampler: TapSampler) -> tuple[Integers, Integers]:
    generator, plan = sampler.generator("taps"), sampler.plan
    n_places = (sampler.max_delay + 1) * sampler.n_inputs
    check_fits(24 * n_places**2, "cpu", f"the correlations of {n_places:,} values", "pass a shorter max_delay")
    values = sampler.windows()
    values = values - values.mean(axis=0)
    spread = np.linalg.norm(values, axis=0)
    varied = np.flatnonzero(spread > 1e-3 * spread.max())  # the correlations of a constant mean nothing
    if len(varied) == 0:
        raise InvalidInputError(
            "expected training sequences that vary where correlated taps read, got constant ones: pass another geometry"
        )
    values = values[:, varied] / spread[varied]
    n_near = min(plan.neighbours or plan.fan_in or len(varied), len(varied))
    near = np.argsort(-(values.T @ values), axis=1, kind="stable")[:, :n_near]
    n_taps = min(plan.fan_in or n_near, n_near)
    chosen = _distinct(generator, n_near, (sampler.n_neurons, n_taps))
    centre = generator.integers(len(varied), size=sampler.n_neurons)
    place = np.sort(varied[near[centre[:, None], chosen]], axis=1)
    return place % sampler.n_inputs, place // sampler.n_inputs


GEOMETRIES: dict[Geometry, Callable[[TapSampler], tuple[Integers, Integers]]] = {
    "scattered": _scattered,
    "box": _box,
    "dilated": _dilated,
    "correlated": _correlated,
}
"""Functions that draw the source and the delay of all taps, (n_neurons, n_taps) each."""


def _distinct(generator: np.random.Generator, n_places: int, shape: tuple[int, int]) -> Integers:
    """Draw distinct numbers below ``n_places`` for each row, in increasing order."""
    n_rows, n_drawn = shape
    if n_drawn == n_places:
        return np.broadcast_to(np.arange(n_places), shape).copy()
    if 2 * n_drawn > n_places:  # draw those that are left out, which are fewer
        is_drawn = np.ones((n_rows, n_places), dtype=bool)
        np.put_along_axis(is_drawn, _distinct(generator, n_places, (n_rows, n_places - n_drawn)), False, axis=1)
        return np.nonzero(is_drawn)[1].reshape(shape)
    drawn = np.sort(generator.integers(n_places, size=shape), axis=1)
    while (again := drawn[:, 1:] == drawn[:, :-1]).any():
        rows, columns = np.nonzero(again)
        drawn[rows, columns + 1] = generator.integers(n_places, size=len(rows))
        drawn[rows] = np.sort(drawn[rows], axis=1)
    return drawn
