"""Parallel subnetworks as one wide network, which is what other libraries and formats know."""

from typing import cast

import torch
from torch import Tensor

from ..core.errors import BudgetError, InvalidInputError
from ..network.spiking_network import SpikingNetwork
from ..neurons import LIFLayer, neuron_of

_MAX_WEIGHTS = 2**28
"""Weights of a dense block matrix: 2 GiB of float64."""


def merge_subnetworks(network: SpikingNetwork, library: str) -> SpikingNetwork:
    """The same spikes and scores from a single subnetwork, in float64.

    Subnetworks side by side read the same inputs, and above that each only itself: weights become block-diagonal. All
    neurons of the last layer are read, those that were not with weight zero.

    Parameters
    ----------
    network : SpikingNetwork
        A network of neurons that the library can hold.
    library : str
        The library or format that the network is for.
    """
    layers: list[LIFLayer] = []
    for depth, layer in enumerate(network.layers, 1):
        if library not in neuron_of(layer).libraries or not isinstance(layer, LIFLayer):
            raise InvalidInputError(
                f"expected LIF neurons, got {type(layer).__name__} as layer {depth}: {library} has no "
                f"{neuron_of(layer).name} neurons"
            )
        wide = layer.to(dtype=torch.float64)
        weight = _side_by_side(wide.weight) if depth == 1 else _block_diagonal(wide.weight)
        row = {name: value.reshape(1, -1) for name, value in wide.tensors().items() if name != "weight"}
        layers.append(wide.with_tensors({"weight": weight[None], **row}))
    readout = network.weight.new_zeros(layers[-1].width, network.n_outputs)
    readout = readout.index_add(0, network.neurons, network.weight.detach())
    return SpikingNetwork(layers, readout, network.heads, network.intercept, readout=network.readout)


def lif_layers(network: SpikingNetwork) -> tuple[LIFLayer, ...]:
    """The layers of a merged network, which are known to be LIF layers."""
    return cast(tuple[LIFLayer, ...], network.layers)


def _side_by_side(weight: Tensor) -> Tensor:
    return weight.movedim(0, 1).flatten(1)


def _block_diagonal(weight: Tensor) -> Tensor:
    n_subnetworks, fan_in, width = weight.shape
    n_weights = n_subnetworks**2 * fan_in * width
    if n_weights > _MAX_WEIGHTS:
        raise BudgetError(
            f"expected at most {_MAX_WEIGHTS:,} weights in one block matrix, but {n_subnetworks} subnetworks of "
            f"{fan_in} → {width} neurons need {n_weights:,}: rebuild the network with form='compact'"
        )
    return torch.block_diag(*weight)  # type: ignore[no-untyped-call, no-any-return]
