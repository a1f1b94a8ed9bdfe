"""Why a model answers as it does: the steps, neurons and channels that its scores are due to."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, is_classifier, is_regressor
from sklearn.metrics import r2_score

from ..convex.objective import decide_class
from ..core.checks import check_positive_int
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..core.seeds import child_generator
from ..data.sequences import as_matrices
from .inputs import as_numpy, count_samples, is_tabular, parts_of
from .pipelines import split_pipeline

FloatArray = npt.NDArray[np.float64]

_N_SHOWN = 3

_BATCH = 2000
"""Sequences that are predicted at once, if there are several repeats: each call takes as long as dozens of them."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """The evidence for each output by step and by neuron: either adds up, with the intercept, to the scores.

    Steps and neurons are counted from 0. Evidence belongs to the step of a spike, which may be later than what the
    neuron reads, by up to its delays. It is not divided among channels, since spikes are not linear in them
    (:func:`cvxsnn.permutation_importance`).

    Parameters
    ----------
    inputs : array of shape (n_steps, n_features)
        The sequence.
    evidence : array of shape (n_steps, n_outputs)
        The evidence of each step: of an entry of the read-out, each spike that it is due to has an equal share
        (:func:`cvxsnn.neurons.statistics.steps_that_make`). Two classes share one output, which favours the second
        where it is positive.
    neurons : array of shape (n_neurons, n_outputs)
        The evidence of each neuron that is read.
    numbers : array of shape (n_neurons,), dtype int64
        The numbers of these neurons in the last layer of ``model.network_``.
    intercept : array of shape (n_outputs,)
        The scores without spikes.
    classes : array of shape (n_classes,) or None
        The labels; None for a regressor.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> X = np.random.default_rng(0).normal(size=(60, 5, 2))
    >>> model = cs.SpikingRegressor(n_neurons=64, random_state=0).fit(X, X.sum((1, 2)))
    >>> explanation = model.explain(X[0])
    >>> explanation.evidence.shape
    (5, 1)
    >>> bool(np.isclose(explanation.over_time[-1, 0], model.predict(X[:1])[0]))
    True
    """

    inputs: FloatArray
    evidence: FloatArray
    neurons: FloatArray
    numbers: npt.NDArray[np.int64]
    intercept: FloatArray
    classes: npt.NDArray[Any] | None

    @property
    def over_time(self) -> FloatArray:
        """The intercept and the evidence up to and with each step, shape (n_steps, n_outputs)."""
        so_far: FloatArray = self.intercept + self.evidence.cumsum(0)
        return so_far

    @property
    def scores(self) -> FloatArray:
        """The scores that ``decision_function``, or ``predict`` of a regressor, computes, shape (n_outputs,)."""
        scores: FloatArray = self.intercept + self.evidence.sum(0)
        return scores

    @property
    def names(self) -> list[str]:
        """Names of the outputs."""
        if self.classes is None:
            return ["output"] if len(self.intercept) == 1 else [f"output {k}" for k in range(len(self.intercept))]
        return [f"{self.classes[1]} over {self.classes[0]}"] if len(self.classes) == 2 else list(map(str, self.classes))

    @property
    def answer(self) -> str:
        """The predicted class with its margin over the next, or the outputs of a regressor."""
        return self._contrast()[0]

    def plot(self, axes: Any = None) -> Any:
        """Plot the evidence so far over time, above the input: :func:`cvxsnn.plots.plot_explanation`.

        Parameters
        ----------
        axes : sequence of two matplotlib Axes, optional
            Where to draw evidence and input.

        Returns
        -------
        array of two Axes
            The axes that were drawn on.
        """
        from ..plots import plot_explanation

        return plot_explanation(self, axes)

    def _contrast(self) -> tuple[str, FloatArray]:
        """Return the answer in words, and the sum of outputs that decides it, shape (n_outputs,)."""
        scores, outputs = self.scores, np.eye(len(self.intercept))
        if self.classes is None:
            # Of several outputs, the one that the sequence changes most.
            shown = int(abs(scores - self.intercept).argmax())
            answer = ", ".join(f"{name} {score:.4g}" for name, score in zip(self.names, scores, strict=True))
            return answer + (f"; of {self.names[shown]}" if len(scores) > 1 else ""), outputs[shown]
        best = int(decide_class(scores[None])[0])
        if len(self.classes) == 2:
            rival, contrast = 1 - best, outputs[0] * (2 * best - 1)
        else:
            rival = int(np.where(np.arange(len(scores)) == best, -np.inf, scores).argmax())
            contrast = outputs[best] - outputs[rival]
        answer = f"class {self.classes[best]}, ahead of {self.classes[rival]} by {scores @ contrast:.3g}"
        return answer, contrast

    def __repr__(self) -> str:
        """Return the answer, and the steps and neurons that decided it."""
        answer, contrast = self._contrast()
        lines = [f"{type(self).__name__}: {answer}", f"  intercept {self.intercept @ contrast:+.3g}"]
        for noun, evidence, numbers in (
            ("step", self.evidence, np.arange(len(self.evidence))),
            ("neuron", self.neurons, self.numbers),
        ):
            parts = evidence @ contrast
            largest = np.argsort(-abs(parts), kind="stable")[:_N_SHOWN]
            shown = ", ".join(f"{numbers[k]} ({parts[k]:+.3g})" for k in largest)
            lines.append(f"  {plural(len(parts), noun)} {parts.sum():+.3g}, most of all {shown}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False, repr=False)
class PermutationImportance:
    """How much a score drops if channels are exchanged between samples in windows of time.

    Parameters
    ----------
    score : float
        Accuracy, or R² of a regressor, on the data as they are.
    importances : array of shape (n_channels, n_windows, n_repeats)
        By how much it drops if one channel in one window is exchanged, for each repeat.
    names : tuple of str
        Names of the channels.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> X = np.random.default_rng(0).normal(size=(60, 6, 2))
    >>> model = cs.SpikingRegressor(n_neurons=64, random_state=0).fit(X, X[:, :3, 1].sum(1))
    >>> found = cs.permutation_importance(model, X, X[:, :3, 1].sum(1), n_windows=2)
    >>> [int(axis) for axis in np.unravel_index(found.importances_mean.argmax(), (2, 2))]
    [1, 0]
    """

    score: float
    importances: FloatArray
    names: tuple[str, ...]

    @property
    def importances_mean(self) -> FloatArray:
        """Means over the repeats, shape (n_channels, n_windows)."""
        means: FloatArray = self.importances.mean(-1)
        return means

    @property
    def importances_std(self) -> FloatArray:
        """Standard deviations over the repeats, shape (n_channels, n_windows)."""
        deviations: FloatArray = self.importances.std(-1)
        return deviations

    def __repr__(self) -> str:
        """Return a line per channel and window, the most important first."""
        mean, std = self.importances_mean, self.importances_std
        lines = [f"{type(self).__name__}: score {self.score:.4f}, which drops by"]
        for place in np.argsort(-mean, axis=None, kind="stable")[:10]:
            channel, window = np.unravel_index(place, mean.shape)
            where = f", window {window} of {mean.shape[1]}" if mean.shape[1] > 1 else ""
            at = (channel, window)
            lines.append(f"  {mean[at]:.4f} ± {std[at]:.4f} if {self.names[channel]}{where} is exchanged")
        return "\n".join(lines)


def permutation_importance(
    model: Any, X: Any, y: Any, *, n_windows: int = 1, n_repeats: int = 5, seed: int = 0
) -> PermutationImportance:
    """Measure by how much a model's score drops if one channel in one window of time is exchanged between samples.

    Windows divide the steps of each sequence, whatever its length; a window of another length is stretched, to the
    nearest earlier step. Exchange on data that the model was not fitted to. It takes a prediction of all samples for
    each channel, window and repeat.

    Parameters
    ----------
    model : fitted classifier or regressor
        Any that predicts from sequences, also a pipeline.
    X : array of shape (n_samples, n_steps, n_channels), or list of arrays or tables
        The sequences.
    y : array of shape (n_samples,) or (n_samples, n_outputs)
        Their labels or targets.
    n_windows : int
        The number of windows.
    n_repeats : int
        How often each channel is exchanged in each window.
    seed : int
        Seed of the permutations.

    Returns
    -------
    PermutationImportance
        The drops of accuracy, or of R².

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> X = np.random.default_rng(0).normal(size=(60, 6, 2))
    >>> y = X[:, :, 0].sum(1) > 0
    >>> model = cs.SpikingClassifier(n_neurons=64, random_state=0).fit(X, y)
    >>> int(cs.permutation_importance(model, X, y).importances_mean.argmax())
    0
    """
    check_positive_int("n_windows", n_windows)
    check_positive_int("n_repeats", n_repeats)
    if not isinstance(model, BaseEstimator) or not (is_classifier(model) or is_regressor(model)):
        raise InvalidInputError(f"expected a fitted classifier or regressor, got {type(model).__name__}")
    X = as_numpy(X)
    if is_tabular(X):
        raise InvalidInputError(
            "expected sequences, an array (n_samples, n_steps, n_channels) or a list of arrays, got rows: "
            "sklearn.inspection.permutation_importance exchanges their columns"
        )
    y = np.asarray(y)
    n_samples = count_samples(X, y)
    if n_samples < 2:
        raise InvalidInputError("expected at least two samples to exchange channels between, got one")
    _, examples = parts_of(X)
    is_transposed = getattr(split_pipeline(model)[1], "layout", None) == "channels-first"
    sequences = [part.T if is_transposed else part for part in as_matrices(examples)]
    longest, n_channels = max(map(len, sequences)), sequences[0].shape[1]
    if n_windows > longest:
        raise InvalidInputError(
            f"expected at most {plural(longest, 'window')}, the steps of the longest sequence, got "
            f"{plural(n_windows, 'window')}"
        )

    def drop(predicted: npt.NDArray[Any]) -> float:
        return score - float(np.mean(predicted == y) if is_classifier(model) else r2_score(y, predicted))

    score = 0.0
    score = -drop(model.predict(X))
    rng = child_generator(seed, "permutation importance")
    importances = np.empty((n_channels, n_windows, n_repeats))
    size = max(1, _BATCH // n_samples)
    for channel, window in np.ndindex(n_channels, n_windows):
        for start in range(0, n_repeats, size):
            drops = importances[channel, window, start : start + size]
            orders = [rng.permutation(n_samples) for _ in drops]
            exchanged = [
                own.T if is_transposed else own
                for order in orders
                for own in exchange(sequences, order, channel, window, n_windows)
            ]
            with warnings.catch_warnings():
                # Names were checked by the first prediction.
                warnings.filterwarnings("ignore", "X does not have valid feature names")
                predicted = model.predict(np.stack(exchanged) if isinstance(X, np.ndarray) else exchanged)
            drops[:] = [drop(some) for some in np.split(np.asarray(predicted), len(orders))]
    names = getattr(examples[0], "columns", None)
    named = tuple(f"channel {k}" for k in range(n_channels)) if names is None else tuple(map(str, names))
    return PermutationImportance(score, importances, named)


def exchange(
    sequences: list[FloatArray], order: npt.NDArray[np.int64], channel: int, window: int, n_windows: int
) -> list[FloatArray]:
    """Return copies of sequences, each with one window of one channel of another.

    Parameters
    ----------
    sequences : list of arrays of shape (n_steps_i, n_channels)
        The sequences.
    order : array of shape (n_samples,)
        The sequence that each takes the window of.
    channel : int
        The channel.
    window : int
        The window: step t of n is in window ⌊t · n_windows / n⌋.
    n_windows : int
        The number of windows.

    Returns
    -------
    list of arrays
        The copies. An empty window is not exchanged.
    """
    edges = [(-(-window * len(own) // n_windows), -(-(window + 1) * len(own) // n_windows)) for own in sequences]
    exchanged = []
    for own, (start, stop), other in zip(sequences, edges, order, strict=True):
        copied = own.copy()
        low, high = edges[other]
        if low < high:
            steps = low + np.arange(stop - start) * (high - low) // max(1, stop - start)
            copied[start:stop, channel] = sequences[other][steps, channel]
        exchanged.append(copied)
    return exchanged
