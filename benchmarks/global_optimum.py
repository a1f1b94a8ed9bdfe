"""How long a proof over all neurons takes: ``python -m benchmarks.global_optimum [names] [--seconds 600]``.

Each row is a data set, a loss and a strength; the time is that of the whole column generation until the relative gap is
at most 1e-3. Processor seconds are those of this process, on all its threads.
"""

import argparse
import itertools
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import sklearn.datasets

from cvxsnn.theory import LIFFamily, price, solve_complete

FloatArray = npt.NDArray[np.float64]
TOL = 1e-3


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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(PROBLEMS), help=", ".join(PROBLEMS))
    parser.add_argument("--seconds", type=float, default=600.0)
    arguments = parser.parse_args()
    print(f"load at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print("| problem | loss | strength | relative gap | seconds | processor seconds | rounds | boxes | neurons read |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows(arguments.names, arguments.seconds):
        print(row, flush=True)


if __name__ == "__main__":
    main()
