import numpy as np
import pytest
import torch

from cvxsnn.convex.losses import make_loss


@pytest.mark.parametrize("name", ["hinge", "squared_hinge", "logistic"])
@pytest.mark.parametrize("labels", [[0, 1, 1], [-1, 1, 1], [False, True, True], [0.0, 1.0, 1.0]])
def test_binary_labels_are_minus_one_and_one(name: str, labels: list[float]) -> None:
    for given_labels in (np.array(labels), torch.tensor(labels)):
        assert make_loss(name).encode(given_labels).tolist() == [[-1], [1], [1]]
