"""Single sequences: what comes in, which neurons fire, and how the evidence grows until the answer is settled."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ..network.tracing import Trace, trace
from .limits import LIMITS
from .neurons import Activity, NeuronList
from .quality import Answers, Quality, bin_means, shrink
from .subject import FloatArray, IntArray, Subject, evenly


@dataclass(frozen=True, eq=False)
class SequenceView:
    """One sequence, with what the network does on it. Long ones are shown in bins of several steps.

    Parameters
    ----------
    sample : int
        Its number in the data.
    truth, predicted : float
        The number of its class and of the answer; of a regressor, its target and the output.
    confidence : float or None
        The probability of the answer.
    rival : int
        The class that the answer is compared with: the right one if the answer is wrong, else the second best.
    n_steps : int
        Its steps.
    settled : int or None
        The step, from 1, from which on the answer does not change any more; None for a regressor.
    bin : int
        Steps per bin.
    inputs : array of shape (n_bins, n_rows), uint8
        Its inputs, from the lowest to the highest value of the data; means over bins, and over groups of inputs if
        there are many.
    evidence : array of shape (n_bins, n_columns), float32
        The evidence so far, at the end of each bin.
    neurons : array of shape (n_shown,), int32
        The neurons that decide, by their place in the list of neurons.
    push : array of shape (n_shown,), float32
        How much each of them favours the answer over its rival, compared with an average sequence.
    spikes : array of shape (n_bins, n_shown), uint8
        How many spikes each fires.
    membranes : array of shape (n_bins, n_membranes), float32, or None
        Membranes of the first of them, centred at the threshold; the highest of each bin.
    """

    sample: int
    truth: float
    predicted: float
    confidence: float | None
    rival: int
    n_steps: int
    settled: int | None
    bin: int
    inputs: npt.NDArray[np.uint8]
    evidence: npt.NDArray[np.float32]
    neurons: npt.NDArray[np.int32]
    push: npt.NDArray[np.float32]
    spikes: npt.NDArray[np.uint8]
    membranes: npt.NDArray[np.float32] | None


def choose_sequences(subject: Subject, answers: Answers, quality: Quality, neurons: NeuronList) -> IntArray:
    """Return which sequences to show: mistakes first, then what is behind each cell and what excites neurons."""
    n_bins = min(subject.sequences.n_steps, LIMITS.steps)
    n_rows = min(subject.sequences.n_features, LIMITS.features)
    each = n_bins * (n_rows + LIMITS.neurons + 4 * (LIMITS.membranes + len(subject.columns)))
    n_shown = max(8, min(LIMITS.sequences, LIMITS.sequence_bytes // each))
    n_groups = min(len(answers.groups), n_shown // 2)
    by_group = [np.flatnonzero(answers.group == group)[:2].tolist() for group in range(n_groups)]
    behind = _in_turn(cell.samples for cell in quality.cells)
    exciting = neurons.exciting[: LIMITS.excited].T.ravel().tolist()
    wanted: list[int] = [
        *(members[0] for members in by_group if members),
        *quality.hardest,
        *_in_turn([behind[::2], behind[1::2], exciting]),
        *_in_turn(by_group),
        *range(min(subject.n_samples, n_shown)),
    ]
    return np.array(list(dict.fromkeys(wanted))[:n_shown], dtype=np.int64)


def view_sequences(
    subject: Subject, answers: Answers, activity: Activity, samples: IntArray
) -> tuple[SequenceView, ...]:
    """Return the sequences with what the network does on them."""
    views: dict[int, SequenceView] = {}
    lengths = subject.lengths
    last = subject.network.layers[-1]
    low, high = _limits(subject)
    for n_steps in np.unique(lengths[samples]):
        equal = samples[lengths[samples] == n_steps]
        size = max(1, LIMITS.traced // int(n_steps * last.n_subnetworks * last.width))
        for start in range(0, len(equal), size):
            rows = equal[start : start + size]
            inputs = subject.sequences.inputs[torch.from_numpy(rows), : int(n_steps)]
            traced = trace(subject.network, inputs)
            shown = (subject.in_units(inputs) - low) / (high - low)
            features = subject.features_of(rows)
            for place, sample in enumerate(rows.tolist()):
                push, rival = _push(subject, answers, activity, features[place], sample)
                views[sample] = _view(subject, answers, activity, sample, rival, push, shown[place], traced, place)
    return tuple(views[sample] for sample in samples.tolist())


def _view(
    subject: Subject,
    answers: Answers,
    activity: Activity,
    sample: int,
    rival: int,
    push: FloatArray,
    inputs: FloatArray,
    traced: Trace,
    place: int,
) -> SequenceView:
    """Return one sequence; ``place`` is its place among those that were traced."""
    n_steps = len(inputs)
    size = -(-n_steps // LIMITS.steps)
    starts = np.arange(0, n_steps, size)
    shown = np.argsort(-np.abs(push), kind="stable")[: LIMITS.neurons]
    shown = shown[push[shown] != 0] if push.any() else shown
    numbers = activity.neurons[shown]
    evidence = subject.evidence(traced.scores[place].numpy())
    counts = np.add.reduceat(traced.spikes[place].numpy()[:, numbers].astype(np.int64), starts, 0)
    membranes = None
    if traced.membranes is not None:
        membranes = traced.membranes[place].numpy()[:, numbers[: LIMITS.membranes]]
        membranes = np.maximum.reduceat(membranes, starts, 0).astype(np.float32)
    return SequenceView(
        sample=sample,
        truth=float(np.ravel(subject.targets[sample])[0]),
        predicted=float(answers.predicted[sample]),
        confidence=None if answers.confidence is None else float(answers.confidence[sample]),
        rival=rival,
        n_steps=n_steps,
        settled=None if subject.classes is None else settled_step(subject.decide(evidence)),
        bin=size,
        inputs=np.clip(np.round(255 * shrink(bin_means(inputs, starts).T, LIMITS.features).T), 0, 255).astype(np.uint8),
        evidence=evidence[np.minimum(starts + size, n_steps) - 1].astype(np.float32),
        neurons=shown.astype(np.int32),
        push=push[shown].astype(np.float32),
        spikes=np.minimum(counts, 255).astype(np.uint8),
        membranes=membranes,
    )


def settled_step(decisions: IntArray) -> int:
    """Return the step, from 1, from which on decisions stay as they are at the end."""
    others = np.flatnonzero(decisions != decisions[-1])
    return int(others[-1]) + 2 if len(others) else 1


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
    """Return the lowest and the highest value of the inputs, without padding and without the rarest ones."""
    some = subject.sequences.take(torch.from_numpy(evenly(np.arange(subject.n_samples), 500)))
    values = subject.in_units(some.inputs)
    inside = some.is_inside()
    kept = values if inside is None else values[inside.cpu().numpy()]
    low, high = (float(value) for value in np.quantile(kept, [0.002, 0.998]))
    if low == high:
        low, high = float(kept.min()), float(kept.max())
    return low, high if high > low else low + 1.0


def _in_turn(lists: Iterable[Sequence[int]]) -> list[int]:
    """Return the first of every list, then the second of every list, and so on."""
    return [entry for entries in itertools.zip_longest(*lists) for entry in entries if entry is not None]
