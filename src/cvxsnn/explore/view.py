"""Everything that a page shows of a model, as plain values: the page computes nothing."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..convex import ConvexProblem
from ..core.errors import BudgetError
from .costs import Costs, count_costs
from .health import Health, examine
from .limits import LIMITS
from .neurons import Activity, NeuronList, explain_mistakes, list_neurons
from .optimality import Optimality, Path, find_path, prove
from .quality import Answers, Quality, average_cells, measure_quality
from .sequences import SequenceView, choose_sequences, view_sequences
from .subject import IntArray, Subject, evenly


@dataclass(frozen=True, eq=False)
class ModelView:
    """A summary of a model and of what it does on data, for a page.

    Parameters
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
        What is read of the spikes.
    columns : tuple of str
        What evidence is for: classes, or outputs.
    groups : tuple of str
        What sequences are grouped by: their classes, or thirds of the targets.
    features : tuple of str
        Names of the inputs.
    n_steps : int
        Steps of the longest sequence.
    quality : Quality
        What it does.
    optimality : Optimality
        Why it is optimal.
    path : Path
        Other strengths.
    neurons : NeuronList
        Its neurons.
    sequences : tuple of SequenceView
        Some sequences.
    health : Health
        Neurons that are of no use.
    costs : Costs
        What an answer costs.
    """

    name: str
    network: str
    is_training: bool
    is_classifier: bool
    readout: str
    columns: tuple[str, ...]
    groups: tuple[str, ...]
    features: tuple[str, ...]
    n_steps: int
    quality: Quality
    optimality: Optimality
    path: Path
    neurons: NeuronList
    sequences: tuple[SequenceView, ...]
    health: Health
    costs: Costs


def view_model(
    subject: Subject,
    *,
    max_seconds: float = LIMITS.seconds,
    samples: IntArray | None = None,
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
    samples : array of int, optional
        The sequences to show one by one; by default a choice of mistakes and examples.
    answers : Answers, optional
        The answers on all sequences, if they are known.
    callback : callable, optional
        Called as ``callback("page", done, total)`` before each part.

    Returns
    -------
    ModelView
        The summary.
    """
    notify = callback or (lambda name, done, total: None)
    notify("page", 0, 6)
    answers = answers or Answers.of(subject, subject.outputs())
    quality = measure_quality(subject, answers)
    notify("page", 1, 6)
    activity = Activity.of(subject, answers)
    neurons = list_neurons(subject, answers, activity)
    if subject.classes is not None:
        quality = average_cells(subject, answers, explain_mistakes(subject, answers, activity, quality))
    notify("page", 2, 6)
    chosen = choose_sequences(subject, answers, quality, neurons) if samples is None else samples
    sequences = view_sequences(subject, answers, activity, chosen)
    notify("page", 3, 6)
    health, costs = examine(subject, activity.rows), count_costs(subject, answers, activity.rows)
    notify("page", 4, 6)
    problem = _problem(subject)
    optimality = prove(subject, problem, max_seconds / 3)
    notify("page", 5, 6)
    scored = evenly(np.arange(subject.n_samples), LIMITS.scored)
    path = find_path(subject, problem, scored, 2 * max_seconds / 3)
    notify("page", 6, 6)
    return ModelView(
        name=subject.name,
        network=str(subject.network),
        is_training=subject.is_training,
        is_classifier=subject.classes is not None,
        readout=subject.network.readout,
        columns=subject.columns,
        groups=answers.groups,
        features=subject.features,
        n_steps=subject.sequences.n_steps,
        quality=quality,
        optimality=optimality,
        path=path,
        neurons=neurons,
        sequences=sequences,
        health=health,
        costs=costs,
    )


def _problem(subject: Subject) -> ConvexProblem | None:
    if subject.problem is not None or subject.proof is None or subject.training is None:
        return subject.problem
    try:
        return subject.proof.problem(subject.training)
    except BudgetError:
        return None
