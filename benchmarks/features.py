"""Features of series: spike counts of sampled neurons with delays beside those of MiniRocket, which are counts too.

Both transform the same series into as many features, on as many threads: neurons with nine dilated taps of weights -1
and 2, without memory and with a leak, and MiniRocket of aeon. Needs the extra ``bench`` and aeon (pip install aeon).
"""

import warnings

import numpy as np
import torch

import cvxsnn as cs
from cvxsnn.neurons import count_spikes

from .measure import best_seconds, console, make_table, verdict
from .memory import data_directory

N_NEURONS = 4096
GOALS = {"without memory": 3.0, "with a leak": 6.0}


def load_series() -> dict[str, np.ndarray]:
    """Series of shape (n_samples, n_steps, n_features)."""
    from aeon.datasets import load_osuleaf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        leaves = np.concatenate([load_osuleaf(split=split)[0] for split in ("train", "test")])
    task = cs.tasks.mnist_seq(28, n_train=2000, n_val=1, n_test=1, directory=data_directory())
    return {"OSULeaf": np.ascontiguousarray(leaves.transpose(0, 2, 1)), "MNIST in 28 steps": task.train.inputs}


def main() -> None:
    """Print one row for each set of series."""
    from aeon.transformations.collection.convolution_based import MiniRocket

    n_threads = torch.get_num_threads()
    table = make_table(
        f"Seconds for {N_NEURONS:,} features, {n_threads} threads",
        "series",
        "MiniRocket",
        *(f"neurons {k}" for k in GOALS),
    )
    for name, series in load_series().items():
        rocket = MiniRocket(n_kernels=N_NEURONS, n_jobs=n_threads, random_state=0)
        collection = np.ascontiguousarray(series.transpose(0, 2, 1), dtype=np.float32)
        rocket.fit(collection)
        contenders = {"MiniRocket": lambda rocket=rocket, own=collection: rocket.transform(own)}
        inputs = torch.from_numpy(np.asarray(series, dtype=np.float64))
        for kind, decay in (("without memory", 0.0), ("with a leak", 0.5)):
            family = {"geometry": "dilated", "fan_in": 9, "weights": "two-valued", "decay": decay}
            layers = cs.delayed_witnesses(inputs, (N_NEURONS,), **family).layers  # type: ignore[arg-type]
            contenders[kind] = lambda layers=layers, own=inputs: count_spikes(layers, own)
        seconds = best_seconds(contenders, 5)
        ratios = {kind: seconds[kind] / seconds["MiniRocket"] for kind in GOALS}
        cells = [
            verdict(f"{seconds[kind]:.3f}, {ratios[kind]:.1f} x", f"{goal:g} x", ratios[kind] <= goal)
            for kind, goal in GOALS.items()
        ]
        table.add_row(f"{name}, {' x '.join(map(str, series.shape))}", f"{seconds['MiniRocket']:.3f}", *cells)
    console.print(table)
