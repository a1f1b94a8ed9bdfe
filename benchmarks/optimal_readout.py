"""Few trained neurons by three methods: the read-out trained too, solved for at the end, or optimal at all times."""

import time
from typing import Any

import cvxsnn as cs
from cvxsnn.data.tasks import Task, mnist_seq
from cvxsnn.fitting import SurrogateSettings

from .measure import console, make_table
from .memory import data_directory

N_TRAIN, N_NEURONS, N_TEST = 2000, 64, 2000
SEEDS = (0, 1, 2)
RATES = (0.003, 0.01, 0.03, 0.1)
FAMILY = {"geometry": "box", "box": (12, 28), "max_delay": 11, "fan_in": None, "weights": "differences"}
"""Each neuron reads the last 12 steps of all 28 features."""

METHODS = ("sg", "sg-cvx", "varpro")


def best_fit(task: Task, method: str, seed: int) -> tuple[cs.SpikingClassifier, float, float]:
    """Return the model of the learning rate that validates best, its seconds, and those of all."""
    fits = []
    for rate in RATES:
        surrogate = SurrogateSettings(
            epochs=40, batch_size=32, learning_rate=rate, steepness=0.5, train_decay=False, train_threshold=False
        )
        common: dict[str, Any] = {"witnesses": FAMILY, "surrogate": surrogate, "standardize": False}
        model = cs.SpikingClassifier(method, (N_NEURONS,), random_state=seed, **common)
        begin = time.perf_counter()
        model.fit(task.train.inputs, task.train.heads["label"])
        fits.append((model, time.perf_counter() - begin))
    model, seconds = max(fits, key=lambda fit: fit[0].history_[-1].score)
    return model, seconds, sum(seconds for _, seconds in fits)


def main() -> None:
    """Print test accuracies, each at the learning rate that validates best."""
    task = mnist_seq(28, n_train=N_TRAIN, n_test=10_000, directory=data_directory())
    columns = ("method", "learning rates", f"first {N_TEST:,}", "all 10,000", "largest gap", "seconds", "of all rates")
    table = make_table(f"{N_NEURONS} neurons on MNIST-Seq, {N_TRAIN:,} training images, seeds {SEEDS}", *columns)
    for method in METHODS:
        rates, first, every, gaps, times = [], [], [], [], []
        for seed in SEEDS:
            model, *seconds = best_fit(task, method, seed)
            hits = model.predict(task.test.inputs) == task.test.heads["label"]
            rates.append(f"{model.surrogate.learning_rate:g}")
            first.append(f"{hits[:N_TEST].mean():.3f}")
            every.append(f"{hits.mean():.3f}")
            gaps += [] if model.certificate_ is None else [model.certificate_.relative_gap]
            times.append(seconds)
        gap = f"{max(gaps):.0e}" if gaps else "none"
        means = [f"{sum(column) / len(SEEDS):.0f}" for column in zip(*times, strict=True)]
        table.add_row(method, *map(" ".join, (rates, first, every)), gap, *means)
    console.print(table)
