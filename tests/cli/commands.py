"""Commands as a user types them."""

import inspect
import re
from pathlib import Path

from typer.testing import CliRunner

from cvxsnn import cli

# The runner of click 8.1 joins both outputs unless it is told not to; that of later versions never does.
RUNNER = CliRunner(**{name: False for name in inspect.signature(CliRunner).parameters if name == "mix_stderr"})


def run(*arguments):
    return RUNNER.invoke(cli.app, list(map(str, arguments)))


def succeed(*arguments):
    outcome = run(*arguments)
    assert outcome.exit_code == 0, outcome.output
    return outcome


def fail(complaint, *arguments, status=1):
    """Run a command that exits with a status and complains on one line."""
    before = contents()
    outcome = run(*arguments)
    assert outcome.exit_code == status, outcome.output
    assert isinstance(outcome.exception, SystemExit)
    assert "Traceback" not in outcome.output
    assert re.search(complaint, outcome.stderr), outcome.stderr
    assert len(outcome.stderr.strip().splitlines()) == 1
    assert contents() == before
    return outcome


def contents():
    return {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}
