"""A network in linear layers and neurons that NeuroBench's hooks see."""

from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInputError
from ..core.libraries import import_library
from ..data.sequences import as_inputs, window_of_step
from ..dictionary.readout import parse_readout
from ..network.spiking_network import SpikingNetwork
from ..neurons import HiddenLayer, LayerState, LIFLayer
from ..neurons.exact import snap_inputs

_Neuron: Any = import_library("snntorch", "neurobench").SpikingNeuron

_SYNAPSES = {"weight", "bias", "source", "delay", "recurrent_weight"}
"""Parameters of a layer that its synapses hold; the others are those of its neurons."""

_WIDEST = (torch.uint8, torch.int16, torch.int32, torch.int64)


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
        The number of blocks of neurons that read different values; each block reads all values of its own.
    past : Tensor of shape (max_delay, n_values) or None
        Zeros: what delayed synapses read at first. None without delays.
    source, delay : Tensor of shape (n_neurons, n_taps) or None
        The value that each synapse reads, and its delay in steps.
    """

    bias: nn.Parameter | None  # type: ignore[assignment]
    past: Tensor | None
    source: Tensor | None
    delay: Tensor | None

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        n_groups: int = 1,
        past: Tensor | None = None,
        source: Tensor | None = None,
        delay: Tensor | None = None,
    ) -> None:
        nn.Module.__init__(self)  # that of a linear layer would draw random weights
        self.out_features, self.in_features = weight.shape
        self.n_groups = n_groups
        self.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=False)
        self.register_buffer("past", past)
        self.register_buffer("source", None if source is None else _narrow(source))
        self.register_buffer("delay", None if delay is None else _narrow(delay))

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
        return cls(weight, bias, n_groups, past, source, delay)

    def forward(self, values: Tensor) -> Tensor:
        """Return sums (..., n_neurons) for values (..., n_values), which have steps before the last axis for delays."""
        values, weight = values.to(torch.float64), self.weight.to(torch.float64)
        if self.past is None or self.source is None or self.delay is None:
            grouped = values.reshape(*values.shape[:-1], self.n_groups, -1)
            sums = torch.einsum("...gi,goi->...go", grouped, weight.view(self.n_groups, -1, weight.shape[1])).flatten(
                -2
            )
        else:
            past = self.past.to(torch.float64).expand(len(values), -1, -1)
            # A view: at each step, the values of that step and of those before it, the oldest first.
            lifted = torch.cat((past, values), dim=1).unfold(1, len(self.past) + 1, 1)
            place = len(self.past) - self.delay.long()
            sums = values.new_zeros(*values.shape[:2], self.out_features)
            for source, age, own in zip(self.source.long().T, place.T, weight.T, strict=True):
                sums.addcmul_(lifted[:, :, source, age], own)
        rounded = sums.to(self.weight.dtype)
        # NeuroBench adds these up, in float64 without rounding.
        return (rounded if self.bias is None else rounded + self.bias).to(torch.float64)

    def extra_repr(self) -> str:
        """Return the sizes on one line."""
        delays = "" if self.past is None else f", delays up to {len(self.past)}"
        return f"{self.in_features} synapses each of {self.out_features} neurons{delays}"


class Neurons(_Neuron):  # type: ignore[misc]
    """The neurons of one hidden layer, called once per step.

    Parameters
    ----------
    layer : HiddenLayer
        The layer.
    """

    def __init__(self, layer: HiddenLayer) -> None:
        nn.Module.__init__(self)  # that of snnTorch's neurons would register parameters of its own
        self.init_hidden, self.output = True, False  # NeuroBench: what is returned is the spikes alone
        self._kind, self._settings = type(layer), layer.settings()
        self._shape, self._dtype = (layer.n_subnetworks, layer.width), layer.weight.dtype
        for name, value in layer.tensors().items():
            if name not in _SYNAPSES:
                is_shared = bool((value == value.flatten()[0]).all())
                self.register_buffer(name, value[:1, :1].clone() if is_shared else value.clone())
        recurrence = layer.recurrence
        self.recurrent: Synapses | None = None
        if recurrence is not None and bool(recurrence.any()):
            self.recurrent = Synapses(_by_neuron(recurrence), n_groups=layer.n_subnetworks)

    def start(self, n_samples: int) -> None:
        """Begin a batch of sequences."""
        tensors = {name: value.expand(self._shape) for name, value in self.named_buffers(recurse=False)}
        device = tensors["initial_spikes"].device
        n_subnetworks, width = self._shape
        tensors["weight"] = torch.zeros((), dtype=self._dtype, device=device).expand(n_subnetworks, 1, width)
        tensors["bias"] = torch.zeros((), dtype=self._dtype, device=device).expand(self._shape)
        if "recurrent_weight" in self._kind.__dataclass_fields__:
            tensors["recurrent_weight"] = (
                torch.zeros(n_subnetworks, width, width, dtype=self._dtype, device=device)
                if self.recurrent is None
                else self.recurrent.weight.detach().view(n_subnetworks, width, width).transpose(1, 2)
            )
        self._layer = self._kind.from_valid(tensors, self._settings)
        state = self._layer.initial_state(n_samples)
        self.mem, self._spikes = state.membrane, state.spikes

    def forward(self, drive: Tensor) -> Tensor:
        """Return the spikes (n_samples, n_neurons) of one step, for weighted inputs of the same shape."""
        if self.recurrent is not None:
            self.recurrent(_flat(self._spikes))  # which is counted; the layer adds it up itself
        state = LayerState(self.mem.clone(), self._spikes.clone())  # hooks keep those of all steps
        self._layer.step(drive.to(self._dtype).reshape(-1, *self._shape).transpose(0, 1).contiguous(), state)
        self.mem, self._spikes = state.membrane, state.spikes
        return _flat(self._spikes != 0)


class Leaky(Neurons):
    """LIF neurons, under the name by which NeuroBench knows the operations of their updates."""

    _reset_mechanism = "subtract"


class HookedNetwork(nn.Module):
    """A network in modules that NeuroBench's hooks see."""

    neurons: Tensor | None
    windows: Tensor | None
    mean: Tensor | None
    scale: Tensor | None
    window: Tensor | None

    def __init__(self, network: SpikingNetwork, dtype: torch.dtype) -> None:
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
        for name in ("mean", "scale", "window"):
            self.register_buffer(name, None)
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
    return values.to(next(kind for kind in _WIDEST if largest <= torch.iinfo(kind).max))
