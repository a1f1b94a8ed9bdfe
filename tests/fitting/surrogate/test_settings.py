import math

import numpy as np
import pytest
import torch
from fitting.surrogate.runs import DATA, LOGISTIC, are_same, draw_network
from tolerances import FEW_DRAWS_SD, ROUNDING

from cvxsnn import InvalidInputError
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.fitting import SurrogateSettings
from cvxsnn.fitting.surrogate.settings import average_networks, initial_network


def test_an_initial_network_has_the_scale_and_the_mean_of_real_targets():
    targets = 1e3 * np.random.default_rng(0).normal(size=40) + 7e3
    data = TrainingSet(DATA.inputs, {"label": targets})
    network = draw_network(data, Objective("squared"), (500,))
    assert float(network.intercept.detach()) == pytest.approx(targets.mean(), rel=ROUNDING)
    assert float(network.weight.detach().std()) * math.sqrt(1000) == pytest.approx(targets.std(), rel=FEW_DRAWS_SD)


def test_the_average_of_networks_scores_as_they_do_on_average():
    networks = [draw_network(seed=seed) for seed in range(3)]
    mean = torch.stack([network(DATA.inputs) for network in networks]).mean(0)
    average = average_networks(networks)
    assert average.n_subnetworks == 6
    torch.testing.assert_close(average(DATA.inputs), mean, rtol=ROUNDING, atol=ROUNDING)


def test_an_initial_network_depends_on_its_seed():
    assert are_same(draw_network(seed=1), draw_network(seed=1))
    layers = draw_network().layers
    one, other = (initial_network(layers, LOGISTIC, DATA, seed) for seed in (0, 1))
    assert not torch.equal(one.weight, other.weight)
    assert not one.intercept.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs to be a positive integer, got 0"),
        ({"batch_size": 0.5}, "batch_size to be a positive integer, got 0.5"),
        ({"learning_rate": 0.0}, "learning_rate above zero, got 0.0"),
        ({"learning_rate": math.inf}, "learning_rate to be a finite number, got inf"),
        ({"steepness": -1.0}, "steepness above zero, got -1.0"),
        ({"clip_norm": math.nan}, "clip_norm to be a finite number, got nan"),
        ({"weight_decay": -0.1}, "weight_decay to be zero or more, got -0.1"),
        ({"spike_penalty": math.inf}, "spike_penalty to be a finite number, got inf"),
        ({"surrogate": "relu"}, "surrogate to be one of 'sigmoid', 'fast_sigmoid', 'arctan', got 'relu'"),
        ({"schedule": "linear"}, "schedule to be one of 'cosine', 'constant', got 'linear'"),
        ({"patience": 0}, "patience to be a positive integer, got 0"),
        ({"seed": -1}, "seed"),
        ({"learning_rate": "slow"}, "learning_rate to be a finite number, got 'slow'"),
        ({"dropout": None}, "dropout to be a finite number, got None"),
        ({"train_bias": "no"}, "train_bias to be True or False, got 'no'"),
    ],
)
def test_settings_that_mean_nothing_are_refused_in_one_sentence(options, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        SurrogateSettings(**options)
    assert "\n" not in str(caught.value)
