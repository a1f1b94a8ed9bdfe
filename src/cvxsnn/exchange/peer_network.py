"""A network in another library's layers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from ..core.checks import Array
from ..data.sequences import as_inputs, window_shares
from ..dictionary.readout import parse_readout
from ..network.spiking_network import SpikingNetwork
from ..neurons import LIFLayer
from ..neurons.exact import snap_inputs
from .delays import DelayLine, without_delays
from .merging import lif_layers, merge_subnetworks


class PeerLayer(NamedTuple):
    """A hidden layer of another library, and its membranes (width,) before the first step."""

    linear: nn.Linear
    neuron: nn.Module
    initial_membrane: Tensor
    delay_line: DelayLine | None = None

    @property
    def modules(self) -> list[nn.Module]:
        """The modules in the order in which they are applied."""
        return [module for module in (self.delay_line, self.linear, self.neuron) if module is not None]


ReadNeuron = Callable[[Tensor, Tensor, Any, Tensor | None], Mapping[str, Any]]
"""``(weight (fan_in, width), bias (width,), neuron, initial membrane or None)`` to arguments of a LIF layer."""

WriteLayer = Callable[[LIFLayer, int, torch.dtype], PeerLayer]
"""Converts a layer of a merged network that has no delays, given its number from 1 and the type of parameters."""


@dataclass(frozen=True)
class Library:
    """What is specific to the models of one library.

    Parameters
    ----------
    name : str
        Name of the library.
    neuron_type : type
        Base class of its neurons.
    read_neuron : callable
        Converts a linear layer and a neuron to the arguments of a LIF layer, in float64, and refuses other dynamics.
    write_layer : callable
        Converts a LIF layer, in float64, to a linear layer and a neuron, and refuses what the library cannot hold.
    linear_type : type
        Its own linear layer, where it has one.
    """

    name: str
    neuron_type: type
    read_neuron: ReadNeuron
    write_layer: WriteLayer
    linear_type: type[nn.Linear] = nn.Linear

    def convert(self, layer: LIFLayer, depth: int, dtype: torch.dtype) -> PeerLayer:
        """Convert a layer of a merged network, given its number from 1 and the type of parameters."""
        layer = layer.to(dtype=torch.float64)
        if not layer.has_delays:
            return self.write_layer(layer, depth, dtype)
        line = DelayLine(layer.n_inputs, layer.max_delay)
        return self.write_layer(without_delays(layer), depth, dtype)._replace(delay_line=line)


class PeerNetwork(nn.Module, ABC):
    """A stack of another library's layers with the spikes and scores of a :class:`cvxsnn.SpikingNetwork`.

    Attributes
    ----------
    layers : ModuleList
        Linear layer, neuron, linear layer, neuron, and so on. A :class:`DelayLine` comes before each linear layer that
        reads past inputs too.
    output : Linear
        Reads the last neurons, or each of them in every window of time.
    heads, readout
        Those of the original network.
    time_first : bool
        Whether inputs and outputs are (n_steps, n_samples, ...), as is usual in the libraries, or (n_samples,
        n_steps, ...), as in cvxsnn.
    sources : tuple of LIFLayer
        The layers that were converted. Membranes are measured from another zero in the libraries, which rounds them: a
        layer that nobody has changed is imported as its source.
    loss_of_exchange : str
        How it differs from the original; empty for an exact exchange.
    """

    output: nn.Linear

    def __init__(
        self, layers: Sequence[PeerLayer], source: SpikingNetwork, sources: Sequence[LIFLayer], time_first: bool
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(module for layer in layers for module in layer.modules)
        dtype = layers[0].linear.weight.dtype
        self.output = make_linear(source.weight.detach(), source.intercept.detach(), dtype)
        for depth, layer in enumerate(layers):
            self.register_buffer(f"initial_membrane{depth}", layer.initial_membrane.to(dtype))
        self.heads, self.readout, self.sources = source.heads, source.readout, tuple(sources)
        self.time_first = time_first
        self.loss_of_exchange = ""
        self.to(source.weight.device).eval()

    @classmethod
    def of(cls, network: SpikingNetwork, library: Library, dtype: torch.dtype, time_first: bool) -> Self:
        """Convert a network layer by layer, after merging its subnetworks."""
        merged = merge_subnetworks(network, library.name)
        layers = [library.convert(layer, depth, dtype) for depth, layer in enumerate(lif_layers(merged), 1)]
        own_dtype = network.layers[0].weight.dtype
        return cls(layers, merged, [layer.to(dtype=own_dtype) for layer in lif_layers(merged)], time_first)

    @abstractmethod
    def scan(self, neuron: nn.Module, drive: Tensor, membrane: Tensor) -> Tensor:
        """Return the spikes of a neuron for a drive of shape (n_steps, n_samples, width), from an initial membrane."""

    @property
    def initial_membranes(self) -> list[Tensor]:
        """The membranes before the first step, per layer."""
        return [self.get_buffer(f"initial_membrane{depth}") for depth in range(len(self.neurons))]

    @property
    def neurons(self) -> list[nn.Module]:
        """The neurons of each layer."""
        return [module for module in self.layers if not isinstance(module, (DelayLine, nn.Linear))]

    def spikes(self, inputs: Array) -> Tensor:
        """Return the spikes of the last hidden layer at all steps, as floats, in the layout of the inputs."""
        return self._in_layout(self._spikes(inputs))

    def forward(self, inputs: Array) -> Tensor:
        """Return scores (n_samples, n_outputs), or those of all steps, in the layout of the inputs, for read-out "all".

        Inputs are rounded to multiples of 2⁻¹⁶, as in the original network.
        """
        spikes, parsed = self._spikes(inputs), parse_readout(self.readout)
        if parsed.kind == "all":
            return self._in_layout(self.output(spikes))
        if parsed.n_windows > 1:
            n_steps = torch.tensor(len(spikes), device=spikes.device)
            shares = window_shares(parsed.n_windows, len(spikes), n_steps, spikes.dtype)
            features = torch.einsum("tij,tw->ijw", spikes, shares).flatten(1)
        else:
            features = spikes[-1] if parsed.kind == "last" else spikes.mean(0)
        scores: Tensor = self.output(features)
        return scores

    def _spikes(self, inputs: Array) -> Tensor:
        block = as_inputs(inputs)
        weight = self.output.weight
        block = snap_inputs(block.to(weight.device)).to(weight.dtype)
        block = block if self.time_first else block.transpose(0, 1)
        membranes = iter(self.initial_membranes)
        for module in self.layers:
            if isinstance(module, (DelayLine, nn.Linear)):
                block = module(block)
            else:
                block = self.scan(module, block, next(membranes).expand_as(block[0])).to(block.dtype)
        return block

    def _in_layout(self, values: Tensor) -> Tensor:
        return values if self.time_first else values.transpose(0, 1)


def make_linear(
    weight: Tensor, bias: Tensor, dtype: torch.dtype, kind: Callable[[int, int], nn.Linear] = nn.Linear
) -> nn.Linear:
    """Build a linear layer from weights of shape (fan_in, width) and a bias of shape (width,)."""
    with torch.random.fork_rng(devices=[]):  # new layers draw random weights
        linear = kind(*weight.shape).to(dtype)
    with torch.no_grad():
        linear.weight.copy_(weight.T)
        linear.bias.copy_(bias)
    return linear


def shared(values: Tensor) -> Tensor:
    """Return one number where all neurons have the same value.

    It keeps its axis: torch would round a number without one to the type of its partner, and snnTorch's spikes are
    float32.
    """
    return values[:1].clone() if bool((values == values[0]).all()) else values.clone()
