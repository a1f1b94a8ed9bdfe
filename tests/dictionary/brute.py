"""Small data and witnesses, and their columns straight from the spikes."""

import torch

from cvxsnn import gaussian_witnesses, roll_out
from cvxsnn.witnesses import Normal, Uniform

READOUTS = ["last", "all", "mean"]


def draw_inputs(n_samples=75, n_steps=5):
    """Three bits a step: few enough for witnesses to share patterns, and for rows to be equal."""
    return torch.randint(0, 2, (n_samples, n_steps, 3), generator=torch.Generator().manual_seed(0))


def draw_witnesses(neuron="lif"):
    spread = {"decay": Uniform(0, 1), "bias": Normal(0, 1)} if neuron == "lif" else {"bias": Normal(0, 1)}
    return gaussian_witnesses(3, (10, 40), 3, neuron=neuron, seed=1, **spread)


def brute_columns(witnesses, inputs, readout):
    """Every witness's column as numbers, straight from the spikes."""
    spikes = roll_out(witnesses.layers, inputs, "all").double()
    return {"last": spikes[:, -1], "all": spikes.flatten(0, 1), "mean": spikes.mean(1)}[readout]


LENGTHS = torch.arange(75) * 7 % 5 + 1
SEQUENCE_READOUTS = ["last", "mean"]


def brute_padded(witnesses, inputs, readout, lengths=LENGTHS):
    """Every witness's column where each sequence was rolled out alone, without its padding."""
    rows = [brute_columns(witnesses, row[None, :length], readout) for row, length in zip(inputs, lengths, strict=True)]
    return torch.cat(rows)


def random_bits(n_rows, n_columns):
    return torch.rand(n_rows, n_columns, generator=torch.Generator().manual_seed(n_rows)) < 0.4


def random_values(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
