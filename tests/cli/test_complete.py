"""Proofs over all neurons, as commands."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_models import make_sequences, regressor
from theory.test_check_certificate import HONEST
from theory.test_checked_certificates import assert_status_without_reader

from cvxsnn import save
from cvxsnn.cli.complete import prove_in_file
from cvxsnn.cli.data_files import Data
from cvxsnn.core.storage import read_tensors, write_tensors

from .commands import fail, run, succeed

TINY = 1e-6
"""Targets of this size have objectives around 1e-12."""


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


def fit_tiny():
    inputs = np.rint(4 * make_sequences(24, 1, 2)) / 4
    targets = TINY * np.sign(inputs[:, 0].sum(1) ** 2 - 1)
    model = regressor(hidden=(5,), decay=0.5, bias=0.0, threshold=1.0, l1_strength=0.05 * TINY, readout="last")
    return model.fit(inputs, targets), inputs, targets


@pytest.mark.parametrize("options", [(), ("--certificate", "proof.json")])
def test_a_forged_objective_is_noticed_at_any_scale(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, inputs, targets = fit_tiny()
    np.savez("data.npz", X=inputs, y=targets)
    save(model, "model")
    true = model.certificate_
    assert true.primal < 1e-9
    assert "found now" in succeed("certify", "model", "data.npz", *options).stdout
    tensors, header = read_tensors(Path("model"), "model")
    header["proof"]["certificate"] |= {"primal": 0.9 * true.primal, "dual": 0.9 * true.primal}
    Path("model").unlink()
    write_tensors(Path("model"), "model", tensors, header)
    outcome = run("certify", "model", "data.npz", *options)
    assert outcome.exit_code == 2, outcome.output
    assert "the objectives differ" in outcome.stdout
    assert "proven:" not in outcome.stdout


def test_the_gap_over_all_neurons_is_that_of_the_objective_computed_now(tmp_path, capsys):
    model, inputs, targets = fit_tiny()
    found = model.certify(inputs, targets)
    model.certificate_ = replace(model.certificate_, primal=100 * found.primal)
    prove_in_file(tmp_path / "proof.json", model, found.primal, inputs, Data(inputs, targets), 5.0, 1e-3)
    shown = float(re.search(r"this model: objective (\S+),", capsys.readouterr().out)[1])
    assert shown == pytest.approx(found.primal)
