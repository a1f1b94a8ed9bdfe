"""Our network in another library's layers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..core.checks import Array
from ..data.sequences import as_inputs
from ..network.spiking_network import SpikingNetwork
from ..neurons.exact import snap_inputs


class PeerLayer(NamedTuple):
    """A hidden layer as another library has it, and its membranes (width,) before the first step."""

    linear: nn.Linear
    neuron: nn.Module
    initial_membrane: Tensor


class PeerNetwork(nn.Module, ABC):
    """A stack of another library's layers that gives the spikes and the scores of one of our networks.

    Attributes
    ----------
    layers : ModuleList
        Linear layer, neuron, linear layer, neuron, and so on.
    output : Linear
        Reads the last neurons.
    heads, readout
        Those of our network.
    time_first : bool
        Whether inputs and outputs are (n_steps, n_samples, ...), as is usual in the libraries, or (n_samples,
        n_steps, ...), as in ours.
    loss_of_exchange : str
        What is not as it was; empty for an exact exchange.
    """

    output: nn.Linear

    def __init__(
        self, layers: Sequence[PeerLayer], source: SpikingNetwork, time_first: bool, loss_of_exchange: str = ""
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(module for layer in layers for module in (layer.linear, layer.neuron))
        dtype = layers[0].linear.weight.dtype
        self.output = make_linear(source.weight.detach(), source.intercept.detach(), dtype)
        for depth, layer in enumerate(layers):
            self.register_buffer(f"initial_membrane{depth}", layer.initial_membrane.to(dtype))
        self.heads, self.readout = source.heads, source.readout
        self.time_first, self.loss_of_exchange = time_first, loss_of_exchange
        self.to(source.weight.device).eval()

    @abstractmethod
    def scan(self, neuron: nn.Module, drive: Tensor, membrane: Tensor) -> Tensor:
        """Spikes of a neuron for a drive of the same shape (n_steps, n_samples, width), from an initial membrane."""

    @property
    def initial_membranes(self) -> list[Tensor]:
        """The state before the first step, layer by layer."""
        return [self.get_buffer(f"initial_membrane{depth}") for depth in range(len(self.layers) // 2)]

    def spikes(self, inputs: Array) -> Tensor:
        """Spikes of the last hidden layer at all steps, as floats, in the layout of the inputs."""
        return self._in_layout(self._spikes(inputs))

    def forward(self, inputs: Array) -> Tensor:
        """Scores (n_samples, n_outputs), or of all steps in the layout of the inputs where our network reads all.

        Inputs are read in units of 2⁻¹⁶, as our network reads them.
        """
        spikes = self._spikes(inputs)
        if self.readout == "all":
            return self._in_layout(self.output(spikes))
        scores: Tensor = self.output(spikes[-1] if self.readout == "last" else spikes.mean(0))
        return scores

    def _spikes(self, inputs: Array) -> Tensor:
        block = as_inputs(inputs)
        weight = self.output.weight
        block = snap_inputs(block.to(weight.device)).to(weight.dtype)
        block = block if self.time_first else block.transpose(0, 1)
        for depth, membrane in enumerate(self.initial_membranes):
            drive = self.layers[2 * depth](block)
            block = self.scan(self.layers[2 * depth + 1], drive, membrane.expand_as(drive[0])).to(drive.dtype)
        return block

    def _in_layout(self, values: Tensor) -> Tensor:
        return values if self.time_first else values.transpose(0, 1)


def make_linear(
    weight: Tensor, bias: Tensor, dtype: torch.dtype, kind: Callable[[int, int], nn.Linear] = nn.Linear
) -> nn.Linear:
    """A linear layer of weights (fan_in, width), as we write them, and a bias (width,)."""
    with torch.random.fork_rng(devices=[]):  # a layer is drawn before it is filled
        linear = kind(*weight.shape).to(dtype)
    with torch.no_grad():
        linear.weight.copy_(weight.T)
        linear.bias.copy_(bias)
    return linear


def shared(values: Tensor) -> Tensor:
    """One number where all neurons have the same.

    It keeps its axis: torch lets a number without one be rounded to what it meets, and snnTorch's spikes are float32.
    """
    return values[:1].clone() if bool((values == values[0]).all()) else values.clone()
