"""Rolling out a spiking network: ours beside snnTorch, SpikingJelly and Norse.

All drive the same weights with the same inputs and hand back the spikes of the last layer at all steps. The neurons are
mapped exactly: in float64 the spikes must be equal, which is checked; float32, where the libraries round in other
places, is what is timed.
"""

import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cvxsnn import WitnessSet, gaussian_witnesses, roll_out
from cvxsnn.data.tasks import addition
from cvxsnn.neurons import HiddenLayer
from cvxsnn.neurons.exact import snap_inputs

from .measure import best_seconds, console, make_table, verdict

logging.getLogger("torch._library.triton").setLevel(logging.ERROR)  # SpikingJelly asks for a GPU's compiler
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import snntorch
    from norse.torch.functional.lif_box import LIFBoxFeedForwardState, LIFBoxParameters
    from norse.torch.module.lif_box import LIFBoxCell
    from spikingjelly.activation_based.neuron import LIFNode

DECAY, THRESHOLD = 0.9, 1.0
GOAL = 2.0


@dataclass(frozen=True)
class Case:
    """A network and its inputs, of shape (n_samples, n_steps, n_features), on the grid that we read them on."""

    name: str
    hidden: tuple[int, ...]
    n_subnetworks: int
    inputs: Tensor

    def witnesses(self, dtype: torch.dtype) -> WitnessSet:
        """Membranes start at rest, where the libraries start."""
        return gaussian_witnesses(
            self.inputs.shape[2],
            self.hidden,
            self.n_subnetworks,
            decay=DECAY,
            threshold=THRESHOLD,
            initial_membrane=-THRESHOLD,
            dtype=dtype,
        )


class Peer(ABC):
    """A library's neuron, equal to ours when it reads ``input_scale`` times the weighted inputs plus ``input_bias``."""

    input_scale = 1.0
    input_bias = 0.0

    @abstractmethod
    def spikes(self, drive: Tensor) -> Tensor:
        """Spikes for a drive of the same shape (n_steps, n_samples, width)."""

    def rolling(self, layers: Sequence[HiddenLayer], inputs: Tensor) -> Callable[[], Tensor]:
        """A function that rolls all subnetworks out: spikes of shape (n_steps, n_samples, n_neurons)."""
        subnetworks = [
            [self._linear(layer, k) for layer in layers]  # applied to all steps at once
            for k in range(layers[0].n_subnetworks)
        ]

        @torch.inference_mode()
        def run() -> Tensor:
            outputs = []
            for subnetwork in subnetworks:
                values = inputs
                for linear in subnetwork:
                    values = self.spikes(linear(values))
                outputs.append(values)
            return torch.cat(outputs, dim=2) if len(outputs) > 1 else outputs[0]

        return run

    def _linear(self, layer: HiddenLayer, k: int) -> nn.Linear:
        linear = nn.Linear(layer.n_inputs, layer.width, bias=self.input_bias != 0, dtype=layer.weight.dtype)
        linear.weight.data = (layer.weight[k].T * self.input_scale).contiguous()
        if linear.bias is not None:
            linear.bias.data.fill_(self.input_bias)
        return linear.eval()


class SnnTorch(Peer):
    """``Leaky``: V = U + threshold; one step a call."""

    input_bias = (1 - DECAY) * THRESHOLD

    def __init__(self, dtype: torch.dtype) -> None:
        self.neuron = snntorch.Leaky(
            beta=torch.tensor(DECAY, dtype=dtype),
            threshold=torch.tensor(THRESHOLD, dtype=dtype),
            spike_grad=lambda membrane: (membrane >= 0).to(membrane.dtype),
        ).eval()

    def spikes(self, drive: Tensor) -> Tensor:
        """Spikes."""
        membrane, spikes = torch.zeros_like(drive[0]), []
        for step in drive:
            fired, membrane = self.neuron(step, membrane)
            spikes.append(fired)
        return torch.stack(spikes)


class SpikingJelly(Peer):
    """``LIFNode`` with soft reset: it leaks what it subtracts, so it subtracts threshold / decay; all steps a call."""

    input_bias = (1 - DECAY) * THRESHOLD / DECAY

    def __init__(self, dtype: torch.dtype) -> None:
        self.neuron = LIFNode(
            tau=1 / (1 - DECAY), decay_input=False, v_threshold=THRESHOLD / DECAY, v_reset=None, step_mode="m"
        ).eval()

    def spikes(self, drive: Tensor) -> Tensor:
        """Spikes."""
        self.neuron.v = torch.full_like(drive[0], THRESHOLD / DECAY - THRESHOLD)
        spikes: Tensor = self.neuron(drive)
        return spikes


class Norse(Peer):
    """``LIFBoxCell`` centred at its threshold; one step a call."""

    input_scale = 1 / (1 - DECAY)

    def __init__(self, dtype: torch.dtype) -> None:
        parameters = LIFBoxParameters(
            tau_mem_inv=torch.tensor(1 - DECAY, dtype=dtype),
            v_leak=torch.tensor(0.0, dtype=dtype),
            v_th=torch.tensor(0.0, dtype=dtype),
            reset_method=lambda spikes, membrane, reset, threshold: membrane - spikes * (THRESHOLD / DECAY),
        )
        self.neuron = LIFBoxCell(parameters, dt=1.0).eval()

    def spikes(self, drive: Tensor) -> Tensor:
        """Spikes."""
        state, spikes = LIFBoxFeedForwardState(v=torch.full_like(drive[0], -THRESHOLD)), []
        for step in drive:
            fired, state = self.neuron(step, state)
            spikes.append(fired)
        return torch.stack(spikes)


PEERS: dict[str, Callable[[torch.dtype], Peer]] = {
    "snnTorch Leaky": SnnTorch,
    "SpikingJelly LIFNode": SpikingJelly,
    "Norse LIFBoxCell": Norse,
}


def make_cases() -> list[Case]:
    """Spike trains and rows of grey images into one wide layer, and the paper's network for addition."""
    pixels = snap_inputs(torch.rand(256, 28, 28, generator=torch.Generator().manual_seed(0)))
    trains = (pixels < 0.3).double()
    digits = torch.from_numpy(addition(base=3).train.inputs).double()
    return [
        Case("28 steps × 256 sequences of spikes, 28 → 1000", (1000,), 1, trains),
        Case("28 steps × 256 sequences of real values, 28 → 1000", (1000,), 1, pixels),
        Case("6 steps × 2304 sequences, 2 × (3 → 256 → 512)", (256, 512), 2, digits),
    ]


def contenders(case: Case, dtype: torch.dtype) -> dict[str, Callable[[], Tensor]]:
    """Everybody's roll-out of ``case``. Ours reads samples first, the others steps first."""
    layers = case.witnesses(dtype).layers
    inputs = case.inputs.to(dtype)
    steps_first = inputs.transpose(0, 1).contiguous()
    return {
        "cvxsnn": lambda: roll_out(layers, inputs, "all").transpose(0, 1),
        **{name: peer(dtype).rolling(layers, steps_first) for name, peer in PEERS.items()},
    }


def main() -> None:
    """Check the spikes, time everybody, print."""
    for case in make_cases():
        exact = {name: run().bool() for name, run in contenders(case, torch.float64).items()}
        single = contenders(case, torch.float32)
        seconds = best_seconds(single)
        ours = single["cvxsnn"]()
        table = make_table(
            f"Roll-out, {case.name}", "float32, all steps", "ms", "ours is faster by", "spikes that differ"
        )
        table.add_row("cvxsnn", f"{1e3 * seconds['cvxsnn']:.1f}", "", "")
        for name in PEERS:
            assert torch.equal(exact[name], exact["cvxsnn"]), f"{name} gives other spikes in float64"
            ratio = seconds[name] / seconds["cvxsnn"]
            differing = int((single[name]().bool() != ours).sum())
            table.add_row(
                name,
                f"{1e3 * seconds[name]:.1f}",
                verdict(f"{ratio:.1f} ×", f"{GOAL:g} ×", ratio >= GOAL),
                f"{differing:,} of {ours.numel():,}; 0 in float64",
            )
        console.print(table)
