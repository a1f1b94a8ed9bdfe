"""Saving and loading networks and estimators.

A model file is a safetensors file with a JSON header (:mod:`cvxsnn.core.storage`). Names in it are looked up in tables;
no name is ever imported or called, so that loading a file runs no code of its own.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from torch import Tensor

from ..convex import Certificate
from ..convex.losses import LOSSES, Loss, Softmax, make_loss
from ..convex.objective import Objective
from ..convex.penalties import make_penalty, name_of_penalty
from ..convex.strengths import check_strengths
from ..core.checks import check_positive_int
from ..core.errors import CvxsnnError, DataFileError, InvalidInputError, first_line
from ..core.storage import read_tensors, write_tensors
from ..data.sequences import DataFingerprint
from ..network.heads import OutputHead
from ..network.reconstruction import Proof
from ..network.spiking_network import SpikingNetwork
from ..neurons import NEURON_MODELS, HiddenLayer
from ..neurons.layer import tensor_names
from ..training.surrogate.settings import SurrogateSettings
from ..witnesses import Distribution, Provenance, WitnessSet, describe_family, parse_distribution, regenerate
from ..witnesses.family import is_reproducible
from .base import FittedState
from .classifier import SpikingClassifier
from .file_checks import (
    MAX_DRAWN,
    check_flag,
    check_labels,
    check_layer_types,
    check_names,
    check_network,
    check_recipe,
    check_state,
    n_drawn,
)
from .pipeline_files import steps_in, steps_out
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
"""What values that do not fit together may raise."""

_ESTIMATORS = {"classifier": SpikingClassifier, "regressor": SpikingRegressor}


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


def load(path: Path | str, *, max_drawn: int = MAX_DRAWN) -> Model:
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
        return _model_in(tensors, header, check_positive_int("max_drawn", max_drawn))
    except _MISFITS as error:
        raise DataFileError(
            f"expected a complete model in {path}, got one that does not fit together: {first_line(error)}"
        ) from None


def _model_out(model: Model) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if type(model) is SpikingNetwork:
        tensors, network = _network_out(model)
        return tensors, {"class": "network", "network": network}
    if isinstance(model, Pipeline):
        # Nested, so that no reader takes the last step for the whole.
        *steps, (name, last) = model.steps
        tensors, header = _estimator_out(last)
        own_tensors, headers = steps_out(steps)
        return tensors | own_tensors, {"class": "pipeline", "steps": headers, "name": name, "model": header}
    return _estimator_out(model)


def _model_in(tensors: Mapping[str, Tensor], header: Mapping[str, Any], max_drawn: int) -> Model:
    if header["class"] == "network":
        return _network_in(tensors, header["network"])
    if header["class"] != "pipeline":
        return _estimator_in(tensors, header, max_drawn)
    last = _estimator_in(tensors, header["model"], max_drawn)
    steps = [*steps_in(tensors, header["steps"], last.n_features_in_), (header["name"], last)]
    if len(steps) > 1 and not last._is_sequential:
        raise InvalidInputError("expected a model of sequences at the end of a pipeline, got one of rows")
    names = [name for name, _ in steps]
    if not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise InvalidInputError(f"expected different names for the steps of a pipeline, got {names}")
    return Pipeline(steps)


def _estimator_out(model: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
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
    tensors, network = _network_out(state.network)
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
        proof_tensors, header["proof"] = _proof_out(state.proof)
        tensors |= proof_tensors
    return tensors, header


def _estimator_in(
    tensors: Mapping[str, Tensor], header: Mapping[str, Any], max_drawn: int
) -> SpikingClassifier | SpikingRegressor:
    network = _network_in(tensors, header["network"])
    parameters = {name: _value_in(value, max_drawn) for name, value in header["parameters"].items()}
    model = _ESTIMATORS[header["class"]](**parameters)
    is_classifier = isinstance(model, SpikingClassifier)
    state = FittedState(
        network=network,
        mean=tensors["scale.mean"].numpy(),
        scale=tensors["scale.spread"].numpy(),
        is_sequential=check_flag("is_sequential", header["is_sequential"]),
        proof=_proof_in(tensors, header["proof"], network, max_drawn) if "proof" in header else None,
        feature_names=check_names(header["feature_names"]) if "feature_names" in header else None,
        classes=check_labels(header["classes"]["kind"], header["classes"]["values"]) if is_classifier else None,
        is_flat=is_classifier or check_flag("is_flat", header["is_flat"]),
        probability_scale=_scale_in(header.get("probability_scale")),
        fingerprint=DataFingerprint(**header["training_data"]) if "training_data" in header else None,
    )
    check_state(state)
    model._restore(state)
    return model


def _network_out(network: SpikingNetwork) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors, layers = _layers_out("network", network.layers)
    tensors |= {"weight": network.weight, "intercept": network.intercept, "neurons": network.neurons}
    if network.windows_read is not None:
        tensors["windows_read"] = network.windows_read
    return tensors, {"layers": layers, "heads": [asdict(head) for head in network.heads], "readout": network.readout}


def _network_in(tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> SpikingNetwork:
    network = SpikingNetwork(
        _layers_in("network", tensors, header["layers"]),
        tensors["weight"],
        [OutputHead(**head) for head in header["heads"]],
        tensors["intercept"],
        tensors["neurons"],
        header["readout"],
        tensors.get("windows_read"),
    )
    check_network(network)
    return network


def _layers_out(prefix: str, layers: tuple[HiddenLayer, ...]) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    tensors: dict[str, Tensor] = {}
    headers: list[dict[str, Any]] = []
    for depth, layer in enumerate(layers):
        tensors |= {f"{prefix}.{depth}.{name}": value for name, value in layer.tensors().items()}
        headers.append({"neuron": NEURON_MODELS.of(layer).name, **layer.settings()})
    return tensors, headers


def _layers_in(prefix: str, tensors: Mapping[str, Tensor], headers: list[dict[str, Any]]) -> tuple[HiddenLayer, ...]:
    layers = []
    of_layer: dict[str, dict[str, Any]] = {}
    for name, value in tensors.items():
        if name.startswith(f"{prefix}."):
            number, _, parameter = name.removeprefix(f"{prefix}.").partition(".")
            of_layer.setdefault(number, {})[parameter] = value
    for depth, header in enumerate(headers):
        settings = dict(header)
        kind = NEURON_MODELS.find(settings.pop("neuron")).layer
        own = of_layer.get(str(depth), {})
        without_delays = set() if "n_sources" in settings else {"source", "delay"}
        missing = {*tensor_names(kind)} - without_delays - set(own)
        if missing:  # a layer would fill it in, at a size that the file does not account for
            raise InvalidInputError(f"expected every parameter of layer {depth}, got no {', '.join(sorted(missing))}")
        check_layer_types(own)
        layers.append(kind(**own, **settings))
    return tuple(layers)


def _proof_out(proof: Proof) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return a proof as tensors and a header, with sampled witnesses as their recipe and a digest of the result."""
    tensors = {f"proof.{name}": getattr(proof, name) for name in ("support", "coef", "intercept", "dual_point")}
    provenance = proof.witnesses.provenance
    witnesses: dict[str, Any]
    if _has_recipe(proof.witnesses):
        witnesses = {"kind": "sampled", "recipe": provenance.recipe, "digest": _digest(proof.witnesses)}
    else:
        witnesses = {"kind": "pretrained" if provenance.kind == "sampled" else provenance.kind}
        if proof.witnesses.is_selection:
            witnesses["neurons"] = provenance.recipe["neurons"]
        layers, witnesses["layers"] = _layers_out("proof.layers", proof.witnesses.layers)
        tensors |= layers
    certificate = asdict(proof.certificate)
    return tensors, {
        "witnesses": witnesses,
        "objective": _objective_out(proof.objective),
        "l1_strength": proof.l1_strength,
        "l2_strength": proof.l2_strength,
        "penalty": name_of_penalty(proof.penalty),
        "has_intercept": proof.has_intercept,
        "certificate": certificate,
    }


def _has_recipe(witnesses: WitnessSet) -> bool:
    """Return whether a file stores witnesses as their recipe: one that can be drawn again, and not too much of it."""
    recipe = witnesses.provenance.recipe
    is_short = "n_features" in recipe and n_drawn(recipe) <= MAX_DRAWN
    return is_short and is_reproducible(witnesses)


def _proof_in(
    tensors: Mapping[str, Tensor], header: Mapping[str, Any], network: SpikingNetwork, max_drawn: int
) -> Proof:
    stored = header["witnesses"]
    if stored["kind"] == "sampled":
        check_recipe(stored["recipe"], max_drawn, network)
        witnesses = regenerate(Provenance("sampled", stored["recipe"]))
        if _digest(witnesses) != stored["digest"]:
            raise InvalidInputError("expected the seed to give the same witnesses as when the model was saved")
    else:
        layers = _layers_in("proof.layers", tensors, stored["layers"])
        recipe = {"neurons": stored["neurons"]} if "neurons" in stored else {}
        witnesses = WitnessSet(layers, Provenance(stored["kind"], recipe))
    penalty = make_penalty(str(header["penalty"]))
    # Files that were written before there were elastic nets have no second strength.
    l1_strength, l2_strength = check_strengths(header["l1_strength"], header.get("l2_strength", 0.0), penalty)
    return Proof(
        witnesses=witnesses,
        support=tensors["proof.support"],
        coef=tensors["proof.coef"],
        intercept=tensors["proof.intercept"],
        dual_point=tensors["proof.dual_point"],
        objective=_objective_in(header["objective"]),
        l1_strength=l1_strength,
        l2_strength=l2_strength,
        penalty=penalty,
        has_intercept=check_flag("has_intercept", header["has_intercept"]),
        certificate=Certificate(**header["certificate"]),
    )


def _digest(witnesses: WitnessSet) -> str:
    digest = hashlib.sha256()
    for layer in witnesses.layers:
        for name, value in sorted(layer.tensors().items()):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _objective_out(objective: Objective) -> dict[str, Any]:
    if isinstance(objective.loss, Mapping):
        loss: Any = {head: _loss_out(own) for head, own in objective.loss.items()}
    else:
        loss = [_loss_out(objective.loss)]
    return {
        "loss": loss,
        "readout": objective.readout,
        "head_weights": dict(objective.head_weights),
        "timestep_weighting": objective.timestep_weighting,
    }


def _objective_in(header: Mapping[str, Any]) -> Objective:
    stored = header["loss"]
    loss: Any = {h: _loss_in(own) for h, own in stored.items()} if isinstance(stored, Mapping) else _loss_in(stored[0])
    return Objective(loss, header["readout"], header["head_weights"], header["timestep_weighting"])


def _loss_out(loss: str | Loss) -> dict[str, Any]:
    if isinstance(loss, str):
        return {"name": loss}
    kind = LOSSES.of(loss)
    return {"name": kind.name, "n_classes": loss.n_classes} if isinstance(loss, Softmax) else {"name": kind.name}


def _loss_in(stored: Mapping[str, Any]) -> Loss:
    return Softmax(stored.get("n_classes")) if stored["name"] == "softmax" else make_loss(stored["name"])


def _parameter_out(name: str, value: Any) -> Any:
    if isinstance(value, WitnessSet):
        # Witnesses that cannot be drawn again are in the network and the proof; as a parameter they have no short form.
        return {"recipe": value.provenance.recipe} if _has_recipe(value) else "auto"
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
        return {name: _value_in(own, max_drawn) for name, own in value["family"].items()}
    return parse_distribution(value)


def _scale_in(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise InvalidInputError(f"expected a probability_scale above zero in the file, got {value!r}")
    return float(value)


def _labels_out(labels: Any) -> dict[str, Any]:
    if labels.dtype.kind not in "biufU" and not all(isinstance(label, str) for label in labels):
        raise InvalidInputError(
            f"expected labels that are numbers or strings, got {labels.dtype}: a file knows no others"
        )
    return {"kind": "O" if labels.dtype.kind == "O" else labels.dtype.str, "values": labels.tolist()}
