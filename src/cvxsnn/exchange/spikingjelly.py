r"""Exchange with SpikingJelly's ``LIFNode`` with soft reset (``v_reset=None``).

It resets within the step, so that the reset leaks with the membrane, and subtracts its threshold; ours comes one step
later and does not leak. With :math:`c = U_{thr} / \beta`, and H the membrane before the reset, :math:`H = U + c` in

.. math::
    H^t = \beta V^{t-1} + \big(I^t + (1 - \beta) c\big), \qquad S^t = 1\{H^t \ge c\}, \qquad V^t = H^t - c\, S^t.

A layer has one time constant :math:`\tau = 1 / (1 - \beta)` and one threshold. Thresholds of one sign can be made equal
by scaling each neuron's drive; decays cannot. Neurons without leak are ``IFNode``.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInputError
from ..core.libraries import import_library
from ..network.spiking_network import SpikingNetwork
from ..neurons import LIFLayer
from .library import Library, PeerLayer, make_linear, probe_tie, reset_within_step, silent_start, tilt, untilt
from .merging import lif_layers, merge_subnetworks


def library() -> Library:
    """Return the description of SpikingJelly."""
    neurons = import_library("spikingjelly.activation_based.base", "spikingjelly").MemoryModule
    linear = import_library("spikingjelly.activation_based.layer", "spikingjelly").Linear
    return Library("SpikingJelly", neurons, _read, _write, _scan, linear)


def _scan(node: Any, drive: Tensor, membrane: Tensor) -> Tensor:
    node.reset()
    node.v = membrane.clone()
    spikes: Tensor = node(drive)  # all steps at once
    node.reset()
    return spikes


def with_mean_decays(network: SpikingNetwork) -> tuple[SpikingNetwork, str]:
    """Return a network with one decay per layer, and a description of the loss."""
    layers, losses = [], []
    for depth, layer in enumerate(lif_layers(merge_subnetworks(network, "SpikingJelly")), 1):
        if bool((layer.decay != layer.decay[0, 0]).any()):
            losses.append(f"layer {depth} has its mean decay instead of {layer.decay.min():g} to {layer.decay.max():g}")
            layer = layer.with_tensors({"decay": layer.decay.mean()})
        layers.append(layer)
    return network.with_layers(layers), "; ".join(losses)


def _write(layer: LIFLayer, depth: int, dtype: torch.dtype) -> PeerLayer:
    decay, threshold = layer.decay[0], layer.threshold[0]
    if bool((decay != decay[0]).any()):
        raise InvalidInputError(
            f"expected one decay for all neurons of layer {depth}, got {decay.min():g} to {decay.max():g}: pass "
            "lossy=True for the mean, or use to_snntorch"
        )
    is_shared = bool((threshold == threshold[0]).all())
    if not is_shared and bool((threshold <= 0).any()):
        raise InvalidInputError(
            f"expected thresholds of layer {depth} that are all positive or all the same: use to_snntorch"
        )
    # Dividing a neuron's membrane by its threshold leaves its spikes as they are, and makes the thresholds equal.
    scale = torch.ones_like(threshold) if is_shared else threshold
    reset = reset_within_step(layer)
    linear_type = import_library("spikingjelly.activation_based.layer", "spikingjelly").Linear
    bias = (layer.bias[0] + (1 - decay) * reset) / scale
    linear = make_linear(layer.weight[0] / scale, bias, dtype, partial(linear_type, step_mode="m"))
    node = _node(float(decay[0]), float(tilt((reset / scale).to(dtype), layer.tie)[0]))
    return PeerLayer(linear, node, (silent_start(layer) + reset) / scale)


def _node(decay: float, threshold: float) -> Any:
    neuron = import_library("spikingjelly.activation_based.neuron", "spikingjelly")
    settings: dict[str, Any] = {"v_threshold": threshold, "v_reset": None, "step_mode": "m"}
    if decay == 0:
        raise InvalidInputError("expected decays above 0, got 0: SpikingJelly's tau = 1 / (1 − decay) must be above 1")
    if decay == 1:
        return neuron.IFNode(**settings)
    return neuron.LIFNode(tau=1 / (1 - decay), decay_input=False, **settings)


def _read(weight: Tensor, bias: Tensor, node: Any, membrane: Tensor | None) -> Mapping[str, Any]:
    neuron = import_library("spikingjelly.activation_based.neuron", "spikingjelly")
    if type(node) not in (neuron.LIFNode, neuron.IFNode):
        raise InvalidInputError(f"expected LIFNode or IFNode, got {type(node).__name__}: its dynamics differ from ours")
    if node.v_reset is not None:
        raise InvalidInputError(f"expected soft reset, v_reset=None, got a hard reset to {node.v_reset:g}")
    leaks = type(node) is neuron.LIFNode
    decay = 1 - 1 / node.tau if leaks else 1.0
    scale = 1 / node.tau if leaks and node.decay_input else 1.0
    threshold, tie = untilt(bias.new_tensor(node.v_threshold), probe_tie(node.surrogate_function))
    return {
        "weight": weight * scale,
        "bias": bias * scale - (1 - decay) * threshold,
        "decay": decay,
        "threshold": decay * threshold,
        "initial_membrane": (torch.zeros_like(bias) if membrane is None else membrane) - threshold,
        "tie": tie,
    }
