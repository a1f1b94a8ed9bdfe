"""Sampling witnesses: distributions of a neuron's parameters, and Gaussian weights as in the paper's algorithm CVX."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..core.checks import check_number, check_positive_int
from ..core.errors import InvalidInputError
from ..core.memory import check_fits
from ..core.seeds import check_seed, child_generator
from ..neurons import NEURON_MODELS, HiddenLayer
from ..neurons.exact import snap_weights
from .witness_set import Provenance, WitnessSet

_DRAWING, _FEWER = 16, "use fewer or narrower subnetworks"
"""Bytes per weight while they are drawn, scaled and rounded, and what to do where there are too many."""


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
            The source of randomness.
        shape : tuple of int
            The shape of the array.

        Returns
        -------
        array of the given shape, dtype float64
            Independent draws.
        """

    def describe(self) -> dict[str, Any]:
        """Return name and parameters, enough to draw again.

        Returns
        -------
        dict of str to object
            Plain values, which :func:`parse_distribution` reads.
        """
        parameters = asdict(self)  # type: ignore[call-overload]
        # NumPy's numbers are turned into Python's, which every file format knows.
        return {"distribution": type(self).__name__.lower(), **{name: float(x) for name, x in parameters.items()}}


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

    def __post_init__(self) -> None:
        """Refuse what is not a number."""
        _check_finite(value=self.value)

    def sample(self, generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Draw an array.

        Parameters
        ----------
        generator : numpy.random.Generator
            The source of randomness.
        shape : tuple of int
            The shape of the array.

        Returns
        -------
        array of the given shape, dtype float64
            Independent draws.
        """
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

    def __post_init__(self) -> None:
        """Refuse an empty interval."""
        _check_finite(low=self.low, high=self.high)
        _check_order(self.low, self.high)

    def sample(self, generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Draw an array.

        Parameters
        ----------
        generator : numpy.random.Generator
            The source of randomness.
        shape : tuple of int
            The shape of the array.

        Returns
        -------
        array of the given shape, dtype float64
            Independent draws.
        """
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
        _check_finite(low=self.low, high=self.high)
        _check_order(self.low, self.high)
        if self.low <= 0:
            raise InvalidInputError(f"expected LogUniform to start above zero, got low={self.low}")

    def sample(self, generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Draw an array.

        Parameters
        ----------
        generator : numpy.random.Generator
            The source of randomness.
        shape : tuple of int
            The shape of the array.

        Returns
        -------
        array of the given shape, dtype float64
            Independent draws.
        """
        # Rounding in log and exp may step over an end, and a decay of 1 + 1e-16 is not a decay.
        draws = np.exp(generator.uniform(math.log(self.low), math.log(self.high), shape))
        return np.asarray(np.clip(draws, self.low, self.high))


@dataclass(frozen=True)
class Normal(Distribution):
    """Gaussian.

    Parameters
    ----------
    mean : float
        The mean.
    sd : float
        The standard deviation.

    Examples
    --------
    >>> from cvxsnn.witnesses import Normal, gaussian_witnesses
    >>> gaussian_witnesses(2, (8,), threshold=Normal(0.0, 0.5))
    WitnessSet(sampled lif, 1 × (2→8))
    """

    mean: float
    sd: float

    def __post_init__(self) -> None:
        """Refuse a negative spread."""
        _check_finite(mean=self.mean, sd=self.sd)
        if self.sd < 0:
            raise InvalidInputError(f"expected Normal to have a non-negative standard deviation, got sd={self.sd}")

    def sample(self, generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Draw an array.

        Parameters
        ----------
        generator : numpy.random.Generator
            The source of randomness.
        shape : tuple of int
            The shape of the array.

        Returns
        -------
        array of the given shape, dtype float64
            Independent draws.
        """
        return generator.normal(self.mean, self.sd, shape)


def as_distribution(name: str, value: Distribution | float) -> Distribution:
    """Return a distribution; a number means a constant."""
    if isinstance(value, Distribution):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InvalidInputError(
            f"expected {name} to be a number or a distribution such as Uniform(0.5, 1.0), got {value!r}"
        )
    return Constant(check_number(name, value))


_KINDS: dict[str, type[Distribution]] = {
    kind.__name__.lower(): kind for kind in (Constant, Uniform, LogUniform, Normal)
}


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


PerLayer = Distribution | float | Sequence[Distribution | float]


def gaussian_witnesses(
    n_features: int,
    hidden: Sequence[int],
    n_subnetworks: int = 1,
    *,
    decay: PerLayer = 0.9,
    threshold: PerLayer = 1.0,
    bias: PerLayer = 0.0,
    gain: PerLayer = 1.0,
    initial_membrane: PerLayer = 0.0,
    balance: PerLayer = 0.0,
    fan_in: int | Sequence[int | None] | None = None,
    neuron: str = "lif",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
    **parameters: PerLayer,
) -> WitnessSet:
    r"""Sample the hidden layers of ``n_subnetworks`` subnetworks.

    A neuron's weights are independent Gaussians of variance ``gain² / fan_in``; where neurons of one layer read each
    other, the weights between them have variance ``gain² / width``. The other parameters are drawn once per neuron.

    Parameters
    ----------
    n_features : int
        Input features per step.
    hidden : sequence of int
        Widths of the hidden layers of *one* subnetwork, so that depth L is ``len(hidden) + 1``. The paper's P_rec and
        P_last are totals over all subnetworks: divide them by ``n_subnetworks``.
    n_subnetworks : int
        The paper's K.
    decay : number or Distribution, or a sequence with one per layer
        Leak of a membrane per step, for neurons that have one.
    threshold : number or Distribution, or a sequence with one per layer
        Amount subtracted after a spike, for neurons that have one.
    bias : number or Distribution, or a sequence with one per layer
        Constant drive.
    gain : number or Distribution, or a sequence with one per layer
        Scale of the weights.
    initial_membrane : number or Distribution, or a sequence with one per layer
        Membrane before the first step, for neurons that have one.
    balance : number or Distribution, or a sequence with one per layer
        Share of the sum of a neuron's weights that is taken from its bias. With 0.5 a spike counts as +½ and its
        absence as -½, so that neurons fire half of the time at any depth.
    fan_in : int, optional, or a sequence with one per layer
        How many inputs or lower neurons a neuron reads, drawn for each; all of them when not given. A single number is
        for all layers but the first. Weights have variance ``gain² / fan_in``. Few make neurons that differ more from
        each other. A balanced neuron that reads one other relays or negates it, and nothing gets lost on the way up.
    neuron : str
        The neuron model: "lif", "threshold", or one that was registered (:func:`cvxsnn.neurons.register_neuron`).
    seed : int
        The draw depends on nothing else: not on the device, and a layer's weights not on the other parameters.
    dtype : torch.dtype
        Floating-point type of the membranes.
    device : torch.device or str, optional
        Where to put the witnesses. Sampling happens on the host, so every device gets the same witnesses.
    **parameters : number or Distribution, or a sequence with one per layer
        Further parameters per neuron of a registered neuron model.

    Returns
    -------
    WitnessSet
        The hidden layers, which remember how they were drawn.

    Examples
    --------
    >>> from cvxsnn import gaussian_witnesses
    >>> from cvxsnn.witnesses import Uniform
    >>> gaussian_witnesses(n_features=3, hidden=(16, 32), n_subnetworks=4, decay=Uniform(0.5, 1.0), seed=0)
    WitnessSet(sampled lif, 4 × (3→16→32))
    """
    model = NEURON_MODELS.find(neuron)
    unknown = parameters.keys() - {*model.sampled}
    if unknown:
        raise InvalidInputError(
            f"expected parameters that {neuron} neurons are sampled with ({', '.join(('bias', *model.sampled))}), got "
            f"{', '.join(sorted(unknown))}"
        )
    if not isinstance(hidden, Sequence) or not hidden:
        raise InvalidInputError(f"expected hidden to list the layers' widths, got {hidden!r}: pass for example (256,)")
    sizes = [check_positive_int("n_features", n_features), *(check_positive_int("hidden", width) for width in hidden)]
    n_subnetworks = check_positive_int("n_subnetworks", n_subnetworks)
    given: dict[str, PerLayer] = {
        "decay": decay,
        "threshold": threshold,
        "bias": bias,
        "gain": gain,
        "initial_membrane": initial_membrane,
        "balance": balance,
        **parameters,
    }
    families = {name: per_layer(name, value, len(hidden)) for name, value in given.items()}
    n_read = _fan_ins(fan_in, len(hidden))
    recipe: dict[str, Any] = {
        "n_features": sizes[0],
        "hidden": tuple(sizes[1:]),
        "n_subnetworks": n_subnetworks,
        "neuron": neuron,
        **({} if not any(n_read) else {"fan_in": n_read}),
        "seed": check_seed(seed),
        "dtype": str(dtype).removeprefix("torch."),
        **{name: _described(family) for name, family in families.items()},
    }
    if not any(own != Constant(0.0) for own in families["balance"]):
        del recipe["balance"]

    def draw_layer(depth: int, fan_in: int, width: int) -> HiddenLayer:
        def tensor(values: npt.NDArray[np.floating[Any]]) -> Tensor:
            return torch.from_numpy(values).to(device=device, dtype=dtype)

        def per_neuron(name: str) -> npt.NDArray[np.float64]:
            return families[name][depth - 1].sample(
                child_generator(seed, "witness", depth, name), (n_subnetworks, width)
            )

        def weights(name: str, rows: int) -> Tensor:
            check_fits(_DRAWING * n_subnetworks * rows * width, "cpu", "the weights of a hidden layer", _FEWER)
            generator = child_generator(seed, "witness", depth, name)
            normal = generator.standard_normal((n_subnetworks, rows, width), dtype=np.float32)
            kept = min(n_read[depth - 1] or rows, rows) if name == "weight" else rows
            if kept == 1 < rows:  # in turn, so that every one below is read where there are enough to read it
                order = child_generator(seed, "witness", depth, "fan_in").random((n_subnetworks, rows)).argsort(1)
                read = np.tile(order, -(-width // rows))[:, :width]
                normal *= np.arange(rows)[None, :, None] == read[:, None, :]
            elif kept < rows:
                keys = child_generator(seed, "witness", depth, "fan_in").random(normal.shape, dtype=np.float32)
                normal[keys > np.partition(keys, kept - 1, axis=1)[:, kept - 1 : kept]] = 0
            scaled = normal * (per_neuron("gain") / math.sqrt(kept)).astype(np.float32)[:, None, :]
            return snap_weights(torch.from_numpy(scaled).to(dtype))

        weight = weights("weight", fan_in)
        # Sums of weights on their grid are exact in float64, so that every machine balances alike.
        balance = per_neuron("balance") * weight.double().sum(1).numpy()
        weight, bias = weight.to(device), tensor(per_neuron("bias") - balance)
        own: dict[str, Any] = {name: tensor(per_neuron(name)) for name in model.sampled if name in families}
        if model.is_recurrent:
            own["recurrent_weight"] = weights("recurrent_weight", width).to(device)
        return model.layer(weight, bias=bias, **own)

    layers = tuple(draw_layer(depth, *pair) for depth, pair in enumerate(pairwise(sizes), 1))
    return WitnessSet(layers, Provenance("sampled", recipe))


def per_layer(name: str, value: PerLayer, n_layers: int) -> list[Distribution]:
    """Return one distribution per layer."""
    is_single = not isinstance(value, Sequence) or isinstance(value, (str, bytes))
    each: list[Any] = [value] * n_layers if is_single else list(value)  # type: ignore[arg-type]
    if len(each) != n_layers:
        raise InvalidInputError(f"expected one {name} for each of {n_layers} layers, got {len(each)}")
    return [as_distribution(name, one) for one in each]


def _fan_ins(value: int | Sequence[int | None] | None, n_layers: int) -> list[int | None]:
    """Return one fan-in per layer; None reads all."""
    is_single = not isinstance(value, Sequence) or isinstance(value, (str, bytes))
    each = [None, *[value] * (n_layers - 1)] if is_single else list(value)  # type: ignore[arg-type]
    if len(each) != n_layers:
        raise InvalidInputError(f"expected one fan_in for each of {n_layers} layers, got {len(each)}")
    if is_single and value is not None:
        check_positive_int("fan_in", value)
    return [None if one is None else check_positive_int("fan_in", one) for one in each]


def _described(family: list[Distribution]) -> dict[str, Any] | list[dict[str, Any]]:
    """Return a single description where all layers have the same."""
    described = [own.describe() for own in family]
    return described[0] if all(own == described[0] for own in described) else described


def _check_finite(**values: float) -> None:
    for name, value in values.items():
        if not math.isfinite(value):
            raise InvalidInputError(f"expected a finite {name}, got {value}")


def _check_order(low: float, high: float) -> None:
    if low > high:
        raise InvalidInputError(f"expected low <= high, got low={low} and high={high}")
