"""What an answer costs: spikes, synaptic operations, bytes, and the energy of several kinds of arithmetic."""

from types import SimpleNamespace

import torch

from ..network.energy import Joules, Operations, count_operations
from ..network.summary import summarise
from .limits import LIMITS
from .quality import Answers
from .subject import IntArray, Subject, evenly

ARITHMETIC = {
    "32-bit floating point": (32, Joules()),
    "32-bit integers": (32, Joules(0.1e-12, 3.2e-12, 3.2e-12)),
    "8-bit weights, 32-bit sums": (8, Joules(0.1e-12, 0.3e-12, 3.2e-12)),
}
"""Bits of a weight, and energies in 45 nm CMOS (M. Horowitz, ISSCC 2014): of an addition, of a multiplication with an
addition, and of the update of a membrane. Memory is left out."""


def count_costs(subject: Subject, answers: Answers, rows: IntArray) -> SimpleNamespace:
    """Count what an answer costs on some of the sequences.

    Parameters
    ----------
    subject : Subject
        The model with its data.
    answers : Answers
        Its answers, for the groups of the sequences.
    rows : array of int
        The sequences.

    Returns
    -------
    SimpleNamespace
        ``n_samples`` that were counted; ``spikes`` and ``synaptic`` operations per sequence, and
        ``synaptic_per_step``; ``n_bytes`` of the network, and ``buffer_bytes`` of the past inputs that delays need.
        ``layers``, the read-out last, each with ``name``, ``n_neurons``, ``n_bytes``, ``bits`` of a weight, and per
        sequence ``spikes`` fired, ``accumulates`` (weights added for spikes), ``multiplications`` (weights times
        numbers) and ``updates`` of membranes. ``targets``, kinds of arithmetic, each with ``name``, ``energy`` (joules
        per sequence), ``dense`` (joules of a network of the same shape that does not spike), and ``n_bytes`` of the
        network with weights of that many bits. ``groups``, each with ``name``, ``n_samples``, and ``spikes`` and
        ``synaptic`` operations per sequence.
    """
    # Counting takes a roll-out of all layers, so a sample has to do.
    counted = _count(subject, evenly(rows, LIMITS.counted))
    parts = summarise(subject.network)
    layers = [
        {
            "name": part.name,
            "n_neurons": part.n_neurons,
            "spikes": layer.n_spikes / counted.n_samples,
            "accumulates": layer.n_accumulates / counted.n_samples,
            "multiplications": layer.n_multiply_accumulates / counted.n_samples,
            "updates": layer.n_membrane_updates / counted.n_samples,
            "n_bytes": part.n_bytes,
            "bits": part.weight_bits,
        }
        for layer, part in zip(counted.layers, parts.layers, strict=True)
    ]
    targets = []
    for name, (bits, joules) in ARITHMETIC.items():
        # Only weights change their size; thresholds and the other parameters stay as they are.
        n_bytes = parts.n_bytes + sum(part.n_weights * (bits - part.weight_bits) for part in parts.layers) // 8
        energies = {"energy": counted.energy(joules), "dense": counted.dense_energy(joules)}
        targets.append({"name": name, **energies, "n_bytes": n_bytes})
    groups = []
    for number, name in enumerate(answers.groups[: LIMITS.groups]):
        members = rows[answers.group[rows] == number][: LIMITS.counted_per_group]
        if len(members):
            used = _count(subject, members)
            per_sample = {"spikes": used.total.n_spikes / used.n_samples, "synaptic": used.synaptic_per_sample}
            groups.append({"name": name, "n_samples": used.n_samples, **per_sample})
    return SimpleNamespace(
        n_samples=counted.n_samples,
        spikes=counted.total.n_spikes / counted.n_samples,
        synaptic=counted.synaptic_per_sample,
        synaptic_per_step=counted.synaptic_per_step,
        n_bytes=parts.n_bytes,
        buffer_bytes=parts.buffer_bytes,
        layers=layers,
        targets=targets,
        groups=groups,
    )


def _count(subject: Subject, rows: IntArray) -> Operations:
    return count_operations(subject.network, subject.sequences.take(torch.from_numpy(rows)))
