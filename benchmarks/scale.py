"""Many columns, and many rows: time to a certified optimum and peak memory, each in a fresh process."""

import json
import subprocess
import sys
import time

import torch

import cvxsnn as cs

from .measure import console, make_table, verdict
from .memory import peak_gb

CASES = {
    # name: rows, columns, loss, goal in GB
    "2,000 rows × 100,000 columns": (2_000, 100_000, "squared", 2.0),
    "1,000,000 rows × 1,024 columns": (1_000_000, 1_024, "squared", 2.0),
    "1,000,000 rows × 1,024 columns, logistic": (1_000_000, 1_024, "logistic", 2.0),
}


def solve_case(name: str) -> dict[str, object]:
    """Sample, record, solve in this process; tell what it took."""
    n_rows, n_columns, loss, _ = CASES[name]
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(n_rows, 2, 10, generator=generator)
    first, last = inputs[:, 0, 0] > 0, inputs[:, 1, 0] > 0
    labels = (first ^ last).double()
    begin = time.perf_counter()
    witnesses = cs.gaussian_witnesses(
        10, (n_columns,), bias=cs.witnesses.Normal(0.0, 0.5), decay=cs.witnesses.Uniform(0.5, 1.0)
    )
    dictionary = cs.build_dictionary(witnesses, inputs)
    built = time.perf_counter()
    problem = cs.ConvexProblem(dictionary, 2 * labels - 1 if loss == "squared" else labels, loss)
    solution = cs.solve(problem.with_strength(problem.critical_strength / 30))
    return {
        "shape": dictionary.shape,
        "build": built - begin,
        "solve": time.perf_counter() - built,
        "gap": solution.certificate.relative_gap,
        "active": len(solution.support),
        "peak": peak_gb(),
    }


def main() -> None:
    """Run every case in a process of its own, print."""
    table = make_table("Scale, strength critical/30", "case", "atoms", "build s", "solve s", "gap", "active", "peak GB")
    for name, (*_, goal) in CASES.items():
        command = [sys.executable, "-m", "benchmarks.scale", name]
        result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        table.add_row(
            name,
            f"{result['shape'][1]:,}",
            f"{result['build']:.1f}",
            f"{result['solve']:.1f}",
            f"{result['gap']:.1e}",
            f"{result['active']}",
            verdict(f"{result['peak']:.2f}", f"below {goal:g}", result["peak"] < goal),
        )
    console.print(table)


if __name__ == "__main__":
    print(json.dumps(solve_case(sys.argv[1])))
