"""The runner: what is recorded stays, what is damaged is made again, and being killed costs only the runs in flight."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from cvxsnn.core.claims import claim
from cvxsnn.core.errors import DataFileError
from cvxsnn.experiments import RecordStore, run, run_all, runner
from cvxsnn.experiments.experiment import RunConfig, parse_experiment
from cvxsnn.experiments.metrics import read_metric
from cvxsnn.experiments.run import execute, iterate_grid
from cvxsnn.fitting.surrogate import trainer

TASK = {"name": "first_last_xor", "n_steps": 3, "n_train": 24, "n_val": 12, "n_test": 12}
PARTS = {
    "task": TASK,
    "family": {"hidden": [6, 8], "decay": 0.9},
    "objective": {"loss": "hinge"},
    "surrogate": {"epochs": 2, "learning_rate": [0.01, 0.03]},
    "convex": {"n_strengths": 3},
}
TIMINGS = ("seconds", "finished", "stages")


def tiny_runs(methods=("cvx", "sg", "sg-cvx"), seeds=(0, 1)):
    configs = [RunConfig(method, seed, **PARTS) for method in methods for seed in seeds]
    return {config.id: config for config in configs}


def without_timings(records):
    return {name: untimed(record) for name, record in records.items()}


def untimed(record):
    return {k: v for k, v in record.items() if k not in TIMINGS}


def changed(method, seed=0, **parts):
    """A tiny run with some keys of its tables changed."""
    return RunConfig(method, seed, **{name: table | parts.get(name, {}) for name, table in PARTS.items()})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    store = RecordStore(tmp_path_factory.mktemp("uninterrupted") / "paper")
    outcome = run_all(tiny_runs(), store, n_jobs=1)
    assert (outcome.n_done, outcome.n_failed, outcome.n_skipped) == (6, 0, 0)
    records, damaged = store.read_all()
    assert not damaged
    return records


def test_a_record_holds_settings_scores_versions_and_circumstances(finished):
    for name, config in tiny_runs().items():
        record = finished[name]
        assert record["config"] == config.as_dict()
        assert record["status"] == "done"
        assert 0 <= record["scores"]["test"] <= 1
        assert record["versions"].keys() == {"cvxsnn", "torch", "numpy"}
        assert ("relative_gap" in record) == (config.method in ("cvx", "sg-cvx"))
        assert ("learning_rate" in record) == ("sg" in config.method)


def test_a_record_holds_both_strengths_of_a_convex_stage(finished):
    convex = [record for record in finished.values() if "relative_gap" in record]
    assert all(record["l1_strength"] > 0 and record["l2_strength"] == 0 for record in convex)
    net = {"penalty": "elastic-net", "l1_strength": [0.1, 0.01], "l2_strength": [0.3, 0.03]}
    record = execute(changed("cvx", objective={"loss": "logistic"}, convex=net))
    assert (record["status"], record["config"]["convex"]["l2_strength"]) == ("done", [0.3, 0.03])
    assert record["l1_strength"] in net["l1_strength"]
    assert record["l2_strength"] in net["l2_strength"]
    assert read_metric(record, "l2_strength") == record["l2_strength"]


def test_what_is_recorded_is_not_run_again(tmp_path, finished, monkeypatch):
    store = RecordStore(tmp_path / "paper")
    for name, record in list(finished.items())[:4]:
        store.write(name, record)
    outcome = run_all(tiny_runs(), store, n_jobs=1)
    assert (outcome.n_done, outcome.n_skipped) == (2, 4)
    assert without_timings(store.read_all()[0]) == without_timings(finished)


def test_a_stage_that_cannot_be_stored_is_no_failure_of_the_run(tmp_path, monkeypatch):
    def write(path, *_):
        raise DataFileError(f"expected to write {path}, got: No space left on device; nothing was changed")

    store = RecordStore(tmp_path / "paper")
    with monkeypatch.context() as full_disk:
        full_disk.setattr(trainer, "write_tensors", write)
        with pytest.raises(DataFileError, match=r"No space left on device.*; then run the same command again"):
            run_all(tiny_runs(["sg"]), store, n_jobs=1)
    assert store.read_all() == ({}, [])
    assert run_all(tiny_runs(["sg"]), store, n_jobs=1).n_done == 2


@pytest.mark.parametrize("damage", ["cut", "altered", "empty", "nonsense"])
def test_a_damaged_record_is_named_and_made_again(tmp_path, finished, damage):
    store = RecordStore(tmp_path / "paper")
    for name, record in finished.items():
        store.write(name, record)
    victim = tmp_path / "paper" / f"{next(iter(finished))}.json"
    text = victim.read_text()
    changed = {
        "cut": text[: len(text) // 2],
        "altered": text.replace('"done"', '"DONE"'),
        "empty": "",
        "nonsense": "[1]",
    }
    victim.write_text(changed[damage])
    assert store.read(victim.stem) is None
    outcome = run_all(tiny_runs(), store, n_jobs=1)
    assert [record.path for record in outcome.damaged] == [victim]
    assert (outcome.n_done, outcome.n_skipped) == (1, 5)
    assert without_timings(store.read_all()[0]) == without_timings(finished)


def test_a_failure_is_a_record_that_may_be_tried_again(tmp_path):
    config = RunConfig("cvx", 0, **{**PARTS, "task": {**TASK, "n_steps": 1}})
    store = RecordStore(tmp_path / "paper")
    assert run_all({config.id: config}, store, n_jobs=1).n_failed == 1
    record = store.read(config.id)
    assert record["status"] == "failed"
    assert "n_steps" in record["error"]
    assert run_all({config.id: config}, store, n_jobs=1).n_skipped == 1
    assert run_all({config.id: config}, store, n_jobs=1, retry_failed=True).n_failed == 1


@pytest.mark.parametrize("hidden", [[[]], [], ["8"], [10**400], 8, [None, 3]])
def test_sizes_that_are_no_numbers_are_failed_runs(tmp_path, hidden):
    config = changed("cvx", family={"hidden": hidden})
    assert run_all({config.id: config}, RecordStore(tmp_path), n_jobs=1).n_failed == 1
    assert "Error: expected" in RecordStore(tmp_path).read(config.id)["error"]


def test_a_full_disk_stops_the_runs_with_one_sentence_and_no_damage(tmp_path, finished, monkeypatch):
    store = RecordStore(tmp_path / "paper")
    name, record = next(iter(finished.items()))
    store.write(name, record)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataFileError, match=r"No space left on device.*run the same command again"):
        run_all(tiny_runs(("cvx",)), store, n_jobs=1)
    monkeypatch.undo()
    records, damaged = store.read_all()
    assert (list(records), damaged) == ([name], [])
    assert [path.name for path in store.folder.iterdir()] == [f"{name}.json"]


def test_kill_nine_in_the_midst_of_a_write_and_at_a_random_moment_changes_no_record(tmp_path, finished):
    script = tmp_path / "go.py"
    script.write_text(
        "import os, signal, sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from experiments.test_runner import tiny_runs\n"
        "from cvxsnn.experiments import RecordStore, run_all\n"
        "written, die_at, fsync = [], int(sys.argv[3]), os.fsync\n"
        "def die(handle):\n"
        "    written.append(handle)\n"
        "    os.kill(os.getpid(), signal.SIGKILL) if len(written) == die_at else fsync(handle)\n"
        "os.fsync = die\n"
        "print('ready', flush=True)\n"
        "run_all(tiny_runs(), RecordStore(Path(sys.argv[2]) / 'paper'), n_jobs=1)\n"
    )
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    store = RecordStore(tmp_path / "results" / "paper")
    for die_at, wait in ((4, None), (0, random.Random(0).uniform(0.0, 0.5))):
        command = [sys.executable, str(script), tests, str(tmp_path / "results"), str(die_at)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout.readline() == b"ready\n"
            if wait is not None:
                time.sleep(wait)
                process.send_signal(signal.SIGKILL)
            assert process.wait() in (0, -signal.SIGKILL)
        records, damaged = store.read_all()
        assert damaged == []
        assert without_timings(records).items() <= without_timings(finished).items()
    outcome = run_all(tiny_runs(), store, n_jobs=1)
    assert outcome.n_skipped == len(records)
    assert without_timings(store.read_all()[0]) == without_timings(finished)


def test_a_run_is_known_by_its_configuration_alone():
    first, second = (RunConfig("cvx", 0, **json.loads(json.dumps(PARTS))) for _ in range(2))
    assert first.id == second.id
    assert len({config.id for config in tiny_runs().values()}) == 6
    assert RunConfig("sg", 0, **PARTS).start_id == RunConfig("sg-cvx", 0, **PARTS).start_id
    assert RunConfig("sg", 0, **PARTS).start_id != RunConfig("sg", 1, **PARTS).start_id


def test_a_grid_is_every_combination():
    assert list(iterate_grid({"a": [1, 2], "b": 3, "c": ["x", "y"]})) == [
        {"a": a, "b": 3, "c": c} for a in (1, 2) for c in ("x", "y")
    ]


def test_cells_override_defaults_key_by_key_and_smoke_overrides_both():
    data = {
        "title": "t",
        "defaults": {"seeds": [0, 1], "methods": ["cvx"], "task": {"name": "digits_seq", "a": 1}},
        "smoke": {"task": {"a": 3}, "every": 2},
        "cell": [
            {"row": "r", "column": "c", "task": {"a": 2}},
            {"row": "r", "column": "d"},
            {"row": "s", "column": "c", "methods": ["sg", "sg-sg"]},
        ],
    }
    paper, smoke = parse_experiment("x", data, "paper"), parse_experiment("x", data, "smoke")
    assert [dict(cell.configs[0][0].task) for cell in paper.cells] == [
        {"name": "digits_seq", "a": 2},
        {"name": "digits_seq", "a": 1},
        {"name": "digits_seq", "a": 1},
    ]
    assert [cell.row for cell in smoke.cells] == ["r", "s"]
    assert all(cell.configs.keys() == {0} and cell.configs[0][0].task["a"] == 3 for cell in smoke.cells)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory"), RuntimeError("bad_alloc")])
def test_a_full_memory_is_a_failed_run_and_other_errors_are_not(monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(run, "train_task", fail)
    record = execute(changed("cvx"))
    assert record["status"] == "failed"
    assert record["error"] == f"{type(error).__name__}: {error}"
    error = RuntimeError("a mistake of the library")
    with pytest.raises(RuntimeError, match="a mistake"):
        execute(changed("cvx"))


def test_an_unknown_task_is_a_failed_run_with_a_sentence():
    record = execute(RunConfig("cvx", 0, **{**PARTS, "task": {"name": "juggling"}}))
    assert record["status"] == "failed"
    assert "expected task to be one of" in record["error"]


@pytest.fixture
def executed(tmp_path, monkeypatch):
    """Runs that take a moment and leave a line each, for all processes that work in one folder."""
    path = tmp_path / "executed"
    path.touch()

    def execute_slowly(config, device, stages):
        with path.open("a") as file:
            file.write(f"{config.id}\n")
        time.sleep(0.02)
        return {"status": "done", "config": config.as_dict()}

    monkeypatch.setattr(runner, "execute", execute_slowly)
    return lambda: sorted(path.read_text().split())


def test_two_processes_in_one_folder_share_the_work(tmp_path, executed):
    runs = tiny_runs(seeds=range(6))
    process = os.fork()
    if process == 0:
        status = 1
        try:
            outcome = run_all(runs, RecordStore(tmp_path / "paper"), n_jobs=1)
            status = 0 if outcome.n_done + outcome.n_skipped == len(runs) else 2
        finally:
            os._exit(status)
    store = RecordStore(tmp_path / "paper")
    outcome = run_all(runs, store, n_jobs=1)
    # Nothing is missing when either ends, although the other may have done it.
    assert outcome.n_done + outcome.n_skipped == len(runs)
    assert store.read_all()[0].keys() == runs.keys()
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert executed() == sorted(runs)
    assert 0 < outcome.n_done < len(runs)
    assert not [name for name in os.listdir(tmp_path / "paper") if name.endswith(".claim")]


def test_the_runs_of_a_process_that_was_killed_are_taken_over(tmp_path, executed):
    runs = tiny_runs()
    first = next(iter(runs))
    (tmp_path / "paper").mkdir()
    with claim(tmp_path / "paper" / f".{first}.claim"):
        thread = threading.Thread(target=run_all, args=[runs, RecordStore(tmp_path / "paper")], kwargs={"n_jobs": 1})
        thread.start()
        while len(executed()) < len(runs) - 1:
            time.sleep(0.01)
        time.sleep(0.05)
        assert first not in executed()  # it waits
    thread.join()
    assert executed() == sorted(runs)


def test_claims_that_a_loss_of_power_left_are_removed(tmp_path, executed):
    runs, store = tiny_runs(), RecordStore(tmp_path / "paper")
    run_all(runs, store, n_jobs=1)
    for name in runs:
        (store.folder / f".{name}.claim").touch()
    run_all(runs, store, n_jobs=1)
    assert executed() == sorted(runs)
    assert sorted(os.listdir(store.folder)) == sorted(f"{name}.json" for name in runs)


def test_a_failure_that_is_tried_again_is_tried_once(tmp_path, executed):
    config = changed("cvx")
    store = RecordStore(tmp_path / "paper")
    failure = {"status": "failed", "error": "x", "seconds": 1.0}
    store.write(config.id, failure)
    store.write(config.id, failure | {"seconds": 2.0})  # by another process, after the records were read
    task = (config.id, config, failure, "cpu", str(store.folder), False, ())
    assert runner._run(*task) == "recorded"
    store.write(config.id, failure)
    assert runner._run(*task) == "done"
    assert executed() == [config.id]
