"""The neurons that are read: their inputs, their activity, their output weights, and how many of them matter."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt

from ..convex.objective import decide_class
from ..neurons import HiddenLayer
from .limits import LIMITS
from .quality import Answers
from .subject import FloatArray, IntArray, Subject, r_squared

Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Activity:
    """The features of all neurons on a sample of the sequences.

    Parameters
    ----------
    rows : array of shape (n_rows,)
        The sequences.
    features : array of shape (n_rows, n_read)
        Their features: rates, or spikes of the last step.
    mean : array of shape (n_read,)
        The mean of each feature.
    neurons : array of shape (n_neurons,)
        Neurons that are read with a weight other than zero, the most important first.
    rank : array of shape (n_read,)
        The index of each column's neuron in ``neurons``; ``n_neurons`` or more if all of its weights are zero.
    importance : array of shape (n_neurons,)
        Standard deviation of the evidence because of each neuron.
    """

    rows: IntArray
    features: Float32Array
    mean: FloatArray
    neurons: IntArray
    rank: IntArray
    importance: FloatArray

    @classmethod
    def of(cls, subject: Subject, answers: Answers) -> "Activity":
        """Return the activity on a sample in which all groups have their share."""
        n_read = len(subject.network.neurons)
        n_rows = min(subject.n_samples, LIMITS.activity_rows, max(64, LIMITS.activity_entries // n_read))
        order = np.argsort(answers.group, kind="stable")
        rows = np.sort(order[np.linspace(0, subject.n_samples - 1, n_rows).astype(int)])
        features = subject.features_of(rows)
        mean = features.mean(0, dtype=np.float64)  # sums of thousands of float32 numbers would lose digits
        # Evidence that all classes share changes no answer.
        contrast = subject.weight - (subject.weight.mean(1, keepdims=True) if subject.classes else 0.0)
        variance = features.var(0, dtype=np.float64) * np.square(contrast).sum(1)
        unique, inverse = np.unique(subject.network.neurons.cpu().numpy(), return_inverse=True)
        is_read = np.bincount(inverse, (subject.weight != 0).any(1)) > 0
        importance = np.sqrt(np.bincount(inverse, variance))
        # The last key counts most: neurons without a weight come after all others.
        ranked = np.lexsort((-importance, ~is_read))
        rank = np.argsort(ranked)[inverse]
        used = ranked[: max(1, int(is_read.sum()))]  # a network may have no weights at all
        return cls(rows, features, mean, unique[used], rank, importance[used])

    def columns_of(self, n_neurons: int) -> list[IntArray]:
        """Return the columns of ``features`` that belong to each of the first neurons."""
        columns = np.argsort(self.rank, kind="stable")
        return np.split(columns, np.searchsorted(self.rank[columns], np.arange(1, n_neurons + 1)))[:n_neurons]

    def per_neuron(self, columns: npt.NDArray[np.floating]) -> FloatArray:
        """Return sums over the columns of each neuron, for an array (..., n_read)."""
        n_neurons = len(self.neurons)
        return np.apply_along_axis(lambda values: np.bincount(self.rank, values, n_neurons)[:n_neurons], -1, columns)


def list_neurons(subject: Subject, answers: Answers, activity: Activity) -> SimpleNamespace:
    """List the neurons that are read, the most important first.

    Parameters
    ----------
    subject : Subject
        The model with its data.
    answers : Answers
        Its answers, for the groups of the sequences.
    activity : Activity
        The features of the neurons.

    Returns
    -------
    SimpleNamespace
        ``n_read``: neurons with a weight other than zero, of which ``n_listed`` are listed. ``n_sampled``: neurons that
        the optimum is over, or None; ``is_selection`` says whether these were selected from a larger sample.
        ``n_samples``: sequences on which activity was measured. By neuron: ``number`` in the network, ``subnetwork *
        width + neuron``; ``importance``, the standard deviation of the evidence because of it, relative to the largest;
        ``rate``, the mean of its features in each group, in units of 1/255; ``weight`` by class or output, the
        mean over the windows of time in which it is read; ``exciting``, the sequences on which it is most active; and
        ``fields``, see :func:`_fields`. ``sizes`` are numbers of neurons, and ``agreement`` the share of sequences with
        the same answer as the whole network if the other neurons are replaced by their means (for a regressor, the
        share of the variance of its outputs). ``n_enough`` is the smallest size whose agreement is at least 95 %.
    """
    n_read = len(activity.neurons)
    n_listed = min(n_read, LIMITS.listed)
    # A neuron has one column per window of time in which it is read.
    n_columns = np.maximum(np.bincount(activity.rank, minlength=n_read)[:n_read], 1)
    group = answers.group[activity.rows]
    rates = []
    for number in range(len(answers.groups)):
        members = activity.features[group == number]
        mean = members.mean(0, dtype=np.float64) if len(members) else activity.mean * 0
        rates.append(activity.per_neuron(mean) / n_columns)
    weight = activity.per_neuron(subject.weight.T) / n_columns
    sizes, agreement = _agreement(subject, activity)
    proof = subject.proof
    return SimpleNamespace(
        n_read=n_read,
        n_sampled=None if proof is None else proof.witnesses.n_witnesses,
        is_selection=proof is not None and proof.witnesses.is_selection,
        n_listed=n_listed,
        n_samples=len(activity.rows),
        number=activity.neurons[:n_listed].astype(np.int32),
        importance=(activity.importance[:n_listed] / (activity.importance.max() or 1.0)).astype(np.float32),
        # One byte per rate: the page shows shades.
        rate=np.clip(np.round(255 * np.stack(rates, 1)[:n_listed]), 0, 255).astype(np.uint8),
        weight=weight.T[:n_listed].astype(np.float32),
        exciting=_exciting(activity, n_listed),
        fields=_fields(subject.network.layers[-1], activity.neurons[:n_listed]),
        sizes=sizes,
        agreement=agreement,
        n_enough=next((size for size, same in zip(sizes, agreement, strict=True) if same >= LIMITS.enough), n_read),
    )


def explain_mistakes(subject: Subject, answers: Answers, activity: Activity, cells: Sequence[SimpleNamespace]) -> None:
    """Set the ``drivers`` of each kind of mistake: neurons that push its sequences away from their class.

    They are pairs of a neuron's rank in the list and the evidence that the neuron moves to the wrong class, compared
    with sequences of the same class that are answered correctly.
    """
    right = np.where(answers.is_right(), answers.group, -1)[activity.rows]
    mistakes = [cell for cell in cells if cell.truth != cell.predicted and cell.truth in right]
    usual = {
        truth: activity.features[right == truth].mean(0, dtype=np.float64)
        for truth in {cell.truth for cell in mistakes}
    }
    for cell in mistakes:
        shift = subject.features_of(np.array(cell.samples)).mean(0, dtype=np.float64) - usual[cell.truth]
        push = activity.per_neuron(shift * (subject.weight[:, cell.predicted] - subject.weight[:, cell.truth]))
        strongest = np.argsort(-push[: LIMITS.listed], kind="stable")[: LIMITS.drivers].tolist()
        cell.drivers = [(rank, float(push[rank])) for rank in strongest if push[rank] > 0]


def _exciting(activity: Activity, n_listed: int) -> npt.NDArray[np.int32]:
    """Return the sequences on which each neuron is most active; the first of equal ones."""
    n_shown = min(LIMITS.exciting, len(activity.rows))
    best = np.zeros((n_listed, n_shown), dtype=np.int32)
    for neuron, columns in enumerate(activity.columns_of(n_listed)):
        total = activity.features[:, columns].sum(1)
        # Only the top is sorted: there can be thousands of neurons and of sequences.
        top = np.argpartition(-total, n_shown - 1)[:n_shown]
        best[neuron] = activity.rows[top[np.argsort(-total[top], kind="stable")]]
    return best


def _agreement(subject: Subject, activity: Activity) -> tuple[list[int], list[float]]:
    """Return numbers of neurons, and how well the answers of the first neurons alone agree with those of all."""
    n_neurons = len(activity.neurons)
    wanted = [*np.geomspace(1, n_neurons, LIMITS.sizes), *np.linspace(n_neurons / 10, n_neurons, 10)]
    sizes = sorted({max(1, round(float(size))) for size in wanted})
    columns_of = activity.columns_of(n_neurons)
    intercept = subject.network.intercept.detach().cpu().numpy() @ subject.to_classes
    # A neuron that is left out still contributes its mean, so that only its variation is lost.
    evidence = np.tile(activity.mean @ subject.weight + intercept, (len(activity.rows), 1))
    partial = []
    for first, last in itertools.pairwise([0, *sizes]):
        # Each size adds the neurons that the one before it lacks.
        chosen = np.concatenate(columns_of[first:last])
        evidence = evidence + (activity.features[:, chosen] - activity.mean[chosen]) @ subject.weight[chosen]
        partial.append(evidence)
    if subject.classes is None:
        return sizes, [max(0.0, r_squared(evidence, part)) for part in partial]
    answers = decide_class(evidence)
    return sizes, [float((decide_class(part) == answers).mean()) for part in partial]


def _fields(layer: HiddenLayer, neurons: IntArray) -> SimpleNamespace:
    """Return what neurons of a layer read, for as many of them as the page has room for.

    ``source`` and ``delay`` are what each tap reads, of shape (n_neurons, n_taps); both are None if every input is read
    once, without delays. ``weight`` has the same shape, and the largest of each neuron is ±127 and stands for
    ``scale``. ``n_inputs`` are features, or neurons of the layer below.
    """
    n_taps = layer.weight.shape[1]
    # A tap takes one byte for its weight, and two each for source and delay.
    n_shown = max(1, min(len(neurons), LIMITS.field_bytes // (n_taps * (5 if layer.has_delays else 1))))
    subnetwork, neuron = np.divmod(neurons[:n_shown], layer.width)
    weight = layer.weight.detach().cpu().double().numpy()[subnetwork, :, neuron]
    scale = np.abs(weight).max(1)
    source = delay = None
    if layer.has_delays:
        source, delay = (
            taps.cpu().numpy().astype(np.uint16)[subnetwork, :, neuron] for taps in (layer.source, layer.delay)
        )
    return SimpleNamespace(
        n_inputs=layer.n_inputs,
        n_delays=layer.max_delay + 1,
        source=source,
        delay=delay,
        weight=np.round(127 * weight / np.where(scale > 0, scale, 1)[:, None]).astype(np.int8),
        scale=scale.astype(np.float32),
    )
