"""The regressor as it comes beside aeon's MiniRocket and Rocket regressors: sets inside aeon's wheel, and made series.

Root mean squared errors on test data, in units of their standard deviation; the same data for all, three seeds.
"""

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import cvxsnn as cs

from .measure import console, make_table

Floats = npt.NDArray[np.float64]
SEEDS = (0, 1, 2)


class Data(NamedTuple):
    """Series of shape (n_samples, n_steps, n_features) with a real number each."""

    X: Floats
    y: Floats
    X_test: Floats
    y_test: Floats


def from_aeon(name: str) -> Data:
    """A set inside aeon's wheel, divided as it comes."""
    import aeon.datasets

    folder = str(Path(aeon.datasets.__file__).parent / "data")
    parts: list[Any] = []
    for split in ("train", "test"):
        X, y = aeon.datasets.load_regression(name, split=split, extract_path=folder)
        parts += [X.transpose(0, 2, 1).copy(), y.astype(float)]
    return Data(*parts)


def made(draw: Callable[[np.random.Generator, Floats, Floats], Floats]) -> Data:
    """Series of 100 steps with noise, ``draw(rng, steps, target)``, for targets between 0 and 1."""
    rng, n_train, n_test = np.random.default_rng(0), 300, 500
    y = rng.random(n_train + n_test)
    X = draw(rng, np.arange(100.0), y[:, None]) + 0.3 * rng.normal(size=(len(y), 100))
    return Data(X[:n_train, :, None], y[:n_train], X[n_train:, :, None], y[n_train:])


def frequency(rng: np.random.Generator, t: Floats, y: Floats) -> Floats:
    """A sine of unknown phase."""
    return np.sin((0.1 + 0.4 * y) * t + rng.uniform(0, 2 * np.pi, y.shape))


def width(rng: np.random.Generator, t: Floats, y: Floats) -> Floats:
    """A bump somewhere."""
    return np.exp(-(((t - rng.uniform(30, 70, y.shape)) / (3 + 12 * y)) ** 2))


def place(rng: np.random.Generator, t: Floats, y: Floats) -> Floats:
    """Where a bump is."""
    return np.exp(-(((t - 10 - 80 * y) / 5) ** 2))


TASKS: dict[str, Callable[[], Data]] = {
    "Covid3Month": lambda: from_aeon("Covid3Month"),
    "CardanoSentiment": lambda: from_aeon("CardanoSentiment"),
    "frequency of a sine": lambda: made(frequency),
    "width of a bump": lambda: made(width),
    "place of a bump": lambda: made(place),
}


def predictions(name: str, data: Data, seed: int) -> Floats:
    """Fit and predict."""
    if name == "cvxsnn":
        model = cs.SpikingRegressor(random_state=seed).fit(data.X, data.y)
        assert model.certificate_ is not None
        assert model.certificate_.relative_gap <= 1e-6
        return model.predict(data.X_test)
    from aeon.regression.convolution_based import MiniRocketRegressor, RocketRegressor

    kind = MiniRocketRegressor if name == "MiniRocket" else RocketRegressor
    X, X_test = (part.transpose(0, 2, 1).copy() for part in (data.X, data.X_test))
    found: Floats = kind(random_state=seed, n_jobs=2).fit(X, data.y).predict(X_test)
    return found


def main() -> None:
    """Print a table."""
    names = ("cvxsnn", "MiniRocket", "Rocket")
    table = make_table("Root mean squared error / standard deviation; seconds", "task", *names)
    for task, load in TASKS.items():
        data, cells = load(), []
        for name in names:
            begin = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = [predictions(name, data, seed) for seed in SEEDS]
            errors = [np.sqrt(np.mean((own - data.y_test) ** 2)) / data.y_test.std() for own in found]
            cells.append(f"{np.mean(errors):.4f}; {(time.perf_counter() - begin) / len(SEEDS):.1f}")
        table.add_row(task, *cells)
    console.print(table)
