"""The contract between the roll-out and the neuron models: what a hidden layer is and does."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from ..core.errors import InvalidInputError
from .exact import WEIGHT_BITS, snap_weights, weight_levels


class LayerState(NamedTuple):
    """The neurons of one layer between two steps.

    Parameters
    ----------
    membrane : Tensor of shape (n_subnetworks, n_samples, width)
        The membranes.
    spikes : Tensor of shape (n_subnetworks, n_samples, width)
        The spikes of the last step, 0 or 1.
    """

    membrane: Tensor
    spikes: Tensor


@dataclass(frozen=True, eq=False)
class HiddenLayer(ABC):
    """One hidden layer of all subnetworks.

    A neuron model is a frozen dataclass that derives from this class and adds its own parameters. Each field of type
    ``Tensor`` is a parameter per neuron, of shape (n_subnetworks, width) with a default that may be a scalar. The one
    exception is ``recurrent_weight``, of shape (n_subnetworks, width, width), by which neurons of the layer read each
    other. Names of initial values begin with ``initial_``. A neuron that reads nothing, starts from zero and has a bias
    of -1 must never fire. Membranes are measured from the threshold: a neuron fires where its membrane is zero or more
    (``fire`` in :mod:`cvxsnn.neurons.lif`). Multiply and add in two rounded operations, never in a fused one, so that
    all devices agree. :func:`register_neuron` makes the model known to the rest of the library.

    Parameters
    ----------
    weight : Tensor of shape (n_subnetworks, fan_in, width)
        The weights, rounded to ``weight_bits`` bits each (:mod:`cvxsnn.neurons.exact`). Their dtype is the layer's.
    bias : Tensor of shape (n_subnetworks, width) or scalar
        A constant drive. Like every parameter per neuron, a scalar is expanded.
    initial_spikes : Tensor of shape (n_subnetworks, width) or scalar
        The spikes before the first step, 0 or 1.
    weight_bits : int
        The precision of the weights. Sampled witnesses use the default, imported networks up to 32.
    """

    weight: Tensor
    bias: Tensor = 0.0  # type: ignore[assignment]  # __post_init__ makes scalars tensors, here and in subclasses
    initial_spikes: Tensor = 0.0  # type: ignore[assignment]
    weight_bits: int = WEIGHT_BITS

    def __post_init__(self) -> None:
        """Bring every parameter to one dtype, device and shape, and the weights onto their grid."""
        self._check_weight_shape()
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
        """Number of neurons per subnetwork."""
        return self.weight.shape[2]

    @property
    def levels(self) -> float:
        """Largest integer that a sum over spikes can reach, in the neuron's own unit."""
        return weight_levels(self.weight, self.weight_bits)

    @property
    def recurrence(self) -> Tensor | None:
        """The weights by which neurons of the layer read each other; None where there are none."""
        return self.tensors().get("recurrent_weight")

    @abstractmethod
    def _check_dynamics(self) -> None:
        """Check and expand the parameters that a subclass adds."""

    @abstractmethod
    def initial_state(self, n_samples: int) -> LayerState:
        """Return the state before the first step, in memory of its own.

        Parameters
        ----------
        n_samples : int
            Number of sequences.

        Returns
        -------
        LayerState
            The initial membranes and spikes of each sequence.
        """

    @abstractmethod
    def step(self, drive: Tensor, state: LayerState) -> None:
        """Advance a state by one step, in place.

        Parameters
        ----------
        drive : Tensor of shape (n_subnetworks, n_samples, width)
            The weighted input plus bias.
        state : LayerState
            The state, which is overwritten.
        """

    def scan(self, drive: Tensor, state: LayerState, spikes: Tensor | None = None) -> Tensor:
        """Advance through all steps.

        Parameters
        ----------
        drive : Tensor of shape (n_subnetworks, n_steps, n_samples, width)
            The weighted input plus bias of every step.
        state : LayerState
            The state before the first step, which may be overwritten.
        spikes : Tensor of the shape of ``drive``, dtype bool, optional
            Where to write the spikes of every step; contiguous.

        Returns
        -------
        Tensor of shape (n_subnetworks, n_samples, width), dtype bool
            The spikes of the last step.
        """
        for t in range(drive.shape[1]):
            self.step(drive[:, t], state)
            if spikes is not None:
                spikes[:, t] = state.spikes
        return state.spikes != 0

    def take(self, subnetworks: slice | Tensor) -> Self:
        """Return the layer restricted to some of its subnetworks.

        Parameters
        ----------
        subnetworks : slice or Tensor
            The subnetworks to keep, in this order.

        Returns
        -------
        HiddenLayer
            A layer of the same neuron model.
        """
        return self._with_valid(lambda value: value[subnetworks])

    def take_neuron(self, number: int | Tensor, subnetworks: Tensor | None = None) -> Self:
        """Return the layer with a single neuron per subnetwork; not for layers whose neurons read each other.

        Parameters
        ----------
        number : int or Tensor of shape (n_chosen,)
            The neuron to keep, per subnetwork.
        subnetworks : Tensor of shape (n_chosen,), optional
            The subnetworks to keep; all of them when not given.

        Returns
        -------
        HiddenLayer
            A layer of width one.
        """
        if self.recurrence is not None:
            raise InvalidInputError(f"expected neurons that do not read each other, got a {type(self).__name__}")
        each = torch.arange(self.n_subnetworks, device=self.weight.device) if subnetworks is None else subnetworks
        numbers = torch.as_tensor(number, device=self.weight.device).expand(len(each))
        # Indices on both sides of a slice bring their axis to the front.
        return self._with_valid(lambda value: value[each, ..., numbers][..., None])

    def silence(self, is_live: Tensor) -> Self:
        """Return the layer with some neurons made to read nothing and never fire.

        Parameters
        ----------
        is_live : Tensor of shape (n_subnetworks, width), dtype bool
            Which neurons to leave as they are.

        Returns
        -------
        HiddenLayer
            A layer of the same shape.
        """
        if bool(is_live.all()):
            return self
        live = is_live.to(self.weight.device)
        changes = {name: value * live for name, value in self.tensors().items() if name.startswith("initial_")}
        changes |= {"weight": self.weight * live[:, None, :], "bias": torch.where(live, self.bias, -1.0)}
        if self.recurrence is not None:
            changes["recurrent_weight"] = self.recurrence * live[:, None, :] * live[:, :, None]
        return self.with_tensors(changes)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Return the layer on another device or in another floating-point type.

        Parameters
        ----------
        device : torch.device or str, optional
            Where to put it; where it is when not given.
        dtype : torch.dtype, optional
            The type of membranes and parameters; the present one when not given.

        Returns
        -------
        HiddenLayer
            A layer of the same neuron model.
        """
        if dtype is None or dtype == self.weight.dtype:
            return self._with_valid(lambda value: value.to(device=device))
        return self.with_tensors({name: value.to(device, dtype) for name, value in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """Return every parameter tensor by name.

        Returns
        -------
        dict of str to Tensor
            The tensors, in the order of the fields.
        """
        return {name: getattr(self, name) for name in tensor_names(type(self))}

    def settings(self) -> dict[str, Any]:
        """Return every parameter that is no tensor by name.

        Returns
        -------
        dict of str to object
            The values, in the order of the fields.
        """
        names = tensor_names(type(self))
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in names}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """Return the layer with other parameters, which are checked.

        Parameters
        ----------
        tensors : mapping of str to Tensor
            The parameters to replace, by name.

        Returns
        -------
        HiddenLayer
            A layer of the same neuron model.
        """
        changes: dict[str, Any] = dict(tensors)
        return replace(self, **changes)

    @classmethod
    def from_valid(cls, tensors: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Self:
        """Return a layer of values that were checked and snapped before, without doing so again.

        Parameters
        ----------
        tensors : mapping of str to Tensor
            What :meth:`tensors` of a layer of this class returned, or some subnetworks or neurons of that.
        settings : mapping of str to object
            What :meth:`settings` of the same layer returned.

        Returns
        -------
        HiddenLayer
            A layer on the memory of the tensors given.
        """
        layer = object.__new__(cls)
        for name, value in (*tensors.items(), *settings.items()):
            object.__setattr__(layer, name, value)
        return layer

    def _with_valid(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Return the layer after a function that selects or moves subnetworks or neurons and changes no value."""
        tensors = {name: function(value) for name, value in self.tensors().items()}
        layer = self.from_valid(tensors, self.settings())
        layer._check_weight_shape()
        return layer

    def _check_weight_shape(self) -> None:
        if self.weight.ndim != 3 or 0 in self.weight.shape or not self.weight.is_floating_point():
            raise InvalidInputError(
                "expected floating-point weights of shape (n_subnetworks, fan_in, width), got "
                f"{self.weight.dtype} of shape {tuple(self.weight.shape)}"
            )

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


@cache
def tensor_names(kind: type[HiddenLayer]) -> tuple[str, ...]:
    """Return the names of a neuron model's parameters that are tensors."""
    return tuple(field.name for field in fields(kind) if field.type in (Tensor, "Tensor"))


def stack_layers(layers: Sequence[Layer]) -> Layer:
    """Return one layer with the subnetworks of all, which are of one neuron model and shape."""
    tensors = [layer.tensors() for layer in layers]
    joined: dict[str, Any] = {name: torch.cat([own[name] for own in tensors]) for name in tensors[0]}
    # Weights on grids of different fineness share the finest.
    return replace(layers[0], weight_bits=max(layer.weight_bits for layer in layers), **joined)


def per_sample(value: Tensor) -> Tensor:
    """Return (n_subnetworks, width) as it broadcasts with states of shape (n_subnetworks, n_samples, width)."""
    return value[:, None, :]


def check_finite(name: str, value: Tensor) -> None:
    """Refuse NaN and infinity."""
    if not bool(torch.isfinite(value).all()):
        raise InvalidInputError(f"expected a finite {name}, got NaN or infinite values")
