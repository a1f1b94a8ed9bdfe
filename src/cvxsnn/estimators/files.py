"""Saving and loading networks and estimators.

A model file is a safetensors file with a JSON header (:mod:`cvxsnn.core.storage`). Names in it are looked up in tables;
no name is ever imported or called, so that loading a file runs no code of its own.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from sklearn.pipeline import Pipeline
from torch import Tensor

from ..core.checks import check_bool, check_positive_int
from ..core.errors import CvxsnnError, DataFileError, InvalidInputError, first_line
from ..core.storage import read_tensors, write_tensors
from ..data.sequences import DataFingerprint
from ..fitting.search import Tuning
from ..fitting.surrogate.settings import SurrogateSettings
from ..network.spiking_network import SpikingNetwork
from ..witnesses import Distribution, Provenance, WitnessSet, describe_family, parse_distribution, regenerate
from .base import FittedState
from .choices import current_parameters
from .classifier import SpikingClassifier
from .model_parts import (
    LIMITS,
    Parts,
    check_recipe,
    check_tensors,
    has_recipe,
    network_in,
    network_out,
    proof_in,
    proof_out,
)
from .preprocessing import SequenceImputer, SequenceResampler, SequenceScaler
from .preprocessing.base import SequenceTransformer
from .regressor import SpikingRegressor

Model: TypeAlias = SpikingNetwork | SpikingClassifier | SpikingRegressor | Pipeline

_MISFITS = (
    ArithmeticError,
    AttributeError,
    CvxsnnError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Errors that inconsistent values may raise."""

_ESTIMATORS = {"classifier": SpikingClassifier, "regressor": SpikingRegressor}

_TRANSFORMERS: Mapping[str, type[SequenceTransformer]] = {
    "scaler": SequenceScaler,
    "imputer": SequenceImputer,
    "resampler": SequenceResampler,
}


def save(model: Model, path: Path | str) -> None:
    """Write a network or a fitted estimator to a file; an existing one is replaced only once the new one is whole.

    Parameters
    ----------
    model : SpikingNetwork, SpikingClassifier, SpikingRegressor or Pipeline
        The network or the fitted estimator; or a fitted pipeline that consists of ``SequenceImputer``,
        ``SequenceScaler`` or ``SequenceResampler`` and, at last, a spiking estimator. The data and ``history_`` are not
        saved, and neither are witnesses that were passed as a parameter but cannot be drawn again without data, or
        are very many: in their place the loaded estimator has ``witnesses="auto"``.
    path : Path or str
        Where to write the file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import cvxsnn
    >>> X = np.random.default_rng(0).normal(size=(40, 5, 2))
    >>> model = cvxsnn.SpikingRegressor(hidden=(16,), witnesses="gaussian", l1_strength=0.01).fit(X, X.sum((1, 2)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cvxsnn.save(model, Path(folder) / "model.safetensors")
    ...     loaded = cvxsnn.load(Path(folder) / "model.safetensors")
    >>> bool((loaded.predict(X) == model.predict(X)).all())
    True
    """
    tensors, header = _model_out(model)
    write_tensors(path, "model", tensors, header)


def load(path: Path | str, *, max_drawn: int = LIMITS.drawn) -> Model:
    """Read what :func:`save` wrote: the same spikes and the same predictions.

    Parameters
    ----------
    path : Path or str
        The file.
    max_drawn : int
        The most random numbers to draw for sampled witnesses, which a file stores as a recipe. A file that asks for
        more is refused, because a small file could ask for any amount of memory. Files of older versions may need more.

    Returns
    -------
    SpikingNetwork, SpikingClassifier, SpikingRegressor or Pipeline
        What was saved.

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
    tensors, header = read_tensors(path, "model")
    try:
        check_tensors(tensors)
        return _model_in(tensors, header, check_positive_int("max_drawn", max_drawn))
    except _MISFITS as error:
        raise DataFileError(
            f"expected a complete model in {path}, got one that does not fit together: {first_line(error)}"
        ) from None


def _model_out(model: Model) -> Parts:
    if type(model) is SpikingNetwork:
        tensors, network = network_out(model)
        return Parts(tensors, {"class": "network", "network": network})
    if isinstance(model, Pipeline):
        # Nested, so that no reader takes the last step for the whole.
        *steps, (name, last) = model.steps
        tensors, header = _estimator_out(last)
        headers = []
        for number, step in enumerate(steps):
            step_tensors, step_header = _step_out(*step)
            tensors |= {f"steps.{number}.{attribute}": value for attribute, value in step_tensors.items()}
            headers.append(step_header)
        return Parts(tensors, {"class": "pipeline", "steps": headers, "name": name, "model": header})
    return _estimator_out(model)


def _model_in(tensors: Mapping[str, Tensor], header: Mapping[str, Any], max_drawn: int) -> Model:
    if header["class"] == "network":
        return network_in(tensors, header["network"])
    if header["class"] != "pipeline":
        return _estimator_in(tensors, header, max_drawn)
    last = _estimator_in(tensors, header["model"], max_drawn)
    steps = [_step_in(f"steps.{number}", tensors, step) for number, step in enumerate(header["steps"])]
    if any(step.n_features_in_ != last.n_features_in_ for _, step in steps) or (steps and not last._is_sequential):
        raise InvalidInputError(f"expected steps for a model of sequences with {last.n_features_in_} features")
    names = [*(name for name, _ in steps), header["name"]]
    if not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise InvalidInputError(f"expected different names for the steps of a pipeline, got {names}")
    return Pipeline([*steps, (header["name"], last)])


def _step_out(name: str, step: Any) -> Parts:
    kind = next((kind for kind, known in _TRANSFORMERS.items() if type(step) is known), None)
    if kind is None:
        known = ", ".join(known.__name__ for known in _TRANSFORMERS.values())
        received = repr(step) if isinstance(step, str) else type(step).__name__
        raise InvalidInputError(
            f"expected a pipeline of {known} and at last a spiking estimator, got {received} as step {name!r}: "
            "a file knows no others"
        )
    if not hasattr(step, "n_features_in_"):
        raise InvalidInputError(f"expected a fitted {type(step).__name__}, got one that is not: call fit first")
    parameters = {key: _value_out(value) for key, value in step.get_params().items()}
    header = {"name": name, "class": kind, "parameters": parameters, "n_features": step.n_features_in_}
    if hasattr(step, "feature_names_in_"):
        header["feature_names"] = step.feature_names_in_.tolist()
    return Parts({attribute: torch.from_numpy(getattr(step, attribute)) for attribute in step._learned}, header)


def _step_in(prefix: str, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> tuple[str, SequenceTransformer]:
    step = _TRANSFORMERS[header["class"]](**header["parameters"])
    learned = {attribute: tensors[f"{prefix}.{attribute}"].numpy() for attribute in step._learned}
    step._restore(header["n_features"], _names_in(header), learned)
    return header["name"], step


def _estimator_out(model: Any) -> Parts:
    kind = next((name for name, known in _ESTIMATORS.items() if type(model) is known), None)
    if kind is None:
        is_own = isinstance(model, (SpikingNetwork, *_ESTIMATORS.values()))
        remedy = ", a subclass with code that a file cannot hold" if is_own else ""
        raise InvalidInputError(
            "expected a network, a spiking estimator or a pipeline with one at its end, got "
            f"{type(model).__name__}{remedy}"
        )
    if not hasattr(model, "network_"):
        raise InvalidInputError(f"expected a fitted {type(model).__name__}, got one that is not: call fit first")
    state = model._state()
    tensors, network = network_out(state.network)
    tensors |= {"scale.mean": torch.from_numpy(state.mean), "scale.spread": torch.from_numpy(state.scale)}
    header: dict[str, Any] = {
        "class": kind,
        "network": network,
        "parameters": {name: _parameter_out(name, value) for name, value in model.get_params().items()},
        "is_sequential": state.is_sequential,
    }
    if state.fingerprint is not None:
        header["training_data"] = asdict(state.fingerprint)
    if state.feature_names is not None:
        header["feature_names"] = state.feature_names.tolist()
    if state.classes is not None:
        header["classes"] = _labels_out(state.classes)
        header["probability_scale"] = state.probability_scale
    else:
        header["is_flat"] = state.is_flat
    if state.proof is not None:
        proof_tensors, header["proof"] = proof_out(state.proof)
        tensors |= proof_tensors
    return Parts(tensors, header)


def _estimator_in(
    tensors: Mapping[str, Tensor], header: Mapping[str, Any], max_drawn: int
) -> SpikingClassifier | SpikingRegressor:
    network = network_in(tensors, header["network"])
    parameters = {name: _value_in(value, max_drawn) for name, value in header["parameters"].items()}
    model = _ESTIMATORS[header["class"]](**current_parameters(parameters))
    is_classifier = isinstance(model, SpikingClassifier)
    state = FittedState(
        network=network,
        mean=tensors["scale.mean"].numpy(),
        scale=tensors["scale.spread"].numpy(),
        is_sequential=check_bool("is_sequential", header["is_sequential"]),
        proof=proof_in(tensors, header["proof"], network, max_drawn) if "proof" in header else None,
        feature_names=_names_in(header),
        classes=_labels_in(**header["classes"]) if is_classifier else None,
        is_flat=is_classifier or check_bool("is_flat", header["is_flat"]),
        probability_scale=header.get("probability_scale"),
        fingerprint=DataFingerprint(**header["training_data"]) if "training_data" in header else None,
    )
    _check_state(state)
    model._restore(state)
    return model


def _check_state(state: FittedState) -> None:
    """Refuse a fitted state that does not match its network."""
    n_features, n_outputs = state.network.n_features, state.network.n_outputs
    n_names = n_features if state.feature_names is None else len(state.feature_names)
    if not n_features == n_names == len(state.mean) == len(state.scale) or not (state.scale > 0).all():
        raise InvalidInputError(f"expected means, scales above zero and names of {n_features} features, got others")
    if state.network.readout == "all":
        raise InvalidInputError("expected an estimator that reads the last step or means, got one that reads all steps")
    if state.classes is None and state.is_flat and n_outputs != 1:
        raise InvalidInputError(f"expected one output for targets with one axis, got {n_outputs}")
    if state.classes is not None and len(state.classes) != max(2, n_outputs):
        raise InvalidInputError(f"expected labels for {n_outputs} outputs, got {len(state.classes)}")
    scale: Any = state.probability_scale
    if scale is not None and not (type(scale) in (int, float) and 0 < scale < float("inf")):
        raise InvalidInputError(f"expected a probability_scale above zero in the file, got {scale!r}")


def _names_in(header: Mapping[str, Any]) -> npt.NDArray[Any] | None:
    names = header.get("feature_names")
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise InvalidInputError("expected a list of different names of features, got something else")
    return np.array(names, dtype=object)


def _labels_out(labels: npt.NDArray[Any]) -> dict[str, Any]:
    if labels.dtype.kind not in "biufU" and not all(isinstance(label, str) for label in labels):
        raise InvalidInputError(
            f"expected labels that are numbers or strings, got {labels.dtype}: a file knows no others"
        )
    return {"kind": "O" if labels.dtype.kind == "O" else labels.dtype.str, "values": labels.tolist()}


def _labels_in(kind: str, values: list[Any]) -> npt.NDArray[Any]:
    """Return sorted labels that are numbers or strings."""
    if not re.fullmatch(r"O|[<>|=]?[biufU][0-9]{1,9}", kind):
        raise InvalidInputError(f"expected labels that are numbers or strings, got {kind[:40]!r}")
    dtype = np.dtype(kind)
    if dtype.itemsize * len(values) > LIMITS.label_bytes:
        raise InvalidInputError(f"expected labels of at most {LIMITS.label_bytes:,} bytes, got {dtype} for each")
    labels = np.array(values, dtype=dtype)
    # NaN differs from itself, and objects that cannot be sorted raise a TypeError: both are refused.
    if labels.ndim != 1 or not np.array_equal(np.unique(labels), labels):
        raise InvalidInputError("expected labels that are sorted and different, got others")
    return labels


def _parameter_out(name: str, value: Any) -> Any:
    if isinstance(value, Tuning):
        return "search"  # the family that it found is in the network
    if isinstance(value, WitnessSet):
        # Witnesses that cannot be drawn again are in the network and the proof; as a parameter they have no short form.
        return {"recipe": value.provenance.recipe} if has_recipe(value) else "auto"
    if name == "class_weight" and isinstance(value, Mapping):
        return {"class_weight": [[_value_out(label), float(weight)] for label, weight in value.items()]}
    return {"family": describe_family(value)} if isinstance(value, Mapping) else _value_out(value)


def _value_out(value: Any) -> Any:
    if isinstance(value, Distribution):
        return value.describe()
    if isinstance(value, SurrogateSettings):
        return {"surrogate": asdict(value)}
    if isinstance(value, np.random.RandomState):
        return None  # its state has been used up by fit
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value


def _value_in(value: Any, max_drawn: int) -> Any:
    if isinstance(value, list):
        return tuple(_value_in(part, max_drawn) for part in value)
    if not isinstance(value, Mapping):
        return value
    if "surrogate" in value:
        return SurrogateSettings(**value["surrogate"])
    if "class_weight" in value:
        return dict(value["class_weight"])
    if "recipe" in value:
        check_recipe(value["recipe"], max_drawn)
        return regenerate(Provenance("sampled", value["recipe"]))
    if "family" in value:
        return {name: _value_in(part, max_drawn) for name, part in value["family"].items()}
    return parse_distribution(value)
