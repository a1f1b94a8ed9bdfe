"""One process that fits, predicts, saves and loads for a long time: `python -m torture soak --minutes 60`.

Memory must not grow, equal models must be equal files, and no thread or file handle may be left.
"""

import argparse
import gc
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cvxsnn as cs
from cvxsnn.core.progress import ShownProgress

from .work import digest

_PURPOSE = "One process fits, predicts, saves and loads for a long time."

_WARM_UP = 0.25
"""Share of the time before memory is measured: caches and the allocator settle."""

_MOST_GROWTH = 20.0
"""Megabytes per hour that the memory may grow by, beside three standard errors of the slope."""

_N_MEASUREMENTS = 100
"""Measurements of memory, threads and handles that fit into the time."""

_METHODS = ("default", "cvx", "sg-cvx", "r")


def main(arguments: Sequence[str] | None = None) -> int:
    """Work for some minutes, and return 1 if something grew, was left, or came out differently."""
    parser = argparse.ArgumentParser(prog="python -m torture soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to work")
    parser.add_argument("--record", type=Path, help="file of JSON lines to add the counts to")
    options = parser.parse_args(arguments)
    seconds = 60 * options.minutes
    with TemporaryDirectory(prefix="cvxsnn-soak-") as folder, ShownProgress(True) as progress:
        report = soak(Path(folder), seconds, lambda done: progress("soak", round(done), round(seconds)))
    print("\n".join(f"{name}: {value}" for name, value in report.items() if name != "faults"))
    for fault in report["faults"]:
        print(f"FAULT: {fault}")
    if options.record:
        outcomes = {f"rounds, memory {report['growth']}": report["rounds"]}
        line = {"package": "torture", "hunt": "soak", "purpose": _PURPOSE, "first": 0, "cases": report["rounds"]}
        line |= {"seconds": seconds, "outcomes": outcomes, "findings": len(report["faults"])}
        with options.record.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
    return int(bool(report["faults"]))


def soak(folder: Path, seconds: float, progress: Callable[[float], None] = lambda done: None) -> dict[str, Any]:
    """Return counts, measurements and faults.

    Parameters
    ----------
    folder : Path
        An empty folder.
    seconds : float
        How long to work.
    progress : callable
        Called with the seconds gone.

    Returns
    -------
    dict of str to object
        "rounds", "megabytes", "growth", "threads", "handles" and "faults".
    """
    begin, rounds = time.perf_counter(), 0
    expected: dict[str, str] = {}
    faults: list[str] = []
    times: list[float] = []
    sizes: list[float] = []
    counts: list[tuple[int, int]] = []
    due = _WARM_UP * seconds
    while rounds < 2 * len(_METHODS) or not counts or time.perf_counter() - begin < seconds:
        method = _METHODS[rounds % len(_METHODS)]
        found = _round(method, folder)
        if expected.setdefault(method, found) != found:
            faults.append(f"round {rounds}, {method}: expected {expected[method]}, got {found}")
        rounds += 1
        gone = time.perf_counter() - begin
        progress(gone)
        if gone > due and rounds > len(_METHODS):
            due = gone + seconds / _N_MEASUREMENTS
            gc.collect()
            times.append(gone / 3600)
            sizes.append(_resident_megabytes())
            counts.append((_count("task"), _count("fd")))
    slope, error = _slope(np.array(times), np.array(sizes))
    if slope > _MOST_GROWTH + 3 * error:
        faults.append(f"memory grows by {slope:.1f} ± {error:.1f} MB per hour")
    for name, first, last in zip(("threads", "file handles"), counts[0], counts[-1], strict=True):
        if last > first:
            faults.append(f"{last - first} {name} were left")
    return {
        "rounds": rounds,
        "megabytes": round(sizes[-1], 1),
        "growth": f"{slope:.1f} ± {error:.1f} MB per hour",
        "threads": counts[-1][0],
        "handles": counts[-1][1],
        "faults": faults,
    }


def _round(method: str, folder: Path) -> str:
    """Fit, predict, save and load once; return a digest of all that came out."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(60, 5, 3))
    labels = (inputs.sum((1, 2)) > 0).astype(int)
    surrogate = cs.fitting.SurrogateSettings(epochs=2)
    if method == "default":
        model = cs.SpikingClassifier(n_neurons=64, random_state=0)
    else:
        model = cs.SpikingClassifier(method, hidden=(32,), l1_strength=0.003, surrogate=surrogate, random_state=0)
    model.fit(inputs, labels)
    path = folder / f"{method}.safetensors"
    cs.save(model, path)
    loaded = cs.load(path)
    predicted = [own.predict(inputs).tolist() for own in (model, loaded)]
    if predicted[0] != predicted[1]:
        return "a loaded model predicts otherwise"
    network = digest(loaded.network_.state_dict())
    return f"{network} {digest(predicted)} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"


def _slope(times: NDArray[np.float64], sizes: NDArray[np.float64]) -> tuple[float, float]:
    """Return the slope of a line through points, and its standard error."""
    if len(times) < 3 or np.ptp(times) == 0:
        return 0.0, 0.0
    centred = times - times.mean()
    slope = float(centred @ sizes / (centred @ centred))
    rest = sizes - sizes.mean() - slope * centred
    return slope, float(np.sqrt(rest @ rest / (len(times) - 2) / (centred @ centred)))


def _resident_megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def _count(kind: str) -> int:
    return len(list(Path(f"/proc/self/{kind}").iterdir()))
