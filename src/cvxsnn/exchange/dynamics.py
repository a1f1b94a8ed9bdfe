"""The LIF neuron in the conventions of other libraries: its initial state, and on which side of its threshold ties are.

Other libraries measure the membrane from another zero, or reset it within the step. Each mapping is an identity of real
numbers and is in the module of its library; this module has what they share.
"""

from typing import cast

import torch
from torch import Tensor

from ..core.errors import InvalidInputError
from ..neurons import NEURON_MODELS, HiddenLayer, LIFLayer
from ..neurons.lif import Tie, fire

_TIE_ULPS = 16


def check_neurons(layer: HiddenLayer, depth: int, known: tuple[type[HiddenLayer], ...], reason: str) -> None:
    """Refuse a neuron model that is not among the known ones.

    Types are compared exactly: a subclass may follow another equation.

    Parameters
    ----------
    layer : HiddenLayer
        A hidden layer.
    depth : int
        Its number, from 1.
    known : tuple of type
        The layer types that are accepted.
    reason : str
        Why others are not.
    """
    if type(layer) not in known:
        names = " or ".join(kind.__name__.removesuffix("Layer") for kind in known)
        raise InvalidInputError(f"expected {names} neurons, got {type(layer).__name__} as layer {depth}: {reason}")


def check_lif(layer: HiddenLayer, depth: int, library: str) -> LIFLayer:
    """Return a layer of LIF neurons, or refuse one that ``library`` cannot hold."""
    known = tuple(model.layer for model in NEURON_MODELS.values() if library.lower() in model.libraries)
    check_neurons(layer, depth, known, f"{library} cannot represent them")
    return cast(LIFLayer, layer)


def tilt(threshold: Tensor, tie: Tie, least: float | None = None) -> Tensor:
    """Return a threshold moved by 16 units in the last place, so that ties are decided as they should be.

    Ties are no accident: on a blank frame, all neurons without a bias that start at their threshold are tied. Another
    library decides ties its own way, and measures from another zero, so that rounding moves them to either side.

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
    step = _TIE_ULPS * info.eps * threshold.abs() + (info.tiny if least is None else least)
    return threshold - step if tie == "ge" else threshold + step


def untilt(threshold: Tensor, tie: Tie) -> tuple[Tensor, Tie]:
    """Return thresholds of zero where :func:`tilt` moved them by the least normal number, and how they decide ties.

    A bias would absorb so small a threshold, and the tie with it. Of other thresholds it absorbs nothing.

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


def reset_within_step(layer: LIFLayer) -> Tensor:
    r"""Return the reset for a library in which it leaks with the membrane: :math:`U_{thr} / \beta`."""
    decay, threshold = layer.decay[0], layer.threshold[0]
    if bool(((decay == 0) & (threshold != 0)).any()):
        raise InvalidInputError(
            "expected decays above 0, got neurons of decay 0 with a reset: where the reset leaks with the membrane, "
            "they would forget it; use to_snntorch"
        )
    return torch.where(threshold == 0, threshold, threshold / decay)


def silent_start(layer: LIFLayer) -> Tensor:
    r"""Return the initial membrane with the same first step but no spike before: :math:`U^0 - S^0 U_{thr} / \beta`."""
    membrane, spikes = layer.initial_membrane[0], layer.initial_spikes[0]
    if not bool(spikes.any()):
        return membrane
    return membrane - spikes * reset_within_step(layer)


def consistent_start(layer: LIFLayer) -> Tensor:
    r"""Return the initial membrane that agrees with the initial spikes and has the same first step.

    For a library that derives the last spikes from the membrane. Where the two disagree, and they do in every
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
            "neuron's threshold is negative: use to_nir"
        )
    return start
