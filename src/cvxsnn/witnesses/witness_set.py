"""Witnesses: hidden weights and dynamics, with the record of where they came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import torch
from torch import Tensor

from ..core.checks import check_choice
from ..core.errors import InvalidInputError
from ..neurons import NEURON_MODELS, HiddenLayer


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
                    f"expected a layer for {lower.n_subnetworks} subnetworks that reads {lower.width} spikes, got one "
                    f"for {upper.n_subnetworks} that reads {upper.n_inputs}"
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
        """Return some of the subnetworks; the recipe remembers which.

        Parameters
        ----------
        subnetworks : slice or Tensor
            The subnetworks to keep, in this order.

        Returns
        -------
        WitnessSet
            The witnesses of these subnetworks.
        """
        before = self.provenance.recipe.get("subnetworks", range(self.n_subnetworks))
        places = subnetworks.cpu() if isinstance(subnetworks, Tensor) else subnetworks
        chosen = torch.as_tensor(list(before))[places].tolist()
        provenance = replace(self.provenance, recipe={**self.provenance.recipe, "subnetworks": chosen})
        return type(self)(tuple(layer.take(subnetworks) for layer in self.layers), provenance)

    def take_neurons(self, neurons: Tensor) -> Self:
        """Return some neurons of one layer; the recipe remembers which.

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
        places = neurons.to(layer.weight.device)
        before = self.provenance.recipe.get("neurons", range(self.n_witnesses))
        chosen = torch.as_tensor(list(before))[places.cpu()].tolist()
        provenance = replace(self.provenance, recipe={**self.provenance.recipe, "neurons": chosen})
        tensors = {name: value[..., places].contiguous() for name, value in layer.tensors().items()}
        return type(self)((layer.with_tensors(tensors),), provenance)

    @property
    def is_selection(self) -> bool:
        """Whether the neurons were chosen from a larger sample."""
        return "neurons" in self.provenance.recipe

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Return the witnesses on another device, or with membranes of another floating-point type.

        Parameters
        ----------
        device : torch.device or str, optional
            Where to put them; where they are when not given.
        dtype : torch.dtype, optional
            The type of the membranes; the present one when not given.

        Returns
        -------
        WitnessSet
            The same witnesses.
        """
        return type(self)(tuple(layer.to(device, dtype) for layer in self.layers), self.provenance)

    def __repr__(self) -> str:
        """Return sizes and origin on one line."""
        shape = "→".join(map(str, (self.n_features, *self.hidden)))
        return f"WitnessSet({self.provenance.kind} {self.neuron}, {self.n_subnetworks} × ({shape}))"
