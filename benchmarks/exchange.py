"""Spikes that differ after an exchange with snnTorch, SpikingJelly, Norse and NIR: how many of how many.

Every network is rolled out on both sides, and every neuron's decision to fire is compared at every step. In float64
none may differ; in float32 the libraries round in other places than we do, and how often that flips spikes is measured.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from cvxsnn import LIFLayer, SpikingNetwork, roll_out
from cvxsnn.core.libraries import import_library
from cvxsnn.exchange import (
    NIRNetwork,
    from_norse,
    from_snntorch,
    from_spikingjelly,
    to_nir,
    to_norse,
    to_snntorch,
    to_spikingjelly,
)
from cvxsnn.network import OutputHead
from cvxsnn.neurons.exact import snap_inputs

from .measure import console, make_table

logging.getLogger("torch._library.triton").setLevel(logging.ERROR)  # SpikingJelly asks for a GPU's compiler

N_FEATURES, WIDTH, N_SAMPLES, N_STEPS, N_BLANK = 12, 500, 256, 100, 4
N_SILENT_STEPS = 2000


@dataclass(frozen=True)
class Case:
    """A layer of Gaussian weights, or of whole ones whose sums are exact and often tied, and the drive it gets."""

    decay: float
    threshold: float = 1.0
    start: float = 0.0
    gain: float = 1.0
    is_tied: bool = False
    is_real: bool = False

    def weight(self) -> Tensor:
        """Shape (1, N_FEATURES, WIDTH), float64."""
        generator = torch.Generator().manual_seed(1)
        if self.is_tied:
            return torch.randint(-2, 3, (1, N_FEATURES, WIDTH), generator=generator).double()
        return torch.randn(1, N_FEATURES, WIDTH, generator=generator, dtype=torch.float64)

    def layer(self, dtype: torch.dtype) -> LIFLayer:
        """Ours."""
        bias = -0.5 if self.is_tied else 0.0
        return LIFLayer(
            self.weight().to(dtype), bias, decay=self.decay, threshold=self.threshold, initial_membrane=self.start
        )

    def inputs(self) -> Tensor:
        """Spikes after blank frames, or real numbers."""
        generator = torch.Generator().manual_seed(0)
        if self.is_real:
            return torch.randn(N_SAMPLES, N_STEPS, N_FEATURES, generator=generator, dtype=torch.float64)
        inputs = torch.rand(N_SAMPLES, N_STEPS, N_FEATURES, generator=generator) < 0.3
        inputs[:, :N_BLANK] = False
        return self.gain * inputs.double()


CASES = (
    Case(0.5),
    Case(0.9),
    Case(0.99),
    Case(0.1, 0.1),
    Case(0.9, 0.7, start=-0.7),
    Case(0.9, 0.75, gain=8.0),
    Case(0.5, start=-1.0, is_tied=True),
    Case(0.9, is_real=True),
)
"""Several decays, from the threshold and from rest, a drive far above the threshold, exact ties, and real inputs."""


def _stock_snntorch(case: Case) -> nn.Module:
    leaky = import_library("snntorch", "snntorch").Leaky
    neuron: nn.Module = leaky(beta=case.decay, threshold=case.threshold)
    return neuron


def _stock_spikingjelly(case: Case) -> nn.Module:
    node = import_library("spikingjelly.activation_based.neuron", "spikingjelly").LIFNode
    neuron: nn.Module = node(tau=1 / (1 - case.decay), v_threshold=case.threshold, v_reset=None, step_mode="m")
    return neuron


def _stock_norse(case: Case) -> nn.Module:
    box = import_library("norse.torch.functional.lif_box", "norse")
    parameters = box.LIFBoxParameters(
        tau_mem_inv=torch.as_tensor((1 - case.decay) / 1e-3),
        v_th=torch.as_tensor(case.threshold),
        reset_method=import_library("norse.torch.functional.reset", "norse").reset_subtract,
    )
    neuron: nn.Module = import_library("norse.torch.module.lif_box", "norse").LIFBoxCell(parameters)
    return neuron


@dataclass(frozen=True)
class Peer:
    """A library: how to go there and back, its usual neuron, and that one's ways with inputs and steps."""

    name: str
    export: Callable[..., Any]
    read: Callable[..., Any]
    stock: Callable[[Case], nn.Module]
    scales_inputs: bool = True
    takes_all_steps: bool = False


PEERS = (
    Peer("snnTorch `Leaky`", to_snntorch, from_snntorch, _stock_snntorch, scales_inputs=False),
    Peer("SpikingJelly `LIFNode`", to_spikingjelly, from_spikingjelly, _stock_spikingjelly, takes_all_steps=True),
    Peer("Norse `LIFBoxCell`", to_norse, from_norse, _stock_norse),
)


def _as_network(layer: LIFLayer) -> SpikingNetwork:
    return SpikingNetwork([layer], torch.zeros(layer.width, 1), [OutputHead("output", "squared", 0, 1)], readout="all")


def _ours(case: Case, dtype: torch.dtype) -> Tensor:
    return roll_out([case.layer(dtype)], case.inputs(), "all")


def _stock_model(peer: Peer, case: Case, dtype: torch.dtype) -> list[nn.Module]:
    linear = nn.Linear(N_FEATURES, WIDTH)
    torch.manual_seed(3)
    nn.init.normal_(linear.weight, std=1 / (1 - case.decay) if peer.scales_inputs else 1.0)
    nn.init.normal_(linear.bias, std=0.1)
    return [linear.to(dtype), peer.stock(case).to(dtype).eval()]


def _run_stock(peer: Peer, model: list[nn.Module], inputs: Tensor) -> Tensor:
    """Spikes (n_samples, n_steps, width) in the way of the library, from its own initial state."""
    linear, neuron = model
    drive = linear(inputs.to(linear.get_parameter("weight").dtype).transpose(0, 1))
    if peer.takes_all_steps:
        spikes: Tensor = neuron(drive)
        return spikes.transpose(0, 1) != 0
    state, steps = None, []
    for step in drive:
        fired, state = neuron(step, state)
        steps.append(fired != 0)
    return torch.stack(steps, dim=1)


@dataclass(frozen=True)
class Count:
    """How many decisions to fire were compared, and how many differ."""

    differing: int = 0
    compared: int = 0

    def __add__(self, other: "Count") -> "Count":
        """Both together."""
        return Count(self.differing + other.differing, self.compared + other.compared)

    def __str__(self) -> str:
        """Both numbers."""
        return f"{self.differing:,} of {self.compared:,}"

    @classmethod
    def of(cls, found: Tensor, expected: Tensor) -> "Count":
        """Compare two arrays of spikes."""
        return cls(int((found.bool() != expected).sum()), expected.numel())


PRECISIONS = {
    "float64": (torch.float64, torch.float64),
    "float32": (torch.float32, torch.float32),
    "float32, then float64": (torch.float32, torch.float64),
}
"""Types of the network that is handed over, and of the one made of it."""


@torch.no_grad()
def measure_exchange() -> Iterator[tuple[str, dict[str, Count]]]:
    """Yield what was exchanged and, for each precision, the spikes that differ over all cases."""
    for peer in PEERS:
        counts = dict.fromkeys(PRECISIONS, Count())
        for case, (name, (dtype, peer_dtype)) in product(CASES, PRECISIONS.items()):
            exported = peer.export(_as_network(case.layer(dtype)), dtype=peer_dtype)
            counts[name] += Count.of(exported.spikes(case.inputs()), _ours(case, dtype))
        yield f"ours → {peer.name}", counts
        counts = dict.fromkeys(PRECISIONS, Count())
        # A stock model has real weights and reads inputs as they are.
        stock_cases = [case for case in CASES if not case.is_tied and not case.is_real]
        for case, (name, (dtype, our_dtype)) in product(stock_cases, PRECISIONS.items()):
            model = _stock_model(peer, case, dtype)
            found = roll_out(peer.read(model, weight_bits=32, dtype=our_dtype).layers, case.inputs(), "all")
            counts[name] += Count.of(found, _run_stock(peer, model, case.inputs()))
        yield f"{peer.name} → ours", counts
    counts = dict.fromkeys(PRECISIONS, Count())
    for case, (name, (dtype, peer_dtype)) in product(CASES, PRECISIONS.items()):
        inputs = snap_inputs(case.inputs())  # a graph has no node that rounds
        counts[name] += Count.of(_in_nirtorch(case.layer(dtype), peer_dtype).spikes(inputs), _ours(case, dtype))
    yield "ours → NIR, run by nirtorch", counts


def _in_nirtorch(layer: LIFLayer, dtype: torch.dtype) -> NIRNetwork:
    graph = to_nir(_as_network(layer))
    return NIRNetwork(graph, graph.metadata["dt"], dtype)


@torch.no_grad()
def measure_weight_bits() -> Iterator[tuple[int, Count]]:
    """Yield spikes of a stock snnTorch layer in float64 that differ when its weights get so many bits."""
    peer = PEERS[0]
    for bits in (15, 20, 24, 28, 32):
        count = Count()
        for case in CASES[:3]:
            model = _stock_model(peer, case, torch.float64)
            found = roll_out(peer.read(model, weight_bits=bits).layers, case.inputs(), "all")
            count += Count.of(found, _run_stock(peer, model, case.inputs()))
        yield bits, count


@torch.no_grad()
def measure_silence(decay: float) -> dict[str, int | None]:
    """Steps without input after which a neuron without bias fires elsewhere and not here; None if it does not."""
    layer = LIFLayer(torch.ones(1, 1, 1, dtype=torch.float64), decay=decay)
    inputs = torch.zeros(1, N_SILENT_STEPS, 1, dtype=torch.float64)
    expected = roll_out([layer], inputs, "all")
    networks = {peer.name: peer.export(_as_network(layer)) for peer in PEERS}
    networks["NIR"] = _in_nirtorch(layer, torch.float64)
    steps: dict[str, int | None] = {}
    for name, network in networks.items():
        differing = (network.spikes(inputs).bool() != expected).flatten().nonzero()
        steps[name] = int(differing[0]) if len(differing) else None
    return steps


def main() -> None:
    """Measure and print."""
    table = make_table("Exchange, decisions to fire that differ", "from → to", *PRECISIONS, "of")
    for name, counts in measure_exchange():
        compared = next(iter(counts.values())).compared
        table.add_row(name, *(f"{count.differing:,}" for count in counts.values()), f"{compared:,}")
    console.print(table)
    table = make_table("A stock snnTorch layer in float64, read with so many bits a weight", "bits", "differ")
    for bits, count in measure_weight_bits():
        table.add_row(str(bits), str(count))
    console.print(table)
    names = [*(peer.name for peer in PEERS), "NIR"]
    table = make_table("Silent steps until a neuron without bias fires elsewhere only", "decay", *names)
    for decay in (0.1, 0.5, 0.9):
        steps = measure_silence(decay).values()
        table.add_row(f"{decay:g}", *(f"over {N_SILENT_STEPS}" if step is None else str(step) for step in steps))
    console.print(table)
