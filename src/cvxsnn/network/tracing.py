"""Spikes, membranes and scores of a network after every step."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.checks import Array
from ..core.errors import InvalidInputError
from ..data.sequences import Sequences
from ..neurons import NEURON_MODELS
from .spiking_network import SpikingNetwork, check_network


@dataclass(frozen=True, eq=False)
class Trace:
    """Spikes, membranes and scores of every step.

    Parameters
    ----------
    spikes : Tensor of shape (n_samples, n_steps, n_neurons), dtype bool
        Spikes of the last hidden layer.
    membranes : Tensor of shape (n_samples, n_steps, n_neurons) or None
        Its membranes, centred at the threshold; None for neurons that keep none.
    scores : Tensor of shape (n_samples, n_steps, n_outputs)
        The scores so far, as :meth:`SpikingNetwork.step` defines them.
    """

    spikes: Tensor
    membranes: Tensor | None
    scores: Tensor


@torch.no_grad()
def trace(network: SpikingNetwork, inputs: Sequences | Array) -> Trace:
    """Run a network step by step and record its spikes, membranes and scores.

    Parameters
    ----------
    network : SpikingNetwork
        The network.
    inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
        Sequences of equal length. Pass only a few: every neuron, step and sequence takes up a number.

    Returns
    -------
    Trace
        Spikes, membranes and scores.
    """
    check_network(network)
    sequences = Sequences.of(inputs).to(network.weight.device)
    if sequences.lengths is not None and bool((sequences.lengths != sequences.n_steps).any()):
        raise InvalidInputError("expected sequences of equal length, got padded ones: trace them one by one")
    state = network.start(len(sequences), sequences.n_steps)
    has_membranes = NEURON_MODELS.of(network.layers[-1]).keeps_membrane
    spikes, membranes, scores = [], [], []
    for step in sequences.inputs.unbind(1):
        state, score = network.step(state, step)
        last = state.layers[-1]
        spikes.append(last.spikes.movedim(0, -2).flatten(-2).to(torch.bool).cpu())
        if has_membranes:
            membranes.append(last.membrane.movedim(0, -2).flatten(-2).cpu())
        scores.append(score.cpu())
    return Trace(torch.stack(spikes, 1), torch.stack(membranes, 1) if has_membranes else None, torch.stack(scores, 1))
