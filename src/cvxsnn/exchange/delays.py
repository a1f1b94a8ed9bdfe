"""Synapses with delays as plain weights of present and past inputs, the form that other libraries can hold.

Such weights read a *lifted* input: at each step, the inputs of that step and of the ``max_delay`` steps before it, the
oldest first.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import BudgetError, InvalidInputError
from ..neurons import LIFLayer
from ..neurons.exact import snap_weights
from ..neurons.taps import lift, lifted_weight
from .merging import MAX_WEIGHTS

_FINEST_BITS = 32


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
    n_values = (layer.max_delay + 1) * layer.n_inputs
    if n_values * layer.width > MAX_WEIGHTS:
        raise BudgetError(
            f"expected at most {MAX_WEIGHTS:,} weights in one matrix, but {layer.width} neurons that read "
            f"{layer.n_inputs} inputs with delays up to {layer.max_delay} need {n_values * layer.width:,}: rebuild the "
            "network with form='compact', or sample shorter delays"
        )
    weight = lifted_weight(layer, layer.weight)
    # Taps of one source and one delay are added up, and a sum may need more bits than its terms.
    weight_bits = next((bits for bits in range(layer.weight_bits, _FINEST_BITS + 1) if _fits(weight, bits)), None)
    if weight_bits is None:
        raise InvalidInputError(
            f"expected taps whose sums fit into {_FINEST_BITS} bits, got neurons with several taps of one source and "
            "delay whose sums do not: quantise the network to fewer bits first"
        )
    changes: dict[str, Any] = {"weight": weight, "source": None, "delay": None}
    return replace(layer, weight_bits=weight_bits, n_sources=None, **changes)


def _fits(weight: Tensor, bits: int) -> bool:
    return bool((snap_weights(weight, bits) == weight).all())


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
            f"expected weights for whole steps of {n_inputs} inputs, got weights for {layer.n_inputs} values"
        )
    is_read = layer.weight != 0
    n_taps = max(1, int(is_read.sum(1).max()))
    # The values that a neuron reads in their order, then others of weight zero.
    place = torch.argsort((~is_read).to(torch.int8), dim=1, stable=True)[:, :n_taps]
    weight = layer.weight.gather(1, place)
    delay = (layer.n_inputs // n_inputs - 1 - place // n_inputs) * (weight != 0)
    taps: dict[str, Any] = {"weight": weight, "source": place % n_inputs, "delay": delay}
    return replace(layer, n_sources=n_inputs, **taps)
