"""A page about a model: its accuracy, why it is optimal, its neurons, single sequences, health and cost."""

from collections.abc import Callable
from typing import Any

from .comparison import compare, shown_samples
from .limits import LIMITS
from .neurons import Activity
from .page import Exploration
from .quality import Answers
from .sequences import view_sequences
from .subject import Subject
from .view import ModelView, view_model

__all__ = ["Exploration", "ModelView", "Subject", "explore", "explore_both", "view_model"]


def explore(
    model: Any,
    X: Any,
    y: Any,
    *,
    training: tuple[Any, ...] | None = None,
    name: str | None = None,
    max_seconds: float = LIMITS.seconds,
    callback: Callable[[str, int, int], None] | None = None,
) -> Exploration:
    """Return a page about a fitted model.

    Parameters
    ----------
    model : SpikingClassifier, SpikingRegressor, Pipeline, SpikingNetwork or ReadoutResult
        The fitted model. Bare networks have no proof: sections on the optimum say so.
    X : array or list of arrays
        Sequences to show it on, as for ``predict``; for a network, as it reads them.
    y : array
        Their targets.
    training : tuple, optional
        The sequences, targets and, if there were any, sample weights that the model was fitted to, for the sections on
        the optimum and the path. Not needed if ``X`` and ``y`` are these.
    name : str, optional
        The name of the model; by default its class.
    max_seconds : float
        Time for solving again and for the path; 0 leaves both out.
    callback : callable, optional
        Called as ``callback(part, done, total)``.

    Returns
    -------
    Exploration
        The page, which a notebook shows and ``save`` writes.
    """
    subject = Subject.of_estimator(model, X, y, training, name)
    return Exploration(view_model(subject, max_seconds=max_seconds, callback=callback))


def explore_both(
    models: tuple[Any, Any],
    X: Any,
    y: Any,
    *,
    training: tuple[Any, ...] | None = None,
    names: tuple[str, str] = ("A", "B"),
    max_seconds: float = LIMITS.seconds,
    callback: Callable[[str, int, int], None] | None = None,
) -> Exploration:
    """Return a page about two fitted models, side by side.

    Parameters
    ----------
    models : tuple of two fitted models
        Models with the same classes or outputs.
    X : array or list of arrays
        Sequences to show them on.
    y : array
        Their targets.
    training : tuple, optional
        The data that both were fitted to, as for :func:`explore`.
    names : tuple of str
        Names of the models.
    max_seconds : float
        Time for solving again and for the paths, for both models together.
    callback : callable, optional
        Called as ``callback(part, done, total)``.

    Returns
    -------
    Exploration
        The page.
    """
    subjects = [Subject.of_estimator(model, X, y, training, name) for model, name in zip(models, names, strict=True)]
    answers = [Answers.of(subject) for subject in subjects]
    comparison = compare((subjects[0], subjects[1]), (answers[0], answers[1]))
    views = [
        view_model(subject, max_seconds=max_seconds / 2, answers=answer, callback=callback)
        for subject, answer in zip(subjects, answers, strict=True)
    ]
    samples = shown_samples(comparison, *([shown.sample for shown in view.sequences] for view in views))
    # Both models are shown on the same sequences, and these are known only now.
    for subject, answer, view in zip(subjects, answers, views, strict=True):
        view.sequences = view_sequences(subject, answer, Activity.of(subject, answer), samples)
    return Exploration(*views, comparison=comparison)
