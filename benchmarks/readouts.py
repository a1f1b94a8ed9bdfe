"""The optimal read-out of three tutorials' networks, against going on with training.

Each network is trained as its tutorial does by the script in examples/, first for one epoch, then until the accuracy on
validation images stops rising. At both points the read-out is solved for, and training goes on as well: for one epoch
more, and for as long as the read-out took. Needs MNIST in the folder that CVXSNN_DATA names, or downloads it.
"""

import copy
import logging
import math
import runpy
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import cvxsnn as cs

from .measure import console, make_table

logging.getLogger("torch._library.triton").setLevel(logging.ERROR)  # SpikingJelly asks for a GPU's compiler

EXAMPLES = Path(__file__).parents[1] / "examples"
NETWORKS = {"snnTorch": "snntorch_readout.py", "SpikingJelly": "spikingjelly_readout.py", "Norse": "norse_readout.py"}
SEEDS = (0, 1, 2)
N_TRAIN, N_VALIDATION, N_AT_ONCE = 4_000, 2_000, 500
PATIENCE, MOST_EPOCHS = 2, 12
"""Epochs without a rise that end training, and the most to choose among."""


@dataclass
class Course:
    """A network's training, an epoch at a time, with the weights after each.

    Attributes
    ----------
    example : dict, what its script defines
    data : list of Tensor, images and labels to train on, to validate on, and to test
    seed : int
    """

    example: dict[str, Any]
    data: list[Tensor]
    seed: int
    states: list[dict[str, Tensor]] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """A network before its first epoch."""
        torch.manual_seed(self.seed)
        self.model: nn.Module = self.example["Net"](self.data[0].shape[1])
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.example["LEARNING_RATE"])
        self.random_state = torch.get_rng_state()

    def go_on(self, n_epochs: int) -> None:
        """Train until so many epochs are done."""
        while len(self.states) < n_epochs:
            torch.set_rng_state(self.random_state)
            begin = time.process_time()
            self.example["train_epoch"](self.model, self.optimizer, *self.data[:2])
            self.seconds.append(time.process_time() - begin)
            self.validation.append(self.example["accuracy"](self.model, *self.data[2:4]))
            self.states.append(copy.deepcopy(self.model.state_dict()))
            self.random_state = torch.get_rng_state()

    def converge(self) -> int:
        """Train until validation accuracy has stopped rising; the epoch at which it was highest."""
        while (best := 1 + int(np.argmax(self.validation))) + PATIENCE > len(self.states) < MOST_EPOCHS:
            self.go_on(len(self.states) + 1)
        return best

    def at(self, epoch: int) -> nn.Module:
        """A network as it was after an epoch."""
        self.go_on(epoch)
        model = self.example["Net"](self.data[0].shape[1])
        model.load_state_dict(self.states[epoch - 1])
        return model

    def test(self, model: nn.Module, layer: str) -> tuple[float, float]:
        """Test accuracy of what a network decides, and of a layer's mean output over the steps.

        Networks that draw random numbers draw the same.
        """
        images, labels = self.data[4:]
        calls: list[Tensor] = []
        hook = model.get_submodule(layer).register_forward_hook(lambda *call: calls.append(call[2].detach()))
        torch.manual_seed(1000 + self.seed)
        n_right, n_layer = 0.0, 0
        for batch, own in zip(images.split(N_AT_ONCE), labels.split(N_AT_ONCE), strict=True):
            calls.clear()
            n_right += len(own) * self.example["accuracy"](model, batch, own)
            n_layer += int((sum(calls).argmax(1) == own).sum())  # type: ignore[attr-defined]
        hook.remove()
        return n_right / len(labels), n_layer / len(labels)


@dataclass(frozen=True)
class Row:
    """What a read-out did to a network, and what more training did; pairs are of the network and of its layer."""

    epoch: int
    result: cs.exchange.ReadoutResult
    before: tuple[float, float]
    after: tuple[float, float]
    one_more: float
    as_long: float
    n_epochs_as_long: int
    seconds: float
    epoch_seconds: float


def measure(course: Course, epoch: int, go_on_as_long: bool) -> Row:
    """Solve for the read-out after an epoch, and go on with training."""
    model = course.at(epoch)
    begin = time.process_time()
    result = course.example["solve_readout"](copy.deepcopy(model), *course.data[:2])
    seconds, epoch_seconds = time.process_time() - begin, float(np.median(course.seconds))
    n_epochs = max(1, round(seconds / epoch_seconds))
    later = [epoch + 1, epoch + n_epochs] if go_on_as_long else [epoch + 1]
    tests = [course.test(own, result.layer) for own in (model, result.model, *map(course.at, later))]
    as_long = tests[3][0] if go_on_as_long else math.nan
    return Row(epoch, result, tests[0], tests[1], tests[2][0], as_long, n_epochs, seconds, epoch_seconds)


def load_data(example: dict[str, Any]) -> list[Tensor]:
    """Images and labels to train on, to validate on, and to test; the first ones of MNIST, and all test images."""
    images, labels, *test = example["load_images"](False, N_TRAIN + N_VALIDATION)
    if len(images) < N_TRAIN + N_VALIDATION:
        raise SystemExit("this benchmark needs MNIST: set CVXSNN_DATA to a folder with its files")
    return [images[:N_TRAIN], labels[:N_TRAIN], images[N_TRAIN:], labels[N_TRAIN:], *test]


def describe(row: Row) -> str:
    """One line for one seed."""
    result = row.result
    return (
        f"epoch {row.epoch}: loss {result.before.loss:.4f} to {result.after.loss:.4f}; training accuracy "
        f"{result.before.model_accuracy:.4f} to {result.after.model_accuracy:.4f}; test {row.before[0]:.4f} to "
        f"{row.after[0]:.4f}, layer {row.before[1]:.4f} to {row.after[1]:.4f}; one epoch more {row.one_more:.4f}, "
        f"{row.n_epochs_as_long} more {row.as_long:.4f}; {row.seconds:.1f} s against {row.epoch_seconds:.1f} s an "
        f"epoch; strength {result.solution.problem.l1_strength:.1e}, {result.after.n_read} neurons read of "
        f"{result.before.n_read}, relative gap {result.certificate.relative_gap:.0e}"
    )


ACCURACIES: dict[str, Callable[[Row], str]] = {
    "epochs": lambda row: f"{row.epoch}",
    "before": lambda row: f"{row.before[0]:.4f}",
    "optimal": lambda row: f"{row.after[0]:.4f}",
    "layer before": lambda row: f"{row.before[1]:.4f}",
    "layer optimal": lambda row: f"{row.after[1]:.4f}",
    "one epoch more": lambda row: f"{row.one_more:.4f}",
    "as long": lambda row: "-" if math.isnan(row.as_long) else f"{row.as_long:.4f}",
}
COSTS: dict[str, Callable[[Row], str]] = {
    "epochs": lambda row: f"{row.epoch}",
    "loss before": lambda row: f"{row.result.before.loss:.4f}",
    "optimal": lambda row: f"{row.result.after.loss:.4f}",
    "read-out, s": lambda row: f"{row.seconds:.0f}",
    "epoch, s": lambda row: f"{row.epoch_seconds:.1f}",
    "strength": lambda row: f"{row.result.solution.problem.l1_strength:.0e}",
    "neurons read": lambda row: f"{row.result.after.n_read}",
    "relative gap": lambda row: f"{row.result.certificate.relative_gap:.0e}",
}


def main() -> None:
    """Train, solve, go on, print."""
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # Norse compiles with torch.jit on import
    examples = {name: runpy.run_path(str(EXAMPLES / script)) for name, script in NETWORKS.items()}
    found: dict[str, tuple[list[Row], list[Row]]] = {name: ([], []) for name in NETWORKS}
    for seed, name in product(SEEDS, NETWORKS):
        course = Course(examples[name], load_data(examples[name]), seed)
        for rows, is_first in zip(found[name], (True, False), strict=True):
            course.go_on(1)
            rows.append(measure(course, 1 if is_first else course.converge(), go_on_as_long=is_first))
            console.print(f"{name}, seed {seed}, {describe(rows[-1])}")
    titles = (f"Test accuracy, a line for each of seeds {SEEDS}", "Training loss of the layer, and what it costs")
    for title, columns in zip(titles, (ACCURACIES, COSTS), strict=True):
        table = make_table(f"{title}; {N_TRAIN:,} images to train on", "network", *columns)
        for name, parts in found.items():
            for rows in parts:
                table.add_row(name, *("\n".join(map(show, rows)) for show in columns.values()), end_section=True)
        console.print(table)


if __name__ == "__main__":
    main()
