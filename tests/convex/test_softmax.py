import math

import numpy as np
import pytest
import torch
from tolerances import ROUNDING

from cvxsnn.convex.losses import Softmax
from cvxsnn.core.errors import InvalidInputError


def test_softmax_classes_are_one_hot_rows() -> None:
    assert Softmax().encode(np.array([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert Softmax(n_classes=4).encode(np.array([2, 0])).tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]


def test_softmax_refuses_classes_beyond_their_number() -> None:
    with pytest.raises(InvalidInputError, match="classes below 2, got class 2"):
        Softmax(n_classes=2).encode(np.array([0, 1, 2]))


def test_softmax_of_a_sure_and_right_score_keeps_the_digits_of_a_small_loss() -> None:
    scores, truth = torch.tensor([[94.0, 0.0, 0.0]]).double(), torch.tensor([[1.0, 0.0, 0.0]]).double()
    small = 2 * math.exp(-94.0)
    assert float(Softmax().value(scores, truth)) == pytest.approx(small, rel=ROUNDING)
    gradient = Softmax().gradient(scores, truth)[0]
    assert gradient.tolist() == pytest.approx([-small, small / 2, small / 2], rel=ROUNDING)
    assert float(gradient.sum()) == 0
