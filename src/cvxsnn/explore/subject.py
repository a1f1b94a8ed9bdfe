"""The subject of a page: a network, the sequences to show it on, and its training."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..convex import ConvexProblem
from ..convex.objective import decide_class
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..data.sequences import Sequences, TrainingSet
from ..data.task import Task
from ..estimators import SpikingClassifier, SpikingRegressor
from ..estimators.pipelines import split_pipeline
from ..fitting.methods import Trained
from ..network.reconstruction import Proof
from ..network.spiking_network import SpikingNetwork
from .limits import LIMITS

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Subject:
    """A network with one answer per sequence, and data to show it on.

    Parameters
    ----------
    name : str
        The name of the model.
    network : SpikingNetwork
        The network; its read-out is not "all".
    sequences : Sequences
        Its inputs, standardised as it expects.
    targets : array of shape (n_samples,) or (n_samples, n_outputs)
        Numbers of classes, or real targets.
    classes : tuple of str or None
        The names of the classes; None for real targets.
    features : tuple of str
        The names of the inputs.
    mean, scale : array of shape (n_features,)
        The shift and the scale by which the inputs were standardised.
    proof : Proof or None
        The proof of the read-out; None if there is none.
    training : TrainingSet or None
        The data that the optimum refers to; None if they are not available.
    is_training : bool
        Whether the network is shown on the data that it was trained on.
    probabilities : callable or None
        Maps outputs (n_samples, n_outputs) to probabilities (n_samples, n_classes).
    problem : ConvexProblem or None
        The problem that was solved; None if it must be built from the training data.
    """

    name: str
    network: SpikingNetwork
    sequences: Sequences
    targets: npt.NDArray[Any]
    classes: tuple[str, ...] | None
    features: tuple[str, ...]
    mean: FloatArray
    scale: FloatArray
    proof: Proof | None
    training: TrainingSet | None
    is_training: bool
    probabilities: Callable[[FloatArray], FloatArray] | None = None
    problem: ConvexProblem | None = None

    def __post_init__(self) -> None:
        """Refuse networks that answer at every step."""
        if self.network.readout == "all" or len(self.network.heads) > 1:
            raise InvalidInputError(
                "expected a network with one answer per sequence, got one that answers at every step or has several "
                "heads"
            )
        if len(self.sequences) == 0:
            raise InvalidInputError("expected at least one sequence to show the model on, got none")

    @classmethod
    def of_estimator(cls, model: Any, X: Any, y: Any, training: Any = None, name: str | None = None) -> "Subject":
        """Return a fitted estimator, a pipeline that ends in one, or a network, with data.

        Parameters
        ----------
        model : SpikingClassifier, SpikingRegressor, Pipeline, SpikingNetwork or ReadoutResult
            The fitted model.
        X : array or list of arrays
            Sequences, as for ``predict``.
        y : array
            Their targets.
        training : tuple, optional
            The sequences, targets and, if there were any, sample weights that the model was fitted to. By default
            ``X`` and ``y``, if they are the same.
        name : str, optional
            The name of the model; by default its class.

        Returns
        -------
        Subject
            The model with its data.
        """
        if training is not None and not (isinstance(training, tuple | list) and len(training) in (2, 3)):
            received = type(training).__name__ + (f" of length {len(training)}" if hasattr(training, "__len__") else "")
            raise InvalidInputError(
                "expected training as a tuple of sequences, targets and, if there were any, sample weights, got "
                f"{received}: pass training=(X, y)"
            )
        if hasattr(model, "to_network"):  # what reconstruct_readout returns
            model = model.to_network()
        if isinstance(model, SpikingNetwork):
            return cls.of_network(model, X, y, name)
        transformers, estimator = split_pipeline(model)
        if not isinstance(estimator, SpikingClassifier | SpikingRegressor):
            raise InvalidInputError(
                "expected a SpikingClassifier or SpikingRegressor, a pipeline that ends in one, a SpikingNetwork or a "
                f"ReadoutResult, got {type(estimator).__name__}"
            )

        def transform(data: Any) -> Any:
            for step in transformers:
                data = step.transform(data)
            return data

        X, targets = transform(X), estimator.read_targets(y)
        data = estimator.training_set(X, y)
        # Training leaves out classes of weight zero, the page does not.
        sequences = data.sequences if len(data) == len(targets) else estimator.as_sequences(X)
        classes = None
        if isinstance(estimator, SpikingClassifier):
            classes = tuple(map(str, estimator.classes_))
            targets = np.searchsorted(estimator.classes_, targets)
        fitted = None
        # Only a read-out with a certificate is explained by the data that it was fitted to.
        if estimator.certificate_ is not None:
            of_fit = (X, y) if training is None else (transform(training[0]), *training[1:])
            fitted = _training_data(estimator, *of_fit)
            if fitted is None and training is not None:
                raise InvalidInputError(
                    "expected the data that the model was fitted to as training data, got other data; leave it out to "
                    "see the other sections"
                )
        names = getattr(estimator, "feature_names_in_", None)
        mean, scale = estimator.input_scale_
        return cls(
            name=name or type(estimator).__name__,
            network=estimator.network_,
            sequences=sequences,
            targets=targets,
            classes=classes,
            features=_numbered(estimator.n_features_in_) if names is None else tuple(map(str, names)),
            mean=mean,
            scale=scale,
            proof=None if estimator.certificate_ is None else estimator.proof_,
            training=fitted,
            is_training=training is None and fitted is not None,
            probabilities=estimator.probabilities if hasattr(estimator, "predict_proba") else None,
        )

    @classmethod
    def of_trained(cls, trained: Trained, task: Task, name: str) -> "Subject":
        """Return a network that was trained on a task with one label per sequence, with its test data.

        Parameters
        ----------
        trained : Trained
            The network with its history.
        task : Task
            The task.
        name : str
            The name of the model.

        Returns
        -------
        Subject
            The network with its data.
        """
        solution, head = trained.solution, trained.network.heads[0]  # several heads are refused below
        subject = cls.of_network(trained.network, task.test.inputs, task.test.heads[head.name], name)
        return replace(
            subject,
            proof=None if solution is None else Proof.of(solution, trained.settings.objective),
            problem=None if solution is None else solution.problem,
        )

    @classmethod
    def of_network(cls, network: SpikingNetwork, X: Any, y: Any, name: str | None = None) -> "Subject":
        """Return a network with data, and without a proof.

        Parameters
        ----------
        network : SpikingNetwork
            The network.
        X : array or list of arrays
            Sequences as the network reads them.
        y : array
            Numbers of classes, or real targets if the loss of the network is the squared one.
        name : str, optional
            The name of the model; by default its class.

        Returns
        -------
        Subject
            The network with its data.
        """
        head, n_features, targets = network.heads[0], network.n_features, np.asarray(y)
        sequences = Sequences.of(X)
        if sequences.n_features != n_features or len(targets) != len(sequences):
            raise InvalidInputError(
                f"expected sequences with {plural(n_features, 'feature')} and a target for each, got "
                f"{plural(len(sequences), 'sequence')} with {plural(sequences.n_features, 'feature')} and "
                f"{plural(len(targets), 'target')}: pass X as the network reads it"
            )
        if targets.dtype.kind not in "iubf":
            raise InvalidInputError(
                f"expected classes numbered as the outputs of the network, or real targets, got {targets.dtype}: "
                "number them with sklearn's LabelEncoder"
            )
        is_classifier = targets.dtype.kind in "iub" and not (head.loss == "squared" and network.n_outputs == 1)
        return cls(
            name=name or type(network).__name__,
            network=network,
            sequences=sequences,
            targets=targets.ravel() if is_classifier else targets,
            classes=tuple(map(str, range(max(2, network.n_outputs)))) if is_classifier else None,
            features=_numbered(n_features),
            mean=np.zeros(n_features),
            scale=np.ones(n_features),
            proof=None,
            training=None,
            is_training=False,
            probabilities=_softmax if head.loss == "softmax" else None,
        )

    @property
    def n_samples(self) -> int:
        """Number of sequences."""
        return len(self.sequences)

    @property
    def lengths(self) -> IntArray:
        """Steps of each sequence."""
        lengths = self.sequences.lengths
        if lengths is None:
            return np.full(self.n_samples, self.sequences.n_steps)
        return lengths.cpu().numpy().astype(np.int64)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the classes, or of the outputs of a regressor."""
        if self.classes is not None:
            return self.classes
        n_outputs = self.network.n_outputs
        return ("output",) if n_outputs == 1 else tuple(f"output {number}" for number in range(n_outputs))

    @cached_property
    def to_classes(self) -> FloatArray:
        """Matrix that maps outputs to evidence for each of ``columns``; two classes share one output, half each."""
        if len(self.columns) == 2 and self.network.n_outputs == 1:
            return np.array([[-0.5, 0.5]])
        return np.eye(self.network.n_outputs)

    @cached_property
    def weight(self) -> FloatArray:
        """Output weights for each of ``columns``, shape (n_read, n_columns)."""
        return self.network.weight.detach().cpu().numpy() @ self.to_classes

    def in_units(self, inputs: Tensor) -> FloatArray:
        """Return standardised inputs in the units of the data."""
        values: FloatArray = inputs.cpu().double().numpy() * self.scale + self.mean
        return values

    def evidence(self, outputs: FloatArray) -> FloatArray:
        """Return evidence for each of ``columns``."""
        return outputs @ self.to_classes

    def score(self, evidence: FloatArray, rows: IntArray) -> float:
        """Return the accuracy, or R² of a regressor, of evidence on some sequences."""
        truth = self.targets[rows]
        if self.classes is None:
            return r_squared(truth.reshape(evidence.shape), evidence)
        return float((decide_class(evidence) == truth).mean())

    def affordable(self, most: int) -> int:
        """Return a number of sequences, at most this many, whose every step can be computed in seconds."""
        synapses = sum(layer.n_subnetworks * layer.n_taps * layer.width for layer in self.network.layers)
        return max(1, min(most, LIMITS.products // (synapses * self.sequences.n_steps)))

    def features_of(self, rows: IntArray) -> npt.NDArray[np.float32]:
        """Return the features of the neurons on some sequences, shape (n_rows, n_read)."""
        # All rows are kept at once, so in half the memory.
        return np.concatenate([features.astype(np.float32) for features in self._features(rows)])

    def outputs(self) -> FloatArray:
        """Return the outputs of the network on all sequences, shape (n_samples, n_outputs)."""
        weight, intercept = (value.detach().cpu().numpy() for value in (self.network.weight, self.network.intercept))
        rows = np.arange(self.n_samples)
        return np.concatenate([features @ weight + intercept for features in self._features(rows)])

    @torch.no_grad()
    def _features(self, rows: IntArray) -> Iterator[FloatArray]:
        # Features are computed in float64, 8 bytes each.
        size = max(1, LIMITS.block_bytes // (8 * max(1, len(self.network.neurons))))
        for start in range(0, len(rows), size):
            block = self.sequences.take(torch.from_numpy(rows[start : start + size]))
            yield self.network.features(block).cpu().numpy()


def evenly(values: IntArray, count: int) -> IntArray:
    """Return at most ``count`` of some values, evenly spaced."""
    chosen: IntArray = values[np.unique(np.linspace(0, len(values) - 1, min(len(values), count)).astype(int))]
    return chosen


def r_squared(truth: FloatArray, predicted: FloatArray) -> float:
    """Return the share of the variance of all outputs together that is explained."""
    error, spread = np.square(truth - predicted).sum(), np.square(truth - truth.mean(0)).sum()
    # Constant targets have no variance to explain: only exact outputs count.
    return 1.0 - float(error / spread) if spread else float(error == 0)


def _softmax(outputs: FloatArray) -> FloatArray:
    return torch.softmax(torch.from_numpy(outputs), 1).numpy()


def _numbered(n_features: int) -> tuple[str, ...]:
    return tuple(f"input {number}" for number in range(n_features))


def _training_data(estimator: Any, X: Any, y: Any, weight: Any = None) -> TrainingSet | None:
    """Return the data if the model was fitted to them, else None."""
    data: TrainingSet = estimator.training_set(X, y, weight)
    return None if estimator.differences(data) else data
