"""Checks of arguments that several stages share, and registries of named choices. Each failure is one sentence."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import isfinite
from numbers import Real
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from .errors import InvalidInputError, InvalidTypeError, first_line

T = TypeVar("T")

Array = npt.NDArray[Any] | torch.Tensor
"""Data that users pass: a NumPy array or a tensor."""


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidInputError(f"expected {name} to be one of {', '.join(map(repr, choices))}, got {value!r}")
    return str(value)


def check_type(value: Any, kinds: type | tuple[type, ...], expected: str, advice: str = "") -> None:
    """Refuse a value of another type, with what was expected and, if there is some, advice."""
    if not isinstance(value, kinds):
        raise InvalidInputError(f"expected {expected}, got {type(value).__name__}" + (f": {advice}" if advice else ""))


def check_positive_int(name: str, value: Any) -> int:
    """Return ``value`` if it is an integer above zero."""
    if not _is_integer(value) or value < 1:
        raise InvalidInputError(f"expected {name} to be a positive integer, got {value!r}")
    return int(value)


def check_fields(settings: object, *counts: str, **choices: Iterable[str]) -> None:
    """Check several fields of a settings dataclass at once.

    Parameters
    ----------
    settings : dataclass instance
    *counts : str
        Fields that must be positive integers, or None if that is their default.
    **choices : iterable of str
        Fields that must be one of these strings.
    """
    for name in counts:
        value = getattr(settings, name)
        if value is not None or getattr(type(settings), name, 0) is not None:
            check_positive_int(name, value)
    for name, allowed in choices.items():
        check_choice(name, getattr(settings, name), tuple(allowed))


def check_n_jobs(n_jobs: Any) -> None:
    """Refuse anything but a number of workers as joblib knows it."""
    if n_jobs is not None and (not _is_integer(n_jobs) or n_jobs == 0):
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
    """Turn errors of other libraries about data into errors of ours, with the first line of their messages."""
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


@contextmanager
def _conversion(name: str) -> Iterator[None]:
    try:
        yield
    except InvalidInputError:
        raise
    except (OverflowError, RuntimeError, TypeError, ValueError):
        raise InvalidInputError(
            f"expected {name} to be numbers in rows of equal length, got others: convert them first"
        ) from None


def as_real(name: str, data: Any) -> npt.NDArray[np.float64]:
    """Return data as an array of float64; refuse text, times, complex numbers and other objects."""
    with _conversion(name):
        values = np.asarray(as_array(name, data))
        if values.dtype == object and not any(isinstance(value, _NO_NUMBERS) for value in values.flat):
            values = values.astype(np.float64)
    if values.dtype.kind not in "biuf":
        received = _KINDS.get(values.dtype.kind, values.dtype)
        raise InvalidInputError(f"expected {name} to be real numbers, got {received}: convert them first")
    with np.errstate(over="ignore"):  # wider floats become infinite, which is refused where it matters
        return np.asarray(values, dtype=np.float64, order="C")  # torch knows no negative strides


def as_tensor(name: str, data: Any) -> torch.Tensor:
    """Return real numbers as a tensor of their type, on their device; copy data that are no tensor."""
    with _conversion(name):
        tensor = data if isinstance(data, torch.Tensor) else torch.tensor(np.asarray(as_array(name, data), order="C"))
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
    if not _is_integer(value) or value < minimum:
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
    """Return ``value`` if it divides ``total``, a number of things called ``unit``."""
    if not _is_integer(value) or value < 1 or total % int(value):
        divisors = [str(divisor) for divisor in range(1, min(total, 1000) + 1) if total % divisor == 0]
        more = ", ..." if total > 1000 else ""
        raise InvalidInputError(
            f"expected {name} to divide {total} {unit}, got {value!r}: pass one of {', '.join(divisors)}{more}"
        )
    return int(value)


def check_device(device: Any) -> torch.device:
    """Return the device of that name if this machine has it; "auto" is the GPU if there is one."""
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        known = torch.device(device)
    except (RuntimeError, TypeError, ValueError, OverflowError):
        known = None
    if known is None or known.type not in ("cpu", "cuda"):
        raise InvalidInputError(f"expected a device such as 'cpu', 'cuda' or 'auto', got {device!r}")
    if known.type == "cuda" and not torch.cuda.is_available():
        raise InvalidInputError("expected a machine with a CUDA device, found none: use device='cpu'")
    if known.type == "cuda" and (known.index or 0) >= torch.cuda.device_count():
        raise InvalidInputError(f"expected one of {torch.cuda.device_count()} CUDA devices, got {device!r}")
    return known


class Registry(dict[str, T]):
    """Values known by name, in the order in which they were registered.

    Parameters
    ----------
    what : str
        Name of a value in error messages: "loss", "solver".
    base : type
        Base class of the values, which are instances or subclasses of it.
    kind : str, optional
        Attribute of a value that holds its class; by default the value is a class itself.
    """

    def __init__(self, what: str, base: type, kind: str | None = None) -> None:
        super().__init__()
        self._what, self._base, self._kind = what, base, kind

    def register(self, name: str, value: T) -> T:
        """Add a value under a new name, and return it."""
        if not (issubclass(value, self._base) if isinstance(value, type) else isinstance(value, self._base)):
            raise InvalidInputError(
                f"expected a {self._base.__name__} for the {self._what} {name!r}, got {value!r}: wrap or derive it"
            )
        if name in self:
            raise InvalidInputError(
                f"expected a new name for a {self._what}, got {name!r}, which is registered already"
            )
        self[name] = value
        return value

    def unregister(self, name: str) -> None:
        """Remove a value, for example one that a test has registered."""
        self.find(name)
        del self[name]

    def find(self, name: Any) -> T:
        """Return the value of that name; an error lists the names if there is none."""
        if not isinstance(name, str) or name not in self:
            raise InvalidInputError(f"expected {self._what} to be one of {', '.join(map(repr, self))}, got {name!r}")
        return self[name]

    def of(self, instance: object) -> T:
        """Return the value whose class is exactly that of an instance: a subclass is another kind, and refused."""
        for value in self.values():
            if type(instance) is (value if self._kind is None else getattr(value, self._kind)):
                return value
        raise InvalidInputError(
            f"expected a registered {self._what} ({', '.join(map(repr, self))}), got {type(instance).__name__}, "
            "which is not: register it first"
        )
