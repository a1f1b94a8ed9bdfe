"""Judging a sequence model from outside: its predictions with and without help, and their scores."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ..core.errors import InvalidInputError
from ..data.tasks import Feedback, SequenceData, Task

State = TypeVar("State")
Predictions = Mapping[str, npt.NDArray[np.int64]]


class SequenceModel(Protocol[State]):
    """What a model must do to be judged: begin, then answer one step at a time."""

    def start(self, n_samples: int) -> State:
        """The state before the first step of ``n_samples`` sequences."""
        ...

    def step(self, state: State, inputs: npt.NDArray[np.float32]) -> tuple[State, Predictions]:
        """From ``inputs`` of shape (n_samples, n_features), the next state and each head's classes, (n_samples,)."""
        ...


def predict_teacher_forced(model: SequenceModel[State], data: SequenceData) -> dict[str, npt.NDArray[np.int64]]:
    """Predict every step from the true inputs.

    Returns
    -------
    dict from head to array of shape (n_samples, n_steps), dtype int64
    """
    return _predict(model, data, None)


def predict_autoregressive(
    model: SequenceModel[State], data: SequenceData, feedback: Feedback
) -> dict[str, npt.NDArray[np.int64]]:
    """Predict every step from the model's own prediction one step before, in place of the input it stands for.

    Of the input ``feedback.feature`` only the first step is used.

    Returns
    -------
    dict from head to array of shape (n_samples, n_steps), dtype int64
    """
    feedback.check(data)
    return _predict(model, data, feedback)


def _predict(
    model: SequenceModel[State], data: SequenceData, feedback: Feedback | None
) -> dict[str, npt.NDArray[np.int64]]:
    predictions = {head: np.empty((data.n_samples, data.n_steps), dtype=np.int64) for head in data.heads}
    state = model.start(data.n_samples)
    for step in range(data.n_steps):
        inputs = data.inputs[:, step].copy()  # feedback, or the model itself, may write into it
        if feedback is not None and step > 0:
            inputs[:, feedback.feature] = predictions[feedback.head][:, step - 1]
        state, answers = model.step(state, inputs)
        _check_heads(answers, dict.fromkeys(data.heads, (data.n_samples,)), f"the model's answers at step {step}")
        for head, answer in answers.items():
            predictions[head][:, step] = answer
    return predictions


def _check_heads(predictions: Predictions, shapes: Mapping[str, tuple[int, ...]], what: str) -> None:
    """Refuse predictions that are not integer classes of these heads and shapes."""
    if predictions.keys() != shapes.keys():
        raise InvalidInputError(f"expected {what} for heads {sorted(shapes)}, got heads {sorted(predictions)}")
    for head, shape in shapes.items():
        found = predictions[head]
        if found.shape != shape or not np.issubdtype(found.dtype, np.integer):
            raise InvalidInputError(
                f"expected {what} for head {head!r} to be integer classes of shape {shape}, "
                f"got {found.dtype} of shape {found.shape}"
            )


@dataclass(frozen=True, eq=False)
class TokenScores:
    """Scores of predictions of every step; a token is one step of one sequence.

    Parameters
    ----------
    joint_token : float
        Share of tokens that every head has right: the paper's primary metric.
    head_token : mapping from head to float
        Share of tokens that this head has right.
    joint_sequence : float
        Share of sequences that are right throughout.
    first_error_step : array of shape (n_samples,), dtype int64
        The first step, from 0, that some head has wrong; ``n_steps`` where a sequence is right throughout.
    """

    joint_token: float
    head_token: Mapping[str, float]
    joint_sequence: float
    first_error_step: npt.NDArray[np.int64]

    @property
    def sum_token(self) -> float:
        """Share of tokens with the right sum digit."""
        return self._head_token("sum")

    @property
    def carry_token(self) -> float:
        """Share of tokens with the right carry."""
        return self._head_token("carry")

    @property
    def mean_first_error_step(self) -> float:
        """Mean of ``first_error_step``."""
        return float(self.first_error_step.mean())

    def _head_token(self, head: str) -> float:
        if head not in self.head_token:
            raise InvalidInputError(f"expected scores of a head {head!r}, got heads {sorted(self.head_token)}")
        return self.head_token[head]


def score_tokens(predictions: Predictions, data: SequenceData) -> TokenScores:
    """Compare predictions of every step with the targets.

    Parameters
    ----------
    predictions : mapping from head to integer array of shape (n_samples, n_steps)
    data : SequenceData
        With one target a step for each of the same heads.
    """
    for head, targets in data.heads.items():
        if targets.ndim != 2:
            raise InvalidInputError(
                f"expected one target a step, got one a sequence for head {head!r}: use label_accuracy"
            )
    _check_heads(predictions, {head: targets.shape for head, targets in data.heads.items()}, "predictions")
    is_right = {head: predictions[head] == targets for head, targets in data.heads.items()}
    token_is_right = np.logical_and.reduce(list(is_right.values()))
    sequence_is_right = token_is_right.all(axis=1)
    return TokenScores(
        joint_token=float(token_is_right.mean()),
        head_token={head: float(right.mean()) for head, right in is_right.items()},
        joint_sequence=float(sequence_is_right.mean()),
        first_error_step=np.where(sequence_is_right, data.n_steps, token_is_right.argmin(axis=1)),
    )


def label_accuracy(predicted: npt.NDArray[np.int64], data: SequenceData) -> float:
    """Share of sequences whose one label is ``predicted`` right.

    Parameters
    ----------
    predicted : integer array of shape (n_samples,)
    data : SequenceData
        With one head, of one label a sequence.
    """
    shapes = {head: targets.shape for head, targets in data.heads.items()}
    if list(shapes.values()) != [(data.n_samples,)]:
        raise InvalidInputError(
            f"expected data with one head of one label a sequence, got targets of shapes {shapes}: use score_tokens"
        )
    ((head, targets),) = data.heads.items()
    _check_heads({head: predicted}, shapes, "predictions")
    return float((predicted == targets).mean())


def accuracy(model: "Network[State]", task: Task, data: SequenceData) -> float:
    """The one number by which a task judges a model.

    Where the model feeds its own answers back, the share of steps at which every head is right while it does so; where
    each step has targets, the same without feedback; else the share of right labels.
    """
    if task.feedback is not None:
        return score_tokens(predict_autoregressive(model, data, task.feedback), data).joint_token
    predicted = model.predict(data.inputs)
    if all(targets.ndim == 2 for targets in data.heads.values()):
        return score_tokens(predicted, data).joint_token
    (head,) = data.heads
    return label_accuracy(predicted[head], data)


class Network(SequenceModel[State], Protocol[State]):
    """A model that also answers for whole sequences at once."""

    def predict(self, inputs: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.int64]]:
        """Each head's classes, (n_samples,) or (n_samples, n_steps)."""
        ...
