"""Two models on the same data: where they agree, and where only one of them is right."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from ..core.errors import InvalidInputError
from .limits import LIMITS
from .quality import Answers
from .subject import IntArray, Subject


@dataclass(frozen=True)
class Comparison:
    """How the answers of two classifiers differ; of two regressors, how their errors do.

    Parameters
    ----------
    counts : tuple of int
        Sequences that both answer correctly, only the first, only the second, and neither; for regressors, sequences
        for which the first is closer, and the second.
    samples : tuple of tuple of int
        Some sequences of each kind.
    agreement : float
        The share of equal answers; for regressors, the correlation of the outputs.
    p_value : float or None
        How likely so large a difference is if both are equally good: the sign test on the sequences that only one of
        them answers correctly.
    """

    counts: tuple[int, ...]
    samples: tuple[tuple[int, ...], ...]
    agreement: float
    p_value: float | None


def compare(subjects: tuple[Subject, Subject], answers: tuple[Answers, Answers]) -> Comparison:
    """Return how the answers of two models on the same sequences differ."""
    first, second = subjects
    if first.classes != second.classes or first.columns != second.columns:
        raise InvalidInputError(
            f"expected two models with the same classes or outputs, got {list(first.columns)} and "
            f"{list(second.columns)}"
        )
    if first.classes is None:
        closer = answers[0].difficulty <= answers[1].difficulty
        difference = np.abs(answers[0].difficulty - answers[1].difficulty)
        kinds = [closer, ~closer]
        agreement = float(np.corrcoef(answers[0].evidence[:, 0], answers[1].evidence[:, 0])[0, 1])
    else:
        right = [one.is_right() for one in answers]
        kinds = [right[0] & right[1], right[0] & ~right[1], ~right[0] & right[1], ~right[0] & ~right[1]]
        difference = np.maximum(answers[0].difficulty, answers[1].difficulty)
        agreement = float((answers[0].predicted == answers[1].predicted).mean())
    samples = []
    for kind in kinds:
        members = np.flatnonzero(kind)
        samples.append(tuple(members[np.argsort(-difference[members], kind="stable")[: LIMITS.compared]].tolist()))
    counts = tuple(int(kind.sum()) for kind in kinds)
    p_value = None
    if first.classes is not None:
        n_different = counts[1] + counts[2]
        p_value = float(binomtest(counts[1], n_different).pvalue) if n_different else 1.0
    return Comparison(counts, tuple(samples), agreement, p_value)


def shown_samples(comparison: Comparison, *chosen: IntArray) -> IntArray:
    """Return sequences to show for both models: those that tell them apart, then what each would show alone."""
    wanted = [sample for kind in comparison.samples[1:] for sample in kind]
    wanted += [sample for kind in comparison.samples[:1] for sample in kind]
    n_shown = max(len(wanted), max(map(len, chosen)) // 2)
    for pair in zip(*chosen, strict=False):
        wanted += [int(sample) for sample in pair]
    return np.array(list(dict.fromkeys(wanted))[:n_shown], dtype=np.int64)
