"""What the roll-out needs of a hidden layer: the contract that LIF and threshold layers fulfil."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from ..core.errors import InvalidInputError
from .exact import WEIGHT_BITS, snap_weights, weight_levels


class LayerState(NamedTuple):
    """Membrane and spikes of one layer, each of shape (n_subnetworks, n_samples, width); spikes are 0 or 1."""

    membrane: Tensor
    spikes: Tensor


@dataclass(frozen=True, eq=False)
class HiddenLayer(ABC):
    """One hidden layer of all subnetworks at once.

    Parameters
    ----------
    weight : Tensor of shape (n_subnetworks, fan_in, width)
        Rounded to ``weight_bits`` bits per weight (:mod:`cvxsnn.neurons.exact`). Its dtype is the layer's.
    bias : Tensor of shape (n_subnetworks, width) or scalar
        A constant drive. Like every per-neuron parameter, a scalar is expanded.
    initial_spikes : Tensor of shape (n_subnetworks, width) or scalar, 0 or 1
    weight_bits : int
        Precision of the weights. Sampled witnesses use the default, imported networks up to 32.
    """

    weight: Tensor
    bias: Tensor = 0.0  # type: ignore[assignment]  # __post_init__ makes scalars tensors, here and in subclasses
    initial_spikes: Tensor = 0.0  # type: ignore[assignment]
    weight_bits: int = WEIGHT_BITS

    def __post_init__(self) -> None:
        """Bring every parameter to one dtype, device and shape, and the weights onto their grid."""
        if self.weight.ndim != 3 or 0 in self.weight.shape or not self.weight.is_floating_point():
            raise InvalidInputError(
                "expected floating-point weights of shape (n_subnetworks, fan_in, width), got "
                f"{self.weight.dtype} of shape {tuple(self.weight.shape)}"
            )
        if not 2 <= self.weight_bits <= 32:
            raise InvalidInputError(f"expected weight_bits between 2 and 32, got {self.weight_bits!r}")
        check_finite("weight", self.weight)
        self._set("weight", snap_weights(self.weight.detach(), self.weight_bits))
        self._expand("bias")
        spikes = self._expand("initial_spikes")
        if bool(((spikes != 0) & (spikes != 1)).any()):
            raise InvalidInputError("expected initial_spikes to be 0 or 1")
        self._check_dynamics()

    @property
    def n_subnetworks(self) -> int:
        """Number of subnetworks, K in the paper."""
        return self.weight.shape[0]

    @property
    def fan_in(self) -> int:
        """Number of values that a neuron of this layer reads."""
        return self.weight.shape[1]

    @property
    def width(self) -> int:
        """Number of neurons a subnetwork has in this layer."""
        return self.weight.shape[2]

    @property
    def levels(self) -> float:
        """Largest integer that a sum over spikes can reach, in the neuron's own unit."""
        return weight_levels(self.weight, self.weight_bits)

    @abstractmethod
    def _check_dynamics(self) -> None:
        """Check and expand what a subclass adds."""

    @abstractmethod
    def initial_state(self, n_samples: int) -> LayerState:
        """The state before the first step."""

    @abstractmethod
    def step(self, drive: Tensor, state: LayerState) -> None:
        """Advance ``state`` in place by one step, given the weighted input ``drive`` of the state's shape."""

    def scan(self, drive: Tensor, state: LayerState, spikes: Tensor | None = None) -> Tensor:
        """Go through all steps.

        Parameters
        ----------
        drive : Tensor of shape (n_subnetworks, n_steps, n_samples, width)
        state : LayerState, before the first step; it may be overwritten
        spikes : bool Tensor of the shape of ``drive``, contiguous, optional
            Where to write the spikes of every step.

        Returns
        -------
        bool Tensor of shape (n_subnetworks, n_samples, width), the spikes of the last step
        """
        for t in range(drive.shape[1]):
            self.step(drive[:, t], state)
            if spikes is not None:
                spikes[:, t] = state.spikes
        return state.spikes != 0

    def take(self, subnetworks: slice | Tensor) -> Self:
        """The layer restricted to some of its subnetworks."""
        return self._map(lambda value: value[subnetworks])

    def take_neuron(self, number: int | Tensor, subnetworks: Tensor | None = None) -> Self:
        """The layer with one of its neurons in each subnetwork, or each of those named; recurrence is left out."""
        each = torch.arange(self.n_subnetworks, device=self.weight.device) if subnetworks is None else subnetworks
        numbers = torch.as_tensor(number, device=self.weight.device).expand(len(each))
        names = [name for name in self.tensors() if name != "recurrent_weight"]
        # Indices on both sides of a slice bring their axis to the front.
        return self.with_tensors({name: self.tensors()[name][each, ..., numbers][..., None] for name in names})

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """The layer on another device or in another floating-point type."""
        return self._map(lambda value: value.to(device=device, dtype=dtype))

    def tensors(self) -> dict[str, Tensor]:
        """Every parameter tensor by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The layer with other parameters, by name."""
        changes: dict[str, Any] = dict(tensors)
        return replace(self, **changes)

    def _map(self, function: Callable[[Tensor], Tensor]) -> Self:
        return self.with_tensors({name: function(value) for name, value in self.tensors().items()})

    def _set(self, name: str, value: Tensor) -> None:
        object.__setattr__(self, name, value)

    def _expand(self, name: str) -> Tensor:
        """Expand a scalar or per-neuron parameter to (n_subnetworks, width), in the layer's dtype and device."""
        value = torch.as_tensor(getattr(self, name), dtype=self.weight.dtype, device=self.weight.device).detach()
        shape = (self.n_subnetworks, self.width)
        try:
            value = value.expand(shape)
        except RuntimeError:
            raise InvalidInputError(
                f"expected {name} of shape {shape} or a scalar, got shape {tuple(value.shape)}"
            ) from None
        check_finite(name, value)
        self._set(name, value)
        return value


Layer = TypeVar("Layer", bound=HiddenLayer)


def stack_layers(layers: Sequence[Layer]) -> Layer:
    """One layer with the subnetworks of all, which are of one kind and shape."""
    tensors = [layer.tensors() for layer in layers]
    joined: dict[str, Any] = {name: torch.cat([own[name] for own in tensors]) for name in tensors[0]}
    # Weights on grids of different fineness share the finest.
    return replace(layers[0], weight_bits=max(layer.weight_bits for layer in layers), **joined)


def per_sample(value: Tensor) -> Tensor:
    """(n_subnetworks, width) as it meets states of shape (n_subnetworks, n_samples, width)."""
    return value[:, None, :]


def check_finite(name: str, value: Tensor) -> None:
    """Refuse NaN and infinity."""
    if not bool(torch.isfinite(value).all()):
        raise InvalidInputError(f"expected a finite {name}, got NaN or infinite values")
