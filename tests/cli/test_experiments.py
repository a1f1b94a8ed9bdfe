import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli.commands import run
from experiments.test_files import MINE

from cvxsnn.data.tasks.registry import TASKS
from cvxsnn.experiments import RecordStore

XOR = ("reproduce", "duality-gap", "-o", "out", "--jobs", "1", "--device", "cpu")
"""At smoke scale, rows of 2, 16 and 64 subnetworks with one run each."""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def succeed(*arguments):
    outcome = run(*arguments)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def fail(complaint, *arguments):
    """Run a command that complains on one line and does nothing."""
    outcome = run(*arguments)
    assert outcome.exit_code == 1, outcome.output
    assert isinstance(outcome.exception, SystemExit)
    assert re.search(complaint, outcome.stderr), outcome.stderr
    assert len(outcome.stderr.strip().splitlines()) == 1
    assert not records()


def records():
    found, damaged = RecordStore(Path("out") / "smoke").read_all()
    assert not damaged
    return found


def n_subnetworks(found):
    return sorted(record["config"]["family"]["n_subnetworks"] for record in found.values())


def test_a_row_is_run_alone_and_not_again_with_the_others():
    assert "1 run done, 0 failed, 0 were there already" in succeed(*XOR, "--row", "K = 16")
    first = records()
    assert n_subnetworks(first) == [16]
    assert "2 runs done, 0 failed, 1 were there already" in succeed(*XOR)
    everything = records()
    assert n_subnetworks(everything) == [2, 16, 64]
    assert everything | first == everything


@pytest.mark.parametrize("row", ["K = 17", "T = 6", ""])
def test_a_row_that_the_experiment_does_not_have_is_one_sentence(row):
    fail(f"expected a row among 'K = 2', 'K = 16', 'K = 64', got '{row}'$", *XOR, "--row", row)


def test_several_rows_are_run():
    assert "2 runs done, 0 failed" in succeed(*XOR, "--row", "K = 16", "--row", "K = 2")
    assert n_subnetworks(records()) == [2, 16]


def test_a_scheduler_without_dask_is_one_sentence():
    fail("expected --backend dask beside a --scheduler, got --backend loky", *XOR, "--scheduler", "tcp://127.0.0.1:1")


def test_a_backend_that_nobody_registered_is_one_sentence():
    fail("expected an available joblib backend, got 'nonsense'.*'loky'", *XOR, "--backend", "nonsense")


def test_a_scheduler_that_does_not_answer_is_one_sentence():
    pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    complaint = r"got 'dask': .*tcp://127\.0\.0\.1:1.*name a --scheduler that answers"
    with dask.config.set({"distributed.comm.timeouts.connect": "200ms"}):  # it knocks again until then
        fail(complaint, *XOR, "--backend", "dask", "--scheduler", "tcp://127.0.0.1:1")


def test_an_experiment_of_ones_own_is_run_listed_and_reported():
    Path("mine.toml").write_text(MINE)
    options = ("-o", "out", "--jobs", "1", "--device", "cpu")
    assert "2 runs done, 0 failed" in succeed("reproduce", "mine.toml", *options)
    assert "Mine" in succeed("reproduce", "mine.toml", "--list")
    succeed("report", "mine.toml", "--records", "out", "-o", "page.html", "--tables", "tables")
    page = Path("page.html").read_text()
    assert "<h1>Experiments</h1>" in page
    assert '<h2 id="experiment-mine-title">Mine</h2>' in page
    assert "2 of 2 runs recorded" in page
    assert "`cvxsnn reproduce mine.toml --scale smoke`" in Path("tables/mine.md").read_text()


OWN_TASK = """
import numpy as np
from cvxsnn.data import SequenceData, Task
from cvxsnn.data.tasks.registry import TASKS, RegisteredTask

def parity(n_steps, *, seed=0):
    bits = np.random.default_rng(seed).integers(0, 2, (40, n_steps))
    data = SequenceData(np.eye(2)[bits], bits.sum(1) % 2)
    return Task(name="parity", train=data, val=data, test=data, n_classes={"label": 2})

TASKS.register("parity", RegisteredTask(parity))
"""


def test_tasks_of_ones_own_are_imported_by_all_workers_and_compared_with_a_reference():
    Path("my_tasks.py").write_text(OWN_TASK)
    xor = MINE.partition('[[cell]]\nrow = "digits"')
    mine = xor[0] + MINE[MINE.index("[defaults]") :]
    mine = mine.replace('name = "first_last_xor", n_train = 24, n_val = 12, n_test = 12', 'name = "parity"')
    Path("mine.toml").write_text(mine.replace('column = "CVX"', 'column = "CVX"\nreference = 0.25'))
    fail("expected task to be one of", "reproduce", "mine.toml", "-o", "out")
    # In a process of its own, for the task stays registered.
    command = [sys.executable, "-m", "cvxsnn.cli", "reproduce", "mine.toml", "-o", "out", "--scale", "paper"]
    done = subprocess.run([*command, "--jobs", "2", "--import", "my_tasks.py"], capture_output=True, text=True)
    assert "2 runs done, 0 failed" in done.stdout, done.stderr
    report = ["report", "mine.toml", "--records", "out", "--scale", "paper", "-o", "page.html", "--tables", "tables"]
    succeed(*report, "--import", "my_tasks.py")
    TASKS.unregister("parity")
    page = Path("page.html").read_text() + Path("tables/mine.md").read_text()
    assert "the reference in brackets" in " ".join(page.split())
    assert "the paper" not in page


def test_a_file_that_cannot_be_imported_is_one_sentence():
    Path("broken.py").write_text("1 / 0")
    fail("expected .*broken.py to be Python that can be imported, got ZeroDivisionError", *XOR, "--import", "broken.py")
    fail("expected a file that ends in .py to import", *XOR, "--import", "tasks.txt")


def test_a_mistake_in_an_experiment_of_ones_own_is_one_sentence_and_runs_nothing():
    Path("mine.toml").write_text(MINE.replace('"first_last_xor"', '"sums"'))
    fail(r"expected task to be one of .*, got 'sums' \(in mine\.toml", "reproduce", "mine.toml", "-o", "out")


def test_the_list_names_the_data_files_that_experiments_need():
    assert "MNIST" in succeed("reproduce", "mnist-depth", "--list", "--scale", "paper")
    assert "MNIST" not in succeed("reproduce", "xor-depth", "--list", "--scale", "paper")


def test_the_reason_of_the_first_failure_is_printed():
    Path("mine.toml").write_text(MINE.replace("decay = 0.9", "decay = -3.0"))
    outcome = run("reproduce", "mine.toml", "-o", "out", "--jobs", "1", "--device", "cpu")
    assert outcome.exit_code == 1
    assert re.search(r"first failure: \w+Error: expected decay", outcome.stderr), outcome.stderr
