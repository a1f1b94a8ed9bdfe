"""Reading a stack of another library's layers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInputError
from ..dictionary import Readout
from ..network.spiking_network import OutputHead, SpikingNetwork
from ..neurons import LIFLayer
from ..neurons.lif import Tie
from ..witnesses import Provenance, WitnessSet
from .peer_network import PeerNetwork

_NO_ACTION = (nn.Identity, nn.Dropout, nn.Flatten)
"""Layers that leave a sequence of vectors as it is once training is over."""

_FINEST_BITS = 32
_REAL_INPUT_BITS = 20
"""Real inputs are read in units of 2⁻¹⁶; four bits more leave room for values up to 16."""
_SUM_BITS = 53

ReadNeuron = Callable[[Tensor, Tensor, Any, Tensor | None], Mapping[str, Any]]
"""``(weight (fan_in, width), bias (width,), neuron, initial membrane or None)`` to arguments of a LIF layer."""


@dataclass(frozen=True)
class StackReader:
    """How to read a library's models.

    Parameters
    ----------
    library : str
    neuron_type : type
        Base class of the library's neurons.
    read_neuron : function
        A linear layer and a neuron as a layer of ours, in float64; refuses what we have not got.
    readout : "last", "all" or "mean"
        How a last linear layer reads the spikes.
    loss : str, optional
        What its outputs decide: "softmax" for several outputs and "logistic" for one by default.
    weight_bits : int, optional
        Bits of a weight, on a grid of each neuron's own (:mod:`cvxsnn.neurons.exact`): it moves by at most
        2^(−bits) of the power of two at or above the neuron's largest. By default 32 above the first layer, and there
        as many, up to 32, as leave room for real inputs up to 16.
    dtype : torch.dtype
        Of the membranes.
    """

    library: str
    neuron_type: type
    read_neuron: ReadNeuron
    readout: Readout
    loss: str | None
    weight_bits: int | None
    dtype: torch.dtype

    @torch.no_grad()
    def read(self, model: nn.Module | Sequence[nn.Module]) -> WitnessSet | SpikingNetwork:
        """The model's hidden layers, with its read-out if the last layer is linear."""
        modules = [module for module in self._leaves(model) if not isinstance(module, _NO_ACTION)]
        output = modules.pop() if modules and isinstance(modules[-1], nn.Linear) else None
        linears, neurons = modules[::2], modules[1::2]
        is_stack = len(linears) == len(neurons) > 0 and all(isinstance(linear, nn.Linear) for linear in linears)
        if not is_stack or not all(isinstance(neuron, self.neuron_type) for neuron in neurons):
            names = ", ".join(type(module).__name__ for module in modules) or "none"
            raise InvalidInputError(
                f"expected linear layers and {self.library} neurons in turn, got {names}: of other networks, record "
                "the spikes and pass them to build_dictionary as an array"
            )
        ours = model if isinstance(model, PeerNetwork) else None
        starts: Sequence[Tensor | None] = ours.initial_membranes if ours else [None] * len(neurons)
        layers = []
        for depth, (linear, neuron, start) in enumerate(zip(linears, neurons, starts, strict=True)):
            start = None if start is None else start.double()
            arguments = dict(self.read_neuron(*_parameters(linear), neuron, start))
            weight = arguments.pop("weight")
            bits = self.weight_bits or (_roomy_bits(weight) if depth == 0 else _FINEST_BITS)
            layers.append(LIFLayer(weight[None], weight_bits=bits, **arguments).to(dtype=self.dtype))
        if output is None:
            return WitnessSet(tuple(layers), Provenance("pretrained", {"library": self.library}))
        weight, bias = _parameters(output)
        loss = self.loss or ("softmax" if len(bias) > 1 else "logistic")
        heads = ours.heads if ours else (OutputHead("output", loss, 0, len(bias)),)
        return SpikingNetwork(layers, weight, heads, bias, readout=ours.readout if ours else self.readout)

    def _leaves(self, model: nn.Module | Sequence[nn.Module]) -> Iterator[nn.Module]:
        """The modules that act, in the order they were registered; a neuron is one, whatever it consists of."""
        if isinstance(model, nn.Module):
            children = list(model.children())
            if not children or isinstance(model, (nn.Linear, self.neuron_type)):
                yield model
                return
            model = children
        for module in model:
            yield from self._leaves(module)


def probe_tie(spike: Callable[[Tensor], Tensor]) -> Tie:
    """Whether a library's spike function fires at zero; other functions than a step are refused."""
    below, at, above = spike(torch.tensor([-1.0, 0.0, 1.0])).detach().tolist()
    if (below, above) != (0.0, 1.0) or at not in (0.0, 1.0):
        raise InvalidInputError(
            f"expected neurons whose spikes are a step from 0 to 1, got {below:g}, {at:g} and {above:g} below, at and "
            "above the threshold"
        )
    return "ge" if at == 1.0 else "gt"


def _parameters(linear: nn.Module) -> tuple[Tensor, Tensor]:
    """Weights (fan_in, width) and bias (width,) in float64."""
    weight = linear.get_parameter("weight").detach().double().T
    bias = linear.bias
    return weight, weight.new_zeros(weight.shape[1]) if bias is None else torch.as_tensor(bias).detach().double()


def _roomy_bits(weight: Tensor) -> int:
    """The finest grid on which sums over real inputs stay exact."""
    largest = weight.abs().amax(0)
    terms = (weight.abs().sum(0) / torch.where(largest == 0, 1.0, largest)).max().item()
    return min(_FINEST_BITS, _SUM_BITS - _REAL_INPUT_BITS - ceil(log2(max(terms, 1.0))) + 1)
