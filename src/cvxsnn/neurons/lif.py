"""The leaky integrate-and-fire layer: the place where its equation is written.

:mod:`.lif_kernel` is the same equation as one kernel for GPUs.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..core.checks import check_choice
from ..core.errors import InvalidInputError
from .layer import HiddenLayer, LayerState, per_sample
from .lif_kernel import can_scan, scan_lif

Tie = Literal["ge", "gt"]


def fire(membrane: Tensor, tie: Tie = "ge", out: Tensor | None = None) -> Tensor:
    """``1{membrane ≥ 0}`` in the membrane's dtype: a tie fires.

    ``tie="gt"`` exists only to run networks of libraries whose ties do not fire.
    """
    out = torch.empty_like(membrane) if out is None else out
    compare = torch.ge if tie == "ge" else torch.gt
    return compare(membrane, 0, out=out)


def lif_membrane(
    drive: Tensor, membrane: Tensor, spikes: Tensor, decay: Tensor, threshold: Tensor, out: Tensor | None = None
) -> Tensor:
    r"""The threshold-centred membrane one step later.

    .. math::
        U^t = I^t + \beta\, U^{t-1} - U_{thr}\, S^{t-1}, \qquad S^t = 1\{U^t \ge 0\}

    with drive :math:`I`, ``decay`` :math:`\beta` and ``threshold`` :math:`U_{thr}`, which is the amount subtracted
    after a spike; the neuron fires at zero. ``out`` may be the membrane itself.
    """
    # Leak and input are two rounded operations, never one fused multiply-add, so that all devices agree; the reset may
    # be fused because a threshold times 0 or 1 is exact.
    leaked = torch.mul(membrane, decay, out=out)
    driven = torch.add(leaked, drive, out=out)
    return torch.addcmul(driven, spikes, threshold, value=-1, out=out)


@dataclass(frozen=True, eq=False)
class LIFLayer(HiddenLayer):
    """A hidden layer of LIF neurons.

    Parameters
    ----------
    weight, bias, initial_spikes, weight_bits
        As in :class:`HiddenLayer`.
    decay : Tensor of shape (n_subnetworks, width) or scalar, in [0, 1]
    threshold : Tensor of shape (n_subnetworks, width) or scalar
        The amount subtracted from the membrane after a spike.
    initial_membrane : Tensor of shape (n_subnetworks, width) or scalar
    tie : "ge" or "gt"
        See :func:`fire`.
    """

    decay: Tensor = 0.9  # type: ignore[assignment]
    threshold: Tensor = 1.0  # type: ignore[assignment]
    initial_membrane: Tensor = 0.0  # type: ignore[assignment]
    tie: Tie = "ge"

    def _check_dynamics(self) -> None:
        decay = self._expand("decay")
        if bool(((decay < 0) | (decay > 1)).any()):
            raise InvalidInputError(
                f"expected decay between 0 and 1, got values from {decay.min():g} to {decay.max():g}: "
                "0 forgets at once, 1 never leaks"
            )
        self._expand("threshold")
        self._expand("initial_membrane")
        check_choice("tie", self.tie, ("ge", "gt"))

    def initial_state(self, n_samples: int) -> LayerState:
        """The state before the first step, writable."""
        shape = (self.n_subnetworks, n_samples, self.width)
        membrane, spikes = per_sample(self.initial_membrane), per_sample(self.initial_spikes)
        return LayerState(membrane.expand(shape).clone(), spikes.expand(shape).clone())

    def step(self, drive: Tensor, state: LayerState) -> None:
        """Advance ``state`` in place by one step."""
        membrane, spikes = state
        lif_membrane(drive, membrane, spikes, per_sample(self.decay), per_sample(self.threshold), out=membrane)
        fire(membrane, self.tie, out=spikes)

    def scan(self, drive: Tensor, state: LayerState, spikes: Tensor | None = None) -> Tensor:
        """Go through all steps, on a GPU in one kernel."""
        if can_scan(drive):
            return scan_lif(self, drive, state, spikes)
        return super().scan(drive, state, spikes)
