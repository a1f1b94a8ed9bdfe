"""Distributions of a neuron's parameters: small frozen values that describe themselves."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.errors import InvalidInputError


class Distribution(ABC):
    """A distribution over real numbers, drawn once for each neuron."""

    @abstractmethod
    def sample(self, generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Draw an array."""

    def describe(self) -> dict[str, Any]:
        """Name and parameters, enough to draw again."""
        parameters = asdict(self)  # type: ignore[call-overload]
        # NumPy's numbers are turned into Python's, which every file format knows.
        return {"distribution": type(self).__name__.lower(), **{name: float(x) for name, x in parameters.items()}}


@dataclass(frozen=True)
class Constant(Distribution):
    """Always ``value``."""

    value: float

    def __post_init__(self) -> None:
        """Refuse what is not a number."""
        _check_finite(value=self.value)

    def sample(self, generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Draw an array."""
        return np.full(shape, float(self.value))


@dataclass(frozen=True)
class Uniform(Distribution):
    """Uniform between ``low`` and ``high``."""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse an empty interval."""
        _check_finite(low=self.low, high=self.high)
        _check_order(self.low, self.high)

    def sample(self, generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Draw an array."""
        return generator.uniform(self.low, self.high, shape)


@dataclass(frozen=True)
class LogUniform(Distribution):
    """The logarithm is uniform between those of ``low`` and ``high``, both above zero."""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse an empty interval or one that touches zero."""
        _check_finite(low=self.low, high=self.high)
        _check_order(self.low, self.high)
        if self.low <= 0:
            raise InvalidInputError(f"expected LogUniform to start above zero, got low={self.low}")

    def sample(self, generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Draw an array."""
        # Rounding in log and exp may step over an end, and a decay of 1 + 1e-16 is not a decay.
        draws = np.exp(generator.uniform(math.log(self.low), math.log(self.high), shape))
        return np.asarray(np.clip(draws, self.low, self.high))


@dataclass(frozen=True)
class Normal(Distribution):
    """Gaussian with the given mean and standard deviation."""

    mean: float
    sd: float

    def __post_init__(self) -> None:
        """Refuse a negative spread."""
        _check_finite(mean=self.mean, sd=self.sd)
        if self.sd < 0:
            raise InvalidInputError(f"expected Normal to have a non-negative standard deviation, got sd={self.sd}")

    def sample(self, generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Draw an array."""
        return generator.normal(self.mean, self.sd, shape)


def as_distribution(name: str, value: Distribution | float) -> Distribution:
    """A number means a constant."""
    if isinstance(value, Distribution):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InvalidInputError(
            f"expected {name} to be a number or a distribution such as Uniform(0.5, 1.0), got {value!r}"
        )
    return Constant(float(value))


_KINDS: dict[str, type[Distribution]] = {
    kind.__name__.lower(): kind for kind in (Constant, Uniform, LogUniform, Normal)
}


def parse_distribution(description: Mapping[str, Any]) -> Distribution:
    """The distribution that :meth:`Distribution.describe` describes."""
    arguments = dict(description)
    name = arguments.pop("distribution", None)
    if name not in _KINDS:
        raise InvalidInputError(f"expected a distribution among {sorted(_KINDS)}, got {name!r}")
    return _KINDS[name](**arguments)


def _check_finite(**values: float) -> None:
    for name, value in values.items():
        if not math.isfinite(value):
            raise InvalidInputError(f"expected a finite {name}, got {value}")


def _check_order(low: float, high: float) -> None:
    if low > high:
        raise InvalidInputError(f"expected low <= high, got low={low} and high={high}")
