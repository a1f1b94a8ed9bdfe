"""One network by ``torch.optim``, several by the stacked optimiser: the same steps."""

import pytest
import torch
from tolerances import ROUNDING

import cvxsnn as cs
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.fitting import SurrogateSettings
from cvxsnn.fitting.surrogate.networks import TrainableNetworks
from cvxsnn.fitting.surrogate.settings import initial_network
from cvxsnn.fitting.surrogate.single import SingleAdam
from cvxsnn.fitting.surrogate.stacked import StackedAdam

DATA = TrainingSet.of(cs.tasks.first_last_xor(3, n_train=20, n_val=4, n_test=4).train)
SETTINGS = [
    SurrogateSettings(learning_rate=0.03, weight_decay=0.2, clip_norm=0.5),
    SurrogateSettings(learning_rate=0.001, weight_decay=0.0, clip_norm=100.0),
]
FACTORS = [1.0, 7.0]


def make_models(settings):
    """Return the networks stacked, and each alone."""
    networks = []
    for seed in range(len(settings)):
        layers = cs.gaussian_witnesses(2, (5, 6), seed=seed, dtype=torch.float64).layers
        networks.append(initial_network(layers, Objective("logistic"), DATA, seed))
    groups = [networks, *([network] for network in networks)]
    return [TrainableNetworks(group, "arctan", [1.0] * len(group), frozenset({"decay", "bias"})) for group in groups]


def draw_gradients(models, step):
    """Give the stacked networks random gradients, and each alone its own rows of them."""
    stacked, *alone = models
    generator = torch.Generator().manual_seed(step)
    for name, parameter in stacked.named_parameters():
        if not parameter.requires_grad:
            continue
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        for part, model in zip(parameter.grad.chunk(len(alone)), alone, strict=True):
            model.get_parameter(name).grad = part.clone()


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_stacked_networks_make_the_steps_that_torch_makes_for_each(share):
    models = make_models(SETTINGS)
    stacked, *alone = models
    optimisers = [SingleAdam(model, own, factor) for model, own, factor in zip(alone, SETTINGS, FACTORS, strict=True)]
    optimisers.append(StackedAdam(stacked, SETTINGS, FACTORS))
    for step in range(5):
        draw_gradients(models, step)
        for optimiser in optimisers:
            optimiser.step(share)
    for name, parameter in stacked.named_parameters():
        for part, model in zip(parameter.chunk(len(alone)), alone, strict=True):
            torch.testing.assert_close(part, model.get_parameter(name), rtol=ROUNDING, atol=ROUNDING)
    assert [optimiser.n_steps for optimiser in optimisers] == [5, 5, 5]
