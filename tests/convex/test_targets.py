import numpy as np
import pytest

from cvxsnn.convex.losses import make_loss
from cvxsnn.core.errors import InvalidInputError


@pytest.mark.parametrize(
    ("name", "targets", "message"),
    [
        (
            "logistic",
            [0, 1, 2],
            r"labels in \{0, 1\} or \{-1, 1\} for the logistic loss, got values from 0 to 2.*softmax",
        ),
        ("hinge", [-1, 0, 1], "labels in .* for the hinge loss, got values from -1 to 1"),
        ("squared_hinge", [0.0, 0.5], "labels in .* for the squared_hinge loss, got values from 0 to 0.5"),
        ("logistic", [0.0, np.nan], "finite targets, got NaN or infinite values: impute or drop"),
        ("squared", [0.0, np.inf], "finite targets, got NaN or infinite values"),
        ("squared", [[[0.0]], [[1.0]]], r"shape \(n_rows,\) or \(n_rows, n_outputs\), got \(2, 1, 1\)"),
        ("squared", ["a", "b"], "targets to be real numbers, got text: encode labels as numbers first"),
        ("logistic", ["a", "b"], "targets to be real numbers, got text: encode labels as numbers first"),
        ("softmax", ["a", "b"], "targets to be real numbers, got text: encode labels as numbers first"),
        ("softmax", [0.0, 1.5], r"integer classes .* got other values: number them .*np.unique"),
        ("softmax", [-1, 0], "integer classes .* got other values"),
        ("softmax", [0.0, np.nan], "integer classes|finite targets"),
        ("softmax", [0.0, np.inf], "integer classes|finite targets"),
        ("softmax", [[0, 1], [1, 0]], r"one class per row for the softmax loss, got shape \(2, 2\)"),
    ],
)
def test_targets_that_mean_nothing_are_refused(name: str, targets: list[object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make_loss(name).encode(np.array(targets))
