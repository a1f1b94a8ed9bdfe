import torch
from convex.statistics.streams import batches

import cvxsnn as cs
from cvxsnn.convex import StatisticsProblem, gather_statistics


def test_gram_of_spikes_and_equal_columns_are_the_dictionarys(witnesses, data):
    found = gather_statistics(witnesses, batches(data, 50))
    dictionary = cs.build_dictionary(witnesses, data[0])
    assert dictionary.n_atoms < witnesses.n_witnesses
    assert torch.equal(found.atoms.first, dictionary.witness_of_atom)
    assert torch.equal(found.atoms.inverse, dictionary.atom_of_witness)
    assert torch.equal(StatisticsProblem(found, 1.0).gram[:-1, :-1], dictionary.gram())
