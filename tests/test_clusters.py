"""One process, several, a cluster, a cluster that loses a worker: the same results, to the bit."""

import contextlib
import logging
import os
import signal
import threading
import time
from functools import cache

import numpy as np
import pytest
import torch
from joblib import parallel_config

import cvxsnn as cs
from cvxsnn.convex import Objective
from cvxsnn.core.parallel import Shared, run_tasks
from cvxsnn.data import TrainingSet
from cvxsnn.experiments import RecordStore, run_all
from cvxsnn.experiments.experiment import RunConfig
from cvxsnn.fitting.search import Tuning
from cvxsnn.witnesses import Normal, Uniform

XOR = cs.tasks.first_last_xor(6, n_train=150, n_val=100, n_test=100)
DATA = TrainingSet.of(XOR.train)
POOL = cs.witnesses.WitnessPool(2, {"hidden": (4, 16), "decay": Uniform(0, 1), "bias": Normal(0, 0.5)}, 8 * 4096)
KEPT, DRAWN_AGAIN = 2**30, 1
"""Bytes for spikes: all of them, or none, so that every round draws the whole pool."""

RUNS = [
    RunConfig(
        "cvx",
        seed,
        task={"name": "first_last_xor", "n_steps": 6, "n_train": 300, "n_val": 100, "n_test": 100},
        family={"hidden": [16, 64], "decay": 0.9},
        objective={"loss": "logistic"},
        surrogate={},
        convex={"n_strengths": 8},
    )
    for seed in range(10)
]


class Cluster:
    """Two Dask workers, each a process of its own."""

    def __init__(self, cluster, client):
        self._cluster, self._client = cluster, client

    def wait_for_workers(self):
        self._client.wait_for_workers(2, timeout=60)

    @contextlib.contextmanager
    def losing_a_worker(self):
        """Give a function; once it was called, kill a worker in the middle of a task."""
        self.wait_for_workers()
        pids = self._client.run(os.getpid)
        is_time, is_over, killed = threading.Event(), threading.Event(), []

        def wait_and_kill():
            is_time.wait()
            while not killed and not is_over.is_set():
                busy = [name for name, worker in list(self._cluster.scheduler.workers.items()) if worker.processing]
                if busy:
                    os.kill(pids[busy[0]], signal.SIGKILL)
                    killed.append(busy[0])
                time.sleep(0.001)

        killer = threading.Thread(target=wait_and_kill)
        killer.start()
        try:
            yield is_time.set
        finally:
            is_over.set()
            is_time.set()
            killer.join()
        assert len(killed) == 1


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": logging.CRITICAL}
    with distributed.LocalCluster(**options) as started, distributed.Client(started) as client:
        yield Cluster(started, client)


@pytest.fixture
def dask(cluster):
    """Joblib told to use the cluster."""
    cluster.wait_for_workers()
    with parallel_config("dask"):
        yield cluster


@pytest.fixture
def loky():
    with parallel_config("loky", n_jobs=2):
        yield


def solve(memory_budget, report=None):
    found = cs.fitting.solve_pool(POOL, DATA, Objective("logistic"), 0.01, memory_budget=memory_budget, callback=report)
    return found.solution, found.members, [vars(moment) | {"seconds": None} for moment in found.rounds]


@cache
def solved_alone():
    return solve(KEPT)


def assert_same_as_alone(found):
    (solution, members, rounds), (own, own_members, own_rounds) = found, solved_alone()
    assert torch.equal(solution.coef, own.coef)
    assert torch.equal(solution.intercept, own.intercept)
    assert torch.equal(solution.dual_point, own.dual_point)
    assert torch.equal(solution.problem.dictionary.patterns, own.problem.dictionary.patterns)
    assert solution.certificate == own.certificate
    assert torch.equal(members, own_members)
    assert rounds == own_rounds


@pytest.mark.parametrize("memory_budget", [KEPT, 10**5, DRAWN_AGAIN])
def test_a_pool_is_solved_alike_in_two_processes(loky, memory_budget):
    assert_same_as_alone(solve(memory_budget))


@pytest.mark.parametrize("memory_budget", [KEPT, DRAWN_AGAIN])
def test_a_pool_is_solved_alike_by_a_cluster(dask, memory_budget):
    assert_same_as_alone(solve(memory_budget))


def test_a_pool_is_solved_alike_by_a_cluster_that_loses_a_worker(dask):
    n_rounds = len(solved_alone()[2])
    told = []
    with dask.losing_a_worker() as lose:

        def report(moment):
            told.append(moment)
            if len(told) == n_rounds // 2:
                lose()

        assert_same_as_alone(solve(DRAWN_AGAIN, report))


def take(shared, number):
    return float(shared.value[number])


def test_shared_values_are_not_put_on_workers_that_may_have_died(dask, monkeypatch):
    async def fail(*_, **__):
        raise OSError("the worker has died")

    def give_up(*_):
        raise TimeoutError("expected the tasks to be finished")  # joblib waits for ever

    monkeypatch.setattr(dask._client, "scatter", fail)
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(30)
    try:
        shared = Shared(np.arange(1000.0))
        answers = dict(run_tasks(take, [(shared, number) for number in range(6)]))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert answers == {number: float(number) for number in range(6)}


@cache
def tuned_alone():
    return tune()


def tune():
    found = cs.fitting.tune_witnesses(
        DATA, Objective("logistic"), lambda network: right(network), Tuning(64, n_trials=20)
    )
    trials = [(trial.family, trial.readout, trial.round, trial.n_rows, *trial.rank) for trial in found.trials]
    return found.family, found.readout, found.score, trials


def right(network):
    return float(np.mean(network.predict(XOR.val.inputs)["label"] == XOR.val.targets))


def test_a_search_finds_the_same_in_two_processes(loky):
    assert tune() == tuned_alone()


def test_a_search_finds_the_same_on_a_cluster(dask):
    assert tune() == tuned_alone()


def carried_out(folder, n_jobs=-1, report=None):
    """What the records of a sweep say, but for times."""
    store = RecordStore(folder / "paper")
    outcome = run_all({config.id: config for config in RUNS}, store, n_jobs=n_jobs, callback=report)
    # A worker may be lost between the record that it writes and its report; the next one then finds the record.
    assert (outcome.n_done + outcome.n_skipped, outcome.n_failed) == (len(RUNS), 0)
    records, damaged = store.read_all()
    assert damaged == []
    for record in records.values():
        del record["seconds"], record["finished"], record["stages"]
    return records


@pytest.fixture(scope="module")
def records_alone(tmp_path_factory):
    return carried_out(tmp_path_factory.mktemp("alone"), n_jobs=1)


def test_a_sweep_has_the_same_records_in_two_processes(loky, tmp_path, records_alone):
    assert carried_out(tmp_path, n_jobs=2) == records_alone


def test_a_sweep_has_the_same_records_on_a_cluster_that_loses_a_worker(dask, tmp_path, records_alone):
    with dask.losing_a_worker() as lose:

        def report(_, done, total):
            if done >= total // 2:
                lose()

        assert carried_out(tmp_path, report=report) == records_alone
