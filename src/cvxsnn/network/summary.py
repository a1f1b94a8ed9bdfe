"""What a network consists of, as a table."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.text_table import align
from ..neurons.exact import snap_weights
from .spiking_network import SpikingNetwork, check_network

Range = tuple[float, float]

_NUMBER_BITS = 32
"""Of a bias, threshold, decay or initial membrane, of which a neuron has one each."""


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
        Bytes of all weights at ``weight_bits`` and of one 32-bit number per parameter and neuron.
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

    @property
    def sparsity(self) -> float:
        """Share of the weights that are zero."""
        return 1 - self.n_nonzero / max(self.n_weights, 1)


@dataclass(frozen=True)
class NetworkSummary:
    """What a network consists of.

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

    def __str__(self) -> str:
        """Return a line on the whole, and one for each layer."""
        header = ("layer", "neurons", "weights", "non-zero", "sparsity", "bits", "decay", "threshold", "bias", "bytes")
        rows = [
            (
                layer.name,
                f"{layer.n_neurons:,}",
                f"{layer.n_weights:,}",
                f"{layer.n_nonzero:,}",
                f"{layer.sparsity:.1%}",
                str(layer.weight_bits),
                *(_text(values) for values in (layer.decay, layer.threshold, layer.bias)),
                f"{layer.n_bytes:,}",
            )
            for layer in self.layers
        ]
        return f"{self.title}, {self.n_bytes:,} bytes\n{align(header, rows)}"


def summarise(network: SpikingNetwork) -> NetworkSummary:
    """Return layers, neurons, weights, ranges and bytes of a network.

    Parameters
    ----------
    network : SpikingNetwork
        The network.

    Returns
    -------
    NetworkSummary
        What it consists of; as a string, a table.
    """
    check_network(network)
    layers, senders = [], torch.full((network.n_subnetworks,), network.n_features, device=network.weight.device)
    for depth, (layer, is_connected) in enumerate(zip(network.layers, connected_neurons(network), strict=True), 1):
        neurons = is_connected.sum(1)
        weights, n_weights = [layer.weight], int((senders * neurons).sum())
        if layer.recurrence is not None and bool(layer.recurrence.any()):
            weights, n_weights = [*weights, layer.recurrence], n_weights + int(neurons.square().sum())
        ranges = {
            name: _range(value[is_connected])
            for name, value in layer.tensors().items()
            if value.ndim == 2 and name != "initial_spikes"
        }
        bits = max(_bits(weight) for weight in weights)
        layers.append(
            LayerSummary(
                f"hidden {depth}",
                int(neurons.sum()),
                n_weights,
                sum(int(weight.count_nonzero()) for weight in weights),
                bits,
                ranges.get("decay"),
                ranges.get("threshold"),
                ranges["bias"],
                _bytes(n_weights * bits + int(neurons.sum()) * len(ranges) * _NUMBER_BITS),
            )
        )
        senders = neurons
    weight, intercept = network.weight.detach(), network.intercept.detach()
    bits = _bits(weight)
    layers.append(
        LayerSummary(
            f"read-out ({network.readout})",
            network.n_outputs,
            weight.numel(),
            int(weight.count_nonzero()),
            bits,
            None,
            None,
            _range(intercept),
            _bytes(weight.numel() * bits + network.n_outputs * _NUMBER_BITS),
        )
    )
    return NetworkSummary(str(network), tuple(layers))


def connected_neurons(network: SpikingNetwork) -> list[Tensor]:
    """Return, for each hidden layer, which neurons have a weight in or out that is not zero, (n_subnetworks, width).

    Subnetworks have equal widths, so a compact reconstruction fills narrow ones up with neurons that have none: they
    exist in the arrays only.
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


def _bits(weight: Tensor) -> int:
    """Return the fewest bits, sign included, of integers that hold each neuron's weights in units of its own."""
    for bits in range(2, 33):
        if bool((snap_weights(weight, bits) == weight).all()):
            return bits
    return 8 * weight.element_size()


def _bytes(n_bits: int) -> int:
    return -(-n_bits // 8)


def _range(values: Tensor) -> Range:
    return (float(values.min()), float(values.max())) if values.numel() else (0.0, 0.0)


def _text(values: Range | None) -> str:
    if values is None:
        return "–"
    low, high = (f"{value:.3g}" for value in values)
    return low if low == high else f"{low} … {high}"
