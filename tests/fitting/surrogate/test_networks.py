from dataclasses import replace

import pytest
import torch
from fitting.surrogate.runs import QUICK, draw_network, train


@pytest.mark.parametrize("name", ["decay", "threshold", "bias"])
def test_dynamics_are_trained_only_if_asked_for(name):
    network = draw_network()
    for is_trained in (True, False):
        settings = replace(QUICK, epochs=2, **{f"train_{name}": is_trained})
        (after,) = train(settings, network, score=lambda network: 0.0).network.layers
        assert torch.equal(after.tensors()[name], network.layers[0].tensors()[name]) != is_trained
        assert not torch.equal(after.weight, network.layers[0].weight)


def test_decays_stay_in_their_range_under_large_steps():
    run = train(replace(QUICK, learning_rate=5.0, epochs=3), draw_network(decay=0.99), score=lambda network: 0.0)
    decay = run.network.layers[0].decay
    assert decay.min() >= 0
    assert decay.max() <= 1
    assert run.network.layers[0].threshold.min() >= 0
