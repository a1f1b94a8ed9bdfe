"""Ridge and elastic nets on spike counts: MNIST in 28 steps, 6,000 images, 4,096 neurons, all in this process.

Three measurements: softmax ridge at four strengths, of which validation images choose one; ridge with ten outputs
beside scikit-learn's; and ten times ten elastic nets with their leave-one-out errors, in solves of one of them.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import cvxsnn as cs
from cvxsnn.core.errors import DataFileError
from cvxsnn.data.tasks import mnist_seq

from .measure import best_seconds, console, make_table
from .memory import data_directory

N_STEPS, HIDDEN = 28, (256, 4096)

TOLERANCE = 1e-6

RIDGE_STRENGTHS = (1e-3, 1e-4, 1e-5, 1e-6)

N_GRID, SMALLEST_RATIO, L2_RANGE = 10, 1e-3, (1e-1, 1e-6)
"""The grid: strengths on each side, the smallest part of the critical strength, and the range of the quadratic's."""

GRID_CELLS = ((2, 2), (2, 7), (5, 5), (7, 2), (7, 7))
"""Places of the elastic nets that are solved alone, each in a fresh problem."""


@dataclass(frozen=True, eq=False)
class Counts:
    """Spike counts to train on, with their labels, and the same neurons' on validation images."""

    dictionary: cs.SpikeDictionary
    labels: npt.NDArray[np.int64]
    validation: Tensor
    validation_labels: Tensor

    @classmethod
    def build(cls, hidden: tuple[int, int] = HIDDEN, n_train: int = 6000) -> "Counts":
        """Roll out the same neurons on both."""
        task = mnist_seq(N_STEPS, n_train=n_train, directory=data_directory())
        witnesses = cs.gaussian_witnesses(784 // N_STEPS, hidden, seed=0)
        train, validation = (
            cs.build_dictionary(witnesses, split.inputs, readout="mean") for split in (task.train, task.val)
        )
        atoms = validation.atom_of_column[train.column_of_atom]
        labels = torch.from_numpy(task.val.heads["label"])
        return cls(train, task.train.heads["label"], validation.columns()[:, atoms], labels)

    def problem(self, loss: str, l1_strength: float, l2_strength: float) -> cs.ConvexProblem:
        """A fresh problem with an intercept; the squared loss has ten outputs of which one is 1."""
        targets = np.eye(10)[self.labels] if loss == "squared" else self.labels
        return cs.ConvexProblem(
            self.dictionary,
            targets,
            loss,
            l1_strength,
            l2_strength=l2_strength,
            penalty="elastic-net",
            intercept=True,
        )

    def accuracy(self, coef: Tensor, intercept: Tensor) -> float:
        """The share of validation images whose highest score is their label's."""
        scores = self.validation @ coef + intercept
        return float((scores.argmax(1) == self.validation_labels).double().mean())


def measure_softmax(counts: Counts) -> None:
    """Softmax ridge at several strengths."""
    table = make_table("Softmax ridge", "r", "seconds", "solver", "relative gap", "validation accuracy")
    found = {}
    for strength in RIDGE_STRENGTHS:
        problem = counts.problem("softmax", 0.0, strength)
        begin = time.perf_counter()
        solution = cs.solve(problem, tol=TOLERANCE)
        seconds = time.perf_counter() - begin
        accuracy = counts.accuracy(solution.coef, solution.intercept)
        found[strength] = accuracy, seconds
        gap = f"{solution.certificate.relative_gap:.0e}"
        table.add_row(f"{strength:g}", f"{seconds:.1f}", solution.solver, gap, f"{accuracy:.4f}")
    console.print(table)
    best = max(found, key=lambda strength: found[strength][0])
    console.print(f"Validation chooses r = {best:g}: {found[best][1]:.1f} s.")


def measure_ridge(counts: Counts, n_rounds: int) -> None:
    """Ridge with ten outputs, beside scikit-learn on the same columns, unpacked before the clock starts."""
    from sklearn.linear_model import Ridge

    columns, targets = counts.dictionary.columns().numpy(), np.eye(10)[counts.labels]
    table = make_table(
        "Ridge, ten outputs", "r", "cvxsnn, s", "gap", "scikit-learn, s", "gap", "peer / cvxsnn", "accuracy"
    )
    for strength in RIDGE_STRENGTHS:
        model = Ridge(len(columns) * strength)
        seconds = best_seconds(
            {
                "cvxsnn": lambda r=strength: cs.solve(counts.problem("squared", 0.0, r), tol=TOLERANCE),
                "scikit-learn": lambda model=model: model.fit(columns, targets),
            },
            n_rounds,
        )
        problem = counts.problem("squared", 0.0, strength)
        solution = cs.solve(problem, tol=TOLERANCE)
        own = solution.certificate.relative_gap
        peer = cs.certify(problem, torch.from_numpy(model.coef_.T.copy()), torch.from_numpy(model.intercept_))[0]
        table.add_row(
            f"{strength:g}",
            f"{seconds['cvxsnn']:.2f}",
            f"{own:.0e}",
            f"{seconds['scikit-learn']:.2f}",
            f"{peer.relative_gap:.0e}",
            f"{seconds['scikit-learn'] / seconds['cvxsnn']:.2f}",
            f"{counts.accuracy(solution.coef, solution.intercept):.4f}",
        )
    console.print(table)


def measure_grid(counts: Counts) -> None:
    """All elastic nets of a grid with their leave-one-out errors, in the median time of one of them."""
    critical = counts.problem("squared", 1.0, 1.0).critical_strength
    strengths = np.geomspace(critical, critical * SMALLEST_RATIO, N_GRID).tolist()
    l2_strengths = np.geomspace(*L2_RANGE, N_GRID).tolist()
    table = make_table(f"One of {N_GRID} × {N_GRID} elastic nets, ten outputs", "s", "r", "seconds", "atoms")
    singles = []
    for row, column in GRID_CELLS:
        problem = counts.problem("squared", strengths[row], l2_strengths[column])
        begin = time.perf_counter()
        solution = cs.solve(problem, tol=TOLERANCE)
        singles.append(time.perf_counter() - begin)
        cell = f"{strengths[row]:.2g}", f"{l2_strengths[column]:.2g}"
        table.add_row(*cell, f"{singles[-1]:.2f}", f"{len(solution.support):,}")
    console.print(table)
    problem = counts.problem("squared", strengths[0], l2_strengths[0])
    begin = time.perf_counter()
    path = cs.solve_path(problem, strengths, l2_strengths=l2_strengths, tol=TOLERANCE)
    solved = time.perf_counter() - begin
    path = cs.convex.leave_one_out(path)
    total, single = time.perf_counter() - begin, median(singles)
    best = path.select("accuracy")
    n_certified = sum(solution.has_converged for solution in path)
    console.print(
        f"All {len(path)} of them, {n_certified} certified to {TOLERANCE:g}: {solved:.1f} s; with leave-one-out errors "
        f"{total:.1f} s, {total / single:.1f} × the median of {single:.2f} s. The errors choose "
        f"s = {best.problem.l1_strength:.2g}, r = {best.problem.l2_strength:.2g}: {len(best.support):,} atoms, "
        f"validation accuracy {counts.accuracy(best.coef, best.intercept):.4f}."
    )


def main(arguments: Sequence[str] = ()) -> None:
    """Measure, print."""
    parts = ("softmax", "ridge", "grid")
    parser = argparse.ArgumentParser(prog="python -m benchmarks elastic", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--small", action="store_true", help="with few images and neurons, to see that all works")
    options = parser.parse_args(arguments)
    try:
        counts = Counts.build((16, 48), 300) if options.small else Counts.build()
    except DataFileError as error:
        console.print(f"Elastic nets: skipped. {error}")
        return
    n_rows, n_atoms = counts.dictionary.shape
    console.print(f"Mean spike counts of MNIST in {N_STEPS} steps, {n_rows:,} × {n_atoms:,}, with an intercept")
    if "softmax" in options.only:
        measure_softmax(counts)
    if "ridge" in options.only:
        measure_ridge(counts, n_rounds=3)
    if "grid" in options.only:
        measure_grid(counts)
