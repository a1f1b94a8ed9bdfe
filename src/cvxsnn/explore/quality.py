"""What a model does: how often it is right, what it confuses, how well it knows, and where it fails."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import confusion_matrix

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
        The class that the model decides for; of a regressor, its first output.
    confidence : array of shape (n_samples,) or None
        The probability of that class, where the model has probabilities.
    difficulty : array of shape (n_samples,)
        How hard a sequence is: how much the evidence for the best other class exceeds that for the right one, or how
        far the outputs of a regressor are off.
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
    def of(cls, subject: Subject, outputs: FloatArray) -> "Answers":
        """Return the answers that outputs of the network stand for."""
        evidence = subject.evidence(outputs)
        if subject.classes is None:
            truth = subject.targets.reshape(evidence.shape)
            low, high = np.quantile(truth[:, 0], [1 / 3, 2 / 3])
            group = np.searchsorted([low, high], truth[:, 0], side="left")
            names = ("lowest third", "middle third", "highest third")
            difficulty = np.sqrt(np.square(evidence - truth).mean(1))
            return cls(evidence, evidence[:, 0], None, difficulty, group.astype(np.int64), names)
        rows, truth = np.arange(len(evidence)), subject.targets.astype(np.int64)
        predicted = subject.decide(evidence)
        others = evidence.copy()
        others[rows, truth] = -np.inf
        difficulty = others.max(1) - evidence[rows, truth]
        shares = None if subject.probabilities is None else subject.probabilities(outputs)
        confidence = None if shares is None else shares[rows, predicted]
        return cls(evidence, predicted, confidence, difficulty, truth, subject.classes)

    def is_right(self) -> npt.NDArray[np.bool_]:
        """Return which sequences a classifier classifies correctly."""
        right: npt.NDArray[np.bool_] = self.predicted == self.group
        return right


@dataclass(frozen=True, eq=False)
class Calibration:
    """How often a model is right, for answers that it gives with similar confidence.

    Parameters
    ----------
    confidence : tuple of float
        The mean confidence in each bin that is not empty.
    accuracy : tuple of float
        The share of right answers.
    count : tuple of int
        The number of answers.
    error : float
        The mean distance between the two, over all answers.
    """

    confidence: tuple[float, ...]
    accuracy: tuple[float, ...]
    count: tuple[int, ...]
    error: float

    @classmethod
    def of(cls, confidence: FloatArray, is_right: npt.NDArray[np.bool_]) -> "Calibration":
        """Return the calibration of some answers, in bins of equal width."""
        n_bins = LIMITS.calibration_bins
        bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
        _, places, count = np.unique(bins, return_inverse=True, return_counts=True)
        mean, right = (np.bincount(places, values) / count for values in (confidence, is_right))
        error = float(np.abs(mean - right) @ count / len(confidence))
        return cls(tuple(mean.tolist()), tuple(right.tolist()), tuple(count.tolist()), error)


@dataclass(frozen=True, eq=False)
class ConfusionCell:
    """One cell of the confusion matrix.

    Parameters
    ----------
    truth, predicted : int
        Numbers of the classes.
    count : int
        The number of sequences in it.
    samples : tuple of int
        Some of them; of mistakes, the worst.
    drivers : tuple of (int, float)
        Neurons that push these sequences away from their class, by their place in the list of neurons, and how much
        evidence each of them moves, compared with sequences of that class that are answered correctly.
    average : array of shape (n_bins, n_rows), uint8, or None
        Their inputs on average, from the lowest to the highest value of all averages.
    """

    truth: int
    predicted: int
    count: int
    samples: tuple[int, ...]
    drivers: tuple[tuple[int, float], ...] = ()
    average: npt.NDArray[np.uint8] | None = None


@dataclass(frozen=True, eq=False)
class Quality:
    """What a model does on the data.

    Parameters
    ----------
    n_samples : int
        Number of sequences.
    score : float
        The share of right answers, or R² of a regressor.
    baseline : float
        The score of always answering with the largest class; 0 for R².
    confusion : list of lists of int
        Sequences of each class (rows) that are given each answer (columns); empty for a regressor.
    cells : tuple of ConfusionCell
        What is behind the cells: all on the diagonal, and the largest others.
    calibration : Calibration or None
        Where the model has probabilities.
    hardest : tuple of int
        The sequences with the most evidence for a wrong answer, or with the largest errors.
    truth, predicted : tuple of float
        For a regressor, the first output of some sequences, and what was predicted.
    """

    n_samples: int
    score: float
    baseline: float
    confusion: list[list[int]]
    cells: tuple[ConfusionCell, ...]
    calibration: Calibration | None
    hardest: tuple[int, ...]
    truth: tuple[float, ...] = ()
    predicted: tuple[float, ...] = ()


def measure_quality(subject: Subject, answers: Answers) -> Quality:
    """Return how good the answers are; cells have no drivers and averages yet."""
    everything = np.arange(subject.n_samples)
    score = subject.score(answers.evidence, everything)
    hardest = _distinct(subject, np.argsort(-answers.difficulty, kind="stable"), LIMITS.hardest)
    if subject.classes is None:
        shown = evenly(everything, LIMITS.points)
        truth = subject.targets.reshape(answers.evidence.shape)[shown, 0]
        points = tuple(truth.tolist()), tuple(answers.evidence[shown, 0].tolist())
        return Quality(subject.n_samples, score, 0.0, [], (), None, hardest, *points)
    numbers = range(len(subject.classes))
    confusion = confusion_matrix(answers.group, answers.predicted, labels=list(numbers))
    mistakes = [(truth, other) for truth in numbers for other in numbers if truth != other and confusion[truth, other]]
    mistakes.sort(key=lambda pair: -confusion[pair])
    cells = []
    for truth, other in [*((k, k) for k in numbers if confusion[k, k]), *mistakes[: LIMITS.cells]]:
        members = np.flatnonzero((answers.group == truth) & (answers.predicted == other))
        ordered = members[np.argsort(-answers.difficulty[members], kind="stable")]
        cells.append(ConfusionCell(truth, other, len(members), _distinct(subject, ordered, LIMITS.per_cell)))
    return Quality(
        n_samples=subject.n_samples,
        score=score,
        baseline=float(np.bincount(answers.group).max() / subject.n_samples),
        confusion=confusion.tolist(),
        cells=tuple(cells),
        calibration=None if answers.confidence is None else Calibration.of(answers.confidence, answers.is_right()),
        hardest=hardest,
    )


def _distinct(subject: Subject, samples: IntArray, count: int) -> tuple[int, ...]:
    """Return the first of some sequences, as many as asked for, leaving out repetitions of the same inputs."""
    chosen: dict[bytes, int] = {}
    for sample in samples[: LIMITS.looked_at * count].tolist():
        chosen.setdefault(subject.sequences.inputs[sample].cpu().numpy().tobytes(), sample)
        if len(chosen) == count:
            break
    return tuple(chosen.values())


def average_cells(subject: Subject, answers: Answers, quality: Quality) -> Quality:
    """Return the quality with the average inputs of each cell, all on one scale; without them if cells are many."""
    n_rows, n_steps = min(subject.sequences.n_features, LIMITS.average_rows), subject.sequences.n_steps
    n_bins = min(n_steps, LIMITS.average_bins, LIMITS.average_bytes // max(1, len(quality.cells) * n_rows))
    if n_bins < min(LIMITS.fewest_bins, n_steps) or not quality.cells:
        return quality
    means = []
    for cell in quality.cells:
        members = np.flatnonzero((answers.group == cell.truth) & (answers.predicted == cell.predicted))
        inputs = _mean_inputs(subject, evenly(members, LIMITS.average_members))
        means.append(shrink(shrink(inputs, n_bins).T, n_rows).T)
    low, high = min(float(mean.min()) for mean in means), max(float(mean.max()) for mean in means)
    cells = [
        replace(cell, average=np.round(255 * (mean - low) / ((high - low) or 1.0)).astype(np.uint8))
        for cell, mean in zip(quality.cells, means, strict=True)
    ]
    return replace(quality, cells=tuple(cells))


def shrink(values: npt.NDArray[np.floating], n_rows: int) -> FloatArray:
    """Return a matrix with at most ``n_rows`` rows, each the mean of consecutive rows."""
    return bin_means(values, np.unique(np.linspace(0, len(values), min(n_rows, len(values)) + 1).astype(int)[:-1]))


def bin_means(values: npt.NDArray[np.floating], starts: IntArray) -> FloatArray:
    """Return the means of consecutive rows, in bins that begin at ``starts``."""
    sums: FloatArray = np.add.reduceat(values.astype(np.float64), starts, 0)
    return sums / np.diff([*starts, len(values)])[:, None]


def _mean_inputs(subject: Subject, rows: IntArray) -> FloatArray:
    """Return the mean of each step over the sequences that have it, as far as the longest of them."""
    some = subject.sequences.take(torch.from_numpy(rows))
    values: FloatArray = subject.in_units(some.inputs)
    inside = some.is_inside()
    has_step = np.ones((*values.shape[:2], 1), dtype=bool) if inside is None else inside.cpu().numpy()[..., None]
    n_steps = int(has_step.any(0).sum())
    means: FloatArray = (values * has_step).sum(0)[:n_steps] / has_step.sum(0)[:n_steps]
    return means
