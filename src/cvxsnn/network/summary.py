"""Layers, neurons, weights and bytes of a network, as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..core.formatting import NOTHING, align
from ..neurons.exact import snap_weights
from .spiking_network import SpikingNetwork, check_network

Range = tuple[float, float]


@dataclass(frozen=True)
class LayerSummary:
    """Sizes and ranges of one layer, over its connected neurons (:func:`connected_neurons`).

    Parameters
    ----------
    name : str
        The name of the layer.
    n_neurons : int
        Neurons of all subnetworks, or outputs of the read-out.
    n_weights : int
        Weights between connected neurons.
    n_nonzero : int
        Weights that are not zero.
    weight_bits : int
        Bits of an integer that holds every weight, in units of a power of two of each neuron's own.
    decay : tuple of float or None
        Smallest and largest; None where neurons have none.
    threshold : tuple of float or None
        Smallest and largest; None where neurons have none.
    bias : tuple of float or None
        Smallest and largest.
    n_bytes : int
        Bytes of all weights at ``weight_bits`` and of one 32-bit number per parameter and neuron. With delays, each
        weight also has an integer for its source and one for its delay, of no more bits than the largest needs.
    max_delay : int
        The largest delay in steps.
    buffer_bytes : int
        Bytes of the ring buffers that hold past inputs, ``max_delay`` steps of them: a bit per spike, and 32 per input
        of the first layer, which all subnetworks share.
    """

    name: str
    n_neurons: int
    n_weights: int
    n_nonzero: int
    weight_bits: int
    decay: Range | None
    threshold: Range | None
    bias: Range | None
    n_bytes: int
    max_delay: int = 0
    buffer_bytes: int = 0

    @property
    def sparsity(self) -> float:
        """Share of the weights that are zero."""
        return 1 - self.n_nonzero / max(self.n_weights, 1)


@dataclass(frozen=True)
class NetworkSummary:
    """Layers and sizes of a network.

    Parameters
    ----------
    title : str
        The network on one line.
    layers : tuple of LayerSummary
        The layers, from the inputs up, the read-out last.
    """

    title: str
    layers: tuple[LayerSummary, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes of all layers."""
        return sum(layer.n_bytes for layer in self.layers)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the ring buffers of all layers."""
        return sum(layer.buffer_bytes for layer in self.layers)

    def __str__(self) -> str:
        """Return a title and a table with one line per layer; columns on delays appear if there are any."""
        header = ["layer", "neurons", "weights", "non-zero", "sparsity", "bits", "decay", "threshold", "bias", "bytes"]
        title, rows = f"{self.title}, {self.n_bytes:,} bytes", []
        if self.buffer_bytes:
            header += ["max delay", "buffer"]
            title += f" and {self.buffer_bytes:,} bytes of past inputs"
        for layer in self.layers:
            sizes = [f"{size:,}" for size in (layer.n_neurons, layer.n_weights, layer.n_nonzero)]
            ranges = [_text(values) for values in (layer.decay, layer.threshold, layer.bias)]
            row = [layer.name, *sizes, f"{layer.sparsity:.1%}", str(layer.weight_bits), *ranges]
            row += [f"{size:,}" for size in (layer.n_bytes, layer.max_delay, layer.buffer_bytes)]
            rows.append(row[: len(header)])
        return f"{title}\n{align(header, rows)}"


def summarise(network: SpikingNetwork) -> NetworkSummary:
    """Return layers, neurons, weights, ranges and bytes of a network.

    Parameters
    ----------
    network : SpikingNetwork
        The network.

    Returns
    -------
    NetworkSummary
        The layers; as a string, a table.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> problem = cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05)
    >>> network = cs.reconstruct(cs.solve(problem))
    >>> print(str(cs.network.summarise(network)).splitlines()[0])
    SpikingNetwork(1 × (2 → 7), 7 neurons read → 1, last), 199 bytes
    """
    check_network(network)
    layers, senders = [], torch.full((network.n_subnetworks,), network.n_features, device=network.weight.device)
    for depth, (layer, is_connected) in enumerate(zip(network.layers, connected_neurons(network), strict=True), 1):
        neurons = is_connected.sum(1)
        weights = [layer.weight]
        address_bits = 0
        n_weights = int((neurons * (layer.n_taps if layer.has_delays else senders)).sum())
        if layer.has_delays:
            address_bits = n_weights * ((layer.n_inputs - 1).bit_length() + layer.max_delay.bit_length())
        if layer.recurrence is not None and bool(layer.recurrence.any()):
            weights, n_weights = [*weights, layer.recurrence], n_weights + int(neurons.square().sum())
        parameters = {name: value[is_connected] for name, value in layer.tensors().items() if value.ndim == 2}
        del parameters["initial_spikes"]  # one bit each, while the others are numbers
        # A layer remembers inputs as numbers of 32 bits, and spikes of the layer below as single bits.
        buffer_bits = layer.max_delay * (32 * layer.n_inputs if depth == 1 else int(senders.sum()))
        part = _summarise_layer(f"hidden {depth}", int(neurons.sum()), n_weights, weights, parameters, address_bits)
        layers.append(replace(part, max_delay=layer.max_delay, buffer_bytes=_bytes(buffer_bits)))
        senders = neurons
    weight, parameters = network.weight.detach(), {"bias": network.intercept.detach()}
    name = f"read-out ({network.readout})"
    layers.append(_summarise_layer(name, network.n_outputs, weight.numel(), [weight], parameters))
    return NetworkSummary(str(network), tuple(layers))


def _summarise_layer(
    name: str,
    n_neurons: int,
    n_weights: int,
    weights: Sequence[Tensor],
    parameters: Mapping[str, Tensor],
    address_bits: int = 0,
) -> LayerSummary:
    ranges = {
        key: (float(values.min()), float(values.max())) if values.numel() else (0.0, 0.0)
        for key, values in parameters.items()
    }
    bits = max(fewest_bits(weight) or 8 * weight.element_size() for weight in weights)
    n_nonzero = sum(int(weight.count_nonzero()) for weight in weights)
    n_bytes = _bytes(n_weights * bits + address_bits + 32 * n_neurons * len(parameters))
    decay, threshold, bias = map(ranges.get, ("decay", "threshold", "bias"))
    return LayerSummary(name, n_neurons, n_weights, n_nonzero, bits, decay, threshold, bias, n_bytes)


def connected_neurons(network: SpikingNetwork) -> list[Tensor]:
    """Return, for each hidden layer, which neurons have a weight in or out that is not zero, (n_subnetworks, width).

    Subnetworks have equal widths, so a compact reconstruction pads narrow ones with unconnected neurons, which exist
    in the arrays only.
    """
    last = network.layers[-1]
    is_read = torch.zeros(last.n_subnetworks * last.width, dtype=torch.bool, device=network.weight.device)
    is_read[network.neurons[(network.weight != 0).any(1)]] = True
    is_read = is_read.view(last.n_subnetworks, last.width)
    connected = []
    for layer in reversed(network.layers):
        is_connected = is_read | (layer.weight != 0).any(1)
        if layer.recurrence is not None:
            recurrent = layer.recurrence != 0
            is_connected = is_connected | recurrent.any(1) | recurrent.any(2)
        connected.append(is_connected)
        is_read = layer.fan_out() > 0
    return connected[::-1]


def fewest_bits(weight: Tensor, least: int = 2) -> int | None:
    """Return the fewest bits, sign included, of integers that hold each neuron's weights in units of its own.

    None if 32 bits are too few.
    """
    return next((bits for bits in range(least, 33) if torch.equal(snap_weights(weight, bits), weight)), None)


def _bytes(n_bits: int) -> int:
    return -(-n_bits // 8)


def _text(values: Range | None) -> str:
    """Return a range as text, and as one number if both ends look the same."""
    return NOTHING if values is None else " … ".join(dict.fromkeys(f"{value:.3g}" for value in values))
