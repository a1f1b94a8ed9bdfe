"""Where the taps of sampled neurons are: which input each of them reads, and how many steps late."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from ..core.errors import InvalidInputError
from ..core.memory import check_fits

Geometry = Literal["scattered", "box", "dilated", "correlated"]
Numbers = npt.NDArray[np.int64]

_CONSTANT = 1e-3
"""Standard deviation, relative to the largest, below which a value is taken as constant."""


@dataclass(frozen=True)
class LayerPlan:
    """What one layer is drawn from."""

    geometry: Geometry
    fan_in: int | None
    max_delay: int
    box: tuple[int, ...] | None
    feature_shape: tuple[int, ...] | None
    period: int | None
    neighbours: int | None
    weights: str
    is_differenced: bool
    quantiles: tuple[float, float] | None
    is_last: bool

    @property
    def needs_values(self) -> bool:
        """Whether the values of training sequences matter, and not only their shape."""
        return self.quantiles is not None or self.weights == "differences" or self.geometry == "correlated"


class Sampler(Protocol):
    """A layer that is being drawn."""

    plan: LayerPlan
    n_inputs: int
    n_neurons: int
    max_delay: int

    def generator(self, name: str) -> np.random.Generator:
        """Return the random stream of one of the layer's properties."""
        ...

    def windows(self) -> npt.NDArray[np.float64]:
        """Return what taps can read at one step of each sequence: a column for each delay and input, in this order."""
        ...


def _scattered(sampler: Sampler) -> tuple[Numbers, Numbers]:
    n_places = (sampler.max_delay + 1) * sampler.n_inputs
    n_taps = min(sampler.plan.fan_in or n_places, n_places)
    place = _distinct(sampler.generator("taps"), n_places, (sampler.n_neurons, n_taps))
    return place % sampler.n_inputs, place // sampler.n_inputs


def _box(sampler: Sampler) -> tuple[Numbers, Numbers]:
    generator = sampler.generator("taps")
    delays = _delay_grid(sampler)
    shape = (*delays, *(sampler.plan.feature_shape or (sampler.n_inputs,)))
    wanted = sampler.plan.box or (8,) * len(shape)
    size = [min(own, most) for own, most in zip(wanted, shape, strict=True)]
    corner = [generator.integers(most - own + 1, size=sampler.n_neurons) for own, most in zip(size, shape, strict=True)]
    n_places = math.prod(size)
    n_taps = min(sampler.plan.fan_in or n_places, n_places)
    inside = np.unravel_index(_distinct(generator, n_places, (sampler.n_neurons, n_taps)), size)
    place = [start[:, None] + own for start, own in zip(corner, inside, strict=True)]
    n = len(delays)
    return np.ravel_multi_index(place[n:], shape[n:]), np.ravel_multi_index(place[:n], delays)


def _delay_grid(sampler: Sampler) -> tuple[int, ...]:
    """Return the number of delays, or of whole periods and steps in each."""
    n_delays, period = sampler.max_delay + 1, sampler.plan.period
    if period is None:
        return (n_delays,)
    if period > n_delays:
        raise InvalidInputError(
            f"expected a period of at most {n_delays} steps, max_delay + 1, got {period}: pass a longer max_delay"
        )
    return n_delays // period, period


def _dilated(sampler: Sampler) -> tuple[Numbers, Numbers]:
    generator, n_taps = sampler.generator("taps"), min(sampler.plan.fan_in or 9, sampler.max_delay + 1)
    largest = max(1.0, sampler.max_delay / max(1, n_taps - 1))
    dilation = np.exp(generator.uniform(0, math.log(largest), sampler.n_neurons))
    feature = generator.integers(sampler.n_inputs, size=sampler.n_neurons)
    delay = np.arange(n_taps) * np.minimum(dilation.astype(np.int64), int(largest))[:, None]
    return np.broadcast_to(feature[:, None], delay.shape).copy(), delay


def _correlated(sampler: Sampler) -> tuple[Numbers, Numbers]:
    generator, plan = sampler.generator("taps"), sampler.plan
    n_places = (sampler.max_delay + 1) * sampler.n_inputs
    check_fits(24 * n_places**2, "cpu", f"the correlations of {n_places:,} values", "pass a shorter max_delay")
    values = sampler.windows()
    values = values - values.mean(axis=0)
    spread = np.linalg.norm(values, axis=0)
    varied = np.flatnonzero(spread > _CONSTANT * spread.max())
    if len(varied) == 0:
        raise InvalidInputError(
            "expected training sequences that vary where correlated taps read, got constant ones: pass another geometry"
        )
    values = values[:, varied] / spread[varied]
    n_near = min(plan.neighbours or plan.fan_in or len(varied), len(varied))
    near = np.argsort(-(values.T @ values), axis=1, kind="stable")[:, :n_near]
    n_taps = min(plan.fan_in or n_near, n_near)
    chosen = _distinct(generator, n_near, (sampler.n_neurons, n_taps))
    centre = generator.integers(len(varied), size=sampler.n_neurons)
    place = np.sort(varied[near[centre[:, None], chosen]], axis=1)
    return place % sampler.n_inputs, place // sampler.n_inputs


GEOMETRIES: dict[Geometry, Callable[[Sampler], tuple[Numbers, Numbers]]] = {
    "scattered": _scattered,
    "box": _box,
    "dilated": _dilated,
    "correlated": _correlated,
}
"""The inputs and the delays of all taps, (n_neurons, n_taps) each."""


def _distinct(generator: np.random.Generator, n_places: int, shape: tuple[int, int]) -> Numbers:
    """Draw distinct numbers below ``n_places`` for each row, in increasing order."""
    n_rows, n_drawn = shape
    if n_drawn == n_places:
        return np.broadcast_to(np.arange(n_places), shape).copy()
    if 2 * n_drawn > n_places:  # those that are left out are fewer
        left_out = np.zeros((n_rows, n_places), dtype=bool)
        np.put_along_axis(left_out, _distinct(generator, n_places, (n_rows, n_places - n_drawn)), True, axis=1)
        return np.nonzero(~left_out)[1].reshape(shape)
    drawn = np.sort(generator.integers(n_places, size=shape), axis=1)
    while (again := drawn[:, 1:] == drawn[:, :-1]).any():
        rows, columns = np.nonzero(again)
        drawn[rows, columns + 1] = generator.integers(n_places, size=len(rows))
        drawn[rows] = np.sort(drawn[rows], axis=1)
    return drawn
