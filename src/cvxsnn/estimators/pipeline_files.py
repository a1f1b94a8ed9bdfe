"""The transformers of a pipeline as the tensors and the header of a file."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.errors import InvalidInputError
from .preprocessing import SequenceImputer, SequenceResampler, SequenceScaler
from .preprocessing.base import SequenceTransformer

Steps = Sequence[tuple[str, SequenceTransformer]]

_TRANSFORMERS: Mapping[str, type[SequenceTransformer]] = {
    "scaler": SequenceScaler,
    "imputer": SequenceImputer,
    "resampler": SequenceResampler,
}


def steps_out(steps: Steps) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Return fitted transformers with their names as tensors and headers."""
    tensors: dict[str, Tensor] = {}
    headers: list[dict[str, Any]] = []
    for number, (name, step) in enumerate(steps):
        kind = next((own for own, known in _TRANSFORMERS.items() if type(step) is known), None)
        if kind is None:
            known = ", ".join(own.__name__ for own in _TRANSFORMERS.values())
            raise InvalidInputError(
                f"expected a pipeline of {known} and at last a spiking estimator, got {_name_of(step)} as step "
                f"{name!r}: a file knows no others"
            )
        if not hasattr(step, "n_features_in_"):
            raise InvalidInputError(f"expected a fitted {type(step).__name__}, got one that is not: call fit first")
        tensors |= {f"steps.{number}.{own}": torch.from_numpy(getattr(step, own)) for own in step._learned}
        parameters = {
            own: value.item() if isinstance(value, np.generic) else value for own, value in step.get_params().items()
        }
        header = {"name": name, "class": kind, "parameters": parameters, "n_features": step.n_features_in_}
        if hasattr(step, "feature_names_in_"):
            header["feature_names"] = step.feature_names_in_.tolist()
        headers.append(header)
    return tensors, headers


def steps_in(tensors: Mapping[str, Tensor], headers: Any, n_features: int) -> list[tuple[str, SequenceTransformer]]:
    """Return what :func:`steps_out` was given, for a network that reads ``n_features`` features."""
    if not isinstance(headers, list):
        raise InvalidInputError(f"expected a list of steps, got {type(headers).__name__}")
    steps = []
    for number, header in enumerate(headers):
        step = _TRANSFORMERS[header["class"]](**header["parameters"])
        if header["n_features"] != n_features:
            raise InvalidInputError(f"expected steps with {n_features} features, got {header['n_features']!r}")
        learned = {own: tensors[f"steps.{number}.{own}"].numpy() for own in step._learned}
        step._restore(n_features, header.get("feature_names"), learned)
        steps.append((header["name"], step))
    return steps


def _name_of(step: Any) -> str:
    return repr(step) if isinstance(step, str) else type(step).__name__
