"""Data as scikit-learn's users pass them, and what an estimator keeps."""

import numpy as np
import pytest
import torch
from small_models import classes_of, classifier, make_sequences

from cvxsnn.data import Sequences
from cvxsnn.estimators.base import feature_scale, is_tabular


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


def test_tables_of_pandas_are_rows_with_names():
    pandas = pytest.importorskip("pandas")
    rows = make_sequences(40)[:, 0]
    table, labels = (
        pandas.DataFrame(rows, columns=["x", "y", "z"]),
        pandas.Series(classes_of(rows)).map(["n", "y"].__getitem__),
    )
    model = classifier().fit(table, labels)
    assert model.feature_names_in_.tolist() == ["x", "y", "z"]
    assert np.array_equal(model.predict(table), classifier().fit(rows, labels.to_numpy()).predict(rows))


def test_features_are_scaled_over_steps_that_count():
    data = Sequences(np.array([[[1.0], [3.0]], [[5.0], [999.0]]]), [2, 1])
    mean, spread = feature_scale(data, None)
    assert (mean, spread) == (pytest.approx(3.0), pytest.approx(np.std([1.0, 3.0, 5.0])))
    mean, spread = feature_scale(data, np.array([0.0, 1.0]))
    assert (mean.tolist(), spread.tolist()) == ([5.0], [1.0])
