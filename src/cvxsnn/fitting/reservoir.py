"""The reservoir baseline: random LIF neurons at the edge of stability, which a convex or a ridge stage reads."""

from dataclasses import dataclass, replace
from itertools import product

import torch

from ..core.errors import InvalidInputError
from ..data.sequences import Sequences, TrainingSet
from ..neurons import roll_out
from ..witnesses import Provenance, WitnessSet


@dataclass(frozen=True)
class ReservoirGrid:
    """The dynamics to try."""

    decays: tuple[float, ...] = (0.90, 0.95, 0.99, 0.995)
    """Memories of 10 to 200 steps."""

    thresholds: tuple[float, ...] = (0.5, 1.0, 1.5, 2.0)
    input_scales: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)

    n_samples: int = 256
    """Sequences that estimate a branching ratio."""


GRID = ReservoirGrid()


def branching_ratio(witnesses: WitnessSet, sequences: Sequences) -> float:
    """Return the mean number of spikes of the last layer per spike at the step before: 1 neither dies out nor grows."""
    if sequences.n_steps < 2:
        raise InvalidInputError("expected sequences of at least two steps to tune a reservoir, got one step")
    spikes = roll_out(witnesses.layers, sequences, "all").sum(2, dtype=torch.float64)
    before, after = spikes[:, :-1], spikes[:, 1:]
    inside = sequences.is_inside()
    if inside is not None:  # no step follows the last one, whose spikes have no successors
        before = before * inside[:, 1:]
    return float(after.sum() / before.sum()) if bool(before.sum() > 0) else 0.0


def tune_reservoir(witnesses: WitnessSet, data: TrainingSet) -> WitnessSet:
    """Return the witnesses with the leak, threshold and input scale whose branching ratio is closest to 1."""
    if any(layer.has_delays for layer in witnesses.layers):
        raise InvalidInputError(
            "expected neurons without delays for a reservoir, which tunes leaks and thresholds, got neurons with "
            "delays: use a family without geometry"
        )
    sequences = data.sequences.take(slice(GRID.n_samples))
    candidates = (_variant(witnesses, *choice) for choice in product(GRID.decays, GRID.thresholds, GRID.input_scales))
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
    # Tuned on data: the recipe of the sample no longer draws these neurons.
    recipe = {**witnesses.provenance.recipe, "decay": decay, "threshold": threshold, "input_scale": input_scale}
    return WitnessSet(tuple(layers), replace(Provenance("pretrained"), recipe={"reservoir": recipe}))
