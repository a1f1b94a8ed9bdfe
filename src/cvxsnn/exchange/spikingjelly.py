r"""Exchange with SpikingJelly's ``LIFNode`` with soft reset (``v_reset=None``).

It resets within the step, so that the reset leaks with the membrane, and subtracts its threshold; ours comes one step
later and does not leak. With :math:`c = U_{thr} / \beta`, and H the membrane before the reset, :math:`H = U + c` in

.. math::
    H^t = \beta V^{t-1} + \big(I^t + (1 - \beta) c\big), \qquad S^t = 1\{H^t \ge c\}, \qquad V^t = H^t - c\, S^t.

A layer has one time constant :math:`\tau = 1 / (1 - \beta)` and one threshold. Thresholds of one sign can be made equal
by scaling each neuron's drive; decays cannot. Neurons without leak are ``IFNode``.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInputError
from ..core.libraries import import_library
from ..neurons import LIFLayer
from .library import Library, PeerLayer, make_linear, probe_tie, reset_within_step, silent_start, tilt, untilt


def library() -> Library:
    """Return the description of SpikingJelly."""
    base, layer, neuron = map(_module, ("base", "layer", "neuron"))
    neurons = (neuron.LIFNode, neuron.IFNode)
    return Library("SpikingJelly", base.MemoryModule, neurons, _read, _write, _scan, layer.Linear)


def _module(name: str) -> Any:
    return import_library(f"spikingjelly.activation_based.{name}", "spikingjelly")


def _scan(node: Any, drive: Tensor, membrane: Tensor) -> Tensor:
    node.reset()
    node.v = membrane.clone()
    spikes: Tensor = node(drive)  # all steps at once
    node.reset()
    return spikes


def _write(layer: LIFLayer, depth: int, dtype: torch.dtype) -> PeerLayer:
    decay = layer.decay[0]
    threshold = layer.threshold[0]
    leak = 1 - float(layer.decay[0, 0])
    if leak == 1:
        raise InvalidInputError("expected decays above 0, got 0: SpikingJelly's tau = 1 / (1 − decay) must be above 1")
    if bool((decay != decay[0]).any()):
        raise InvalidInputError(
            f"expected one decay for all neurons of layer {depth}, got {decay.min():g} to {decay.max():g}: use "
            "to_snntorch"
        )
    is_shared = bool((threshold == threshold[0]).all())
    if not is_shared and bool((threshold <= 0).any()):
        raise InvalidInputError(
            f"expected thresholds of layer {depth} that are all positive or all the same: use to_snntorch"
        )
    # Dividing a neuron's membrane by its threshold leaves its spikes as they are, and makes the thresholds equal.
    scale = torch.ones_like(threshold) if is_shared else threshold
    reset = reset_within_step(layer)
    bias = (layer.bias[0] + (1 - decay) * reset) / scale
    linear = make_linear(layer.weight[0] / scale, bias, dtype, partial(_module("layer").Linear, step_mode="m"))
    firing_at = float(tilt((reset / scale).to(dtype), layer.tie)[0])
    neuron = _module("neuron")
    settings = {"v_threshold": firing_at, "v_reset": None, "step_mode": "m"}
    node = neuron.IFNode(**settings) if leak == 0 else neuron.LIFNode(tau=1 / leak, decay_input=False, **settings)
    return PeerLayer(linear, node, ((silent_start(layer) + reset) / scale).to(dtype))


def _read(weight: Tensor, bias: Tensor, node: Any, membrane: Tensor | None) -> dict[str, Any]:
    if node.v_reset is not None:
        raise InvalidInputError(f"expected soft reset, v_reset=None, got a hard reset to {node.v_reset:g}")
    leaks = type(node) is _module("neuron").LIFNode
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
