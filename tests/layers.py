"""Layers with delays, for all tests."""

import torch

from cvxsnn import LIFLayer


def draw_layer(seed, n_subnetworks=2, n_taps=5, width=6, n_inputs=3, max_delay=4, dtype=torch.float32, **changes):
    """A LIF layer with delays and everything else that a layer can have."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape):
        return torch.rand(shape, generator=generator, dtype=dtype)

    shape, each = (n_subnetworks, n_taps, width), (n_subnetworks, width)
    weight = torch.randn(shape, generator=generator, dtype=dtype)
    weight[:, -1] *= uniform(*each) < 0.5  # some neurons have a tap less
    parameters = {
        "bias": uniform(*each) - 0.7,
        "decay": uniform(*each) * (uniform(*each) < 0.7),
        "threshold": uniform(*each) * (uniform(*each) < 0.7),
        "initial_membrane": uniform(*each) - 0.5,
        "initial_spikes": (uniform(*each) < 0.5).to(dtype),
        "source": torch.randint(n_inputs, shape, generator=generator),
        "delay": torch.randint(max_delay + 1, shape, generator=generator),
        "n_sources": n_inputs,
    }
    return LIFLayer(weight, **{**parameters, **changes})


def draw_stack(seed, dtype=torch.float32):
    """A layer with delays above one with delays, above one without; 3 features, 2 subnetworks of 6 last neurons."""
    dense = draw_layer(seed, n_taps=3, width=4, dtype=dtype, source=None, delay=None, n_sources=None)
    return [
        dense,
        draw_layer(seed + 1, n_inputs=4, width=5, dtype=dtype),
        draw_layer(seed + 2, n_inputs=5, dtype=dtype),
    ]
