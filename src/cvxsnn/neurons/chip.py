"""Neurons of chips that compute with integers: what their layers have in common."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core.checks import check_int_at_least, check_positive_int
from ..core.errors import InvalidInputError
from .layer import HiddenLayer, LayerState, per_sample, tensor_names
from .lif import fire


@dataclass(frozen=True, eq=False)
class ChipLayer(HiddenLayer):
    """A layer of neurons whose weights, parameters and states are integers, as on a chip.

    Integers are held in float64, and every operation on them is exact. Derive a neuron model from this class, give it
    the ``limits`` of its parameters, and implement ``initial_others`` and ``advance``. Inputs are counts of spikes:
    whole numbers from 0 to ``max_count``.

    Parameters
    ----------
    weight : Tensor of shape (n_subnetworks, n_taps, width)
        The weights, as the chip stores them.
    bias : Tensor of shape (n_subnetworks, width) or scalar
        A constant current.
    initial_spikes : Tensor of shape (n_subnetworks, width) or scalar
        Zero: chips start from silence.
    weight_bits : int
        The precision in which weights are held, at least that of the chip.
    source : Tensor of shape (n_subnetworks, n_taps, width), dtype int32, optional
        The input that each tap reads.
    delay : Tensor of shape (n_subnetworks, n_taps, width), dtype int32, optional
        The delay of each tap in steps.
    n_sources : int, optional
        Number of inputs that taps can read.
    threshold : Tensor of shape (n_subnetworks, width) or scalar
        The threshold, in the units of the chip.
    max_count : int
        The most spikes of one input in one step; larger inputs are refused.
    weight_shift : int
        Bits by which all weights are shifted to the left.
    """

    threshold: Tensor = 1.0  # type: ignore[assignment]
    max_count: int = 15
    weight_shift: int = 0

    limits: ClassVar[Mapping[str, range]]
    """The values that each parameter can have on the chip."""
    threshold_unit: ClassVar[int] = 1
    """The unit of thresholds on the scale of membranes."""

    def __post_init__(self) -> None:
        """Bring weights to float64, whose integers are exact."""
        self._set("weight", self.weight.double())
        super().__post_init__()

    def _check_dynamics(self) -> None:
        check_positive_int("max_count", self.max_count)
        check_int_at_least("weight_shift", self.weight_shift, 0)
        for name in {*tensor_names(type(self))} & {*self.limits} - {"weight"}:
            self._expand(name)
        check_limits(self, self.limits, type(self).__name__)
        if bool(self.initial_spikes.any()):
            raise InvalidInputError(f"expected no initial_spikes, got some: {type(self).__name__} starts from silence")

    def check_inputs(self, inputs: Tensor) -> None:
        """Refuse inputs that are no counts of spikes.

        Parameters
        ----------
        inputs : Tensor
            The inputs.
        """
        wrong = inputs[(inputs != inputs.round()) | (inputs < 0) | (inputs > self.max_count)]
        if wrong.numel():
            raise InvalidInputError(
                f"expected counts of spikes, whole numbers from 0 to {self.max_count}, as inputs of a "
                f"{type(self).__name__}, got {wrong.flatten()[0]:g}: encode the data as counts, and pass "
                "standardize=False to an estimator"
            )

    @abstractmethod
    def initial_others(self, zeros: Tensor) -> tuple[Tensor, ...]:
        """Return the initial variables of the chip, which are zero.

        Parameters
        ----------
        zeros : Tensor of shape (n_subnetworks, n_samples, width)
            Zeros, to be copied.

        Returns
        -------
        tuple of Tensor
            The variables.
        """

    @abstractmethod
    def advance(self, arriving: Tensor, others: tuple[Tensor, ...]) -> Tensor:
        """Advance the variables of the chip by one step, in place.

        Parameters
        ----------
        arriving : Tensor of shape (n_subnetworks, n_samples, width)
            The sums of shifted weights of the spikes that arrive.
        others : tuple of Tensor
            The variables.

        Returns
        -------
        Tensor of shape (n_subnetworks, n_samples, width)
            By how much membranes exceed the least value that fires, before they are reset.
        """

    def initial_state(self, n_samples: int) -> LayerState:
        """Return a new state, as it is before the first step.

        Parameters
        ----------
        n_samples : int
            Number of sequences.

        Returns
        -------
        LayerState
            Silence.
        """
        zeros = self.weight.new_zeros(self.n_subnetworks, n_samples, self.width)
        return LayerState(zeros - per_sample(self.threshold), zeros.clone(), others=self.initial_others(zeros))

    def step(self, drive: Tensor, state: LayerState) -> None:
        """Advance a state by one step, in place.

        Parameters
        ----------
        drive : Tensor of shape (n_subnetworks, n_samples, width)
            The weighted input plus bias.
        state : LayerState
            The state, which is overwritten.
        """
        # Chips treat the bias apart from the synapses. Both are integers, so that the difference is exact.
        arriving = (drive - per_sample(self.bias)) * 2.0**self.weight_shift
        state.membrane.copy_(self.advance(arriving, state.others))
        fire(state.membrane, out=state.spikes)


def check_limits(layer: ChipLayer, limits: Mapping[str, range], owner: str) -> None:
    """Refuse parameters of a layer that a chip cannot have."""
    for name, limit in limits.items():
        values = torch.as_tensor(getattr(layer, name), dtype=torch.float64)
        is_valid = (values >= limit[0]) & (values <= limit[-1]) & ((values - limit[0]) % limit.step == 0)
        if not bool(is_valid.all()):
            kind = f"multiples of {limit.step}" if limit.step > 1 else "whole numbers"
            raise InvalidInputError(
                f"expected every {name} of {owner} among {kind} from {limit[0]} to {limit[-1]}, got "
                f"{values[~is_valid].flatten()[0]:g}"
            )
