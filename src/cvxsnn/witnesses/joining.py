"""Taking witnesses out of their subnetworks, and putting sets of them together."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor
from torch.nn.functional import pad

from ..core.errors import InvalidInputError
from ..neurons import NEURON_MODELS, HiddenLayer
from ..neurons.layer import stack_layers
from .witness_set import Provenance, WitnessSet


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

    Where lower layers differ in width, narrow ones are filled up with neurons that are not read.

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
        (other.neuron, len(other.hidden), other.hidden[-1], other.n_features)
        != (first.neuron, len(first.hidden), first.hidden[-1], first.n_features)
        for other in sets
    ):
        raise InvalidInputError(
            "expected sets of one kind of neuron, depth, last width and number of features to join, got several: "
            "single_out the witnesses first to make the last widths one"
        )
    layers: list[HiddenLayer] = []
    for depth in range(len(first.hidden)):
        width = max(other.hidden[depth] for other in sets)
        below = first.n_features if depth == 0 else layers[-1].width
        layers.append(stack_layers([_widened(other.layers[depth], below, width) for other in sets]))
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
    if layer.has_delays:  # taps keep their sources, of which there are more
        layer, below = replace(layer, n_sources=n_inputs), 0
    tensors = {
        name: pad(value, (0, missing, 0, below)) if value.ndim == 3 else pad(value, (0, missing))
        for name, value in layer.tensors().items()
    }
    return layer.with_tensors(tensors)
