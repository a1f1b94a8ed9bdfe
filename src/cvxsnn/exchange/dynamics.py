"""Our neuron as other libraries would put it: where it starts, and on which side of its threshold a tie is.

Others measure the membrane from another zero, or reset it within the step. Each mapping is an identity of real numbers
and stands in the module of its library; what is common to them is here.
"""

import torch
from torch import Tensor

from ..core.errors import InvalidInputError
from ..neurons import LIFLayer
from ..neurons.lif import Tie, fire

_TIE_ULPS = 16


def tilt(threshold: Tensor, tie: Tie, least: float | None = None) -> Tensor:
    """A threshold moved by 16 units in the last place, so that a tie lies on the side where it is decided.

    Ties are no accident: on a blank frame, all neurons without a bias that start at their threshold are tied. Another
    library decides ties its own way, and measures from another zero, so that rounding moves them to either side.

    Parameters
    ----------
    threshold : Tensor
    tie : "ge" or "gt"
    least : float, optional
        How far to move a threshold of zero: to the next normal number by default.
    """
    info = torch.finfo(threshold.dtype)
    step = _TIE_ULPS * info.eps * threshold.abs() + (info.tiny if least is None else least)
    return threshold - step if tie == "ge" else threshold + step


def reset_within_step(layer: LIFLayer) -> Tensor:
    r"""What to subtract at once, for a library in which the reset leaks with the membrane: :math:`U_{thr} / \beta`."""
    decay, threshold = layer.decay[0], layer.threshold[0]
    if bool(((decay == 0) & (threshold != 0)).any()):
        raise InvalidInputError(
            "expected decays above 0, got neurons of decay 0 with a reset: where the reset leaks with the membrane, "
            "they would forget it; to_snntorch does not"
        )
    return torch.where(threshold == 0, threshold, threshold / decay)


def silent_start(layer: LIFLayer) -> Tensor:
    r"""The initial membrane with the same first step but no spikes before it: :math:`U^0 - S^0 U_{thr} / \beta`."""
    membrane, spikes = layer.initial_membrane[0], layer.initial_spikes[0]
    if not bool(spikes.any()):
        return membrane
    return membrane - spikes * reset_within_step(layer)


def consistent_start(layer: LIFLayer) -> Tensor:
    r"""The initial membrane that fires or not as the initial spikes say, and gives the same first step.

    For a library that works the last spikes out from the membrane. Where the two disagree, and they do in every
    neuron that starts at its threshold without having fired, :math:`U^0 \pm U_{thr}/\beta` with the other spike is the
    same start.
    """
    membrane, spikes = layer.initial_membrane[0], layer.initial_spikes[0]
    decay, threshold = layer.decay[0], layer.threshold[0]
    size = 1 + threshold.abs()
    # A neuron of decay 0 forgets its membrane, so any of the right sign will do.
    membrane = torch.where(decay == 0, (2 * spikes - 1) * size, membrane)
    agrees = fire(membrane, layer.tie) == spikes
    other = membrane + (1 - 2 * spikes) * threshold / decay
    start = torch.where(agrees, membrane, other)
    if bool((fire(start, layer.tie) != torch.where(agrees, spikes, 1 - spikes))[threshold != 0].any()):
        raise InvalidInputError(
            "expected initial spikes that follow from a membrane, got some that no membrane gives because their "
            "neuron's threshold is negative: to_nir keeps them"
        )
    return start
