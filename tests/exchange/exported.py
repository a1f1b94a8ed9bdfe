"""Networks with everything that can be exported, and inputs with ties."""

import numpy as np
import torch
from layers import draw_layer, draw_stack

import cvxsnn as cs
from cvxsnn.dictionary.base import parse_readout
from cvxsnn.network import OutputHead
from cvxsnn.neurons import LateralLayer
from cvxsnn.neurons.reading import read_columns
from cvxsnn.witnesses.kinds import KINDS, Kinds

N_FEATURES = 3


def as_network(layers, readout="last", n_outputs=3, seed=0):
    parsed, n_columns = parse_readout(readout), layers[-1].n_subnetworks * layers[-1].width
    n_columns = len(read_columns(layers, parsed.statistics)) if parsed.statistics else n_columns * parsed.n_windows
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(n_columns, n_outputs, generator=generator, dtype=torch.float64)
    weight[torch.rand(n_columns, generator=generator) < 0.3] = 0  # some neurons are read by nothing
    intercept = torch.randn(n_outputs, generator=generator, dtype=torch.float64)
    heads = [OutputHead("label", "softmax", 0, n_outputs)]
    return cs.SpikingNetwork(layers, weight, heads, intercept, readout=readout)


def draw_inputs(n_samples=20, n_steps=12, n_features=N_FEATURES, seed=0):
    """Sequences with ties: some are blank, some whole numbers, some beyond what float32 sums hold."""
    inputs = np.random.default_rng(seed).normal(size=(n_samples, n_steps, n_features))
    inputs[:4] = np.round(inputs[:4])
    inputs[4, : n_steps // 2] = 0
    inputs[5] = 0
    inputs[6] *= 50
    inputs[7] *= 2.0**-16
    return inputs


def recurrent_layer(seed=0, width=8, dtype=torch.float32, n_inputs=N_FEATURES):
    generator = torch.Generator().manual_seed(seed)
    weight, recurrent = (torch.randn(2, n, width, generator=generator, dtype=dtype) for n in (n_inputs, width))
    spikes = (torch.rand(2, width, generator=generator) < 0.5).to(dtype)
    return cs.ThresholdLayer(weight, bias=-0.3, initial_spikes=spikes, recurrent_weight=recurrent)


def kinds_network(readout="mean+burst+root+ever+last", n_witnesses=120, kinds=tuple(KINDS)):
    """Neurons whose thresholds are drives that occur, so that there are ties."""
    return as_network(Kinds(n_witnesses=n_witnesses, kinds=kinds).sample(draw_inputs()).layers, readout)


def tied_layer(tie, decay):
    weight = torch.tensor([[1.0, -1, 2, 0], [0, 1, -1, 0], [0, 0, 1, -2]])[None]
    return cs.LIFLayer(weight, bias=torch.tensor([[0.0, -1, 0, 1]]), decay=decay, threshold=decay, tie=tie)


NETWORKS = {
    "leaky": lambda: as_network([draw_layer(0, n_inputs=N_FEATURES)]),
    "leaky in float64": lambda: as_network([draw_layer(1, dtype=torch.float64)], "mean"),
    "memoryless": lambda: as_network([draw_layer(3, decay=0.0, threshold=0.0, width=20)]),
    "ties": lambda: as_network([tied_layer("ge", 0.5)], "mean"),
    "silent ties, memoryless": lambda: as_network([tied_layer("gt", 0.0)], "mean"),
    "silent ties of membranes": lambda: as_network([tied_layer("gt", 1.0)], "mean"),
    "without delays": lambda: as_network([draw_layer(5, n_taps=3, source=None, delay=None, n_sources=None)], "all"),
    "deep": lambda: as_network(draw_stack(6), "mean"),
    "deep in float64": lambda: as_network(draw_stack(7, torch.float64), "last"),
    "weights of 32 bits": lambda: as_network([draw_layer(8, weight_bits=32, dtype=torch.float64)], "mean"),
    "windows": lambda: as_network([draw_layer(9)], "windows-5"),
    "statistics": lambda: as_network([draw_layer(10)], "mean+burst+root+ever+last+first"),
    "recurrent": lambda: as_network([recurrent_layer()], "last+mean"),
    "recurrent twice": lambda: as_network(
        [recurrent_layer(1), draw_layer(11, n_inputs=8), recurrent_layer(2, n_inputs=6)], "mean"
    ),
    "kinds": kinds_network,
    "kinds read at the end": lambda: kinds_network(readout="last"),
    "groups": lambda: kinds_network(readout="root", n_witnesses=32, kinds=("winner",)),
    "one view": lambda: as_network([kinds_layer_of_one_view()], "ever+mean"),
}


def kinds_layer_of_one_view():
    generator = torch.Generator().manual_seed(0)
    return LateralLayer(
        torch.randn(1, 4, 10, generator=generator),
        bias=torch.randn(1, 10, generator=generator) * (torch.arange(10) > 5),
        source=torch.randint(N_FEATURES, (1, 4, 10), generator=generator),
        delay=torch.randint(3, (1, 4, 10), generator=generator),
        n_sources=N_FEATURES,
        group=torch.tensor([[1.0, 1, 2, 2, 2, 1, 0, 0, 0, 0]]),
        views=("changes",),
    )
