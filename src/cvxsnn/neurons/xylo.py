"""The leaky integrate-and-fire neuron of the chips Xylo, in integers."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..core.checks import check_choice
from ..core.errors import InvalidInputError
from .chip import ChipLayer
from .layer import per_sample

_LOWEST = -(2.0**15)
_LARGEST = 2.0**15 - 1
"""States have 16 bits and saturate."""

_MOST_SPIKES = 31
"""The most spikes of a hidden neuron in one step."""

Core = Literal["v1", "v2"]


def shift_decay(value: Tensor, bits: Tensor) -> Tensor:
    """Return by how much integers decay: shifted to the right by some bits, and at least one towards zero."""
    shifted = torch.floor(value * torch.exp2(-bits))
    return torch.where(shifted == 0, value.sign(), shifted)


@dataclass(frozen=True, eq=False)
class XyloLayer(ChipLayer):
    r"""A hidden layer of neurons of Xylo, as ``xylosim`` computes them.

    .. math::
        i &\leftarrow i + 2^s \sum_j w_j x_j, \qquad i \leftarrow i - \delta(i, d_i) \\
        v &\leftarrow v - \delta(v, d_v) + i + b

    with weights :math:`w`, inputs :math:`x`, ``weight_shift`` :math:`s`, ``bias`` :math:`b`, ``synapse_decay``
    :math:`d_i`, ``membrane_decay`` :math:`d_v` and :math:`\delta(x, d) = \lfloor x / 2^d \rfloor`, or the sign of x
    where that is zero. Membranes saturate at 16 bits; with "v2" so does the sum of leak and current, and that with the
    bias. A neuron fires if v is at least ``threshold``, up to 31 times in one step, and each time the threshold is
    subtracted. Several spikes of one step are read as one.

    The chip adds spikes to i one by one and saturates each time, so that the result could depend on their order.
    Weights that could make i saturate are therefore refused.

    Parameters
    ----------
    weight : Tensor of shape (n_subnetworks, n_taps, width)
        The weights: integers of 8 bits.
    bias : Tensor of shape (n_subnetworks, width) or scalar
        A constant current: an integer of 8 bits; zero for "v1".
    initial_spikes : Tensor of shape (n_subnetworks, width) or scalar
        Zero: chips start from silence.
    weight_bits : int
        The precision in which weights are held.
    source : Tensor of shape (n_subnetworks, n_taps, width), dtype int32, optional
        The input that each tap reads.
    delay : Tensor of shape (n_subnetworks, n_taps, width), dtype int32, optional
        Zeros: Xylo has no delays.
    n_sources : int, optional
        Number of inputs that taps can read.
    threshold : Tensor of shape (n_subnetworks, width) or scalar
        The threshold: a positive integer of 16 bits.
    max_count : int
        The most spikes of one input in one step, at most 15; larger inputs are refused.
    weight_shift : int
        Bits by which all weights are shifted to the left, at most 7.
    synapse_decay : Tensor of shape (n_subnetworks, width) or scalar
        Bits of the decay of i, from 0, which erases it, to 15.
    membrane_decay : Tensor of shape (n_subnetworks, width) or scalar
        Bits of the decay of v, from 0 to 15.
    core : "v1" or "v2"
        The version of the chip: "v1" is that of Xylo Audio 2, "v2" that of Xylo IMU and Audio 3.

    Examples
    --------
    >>> import torch
    >>> from cvxsnn import roll_out
    >>> from cvxsnn.neurons import XyloLayer
    >>> layer = XyloLayer(torch.full((1, 1, 1), 100.0), threshold=60, synapse_decay=1, membrane_decay=2)
    >>> roll_out([layer], torch.tensor([[[1], [0], [0], [0]]]), "all").int().flatten().tolist()
    [0, 1, 0, 0]
    """

    synapse_decay: Tensor = 1.0  # type: ignore[assignment]
    membrane_decay: Tensor = 4.0  # type: ignore[assignment]
    core: Core = "v2"

    limits = {  # noqa: RUF012  # a ClassVar of the base
        "weight": range(-128, 128),
        "bias": range(-128, 128),
        "threshold": range(1, 2**15),
        "weight_shift": range(8),
        "max_count": range(1, 16),
        "synapse_decay": range(16),
        "membrane_decay": range(16),
    }

    def _check_dynamics(self) -> None:
        super()._check_dynamics()
        check_choice("core", self.core, ("v1", "v2"))
        if self.core == "v1" and bool(((self.bias != 0) & (self.weight != 0).any(1)).any()):
            raise InvalidInputError("expected no bias with core='v1', got some: Xylo Audio 2 has none")
        if self.max_delay:
            raise InvalidInputError(f"expected taps without delays, got {self.max_delay} steps: Xylo has none")
        largest = self.largest_current
        if bool((largest > _LARGEST).any()):
            raise InvalidInputError(
                f"expected weights whose currents stay within 16 bits for {self.max_count} spikes per input and step, "
                f"got currents of up to {largest.max():.0f}: lower weights, weight_shift, synapse_decay or max_count"
            )

    @property
    def largest_current(self) -> Tensor:
        """The largest current that any inputs can cause, (n_subnetworks, width)."""
        # Let D be the largest sum of one step. A current of at most (D + 1)·2^d - 1 before it decays loses at least D
        # if it is that large, and so never exceeds that; negative ones decay by as much or more.
        of_sign = torch.maximum(self.weight.clamp(min=0).sum(1), (-self.weight).clamp(min=0).sum(1))
        return (of_sign * self.max_count * 2.0**self.weight_shift + 1) * torch.exp2(self.synapse_decay) - 1

    def initial_others(self, zeros: Tensor) -> tuple[Tensor, ...]:
        """Return the initial currents and membranes."""
        return zeros.clone(), zeros.clone()

    def advance(self, arriving: Tensor, others: tuple[Tensor, ...]) -> Tensor:
        """Advance currents and membranes by one step, in place."""
        current, voltage = others
        current.add_(arriving)
        current.sub_(shift_decay(current, per_sample(self.synapse_decay)))
        leak = shift_decay(voltage, per_sample(self.membrane_decay))
        if self.core == "v1":
            voltage.sub_(leak).add_(current)
        else:
            # The only negation that overflows: that of -2**15, whose leak is all of it if membrane_decay is zero.
            change = torch.where(leak == _LOWEST, _LOWEST, -leak).add_(current).clamp_(_LOWEST, _LARGEST)
            voltage.add_(change.add_(per_sample(self.bias)).clamp_(_LOWEST, _LARGEST))
        voltage.clamp_(_LOWEST, _LARGEST)
        threshold = per_sample(self.threshold)
        excess = voltage - threshold
        voltage.sub_(threshold * torch.floor(voltage / threshold).clamp_(0, _MOST_SPIKES))
        return excess
