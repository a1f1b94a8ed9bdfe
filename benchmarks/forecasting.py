"""Chaotic series, forecast from their own predictions: the Mackey–Glass task of NeuroBench.

A network reads the last values of the series, each as a constant current for some steps, and integrate-and-fire neurons
count. The read-out of the counts is a certified ridge regression on the next value. Each series has a network of its
own, as in NeuroBench. Family and strength are chosen once for each delay of the equation: a network is fitted to the
first three quarters of each of a few training parts and forecasts the rest. NeuroBench's echo state network, with its
published settings for each delay, is fitted to and scored on the same series. What is measured is kept as one JSON
object a line in ``results/forecasting.jsonl``; a run that was interrupted goes on where it stopped.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import cvxsnn as cs
from cvxsnn.core.seeds import child_seed
from cvxsnn.data.tasks import mackey_glass, smape

from .measure import console, make_table

RECORDS = Path(__file__).parent / "results" / "forecasting.jsonl"
TAUS = range(17, 31)
TOLERANCE = 1e-6
N_TUNED = 3
"""Series of each delay whose training parts choose the settings."""

ECHO_STATE = {
    17: (966, 0.9, 0.78, 0.97, 1.19, 0.69, 1e-7),
    18: (913, 0.98, 1, 0.43, 1.08, 0.92, 1e-9),
    19: (836, 0.45, 0.89, 0.64, 1.25, 0.77, 1e-6),
    20: (656, 0.29, 0.83, 0.06, 1.07, 0.86, 1e-8),
    21: (547, 0.37, 0.92, 0.92, 1.08, 0.45, 1e-8),
    22: (661, 0.79, 0.92, 0.55, 1.17, 0.87, 1e-7),
    23: (577, 0.69, 0.93, 0.02, 1.01, 0.54, 1e-8),
    24: (694, 0.85, 0.98, 0.51, 1.13, 0.76, 1e-5),
    25: (831, 0.87, 0.93, 0.49, 1.21, 1, 1e-4),
    26: (522, 0.91, 0.95, 0.59, 1.22, 0.58, 1e-6),
    27: (952, 0.99, 0.65, 0.6, 1.19, 0.78, 1e-6),
    28: (838, 0.82, 0.83, 0.37, 1.21, 0.81, 1e-6),
    29: (728, 0.99, 0.62, 0.48, 1.23, 0.9, 1e-5),
    30: (577, 0.69, 0.93, 0.02, 1.01, 0.54, 1e-8),
}
"""Of NeuroBench's echo state network: size, scales of bias and input, density, spectral radius, leak, ridge."""

_WARM_UP = 45
"""Points that an echo state network sees before it is fitted."""


@dataclass(frozen=True)
class Settings:
    """Of a spiking forecaster.

    Parameters
    ----------
    window : int
        Values of the past that it reads.
    width : int
        Neighbouring values that a neuron reads.
    n_neurons : int
        The number of neurons.
    n_steps : int
        Steps for which the values are applied.
    l2_strength : float
        The strength of the ridge.
    """

    window: int = 20
    width: int = 2
    n_neurons: int = 2000
    n_steps: int = 64
    l2_strength: float = 1e-8


GRID = [
    Settings(width=width, window=window, l2_strength=strength)
    for width, window, strength in product((2, 4), (20, 24), (1e-7, 1e-8))
]


class Forecaster:
    """A spiking network that was fitted to a series.

    Parameters
    ----------
    series : array of shape (n_times,)
        The past.
    settings : Settings
        Its settings.
    seed : int
        The seed of its neurons.
    """

    def __init__(self, series: Any, settings: Settings, seed: int) -> None:
        self._mean, self._scale, self._settings = series.mean(), series.std(), settings
        windows, following = cs.make_windows(self._standardised(series), settings.window)
        inputs = self._currents(windows[:, :, 0])
        witnesses = cs.delayed_witnesses(
            inputs,
            (settings.n_neurons,),
            geometry="box",
            box=(1, settings.width),
            fan_in=None,
            max_delay=0,
            decay=1.0,
            threshold=0.1,
            quantiles=(0.02, 0.98),
            n_calibration=512,
            seed=seed,
        )
        problem = cs.ConvexProblem(
            cs.build_dictionary(witnesses, inputs, "mean"),
            following,
            "squared",
            0.0,
            l2_strength=settings.l2_strength,
            penalty="elastic-net",
            intercept=True,
        )
        self.solution = cs.solve(problem, TOLERANCE)
        self.network = cs.reconstruct(self.solution)
        self._past = self._standardised(series)

    def forecast(self, n_steps: int) -> Any:
        """Continue the series from predictions alone."""
        known = self._past[-self._settings.window :].tolist()
        for _ in range(n_steps):
            inputs = self._currents(np.array(known[-self._settings.window :])[None])
            with torch.no_grad():
                known.append(float(self.network(inputs)[0, 0]))
        return np.array(known[self._settings.window :]) * self._scale + self._mean

    def _standardised(self, series: Any) -> Any:
        return (series - self._mean) / self._scale

    def _currents(self, windows: Any) -> torch.Tensor:
        """Return windows as constant currents, one input for each value."""
        own = torch.from_numpy(np.ascontiguousarray(windows)).float()
        return own[:, None].expand(-1, self._settings.n_steps, -1).contiguous()


def choose(tau: int) -> Settings:
    """Return the settings whose forecasts of the last quarters of training parts are best."""
    errors = []
    for settings in GRID:
        own = []
        for repeat in range(N_TUNED):
            train = mackey_glass(tau, start=repeat * 14.5 / (N_TUNED - 1)).train
            n_fitted = 3 * len(train) // 4
            model = Forecaster(train[:n_fitted], settings, child_seed(repeat, "forecasting", "tuning"))
            own.append(smape(model.forecast(len(train) - n_fitted), train[n_fitted:]))
        errors.append(float(np.mean(own)))
    return GRID[int(np.argmin(errors))]


def measure_spiking(tau: int, repeat: int, settings: Settings) -> dict[str, Any]:
    """Fit a spiking forecaster to a series, and score its forecast."""
    task = mackey_glass(tau, start=repeat / 2)
    begin = time.perf_counter()
    model = Forecaster(task.train, settings, child_seed(repeat, "forecasting"))
    fitted = time.perf_counter()
    forecast = model.forecast(len(task.test))
    return {
        "smape": smape(forecast, task.test),
        "gap": model.solution.certificate.relative_gap,
        "bytes": sum(part.numel() * part.element_size() for part in model.network.state_dict().values()),
        "settings": asdict(settings),
        "seconds": [round(fitted - begin, 3), round(time.perf_counter() - fitted, 3)],
    }


def measure_echo_state(tau: int, repeat: int) -> dict[str, Any]:
    """Fit an echo state network with the published settings to the same series."""
    size, bias_scale, input_scale, density, radius, leak, ridge = ECHO_STATE[tau]
    task = mackey_glass(tau, start=repeat / 2)
    rng = np.random.default_rng(child_seed(repeat, "echo state"))
    into = (rng.random((size, 2)) - 0.5) * [bias_scale, input_scale]
    among = np.where(rng.random((size, size)) <= density, rng.normal(size=(size, size)), 0.0)
    # The published code divides by the modulus of whichever eigenvalue comes first.
    among *= radius / np.abs(np.linalg.eigvals(among)[0])

    def advance(state: Any, value: float) -> Any:
        return (1 - leak) * state + leak * np.tanh(among @ state + into @ [1.0, value])

    begin, state, states = time.perf_counter(), np.zeros(size), []
    for value in task.train[:-1]:
        state = advance(state, value)
        states.append(np.concatenate(([1.0, value], state)))
    design, following = np.array(states[_WARM_UP:]), task.train[_WARM_UP + 1 :]
    readout = np.linalg.lstsq(design.T @ design + ridge * np.eye(size + 2), design.T @ following, rcond=None)[0]
    fitted, value, forecast = time.perf_counter(), task.train[-1], []
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in task.test:
            state = advance(state, value)
            value = float(np.concatenate(([1.0, value], state)) @ readout)
            forecast.append(value)
    return {
        "smape": smape(forecast, task.test),
        "bytes": 8 * (into.size + among.size + readout.size),
        "seconds": [round(fitted - begin, 3), round(time.perf_counter() - fitted, 3)],
    }


def read_records() -> list[dict[str, Any]]:
    """What has been measured."""
    return [json.loads(line) for line in RECORDS.read_text().splitlines()] if RECORDS.exists() else []


def keep(record: dict[str, Any]) -> None:
    """Add a record."""
    RECORDS.parent.mkdir(exist_ok=True)
    with RECORDS.open("a") as file:
        file.write(json.dumps(record) + "\n")


def render(records: Sequence[dict[str, Any]]) -> None:
    """Print the mean error for each delay."""
    table = make_table(
        "Mackey–Glass, sMAPE of free-running forecasts over ten Lyapunov times",
        "tau",
        "series",
        "spiking network",
        "echo state network",
        "largest gap",
        "bytes",
        "neighbours read",
    )
    both: dict[str, list[float]] = {"spiking": [], "echo state": []}
    for tau in TAUS:
        own = {model: [r for r in records if r["tau"] == tau and r["model"] == model] for model in both}
        if not own["spiking"] or not own["echo state"]:
            continue
        done = {r["repeat"] for r in own["spiking"]} & {r["repeat"] for r in own["echo state"]}
        means = {}
        for model, rows in own.items():
            errors = [r["smape"] for r in rows if r["repeat"] in done]
            both[model] += errors
            means[model] = float(np.mean(errors))
        table.add_row(
            str(tau),
            str(len(done)),
            f"{means['spiking']:.1f}",
            f"{means['echo state']:.1f}",
            f"{max(r['gap'] for r in own['spiking']):.0e}",
            f"{max(r['bytes'] for r in own['spiking']):,}",
            str(own["spiking"][0]["settings"]["width"]),
        )
    if both["spiking"]:
        table.add_row("all", str(len(both["spiking"])), *(f"{np.mean(errors):.2f}" for errors in both.values()))
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what there are no records of, and print all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks forecasting", description=__doc__)
    parser.add_argument("--repeats", type=int, default=30, help="series of each delay")
    parser.add_argument("--taus", nargs="+", type=int, choices=TAUS, default=TAUS, metavar="TAU")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    options = parser.parse_args([] if arguments is None else arguments)
    for tau in () if options.render else options.taus:
        done = {(r["model"], r["repeat"]) for r in read_records() if r["tau"] == tau}
        todo = [repeat for repeat in range(options.repeats) if ("spiking", repeat) not in done]
        settings = choose(tau) if todo else None
        for repeat in todo:
            assert settings is not None
            keep({"model": "spiking", "tau": tau, "repeat": repeat} | measure_spiking(tau, repeat, settings))
        for repeat in range(options.repeats):
            if ("echo state", repeat) not in done:
                keep({"model": "echo state", "tau": tau, "repeat": repeat} | measure_echo_state(tau, repeat))
    render(read_records())
