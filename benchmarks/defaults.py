"""The classifier as it comes, against the same classifier with the paper's fixed Gaussian family, on every task."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import joblib
import numpy as np
import numpy.typing as npt
import torch

import cvxsnn as cs
from cvxsnn.data.audio import speech_features
from cvxsnn.data.tasks import Task, speech_files

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


def speech(is_test: Callable[[speech_files.Recording], bool]) -> Data:
    """Spoken digits, trained on all recordings that are not tested."""
    recordings = speech_files.read_recordings()
    features = np.stack([speech_features(own.waveform, speech_files.SAMPLE_RATE) for own in recordings])
    digits, tested = np.array([own.digit for own in recordings]), np.array([is_test(own) for own in recordings])
    return Data(features[~tested], digits[~tested], features[tested], digits[tested])


XOR = {"n_train": 2000, "n_val": 8, "n_test": 4000}
MNIST = {"n_train": 2000, "n_val": 8, "n_test": 2000}
N_FOLDS = 10
TASKS: dict[str, Sequence[Callable[[], Data]]] = {
    "addition base 3, last digit": 3 * [lambda: last_digit(3)],
    "addition base 10, last digit": 3 * [lambda: last_digit(10)],
    "first-last-XOR, T = 6": 3 * [lambda: of(cs.tasks.first_last_xor(6, **XOR))],
    "first-last-XOR, T = 8": 3 * [lambda: of(cs.tasks.first_last_xor(8, **XOR))],
    "first-last-XOR, T = 11": 3 * [lambda: of(cs.tasks.first_last_xor(11, **XOR))],
    "first-last-XOR, T = 14": 3 * [lambda: of(cs.tasks.first_last_xor(14, **XOR))],
    "digits, T = 2": 3 * [lambda: of(cs.tasks.digits_seq(2))],
    "digits, T = 8": 3 * [lambda: of(cs.tasks.digits_seq(8))],
    "MNIST-Seq, T = 2": 3 * [lambda: of(cs.tasks.mnist_seq(2, **MNIST))],
    "MNIST-Seq, T = 14": 3 * [lambda: of(cs.tasks.mnist_seq(14, **MNIST))],
    "MNIST-Seq, T = 28": 3 * [lambda: of(cs.tasks.mnist_seq(28, **MNIST))],
    "spoken digits, known speakers": [
        lambda fold=fold: speech(lambda own: own.take % N_FOLDS == fold) for fold in range(N_FOLDS)
    ],
    "spoken digits, unheard speaker": [
        lambda speaker=speaker: speech(lambda own: own.speaker == speaker) for speaker in speech_files.SPEAKERS
    ],
}
"""What each run learns: the same data with three seeds, or, of the few recordings, each part tested once."""

CHOICES: dict[str, dict[str, Any]] = {
    "gaussian, one layer": {"witnesses": "gaussian"},
    "gaussian, two layers": {"witnesses": "gaussian", "hidden": (512, 1024), "n_subnetworks": 4},
    "default": {},
}


def fit(task: str, run: int, choice: str) -> tuple[str, str, float, float]:
    """The task and choice, test accuracy, and the seconds of one thread that the fit took."""
    torch.set_num_threads(1)
    data = TASKS[task][run]()
    begin = time.perf_counter()
    model = cs.SpikingClassifier(**CHOICES[choice], random_state=run).fit(data.X, data.y)
    seconds = time.perf_counter() - begin
    return task, choice, float(model.score(data.X_test, data.y_test)), seconds


def main(names: Sequence[str] = ()) -> None:
    """Fit everything, or the tasks that are named, side by side, and print means over runs."""
    jobs = [(name, run, choice) for name in names or TASKS for run in range(len(TASKS[name])) for choice in CHOICES]
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    # The slow tasks are last in the list: they go first, so that none is left alone at the end.
    parallel = joblib.Parallel(n_jobs=-1, return_as="generator_unordered")
    for task, choice, score, seconds in parallel(joblib.delayed(fit)(*job) for job in reversed(jobs)):
        found.setdefault((task, choice), []).append((score, seconds))
        console.print(f"{task}, {choice}: {score:.4f} ({seconds:.0f} s)")
    table = make_table("Test accuracy (seconds), means over runs", "task", *CHOICES, "runs")
    for name in names or TASKS:
        means = [np.mean(found[name, choice], axis=0) for choice in CHOICES]
        cells = [f"{score:.4f} ({seconds:.0f})" for score, seconds in means]
        is_best = means[-1][0] >= max(score for score, _ in means[:-1])
        table.add_row(name, *cells[:-1], f"[bold]{cells[-1]}[/bold]" if is_best else cells[-1], str(len(TASKS[name])))
    console.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
