"""Rows that do not fit into memory: time and peak memory against their number, each case in a fresh process.

Sequences are drawn batch by batch from a seed and forgotten; their spikes are kept on disk, packed. Times of the parts
are processor seconds, which other work on the machine does not change much; the total is also given by the clock on the
wall.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

import cvxsnn as cs
from cvxsnn.dictionary import stream_dictionary, streaming

from .measure import console, make_table, verdict
from .memory import peak_gb

SIZES = {
    "squared": (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000),
    "logistic": (100_000, 300_000, 1_000_000),
}
N_WITNESSES, BATCH = 1024, 10_000
GOAL_GB = 2.0
PICTURE = Path("docs/images/out-of-core.png")


def draw_batches(n_rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Two steps of ten normal features; the label says whether the first feature's signs differ."""
    for number in range(n_rows // BATCH):
        inputs = torch.randn(BATCH, 2, 10, generator=torch.Generator().manual_seed(number))
        yield inputs, ((inputs[:, 0, 0] > 0) ^ (inputs[:, 1, 0] > 0)).double()


def solve_case(loss: str, n_rows: int) -> dict[str, float]:
    """Gather and solve in this process; tell what it took."""
    witnesses = cs.gaussian_witnesses(
        10, (N_WITNESSES,), bias=cs.witnesses.Normal(0.0, 0.5), decay=cs.witnesses.Uniform(0.5, 1.0)
    )
    spent = {"roll-out": 0.0}
    begin, begin_wall = time.process_time(), time.perf_counter()
    timed = patch.object(streaming, "roll_dictionary", _timed(streaming.roll_dictionary, spent, "roll-out"))
    with timed, tempfile.TemporaryDirectory() as folder:
        dictionary, labels = stream_dictionary(witnesses, draw_batches(n_rows), folder)
        gathering = time.process_time() - begin
        n_bytes = sum(path.stat().st_size for path in Path(folder).iterdir())
        problem = cs.ConvexProblem(dictionary, 2 * labels - 1, loss)
        solution = cs.solve(problem.with_strength(problem.critical_strength / 30))
    return {
        "n_rows": n_rows,
        "roll-out": spent["roll-out"],
        "gather": gathering - spent["roll-out"],
        "solve": time.process_time() - begin - gathering,
        "wall": time.perf_counter() - begin_wall,
        "gap": solution.certificate.relative_gap,
        "objective": solution.certificate.primal,
        "active": len(solution.support),
        "disk": n_bytes / 1e9,
        "peak": peak_gb(),
    }


def _timed(function: Callable[..., object], spent: dict[str, float], name: str) -> Callable[..., object]:
    def run(*own: object) -> object:
        begin = time.process_time()
        result = function(*own)
        spent[name] += time.process_time() - begin
        return result

    return run


def draw(results: dict[str, list[dict[str, float]]]) -> None:
    """Time and memory against the number of rows."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for (loss, own), marker in zip(results.items(), "os", strict=True):
        rows = [result["n_rows"] for result in own]
        seconds = [result["roll-out"] + result["gather"] + result["solve"] for result in own]
        left.loglog(rows, seconds, f"{marker}-", label=f"{loss}, all of it")
        right.semilogx(rows, [result["peak"] for result in own], f"{marker}-", label=loss)
        if loss == "squared":
            left.loglog(rows, [result["roll-out"] for result in own], "^--", color="C2", label="squared, roll-out")
            left.loglog(rows, [result["gather"] for result in own], "v--", color="C3", label="squared, writing")
            line = [seconds[-1] * n / rows[-1] for n in rows]
            left.loglog(rows, line, ":", color="grey", label="proportional to rows")
            many = np.geomspace(rows[0], rows[-1])
            right.semilogx(many, many * N_WITNESSES / 8e9, ":", color="grey", label="all spikes, packed")
    left.set(xlabel="rows", ylabel="processor seconds", title=f"Time, {N_WITNESSES:,} columns, one thread")
    right.set(xlabel="rows", ylabel="GB", title="Peak memory of the process", ylim=(0, None))
    left.legend(fontsize="small")
    right.legend(fontsize="small")
    figure.savefig(PICTURE, dpi=130)
    plt.close(figure)


def main() -> None:
    """Run every case in a process of its own, print, draw."""
    results: dict[str, list[dict[str, float]]] = {}
    for loss, sizes in SIZES.items():
        table = make_table(
            f"Out of core, {loss} loss, {N_WITNESSES:,} columns, strength critical/30",
            "rows",
            "roll-out s",
            "gather s",
            "solve s",
            "wall s",
            "gap",
            "active",
            "disk GB",
            "peak GB",
        )
        results[loss] = []
        for n_rows in sizes:
            command = [sys.executable, "-m", "benchmarks.out_of_core", loss, str(n_rows)]
            result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            results[loss].append(result)
            table.add_row(
                f"{n_rows:,}",
                *(f"{result[name]:.1f}" for name in ("roll-out", "gather", "solve", "wall")),
                f"{result['gap']:.1e}",
                f"{result['active']}",
                f"{result['disk']:.3f}",
                verdict(f"{result['peak']:.2f}", f"below {GOAL_GB:g}", result["peak"] < GOAL_GB),
            )
        console.print(table)
    draw(results)


if __name__ == "__main__":
    print(json.dumps(solve_case(sys.argv[1], int(sys.argv[2]))))
