"""What a model does: how often it is right, what it confuses, how well it knows, and where it fails."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .subject import FloatArray, IntArray, Subject

N_BINS = 10
N_HARDEST = 12
N_PER_CELL = 6
MAX_CELLS = 60
MAX_POINTS = 600
N_GROUPS = 3
_LOOKED_AT = 50
"""Sequences that are looked at for one that is shown, where many are the same."""


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
            low, high = np.quantile(truth[:, 0], [1 / N_GROUPS, 2 / N_GROUPS])
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
        bins = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
        count = np.bincount(bins, minlength=N_BINS)
        filled = count > 0
        mean = np.bincount(bins, confidence, N_BINS)[filled] / count[filled]
        right = np.bincount(bins, is_right, N_BINS)[filled] / count[filled]
        error = float(np.abs(mean - right) @ count[filled] / len(confidence))
        return cls(tuple(mean.tolist()), tuple(right.tolist()), tuple(count[filled].tolist()), error)


@dataclass(frozen=True, eq=False)
class Cell:
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
    cells : tuple of Cell
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
    cells: tuple[Cell, ...]
    calibration: Calibration | None
    hardest: tuple[int, ...]
    truth: tuple[float, ...] = ()
    predicted: tuple[float, ...] = ()


def judge(subject: Subject, answers: Answers) -> Quality:
    """Return how good the answers are; cells have no drivers yet."""
    hardest = _distinct(subject, np.argsort(-answers.difficulty, kind="stable"), N_HARDEST)
    if subject.classes is None:
        truth = subject.targets.reshape(answers.evidence.shape)
        spread = np.square(truth - truth.mean(0)).sum()
        error = np.square(truth - answers.evidence).sum()
        shown = np.unique(np.linspace(0, len(truth) - 1, min(len(truth), MAX_POINTS)).astype(int))
        score = 1.0 - float(error / spread) if spread else 0.0
        points = tuple(truth[shown, 0].tolist()), tuple(answers.evidence[shown, 0].tolist())
        return Quality(len(truth), score, 0.0, [], (), None, hardest, *points)
    n_classes, right = len(subject.classes), answers.is_right()
    confusion = np.zeros((n_classes, n_classes), dtype=np.int64)
    np.add.at(confusion, (answers.group, answers.predicted.astype(np.int64)), 1)
    order = np.argsort(-confusion.ravel(), kind="stable")
    mistakes = [place for place in order if place // n_classes != place % n_classes and confusion.ravel()[place]]
    diagonal = [own * (n_classes + 1) for own in range(n_classes) if confusion[own, own]]
    cells = []
    for place in [*diagonal, *mistakes[:MAX_CELLS]]:
        own, other = divmod(int(place), n_classes)
        members = np.flatnonzero((answers.group == own) & (answers.predicted == other))
        worst = _distinct(subject, members[np.argsort(-answers.difficulty[members], kind="stable")], N_PER_CELL)
        cells.append(Cell(own, other, len(members), worst))
    return Quality(
        n_samples=len(right),
        score=float(right.mean()),
        baseline=float(np.bincount(answers.group).max() / len(right)),
        confusion=confusion.tolist(),
        cells=tuple(cells),
        calibration=None if answers.confidence is None else Calibration.of(answers.confidence, right),
        hardest=hardest,
    )


def _distinct(subject: Subject, samples: IntArray, count: int) -> tuple[int, ...]:
    """Return the first of some sequences, as many as asked for, leaving out repetitions of the same inputs."""
    chosen: dict[bytes, int] = {}
    for sample in samples[: _LOOKED_AT * count].tolist():
        chosen.setdefault(subject.sequences.inputs[sample].cpu().numpy().tobytes(), sample)
        if len(chosen) == count:
            break
    return tuple(chosen.values())
