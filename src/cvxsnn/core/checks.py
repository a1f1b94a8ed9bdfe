"""Checks of arguments that several stages share, and registries of named choices. Each failure is one sentence."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
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
    return check_int_at_least(name, value, 1)


def check_int_at_least(name: str, value: Any, minimum: int) -> int:
    """Return ``value`` if it is an integer of at least ``minimum``."""
    if not _is_integer(value) or value < minimum:
        expected = "a positive integer" if minimum == 1 else f"an integer of at least {minimum}"
        raise InvalidInputError(f"expected {name} to be {expected}, got {value!r}")
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
    """Refuse values of ``n_jobs`` that joblib does not accept."""
    if n_jobs is not None and (not _is_integer(n_jobs) or n_jobs == 0):
        raise InvalidInputError(
            f"expected n_jobs to be None or an integer other than 0, -1 for one worker per core, got {n_jobs!r}"
        )


def check_number(name: str, value: Any) -> float:
    """Return ``value`` if it is a finite real number."""
    with suppress(OverflowError):  # an integer above all floats
        if not isinstance(value, (bool, np.bool_)) and isinstance(value, Real) and isfinite(value):
            return float(value)
    raise InvalidInputError(f"expected {name} to be a finite number, got {value!r}")


def check_bool(name: str, value: Any) -> bool:
    """Return ``value`` if it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidInputError(f"expected {name} to be True or False, got {value!r}")
    return bool(value)


@contextmanager
def foreign_errors() -> Iterator[None]:
    """Turn errors that other libraries raise about data into errors of ours, with the first line of the message."""
    try:
        yield
    except InvalidInputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        kind = InvalidTypeError if isinstance(error, TypeError) else InvalidInputError
        raise kind(first_line(error).rstrip(":")) from None


def as_array(name: str, data: Any) -> Any:
    """Convert tensors and masked arrays to plain arrays, also those in a list; return everything else as it is."""
    if isinstance(data, (list, tuple)):
        special = (torch.Tensor, np.ma.MaskedArray)
        return [as_array(name, part) if isinstance(part, special) else part for part in data]
    if isinstance(data, torch.Tensor):
        with _conversion(name):
            return np.asarray(check_tensor(name, data.detach()).cpu().resolve_conj().resolve_neg().numpy())
    if isinstance(data, np.ndarray) and not data.dtype.isnative:
        data = data.astype(data.dtype.newbyteorder("="))  # torch supports the native byte order only
    if not isinstance(data, np.ma.MaskedArray):
        return data
    if np.ma.is_masked(data):
        raise InvalidInputError(
            f"expected {name} without masked values, got some: drop or fill them first, for example with NaN by "
            "np.ma.filled"
        )
    return data.data


def check_tensor(name: str, data: torch.Tensor) -> torch.Tensor:
    """Return a dense tensor of numbers, as float64 if NumPy lacks its type of floats; refuse other tensors."""
    if data.is_meta or data.is_quantized or data.layout != torch.strided:
        kind = "one without values" if data.is_meta else "a quantised one" if data.is_quantized else str(data.layout)
        raise InvalidInputError(
            f"expected {name} as a dense tensor of numbers, got {kind}: convert it first, for example by to_dense()"
        )
    is_known = data.dtype in (torch.float16, torch.float32, torch.float64) or not data.is_floating_point()
    return data if is_known else data.double()


@contextmanager
def _conversion(name: str, remedy: str = "convert them first") -> Iterator[None]:
    try:
        yield
    except InvalidInputError:
        raise
    except (OverflowError, RuntimeError, TypeError, ValueError):
        raise InvalidInputError(
            f"expected {name} to be numbers in rows of equal length, got others: {remedy}"
        ) from None


def as_real(name: str, data: Any) -> npt.NDArray[np.float64]:
    """Convert data to an array of float64; refuse text, times, complex numbers and other objects."""
    with _conversion(name):
        values = np.asarray(as_array(name, data))
        if values.dtype == object and not any(isinstance(value, _NO_NUMBERS) for value in values.flat):
            values = values.astype(np.float64)
    _check_real(name, values)
    with np.errstate(over="ignore"):  # wider floats become infinite, which callers refuse where it matters
        return np.asarray(values, dtype=np.float64, order="C")  # torch does not support negative strides


def as_tensor(name: str, data: Any, remedy: str = "convert them first") -> torch.Tensor:
    """Convert real numbers to a tensor of their type, a view if possible; tensors stay on their device."""
    if not isinstance(data, torch.Tensor):
        with _conversion(name, remedy):
            # torch does not support negative strides, and warns of read-only arrays.
            values = np.require(as_array(name, data), requirements=["C", "W"])
        _check_real(name, values)
        with _conversion(name, remedy):
            data = torch.from_numpy(values)
    if data.is_complex():
        raise InvalidInputError(f"expected {name} to be real numbers, got {data.dtype}: convert them first")
    return check_tensor(name, data)


def _check_real(name: str, values: npt.NDArray[Any]) -> None:
    if values.dtype.kind in "biuf":
        return
    is_text = values.dtype.kind in "US" or any(isinstance(value, (str, bytes)) for value in values.flat)
    received = "text" if is_text else _KINDS.get(values.dtype.kind, values.dtype)
    remedy = "encode labels as numbers first" if is_text and name == "targets" else "convert them first"
    raise InvalidInputError(f"expected {name} to be real numbers, got {received}: {remedy}")


_NO_NUMBERS = (str, bytes, complex, np.complexfloating, np.datetime64, np.timedelta64)

_KINDS = {"U": "text", "S": "bytes", "M": "times", "m": "differences of times", "V": "records", "O": "objects"}
_KINDS["c"] = "complex ones (Complex data not supported)"  # scikit-learn's check_estimator expects these words


def check_sequences(inputs: Array) -> None:
    """Refuse arrays or tensors that are not finite, non-empty ``(n_samples, n_steps, n_features)``."""
    if inputs.ndim != 3:
        raise InvalidInputError(
            f"expected inputs of shape (n_samples, n_steps, n_features), got {inputs.ndim} dimensions "
            f"{tuple(inputs.shape)}: give static data one step with inputs[:, None, :]"
        )
    if 0 in inputs.shape:
        raise InvalidInputError(f"expected non-empty inputs, got shape {tuple(inputs.shape)}")
    finite = torch.isfinite(inputs) if isinstance(inputs, torch.Tensor) else np.isfinite(inputs)
    if not bool(finite.all()):
        raise InvalidInputError("expected finite inputs, got NaN or infinite values: impute or drop them first")


def relative_weights(name: str, weight: torch.Tensor) -> torch.Tensor:
    """Divide weights by the largest, in float64, so that their sum cannot overflow.

    A factor common to all weights cancels, exactly if it is a power of two.
    """
    weight = weight.to(torch.float64)
    if not bool((weight >= 0).all() and torch.isfinite(weight).all() and weight.any()):
        raise InvalidInputError(f"expected {name} to be finite, non-negative and not all zero")
    return weight / weight.max()


def check_divides(name: str, value: Any, total: int, unit: str) -> int:
    """Return ``value`` if it divides ``total``, a number of things called ``unit``."""
    if not _is_integer(value) or value < 1 or total % int(value):
        divisors = [str(divisor) for divisor in range(1, min(total, 1000) + 1) if total % divisor == 0]
        listed = ", ".join(divisors) + (", ..." if total > 1000 else "")
        raise InvalidInputError(f"expected {name} to divide {total} {unit}, got {value!r}: pass one of {listed}")
    return int(value)


def check_device(device: Any) -> torch.device:
    """Return the device of that name if this machine has it; "auto" is the GPU if there is one."""
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if n_gpus else "cpu")
    known = None
    with suppress(RuntimeError, TypeError, ValueError, OverflowError):
        known = torch.device(device)
    if known is None or known.type not in ("cpu", "cuda"):
        raise InvalidInputError(f"expected a device such as 'cpu', 'cuda' or 'auto', got {device!r}")
    if known.type == "cuda" and (known.index or 0) >= n_gpus:
        raise InvalidInputError(f"expected one of {n_gpus} CUDA devices, got {device!r}: use device='cpu'")
    return known


class Registry(dict[str, T]):
    """Values known by name, in the order in which they were registered.

    Parameters
    ----------
    noun : str
        The word for a value in error messages: "loss", "solver".
    base : type
        Base class of the values, which are instances or subclasses of it.
    kind : str, optional
        Attribute of a value that holds its class; by default the value is a class itself.
    """

    def __init__(self, noun: str, base: type, kind: str | None = None) -> None:
        super().__init__()
        self._noun = noun
        self._base = base
        self._kind = kind

    def register(self, name: str, value: T) -> T:
        """Add a value under a new name, and return it."""
        if not (issubclass(value, self._base) if isinstance(value, type) else isinstance(value, self._base)):
            raise InvalidInputError(
                f"expected a {self._base.__name__} for the {self._noun} {name!r}, got {value!r}: wrap or derive it"
            )
        if name in self:
            raise InvalidInputError(
                f"expected a new name for a {self._noun}, got {name!r}, which is registered already"
            )
        self[name] = value
        return value

    def unregister(self, name: str) -> None:
        """Remove a value, for example one that a test has registered."""
        self.find(name)
        del self[name]

    def find(self, name: Any) -> T:
        """Return the value of that name; an error lists the names if there is none."""
        return self[check_choice(self._noun, name, tuple(self))]

    def of(self, instance: object) -> T:
        """Return the value whose class is exactly that of an instance: a subclass is another kind, and refused."""
        for value in self.values():
            if type(instance) is (value if self._kind is None else getattr(value, self._kind)):
                return value
        raise InvalidInputError(
            f"expected a registered {self._noun} ({', '.join(map(repr, self))}), got {type(instance).__name__}, "
            "which is not: register it first"
        )
