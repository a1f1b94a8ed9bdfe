r"""Exchange with snnTorch's ``Leaky``.

Its membrane V is measured from rest and ours from the threshold; both subtract the reset one step late. With
:math:`V = U + U_{thr}`,

.. math::
    V^t = \beta V^{t-1} + \big(I^t + (1 - \beta) U_{thr}\big) - U_{thr} S^{t-1}, \qquad S^t = 1\{V^t > U_{thr}\},

so that the neurons are the same up to a bias and the tie.
"""

from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInputError
from ..core.libraries import import_library
from ..neurons import LIFLayer
from ..neurons.lif import fire
from .library import Library, PeerLayer, consistent_start, make_linear, probe_tie, run_steps, shared, tilt, untilt


def library() -> Library:
    """Return the description of snnTorch."""
    snntorch = import_library("snntorch", "snntorch")
    return Library("snnTorch", snntorch.SpikingNeuron, (snntorch.Leaky,), _read, _write, run_steps)


def _write(layer: LIFLayer, depth: int, dtype: torch.dtype) -> PeerLayer:
    leaky = import_library("snntorch", "snntorch").Leaky
    decay, threshold = layer.decay[0], layer.threshold[0]
    linear = make_linear(layer.weight[0], layer.bias[0] + (1 - decay) * threshold, dtype)
    firing_at = tilt(threshold.to(dtype), layer.tie)
    neuron = leaky(beta=shared(decay.to(dtype)), threshold=shared(firing_at), reset_mechanism="subtract")
    return PeerLayer(linear, neuron, (consistent_start(layer) + threshold).to(dtype))


def _read(weight: Tensor, bias: Tensor, neuron: Any, membrane: Tensor | None) -> dict[str, Any]:
    if neuron.reset_mechanism != "subtract":
        raise InvalidInputError(f"expected reset_mechanism='subtract', got {neuron.reset_mechanism!r}")
    if not neuron.reset_delay or neuron.inhibition or neuron.state_quant:
        raise InvalidInputError("expected Leaky neurons with reset_delay=True, without inhibition or state_quant")
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
