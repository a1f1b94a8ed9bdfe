"""Accuracies of the training methods on three tasks, three seeds each; settings are chosen on validation data.

Everything is chosen per seed on the validation split and tested once. Surrogate gradients get a grid of learning rates
and of initial families, the convex method a grid of strengths over one family.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from cvxsnn.convex import Objective
from cvxsnn.data import tasks
from cvxsnn.fitting import Program, Settings, SurrogateSettings, train_task
from cvxsnn.network.evaluation import accuracy
from cvxsnn.neurons.surrogate import Surrogate
from cvxsnn.witnesses import Normal

from .measure import console, make_table

SEEDS = (0, 1, 2)
RATES = (3e-3, 1e-2, 3e-2)
SLOW = {"decay": 0.99}
LIVELY = {"decay": 0.5, "threshold": 0.5, "bias": Normal(0.0, 0.3)}
FAST = {"decay": 0.1, "threshold": 0.1, "bias": Normal(0.0, 0.5)}


@dataclass(frozen=True)
class Row:
    """One line of the table: a task, a method, and what it may choose from."""

    name: str
    method: str
    task: Callable[[int], tasks.Task]
    objective: Objective
    families: tuple[dict[str, Any], ...]
    rates: tuple[float, ...] = (3e-2,)
    slopes: tuple[tuple[Surrogate, float], ...] = (("arctan", 1.0),)
    epochs: int = 60


def xor(seed: int) -> tasks.Task:
    """First-last-XOR over 6 steps with the paper's sizes."""
    return tasks.first_last_xor(6, seed=seed)


def addition(seed: int) -> tasks.Task:
    """Base-2 addition of 5 digits with the paper's sizes."""
    return tasks.addition(base=2, n_digits=5, seed=seed)


def wide(hidden: tuple[int, ...], *families: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Families on the paper's two subnetworks."""
    return tuple({"hidden": hidden, "n_subnetworks": 2, **family} for family in families)


SHALLOW, DEEP = (250, 500), (250,) * 8 + (500,)
ADDER = (128, 256)
JOINT = Objective({"sum": "softmax", "carry": "logistic"}, "all", timestep_weighting="ramped")

GENTLE: tuple[tuple[Surrogate, float], ...] = (("arctan", 0.6), ("sigmoid", 1.0))
"""Wide derivatives, which reach through more layers."""

ROWS = (
    Row("XOR T=6, L=3", "cvx", xor, Objective("hinge"), wide(SHALLOW, SLOW)),
    Row("XOR T=6, L=3", "sg", xor, Objective("hinge"), wide(SHALLOW, SLOW), RATES, epochs=20),
    Row("XOR T=6, L=10", "cvx", xor, Objective("hinge"), wide(DEEP, SLOW)),
    Row("XOR T=6, L=10", "sg", xor, Objective("hinge"), wide(DEEP, SLOW, LIVELY), (1e-3, 3e-3), GENTLE, epochs=60),
    Row("addition base 2, slow neurons", "cvx", addition, JOINT, wide(ADDER, {"decay": 0.9})),
    Row("addition base 2, fast neurons", "cvx", addition, JOINT, wide(ADDER, FAST)),
    Row("addition base 2", "sg", addition, JOINT, wide(ADDER, {"decay": 0.9}, FAST), RATES),
)


def run(row: Row, seed: int, family: dict[str, Any], rate: float, slope: tuple[Surrogate, float]) -> dict[str, Any]:
    """Train one configuration; validation and test accuracy, test at the tenfold length where there is one."""
    import torch

    torch.set_num_threads(1)
    task = row.task(seed)
    surrogate = SurrogateSettings(
        epochs=row.epochs, learning_rate=rate, surrogate=slope[0], steepness=slope[1], seed=seed
    )
    settings = Settings(Program(row.objective, n_strengths=8), family, surrogate=surrogate, seed=seed)
    trained = train_task(row.method, task, settings)
    tests = {"test": task.test, **({"10x": task.ood["10x"]} if "10x" in task.ood else {})}
    gap = None if trained.certificate is None else trained.certificate.relative_gap
    scores = {name: accuracy(trained.network, task, data) for name, data in tests.items()}
    return {"val": trained.history[-1].score, "gap": gap, "seconds": trained.seconds, "rate": rate, **scores}


def main(arguments: list[str] | None = None) -> None:
    """Run every row, print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks methods")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", help="rows whose name and method contain this, such as 'L=10 sg'")
    options = parser.parse_args(arguments)
    rows = [row for row in ROWS if (options.only or "") in f"{row.name} {row.method}"]
    grid = [
        (row, seed, *choice)
        for row in rows
        for seed in SEEDS
        for choice in product(row.families, row.rates, row.slopes)
    ]
    records = Parallel(options.jobs, verbose=5)(delayed(run)(*job) for job in grid)
    table = make_table("Methods, three seeds", "task", "method", "test", "10× longer", "largest gap", "seconds a run")
    for row in rows:
        chosen = []
        for seed in SEEDS:
            own = [r for (r_row, r_seed, *_), r in zip(grid, records, strict=True) if r_row is row and r_seed == seed]
            chosen.append(max(own, key=lambda record: record["val"]))
        gaps = [record["gap"] for record in chosen if record["gap"] is not None]
        table.add_row(
            row.name,
            row.method,
            " ".join(f"{record['test']:.3f}" for record in chosen),
            " ".join(f"{record['10x']:.3f}" for record in chosen if "10x" in record) or "–",
            f"{max(gaps):.0e}" if gaps else "none",
            f"{np.mean([record['seconds'] for record in chosen]):.1f}",
        )
    console.print(table)


if __name__ == "__main__":
    main()
