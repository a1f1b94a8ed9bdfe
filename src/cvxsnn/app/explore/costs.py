"""What an answer costs: spikes, synaptic operations, bytes, and the energy of several kinds of arithmetic."""

from dataclasses import dataclass

import numpy as np
import torch

from ...network.energy import Joules, Operations, count_operations
from ...network.summary import NetworkSummary, summarise
from .quality import Answers
from .subject import IntArray, Subject

_N_COUNTED = 200
_N_PER_GROUP = 24
_MAX_GROUPS = 40

ARITHMETIC = {
    "32-bit floating point": Joules(),
    "32-bit integers": Joules(accumulate=0.1e-12, multiply_accumulate=3.2e-12, membrane_update=3.2e-12),
    "8-bit weights, 32-bit sums": Joules(accumulate=0.1e-12, multiply_accumulate=0.3e-12, membrane_update=3.2e-12),
}
"""Energies in 45 nm CMOS (M. Horowitz, ISSCC 2014), for the arithmetic alone."""

WEIGHT_BITS = {"32-bit floating point": 32, "32-bit integers": 32, "8-bit weights, 32-bit sums": 8}
"""Bits of a weight, by the same names."""


@dataclass(frozen=True)
class LayerCost:
    """What a layer does per sequence, on average.

    Parameters
    ----------
    name : str
        The layer.
    n_neurons : int
        Its neurons.
    spikes, accumulates, multiplications, updates : float
        Spikes fired, weights added for spikes, weights multiplied with numbers, and membranes updated.
    n_bytes : int
        Bytes of its weights and parameters.
    bits : int
        Bits of a weight.
    """

    name: str
    n_neurons: int
    spikes: float
    accumulates: float
    multiplications: float
    updates: float
    n_bytes: int
    bits: int


@dataclass(frozen=True)
class TargetCost:
    """The energy of an answer, and the size of the network, with one kind of arithmetic.

    Parameters
    ----------
    name : str
        The kind of arithmetic.
    energy : float
        Joules per sequence.
    dense : float
        Joules of a network of the same shape that does not spike.
    n_bytes : int
        Bytes of weights and parameters, if all weights have the bits of this arithmetic.
    """

    name: str
    energy: float
    dense: float
    n_bytes: int


@dataclass(frozen=True)
class GroupCost:
    """What an answer costs for sequences of one class.

    Parameters
    ----------
    name : str
        The class.
    n_samples : int
        Sequences that were counted.
    spikes, synaptic : float
        Spikes and synaptic operations per sequence.
    """

    name: str
    n_samples: int
    spikes: float
    synaptic: float


@dataclass(frozen=True)
class Costs:
    """What an answer costs.

    Parameters
    ----------
    n_samples : int
        Sequences that were counted.
    spikes, synaptic, synaptic_per_step : float
        Per sequence, on average, and per step.
    n_bytes, buffer_bytes : int
        Bytes of the network, and of the past inputs that delays need.
    layers : tuple of LayerCost
        The layers, the read-out last.
    targets : tuple of TargetCost
        The energy with several kinds of arithmetic.
    groups : tuple of GroupCost
        Costs of the classes.
    """

    n_samples: int
    spikes: float
    synaptic: float
    synaptic_per_step: float
    n_bytes: int
    buffer_bytes: int
    layers: tuple[LayerCost, ...]
    targets: tuple[TargetCost, ...]
    groups: tuple[GroupCost, ...]


def count_costs(subject: Subject, answers: Answers, rows: IntArray) -> Costs:
    """Return the costs on some of the sequences."""
    network, own = subject.network, rows[np.linspace(0, len(rows) - 1, min(len(rows), _N_COUNTED)).astype(int)]
    counted, parts = _count(subject, own), summarise(network)
    layers = tuple(
        LayerCost(
            part.name,
            part.n_neurons,
            layer.n_spikes / counted.n_samples,
            layer.n_accumulates / counted.n_samples,
            layer.n_multiply_accumulates / counted.n_samples,
            layer.n_membrane_updates / counted.n_samples,
            part.n_bytes,
            part.weight_bits,
        )
        for layer, part in zip(counted.layers, parts.layers, strict=True)
    )
    groups = []
    for number, name in enumerate(answers.groups[:_MAX_GROUPS]):
        members = rows[answers.group[rows] == number][:_N_PER_GROUP]
        if len(members):
            found = _count(subject, members)
            groups.append(GroupCost(name, len(members), found.total.n_spikes / len(members), found.synaptic_per_sample))
    return Costs(
        n_samples=counted.n_samples,
        spikes=counted.total.n_spikes / counted.n_samples,
        synaptic=counted.synaptic_per_sample,
        synaptic_per_step=counted.synaptic_per_step,
        n_bytes=parts.n_bytes,
        buffer_bytes=parts.buffer_bytes,
        layers=layers,
        targets=tuple(
            TargetCost(name, counted.energy(joules), counted.dense_energy(joules), _bytes(parts, WEIGHT_BITS[name]))
            for name, joules in ARITHMETIC.items()
        ),
        groups=tuple(groups),
    )


def _bytes(parts: NetworkSummary, bits: int) -> int:
    """Return the bytes of a network whose weights have so many bits each."""
    return parts.n_bytes + sum(layer.n_weights * (bits - layer.weight_bits) for layer in parts.layers) // 8


def _count(subject: Subject, rows: IntArray) -> Operations:
    return count_operations(subject.network, subject.sequences.take(torch.from_numpy(rows)))
