"""Chaotic series, forecast from their own predictions: the Mackey–Glass task of NeuroBench.

A spiking network reads the last values of the series as constant currents. Each of its integrate-and-fire neurons sums
a few neighbouring values, and the network counts their spikes. The read-out of the counts is a certified ridge
regression on the next value. Each series has a network of its own, as in NeuroBench. One setting for all delays of the
equation is chosen on series that begin after those of the test have ended. NeuroBench's echo state networks are fitted
to and scored on the same series, with three kinds of settings: those of its leaderboard, which is about delay 17 alone;
those that its repository has for each delay; and, of the size of the leaderboard's, the best of many for each delay,
chosen on the same later series. What is measured is kept as one JSON object a line in ``results/forecasting.jsonl``; a
run that was interrupted goes on where it stopped.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import cvxsnn as cs
from cvxsnn.core.seeds import child_seed
from cvxsnn.data.tasks import mackey_glass, smape
from cvxsnn.neurons.exact import snap_inputs
from cvxsnn.witnesses import WitnessSet, delayed_witnesses

from .echo_state import LEADERBOARD, PUBLISHED, EchoStateNetwork, EchoStateSettings, draw_settings
from .lines import add_line, read_lines
from .measure import console, make_table

RECORDS = Path(__file__).parent / "results" / "forecasting.jsonl"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "mackey-glass.png"
TAUS = range(17, 31)
TOLERANCE = 1e-6
LATER = (40.0, 45.0, 50.0)
"""Where the series begin that choose settings, in Lyapunov times; those of the test end at 34.5."""

TUNED_TAUS = range(17, 31, 2)
"""Delays whose later series choose the setting of the spiking network."""

MUCH_LATER = tuple(np.arange(55.0, 111.0, 5.0).tolist())
"""Further series for the best settings of an echo state network."""

N_ECHO_STATE_SETTINGS, N_SECOND_ROUND = 100, 10


@dataclass(frozen=True)
class Settings:
    """Of a spiking forecaster.

    Parameters
    ----------
    width : int
        Neighbouring values that a neuron reads.
    threshold : float
        What a spike subtracts from a membrane, in standard deviations of the current. A neuron fires at most once a
        step, so currents above it make no difference.
    l2_strength : float
        The strength of the ridge.
    window : int
        Values of the past that the network reads.
    n_neurons : int
        The number of neurons.
    n_steps : int
        Steps for which the values are applied.
    """

    width: int = 3
    threshold: float = 1.5
    l2_strength: float = 1e-6
    window: int = 24
    n_neurons: int = 3000
    n_steps: int = 64


GRID = [Settings(*own) for own in product((2, 3, 4), (1.0, 1.5, 2.0), (1e-5, 1e-6, 1e-7))]


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
        self._past = (series - self._mean) / self._scale
        windows, following = cs.make_windows(self._past, settings.window)
        inputs = self.currents(windows[:, :, 0])
        witnesses = integrators(inputs, settings.n_neurons, settings.width, settings.threshold, seed)
        self._problem = cs.ConvexProblem(
            cs.build_dictionary(witnesses, inputs, "mean"),
            following,
            "squared",
            0.0,
            l2_strength=settings.l2_strength,
            penalty="elastic-net",
            intercept=True,
        )
        self._read(self._problem)

    def with_strength(self, l2_strength: float) -> "Forecaster":
        """The same neurons, read with another strength."""
        own = object.__new__(type(self))
        own.__dict__.update(self.__dict__)
        own._settings = replace(self._settings, l2_strength=l2_strength)
        own._read(self._problem.with_strength(0.0, l2_strength))
        return own

    @torch.no_grad()
    def forecast(self, n_steps: int) -> Any:
        """Continue the series from predictions alone.

        The current of a window is the same at all steps, so it is computed once. That the network itself predicts the
        same from the same windows is checked in the end.
        """
        network, window = self.network, self._settings.window
        (layer,) = network.layers
        weight = torch.zeros(1, window, layer.width, dtype=torch.float64)
        weight.scatter_add_(1, layer.source.long(), layer.weight.double())
        known = np.concatenate((self._past[-window:], np.zeros(n_steps)))
        for step in range(n_steps):
            values = snap_inputs(torch.from_numpy(known[step : step + window]).float()).double()
            drive = (values[None, None] @ weight).to(layer.weight.dtype) + layer.bias[:, None]
            state, counts = layer.initial_state(1), torch.zeros(1, 1, layer.width)
            for _ in range(self._settings.n_steps):
                layer.step(drive, state)
                counts += state.spikes
            features = counts[0, :, network.neurons].double() / self._settings.n_steps
            known[window + step] = float((features @ network.weight + network.intercept)[0, 0])
        visited = np.lib.stride_tricks.sliding_window_view(known[:-1], window)
        again = self._read_in_parts(visited) @ network.weight + network.intercept
        difference = np.abs(again[:, 0].numpy() - known[window:]).max()
        if not difference < 1e-9:
            raise AssertionError(f"the network predicts something else, by {difference}")
        return known[window:] * self._scale + self._mean

    def costs(self) -> dict[str, float]:
        """What NeuroBench's metrics are for this network, and operations of one prediction.

        Numbers of the first layer and its neurons have four bytes, those of the read-out and of the window eight, and
        sources and delays one. Spikes are those on the training part.
        """
        (layer,), n_steps = self.network.layers, self._settings.n_steps
        n_shared = sum(1 for own in (layer.decay, layer.initial_spikes) if own.numel())
        per_neuron = layer.n_taps * (4 + 1 + 1) + 3 * 4 + 8
        rate = float(self._read_in_parts(cs.make_windows(self._past, self._settings.window)[0][:, :, 0]).mean())
        n_synapses = layer.n_taps * layer.width
        n_zero = int((layer.weight == 0).sum()) + int((self.network.weight == 0).sum())
        return {
            "bytes": per_neuron * layer.width + 4 * n_shared + 8 * (self._settings.window + 1),
            "connection_sparsity": n_zero / (n_synapses + layer.width),
            "activation_sparsity": 1 - rate,
            "dense": n_steps * (n_synapses + layer.width),
            "macs": n_steps * n_synapses,
            "acs": n_steps * layer.width * rate,
        }

    def currents(self, windows: Any) -> torch.Tensor:
        """Windows as constant currents, one input for each value."""
        own = torch.tensor(np.asarray(windows), dtype=torch.float32)
        return own[:, None].expand(-1, self._settings.n_steps, -1).contiguous()

    def _read(self, problem: cs.ConvexProblem) -> None:
        self.solution = cs.solve(problem, TOLERANCE)
        self.network = cs.reconstruct(self.solution)

    def _read_in_parts(self, windows: Any) -> torch.Tensor:
        parts = [windows[first : first + 100] for first in range(0, len(windows), 100)]
        return torch.cat([self.network.features(self.currents(part)) for part in parts])


def integrators(inputs: torch.Tensor, n_neurons: int, width: int, threshold: float, seed: int) -> WitnessSet:
    """Neurons that integrate a constant current, less a quantile of the currents on training data, without a leak."""
    drawn = delayed_witnesses(
        inputs[:, :1],
        (n_neurons,),
        geometry="box",
        box=(1, width),
        fan_in=None,
        max_delay=0,
        threshold=threshold,
        quantiles=(0.02, 0.98),
        n_calibration=len(inputs),
        seed=seed,
    )
    (layer,) = drawn.layers
    # Membranes that start half a threshold below zero round the count to the nearest.
    return replace(drawn, layers=(replace(layer, decay=torch.tensor(1.0), initial_membrane=-layer.threshold / 2),))


def tune_spiking() -> Settings:
    """The setting of the grid whose forecasts of later series are best, the mean over delays and series."""
    done = {(r["tau"], r["start"], Settings(**r["settings"])): r["smape"] for r in of_kind("tuning", "spiking")}
    for tau, start in product(TUNED_TAUS, LATER[:2]):
        task, fitted = mackey_glass(tau, start=start), {}
        for own in GRID:
            if (tau, start, own) in done:
                continue
            family = (own.width, own.threshold)
            if family not in fitted:
                fitted = {family: Forecaster(task.train, own, child_seed(int(start), "forecasting", "tuning"))}
            error = smape(fitted[family].with_strength(own.l2_strength).forecast(len(task.test)), task.test)
            keep("tuning", "spiking", tau, start, own, {"smape": error})
            done[tau, start, own] = error
    means = [np.mean([done[tau, start, own] for tau, start in product(TUNED_TAUS, LATER[:2])]) for own in GRID]
    return GRID[int(np.argmin(means))]


def tune_echo_state(tau: int) -> EchoStateSettings:
    """The best of many settings for the later series of a delay, of the size of the leaderboard's network.

    Some diverge on a few series only, so the best of a first round are compared on more series.
    """
    found = of_kind("tuning", "echo state, tuned")
    done = {(r["start"], EchoStateSettings(**r["settings"])): r["smape"] for r in found if r["tau"] == tau}

    def rank(grid: Sequence[EchoStateSettings], starts: Sequence[float]) -> list[EchoStateSettings]:
        for start, own in product(starts, grid):
            if (start, own) not in done:
                task = mackey_glass(tau, start=start)
                model = EchoStateNetwork(task.train, own, child_seed(int(start), "forecasting", "tuning"))
                done[start, own] = smape(model.forecast(len(task.test)), task.test)
                keep("tuning", "echo state, tuned", tau, start, own, {"smape": done[start, own]})
        return sorted(grid, key=lambda own: float(np.mean([done[start, own] for start in starts])))

    first = rank(draw_settings(N_ECHO_STATE_SETTINGS, LEADERBOARD.size, seed=tau), LATER)
    return rank(sorted({*first[:N_SECOND_ROUND], LEADERBOARD}, key=astuple), LATER + MUCH_LATER)[0]


@cache
def chosen_settings(model: str, tau: int) -> Any:
    """The setting that was chosen."""
    return tune_spiking() if model == "spiking" else tune_echo_state(tau)


MODELS: dict[str, Callable[[int], tuple[type, Any]]] = {
    "spiking": lambda tau: (Forecaster, chosen_settings("spiking", 0)),
    "echo state, leaderboard": lambda tau: (EchoStateNetwork, LEADERBOARD),
    "echo state, tuned": lambda tau: (EchoStateNetwork, chosen_settings("echo state", tau)),
    "echo state, published": lambda tau: (EchoStateNetwork, PUBLISHED[tau]),
}
"""A class and the settings for a delay."""


def measure(name: str, tau: int, repeat: int) -> None:
    """Fit a model to a series, score its forecast, and keep what was found."""
    kind, settings = MODELS[name](tau)
    task = mackey_glass(tau, start=repeat / 2)
    begin = time.perf_counter()
    model = kind(task.train, settings, child_seed(repeat, "forecasting"))
    fitted = time.perf_counter()
    error = smape(model.forecast(len(task.test)), task.test)
    found = {"smape": error, "seconds": [round(fitted - begin, 3), round(time.perf_counter() - fitted, 3)]}
    if isinstance(model, Forecaster):
        found["gap"] = model.solution.certificate.relative_gap
    keep("test", name, tau, repeat / 2, settings, found | model.costs())


def keep(kind: str, model: str, tau: int, start: float, settings: Any, found: Mapping[str, Any]) -> None:
    """Add a record."""
    what = {"kind": kind, "model": model, "tau": tau, "start": start}
    add_line(RECORDS, {**what, "settings": asdict(settings), **found})


def of_kind(kind: str, model: str) -> list[dict[str, Any]]:
    """The records of a model."""
    return [r for r in read_lines(RECORDS) if (r["kind"], r["model"]) == (kind, model)]


def render() -> None:
    """Print the mean errors for each delay and over all, and what the models cost."""
    tests = {name: of_kind("test", name) for name in MODELS}
    tests = {name: rows for name, rows in tests.items() if rows}
    table = make_table(
        "Mackey–Glass, sMAPE of free-running forecasts over ten Lyapunov times (series)", "tau", *tests, "largest gap"
    )
    for tau in (*TAUS, None):
        own = {name: [r for r in rows if tau in (None, r["tau"])] for name, rows in tests.items()}
        gaps = [r["gap"] for rows in own.values() for r in rows if "gap" in r]
        cells = (f"{np.mean([r['smape'] for r in rows]):.2f} ({len(rows)})" if rows else "" for rows in own.values())
        table.add_row("all" if tau is None else str(tau), *cells, f"{max(gaps):.0e}" if gaps else "")
    console.print(table)
    names = ("bytes", "connection_sparsity", "activation_sparsity", "dense", "macs", "acs")
    costs = make_table("Costs: means over all series, operations of one prediction", "model", *names, "seconds")
    for model, rows in tests.items():
        means = [float(np.mean([r[name] for r in rows])) for name in names]
        seconds = np.mean([sum(r["seconds"]) for r in rows])
        cells = (f"{m:,.3f}" if "sparsity" in n else f"{m:,.0f}" for n, m in zip(names, means, strict=True))
        costs.add_row(model, *cells, f"{seconds:.1f}")
    console.print(costs)
    for r in of_kind("test", "spiking")[:1]:
        console.print(f"chosen for the spiking network: {r['settings']}")


def median_start(tau: int) -> float:
    """Where the series begins for which the error of the spiking network is the median."""
    rows = sorted((r["smape"], r["start"]) for r in of_kind("test", "spiking") if r["tau"] == tau)
    return float(rows[len(rows) // 2][1])


def draw(tau: int, start: float, path: Path) -> None:
    """Draw one forecast of each model that has the footprint of the leaderboard's."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    task = mackey_glass(tau, start=start)
    times = np.arange(1, len(task.test) + 1) / 75
    figure, axes = plt.subplots(2, 1, figsize=(10, 4.6), sharex=True, sharey=True, layout="constrained")
    for axis, (name, colour) in zip(axes, {"spiking": "#0072B2", "echo state, tuned": "#D55E00"}.items(), strict=True):
        kind, settings = MODELS[name](tau)
        forecast = kind(task.train, settings, child_seed(int(2 * start), "forecasting")).forecast(len(task.test))
        axis.plot(times, task.test, color="black", linewidth=1, label="series")
        label = f"{name.split(',')[0]} network, sMAPE {smape(forecast, task.test):.1f}"
        axis.plot(times, forecast, color=colour, linewidth=1, linestyle="--", label=label)
        axis.set(ylabel="value")
        axis.legend(fontsize=8, loc="upper right", ncols=2)
    axes[1].set(xlabel="Lyapunov times since the last known value")
    axes[0].set_title(f"Mackey–Glass, delay {tau}: forecasts from predictions alone", loc="left", fontsize=10)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    console.print(f"saved: {path}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what there are no records of, and print all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks forecasting", description=__doc__)
    parser.add_argument("--repeats", type=int, default=30, help="series of each delay")
    parser.add_argument("--taus", nargs="+", type=int, choices=TAUS, default=TAUS, metavar="TAU")
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=tuple(MODELS), metavar="MODEL")
    parser.add_argument("--picture", action="store_true", help="draw the forecasts of one series of delay 17")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    options = parser.parse_args([] if arguments is None else arguments)
    torch.set_num_threads(1)
    for name in () if options.render else options.models:
        done = {(r["tau"], r["start"]) for r in of_kind("test", name)}
        for repeat, tau in product(range(options.repeats), options.taus):
            if (tau, repeat / 2) not in done:
                measure(name, tau, repeat)
    if options.picture:
        draw(17, median_start(17), PICTURE)
    render()
