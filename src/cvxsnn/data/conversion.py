"""What users hand over as data, made into padded sequences with their lengths."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..core.errors import InvalidInputError
from .sequences import Sequences

FloatArray = npt.NDArray[np.float64]


def is_tabular(data: Any) -> bool:
    """Whether data are one row a sample, in whatever form scikit-learn takes, rather than sequences."""
    if isinstance(data, (np.ndarray, torch.Tensor)) and data.dtype != object:
        return data.ndim != 3
    return not _is_list_of_sequences(data)


def as_sequences(data: Any) -> Sequences:
    """Return whatever a user passes as sequences, in float64, padded with zeros at the end.

    Parameters
    ----------
    data : array or Tensor of shape (n_samples, n_steps, n_features), or a sequence of arrays (n_steps_i, n_features)

    Returns
    -------
    Sequences
        On the CPU.
    """
    if isinstance(data, torch.Tensor):
        data = data.detach().cpu().numpy()
    if isinstance(data, np.ndarray) and data.dtype != object:
        return Sequences(torch.from_numpy(_checked(data)))
    parts = [_as_matrix(number, part) for number, part in enumerate(data)]
    features = {part.shape[1] for part in parts}
    if len(features) > 1:
        raise InvalidInputError(
            f"expected every sequence to have the same number of features a step, got {sorted(features)}"
        )
    lengths = np.array([len(part) for part in parts])
    if lengths.min() == 0:
        raise InvalidInputError(f"expected at least one step a sequence, got none in sequence {int(lengths.argmin())}")
    padded = np.zeros((len(parts), int(lengths.max()), features.pop()))
    for row, part in zip(padded, parts, strict=True):
        row[: len(part)] = part
    return Sequences(torch.from_numpy(_checked(padded)), torch.from_numpy(lengths))


def feature_scale(sequences: Sequences, sample_weight: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Mean and spread of each feature over all steps that are not padding; a spread of 1 where nothing varies."""
    values: FloatArray = sequences.inputs.numpy()
    n_samples, n_steps, n_features = values.shape
    weight = np.ones((n_samples, n_steps)) if sample_weight is None else np.tile(sample_weight[:, None], n_steps)
    inside = sequences.is_inside()
    if inside is not None:
        weight = weight * inside.numpy()
    if weight.sum() == 0:
        return np.zeros(n_features), np.ones(n_features)
    share = (weight / weight.sum())[:, :, None]
    mean = (share * values).sum((0, 1))
    spread = np.sqrt((share * (values - mean) ** 2).sum((0, 1)))
    return mean, np.where(spread > 1e-12 * (1 + abs(mean)), spread, 1.0)


def _is_list_of_sequences(data: Any) -> bool:
    """Whether there are sequences of steps, each a sequence of numbers, among the elements."""
    if not isinstance(data, (Sequence, np.ndarray)) or isinstance(data, str) or len(data) == 0:
        return False
    return any(_depth(part) == 2 for part in data)


def _depth(part: Any) -> int:
    if hasattr(part, "ndim"):
        return int(part.ndim)
    if not isinstance(part, Sequence) or isinstance(part, str):
        return 0
    return 1 + (_depth(part[0]) if len(part) else 0)


def _as_matrix(number: int, part: Any) -> FloatArray:
    try:
        matrix = np.asarray(part.detach().cpu() if isinstance(part, torch.Tensor) else part, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"expected sequence {number} to be numbers of shape (n_steps, n_features), got other things or steps of "
            "unequal size"
        ) from None
    if matrix.ndim != 2:
        raise InvalidInputError(f"expected sequence {number} to have shape (n_steps, n_features), got {matrix.shape}")
    return matrix


def _checked(data: npt.NDArray[Any]) -> FloatArray:
    if data.dtype.kind not in "biuf":
        raise InvalidInputError(f"expected sequences of real numbers, got {data.dtype}")
    if 0 in data.shape:
        raise InvalidInputError(f"expected non-empty sequences, got shape {data.shape}")
    if not np.isfinite(data).all():
        raise InvalidInputError("expected finite sequences, got NaN or infinite values: impute or drop them first")
    return data.astype(np.float64, copy=False)
