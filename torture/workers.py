"""Workers that are killed in the middle of a task: the others finish, and the results are those of one process."""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import numpy as np
from joblib import parallel_config

import cvxsnn as cs
from fuzz.harness import Finding, Hunt, Skip

from .processes import run
from .work import look, run_sweep, solve_pool, undisturbed

_N_WORKERS, _N_ROUNDS = 2, 2


def case(rng: np.random.Generator, folder: Path) -> str:
    """Kill a worker of processes or of a cluster at a random moment, in each of several rounds."""
    backend, name = str(rng.choice(["loky", "dask"])), str(rng.choice(["pool", "sweep"]))
    if backend == "dask" and find_spec("distributed") is None:
        raise Skip("no Dask")
    expected = undisturbed(name)
    delays = rng.uniform(0, expected.seconds, size=_N_ROUNDS)
    end = run(lambda report: [_lose_workers(backend, name, folder, list(delays))])
    if end.status != "finished":
        raise Finding(f"{name} with workers of {backend}: {end.status}: {end.text}")
    for number in range(_N_ROUNDS):
        if (found := look(name, folder / str(number))) != expected.found:
            raise Finding(f"expected {name} to come to {expected.found} with workers of {backend}, got {found}")
    return f"{name}, worker of {backend} killed × {end.values[0]}"


def _lose_workers(backend: str, name: str, folder: Path, delays: list[float]) -> int:
    """Do some work several times, and return how many workers were killed."""
    n_killed = 0
    with _workers(backend):
        for number, delay in enumerate(delays):
            place = folder / str(number)
            place.mkdir()
            if number == 0:
                _work(name, folder / "first")  # so that workers have begun
            killer = _Killer(delay)
            _work(name, place)
            n_killed += killer.stop()
    return n_killed


def _work(name: str, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    if name == "pool":
        cs.save(solve_pool(lambda rounds: None), folder / "network.safetensors")
    else:
        run_sweep(folder)


class _Killer(threading.Thread):
    """Kill one worker after some time."""

    def __init__(self, delay: float) -> None:
        super().__init__()
        self._delay, self._is_over, self._n_killed = delay, threading.Event(), 0
        self.start()

    def run(self) -> None:
        """Wait, and kill."""
        if not self._is_over.wait(self._delay):
            for pid in _worker_pids()[:1]:
                os.kill(pid, signal.SIGKILL)
                self._n_killed = 1

    def stop(self) -> int:
        """Return the number of workers killed."""
        self._is_over.set()
        self.join()
        return self._n_killed


@contextmanager
def _workers(backend: str) -> Iterator[None]:
    """Configure joblib for two workers."""
    if backend == "loky":
        with parallel_config("loky", n_jobs=_N_WORKERS):
            yield
        return
    from distributed import Client, LocalCluster

    options = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": logging.CRITICAL}
    with LocalCluster(_N_WORKERS, **options) as cluster, Client(cluster) as client:
        client.wait_for_workers(_N_WORKERS, timeout=60)
        with parallel_config("dask"):
            yield


def _worker_pids() -> list[int]:
    """Return the numbers of the workers among the children of this process."""
    found = []
    children = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
    for pid in chain.from_iterable(children):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_text()
            if ("spawn_main" in command or "popen_loky" in command) and "resource_tracker" not in command:
                found.append(int(pid))
    return found


HUNT = Hunt("workers", "Workers of joblib or Dask killed in a task.", case, cases=20, short=0, seconds=300.0)
