import json
import re

import pytest
from app.test_planning import GB, RATES
from typer.testing import CliRunner

from cvxsnn.app import cli
from cvxsnn.dictionary.packed import dictionary_bytes


@pytest.fixture
def known_rates(monkeypatch):
    monkeypatch.setattr("cvxsnn.app.planning.measure_rates", lambda device: RATES)


def run(*arguments):
    return CliRunner().invoke(cli.app, ["plan", *map(str, arguments)])


@pytest.mark.usefixtures("known_rates")
def test_the_command_prints_tables_and_json():
    sizes = ("--rows", 1000, "--columns", 200, "--steps", 5, "--memory", "8GB", "--device", "cpu")
    shown = run(*sizes)
    assert shown.exit_code == 0, shown.output
    assert re.search(r"dictionary .*25 KiB", shown.stdout)
    assert "runs in memory on cpu, solver active-set" in shown.stdout
    found = json.loads(run(*sizes, "--json").stdout)
    assert found["memory"]["dictionary"] == dictionary_bytes(1000, 200)
    assert found["available"] == 8 * GB
    assert found["total_seconds"] == pytest.approx(sum(found["seconds"].values()))
    assert "taps" not in found["memory"]
    assert json.loads(run(*sizes, "--taps", 8, "--json").stdout)["memory"]["taps"] > 0


@pytest.mark.usefixtures("known_rates")
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--loss", "cubic"), "expected loss to be one of"),
        (("--memory", "lots"), "expected an amount of memory such as 64GB"),
        (("--hidden", "a,b"), "expected widths such as 256,512"),
        (("--machines", 0), "expected n_machines to be a positive integer"),
        (("--device", "abacus"), "expected a device such as 'cpu', 'cuda' or 'auto'"),
    ],
)
def test_bad_options_are_one_sentence(options, complaint):
    outcome = run("--rows", 1000, "--columns", 200, "--steps", 5, *options)
    assert outcome.exit_code == 1
    assert complaint in outcome.stderr
    assert len(outcome.stderr.strip().splitlines()) == 1
