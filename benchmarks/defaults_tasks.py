"""Sequences with a class each: tasks of this project, and the classification sets that come inside aeon's wheel."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import cvxsnn as cs
from cvxsnn.data import Sequences
from cvxsnn.data.audio import speech_features
from cvxsnn.data.tasks import Task
from cvxsnn.data.tasks.spoken_digits import SAMPLE_RATE, Recording, read_recordings
from cvxsnn.data.tasks.spoken_digits import SPEAKERS as ALL_SPEAKERS

from .memory import data_directory

Inputs = npt.NDArray[np.float64] | list[npt.NDArray[np.float64]]
"""Shape (n_samples, n_steps, n_features), or one array (n_steps_i, n_features) per sequence."""

Load = Callable[[int], "list[Data]"]
"""The parts of a task that are learned with a seed."""

N_SEEDS = 3
"""Over which the parts of a task are divided, where there are several."""


class Data(NamedTuple):
    """Sequences with a class each."""

    X: Any
    y: npt.NDArray[Any]
    X_test: Any
    y_test: npt.NDArray[Any]

    def of_equal_length(self, n_steps: int = 1) -> "Data":
        """The same with arrays, padded with zeros at the end to the longest sequence, and to ``n_steps`` at least."""
        train, test = (Sequences.from_raw(part).inputs.numpy() for part in (self.X, self.X_test))
        n_steps = max(n_steps, train.shape[1], test.shape[1])
        train, test = (np.pad(part, ((0, 0), (0, n_steps - part.shape[1]), (0, 0))) for part in (train, test))
        return Data(train, self.y, test, self.y_test)

    def few(self, n_each: int = 5) -> "Data":
        """The first sequences of each class, and as many to test."""
        rows = np.sort(np.concatenate([np.flatnonzero(self.y == label)[:n_each] for label in np.unique(self.y)]))
        return Data(
            [self.X[row] for row in rows], self.y[rows], list(self.X_test[: len(rows)]), self.y_test[: len(rows)]
        )


def of(task: Task) -> Data:
    """A task with one class a sequence."""
    return Data(task.train.inputs, task.train.targets, task.test.inputs, task.test.targets)


def last_digit(base: int) -> Data:
    """The last digit of a sum, which depends on the carries of all before."""
    task = cs.tasks.addition(base=base, n_train=2000)
    return Data(task.train.inputs, task.train.heads["sum"][:, -1], task.test.inputs, task.test.heads["sum"][:, -1])


def speech(is_test: Callable[[Recording], bool]) -> Data:
    """Spoken digits, trained on all recordings that are not tested."""
    recordings = read_recordings(data_directory())
    features = np.stack([speech_features(own.waveform, SAMPLE_RATE) for own in recordings])
    digits, tested = np.array([own.digit for own in recordings]), np.array([is_test(own) for own in recordings])
    return Data(features[~tested], digits[~tested], features[tested], digits[tested])


def from_aeon(name: str) -> Data:
    """A set inside aeon's wheel, divided as it comes."""
    import aeon.datasets

    folder = str(Path(aeon.datasets.__file__).parent / "data")
    parts: list[Any] = []
    for split in ("train", "test"):
        X, y = aeon.datasets.load_classification(name, split=split, extract_path=folder)
        equal = isinstance(X, np.ndarray)
        parts += [X.transpose(0, 2, 1).copy() if equal else [series.T.copy() for series in X], y]
    return Data(*parts)


def always(load: Callable[[], Data]) -> Load:
    """The same data with every seed."""
    return lambda seed: [load()]


def divided(loads: Sequence[Callable[[], Data]]) -> Load:
    """Parts of few data, each of which is tested once by all seeds together."""
    return lambda seed: [load() for load in loads[seed % N_SEEDS :: N_SEEDS]]


def xor(n_steps: int) -> Load:
    """First-last-XOR."""
    return always(lambda: of(cs.tasks.first_last_xor(n_steps, n_train=2000, n_val=8, n_test=4000)))


def mnist(n_steps: int) -> Load:
    """MNIST in a few steps."""
    sizes = {"n_train": 2000, "n_val": 8, "n_test": 2000}
    return always(lambda: of(cs.tasks.mnist_seq(n_steps, **sizes, directory=data_directory())))


N_FOLDS = 10
FOLDS = [lambda fold=fold: speech(lambda own: own.take % N_FOLDS == fold) for fold in range(N_FOLDS)]
SPEAKERS = [lambda speaker=speaker: speech(lambda own: own.speaker == speaker) for speaker in ALL_SPEAKERS]

OWN: dict[str, Load] = {
    "addition base 3, last digit": always(lambda: last_digit(3)),
    "addition base 10, last digit": always(lambda: last_digit(10)),
    "first-last-XOR, T = 6": xor(6),
    "first-last-XOR, T = 8": xor(8),
    "first-last-XOR, T = 11": xor(11),
    "first-last-XOR, T = 14": xor(14),
    "digits, T = 2": always(lambda: of(cs.tasks.digits_seq(2))),
    "digits, T = 8": always(lambda: of(cs.tasks.digits_seq(8))),
    "MNIST-Seq, T = 2": mnist(2),
    "MNIST-Seq, T = 14": mnist(14),
    "MNIST-Seq, T = 28": mnist(28),
    "spoken digits, known speakers": divided(FOLDS),
    "spoken digits, unheard speaker": divided(SPEAKERS),
}
"""Tasks of this project."""

AEON: dict[str, Load] = {
    name: always(lambda name=name: from_aeon(name))  # type: ignore[misc]
    for name in (
        "GunPoint",
        "ItalyPowerDemand",
        "ArrowHead",
        "OSULeaf",
        "ACSF1",
        "BasicMotions",
        "JapaneseVowels",
        "PickupGestureWiimoteZ",
    )
}
"""Sets inside aeon's wheel."""

TASKS = OWN | AEON
