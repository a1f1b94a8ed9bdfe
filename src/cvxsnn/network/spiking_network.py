"""The spiking network: hidden layers whose spikes are exact, read out by a linear layer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..core.checks import Array, check_choice
from ..core.errors import InvalidInputError
from ..data.sequences import Sequences
from ..dictionary import Readout
from ..neurons import HiddenLayer, Stepper, roll_out
from ..neurons.rollout import count_spikes


@dataclass(frozen=True)
class OutputHead:
    """Some of a network's outputs, and the loss that they were trained for.

    Attributes
    ----------
    name : str
    loss : str, a key of :data:`cvxsnn.convex.losses.LOSSES`
    start, stop : int, the range of output columns
    """

    name: str
    loss: str
    start: int
    stop: int

    @property
    def columns(self) -> slice:
        """The outputs of this head."""
        return slice(self.start, self.stop)


def decide(heads: Sequence[OutputHead], scores: Tensor) -> dict[str, Tensor]:
    """The class that each head decides for, from scores of shape (..., n_outputs)."""
    decisions = {}
    for head in heads:
        if head.loss == "squared":
            raise InvalidInputError(
                f"expected a loss for classes, got head {head.name!r} with 'squared': call the network for scores"
            )
        own = scores[..., head.columns]
        # Several binary columns are one class against the rest each.
        decisions[head.name] = own.argmax(-1) if own.shape[-1] > 1 else (own[..., 0] >= 0).to(torch.int64)
    return decisions


class SpikingNetwork(nn.Module):
    """``n_subnetworks`` parallel stacks of spiking layers and one linear read-out of their last spikes.

    The hidden part has no gradient and its spikes are reproducible to the bit; :mod:`cvxsnn.training.surrogate` trains
    one.

    Parameters
    ----------
    layers : sequence of HiddenLayer
        From the inputs up.
    weight : Tensor of shape (n_read, n_outputs)
    heads : sequence of OutputHead
    intercept : Tensor of shape (n_outputs,), optional
    neurons : Tensor of shape (n_read,), dtype int64, optional
        The last layer's neurons that are read, ``subnetwork * width + neuron``; all of them when not given.
    readout : "last", "all" or "mean"
        Read the spikes of the last step, of every step, or their mean over the steps.
    """

    weight: Tensor
    intercept: Tensor
    neurons: Tensor

    def __init__(
        self,
        layers: Sequence[HiddenLayer],
        weight: Tensor,
        heads: Sequence[OutputHead],
        intercept: Tensor | None = None,
        neurons: Tensor | None = None,
        readout: Readout = "last",
    ) -> None:
        super().__init__()
        check_choice("readout", readout, ("last", "all", "mean"))
        self.layers = tuple(layers)
        if not self.layers:
            raise InvalidInputError("expected at least one hidden layer, got none")
        n_neurons = self.layers[-1].n_subnetworks * self.layers[-1].width
        neurons = torch.arange(n_neurons) if neurons is None else neurons
        if weight.ndim != 2 or len(weight) != len(neurons):
            raise InvalidInputError(
                f"expected one row of output weights for each of {len(neurons)} neurons that are read, got shape "
                f"{tuple(weight.shape)}"
            )
        if len(neurons) and not 0 <= int(neurons.min()) <= int(neurons.max()) < n_neurons:
            raise InvalidInputError(
                f"expected neurons from 0 to {n_neurons - 1}, got values from {int(neurons.min())} to "
                f"{int(neurons.max())}"
            )
        if [head.start for head in heads] != [0, *(head.stop for head in heads[:-1])] or heads[-1].stop != len(
            weight.T
        ):
            raise InvalidInputError(f"expected heads that share out {len(weight.T)} outputs, got {list(heads)}")
        self.heads = tuple(heads)
        self.readout: Readout = readout
        device = self.layers[0].weight.device
        self.weight = nn.Parameter(weight.detach().to(device, torch.float64))
        intercept = weight.new_zeros(weight.shape[1]) if intercept is None else intercept
        if tuple(intercept.shape) != (weight.shape[1],):
            raise InvalidInputError(
                f"expected an intercept for each of {weight.shape[1]} outputs, got shape {tuple(intercept.shape)}"
            )
        self.intercept = nn.Parameter(intercept.detach().to(device, torch.float64))
        self.register_buffer("neurons", neurons.to(device))

    @property
    def n_features(self) -> int:
        """Inputs a step."""
        return self.layers[0].fan_in

    @property
    def n_outputs(self) -> int:
        """Outputs of all heads together."""
        return self.weight.shape[1]

    @property
    def n_subnetworks(self) -> int:
        """Number of subnetworks, the paper's K."""
        return self.layers[0].n_subnetworks

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers of one subnetwork."""
        return tuple(layer.width for layer in self.layers)

    def features(self, inputs: Sequences | Array) -> Tensor:
        """What is read of the hidden neurons, float64, shape (n_samples, [n_steps,] n_read)."""
        sequences = Sequences.of(inputs).to(self.weight.device)
        if self.readout != "mean":
            return roll_out(self.layers, sequences, self.readout)[..., self.neurons].to(torch.float64)
        counts = count_spikes(self.layers, sequences)[:, self.neurons].to(torch.float64)
        lengths = sequences.lengths
        # The mean of spikes is a count times a rounded reciprocal, as in the dictionary: the same to the last bit.
        return counts * (1.0 / sequences.n_steps if lengths is None else 1.0 / lengths[:, None].to(torch.float64))

    def forward(self, inputs: Sequences | Array) -> Tensor:
        """Scores of shape (n_samples, n_outputs), or (n_samples, n_steps, n_outputs) when every step is read.

        Parameters
        ----------
        inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
        """
        return self.features(inputs) @ self.weight + self.intercept

    @torch.no_grad()
    def predict(self, inputs: Sequences | Array) -> dict[str, npt.NDArray[np.int64]]:
        """The class that each head decides for."""
        return self._decide(self(inputs))

    def start(self, n_samples: int) -> "NetworkState":
        """The state before the first step."""
        counts = torch.zeros(n_samples, len(self.neurons), dtype=torch.float64, device=self.weight.device)
        return NetworkState(Stepper(self.layers, n_samples), counts, 0)

    @torch.no_grad()
    def step(self, state: "NetworkState", inputs: Array) -> tuple["NetworkState", Mapping[str, npt.NDArray[np.int64]]]:
        """Advance by one step of inputs (n_samples, n_features); give the class each head decides for so far."""
        spikes = state.stepper.step(inputs)[:, self.neurons].to(torch.float64)
        counts, n_steps = state.counts + spikes, state.n_steps + 1
        features = counts * (1.0 / n_steps) if self.readout == "mean" else spikes
        decisions = self._decide(features @ self.weight + self.intercept)
        return NetworkState(state.stepper, counts, n_steps), decisions

    def with_readout(self, weight: Tensor, intercept: Tensor | None = None) -> Self:
        """The same neurons with other output weights."""
        return type(self)(self.layers, weight, self.heads, intercept, self.neurons, self.readout)

    def _decide(self, scores: Tensor) -> dict[str, npt.NDArray[np.int64]]:
        return {head: classes.cpu().numpy() for head, classes in decide(self.heads, scores).items()}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the hidden layers along when torch moves or converts the module; scores stay in float64."""
        probe = fn(torch.empty(0, dtype=self.layers[0].weight.dtype, device=self.layers[0].weight.device))
        if probe.dtype not in (torch.float32, torch.float64):
            raise InvalidInputError(f"expected membranes in float32 or float64, got {probe.dtype}")
        self.layers = tuple(layer.to(probe.device, probe.dtype) for layer in self.layers)
        super()._apply(lambda value: value.to(probe.device), recurse)  # type: ignore[no-untyped-call]
        return self

    def get_extra_state(self) -> dict[str, Any]:
        """The hidden layers' parameters, for ``state_dict``."""
        return {
            f"layers.{i}.{name}": value
            for i, layer in enumerate(self.layers)
            for name, value in layer.tensors().items()
        }

    def set_extra_state(self, state: Any) -> None:
        """Take the hidden layers' parameters from a ``state_dict`` of the same architecture."""
        self.layers = tuple(
            layer.with_tensors({name: state[f"layers.{i}.{name}"] for name in layer.tensors()})
            for i, layer in enumerate(self.layers)
        )

    def extra_repr(self) -> str:
        """Sizes on one line."""
        shape = " → ".join(map(str, (self.n_features, *self.hidden)))
        return f"{self.n_subnetworks} × ({shape}), {len(self.neurons)} neurons read → {self.n_outputs}, {self.readout}"


@dataclass(frozen=True, eq=False)
class NetworkState:
    """The neurons between two steps, and how often each that is read has fired."""

    stepper: Stepper
    counts: Tensor
    n_steps: int
