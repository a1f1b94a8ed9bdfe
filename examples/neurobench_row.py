"""A row for NeuroBench's leaderboard.

python examples/neurobench_row.py                                       # Mackey–Glass, delay 17: one series
python examples/neurobench_row.py --tau 17 18 --starts 30               # 30 series of each delay, as NeuroBench has it
python examples/neurobench_row.py --model model.safetensors --data test.npz --task "my task"
python examples/neurobench_row.py --quick                               # a small one

Without a model, a network is fitted to each series of the Mackey–Glass equation: integrate-and-fire neurons read the
last values as constant currents, and a certified ridge regression on their spike counts predicts the next value. The
forecast goes on from its own predictions. A saved classifier or regressor is measured on the arrays X and y of a data
file. Synaptic operations are those of one prediction or one sample.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import cvxsnn as cs
from cvxsnn.core.errors import CvxsnnError
from cvxsnn.data.tasks import mackey_glass


def fit_forecaster(series: np.ndarray, n_neurons: int, window: int, n_steps: int) -> Any:
    """Fit a network to a series, and return it as a model of NeuroBench, and its certificate."""
    from cvxsnn.exchange.neurobench import NeuroBenchForecaster

    def encode(known: torch.Tensor) -> torch.Tensor:
        """Return windows (n, window, 1) as constant currents, one input for each value."""
        return known[:, None, :, 0].float().expand(-1, n_steps, -1).contiguous()

    mean, spread = float(series.mean()), float(series.std())
    X, y = cs.make_windows((series - mean) / spread, window)
    currents = encode(torch.from_numpy(X))
    # Neurons read three neighbouring values, less a quantile of what these give on the series.
    taps = {"geometry": "box", "box": (1, 3), "fan_in": None, "max_delay": 0}
    drawn = cs.delayed_witnesses(currents[:, :1], (n_neurons,), **taps, threshold=1.0, quantiles=(0.02, 0.98))
    (layer,) = drawn.layers
    # Without a leak they count: membranes that start half a threshold below zero round to the nearest.
    layer = replace(layer, decay=torch.tensor(1.0), initial_membrane=-layer.threshold / 2)
    dictionary = cs.build_dictionary(replace(drawn, layers=(layer,)), currents, "mean")
    problem = cs.ConvexProblem(dictionary, y, "squared", 0.0, l2_strength=1e-5, penalty="elastic-net", intercept=True)
    solution = cs.solve(problem)
    model = NeuroBenchForecaster(
        cs.reconstruct(solution), series[:-1], window=window, encode=encode, standard=(mean, spread)
    )
    return model, solution.certificate


def series_row(tau: int, start: float, n_neurons: int, n_points: int, window: int, n_steps: int) -> Any:
    """Fit a network to one series, and measure its forecast."""
    from cvxsnn.exchange.neurobench import leaderboard_row

    task = mackey_glass(tau, start=start, n_train=n_points, n_test=n_points)
    model, certificate = fit_forecaster(task.train, n_neurons, window, n_steps)
    print(f"tau {tau}, start {start:g}: {certificate}")
    # NeuroBench shows the last known value, and then those that are to be forecast, which the model does not look at.
    shown = np.append(task.train[-1], task.test[:-1])[:, None, None]
    return leaderboard_row(f"Mackey–Glass {tau}", model, shown, task.test[:, None], metric="SMAPE")


def saved_row(model_file: Path, data_file: Path, task: str, batch_size: int) -> Any:
    """Measure a saved estimator on the arrays of a file."""
    from cvxsnn.exchange.neurobench import NeuroBenchNetwork, leaderboard_row

    model = cs.load(model_file)
    with np.load(data_file) as data:
        X, y = data["X"], data["y"]
    is_classifier = isinstance(model, cs.SpikingClassifier)
    if is_classifier and y.dtype.kind not in "biuf":
        y = np.searchsorted(model.classes_, y)  # NeuroBench compares numbers
    metric = "ClassificationAccuracy" if is_classifier else "SMAPE"
    return leaderboard_row(task, NeuroBenchNetwork(model), X, y, metric=metric, batch_size=batch_size)


def main() -> None:
    """Print a row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a file that cvxsnn.save has written")
    parser.add_argument("--data", type=Path, help="an npz file with arrays X and y")
    parser.add_argument("--task", default="task", help="the name in the row")
    parser.add_argument("--batch-size", type=int, default=16, help="samples at once")
    parser.add_argument("--tau", type=int, nargs="+", default=[17], help="delays of the equation, 17 to 30")
    parser.add_argument("--starts", type=int, default=1, help="series of each delay")
    parser.add_argument("--neurons", type=int, default=3000, help="neurons of each network")
    parser.add_argument("--window", type=int, default=24, help="past values that a prediction reads")
    parser.add_argument("--steps", type=int, default=64, help="steps for which the values are applied")
    parser.add_argument("--quick", action="store_true", help="short series and few neurons")
    options = parser.parse_args()
    if (options.model is None) != (options.data is None):
        parser.error("give both --model and --data, or neither")
    try:
        from cvxsnn.exchange.neurobench import LeaderboardRow

        if options.model is not None:
            print(saved_row(options.model, options.data, options.task, options.batch_size))
            return
        size = (64, 150, 10, 8) if options.quick else (options.neurons, 750, options.window, options.steps)
        rows = [series_row(tau, number / 2, *size) for tau in options.tau for number in range(options.starts)]
        print(LeaderboardRow.mean(f"Mackey–Glass, {len(rows)} series", rows))
    except CvxsnnError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
