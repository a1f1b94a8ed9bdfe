"""A network in linear layers and neurons that NeuroBench's hooks see."""

from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInputError
from ..core.libraries import import_library
from ..data.sequences import as_inputs, window_of_step
from ..dictionary.base import parse_readout
from ..network.spiking_network import SpikingNetwork
from ..neurons import HiddenLayer, LayerState, LIFLayer
from ..neurons.exact import snap_inputs

_Neuron: Any = import_library("snntorch", "neurobench").SpikingNeuron


class Synapses(nn.Linear):
    """Weighted sums over inputs or spikes, with or without delays, as a linear layer.

    Sums are computed in float64, and rounded once to the type of the layer.

    Parameters
    ----------
    weight : Tensor of shape (n_neurons, n_taps)
        The weights.
    bias : Tensor of shape (n_neurons,) or None
        A constant per neuron.
    n_groups : int
        The number of blocks of neurons; each block reads all values of its own.
    **taps : Tensor
        With delays: ``source`` and ``delay`` of shape (n_neurons, n_taps), the value that each synapse reads and its
        delay in steps, and ``past`` of shape (max_delay, n_values), the zeros that delayed synapses read at first.
    """

    bias: nn.Parameter | None  # type: ignore[assignment]
    past: Tensor | None
    source: Tensor | None
    delay: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None, n_groups: int = 1, **taps: Tensor) -> None:
        nn.Module.__init__(self)  # that of a linear layer would draw random weights
        self.out_features, self.in_features = weight.shape
        self.n_groups = n_groups
        self.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=False)
        for name in ("past", "source", "delay"):
            self.register_buffer(name, taps.get(name))

    @classmethod
    def of(cls, layer: HiddenLayer, depth: int) -> "Synapses":
        """Return the synapses of a hidden layer; in the first, all subnetworks read the same inputs."""
        weight, bias = _by_neuron(layer.weight), layer.bias.flatten()
        n_groups = 1 if depth == 0 else layer.n_subnetworks
        if not layer.has_delays:
            return cls(weight, bias, n_groups)
        offset = layer.n_inputs * torch.arange(n_groups, device=weight.device)
        source = _by_neuron(layer.source.long() + offset[:, None, None])
        # Synapses of weight zero may have longer delays than those that are read.
        delay = _by_neuron(layer.delay * (layer.weight != 0))
        kind = torch.float32 if depth == 0 else torch.bool
        past = torch.zeros(layer.max_delay, n_groups * layer.n_inputs, dtype=kind, device=weight.device)
        return cls(weight, bias, n_groups, past=past, source=_narrow(source), delay=_narrow(delay))

    def forward(self, values: Tensor) -> Tensor:
        """Return sums (..., n_neurons) for values (..., n_values), which have steps before the last axis for delays."""
        values, weight = values.to(torch.float64), self.weight.to(torch.float64)
        if self.past is None or self.source is None or self.delay is None:
            groups = torch.unflatten(values, -1, (self.n_groups, -1)), torch.unflatten(weight, 0, (self.n_groups, -1))
            sums = torch.einsum("...gi,goi->...go", *groups).flatten(-2)
        else:
            past = self.past.to(torch.float64).expand(len(values), -1, -1)
            # A view: at each step, the values of that step and of those before it, the oldest first.
            lifted = torch.cat((past, values), dim=1).unfold(1, len(self.past) + 1, 1)
            position = len(self.past) - self.delay.long()
            sums = values.new_zeros(*values.shape[:2], self.out_features)
            for source, age, tap_weight in zip(self.source.long().T, position.T, weight.T, strict=True):
                sums.addcmul_(lifted[:, :, source, age], tap_weight)
        rounded = sums.to(self.weight.dtype)
        # NeuroBench adds these up, in float64 without rounding.
        return (rounded if self.bias is None else rounded + self.bias).to(torch.float64)


class Neurons(_Neuron):  # type: ignore[misc]
    """The neurons of one hidden layer, called once per step.

    Parameters
    ----------
    layer : HiddenLayer
        The layer.
    """

    def __init__(self, layer: HiddenLayer) -> None:
        nn.Module.__init__(self)  # that of snnTorch's neurons would register parameters of its own
        self.init_hidden, self.output = True, False  # NeuroBench: forward returns spikes only
        tensors = layer.tensors()
        for name, value in tensors.items():
            if name not in ("weight", "bias", "source", "delay", "recurrent_weight"):  # which synapses hold
                is_shared = bool((value == value.flatten()[0]).all())
                self.register_buffer(name, value[:1, :1].clone() if is_shared else value.clone())
        recurrence = layer.recurrence
        self.recurrent: Synapses | None = None
        if recurrence is not None and bool(recurrence.any()):
            self.recurrent = Synapses(_by_neuron(recurrence), n_groups=layer.n_subnetworks)
        # Drives come from other modules, so the layer itself reads nothing.
        silent = {"weight": torch.zeros_like(layer.weight[:, :1]), "bias": torch.zeros_like(layer.bias)}
        kept = {name: value for name, value in tensors.items() if name not in ("source", "delay")}
        self._layer = type(layer).from_valid(kept | silent, layer.settings())

    def start(self, n_samples: int) -> None:
        """Begin a batch of sequences."""
        self._layer = self._layer.to(self.get_buffer("initial_spikes").device)
        state = self._layer.initial_state(n_samples)
        self.mem, self._spikes = state.membrane, state.spikes

    def forward(self, drive: Tensor) -> Tensor:
        """Return the spikes (n_samples, n_neurons) of one step, for weighted inputs of the same shape."""
        if self.recurrent is not None:
            self.recurrent(_flat(self._spikes))  # which is counted; the layer adds it up itself
        state = LayerState(self.mem.clone(), self._spikes.clone())  # hooks keep those of all steps
        drives = torch.unflatten(drive.to(state.membrane.dtype), 1, state.membrane.shape[::2])
        self._layer.step(drives.transpose(0, 1).contiguous(), state)
        self.mem, self._spikes = state.membrane, state.spikes
        return _flat(self._spikes != 0)


class Leaky(Neurons):
    """LIF neurons, under the name by which NeuroBench knows the operations of their updates."""

    _reset_mechanism = "subtract"


class HookedNetwork(nn.Module):
    """A network in modules that NeuroBench's hooks see.

    Parameters
    ----------
    network : SpikingNetwork
        The network.
    dtype : torch.dtype
        The type of the read-out.
    scale : pair of arrays, optional
        Subtract the first from the inputs, and divide them by the second.
    """

    neurons: Tensor | None
    windows: Tensor | None
    mean: Tensor | None
    scale: Tensor | None
    past_values: Tensor | None

    def __init__(self, network: SpikingNetwork, dtype: torch.dtype, scale: Any = None) -> None:
        super().__init__()
        stack: list[nn.Module] = []
        for depth, layer in enumerate(network.layers):
            stack += [Synapses.of(layer, depth), (Leaky if isinstance(layer, LIFLayer) else Neurons)(layer)]
        self.layers = nn.ModuleList(stack)
        self.readout = Synapses(network.weight.detach().T.to(dtype))
        self.intercept = nn.Parameter(network.intercept.detach().to(dtype, copy=True), requires_grad=False)
        n_neurons = network.layers[-1].n_subnetworks * network.layers[-1].width
        reads_all = torch.equal(network.neurons.cpu(), torch.arange(n_neurons))
        self.register_buffer("neurons", None if reads_all else _narrow(network.neurons))
        self.register_buffer("windows", None if network.windows_read is None else _narrow(network.windows_read))
        self.register_buffer("past_values", None)
        is_scaled = scale is not None and (scale[0].any() or (scale[1] != 1).any())
        for name, values in zip(("mean", "scale"), scale if is_scaled else (None, None), strict=True):
            on_device = None if values is None else torch.tensor(values, device=self.intercept.device)
            self.register_buffer(name, on_device)
        self.n_features, self._parsed = network.n_features, parse_readout(network.readout)
        self.eval()

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        """Return the scores of sequences (n_samples, n_steps, n_features)."""
        values = as_inputs(inputs).to(self.intercept.device, torch.float64)
        if values.shape[-1] != self.n_features:
            raise InvalidInputError(f"expected {self.n_features} features per step, got {values.shape[-1]}")
        if self.mean is not None and self.scale is not None:
            values = (values - self.mean) / self.scale
        block = snap_inputs(values)
        for synapses, neurons in zip(self.layers[::2], self.layers[1::2], strict=True):
            neurons.start(len(block))  # type: ignore[operator]
            block = torch.stack([neurons(drive) for drive in synapses(block).unbind(1)], dim=1)
        n_steps = block.shape[1]
        read = block[:, -1] if self._parsed.kind == "last" else block
        read = read if self.neurons is None else read[..., self.neurons.long()]
        if self.windows is not None:
            now = window_of_step(torch.arange(n_steps, device=block.device), self._parsed.n_windows, n_steps)
            read = read & (now[:, None] == self.windows)
        sums: Tensor = self.readout(read)
        if self._parsed.kind == "mean":
            sums = sums.sum(1) * self._parsed.scale(n_steps)
        return sums + self.intercept


def _by_neuron(values: Tensor) -> Tensor:
    """Return values (n_subnetworks, n_taps, width) as (n_neurons, n_taps)."""
    return values.transpose(1, 2).flatten(0, 1)


def _flat(values: Tensor) -> Tensor:
    """Return values (n_subnetworks, n_samples, width) as (n_samples, n_neurons)."""
    return values.transpose(0, 1).flatten(1)


def _narrow(values: Tensor) -> Tensor:
    """Return whole numbers of zero or more in the narrowest type that holds them."""
    largest = int(values.max()) if values.numel() else 0
    kinds = (torch.uint8, torch.int16, torch.int32, torch.int64)
    return values.to(next(kind for kind in kinds if largest <= torch.iinfo(kind).max))
