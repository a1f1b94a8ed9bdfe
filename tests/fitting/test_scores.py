"""Validation scores."""

import pytest
import torch

import cvxsnn as cs
from cvxsnn.fitting import TaskScore
from cvxsnn.fitting.scores import last_entry, main_score
from cvxsnn.network import OutputHead
from cvxsnn.network.evaluation import accuracy
from cvxsnn.network.spiking_network import SpikingNetwork

XOR = cs.tasks.first_last_xor(4, n_train=8, n_val=30, n_test=30)


def test_the_score_of_a_task_is_the_accuracy_on_its_data():
    layers = cs.gaussian_witnesses(2, (12,)).layers
    weight = torch.randn(12, 1, generator=torch.Generator().manual_seed(0))
    network = SpikingNetwork(layers, weight, [OutputHead("label", "logistic", 0, 1)])
    for data in (XOR.val, XOR.test):
        assert TaskScore(XOR, data)(network) == accuracy(network, XOR, data)


@pytest.mark.parametrize(("score", "first", "last"), [(0.5, 0.5, 0.5), ((0.75, -3.0), 0.75, -3.0), (2, 2.0, 2)])
def test_the_first_entry_of_a_score_is_its_main_one(score, first, last):
    assert (main_score(score), last_entry(score)) == (first, last)
