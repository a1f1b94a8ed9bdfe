"""Single sequences: inputs, spikes, and how the evidence grows until the answer no longer changes."""

import itertools
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..convex.objective import decide_class
from ..network.tracing import Trace, trace
from .limits import LIMITS
from .neurons import Activity
from .quality import Answers, bin_means, shrink
from .subject import FloatArray, IntArray, Subject, evenly


def choose_sequences(
    subject: Subject, answers: Answers, quality: SimpleNamespace, neurons: SimpleNamespace
) -> IntArray:
    """Return which sequences to show: one of each group, the hardest, then some of each cell and for each neuron."""
    n_bins = min(subject.sequences.n_steps, LIMITS.steps)
    n_rows = min(subject.sequences.n_features, LIMITS.features)
    # Inputs and spikes take one byte each, membranes and evidence four.
    n_bytes = n_bins * (n_rows + LIMITS.neurons + 4 * (LIMITS.membranes + len(subject.columns)))
    n_shown = max(8, min(LIMITS.sequences, LIMITS.sequence_bytes // n_bytes))
    n_groups = min(len(answers.groups), n_shown // 2)
    by_group = [np.flatnonzero(answers.group == group)[:2].tolist() for group in range(n_groups)]
    behind = _in_turn(cell.samples for cell in quality.cells)
    exciting = neurons.exciting[: LIMITS.excited].T.ravel().tolist()
    wanted: list[int] = [
        *(members[0] for members in by_group if members),
        *quality.hardest,
        *_in_turn([behind[::2], behind[1::2], exciting]),  # two for cells, one for neurons
        *_in_turn(by_group),
        *range(min(subject.n_samples, n_shown)),
    ]
    return np.array(list(dict.fromkeys(wanted))[:n_shown], dtype=np.int64)


def view_sequences(subject: Subject, answers: Answers, activity: Activity, samples: IntArray) -> list[SimpleNamespace]:
    """Return what the network does on some sequences. Long ones are shown in bins of several steps.

    Parameters
    ----------
    subject : Subject
        The model with its data.
    answers : Answers
        Its answers.
    activity : Activity
        The features of the neurons.
    samples : array of int
        The sequences.

    Returns
    -------
    list of SimpleNamespace
        For each sequence, ``sample``, its number in the data; ``truth`` and ``predicted``, its class and the answer, or
        target and output of a regressor; ``confidence``, the probability of the answer, or None; ``rival``, the class
        that the answer is compared with: the right one if the answer is wrong, else the second best; ``n_steps``;
        ``settled``, the first step, from 1, after which the answer no longer changes, None for a regressor; and
        ``bin``, the number of steps per bin. By bin: ``inputs``, from the lowest to the highest value of the data,
        means over bins and, if there are many inputs, over groups of them; ``evidence`` at the end of the bin;
        ``spikes`` of each neuron shown; ``membranes`` of the first neurons, centred at the threshold, the highest of
        the bin, or None. ``neurons`` are those that decide, by their place in the list of neurons, and ``push`` is how
        much each favours the answer over its rival, compared with an average sequence.
    """
    views: dict[int, SimpleNamespace] = {}
    lengths = subject.lengths
    last = subject.network.layers[-1]
    low, high = _limits(subject)
    # Sequences of one length are traced together, so that no padding reaches a membrane.
    for n_steps in np.unique(lengths[samples]).tolist():
        equal = samples[lengths[samples] == n_steps]
        size = max(1, LIMITS.traced // (n_steps * last.n_subnetworks * last.width))
        for start in range(0, len(equal), size):
            rows = equal[start : start + size]
            inputs = subject.sequences.inputs[torch.from_numpy(rows), :n_steps]
            traced, features = trace(subject.network, inputs), subject.features_of(rows)
            shown = (subject.in_units(inputs) - low) / (high - low)
            for index, sample in enumerate(rows.tolist()):
                push, rival = _push(subject, answers, activity, features[index], sample)
                views[sample] = SimpleNamespace(
                    sample=sample,
                    truth=float(np.ravel(subject.targets[sample])[0]),
                    predicted=float(answers.predicted[sample]),
                    confidence=None if answers.confidence is None else float(answers.confidence[sample]),
                    rival=rival,
                    n_steps=n_steps,
                    **_bins(subject, activity, push, shown[index], traced, index),
                )
    return [views[sample] for sample in samples.tolist()]


def _bins(
    subject: Subject, activity: Activity, push: FloatArray, inputs: FloatArray, traced: Trace, index: int
) -> dict[str, Any]:
    """Return what varies over the steps of a sequence; ``index`` is its number among those that were traced."""
    n_steps = len(inputs)
    size = -(-n_steps // LIMITS.steps)
    starts = np.arange(0, n_steps, size)
    shown = np.argsort(-np.abs(push), kind="stable")[: LIMITS.neurons]
    shown = shown[push[shown] != 0] if push.any() else shown
    numbers = activity.neurons[shown]
    evidence = subject.evidence(traced.scores[index].numpy())
    counts = np.add.reduceat(traced.spikes[index].numpy()[:, numbers].astype(np.int64), starts, 0)
    membranes = None
    if traced.membranes is not None:
        membranes = traced.membranes[index].numpy()[:, numbers[: LIMITS.membranes]]
        # The highest of a bin, so that a neuron that fires is seen to reach its threshold.
        membranes = np.maximum.reduceat(membranes, starts, 0).astype(np.float32)
    means = shrink(bin_means(inputs, starts).T, LIMITS.features).T
    return {
        "settled": None if subject.classes is None else settled_step(decide_class(evidence)),
        "bin": size,
        "inputs": np.clip(np.round(255 * means), 0, 255).astype(np.uint8),
        "evidence": evidence[np.minimum(starts + size, n_steps) - 1].astype(np.float32),
        "neurons": shown.astype(np.int32),
        "push": push[shown].astype(np.float32),
        "spikes": np.minimum(counts, 255).astype(np.uint8),
        "membranes": membranes,
    }


def settled_step(decisions: IntArray) -> int:
    """Return the first step, counted from 1, after which the decision no longer changes."""
    different = np.flatnonzero(decisions != decisions[-1])
    return int(different[-1]) + 2 if len(different) else 1


def _push(
    subject: Subject, answers: Answers, activity: Activity, features: npt.NDArray[np.float32], sample: int
) -> tuple[FloatArray, int]:
    """Return how much each neuron favours the answer over its rival, and the rival."""
    if subject.classes is None:
        rival, contrast = 0, subject.weight[:, 0]
    else:
        answer, truth = int(answers.predicted[sample]), int(answers.group[sample])
        others = answers.evidence[sample].copy()
        others[answer] = -np.inf
        rival = truth if truth != answer else int(others.argmax())
        contrast = subject.weight[:, answer] - subject.weight[:, rival]
    return activity.per_neuron((features - activity.mean) * contrast)[: LIMITS.listed], rival


def _limits(subject: Subject) -> tuple[float, float]:
    """Return the range of the inputs, without padding and without the most extreme 0.2 % on either side."""
    chosen = subject.sequences.take(torch.from_numpy(evenly(np.arange(subject.n_samples), 500)))
    values = subject.in_units(chosen.inputs)
    inside = chosen.is_inside()
    kept = values if inside is None else values[inside.cpu().numpy()]
    # A few extreme values would make all others look alike.
    low, high = (float(value) for value in np.quantile(kept, [0.002, 0.998]))
    if low == high:  # nearly all values are equal, as those of rare spikes are
        low, high = float(kept.min()), float(kept.max())
    return low, high if high > low else low + 1.0


def _in_turn(lists: Iterable[Sequence[int]]) -> list[int]:
    """Return the first of every list, then the second of every list, and so on."""
    return [entry for entries in itertools.zip_longest(*lists) for entry in entries if entry is not None]
