"""Sampling witnesses with synaptic delays, whose thresholds and weights may come from training inputs."""

import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from numbers import Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..core.checks import Array, check_choice, check_positive_int
from ..core.errors import InvalidInputError
from ..core.memory import check_fits
from ..core.seeds import check_seed, child_generator
from ..data.sequences import Sequences, similar_lengths
from ..neurons import NEURON_MODELS, HiddenLayer, roll_out
from ..neurons.exact import snap_inputs, snap_weights
from ..neurons.layer import MAX_DELAY
from ..neurons.tap_kernel import integrate_taps
from ..neurons.taps import TapTable, last_window
from .geometry import GEOMETRIES, Geometry, LayerPlan
from .sampling import Constant, PerLayer, per_layer
from .witness_set import Provenance, WitnessSet

Steps = Literal["all", "last"]
Weights = Literal["gaussian", "centred", "two-valued", "differences"]

Quantiles = tuple[float, float] | None
Box = tuple[int, ...] | None

_LOGGER = logging.getLogger("cvxsnn")

N_CALIBRATION = 256
"""Training sequences that thresholds are taken from, unless the caller says otherwise."""

_N_MEMBRANES, _FEWEST_SEQUENCES = 1024, 32
"""Membrane values, at random steps, of which a threshold is a quantile; and sequences from which they are at least."""

_BLOCK_BYTES = 2**28
"""Size of the membranes that are held at once."""

_NEURON = 64
"""Bytes that a neuron takes at least while it is drawn."""


def delayed_witnesses(
    inputs: Sequences | Array,
    hidden: Sequence[int],
    n_subnetworks: int = 1,
    *,
    geometry: Geometry | Sequence[Geometry] = "scattered",
    fan_in: int | Sequence[int | None] | None = 25,
    max_delay: int | Sequence[int | None] | None = None,
    box: Box | Sequence[Box] = None,
    feature_shape: tuple[int, ...] | None = None,
    period: int | Sequence[int | None] | None = None,
    neighbours: int | None = None,
    weights: Weights | Sequence[Weights] = "gaussian",
    differenced: bool | Sequence[bool] = False,
    quantiles: Quantiles | Sequence[Quantiles] = (0.05, 0.95),
    steps: Steps = "all",
    decay: PerLayer = 0.0,
    threshold: PerLayer = 0.0,
    bias: PerLayer = 0.0,
    neuron: str = "lif",
    n_calibration: int = N_CALIBRATION,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> WitnessSet:
    r"""Sample witnesses whose synapses have delays.

    A synapse, or tap, reads one input (or one neuron of the layer below) a fixed number of steps ago. Thresholds are
    quantiles of the membranes that the neurons have on training sequences when they never fire. Labels are not used.

    Parameters
    ----------
    inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
        Training sequences. A seeded subset of ``n_calibration`` of them is used.
    hidden : sequence of int
        Widths of the hidden layers of one subnetwork.
    n_subnetworks : int
        The paper's K.
    geometry : "scattered", "box", "dilated" or "correlated", or a sequence with one per layer
        Where taps are. Scattered: at random delays and inputs. Box: in a window of consecutive delays and neighbouring
        inputs, at a random place. Dilated: all on one random input, at delays 0, d, 2d, ..., with log-uniform d.
        Correlated: at the pairs of delay and input whose values in training sequences are most correlated with those of
        a random pair; only for the first layer.
    fan_in : int or None, or a sequence with one per layer
        Number of taps. None is all taps that the geometry has; for "dilated", nine.
    max_delay : int or None, or a sequence with one per layer
        Longest delay of any tap in steps. None is the longest that the training sequences allow.
    box : tuple of int or None, or a sequence with one per layer
        Size of the box: delays and inputs or, with ``feature_shape``, delays, rows and columns. With ``period``, delays
        are two numbers: periods, and steps within a period. By default 8 in each direction. A single size is for the
        first layer.
    feature_shape : tuple of two int, optional
        Rows and columns of the inputs of one step, if these form a grid, for example the pixels of a frame.
    period : int or None, or a sequence with one per layer
        Number of steps after which a sequence returns to the same place, for example 28 for images of 28 columns that
        are read pixel by pixel. Boxes are then patches: neighbouring steps in consecutive periods. A single number is
        for the first layer.
    neighbours : int, optional
        Number of pairs of delay and input among which correlated taps are chosen. By default ``fan_in``.
    weights : "gaussian", "centred", "two-valued" or "differences", or a sequence with one per layer
        Gaussian; Gaussian minus their mean; -1 and, for a third of the taps, 2; or the difference between what the taps
        read in two random training sequences at one random step, with norm one.
    differenced : bool, or a sequence with one per layer
        Whether the taps read first differences: each tap is joined by one of opposite sign a step earlier.
    quantiles : tuple of two float or None, or a sequence with one per layer
        The range from which the quantile of each threshold is drawn. A neuron whose threshold is the 0.9 quantile fires
        in about a tenth of the steps. None draws ``bias`` instead, and uses no data for it.
    steps : "all" or "last"
        The steps of training sequences from which thresholds, weights and correlations are taken. "last" suits
        read-outs of the last step.
    decay : number or Distribution, or a sequence with one per layer
        Leak of a membrane per step, for neurons that have one.
    threshold : number or Distribution, or a sequence with one per layer
        Amount subtracted after a spike. With ``quantiles``, in units of the standard deviation of the membrane.
    bias : number or Distribution, or a sequence with one per layer
        Constant drive, only with ``quantiles=None``.
    neuron : str
        The neuron model: "lif", or "threshold" with ``decay`` and ``threshold`` zero, without recurrence.
    n_calibration : int
        Number of training sequences from which thresholds and weights are taken.
    seed : int
        The seed of all draws.
    dtype : torch.dtype
        Floating-point type of the membranes.
    device : torch.device or str, optional
        Where to put the witnesses. Sampling happens on the host, so every device gets the same witnesses.

    Returns
    -------
    WitnessSet
        The hidden layers, which remember how they were drawn. :func:`cvxsnn.witnesses.regenerate` needs the training
        sequences to draw them again.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import delayed_witnesses
    >>> from cvxsnn.neurons import count_spikes
    >>> inputs = np.random.default_rng(0).normal(size=(100, 20, 3))
    >>> witnesses = delayed_witnesses(inputs, hidden=(64,), fan_in=9, max_delay=10, quantiles=(0.8, 0.9))
    >>> witnesses
    WitnessSet(sampled lif, 1 × (3→64))
    >>> rate = count_spikes(witnesses.layers, inputs).double().mean() / 20
    >>> round(float(rate), 2)
    0.15
    """
    sequences = Sequences.of(inputs)
    seed = check_seed(seed)
    if not isinstance(hidden, Sequence) or not hidden:
        raise InvalidInputError(f"expected hidden to list the layers' widths, got {hidden!r}: pass for example (256,)")
    n_layers = len(hidden)
    sizes = [sequences.n_features, *(check_positive_int("hidden", width) for width in hidden)]
    given: dict[str, Any] = {
        "geometry": geometry,
        "fan_in": fan_in,
        "max_delay": max_delay,
        "weights": weights,
        "differenced": differenced,
    }
    settings = {name: _each(name, value, n_layers) for name, value in given.items()}
    dynamics = {
        name: per_layer(name, value, n_layers)
        for name, value in {"decay": decay, "threshold": threshold, "bias": bias}.items()
    }
    ranges = _checked_quantiles(quantiles, n_layers)
    if any(own is not None and bias != Constant(0.0) for own, bias in zip(ranges, dynamics["bias"], strict=True)):
        raise InvalidInputError(
            "expected no bias beside quantiles, which decide it, got one: drop it, or pass quantiles=None"
        )
    check_positive_int("n_subnetworks", n_subnetworks)
    check_positive_int("n_calibration", n_calibration)
    neighbours = None if neighbours is None else check_positive_int("neighbours", neighbours)
    check_choice("steps", steps, ("all", "last"))
    periods = [
        None if own is None else check_positive_int("period", own) for own in _of_first("period", period, n_layers)
    ]
    grid = _checked_grid(feature_shape, sequences.n_features)
    boxes = [
        _checked_box(own, None if number else grid, periods[number])
        for number, own in enumerate(_of_first("box", box, n_layers, is_single=_is_size(box)))
    ]
    plans = [
        _checked_plan(
            {name: value[number] for name, value in settings.items()},
            sequences.n_steps,
            box=boxes[number],
            feature_shape=None if number else grid,
            period=periods[number],
            neighbours=neighbours,
            quantiles=ranges[number],
            is_last=steps == "last",
        )
        for number in range(n_layers)
    ]
    if any(plan.geometry == "correlated" for plan in plans[1:]):
        raise InvalidInputError(
            "expected correlated taps in the first layer only, got them above it: pass geometry=('correlated', "
            "'scattered')"
        )
    if any(plan.needs_values for plan in plans):
        _check_calibration(sequences)
    chosen = calibration_subset(sequences, n_calibration, seed)
    recipe: dict[str, Any] = {
        "sampler": "delayed",
        "hidden": tuple(sizes[1:]),
        "n_subnetworks": n_subnetworks,
        **{name: _plain(value) for name, value in settings.items()},
        "box": boxes[0] if not any(boxes[1:]) else boxes,
        "feature_shape": grid,
        "period": periods[0] if not any(periods[1:]) else periods,
        "neighbours": neighbours,
        "quantiles": _plain(ranges),
        "steps": steps,
        **{name: [own.describe() for own in value] for name, value in dynamics.items()},
        "neuron": neuron,
        "n_calibration": n_calibration,
        "seed": seed,
        "dtype": str(dtype).removeprefix("torch."),
        "inputs": fingerprint(chosen),
    }
    layers: list[HiddenLayer] = []
    for depth, (plan, (n_inputs, width)) in enumerate(zip(plans, pairwise(sizes), strict=True), 1):
        check_fits(_NEURON * n_subnetworks * width, "cpu", "the neurons of a hidden layer", "use fewer of them")
        sampler = _LayerSampler(
            plan, n_subnetworks, n_inputs, width, chosen, _values_below(layers, chosen), seed, depth
        )
        drawn = {name: sampler.draw(name, value[depth - 1]) for name, value in dynamics.items()}
        layers.append(sampler.layer(neuron, drawn, dtype))
    return WitnessSet(tuple(layer.to(device) for layer in layers), Provenance("sampled", recipe))


class _LayerSampler:
    """Draws one layer. Neurons of all subnetworks are rows in here, subnetwork by subnetwork."""

    def __init__(
        self,
        plan: LayerPlan,
        n_subnetworks: int,
        n_inputs: int,
        width: int,
        sequences: Sequences,
        values: Tensor,
        seed: int,
        depth: int,
    ) -> None:
        self.plan, self.n_inputs, self.width = plan, n_inputs, width
        self.n_subnetworks, self.n_neurons = n_subnetworks, n_subnetworks * width
        self.sequences, self.values = sequences, values
        self._seed, self._depth = seed, depth
        self.max_delay = plan.max_delay - int(plan.is_differenced)

    def generator(self, name: str) -> np.random.Generator:
        """Return the random stream of one of the layer's properties."""
        return child_generator(self._seed, "delayed", self._depth, name)

    def draw(self, name: str, distribution: Any) -> npt.NDArray[np.float64]:
        """Draw a parameter of every neuron."""
        drawn: npt.NDArray[np.float64] = distribution.sample(self.generator(name), (self.n_neurons,))
        return drawn

    def layer(self, neuron: str, dynamics: Mapping[str, npt.NDArray[np.float64]], dtype: torch.dtype) -> HiddenLayer:
        """Draw the layer."""
        source, delay = GEOMETRIES[self.plan.geometry](self)
        weight = self._weights(source, delay)
        if self.plan.is_differenced:
            source, delay = np.concatenate((source, source), axis=1), np.concatenate((delay, delay + 1), axis=1)
            weight = np.concatenate((weight, -weight), axis=1)

        def by_layer(value: npt.NDArray[Any]) -> Tensor:
            shape = (self.n_subnetworks, self.width, *value.shape[1:])
            return torch.from_numpy(np.ascontiguousarray(value)).view(shape).movedim(1, -1)

        taps: dict[str, Any] = {"source": by_layer(source), "delay": by_layer(delay), "n_sources": self.n_inputs}
        snapped = snap_weights(by_layer(weight).to(torch.float32).to(dtype))  # the same weights in every dtype
        model = NEURON_MODELS.find(neuron)
        decay, reset, bias = (dynamics[name] for name in ("decay", "threshold", "bias"))
        if not model.keeps_membrane and bool(decay.any() or reset.any()):
            raise InvalidInputError(
                f"expected decay 0 and threshold 0 for {neuron} neurons, which keep no membrane, got others"
            )
        start = np.zeros_like(bias)
        if self.plan.quantiles is not None:
            bare = model.layer(snapped, **taps)
            level, spread = self._levels(bare, decay)
            # A membrane that is measured from its level: it starts there, and its leak is towards it.
            bias, start, reset = -level * (1 - decay), -level, reset * spread
        own: dict[str, Any] = {"bias": by_layer(bias)}
        if model.keeps_membrane:
            own |= {"decay": by_layer(decay), "threshold": by_layer(reset), "initial_membrane": by_layer(start)}
        return model.layer(snapped, **{name: value.to(dtype) for name, value in own.items()}, **taps)

    def _weights(self, source: npt.NDArray[np.int64], delay: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        generator, (n_neurons, n_taps) = self.generator("weight"), source.shape
        if self.plan.weights == "two-valued":
            n_high = max(1, round(n_taps / 3))
            order = generator.random((n_neurons, n_taps)).argsort(axis=1)
            return np.where(order < n_high, 2.0, -1.0)
        normal = generator.standard_normal((n_neurons, n_taps), dtype=np.float32).astype(np.float64)
        if self.plan.weights == "centred":
            if n_taps == 1:
                raise InvalidInputError(
                    "expected at least 2 taps for centred weights, which sum to zero, got 1: pass other weights, a "
                    "larger fan_in or a larger max_delay"
                )
            normal -= normal.mean(axis=1, keepdims=True)
        if self.plan.weights == "differences":
            difference = self._differences(generator, source, delay)
            has_none = ~difference.any(axis=1)  # two windows that are equal everywhere
            normal[~has_none] = difference[~has_none]
            return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True))
        return np.asarray(normal / math.sqrt(n_taps))

    def _differences(
        self, generator: np.random.Generator, source: npt.NDArray[np.int64], delay: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """Return what the taps read in one training sequence minus what they read in another, at one step of both.

        That is a random one, or the last of each.
        """
        pairs = generator.integers(len(self.sequences), size=(2, self.n_neurons))
        lengths = _lengths(self.sequences)
        at_random = (generator.random(self.n_neurons) * lengths[pairs].min(axis=0)).astype(np.int64)
        # Above the first layer, each subnetwork has inputs of its own.
        offset = np.arange(self.n_neurons) // self.width * self.n_inputs * (not self._is_shared)
        row, values = source + offset[:, None], self.values.numpy()

        def read(when: npt.NDArray[np.int64], sample: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
            return np.asarray(np.where(when >= 0, values[np.maximum(when, 0), row, sample[:, None]], 0.0))

        def changes(sample: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
            when = (lengths[sample] - 1 if self.plan.is_last else at_random)[:, None] - delay
            return read(when, sample) - (read(when - 1, sample) if self.plan.is_differenced else 0.0)

        return np.asarray(changes(pairs[0]) - changes(pairs[1]))

    def windows(self) -> npt.NDArray[np.float64]:
        """Return what taps can read at one step of each sequence: a column for each delay and input, in this order."""
        lengths = torch.from_numpy(_lengths(self.sequences))
        if not self.plan.is_last:
            drawn = self.generator("windows").random(len(lengths))
            lengths = 1 + (torch.from_numpy(drawn) * lengths).long()
        window = last_window(self.values.transpose(1, 2), self.max_delay, lengths)
        return np.asarray(_by_delay(window, self.n_inputs)[0].T.numpy())

    @property
    def _is_shared(self) -> bool:
        """Whether all subnetworks read the same values."""
        return self.values.shape[1] == self.n_inputs

    def _levels(
        self, layer: HiddenLayer, decay: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return a random quantile of each neuron's membrane, and the membrane's standard deviation.

        Long sequences have many steps, so that fewer of them are enough.
        """
        assert self.plan.quantiles is not None
        generator = self.generator("quantile")
        quantile = generator.uniform(*self.plan.quantiles, size=self.n_neurons)
        lengths = _lengths(self.sequences)
        n_wanted = _N_MEMBRANES if self.plan.is_last else math.ceil(4 * _N_MEMBRANES / lengths.mean())
        n_samples = min(len(lengths), max(_FEWEST_SEQUENCES, n_wanted))
        samples = np.sort(generator.choice(len(lengths), n_samples, replace=False))
        step = np.arange(self.sequences.n_steps)[:, None]
        last = lengths[samples] - 1
        places = np.flatnonzero(step == last if self.plan.is_last else step <= last)
        if len(places) > _N_MEMBRANES:
            places = np.sort(generator.choice(places, _N_MEMBRANES, replace=False))
        rank = np.minimum((quantile * len(places)).astype(np.int64), len(places) - 1)
        chosen = torch.from_numpy(samples)
        looks = [(self.values[:, :, chosen], torch.from_numpy(places))]
        if decay.any():  # then all steps before a place matter, but no padding
            looks = [_look(*looks[0], group) for group in similar_lengths(torch.from_numpy(lengths)[chosen])]
        level, spread = np.empty(self.n_neurons), np.empty(self.n_neurons)
        n_taken = max(1, _BLOCK_BYTES // (8 * len(places) * self.width))
        for k in range(0, self.n_subnetworks, n_taken):
            part = layer.take(slice(k, min(k + n_taken, self.n_subnetworks)))
            read = slice(0, None) if self._is_shared else slice(k * self.n_inputs, (k + n_taken) * self.n_inputs)
            table = TapTable.of(part, torch.float64, inputs_are_shared=self._is_shared)
            rows = slice(k * self.width, (k + part.n_subnetworks) * self.width)
            own_decay = torch.from_numpy(decay[rows])
            membranes = [integrate_taps(table, values[:, read], own_decay, own) for values, own in looks if len(own)]
            found = torch.cat(membranes, dim=1).sort(dim=1).values
            spread[rows] = found.numpy().std(axis=1)
            level[rows] = found.gather(1, torch.from_numpy(rank[rows, None])).squeeze(1).numpy()
        return level, spread


def _look(values: Tensor, places: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
    """Return what some of the sequences read up to the last of their places, and these places among them."""
    n_samples = values.shape[2]
    number = torch.full((n_samples,), -1).index_put_((group,), torch.arange(len(group)))[places % n_samples]
    step, number = (places // n_samples)[number >= 0], number[number >= 0]
    n_steps = int(step[-1]) + 1 if len(step) else 0
    return values[:n_steps, :, group], step * len(group) + number


def _by_delay(window: Tensor, n_inputs: int) -> Tensor:
    """Return windows (1, n_samples, n_delays * n_inputs) as (1, n_delays * n_inputs, n_samples), the latest first."""
    by_delay = window.view(*window.shape[:-1], -1, n_inputs).flip(-2)
    return by_delay.flatten(-2).transpose(1, 2).contiguous()


def calibration_subset(sequences: Sequences, n_calibration: int, seed: int) -> Sequences:
    """Return the training sequences from which thresholds and weights are taken, on the host and on their grid."""
    chosen = np.arange(len(sequences))
    if len(sequences) > n_calibration:
        generator = child_generator(seed, "delayed", "calibration")
        chosen = np.sort(generator.choice(len(sequences), n_calibration, replace=False))
    own = sequences.take(torch.from_numpy(chosen).to(sequences.device)).to("cpu")
    return Sequences(snap_inputs(own.inputs), own.lengths)


def log_calibration(n_sequences: int, n_calibration: int = N_CALIBRATION) -> None:
    """Tell the log if thresholds and weights are taken from a subset."""
    if n_sequences > n_calibration:
        _LOGGER.info("thresholds and weights are taken from %d of %d samples", n_calibration, n_sequences)


def fingerprint(sequences: Sequences) -> str:
    """Return a digest of sequences, which witnesses that were drawn from them record."""
    digest = hashlib.sha256(repr(tuple(sequences.inputs.shape)).encode())
    inside = sequences.is_inside()
    values = sequences.inputs if inside is None else sequences.inputs.masked_fill(~inside[:, :, None], 0)
    digest.update(np.ascontiguousarray(values.double().numpy() + 0.0).tobytes())  # + 0.0: there is one zero
    digest.update(np.ascontiguousarray(_lengths(sequences)).tobytes())
    return digest.hexdigest()


def _lengths(sequences: Sequences) -> npt.NDArray[np.int64]:
    if sequences.lengths is None:
        return np.full(len(sequences), sequences.n_steps)
    return sequences.lengths.numpy()


def _values_below(layers: list[HiddenLayer], sequences: Sequences) -> Tensor:
    """Return what the next layer reads, (n_steps, n_rows, n_samples): the inputs, or the spikes of all subnetworks."""
    block = roll_out(layers, sequences, "all") if layers else sequences.inputs
    return block.permute(1, 2, 0).to(torch.float64).contiguous()


def _each(name: str, value: Any, n_layers: int) -> list[Any]:
    each = list(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else [value] * n_layers
    if len(each) != n_layers:
        raise InvalidInputError(f"expected one {name} for each of {n_layers} layers, got {len(each)}")
    return each


def _plain(each: list[Any]) -> Any:
    return each[0] if len(set(each)) == 1 else each


def _checked_quantiles(quantiles: Any, n_layers: int) -> list[Quantiles]:
    """Return the range of each layer."""
    is_listed = isinstance(quantiles, Sequence) and all(
        own is None or isinstance(own, (tuple, list)) for own in quantiles
    )
    each = _each("range of quantiles", quantiles, n_layers) if is_listed else [quantiles] * n_layers
    for own in each:
        if own is None:
            continue
        is_pair = isinstance(own, Sequence) and len(own) == 2 and all(isinstance(x, Real) for x in own)
        if not is_pair or not 0 <= own[0] <= own[1] <= 1:
            raise InvalidInputError(
                f"expected two quantiles between 0 and 1 in increasing order, got {own!r}: pass for example "
                "(0.05, 0.95)"
            )
    return [None if own is None else (float(own[0]), float(own[1])) for own in each]


def _of_first(name: str, value: Any, n_layers: int, is_single: bool = False) -> list[Any]:
    """Return a value of each layer; a single one is for the first layer."""
    if value is None or is_single or isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        return [value, *[None] * (n_layers - 1)]
    return _each(name, value, n_layers)


def _is_size(box: Any) -> bool:
    return isinstance(box, Sequence) and not any(own is None or isinstance(own, Sequence) for own in box)


def _checked_grid(feature_shape: Any, n_features: int) -> tuple[int, ...] | None:
    """Return the rows and columns of the inputs."""
    if feature_shape is None:
        return None
    grid = _whole_numbers(feature_shape)
    if len(grid) != 2 or math.prod(grid) != n_features:
        raise InvalidInputError(
            f"expected feature_shape to be the rows and columns of {n_features} features, got {feature_shape!r}"
        )
    return grid


def _checked_box(box: Any, grid: tuple[int, ...] | None, period: int | None) -> Box:
    """Return the size of a layer's boxes."""
    if box is None:
        return None
    size = _whole_numbers(box)
    if len(size) != (2 if grid is None else 3) + (period is not None):
        names = "delays and features" if grid is None else "delays, rows and columns"
        names = names if period is None else names.replace("delays", "periods, steps", 1)
        raise InvalidInputError(f"expected box to be positive numbers of {names}, got {box!r}")
    return size


def _whole_numbers(value: Any) -> tuple[int, ...]:
    """Return positive whole numbers as a tuple; an empty one for anything else."""
    each = tuple(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else ()
    is_whole = all(isinstance(own, (int, np.integer)) and not isinstance(own, bool) and own > 0 for own in each)
    return tuple(int(own) for own in each) if is_whole else ()


def _checked_plan(own: Mapping[str, Any], n_steps: int, **shared: Any) -> LayerPlan:
    check_choice("geometry", own["geometry"], tuple(GEOMETRIES))
    check_choice("weights", own["weights"], ("gaussian", "centred", "two-valued", "differences"))
    max_delay, is_differenced = _checked_delay(own["max_delay"], n_steps), bool(own["differenced"])
    if is_differenced and max_delay == 0:
        raise InvalidInputError(
            "expected a max_delay of at least 1 for first differences, which read two steps, got 0: pass "
            "differenced=False"
        )
    return LayerPlan(
        geometry=own["geometry"],
        fan_in=None if own["fan_in"] is None else check_positive_int("fan_in", own["fan_in"]),
        max_delay=max_delay,
        weights=own["weights"],
        is_differenced=is_differenced,
        **shared,
    )


def _checked_delay(max_delay: Any, n_steps: int) -> int:
    if max_delay is None:
        return min(n_steps - 1, MAX_DELAY)
    if isinstance(max_delay, bool) or not isinstance(max_delay, (int, np.integer)) or not 0 <= max_delay <= MAX_DELAY:
        raise InvalidInputError(f"expected max_delay to be a whole number of steps from 0, got {max_delay!r}")
    if max_delay >= n_steps:
        raise InvalidInputError(
            f"expected a max_delay below the {n_steps} steps of the training sequences, got {max_delay}: a tap with a "
            "longer delay would never read anything"
        )
    return int(max_delay)


def has_variation(sequences: Sequences) -> bool:
    """Return whether thresholds and weights can be taken from sequences: there are several, and they vary."""
    inside = sequences.is_inside()
    values = sequences.inputs if inside is None else sequences.inputs[inside]
    return len(sequences) > 1 and bool((values != values.flatten()[0]).any())


def _check_calibration(sequences: Sequences) -> None:
    """Refuse sequences that thresholds and weights cannot be taken from."""
    if not has_variation(sequences):
        got = "a constant" if len(sequences) > 1 else "1 sequence"
        raise InvalidInputError(
            f"expected at least 2 training sequences that vary to take thresholds and weights from, got {got}: pass "
            "others, or quantiles=None and other weights"
        )
