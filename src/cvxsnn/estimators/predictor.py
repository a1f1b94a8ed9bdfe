"""A fitted model from a file that only predicts, and the parts of a file that predictions need.

Nothing here needs scikit-learn, so that a process that serves predictions starts fast and stays small.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..convex import LOSSES
from ..core.checks import check_bool, check_choice, check_positive_int
from ..core.errors import CvxsnnError, DataFileError, InvalidInputError, first_line
from ..core.formatting import plural
from ..core.storage import read_tensors
from ..data import Sequences
from ..data.sequences import DataFingerprint
from ..network import SpikingNetwork
from . import model_parts
from .answers import Answers, ClassAnswers, FloatArray, TargetAnswers
from .inputs import read_inputs, standardise
from .model_parts import LIMITS

if TYPE_CHECKING:
    from .files import Model

_MISFITS = (ArithmeticError, AttributeError, CvxsnnError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
"""Errors that inconsistent values may raise."""


class Predictor(Answers):
    """A model from a file that only predicts: :func:`load` makes one with ``predict_only=True``.

    Its predictions are those of the estimator that was saved, to the bit. It needs neither scikit-learn nor the proof,
    and has no methods besides those below.

    Attributes
    ----------
    network_ : SpikingNetwork
        The network.
    classes_ : array
        The labels of a classifier, sorted.
    n_features_in_ : int
        Number of features per step.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import cvxsnn
    >>> X = np.random.default_rng(0).normal(size=(40, 5, 2))
    >>> model = cvxsnn.SpikingClassifier(n_neurons=32, random_state=0).fit(X, X.sum((1, 2)) > 0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cvxsnn.save(model, Path(folder) / "model.safetensors")
    ...     predictor = cvxsnn.load(Path(folder) / "model.safetensors", predict_only=True)
    >>> bool((predictor.predict_proba(X) == model.predict_proba(X)).all())
    True
    """

    n_features_in_: int
    input_scale_: tuple[FloatArray, FloatArray]
    is_sequential_: bool
    layout: str | None = None

    def _outputs(self, X: Any) -> FloatArray:
        raw = read_inputs(self, X, reset=False)
        inputs = torch.from_numpy(standardise(raw.inputs.numpy(), *self.input_scale_))
        with torch.no_grad():
            outputs: FloatArray = self.network_(Sequences(inputs, raw.lengths)).numpy()
        return outputs


class ClassPredictor(ClassAnswers, Predictor):
    """A classifier that only predicts."""

    probability_scale_: float | None = None

    def predict_proba(self, X: Any) -> FloatArray:
        """Predict the probabilities of the classes.

        Parameters
        ----------
        X : array or list of arrays
            Sequences or rows, as in ``fit``.

        Returns
        -------
        array of shape (n_samples, n_classes)
            The probabilities, which sum to one for each sample.
        """
        loss = self.network_.heads[0].loss
        if loss not in ("logistic", "softmax") and not (loss == "squared" and self.probability_scale_ is not None):
            raise InvalidInputError(f"expected a model with calibrated probabilities, got loss {loss!r} without")
        return self.probabilities(self._outputs(X))


class TargetPredictor(TargetAnswers, Predictor):
    """A regressor that only predicts."""


_PREDICTORS = {"classifier": ClassPredictor, "regressor": TargetPredictor}


def load(path: Path | str, *, max_drawn: int = LIMITS.drawn, predict_only: bool = False) -> "Model | Predictor":
    """Read a file that :func:`save` wrote: the model has the same spikes and the same predictions.

    Parameters
    ----------
    path : Path or str
        The file.
    max_drawn : int
        The most random numbers to draw for sampled witnesses, which a file stores as a recipe. A file that asks for
        more is refused, because a small file could ask for any amount of memory. Files of older versions may need more.
    predict_only : bool
        Whether to return an object that only predicts, without scikit-learn and without the proof, which starts in
        less time and memory. Not for pipelines.

    Returns
    -------
    SpikingNetwork, SpikingClassifier, SpikingRegressor, EarlyClassifier, Pipeline or Predictor
        What was saved, or for ``predict_only`` a :class:`Predictor` in place of an estimator.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import cvxsnn
    >>> X = np.random.default_rng(0).normal(size=(40, 5, 2))
    >>> model = cvxsnn.SpikingRegressor(hidden=(16,), witnesses="gaussian", l1_strength=0.01).fit(X, X.sum((1, 2)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cvxsnn.save(model.network_, Path(folder) / "network.safetensors")
    ...     network = cvxsnn.load(Path(folder) / "network.safetensors")
    >>> type(network).__name__
    'SpikingNetwork'
    """
    check_bool("predict_only", predict_only)
    tensors, header = read_tensors(path, "model")
    try:
        model_parts.check_tensors(tensors)
        if header["class"] == "network":
            return model_parts.read_network(header["network"], tensors)
        if predict_only:
            return _read_predictor(header, tensors)
        from .files import read_model

        return read_model(header, tensors, check_positive_int("max_drawn", max_drawn))
    except _MISFITS as error:
        raise DataFileError(
            f"expected a complete model in {path}, got one that does not fit together: {first_line(error)}"
        ) from None


def _read_predictor(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Predictor:
    if header["class"] not in _PREDICTORS:
        raise InvalidInputError(f"expected an estimator for predict_only, got {header['class']!r}: load it whole")
    predictor = _PREDICTORS[header["class"]]()
    predictor.layout = header["parameters"].get("layout")
    if predictor.layout is not None:
        check_choice("layout", predictor.layout, ("channels-last", "channels-first"))
    read_answers(predictor, header, tensors, model_parts.read_network(header["network"], tensors))
    return predictor


def read_answers(model: Any, header: Mapping[str, Any], tensors: Mapping[str, Tensor], network: SpikingNetwork) -> None:
    """Set what predictions need on an estimator or a predictor, and check that the parts fit together."""
    model.network_ = network
    model.n_features_in_ = network.n_features
    model._left_out = tensors["left_out"].numpy() if len(tensors.get("left_out", ())) else None
    mean, scale = model.input_scale_ = tensors[SCALE[0]].numpy(), tensors[SCALE[1]].numpy()
    for name, entry in ENTRIES.items():
        # A file of a regressor must not set the classes of a classifier, nor the other way round.
        if header["class"] in entry.required_by or (name in header and not entry.required_by):
            value = entry.read(header[name])
            if value is not None:
                setattr(model, entry.attribute, value)
    names = getattr(model, "feature_names_in_", mean)
    if not network.n_features == len(names) == len(mean) == len(scale) or not (scale > 0).all():
        raise InvalidInputError(
            f"expected means, scales above zero and names of {plural(network.n_features, 'feature')}, got others"
        )
    losses = [head.loss for head in network.heads]
    if len(losses) > 1 or losses[0] not in LOSSES:
        raise InvalidInputError(f"expected an estimator with one loss of {sorted(LOSSES)}, got {losses}")
    if network.readout == "all":
        raise InvalidInputError("expected an estimator that reads the last step or means, got one that reads all steps")
    if isinstance(model, TargetAnswers) and model.is_flat_ and network.n_outputs != 1:
        raise InvalidInputError(f"expected one output for targets with one axis, got {network.n_outputs}")
    if isinstance(model, ClassAnswers) and len(model.classes_) != max(2, network.n_outputs):
        raise InvalidInputError(f"expected labels for {plural(network.n_outputs, 'output')}, got {len(model.classes_)}")


def read_names(names: Any) -> npt.NDArray[Any] | None:
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise InvalidInputError("expected a list of distinct names of features, got something else")
    return np.array(names, dtype=object)


def _read_probability_scale(scale: Any) -> float | None:
    if scale is not None and not (type(scale) in (int, float) and 0 < scale < float("inf")):
        raise InvalidInputError(f"expected a probability_scale above zero in the file, got {scale!r}")
    return None if scale is None else float(scale)


def write_labels(labels: npt.NDArray[Any]) -> dict[str, Any]:
    if labels.dtype.kind not in "biufU" and not all(isinstance(label, str) for label in labels):
        raise InvalidInputError(
            f"expected labels that are numbers or strings, got {labels.dtype}: a file knows no others"
        )
    return {"kind": "O" if labels.dtype.kind == "O" else labels.dtype.str, "values": labels.tolist()}


def _read_labels(kind: str, values: list[Any]) -> npt.NDArray[Any]:
    """Return sorted labels that are numbers or strings."""
    if not re.fullmatch(r"O|[<>|=]?[biufU][0-9]{1,9}", kind):
        raise InvalidInputError(f"expected labels that are numbers or strings, got {kind[:40]!r}")
    dtype = np.dtype(kind)
    if dtype.itemsize * len(values) > LIMITS.label_bytes:
        raise InvalidInputError(f"expected labels of at most {LIMITS.label_bytes:,} bytes, got {dtype} for each")
    labels = np.array(values, dtype=dtype)
    # NaN differs from itself, and objects that cannot be sorted raise a TypeError: both are refused.
    if labels.ndim != 1 or not np.array_equal(np.unique(labels), labels):
        raise InvalidInputError("expected distinct labels in sorted order, got others")
    return labels


class Entry(NamedTuple):
    """An entry in the header of a fitted estimator.

    Parameters
    ----------
    attribute : str
        The attribute of the estimator.
    write : callable
        Returns its value as plain JSON.
    read : callable
        Checks what a file has, and returns the value; None leaves the attribute unset.
    required_by : tuple of str
        The estimators whose files must have the entry.
    """

    attribute: str
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    required_by: tuple[str, ...] = ()


ENTRIES = {
    "is_sequential": Entry("is_sequential_", bool, partial(check_bool, "is_sequential"), ("classifier", "regressor")),
    "is_flat": Entry("is_flat_", bool, partial(check_bool, "is_flat"), ("regressor",)),
    "classes": Entry("classes_", write_labels, lambda labels: _read_labels(**labels), ("classifier",)),
    "probability_scale": Entry("probability_scale_", float, _read_probability_scale),
    "feature_names": Entry("feature_names_in_", list, read_names),
    "training_data": Entry("fingerprint_", asdict, lambda fingerprint: DataFingerprint(**fingerprint)),
}
"""Entries of a file besides parameters, network and proof. Updated models have no fingerprint of their data."""

SCALE = ("scale.mean", "scale.spread")
