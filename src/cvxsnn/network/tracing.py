"""Spikes, membranes and scores of a network after every step, and the steps and neurons that its scores are due to."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..core.checks import Array
from ..core.errors import InvalidInputError
from ..data.sequences import Sequences, window_of_step
from ..dictionary.base import ParsedReadout, parse_readout
from ..neurons import NEURON_MODELS
from ..neurons.reading import iterate_trains
from ..neurons.statistics import entries, steps_that_make
from .spiking_network import SpikingNetwork, check_network

_BLOCK = 2**22
"""Spikes of a sequence that are attributed at once, 8 bytes each."""


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
    spikes = []
    membranes = []
    scores = []
    for step in sequences.inputs.unbind(1):
        state, score = network.step(state, step)
        last = state.layers[-1]
        spikes.append(last.spikes.movedim(0, -2).flatten(-2).to(torch.bool).cpu())
        if has_membranes:
            membranes.append(last.membrane.movedim(0, -2).flatten(-2).cpu())
        scores.append(score.cpu())
    return Trace(torch.stack(spikes, 1), torch.stack(membranes, 1) if has_membranes else None, torch.stack(scores, 1))


def attribute(
    network: SpikingNetwork, inputs: Sequences | Array
) -> Iterator[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    """Divide the scores of each sequence among its steps, and among the neurons that are read.

    A score is the intercept plus, for each column, the entry that the read-out takes from the spikes of a neuron times
    its output weight. This product is divided equally among the spikes that the entry is due to: for means all spikes
    of the window, for the last step itself, for statistics :func:`cvxsnn.neurons.statistics.steps_that_make`.

    Parameters
    ----------
    network : SpikingNetwork
        A network with one answer per sequence.
    inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
        The sequences.

    Yields
    ------
    evidence : array of shape (n_steps_i, n_outputs)
        The share of each step. The steps and the intercept add up to the scores.
    neurons : array of shape (n_neurons, n_outputs)
        The share of each neuron in ``torch.unique(network.neurons)``. They and the intercept add up to the scores.
    """
    check_network(network)
    parsed = parse_readout(network.readout)
    if parsed.kind == "all":
        raise InvalidInputError(
            "expected a network with one answer per sequence, got one that answers at every step: trace has its scores"
        )
    sequences = Sequences.of(inputs).to(network.weight.device)
    weight, column = network.weight.detach().cpu().numpy(), network.neurons.cpu().numpy()
    read = np.zeros_like(column) if network.windows_read is None else network.windows_read.cpu().numpy()
    listed, place = np.unique(column, return_inverse=True)
    for rows, block in iterate_trains(network.layers, sequences):
        lengths = sequences.n_steps if sequences.lengths is None else sequences.lengths[rows].cpu().numpy()
        for spikes, n_steps in zip(block, np.broadcast_to(lengths, len(block)), strict=True):
            train = spikes[:n_steps].cpu().numpy()
            evidence, neurons = np.zeros((n_steps, weight.shape[1])), np.zeros((len(listed), weight.shape[1]))
            for number in range(parsed.n_windows):
                mine = np.flatnonzero(read == number)
                for columns in np.array_split(mine, -(-len(mine) * n_steps // _BLOCK) or 1):
                    due, values = _entries_of(train[:, column[columns]], parsed, number)
                    evidence += due @ (weight[columns] * (values / due.sum(0).clip(1))[:, None])
                    np.add.at(neurons, place[columns], weight[columns] * values[:, None])
            yield evidence, neurons


def _entries_of(
    spikes: npt.NDArray[np.bool_], parsed: ParsedReadout, number: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Return the spikes that a window or a statistic of each column is due to, and its entries, (n_columns,)."""
    n_steps = len(spikes)
    if parsed.kind == "mean":
        due = spikes & (window_of_step(np.arange(n_steps), parsed.n_windows, n_steps) == number)[:, None]
        return due, due.sum(0) * parsed.scale(n_steps)
    statistic = parsed.statistics[number] if parsed.statistics else "last"
    due = steps_that_make(spikes, statistic)
    numbers = due.sum(0) * (n_steps - due.argmax(0)) if statistic == "first" else due.sum(0)
    return due, entries(torch.from_numpy(numbers.astype(np.float64)), statistic, n_steps).numpy()
