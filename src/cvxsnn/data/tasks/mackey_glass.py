r"""The Mackey–Glass equation: chaotic series to forecast, in the protocol of NeuroBench.

.. math:: \dot x(t) = \frac{0.2\, x(t-\tau)}{1 + x(t-\tau)^{10}} - 0.1\, x(t)

Series are sampled 75 times per Lyapunov time, the time in which a small error grows by a factor e. A model is trained
on ten Lyapunov times and forecasts the next ten from its own predictions. The Lyapunov times and the initial values of
each τ are those of NeuroBench. Chaotic series depend on how they are integrated, so those of NeuroBench itself are
other solutions of the same equations.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from ...core.checks import check_positive_int
from ...core.errors import InvalidInputError

FloatArray = npt.NDArray[np.float64]

POINTS = 75
"""Points per Lyapunov time."""

_EQUATIONS = {
    17: (197, 0.7206597),
    18: (138, 0.7744313),
    19: (315, 0.7783468),
    20: (131, 0.9225991),
    21: (191, 0.9479431),
    22: (119, 0.5455960),
    23: (106, 0.8622247),
    24: (97, 0.3259660),
    25: (98, 0.8297825),
    26: (104, 1.0033490),
    27: (112, 0.6491406),
    28: (119, 1.0957495),
    29: (131, 0.9256179),
    30: (139, 0.2713639),
}
"""Lyapunov time and initial value of each τ."""


@dataclass(frozen=True, eq=False)
class ForecastTask:
    """A series to learn from, and the values that follow it.

    Parameters
    ----------
    train : array of shape (n_train,)
        The past.
    test : array of shape (n_test,)
        The values that follow, to be forecast without looking at them.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> task = cs.tasks.mackey_glass(17)
    >>> type(task).__name__, task.train.ndim == task.test.ndim
    ('ForecastTask', True)
    """

    train: FloatArray
    test: FloatArray


def mackey_glass(
    tau: int, *, start: float = 0.0, n_train: int = 10 * POINTS, n_test: int = 10 * POINTS
) -> ForecastTask:
    """Return a series of the Mackey–Glass equation: points to learn from, and points to forecast.

    Parameters
    ----------
    tau : int
        The delay of the equation, from 17 to 30.
    start : float, default=0.0
        Where the series begins, in Lyapunov times. NeuroBench averages over 30 series at 0, 0.5, ..., 14.5.
    n_train, n_test : int, default=750
        Number of points of each part, 75 per Lyapunov time.

    Returns
    -------
    ForecastTask
        The past, and the values to forecast.

    Examples
    --------
    >>> from cvxsnn.data.tasks import mackey_glass
    >>> task = mackey_glass(17, start=0.5)
    >>> len(task.train), len(task.test), round(float(task.test.max()), 1)
    (750, 750, 1.3)
    """
    if tau not in _EQUATIONS:
        raise InvalidInputError(f"expected tau to be a whole number from 17 to 30, got {tau!r}")
    if isinstance(start, bool) or not isinstance(start, (int, float)) or not 0 <= start <= 1000:
        raise InvalidInputError(f"expected start to be from 0 to 1000 Lyapunov times, got {start!r}")
    n_train, n_test = check_positive_int("n_train", n_train), check_positive_int("n_test", n_test)
    first = int(start * POINTS)
    series = _sample(int(tau), first + n_train + n_test)[first:]
    return ForecastTask(series[:n_train].copy(), series[n_train : n_train + n_test].copy())


def smape(forecast: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Return the symmetric mean absolute percentage error, from 0 to 200: the score of NeuroBench.

    Parameters
    ----------
    forecast, truth : array of equal shapes
        Predicted and true values.

    Returns
    -------
    float
        The error; 200 if the forecast is not finite.

    Examples
    --------
    >>> from cvxsnn.data.tasks import smape
    >>> smape([1.0, 3.0], [1.0, 1.0])
    50.0
    """
    ours, theirs = np.asarray(forecast, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if ours.shape != theirs.shape or ours.size == 0:
        raise InvalidInputError(f"expected a forecast of shape {theirs.shape}, got {ours.shape}")
    if not np.isfinite(ours).all():
        return 200.0
    size = np.abs(ours) + np.abs(theirs)
    return float(200 * np.mean(np.abs(ours - theirs) / np.where(size > 0, size, 1.0)))


@cache
def _sample(tau: int, n_points: int) -> FloatArray:
    """Return the first points of the series of a delay, interpolated by cubic polynomials."""
    lyapunov_time, initial = _EQUATIONS[tau]
    n_per_unit = 10
    # In steps of the integration, ten per unit of time.
    position = np.arange(n_points) * (lyapunov_time * n_per_unit / POINTS)
    fine = np.array(_integrate(tau, initial, int(position[-1]) + 3, n_per_unit))
    # A cubic polynomial needs a point before the interval and two after it.
    step = np.clip(position.astype(np.int64), 1, None)
    s = position - step
    series: FloatArray = (
        -s * (s - 1) * (s - 2) / 6 * fine[step - 1]
        + (s + 1) * (s - 1) * (s - 2) / 2 * fine[step]
        - (s + 1) * s * (s - 2) / 2 * fine[step + 1]
        + (s + 1) * s * (s - 1) / 6 * fine[step + 2]
    )
    return series


def _integrate(tau: int, initial: float, n_steps: int, n_per_unit: int = 10) -> list[float]:
    """Integrate by the classical Runge–Kutta method, with a constant past and ``n_per_unit`` steps per unit of time.

    Between steps the past is interpolated by cubic polynomials.
    """
    step, n_delay = 1 / n_per_unit, tau * n_per_unit
    past = [initial] * (n_delay + 1)  # the last entry is x(0)
    production = [_production(initial)] * (n_delay + 1)
    for now in range(n_delay, n_delay + n_steps):
        then = now - n_delay
        x = past[now]
        before = past[then]
        after = past[then + 1]
        # Interpolation at the midpoint of four equidistant values has the weights -1, 9, 9, -1 over 16.
        outer = past[max(then - 1, 0)] + past[then + 2]
        middle = _production((9 * (before + after) - outer) / 16)
        slope_1 = production[then] - 0.1 * x
        slope_2 = middle - 0.1 * (x + 0.5 * step * slope_1)
        slope_3 = middle - 0.1 * (x + 0.5 * step * slope_2)
        slope_4 = production[then + 1] - 0.1 * (x + step * slope_3)
        past.append(x + step * (slope_1 + 2 * (slope_2 + slope_3) + slope_4) / 6)
        production.append(_production(past[-1]))
    return past[n_delay:]


def _production(x: float) -> float:
    """Return 0.2 x / (1 + x¹⁰), with products that are the same on every machine."""
    square = x * x
    fourth = square * square
    return 0.2 * x / (1 + fourth * fourth * square)
