"""Proofs over all neurons, as commands."""

import json
import sys

import numpy as np
from theory.test_check_certificate import HONEST
from theory.test_checked_certificates import assert_status_without_reader

from .commands import fail, succeed


def test_a_reader_that_leaves_does_not_change_the_status_of_a_check(tmp_path):
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(HONEST[0]))
    assert_status_without_reader([sys.executable, "-c", "import cvxsnn.cli as c; c.app()", "check", str(path)], 0)


def test_sequences_of_unequal_length_are_refused_by_their_lengths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs = np.random.default_rng(0).normal(size=(12, 3, 1))
    np.savez("data.npz", X=inputs, y=np.arange(12) % 2, lengths=[3, 2] * 6)
    options = ["--hidden", 5, "--strength", 0.05, "--decay", 0.5, "--loss", "logistic", "--witnesses", "gaussian"]
    succeed("fit", "data.npz", "-o", "model", *options)
    proof = ("--certificate", "proof.json")
    fail("expected sequences of equal length .*, got from 2 to 3 steps", "certify", "model", "data.npz", *proof)
