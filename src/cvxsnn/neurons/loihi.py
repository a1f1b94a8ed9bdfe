"""The leaky integrate-and-fire neuron of the chip Loihi, in integers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .chip import ChipLayer
from .layer import per_sample

_LARGEST = 2.0**23 - 1
"""The largest membrane, which has 24 bits."""


def wrap(value: Tensor, bits: int) -> Tensor:
    """Return integers as they overflow in two's complement, with ``bits`` bits and a sign."""
    period = 2.0 ** (bits + 1)
    return value - period * torch.floor((value + period / 2) / period)


@dataclass(frozen=True, eq=False)
class LoihiLayer(ChipLayer):
    r"""A hidden layer of neurons of Loihi, as its emulator in ``nengo-loihi`` computes them.

    .. math::
        q &= \mathrm{wrap}_{22}\bigl(2^{6 + s} \sum_j w_j x_j\bigr) \\
        u &\leftarrow \mathrm{wrap}_{24}\bigl(\lfloor u\,(4095 - d_u) / 4096 \rceil_0 + q\bigr) \\
        v &\leftarrow \mathrm{clip}\bigl(\lfloor v\,(4096 - d_v) / 4096 \rceil_0 + \mathrm{wrap}_{24}(u + b)\bigr)

    with weights :math:`w`, inputs :math:`x`, ``weight_shift`` :math:`s`, ``current_decay`` :math:`d_u`,
    ``voltage_decay`` :math:`d_v` and ``bias`` :math:`b`. Brackets round towards zero, wrap keeps the lowest bits, and
    clip limits a membrane to ±(2²³ − 1). A neuron fires if :math:`v > 64\,\theta` with ``threshold`` :math:`\theta`.
    Its membrane is then zero until the step that follows the spike by ``refractory`` steps.

    Parameters
    ----------
    weight : Tensor of shape (n_subnetworks, n_taps, width)
        The weights: even numbers from -256 to 254.
    bias : Tensor of shape (n_subnetworks, width) or scalar
        A constant current: an integer of 13 bits.
    initial_spikes : Tensor of shape (n_subnetworks, width) or scalar
        Zero: chips start from silence.
    weight_bits : int
        The precision in which weights are held.
    source : Tensor of shape (n_subnetworks, n_taps, width), dtype int32, optional
        The input that each tap reads.
    delay : Tensor of shape (n_subnetworks, n_taps, width), dtype int32, optional
        The delay of each tap in steps.
    n_sources : int, optional
        Number of inputs that taps can read.
    threshold : Tensor of shape (n_subnetworks, width) or scalar
        The threshold, an integer of 17 bits, in units of 64.
    max_count : int
        The most spikes of one input in one step; larger inputs are refused.
    weight_shift : int
        Bits by which all weights are shifted to the left, at most 7.
    current_decay : Tensor of shape (n_subnetworks, width) or scalar
        Decay of the current, from 0 to 4095, which erases it.
    voltage_decay : Tensor of shape (n_subnetworks, width) or scalar
        Decay of the membrane, from 0 to 4095.
    refractory : Tensor of shape (n_subnetworks, width) or scalar
        Steps from a spike to the first step at which the membrane moves again, from 1 to 63.

    Examples
    --------
    >>> import torch
    >>> from cvxsnn import roll_out
    >>> from cvxsnn.neurons import LoihiLayer
    >>> layer = LoihiLayer(torch.full((1, 1, 1), 100.0), threshold=150, voltage_decay=0)
    >>> roll_out([layer], torch.tensor([[[1], [1], [0], [2]]]), "all").int().flatten().tolist()
    [0, 1, 0, 1]
    """

    max_count: int = 255
    current_decay: Tensor = 4095.0  # type: ignore[assignment]
    voltage_decay: Tensor = 128.0  # type: ignore[assignment]
    refractory: Tensor = 1.0  # type: ignore[assignment]

    limits = {  # noqa: RUF012  # a ClassVar of the base
        "weight": range(-256, 256, 2),
        "bias": range(-4095, 4096),
        "threshold": range(1, 2**17),
        "weight_shift": range(8),
        "current_decay": range(4096),
        "voltage_decay": range(4096),
        "refractory": range(1, 64),
    }

    threshold_unit = 64

    def initial_others(self, zeros: Tensor) -> tuple[Tensor, ...]:
        """Return the initial currents, membranes and steps left to wait."""
        return zeros.clone(), zeros.clone(), zeros.clone()

    def advance(self, arriving: Tensor, others: tuple[Tensor, ...]) -> Tensor:
        """Advance currents, membranes and steps left to wait by one step, in place."""
        current, voltage, waiting = others
        # All products are integers below 2**36 times a power of two, exact in float64.
        current.mul_(4095 - per_sample(self.current_decay)).div_(4096).trunc_()
        current.copy_(wrap(current.add_(wrap(64 * arriving, 21)), 23))
        voltage.mul_(4096 - per_sample(self.voltage_decay)).div_(4096).trunc_()
        voltage.add_(wrap(current + per_sample(self.bias), 23)).clamp_(-_LARGEST, _LARGEST)
        voltage.masked_fill_(waiting > 0, 0)
        excess = voltage - (self.threshold_unit * per_sample(self.threshold) + 1)
        fires = excess >= 0
        voltage.masked_fill_(fires, 0)
        waiting.copy_(torch.where(fires, per_sample(self.refractory), waiting).sub_(1).clamp_(min=0))
        return excess
