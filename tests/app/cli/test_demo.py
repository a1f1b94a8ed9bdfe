"""``cvxsnn demo``, on one small task."""

from dataclasses import replace

import pytest
from app.test_demo import TINY
from rich.console import Console
from typer.testing import CliRunner

from cvxsnn.app import cli, demo, demo_page


@pytest.fixture(scope="module")
def results():
    return [demo.run(TINY, method) for method in demo.FIVE_METHODS]


def test_the_command_runs_all_methods_on_all_tasks_and_prints_table_and_path(monkeypatch, tmp_path, results):
    known = {result.trained.method: result for result in results}
    asked = []
    monkeypatch.setattr(demo, "DEMO_TASKS", (TINY, replace(TINY, name="again")))
    monkeypatch.setattr(demo, "run", lambda task, method, seed: asked.append((task.name, seed)) or known[method])
    monkeypatch.setattr(cli.common, "console", Console(width=80))
    outcome = CliRunner().invoke(cli.app, ["demo", "--output", str(tmp_path), "--seed", "4"])
    assert outcome.exit_code == 0, outcome.output
    assert asked == [("tiny addition", 4)] * 5 + [("again", 4)] * 5
    lines = outcome.stdout.splitlines()
    assert max(map(len, lines)) <= max(80, len(f"report: {tmp_path / 'index.html'}"))
    for row in demo_page.make_rows(results):  # no cell is broken in a terminal of 80 columns
        assert any([cell.strip() for cell in line.strip("│").split("│")] == list(row) for line in lines)
    assert "is certified" in outcome.stdout
    assert f"report: {tmp_path / 'index.html'}" in outcome.stdout


def test_the_command_says_what_is_wrong_and_fails(monkeypatch, tmp_path, results):
    monkeypatch.setattr(demo, "DEMO_TASKS", (TINY,))
    n_runs = []
    monkeypatch.setattr(demo, "run", lambda task, method, seed: n_runs.append(1) or results[0])
    blocker = tmp_path / "file"
    blocker.write_text("")
    outcome = CliRunner().invoke(cli.app, ["demo", "--output", str(blocker / "report")])
    assert outcome.exit_code == 1
    assert "Traceback" not in outcome.output
    assert "choose another --output" in outcome.stderr
    assert len(outcome.stderr.strip().splitlines()) == 1
    assert not n_runs  # said before the work, and not after it
