"""Proofs over all neurons, as commands."""

import numpy as np

from .commands import fail, succeed


def test_sequences_of_unequal_length_are_refused_by_their_lengths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs = np.random.default_rng(0).normal(size=(12, 3, 1))
    np.savez("data.npz", X=inputs, y=np.arange(12) % 2, lengths=[3, 2] * 6)
    options = ["--hidden", 5, "--strength", 0.05, "--decay", 0.5, "--loss", "logistic", "--witnesses", "gaussian"]
    succeed("fit", "data.npz", "-o", "model", *options)
    proof = ("--certificate", "proof.json")
    fail("expected sequences of equal length .*, got from 2 to 3 steps", "certify", "model", "data.npz", *proof)
