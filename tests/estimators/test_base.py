"""Data as scikit-learn's users pass them, and what an estimator keeps."""

import numpy as np
import pytest
import torch

from cvxsnn.estimators.base import is_tabular


@pytest.mark.parametrize(
    ("data", "tabular"),
    [
        (np.ones((2, 3)), True),
        (np.ones((2, 3, 4)), False),
        (torch.ones(2, 3), True),
        (torch.ones(2, 3, 4), False),
        ([[1.0, 2.0], [3.0, 4.0]], True),
        ([[[1.0], [2.0]], [[3.0]]], False),
        ([np.ones((2, 3)), np.ones((1, 3))], False),
        ((torch.ones(2, 3), torch.ones(1, 3)), False),
        ([np.ones(3), np.ones(3)], True),
        (np.ones((2, 3)).astype(object), True),
        (np.ones((2, 3, 4)).astype(object), False),
        ([], True),
        ("text", True),
        (["some", "text"], True),
        (None, True),
        (3.0, True),
    ],
    ids=repr,
)
def test_rows_and_sequences_are_told_apart(data, tabular):
    assert is_tabular(data) is tabular
