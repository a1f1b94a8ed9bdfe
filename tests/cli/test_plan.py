import json
import re

import pytest
from cli import commands
from cli.test_planning import GB, RATES

from cvxsnn.dictionary.spikes import dictionary_bytes


@pytest.fixture
def known_rates(monkeypatch):
    monkeypatch.setattr("cvxsnn.cli.planning.measure_rates", lambda device: RATES)


def run(*arguments):
    return commands.run("plan", *arguments)


@pytest.mark.usefixtures("known_rates")
def test_the_command_prints_tables_and_json():
    sizes = ("--rows", 1000, "--columns", 200, "--steps", 5, "--memory", "8GB", "--device", "cpu")
    shown = run(*sizes)
    assert shown.exit_code == 0, shown.output
    assert re.search(r"dictionary .*25 KiB", shown.stdout)
    assert "runs in memory on cpu" in shown.stdout
    found = json.loads(run(*sizes, "--json").stdout)
    assert found["memory"]["dictionary"] == dictionary_bytes(1000, 200)
    assert found["available"] == 8 * GB
    assert found["total_seconds"] == pytest.approx(sum(found["seconds"].values()))
    assert json.loads(run(*sizes, "--taps", 8, "--json").stdout)["memory"]["synapses"] == 36 * 8 * 200


@pytest.mark.usefixtures("known_rates")
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--loss", "cubic"), "expected --loss to be one of"),
        (("--memory", "lots"), "expected an amount of memory such as 64GB"),
        (("--hidden", "a,b"), "expected widths such as 256,512"),
        (("--rows", 10**31), "expected --rows of at most 1e+18"),
        (("--columns", 10**31), "expected --columns of at most 1e+18"),
        (("--steps", 10**400), "expected --steps of at most 1e+18"),
        (("--columns", 10**17, "--hidden", 3), "to divide 100000000000000000 witnesses, got 3: pass one of 1, 2, 4, 5"),
        (("--memory", "9" * 400), "expected an amount of memory such as 64GB"),
        (("--device", "abacus"), "expected a device such as 'cpu', 'cuda' or 'auto'"),
    ],
)
def test_bad_options_are_one_sentence(options, complaint):
    outcome = run("--rows", 1000, "--columns", 200, "--steps", 5, *options)
    assert outcome.exit_code == 1
    assert complaint in outcome.stderr
    assert len(outcome.stderr.strip().splitlines()) == 1


@pytest.mark.usefixtures("known_rates")
def test_jobs_of_any_size_are_planned_at_once():
    outcome = run(*(f"--{name}={10**18}" for name in ("rows", "columns", "steps", "outputs", "features", "taps")))
    assert outcome.exit_code == 0, outcome.output
    assert "runs nowhere" in outcome.stdout
