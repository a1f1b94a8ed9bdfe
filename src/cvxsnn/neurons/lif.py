"""The leaky integrate-and-fire layer and its equation.

:mod:`.tap_kernel` has the same equation for neurons with delays, :mod:`.gpu_kernels` for GPUs. Tests compare their
spikes to the bit.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..core.checks import check_choice
from ..core.errors import InvalidInputError
from .gpu_kernels import can_scan, scan_lif
from .layer import HiddenLayer, LayerState, per_sample

Tie = Literal["ge", "gt"]


def fire(membrane: Tensor, tie: Tie = "ge", out: Tensor | None = None) -> Tensor:
    """Return ``1{membrane ≥ 0}`` in the membrane's dtype: a tie fires.

    ``tie="gt"`` exists only to run networks of libraries whose ties do not fire.
    """
    out = torch.empty_like(membrane) if out is None else out
    compare = torch.ge if tie == "ge" else torch.gt
    return compare(membrane, 0, out=out)


def lif_membrane(
    drive: Tensor, membrane: Tensor, spikes: Tensor, decay: Tensor, reset: Tensor, out: Tensor | None = None
) -> Tensor:
    r"""Return the threshold-centred membrane one step later.

    .. math::
        U^t = I^t + \beta\, U^{t-1} - U_{thr}\, S^{t-1}, \qquad S^t = 1\{U^t \ge 0\}

    with drive :math:`I`, ``decay`` :math:`\beta` and ``reset`` :math:`U_{thr}`, the amount subtracted after a
    spike; the neuron fires at zero. ``out`` may be the membrane itself.
    """
    # Leak and input are two rounded operations, never one fused multiply-add, so that all devices agree; the reset may
    # be fused because a reset times 0 or 1 is exact.
    leaked = torch.mul(membrane, decay, out=out)
    driven = torch.add(leaked, drive, out=out)
    return torch.addcmul(driven, spikes, reset, value=-1, out=out)


@dataclass(frozen=True, eq=False)
class LIFLayer(HiddenLayer):
    """A hidden layer of LIF neurons.

    Parameters
    ----------
    weight : Tensor of shape (n_subnetworks, n_taps, width)
        The weights, rounded to ``weight_bits`` bits each.
    bias : Tensor of shape (n_subnetworks, width) or scalar
        A constant drive.
    initial_spikes : Tensor of shape (n_subnetworks, width) or scalar
        The spikes before the first step, 0 or 1.
    weight_bits : int
        The precision of the weights.
    source : Tensor of shape (n_subnetworks, n_taps, width), dtype int32, optional
        The input, or the neuron below, that each tap reads. When not given, tap j reads input j without delay.
    delay : Tensor of shape (n_subnetworks, n_taps, width), dtype int32, optional
        The delay of each tap in steps.
    n_sources : int, optional
        Number of inputs, or of neurons below, that taps can read.
    decay : Tensor of shape (n_subnetworks, width) or scalar
        The factor by which a membrane leaks per step, in [0, 1].
    threshold : Tensor of shape (n_subnetworks, width) or scalar
        The amount subtracted from the membrane after a spike.
    initial_membrane : Tensor of shape (n_subnetworks, width) or scalar
        The membrane before the first step.
    tie : "ge" or "gt"
        Whether a membrane of exactly zero fires ("ge"), as everywhere but in networks of some other libraries.

    Examples
    --------
    >>> import torch
    >>> from cvxsnn import LIFLayer, roll_out
    >>> layer = LIFLayer(torch.ones(1, 1, 1), bias=-1.5, decay=1.0, threshold=1.0)
    >>> roll_out([layer], torch.tensor([[[1.0], [2.0], [0.0]]]), "all").int().flatten().tolist()
    [0, 1, 0]

    A neuron that reads its input twice, now and two steps ago, and fires if both are one:

    >>> taps = dict(source=torch.tensor([[[0], [0]]]), delay=torch.tensor([[[0], [2]]]), n_sources=1)
    >>> layer = LIFLayer(torch.ones(1, 2, 1), bias=-2.0, decay=0.0, threshold=0.0, **taps)
    >>> roll_out([layer], torch.tensor([[[1.0], [1.0], [1.0], [0.0]]]), "all").int().flatten().tolist()
    [0, 0, 1, 0]
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

    @property
    def is_memoryless(self) -> bool:
        """Whether the spikes of a step depend on what is read at that step, and on no membrane or spike before."""
        return not bool(self.decay.any() or self.threshold.any())

    def initial_state(self, n_samples: int) -> LayerState:
        """Return a new state, as it is before the first step.

        Parameters
        ----------
        n_samples : int
            Number of sequences.

        Returns
        -------
        LayerState
            The initial membranes and spikes of each sequence.
        """
        shape = (self.n_subnetworks, n_samples, self.width)
        membrane, spikes = per_sample(self.initial_membrane), per_sample(self.initial_spikes)
        return LayerState(membrane.expand(shape).clone(), spikes.expand(shape).clone())

    def step(self, drive: Tensor, state: LayerState) -> None:
        """Advance a state by one step, in place.

        Parameters
        ----------
        drive : Tensor of shape (n_subnetworks, n_samples, width)
            The weighted input plus bias.
        state : LayerState
            The state, which is overwritten.
        """
        membrane, spikes = state.membrane, state.spikes
        lif_membrane(drive, membrane, spikes, per_sample(self.decay), per_sample(self.threshold), out=membrane)
        fire(membrane, self.tie, out=spikes)

    def scan(self, drive: Tensor, state: LayerState, spikes: Tensor | None = None) -> Tensor:
        """Advance through all steps, on a GPU in one kernel.

        Parameters
        ----------
        drive : Tensor of shape (n_subnetworks, n_steps, n_samples, width)
            The weighted input plus bias of every step.
        state : LayerState
            The state before the first step, which may be overwritten.
        spikes : Tensor of the shape of ``drive``, dtype bool, optional
            Where to write the spikes of every step; contiguous.

        Returns
        -------
        Tensor of shape (n_subnetworks, n_samples, width), dtype bool
            The spikes of the last step.
        """
        if can_scan(drive.device):
            return scan_lif(self, drive, state, spikes)
        return super().scan(drive, state, spikes)
