"""The threshold layer with dense recurrence and its equation."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..core.errors import InvalidInputError
from .exact import ScratchArrays, exact_product, product_dtype, snap_weights, weight_levels
from .layer import HiddenLayer, LayerState, per_sample
from .lif import fire


def threshold_membrane(drive: Tensor, feedback: Tensor, out: Tensor | None = None) -> Tensor:
    r"""Return the pre-activation of a recurrent threshold layer, which stands for its membrane.

    .. math::
        H^t = 1\{I^t + H^{t-1} P_{rec} \ge 0\}

    with drive :math:`I^t` and ``feedback`` :math:`H^{t-1} P_{rec}`.
    """
    return torch.add(drive, feedback, out=out)


@dataclass(frozen=True, eq=False)
class ThresholdLayer(HiddenLayer):
    """A hidden layer of threshold neurons with dense recurrence.

    On sequences of one step from silent initial spikes this is the layer of a feedforward threshold network: the
    recurrent weights then have nothing to read.

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
    recurrent_weight : Tensor of shape (n_subnetworks, width, width), optional
        The weights within the layer: ``[k, i, j]`` leads from neuron i to neuron j. None is no recurrence.

    Examples
    --------
    A neuron that reads its own last spike remembers that it ever fired.

    >>> import torch
    >>> from cvxsnn import ThresholdLayer, roll_out
    >>> layer = ThresholdLayer(torch.ones(1, 1, 1), bias=-1.0, recurrent_weight=torch.ones(1, 1, 1))
    >>> roll_out([layer], torch.tensor([[[0.0], [1.0], [0.0], [0.0]]]), "all").int().flatten().tolist()
    [0, 1, 1, 1]
    """

    recurrent_weight: Tensor = None  # type: ignore[assignment]  # __post_init__ makes it zeros

    def _check_dynamics(self) -> None:
        shape = (self.n_subnetworks, self.width, self.width)
        recurrent = self.weight.new_zeros(shape) if self.recurrent_weight is None else self.recurrent_weight
        if tuple(recurrent.shape) != shape or not bool(torch.isfinite(recurrent).all()):
            raise InvalidInputError(
                f"expected finite recurrent weights of shape {shape}, got shape {tuple(recurrent.shape)}"
            )
        recurrent = recurrent.detach().to(self.weight.device, self.weight.dtype)
        self._set("recurrent_weight", snap_weights(recurrent, self.weight_bits))

    @cached_property
    def _recurrent_levels(self) -> float:
        return weight_levels(self.recurrent_weight, self.weight_bits)

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
        spikes = per_sample(self.initial_spikes).expand(shape).clone()
        return LayerState(torch.zeros_like(spikes), spikes)

    def step(self, drive: Tensor, state: LayerState) -> None:
        """Advance a state by one step, in place.

        Parameters
        ----------
        drive : Tensor of shape (n_subnetworks, n_samples, width)
            The weighted input plus bias.
        state : LayerState
            The state, which is overwritten.
        """
        # Spikes of the layer itself are read in the same exact arithmetic as those of the layer below.
        weight = self.recurrent_weight.to(product_dtype(self._recurrent_levels, 1.0))
        feedback = torch.empty_like(drive)
        exact_product(state.spikes.to(weight.dtype), weight, feedback, ScratchArrays())
        threshold_membrane(drive, feedback, out=state.membrane)
        fire(state.membrane, out=state.spikes)
