"""Two versions of this library, timed in turns: roll-outs, dictionaries, solves to a certificate, and default fits.

    git worktree add /tmp/before HEAD~20
    python -m benchmarks versions --before /tmp/before

Each version runs in a process of its own with one thread, or ``--threads``. The cases use names that both versions
have. ``--busy 3`` times the default fit of OSULeaf alone and beside three processes that fit without a pause.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .measure import console, make_table
from .memory import data_directory

HERE = Path(__file__).parents[1]
LEAST_RATIO = 0.95
Case = Callable[[], Callable[[], object]]
"""Prepares some work, and returns a function that does it once."""


def rolling(hidden: tuple[int, ...], n_subnetworks: int, steps: str) -> Case:
    """Return a roll-out over the sequences of base-3 addition."""

    def prepare() -> Callable[[], object]:
        import cvxsnn as cs

        inputs = cs.tasks.addition(base=3).train.inputs
        layers = cs.gaussian_witnesses(3, hidden, n_subnetworks).layers
        return lambda: cs.roll_out(layers, inputs, steps)

    return prepare


def building(n_steps: int, hidden: tuple[int, ...], readout: str) -> Case:
    """Return the building of a dictionary of first-last-XOR, and the merging of its rows."""

    def prepare() -> Callable[[], object]:
        import cvxsnn as cs

        inputs = cs.tasks.first_last_xor(n_steps, n_train=2000).train.inputs
        witnesses = cs.gaussian_witnesses(2, hidden)
        return lambda: cs.build_dictionary(witnesses, inputs, readout).group_rows()

    return prepare


def solving(make: str, loss: str, ratio: float, **options: Any) -> Case:
    """Return a solve to a relative gap of 1e-6 on a dictionary of the solvers' benchmark."""

    def prepare() -> Callable[[], object]:
        import cvxsnn as cs

        dictionary, targets = MAKERS[make]()
        strength = cs.ConvexProblem(dictionary, targets[loss], loss, **options).critical_strength / ratio

        def solve() -> None:
            assert cs.solve(cs.ConvexProblem(dictionary, targets[loss], loss, strength, **options)).has_converged

        return solve

    return prepare


def following(make: str, loss: str) -> Case:
    """Return a path of 30 strengths."""

    def prepare() -> Callable[[], object]:
        import cvxsnn as cs

        dictionary, targets = MAKERS[make]()
        return lambda: cs.solve_path(cs.ConvexProblem(dictionary, targets[loss], loss), n_strengths=30)

    return prepare


def fitting(task: str, **options: Any) -> Case:
    """Return a fit of the classifier as it comes."""

    def prepare() -> Callable[[], object]:
        import cvxsnn as cs

        X, y = TASKS[task]()
        return lambda: cs.SpikingClassifier(random_state=0, **options).fit(X, y)

    return prepare


def make_task(name: str, *arguments: int, **options: Any) -> Callable[[], Any]:
    """Return sequences and classes of a task."""

    def make() -> Any:
        import cvxsnn as cs

        train = getattr(cs.tasks, name)(*arguments, **options).train
        return train.inputs, train.targets

    return make


def make_osuleaf() -> Any:
    """Return the training data of OSULeaf."""
    with np.load(data_directory() / "ucr" / "OSULeaf.npz") as file:
        return file["X_train"][:, :, None], file["y_train"]


TASKS: dict[str, Callable[[], Any]] = {
    "xor": make_task("first_last_xor", 8, n_train=1000, n_val=8, n_test=8),
    "digits": make_task("digits_seq", 8),
    "mnist": make_task("mnist_seq", 28, n_train=2000, n_val=8, n_test=8, directory=data_directory()),
    "osuleaf": make_osuleaf,
}


def make_addition() -> Any:
    """Return all steps of base-3 addition."""
    import cvxsnn as cs

    train = cs.tasks.addition(base=3, n_digits=5, n_train=2304, seed=0).train
    dictionary = cs.build_dictionary(cs.gaussian_witnesses(3, (256, 512), 2, seed=0), train.inputs, readout="all")
    digit, carry = train.heads["sum"].ravel(), train.heads["carry"].ravel()
    return dictionary, {"squared": digit.astype(float), "logistic": 2.0 * carry - 1, "softmax": digit}


def make_xor() -> Any:
    """Return first-last-XOR over 11 steps."""
    import cvxsnn as cs

    train = cs.tasks.first_last_xor(11, n_train=2304).train
    dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64, 256), 2, decay=0.99), train.inputs)
    label = 2.0 * train.heads["label"] - 1
    return dictionary, {"hinge": label, "logistic": label, "softmax": train.heads["label"], "squared": label}


MAKERS = {"addition": make_addition, "xor": make_xor}
CASES: dict[str, Case] = {
    "roll-out, two layers, all steps": rolling((256, 512), 2, "all"),
    "roll-out, one layer of 4,096, last step": rolling((4096,), 1, "last"),
    "roll-out, three layers, last step": rolling((64, 64, 64), 16, "last"),
    "dictionary, last step": building(14, (256, 2048), "last"),
    "dictionary, all steps": building(14, (1024,), "all"),
    "dictionary, means": building(14, (2048,), "mean"),
    "squared, critical / 10": solving("addition", "squared", 10),
    "squared, critical / 100": solving("addition", "squared", 100),
    "squared, path of 30": following("addition", "squared"),
    "logistic, critical / 10": solving("addition", "logistic", 10),
    "logistic, critical / 100": solving("addition", "logistic", 100),
    "logistic, path of 30": following("xor", "logistic"),
    "softmax, critical / 100": solving("addition", "softmax", 100),
    "hinge, critical / 100": solving("xor", "hinge", 100),
    "softmax with groups, critical / 30": solving("xor", "softmax", 30, penalty="group"),
    "default classifier, XOR": fitting("xor"),
    "default classifier, digits": fitting("digits"),
    "default classifier, OSULeaf": fitting("osuleaf"),
    "default classifier, MNIST-Seq": fitting("mnist"),
    "classifier, paper's family": fitting("xor", witnesses="gaussian", hidden=(512,)),
}


class Worker:
    """A process that runs cases with one version of the library."""

    def __init__(self, tree: Path, n_threads: int = 1) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{HERE}", "OMP_NUM_THREADS": str(n_threads)}
        command = [sys.executable, "-m", "benchmarks.versions", "--worker"]
        self._process = subprocess.Popen(
            command, env=environment, cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, case: str) -> float:
        """Return the seconds that a case takes once; it is prepared the first time."""
        self.begin(case)
        assert self._process.stdout is not None
        return float(json.loads(self._process.stdout.readline()))

    def begin(self, *cases: str) -> None:
        """Begin cases, one after the other."""
        assert self._process.stdin is not None
        print(*cases, sep="\n", file=self._process.stdin, flush=True)

    def stop(self) -> None:
        """End the process after what it has begun."""
        self._process.communicate()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.communicate()


def serve() -> None:
    """Run the cases named on standard input, and print their seconds."""
    prepared: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in prepared:
            prepared.clear()
            prepared[name] = CASES[name]()
            prepared[name]()
        begin = time.perf_counter()
        prepared[name]()
        print(json.dumps(time.perf_counter() - begin), flush=True)


def compare_busy(before: Path, n_busy: int, n_threads: int) -> None:
    """Time the default fit of OSULeaf alone and beside others, with both versions."""
    case = "default classifier, OSULeaf"
    table = make_table(f"{case}, beside {n_busy} others", "version", "alone, s", "beside others, s", "ratio")
    for name, tree in {"before": before, "now": HERE}.items():
        worker = Worker(tree, n_threads)
        alone = min(worker.run(case) for _ in range(3))
        others = [Worker(tree, n_threads) for _ in range(n_busy)]
        for other in others:
            other.run(case)
            other.begin(*[case] * 1000)
        busy = [worker.run(case) for _ in range(3)]
        for process in (worker, *others):
            process.kill()
        table.add_row(name, f"{alone:.2f}", f"{np.median(busy):.2f}", f"{np.median(busy) / alone:.1f}")
    console.print(table)


def main(arguments: list[str]) -> None:
    """Time every case with both versions in turns, and print the ratios of the best times."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks versions", description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="a work tree of the version to compare with")
    parser.add_argument("--rounds", type=int, default=5, help="rounds per process")
    parser.add_argument("--processes", type=int, default=3, help="fresh processes of each version, one after the other")
    parser.add_argument("--threads", type=int, default=1, help="threads of each process")
    parser.add_argument("--busy", type=int, default=0, help="processes that fit at the same time")
    parser.add_argument("cases", nargs="*", help="parts of the names of cases; all by default")
    options = parser.parse_args(arguments)
    if options.busy:
        return compare_busy(options.before, options.busy, options.threads)
    table = make_table("Two versions, best of rounds in turns", "case", "before, ms", "now, ms", "before / now")
    for case in CASES:
        if options.cases and not any(part in case for part in options.cases):
            continue
        best = {"before": float("inf"), "now": float("inf")}
        # Where the arrays of a process lie in memory changes its times by as much as a third.
        for _ in range(options.processes):
            workers = {"before": Worker(options.before, options.threads), "now": Worker(HERE, options.threads)}
            for _ in range(options.rounds):
                for name, worker in workers.items():
                    best[name] = min(best[name], worker.run(case))
            for worker in workers.values():
                worker.stop()
        ratio = best["before"] / best["now"]
        cell = f"{ratio:.2f}" if ratio >= LEAST_RATIO else f"[bold]{ratio:.2f}[/bold]"
        table.add_row(case, f"{1e3 * best['before']:.1f}", f"{1e3 * best['now']:.1f}", cell)
        console.print(f"{case}: {ratio:.2f}")
    console.print(table)


if __name__ == "__main__":
    serve() if "--worker" in sys.argv else main(sys.argv[1:])
