"""Entries of statistics are the same on every path, to the last bit."""

import numpy as np
import torch

from cvxsnn.neurons.statistics import STATISTICS, column_entries, entries


def test_columns_of_several_statistics_have_the_entries_of_each_alone():
    numbers = torch.arange(1, 253).repeat(len(STATISTICS), 1)
    found = column_entries(numbers, torch.arange(len(STATISTICS)), STATISTICS, 252)
    for own, name, row in zip(found, STATISTICS, numbers, strict=True):
        assert torch.equal(own, entries(row.double(), name, 252)), name
    root = found[STATISTICS.index("root")].numpy()
    assert np.array_equal(root, np.sqrt(np.arange(1, 253) * (1 / 252)))
