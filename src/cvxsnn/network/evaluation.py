"""Accuracy of sequence models, with or without feeding their predictions back as inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.checks import check_type
from ..core.errors import InvalidInputError
from ..data.task import Feedback, SequenceData, Task
from .spiking_network import SpikingNetwork

Predictions = Mapping[str, npt.NDArray[np.int64]]
_SPLIT = "a split of a task, such as task.test, to judge a model on"


def predict_autoregressive(model: Any, data: SequenceData, feedback: Feedback) -> dict[str, npt.NDArray[np.int64]]:
    """Predict every step from the model's prediction one step before, which replaces the input ``feedback.feature``.

    Parameters
    ----------
    model : SpikingNetwork
        The network, or another model with these methods: ``start(n_samples)`` returns a state, ``step(state, inputs)``
        the next state and scores, ``decide(scores)`` the classes of each head, (n_samples,).
    data : SequenceData
        The sequences; of the input that is replaced, only the first step is used.
    feedback : Feedback
        The head whose predictions are fed back, and the feature that they replace.

    Returns
    -------
    dict of str to array of shape (n_samples, n_steps), dtype int64
        The classes of each head.
    """
    _check_model(model, ("start", "step", "decide"))
    check_type(data, SequenceData, _SPLIT)
    feedback.check(data)
    predictions = {head: np.empty((data.n_samples, data.n_steps), dtype=np.int64) for head in data.heads}
    # A spiking network may read windows of the steps to come.
    sizes = (data.n_samples, data.n_steps) if isinstance(model, SpikingNetwork) else (data.n_samples,)
    state = model.start(*sizes)
    for step in range(data.n_steps):
        inputs = data.inputs[:, step].copy()  # the model may write into it
        if step > 0:
            inputs[:, feedback.feature] = predictions[feedback.head][:, step - 1]
        state, scores = model.step(state, inputs)
        decisions = model.decide(scores)
        _check_heads(decisions, dict.fromkeys(data.heads, (data.n_samples,)), f"the model's decisions at step {step}")
        for head, classes in decisions.items():
            predictions[head][:, step] = classes
    return predictions


def _check_model(model: object, methods: tuple[str, ...]) -> None:
    missing = [name for name in methods if not callable(getattr(model, name, None))]
    if missing:
        raise InvalidInputError(
            f"expected a model with the methods {', '.join(methods)}, such as a SpikingNetwork, got a "
            f"{type(model).__name__} without {', '.join(missing)}"
        )


def _check_heads(predictions: Predictions, shapes: Mapping[str, tuple[int, ...]], noun: str) -> None:
    """Refuse predictions that are not integer classes of these heads and shapes."""
    check_type(predictions, Mapping, f"{noun} as a mapping from head to classes")
    if predictions.keys() != shapes.keys():
        raise InvalidInputError(f"expected {noun} for heads {sorted(shapes)}, got heads {sorted(predictions)}")
    for head, shape in shapes.items():
        classes = np.asarray(predictions[head])
        if classes.shape != shape or not np.issubdtype(classes.dtype, np.integer):
            raise InvalidInputError(
                f"expected {noun} for head {head!r} to be integer classes of shape {shape}, "
                f"got {classes.dtype} of shape {classes.shape}"
            )


@dataclass(frozen=True, eq=False)
class TokenScores:
    """Scores of predictions of every step; a token is one step of one sequence.

    Parameters
    ----------
    joint_token : float
        Share of tokens at which every head is right: the paper's primary metric.
    head_token : mapping from head to float
        Share of tokens at which this head is right.
    joint_sequence : float
        Share of sequences without errors.
    first_error_step : array of shape (n_samples,), dtype int64
        The first step, from 0, at which some head is wrong; ``n_steps`` for a sequence without errors.
    """

    joint_token: float
    head_token: Mapping[str, float]
    joint_sequence: float
    first_error_step: npt.NDArray[np.int64]

    @property
    def mean_first_error_step(self) -> float:
        """Mean of ``first_error_step``."""
        return float(self.first_error_step.mean())


def score_tokens(predictions: Predictions, data: SequenceData) -> TokenScores:
    """Compare predictions of every step with the targets.

    Parameters
    ----------
    predictions : mapping from head to integer array of shape (n_samples, n_steps)
        The classes of each head.
    data : SequenceData
        The sequences, with a target per step for each of the same heads.

    Returns
    -------
    TokenScores
        The shares that are right.
    """
    check_type(data, SequenceData, _SPLIT)
    shapes = {head: targets.shape for head, targets in data.heads.items()}
    if any(len(shape) != 2 for shape in shapes.values()):
        raise InvalidInputError(f"expected one target per step, got targets of shapes {shapes}: use label_accuracy")
    _check_heads(predictions, shapes, "predictions")
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
    """Return the share of sequences whose label is predicted right.

    Parameters
    ----------
    predicted : integer array of shape (n_samples,)
        The classes.
    data : SequenceData
        The sequences, with one head of one label per sequence.

    Returns
    -------
    float
        The share, from 0 to 1.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> cs.network.label_accuracy(task.test.targets, task.test)
    1.0
    """
    check_type(data, SequenceData, _SPLIT)
    shapes = {head: targets.shape for head, targets in data.heads.items()}
    if list(shapes.values()) != [(data.n_samples,)]:
        raise InvalidInputError(
            f"expected data with one head of one label per sequence, got targets of shapes {shapes}: use score_tokens"
        )
    ((head, targets),) = data.heads.items()
    _check_heads({head: predicted}, shapes, "predictions")
    return float((np.asarray(predicted) == targets).mean())


def accuracy(model: Any, task: Task, data: SequenceData) -> float:
    """Return the accuracy that a task reports for a model.

    For tasks with feedback, this is the share of steps at which every head is right while predictions are fed back.
    For other tasks with a target per step, it is the same share without feedback; otherwise the share of right labels.

    Parameters
    ----------
    model : SpikingNetwork
        The network, or any other model with the methods ``start``, ``step`` and ``decide`` for tasks with feedback and
        ``predict`` for others.
    task : Task
        The task, which says whether there is feedback.
    data : SequenceData
        A split of the task.

    Returns
    -------
    float
        The share, from 0 to 1.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import Settings, train_task
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> trained = train_task("cvx", task, Settings(cs.convex.Objective("logistic"), {"hidden": (16, 32)}))
    >>> cs.network.accuracy(trained.network, task, task.test) > 0.5
    True
    """
    check_type(task, Task, "a task, such as cvxsnn.tasks.addition()")
    check_type(data, SequenceData, _SPLIT)
    if task.feedback is not None:
        return score_tokens(predict_autoregressive(model, data, task.feedback), data).joint_token
    _check_model(model, ("predict",))
    predicted = model.predict(data.inputs)
    if all(targets.ndim == 2 for targets in data.heads.values()):
        return score_tokens(predicted, data).joint_token
    (head,) = data.heads
    return label_accuracy(predicted[head], data)
