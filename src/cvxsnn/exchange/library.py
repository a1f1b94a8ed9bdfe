"""The contract of another library of LIF neurons, and the conversions that libraries share.

Other libraries measure the membrane from another zero, or reset it within the step. Each mapping is an identity of real
numbers and is in the module of its library.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInputError
from ..neurons import LIFLayer
from ..neurons.lif import Tie, fire
from .merging import DelayLine, without_delays


class PeerLayer(NamedTuple):
    """A hidden layer of another library, and its membranes (width,) before the first step, if they are known."""

    linear: nn.Linear
    neuron: nn.Module
    initial_membrane: Tensor | None
    delay_line: DelayLine | None = None


@dataclass(frozen=True)
class Library:
    """How one library represents LIF neurons.

    Parameters
    ----------
    name : str
        Name of the library.
    neuron_type : type
        Base class of its neurons.
    neurons : tuple of type
        The neurons that ``read`` can convert; subclasses and others may have other dynamics.
    read : callable
        Converts ``(weight (fan_in, width), bias (width,), neuron, initial membrane or None)`` to the arguments of a LIF
        layer, in float64, and refuses other dynamics.
    write : callable
        Converts ``(layer, depth, dtype)`` to a linear layer and a neuron of type ``dtype``, and refuses what the
        library cannot represent. The layer is in float64, in one subnetwork, without delays; depth counts from 1.
    scan : callable
        Returns the spikes of a neuron for ``(neuron, drive (n_steps, n_samples, width), initial membrane)``.
    linear_type : type
        Linear layer of the library, if it has one.
    """

    name: str
    neuron_type: type
    neurons: tuple[type, ...]
    read: Callable[[Tensor, Tensor, Any, Tensor | None], dict[str, Any]]
    write: Callable[[LIFLayer, int, torch.dtype], PeerLayer]
    scan: Callable[[Any, Tensor, Tensor], Tensor]
    linear_type: type[nn.Linear] = nn.Linear

    def convert(self, layer: LIFLayer, depth: int, dtype: torch.dtype) -> PeerLayer:
        """Convert a layer of a merged network."""
        layer, line = layer.to(dtype=torch.float64), None
        if layer.has_delays:
            layer, line = without_delays(layer), DelayLine(layer.n_inputs, layer.max_delay)
        return self.write(layer, depth, dtype)._replace(delay_line=line)


def run_steps(neuron: Any, drive: Tensor, state: Any) -> Tensor:
    """Return the spikes of a neuron that is called as ``neuron(drive, state)`` once per step."""
    spikes = []
    for step in drive:
        fired, state = neuron(step, state)
        spikes.append(fired)
    return torch.stack(spikes)


def make_linear(
    weight: Tensor, bias: Tensor, dtype: torch.dtype, kind: Callable[[int, int], nn.Linear] = nn.Linear
) -> nn.Linear:
    """Build a linear layer from weights of shape (fan_in, width) and a bias of shape (width,)."""
    with torch.random.fork_rng(devices=[]):  # new layers draw random weights
        linear = kind(*weight.shape).to(dtype)
    with torch.no_grad():
        linear.weight.copy_(weight.T)
        linear.bias.copy_(bias)
    return linear


def shared(values: Tensor) -> Tensor:
    """Return one number if all neurons have the same value.

    It keeps its axis: torch would round a number without one to the type of the other operand, and snnTorch's spikes
    are float32.
    """
    return values[:1].clone() if bool((values == values[0]).all()) else values.clone()


def tilt(threshold: Tensor, tie: Tie, least: float | None = None) -> Tensor:
    """Move a threshold by 16 units in the last place, so that another library decides ties as ours does.

    Ties are frequent: on a blank frame, all neurons without a bias that start at their threshold are tied. Another
    library may decide ties differently, and measures from another zero, so that rounding moves them to either side.

    Parameters
    ----------
    threshold : Tensor
        The thresholds.
    tie : "ge" or "gt"
        Whether a tie fires or not.
    least : float, optional
        How far to move a threshold of zero: to the next normal number by default.

    Returns
    -------
    Tensor
        The moved thresholds.
    """
    info = torch.finfo(threshold.dtype)
    step = 16 * info.eps * threshold.abs() + (info.tiny if least is None else least)
    return threshold - step if tie == "ge" else threshold + step


def untilt(threshold: Tensor, tie: Tie) -> tuple[Tensor, Tie]:
    """Return thresholds of zero where :func:`tilt` moved them by the least normal number, and how they decide ties.

    Adding a bias would round so small a threshold away, and the tie with it. Larger thresholds need no change.

    Parameters
    ----------
    threshold : Tensor
        Thresholds of a layer in another library.
    tie : "ge" or "gt"
        How that library decides ties.

    Returns
    -------
    threshold : Tensor
        The thresholds.
    tie : "ge" or "gt"
        How ties are decided: as given if no threshold was moved from zero.
    """
    is_moved = (threshold != 0) & (threshold.abs() <= torch.finfo(torch.float32).tiny)
    if not bool(is_moved.any()):
        return threshold, tie
    return torch.where(is_moved, 0.0, threshold), "ge" if bool((threshold[is_moved] < 0).all()) else "gt"


def probe_tie(spike: Callable[[Tensor], Tensor]) -> Tie:
    """Return whether a library's spike function fires at zero; refuse functions other than a step."""
    below, at, above = spike(torch.tensor([-1.0, 0.0, 1.0])).detach().tolist()
    if (below, above) != (0.0, 1.0) or at not in (0.0, 1.0):
        raise InvalidInputError(f"expected spikes that are a step from 0 to 1, got {below:g}, {at:g}, {above:g}")
    return "ge" if at == 1.0 else "gt"


def reset_within_step(layer: LIFLayer) -> Tensor:
    r"""Return the reset for a library in which it leaks with the membrane: :math:`U_{thr} / \beta`."""
    decay, reset = layer.decay[0], layer.threshold[0]
    if bool(((decay == 0) & (reset != 0)).any()):
        raise InvalidInputError("expected decays above 0, got decay 0, at which a reset leaks away: use to_snntorch")
    return torch.where(reset == 0, reset, reset / decay)  # 0 / 0 would be NaN


def silent_start(layer: LIFLayer) -> Tensor:
    r"""Return the initial membrane with the same first step but no spike before: :math:`U^0 - S^0 U_{thr} / \beta`."""
    membrane, spikes = layer.initial_membrane[0], layer.initial_spikes[0]
    return membrane - spikes * reset_within_step(layer) if bool(spikes.any()) else membrane


def consistent_start(layer: LIFLayer) -> Tensor:
    r"""Return the initial membrane that agrees with the initial spikes and has the same first step.

    For a library that derives the last spikes from the membrane. The two disagree in every neuron that starts at its
    threshold without having fired; then :math:`U^0 \pm U_{thr}/\beta` with the other spike is the same start.
    """
    membrane, spikes = layer.initial_membrane[0], layer.initial_spikes[0]
    decay, reset = layer.decay[0], layer.threshold[0]
    # A neuron of decay 0 forgets its membrane, so any membrane of the right sign gives the same first step.
    membrane = torch.where(decay == 0, (2 * spikes - 1) * (1 + reset.abs()), membrane)
    agrees = fire(membrane, layer.tie) == spikes
    start = torch.where(agrees, membrane, membrane + (1 - 2 * spikes) * reset / decay)
    # Without a reset, the last spike has no effect and need not agree.
    if bool((fire(start, layer.tie) != torch.where(agrees, spikes, 1 - spikes))[reset != 0].any()):
        raise InvalidInputError("expected initial spikes that follow from a membrane, got others: use to_nir")
    return start
