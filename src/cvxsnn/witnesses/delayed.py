"""Neurons whose synapses have delays."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np

from ..core.checks import Array, check_choice, check_positive_int
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..core.memory import check_fits
from ..core.seeds import check_seed, child_generator
from ..data.sequences import Sequences
from ..neurons import NEURON_MODELS, HiddenLayer
from ..neurons.layer import MAX_DELAY
from .settings import Check, Constant, Family, LayerSetting, PerLayer, as_distribution, check_optional_int, is_list
from .tap_sampling import (
    GEOMETRIES,
    N_CALIBRATION,
    Calibration,
    Geometry,
    LayerPlan,
    TapSampler,
    Weights,
    as_layer,
    as_sequences,
    has_variation,
)
from .witness_set import WitnessSet

Quantiles = tuple[float, float] | None
Box = tuple[int, ...] | None


def one_of(choices: Iterable[str]) -> Check:
    """Return a check that a setting is one of some names."""
    names = tuple(choices)
    return lambda name, value: check_choice(name, value, names)


def _check_max_delay(name: str, value: Any) -> int | None:
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if value is not None and not (is_whole and 0 <= value <= MAX_DELAY):
        raise InvalidInputError(f"expected {name} to be a whole number of steps from 0, got {value!r}")
    return None if value is None else int(value)


def _check_neuron(value: Any) -> str:
    model = NEURON_MODELS.find(value)
    if model.is_integer:
        raise InvalidInputError(
            f"expected neurons with weights of any size, got {model.name} neurons, whose weights are integers of a "
            "chip: sample a Chip family"
        )
    return model.name


def _check_quantiles(name: str, value: Any) -> Quantiles:
    if value is None:
        return None
    is_pair = is_list(value) and len(value) == 2 and all(isinstance(x, Real) for x in value)
    if not (is_pair and 0 <= value[0] <= value[1] <= 1):
        raise InvalidInputError(
            f"expected two {name} between 0 and 1 in increasing order, got {value!r}: pass for example (0.05, 0.95)"
        )
    return float(value[0]), float(value[1])


def _whole_numbers(value: Any) -> tuple[int, ...]:
    """Return positive whole numbers as a tuple; an empty one for anything else."""
    sizes = tuple(value) if is_list(value) else ()
    is_whole = all(isinstance(size, (int, np.integer)) and not isinstance(size, bool) and size > 0 for size in sizes)
    return tuple(int(size) for size in sizes) if is_whole else ()


_PER_LAYER: Mapping[str, LayerSetting] = {
    "geometry": LayerSetting(one_of(GEOMETRIES)),
    "fan_in": LayerSetting(check_optional_int),
    "max_delay": LayerSetting(_check_max_delay),
    "box": LayerSetting(lambda name, value: value, is_tuple=True, is_of_first=True),
    "period": LayerSetting(check_optional_int, is_of_first=True),
    "weights": LayerSetting(one_of(get_args(Weights))),
    "differenced": LayerSetting(lambda name, value: bool(value)),
    "quantiles": LayerSetting(_check_quantiles, is_tuple=True),
    **dict.fromkeys(("decay", "threshold", "bias"), LayerSetting(as_distribution)),
}
"""Settings of :class:`Delayed` that each layer may have its own value of."""

_CHECKS: Mapping[str, Check] = {
    **Family.checks,
    "n_calibration": check_positive_int,
    "neighbours": check_optional_int,
    "steps": one_of(("all", "last")),
    "neuron": lambda _, value: _check_neuron(value),
}


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
    recognised_by = "geometry"
    checks = _CHECKS
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

    def sample(self, inputs: Sequences | Array | int, seed: int = 0) -> WitnessSet:
        """Sample witnesses; :func:`cvxsnn.witnesses.regenerate` needs the same sequences to draw them again."""
        sequences, seed = as_sequences(inputs), check_seed(seed)
        if any(plan.needs_values for plan in self._plans) and not has_variation(sequences):
            got = "a constant" if len(sequences) > 1 else "1 sequence"
            raise InvalidInputError(
                f"expected at least 2 training sequences that vary to take thresholds and weights from, got {got}: "
                "pass others, or quantiles=None and other weights"
            )
        self._check_shape(sequences.n_steps, sequences.n_features)
        calibration = Calibration.of(sequences, self.n_calibration, seed)
        sizes, layers = [sequences.n_features, *self.hidden], list[HiddenLayer]()
        for depth, (plan, (n_inputs, width)) in enumerate(zip(self._plans, pairwise(sizes), strict=True), 1):
            check_fits(64 * self.n_subnetworks * width, "cpu", "the neurons of a hidden layer", "use fewer of them")
            generator = partial(child_generator, seed, "delayed", depth)
            drawn = TapSampler(plan, (self.n_subnetworks, width), calibration, generator, layers).draw(self.dtype)
            layers.append(as_layer(self.neuron, [drawn], self.n_subnetworks, n_inputs, self.dtype))
        return WitnessSet(tuple(layer.to(self.device) for layer in layers), calibration.provenance(self, seed))

    @cached_property
    def _plans(self) -> list[LayerPlan]:
        """The settings of each layer, checked as far as they do not depend on the sequences."""
        n_layers = len(self.hidden)
        values = {name: setting.each(name, getattr(self, name), n_layers) for name, setting in _PER_LAYER.items()}
        # Correlations are those of the inputs.
        if "correlated" in values["geometry"][1:]:
            raise InvalidInputError(
                "expected correlated taps in the first layer only, got them above it: pass geometry=('correlated', "
                "'scattered')"
            )
        if any(
            quantiles is not None and bias != Constant(0.0)
            for quantiles, bias in zip(values["quantiles"], values["bias"], strict=True)
        ):
            raise InvalidInputError(
                "expected no bias beside quantiles, which decide it, got one: drop it, or pass quantiles=None"
            )
        grids = [None if self.feature_shape is None else _whole_numbers(self.feature_shape), *[None] * (n_layers - 1)]
        values["box"] = list(map(_checked_box, values["box"], grids, values["period"]))
        common: dict[str, Any] = {"neighbours": self.neighbours, "steps": self.steps}
        layers = [dict(zip(values, layer, strict=True)) for layer in zip(*values.values(), strict=True)]
        return [LayerPlan(**layer, feature_shape=grid, **common) for layer, grid in zip(layers, grids, strict=True)]

    def _check_shape(self, n_steps: int, n_features: int) -> None:
        """Check the settings that depend on the shape of the sequences."""
        grid = self._plans[0].feature_shape
        if grid is not None and (len(grid) != 2 or math.prod(grid) != n_features):
            raise InvalidInputError(
                f"expected feature_shape to be the rows and columns of {plural(n_features, 'feature')}, got "
                f"{self.feature_shape!r}"
            )
        for plan in self._plans:
            if plan.max_delay is not None and plan.max_delay >= n_steps:
                raise InvalidInputError(
                    f"expected a max_delay below the {plural(n_steps, 'step')} of the training sequences, got "
                    f"{plan.max_delay}: a tap with a longer delay would never read anything"
                )
            if plan.differenced and (n_steps == 1 or plan.max_delay == 0):
                raise InvalidInputError(
                    "expected a max_delay of at least 1 for first differences, which read two steps, got 0: pass "
                    "differenced=False"
                )


def _checked_box(box: Any, grid: tuple[int, ...] | None, period: int | None) -> Box:
    """Return the size of a layer's boxes."""
    size = None if box is None else _whole_numbers(box)
    if size is not None and len(size) != (2 if grid is None else 3) + (period is not None):
        names = "delays and features" if grid is None else "delays, rows and columns"
        names = names if period is None else names.replace("delays", "periods, steps", 1)
        raise InvalidInputError(f"expected box to be positive numbers of {names}, got {box!r}")
    return size


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
    return Delayed.of({"hidden": hidden, "n_subnetworks": n_subnetworks, **settings}).sample(inputs, seed)
