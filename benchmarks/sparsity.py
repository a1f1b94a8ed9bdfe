"""Accuracy against the number of neurons along paths of elastic nets, on three real tasks: a table and a picture."""

from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

import cvxsnn as cs
from cvxsnn.convex import RegularizationPath, Solution, leave_one_out
from cvxsnn.convex.left_out import mean_eigenvalue
from cvxsnn.data.tasks import Task, digits_seq, mnist_seq, spoken_digits

from .measure import console, make_table
from .memory import data_directory

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "elastic-net.png"
N_WITNESSES = 1024
N_L1, N_L2, SMALLEST_RATIO = 10, 8, 1e-3

TASKS: dict[str, Callable[[], Task]] = {
    "handwritten digits (8 steps)": digits_seq,
    "spoken digits (30 steps)": lambda: spoken_digits(directory=data_directory()),
    "MNIST-Seq (28 steps)": lambda: mnist_seq(28, directory=data_directory()),
}


def path_of(task: Task) -> tuple[RegularizationPath, Callable[[Solution], float]]:
    """Solve the path of a task on spike counts; return it with the accuracy of a solution on the test data."""
    inputs, classes = torch.from_numpy(task.train.inputs), task.train.heads["label"]
    witnesses = cs.gaussian_witnesses(inputs.shape[2], (256, N_WITNESSES), seed=0)
    dictionary = cs.build_dictionary(witnesses, inputs, readout="mean")
    targets = np.eye(classes.max() + 1)[classes]
    problem = cs.ConvexProblem(dictionary, targets, "squared", penalty="elastic-net", intercept=True)
    largest = problem.critical_strength
    strengths = [*np.geomspace(largest / 2, SMALLEST_RATIO * largest, N_L1 - 1).tolist(), 0.0]
    trace = mean_eigenvalue(problem) * dictionary.n_rows
    quadratic = (trace * np.geomspace(1e-1, 1e-8, N_L2)).tolist()
    path = leave_one_out(cs.solve_path(problem, strengths, l2_strengths=quadratic))
    test = cs.build_dictionary(witnesses, torch.from_numpy(task.test.inputs), readout="mean")
    columns: Tensor = test.columns()[:, test.atom_of_column[dictionary.column_of_atom]]

    def accuracy(solution: Solution) -> float:
        predicted = (columns @ solution.coef + solution.intercept).argmax(1)
        return float((predicted.numpy() == task.test.heads["label"]).mean())

    return path, accuracy


def main() -> None:
    """Print what leave-one-out chooses on each task, and draw the paths."""
    table = make_table("Elastic nets on spike counts", "task", "chosen", "neurons", "left out", "test", "paths (s)")
    figure, axes = plt.subplots(1, len(TASKS), figsize=(4.2 * len(TASKS) + 2.4, 3.6), constrained_layout=True)
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.9, N_L2))
    for axis, (name, make) in zip(axes, TASKS.items(), strict=True):
        path, accuracy = path_of(make())
        assert path.validation is not None
        tested = np.array([accuracy(solution) for solution in path]).reshape(N_L2, N_L1)
        sizes = path.n_neurons.numpy().reshape(N_L2, N_L1)
        quadratic = path.l2_strengths.numpy().reshape(N_L2, N_L1)[:, 0]
        for row, colour in enumerate(colours):
            axis.plot(sizes[row], tested[row], "-o", color=colour, ms=3, lw=1, label=f"r = {quadratic[row]:.1e}")
        choices = {
            "best": path.select("accuracy"),
            "within one standard error": path.select("accuracy", one_standard_error=True),
            "at most 100 neurons": path.select("accuracy", n_neurons=100),
            "best with r smallest (nearly L1)": _nearly_l1(path),
        }
        marks = iter("*sDX")
        left_out = dict(zip(map(id, path), path.validation.mean("accuracy").tolist(), strict=True))
        for choice, solution in choices.items():
            axis.plot(
                len(solution.support), accuracy(solution), next(marks), color="crimson", ms=9, mew=0, label=choice
            )
            table.add_row(
                name,
                choice,
                f"{len(solution.support)}",
                f"{left_out[id(solution)]:.3f}",
                f"{accuracy(solution):.3f}",
                f"{path.seconds:.1f}",
            )
        axis.set(title=name, xlabel="neurons", xscale="log", ylabel="test accuracy")
        axis.set_ylim(max(0.3, tested.max() - 0.4), tested.max() + 0.02)
        axis.grid(alpha=0.3)
    axes[-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))
    figure.savefig(PICTURE, dpi=150)
    console.print(table)


def _nearly_l1(path: RegularizationPath) -> Solution:
    """Return the best by leave-one-out among the solutions with a norm and the smallest quadratic."""
    assert path.validation is not None
    smallest = float(path.l2_strengths.min())
    means = path.validation.mean("accuracy").tolist()
    allowed = [k for k, s in enumerate(path) if s.problem.l2_strength == smallest and s.problem.l1_strength > 0]
    return path[max(allowed, key=means.__getitem__)]
