"""Adam."""

import torch

import cvxsnn as cs
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.fitting import SurrogateSettings
from cvxsnn.fitting.surrogate.adam import Adam
from cvxsnn.fitting.surrogate.networks import TrainableNetwork
from cvxsnn.fitting.surrogate.settings import initial_network

DATA = TrainingSet.of(cs.tasks.first_last_xor(3, n_train=20, n_val=4, n_test=4).train)
SETTINGS = SurrogateSettings(learning_rate=0.03, weight_decay=0.2)


def make_model():
    network = initial_network(cs.gaussian_witnesses(2, (5,)).layers, Objective("logistic"), DATA)
    return TrainableNetwork(network, "arctan", 1.0, frozenset())


def step(model, optimiser, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in filter(lambda own: own.requires_grad, model.parameters()):
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    optimiser.step(0.5)


def test_moments_that_are_copied_continue_as_if_nothing_had_happened():
    model, other = make_model(), make_model()
    optimiser, resumed = Adam(model, SETTINGS, 2.0), Adam(other, SETTINGS, 2.0)
    for seed in range(3):
        step(model, optimiser, seed)
    other.load_state_dict(model.state_dict())
    for name in optimiser.first:
        resumed.first[name].copy_(optimiser.first[name])
        resumed.second[name].copy_(optimiser.second[name])
    resumed.n_steps = optimiser.n_steps
    for seed in range(3, 6):
        step(model, optimiser, seed)
        step(other, resumed, seed)
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in model.state_dict().items())


def test_a_step_drops_the_gradients():
    model = make_model()
    step(model, Adam(model, SETTINGS, 1.0), 0)
    assert all(parameter.grad is None for parameter in model.parameters())
