"""Memory and time of a large dictionary: all training images of MNIST-Seq in 28 steps, one layer of 4,096 neurons."""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import psutil
import torch

from cvxsnn import build_dictionary, gaussian_witnesses
from cvxsnn.core.errors import DataFileError
from cvxsnn.data.tasks import mnist_seq

from .measure import console, make_table, verdict

GOAL_GB = 1.5
N_WITNESSES = 4096
N_TRAIN, N_VAL = 59_999, 1  # a task has at least one validation image


def data_directory() -> Path:
    """Where the files are looked for: CVXSNN_DATA, or the folder ``shared/data`` beside the repository."""
    folder = os.environ.get("CVXSNN_DATA")
    return Path(folder) if folder else Path(__file__).parents[2] / "shared" / "data"


def peak_gb() -> float:
    """Largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e9


def build() -> dict[str, object]:
    """Build the dictionary in this process, and tell what it took."""
    task = mnist_seq(28, n_train=N_TRAIN, n_val=N_VAL, n_test=1, directory=data_directory())
    with_data = psutil.Process().memory_info().rss / 1e9
    start = time.perf_counter()
    dictionary = build_dictionary(gaussian_witnesses(28, (N_WITNESSES,)), torch.from_numpy(task.train.inputs))
    return {
        "seconds": time.perf_counter() - start,
        "with_data_gb": with_data,
        "peak_gb": peak_gb(),
        "packed_gb": dictionary.patterns.nbytes / 1e9,
        "shape": dictionary.shape,
    }


def main() -> None:
    """Build in a fresh process, print."""
    try:
        mnist_seq(28, n_train=1, n_val=1, n_test=1, directory=data_directory())
    except DataFileError as error:
        console.print(f"Memory: skipped. {error}")
        return
    child = subprocess.run([sys.executable, "-m", "benchmarks.memory"], capture_output=True, text=True, check=True)
    result = json.loads(child.stdout)
    table = make_table(
        "Memory, dictionary of MNIST-Seq in 28 steps", "rows × atoms", "s", "packed", "with data", "peak"
    )
    n_rows, n_atoms = result["shape"]
    table.add_row(
        f"{n_rows:,} × {n_atoms:,} of {N_WITNESSES:,}",
        f"{result['seconds']:.1f}",
        f"{result['packed_gb']:.3f} GB",
        f"{result['with_data_gb']:.2f} GB",
        verdict(f"{result['peak_gb']:.2f} GB", f"{GOAL_GB} GB", result["peak_gb"] < GOAL_GB),
    )
    console.print(table)


if __name__ == "__main__":
    print(json.dumps(build()))
