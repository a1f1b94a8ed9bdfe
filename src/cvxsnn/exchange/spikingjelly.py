r"""Exchange with SpikingJelly's ``LIFNode`` with soft reset (``v_reset=None``).

It resets within the step, so that the reset leaks with the membrane, and subtracts its threshold; ours comes one step
later and does not leak. With :math:`c = U_{thr} / \beta`, and H the membrane before the reset, :math:`H = U + c` in

.. math::
    H^t = \beta V^{t-1} + \big(I^t + (1 - \beta) c\big), \qquad S^t = 1\{H^t \ge c\}, \qquad V^t = H^t - c\, S^t.

A layer has one time constant :math:`\tau = 1 / (1 - \beta)` and one threshold. Thresholds of one sign can be made equal
by scaling each neuron's drive; decays cannot. Neurons without leak are ``IFNode``.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInputError
from ..core.libraries import import_library
from ..dictionary import Readout
from ..network.spiking_network import SpikingNetwork
from ..neurons import LIFLayer
from ..witnesses import WitnessSet
from .dynamics import reset_within_step, silent_start, tilt, untilt
from .lossy import warn_lossy
from .merging import lif_layers, merge_subnetworks
from .peer_network import Library, PeerLayer, PeerNetwork, make_linear
from .stack import probe_tie, read_stack


class SpikingJellyNetwork(PeerNetwork):
    """A network in SpikingJelly's ``Linear`` and ``LIFNode`` (or ``IFNode``), in multi-step mode."""

    def scan(self, neuron: nn.Module, drive: Tensor, membrane: Tensor) -> Tensor:
        """Call the neuron once for all steps, and reset its state afterwards."""
        node: Any = neuron
        node.reset()
        node.v = membrane.clone()
        spikes: Tensor = node(drive)
        node.reset()
        return spikes


def to_spikingjelly(
    network: SpikingNetwork, *, dtype: torch.dtype = torch.float64, time_first: bool = False, lossy: bool = False
) -> SpikingJellyNetwork:
    """Convert a network to SpikingJelly's layers.

    Parameters
    ----------
    network : SpikingNetwork
        A network of LIF neurons with one decay above 0 per layer, and thresholds that are all positive or all equal.
    dtype : torch.dtype
        Type of the parameters. In float32, rounding occasionally flips a spike (``docs/exchange.md`` says how often).
    time_first : bool
        Whether inputs and outputs are (n_steps, n_samples, ...), as is usual in the library, or (n_samples, n_steps,
        ...), as in cvxsnn.
    lossy : bool
        Whether to replace decays that differ within a layer by their mean. A warning and ``loss_of_exchange`` say so.

    Returns
    -------
    SpikingJellyNetwork
        A module with the same spikes and scores, unless the exchange was lossy.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> network = cs.reconstruct(solution)
    >>> theirs = cs.exchange.to_spikingjelly(network)
    >>> type(theirs).__name__
    'SpikingJellyNetwork'
    """
    network, loss = _with_mean_decays(network) if lossy else (network, "")
    converted = SpikingJellyNetwork.of(network, library(), dtype, time_first)
    if loss:
        converted.loss_of_exchange = loss
        warn_lossy(loss)
    return converted


def from_spikingjelly(
    model: nn.Module | Sequence[nn.Module],
    *,
    readout: Readout | None = None,
    loss: str | None = None,
    weight_bits: int | None = None,
    dtype: torch.dtype | None = None,
) -> WitnessSet | SpikingNetwork:
    """Convert the hidden layers of a SpikingJelly model, and its read-out if it ends in a linear layer.

    Parameters
    ----------
    model : Module or sequence of Modules
        Alternating ``Linear`` and ``LIFNode`` or ``IFNode`` modules with ``v_reset=None``, in the order in which they
        are applied.
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
    >>> from spikingjelly.activation_based import neuron
    >>> from torch import nn
    >>> from cvxsnn.exchange import from_spikingjelly
    >>> from_spikingjelly([nn.Linear(2, 8), neuron.LIFNode(tau=2.0, v_reset=None, decay_input=False)])
    WitnessSet(pretrained lif, 1 × (2→8))
    """
    return read_stack(library(), model, readout, loss, weight_bits, dtype)


def library() -> Library:
    """Return what is specific to models of SpikingJelly."""
    memory = import_library("spikingjelly.activation_based.base", "spikingjelly").MemoryModule
    linear = import_library("spikingjelly.activation_based.layer", "spikingjelly").Linear
    return Library("SpikingJelly", memory, _read_node, _write_node, linear)


def _with_mean_decays(network: SpikingNetwork) -> tuple[SpikingNetwork, str]:
    """Return a network with one decay per layer, and what was lost."""
    layers, losses = [], []
    for depth, layer in enumerate(lif_layers(merge_subnetworks(network, "SpikingJelly")), 1):
        if bool((layer.decay != layer.decay[0, 0]).any()):
            losses.append(f"layer {depth} has its mean decay instead of {layer.decay.min():g} to {layer.decay.max():g}")
            layer = layer.with_tensors({"decay": layer.decay.mean()})
        layers.append(layer)
    return network.with_layers(layers), "; ".join(losses)


def _write_node(layer: LIFLayer, depth: int, dtype: torch.dtype) -> PeerLayer:
    if bool((layer.decay != layer.decay[0, 0]).any()):
        raise InvalidInputError(
            f"expected one decay for all neurons of layer {depth}, got {layer.decay.min():g} to "
            f"{layer.decay.max():g}: SpikingJelly has one per layer; pass lossy=True for the mean, or use "
            "to_snntorch"
        )
    decay, reset, scale = layer.decay[0], reset_within_step(layer), _scale(layer, depth)
    bias = layer.bias[0] + (1 - decay) * reset
    linear_type = import_library("spikingjelly.activation_based.layer", "spikingjelly").Linear
    linear = make_linear(layer.weight[0] / scale, bias / scale, dtype, partial(linear_type, step_mode="m"))
    node = _node(float(decay[0]), float(tilt((reset / scale).to(dtype), layer.tie)[0]))
    return PeerLayer(linear, node, (silent_start(layer) + reset) / scale)


def _node(decay: float, threshold: float) -> nn.Module:
    neuron = import_library("spikingjelly.activation_based.neuron", "spikingjelly")
    settings: dict[str, Any] = {"v_threshold": threshold, "v_reset": None, "step_mode": "m"}
    if decay == 1:
        node: nn.Module = neuron.IFNode(**settings)
    elif decay == 0:
        raise InvalidInputError("expected decays above 0, got 0: SpikingJelly's tau = 1 / (1 − decay) must be above 1")
    else:
        node = neuron.LIFNode(tau=1 / (1 - decay), decay_input=False, **settings)
    return node


def _scale(layer: LIFLayer, depth: int) -> Tensor:
    """Return what to divide each neuron's membrane by, so that all have one threshold and fire as before."""
    threshold = layer.threshold[0]
    if bool((threshold == threshold[0]).all()):
        return torch.ones_like(threshold)
    if bool((threshold <= 0).any()):
        raise InvalidInputError(
            f"expected thresholds of layer {depth} that are all positive or all the same, got {threshold.min():g} to "
            f"{threshold.max():g}: SpikingJelly has one per layer; use to_snntorch"
        )
    return threshold


def _read_node(weight: Tensor, bias: Tensor, node: Any, membrane: Tensor | None) -> Mapping[str, Any]:
    neuron = import_library("spikingjelly.activation_based.neuron", "spikingjelly")
    if type(node) not in (neuron.LIFNode, neuron.IFNode):
        raise InvalidInputError(f"expected LIFNode or IFNode, got {type(node).__name__}: its dynamics differ from ours")
    if node.v_reset is not None:
        raise InvalidInputError(
            f"expected soft reset, v_reset=None, got a hard reset to {node.v_reset:g}: our neurons reset by subtraction"
        )
    leaks = type(node) is neuron.LIFNode
    decay = 1 - 1 / node.tau if leaks else 1.0
    scale = 1 / node.tau if leaks and node.decay_input else 1.0
    start = torch.zeros_like(bias) if membrane is None else membrane
    threshold, tie = untilt(bias.new_tensor(node.v_threshold), probe_tie(node.surrogate_function))
    return {
        "weight": weight * scale,
        "bias": bias * scale - (1 - decay) * threshold,
        "decay": decay,
        "threshold": decay * threshold,
        "initial_membrane": start - threshold,
        "tie": tie,
    }
