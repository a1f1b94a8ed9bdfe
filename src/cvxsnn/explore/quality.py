"""How good the answers are: accuracy, confusion, calibration, and the hardest sequences."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import confusion_matrix

from ..convex.objective import decide_class
from .limits import LIMITS
from .subject import FloatArray, IntArray, Subject, evenly


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of a model on all sequences.

    Parameters
    ----------
    evidence : array of shape (n_samples, n_columns)
        Evidence for each class, or the outputs of a regressor.
    predicted : array of shape (n_samples,)
        The class that the model predicts; for a regressor, its first output.
    confidence : array of shape (n_samples,) or None
        The probability of that class; None if the model has no probabilities.
    difficulty : array of shape (n_samples,)
        The evidence for the best other class minus that for the right one; for a regressor, the root of the mean
        squared error over outputs.
    group : array of shape (n_samples,)
        The class of each sequence, or the third of the targets that it is in.
    groups : tuple of str
        Names of the groups.
    """

    evidence: FloatArray
    predicted: npt.NDArray[np.float64] | IntArray
    confidence: FloatArray | None
    difficulty: FloatArray
    group: IntArray
    groups: tuple[str, ...]

    @classmethod
    def of(cls, subject: Subject) -> "Answers":
        """Return the answers of a model on its sequences."""
        outputs = subject.outputs()
        evidence = subject.evidence(outputs)
        if subject.classes is None:
            truth = subject.targets.reshape(evidence.shape)
            low, high = np.quantile(truth[:, 0], [1 / 3, 2 / 3])
            group = np.searchsorted([low, high], truth[:, 0], side="left")
            names = ("lowest third", "middle third", "highest third")
            difficulty = np.sqrt(np.square(evidence - truth).mean(1))
            return cls(evidence, evidence[:, 0], None, difficulty, group.astype(np.int64), names)
        rows, truth = np.arange(len(evidence)), subject.targets.astype(np.int64)
        predicted = decide_class(evidence)
        others = evidence.copy()
        others[rows, truth] = -np.inf  # so that the maximum is over the other classes
        difficulty = others.max(1) - evidence[rows, truth]
        shares = None if subject.probabilities is None else subject.probabilities(outputs)
        confidence = None if shares is None else shares[rows, predicted]
        return cls(evidence, predicted, confidence, difficulty, truth, subject.classes)

    def is_right(self) -> npt.NDArray[np.bool_]:
        """Return which sequences a classifier classifies correctly."""
        right: npt.NDArray[np.bool_] = self.predicted == self.group
        return right


def calibrate(confidence: FloatArray, is_right: npt.NDArray[np.bool_]) -> SimpleNamespace:
    """Compare how confident a model is with how often it is right, in bins of equal width.

    Parameters
    ----------
    confidence : array of shape (n_samples,)
        The probability of each answer.
    is_right : array of shape (n_samples,), bool
        Whether it is right.

    Returns
    -------
    SimpleNamespace
        For each bin that is not empty, the mean ``confidence``, the ``accuracy``, and the ``count`` of answers; and the
        ``error``, the mean distance between the first two over all answers.
    """
    n_bins = LIMITS.calibration_bins
    # A confidence of one belongs to the last bin.
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    _, places, count = np.unique(bins, return_inverse=True, return_counts=True)
    mean, right = (np.bincount(places, values) / count for values in (confidence, is_right))
    error = float(np.abs(mean - right) @ count / len(confidence))
    return SimpleNamespace(confidence=mean.tolist(), accuracy=right.tolist(), count=count.tolist(), error=error)


def measure_quality(subject: Subject, answers: Answers) -> SimpleNamespace:
    """Measure how good the answers are.

    Parameters
    ----------
    subject : Subject
        The model with its data.
    answers : Answers
        Its answers.

    Returns
    -------
    SimpleNamespace
        ``n_samples``; ``score``, the accuracy or R²; ``baseline``, the score of always answering with the largest
        class; ``confusion``, counts of sequences of each class (rows) by answer (columns); ``calibration`` if the
        model has probabilities; ``hardest``, the sequences with the most evidence for a wrong answer or the largest
        errors; ``truth`` and ``predicted``, the first output of a regressor on some sequences. ``cells`` are those of
        the confusion matrix, all on the diagonal and the largest others: ``truth`` and ``predicted`` class, ``count``,
        and some ``samples``, of mistakes the worst; ``drivers`` and ``average`` are set by
        :func:`~cvxsnn.explore.neurons.explain_mistakes` and :func:`average_cells`.
    """
    everything = np.arange(subject.n_samples)
    quality = SimpleNamespace(
        n_samples=subject.n_samples,
        score=subject.score(answers.evidence, everything),
        baseline=0.0,
        confusion=[],
        cells=[],
        calibration=None,
        hardest=_distinct(subject, np.argsort(-answers.difficulty, kind="stable"), LIMITS.hardest),
        truth=[],
        predicted=[],
    )
    if subject.classes is None:
        shown = evenly(everything, LIMITS.points)
        quality.truth = subject.targets.reshape(answers.evidence.shape)[shown, 0].tolist()
        quality.predicted = answers.evidence[shown, 0].tolist()
        return quality
    confusion = confusion_matrix(answers.group, answers.predicted, labels=range(len(subject.classes)))
    pairs = list(zip(*map(np.ndarray.tolist, np.nonzero(confusion)), strict=True))
    mistakes = sorted((pair for pair in pairs if pair[0] != pair[1]), key=lambda pair: -confusion[pair])
    for truth, predicted in [*(pair for pair in pairs if pair[0] == pair[1]), *mistakes[: LIMITS.cells]]:
        members = np.flatnonzero((answers.group == truth) & (answers.predicted == predicted))
        ordered = members[np.argsort(-answers.difficulty[members], kind="stable")]
        cell = {"truth": truth, "predicted": predicted, "count": len(members)}
        samples = _distinct(subject, ordered, LIMITS.per_cell)
        quality.cells.append(SimpleNamespace(**cell, samples=samples, drivers=[], average=None))
    quality.baseline = float(np.bincount(answers.group).max() / subject.n_samples)
    quality.confusion = confusion.tolist()
    if answers.confidence is not None:
        quality.calibration = calibrate(answers.confidence, answers.is_right())
    return quality


def _distinct(subject: Subject, samples: IntArray, count: int) -> list[int]:
    """Return the first ``count`` of some sequences, each input once."""
    chosen: dict[bytes, int] = {}
    for sample in samples[: LIMITS.looked_at * count].tolist():
        chosen.setdefault(subject.sequences.inputs[sample].cpu().numpy().tobytes(), sample)
        if len(chosen) == count:
            break
    return list(chosen.values())


def average_cells(subject: Subject, answers: Answers, cells: Sequence[SimpleNamespace]) -> None:
    """Set the ``average`` inputs of cells, of shape (n_bins, n_rows), all on one scale; not if there are too many."""
    n_rows = min(subject.sequences.n_features, LIMITS.average_rows)
    n_steps = subject.sequences.n_steps
    n_bins = min(n_steps, LIMITS.average_bins, LIMITS.average_bytes // max(1, len(cells) * n_rows))
    if n_bins < min(LIMITS.fewest_bins, n_steps) or not cells:
        return
    means = []
    for cell in cells:
        members = np.flatnonzero((answers.group == cell.truth) & (answers.predicted == cell.predicted))
        inputs = _mean_inputs(subject, evenly(members, LIMITS.average_members))
        means.append(shrink(shrink(inputs, n_bins).T, n_rows).T)
    # One scale for all, so that the colours of two cells can be compared.
    low = min(float(mean.min()) for mean in means)
    high = max(float(mean.max()) for mean in means)
    for cell, mean in zip(cells, means, strict=True):
        cell.average = np.round(255 * (mean - low) / ((high - low) or 1.0)).astype(np.uint8)


def shrink(values: npt.NDArray[np.floating], n_rows: int) -> FloatArray:
    """Return a matrix with at most ``n_rows`` rows, each the mean of consecutive rows."""
    return bin_means(values, np.unique(np.linspace(0, len(values), min(n_rows, len(values)) + 1).astype(int)[:-1]))


def bin_means(values: npt.NDArray[np.floating], starts: IntArray) -> FloatArray:
    """Return the means of consecutive rows, in bins that begin at ``starts``."""
    sums: FloatArray = np.add.reduceat(values.astype(np.float64), starts, 0)
    return sums / np.diff([*starts, len(values)])[:, None]


def _mean_inputs(subject: Subject, rows: IntArray) -> FloatArray:
    """Return the mean of each step over the sequences that have it, as far as the longest of them."""
    chosen = subject.sequences.take(torch.from_numpy(rows))
    values: FloatArray = subject.in_units(chosen.inputs)
    inside = chosen.is_inside()
    has_step = np.ones((*values.shape[:2], 1), dtype=bool) if inside is None else inside.cpu().numpy()[..., None]
    n_steps = int(has_step.any(0).sum())  # padding is at the end
    means: FloatArray = (values * has_step).sum(0)[:n_steps] / has_step.sum(0)[:n_steps]
    return means
