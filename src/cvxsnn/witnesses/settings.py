"""Settings of families: numbers and distributions, for all layers or one for each, which describe themselves.

A family is a frozen value and a read-only mapping of its settings, so whatever takes a mapping takes a family.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch

from ..core.checks import Array, check_number, check_positive_int
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..data.sequences import Sequences
from .witness_set import WitnessSet


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


_DISTRIBUTIONS: dict[str, type[Distribution]] = {kind.__name__.lower(): kind for kind in Distribution.__subclasses__()}

PerLayer = Distribution | float | Sequence[Distribution | float]


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
    if name not in _DISTRIBUTIONS:
        raise InvalidInputError(f"expected a distribution among {sorted(_DISTRIBUTIONS)}, got {name!r}")
    return _DISTRIBUTIONS[name](**arguments)


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


Check = Callable[[str, Any], Any]
"""Takes the name and the value of a setting; returns the value in its usual form or raises an error."""


def check_widths(name: str, value: Any) -> tuple[int, ...]:
    """Return the widths of the hidden layers."""
    if not isinstance(value, Sequence) or not value:
        raise InvalidInputError(f"expected {name} to list the layers' widths, got {value!r}: pass for example (256,)")
    return tuple(check_positive_int(name, width) for width in value)


def check_optional_int(name: str, value: Any) -> int | None:
    """Return an integer above zero, or None."""
    return None if value is None else check_positive_int(name, value)


class LayerSetting(NamedTuple):
    """How a setting with one value per layer is checked.

    Parameters
    ----------
    check : callable
        Check of the value of one layer.
    is_tuple : bool
        Whether the value of one layer is a tuple itself.
    is_of_first : bool
        Whether a single value is for the first layer only; the others then have None.
    """

    check: Check
    is_tuple: bool = False
    is_of_first: bool = False

    def each(self, name: str, value: Any, n_layers: int) -> list[Any]:
        """Return the checked value of each layer."""
        # A tuple such as (10, 8) is the value of one layer; only a list of tuples has one for each.
        is_listed = is_list(value) and (not self.is_tuple or any(item is None or is_list(item) for item in value))
        values = list(value) if is_listed else [value, *[None if self.is_of_first else value] * (n_layers - 1)]
        if len(values) != n_layers:
            raise InvalidInputError(f"expected {name} for each of {plural(n_layers, 'layer')}, got {len(values)}")
        return [self.check(name, item) for item in values]


@dataclass(frozen=True, eq=False, kw_only=True)
class Family(Mapping[str, Any]):
    """A family of witnesses.

    Derive a frozen dataclass from this class, give it a ``name`` and a table of ``checks``, and implement
    :meth:`sample`. As a mapping, a family has its name as ``"sampler"`` and the fields that differ from their defaults.

    Parameters
    ----------
    dtype : torch.dtype
        Floating-point type of the membranes.
    device : torch.device or str, optional
        Device of the witnesses. Sampling happens on the host, so every device gets the same witnesses.

    Examples
    --------
    >>> from cvxsnn.witnesses import Family, Gaussian
    >>> issubclass(Gaussian, Family), dict(Gaussian(hidden=(8,)))
    (True, {'hidden': (8,)})
    """

    name: ClassVar[str]
    needs_inputs: ClassVar[bool] = True
    """Whether training sequences are necessary to sample."""
    recognised_by: ClassVar[str | None] = "sampler"
    """The key by which a mapping is recognised as this family: "sampler", or a setting that no other family has. None
    for the default family."""
    checks: ClassVar[Mapping[str, Check]] = {"hidden": check_widths, "n_subnetworks": check_positive_int}
    """How each setting of the family as a whole is checked."""

    dtype: torch.dtype = torch.float32
    device: torch.device | str | None = None

    def __post_init__(self) -> None:
        """Check the settings, and bring them to their usual form."""
        for name, check in self.checks.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Return the family with these settings.

        Parameters
        ----------
        settings : mapping of str to object
            Settings, also as plain values.

        Returns
        -------
        Family
            The family.
        """
        parsed = {name: _parse(name, value) for name, value in settings.items() if name != "sampler"}
        known = cls.arguments(parsed.get("neuron", "lif"))
        unknown = sorted(parsed.keys() - set(known))
        if unknown:
            raise InvalidInputError(
                f"unknown settings {unknown}; a {cls.name} family has {sorted(known)}{cls._hint(unknown)}"
            )
        if "hidden" in known and "hidden" not in parsed:
            raise InvalidInputError(
                "expected a family with the widths of its hidden layers, got none: add hidden=(256,)"
            )
        further = {name: parsed.pop(name) for name in [*parsed] if name not in cls.__dataclass_fields__}
        return cls(**parsed | ({"parameters": further} if further else {}))

    @classmethod
    def _hint(cls, unknown: Sequence[str]) -> str:
        """Return advice for somebody who passed unknown settings, or nothing."""
        return ""

    @abstractmethod
    def sample(self, inputs: Sequences | Array | int, seed: int = 0) -> WitnessSet:
        """Sample witnesses.

        Parameters
        ----------
        inputs : Sequences, array of shape (n_samples, n_steps, n_features), or int
            Training sequences, or the number of features for a family that needs no more.
        seed : int
            Seed of all draws.

        Returns
        -------
        WitnessSet
            The witnesses, with a recipe that draws them again.
        """

    def describe(self) -> dict[str, Any]:
        """Return the settings as plain values.

        Returns
        -------
        dict of str to object
            A mapping that :func:`as_family` reads, and that every file format can store.
        """
        return describe_family(self)

    @classmethod
    def arguments(cls, neuron: str = "lif") -> list[str]:
        """Return the names of the settings that a mapping may have.

        Parameters
        ----------
        neuron : str
            The neuron model, which may add names.

        Returns
        -------
        list of str
            The names.
        """
        return [setting.name for setting in fields(cls)]

    def __getitem__(self, name: str) -> Any:
        """Return a setting."""
        if name == "sampler" == self.recognised_by:
            return self.name
        if name not in self.__dataclass_fields__:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the settings that differ from their defaults."""
        if self.recognised_by == "sampler":
            yield "sampler"
        for setting in fields(self):
            value = getattr(self, setting.name)
            is_default = value is setting.default or value == setting.default
            # The setting that recognises a family is never left out, or the mapping would be read as another family.
            if setting.default is MISSING or setting.name == self.recognised_by or not is_default:
                yield setting.name

    def __len__(self) -> int:
        """Return the number of settings that differ from their defaults."""
        return sum(1 for _ in self)


def _parse(name: str, value: Any) -> Any:
    """Return a setting from plain values."""
    if name == "dtype" and isinstance(value, str):
        return getattr(torch, value)
    if isinstance(value, (list, tuple)):
        return type(value)(_parse(name, item) for item in value)
    return parse_distribution(value) if isinstance(value, Mapping) else value


def _describe(value: Any) -> Any:
    """Return a setting as plain values."""
    if isinstance(value, Distribution):
        return value.describe()
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, (list, tuple)):
        return [_describe(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def describe_family(family: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a family as plain values.

    Parameters
    ----------
    family : mapping of str to object
        A family, or its settings.

    Returns
    -------
    dict of str to object
        The same with every distribution described.

    Examples
    --------
    >>> from cvxsnn.witnesses import Uniform, describe_family
    >>> describe_family({"hidden": (64,), "decay": Uniform(0.5, 1.0)})
    {'hidden': [64], 'decay': {'distribution': 'uniform', 'low': 0.5, 'high': 1.0}}
    """
    settings = {"sampler": family.name, **family} if isinstance(family, Family) else {**family}
    settings |= settings.pop("parameters", {})
    settings.pop("device", None)  # which changes no draw
    return {name: _describe(value) for name, value in settings.items()}
