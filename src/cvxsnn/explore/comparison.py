"""Two models on the same data: where they agree, and where only one of them is right."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
from scipy.stats import binomtest

from ..core.errors import InvalidInputError
from .limits import LIMITS
from .quality import Answers
from .subject import IntArray, Subject


def compare(subjects: tuple[Subject, Subject], answers: tuple[Answers, Answers]) -> SimpleNamespace:
    """Compare the answers of two models on the same sequences.

    Parameters
    ----------
    subjects : tuple of two Subject
        The models, with the same classes or outputs.
    answers : tuple of two Answers
        Their answers.

    Returns
    -------
    SimpleNamespace
        ``counts`` of sequences that both answer correctly, only the first, only the second, and neither; for
        regressors, of sequences for which the first is closer, and the second. ``samples``: some sequences of each
        kind. ``agreement``: the share of equal answers; for regressors, the correlation of the outputs. ``p_value`` of
        the sign test on the sequences that only one of them answers correctly: the probability of so large a difference
        if both are equally good; None for regressors.
    """
    first, second = answers
    if subjects[0].classes != subjects[1].classes or subjects[0].columns != subjects[1].columns:
        raise InvalidInputError(
            f"expected two models with the same classes or outputs, got {list(subjects[0].columns)} and "
            f"{list(subjects[1].columns)}"
        )
    is_classifier = subjects[0].classes is not None
    if is_classifier:
        is_right = np.stack((first.is_right(), second.is_right()))
        kinds = [(is_right[0] == a) & (is_right[1] == b) for a in (True, False) for b in (True, False)]
        difference = np.maximum(first.difficulty, second.difficulty)
        agreement = float((first.predicted == second.predicted).mean())
    else:
        closer = first.difficulty <= second.difficulty
        kinds = [closer, ~closer]
        difference = np.abs(first.difficulty - second.difficulty)
        agreement = float(np.corrcoef(first.evidence[:, 0], second.evidence[:, 0])[0, 1])
    order = np.argsort(-difference, kind="stable")
    samples = tuple(tuple(order[kind[order]][: LIMITS.compared].tolist()) for kind in kinds)
    counts = tuple(int(kind.sum()) for kind in kinds)
    p_value = None
    if is_classifier:
        # Sequences that both answer correctly, or neither, do not show which model is better (McNemar's test).
        n_different = counts[1] + counts[2]
        p_value = float(binomtest(counts[1], n_different).pvalue) if n_different else 1.0
    return SimpleNamespace(counts=counts, samples=samples, agreement=agreement, p_value=p_value)


def shown_samples(comparison: SimpleNamespace, *chosen: Sequence[int]) -> IntArray:
    """Return sequences to show for both models: those that separate them, then those that each would show alone."""
    both_right, *others = comparison.samples
    wanted = [sample for kind in (*others, both_right) for sample in kind]
    n_shown = max(len(wanted), max(map(len, chosen)) // 2)
    wanted += [sample for pair in zip(*chosen, strict=False) for sample in pair]
    return np.array(list(dict.fromkeys(wanted))[:n_shown], dtype=np.int64)
