"""Stacks of layers of every exact neuron model, and inputs for them."""

import torch

from cvxsnn import gaussian_witnesses
from cvxsnn.neurons import NEURON_MODELS
from cvxsnn.witnesses import Normal, Uniform

SPREAD = {"decay": Uniform(0, 1), "bias": Normal(0, 0.3), "threshold": Uniform(0, 2), "initial_membrane": Normal(0, 1)}

NEURONS = [*NEURON_MODELS]


def draw_layers(neuron, hidden=(33, 20), n_features=5, n_subnetworks=3, seed=0):
    parameters = SPREAD if neuron == "lif" else {"bias": SPREAD["bias"]}
    return gaussian_witnesses(n_features, hidden, n_subnetworks, neuron=neuron, seed=seed, **parameters).layers


def draw_inputs(n_samples=70, n_steps=9, n_features=5, seed=1):
    return torch.randn(n_samples, n_steps, n_features, generator=torch.Generator().manual_seed(seed))
