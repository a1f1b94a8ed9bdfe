"""The first cases of each hunt, and the harness that runs them."""

import time
from collections import Counter
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from fuzz import HUNTS
from fuzz.harness import Finding, Hunt, Record, Skip, main, run_case, run_hunt


@pytest.mark.parametrize("name", HUNTS)
def test_first_cases_of_each_hunt(name: str) -> None:
    """The library does what it must in each of the first cases."""
    hunt: Hunt = import_module(f"fuzz.{name}").HUNT
    assert hunt.name == name
    record = run_hunt(hunt, cases=hunt.short)
    assert not record.findings
    assert record.outcomes.total() == hunt.short


def _hunt(case, **limits: float) -> Hunt:
    return Hunt("example", "An example.", case, cases=4, short=1, **limits)


def test_findings_other_exceptions_and_late_cases_are_reported() -> None:
    """A finding, an exception, an exit and a late case count as findings; a skipped case does not."""

    def case(rng: np.random.Generator, folder: Path) -> str:
        kind = rng.choice(["finding", "error", "exit", "late", "skip", "good"])
        if kind == "finding":
            raise Finding("finding")
        if kind == "error":
            raise KeyError("error")
        if kind == "exit":
            raise SystemExit("exit")
        if kind == "skip":
            raise Skip("no tmpfs")
        if kind == "late":
            time.sleep(10)
        return str(kind)

    record = run_hunt(_hunt(case, seconds=0.05), cases=30)
    found = Counter(
        next(word for word in ("within 0.05 s", "KeyError", "SystemExit", "finding") if word in text)
        for text in record.findings.values()
    )
    assert set(found) == {"KeyError", "SystemExit", "within 0.05 s", "finding"}
    assert set(record.outcomes) == {"good", "skipped: no tmpfs"}
    assert found.total() + record.outcomes.total() == 30


def test_cases_are_repeatable_and_independent() -> None:
    """A case has the same draws whatever ran before it, and an empty folder."""

    def case(rng: np.random.Generator, folder: Path) -> str:
        assert not list(folder.iterdir())
        (folder / "file").touch()
        return str(rng.integers(2**60))

    outcomes = [run_case(_hunt(case), number)[0] for number in (3, 4, 3)]
    assert outcomes[0] == outcomes[2] != outcomes[1]


def test_memory_is_limited() -> None:
    """A case that takes more memory than it may is reported."""

    def case(rng: np.random.Generator, folder: Path) -> str:
        np.ones(300 * 2**20 // 8)
        return "good"

    outcome, finding = run_case(_hunt(case, gigabytes=0.01), 0)
    assert outcome is None
    assert "GB of memory" in finding


def test_command_records_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints counts, adds a line to the record, and refuses unknown names."""
    options = ["npz_files", "--cases", "3", "--jobs", "1", "--record", str(tmp_path / "record.jsonl")]
    assert main("fuzz", HUNTS, options) == 0
    assert '"cases": 3' in (tmp_path / "record.jsonl").read_text()
    assert "npz_files" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main("fuzz", HUNTS, ["other"])


def test_an_interrupted_hunt_returns_what_there_is() -> None:
    """The counts are those of the first cases, and the number of cases says how many."""

    def case(rng: np.random.Generator, folder: Path) -> str:
        return "good"

    def stop(name: str, done: int, cases: int) -> None:
        if done >= 50:
            raise KeyboardInterrupt

    record = run_hunt(_hunt(case), cases=100, progress=stop)
    assert (record.is_cut, record.cases, record.outcomes.total()) == (True, 50, 50)


def test_the_command_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The counts of an interrupted hunt are recorded, and the exit status is that of an interrupt."""

    def interrupted(hunt: Hunt, first: int, *_: object) -> Record:
        return Record(hunt.name, hunt.purpose, first, 50, is_cut=True)

    monkeypatch.setattr("fuzz.harness.run_hunt", interrupted)
    assert main("fuzz", HUNTS, ["npz_files", "--first", "10", "--record", str(tmp_path / "record.jsonl")]) == 130
    assert "python -m fuzz npz_files --first 60" in capsys.readouterr().err
    assert '"cases": 50' in (tmp_path / "record.jsonl").read_text()
