"""Checks of arguments that several stages share, and registries of named choices. Each failure is one sentence."""

from collections.abc import Iterator, Mapping
from math import isfinite
from numbers import Real
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from .errors import InvalidInputError

T = TypeVar("T")

_MOST_DIVISORS = 1000
"""Largest number that a message lists as a divisor."""

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


def check_number(name: str, value: Any) -> float:
    """Return ``value`` if it is a finite real number."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real) or not isfinite(value):
        raise InvalidInputError(f"expected {name} to be a finite number, got {value!r}")
    return float(value)


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


def relative_weights(name: str, weight: torch.Tensor) -> torch.Tensor:
    """Return weights as shares of the largest, in float64: sums of those are finite, whatever the unit of the weights.

    A factor common to all weights cancels; if it is a power of two, to the last bit.
    """
    weight = weight.to(torch.float64)
    if not bool((weight >= 0).all() and torch.isfinite(weight).all() and weight.any()):
        raise InvalidInputError(f"expected {name} to be finite, non-negative and not all zero")
    return weight / weight.max()


def check_divides(name: str, value: Any, total: int, unit: str) -> int:
    """Return ``value`` if it shares ``total`` things, called ``unit``, out equally."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1 or total % int(value):
        divisors = [str(divisor) for divisor in range(1, min(total, _MOST_DIVISORS) + 1) if total % divisor == 0]
        more = [] if total <= _MOST_DIVISORS else ["..."]
        raise InvalidInputError(
            f"expected {name} to divide {total} {unit}, got {value!r}: pass one of {', '.join(divisors + more)}"
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


class Registry(Mapping[str, T]):
    """Values known by name, in the order in which they were registered.

    Parameters
    ----------
    what : str
        What the values are, for error messages: "loss", "solver".
    base : type
        What they are instances of, or, if they are classes, derive from.
    kind : str, optional
        The attribute of a value that is its class; by default the value is a class itself.
    """

    def __init__(self, what: str, base: type, kind: str | None = None) -> None:
        self._what, self._base, self._kind = what, base, kind
        self._values: dict[str, T] = {}

    def register(self, name: str, value: T) -> T:
        """Add a value under a new name, and return it."""
        if not (issubclass(value, self._base) if isinstance(value, type) else isinstance(value, self._base)):
            raise InvalidInputError(
                f"expected a {self._base.__name__} for the {self._what} {name!r}, got {value!r}: wrap or derive it"
            )
        if name in self._values:
            raise InvalidInputError(
                f"expected a new name for a {self._what}, got {name!r}, which is registered already"
            )
        self._values[name] = value
        return value

    def unregister(self, name: str) -> None:
        """Remove a value, for example one that a test has registered."""
        self.find(name)
        del self._values[name]

    def find(self, name: Any) -> T:
        """Return the value of that name; one sentence lists the names if there is none."""
        if not isinstance(name, str) or name not in self._values:
            known = ", ".join(map(repr, self._values))
            raise InvalidInputError(f"expected {self._what} to be one of {known}, got {name!r}")
        return self._values[name]

    def of(self, instance: object) -> T:
        """Return the value whose class is exactly that of an instance: a subclass is another kind, and refused."""
        for value in self._values.values():
            if type(instance) is (value if self._kind is None else getattr(value, self._kind)):
                return value
        raise InvalidInputError(
            f"expected a registered {self._what} ({', '.join(map(repr, self._values))}), got "
            f"{type(instance).__name__}, which is not: register it first"
        )

    def __getitem__(self, name: str) -> T:
        """Return the value of that name."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Go through the names."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._values)
