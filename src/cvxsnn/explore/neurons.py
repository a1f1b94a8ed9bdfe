"""The neurons that are read: what they read, when they fire, what they say, and how many of them matter."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..neurons import HiddenLayer
from .limits import LIMITS
from .quality import Answers, ConfusionCell, Quality
from .subject import FloatArray, IntArray, Subject, r_squared

Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Fields:
    """What the first neurons of the list read: a weight for each input and delay, as taps.

    Parameters
    ----------
    n_inputs : int
        Inputs of the layer: features, or neurons of the layer below.
    n_delays : int
        Delays in steps, from 0.
    source, delay : array of shape (n_neurons, n_taps), uint16
        What each tap reads; None for ``source`` where every input is read once, and for ``delay`` where all are 0.
    weight : array of shape (n_neurons, n_taps), int8
        Weights, of which the largest of each neuron is ±127.
    scale : array of shape (n_neurons,), float32
        That largest weight.
    """

    n_inputs: int
    n_delays: int
    source: npt.NDArray[np.uint16] | None
    delay: npt.NDArray[np.uint16] | None
    weight: npt.NDArray[np.int8]
    scale: Float32Array


@dataclass(frozen=True, eq=False)
class NeuronList:
    """The neurons that are read, those that matter most first.

    Parameters
    ----------
    n_read : int
        Neurons that are read with a weight other than zero.
    n_sampled : int or None
        Neurons that the optimum is over.
    is_selection : bool
        Whether these were selected from a larger sample.
    n_listed : int
        Neurons that are listed, of those that are read.
    n_samples : int
        Sequences on which their activity was measured.
    number : array of shape (n_listed,), int32
        Their numbers in the network, ``subnetwork * width + neuron``.
    importance : array of shape (n_listed,), float32
        How much the evidence varies because of the neuron, relative to the largest.
    rate : array of shape (n_listed, n_groups), uint8
        What is read of the neuron, on average over the sequences of a group, in units of 1/255.
    weight : array of shape (n_listed, n_columns), float32
        Its output weights; the mean over the windows of time in which it is read.
    exciting : array of shape (n_listed, 3), int32
        The sequences on which it is most active.
    fields : Fields
        What they read.
    sizes : tuple of int
        Numbers of neurons.
    agreement : tuple of float
        Share of sequences with the same answer as the whole network, if only the first of the list are read and the
        others are replaced by their means; for a regressor, the share of the variance of its outputs.
    n_enough : int
        The smallest of ``sizes`` that gives at least 95 % of the same answers.
    """

    n_read: int
    n_sampled: int | None
    is_selection: bool
    n_listed: int
    n_samples: int
    number: npt.NDArray[np.int32]
    importance: Float32Array
    rate: npt.NDArray[np.uint8]
    weight: Float32Array
    exciting: npt.NDArray[np.int32]
    fields: Fields
    sizes: tuple[int, ...]
    agreement: tuple[float, ...]
    n_enough: int


@dataclass(frozen=True, eq=False)
class Activity:
    """What was read of all neurons on a sample of the sequences.

    Parameters
    ----------
    rows : array of shape (n_rows,)
        The sequences.
    features : array of shape (n_rows, n_read)
        What was read.
    mean : array of shape (n_read,)
        Its means.
    neurons : array of shape (n_neurons,)
        Neurons that are read, those that matter most first.
    place : array of shape (n_read,)
        The place of each column's neuron among ``neurons``.
    importance : array of shape (n_neurons,)
        How much the evidence varies because of each.
    """

    rows: IntArray
    features: Float32Array
    mean: FloatArray
    neurons: IntArray
    place: IntArray
    importance: FloatArray

    @classmethod
    def of(cls, subject: Subject, answers: Answers) -> "Activity":
        """Return the activity on a sample in which all groups have their share."""
        n_read = len(subject.network.neurons)
        n_rows = min(subject.n_samples, LIMITS.activity_rows, max(64, LIMITS.activity_entries // n_read))
        order = np.lexsort((np.arange(subject.n_samples), answers.group))
        rows = np.sort(order[np.linspace(0, subject.n_samples - 1, n_rows).astype(int)])
        features = subject.features_of(rows)
        mean = features.mean(0, dtype=np.float64)
        contrast = subject.weight - (subject.weight.mean(1, keepdims=True) if subject.classes else 0.0)
        variance = features.var(0, dtype=np.float64) * np.square(contrast).sum(1)
        numbers = subject.network.neurons.cpu().numpy()
        unique, inverse = np.unique(numbers, return_inverse=True)
        is_read = np.bincount(inverse, (subject.weight != 0).any(1)) > 0
        importance = np.sqrt(np.bincount(inverse, variance))
        ranked = np.lexsort((np.arange(len(unique)), -importance, ~is_read))
        place = np.empty(len(unique), dtype=np.int64)
        place[ranked] = np.arange(len(unique))
        n_used = max(1, int(is_read.sum()))
        return cls(rows, features, mean, unique[ranked][:n_used], place[inverse], importance[ranked][:n_used])

    def columns_of(self, n_neurons: int) -> list[IntArray]:
        """Return the columns of what is read of each of the first neurons."""
        columns = np.argsort(self.place, kind="stable")
        return np.split(columns, np.searchsorted(self.place[columns], np.arange(1, n_neurons + 1)))[:n_neurons]

    def per_neuron(self, columns: npt.NDArray[np.floating]) -> FloatArray:
        """Return sums over what is read of each neuron, for an array (..., n_read)."""
        flat = columns.reshape(-1, columns.shape[-1])
        n_neurons = len(self.neurons)
        sums = np.zeros((len(flat), n_neurons))
        is_used = self.place < n_neurons
        for row, values in enumerate(flat):
            sums[row] = np.bincount(self.place[is_used], values[is_used], n_neurons)
        return sums.reshape(*columns.shape[:-1], n_neurons)


def list_neurons(subject: Subject, answers: Answers, activity: Activity) -> NeuronList:
    """Return the neurons that matter most, with what is worth showing of them."""
    n_read = len(activity.neurons)
    n_listed = min(n_read, LIMITS.listed)
    columns_of = np.maximum(activity.per_neuron(np.ones((1, len(activity.place))))[0], 1)
    group = answers.group[activity.rows]
    rates = []
    for number in range(len(answers.groups)):
        members = activity.features[group == number]
        mean = members.mean(0, dtype=np.float64) if len(members) else activity.mean * 0
        rates.append(activity.per_neuron(mean) / columns_of)
    rate = np.stack(rates, 1)[:n_listed]
    weight = (activity.per_neuron(np.ascontiguousarray(subject.weight.T)) / columns_of).T[:n_listed]
    largest = float(activity.importance.max()) or 1.0
    sizes, agreement = _enough(subject, activity)
    close = [size for size, share in zip(sizes, agreement, strict=True) if share >= LIMITS.enough]
    return NeuronList(
        n_read=n_read,
        n_sampled=None if subject.proof is None else subject.proof.witnesses.n_witnesses,
        is_selection=subject.proof is not None and subject.proof.witnesses.is_selection,
        n_listed=n_listed,
        n_samples=len(activity.rows),
        number=activity.neurons[:n_listed].astype(np.int32),
        importance=(activity.importance[:n_listed] / largest).astype(np.float32),
        rate=np.clip(np.round(255 * rate), 0, 255).astype(np.uint8),
        weight=weight.astype(np.float32),
        exciting=_exciting(activity, n_listed),
        fields=_fields(subject.network.layers[-1], activity.neurons[:n_listed]),
        sizes=sizes,
        agreement=agreement,
        n_enough=close[0] if close else n_read,
    )


def explain_mistakes(subject: Subject, answers: Answers, activity: Activity, quality: Quality) -> Quality:
    """Return the quality with, for each kind of mistake, the neurons that push sequences to the wrong class."""
    right = np.where(answers.is_right(), answers.group, -1)[activity.rows]
    means: dict[int, FloatArray] = {}
    cells: list[ConfusionCell] = []
    for cell in quality.cells:
        if cell.truth == cell.predicted or not (right == cell.truth).any():
            cells.append(cell)
            continue
        if cell.truth not in means:
            means[cell.truth] = activity.features[right == cell.truth].mean(0, dtype=np.float64)
        shift = subject.features_of(np.array(cell.samples)).mean(0, dtype=np.float64) - means[cell.truth]
        push = activity.per_neuron(shift * (subject.weight[:, cell.predicted] - subject.weight[:, cell.truth]))
        push = push[: LIMITS.listed]
        best = [place for place in np.argsort(-push, kind="stable")[: LIMITS.drivers] if push[place] > 0]
        cells.append(replace(cell, drivers=tuple((int(place), float(push[place])) for place in best)))
    return replace(quality, cells=tuple(cells))


def _exciting(activity: Activity, n_listed: int) -> npt.NDArray[np.int32]:
    """Return the sequences on which each neuron is most active; the first of equal ones."""
    n_shown = min(LIMITS.exciting, len(activity.rows))
    best = np.zeros((n_listed, n_shown), dtype=np.int32)
    for neuron, columns in enumerate(activity.columns_of(n_listed)):
        total = activity.features[:, columns].sum(1)
        top = np.argpartition(-total, n_shown - 1)[:n_shown]
        best[neuron] = activity.rows[top[np.argsort(-total[top], kind="stable")]]
    return best


def _enough(subject: Subject, activity: Activity) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return numbers of neurons, and how much the answers of the first neurons alone agree with those of all."""
    n_neurons = len(activity.neurons)
    wanted = [*np.geomspace(1, n_neurons, LIMITS.sizes), *np.linspace(n_neurons / 10, n_neurons, 10)]
    sizes = sorted({max(1, round(float(size))) for size in wanted})
    columns_of = activity.columns_of(n_neurons)
    intercept = subject.network.intercept.detach().cpu().numpy() @ subject.to_classes
    partial = np.tile(activity.mean @ subject.weight + intercept, (len(activity.rows), 1))
    scores = []
    for first, last in itertools.pairwise([0, *sizes]):
        chosen = np.concatenate(columns_of[first:last])
        partial = partial + (activity.features[:, chosen] - activity.mean[chosen]) @ subject.weight[chosen]
        scores.append(partial)
    whole = scores[-1]
    if subject.classes is None:
        return tuple(sizes), tuple(max(0.0, r_squared(whole, score)) for score in scores)
    answers = subject.decide(whole)
    return tuple(sizes), tuple(float((subject.decide(score) == answers).mean()) for score in scores)


def _fields(layer: HiddenLayer, neurons: IntArray) -> Fields:
    """Return what neurons of a layer read, for as many of them as the page has room for."""
    n_taps = layer.weight.shape[1]
    n_shown = max(1, min(len(neurons), LIMITS.field_bytes // (n_taps * (5 if layer.has_delays else 1))))
    subnetwork, neuron = np.divmod(neurons[:n_shown], layer.width)
    weight = layer.weight.detach().cpu().double().numpy()[subnetwork, :, neuron]
    scale = np.abs(weight).max(1)
    shown = np.round(127 * weight / np.where(scale > 0, scale, 1)[:, None]).astype(np.int8)
    source = delay = None
    if layer.has_delays:
        source, delay = (
            value.cpu().numpy().astype(np.uint16)[subnetwork, :, neuron] for value in (layer.source, layer.delay)
        )
    return Fields(layer.n_inputs, layer.max_delay + 1, source, delay, shown, scale.astype(np.float32))
