"""``cvxsnn demo``, on one small task."""

import pytest
from cli.commands import run
from experiments.test_demo import METHODS, tiny, tiny_lead
from rich.console import Console

from cvxsnn import cli
from cvxsnn.experiments import demo


@pytest.fixture(scope="module")
def results():
    return {method: demo.run("tiny addition", tiny(method)) for method in METHODS}


@pytest.fixture
def asked(monkeypatch, results):
    """The runs of two tasks, which are known already."""
    asked = []
    monkeypatch.setattr(demo.Lead, "run", lambda seed: tiny_lead())
    configs = [(name, tiny(method)) for name in ("tiny addition", "again") for method in METHODS]
    monkeypatch.setattr(demo, "demo_configs", lambda seed: asked.append(seed) or configs)
    monkeypatch.setattr(demo, "run", lambda name, config: asked.append(name) or results[config.method])
    return asked


def test_the_command_runs_all_methods_on_all_tasks_and_prints_table_and_path(monkeypatch, tmp_path, results, asked):
    monkeypatch.setattr(cli.common, "console", Console(width=80))
    outcome = run("demo", "--output", str(tmp_path), "--seed", "4")
    assert outcome.exit_code == 0, outcome.output
    assert asked == [4] + ["tiny addition"] * 5 + ["again"] * 5
    lines = outcome.stdout.splitlines()
    assert max(map(len, lines)) <= max(80, len(f"report: {tmp_path / 'index.html'}"))
    for result in results.values():  # no cell is broken in a terminal of 80 columns
        assert any([cell.strip() for cell in line.strip("│").split("│")] == list(result.row) for line in lines)
    assert "certified" in outcome.stdout
    assert "The classifier with 64 neurons. Proven: no other weights" in " ".join(outcome.stdout.split())
    assert f"report: {tmp_path / 'index.html'}" in outcome.stdout


def test_the_command_says_what_is_wrong_and_fails(tmp_path, asked):
    blocker = tmp_path / "file"
    blocker.write_text("")
    outcome = run("demo", "--output", str(blocker / "report"))
    assert outcome.exit_code == 1
    assert "Traceback" not in outcome.output
    assert "choose another --output" in outcome.stderr
    assert len(outcome.stderr.strip().splitlines()) == 1
    assert not asked  # said before the work, and not after it
