"""Test accuracy with hidden weights of few bits: the old read-out, the optimal one found again, and that rounded too.

Validation data choose the strength, at which read-outs are found again, and the family of sampled neurons for digits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import cvxsnn as cs
from cvxsnn.data.tasks import Task
from cvxsnn.exchange import quantise, quantise_and_solve
from cvxsnn.fitting import TaskScore

from .measure import console, make_table

SEEDS = (0, 1, 2)
BITS = (8, 4, 2)
SEARCHED = cs.fitting.Tuning(512, readouts=("last", "mean"))


@dataclass(frozen=True)
class Case:
    """A task, its objective, the family of its neurons, and the method of training."""

    task: Callable[[int], Task]
    objective: cs.convex.Objective
    family: dict[str, Any] | cs.fitting.Tuning
    method: str = "cvx"


CASES = {
    "first-last-XOR, T = 6": Case(
        lambda seed: cs.tasks.first_last_xor(6, n_train=2000, n_val=500, n_test=4000, seed=seed),
        cs.convex.Objective("hinge"),
        {"hidden": (64, 256), "n_subnetworks": 2, "decay": 0.99},
    ),
    "digits, T = 8": Case(
        lambda seed: cs.tasks.digits_seq(8, seed=seed),
        cs.convex.Objective("softmax", "mean"),
        SEARCHED,
    ),
    "digits, T = 8, trained neurons": Case(
        lambda seed: cs.tasks.digits_seq(8, seed=seed),
        cs.convex.Objective("softmax", "mean"),
        {"hidden": (128,), "decay": cs.witnesses.Uniform(0.5, 1.0), "bias": cs.witnesses.Normal(0.0, 0.5)},
        "sg-cvx",
    ),
    "MNIST-Seq, T = 28": Case(
        lambda seed: cs.tasks.mnist_seq(28, n_train=2000, n_val=1000, n_test=4000, seed=seed),
        cs.convex.Objective("softmax", "mean"),
        SEARCHED,
    ),
}


def compare(case: Case, seed: int) -> list[tuple[float, ...]]:
    """Train once, round to every number of bits, test: not rounded, as is, solved, rounded, and the gap."""
    task = case.task(seed)
    surrogate = cs.fitting.SurrogateSettings(epochs=50, seed=seed)
    program = cs.fitting.Program(case.objective, "l1", n_strengths=10)
    settings = cs.fitting.Settings(program, case.family, surrogate=surrogate, seed=seed)
    trained = cs.fitting.train_task(case.method, task, settings)
    data = cs.data.TrainingSet.of(task.train)
    score = TaskScore(task, task.test)
    rows = []
    for bits in BITS:
        solved = quantise_and_solve(trained, data, bits)
        networks = (trained.network, quantise(trained.network, bits), solved.network)
        scores = [score(network) for network in (*networks, solved.with_readout_bits(8).network)]
        rows.append((*scores, solved.certificate.relative_gap))
    return rows


def main() -> None:
    """Compare on every task, print."""
    columns = ("hidden bits", "not rounded", "as is", "solved again", "and 8-bit read-out", "largest gap")
    table = make_table(f"Test accuracy, mean and range of {len(SEEDS)} seeds", "task", *columns)
    for name, case in CASES.items():
        found = [compare(case, seed) for seed in SEEDS]
        for number, bits in enumerate(BITS):
            *scores, gaps = zip(*(rows[number] for rows in found), strict=True)
            cells = [f"{np.mean(own):.3f} ({min(own):.3f}–{max(own):.3f})" for own in scores]
            table.add_row(name if number == 0 else "", str(bits), *cells, f"{max(gaps):.0e}")
    console.print(table)


if __name__ == "__main__":
    main()
