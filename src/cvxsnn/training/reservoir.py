"""The reservoir baseline: random LIF neurons at the edge of stability, read out by ridge regression."""

from dataclasses import replace
from itertools import product

import torch

from ..convex.objective import Objective
from ..convex.ridge_path import RidgePath
from ..core.errors import InvalidInputError
from ..data.sequences import Sequences, TrainingSet
from ..network.spiking_network import SpikingNetwork
from ..neurons import roll_out
from ..witnesses import Provenance, WitnessSet
from .scores import ScoreFunction
from .search import make_network, spike_features

DECAYS = (0.90, 0.95, 0.99, 0.995)
THRESHOLDS = (0.5, 1.0, 1.5, 2.0)
INPUT_SCALES = (0.5, 1.0, 2.0, 4.0)
RIDGES = tuple(10.0**power for power in range(-6, 3))

_TUNING_SAMPLES = 256


def branching_ratio(witnesses: WitnessSet, sequences: Sequences) -> float:
    """Return the mean number of spikes of the last layer per spike at the step before: 1 neither dies out nor grows."""
    if sequences.n_steps < 2:
        raise InvalidInputError("expected sequences of at least two steps to tune a reservoir, got one step")
    spikes = roll_out(witnesses.layers, sequences, "all").sum(2, dtype=torch.float64)
    before, after = spikes[:, :-1], spikes[:, 1:]
    inside = sequences.is_inside()
    if inside is not None:  # no step comes after the last
        before = before * inside[:, 1:]
    return float(after.sum() / before.sum()) if bool(before.sum() > 0) else 0.0


def tune_reservoir(witnesses: WitnessSet, data: TrainingSet) -> WitnessSet:
    """Return the witnesses with the leak, threshold and input scale whose branching ratio is closest to 1."""
    if any(layer.has_delays for layer in witnesses.layers):
        raise InvalidInputError(
            "expected neurons without delays for a reservoir, which tunes leaks and thresholds, got neurons with "
            "delays: use a family without geometry"
        )
    sequences = data.sequences.take(slice(_TUNING_SAMPLES))
    candidates = (_variant(witnesses, *choice) for choice in product(DECAYS, THRESHOLDS, INPUT_SCALES))
    return min(candidates, key=lambda candidate: abs(branching_ratio(candidate, sequences) - 1.0))


def _variant(witnesses: WitnessSet, decay: float, threshold: float, input_scale: float) -> WitnessSet:
    layers = []
    for depth, layer in enumerate(witnesses.layers):
        if not layer.tensors().keys() >= {"decay", "threshold"}:
            raise InvalidInputError(f"expected LIF neurons for a reservoir, got {witnesses.neuron} neurons")
        scale = input_scale if depth == 0 else 1.0
        dynamics = {
            name: torch.full_like(layer.bias, value) for name, value in (("decay", decay), ("threshold", threshold))
        }
        layers.append(layer.with_tensors({"weight": layer.weight * scale, **dynamics}))
    recipe = {**witnesses.provenance.recipe, "decay": decay, "threshold": threshold, "input_scale": input_scale}
    return WitnessSet(tuple(layers), replace(Provenance("pretrained"), recipe={"reservoir": recipe}))


def fit_ridge(witnesses: WitnessSet, data: TrainingSet, objective: Objective, score: ScoreFunction) -> SpikingNetwork:
    """Return a network with a ridge regression on the witnesses' spikes as read-out, at the best validated strength."""
    heads, row_weight = objective.heads(data)
    features = spike_features(witnesses.layers, data.sequences, objective.readout)
    path = RidgePath(features, torch.cat([head.targets for head in heads], dim=1), row_weight)
    fits = (path.fit(strength) for strength in RIDGES)
    return max((make_network(witnesses.layers, heads, objective.readout, *fit) for fit in fits), key=score)
