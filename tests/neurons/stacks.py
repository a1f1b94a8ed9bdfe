"""Stacks of layers of every exact neuron model, and inputs for them."""

import torch

from cvxsnn import gaussian_witnesses
from cvxsnn.neurons import NEURON_MODELS, LateralLayer
from cvxsnn.neurons.lateral import VIEWS
from cvxsnn.witnesses import Normal, Uniform

SPREAD = {"decay": Uniform(0, 1), "bias": Normal(0, 0.3), "threshold": Uniform(0, 2), "initial_membrane": Normal(0, 1)}

NEURONS = [name for name, model in NEURON_MODELS.items() if not model.is_integer]
"""Those of chips read counts only, and have tests of their own."""


def draw_lateral(width=33, n_features=5, n_subnetworks=3, seed=0, n_taps=4, max_delay=3, **changes):
    """A lateral layer with every view of the inputs, in which some neurons inhibit each other."""
    generator = torch.Generator().manual_seed(seed)
    shape, n_sources = (n_subnetworks, n_taps, width), len(VIEWS) * n_features
    parameters = {
        "bias": torch.randn(n_subnetworks, width, generator=generator) * 0.3,
        "source": torch.randint(n_sources, shape, generator=generator),
        "delay": torch.randint(max_delay + 1, shape, generator=generator),
        "n_sources": n_sources,
        "group": torch.randint(width // 3 + 1, (n_subnetworks, width), generator=generator),
        "views": VIEWS,
    }
    return LateralLayer(torch.randn(shape, generator=generator).round(decimals=2), **{**parameters, **changes})


def draw_layers(neuron, hidden=(33, 20), n_features=5, n_subnetworks=3, seed=0):
    if neuron == "lateral":
        first, others = draw_lateral(hidden[0], n_features, n_subnetworks, seed), hidden[1:]
        above = gaussian_witnesses(hidden[0], others, n_subnetworks, seed=seed, dtype=torch.float64) if others else None
        return (first, *(above.layers if others else ()))
    parameters = SPREAD if neuron == "lif" else {"bias": SPREAD["bias"]}
    return gaussian_witnesses(n_features, hidden, n_subnetworks, neuron=neuron, seed=seed, **parameters).layers


def draw_inputs(n_samples=70, n_steps=9, n_features=5, seed=1):
    return torch.randn(n_samples, n_steps, n_features, generator=torch.Generator().manual_seed(seed))
