"""Witnesses: hidden weights and dynamics, with a record of their origin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..core.checks import check_choice
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..neurons import NEURON_MODELS, HiddenLayer, LateralLayer
from ..neurons.layer import stack_layers


@dataclass(frozen=True)
class Provenance:
    """Where witnesses came from.

    Parameters
    ----------
    kind : "sampled", "pretrained" or "enumerated"
        How they were made. Only a complete enumeration can carry a certificate over all witnesses.
    recipe : mapping of str to object
        Plain values: for sampled witnesses every argument of the sampler, seed included: enough to draw them again.

    Examples
    --------
    >>> from cvxsnn import gaussian_witnesses
    >>> gaussian_witnesses(2, (8,), seed=3).provenance.kind
    'sampled'
    """

    kind: Literal["sampled", "pretrained", "enumerated"]
    recipe: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse an unknown kind."""
        check_choice("kind", self.kind, ("sampled", "pretrained", "enumerated"))


@dataclass(frozen=True, eq=False)
class WitnessSet:
    """Hidden layers of ``n_subnetworks`` subnetworks; each neuron of the last layer is the end of one witness.

    Parameters
    ----------
    layers : tuple of HiddenLayer
        The layers, from the inputs up; all of one registered neuron model.
    provenance : Provenance
        Where they came from.

    Examples
    --------
    >>> from cvxsnn import gaussian_witnesses
    >>> witnesses = gaussian_witnesses(n_features=3, hidden=(16, 32), n_subnetworks=4)
    >>> witnesses.n_witnesses, witnesses.hidden, witnesses.neuron
    (128, (16, 32), 'lif')
    """

    layers: tuple[HiddenLayer, ...]
    provenance: Provenance
    _has_drawn_layers: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check that the layers form one stack."""
        if not self.layers:
            raise InvalidInputError("expected at least one hidden layer, got none")
        models = {NEURON_MODELS.of(layer).name: None for layer in self.layers}
        if len(models) > 1:
            raise InvalidInputError(
                f"expected all layers to have one neuron model, got a mixture of {' and '.join(models)}"
            )
        for lower, upper in zip(self.layers, self.layers[1:], strict=False):
            if upper.n_inputs != lower.width or upper.n_subnetworks != lower.n_subnetworks:
                raise InvalidInputError(
                    f"expected a layer for {plural(lower.n_subnetworks, 'subnetwork')} that reads "
                    f"{plural(lower.width, 'spike')}, got one for {upper.n_subnetworks} that reads {upper.n_inputs}"
                )

    @property
    def neuron(self) -> str:
        """Name of the neuron model."""
        return NEURON_MODELS.of(self.layers[0]).name

    @property
    def n_features(self) -> int:
        """Number of input features per step."""
        return self.layers[0].n_inputs

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers of one subnetwork, the paper's m_1 ... m_{L-1}."""
        return tuple(layer.width for layer in self.layers)

    @property
    def n_subnetworks(self) -> int:
        """Number of subnetworks, the paper's K."""
        return self.layers[0].n_subnetworks

    @property
    def n_witnesses(self) -> int:
        """Number of neurons in the last hidden layers together: the columns of a dictionary before duplicates merge."""
        return self.n_subnetworks * self.hidden[-1]

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of the membranes."""
        return self.layers[0].weight.dtype

    def locate(self, witnesses: Tensor) -> tuple[Tensor, Tensor]:
        """Return where witnesses are.

        Parameters
        ----------
        witnesses : Tensor of shape (n_chosen,), dtype int64
            Indices in ``range(n_witnesses)``.

        Returns
        -------
        subnetworks : Tensor of shape (n_chosen,), dtype int64
            The subnetwork of each.
        neurons : Tensor of shape (n_chosen,), dtype int64
            The neuron of the last layer that is the end of each.
        """
        return witnesses // self.hidden[-1], witnesses % self.hidden[-1]

    def take(self, subnetworks: slice | Tensor) -> Self:
        """Return some of the subnetworks; the recipe records which.

        Parameters
        ----------
        subnetworks : slice or Tensor
            The subnetworks to keep, in this order.

        Returns
        -------
        WitnessSet
            The witnesses of these subnetworks.
        """
        layers = tuple(layer.take(subnetworks) for layer in self.layers)
        return self._derived(layers, self._record("subnetworks", self.n_subnetworks, subnetworks))

    def take_neurons(self, neurons: Tensor) -> Self:
        """Return some neurons of one layer; the recipe records which.

        Of lateral neurons the rivals stay, and no statistics are read of them.

        Parameters
        ----------
        neurons : Tensor of shape (n_chosen,), dtype int64
            The neurons to keep, in this order.

        Returns
        -------
        WitnessSet
            One subnetwork of these neurons.
        """
        layer = self.layers[0]
        if len(self.layers) > 1 or self.n_subnetworks > 1 or layer.recurrence is not None:
            raise InvalidInputError(
                f"expected one subnetwork of one layer, whose neurons do not read each other, to choose neurons from, "
                f"got {self!r}"
            )
        numbers = neurons
        if isinstance(layer, LateralLayer) and self.is_selection:  # in whose recipe rivals have no number
            is_read = layer.statistics[0] != 0
            if not bool(is_read[neurons].all()):
                raise InvalidInputError("expected neurons that are read, got rivals of such: leave them out")
            numbers = (is_read.cumsum(0) - 1)[neurons]
        return self._derived((layer.take_neurons(neurons),), self._record("neurons", self.n_witnesses, numbers))

    def _record(self, name: str, number: int, chosen: slice | Tensor) -> Provenance:
        """Return the origin of a part, with the numbers of the chosen subnetworks or neurons."""
        # Numbers refer to the sample that the recipe draws, also if this set is already a part of it.
        before = torch.as_tensor(list(self.provenance.recipe.get(name, range(number))))
        kept = before[chosen.cpu() if isinstance(chosen, Tensor) else chosen].tolist()
        return replace(self.provenance, recipe={**self.provenance.recipe, name: kept})

    @property
    def is_selection(self) -> bool:
        """Whether the neurons were chosen from a larger sample."""
        return "neurons" in self.provenance.recipe

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Return the witnesses on another device, or with membranes of another floating-point type.

        Parameters
        ----------
        device : torch.device or str, optional
            The device; by default the present one.
        dtype : torch.dtype, optional
            The type of the membranes; by default the present one.

        Returns
        -------
        WitnessSet
            The same witnesses.
        """
        layers = tuple(layer.to(device, dtype) for layer in self.layers)
        # Another dtype rounds the parameters, and the recipe no longer draws these layers to the bit.
        is_same = dtype is None or dtype == self.dtype
        return self._derived(layers, self.provenance) if is_same else type(self)(layers, self.provenance)

    @property
    def is_drawn(self) -> bool:
        """Whether the layers are those that the recipe draws, and not replaced, converted or written to."""
        # torch counts the writes to a tensor.
        tensors = (value for layer in self.layers for value in layer.tensors().values())
        return self._has_drawn_layers and all(value._version == 0 for value in tensors)

    def as_drawn(self) -> Self:
        """Declare that the recipe draws these layers; for samplers only.

        Returns
        -------
        WitnessSet
            The same object.
        """
        object.__setattr__(self, "_has_drawn_layers", True)
        return self

    def _derived(self, layers: tuple[HiddenLayer, ...], provenance: Provenance) -> Self:
        derived = type(self)(layers, provenance)
        return derived.as_drawn() if self.is_drawn else derived

    def __repr__(self) -> str:
        """Return sizes and origin on one line."""
        shape = "→".join(map(str, (self.n_features, *self.hidden)))
        return f"WitnessSet({self.provenance.kind} {self.neuron}, {self.n_subnetworks} × ({shape}))"


def single_out(witnesses: WitnessSet, chosen: Tensor) -> WitnessSet:
    """Return some witnesses, each in a subnetwork of its own.

    Parameters
    ----------
    witnesses : WitnessSet
        A set of neurons that do not read each other.
    chosen : Tensor of shape (n_chosen,), dtype int64
        The witnesses to keep, in this order.

    Returns
    -------
    WitnessSet
        As many subnetworks as witnesses were chosen, with one neuron in the last layer each.

    Examples
    --------
    >>> import torch
    >>> import cvxsnn as cs
    >>> from cvxsnn.witnesses import single_out
    >>> witnesses = cs.gaussian_witnesses(2, (8,), seed=3)
    >>> single_out(witnesses, torch.tensor([0, 5])).n_witnesses
    2
    """
    check_independent(witnesses.neuron)
    subnetworks, neurons = witnesses.locate(chosen.to(witnesses.layers[0].weight.device))
    lower = [layer.take(subnetworks) for layer in witnesses.layers[:-1]]
    return WitnessSet((*lower, witnesses.layers[-1].take_neuron(neurons, subnetworks)), Provenance("pretrained"))


def join_witnesses(sets: Sequence[WitnessSet]) -> WitnessSet:
    """Return all witnesses of several sets of one depth, in turn.

    If lower layers differ in width, narrow ones are padded with neurons that nothing reads.

    Parameters
    ----------
    sets : sequence of WitnessSet
        Sets of one neuron model, depth, last width and number of features.

    Returns
    -------
    WitnessSet
        The subnetworks of all sets.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.witnesses import join_witnesses
    >>> first, second = (cs.gaussian_witnesses(2, (8,), seed=seed) for seed in (0, 1))
    >>> join_witnesses([first, second]).n_witnesses
    16
    """
    if not sets:
        raise InvalidInputError("expected at least one set of witnesses to join, got none")
    first = sets[0]
    if any(
        (witnesses.neuron, len(witnesses.hidden), witnesses.hidden[-1], witnesses.n_features)
        != (first.neuron, len(first.hidden), first.hidden[-1], first.n_features)
        for witnesses in sets
    ):
        raise InvalidInputError(
            "expected sets of one kind of neuron, depth, last width and number of features to join, got several: "
            "single_out the witnesses first to make the last widths one"
        )
    layers: list[HiddenLayer] = []
    for depth in range(len(first.hidden)):
        width = max(witnesses.hidden[depth] for witnesses in sets)
        below = first.n_features if depth == 0 else layers[-1].width
        layers.append(stack_layers([_widened(witnesses.layers[depth], below, width) for witnesses in sets]))
    return WitnessSet(tuple(layers), Provenance("pretrained", {"joined": len(sets)}))


def check_independent(neuron: str) -> None:
    """Refuse neuron models whose neurons read each other."""
    if NEURON_MODELS.find(neuron).is_recurrent:
        raise InvalidInputError(
            f"expected neurons that work without the rest of their layer, got {neuron} neurons, which read each other"
        )


def _widened(layer: HiddenLayer, n_inputs: int, width: int) -> HiddenLayer:
    missing, below = width - layer.width, n_inputs - layer.n_inputs
    if not missing and not below:
        return layer
    if below and layer.has_delays:  # the sources of taps stay valid among more inputs
        layer, below = replace(layer, n_sources=n_inputs), 0
    tensors = {
        name: pad(value, (0, missing, 0, below)) if value.ndim == 3 else pad(value, (0, missing))
        for name, value in layer.tensors().items()
    }
    return layer.with_tensors(tensors)
