"""NeuroBench's echo state network: the baseline of the benchmark ``forecasting``."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from cvxsnn.core.seeds import child_generator

_WARM_UP = 45
"""Points that an echo state network sees before it is fitted."""


@dataclass(frozen=True)
class EchoStateSettings:
    """Of an echo state network.

    Parameters
    ----------
    size : int
        The number of units.
    bias_scale, input_scale : float
        Scales of bias and input.
    density : float
        The share of recurrent weights that are not zero.
    radius : float
        The spectral radius.
    leak : float
        The share of a state that is new.
    ridge : float
        The strength of the ridge.
    """

    size: int
    bias_scale: float
    input_scale: float
    density: float
    radius: float
    leak: float
    ridge: float


LEADERBOARD = EchoStateSettings(186, 0.68, 0.85, 0.11, 1.09, 0.58, 1e-8)
"""Of the row in NeuroBench's leaderboard: sMAPE 14.79 for 30 series of delay 17, 281 kB, connection sparsity 0.876.

The settings are those in the history of NeuroBench's repository that have this footprint and sparsity.
"""

PUBLISHED = {
    17: EchoStateSettings(966, 0.9, 0.78, 0.97, 1.19, 0.69, 1e-7),
    18: EchoStateSettings(913, 0.98, 1, 0.43, 1.08, 0.92, 1e-9),
    19: EchoStateSettings(836, 0.45, 0.89, 0.64, 1.25, 0.77, 1e-6),
    20: EchoStateSettings(656, 0.29, 0.83, 0.06, 1.07, 0.86, 1e-8),
    21: EchoStateSettings(547, 0.37, 0.92, 0.92, 1.08, 0.45, 1e-8),
    22: EchoStateSettings(661, 0.79, 0.92, 0.55, 1.17, 0.87, 1e-7),
    23: EchoStateSettings(577, 0.69, 0.93, 0.02, 1.01, 0.54, 1e-8),
    24: EchoStateSettings(694, 0.85, 0.98, 0.51, 1.13, 0.76, 1e-5),
    25: EchoStateSettings(831, 0.87, 0.93, 0.49, 1.21, 1, 1e-4),
    26: EchoStateSettings(522, 0.91, 0.95, 0.59, 1.22, 0.58, 1e-6),
    27: EchoStateSettings(952, 0.99, 0.65, 0.6, 1.19, 0.78, 1e-6),
    28: EchoStateSettings(838, 0.82, 0.83, 0.37, 1.21, 0.81, 1e-6),
    29: EchoStateSettings(728, 0.99, 0.62, 0.48, 1.23, 0.9, 1e-5),
    30: EchoStateSettings(577, 0.69, 0.93, 0.02, 1.01, 0.54, 1e-8),
}
"""Those that NeuroBench's repository has for each delay. They have up to 7.5 MB, and no row in the leaderboard."""


def draw_settings(n_settings: int, size: int, seed: int) -> list[EchoStateSettings]:
    """Settings to choose from, at random; the first are those of the leaderboard."""
    rng = child_generator(seed, "echo state", "settings")
    drawn = [LEADERBOARD]
    while len(drawn) < n_settings:
        bias_scale, input_scale, leak = rng.uniform((0.1, 0.3, 0.2), (1.0, 1.5, 1.0))
        density, radius, ridge = rng.uniform(0.02, 0.5), rng.uniform(0.7, 1.4), 10.0 ** rng.uniform(-10, -4)
        scales = (float(own) for own in (bias_scale, input_scale, density, radius, leak, ridge))
        drawn.append(EchoStateSettings(size, *scales))
    return drawn


class EchoStateNetwork:
    """An echo state network that was fitted to a series.

    Parameters
    ----------
    series : array of shape (n_times,)
        The past.
    settings : EchoStateSettings
        Its settings.
    seed : int
        The seed of its weights.
    """

    def __init__(self, series: Any, settings: EchoStateSettings, seed: int) -> None:
        size, self._leak = settings.size, settings.leak
        rng = child_generator(seed, "echo state")
        self._into = (rng.random((size, 2)) - 0.5) * [settings.bias_scale, settings.input_scale]
        self._among = settings.radius * _recurrence(size, settings.density, seed)
        state, states = np.zeros(size), []
        for value in series[:-1]:
            state = self._advance(state, value)
            states.append(np.concatenate(([1.0, value], state)))
        design, following = np.array(states[_WARM_UP:]), series[_WARM_UP + 1 :]
        gram = design.T @ design + settings.ridge * np.eye(size + 2)
        self._readout = np.linalg.lstsq(gram, design.T @ following, rcond=None)[0]
        self._state, self._last = state, series[-1]

    def forecast(self, n_steps: int) -> Any:
        """Continue the series from predictions alone."""
        state, value, found = self._state, self._last, []
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(n_steps):
                state = self._advance(state, value)
                value = float(np.concatenate(([1.0, value], state)) @ self._readout)
                found.append(value)
        return np.array(found)

    def costs(self) -> dict[str, float]:
        """What NeuroBench's metrics are for such a network."""
        weights = (self._into, self._among, self._readout)
        n_weights, n_synapses = sum(own.size for own in weights), sum(int(np.count_nonzero(own)) for own in weights)
        return {
            "bytes": 8 * n_weights,
            "connection_sparsity": 1 - n_synapses / n_weights,
            "activation_sparsity": 0.0,
            "dense": n_weights,
            "macs": n_synapses,
            "acs": 0.0,
        }

    def _advance(self, state: Any, value: float) -> Any:
        drive = self._among @ state + self._into[:, 0] + self._into[:, 1] * value
        return (1 - self._leak) * state + self._leak * np.tanh(drive)


@lru_cache(maxsize=4)
def _recurrence(size: int, density: float, seed: int) -> Any:
    """Recurrent weights of spectral radius one, or what the published code takes for it: the first eigenvalue.

    If the first is nearly zero, as in networks with few weights, it is the largest.
    """
    rng = child_generator(seed, "echo state", "recurrence")
    weights = np.where(rng.random((size, size)) <= density, rng.normal(size=(size, size)), 0.0)
    sizes = np.abs(np.linalg.eigvals(weights))
    return weights / (sizes[0] if sizes[0] > 1e-3 * sizes.max() else sizes.max())
