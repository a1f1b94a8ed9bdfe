"""Distributions from which a parameter of a neuron is drawn."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.checks import check_number
from ..core.errors import InvalidInputError


class Distribution(ABC):
    """A distribution over real numbers from which a parameter is drawn once per neuron.

    Examples
    --------
    >>> from cvxsnn.witnesses import Uniform
    >>> Uniform(0.0, 1.0).describe()
    {'distribution': 'uniform', 'low': 0.0, 'high': 1.0}
    """

    @abstractmethod
    def sample(self, generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Draw an array.

        Parameters
        ----------
        generator : numpy.random.Generator
            Random number generator.
        shape : tuple of int
            Shape of the array.

        Returns
        -------
        array of the given shape, dtype float64
            Independent draws.
        """

    def describe(self) -> dict[str, Any]:
        """Return name and parameters.

        Returns
        -------
        dict of str to object
            Plain values, which :func:`parse_distribution` reads.
        """
        parameters = asdict(self)  # type: ignore[call-overload]
        # Python's floats, not NumPy's: every file format can store them.
        return {"distribution": type(self).__name__.lower(), **{name: float(x) for name, x in parameters.items()}}

    def __post_init__(self) -> None:
        """Refuse infinite parameters and an empty interval."""
        for name, value in vars(self).items():
            if not math.isfinite(value):
                raise InvalidInputError(f"expected a finite {name}, got {value}")
        low, high = vars(self).get("low", 0), vars(self).get("high", 0)
        if low > high:
            raise InvalidInputError(f"expected low <= high, got low={low} and high={high}")


@dataclass(frozen=True)
class Constant(Distribution):
    """Always the same number.

    Parameters
    ----------
    value : float
        The number.

    Examples
    --------
    >>> from cvxsnn.witnesses import Constant, gaussian_witnesses
    >>> gaussian_witnesses(2, (8,), threshold=Constant(0.5))
    WitnessSet(sampled lif, 1 × (2→8))
    """

    value: float

    def sample(self, generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Draw an array."""
        return np.full(shape, float(self.value))


@dataclass(frozen=True)
class Uniform(Distribution):
    """Uniform between two numbers.

    Parameters
    ----------
    low : float
        The lower end.
    high : float
        The upper end.

    Examples
    --------
    >>> from cvxsnn.witnesses import Uniform, gaussian_witnesses
    >>> gaussian_witnesses(2, (8,), threshold=Uniform(0.0, 1.0))
    WitnessSet(sampled lif, 1 × (2→8))
    """

    low: float
    high: float

    def sample(self, generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Draw an array."""
        return generator.uniform(self.low, self.high, shape)


@dataclass(frozen=True)
class LogUniform(Distribution):
    """A number whose logarithm is uniform.

    Parameters
    ----------
    low : float
        The lower end, above zero.
    high : float
        The upper end.

    Examples
    --------
    >>> from cvxsnn.witnesses import LogUniform, gaussian_witnesses
    >>> gaussian_witnesses(2, (8,), threshold=LogUniform(0.1, 10.0))
    WitnessSet(sampled lif, 1 × (2→8))
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse an empty interval or one that touches zero."""
        super().__post_init__()
        if self.low <= 0:
            raise InvalidInputError(f"expected LogUniform to start above zero, got low={self.low}")

    def sample(self, generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Draw an array."""
        # Rounding in log and exp may step over an end, and a decay of 1 + 1e-16 is not a decay.
        draws = np.exp(generator.uniform(math.log(self.low), math.log(self.high), shape))
        return np.asarray(np.clip(draws, self.low, self.high))


@dataclass(frozen=True)
class Normal(Distribution):
    """A Gaussian.

    Parameters
    ----------
    mean : float
        The mean.
    sd : float
        The standard deviation.

    Examples
    --------
    >>> from cvxsnn.witnesses import Normal, gaussian_witnesses
    >>> gaussian_witnesses(2, (8,), bias=Normal(0.0, 0.5))
    WitnessSet(sampled lif, 1 × (2→8))
    """

    mean: float
    sd: float

    def __post_init__(self) -> None:
        """Refuse a negative standard deviation."""
        super().__post_init__()
        if self.sd < 0:
            raise InvalidInputError(f"expected Normal to have a non-negative standard deviation, got sd={self.sd}")

    def sample(self, generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Draw an array."""
        return generator.normal(self.mean, self.sd, shape)


_KINDS: dict[str, type[Distribution]] = {kind.__name__.lower(): kind for kind in Distribution.__subclasses__()}


def parse_distribution(description: Mapping[str, Any]) -> Distribution:
    """Return the distribution that :meth:`Distribution.describe` describes.

    Parameters
    ----------
    description : mapping of str to object
        Name and parameters of a distribution.

    Returns
    -------
    Distribution
        The distribution, equal to the one described.

    Examples
    --------
    >>> from cvxsnn.witnesses import Uniform, parse_distribution
    >>> parse_distribution(Uniform(0.0, 1.0).describe())
    Uniform(low=0.0, high=1.0)
    """
    arguments = dict(description)
    name = arguments.pop("distribution", None)
    if name not in _KINDS:
        raise InvalidInputError(f"expected a distribution among {sorted(_KINDS)}, got {name!r}")
    return _KINDS[name](**arguments)


def as_distribution(name: str, value: Distribution | float) -> Distribution:
    """Return a distribution; a number means a constant."""
    if isinstance(value, Distribution):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InvalidInputError(
            f"expected {name} to be a number or a distribution such as Uniform(0.5, 1.0), got {value!r}"
        )
    return Constant(check_number(name, value))


def is_list(value: Any) -> bool:
    """Return whether a value is a list or tuple, and not text."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def per_layer(name: str, value: Any, n_layers: int) -> list[Any]:
    """Return one value per layer from a list of them, or from a single one that is for all layers."""
    each = list(value) if is_list(value) else [value] * n_layers
    if len(each) != n_layers:
        raise InvalidInputError(f"expected one {name} for each of {n_layers} layers, got {len(each)}")
    return each
