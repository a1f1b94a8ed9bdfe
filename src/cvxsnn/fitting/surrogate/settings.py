"""Surrogate gradients: the network to start from, and the outcome."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...convex.objective import Head, Objective
from ...core.seeds import child_generator
from ...data.sequences import TrainingSet
from ...dictionary.base import parse_readout
from ...network.spiking_network import OutputHead, SpikingNetwork
from ...neurons.layer import HiddenLayer, stack_layers
from ..scores import Score
from ..surrogate_settings import SurrogateSettings


@dataclass(frozen=True)
class Epoch:
    """One epoch of training.

    Parameters
    ----------
    epoch : int
        Its number; 0 is the start.
    loss : float
        The mean training loss, each batch before its step.
    score : Score
        The score on validation data at the end.
    """

    epoch: int
    loss: float
    score: Score


@dataclass(frozen=True, eq=False)
class SurrogateRun:
    """The outcome of training by surrogate gradients.

    Parameters
    ----------
    network : SpikingNetwork
        The network of the best epoch, with exact spikes.
    history : tuple of Epoch
        Every epoch.
    best : Epoch
        The best epoch.
    settings : SurrogateSettings
        The settings.
    seconds : float
        The time of training; of jobs that trained side by side, an equal share.
    """

    network: SpikingNetwork
    history: tuple[Epoch, ...]
    best: Epoch
    settings: SurrogateSettings
    seconds: float = 0.0


def initial_network(
    layers: tuple[HiddenLayer, ...], objective: Objective, data: TrainingSet, seed: int = 0
) -> SpikingNetwork:
    """Return a network with these hidden layers and a Gaussian read-out of the targets' scale."""
    heads, row_weight = objective.heads(data)
    n_columns = layers[-1].n_subnetworks * layers[-1].width * parse_readout(objective.readout).n_windows
    normal = child_generator(seed, "surrogate", "output").standard_normal((n_columns, heads[-1].columns.stop))
    weight = torch.from_numpy(normal / math.sqrt(n_columns)) * target_scale(heads, row_weight)
    means = [row_weight @ h.targets if h.loss.is_regression else torch.zeros_like(h.targets[0]) for h in heads]
    output_heads = [OutputHead(h.name, h.loss.name, h.columns.start, h.columns.stop) for h in heads]
    return SpikingNetwork(layers, weight, output_heads, torch.cat(means), readout=objective.readout)


def average_networks(networks: Sequence[SpikingNetwork]) -> SpikingNetwork:
    """Return one network whose scores are the mean of those of several of one architecture, now its subnetworks."""
    first = networks[0]
    layers = [stack_layers([network.layers[depth] for network in networks]) for depth in range(len(first.layers))]
    n_neurons = first.n_subnetworks * first.hidden[-1]
    neurons = torch.cat([network.neurons + number * n_neurons for number, network in enumerate(networks)])
    weight = torch.cat([network.weight.detach() for network in networks]) / len(networks)
    intercept = torch.stack([network.intercept.detach() for network in networks]).mean(0)
    read = [network.windows_read for network in networks if network.windows_read is not None]
    windows = torch.cat(read) if read else None
    return SpikingNetwork(layers, weight, first.heads, intercept, neurons, first.readout, windows)


def target_scale(heads: Sequence[Head], row_weight: Tensor) -> float:
    """Return the spread of real targets, which is the scale of the read-out and of its steps; 1 for classes."""
    real = [head.targets for head in heads if head.loss.is_regression]
    # A constant target has no spread, and 1 stands for it.
    spreads = [math.sqrt((row_weight @ (y - (row_weight @ y).mean()).square()).mean()) for y in real]
    return max(spreads, default=1.0) or 1.0
