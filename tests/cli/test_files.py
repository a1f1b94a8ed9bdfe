"""Files that commands write: never an input, never over something else, and with an ending that says what they are."""

import os
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest

from cvxsnn import SpikingClassifier, save
from cvxsnn.cli import common
from cvxsnn.cli.files import READ, Output

from .commands import fail, succeed

X = np.random.default_rng(0).normal(size=(24, 4, 2))
Y = np.where(X.sum((1, 2)) > 0, "up", "down")
QUICK = ("--hidden", "8", "--strength", "0.01", "--witnesses", "gaussian")
COMMANDS = {
    "fit": ("fit", "data.npz", *QUICK),
    "predict": ("predict", "model", "data.npz"),
    "explain": ("explain", "model", "data.npz"),
    "explore": ("explore", "model", "data.npz", "--train", "train.npz"),
    "compare": ("explore", "--compare", "model", "other", "data.npz"),
    "export": ("export", "model"),
    "report": ("report", "mine.toml"),
    "reproduce": ("reproduce", "mine.toml"),
}


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", X=X, y=Y)
    np.savez("train.npz", X=X, y=Y)
    model = SpikingClassifier(hidden=(8,), witnesses="gaussian", l1_strength=0.01, random_state=0).fit(X, Y)
    save(model, "model")
    save(model, "other")
    Path("mine.toml").write_text("title = 'Mine'\n")
    Path("table.csv").write_text("a,kind\n1,up\n2,down\n")


def test_every_path_of_a_command_has_a_role():
    for command in common.app.registered_commands:
        for name, hint in get_type_hints(command.callback, include_extras=True).items():
            kinds = getattr(hint, "__origin__", hint)
            if Path in (kinds, *getattr(kinds, "__args__", ())):
                assert [role for role in hint.__metadata__ if role == READ or isinstance(role, Output)], (command, name)


@pytest.mark.parametrize("way", ["plain", "absolute", "roundabout", "symbolic link", "hard link"])
@pytest.mark.parametrize("name", list(COMMANDS))
def test_an_output_is_never_an_input(name, way):
    inputs = [word for word in COMMANDS[name] if Path(word).is_file()]
    assert inputs
    Path("folder").mkdir()
    for number, file in enumerate(inputs):
        output = {
            "plain": file,
            "absolute": str(Path(file).absolute()),
            "roundabout": f"./folder/../{file}",
            "symbolic link": f"link-{number}",
            "hard link": f"link-{number}",
        }[way]
        if way == "symbolic link":
            os.symlink(file, output)
        if way == "hard link":
            os.link(file, output)
        fail("got .*, which the command reads: choose another name", *COMMANDS[name], "-o", output)


def test_side_files_are_neither_inputs_nor_each_other():
    proof = ("certify", "model", "data.npz", "--certificate")
    fail("for the certificate, got model, which the command reads", *proof, "model")
    fail("for the certificate, got data.npz, which the command reads", *proof, "data.npz")
    fail("for the model, got data.npz, which the command reads", *proof, "p.json", "--improved", "data.npz")
    fail("for the model, got model, which the command reads", *proof, "p.json", "--improved", "model")
    Path("folder").mkdir()
    fail("expected different files, got folder/../p for", *proof, "p", "--improved", "folder/../p")
    fail("for the folder, got mine.toml, which the command reads", "report", "mine.toml", "--tables", "mine.toml")
    fail("expected different files, got page.html", "report", "-o", "page.html", "--tables", "page.html")


def test_a_file_of_another_kind_is_not_replaced():
    Path("page.html").write_text("<html>my diary</html>")
    Path("notes").write_text("notes")
    Path("folder").mkdir()
    Path("folder/index.html").write_text("<html>my diary</html>")
    complaint = "got .*, which holds something else: choose another name, or remove it first"
    fail(complaint, *COMMANDS["fit"], "-o", "notes")
    fail(complaint, *COMMANDS["predict"], "-o", "train.npz")
    fail(complaint, *COMMANDS["predict"], "-o", "table.csv")
    fail(complaint, *COMMANDS["explore"], "-o", "page.html")
    fail(complaint, *COMMANDS["report"], "-o", "page.html")
    os.link("other", "other.html")  # a model says, too, that cvxsnn wrote it
    fail(complaint, *COMMANDS["report"], "-o", "other.html")
    fail(complaint, *COMMANDS["export"], "-o", "notes")
    fail(complaint, "demo", "--output", "folder")


def test_a_file_of_the_same_kind_and_an_empty_one_are_replaced():
    for name in ("other", "empty"):
        Path("empty").touch()
        succeed(*COMMANDS["fit"], "-o", name)
    for name in ("y.npz", "y.csv"):
        Path(name).touch()
        for option in ((), ("--proba",), ()):
            succeed(*COMMANDS["predict"], "-o", name, *option)
    for name in ("page.html", "graph.nir"):
        command = COMMANDS["explore" if name == "page.html" else "export"]
        for _ in range(2):
            succeed(*command, "-o", name, *(["--seconds", "0"] if name == "page.html" else []))


@pytest.mark.parametrize(
    ("name", "output", "known"),
    [
        ("fit", "model.csv", "ends in .safetensors or has no ending"),
        ("predict", "y.xlsx", "ends in .npz or .csv"),
        ("predict", "y", "ends in .npz or .csv"),
        ("explain", "figure.pdf", "ends in .png"),
        ("explore", "page.pdf", "ends in .html or .htm"),
        ("report", "page.md", "ends in .html or .htm"),
        ("export", "graph.pdf", "ends in .nir or .c or .onnx or .npz or has no ending"),
    ],
)
def test_an_unknown_ending_is_refused_with_those_that_are_known(name, output, known):
    fail(f"expected a name that {known} for the .*, got {output}", *COMMANDS[name], "-o", output)


def test_a_folder_that_may_not_be_written_is_refused_before_the_work(monkeypatch):
    Path("folder").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: "folder" not in str(path))
    monkeypatch.setattr(SpikingClassifier, "fit", None)
    fail("permission denied, choose another place", *COMMANDS["fit"], "-o", "folder/model")
