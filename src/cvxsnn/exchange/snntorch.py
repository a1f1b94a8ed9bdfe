r"""Exchange with snnTorch's ``Leaky``.

Its membrane V is measured from rest and ours from the threshold; both subtract the reset one step late. With
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
from ..core.libraries import import_library
from ..dictionary import Readout
from ..network.spiking_network import SpikingNetwork
from ..neurons import LIFLayer
from ..neurons.lif import fire
from ..witnesses import WitnessSet
from .dynamics import consistent_start, tilt, untilt
from .peer_network import Library, PeerLayer, PeerNetwork, make_linear, shared
from .stack import probe_tie, read_stack


class SnnTorchNetwork(PeerNetwork):
    """A network in layers of ``nn.Linear`` and ``snntorch.Leaky``."""

    def scan(self, neuron: nn.Module, drive: Tensor, membrane: Tensor) -> Tensor:
        """Call the neuron once per step."""
        spikes = []
        for step in drive:
            fired, membrane = neuron(step, membrane)
            spikes.append(fired)
        return torch.stack(spikes)


def to_snntorch(
    network: SpikingNetwork, *, dtype: torch.dtype = torch.float64, time_first: bool = False
) -> SnnTorchNetwork:
    """Convert a network to snnTorch's layers, without loss.

    Parameters
    ----------
    network : SpikingNetwork
        A network of LIF neurons, with any decays, thresholds, biases and initial membranes.
    dtype : torch.dtype
        Type of the parameters. In float32, rounding occasionally flips a spike (``docs/exchange.md`` says how often).
    time_first : bool
        Whether inputs and outputs are (n_steps, n_samples, ...), as is usual in the library, or (n_samples, n_steps,
        ...), as in cvxsnn.

    Returns
    -------
    SnnTorchNetwork
        A module with the same spikes and scores.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> network = cs.reconstruct(solution)
    >>> theirs = cs.exchange.to_snntorch(network)
    >>> type(theirs).__name__
    'SnnTorchNetwork'
    """
    return SnnTorchNetwork.of(network, library(), dtype, time_first)


def from_snntorch(
    model: nn.Module | Sequence[nn.Module],
    *,
    readout: Readout | None = None,
    loss: str | None = None,
    weight_bits: int | None = None,
    dtype: torch.dtype | None = None,
) -> WitnessSet | SpikingNetwork:
    """Convert the hidden layers of an snnTorch model, and its read-out if it ends in a linear layer.

    Parameters
    ----------
    model : Module or sequence of Modules
        Alternating ``Linear`` and ``Leaky`` modules, in the order in which they are applied.
    readout : "last", "all", "mean" or "windows-k", optional
        How a last linear layer reads the spikes: required if there is one, unless the model was converted by cvxsnn.
    loss : str, optional
        Loss of its outputs: by default "softmax" for several outputs and "logistic" for one.
    weight_bits : int, optional
        Bits per weight, on a grid per neuron (:mod:`cvxsnn.neurons.exact`): a weight moves by at most 2^(−bits) of the
        power of two at or above the neuron's largest. By default 32 bits above the first layer, and in the first as
        many, up to 32, as leave room for real inputs up to 16. Layers that cvxsnn converted, and nobody changed since,
        have the bits that they had.
    dtype : torch.dtype, optional
        Type of the membranes: by default float64, and for a network that cvxsnn converted, and whose hidden layers
        nobody changed since, its own.

    Returns
    -------
    WitnessSet or SpikingNetwork
        The hidden layers; with a last linear layer, a network with that read-out.

    Examples
    --------
    >>> import snntorch as snn
    >>> from torch import nn
    >>> from cvxsnn.exchange import from_snntorch
    >>> from_snntorch([nn.Linear(2, 8), snn.Leaky(beta=0.9)])
    WitnessSet(pretrained lif, 1 × (2→8))
    """
    return read_stack(library(), model, readout, loss, weight_bits, dtype)


def library() -> Library:
    """Return what is specific to models of snnTorch."""
    return Library("snnTorch", import_library("snntorch", "snntorch").SpikingNeuron, _read_leaky, _write_leaky)


def _write_leaky(layer: LIFLayer, depth: int, dtype: torch.dtype) -> PeerLayer:
    leaky = import_library("snntorch", "snntorch").Leaky
    decay, threshold = layer.decay[0], layer.threshold[0]
    linear = make_linear(layer.weight[0], layer.bias[0] + (1 - decay) * threshold, dtype)
    firing_at = tilt(threshold.to(dtype), layer.tie)
    neuron = leaky(beta=shared(decay.to(dtype)), threshold=shared(firing_at), reset_mechanism="subtract")
    return PeerLayer(linear, neuron, consistent_start(layer) + threshold)


def _read_leaky(weight: Tensor, bias: Tensor, neuron: Any, membrane: Tensor | None) -> Mapping[str, Any]:
    if type(neuron) is not import_library("snntorch", "snntorch").Leaky:
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
    firing_at, tie = untilt(neuron.threshold, probe_tie(neuron.spike_grad))
    decay, threshold = neuron.beta.double().clamp(0, 1), firing_at.double()
    reset = neuron.spike_grad(torch.ones_like(bias)) * firing_at  # rounded as snnTorch rounds it
    initial_membrane = (torch.zeros_like(bias) if membrane is None else membrane) - threshold
    return {
        "weight": weight,
        "bias": bias - (1 - decay) * threshold,
        "decay": decay,
        "threshold": reset.double(),
        "initial_membrane": initial_membrane,
        "initial_spikes": fire(initial_membrane, tie),  # snnTorch derives the last spike from the membrane
        "tie": tie,
    }
