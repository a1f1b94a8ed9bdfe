"""Taking witnesses out of their subnetworks, and putting sets of them together."""

from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import pad

from ..core.errors import InvalidInputError
from ..neurons import HiddenLayer
from ..neurons.layer import stack_layers
from .witness_set import Provenance, WitnessSet


def single_out(witnesses: WitnessSet, chosen: Tensor) -> WitnessSet:
    """Some witnesses, each in a subnetwork of its own, in the order they are named; only of LIF neurons."""
    if witnesses.neuron != "lif":
        raise InvalidInputError("expected LIF neurons to single out, got threshold neurons, which read each other")
    subnetworks, neurons = witnesses.locate(chosen.to(witnesses.layers[0].weight.device))
    lower = [layer.take(subnetworks) for layer in witnesses.layers[:-1]]
    return WitnessSet((*lower, witnesses.layers[-1].take_neuron(neurons, subnetworks)), Provenance("pretrained"))


def join_witnesses(sets: Sequence[WitnessSet]) -> WitnessSet:
    """All witnesses of several sets of one depth, in turn.

    Where lower layers differ in width, narrow ones are filled up with neurons that nobody reads.
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


def _widened(layer: HiddenLayer, fan_in: int, width: int) -> HiddenLayer:
    missing, below = width - layer.width, fan_in - layer.fan_in
    if not missing and not below:
        return layer
    tensors = {
        name: pad(value, (0, missing, 0, below)) if value.ndim == 3 else pad(value, (0, missing))
        for name, value in layer.tensors().items()
    }
    return layer.with_tensors(tensors)
