"""Accuracy on new data against the number of neurons read, for four ways to choose them."""

import time
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

import cvxsnn as cs
from cvxsnn.convex.left_out import mean_eigenvalue, ridge_scores, validation_of
from cvxsnn.data.tasks import Task, digits_seq, first_last_xor, mnist_seq
from cvxsnn.fitting.few import order_neurons
from cvxsnn.fitting.program import QUADRATIC_RATIOS

from .measure import console, make_table
from .memory import data_directory

SIZES = (32, 64, 128, 256, 512)
N_TEST = 4000

TASKS: dict[str, Callable[[], Task]] = {
    "handwritten digits (8 steps)": lambda: digits_seq(8),
    "first-last-XOR (16 steps)": lambda: first_last_xor(n_steps=16, seed=0),
    "MNIST-Seq (28 steps, 1,000 samples)": lambda: mnist_seq(28, n_train=1000, directory=data_directory()),
}

Chosen = Mapping[int, Tensor]
"""Neurons, for each of SIZES."""


def forward(problem: cs.ConvexProblem) -> Chosen:
    """Neurons in the order in which they lower the objective the most."""
    order = order_neurons(problem, max(SIZES))
    return {size: order[:size] for size in SIZES}


def elimination(problem: cs.ConvexProblem) -> Chosen:
    """Ridge again and again, each time over the half of the neurons with the largest weights."""
    neurons, chosen = problem.dictionary.column_of_atom, {}
    for size in [*(2**k for k in range(13, 9, -1) if 2**k < len(neurons)), *sorted(SIZES, reverse=True)]:
        solution = best_ridge(restricted(problem, neurons))
        sizes = solution.coef.norm(dim=1)
        neurons = neurons[sizes.topk(size).indices]
        chosen[size] = neurons
    return chosen


def group_norm(problem: cs.ConvexProblem) -> Chosen:
    """Neurons in the order in which they enter the path of the penalty "group-elastic-net", solved roughly."""
    columns = problem.dictionary.columns()
    columns = columns - columns.mean(0)
    targets, n_rows = problem.heads[0].targets, len(columns)
    targets = targets - targets.mean(0)
    ridge = best_ridge(problem).problem.l2_strength
    step = 1 / (float(torch.linalg.matrix_norm(columns @ columns.T, 2)) / n_rows + ridge)
    coef, order = columns.new_zeros(columns.shape[1], targets.shape[1]), []
    critical = float((columns.T @ targets / n_rows).norm(dim=1).max())
    for strength in critical * 10.0 ** np.arange(-0.1, -3.0, -0.1):
        ahead, pace = coef, 1.0
        for _ in range(100):
            before = coef
            moved = ahead - step * (columns.T @ (columns @ ahead - targets) / n_rows + ridge * ahead)
            coef = moved * (1 - step * strength / moved.norm(dim=1, keepdim=True).clamp_min(1e-300)).clamp_min(0)
            pace, last = (1 + (1 + 4 * pace**2) ** 0.5) / 2, pace
            ahead = coef + (last - 1) / pace * (coef - before)
        sizes = coef.norm(dim=1)
        order += [
            atom for atom in sizes.argsort(descending=True)[: int((sizes > 0).sum())].tolist() if atom not in order
        ]
        if len(order) >= max(SIZES):
            break
    neurons = problem.dictionary.column_of_atom[torch.tensor(order)]
    return {size: neurons[:size] for size in SIZES}


def random(problem: cs.ConvexProblem) -> Chosen:
    """Any neurons."""
    neurons = problem.dictionary.column_of_atom
    neurons = neurons[torch.randperm(len(neurons), generator=torch.Generator().manual_seed(0))]
    return {size: neurons[:size] for size in SIZES}


WAYS = {"forward": forward, "elimination": elimination, "group norm": group_norm, "random": random}


def restricted(problem: cs.ConvexProblem, neurons: Tensor) -> cs.ConvexProblem:
    """Ridge over some neurons."""
    atoms = problem.dictionary.atom_of_column[neurons]
    dictionary = cs.dictionary.DenseDictionary(problem.dictionary.columns(atoms))
    targets = problem.heads[0].targets
    return cs.ConvexProblem(dictionary, targets, "squared", 0.0, l2_strength=1.0, penalty="elastic-net", intercept=True)


def best_ridge(problem: cs.ConvexProblem) -> cs.Solution:
    """Ridge at the strength with the least leave-one-out error."""
    strengths = [ratio * mean_eigenvalue(problem) for ratio in QUADRATIC_RATIOS]
    place = int(validation_of(problem, ridge_scores(problem, strengths)).mean().argmin())
    return cs.solve(problem.with_strength(0.0, strengths[place]))


def main() -> None:
    """Print the accuracies."""
    table = make_table("Test accuracy of few neurons", "task", "chosen by", *map(str, SIZES), "seconds")
    for name, make in TASKS.items():
        task = make()
        labels, tested = task.train.heads["label"], task.test.heads["label"][:N_TEST]
        inputs, new = task.train.inputs, task.test.inputs[:N_TEST]
        model = cs.SpikingClassifier(n_neurons=4096, random_state=0).fit(inputs, labels)
        proof, (mean, scale) = model.proof_, model.input_scale_
        dictionaries = [
            cs.build_dictionary(proof.witnesses, (own - mean) / scale, proof.objective.readout) for own in (inputs, new)
        ]
        targets = np.eye(2)[labels][:, 1:] * 2 - 1 if labels.max() == 1 else np.eye(labels.max() + 1)[labels]
        problem = cs.ConvexProblem(
            dictionaries[0], targets, "squared", 0.0, l2_strength=1.0, penalty="elastic-net", intercept=True
        )
        everything = model.score(new, tested)
        for way, choose in WAYS.items():
            begin, accuracies = time.perf_counter(), []
            chosen = choose(problem)
            seconds = time.perf_counter() - begin
            for size in SIZES:
                few = restricted(problem, chosen[size])
                solution = best_ridge(few)
                # Restricting may merge columns, so that atoms are looked up.
                columns = dictionaries[1].columns(dictionaries[1].atom_of_column[chosen[size]])
                coef = solution.coef[few.dictionary.atom_of_column]
                scores = columns @ coef + solution.intercept
                predicted = scores.argmax(1) if scores.shape[1] > 1 else scores[:, 0] > 0
                accuracies.append(float((predicted.numpy() == tested).mean()))
            table.add_row(name, way, *(f"{own:.3f}" for own in accuracies), f"{seconds:.1f}")
        few_model = cs.SpikingClassifier(n_neurons=4096, random_state=0, sparsity="few").fit(inputs, labels)
        n_few, few_accuracy = few_model.network_.n_active, few_model.score(new, tested)
        table.add_row(name, f'"few": {n_few} neurons', f"{few_accuracy:.3f}", *[""] * len(SIZES))
        table.add_row(name, f"all: {model.network_.n_active} neurons", f"{everything:.3f}", *[""] * len(SIZES))
    console.print(table)
