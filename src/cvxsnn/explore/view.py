"""Everything that a page shows of a model, as plain values: the page computes nothing."""

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace

import numpy as np

from ..convex import ConvexProblem
from ..core.errors import BudgetError
from .costs import count_costs
from .health import examine
from .limits import LIMITS
from .neurons import Activity, explain_mistakes, list_neurons
from .optimality import find_path, prove
from .quality import Answers, average_cells, measure_quality
from .sequences import choose_sequences, view_sequences
from .subject import Subject, evenly


class ModelView(SimpleNamespace):
    """A summary of a model and of what it does on data, for a page.

    Attributes
    ----------
    name : str
        The name of the model.
    network : str
        The network on one line.
    is_training : bool
        Whether the data are those that the model was trained on.
    is_classifier : bool
        Whether answers are classes.
    readout : str
        Which spikes are read.
    columns : tuple of str
        Classes, or outputs of a regressor.
    groups : tuple of str
        Groups of the sequences: classes, or thirds of the targets.
    features : tuple of str
        Names of the inputs.
    n_steps : int
        Steps of the longest sequence.
    quality, optimality, path, neurons, health, costs : SimpleNamespace
        The sections of the page. :func:`~cvxsnn.explore.quality.measure_quality`,
        :func:`~cvxsnn.explore.optimality.prove`, :func:`~cvxsnn.explore.optimality.find_path`,
        :func:`~cvxsnn.explore.neurons.list_neurons`, :func:`~cvxsnn.explore.health.examine` and
        :func:`~cvxsnn.explore.costs.count_costs` list their values.
    sequences : list of SimpleNamespace
        Some sequences, as :func:`~cvxsnn.explore.sequences.view_sequences` returns them.
    """


def view_model(
    subject: Subject,
    *,
    max_seconds: float = LIMITS.seconds,
    answers: Answers | None = None,
    callback: Callable[[str, int, int], None] | None = None,
) -> ModelView:
    """Return what a page shows of a model.

    Parameters
    ----------
    subject : Subject
        The model with its data.
    max_seconds : float
        Time for solving the problem again and for the path, most of it for the path; 0 leaves both out.
    answers : Answers, optional
        The answers on all sequences; by default they are computed.
    callback : callable, optional
        Called as ``callback("page", done, total)`` before each part.

    Returns
    -------
    ModelView
        The summary.
    """
    notify = callback or (lambda name, done, total: None)
    notify("page", 0, 6)
    answers = answers or Answers.of(subject)
    view = ModelView(
        name=subject.name,
        network=str(subject.network),
        is_training=subject.is_training,
        is_classifier=subject.classes is not None,
        readout=subject.network.readout,
        columns=subject.columns,
        groups=answers.groups,
        features=subject.features,
        n_steps=subject.sequences.n_steps,
        quality=measure_quality(subject, answers),
    )
    notify("page", 1, 6)
    activity = Activity.of(subject, answers)
    view.neurons = list_neurons(subject, answers, activity)
    explain_mistakes(subject, answers, activity, view.quality.cells)
    average_cells(subject, answers, view.quality.cells)
    notify("page", 2, 6)
    samples = choose_sequences(subject, answers, view.quality, view.neurons)
    view.sequences = view_sequences(subject, answers, activity, samples)
    notify("page", 3, 6)
    view.health = examine(subject, activity.rows)
    view.costs = count_costs(subject, answers, activity.rows)
    notify("page", 4, 6)
    problem = _problem(subject)
    view.optimality = prove(subject, problem, max_seconds / 3)
    notify("page", 5, 6)
    scored = evenly(np.arange(subject.n_samples), LIMITS.scored)
    view.path = find_path(subject, problem, scored, 2 * max_seconds / 3)
    notify("page", 6, 6)
    return view


def _problem(subject: Subject) -> ConvexProblem | None:
    """Return the problem that the model solves; None if it is unknown or does not fit into memory."""
    if subject.problem is None and subject.proof is not None and subject.training is not None:
        with suppress(BudgetError):
            return subject.proof.problem(subject.training)
    return subject.problem
