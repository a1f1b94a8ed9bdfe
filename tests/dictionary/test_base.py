"""Every dictionary keeps the contract, and tells what it can do."""

import numpy as np
import pytest
import torch

import cvxsnn as cs
from cvxsnn.dictionary import DenseDictionary, Dictionary, stream_dictionary

READOUTS = ("last", "all", "mean", "windows-3")


def draw(kind, folder, readout="last"):
    inputs = np.random.default_rng(0).normal(size=(50, 4, 3))
    witnesses = cs.gaussian_witnesses(3, (20,), bias=0.2)
    packed = cs.build_dictionary(witnesses, inputs, readout)
    if kind == "packed":
        return packed
    if kind == "dense":
        return DenseDictionary(packed.columns(), readout=readout)
    targets = np.zeros((50, 4) if readout == "all" else 50)
    return stream_dictionary(witnesses, [(inputs, targets)], folder, readout, shard_rows=64)[0]


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize(
    ("kind", "holds_spikes", "is_in_memory"), [("packed", True, True), ("dense", False, True), ("sharded", True, False)]
)
def test_a_dictionary_keeps_the_contract(kind, holds_spikes, is_in_memory, readout, tmp_path):
    dictionary = draw(kind, tmp_path, readout)
    assert isinstance(dictionary, Dictionary)
    assert dictionary.is_in_memory == is_in_memory
    assert dictionary.is_binary == (holds_spikes and readout in ("last", "all"))
    assert dictionary.shape == (dictionary.n_rows, dictionary.n_atoms) == tuple(dictionary.columns().shape)
    assert len(dictionary.atom_of_column) == dictionary.n_columns
    assert len(dictionary.column_of_atom) == dictionary.n_atoms
    some = dictionary.take_rows(torch.tensor([7, 2]))
    assert isinstance(some, Dictionary)
    assert torch.equal(some.columns(), dictionary.columns()[[7, 2]])
    assert not dictionary.is_complete
    few = dictionary.take_atoms(torch.tensor([3, 0]))
    assert torch.equal(few.columns(), dictionary.columns()[:, [3, 0]])
    assert few.atom_of_column[few.column_of_atom].tolist() == [0, 1]


@pytest.mark.parametrize("other", [np.eye(3), torch.eye(3), None, "dictionary"])
def test_other_things_are_no_dictionaries(other):
    assert not isinstance(other, Dictionary)
