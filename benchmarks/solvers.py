"""Convex solvers: the time to a certified relative gap of 1e-6, ours beside everybody's.

Every contender works in a fresh process on the same dictionary, one problem at a time, and every result is judged by
:func:`cvxsnn.certify` on the original problem in float64. What is measured is kept as one JSON object a line in
``results/solvers.jsonl``, and tables and pictures are made from those lines: a run that was interrupted goes on where
it stopped, and ``--render`` measures nothing.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cvxsnn import ConvexProblem, SpikeDictionary, build_dictionary, gaussian_witnesses
from cvxsnn.core.errors import DataFileError
from cvxsnn.data.tasks import addition, first_last_xor, mnist_seq

from . import solvers_report
from .measure import console, machine_facts
from .memory import data_directory
from .peers import CONTENDERS, GOAL, OUR_PATH, kind_of, penalty_of
from .solver_process import save_dictionary
from .solvers_report import RECORDS, Record

STRENGTHS = (10, 100, 1000)
"""The critical strength is divided by these."""

ELASTIC_STRENGTHS = (0, 100)
"""The same for elastic nets, where 0 stands for ridge, which has no L1 norm."""

L2_FACTORS = (1, 10)
"""The quadratic's strength of a dictionary and loss is multiplied by these."""

LIMITS_S = {"l1": 600.0, "elastic-net": 120.0}
"""Seconds for all fits of one contender on one problem together."""

SETUP_LIMIT_S = 300.0
"""Seconds for what comes before the first fit: imports, the warm-up, reading the data."""

PACKAGES = ("cvxsnn", "scikit-learn", "celer", "skglm", "adelie", "cvxpy", "clarabel", "scipy", "highspy", "numpy")

Targets = dict[str, npt.NDArray[Any]]
"""For each loss that is tried on a dictionary: real numbers (a column for each output), −1 and 1, or classes."""


def make_addition(n_train: int = 2304, hidden: tuple[int, int] = (256, 512)) -> tuple[SpikeDictionary, Targets]:
    """All steps of base-3 addition: the sum's digit as a number and as a class, and the carry."""
    train = addition(base=3, n_digits=5, n_train=n_train, seed=0).train
    dictionary = build_dictionary(gaussian_witnesses(3, hidden, 2, seed=0), train.inputs, readout="all")
    digit, carry = train.heads["sum"].ravel(), train.heads["carry"].ravel()
    return dictionary, {"squared": digit.astype(np.float64), "logistic": 2.0 * carry - 1, "softmax": digit}


def make_xor11(n_train: int = 2304, hidden: tuple[int, int] = (64, 256)) -> tuple[SpikeDictionary, Targets]:
    """First-last-XOR over 11 steps."""
    train = first_last_xor(11, n_train=n_train).train
    dictionary = build_dictionary(gaussian_witnesses(2, hidden, 2, decay=0.99), train.inputs)
    return dictionary, {"hinge": 2.0 * train.heads["label"] - 1}


def make_mnist2() -> tuple[SpikeDictionary, Targets]:
    """MNIST in two halves."""
    train = mnist_seq(2, directory=data_directory()).train
    return build_dictionary(gaussian_witnesses(392, (512, 1024)), train.inputs), {"softmax": train.heads["label"]}


def make_wide14(n_train: int = 2000, hidden: tuple[int, int] = (256, 65_536)) -> tuple[SpikeDictionary, Targets]:
    """First-last-XOR over 14 steps with twenty times as many atoms as rows."""
    train = first_last_xor(14, n_train=n_train).train
    dictionary = build_dictionary(gaussian_witnesses(2, hidden, decay=0.99), train.inputs)
    return dictionary, {"squared": 2.0 * train.heads["label"] - 1}


def make_counts(n_neurons: int, n_train: int = 6000, n_hidden: int = 256) -> tuple[SpikeDictionary, Targets]:
    """Mean spike counts of MNIST in 28 steps: the digit as a class, and as ten numbers of which one is 1."""
    train = mnist_seq(28, n_train=n_train, directory=data_directory()).train
    witnesses = gaussian_witnesses(28, (n_hidden, n_neurons), seed=0)
    label = train.heads["label"]
    return build_dictionary(witnesses, train.inputs, readout="mean"), {"squared": np.eye(10)[label], "softmax": label}


CLARABEL = ("Clarabel", "Clarabel (Gram)")


@dataclass(frozen=True)
class Source:
    """How a dictionary is made, the losses tried on it, and whether it has more rows than atoms.

    ``l2_strengths`` has the losses that are tried with elastic nets, each with a power of ten near the
    quadratic's best strength for ridge on validation data; ``too_large_for`` are contenders that are not given those.
    """

    make: Callable[[], tuple[SpikeDictionary, Targets]]
    losses: tuple[str, ...] = ()
    is_tall: bool = True
    l2_strengths: Mapping[str, float] = field(default_factory=dict)
    too_large_for: tuple[str, ...] = ()


SOURCES = {
    "addition3": Source(
        make_addition,
        ("squared", "logistic", "softmax"),
        l2_strengths={"squared": 1e-3, "logistic": 1e-4, "softmax": 1e-4},
    ),
    "xor11": Source(make_xor11, ("hinge",)),
    "mnist2": Source(make_mnist2, ("softmax",), l2_strengths={"softmax": 1e-2}, too_large_for=CLARABEL),
    "wide14": Source(make_wide14, ("squared",), is_tall=False, l2_strengths={"squared": 1e-2}, too_large_for=CLARABEL),
    "counts2048": Source(
        lambda: make_counts(2048), l2_strengths={"squared": 1e-4, "softmax": 1e-5}, too_large_for=CLARABEL
    ),
    "counts8192": Source(
        lambda: make_counts(8192),
        is_tall=False,
        l2_strengths={"squared": 1e-4, "softmax": 1e-5},
        too_large_for=CLARABEL,
    ),
}

SMALL_SOURCES = {
    "small addition": Source(
        lambda: make_addition(60, (16, 48)),
        ("squared", "logistic", "softmax"),
        l2_strengths={"squared": 1e-3, "logistic": 1e-3, "softmax": 1e-3},
    ),
    "small xor": Source(lambda: make_xor11(150, (16, 32)), ("hinge",)),
    "small and wide": Source(
        lambda: make_wide14(60, (16, 200)), ("squared",), is_tall=False, l2_strengths={"squared": 1e-1}
    ),
    "small counts": Source(lambda: make_counts(40, 200, 16), l2_strengths={"squared": 1e-3, "softmax": 1e-3}),
}
"""For checking in a minute or two that everybody solves the same problem."""


@dataclass(frozen=True)
class Data:
    """A dictionary in a folder, where the processes find it."""

    folder: Path
    shape: tuple[int, int]
    build_seconds: float
    critical_strengths: Mapping[str, float]

    @classmethod
    def build(cls, source: Source, folder: Path) -> "Data":
        """Build a dictionary and write its columns and targets to ``folder``."""
        begin = time.perf_counter()
        dictionary, targets_of = source.make()
        seconds = time.perf_counter() - begin
        save_dictionary(folder, dictionary)
        critical = {}
        for loss, targets in targets_of.items():
            np.save(folder / f"targets-{loss}.npy", targets)
            critical[loss] = ConvexProblem(dictionary, targets, loss=loss).critical_strength
        return cls(folder, dictionary.shape, seconds, critical)


def measure(data: Data, key: Mapping[str, Any], limit: float, goal: float) -> Record:
    """Run one contender on one problem in its own process, and say how it went."""
    critical = data.critical_strengths[key["loss"]]
    strength = strength_of(critical, key["ratio"])
    with tempfile.TemporaryDirectory() as scratch:
        log, errors = Path(scratch) / "log.jsonl", Path(scratch) / "errors.txt"
        log.touch()
        command = [sys.executable, "-m", "benchmarks.solver_process"]
        for option, value in {
            "data": data.folder,
            "log": log,
            "contender": key["contender"],
            "loss": key["loss"],
            "strength": repr(strength),
            "l2-strength": repr(key["l2"]),
            "critical-strength": repr(critical),
            "goal": goal,
        }.items():
            command += [f"--{option}", str(value)]
        with errors.open("w") as stream:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stream)
            unfinished = watch(process, log, limit)
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        complaints = [entry["error"] for entry in entries if "error" in entry]
        if process.returncode and unfinished is None:
            complaints += [f"exit status {process.returncode}", *errors.read_text().strip().splitlines()[-1:]]
    fits = [entry for entry in entries if "seconds" in entry]
    if any(fit["relative_gap"] <= goal for fit in fits):
        outcome = "reached"
    elif unfinished is not None:
        outcome = "limit"
    else:
        outcome = "failed" if process.returncode or not fits else "stopped"
    return {
        **key,
        "outcome": outcome,
        "fits": fits,
        "unfinished_seconds": unfinished,
        "complaints": complaints,
        "limit": limit,
        "strength": strength,
        "shape": data.shape,
        "build_seconds": data.build_seconds,
        "machine": machine_facts(),
        "versions": {package: version(package) for package in PACKAGES},
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }


def watch(process: "subprocess.Popen[bytes]", log: Path, limit: float) -> float | None:
    """Wait for a process, or kill it at the limit and give the seconds that its last fit had lasted."""
    started = time.time()
    while process.poll() is None:
        time.sleep(0.1)
        lines = log.read_text().splitlines()
        now, begun = time.time(), [entry["begun"] for entry in map(json.loads, lines) if "begun" in entry]
        if begun and now - begun[0] > limit:
            process.kill()
            process.wait()
            return now - begun[-1]
        if not begun and now - started > SETUP_LIMIT_S:
            process.kill()
            process.wait()
    return None


def strength_of(critical: float, ratio: int) -> float:
    """The critical strength over the ratio, or zero."""
    return critical / ratio if ratio else 0.0


def cells_of(source: Source, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All problems on a dictionary: those with an L1 norm alone, then those with the quadratic too."""
    for loss in source.losses if "l1" in options.penalty else ():
        for ratio in options.strength or STRENGTHS:
            if ratio:
                yield {"loss": loss, "penalty": "l1", "l2": 0.0, "ratio": ratio}
    for factor in options.l2_factor if "elastic-net" in options.penalty else ():
        for loss, l2_strength in source.l2_strengths.items():
            for ratio in ELASTIC_STRENGTHS:
                if not options.strength or ratio in options.strength:
                    l2 = float(f"{factor * l2_strength:.6g}")
                    yield {"loss": loss, "penalty": penalty_of(l2), "l2": l2, "ratio": ratio}


def problems_of(name: str, source: Source, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Everybody who can solve a problem on a dictionary, with the problem; our path is asked for once."""
    for cell in cells_of(source, options):
        left_out = source.too_large_for if cell["l2"] else ()
        for contender in CONTENDERS.values():
            if (
                contender.takes(kind_of(cell["ratio"], cell["l2"]), cell["loss"], source.is_tall)
                and contender.name not in left_out
                and (contender.name != OUR_PATH or (name, cell["ratio"]) == ("addition3", STRENGTHS[-1]))
            ):
                yield {"dictionary": name, **cell, "contender": contender.name}


def is_finished(records: Sequence[Record], key: Mapping[str, Any], limit: float) -> bool:
    """Whether this was measured on this machine, with at least this limit where the limit is what stopped it."""
    machine = machine_facts()
    return any(
        all(record[name] == value for name, value in key.items())
        and record["machine"] == machine
        and (record["outcome"] != "limit" or record["limit"] >= limit)
        for record in records
    )


def run(options: argparse.Namespace) -> None:
    """Measure what has not been measured yet, and write each record as soon as there is one."""
    records = [] if options.fresh else solvers_report.read_records()
    for name, source in SOURCES.items():
        pending = [
            key
            for key in problems_of(name, source, options)
            if (not options.only or f"{name}-{key['loss']}" in options.only)
            and (not options.contender or any(part in key["contender"] for part in options.contender))
            and not is_finished(records, key, limit_of(key, options))
        ]
        if not pending:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                data = Data.build(source, Path(folder))
            except DataFileError as error:
                console.print(f"{name}: skipped. {error}")
                continue
            n_rows, n_atoms = data.shape
            console.print(f"{name}: {n_rows:,} rows × {n_atoms:,} atoms, built in {data.build_seconds:.1f} s")
            for key in pending:
                record = measure(data, key, limit_of(key, options), GOAL)
                solvers_report.append_record(record)
                title = f"{key['loss']}, {solvers_report.describe_strengths(record)}, {key['contender']}"
                console.print(f"  {title}: {solvers_report.describe(record)}")


def limit_of(key: Mapping[str, Any], options: argparse.Namespace) -> float:
    """Seconds for a contender on a problem."""
    return LIMITS_S[key["penalty"]] if options.limit is None else options.limit


def check(options: argparse.Namespace) -> None:
    """Check on small problems that every contender's objective is ours: its certified gap must vanish."""
    options.strength, options.l2_factor = options.strength or [100, 0], L2_FACTORS[:1]
    for name, source in SMALL_SOURCES.items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                data = Data.build(source, Path(folder))
            except DataFileError as error:
                console.print(f"{name}: skipped. {error}")
                continue
            for key in problems_of(name, source, options):
                if options.contender and not any(part in key["contender"] for part in options.contender):
                    continue
                record = measure(data, key, limit_of(key, options), goal=1e-9)
                gap = solvers_report.best_gap(record)
                verdict = "same" if gap <= GOAL else "[bold]not shown[/bold]"
                problem = f"{name} {data.shape[0]} × {data.shape[1]}, {key['loss']}"
                title = f"{problem}, {solvers_report.describe_strengths(record)}, {key['contender']}"
                console.print(f"{title}: certified gap {gap:.1e}", verdict, *record["complaints"])


def main(arguments: Sequence[str] = ()) -> None:
    """Measure, then make tables and pictures from all records."""
    problems = [
        f"{name}-{loss}"
        for name, source in SOURCES.items()
        for loss in dict.fromkeys((*source.losses, *source.l2_strengths))
    ]
    parser = argparse.ArgumentParser(prog="python -m benchmarks solvers", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=problems, metavar="PROBLEM", help=f"some of {', '.join(problems)}")
    parser.add_argument("--penalty", nargs="+", choices=LIMITS_S, default=list(LIMITS_S), help="both by default")
    parser.add_argument(
        "--strength",
        nargs="+",
        type=int,
        choices=(*STRENGTHS, 0),
        help="divisors of the critical strength; 0 for ridge",
    )
    parser.add_argument(
        "--l2-factor",
        nargs="+",
        type=int,
        choices=L2_FACTORS,
        default=L2_FACTORS,
        help="elastic nets: multiples of the quadratic's best strength",
    )
    names = ", ".join(CONTENDERS)
    parser.add_argument("--contender", nargs="+", metavar="PART", help=f"those with this in their name: {names}")
    limits = " and ".join(f"{limit:g} ({penalty})" for penalty, limit in LIMITS_S.items())
    parser.add_argument("--limit", type=float, help=f"seconds a contender may take for a problem, by default {limits}")
    parser.add_argument("--fresh", action="store_true", help="measure again what there are records of")
    parser.add_argument("--render", action="store_true", help=f"measure nothing, only show {RECORDS.name}")
    parser.add_argument("--check", action="store_true", help="only check on small problems that all solve the same")
    options = parser.parse_args(arguments)
    if options.check:
        check(options)
        return
    if not options.render:
        run(options)
    solvers_report.render()
