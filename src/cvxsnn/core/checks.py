"""Checks of arguments that several stages share. Each failure is one sentence."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .errors import InvalidInputError

Array = npt.NDArray[Any] | torch.Tensor
"""What users hand over: a NumPy array or a tensor."""


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if value not in choices:
        raise InvalidInputError(f"expected {name} to be one of {', '.join(map(repr, choices))}, got {value!r}")
    return str(value)


def check_positive_int(name: str, value: Any) -> int:
    """Return ``value`` if it is an integer above zero."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InvalidInputError(f"expected {name} to be a positive integer, got {value!r}")
    return int(value)


def check_sequences(inputs: Array, name: str = "inputs") -> None:
    """Refuse arrays or tensors that are not finite, non-empty ``(n_samples, n_steps, n_features)``."""
    if inputs.ndim != 3:
        raise InvalidInputError(
            f"expected {name} of shape (n_samples, n_steps, n_features), got {inputs.ndim} dimensions "
            f"{tuple(inputs.shape)}: give static data one step with {name}[:, None, :]"
        )
    if 0 in inputs.shape:
        raise InvalidInputError(f"expected non-empty {name}, got shape {tuple(inputs.shape)}")
    finite = torch.isfinite(inputs) if isinstance(inputs, torch.Tensor) else np.isfinite(inputs)
    if not bool(finite.all()):
        raise InvalidInputError(f"expected finite {name}, got NaN or infinite values: impute or drop them first")


def check_int_at_least(name: str, value: Any, minimum: int) -> int:
    """Return ``value`` if it is an integer of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < minimum:
        raise InvalidInputError(f"expected {name} to be an integer of at least {minimum}, got {value!r}")
    return int(value)


def check_divides(name: str, value: Any, total: int, unit: str) -> int:
    """Return ``value`` if it shares ``total`` things, called ``unit``, out equally."""
    divisors = [divisor for divisor in range(1, total + 1) if total % divisor == 0]
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value not in divisors:
        raise InvalidInputError(
            f"expected {name} to divide {total} {unit}, got {value!r}: pass one of {', '.join(map(str, divisors))}"
        )
    return int(value)


def check_device(device: Any) -> torch.device:
    """Return the device of that name if this machine has it; "auto" is the GPU where there is one."""
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError):
        raise InvalidInputError(f"expected a device such as 'cpu', 'cuda' or 'auto', got {device!r}") from None
    if place.type == "cuda" and not torch.cuda.is_available():
        raise InvalidInputError("expected a machine with a CUDA device, found none: use device='cpu'")
    return place
