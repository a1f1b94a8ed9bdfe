"""The contract between the roll-out and the neuron models: the interface of a hidden layer."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from numbers import Integral
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..core.checks import check_positive_int
from ..core.errors import InvalidInputError
from .exact import WEIGHT_BITS, input_levels, product_dtype, snap_weights, weight_levels

MAX_DELAY = 2**20
"""Longest delay that a synapse may have, in steps."""


Value = TypeVar("Value")


class LayerState(NamedTuple):
    """The neurons of one layer between two steps.

    Parameters
    ----------
    membrane : Tensor of shape (n_subnetworks, n_samples, width)
        The membranes.
    spikes : Tensor of shape (n_subnetworks, n_samples, width)
        The spikes of the last step, 0 or 1.
    history : Tensor of shape (n_subnetworks or 1, n_samples, max_delay, n_inputs), optional
        The last inputs of a layer with delays, the oldest first.
    others : tuple of Tensor
        Further variables of a neuron model, such as a threshold that adapts, each of the shape of the membranes.

    Examples
    --------
    >>> import torch
    >>> from cvxsnn import LIFLayer
    >>> from cvxsnn.neurons import Stepper
    >>> state = Stepper([LIFLayer(torch.ones(1, 2, 4))]).start(3)
    >>> float(state[0].membrane.abs().max())
    0.0
    """

    membrane: Tensor
    spikes: Tensor
    history: Tensor | None = None
    others: tuple[Tensor, ...] = ()

    def copy(self) -> Self:
        """Return a state that a step may overwrite while this one stays as it is.

        Returns
        -------
        LayerState
            The same values. The history, which no step writes to, is shared.
        """
        others = tuple(value.clone() for value in self.others)
        return self._replace(membrane=self.membrane.clone(), spikes=self.spikes.clone(), others=others)


@dataclass(frozen=True, eq=False)
class HiddenLayer(ABC):
    """One hidden layer of all subnetworks.

    A neuron model is a frozen dataclass that derives from this class and adds its own parameters. Each field of type
    ``Tensor`` is a parameter per neuron, of shape (n_subnetworks, width) with a default that may be a scalar. The
    exceptions are the synapses (``weight``, ``source``, ``delay``) and ``recurrent_weight``, of shape (n_subnetworks,
    width, width), by which neurons of the layer read each other. Names of initial values begin with ``initial_``. A
    neuron that reads nothing, starts from zero and has a bias of -1 must never fire. Membranes are measured from the
    threshold: a neuron fires if its membrane is zero or more (``fire`` in :mod:`cvxsnn.neurons.lif`). Multiply and
    add in two rounded operations, never in a fused one, so that all devices agree. Variables beside membrane and spikes
    are ``others`` of a :class:`LayerState`. :func:`register_neuron` makes the model known to the rest of the library.

    Parameters
    ----------
    weight : Tensor of shape (n_subnetworks, n_taps, width)
        The weights, rounded to ``weight_bits`` bits each (:mod:`cvxsnn.neurons.exact`). Their dtype is the layer's. A
        neuron has one synapse, or tap, per input unless ``source`` and ``delay`` are given.
    bias : Tensor of shape (n_subnetworks, width) or scalar
        A constant drive. Like every parameter per neuron, a scalar is expanded.
    initial_spikes : Tensor of shape (n_subnetworks, width) or scalar
        The spikes before the first step, 0 or 1.
    weight_bits : int
        The precision of the weights. Sampled witnesses use the default, imported networks up to 32.
    source : Tensor of shape (n_subnetworks, n_taps, width), dtype int32, optional
        The input, or the neuron below, that each tap reads. When not given, tap j reads input j without delay.
    delay : Tensor of shape (n_subnetworks, n_taps, width), dtype int32, optional
        The delay of each tap in steps, zero or more. A tap reads zero before the sequence starts.
    n_sources : int, optional
        Number of inputs, or of neurons below, that taps can read. Required with ``source`` and ``delay``.

    Examples
    --------
    >>> import torch
    >>> from cvxsnn import LIFLayer
    >>> from cvxsnn.neurons import HiddenLayer
    >>> layer = LIFLayer(torch.ones(1, 3, 4))
    >>> isinstance(layer, HiddenLayer), layer.n_inputs, layer.width
    (True, 3, 4)
    """

    weight: Tensor
    bias: Tensor = 0.0  # type: ignore[assignment]  # __post_init__ makes scalars tensors, here and in subclasses
    initial_spikes: Tensor = 0.0  # type: ignore[assignment]
    weight_bits: int = WEIGHT_BITS
    source: Tensor = None  # type: ignore[assignment]  # None in layers without delays, here and below
    delay: Tensor = None  # type: ignore[assignment]
    n_sources: int | None = None

    def __post_init__(self) -> None:
        """Bring every parameter to one dtype, device and shape, and the weights onto their grid."""
        self._check_weight_shape()
        if not isinstance(self.weight_bits, Integral) or not 2 <= self.weight_bits <= 32:
            raise InvalidInputError(f"expected weight_bits between 2 and 32, got {self.weight_bits!r}")
        check_finite("weight", self.weight)
        self._set("weight", snap_weights(self.weight.detach(), self.weight_bits))
        self._check_taps()
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
    def n_inputs(self) -> int:
        """Number of features, or of neurons below, that the layer can read."""
        return self.weight.shape[1] if self.n_sources is None else self.n_sources

    @property
    def n_taps(self) -> int:
        """Number of synapses per neuron."""
        return self.weight.shape[1]

    @property
    def has_delays(self) -> bool:
        """Whether the synapses are taps with a source and a delay each."""
        return self.source is not None

    @property
    def max_delay(self) -> int:
        """Largest delay in steps, over the taps whose weight is not zero."""
        return int((self.delay * (self.weight != 0)).max()) if self.has_delays else 0

    @property
    def n_lifted(self) -> int:
        """Number of values that taps can read at one step: one for each delay and value."""
        return (self.max_delay + 1) * self.n_values

    @property
    def n_values(self) -> int:
        """Number of values of one step that taps can read: the inputs, unless a model has several views of them."""
        return self.n_inputs

    def view(self, block: Tensor, before: Tensor | None = None) -> Tensor:
        """Return the values of each step that taps can read.

        Parameters
        ----------
        block : Tensor of shape (n_steps, n_samples, n_inputs)
            The inputs.
        before : Tensor of shape (n_samples, n_inputs), optional
            The step before the first one; none at the start of a sequence.

        Returns
        -------
        Tensor of shape (n_steps, n_samples, n_values)
            The inputs themselves, unless a model has several views of them.
        """
        return block

    def levels_of(self, inputs: Tensor) -> float:
        """Return the largest integer among the values that taps can read (:func:`cvxsnn.neurons.exact.input_levels`).

        Parameters
        ----------
        inputs : Tensor of shape (n_samples, n_steps, n_inputs)
            The inputs.

        Returns
        -------
        float
            The largest integer.
        """
        return input_levels(inputs)

    def check_inputs(self, inputs: Tensor) -> None:
        """Refuse inputs that the first layer of a stack cannot read; by default none.

        Parameters
        ----------
        inputs : Tensor
            The inputs, of any shape.
        """
        return

    def needed_by(self, needed: Tensor) -> Tensor:
        """Return some neurons and all others of the layer on which their spikes depend.

        Parameters
        ----------
        needed : Tensor of shape (n_subnetworks, width), dtype bool
            The neurons.

        Returns
        -------
        Tensor of shape (n_subnetworks, width), dtype bool
            These and those that they read, directly or not.
        """
        if self.recurrence is None:
            return needed
        reads, needed = (self.recurrence != 0).to(needed.device), needed.clone()
        while bool((reached := (reads & needed[:, None, :]).any(2) & ~needed).any()):
            needed |= reached
        return needed

    @property
    def width(self) -> int:
        """Number of neurons per subnetwork."""
        return self.weight.shape[2]

    @property
    def levels(self) -> float:
        """Largest integer that a sum over spikes can reach, in the neuron's own unit."""
        return weight_levels(self.weight, self.weight_bits)

    @property
    def is_memoryless(self) -> bool:
        """Whether the spikes of a step depend on what is read at that step, and on no membrane or spike before."""
        return False

    @property
    def recurrence(self) -> Tensor | None:
        """The weights by which neurons of the layer read each other; None if there are none."""
        return self.tensors().get("recurrent_weight")

    @abstractmethod
    def _check_dynamics(self) -> None:
        """Check and expand the parameters that a subclass adds."""

    @abstractmethod
    def initial_state(self, n_samples: int) -> LayerState:
        """Return a new state, as it is before the first step.

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
        return self.with_valid(lambda value: value[subnetworks])

    def side_by_side(self) -> Self:
        """Return the neurons of all subnetworks, one after the other, in one.

        Returns
        -------
        HiddenLayer
            One subnetwork; for layers that read the inputs, which all subnetworks share.
        """
        return self.with_valid(lambda value: value.movedim(0, -2).flatten(-2).unsqueeze(0).contiguous())

    def take_neurons(self, neurons: Tensor) -> Self:
        """Return some neurons of each subnetwork; not for layers whose neurons read each other.

        Parameters
        ----------
        neurons : Tensor of shape (n_chosen,), dtype int64
            The neurons to keep, in this order.

        Returns
        -------
        HiddenLayer
            A layer of the same neuron model.
        """
        return self.with_valid(lambda value: value[..., neurons.to(value.device)].contiguous())

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
        chosen = torch.arange(self.n_subnetworks, device=self.weight.device) if subnetworks is None else subnetworks
        numbers = torch.as_tensor(number, device=self.weight.device).expand(len(chosen))
        # Indices on both sides of a slice bring their axis to the front.
        return self.with_valid(lambda value: value[chosen, ..., numbers][..., None])

    def fan_out(self) -> Tensor:
        """Return the number of synapses that read each input and whose weight is not zero.

        Returns
        -------
        Tensor of shape (n_subnetworks, n_inputs), dtype int64
            The numbers.
        """
        is_read = self.weight != 0
        if not self.has_delays:
            return is_read.sum(2)
        counts = torch.zeros(self.n_subnetworks, self.n_values, dtype=torch.int64, device=self.weight.device)
        return counts.scatter_add_(1, self.source.flatten(1).long(), is_read.flatten(1).long())

    def take_inputs(self, chosen: Tensor) -> Self:
        """Return the layer above fewer inputs: those that are not chosen are not read any more.

        Parameters
        ----------
        chosen : Tensor of shape (n_subnetworks, n_chosen), dtype int64
            The inputs, or neurons below, that remain in each subnetwork, in this order and without repetition.

        Returns
        -------
        HiddenLayer
            A layer that reads ``n_chosen`` values.
        """
        chosen = chosen.to(self.weight.device)
        if not self.has_delays:
            index = chosen[:, :, None].expand(-1, -1, self.width)
            return self.with_tensors({"weight": self.weight.gather(1, index)})
        # Taps of inputs that are not chosen stay, with weight zero and any source.
        position = torch.full((self.n_subnetworks, self.n_inputs), -1, device=self.weight.device)
        position.scatter_(1, chosen, torch.arange(chosen.shape[1], device=chosen.device).expand_as(chosen))
        source = position.gather(1, self.source.flatten(1).long()).view_as(self.source)
        tensors: dict[str, Any] = {"weight": self.weight * (source >= 0), "source": source.clamp(min=0)}
        return replace(self, n_sources=chosen.shape[1], **tensors)

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
        # Without inputs and from zero, a bias of -1 fires in no neuron model: every model promises that.
        changes |= {"weight": self.weight * live[:, None, :], "bias": torch.where(live, self.bias, -1.0)}
        if self.recurrence is not None:
            changes["recurrent_weight"] = self.recurrence * live[:, None, :] * live[:, :, None]
        return self.with_tensors(changes)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Return the layer on another device or in another floating-point type.

        Parameters
        ----------
        device : torch.device or str, optional
            The device; by default the present one.
        dtype : torch.dtype, optional
            The type of membranes and parameters; by default the present one.

        Returns
        -------
        HiddenLayer
            A layer of the same neuron model.
        """
        if device in (None, self.weight.device) and dtype in (None, self.weight.dtype):
            return self

        def moved(value: Tensor) -> Tensor:
            return value.to(device, dtype if value.is_floating_point() else None)

        # A narrower dtype rounds weights off their grid, so they are snapped again.
        if dtype is None or dtype == self.weight.dtype:
            return self.with_valid(moved)
        return self.with_tensors({name: moved(value) for name, value in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """Return every parameter tensor by name.

        Returns
        -------
        dict of str to Tensor
            The tensors, in the order of the fields; ``source`` and ``delay`` only with delays.
        """
        return {name: value for name, value in self._values() if isinstance(value, Tensor)}

    def settings(self) -> dict[str, Any]:
        """Return every parameter that is no tensor by name.

        Returns
        -------
        dict of str to object
            The values, in the order of the fields; ``n_sources`` only with delays.
        """
        return {name: value for name, value in self._values() if not isinstance(value, Tensor | None)}

    def _values(self) -> Iterator[tuple[str, Any]]:
        return ((field.name, getattr(self, field.name)) for field in fields(self))

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

    def kept(self, name: Hashable, make: Callable[[Self], Value]) -> Value:
        """Return what ``make`` returns, which is kept with the layer until one of its parameters changes.

        Parameters are compared by their values: versions of tensors do not count changes through NumPy or ``.data``.

        Parameters
        ----------
        name : hashable
            What is made.
        make : callable
            Takes a layer of the same tensors: one that is kept here would be freed late, being part of a cycle.

        Returns
        -------
        object
            The value, made of the parameters as they are now.
        """
        tensors = self.tensors()
        before, values = vars(self).get("_kept", ({}, {}))
        if not before or not all(_is_same(before[name], value) for name, value in tensors.items()):
            before, values = {name: value.clone() for name, value in tensors.items()}, {}
            vars(self)["_kept"] = before, values
        if name not in values:
            values[name] = make(self.from_valid(tensors, self.settings()))
        made: Value = values[name]
        return made

    def kept_for_levels(
        self, name: Hashable, levels_of_inputs: float, make: "Callable[[HiddenLayer, torch.dtype], Value]"
    ) -> Value:
        """Return ``make(layer, dtype)`` for the narrowest dtype in which sums over inputs are exact: :meth:`kept`.

        Parameters
        ----------
        name : hashable
            What is made.
        levels_of_inputs : float
            The largest integer among the inputs (:func:`cvxsnn.neurons.exact.input_levels`).
        make : callable
            Takes a layer of the same tensors, and a dtype.

        Returns
        -------
        object
            The value for this dtype; those for others are kept, too.
        """

        def prepare(own: HiddenLayer) -> tuple[float, Callable[[torch.dtype], Value]]:
            return own.levels, cache(partial(make, own))

        levels, made = self.kept(name, prepare)
        return made(product_dtype(levels, levels_of_inputs))

    def __getstate__(self) -> dict[str, Any]:
        """Return the parameters for copies and pickles, without what is kept."""
        return dict(self._values())

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

    def with_valid(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Return the layer after a function that selects or moves subnetworks or neurons and changes no value.

        Parameters
        ----------
        function : callable
            Takes and returns one parameter tensor.

        Returns
        -------
        HiddenLayer
            A layer of the same neuron model, not checked again.
        """
        layer = self.from_valid({name: function(value) for name, value in self.tensors().items()}, self.settings())
        layer._check_weight_shape()
        return layer

    def _check_weight_shape(self) -> None:
        if self.weight.ndim != 3 or 0 in self.weight.shape or self.weight.dtype not in (torch.float32, torch.float64):
            raise InvalidInputError(
                "expected weights in float32 or float64 of shape (n_subnetworks, n_taps, width), got "
                f"{self.weight.dtype} of shape {tuple(self.weight.shape)}"
            )

    def _check_taps(self) -> None:
        are_missing = [value is None for value in (self.source, self.delay, self.n_sources)]
        if all(are_missing):
            return
        if any(are_missing):
            raise InvalidInputError("expected source, delay and n_sources together, got only some of them")
        n_sources = check_positive_int("n_sources", self.n_sources)
        for name, limit in (("source", n_sources), ("delay", MAX_DELAY + 1)):
            self._set(name, check_whole(name, getattr(self, name), self.weight.shape, limit).to(self.weight.device))

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


def _is_same(one: Tensor, other: Tensor) -> bool:
    if (one.dtype, one.device, one.shape) != (other.dtype, other.device, other.shape):
        return False
    # NumPy compares faster than torch, whose threads cost more than they gain here.
    return np.array_equal(one.numpy(), other.numpy()) if one.device.type == "cpu" else torch.equal(one, other)


@cache
def tensor_names(kind: type[HiddenLayer]) -> tuple[str, ...]:
    """Return the names of a neuron model's parameters that are tensors."""
    return tuple(field.name for field in fields(kind) if field.type in (Tensor, "Tensor"))


def stack_layers(layers: Sequence[Layer]) -> Layer:
    """Return one layer with the subnetworks of all, which are of one neuron model, width and number of inputs."""
    if any(layer.has_delays for layer in layers):
        n_taps = max(layer.n_taps for layer in layers)
        layers = [with_taps(layer, n_taps) for layer in layers]
    # Weights on grids of different fineness share the finest.
    bits = max(layer.weight_bits for layer in layers)
    first, *others = [{**layer.settings(), "weight_bits": bits} for layer in layers]
    if any(settings != first for settings in others):
        raise InvalidInputError(f"expected layers with equal settings to stack, got {first} and others")
    parts = [layer.tensors() for layer in layers]
    joined: dict[str, Any] = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return replace(layers[0], weight_bits=bits, **joined)


def with_taps(layer: Layer, n_taps: int) -> Layer:
    """Return the same neurons with ``n_taps`` taps each: those they have, then others of weight zero."""
    weight = layer.weight
    source = layer.source
    delay = layer.delay
    if source is None:
        source = torch.arange(layer.n_taps, dtype=torch.int32, device=weight.device)[:, None].expand(weight.shape)
        delay = torch.zeros_like(source)
    missing = (0, 0, 0, n_taps - layer.n_taps)
    tensors: dict[str, Any] = {
        "weight": pad(weight, missing),
        "source": pad(source, missing),
        "delay": pad(delay, missing),
    }
    return replace(layer, **tensors, n_sources=layer.n_values)


def check_whole(name: str, value: Tensor, shape: torch.Size, limit: int) -> Tensor:
    """Return whole numbers from 0 to ``limit - 1`` as int32, and refuse others."""
    value = torch.as_tensor(value).detach()
    if value.shape != shape:
        raise InvalidInputError(f"expected {name} of shape {tuple(shape)}, as the weights, got {tuple(value.shape)}")
    is_real = value.is_floating_point()
    if value.dtype == torch.bool or (is_real and not bool((torch.isfinite(value) & (value == value.round())).all())):
        raise InvalidInputError(f"expected {name} in whole numbers, got fractions, NaN or booleans: round them first")
    # A network may read no neurons, and an empty tensor has no least value.
    least, largest = value.aminmax() if value.numel() else (0, 0)
    if least < 0 or largest >= limit:
        raise InvalidInputError(f"expected {name} from 0 to {limit - 1}, got values from {least:g} to {largest:g}")
    return value.to(torch.int32)


def per_sample(value: Tensor) -> Tensor:
    """Return (n_subnetworks, width) as it broadcasts with states of shape (n_subnetworks, n_samples, width)."""
    return value[:, None, :]


def check_finite(name: str, value: Tensor) -> None:
    """Refuse NaN and infinity."""
    if not bool(torch.isfinite(value).all()):
        raise InvalidInputError(f"expected a finite {name}, got NaN or infinite values")


def check_stack(layers: Sequence[HiddenLayer], n_features: int | None = None) -> list[HiddenLayer]:
    """Check that the widths of layers match, and return the layers as a list."""
    if not layers:
        raise InvalidInputError("expected at least one hidden layer, got none")
    n_inputs = n_features
    for depth, layer in enumerate(layers, 1):
        if not isinstance(layer, HiddenLayer):
            raise InvalidInputError(f"expected hidden layers such as LIFLayer, got {type(layer).__name__}")
        if n_inputs not in (None, layer.n_inputs):
            raise InvalidInputError(
                f"expected layer {depth} to read {n_inputs} values, got weights for {layer.n_inputs}: "
                + ("the inputs and the witnesses disagree on n_features" if depth == 1 else "widths must chain")
            )
        n_inputs = layer.width
    if len({(layer.n_subnetworks, layer.weight.dtype) for layer in layers}) > 1:
        raise InvalidInputError("expected all layers to have the same number of subnetworks and the same dtype")
    return list(layers)
