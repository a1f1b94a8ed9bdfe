"""How long a proof over all neurons takes: ``python -m benchmarks.global_optimum [names] [--seconds 600]``.

Each row is a data set, a loss and a strength; the time is that of the whole column generation until the relative gap is
at most 1e-3. Processor seconds are those of this process, on all its threads. ``--growth`` measures how the time of one
search grows with the samples, the parameters and the steps instead, and draws it.
"""

import argparse
import itertools
import os
import time
from collections.abc import Iterator
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sklearn.datasets

from cvxsnn.theory import LIFFamily, price, solve_complete

FloatArray = npt.NDArray[np.float64]
TOL = 1e-3
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "global-growth.png"


def moons(n_points: int) -> tuple[FloatArray, FloatArray, LIFFamily]:
    """Two moons, one step."""
    points, label = sklearn.datasets.make_moons(n_points, noise=0.2, random_state=0)
    return points[:, None], 2.0 * label - 1, LIFFamily(0.5, bias=True)


def xor(n_steps: int) -> tuple[FloatArray, FloatArray, LIFFamily]:
    """Whether the first of some bits differs from the last, one-hot."""
    bits = np.array(list(itertools.product((0, 1), repeat=n_steps)))
    return np.eye(2)[bits], 2.0 * (bits[:, 0] ^ bits[:, -1]) - 1, LIFFamily(0.5)


def iris(n_steps: int = 1) -> tuple[FloatArray, FloatArray, LIFFamily]:
    """Iris, the second class against the others; the same values at each step."""
    values, label = sklearn.datasets.load_iris(return_X_y=True)
    inputs = np.repeat(np.rint(10 * values)[:, None] / 16, n_steps, axis=1)  # tenths, so that nothing is rounded
    return inputs, 2.0 * (label == 1) - 1, LIFFamily(0.5, bias=True)


def components(name: str) -> tuple[FloatArray, FloatArray, LIFFamily]:
    """The first four principal components, rounded to multiples of 1/256."""
    values, label = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    values = (values - values.mean(0)) / values.std(0)
    axes = np.linalg.svd(values, full_matrices=False)[2][:4]
    return np.rint(256 * values @ axes.T)[:, None] / 256, 2.0 * (label == 1) - 1, LIFFamily(0.5, bias=True)


def banknotes() -> tuple[FloatArray, FloatArray, LIFFamily]:
    """1,372 points in four dimensions, drawn: as many as the banknote data have."""
    rng = np.random.default_rng(1)
    label = np.where(rng.random(1372) < 0.555, 1.0, -1.0)
    points = rng.normal(size=(1372, 4)) + 0.6 * label[:, None] * np.array([1, 0.7, -0.3, 0.1])
    return np.rint(256 * points)[:, None] / 256, label, LIFFamily(0.5, bias=True)


def shrinking() -> tuple[FloatArray, FloatArray, LIFFamily]:
    """Fifty points of two moons that shrink in three steps: the problem of the theory page."""
    points, label = sklearn.datasets.make_moons(50, noise=0.1, random_state=0)
    inputs = np.rint(32 * np.stack((points, points / 2, points / 4), axis=1)) / 32
    return inputs, 2.0 * label - 1, LIFFamily(0.5, bias=True)


PROBLEMS: dict[str, Any] = {
    "moons-400": lambda: moons(400),
    "moons-2000": lambda: moons(2000),
    "iris": iris,
    "iris-2": lambda: iris(2),
    "iris-3": lambda: iris(3),
    "wine": lambda: components("wine"),
    "breast_cancer": lambda: components("breast_cancer"),
    "banknotes": banknotes,
    "xor-6": lambda: xor(6),
    "shrinking": shrinking,
}


def critical(inputs: FloatArray, targets: FloatArray, family: LIFFamily, loss: str, seconds: float) -> float:
    """Return a strength at which no neuron is read: the largest price of the gradient at zero, or a bound on it."""
    events = family.on(inputs)
    dual = np.zeros(inputs.shape[:2])
    dual[:, -1] = targets / len(targets) * (1.0 if loss == "squared" else 0.5)
    return price(events, dual, max_seconds=seconds).bound


def rows(names: list[str], seconds: float) -> Iterator[str]:
    """Yield the rows of the table."""
    for name in names:
        inputs, targets, family = PROBLEMS[name]()
        for loss, share in itertools.product(("squared", "logistic"), (3, 10)):
            strength = critical(inputs, targets, family, loss, seconds) / share
            begin, used = time.monotonic(), time.process_time()
            found = solve_complete(inputs, targets, family, loss, strength, tol=TOL, max_seconds=seconds)
            taken, used = time.monotonic() - begin, time.process_time() - used
            gap, n_boxes = found.certificate.relative_gap, sum(own.n_boxes for own in found.rounds)
            yield (
                f"| {name} | {loss} | critical/{share} | {gap:.1e} | {taken:.1f} | {used:.1f} | {len(found.rounds)} | "
                f"{n_boxes:,} | {len(found.solution.support)} |"
            )


GROWTH = {
    "samples (3 parameters, one step)": [(n, 2, 1) for n in (100, 200, 400, 800, 1600, 3200, 6400)],
    "parameters (60 samples, one step)": [(60, d, 1) for d in (1, 2, 3, 4, 5, 6)],
    "steps (20 samples, 3 parameters)": [(20, 1, t) for t in (2, 3, 4, 5, 6)],
}
"""What grows, and the samples, features and steps of each search."""


def n_regions(n_samples: int, n_features: int, n_steps: int) -> float:
    """Return how many regions hyperplanes in general position through the origin have: one per sample and history."""
    n_planes, dimension = n_samples * (2**n_steps - 1), n_features + 1 + (n_steps > 1)
    return 2.0 * sum(comb(n_planes - 1, k) for k in range(dimension))


def search_time(n_samples: int, n_features: int, n_steps: int) -> tuple[float, int]:
    """Return the processor seconds and boxes of the search for the largest price of random signs."""
    rng = np.random.default_rng(0)
    inputs = np.rint(64 * rng.normal(size=(n_samples, n_steps, n_features))) / 64
    dual = np.zeros((n_samples, n_steps))
    dual[:, -1] = rng.choice([-1.0, 1.0], n_samples)
    events = LIFFamily(0.5, bias=True).on(inputs)
    price(events, dual, max_boxes=100)  # compiled before the clock starts
    used = time.process_time()
    found = price(events, dual)
    assert found.is_finished
    return time.process_time() - used, found.n_boxes


def draw_growth() -> None:
    """Measure and draw how the time of a search grows, beside the number of regions."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained")
    for (title, sizes), axes in zip(GROWTH.items(), panels, strict=True):
        varying = next(k for k in range(3) if sizes[0][k] != sizes[1][k])
        x = np.array([own[varying] + (varying == 1) for own in sizes], dtype=float)
        measured = np.array([search_time(*own) for own in sizes])
        regions = np.array([n_regions(*own) for own in sizes])
        for name, values in zip(("processor seconds", "boxes"), measured.T, strict=True):
            exponent = np.polyfit(np.log(x), np.log(values), 1)[0]
            axes.loglog(x, values, "o-", label=f"{name}: exponent {exponent:.1f}")
            print(f"{title}: {name} {values.tolist()}", flush=True)
        exponent = np.polyfit(np.log(x), np.log(regions), 1)[0]
        axes.loglog(x, regions, "k--", label=f"regions, at most: exponent {exponent:.1f}")
        axes.set_xlabel(title)
        axes.set_xticks(x, [f"{v:g}" for v in x])
        axes.minorticks_off()
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    figure.savefig(PICTURE, dpi=120)


def main() -> None:
    """Print the table, or draw the growth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(PROBLEMS), help=", ".join(PROBLEMS))
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--growth", action="store_true", help="draw how the time grows instead")
    arguments = parser.parse_args()
    if arguments.growth:
        draw_growth()
        return
    print(f"load at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print("| problem | loss | strength | relative gap | seconds | processor seconds | rounds | boxes | neurons read |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows(arguments.names, arguments.seconds):
        print(row, flush=True)


if __name__ == "__main__":
    main()
