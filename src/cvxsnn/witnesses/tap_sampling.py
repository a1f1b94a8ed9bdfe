"""Drawing one layer of neurons with synaptic delays: the geometry of taps, their weights, and firing levels.

Inside this file, the neurons of all subnetworks are rows, subnetwork by subnetwork.
"""

import hashlib
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..core.checks import Array
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..core.memory import check_fits
from ..core.seeds import child_generator
from ..data.sequences import Sequences, similar_lengths
from ..neurons import NEURON_MODELS, HiddenLayer, roll_out
from ..neurons.exact import input_levels, product_dtype, snap_inputs, snap_weights
from ..neurons.layer import MAX_DELAY
from ..neurons.tap_kernel import sorted_membranes
from ..neurons.taps import last_window
from .settings import Distribution, Family
from .witness_set import Provenance

Geometry = Literal["scattered", "box", "dilated", "correlated"]
Weights = Literal["gaussian", "centred", "two-valued", "differences"]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Streams = Callable[[str], np.random.Generator]
Below = Sequence[HiddenLayer]

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
        n_samples = len(sequences)
        chosen = np.arange(n_samples)
        if n_samples > n_calibration:
            generator = child_generator(seed, "delayed", "calibration")
            chosen = np.sort(generator.choice(n_samples, n_calibration, replace=False))
        subset = sequences.take(torch.from_numpy(chosen).to(sequences.device)).to("cpu")
        product_dtype(1.0, input_levels(subset.inputs))  # no neuron can read larger inputs
        return cls(Sequences(snap_inputs(subset.inputs), subset.lengths))

    @cached_property
    def lengths(self) -> Integers:
        """Number of steps of each sequence."""
        lengths = self.sequences.lengths
        return np.full(len(self.sequences), self.sequences.n_steps) if lengths is None else lengths.numpy()

    @cached_property
    def values(self) -> Tensor:
        """The inputs, (n_steps, n_features, n_samples)."""
        return _time_major(self.sequences.inputs)

    @cached_property
    def digest(self) -> str:
        """A digest that witnesses record, to recognise the sequences that they were drawn from."""
        digest = hashlib.sha256()
        inputs = self.sequences.inputs
        inside = self.sequences.is_inside()
        digest.update(repr(tuple(inputs.shape)).encode())
        # Whatever the padding holds, the sequences are the same.
        values = inputs if inside is None else inputs.masked_fill(~inside[:, :, None], 0)
        digest.update(np.ascontiguousarray(values.double().numpy() + 0.0).tobytes())  # + 0.0 turns -0.0 into 0.0
        digest.update(np.ascontiguousarray(self.lengths).tobytes())
        return digest.hexdigest()

    def provenance(self, family: Family, seed: int) -> Provenance:
        """Return a recipe that draws witnesses again, given the same sequences."""
        return Provenance("sampled", {**family.describe(), "seed": seed, "inputs": self.digest})


def _time_major(block: Tensor) -> Tensor:
    return block.permute(1, 2, 0).to(torch.float64).contiguous()


def as_sequences(inputs: Sequences | Array | int) -> Sequences:
    """Return training sequences; refuse the number of features alone."""
    if isinstance(inputs, int):
        raise InvalidInputError("expected training inputs to sample neurons with delays from, got none")
    return Sequences.of(inputs)


def has_variation(sequences: Sequences) -> bool:
    """Return whether firing levels and weights can be taken from sequences: there are several, and they vary."""
    inside = sequences.is_inside()  # padding is no variation
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

    geometry: Geometry = "scattered"
    fan_in: int | None = 25
    max_delay: int | None = None
    box: tuple[int, ...] | None = None
    feature_shape: tuple[int, ...] | None = None
    period: int | None = None
    neighbours: int | None = None
    weights: Weights = "gaussian"
    differenced: bool = False
    quantiles: tuple[float, float] | None = (0.05, 0.95)
    steps: Literal["all", "last"] = "all"
    decay: Distribution | float = 0.0
    threshold: Distribution | float = 0.0
    bias: Distribution | float = 0.0

    @property
    def needs_values(self) -> bool:
        """Whether the values of training sequences matter, and not only their shape."""
        return self.quantiles is not None or self.weights == "differences" or self.geometry == "correlated"


Neurons = dict[str, Tensor]
"""Parameters of neurons by name: (n_neurons, n_taps) for source, delay and weight, and (n_neurons,) for the others."""


def as_layer(
    neuron: str, parts: Sequence[Neurons], n_subnetworks: int, n_inputs: int, dtype: torch.dtype
) -> HiddenLayer:
    """Return a layer with the neurons of all parts; further taps of those with fewer taps have weight zero."""
    model, tensors = NEURON_MODELS.find(neuron), dict[str, Any]()
    n_taps = max(part["weight"].shape[1] for part in parts)
    for name, first in parts[0].items():
        values = [part[name] for part in parts]
        if first.ndim == 2:
            values = [pad(value, (0, n_taps - value.shape[1])) for value in values]
        rows = torch.cat(values)
        rows = rows.to(dtype) if rows.is_floating_point() else rows
        tensors[name] = rows.view(n_subnetworks, -1, *rows.shape[1:]).movedim(1, -1)
    if not model.keeps_membrane:
        del tensors["initial_membrane"]
        if bool(tensors.pop("decay").any() | tensors.pop("threshold").any()):
            raise InvalidInputError(
                f"expected decay 0 and threshold 0 for {neuron} neurons, which keep no membrane, got others"
            )
    return model.layer(**tensors, n_sources=n_inputs)


class TapSampler:
    """Draws the neurons of one layer.

    Parameters
    ----------
    plan : LayerPlan
        The settings of the layer.
    shape : tuple of int
        Number of subnetworks, and neurons per subnetwork.
    calibration : Calibration
        Training sequences.
    generator : function
        Returns the random stream of a named property of the layer.
    below : sequence of HiddenLayer
        The layers below, whose spikes the layer reads; without any, it reads the inputs.
    """

    block_bytes = 2**28
    """Size of the membranes that are held at once."""

    def __init__(
        self, plan: LayerPlan, shape: tuple[int, int], calibration: Calibration, generator: Streams, below: Below = ()
    ) -> None:
        self.plan = plan
        self.generator = generator
        self.lengths = calibration.lengths
        self.values = _time_major(roll_out(below, calibration.sequences, "all")) if below else calibration.values
        n_steps, n_rows, self.n_samples = self.values.shape
        self.n_neurons = math.prod(shape)
        self.n_inputs = below[-1].width if below else n_rows
        longest = min(n_steps - 1, MAX_DELAY) if plan.max_delay is None else plan.max_delay
        self.max_delay = longest - int(plan.differenced)  # a first difference reads one step further back
        # Above the first layer, each subnetwork reads its own rows of values.
        self.first_row = np.arange(self.n_neurons) // shape[1] * (self.n_inputs if below else 0)

    def draw(self, dtype: torch.dtype) -> Neurons:
        """Return the neurons of all subnetworks, with weights on the grid of a dtype."""
        plan = self.plan
        source, delay = GEOMETRIES[plan.geometry](self)
        weight = self._weights(source, delay)
        if plan.differenced:
            source, delay = np.concatenate((source, source), axis=1), np.concatenate((delay, delay + 1), axis=1)
            weight = np.concatenate((weight, -weight), axis=1)
        # Rounded to float32 first, so that weights are the same in every dtype.
        snapped = snap_weights(torch.from_numpy(weight).to(torch.float32).to(dtype).T).T
        decay, reset, bias = (self._per_neuron(name) for name in ("decay", "threshold", "bias"))
        start = np.zeros_like(bias)
        if plan.quantiles is not None:
            level, spread = self._levels(plan.quantiles, source, delay, snapped.double(), decay)
            # The membrane is measured from its firing level: it starts there below zero, and leaks towards it.
            bias = -level * (1 - decay)
            start = -level
            reset = reset * spread
        names = ("source", "delay", "bias", "decay", "threshold", "initial_membrane")
        drawn = zip(names, map(torch.from_numpy, (source, delay, bias, decay, reset, start)), strict=True)
        return {"weight": snapped, **dict(drawn)}

    def _per_neuron(self, name: str) -> Floats:
        """Draw a parameter of each neuron."""
        value: Distribution | float = getattr(self.plan, name)
        if isinstance(value, Distribution):
            return value.sample(self.generator(name), (self.n_neurons,))
        return np.full(self.n_neurons, float(value))

    def _weights(self, source: Integers, delay: Integers) -> Floats:
        generator = self.generator("weight")
        (n_neurons, n_taps) = source.shape
        kind = self.plan.weights
        if kind == "two-valued":
            # A third at 2 and two thirds at -1 sum to zero, so a constant input leaves the membrane at rest.
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
        row, values = source + self.first_row[:, None], self.values.numpy()

        def read(step: Integers, sample: Integers) -> Floats:
            return np.asarray(np.where(step >= 0, values[np.maximum(step, 0), row, sample[:, None]], 0.0))

        def changes(sample: Integers) -> Floats:
            step = (self.lengths[sample] - 1 if self.plan.steps == "last" else random_step)[:, None] - delay
            return read(step, sample) - (read(step - 1, sample) if self.plan.differenced else 0.0)

        return np.asarray(changes(pairs[0]) - changes(pairs[1]))

    def _levels(
        self, quantiles: tuple[float, float], source: Integers, delay: Integers, weight: Tensor, decay: Floats
    ) -> tuple[Floats, Floats]:
        """Return a random quantile of each neuron's membrane when it never fires, and the membrane's deviation."""
        # Without resets the membrane is linear in the inputs, so it does not depend on the level that is sought.
        generator, n_membranes = self.generator("quantile"), 1024  # quantiles of more values differ little
        quantile = generator.uniform(*quantiles, size=self.n_neurons)
        is_last = self.plan.steps == "last"
        # Long sequences have many steps, so fewer of them are enough, but from at least 32.
        n_wanted = n_membranes if is_last else math.ceil(4 * n_membranes / self.lengths.mean())
        samples = np.sort(generator.choice(self.n_samples, min(self.n_samples, max(32, n_wanted)), replace=False))
        step, last = np.arange(len(self.values))[:, None], self.lengths[samples] - 1
        places = np.flatnonzero(step == last if is_last else step <= last)
        if len(places) > n_membranes:
            places = np.sort(generator.choice(places, n_membranes, replace=False))
        # The value itself and no interpolation: the level is a membrane that occurs.
        rank = np.minimum((quantile * len(places)).astype(np.int64), len(places) - 1)
        looks = [(self.values[:, :, torch.from_numpy(samples)], torch.from_numpy(places))]
        if decay.any():  # then all steps before a place matter, but no padding
            groups = similar_lengths(torch.from_numpy(self.lengths[samples]))
            looks = [look for group in groups if len((look := _look(*looks[0], group))[1])]
        row, delays, leak = map(torch.from_numpy, (source + self.first_row[:, None], delay, decay))
        level, spread = np.empty(self.n_neurons), np.empty(self.n_neurons)
        n_together = max(1, self.block_bytes // (8 * len(places)))
        for first in range(0, self.n_neurons, n_together):
            block = slice(first, first + n_together)
            membranes = sorted_membranes(row[block], delays[block], weight[block], leak[block], looks)
            level[block] = np.take_along_axis(membranes, rank[block, None], axis=1)[:, 0]
            # The deviation is that of sorted values: its last bit depends on their order.
            spread[block] = membranes.std(axis=1)
        return level, spread


def _look(values: Tensor, places: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
    """Restrict values and places to a group of sequences, up to the last step that has a place."""
    n_samples = values.shape[2]
    number = torch.full((n_samples,), -1).index_put_((group,), torch.arange(len(group)))[places % n_samples]
    step, number = (places // n_samples)[number >= 0], number[number >= 0]
    return values[: int(step[-1]) + 1 if len(step) else 0, :, group], step * len(group) + number


def _scattered(sampler: TapSampler) -> tuple[Integers, Integers]:
    n_places = (sampler.max_delay + 1) * sampler.n_inputs
    n_taps = min(sampler.plan.fan_in or n_places, n_places)
    place = distinct(sampler.generator("taps"), n_places, (sampler.n_neurons, n_taps))
    return place % sampler.n_inputs, place // sampler.n_inputs


def _box(sampler: TapSampler) -> tuple[Integers, Integers]:
    generator, plan = sampler.generator("taps"), sampler.plan
    n_delays, period = sampler.max_delay + 1, plan.period
    if period is not None and period > n_delays:
        raise InvalidInputError(
            f"expected a period of at most {plural(n_delays, 'step')}, max_delay + 1, got {period}: pass a longer "
            "max_delay"
        )
    delays = (n_delays,) if period is None else (n_delays // period, period)
    shape = (*delays, *(plan.feature_shape or (sampler.n_inputs,)))
    size = [min(wanted, most) for wanted, most in zip(plan.box or (8,) * len(shape), shape, strict=True)]
    corner = [generator.integers(most - n + 1, size=sampler.n_neurons) for n, most in zip(size, shape, strict=True)]
    n_places = math.prod(size)
    n_taps = min(plan.fan_in or n_places, n_places)
    inside = np.unravel_index(distinct(generator, n_places, (sampler.n_neurons, n_taps)), size)
    place = [start[:, None] + offset for start, offset in zip(corner, inside, strict=True)]
    n = len(delays)
    return np.ravel_multi_index(place[n:], shape[n:]), np.ravel_multi_index(place[:n], delays)


def _dilated(sampler: TapSampler) -> tuple[Integers, Integers]:
    generator = sampler.generator("taps")
    n_taps = min(sampler.plan.fan_in or 9, sampler.max_delay + 1)
    largest = max(1.0, sampler.max_delay / max(1, n_taps - 1))
    # Log-uniform, so that every octave of time scales is drawn equally often.
    dilation = np.exp(generator.uniform(0, math.log(largest), sampler.n_neurons))
    feature = generator.integers(sampler.n_inputs, size=sampler.n_neurons)
    delay = np.arange(n_taps) * np.minimum(dilation.astype(np.int64), int(largest))[:, None]
    return np.broadcast_to(feature[:, None], delay.shape).copy(), delay


def _correlated(sampler: TapSampler) -> tuple[Integers, Integers]:
    generator, plan = sampler.generator("taps"), sampler.plan
    n_places = (sampler.max_delay + 1) * sampler.n_inputs
    check_fits(24 * n_places**2, "cpu", f"the correlations of {n_places:,} values", "pass a shorter max_delay")
    # What taps can read at one step of each sequence: a column for each delay and input, in this order.
    lengths = torch.from_numpy(sampler.lengths)
    if plan.steps == "all":
        lengths = 1 + (torch.from_numpy(sampler.generator("windows").random(len(lengths))) * lengths).long()
    window = last_window(sampler.values.transpose(1, 2), sampler.max_delay, lengths)[0]
    # The oldest values come first in a window.
    read = np.asfortranarray(window.view(len(lengths), -1, sampler.n_inputs).flip(1).flatten(1).numpy())
    values = read - read.mean(axis=0)
    spread = np.linalg.norm(values, axis=0)
    varied = np.flatnonzero(spread > 1e-3 * spread.max())  # the correlations of a constant mean nothing
    if len(varied) == 0:
        raise InvalidInputError(
            "expected training sequences that vary where correlated taps read, got constant ones: pass another geometry"
        )
    values = values[:, varied] / spread[varied]
    n_near = min(plan.neighbours or plan.fan_in or len(varied), len(varied))
    # Stable, so that equal correlations are ranked alike everywhere.
    near = np.argsort(-(values.T @ values), axis=1, kind="stable")[:, :n_near]
    n_taps = min(plan.fan_in or n_near, n_near)
    chosen = distinct(generator, n_near, (sampler.n_neurons, n_taps))
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


def distinct(generator: np.random.Generator, n_places: int, shape: tuple[int, int]) -> Integers:
    """Draw distinct numbers below ``n_places`` for each row, in increasing order."""
    n_rows, n_drawn = shape
    if n_drawn == n_places:
        return np.broadcast_to(np.arange(n_places), shape).copy()
    if 2 * n_drawn > n_places:  # draw those that are left out, which are fewer
        is_drawn = np.ones((n_rows, n_places), dtype=bool)
        np.put_along_axis(is_drawn, distinct(generator, n_places, (n_rows, n_places - n_drawn)), False, axis=1)
        return np.nonzero(is_drawn)[1].reshape(shape)
    drawn = np.sort(generator.integers(n_places, size=shape), axis=1)
    # At most half of the numbers are drawn, so that few repeat and are drawn again.
    while (again := drawn[:, 1:] == drawn[:, :-1]).any():
        rows, columns = np.nonzero(again)
        drawn[rows, columns + 1] = generator.integers(n_places, size=len(rows))
        drawn[rows] = np.sort(drawn[rows], axis=1)
    return drawn
