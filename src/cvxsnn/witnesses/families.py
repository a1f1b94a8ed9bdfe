"""Families of witnesses: frozen values that sample, describe and regenerate.

A family is a read-only mapping of its settings too, so that whatever takes a mapping takes a family. Mappings from
users, model files and experiment files become families in :func:`as_family`.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..core.checks import Array, check_choice, check_fields, check_positive_int
from ..core.errors import InvalidInputError
from ..core.memory import check_fits
from ..core.seeds import check_seed, child_generator, child_seed
from ..data.sequences import Sequences
from ..neurons import NEURON_MODELS, HiddenLayer
from ..neurons.exact import snap_weights
from ..neurons.layer import MAX_DELAY, as_one_subnetwork, stack_layers
from .distributions import (
    Constant,
    Distribution,
    Normal,
    Uniform,
    as_distribution,
    is_list,
    parse_distribution,
    per_layer,
)
from .tap_sampling import (
    GEOMETRIES,
    N_CALIBRATION,
    Calibration,
    Geometry,
    LayerPlan,
    TapSampler,
    Weights,
    has_variation,
)
from .witness_set import Provenance, WitnessSet

PerLayer = Distribution | float | Sequence[Distribution | float]
Quantiles = tuple[float, float] | None
Box = tuple[int, ...] | None
Mixture = Literal["all", "dilated", "scattered"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Family(Mapping[str, Any]):
    """A family of witnesses.

    Derive a frozen dataclass from this class, give it a ``name``, and implement :meth:`sample`. As a mapping, a family
    has the fields that differ from their defaults.

    Parameters
    ----------
    dtype : torch.dtype
        Floating-point type of the membranes.
    device : torch.device or str, optional
        Device of the witnesses. Sampling happens on the host, so every device gets the same witnesses.

    Examples
    --------
    >>> from cvxsnn.witnesses import Family, Gaussian
    >>> issubclass(Gaussian, Family), dict(Gaussian(hidden=(8,)))
    (True, {'hidden': (8,)})
    """

    name: ClassVar[str]
    needs_inputs: ClassVar[bool] = True
    """Whether training sequences are necessary to sample."""

    dtype: torch.dtype = torch.float32
    device: torch.device | str | None = None

    @abstractmethod
    def sample(self, inputs: Sequences | Array | int, seed: int = 0) -> WitnessSet:
        """Sample witnesses.

        Parameters
        ----------
        inputs : Sequences, array of shape (n_samples, n_steps, n_features), or int
            Training sequences, or the number of features for a family that needs no more.
        seed : int
            Seed of all draws.

        Returns
        -------
        WitnessSet
            The witnesses, with a recipe that draws them again.
        """

    def describe(self) -> dict[str, Any]:
        """Return the settings as plain values.

        Returns
        -------
        dict of str to object
            A mapping that :func:`as_family` reads, and that every file format can store.
        """
        return describe_family(self)

    @classmethod
    def arguments(cls, neuron: str = "lif") -> list[str]:
        """Return the names of the settings that a mapping may have.

        Parameters
        ----------
        neuron : str
            The neuron model, which may add names.

        Returns
        -------
        list of str
            The names.
        """
        return [own.name for own in fields(cls)]

    def __getitem__(self, name: str) -> Any:
        """Return a setting."""
        if name not in {own.name for own in fields(self)}:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the settings that differ from their defaults."""
        return (own.name for own in fields(self) if _is_set(own, getattr(self, own.name)))

    def __len__(self) -> int:
        """Return the number of settings that differ from their defaults."""
        return sum(1 for _ in self)

    def _check_hidden(self, hidden: Any) -> None:
        if not isinstance(hidden, Sequence) or not hidden:
            raise InvalidInputError(
                f"expected hidden to list the layers' widths, got {hidden!r}: pass for example (256,)"
            )
        object.__setattr__(self, "hidden", tuple(check_positive_int("hidden", width) for width in hidden))

    def _sequences(self, inputs: Sequences | Array | int) -> Sequences:
        if isinstance(inputs, int):
            raise InvalidInputError("expected training inputs to sample neurons with delays from, got none")
        return Sequences.of(inputs)

    def _provenance(self, seed: int, calibration: Calibration) -> Provenance:
        """Return a recipe that :func:`regenerate` follows, given the same sequences."""
        return Provenance("sampled", {**self.describe(), "seed": seed, "inputs": calibration.digest})


def _is_set(own: Field[Any], value: Any) -> bool:
    """Return whether a field differs from its default; one without a default, or that names a family, always does."""
    if own.default_factory is not MISSING:
        return bool(value != own.default_factory())
    return own.default is MISSING or own.name in _NAMING or (value is not own.default and value != own.default)


@dataclass(frozen=True, eq=False, kw_only=True)
class Gaussian(Family):
    """Neurons with Gaussian weights, as in the paper's algorithm CVX.

    A neuron's weights are independent Gaussians of variance ``gain² / fan_in``. Weights between neurons of one layer,
    if the model has any, have variance ``gain² / width``. The other parameters are drawn once per neuron.

    Parameters
    ----------
    dtype : torch.dtype
        Floating-point type of the membranes.
    device : torch.device or str, optional
        Device of the witnesses.
    hidden : sequence of int
        Widths of the hidden layers of *one* subnetwork, so that depth L is ``len(hidden) + 1``. The paper's P_rec and
        P_last are totals over all subnetworks: divide them by ``n_subnetworks``.
    n_subnetworks : int
        The paper's K.
    neuron : str
        The neuron model: "lif", "threshold", or one that was registered (:func:`cvxsnn.neurons.register_neuron`).
    decay : number or Distribution, or a sequence with one per layer
        Leak of a membrane per step, for neurons that have one.
    threshold : number or Distribution, or a sequence with one per layer
        The reset: amount subtracted after a spike, for neurons that have one.
    bias : number or Distribution, or a sequence with one per layer
        Constant drive.
    gain : number or Distribution, or a sequence with one per layer
        Scale of the weights.
    initial_membrane : number or Distribution, or a sequence with one per layer
        Membrane before the first step, for neurons that have one.
    balance : number or Distribution, or a sequence with one per layer
        Share of the sum of a neuron's weights that is subtracted from its bias. With 0.5 a spike counts as +½ and its
        absence as -½, so that neurons fire half of the time at any depth.
    fan_in : int, optional, or a sequence with one per layer
        Number of inputs, or of neurons below, that a neuron reads, drawn for each; all of them by default. A single
        number is for all layers but the first. With fewer, neurons differ more from each other. A balanced neuron that
        reads one other copies or negates it, so deep stacks preserve information.
    parameters : mapping of str to number or Distribution
        Further parameters per neuron of a registered neuron model.

    Examples
    --------
    >>> from cvxsnn.witnesses import Gaussian, Uniform
    >>> Gaussian(hidden=(16, 32), n_subnetworks=4, decay=Uniform(0.5, 1.0)).sample(3)
    WitnessSet(sampled lif, 4 × (3→16→32))
    """

    name = "gaussian"
    needs_inputs = False
    hidden: Sequence[int]
    n_subnetworks: int = 1
    neuron: str = "lif"
    decay: PerLayer = 0.9
    threshold: PerLayer = 1.0
    bias: PerLayer = 0.0
    gain: PerLayer = 1.0
    initial_membrane: PerLayer = 0.0
    balance: PerLayer = 0.0
    fan_in: int | Sequence[int | None] | None = None
    parameters: Mapping[str, PerLayer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the sizes and the names of further parameters."""
        self._check_hidden(self.hidden)
        check_positive_int("n_subnetworks", self.n_subnetworks)
        model = NEURON_MODELS.find(self.neuron)
        unknown = self.parameters.keys() - {*model.sampled}
        if unknown:
            known = ", ".join(("bias", *model.sampled))
            raise InvalidInputError(
                f"expected parameters that {self.neuron} neurons are sampled with ({known}), got "
                f"{', '.join(sorted(unknown))}"
            )

    @classmethod
    def arguments(cls, neuron: str = "lif") -> list[str]:
        """Return the names of the settings, and of what a registered neuron model is sampled with."""
        model = NEURON_MODELS.get(neuron)
        names = [*super().arguments(), *(() if model is None else model.sampled)]
        return [name for name in dict.fromkeys(names) if name != "parameters"]

    def sample(self, inputs: Sequences | Array | int, seed: int = 0) -> WitnessSet:
        """Sample witnesses, for which the number of features is enough."""
        n_features = inputs if isinstance(inputs, int) else Sequences.of(inputs).n_features
        n_layers = len(self.hidden)
        sizes = [check_positive_int("n_features", n_features), *self.hidden]
        names = ("decay", "threshold", "bias", "gain", "initial_membrane", "balance")
        given: dict[str, Any] = {**{name: getattr(self, name) for name in names}, **self.parameters}
        drawn = {
            name: [as_distribution(name, one) for one in per_layer(name, value, n_layers)]
            for name, value in given.items()
        }
        fan_in = self._fan_ins(n_layers)
        recipe: dict[str, Any] = {
            "n_features": sizes[0],
            "hidden": self.hidden,
            "n_subnetworks": int(self.n_subnetworks),
            "neuron": self.neuron,
            **({"fan_in": fan_in} if any(fan_in) else {}),
            "seed": check_seed(seed),
            "dtype": str(self.dtype).removeprefix("torch."),
            **{name: _common([own.describe() for own in each]) for name, each in drawn.items()},
        }
        if all(own == Constant(0.0) for own in drawn["balance"]):
            del recipe["balance"]
        layers = tuple(
            self._layer(pair, fan_in[depth - 1], {name: each[depth - 1] for name, each in drawn.items()}, seed, depth)
            for depth, pair in enumerate(pairwise(sizes), 1)
        )
        return WitnessSet(layers, Provenance("sampled", recipe)).as_drawn()

    def _fan_ins(self, n_layers: int) -> list[int | None]:
        """Return the fan-in of each layer; None reads all."""
        value: Any = self.fan_in
        if not is_list(value):
            value = [None, *[value] * max(1, n_layers - 1)]  # a single one is checked even if no layer uses it
        each = [None if one is None else check_positive_int("fan_in", one) for one in value]
        return per_layer("fan_in", each if is_list(self.fan_in) else each[:n_layers], n_layers)

    def _layer(
        self, sizes: tuple[int, int], fan_in: int | None, drawn: Mapping[str, Distribution], seed: int, depth: int
    ) -> HiddenLayer:
        """Draw one layer."""
        n_inputs, width = sizes
        n_subnetworks, model = self.n_subnetworks, NEURON_MODELS.find(self.neuron)

        def per_neuron(name: str) -> npt.NDArray[np.float64]:
            return drawn[name].sample(child_generator(seed, "witness", depth, name), (n_subnetworks, width))

        def weights(name: str, rows: int) -> Tensor:
            # 16 bytes per weight while they are drawn, scaled and rounded.
            n_bytes = 16 * n_subnetworks * rows * width
            check_fits(n_bytes, "cpu", "the weights of a hidden layer", "use fewer or narrower subnetworks")
            generator = child_generator(seed, "witness", depth, name)
            normal = generator.standard_normal((n_subnetworks, rows, width), dtype=np.float32)
            kept = min(fan_in or rows, rows) if name == "weight" else rows
            if kept == 1 < rows:  # in turn, so that each value below is read if there are enough neurons
                order = child_generator(seed, "witness", depth, "fan_in").random((n_subnetworks, rows)).argsort(1)
                read = np.tile(order, -(-width // rows))[:, :width]
                normal *= np.arange(rows)[None, :, None] == read[:, None, :]
            elif kept < rows:
                keys = child_generator(seed, "witness", depth, "fan_in").random(normal.shape, dtype=np.float32)
                normal[keys > np.partition(keys, kept - 1, axis=1)[:, kept - 1 : kept]] = 0
            scaled = normal * (per_neuron("gain") / math.sqrt(kept)).astype(np.float32)[:, None, :]
            return snap_weights(torch.from_numpy(scaled).to(self.dtype))

        weight = weights("weight", n_inputs)
        # Sums of weights on their grid are exact in float64, so that every machine balances alike.
        bias = per_neuron("bias") - per_neuron("balance") * weight.double().sum(1).numpy()
        values = {"bias": bias, **{name: per_neuron(name) for name in model.sampled if name in drawn}}
        parameters = {
            name: torch.from_numpy(value).to(device=self.device, dtype=self.dtype) for name, value in values.items()
        }
        if model.is_recurrent:
            parameters["recurrent_weight"] = weights("recurrent_weight", width).to(self.device)
        return model.layer(weight.to(self.device), **parameters)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False, kw_only=True)
class Delayed(Family):
    r"""Neurons whose synapses have delays.

    A synapse, or tap, reads one input (or one neuron of the layer below) a fixed number of steps ago. The level at
    which a neuron fires is a quantile of the membrane that it has on training sequences when it never fires. Labels are
    not used.

    Parameters
    ----------
    dtype : torch.dtype
        Floating-point type of the membranes.
    device : torch.device or str, optional
        Device of the witnesses.
    hidden : sequence of int
        Widths of the hidden layers of one subnetwork.
    n_subnetworks : int
        The paper's K.
    geometry : "scattered", "box", "dilated" or "correlated", or a sequence with one per layer
        Where taps are. Scattered: at random delays and inputs. Box: in a window of consecutive delays and neighbouring
        inputs, at a random position. Dilated: all on one random input, at delays 0, d, 2d, ..., with log-uniform d.
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
        Number of steps after which a sequence returns to the same position, for example 28 for images of 28 columns
        that are read pixel by pixel. Boxes are then patches: neighbouring steps in consecutive periods. A single number
        is for the first layer.
    neighbours : int, optional
        Number of pairs of delay and input among which correlated taps are chosen. By default ``fan_in``.
    weights : "gaussian", "centred", "two-valued" or "differences", or a sequence with one per layer
        Gaussian; Gaussian minus their mean; -1 and, for a third of the taps, 2; or the difference between what the taps
        read in two random training sequences at one random step, with norm one.
    differenced : bool, or a sequence with one per layer
        Whether the taps read first differences: each tap is joined by one of opposite sign a step earlier.
    quantiles : tuple of two float or None, or a sequence with one per layer
        The range from which the quantile of each firing level is drawn. A neuron whose level is the 0.9 quantile fires
        in about a tenth of the steps. None draws ``bias`` instead, and uses no data for it.
    steps : "all" or "last"
        The steps of training sequences from which firing levels, weights and correlations are taken. "last" suits
        read-outs of the last step.
    decay : number or Distribution, or a sequence with one per layer
        Leak of a membrane per step, for neurons that have one.
    threshold : number or Distribution, or a sequence with one per layer
        The reset: amount subtracted after a spike. With ``quantiles``, in units of the membrane's standard deviation.
    bias : number or Distribution, or a sequence with one per layer
        Constant drive, only with ``quantiles=None``.
    neuron : str
        The neuron model: "lif", or "threshold" with ``decay`` and ``threshold`` zero, without recurrence.
    n_calibration : int
        Number of training sequences, a seeded subset, from which firing levels and weights are taken.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.witnesses import Delayed
    >>> inputs = np.random.default_rng(0).normal(size=(100, 20, 3))
    >>> family = Delayed(hidden=(64,), fan_in=9, max_delay=10)
    >>> family.sample(inputs, seed=1)
    WitnessSet(sampled lif, 1 × (3→64))
    >>> family.describe()
    {'sampler': 'delayed', 'hidden': [64], 'geometry': 'scattered', 'fan_in': 9, 'max_delay': 10}
    """

    name = "delayed"
    hidden: Sequence[int]
    n_subnetworks: int = 1
    geometry: Geometry | Sequence[Geometry] = "scattered"
    fan_in: int | Sequence[int | None] | None = 25
    max_delay: int | Sequence[int | None] | None = None
    box: Box | Sequence[Box] = None
    feature_shape: tuple[int, ...] | None = None
    period: int | Sequence[int | None] | None = None
    neighbours: int | None = None
    weights: Weights | Sequence[Weights] = "gaussian"
    differenced: bool | Sequence[bool] = False
    quantiles: Quantiles | Sequence[Quantiles] = (0.05, 0.95)
    steps: Literal["all", "last"] = "all"
    decay: PerLayer = 0.0
    threshold: PerLayer = 0.0
    bias: PerLayer = 0.0
    neuron: str = "lif"
    n_calibration: int = N_CALIBRATION

    def __post_init__(self) -> None:
        """Check what does not depend on the sequences."""
        self._check_hidden(self.hidden)
        check_fields(self, "n_subnetworks", "n_calibration", "neighbours", steps=("all", "last"))

    def sample(self, inputs: Sequences | Array | int, seed: int = 0) -> WitnessSet:
        """Sample witnesses; :func:`cvxsnn.witnesses.regenerate` needs the same sequences to draw them again."""
        sequences, seed = self._sequences(inputs), check_seed(seed)
        plans = self._plans(sequences)
        if any(plan.needs_values for plan in plans) and not has_variation(sequences):
            got = "a constant" if len(sequences) > 1 else "1 sequence"
            raise InvalidInputError(
                f"expected at least 2 training sequences that vary to take thresholds and weights from, got {got}: "
                "pass others, or quantiles=None and other weights"
            )
        calibration = Calibration.of(sequences, self.n_calibration, seed)
        layers = tuple(layer.to(self.device) for layer in self.draw(calibration, seed, plans))
        return WitnessSet(layers, self._provenance(seed, calibration))

    def draw(self, calibration: Calibration, seed: int, plans: Sequence[LayerPlan] | None = None) -> list[HiddenLayer]:
        """Draw the layers, on the host.

        Parameters
        ----------
        calibration : Calibration
            The training sequences to take firing levels and weights from.
        seed : int
            Seed of all draws.
        plans : sequence of LayerPlan, optional
            The settings of each layer, if they are checked already.

        Returns
        -------
        list of HiddenLayer
            The layers, from the inputs up.
        """
        dynamics, layers = self._dynamics(), list[HiddenLayer]()
        sizes = [calibration.sequences.n_features, *self.hidden]
        plans = self._plans(calibration.sequences) if plans is None else plans
        for depth, (plan, (n_inputs, width)) in enumerate(zip(plans, pairwise(sizes), strict=True), 1):
            n_neurons = self.n_subnetworks * width
            check_fits(64 * n_neurons, "cpu", "the neurons of a hidden layer", "use fewer of them")

            def generator(name: str, depth: int = depth) -> np.random.Generator:
                return child_generator(seed, "delayed", depth, name)

            values, shape = calibration.values_above(layers), (self.n_subnetworks, width)
            sampler = TapSampler(plan, shape, calibration, values, n_inputs, generator)
            drawn = {name: each[depth - 1].sample(generator(name), (n_neurons,)) for name, each in dynamics.items()}
            layers.append(self._layer(sampler, drawn["decay"], drawn["threshold"], drawn["bias"]))
        return layers

    def _layer(self, sampler: TapSampler, decay: Any, reset: Any, bias: Any) -> HiddenLayer:
        source, delay, weight = sampler.taps()
        model = NEURON_MODELS.find(self.neuron)
        if not model.keeps_membrane and bool(decay.any() or reset.any()):
            raise InvalidInputError(
                f"expected decay 0 and threshold 0 for {self.neuron} neurons, which keep no membrane, got others"
            )
        taps: dict[str, Any] = {
            "source": sampler.by_layer(source),
            "delay": sampler.by_layer(delay),
            "n_sources": sampler.n_inputs,
        }
        # Rounded to float32 first, so that weights are the same in every dtype.
        snapped = snap_weights(sampler.by_layer(weight).to(torch.float32).to(self.dtype))
        start = np.zeros_like(bias)
        if sampler.plan.quantiles is not None:
            level, spread = sampler.levels(model.layer(snapped, **taps), decay)
            # The membrane is measured from its firing level: it starts there below zero, and leaks towards it.
            bias, start, reset = -level * (1 - decay), -level, reset * spread
        parameters = {"bias": bias}
        if model.keeps_membrane:
            parameters |= {"decay": decay, "threshold": reset, "initial_membrane": start}
        own = {name: sampler.by_layer(value).to(self.dtype) for name, value in parameters.items()}
        return model.layer(snapped, **own, **taps)  # type: ignore[arg-type]

    def _dynamics(self) -> dict[str, list[Distribution]]:
        return {
            name: [as_distribution(name, one) for one in per_layer(name, getattr(self, name), len(self.hidden))]
            for name in ("decay", "threshold", "bias")
        }

    def _plans(self, sequences: Sequences) -> list[LayerPlan]:
        """Return the settings of each layer, checked for sequences of this shape."""
        n_layers = len(self.hidden)
        each = {name: per_layer(name, getattr(self, name), n_layers) for name in _PER_LAYER}
        quantiles = _checked_quantiles(self.quantiles, n_layers)
        biases = self._dynamics()["bias"]
        if any(own is not None and bias != Constant(0.0) for own, bias in zip(quantiles, biases, strict=True)):
            raise InvalidInputError(
                "expected no bias beside quantiles, which decide it, got one: drop it, or pass quantiles=None"
            )
        periods = self._of_first("period", self.period, is_list(self.period))
        is_size = is_list(self.box) and not any(own is None or is_list(own) for own in self.box)  # type: ignore[union-attr]
        boxes = self._of_first("box", self.box, is_list(self.box) and not is_size)
        grid = _checked_grid(self.feature_shape, sequences.n_features)
        for name, choices in (("geometry", GEOMETRIES), ("weights", Weights.__args__)):  # type: ignore[attr-defined]
            for value in each[name]:
                check_choice(name, value, tuple(choices))
        if "correlated" in each["geometry"][1:]:
            raise InvalidInputError(
                "expected correlated taps in the first layer only, got them above it: pass geometry=('correlated', "
                "'scattered')"
            )
        plans = []
        for number in range(n_layers):
            period = None if periods[number] is None else check_positive_int("period", periods[number])
            fan_in, own_grid = each["fan_in"][number], None if number else grid
            plans.append(
                LayerPlan(
                    geometry=each["geometry"][number],
                    fan_in=None if fan_in is None else check_positive_int("fan_in", fan_in),
                    max_delay=_checked_delay(each["max_delay"][number], sequences.n_steps),
                    box=_checked_box(boxes[number], own_grid, period),
                    feature_shape=own_grid,
                    period=period,
                    neighbours=self.neighbours,
                    weights=each["weights"][number],
                    is_differenced=bool(each["differenced"][number]),
                    quantiles=quantiles[number],
                    is_last=self.steps == "last",
                )
            )
        if any(plan.is_differenced and plan.max_delay == 0 for plan in plans):
            raise InvalidInputError(
                "expected a max_delay of at least 1 for first differences, which read two steps, got 0: pass "
                "differenced=False"
            )
        return plans

    def _of_first(self, name: str, value: Any, is_listed: bool) -> list[Any]:
        """Return a value of each layer; a single one is for the first layer."""
        n_layers = len(self.hidden)
        return per_layer(name, value, n_layers) if is_listed else [value, *[None] * (n_layers - 1)]


_PER_LAYER = ("geometry", "fan_in", "max_delay", "weights", "differenced")


def _checked_quantiles(quantiles: Any, n_layers: int) -> list[Quantiles]:
    """Return the range of each layer."""
    is_listed = is_list(quantiles) and all(own is None or isinstance(own, (tuple, list)) for own in quantiles)
    each = per_layer("range of quantiles", quantiles, n_layers) if is_listed else [quantiles] * n_layers
    for own in each:
        is_pair = is_list(own) and len(own) == 2 and all(isinstance(x, Real) for x in own)
        if own is not None and not (is_pair and 0 <= own[0] <= own[1] <= 1):
            raise InvalidInputError(
                f"expected two quantiles between 0 and 1 in increasing order, got {own!r}: pass for example "
                "(0.05, 0.95)"
            )
    return [None if own is None else (float(own[0]), float(own[1])) for own in each]


def _checked_grid(feature_shape: Any, n_features: int) -> tuple[int, ...] | None:
    """Return the rows and columns of the inputs."""
    grid = None if feature_shape is None else _whole_numbers(feature_shape)
    if grid is not None and (len(grid) != 2 or math.prod(grid) != n_features):
        raise InvalidInputError(
            f"expected feature_shape to be the rows and columns of {n_features} features, got {feature_shape!r}"
        )
    return grid


def _checked_box(box: Any, grid: tuple[int, ...] | None, period: int | None) -> Box:
    """Return the size of a layer's boxes."""
    size = None if box is None else _whole_numbers(box)
    if size is not None and len(size) != (2 if grid is None else 3) + (period is not None):
        names = "delays and features" if grid is None else "delays, rows and columns"
        names = names if period is None else names.replace("delays", "periods, steps", 1)
        raise InvalidInputError(f"expected box to be positive numbers of {names}, got {box!r}")
    return size


def _whole_numbers(value: Any) -> tuple[int, ...]:
    """Return positive whole numbers as a tuple; an empty one for anything else."""
    each = tuple(value) if is_list(value) else ()
    is_whole = all(isinstance(own, (int, np.integer)) and not isinstance(own, bool) and own > 0 for own in each)
    return tuple(int(own) for own in each) if is_whole else ()


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


def _common(each: list[Any]) -> Any:
    return each[0] if all(own == each[0] for own in each) else each


@dataclass(frozen=True, eq=False, kw_only=True)
class Mixed(Family):
    """One layer of neurons of several families with delays, in equal shares.

    No single family suits all data: nearby values matter in one task, distant ones in another, slopes in a third. A
    mixture leaves the choice to the read-out. If the sequences do not vary, so that no firing levels can be taken from
    them, the neurons have no delays, random leaks and random biases.

    Parameters
    ----------
    dtype : torch.dtype
        Floating-point type of the membranes.
    device : torch.device or str, optional
        Device of the witnesses.
    n_witnesses : int
        Number of neurons.
    mixture : "all", "dilated" or "scattered"
        Neurons that read one input at regular delays, as filters do; neurons that read several inputs at random
        delays, or sum inputs over time; or all of these.
    n_calibration : int
        Number of training sequences, a seeded subset, from which firing levels and weights are taken.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.witnesses import Mixed
    >>> Mixed(n_witnesses=100).sample(np.random.default_rng(0).normal(size=(50, 20, 3)))
    WitnessSet(sampled lif, 1 × (3→100))
    """

    name = "mixed"
    n_witnesses: int
    mixture: Mixture = "all"
    n_calibration: int = N_CALIBRATION

    def __post_init__(self) -> None:
        """Check the settings."""
        check_fields(self, "n_witnesses", mixture=MIXTURES)

    def sample(self, inputs: Sequences | Array | int, seed: int = 0) -> WitnessSet:
        """Sample witnesses; :func:`cvxsnn.witnesses.regenerate` needs the same sequences to draw them again."""
        sequences, seed = self._sequences(inputs), check_seed(seed)
        calibration = Calibration.of(sequences, self.n_calibration, seed)
        if not has_variation(calibration.sequences):
            decay, bias = Uniform(0.5, 1.0), Normal(0.0, 0.5)
            plain = Gaussian(hidden=(self.n_witnesses,), decay=decay, bias=bias, dtype=self.dtype, device=self.device)
            return plain.sample(sequences.n_features, seed)
        parts = mixture_families(self.mixture, sequences.n_steps, sequences.n_features)[: self.n_witnesses]
        share, rest = divmod(self.n_witnesses, len(parts))
        layers = []
        for number, part in enumerate(parts):
            family = Delayed(hidden=(1,), n_subnetworks=share + (number < rest), dtype=self.dtype, **part)
            layers += family.draw(calibration, child_seed(seed, "mixed", number))
        layer = as_one_subnetwork(stack_layers(layers))
        return WitnessSet((layer.to(self.device),), self._provenance(seed, calibration))


MIXTURES: tuple[Mixture, ...] = ("all", "dilated", "scattered")

STEPS_FOR_DELAYS = 9
"""Fewest steps of sequences for which dilated taps, nine of them, and families with delays are of use."""

_PARTS: dict[str, dict[str, Any]] = {
    "filter": {"geometry": "dilated", "fan_in": 9, "weights": "centred"},
    "slope": {"geometry": "dilated", "fan_in": 9, "weights": "two-valued", "differenced": True},
    "leaky filter": {"geometry": "dilated", "fan_in": 9, "weights": "two-valued", "decay": Uniform(0.5, 0.95)},
    "recent": {"geometry": "scattered", "fan_in": 9, "weights": "centred"},
    "box": {"geometry": "box", "box": (10, 8), "fan_in": None, "weights": "centred"},
    "few": {"geometry": "scattered", "fan_in": 4, "weights": "gaussian"},
    "differences": {"geometry": "scattered", "fan_in": 25, "weights": "differences"},
    "random": {"geometry": "scattered", "fan_in": 25, "weights": "gaussian"},
    "many": {"geometry": "scattered", "fan_in": 100, "weights": "differences"},
    "leaky": {"fan_in": 9, "max_delay": 0, "decay": Uniform(0.8, 1.0), "threshold": Uniform(0.0, 1.0)},
    "sum": {"fan_in": 9, "max_delay": 0, "decay": 1.0},
}
"""Settings of :class:`Delayed` for the parts of mixtures."""


def mixture_families(mixture: Mixture, n_steps: int, n_features: int) -> list[dict[str, Any]]:
    """Return the settings of the families of a mixture, for sequences of a shape.

    Parameters
    ----------
    mixture : "all", "dilated" or "scattered"
        The mixture.
    n_steps : int
        Number of steps of the longest sequence. Short sequences have no use for dilated taps.
    n_features : int
        Number of inputs per step. With four or more, neurons may read neighbouring ones.

    Returns
    -------
    list of dict
        Settings of :class:`Delayed`.
    """
    has_several = n_features >= 4
    nearby = ["recent", "box"] if has_several else ["recent"]
    if n_steps * n_features == 1:
        names = ["few"]
    elif n_steps == 1:
        names = ["few", "recent", "differences", "random", "many"]
    elif n_steps < STEPS_FOR_DELAYS:
        names = ["few", *nearby, "differences", "random", "many", "leaky", "sum"]
    elif mixture == "dilated":
        names = ["filter", "slope", "leaky filter"]
    elif mixture == "scattered":
        names = ["few", "differences", "random", "many", "leaky", "sum"]
    else:
        names = ["filter", "slope", "leaky filter", *nearby, "differences", "random", "leaky"]
    recent = {**_PARTS["recent"], "max_delay": min(7 if has_several else 15, n_steps - 1)}
    return [recent if name == "recent" else _PARTS[name] for name in names]


def mixtures_for(n_steps: int, n_features: int) -> tuple[Mixture, ...]:
    """Return the mixtures that differ for sequences of a shape, the default first.

    Parameters
    ----------
    n_steps : int
        Number of steps of the longest sequence.
    n_features : int
        Number of inputs per step. With four or more, "all" is as accurate as "scattered".

    Returns
    -------
    tuple of str
        Some of "all", "dilated" and "scattered".
    """
    if n_steps < STEPS_FOR_DELAYS:
        return ("all",)
    return ("all", "dilated") if n_features >= 4 else MIXTURES


FAMILIES: dict[str, type[Family]] = {kind.name: kind for kind in (Gaussian, Delayed, Mixed)}
"""Families by the name that their descriptions have as ``"sampler"``."""

_NAMING: dict[str, type[Family]] = {"geometry": Delayed, "mixture": Mixed}
"""Settings by which a mapping without a ``"sampler"`` is recognised."""


def family_kind(family: Mapping[str, Any]) -> type[Family]:
    """Return the type of the family that a mapping describes.

    Parameters
    ----------
    family : mapping of str to object
        A family, or its settings.

    Returns
    -------
    type of Family
        The type that ``"sampler"`` names; without that, :class:`Delayed` if there is a ``"geometry"``,
        :class:`Mixed` if there is a ``"mixture"``, and :class:`Gaussian` otherwise.
    """
    if isinstance(family, Family):
        return type(family)
    if "sampler" in family:
        return FAMILIES[check_choice("sampler", family["sampler"], tuple(FAMILIES))]
    return next((kind for name, kind in _NAMING.items() if name in family), Gaussian)


def as_family(family: Mapping[str, Any]) -> Family:
    """Return the family that a mapping describes.

    Parameters
    ----------
    family : mapping of str to object
        A family, or its settings, also as plain values.

    Returns
    -------
    Family
        The family.

    Examples
    --------
    >>> from cvxsnn.witnesses import as_family
    >>> family = as_family({"hidden": (64,), "geometry": "scattered", "max_delay": 10})
    >>> type(family).__name__, family.fan_in
    ('Delayed', 25)
    """
    if isinstance(family, Family):
        return family
    kind, given = family_kind(family), {name: value for name, value in family.items() if name != "sampler"}
    known = kind.arguments(given.get("neuron", "lif"))
    unknown = sorted(set(given) - set(known))
    if unknown:
        hint = (
            ": add geometry for neurons with delays"
            if kind is Gaussian and {*unknown} <= {*Delayed.arguments()}
            else ""
        )
        raise InvalidInputError(f"expected a family of {sorted(known)}, got {unknown} too{hint}")
    names = {own.name for own in fields(kind)}
    if "hidden" in names and "hidden" not in given:
        raise InvalidInputError("expected a family with the widths of its hidden layers, got none: add hidden=(256,)")
    settings: dict[str, Any] = {name: _parsed(name, value) for name, value in given.items() if name in names}
    further = {name: _parsed(name, value) for name, value in given.items() if name not in names}
    return kind(**settings | ({"parameters": further} if further else {}))


def _parsed(name: str, value: Any) -> Any:
    if name == "dtype" and isinstance(value, str):
        return getattr(torch, value)
    if isinstance(value, (list, tuple)):
        return type(value)(_parsed(name, one) for one in value)
    return parse_distribution(value) if isinstance(value, Mapping) else value


def describe_family(family: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a family as plain values.

    Parameters
    ----------
    family : mapping of str to object
        A family, or its settings.

    Returns
    -------
    dict of str to object
        The same with every distribution described.

    Examples
    --------
    >>> from cvxsnn.witnesses import Uniform, describe_family
    >>> describe_family({"hidden": (64,), "decay": Uniform(0.5, 1.0)})
    {'hidden': [64], 'decay': {'distribution': 'uniform', 'low': 0.5, 'high': 1.0}}
    """

    def plain(value: Any) -> Any:
        if isinstance(value, Distribution):
            return value.describe()
        if isinstance(value, (np.generic, torch.dtype)):
            return value.item() if isinstance(value, np.generic) else str(value).removeprefix("torch.")
        return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value

    settings = {"sampler": family.name, **family} if isinstance(family, Family) else {**family}
    settings |= settings.pop("parameters", {})
    settings.pop("device", None)  # which changes no draw
    return {name: plain(value) for name, value in settings.items()}


def sample_witnesses(family: Mapping[str, Any], inputs: Sequences | Array | int, seed: int = 0) -> WitnessSet:
    """Sample witnesses of a family.

    Parameters
    ----------
    family : mapping of str to object
        A family, or its settings: those of :class:`Delayed` with a key ``"geometry"``, otherwise those of
        :class:`Gaussian`. ``hidden`` is required.
    inputs : Sequences, array of shape (n_samples, n_steps, n_features), or int
        Training sequences. The number of features is enough for a family without delays.
    seed : int
        Seed of all draws.

    Returns
    -------
    WitnessSet
        The witnesses.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.witnesses import sample_witnesses
    >>> inputs = np.random.default_rng(0).normal(size=(100, 20, 3))
    >>> sample_witnesses({"hidden": (64,), "decay": 0.5}, inputs)
    WitnessSet(sampled lif, 1 × (3→64))
    >>> delayed = sample_witnesses({"hidden": (64,), "geometry": "scattered", "max_delay": 10}, inputs)
    >>> delayed.layers[0].max_delay
    10
    """
    return as_family(family).sample(inputs, seed)


def gaussian_witnesses(
    n_features: int, hidden: Sequence[int], n_subnetworks: int = 1, *, seed: int = 0, **settings: Any
) -> WitnessSet:
    """Sample witnesses with Gaussian weights.

    Parameters
    ----------
    n_features : int
        Input features per step.
    hidden : sequence of int
        Widths of the hidden layers of one subnetwork.
    n_subnetworks : int
        Number of subnetworks, the paper's K.
    seed : int
        Seed of all draws. A layer's weights depend on nothing else: not on the device, nor on the other parameters.
    **settings : object
        Further settings of :class:`Gaussian`: ``decay``, ``threshold``, ``bias``, ``gain``, ``initial_membrane``,
        ``balance``, ``fan_in``, ``neuron``, ``dtype``, ``device``, and parameters of a registered neuron model.

    Returns
    -------
    WitnessSet
        The witnesses, with a recipe that draws them again.

    Examples
    --------
    >>> from cvxsnn import gaussian_witnesses
    >>> from cvxsnn.witnesses import Uniform
    >>> gaussian_witnesses(n_features=3, hidden=(16, 32), n_subnetworks=4, decay=Uniform(0.5, 1.0), seed=0)
    WitnessSet(sampled lif, 4 × (3→16→32))
    """
    family = {"sampler": "gaussian", "hidden": hidden, "n_subnetworks": n_subnetworks, **settings}
    return sample_witnesses(family, check_positive_int("n_features", n_features), seed)


def delayed_witnesses(
    inputs: Sequences | Array, hidden: Sequence[int], n_subnetworks: int = 1, *, seed: int = 0, **settings: Any
) -> WitnessSet:
    """Sample witnesses whose synapses have delays.

    Parameters
    ----------
    inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
        Training sequences. A seeded subset of ``n_calibration`` of them is used.
    hidden : sequence of int
        Widths of the hidden layers of one subnetwork.
    n_subnetworks : int
        Number of subnetworks, the paper's K.
    seed : int
        Seed of all draws.
    **settings : object
        Further settings of :class:`Delayed`: ``geometry``, ``fan_in``, ``max_delay``, ``weights``, ``quantiles`` and
        others.

    Returns
    -------
    WitnessSet
        The witnesses, with a recipe. :func:`cvxsnn.witnesses.regenerate` needs the training sequences to draw them
        again.

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
    family = {"sampler": "delayed", "hidden": hidden, "n_subnetworks": n_subnetworks, **settings}
    return sample_witnesses(family, inputs, seed)


def mixed_witnesses(
    inputs: Sequences | Array, n_witnesses: int, mixture: Mixture = "all", *, seed: int = 0, **settings: Any
) -> WitnessSet:
    """Sample one layer of neurons with delays from several families.

    Parameters
    ----------
    inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
        Training sequences. Firing levels and some weights are taken from a seeded subset of them.
    n_witnesses : int
        Number of neurons.
    mixture : "all", "dilated" or "scattered"
        The families, each with an equal share of the neurons.
    seed : int
        Seed of all draws.
    **settings : object
        Further settings of :class:`Mixed`: ``n_calibration``, ``dtype`` and ``device``.

    Returns
    -------
    WitnessSet
        One layer, family by family.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.witnesses import mixed_witnesses
    >>> mixed_witnesses(np.random.default_rng(0).normal(size=(50, 20, 3)), 100)
    WitnessSet(sampled lif, 1 × (3→100))
    """
    return Mixed(n_witnesses=n_witnesses, mixture=mixture, **settings).sample(inputs, seed)


def regenerate(provenance: Provenance, *, inputs: Sequences | Array | None = None, **overrides: Any) -> WitnessSet:
    """Draw sampled witnesses again from their recipe.

    Parameters
    ----------
    provenance : Provenance
        The origin of the witnesses.
    inputs : Sequences or array of shape (n_samples, n_steps, n_features), optional
        For witnesses with delays, the training sequences that they were sampled with.
    **overrides : object
        Settings to change; ``dtype`` and ``device`` change no draw.

    Returns
    -------
    WitnessSet
        The same witnesses.

    Examples
    --------
    >>> import torch
    >>> import cvxsnn as cs
    >>> from cvxsnn.witnesses import regenerate
    >>> witnesses = cs.gaussian_witnesses(2, (8,), seed=3)
    >>> again = regenerate(witnesses.provenance)
    >>> torch.equal(again.layers[0].weight, witnesses.layers[0].weight)
    True
    """
    if provenance.kind != "sampled":
        raise InvalidInputError(f"expected sampled witnesses, got {provenance.kind} ones: only a sample has a seed")
    recipe = {**provenance.recipe, **overrides}
    subnetworks, neurons, seed = recipe.pop("subnetworks", None), recipe.pop("neurons", None), recipe.pop("seed")
    n_features, digest = recipe.pop("n_features", None), recipe.pop("inputs", None)
    family = as_family(recipe)
    data: Any = _same_inputs(digest, inputs, recipe, seed) if family.needs_inputs else n_features
    witnesses = family.sample(data, seed)
    if neurons is not None:
        return witnesses.take_neurons(torch.as_tensor(neurons))
    return witnesses if subnetworks is None else witnesses.take(torch.as_tensor(subnetworks))


def _same_inputs(digest: str, inputs: Sequences | Array | None, recipe: Mapping[str, Any], seed: int) -> Sequences:
    if inputs is None:
        raise InvalidInputError(
            "expected the training inputs that the witnesses were sampled with, got none: pass inputs="
        )
    sequences = Sequences.of(inputs)
    if Calibration.of(sequences, recipe.get("n_calibration", N_CALIBRATION), seed).digest != digest:
        raise InvalidInputError(
            "expected the training inputs that the witnesses were sampled with, got others: pass the same sequences in "
            "the same order"
        )
    return sequences


def is_reproducible(witnesses: WitnessSet) -> bool:
    """Return whether the recipe of witnesses draws them again, to the bit, without any data."""
    return witnesses.is_drawn and not family_kind(witnesses.provenance.recipe).needs_inputs
