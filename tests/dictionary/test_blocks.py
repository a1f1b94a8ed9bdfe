import pickle

import numpy as np
import pytest
import torch

from cvxsnn.dictionary.blocks import iterate_blocks

N_SAMPLES = 300


@pytest.fixture(scope="module")
def data():
    inputs = torch.from_numpy(np.random.default_rng(0).normal(size=(N_SAMPLES, 3, 2)))
    return inputs, (inputs[:, :, 0].sum(1) > 0).long() + (inputs[:, 0, 1] > 0.5).long()


def test_only_the_samples_of_a_block_travel_to_another_process(data):
    (block,) = iterate_blocks([data], N_SAMPLES, "last")
    assert len(pickle.dumps(block.cut(0, 2))) < 5000 < block.sequences.inputs.nbytes
    assert torch.equal(pickle.loads(pickle.dumps(block.cut(5, 9))).sequences.inputs, data[0][5:9])
