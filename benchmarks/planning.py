"""The planner's forecast beside what a job then takes: time of both stages, and memory, each in a fresh process."""

import json
import subprocess
import sys
import time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import psutil
import torch

import cvxsnn as cs
from cvxsnn.app.formatting import format_seconds
from cvxsnn.app.planning import Plan, plan
from cvxsnn.app.rates import Rates, measure_rates
from cvxsnn.core.memory import format_bytes
from cvxsnn.data.tasks import addition, first_last_xor, mnist_seq

from .measure import console, make_table
from .memory import data_directory, peak_gb


class Case(NamedTuple):
    """A task, its hidden layers (one subnetwork), columns, loss, and strength relative to the critical one."""

    task: str
    hidden: tuple[int, ...]
    n_columns: int
    loss: str
    strength_ratio: float


CASES = (
    Case("base-3 addition", (256, 512), 1024, "squared", 0.1),
    Case("base-3 addition", (256, 512), 1024, "squared", 0.01),
    Case("base-3 addition", (256, 512), 1024, "logistic", 0.01),
    Case("base-3 addition", (256, 512), 1024, "softmax", 0.01),
    Case("XOR, 11 steps", (512,), 1024, "hinge", 0.01),
    Case("XOR, 11 steps", (512,), 1024, "logistic", 0.01),
    Case("MNIST-Seq, 2 steps", (1024,), 1024, "logistic", 0.01),
    Case("MNIST-Seq, 2 steps", (1024,), 1024, "softmax", 0.1),
    Case("MNIST-Seq, 28 steps", (1024,), 1024, "squared", 0.01),
    Case("random 2,000", (500,), 500, "squared", 0.01),
    Case("random 2,000", (500,), 500, "hinge", 0.03),
    Case("random 10,000", (2000,), 2000, "squared", 0.01),
    Case("random 10,000", (2000,), 2000, "logistic", 0.03),
    Case("random 3,000", (8000,), 8000, "squared", 0.03),
    Case("random 100,000", (4000,), 4000, "squared", 0.03),
    Case("random 100,000", (4000,), 4000, "logistic", 0.1),
)


def make_data(case: Case) -> tuple[npt.NDArray[Any], npt.NDArray[Any], str]:
    """Inputs (n_samples, n_steps, n_features), classes a row, and the readout."""
    kind, _, number = case.task.partition(" ")
    if kind == "random":
        draws = np.random.default_rng(0)
        inputs = draws.standard_normal((int(number.replace(",", "")), 2, 10))
        return inputs, ((inputs[:, 0, 0] > 0) ^ (inputs[:, 1, 0] > 0)).astype(int), "last"
    if kind == "base-3":
        train = addition(base=3).train
        name = "sum" if case.loss == "softmax" else "carry"
        return train.inputs, train.heads[name].ravel(), "all"
    n_steps = int(case.task.split()[-2])
    train = (
        first_last_xor(n_steps).train
        if kind == "XOR,"
        else mnist_seq(n_steps, n_train=3000, n_val=1, n_test=1, directory=data_directory()).train
    )
    (classes,) = train.heads.values()
    return train.inputs, classes.reshape(len(train.inputs), -1)[:, -1], "last"


def targets_of(classes: npt.NDArray[Any], loss: str) -> npt.NDArray[Any]:
    """Classes for a softmax, the parity of the class for losses with two labels."""
    if loss == "softmax":
        return classes
    parity = (classes % 2).astype(float)
    return 2 * parity - 1 if loss == "squared" else parity


def run_case(case: Case) -> dict[str, object]:
    """Build and solve in this process, and tell what it took."""
    inputs, classes, readout = make_data(case)
    n_features = inputs.shape[2]
    family = {"decay": 0.1, "threshold": 0.1} if case.task.startswith("base-3") else {"decay": 1.0}
    witnesses = cs.gaussian_witnesses(
        n_features, case.hidden, case.n_columns // case.hidden[-1], bias=cs.witnesses.Normal(0.0, 0.5), **family
    )
    cs.build_dictionary(witnesses, inputs[:64], readout)  # the first call of every library pays for the others
    before = psutil.Process().memory_info().rss / 1e9
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter  # other jobs do not count
    begin = clock()
    dictionary = cs.build_dictionary(witnesses, inputs, readout)
    built = clock()
    problem = cs.ConvexProblem(dictionary, targets_of(classes, case.loss), case.loss)
    solution = cs.solve(problem.with_strength(case.strength_ratio * problem.critical_strength))
    return {
        "sizes": [*inputs.shape, dictionary.n_atoms, problem.n_outputs],
        "readout": readout,
        "build": built - begin,
        "solve": clock() - built,
        "active": int((solution.coef != 0).sum()),
        "gap": solution.certificate.relative_gap,
        "peak": peak_gb() - before,
    }


def forecast(case: Case, found: dict[str, Any], n_columns: int, rates: Rates, n_active: int | None = None) -> Plan:
    """The plan of a case with some number of columns, and active ones where they are known."""
    n_samples, n_steps, n_features, _, n_outputs = found["sizes"]
    hidden = case.hidden if n_columns == case.n_columns else (n_columns,)
    return plan(
        n_samples,
        n_columns,
        n_steps,
        n_features=n_features,
        hidden=hidden,
        n_outputs=n_outputs,
        loss=case.loss,  # type: ignore[arg-type]
        readout=found["readout"],
        strength_ratio=case.strength_ratio,
        n_active=n_active,
        rates=rates,
    )


def main() -> None:
    """Run every case in a process of its own, print forecast / measured."""
    rates = measure_rates()
    table = make_table(
        "Planning: forecast / measured",
        "case",
        "rows × atoms",
        "build",
        "solve",
        "knowing",
        "active",
        "memory",
    )
    for number, case in enumerate(CASES):
        command = [sys.executable, "-m", "benchmarks.planning", str(number)]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        n_samples, n_steps, _, n_atoms, n_outputs = found["sizes"]
        n_rows = n_samples * n_steps if found["readout"] == "all" else n_samples
        # A job is planned with the columns that are sampled; a solve sees those that are distinct.
        whole, distinct = (forecast(case, found, n_columns, rates) for n_columns in (case.n_columns, n_atoms))
        build = whole.seconds["roll-out"] + whole.seconds["dictionary"]
        solve = distinct.seconds["solve"] + distinct.seconds["certificate"]
        told = forecast(case, found, n_atoms, rates, max(1, found["active"] // n_outputs))
        knowing = told.seconds["solve"] + told.seconds["certificate"]
        table.add_row(
            f"{case.task}, {case.loss} / {1 / case.strength_ratio:.0f}",
            f"{n_rows:,} × {n_atoms:,}",
            f"{format_seconds(build)} / {format_seconds(found['build'])}",
            f"{format_seconds(solve)} / {format_seconds(found['solve'])}",
            f"{format_seconds(knowing)}, {knowing / found['solve']:.2f} ×",
            f"{found['active']}",
            f"{format_bytes(told.peak)} / {format_bytes(1e9 * found['peak'])}",
        )
    console.print(table)


if __name__ == "__main__":
    print(json.dumps(run_case(CASES[int(sys.argv[1])])))
