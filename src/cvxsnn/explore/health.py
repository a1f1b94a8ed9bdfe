"""How many of the hidden neurons are of use, layer by layer."""

from dataclasses import dataclass

import torch

from ..core.errors import BudgetError
from ..dictionary import build_dictionary
from ..witnesses import Provenance, WitnessSet
from .limits import LIMITS
from .subject import IntArray, Subject, evenly


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
    shares : dict of str to float
        Shares of what was compared: "dead" (never active), "saturated" (active in every step), "duplicate" (equal to
        another) and "distinct".
    density : float
        Mean activity.
    """

    layer: int
    n_neurons: int
    n_samples: int
    what: str
    shares: dict[str, float]
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
    """Return the health of the sampled neurons, or of the network's neurons if the sampled ones are not known."""
    layers = subject.network.layers if subject.proof is None else subject.proof.witnesses.layers
    examined = []
    for depth, layer in enumerate(layers, 1):
        readout = subject.network.readout
        if depth < len(layers):
            readout = "all" if subject.sequences.lengths is None else "mean"
        n_neurons = layer.n_subnetworks * layer.width
        n_steps = subject.sequences.n_steps if readout == "all" else 8
        chosen = evenly(rows, max(1, min(LIMITS.health_rows, LIMITS.health_bits // (n_neurons * n_steps))))
        witnesses = WitnessSet(tuple(layers[:depth]), Provenance("pretrained"))
        try:
            health = build_dictionary(witnesses, subject.sequences.take(torch.from_numpy(chosen)), readout).health()
        except BudgetError:
            continue
        what = {"all": "spikes of every step", "last": "spikes of the last step"}.get(readout, "rates")
        shares = {name.replace("other duplicates", "duplicate"): share for name, share in health.shares.items()}
        examined.append(LayerHealth(depth, n_neurons, len(chosen), what, shares, health.density))
    return Health(tuple(examined), subject.proof is not None)
