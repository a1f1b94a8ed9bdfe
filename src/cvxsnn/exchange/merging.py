"""LIF networks in the form that other libraries have: one subnetwork, and one weight per input and delay.

Weights of synapses with delays read a *lifted* input: at each step, the inputs of that step and of the ``max_delay``
steps before it, the oldest first.
"""

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..core.errors import BudgetError, InvalidInputError
from ..core.formatting import plural
from ..network.spiking_network import SpikingNetwork
from ..network.summary import fewest_bits
from ..neurons import NEURON_MODELS, HiddenLayer, LIFLayer
from ..neurons.taps import lift, lifted_weight

MAX_WEIGHTS = 2**28
"""Largest size of a dense weight matrix: 2 GiB of float64."""

FINEST_BITS = 32
"""Largest ``weight_bits`` of a layer."""


def merge_subnetworks(network: SpikingNetwork, library: str) -> SpikingNetwork:
    """Return a network with the same spikes and scores in a single subnetwork, in float64.

    In the first layer all subnetworks read the same inputs. Above it each reads only itself, so weights become
    block-diagonal, and taps read neurons of their own subnetwork. The read-out covers all neurons of the last layer in
    every window of time; new weights are zero.

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
            f"expected a SpikingNetwork, got {type(network).__name__}: pass, for example, the network_ of an estimator"
        )
    layers: list[LIFLayer] = []
    for depth, layer in enumerate(network.layers, 1):
        wide = _check_lif(layer, depth, library).to(dtype=torch.float64)
        merged: dict[str, Any] = {
            name: value.reshape(1, -1) for name, value in wide.tensors().items() if value.ndim == 2
        }
        n_blocks = 1 if depth == 1 else wide.n_subnetworks
        if wide.has_delays:
            offset = wide.n_inputs * torch.arange(n_blocks, device=wide.weight.device)[:, None, None]
            taps = {"weight": wide.weight, "source": wide.source + offset, "delay": wide.delay}
            merged |= {name: _side_by_side(value) for name, value in taps.items()}
            merged["n_sources"] = n_blocks * wide.n_inputs
        elif depth == 1:
            merged["weight"] = _side_by_side(wide.weight)
        else:
            check_size(
                n_blocks * wide.weight.numel(),
                f"{plural(n_blocks, 'subnetwork')} of {wide.n_taps} → {plural(wide.width, 'neuron')}",
            )
            merged["weight"] = torch.block_diag(*wide.weight)[None]  # type: ignore[no-untyped-call]
        layers.append(replace(wide, **merged))
    readout = network.weight.new_zeros(layers[-1].width * network.n_windows, network.n_outputs)
    # A network may list a column twice; its weights add up.
    readout = readout.index_add(0, network.columns, network.weight.detach())
    return SpikingNetwork(layers, readout, network.heads, network.intercept, readout=network.readout)


def lif_layers(network: SpikingNetwork) -> tuple[LIFLayer, ...]:
    """Return the layers of a merged network, which are known to be LIF layers."""
    return cast(tuple[LIFLayer, ...], network.layers)


def _check_lif(layer: HiddenLayer, depth: int, library: str) -> LIFLayer:
    """Return a layer of LIF neurons, or refuse one that ``library`` cannot hold."""
    known = [model.layer for model in NEURON_MODELS.values() if library.lower() in model.libraries]
    if type(layer) not in known:  # a subclass may follow another equation
        names = " or ".join(kind.__name__.removesuffix("Layer") for kind in known)
        raise InvalidInputError(
            f"expected {names} neurons, got {type(layer).__name__} as layer {depth}: {library} cannot represent them"
        )
    return cast(LIFLayer, layer)


def _side_by_side(values: Tensor) -> Tensor:
    return values.movedim(0, 1).flatten(1)[None]


def check_size(n_weights: int, owner: str) -> None:
    """Refuse dense weights of ``owner`` that would fill the memory."""
    if n_weights > MAX_WEIGHTS:
        raise BudgetError(
            f"expected at most {MAX_WEIGHTS:,} weights in one matrix, but {owner} need {n_weights:,}: rebuild the "
            "network with form='compact', or sample shorter delays"
        )


class DelayLine(nn.Module):
    """Remembers past inputs for a linear layer that reads them together with the present ones.

    Parameters
    ----------
    n_inputs : int
        Inputs per step.
    max_delay : int
        Number of steps before the present one that are remembered; zeros before the first step.
    """

    def __init__(self, n_inputs: int, max_delay: int) -> None:
        super().__init__()
        self.n_inputs, self.max_delay = n_inputs, max_delay

    def forward(self, block: Tensor) -> Tensor:
        """Return (n_steps, n_samples, (max_delay + 1) · n_inputs) for inputs (n_steps, n_samples, n_inputs)."""
        return lift(block, self.max_delay)

    def extra_repr(self) -> str:
        """Return the sizes on one line."""
        return f"n_inputs={self.n_inputs}, max_delay={self.max_delay}"


def without_delays(layer: LIFLayer) -> LIFLayer:
    """Return a layer without delays that has the same spikes if it reads lifted inputs.

    Parameters
    ----------
    layer : LIFLayer
        A layer with delays, in float64.

    Returns
    -------
    LIFLayer
        The layer that reads ``(layer.max_delay + 1) * layer.n_inputs`` values.
    """
    size = f"{plural(layer.width, 'neuron')} that read {plural(layer.n_inputs, 'input')}"
    owner = f"{size} with delays up to {layer.max_delay}"
    check_size((layer.max_delay + 1) * layer.n_inputs * layer.width, owner)
    weight = lifted_weight(layer, layer.weight)
    # Taps with the same source and delay are added up, and a sum may need more bits than its terms.
    bits = fewest_bits(weight, layer.weight_bits)
    if bits is None:
        raise InvalidInputError("expected taps whose sums fit into 32 bits, got others: quantise the network first")
    plain: dict[str, Any] = {"weight": weight, "source": None, "delay": None, "n_sources": None}
    return replace(layer, weight_bits=bits, **plain)


def with_delays(layer: LIFLayer, n_inputs: int) -> LIFLayer:
    """Return the layer with delays that :func:`without_delays` converts to a given one.

    Parameters
    ----------
    layer : LIFLayer
        A layer that reads lifted inputs.
    n_inputs : int
        Inputs per step.

    Returns
    -------
    LIFLayer
        A layer with a tap for each weight that is not zero.
    """
    if layer.n_inputs % n_inputs:
        raise InvalidInputError(
            f"expected weights for whole steps of {plural(n_inputs, 'input')}, got {plural(layer.n_inputs, 'weight')}"
        )
    is_zero = layer.weight == 0
    n_taps = max(1, int((~is_zero).sum(1).max()))
    # The values that a neuron reads, in their order; then others, of weight zero.
    column = torch.argsort(is_zero.to(torch.int8), dim=1, stable=True)[:, :n_taps]
    weight = layer.weight.gather(1, column)
    delay = (layer.n_inputs // n_inputs - 1 - column // n_inputs) * (weight != 0)
    taps: dict[str, Any] = {"weight": weight, "source": column % n_inputs, "delay": delay}
    return replace(layer, n_sources=n_inputs, **taps)
