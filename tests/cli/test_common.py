"""What reaches the terminal."""

import csv
import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.table import Table

import cvxsnn
from cvxsnn import SpikingClassifier, save
from cvxsnn.cli import common

from .commands import fail, succeed

X = np.random.default_rng(0).normal(size=(24, 4, 2))
SIGN = X.sum((1, 2)) > 0
SOURCE = Path(cvxsnn.__file__).parents[1]
HOSTILE = "\x1b]0;title\x07\x1b[31m\r\x9bred"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def fitted(first, second):
    labels = np.where(SIGN, first, second)
    return SpikingClassifier(hidden=(8,), witnesses="gaussian", l1_strength=0.01, random_state=0).fit(X, labels)


def has_controls(text):
    return any((character < " " and character not in "\n\t") or "\x7f" <= character < "\xa0" for character in text)


def test_tables_sentences_and_complaints_have_no_control_characters(monkeypatch, capsys):
    shown = io.StringIO()
    monkeypatch.setattr(common, "console", common.PrintableConsole(file=shown, force_terminal=True))
    table = Table("name")
    table.add_row(HOSTILE)
    common.console.print(table)
    common.say(HOSTILE, "red")
    common.complain(HOSTILE)
    text = shown.getvalue() + capsys.readouterr().err
    assert text.count("title") == 3
    assert "\x1b[31m" in text  # a style of our own
    assert not has_controls(text.replace("\x1b[31m", "").replace("\x1b[0m", "").replace("\x1b[1m", ""))


def test_names_of_files_and_labels_reach_a_pipe_but_not_a_terminal_as_they_are():
    np.savez("data.npz", X=X)
    save(fitted(HOSTILE, "other"), "model")
    assert HOSTILE in succeed("predict", "model", "data.npz").stdout
    assert HOSTILE in succeed("predict", "model", "data.npz", "--proba").stdout
    code = f"from cvxsnn.cli import app; app(['predict', {str(Path('model').absolute())!r}, "
    code += f"{str(Path('data.npz').absolute())!r}])"
    read, write = pty.openpty()
    # Its few lines fit into the buffer of the terminal, so that it may be read afterwards.
    subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.STDOUT, cwd=SOURCE, check=True)
    os.close(write)
    shown = os.read(read, 10_000).decode()
    os.close(read)
    assert "red" in shown
    assert not has_controls(shown.replace("\r\n", "\n"))
    assert not has_controls(fail("nothing", "predict", "model", f"{HOSTILE}.npz").stderr)


@pytest.mark.parametrize("label", ["=1+1", "@SUM(A1)", "-x", "+x", "\tx", "\rx", "a\rb", "a\nb", 'a"b', "a,b"])
def test_labels_in_a_table_are_read_back_as_they_are(label):
    np.savez("data.npz", X=X)
    save(fitted(label, "other"), "model")
    succeed("predict", "model", "data.npz", "-o", "y.csv")
    with Path("y.csv").open(newline="") as file:
        (name,), *rows = csv.reader(file)
    assert name == "y"
    assert {text for (text,) in rows} == {label, "other"}


@pytest.mark.parametrize("labels", [(-1, 1), ("-1", "+1.5"), (True, False)])
def test_numbers_are_written_as_they_are(labels):
    np.savez("data.npz", X=X)
    save(fitted(*labels), "model")
    outcome = succeed("predict", "model", "data.npz", "-o", "y.csv")
    assert not outcome.stderr
    assert {*Path("y.csv").read_text().splitlines()} == {"y", *map(str, labels)}


def test_the_version_is_printed():
    assert succeed("--version").stdout == f"cvxsnn {cvxsnn.__version__}\n"
