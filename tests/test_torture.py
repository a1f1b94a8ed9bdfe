"""A few disturbances of each kind; `make torture` has hundreds. Disturbances that should be noticed are."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("fcntl")  # processes are forked

from cvxsnn.core import storage
from fuzz.harness import Finding, Skip
from torture import neighbours, power, shortages, signals, soak
from torture.processes import Report, run

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP])
def test_signals_lose_nothing(number: signal.Signals, rng: np.random.Generator, tmp_path: Path) -> None:
    assert number.name in signals.disturb(rng, "shards", number, tmp_path)


@pytest.mark.parametrize("shortage", shortages.SHORTAGES)
def test_shortages_lose_nothing(shortage: str, rng: np.random.Generator, tmp_path: Path) -> None:
    if shortage == "clock set back":
        pytest.skip("starts another interpreter")
    try:
        assert shortages.SHORTAGES[shortage](rng, "shards", tmp_path) in (
            "finished",
            "refused",
            "not finished",
            "out of memory",
        )
    except Skip as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("is_saved", [True, False])
def test_files_in_little_memory_are_refused_and_end_no_process(is_saved: bool, tmp_path: Path) -> None:
    path, tensors = tmp_path / "file", {str(number): torch.zeros(3) for number in range(20)}

    def save_or_load() -> None:
        if is_saved:
            storage.write_tensors(path, "test", tensors, {"text": 500 * "a"})
        else:
            storage.read_tensors(path, "test")

    storage.write_tensors(path, "test", tensors, {"text": 500 * "a"})
    save_or_load()
    before, ends = path.read_bytes(), set()
    for spare in 2 ** np.linspace(10, 24, 29):

        def work(report: Report, spare: int = int(spare)) -> None:
            with shortages._memory_left(spare):
                save_or_load()

        end = run(work)
        ends.add(end.status)
        assert end.status == "finished" or any(words in end.text for words in shortages._NO_MEMORY), end
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["file"]
    assert ends >= {"finished", "refused"}


def test_two_processes_in_one_folder_lose_nothing(rng: np.random.Generator, tmp_path: Path) -> None:
    assert "finished" in neighbours.disturb(rng, "shards", tmp_path)


def test_a_loss_of_power_leaves_old_or_new_files(rng: np.random.Generator, tmp_path: Path) -> None:
    with suppress(Skip):
        assert "moments" in power.disturb(rng, "shards", tmp_path)


@pytest.fixture
def without_synchronisation(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    power.record_calls.cache_clear()
    yield
    power.record_calls.cache_clear()


def test_files_that_are_not_synchronised_are_found(
    without_synchronisation: None, rng: np.random.Generator, tmp_path: Path
) -> None:
    with pytest.raises((Finding, Skip), match=r"power lost in shards|strace|trace"):
        power.disturb(rng, "shards", tmp_path)


def test_files_that_are_not_written_whole_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def write(path: Path, data: bytes) -> None:
        for place in range(0, len(data), 256):
            with open(path, "wb" if place == 0 else "ab") as file:
                file.write(data[place : place + 256])
            time.sleep(0.002)

    def kill_often() -> None:
        for number in range(20):
            (tmp_path / str(number)).mkdir()
            signals.disturb(np.random.default_rng(number), "shards", signal.SIGKILL, tmp_path / str(number))

    monkeypatch.setattr(storage, "write_atomically", write)
    with pytest.raises(Finding, match=r"truncated|damaged"):
        kill_often()


@pytest.fixture
def quick_soak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak.gc, "collect", lambda: 0)  # takes longer than these rounds


@pytest.mark.usefixtures("quick_soak")
def test_a_soak_finds_what_grows_and_what_differs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    handles: list[int] = []

    def leak(method: str, folder: Path) -> str:
        handles.append(os.open(folder / "left", os.O_CREAT))
        time.sleep(0.001)
        return str(len(handles)) if method == "r" else method

    monkeypatch.setattr(soak, "_round", leak)
    monkeypatch.setattr(soak, "_resident_megabytes", lambda: 100 + len(handles) / 10)
    faults = "\n".join(soak.soak(tmp_path, 0.2)["faults"])
    for handle in handles:
        os.close(handle)
    assert "memory grows" in faults
    assert "file handles were left" in faults
    assert "r: expected" in faults
    assert "cvx: expected" not in faults


@pytest.mark.usefixtures("quick_soak")
def test_a_soak_without_leaks_has_no_faults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(soak, "_round", lambda method, folder: method)
    monkeypatch.setattr(soak, "_resident_megabytes", lambda: 100.0)
    report = soak.soak(tmp_path, 0.1)
    assert report["faults"] == []
    assert report["rounds"] > 6


def test_the_slope_of_a_line() -> None:
    times = np.linspace(0, 2, 9)
    slope, error = soak._slope(times, 5 + 3 * times)
    assert slope == pytest.approx(3)
    assert error < 1e-6
    slope, error = soak._slope(times, 5 + np.array([1, -1, 1, -1, 0, -1, 1, -1, 1]))
    assert abs(slope) < error
