"""How many of the hidden neurons are of use, layer by layer."""

from dataclasses import dataclass

import numpy as np
import torch

from ...core.errors import BudgetError
from ...dictionary import DictionaryHealth, build_dictionary
from ...witnesses import Provenance, WitnessSet
from .subject import IntArray, Subject

_MAX_BITS = 2**29
_MAX_ROWS = 1000


@dataclass(frozen=True)
class LayerHealth:
    """How many neurons of a layer are of use on some sequences.

    Parameters
    ----------
    layer : int
        The number of the layer, from 1.
    n_neurons : int
        Its neurons, of all subnetworks.
    n_samples : int
        Sequences on which they were judged.
    what : str
        What was compared: "the spikes of every step", or what is read.
    dead, saturated, duplicate, distinct : float
        Shares of what was compared: never active, active in every step, equal to another, and all others.
    density : float
        Mean activity.
    """

    layer: int
    n_neurons: int
    n_samples: int
    what: str
    dead: float
    saturated: float
    duplicate: float
    distinct: float
    density: float


@dataclass(frozen=True)
class Health:
    """The health of all layers.

    Parameters
    ----------
    layers : tuple of LayerHealth
        The layers, from the inputs up.
    is_sampled : bool
        Whether all sampled neurons were judged, or only those that the network has kept.
    """

    layers: tuple[LayerHealth, ...]
    is_sampled: bool


def examine(subject: Subject, rows: IntArray) -> Health:
    """Return the health of the neurons that were sampled, or of the network's own if they are not known."""
    layers = subject.network.layers if subject.proof is None else subject.proof.witnesses.layers
    found = []
    for depth, layer in enumerate(layers, 1):
        is_last = depth == len(layers)
        is_padded = subject.sequences.lengths is not None
        readout = subject.network.readout if is_last else "mean" if is_padded else "all"
        n_neurons = layer.n_subnetworks * layer.width
        n_steps = subject.sequences.n_steps if readout == "all" else 8
        n_rows = max(1, min(len(rows), _MAX_ROWS, _MAX_BITS // (n_neurons * n_steps)))
        chosen = rows[np.linspace(0, len(rows) - 1, n_rows).astype(int)]
        some = subject.sequences.take(torch.from_numpy(chosen))
        try:
            health = build_dictionary(
                WitnessSet(tuple(layers[:depth]), Provenance("pretrained")), some, readout
            ).health()
        except BudgetError:
            continue
        what = {"all": "spikes of every step", "last": "spikes of the last step", "mean": "rates"}.get(readout, "rates")
        found.append(_of(health, depth, n_neurons, n_rows, what))
    return Health(tuple(found), subject.proof is not None)


def _of(health: DictionaryHealth, layer: int, n_neurons: int, n_samples: int, what: str) -> LayerHealth:
    shares = health.shares
    return LayerHealth(
        layer=layer,
        n_neurons=n_neurons,
        n_samples=n_samples,
        what=what,
        dead=shares["dead"],
        saturated=shares["saturated"],
        duplicate=shares["other duplicates"],
        distinct=shares["distinct"],
        density=health.density,
    )
