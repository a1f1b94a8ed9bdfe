"""``cvxsnn explore``."""

import re
from pathlib import Path

import numpy as np
import pytest
from cli import commands
from small_models import classes_of, classifier, make_sequences

from cvxsnn import save

SEQUENCES = make_sequences()
LABELS = np.array(["low", "middle", "high"])[classes_of(SEQUENCES, 3)]


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("train.npz", X=SEQUENCES, y=LABELS)
    np.savez("test.npz", X=SEQUENCES[:20] + 0.1, y=LABELS[:20])
    save(classifier().fit(SEQUENCES, LABELS), "a.safetensors")
    save(classifier(hidden=(8,)).fit(SEQUENCES, LABELS), "b.safetensors")


def run(*arguments):
    return commands.run("explore", *arguments, "--seconds", "0")


def test_a_page_is_written():
    outcome = run("a.safetensors", "train.npz", "-o", "page.html")
    assert outcome.exit_code == 0, outcome.output
    assert re.search(r"page: page\.html \(\d\.\d MB", outcome.stdout)
    assert "a: a look inside" in Path("page.html").read_text()


def test_training_data_may_be_given_beside_others():
    assert run("a.safetensors", "test.npz", "--train", "train.npz", "-o", "page.html").exit_code == 0
    assert "48 sequences" not in Path("page.html").read_text()
    outcome = run("a.safetensors", "train.npz", "--train", "test.npz")
    assert outcome.exit_code == 1
    assert "expected the data that the model was fitted to" in outcome.stderr


def test_two_models_are_compared():
    assert run("--compare", "a.safetensors", "b.safetensors", "test.npz", "-o", "page.html").exit_code == 0
    assert "a and b" in Path("page.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("a.safetensors",), "expected a model and a data file, got 1 file"),
        (("--compare", "a.safetensors", "train.npz"), "expected two models and a data file beside --compare, got 2"),
        (("a.safetensors", "b.safetensors", "train.npz"), "expected a model and a data file, got 3 files"),
        (("a.safetensors", "missing.npz"), "expected a data file at missing.npz"),
        (("a.safetensors", "train.npz", "-o", "missing/page.html"), "make the folder first"),
    ],
)
def test_what_is_missing_is_one_sentence(arguments, complaint):
    outcome = run(*arguments)
    assert outcome.exit_code == 1
    assert complaint in " ".join(outcome.stderr.split())
    assert "Traceback" not in outcome.output
