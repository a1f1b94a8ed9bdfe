"""What the contents of a model file must be, so that the model can be used.

A checksum proves that a file is as it was written, and not that it was written by this library. Sizes are compared with
what the file holds, and work with a limit, before anything is allocated or drawn.
"""

import math
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..convex.losses import Softmax
from ..core.checks import check_choice, check_int_at_least, check_number, check_positive_int
from ..core.errors import InvalidInputError
from ..dictionary.readout import parse_readout
from ..network.reconstruction import Proof
from ..network.spiking_network import SpikingNetwork
from ..neurons import NEURON_MODELS
from .base import FittedState

MAX_DRAWN = 2**23
"""Numbers that are drawn from a recipe: below a quarter of a gigabyte and a few seconds."""

_PER_NEURON, _PER_LAYER = 10, 10_000
"""What the parameters of a neuron and the beginning of a layer count for, in numbers drawn."""

_MAX_WINDOWS = 2**12
_MAX_INPUTS = 2**24
_MAX_LABEL_BYTES = 2**28

_LAYER_TYPES = (torch.float32, torch.float64, torch.int32)

_RECIPE = frozenset(
    {"n_features", "hidden", "n_subnetworks", "neuron", "fan_in", "seed", "dtype", "subnetworks", "neurons"}
    | {"decay", "threshold", "bias", "gain", "initial_membrane", "balance"}
)


def n_drawn(recipe: Mapping[str, Any]) -> int:
    """Return how many numbers are drawn or kept to sample the witnesses of a recipe, more or less."""
    sizes = [check_positive_int("n_features", recipe["n_features"])]
    sizes += [check_positive_int("hidden", width) for width in recipe["hidden"]]
    per_weight = 1 if recipe.get("fan_in") is None else 2
    is_recurrent = NEURON_MODELS.find(recipe["neuron"]).is_recurrent
    layers = [
        (per_weight * below + (width if is_recurrent else 0) + _PER_NEURON) * width for below, width in pairwise(sizes)
    ]
    n_subnetworks = check_positive_int("n_subnetworks", recipe["n_subnetworks"])
    kept = max(n_subnetworks, len(recipe.get("subnetworks", ())))
    chosen = len(recipe.get("neurons", ())) * (sizes[0] + _PER_NEURON)
    return kept * sum(layers) + chosen + _PER_LAYER * len(layers)


def check_recipe(recipe: Any, max_drawn: int, network: SpikingNetwork | None = None) -> None:
    """Refuse a recipe that cannot be of the witnesses of a network, or that asks for too many, before it is used."""
    if not isinstance(recipe, Mapping) or not isinstance(recipe["hidden"], (list, tuple)):
        raise InvalidInputError("expected a recipe that lists the widths of hidden layers, got another one")
    model = NEURON_MODELS.find(recipe["neuron"])
    unknown = {*recipe} - _RECIPE - {*model.sampled}
    if unknown:
        raise InvalidInputError(f"expected a recipe of {sorted(_RECIPE)}, got {sorted(unknown)} too")
    check_choice("dtype", recipe["dtype"], ("float32", "float64"))
    for name in ("subnetworks", "neurons"):
        if name in recipe:
            limit = recipe["n_subnetworks"] if name == "subnetworks" else recipe["hidden"][-1]
            _check_places(name, recipe[name], limit)
    number = n_drawn(recipe)
    if number > max_drawn:
        raise InvalidInputError(
            f"expected a recipe that draws at most {max_drawn:,} numbers, got one that draws {number:,}: pass "
            "max_drawn to load if you trust the file"
        )
    if network is None:
        return
    drawn, own = (recipe["n_features"], *recipe["hidden"]), (network.n_features, *network.hidden)
    fits = len(drawn) == len(own) and drawn[0] == own[0] and all(a >= b for a, b in zip(drawn, own, strict=True))
    n_kept = min((len(recipe["subnetworks"]),) if "subnetworks" in recipe else (recipe["n_subnetworks"],))
    if not fits or n_kept < network.n_subnetworks or any(type(one) is not model.layer for one in network.layers):
        raise InvalidInputError(
            f"expected a recipe for the neurons of {network!r}, got {recipe['n_subnetworks']} × {drawn} {model.name} "
            "neurons"
        )


def check_network(network: SpikingNetwork) -> None:
    """Refuse weights that are no numbers, and sizes that nothing in the file accounts for."""
    for name, value in (("weight", network.weight), ("intercept", network.intercept)):
        check_finite_tensor(name, value.detach())
    for layer in network.layers:
        for name, value in layer.tensors().items():
            check_finite_tensor(name, value)
    if network.n_windows > _MAX_WINDOWS:
        raise InvalidInputError(f"expected at most {_MAX_WINDOWS:,} windows, got {network.n_windows:,}")
    if network.n_features > _MAX_INPUTS:
        raise InvalidInputError(f"expected at most {_MAX_INPUTS:,} features, got {network.n_features:,}")


def check_layer_types(tensors: Mapping[str, Tensor]) -> None:
    """Refuse parameters of types that no layer is saved with."""
    for name, value in tensors.items():
        if value.dtype not in _LAYER_TYPES and not (name in ("source", "delay") and value.dtype == torch.int64):
            raise InvalidInputError(f"expected {name} of a layer in float32, float64 or int32, got {value.dtype}")


def check_state(state: FittedState) -> None:
    """Refuse what an estimator has learned if it does not fit its network."""
    network = state.network
    n_features, n_outputs = network.n_features, network.n_outputs
    if network.readout == "all":
        raise InvalidInputError("expected an estimator that reads the last step or means, got one that reads all steps")
    for name, values, bound in (("mean", state.mean, -math.inf), ("spread", state.scale, 0.0)):
        if values.shape != (n_features,) or values.dtype != np.float64:
            raise InvalidInputError(f"expected {name} of {n_features} features in float64, got others")
        if not (np.isfinite(values) & (values > bound)).all():
            raise InvalidInputError(f"expected a {name} of finite numbers above {bound}, got others")
    if state.feature_names is not None and len(state.feature_names) != n_features:
        raise InvalidInputError(f"expected {n_features} names of features, got {len(state.feature_names)}")
    if state.classes is None:
        if state.is_flat and n_outputs != 1:
            raise InvalidInputError(f"expected one output for targets with one axis, got {n_outputs}")
    elif len(state.classes) not in ((2,) if n_outputs == 1 else (n_outputs,)):
        raise InvalidInputError(f"expected labels for {n_outputs} outputs, got {len(state.classes)}")
    if state.proof is not None:
        _check_proof(state.proof, network)


def check_flag(name: str, value: Any) -> bool:
    """Return what is true or false."""
    if not isinstance(value, bool):
        raise InvalidInputError(f"expected {name} to be true or false, got {value!r}")
    return value


def check_names(value: Any) -> npt.NDArray[Any]:
    """Return different names of features."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value) or len({*value}) < len(value):
        raise InvalidInputError("expected a list of different names of features, got something else")
    return np.array(value, dtype=object)


def check_labels(kind: Any, values: Any) -> npt.NDArray[Any]:
    """Return sorted labels of a type that a file may name."""
    if not isinstance(kind, str) or not re.fullmatch(r"O|[<>|=]?[biufU][0-9]{1,9}", kind):
        raise InvalidInputError(f"expected labels that are numbers or strings, got {str(kind)[:40]!r}")
    dtype = np.dtype(object) if kind == "O" else np.dtype(kind)
    is_list = isinstance(values, list) and all(isinstance(one, (str, bool, int, float)) for one in values)
    if not is_list or (dtype.kind in "OU" and not all(isinstance(one, str) for one in values)):
        raise InvalidInputError(f"expected a list of labels of type {kind}, got others")
    if dtype.itemsize * len(values) > _MAX_LABEL_BYTES:
        raise InvalidInputError(f"expected labels of at most {_MAX_LABEL_BYTES:,} bytes, got {dtype} for each")
    labels = np.array(values, dtype=dtype)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InvalidInputError("expected finite labels, got others")
    if len(labels) != len(np.unique(labels)) or (np.unique(labels) != labels).any():
        raise InvalidInputError("expected labels that are sorted and different, got others")
    return labels


def check_finite_tensor(name: str, value: Tensor) -> None:
    """Refuse NaN and infinity."""
    if not bool(torch.isfinite(value).all()):
        raise InvalidInputError(f"expected a finite {name}, got NaN or infinite values")


def _check_proof(proof: Proof, network: SpikingNetwork) -> None:
    witnesses, n_outputs, n_read = proof.witnesses, network.n_outputs, len(proof.support)
    if witnesses.n_features != network.n_features:
        raise InvalidInputError(f"expected witnesses of {network.n_features} features, got {witnesses.n_features}")
    if "neurons" in witnesses.provenance.recipe:
        _check_places("neurons", witnesses.provenance.recipe["neurons"], 2**62)
    parsed = parse_readout(proof.objective.readout)
    if parsed.kind == "all" or parsed.n_windows > _MAX_WINDOWS:
        raise InvalidInputError(f"expected a proof of the last step or of means, got {str(parsed)!r}")
    n_rows = len(proof.dual_point)
    for name, value, shape, dtype in (
        ("support", proof.support, (n_read,), torch.int64),
        ("coef", proof.coef, (n_read, n_outputs), torch.float64),
        ("intercept", proof.intercept, (n_outputs,), torch.float64),
        ("dual point", proof.dual_point, (n_rows, n_outputs), torch.float64),
    ):
        if tuple(value.shape) != shape or value.dtype != dtype:
            raise InvalidInputError(
                f"expected the {name} of a proof to be {dtype} of shape {shape}, got {value.dtype} of "
                f"{tuple(value.shape)}"
            )
        check_finite_tensor(name, value)
    _check_places("support", proof.support.tolist(), witnesses.n_witnesses * parsed.n_windows)
    certificate = proof.certificate
    check_number("primal", certificate.primal)
    check_number("dual", certificate.dual)
    check_choice("scope", certificate.scope, ("sampled", "selected", "pool", "complete"))
    if certificate.n_witnesses is not None:
        check_positive_int("n_witnesses", certificate.n_witnesses)
    _check_objective(proof, n_outputs)


def _check_objective(proof: Proof, n_outputs: int) -> None:
    objective = proof.objective
    losses = objective.loss.values() if isinstance(objective.loss, Mapping) else [objective.loss]
    for loss in losses:
        if isinstance(loss, Softmax) and loss.n_classes is not None:
            check_positive_int("n_classes", loss.n_classes)
            if loss.n_classes > n_outputs:
                raise InvalidInputError(f"expected a loss of at most {n_outputs} classes, got {loss.n_classes}")
    for head, weight in objective.head_weights.items():
        if check_number(f"the weight of head {head!r}", weight) <= 0:
            raise InvalidInputError(f"expected the weight of head {head!r} to be above zero, got {weight!r}")
    check_choice("timestep_weighting", objective.timestep_weighting, ("uniform", "ramped"))


def _check_places(name: str, places: Any, limit: int) -> None:
    """Refuse what is no list of whole numbers from 0 to ``limit - 1``."""
    if not isinstance(places, (list, tuple)):
        raise InvalidInputError(f"expected {name} to be a list, got {type(places).__name__}")
    for place in places:
        if check_int_at_least(name, place, 0) >= limit:
            raise InvalidInputError(f"expected {name} below {limit}, got {place}")
