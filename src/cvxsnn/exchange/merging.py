"""Parallel subnetworks as one wide network, the form that other libraries and formats have."""

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from ..core.errors import BudgetError, InvalidInputError
from ..network.spiking_network import SpikingNetwork
from ..neurons import LIFLayer
from .dynamics import check_lif

MAX_WEIGHTS = 2**28
"""Weights of a dense block matrix: 2 GiB of float64."""


def merge_subnetworks(network: SpikingNetwork, library: str) -> SpikingNetwork:
    """Return a network with the same spikes and scores in a single subnetwork, in float64.

    In the first layer all subnetworks read the same inputs; above it each reads only itself, so that weights become
    block-diagonal, and taps read neurons of their own subnetwork. All neurons of the last layer are read, in every
    window of time, with weight zero where they were not read before.

    Parameters
    ----------
    network : SpikingNetwork
        A network of LIF neurons; others are refused.
    library : str
        The library that the network is merged for.

    Returns
    -------
    SpikingNetwork
        The merged network.
    """
    if type(network) is not SpikingNetwork:  # a subclass may compute something else
        raise InvalidInputError(
            f"expected a SpikingNetwork, got {type(network).__name__}: pass the network_ of a fitted estimator, or the "
            "network that reconstruct returns"
        )
    layers: list[LIFLayer] = []
    for depth, layer in enumerate(network.layers, 1):
        wide = check_lif(layer, depth, library).to(dtype=torch.float64)
        row: dict[str, Any] = {name: value.reshape(1, -1) for name, value in wide.tensors().items() if value.ndim == 2}
        row |= _merged_taps(wide, depth) if wide.has_delays else {"weight": _merged_weight(wide, depth)}
        layers.append(replace(wide, **row))
    readout = network.weight.new_zeros(layers[-1].width * network.n_windows, network.n_outputs)
    readout = readout.index_add(0, network.columns, network.weight.detach())
    return SpikingNetwork(layers, readout, network.heads, network.intercept, readout=network.readout)


def lif_layers(network: SpikingNetwork) -> tuple[LIFLayer, ...]:
    """Return the layers of a merged network, which are known to be LIF layers."""
    return cast(tuple[LIFLayer, ...], network.layers)


def _merged_taps(layer: LIFLayer, depth: int) -> dict[str, Any]:
    source, n_blocks = layer.source, 1
    if depth > 1:
        n_blocks = layer.n_subnetworks
        source = source + layer.n_inputs * torch.arange(n_blocks, device=source.device)[:, None, None]
    taps = {"weight": layer.weight, "source": source, "delay": layer.delay}
    return {name: _side_by_side(value) for name, value in taps.items()} | {"n_sources": n_blocks * layer.n_inputs}


def _merged_weight(layer: LIFLayer, depth: int) -> Tensor:
    return _side_by_side(layer.weight) if depth == 1 else _block_diagonal(layer.weight)[None]


def _side_by_side(values: Tensor) -> Tensor:
    return values.movedim(0, 1).flatten(1)[None]


def _block_diagonal(weight: Tensor) -> Tensor:
    n_subnetworks, fan_in, width = weight.shape
    n_weights = n_subnetworks**2 * fan_in * width
    if n_weights > MAX_WEIGHTS:
        raise BudgetError(
            f"expected at most {MAX_WEIGHTS:,} weights in one block matrix, but {n_subnetworks} subnetworks of "
            f"{fan_in} → {width} neurons need {n_weights:,}: rebuild the network with form='compact'"
        )
    return torch.block_diag(*weight)  # type: ignore[no-untyped-call, no-any-return]
