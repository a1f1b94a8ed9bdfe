"""Neurons of chips, in the integers that a chip computes with."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..core.checks import Array, check_positive_int
from ..core.memory import check_fits
from ..core.seeds import check_seed, child_generator
from ..data.sequences import Sequences
from ..neurons import LoihiLayer, Stepper, XyloLayer
from ..neurons.chip import ChipLayer
from ..neurons.targets import Target, find_target
from .settings import Check, Family
from .tap_sampling import N_CALIBRATION, Calibration, Floats, Streams, as_sequences, distinct
from .witness_set import WitnessSet

_CHECKS: Mapping[str, Check] = {
    "n_witnesses": check_positive_int,
    "target": lambda _, value: find_target(value).name,
    "n_calibration": check_positive_int,
}

_N_TAPS = 25
"""Synapses of a neuron with delays."""

_N_LEVELS = 2048
"""About how many membranes of a neuron its threshold is chosen from."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Chip(Family):
    """Neurons of a chip, whose weights, decays and thresholds are integers within its limits.

    Weights are Gaussian, as large as leaves currents within the range of the chip. Time constants are between one step
    and the length of the sequences. The threshold is a membrane that occurs on training sequences. Labels are not used.
    Inputs are counts of spikes.

    Parameters
    ----------
    dtype : torch.dtype
        Ignored: integers are exact in float64.
    device : torch.device or str, optional
        Device of the witnesses.
    target : str
        The name of the chip, among :data:`cvxsnn.neurons.TARGETS`.
    n_witnesses : int
        Number of neurons; it may exceed that of the chip if fewer are selected.
    n_calibration : int
        Number of training sequences, a seeded subset, from which thresholds are taken.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.witnesses import Chip
    >>> counts = np.random.default_rng(0).integers(0, 4, (50, 20, 3))
    >>> Chip(target="xylo-audio2", n_witnesses=100).sample(counts)
    WitnessSet(sampled xylo, 1 × (3→100))
    """

    name = "chip"
    recognised_by = "target"
    checks = _CHECKS
    target: str
    n_witnesses: int
    n_calibration: int = N_CALIBRATION

    def sample(self, inputs: Sequences | Array | int, seed: int = 0) -> WitnessSet:
        """Sample witnesses; :func:`cvxsnn.witnesses.regenerate` needs the same sequences to draw them again."""
        sequences = as_sequences(inputs)
        target = find_target(self.target)
        target.check_most("input", target.n_inputs, sequences.n_features)
        calibration = Calibration.of(sequences, self.n_calibration, check_seed(seed))
        check_fits(2000 * self.n_witnesses, "cpu", "the neurons of a hidden layer", "use fewer of them")

        def generator(name: str) -> np.random.Generator:
            return child_generator(seed, "chip", name)

        layer = _DRAWN[target.neuron](target, calibration.sequences, self.n_witnesses, generator)
        inside = calibration.sequences.is_inside()
        values = calibration.sequences.inputs
        layer.check_inputs(values if inside is None else values[inside])
        layer = _with_thresholds(layer, calibration.sequences, generator("threshold"))
        return WitnessSet((layer.to(self.device),), calibration.provenance(self, seed))


def _row(values: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(values.astype(np.float64))[None]


def _draw_xylo(target: Target, sequences: Sequences, n: int, generator: Streams) -> ChipLayer:
    normal = generator("weight").standard_normal((sequences.n_features, n))
    longest = max(1, math.ceil(math.log2(sequences.n_steps)))
    synapse = generator("synapse").integers(1, 1 + min(3, longest), n)
    membrane = generator("membrane").integers(1, 1 + min(6, longest + 1), n)
    # The largest current is (D + 1)·2^d - 1: see XyloLayer.
    room = (2.0 ** (15 - synapse) - 1) / XyloLayer.max_count
    weight = _row(_whole(normal, room, 127))
    return XyloLayer(weight, synapse_decay=_row(synapse), membrane_decay=_row(membrane), **target.settings)


def _draw_loihi(target: Target, sequences: Sequences, n: int, generator: Streams) -> ChipLayer:
    n_features = sequences.n_features
    n_steps = sequences.n_steps
    n_places = n_features * (1 + min(target.max_delay, n_steps - 1))
    place = distinct(generator("taps"), n_places, (n, min(_N_TAPS, n_places))).T
    normal = generator("weight").standard_normal(place.shape)

    def decay(name: str) -> Floats:
        return np.asarray(4096 / np.exp(generator(name).uniform(0, math.log(2 * n_steps), n)))

    # Half of the currents are erased at each step.
    current = np.where(generator("has current").random(n) < 0.5, 4095, np.floor(decay("current").clip(1, 4096)) - 1)
    voltage = np.floor(decay("voltage").clip(1, 4095))
    # Sums of a step have 22 bits and currents 24, in units of 64; a current is up to as many sums as it remembers.
    most = max(1.0, float(sequences.inputs.max()))
    room = np.minimum(2.0**15, 2.0**17 / np.minimum(n_steps, 4096 / (current + 1))) / most - 1
    return LoihiLayer(
        _row(2 * _whole(normal, room / 2, 127)),
        source=torch.from_numpy(place % n_features)[None],
        delay=torch.from_numpy(place // n_features)[None],
        n_sources=n_features,
        current_decay=_row(current),
        voltage_decay=_row(voltage),
        **target.settings,
    )


_DRAWN = {"xylo": _draw_xylo, "loihi": _draw_loihi}
"""Functions that draw neurons that fire at the largest threshold."""


def _whole(weight: Floats, room: Floats, largest: int) -> Floats:
    """Return weights (fan_in, n) as integers whose sums of either sign are at most ``room``."""
    sums = np.maximum(weight.clip(min=0).sum(0), (-weight).clip(min=0).sum(0))
    return np.asarray(np.trunc(weight * np.minimum(largest / abs(weight).max(0), room / sums)))


def _with_thresholds(layer: ChipLayer, sequences: Sequences, generator: np.random.Generator) -> ChipLayer:
    """Return the layer with thresholds at which its membranes on some sequences, if they never fire, would fire."""
    n_samples = min(len(sequences), max(32, _N_LEVELS // sequences.n_steps))
    chosen = np.sort(generator.choice(len(sequences), n_samples, replace=False))
    some = sequences.take(torch.from_numpy(chosen))
    inside = some.is_inside()
    quantile = torch.from_numpy(generator.random(layer.width))
    highest = layer.limits["threshold"][-1]
    silent = layer.with_tensors({"threshold": torch.full_like(layer.threshold, highest)})
    parts = []
    n_together = max(1, 2**22 // (n_samples * some.n_steps))
    for neurons in torch.split(torch.arange(layer.width), n_together):
        stepper = Stepper([silent.take_neurons(neurons)])
        state = stepper.start(n_samples)
        reached = []
        for t in range(some.n_steps):
            state, _ = stepper.step(state, some.inputs[:, t])
            excess = state[0].membrane[0] / layer.threshold_unit
            reached.append(highest + torch.floor(excess if inside is None else excess[inside[:, t]]))
        values = torch.cat(reached).sort(0).values
        # A threshold is positive. Neurons whose membranes never are will not fire.
        n_lower = (values < 1).sum(0)
        rank = (n_lower + quantile[neurons] * (len(values) - n_lower)).long().clamp(max=len(values) - 1)
        parts.append(values.gather(0, rank[None]).clamp(min=1))
    return layer.with_tensors({"threshold": torch.cat(parts, dim=1)})
