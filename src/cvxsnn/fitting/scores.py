"""Validation scores: how networks are compared while they are trained."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ..data.task import SequenceData, Task
from ..network.evaluation import accuracy
from ..network.spiking_network import SpikingNetwork


class Score(Protocol):
    """A value that can be compared with others of its kind; higher is better.

    Usually a number. A tuple, such as (accuracy, -loss), is compared entry by entry, so that the second decides only
    if the first is equal.
    """

    def __lt__(self, other: Any, /) -> bool:
        """Return whether the other score is better."""
        ...


ScoreFunction = Callable[[SpikingNetwork], Score]
"""The score of a network with exact spikes on validation data."""


def main_score(score: Any) -> float:
    """Return a score as one number: of a tuple the entry that decides first."""
    return float(score[0] if isinstance(score, tuple) else score)


def last_entry(score: Any) -> Score:
    """Return the entry of a score that decides last: of (accuracy, -loss) the loss, which is the least noisy."""
    last: Score = score[-1] if isinstance(score, tuple) else score
    return last


def rank_above(score: Score, own: Score | None) -> tuple[bool, Score]:
    """Return the rank of a read-out beside the trained one of the same network, and whether it counts.

    Those count whose score is at least that of the trained one; of these, the last entry of the score decides. If none
    counts, the trained one is kept.

    Parameters
    ----------
    score : Score
        The score of the read-out on samples left out.
    own : Score or None
        That of the trained read-out; None if that cannot be kept.

    Returns
    -------
    tuple
        Whether the read-out counts, and what decides among those that do.
    """
    # Training has chosen the best of many accuracies, which are noisy: to climb above it is mostly luck.
    return (True, score) if own is None else (not score < own, last_entry(score))


@dataclass(frozen=True, eq=False)
class TaskScore:
    """The accuracy of a network on some data of a task.

    Parameters
    ----------
    task : Task
        The task, which says what counts as right.
    data : SequenceData
        The data to predict.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import TaskScore
    >>> task = cs.tasks.first_last_xor(3, n_train=8, n_val=8, n_test=8)
    >>> score = TaskScore(task, task.val)
    >>> score.data is task.val
    True
    """

    task: Task
    data: SequenceData

    def __call__(self, network: SpikingNetwork) -> float:
        """Return the accuracy of a network, as the task defines it."""
        return accuracy(network, self.task, self.data)
