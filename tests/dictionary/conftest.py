import numpy as np
import pytest
import torch
from dictionary.streams import N_SAMPLES, draw_quiet_witnesses


@pytest.fixture(scope="module")
def witnesses():
    return draw_quiet_witnesses()


@pytest.fixture(scope="module")
def data():
    inputs = torch.from_numpy(np.random.default_rng(0).normal(size=(N_SAMPLES, 3, 2)))
    return inputs, (inputs[:, :, 0].sum(1) > 0).long() + (inputs[:, 0, 1] > 0.5).long()
