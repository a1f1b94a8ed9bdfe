"""Optima over pools of 10³ to 10⁶ witnesses: time, certified gap, accuracy and peak memory, each in a fresh process."""

import json
import subprocess
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt

import cvxsnn as cs

from .measure import console, make_table, verdict
from .memory import peak_gb

SIZES = (1_000, 10_000, 100_000, 1_000_000)
FAMILY = {"hidden": (32, 128), "fan_in": 3, "decay": 1.0, "threshold": 1.0, "gain": (0.5, 1.0)}
STRENGTH = 0.002
PICTURE = Path("docs/images/pool-growth.png")


def solve_size(n_witnesses: int) -> dict[str, float]:
    """First-last-XOR of 14 steps, 2,000 training sequences, over one pool, in this process."""
    task = cs.tasks.first_last_xor(14, encoding="one-hot", n_train=2000, n_val=2000, n_test=4000)
    pool = cs.witnesses.WitnessPool(2, FAMILY, n_witnesses)
    begin = time.perf_counter()
    result = cs.fitting.solve_pool(pool, cs.data.TrainingSet.of(task.train), cs.convex.Objective("logistic"), STRENGTH)
    seconds = time.perf_counter() - begin
    network = cs.reconstruct(result.solution)
    predicted = {name: network.predict(data.inputs)["label"] for name, data in (("val", task.val), ("test", task.test))}
    return {
        "n_witnesses": pool.n_witnesses,
        "seconds": seconds,
        "primal": result.certificate.primal,
        "gap": result.certificate.relative_gap,
        "n_columns": result.rounds[-1].n_columns,
        "n_active": len(result.solution.support),
        "val": float((predicted["val"] == task.val.targets).mean()),
        "test": float((predicted["test"] == task.test.targets).mean()),
        "peak": peak_gb(),
    }


def draw(results: list[dict[str, float]]) -> None:
    """Time and accuracy against the size of the pool."""
    sizes = [result["n_witnesses"] for result in results]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    left.loglog(sizes, [result["seconds"] for result in results], "o-", label="seconds")
    left.loglog(sizes, [result["n_columns"] for result in results], "s--", label="columns held")
    left.set(xlabel="witnesses in the pool", title="Time and columns held")
    left.legend()
    right.loglog(sizes, [1 - result["test"] for result in results], "o-", label="test error")
    right.loglog(sizes, [result["primal"] for result in results], "s--", label="objective, certified")
    right.set(xlabel="witnesses in the pool", title="First-last-XOR, T = 14, 2,000 sequences")
    right.legend()
    figure.savefig(PICTURE, dpi=130)
    plt.close(figure)


def main() -> None:
    """Run every size in a process of its own, print, draw."""
    table = make_table(
        "Pools, first-last-XOR, T = 14, n = 2,000",
        "witnesses",
        "s",
        "gap",
        "objective",
        "columns",
        "active",
        "test",
        "GB",
    )
    results = []
    for size in SIZES:
        command = [sys.executable, "-m", "benchmarks.pools", str(size)]
        result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        results.append(result)
        table.add_row(
            f"{result['n_witnesses']:,}",
            f"{result['seconds']:.1f}",
            verdict(f"{result['gap']:.1e}", "at most 1e-6", result["gap"] <= 1e-6),
            f"{result['primal']:.4f}",
            f"{result['n_columns']}",
            f"{result['n_active']}",
            f"{result['test']:.4f}",
            verdict(f"{result['peak']:.2f}", "below 2", result["peak"] < 2),
        )
    draw(results)
    console.print(table)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(solve_size(int(sys.argv[1]))))
    else:
        main()
