"""Saving and loading networks and estimators.

A model file is a safetensors file with a JSON header (:mod:`cvxsnn.core.storage`). Names in it are looked up in tables;
no name is ever imported or called, so that loading a file runs no code of its own.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from torch import Tensor

from ..core.checks import check_number, check_positive_int
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..core.storage import write_tensors
from ..fitting.search import Tuning
from ..fitting.surrogate_settings import SurrogateSettings
from ..network import SpikingNetwork
from ..witnesses import Distribution, Provenance, WitnessSet, describe_family, parse_distribution, regenerate
from . import model_parts
from .classifier import SpikingClassifier
from .early import EarlyClassifier
from .history import History
from .predictor import ENTRIES, SCALE, read_answers, read_names
from .preprocessing import SequenceImputer, SequenceResampler, SequenceScaler, SequenceTransformer
from .regressor import SpikingRegressor

Model: TypeAlias = SpikingNetwork | SpikingClassifier | SpikingRegressor | EarlyClassifier | Pipeline

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
    model : SpikingNetwork, SpikingClassifier, SpikingRegressor, EarlyClassifier or Pipeline
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
    tensors: dict[str, Tensor] = {}
    header = _write_model(model, tensors)
    write_tensors(path, "model", tensors, header)


def _write_model(model: Model, tensors: dict[str, Tensor]) -> dict[str, Any]:
    if type(model) is SpikingNetwork:
        return {"class": "network", "network": model_parts.write_network(model, tensors)}
    if type(model) is EarlyClassifier:
        return _write_early(model, tensors)
    if not isinstance(model, Pipeline):
        return _write_estimator(model, tensors)
    *steps, (name, last) = model.steps
    # Nested, so that no reader takes the last step for the whole pipeline.
    header = {"class": "pipeline", "name": name, "model": _write_estimator(last, tensors)}
    return header | {"steps": [_write_step(number, key, step, tensors) for number, (key, step) in enumerate(steps)]}


def read_model(header: Mapping[str, Any], tensors: Mapping[str, Tensor], max_drawn: int) -> Model:
    if header["class"] == "early":
        return _read_early(header, tensors, max_drawn)
    if header["class"] != "pipeline":
        return _read_estimator(header, tensors, max_drawn)
    last = _read_estimator(header["model"], tensors, max_drawn)
    steps = [_read_step(number, step, tensors) for number, step in enumerate(header["steps"])]
    if any(step.n_features_in_ != last.n_features_in_ for _, step in steps) or (steps and not last.is_sequential_):
        raise InvalidInputError(
            f"expected steps for a model of sequences with {plural(last.n_features_in_, 'feature')}"
        )
    names = [*(name for name, _ in steps), header["name"]]
    if not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise InvalidInputError(f"expected distinct names for the steps of a pipeline, got {names}")
    return Pipeline([*steps, (header["name"], last)])


def _kind_of(model: Any, kinds: Mapping[str, type]) -> str | None:
    """Return the name of a fitted model's class; None if it has none."""
    kind = next((name for name, known in kinds.items() if type(model) is known), None)
    if kind is not None and not hasattr(model, "n_features_in_"):
        raise InvalidInputError(f"expected a fitted {type(model).__name__}, got one that is not: call fit first")
    return kind


def _write_step(number: int, name: str, step: Any, tensors: dict[str, Tensor]) -> dict[str, Any]:
    kind = _kind_of(step, _TRANSFORMERS)
    if kind is None:
        known = ", ".join(known.__name__ for known in _TRANSFORMERS.values())
        received = repr(step) if isinstance(step, str) else type(step).__name__
        raise InvalidInputError(
            f"expected a pipeline of {known} and at last a spiking estimator, got {received} as step {name!r}: "
            "a file knows no others"
        )
    tensors.update({f"steps.{number}.{key}": torch.from_numpy(getattr(step, key)) for key in step._learned})
    parameters = {key: _write_value(value) for key, value in step.get_params().items()}
    header = {"name": name, "class": kind, "parameters": parameters, "n_features": step.n_features_in_}
    names = getattr(step, "feature_names_in_", None)
    return header if names is None else header | {"feature_names": names.tolist()}


def _read_step(
    number: int, header: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> tuple[str, SequenceTransformer]:
    step = _TRANSFORMERS[header["class"]](**header["parameters"])
    learned = {key: tensors[f"steps.{number}.{key}"].numpy() for key in step._learned}
    step._restore(header["n_features"], read_names(header.get("feature_names")), learned)
    return header["name"], step


def _write_estimator(model: Any, tensors: dict[str, Tensor]) -> dict[str, Any]:
    kind = _kind_of(model, _ESTIMATORS)
    if kind is None:
        is_own = isinstance(model, (SpikingNetwork, *_ESTIMATORS.values()))
        remedy = ", a subclass with code that a file cannot hold" if is_own else ""
        raise InvalidInputError(
            "expected a network, a spiking estimator or a pipeline with one at its end, got "
            f"{type(model).__name__}{remedy}"
        )
    header = {
        "class": kind,
        "network": model_parts.write_network(model.network_, tensors),
        "parameters": {name: _write_parameter(name, value) for name, value in model.get_params().items()},
    }
    tensors.update(zip(SCALE, map(torch.from_numpy, model.input_scale_), strict=True))
    if model._proof is not None:
        header["proof"] = model_parts.write_proof(model._proof, tensors)
    if model._left_out is not None:
        tensors["left_out"] = torch.from_numpy(model._left_out)
    if model._kept is not None:
        header["kept"] = model_parts.write_kept(model._kept, tensors)
    values = {name: getattr(model, entry.attribute, None) for name, entry in ENTRIES.items()}
    return header | {name: ENTRIES[name].write(value) for name, value in values.items() if value is not None}


def _read_estimator(
    header: Mapping[str, Any], tensors: Mapping[str, Tensor], max_drawn: int
) -> SpikingClassifier | SpikingRegressor:
    network = model_parts.read_network(header["network"], tensors)
    parameters = {name: _read_value(value, max_drawn) for name, value in header["parameters"].items()}
    model = _ESTIMATORS[header["class"]](**parameters)
    model.history_ = History()
    model._proof = model_parts.read_proof(header["proof"], tensors, network, max_drawn) if "proof" in header else None
    model.certificate_ = None if model._proof is None else model._proof.certificate
    proof = model._proof
    is_classifier = header["class"] == "classifier"
    is_shifted = proof is not None and bool(getattr(proof.objective.loss, "shift", ()))
    if proof is not None and is_shifted and not (is_classifier and proof.has_intercept):
        raise InvalidInputError("expected shifted targets of a classifier with an intercept only, got others")
    if "kept" in header and model._proof is not None:
        model._kept = model_parts.read_kept(header["kept"], tensors, model._proof)
    read_answers(model, header, tensors, network)
    return model


def _write_early(model: EarlyClassifier, tensors: dict[str, Tensor]) -> dict[str, Any]:
    if not hasattr(model, "proofs_"):
        raise InvalidInputError("expected a fitted EarlyClassifier, got one that is not: call fit first")
    tensors["critical"] = torch.from_numpy(model.critical_[model.critical_ > -np.inf])
    return {
        "class": "early",
        "model": _write_estimator(model.model_, tensors),
        "fractions": [float(fraction) for fraction in model.fractions],
        "steps": list(model.steps_),
        "scales": list(model._scales),
        "n_left_out": len(model.critical_),
        "parts": [model_parts.write_part(proof, number, tensors) for number, proof in enumerate(model.proofs_)],
    }


def _read_early(header: Mapping[str, Any], tensors: Mapping[str, Tensor], max_drawn: int) -> EarlyClassifier:
    model = _read_estimator(header["model"], tensors, max_drawn)
    if not isinstance(model, SpikingClassifier) or not model.is_sequential_:
        raise InvalidInputError("expected a classifier of sequences to answer early, got another model")
    proof = model.proof_
    parts = [
        model_parts.read_part(part, number, tensors, model.network_, proof)
        for number, part in enumerate(header["parts"])
    ]
    fractions = [check_number("fractions", fraction) for fraction in header["fractions"]]
    steps = [check_positive_int("steps", n_steps) for n_steps in header["steps"]]
    scales = [check_number("scales", scale) for scale in header["scales"]]
    lost, n_left_out = tensors["critical"].numpy(), check_positive_int("n_left_out", header["n_left_out"])
    if not len(lost) <= n_left_out <= len(proof.dual_point) or not (lost[:-1] >= lost[1:]).all():
        raise InvalidInputError("expected critical values of samples left out in falling order, got others")
    critical = np.pad(lost, (0, n_left_out - len(lost)), constant_values=-np.inf)
    if not (0 < len(steps) == len(parts) == len(scales)) or steps != sorted({*steps}) or min(scales) <= 0:
        raise InvalidInputError("expected rising numbers of steps, each with a read-out and a scale above zero")
    if any(part["objective"] != header["model"]["proof"]["objective"] for part in header["parts"]):
        raise InvalidInputError("expected read-outs with the objective of the classifier, got others")
    early = EarlyClassifier(clone(model), fractions=tuple(fractions))
    early._restore(model, tuple(steps), tuple(parts), scales, critical)
    return early


def _write_parameter(name: str, value: Any) -> Any:
    if isinstance(value, Tuning):
        return "search"  # the family that it found is in the network
    if isinstance(value, WitnessSet):
        # Witnesses that cannot be drawn again are in the network and the proof; as a parameter they have no short form.
        return {"recipe": value.provenance.recipe} if model_parts.has_recipe(value) else "auto"
    if name == "class_weight" and isinstance(value, Mapping):
        return {"class_weight": [[_write_value(label), float(weight)] for label, weight in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_write_parameter(name, part) for part in value]
    return {"family": describe_family(value)} if isinstance(value, Mapping) else _write_value(value)


def _write_value(value: Any) -> Any:
    if isinstance(value, Distribution):
        return value.describe()
    if isinstance(value, SurrogateSettings):
        return {"surrogate": {name: _write_value(part) for name, part in asdict(value).items()}}
    if isinstance(value, np.random.RandomState):
        return None  # its state has been used up by fit
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value


def _read_value(value: Any, max_drawn: int) -> Any:
    if isinstance(value, list):
        return tuple(_read_value(part, max_drawn) for part in value)
    if not isinstance(value, Mapping):
        return value
    if "surrogate" in value:
        return SurrogateSettings(**value["surrogate"])
    if "class_weight" in value:
        return {label: check_number("class_weight", weight) for label, weight in value["class_weight"]}
    if "recipe" in value:
        model_parts.check_recipe(value["recipe"], max_drawn)
        return regenerate(Provenance("sampled", value["recipe"]))
    if "family" in value:
        return {name: _read_setting(part) for name, part in value["family"].items()}
    return parse_distribution(value)


def _read_setting(value: Any) -> Any:
    # Witnesses and surrogates are no settings of a family: they would load, but the model could not be saved again.
    if isinstance(value, list):
        return tuple(map(_read_setting, value))
    return parse_distribution(value) if isinstance(value, Mapping) else value
