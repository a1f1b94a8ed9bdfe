"""Checks of arguments that several stages share, and registries of named choices. Each failure is one sentence."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from numbers import Real
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from .errors import InvalidInputError, InvalidTypeError, first_line

T = TypeVar("T")

_MOST_DIVISORS = 1000
"""Largest number that a message lists as a divisor."""

Array = npt.NDArray[Any] | torch.Tensor
"""What users hand over: a NumPy array or a tensor."""


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidInputError(f"expected {name} to be one of {', '.join(map(repr, choices))}, got {value!r}")
    return str(value)


def check_positive_int(name: str, value: Any) -> int:
    """Return ``value`` if it is an integer above zero."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InvalidInputError(f"expected {name} to be a positive integer, got {value!r}")
    return int(value)


def check_n_jobs(n_jobs: Any) -> None:
    """Refuse what is no number of workers."""
    if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, (int, np.integer)) or n_jobs == 0):
        raise InvalidInputError(
            f"expected n_jobs to be None or an integer other than 0, -1 for one worker per core, got {n_jobs!r}"
        )


def check_number(name: str, value: Any) -> float:
    """Return ``value`` if it is a finite real number."""
    try:
        if not isinstance(value, (bool, np.bool_)) and isinstance(value, Real) and isfinite(value):
            return float(value)
    except OverflowError:  # an integer above all floats
        pass
    raise InvalidInputError(f"expected {name} to be a finite number, got {value!r}")


def check_bool(name: str, value: Any) -> bool:
    """Return ``value`` if it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidInputError(f"expected {name} to be True or False, got {value!r}")
    return bool(value)


@contextmanager
def foreign_errors() -> Iterator[None]:
    """Turn what another library raises about data into an error of ours, with the first line of its message."""
    try:
        yield
    except InvalidInputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        kind = InvalidTypeError if isinstance(error, TypeError) else InvalidInputError
        raise kind(first_line(error).rstrip(":")) from None


def as_array(name: str, data: Any) -> Any:
    """Return tensors and masked arrays as plain arrays, also those in a list, and everything else as it is."""
    if isinstance(data, (list, tuple)):
        special = (torch.Tensor, np.ma.MaskedArray)
        return [as_array(name, part) if isinstance(part, special) else part for part in data]
    if isinstance(data, torch.Tensor):
        return _tensor_as_array(name, data)
    if isinstance(data, np.ndarray) and not data.dtype.isnative:
        data = data.astype(data.dtype.newbyteorder("="))  # torch knows no other order of bytes
    if not isinstance(data, np.ma.MaskedArray):
        return data
    if np.ma.is_masked(data):
        raise InvalidInputError(
            f"expected {name} without masked values, got some: drop or fill them first, "
            "for example with NaN by np.ma.filled"
        )
    return data.data


def check_tensor(name: str, data: torch.Tensor) -> torch.Tensor:
    """Return a dense tensor of numbers, wider where NumPy has no such floats; refuse others."""
    if data.is_meta or data.is_quantized or data.layout != torch.strided:
        got = "one without values" if data.is_meta else "a quantised one" if data.is_quantized else str(data.layout)
        raise InvalidInputError(
            f"expected {name} as a dense tensor of numbers, got {got}: convert it first, for example by to_dense()"
        )
    is_known = data.dtype in (torch.float16, torch.float32, torch.float64) or not data.is_floating_point()
    return data if is_known else data.double()


def _tensor_as_array(name: str, data: torch.Tensor) -> npt.NDArray[Any]:
    data = check_tensor(name, data.detach()).cpu().resolve_conj().resolve_neg()
    try:
        return np.asarray(data.numpy())
    except (TypeError, RuntimeError):
        raise InvalidInputError(f"expected {name} as a tensor of numbers, got {data.dtype}: convert it first") from None


def as_real(name: str, data: Any) -> npt.NDArray[np.float64]:
    """Return data as an array of float64; refuse text, times, complex numbers and everything else that is no number."""
    try:
        values = np.asarray(as_array(name, data))
        kind = values.dtype.kind
        if kind == "O" and not any(isinstance(value, _NO_NUMBERS) for value in values.flat):
            values, kind = values.astype(np.float64), "f"
    except (OverflowError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            f"expected {name} to be numbers in rows of equal length, got others: convert them first"
        ) from None
    if kind not in "biuf":
        raise InvalidInputError(
            f"expected {name} to be real numbers, got {_KINDS.get(kind, values.dtype)}: convert them first"
        )
    with np.errstate(over="ignore"):  # wider floats become infinite, which is refused where it matters
        return np.asarray(values, dtype=np.float64, order="C")  # torch knows no negative strides


def as_tensor(name: str, data: Any) -> torch.Tensor:
    """Return real numbers as a tensor of their own type, where they are, and other data than tensors as a copy."""
    try:
        tensor = data if isinstance(data, torch.Tensor) else torch.tensor(np.asarray(as_array(name, data), order="C"))
    except (RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            f"expected {name} to be numbers in rows of equal length, got others: convert them first"
        ) from None
    if tensor.is_complex():
        raise InvalidInputError(f"expected {name} to be real numbers, got {tensor.dtype}: convert them first")
    return check_tensor(name, tensor)


_NO_NUMBERS = (str, bytes, complex, np.complexfloating, np.datetime64, np.timedelta64)

_KINDS = {
    "U": "text",
    "S": "bytes",
    "M": "times",
    "m": "differences of times",
    "V": "records",
    "O": "objects",
    "c": "complex ones (Complex data not supported)",  # in scikit-learn's words, which its checks expect
}


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
    except (RuntimeError, TypeError, ValueError, OverflowError):
        place = None
    if place is None or place.type not in ("cpu", "cuda"):
        raise InvalidInputError(f"expected a device such as 'cpu', 'cuda' or 'auto', got {device!r}")
    if place.type == "cuda" and not torch.cuda.is_available():
        raise InvalidInputError("expected a machine with a CUDA device, found none: use device='cpu'")
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise InvalidInputError(f"expected one of {torch.cuda.device_count()} CUDA devices, got {device!r}")
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
