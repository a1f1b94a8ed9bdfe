"""A pool and a sweep in one process, in two, on two Dask workers, and on two of which one is killed half-way."""

import contextlib
import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from joblib import parallel_config

import cvxsnn as cs
from cvxsnn.experiments import RecordStore, run_all
from cvxsnn.experiments.experiment import RunConfig
from cvxsnn.fitting.pools import PoolRound

from .measure import console, make_table
from .pools import FAMILY, STRENGTH

Job = Callable[[int, Callable[[], object]], Any]
"""Does work of some size, calls a function when half of it is done, and returns results to compare."""


def solve_pool(n_witnesses: int, half_way: Callable[[], object]) -> Any:
    """The optimum over a pool, first-last-XOR of 14 steps, 2,000 training sequences."""
    task = cs.tasks.first_last_xor(14, encoding="one-hot", n_train=2000)
    pool = cs.witnesses.WitnessPool(2, FAMILY, n_witnesses)

    def report(moment: PoolRound) -> None:
        if 4 * moment.n_witnesses >= pool.n_witnesses:  # from here on it is the whole pool
            half_way()

    found = cs.fitting.solve_pool(
        pool, cs.data.TrainingSet.of(task.train), cs.convex.Objective("logistic"), STRENGTH, callback=report
    )
    return found.solution.coef.tolist(), found.members.tolist(), found.certificate


def run_sweep(n_runs: int, half_way: Callable[[], object]) -> Any:
    """The records of runs that differ in their seeds."""
    tables: dict[str, Any] = {
        "task": {"name": "first_last_xor", "n_steps": 10, "n_train": 1000, "n_val": 500, "n_test": 1000},
        "family": {"hidden": [64, 512], "decay": 0.9},
        "objective": {"loss": "logistic"},
        "surrogate": {},
        "convex": {"n_strengths": 12},
    }
    configs = [RunConfig("cvx", seed, **tables) for seed in range(n_runs)]

    def report(_: str, done: int, total: int) -> None:
        if done >= total // 2:
            half_way()

    with tempfile.TemporaryDirectory() as folder:
        store = RecordStore(Path(folder) / "paper")
        run_all({config.id: config for config in configs}, store, n_jobs=None, callback=report)
        records, _ = store.read_all()
    return {name: (record["scores"], record["primal"], record["dual"]) for name, record in records.items()}


SIZES: dict[Job, tuple[int, int]] = {solve_pool: (8_192, 200_000), run_sweep: (2, 24)}
"""To warm up, so that workers have started and imported what they need; and to be measured."""


@contextlib.contextmanager
def start_cluster() -> Iterator[Any]:
    """Two Dask workers, each a process of one thread."""
    from distributed import Client, LocalCluster

    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options, silence_logs=logging.CRITICAL) as cluster, Client(cluster) as client:
        yield client


@contextlib.contextmanager
def losing_a_worker(client: Any) -> Iterator[Callable[[], object]]:
    """Give a function; once it was called, kill a worker in the middle of a task."""
    client.wait_for_workers(2)
    pids = client.run(os.getpid)
    is_time = threading.Event()

    def wait_and_kill() -> None:
        is_time.wait()
        while True:
            for name, worker in list(client.cluster.scheduler.workers.items()):
                if worker.processing:
                    os.kill(pids[name], signal.SIGKILL)
                    return
            time.sleep(0.001)

    killer = threading.Thread(target=wait_and_kill)
    killer.start()
    yield is_time.set
    killer.join()


def main() -> None:
    """Do everything in every way, and compare with one process."""
    table = make_table("One process and others", "", "pool, s", "sweep, s", "identical")
    alone: dict[Job, Any] = {}

    def measure(name: str, watching: Callable[[], contextlib.AbstractContextManager[Callable[[], object]]]) -> None:
        seconds, are_identical = [], True
        for job, (small, size) in SIZES.items():
            job(small, lambda: None)
            with watching() as half_way:
                begin = time.perf_counter()
                found = job(size, half_way)
                seconds.append(f"{time.perf_counter() - begin:.1f}")
            are_identical &= found == alone.setdefault(job, found)
        table.add_row(name, *seconds, "yes" if are_identical else "[bold]no[/bold]")

    def undisturbed() -> contextlib.nullcontext[Callable[[], object]]:
        return contextlib.nullcontext(lambda: None)

    measure("one process", undisturbed)
    with parallel_config("loky", n_jobs=2):
        measure("two processes", undisturbed)
    with start_cluster() as client, parallel_config("dask"):
        measure("two Dask workers", undisturbed)
        measure("two Dask workers, one killed half-way", lambda: losing_a_worker(client))
    console.print(table)


if __name__ == "__main__":
    main()
