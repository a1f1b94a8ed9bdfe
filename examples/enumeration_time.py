"""Time to enumerate all patterns.

python examples/enumeration_time.py                          # up to 20,000 patterns, writes enumeration-time.png
python examples/enumeration_time.py --patterns 500 -o a.png  # a small one

How the time to enumerate all patterns of random points grows with their number, on log-log axes.
"""

import argparse
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch

from cvxsnn.theory import count_cells, enumerate_patterns

DIMENSIONS = (3, 4)
SIZES_PER_DECADE = 4


def sizes(dimension: int, most: int) -> list[int]:
    """Return numbers of points whose numbers of cells are spaced evenly, on a log scale, from 100 to ``most``."""
    wanted = np.geomspace(100, most, max(2, round(SIZES_PER_DECADE * np.log10(most / 100)) + 1))
    return sorted({max(n for n in range(1, 2000) if count_cells(n, dimension) <= count + 1e-6) for count in wanted})


def measure(dimension: int, n_points: int) -> tuple[int, float]:
    """Return the number of patterns of random points, and the processor seconds to enumerate them."""
    rng = np.random.default_rng(n_points)
    points = np.rint(1024 * rng.normal(size=(n_points, dimension)))
    begin = time.process_time()
    found = enumerate_patterns(points)
    return len(found), time.process_time() - begin


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--patterns", type=int, default=20_000, help="about how many patterns to go up to")
    parser.add_argument("-o", "--output", type=Path, default=Path("enumeration-time.png"))
    arguments = parser.parse_args()
    if arguments.patterns < 200:
        parser.error("expected --patterns of at least 200")
    torch.set_num_threads(1)
    axes = plt.subplots(figsize=(6, 4), layout="constrained")[1]
    for dimension in DIMENSIONS:
        results = [(n_points, *measure(dimension, n_points)) for n_points in sizes(dimension, arguments.patterns)]
        for n_points, n_patterns, seconds in results:
            print(f"dimension {dimension}: {n_points:4d} points, {n_patterns:6d} patterns, {seconds:8.3f} s")
        _, n_patterns, seconds = zip(*results, strict=True)
        slope = np.polyfit(np.log(n_patterns), np.log(seconds), 1)[0]
        axes.loglog(n_patterns, seconds, "o-", label=f"dimension {dimension} (slope {slope:.2f})")
    axes.set(xlabel="patterns found", ylabel="processor seconds", title="Exact enumeration, one thread")
    axes.legend()
    axes.grid(alpha=0.3)
    axes.figure.savefig(arguments.output, dpi=120)
    print(f"saved: {arguments.output}")


if __name__ == "__main__":
    main()
