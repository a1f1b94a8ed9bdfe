from unittest.mock import patch

import numpy as np
import pytest
import torch
from convex.statistics.streams import N_SAMPLES

import cvxsnn as cs
from cvxsnn.convex.statistics import sums as statistics


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    with patch.object(statistics, "_BLOCK_ROWS", 64):
        yield


@pytest.fixture(scope="module")
def witnesses():
    """Few features and a high threshold: many of the columns are dead or equal."""
    return cs.gaussian_witnesses(
        2, (48,), threshold=cs.witnesses.Uniform(1.0, 9.0), bias=cs.witnesses.Normal(0.0, 0.5), seed=1
    )


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.normal(size=(N_SAMPLES, 3, 2)))
    targets = inputs[:, :, 0].sum(1, keepdim=True) * torch.tensor([[1.0, -0.1]]) + inputs[:, 0] + 0.3
    return inputs, targets
