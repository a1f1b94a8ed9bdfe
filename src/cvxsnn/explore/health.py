"""Dead, saturated and duplicate neurons, layer by layer."""

from types import SimpleNamespace

import torch

from ..core.errors import BudgetError
from ..dictionary.base import parse_readout
from ..dictionary.building import build_spikes
from ..witnesses import Provenance, WitnessSet
from .limits import LIMITS
from .subject import IntArray, Subject, evenly


def examine(subject: Subject, rows: IntArray) -> SimpleNamespace:
    """Examine the sampled neurons, or the network's neurons if the sampled ones are not known.

    Parameters
    ----------
    subject : Subject
        The model with its data.
    rows : array of int
        Sequences on which to examine them.

    Returns
    -------
    SimpleNamespace
        ``is_sampled``: whether all sampled neurons were examined, or only those that the network has kept. ``layers``,
        from the inputs up, without those that do not fit into memory, each with ``layer`` (its number, from 1),
        ``n_neurons`` of all subnetworks, ``n_samples``, ``what`` was compared, the ``shares`` of neurons that are
        "dead" (never active), "saturated" (active in every step), "duplicate" (equal to another) and "distinct", and
        the mean activity ``density``.
    """
    layers = subject.network.layers if subject.proof is None else subject.proof.witnesses.layers
    examined = []
    for depth, layer in enumerate(layers, 1):
        readout = subject.network.readout
        if parse_readout(readout).kind == "statistics":
            readout = "mean"
        if depth < len(layers):  # the next layer reads every step
            readout = "all" if subject.sequences.lengths is None else "mean"
        n_neurons = layer.n_subnetworks * layer.width
        n_steps = subject.sequences.n_steps if readout == "all" else 8
        n_fit = LIMITS.health_bits // (n_neurons * n_steps)
        chosen = evenly(rows, subject.affordable(max(1, min(LIMITS.health_rows, n_fit))))
        witnesses = WitnessSet(tuple(layers[:depth]), Provenance("pretrained"))
        try:
            health = build_spikes(witnesses, subject.sequences.take(torch.from_numpy(chosen)), readout).health()
        except BudgetError:
            continue
        compared = {"all": "spikes of every step", "last": "spikes of the last step"}.get(readout, "rates")
        shares = {name.replace("other duplicates", "duplicate"): share for name, share in health.shares.items()}
        values = {"layer": depth, "n_neurons": n_neurons, "n_samples": len(chosen), "what": compared, "shares": shares}
        examined.append(SimpleNamespace(**values, density=health.density))
    return SimpleNamespace(layers=examined, is_sampled=subject.proof is not None)
