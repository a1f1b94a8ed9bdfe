"""Networks, inputs and stock models of other libraries, for the tests that compare them with ours."""

import logging
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from hypothesis import strategies as st
from layers import draw_layer
from torch import nn

from cvxsnn import LIFLayer, SpikingNetwork, delayed_witnesses, roll_out
from cvxsnn.convex import Objective
from cvxsnn.core.libraries import import_library
from cvxsnn.data.tasks import first_last_xor
from cvxsnn.exchange import from_norse, from_snntorch, from_spikingjelly, to_norse, to_snntorch, to_spikingjelly
from cvxsnn.fitting import Program, Settings, train_task
from cvxsnn.network import OutputHead

logging.getLogger("torch._library.triton").setLevel(logging.ERROR)  # SpikingJelly asks for a GPU's compiler

for library in ("snntorch", "spikingjelly", "norse", "nir", "nirtorch"):
    pytest.importorskip(library, reason=f"{library} is not installed: pip install 'cvxsnn[interop]'")

snntorch = import_library("snntorch", "snntorch")
neuron = import_library("spikingjelly.activation_based.neuron", "spikingjelly")
norse_box = import_library("norse.torch.functional.lif_box", "norse")
norse_cell = import_library("norse.torch.module.lif_box", "norse")
norse_reset = import_library("norse.torch.functional.reset", "norse")

N_FEATURES, N_SAMPLES, N_STEPS, N_BLANK = 12, 64, 60, 4
WIDTH = 300  # 64 · 60 · 300 = 1,152,000 decisions to fire or not

EXPORTS = {"snntorch": to_snntorch, "spikingjelly": to_spikingjelly, "norse": to_norse}
IMPORTS = {"snntorch": from_snntorch, "spikingjelly": from_spikingjelly, "norse": from_norse}
LIBRARIES = tuple(EXPORTS)


def draw_inputs(gain=1.0):
    """Random spikes after a few blank frames."""
    inputs = torch.rand(N_SAMPLES, N_STEPS, N_FEATURES, generator=torch.Generator().manual_seed(0)) < 0.3
    inputs[:, :N_BLANK] = False
    return gain * inputs.double()


def draw_real_inputs():
    """Real numbers that are on no grid."""
    return torch.randn(N_SAMPLES, N_STEPS, N_FEATURES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def draw_weight(fan_in=N_FEATURES, width=WIDTH, seed=1, n_subnetworks=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n_subnetworks, fan_in, width, generator=generator, dtype=torch.float64)


def as_network(layers, readout="all", n_outputs=2, **settings):
    n_read = len(settings.get("neurons", range(layers[-1].n_subnetworks * layers[-1].width)))
    weight = draw_weight(n_read, n_outputs, seed=7)[0]
    heads = [OutputHead("output", "squared", 0, n_outputs)]
    return SpikingNetwork(layers, weight, heads, torch.arange(n_outputs).double(), readout=readout, **settings)


def delayed_network(readout="all", **settings):
    """Two subnetworks of two layers with delays; some taps of a neuron read the same value, or nothing."""
    parameters = {"decay": 0.5, "threshold": 1.0, "initial_spikes": 0.0, "dtype": torch.float64}
    lower = draw_layer(0, n_inputs=N_FEATURES, n_taps=30, width=8, **parameters)
    upper = draw_layer(1, n_inputs=8, n_taps=20, width=5, max_delay=6, **parameters)
    return as_network([lower, upper], readout, **settings)


@dataclass(frozen=True)
class Case:
    """A layer of ours and what drives it."""

    decay: float = 0.9
    threshold: float = 1.0
    start: float = 0.0
    gain: float = 1.0

    def network(self):
        layer = LIFLayer(draw_weight(), decay=self.decay, threshold=self.threshold, initial_membrane=self.start)
        return as_network([layer])

    def inputs(self):
        return draw_inputs(self.gain)


CASES = {
    "decay 0.5": Case(0.5),
    "decay 0.9": Case(0.9),
    "decay 0.99": Case(0.99),
    "odd threshold": Case(0.3, 0.7),
    "small decay and threshold": Case(0.1, 0.1),
    "from rest": Case(0.9, 0.7, start=-0.7),
    "strong drive": Case(0.9, 0.75, gain=8.0),
}


def draw_tied_network(tie):
    """Whole weights, decay ½ and resets of 1: sums are exact, and membranes of 0 frequent."""
    weight = torch.randint(-2, 3, (1, N_FEATURES, WIDTH), generator=torch.Generator().manual_seed(2)).double()
    return as_network([LIFLayer(weight, bias=-0.5, decay=0.5, initial_membrane=-1.0, tie=tie)])


@dataclass(frozen=True)
class CoarseCase:
    """Neurons whose thresholds are membranes that they have on inputs of few values: ties are frequent."""

    seed: int
    hidden: tuple[int, ...]
    n_subnetworks: int
    decay: float
    threshold: float
    initial_spikes: float
    tie: str
    dtype: torch.dtype
    unit: float

    def inputs(self):
        drawn = torch.randn(20, 8, 2, generator=torch.Generator().manual_seed(self.seed), dtype=torch.float64)
        return (drawn / self.unit).round() * self.unit

    def network(self):
        own = {"decay": self.decay, "threshold": self.threshold, "seed": self.seed, "dtype": self.dtype}
        layers = delayed_witnesses(self.inputs(), self.hidden, self.n_subnetworks, fan_in=3, **own).layers
        fired = torch.tensor(self.initial_spikes, dtype=self.dtype)
        return as_network([replace(layer, tie=self.tie, initial_spikes=fired) for layer in layers], "mean")


COARSE_CASES = st.builds(
    CoarseCase,
    seed=st.integers(0, 2**16),
    hidden=st.sampled_from([(6,), (4, 5), (3, 4, 5)]),
    n_subnetworks=st.integers(1, 2),
    decay=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    threshold=st.sampled_from([0.0, 1.0]),
    initial_spikes=st.sampled_from([0.0, 1.0]),
    tie=st.sampled_from(["ge", "gt"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    unit=st.sampled_from([1.0, 0.25, 2.0**-16]),
)


def make_stock_snntorch(decay=0.9, threshold=1.0, sizes=(N_FEATURES, WIDTH), **settings):
    return _stock(sizes, lambda: snntorch.Leaky(beta=decay, threshold=threshold, **settings))


def make_stock_spikingjelly(decay=0.9, threshold=1.0, sizes=(N_FEATURES, WIDTH), **settings):
    settings = {"v_reset": None, "tau": 1 / (1 - decay), "v_threshold": threshold, **settings}
    return _stock(sizes, lambda: neuron.LIFNode(**settings, step_mode="m"))


def make_stock_norse(decay=0.9, threshold=1.0, sizes=(N_FEATURES, WIDTH), **settings):
    parameters = norse_box.LIFBoxParameters(
        tau_mem_inv=torch.as_tensor((1 - decay) / 1e-3),
        v_th=torch.as_tensor(threshold),
        **{"reset_method": norse_reset.reset_subtract, **settings},
    )
    return _stock(sizes, lambda: norse_cell.LIFBoxCell(parameters))


STOCK = {"snntorch": make_stock_snntorch, "spikingjelly": make_stock_spikingjelly, "norse": make_stock_norse}


def _stock(sizes, make_neuron):
    """Linear layers as torch draws them, with weights large enough to fire, and neurons."""
    torch.manual_seed(3)
    modules = []
    for fan_in, width in pairwise(sizes):
        linear = nn.Linear(fan_in, width)
        nn.init.normal_(linear.weight)
        modules += [linear, make_neuron()]
    return nn.Sequential(*modules).double().eval()


@torch.no_grad()
def run_stock(library, model, inputs):
    """Spikes (n_samples, n_steps, width) of a stock model, in the way of its library, from its own initial state."""
    block = inputs.transpose(0, 1)
    for module in model:
        if isinstance(module, nn.Linear):
            block = module(block)
        elif library == "spikingjelly":
            module.reset()
            block = module(block)
        else:
            block = _step_through(module, block)
        block = block.double()
    return block.transpose(0, 1).bool()


def _step_through(module, drive):
    # snnTorch keeps its membrane from the last run unless it is given one; Norse starts where it leaks to.
    state = torch.zeros_like(drive[0]) if isinstance(module, snntorch.Leaky) else None
    spikes = []
    for step in drive:
        fired, state = module(step, state)
        spikes.append(fired)
    return torch.stack(spikes)


@torch.no_grad()
def assert_same_spikes(network, peer, inputs):
    """All spikes of the last layer agree, and are worth comparing."""
    expected = roll_out(network.layers, inputs, "all")[..., network.neurons]
    assert 0.02 < expected.double().mean() < 0.98
    found = peer.spikes(inputs)[..., network.neurons]
    assert int((found.bool() != expected).sum()) == 0


def train_xor():
    """A small task, and a model of two layers trained on it."""
    task = first_last_xor(4, n_train=200, n_val=100, n_test=200)
    family = {"hidden": (8, 48), "n_subnetworks": 2, "decay": 0.99}
    return task, train_task("cvx", task, Settings(Program(Objective("hinge"), n_strengths=5), family))
