"""Forecast a chaotic time series.

python examples/forecasting.py                     # writes out/forecasting.png, takes about 20 seconds
python examples/forecasting.py --noise 0.2         # noise of 0.2 standard deviations instead of 0.05
python examples/forecasting.py --quick -o a.png    # a small one

The series is that of Mackey and Glass, with a delay of 17. The model is compared with persistence, a linear
autoregression and kernel ridge regression. All of them read the same windows of 20 steps and predict the next value. A
free-running forecast appends the prediction to the window and goes on. Errors are those against the series without
noise.
"""

import argparse
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

import cvxsnn as cs

WINDOW, N_AHEAD = 20, 120
N_TRAIN, N_TEST = 2000, 1000
SEEDS = (0, 1, 2)
SHOWN = (1, 10, 30, 60, 120)
"""Steps ahead whose errors are printed."""

COLOURS = {
    "spiking network": "#0072B2",
    "kernel ridge regression": "#009E73",
    "linear autoregression": "#D55E00",
    "persistence": "#999999",
}


def mackey_glass(n_times: int, delay: int = 17, n_substeps: int = 10) -> np.ndarray:
    """Return the solution of x' = 0.2 x(t − delay) / (1 + x(t − delay)¹⁰) − 0.1 x(t) at whole times, standardised."""
    n_skipped, n_past = 500, delay * n_substeps
    x = np.full(n_past + (n_skipped + n_times) * n_substeps, 1.2)
    for now in range(n_past, len(x) - 1):
        past = x[now - n_past]
        x[now + 1] = x[now] + (0.2 * past / (1 + past**10) - 0.1 * x[now]) / n_substeps
    series = x[n_past::n_substeps][n_skipped:]
    return (series - series.mean()) / series.std()


def fit_spiking(windows: np.ndarray, y: np.ndarray, n_neurons: int, seed: int) -> cs.SpikingRegressor:
    """Return a ridge read-out of sampled neurons with delays."""
    model = cs.SpikingRegressor(
        hidden=(n_neurons,), witnesses="delayed", penalty="elastic-net", l1_strength=0.0, random_state=seed
    )
    return model.fit(windows, y)


def flatten(windows: np.ndarray) -> np.ndarray:
    """Return each window as a row."""
    return windows.reshape(len(windows), -1)


def fit_linear(windows: np.ndarray, y: np.ndarray) -> Pipeline:
    """Return a linear autoregression: ridge on the values of the same windows."""
    return make_pipeline(FunctionTransformer(flatten), RidgeCV(np.logspace(-8, 2, 11))).fit(windows, y)


def fit_kernel(windows: np.ndarray, y: np.ndarray) -> Pipeline:
    """Return kernel ridge regression on the values of the same windows, with the best of 20 pairs of parameters."""
    grid = {"gamma": (0.003, 0.01, 0.03, 0.1), "alpha": (1e-8, 1e-4, 1e-2, 0.1, 1.0)}
    split = ShuffleSplit(1, test_size=0.2, random_state=0)
    search = GridSearchCV(KernelRidge(kernel="rbf"), grid, cv=split, scoring="neg_mean_squared_error", refit=False)
    best = search.fit(windows[::2, :, 0], y[::2]).best_params_
    return make_pipeline(FunctionTransformer(flatten), KernelRidge(kernel="rbf", **best)).fit(windows, y)


def free_running(model: Any, starts: np.ndarray) -> np.ndarray:
    """Return forecasts from each window, shape (n_starts, N_AHEAD)."""
    return cs.forecast(model, starts, N_AHEAD, window=WINDOW)[:, :, 0]


def errors(forecasts: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the root mean square error at each step ahead, in standard deviations of the series."""
    return np.sqrt(np.square(forecasts - truth).mean(0))


def draw_forecasts(forecasts: dict[str, np.ndarray], past: np.ndarray, truth: np.ndarray, axes: Axes) -> None:
    """Draw one free-running forecast of each model."""
    ahead = np.arange(1, N_AHEAD + 1)
    axes.plot(np.arange(1 - WINDOW, N_AHEAD + 1), np.concatenate((past, truth)), color="black", label="series")
    for name, values in forecasts.items():
        axes.plot(ahead, values, color=COLOURS[name], label=name, linewidth=1.2, linestyle="--")
    axes.axvspan(0.5 - WINDOW, 0.5, color="#dddddd", linewidth=0)
    axes.set(xlabel="steps ahead (grey: the window)", ylabel="value", ylim=(-3, 3.4))
    axes.set_title("a  One free-running forecast", loc="left", fontsize=10)
    axes.legend(fontsize=8, loc="upper right", ncols=2)


def draw_errors(found: dict[str, list[np.ndarray]], axes: Axes) -> None:
    """Draw errors against steps ahead: mean and range over seeds."""
    ahead = np.arange(1, N_AHEAD + 1)
    for name, curves in found.items():
        axes.plot(ahead, np.mean(curves, axis=0), color=COLOURS[name])
        axes.fill_between(ahead, np.min(curves, axis=0), np.max(curves, axis=0), color=COLOURS[name], alpha=0.2)
    axes.set(xlabel="steps ahead", ylabel="error in standard deviations", yscale="log")
    axes.set_title("b  Errors of free-running forecasts of test data", loc="left", fontsize=10)


def main() -> None:
    """Fit, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("out/forecasting.png"))
    parser.add_argument("--noise", type=float, default=0.05, help="in standard deviations of the series")
    parser.add_argument("--quick", action="store_true", help="256 neurons, 1000 steps to train on, one seed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    n_neurons, n_train, seeds = (256, 1000, SEEDS[:1]) if options.quick else (1024, N_TRAIN, SEEDS)

    clean = mackey_glass(n_train + N_TEST)
    series = clean + options.noise * np.random.default_rng(0).normal(size=len(clean))
    X, y = cs.make_windows(series[:n_train], WINDOW)
    starts, _ = cs.make_windows(series[n_train:], WINDOW, horizon=N_AHEAD, stride=10)
    _, truth = cs.make_windows(clean[n_train:], WINDOW, horizon=N_AHEAD, stride=10)
    networks = [fit_spiking(X, y, n_neurons, seed) for seed in seeds]
    forecasts = {
        "spiking network": [free_running(network, starts) for network in networks],
        "kernel ridge regression": [free_running(fit_kernel(X, y), starts)],
        "linear autoregression": [free_running(fit_linear(X, y), starts)],
        "persistence": [np.repeat(starts[:, -1], N_AHEAD, axis=1)],
    }
    found = {name: [errors(values, truth) for values in own] for name, own in forecasts.items()}
    print(f"{'steps ahead':>24}" + "".join(f"{step:8d}" for step in SHOWN))
    for name, curves in found.items():
        print(f"{name:>24}" + "".join(f"{np.mean(curves, axis=0)[step - 1]:8.4f}" for step in SHOWN))
    print(networks[0].certificate_)

    plt.rcParams["font.size"] = 9
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    draw_forecasts({name: own[0][0] for name, own in forecasts.items()}, starts[0, :, 0], truth[0], axes[0])
    draw_errors(found, axes[1])
    options.output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.output, dpi=120)
    print(f"saved: {options.output}")


if __name__ == "__main__":
    main()
