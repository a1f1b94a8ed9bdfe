"""The demonstration, its report and the command line, on one small experiment."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cvxsnn import DataFileError, Normal, cli, demo, report
from cvxsnn.tasks import addition

TINY = demo.Experiment(
    "tiny addition",
    lambda: addition(base=2, n_digits=2, n_train=60, n_val=20, n_test=40, n_test_ood=10),
    {"hidden": (16, 32), "n_subnetworks": 2, "decay": 0.1, "threshold": 0.1, "bias": Normal(0.0, 0.5)},
    "all",
    {"sum": "softmax", "carry": "logistic"},
)


@pytest.fixture(scope="module")
def results():
    return [demo.run(TINY), demo.run(TINY, seed=1)]


def test_every_result_is_certified_and_scored_on_all_test_sets(results):
    for result in results:
        assert result.solution.certificate.relative_gap <= 1e-6
        assert result.accuracy.keys() == {"test", "2x longer", "4x longer", "5x longer", "10x longer"}
        assert result.accuracy["test"] > 0.9


def test_the_page_shows_every_row_and_needs_no_network(results, tmp_path):
    page = report.write_report(results, tmp_path / "new" / "folder")
    text = page.read_text()
    for row in report.rows(results):
        assert all(cell in text for cell in row)
    assert text.count('src="data:image/png;base64,') == 3
    assert "http" not in text
    assert len(list(page.parent.glob("*.png"))) == 3
    assert not list(page.parent.glob("tmp*"))


def test_a_report_that_cannot_be_written_is_one_sentence(results, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(DataFileError, match="choose another --output"):
        report.write_report(results, blocker / "report")


def test_the_command_prints_a_table_and_the_path_of_the_report(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "EXPERIMENTS", (TINY,))
    outcome = CliRunner().invoke(cli.app, ["demo", "--output", str(tmp_path)])
    assert outcome.exit_code == 0, outcome.output
    assert "tiny addition" in outcome.output
    assert str(tmp_path / "index.html") in outcome.output.replace(os.linesep, "")


def test_the_command_says_what_is_wrong_and_fails(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "EXPERIMENTS", (TINY,))
    blocker = Path(tmp_path / "file")
    blocker.write_text("")
    outcome = CliRunner().invoke(cli.app, ["demo", "--output", str(blocker / "report")])
    assert outcome.exit_code == 1
    assert "Traceback" not in outcome.output
