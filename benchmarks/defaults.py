"""The classifier as it comes, against the same classifier with the paper's fixed Gaussian family, on every task."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import cvxsnn as cs
from cvxsnn.tasks import Task

from .measure import console, make_table


class Data(NamedTuple):
    """Sequences with a class each."""

    X: npt.NDArray[np.float64]
    y: npt.NDArray[np.int64]
    X_test: npt.NDArray[np.float64]
    y_test: npt.NDArray[np.int64]


def of(task: Task) -> Data:
    """A task with one class a sequence."""
    return Data(task.train.inputs, task.train.targets, task.test.inputs, task.test.targets)


def last_digit(base: int) -> Data:
    """The last digit of a sum, which depends on the carries of all before."""
    task = cs.tasks.addition(base=base, n_train=2000)
    return Data(task.train.inputs, task.train.heads["sum"][:, -1], task.test.inputs, task.test.heads["sum"][:, -1])


XOR = {"n_train": 2000, "n_val": 8, "n_test": 4000}
MNIST = {"n_train": 2000, "n_val": 8, "n_test": 2000}
TASKS: dict[str, Callable[[], Data]] = {
    "addition base 3, last digit": lambda: last_digit(3),
    "addition base 10, last digit": lambda: last_digit(10),
    "first-last-XOR, T = 6": lambda: of(cs.tasks.first_last_xor(6, **XOR)),
    "first-last-XOR, T = 8": lambda: of(cs.tasks.first_last_xor(8, **XOR)),
    "first-last-XOR, T = 11": lambda: of(cs.tasks.first_last_xor(11, **XOR)),
    "first-last-XOR, T = 14": lambda: of(cs.tasks.first_last_xor(14, **XOR)),
    "digits, T = 2": lambda: of(cs.tasks.digits_seq(2)),
    "digits, T = 8": lambda: of(cs.tasks.digits_seq(8)),
    "MNIST-Seq, T = 2": lambda: of(cs.tasks.mnist_seq(2, **MNIST)),
    "MNIST-Seq, T = 14": lambda: of(cs.tasks.mnist_seq(14, **MNIST)),
    "MNIST-Seq, T = 28": lambda: of(cs.tasks.mnist_seq(28, **MNIST)),
    "spoken digits": lambda: of(cs.tasks.spoken_digits()),
    "spoken digits, unheard speaker": lambda: of(cs.tasks.spoken_digits(split="speakers")),
}
FIXED = {"one layer of 1,024": (1024,), "512 and 1,024": (512, 1024)}
SEEDS = (0, 1, 2)


def fit(data: Data, seed: int, **options: object) -> tuple[float, float]:
    """Test accuracy, and the seconds it took to get there."""
    begin = time.perf_counter()
    model = cs.SpikingClassifier(**options, random_state=seed).fit(data.X, data.y)
    return float(model.score(data.X_test, data.y_test)), time.perf_counter() - begin


def main(names: Sequence[str] = ()) -> None:
    """Fit everything, or the tasks that are named, and print means over seeds."""
    columns = [f"gaussian, {name}" for name in FIXED]
    table = make_table(f"Test accuracy (seconds), means of {len(SEEDS)} seeds", "task", *columns, "default")
    for name in names or TASKS:
        data = TASKS[name]()
        choices = [*({"witnesses": "gaussian", "hidden": hidden} for hidden in FIXED.values()), {}]
        found = [np.mean([fit(data, seed, **options) for seed in SEEDS], axis=0) for options in choices]
        cells = [f"{score:.4f} ({seconds:.0f})" for score, seconds in found]
        is_best = found[-1][0] >= max(score for score, _ in found[:-1])
        table.add_row(name, *cells[:-1], f"[bold]{cells[-1]}[/bold]" if is_best else cells[-1])
        console.print(f"{name}: {', '.join(cells)}")
    console.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
