r"""Exchange with snnTorch's ``Leaky``.

Its membrane V is measured from rest and ours from the threshold; the reset is subtracted one step late in both. With
:math:`V = U + U_{thr}`,

.. math::
    V^t = \beta V^{t-1} + \big(I^t + (1 - \beta) U_{thr}\big) - U_{thr} S^{t-1}, \qquad S^t = 1\{V^t > U_{thr}\},

so that the neurons are the same up to a bias and the tie.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInputError
from ..dictionary import Readout
from ..network.spiking_network import SpikingNetwork
from ..neurons.lif import fire
from ..witnesses import WitnessSet
from .dynamics import consistent_start, tilt
from .merging import lif_layers, merge_subnetworks
from .neighbours import import_neighbour
from .peer_network import PeerLayer, PeerNetwork, make_linear, shared
from .stack import StackReader, probe_tie


class SnnTorchNetwork(PeerNetwork):
    """Our network in layers of ``nn.Linear`` and ``snntorch.Leaky``."""

    def scan(self, neuron: nn.Module, drive: Tensor, membrane: Tensor) -> Tensor:
        """One call a step."""
        spikes = []
        for step in drive:
            fired, membrane = neuron(step, membrane)
            spikes.append(fired)
        return torch.stack(spikes)


def to_snntorch(
    network: SpikingNetwork, *, dtype: torch.dtype = torch.float64, time_first: bool = False
) -> SnnTorchNetwork:
    """The network in snnTorch's layers; nothing is lost.

    Parameters
    ----------
    network : SpikingNetwork
        Of LIF neurons, of any decays, thresholds, biases and initial membranes.
    dtype : torch.dtype
        In float32, rounding flips a spike now and then (``docs/exchange.md`` has how often).
    time_first : bool
        See :class:`PeerNetwork`.
    """
    leaky = import_neighbour("snntorch", "snntorch").Leaky
    merged = merge_subnetworks(network, "snntorch")
    layers = []
    for layer in lif_layers(merged):
        decay, threshold = layer.decay[0], layer.threshold[0]
        linear = make_linear(layer.weight[0], layer.bias[0] + (1 - decay) * threshold, dtype)
        firing_at = tilt(threshold.to(dtype), layer.tie)
        neuron = leaky(beta=shared(decay.to(dtype)), threshold=shared(firing_at), reset_mechanism="subtract")
        layers.append(PeerLayer(linear, neuron, consistent_start(layer) + threshold))
    return SnnTorchNetwork(layers, merged, time_first)


def from_snntorch(
    model: nn.Module | Sequence[nn.Module],
    *,
    readout: Readout = "last",
    loss: str | None = None,
    weight_bits: int | None = None,
    dtype: torch.dtype = torch.float64,
) -> WitnessSet | SpikingNetwork:
    """Hidden layers of a snnTorch model, and its read-out if it ends in a linear layer.

    Parameters
    ----------
    model : Module or sequence of Modules
        ``Linear`` and ``Leaky`` in turn, in the order in which they are applied.
    readout, loss, weight_bits, dtype
        See :class:`StackReader`.

    Returns
    -------
    WitnessSet, or SpikingNetwork where a linear layer comes last
    """
    snn = import_neighbour("snntorch", "snntorch")
    reader = StackReader("snnTorch", snn.SpikingNeuron, _read_leaky, readout, loss, weight_bits, dtype)
    return reader.read(model)


def _read_leaky(weight: Tensor, bias: Tensor, neuron: Any, membrane: Tensor | None) -> Mapping[str, Any]:
    if type(neuron) is not import_neighbour("snntorch", "snntorch").Leaky:
        raise InvalidInputError(f"expected snntorch.Leaky neurons, got {type(neuron).__name__}: their dynamics differ")
    if neuron.reset_mechanism != "subtract":
        raise InvalidInputError(
            f"expected reset_mechanism='subtract', got {neuron.reset_mechanism!r}: our neurons reset by subtraction"
        )
    if not neuron.reset_delay or neuron.inhibition or neuron.state_quant:
        raise InvalidInputError(
            "expected Leaky neurons with reset_delay=True, no inhibition and no state_quant, got others: their resets "
            "and spikes are not those of ours"
        )
    if bool((neuron.graded_spikes_factor != 1).any()):
        raise InvalidInputError("expected spikes of size 1, got a graded_spikes_factor: fold it into the next layer")
    tie = probe_tie(neuron.spike_grad)
    decay, threshold = neuron.beta.double().clamp(0, 1), neuron.threshold.double()
    reset = neuron.spike_grad(torch.ones_like(bias)) * neuron.threshold  # rounded as snnTorch rounds it
    initial_membrane = (torch.zeros_like(bias) if membrane is None else membrane) - threshold
    return {
        "weight": weight,
        "bias": bias - (1 - decay) * threshold,
        "decay": decay,
        "threshold": reset.double(),
        "initial_membrane": initial_membrane,
        "initial_spikes": fire(initial_membrane, tie),  # snnTorch asks the membrane whether the neuron has just fired
        "tie": tie,
    }
