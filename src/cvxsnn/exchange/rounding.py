"""Rounding hidden neurons and read-outs to a few bits."""

from dataclasses import replace
from typing import Any, overload

import torch
from torch import Tensor

from ..core.errors import InvalidInputError
from ..network.spiking_network import SpikingNetwork, check_network
from ..neurons import NEURON_MODELS, HiddenLayer
from ..witnesses import Provenance, WitnessSet

DECAY_GRID = 2.0**-12
"""Unit of decays: they are few, and the small leak of a slow neuron must not be rounded away."""

MEMBRANE_GRID = 2.0**-8
"""Unit of biases, thresholds and initial membranes, relative to the unit of the neuron's weights."""


def round_weights(weight: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Round the weights of each neuron to signed integers times a power of two, with the least squared error.

    The integers go from ``-(2**(bits - 1) - 1)`` to ``2**(bits - 1) - 1``; 2 bits are ternary weights. A power of two
    keeps sums exact (:mod:`cvxsnn.neurons.exact`), and one per neuron costs a chip nothing: spikes do not change when
    everything that is added to a membrane is scaled by the same factor, so each neuron may count in its own unit.

    Parameters
    ----------
    weight : Tensor of shape (..., fan_in, width)
        The weights.
    bits : int
        Bits per weight, from 2 to 16.

    Returns
    -------
    rounded : Tensor of shape (..., fan_in, width)
        The rounded weights; rounding them again changes nothing.
    unit : Tensor of shape (..., 1, width)
        The powers of two.
    """
    if isinstance(bits, bool) or not isinstance(bits, int) or not 2 <= bits <= 16:
        raise InvalidInputError(f"expected bits to be an integer from 2 to 16, got {bits!r}")
    largest = 2 ** (bits - 1) - 1
    exact = weight.detach().double()
    exponent = torch.frexp(exact.abs().amax(-2, keepdim=True)).exponent
    start = torch.ldexp(torch.ones_like(exact[..., :1, :]), exponent - (bits - 1))
    best = torch.zeros_like(exact)
    unit = start
    least = torch.full_like(start, torch.inf)
    # At shift 0 the largest weight just fits. A finer unit clips large weights and represents the others better; which
    # is best depends on their spread.
    for shift in (-2, -1, 0, 1):
        finer = start * 2.0**shift
        rounded = (exact / finer).round().clamp(-largest, largest) * finer
        error = (rounded - exact).square().sum(-2, keepdim=True)
        is_better = error < least
        best, unit = torch.where(is_better, rounded, best), torch.where(is_better, finer, unit)
        least = torch.minimum(error, least)
    return best.to(weight.dtype), unit.to(weight.dtype)


@overload
def quantise(neurons: SpikingNetwork, bits: int = 8) -> SpikingNetwork: ...
@overload
def quantise(neurons: WitnessSet, bits: int = 8) -> WitnessSet: ...
def quantise(neurons: SpikingNetwork | WitnessSet, bits: int = 8) -> SpikingNetwork | WitnessSet:
    """Round the weights of hidden neurons to a few bits; a network's read-out stays as it is.

    All weights that lead to one neuron, recurrent ones included, become ``bits``-bit integers times a power of two of
    its own. Its bias, threshold and initial membrane become multiples of 1/256 of that power, its decay a multiple of
    1/4096. Delays stay as they are.

    Parameters
    ----------
    neurons : SpikingNetwork or WitnessSet
        The hidden neurons.
    bits : int
        Bits per weight, from 2 to 16.

    Returns
    -------
    SpikingNetwork or WitnessSet
        The rounded neurons, in the form that was passed.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.exchange import quantise
    >>> small = quantise(cs.gaussian_witnesses(2, (16,), seed=0), bits=4)
    >>> small.layers[0].weight_bits
    4
    """
    if isinstance(neurons, WitnessSet):
        layers = tuple(_quantise_layer(layer, bits) for layer in neurons.layers)
        return WitnessSet(layers, Provenance("pretrained", {"weight_bits": bits}))
    check_network(neurons)
    return neurons.with_layers([_quantise_layer(layer, bits) for layer in neurons.layers])


def quantise_readout(network: SpikingNetwork, bits: int = 8) -> SpikingNetwork:
    """Round the output weights of a network to a few bits: integers times a power of two per output.

    Intercepts become multiples of 1/256 of that power.

    Parameters
    ----------
    network : SpikingNetwork
        The network.
    bits : int
        Bits per weight, from 2 to 16.

    Returns
    -------
    SpikingNetwork
        The same hidden neurons with the rounded read-out.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> network = cs.reconstruct(solution)
    >>> small = cs.exchange.quantise_readout(network, bits=4)
    >>> len(small.weight.unique()) <= 2**4
    True
    """
    check_network(network)
    return network.with_readout(*round_readout(network.weight, network.intercept, bits))


def round_readout(weight: Tensor, intercept: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Round output weights (n_neurons, n_outputs) to a power of two per output, and intercepts to a finer grid."""
    rounded, unit = round_weights(weight, bits)
    return rounded, _round_to(intercept.detach(), MEMBRANE_GRID * unit[0])


def _quantise_layer(layer: HiddenLayer, bits: int) -> HiddenLayer:
    tensors = layer.tensors()
    weights = {name: value for name, value in tensors.items() if name.endswith("weight")}
    # Input and recurrent weights are added to the same membrane, so they share the unit of their neuron.
    rounded, unit = round_weights(torch.cat([*weights.values()], dim=1), bits)
    parts = torch.split(rounded, [value.shape[1] for value in weights.values()], dim=1)
    scaled = NEURON_MODELS.of(layer).all_scaled - weights.keys()
    grids: dict[str, Tensor | float] = {**dict.fromkeys(scaled, MEMBRANE_GRID * unit[:, 0]), "decay": DECAY_GRID}
    changes: dict[str, Any] = dict(zip(weights, parts, strict=True))
    changes |= {name: _round_to(tensors[name], grid) for name, grid in grids.items() if name in tensors}
    return replace(layer, weight_bits=bits, **changes)


def _round_to(value: Tensor, grid: Tensor | float) -> Tensor:
    return (value / grid).round() * grid
