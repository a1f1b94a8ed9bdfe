from unittest.mock import patch

import numpy as np
import pytest
import torch
from convex.statistics.streams import N_SAMPLES
from dictionary.streams import draw_quiet_witnesses

from cvxsnn.convex.statistics import sums as statistics


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    with patch.object(statistics, "_BLOCK_ROWS", 64):
        yield


@pytest.fixture(scope="module")
def witnesses():
    return draw_quiet_witnesses()


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.normal(size=(N_SAMPLES, 3, 2)))
    targets = inputs[:, :, 0].sum(1, keepdim=True) * torch.tensor([[1.0, -0.1]]) + inputs[:, 0] + 0.3
    return inputs, targets
