"""The demonstration and its command, on one small experiment."""

from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from cvxsnn.app import cli, demo
from cvxsnn.app import page as report
from cvxsnn.convex import Objective
from cvxsnn.data.tasks import addition
from cvxsnn.training import ConvexSettings, Settings, SurrogateSettings
from cvxsnn.witnesses import Normal

TINY = demo.Experiment(
    "tiny addition",
    lambda: addition(base=2, n_digits=2, n_train=60, n_val=20, n_test=40, ood_digits=(4,), n_test_ood=10),
    Settings(
        Objective({"sum": "softmax", "carry": "logistic"}, "all"),
        {"hidden": (16, 32), "n_subnetworks": 2, "decay": 0.1, "threshold": 0.1, "bias": Normal(0.0, 0.5)},
        ConvexSettings(n_strengths=3),
    ),
    SurrogateSettings(epochs=2),
)


@pytest.fixture(scope="module")
def results():
    return [demo.run(TINY, method) for method in demo.FIVE_METHODS]


def test_every_method_is_scored_on_all_test_sets(results):
    assert [result.trained.method for result in results] == ["cvx", "sg", "sg-cvx", "sg-sg", "cvx-sg"]
    for result in results:
        assert result.experiment == "tiny addition"
        assert result.accuracy.keys() == {"test", "2x longer"}
        assert all(0 <= value <= 1 for value in result.accuracy.values())
    assert results[0].accuracy["test"] > 0.9


def test_what_ends_in_a_convex_stage_is_certified_and_nothing_else_is(results):
    for result in results:
        certificate = result.trained.certificate
        assert (certificate is not None) == result.trained.method.endswith("cvx")
        assert certificate is None or certificate.relative_gap <= TINY.settings.convex.tol


def test_the_seed_reaches_witnesses_and_batches():
    told = []
    first = demo.run(TINY, "sg-cvx", seed=3, report=lambda *progress: told.append(progress))
    assert first.trained.settings.seed == first.trained.settings.surrogate.seed == 3
    assert TINY.settings.seed == 0
    assert told[0] == ("1. gradient", 0, 1)
    assert told[-1] == ("2. convex", 1, 1)


def test_the_experiments_need_no_file_and_name_their_task():
    assert [experiment.name for experiment in demo.EXPERIMENTS] == [
        "base-2 addition",
        "XOR, 6 steps",
        "digits, 8 steps",
    ]


def test_all_methods_are_run_on_all_experiments(monkeypatch):
    monkeypatch.setattr(demo, "EXPERIMENTS", (TINY, replace(TINY, name="again")))
    monkeypatch.setattr(demo, "run", lambda experiment, method, seed: (experiment.name, method, seed))
    assert list(demo.run_all(4)) == [(name, m, 4) for name in ("tiny addition", "again") for m in demo.FIVE_METHODS]


def test_the_command_prints_a_table_and_the_path_of_the_report(monkeypatch, tmp_path, results):
    known = {result.trained.method: result for result in results}
    monkeypatch.setattr(demo, "EXPERIMENTS", (TINY,))
    monkeypatch.setattr(demo, "run", lambda experiment, method, seed: known[method])
    monkeypatch.setattr(cli, "console", Console(width=200))
    outcome = CliRunner().invoke(cli.app, ["demo", "--output", str(tmp_path)])
    assert outcome.exit_code == 0, outcome.output
    for row in report.rows(results):
        assert all(cell in outcome.stdout for cell in row)
    assert f"report: {tmp_path / 'index.html'}" in outcome.stdout


def test_the_command_says_what_is_wrong_and_fails(monkeypatch, tmp_path, results):
    monkeypatch.setattr(demo, "EXPERIMENTS", (TINY,))
    monkeypatch.setattr(demo, "run", lambda experiment, method, seed: results[0])
    blocker = tmp_path / "file"
    blocker.write_text("")
    outcome = CliRunner().invoke(cli.app, ["demo", "--output", str(blocker / "report")])
    assert outcome.exit_code == 1
    assert "Traceback" not in outcome.output
    assert "choose another --output" in outcome.stderr
    assert len(outcome.stderr.strip().splitlines()) == 1
