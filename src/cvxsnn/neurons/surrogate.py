"""Layers that can be trained: the usual spikes, with a surrogate derivative in place of the missing one."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .layer import HiddenLayer, per_sample
from .lif import LIFLayer, Tie, fire, lif_membrane
from .taps import lift, lifted_weight, read_taps
from .threshold import threshold_membrane

Surrogate = Literal["sigmoid", "fast_sigmoid", "arctan"]

SURROGATES: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": lambda u: torch.sigmoid(u) * torch.sigmoid(-u),
    "fast_sigmoid": lambda u: 1 / (1 + u.abs()).square(),
    "arctan": lambda u: 1 / (1 + (0.5 * math.pi * u).square()),
}
"""Derivatives to use for that of 1{u ≥ 0}, up to a factor."""


class _LIFScan(torch.autograd.Function):
    """All steps of a LIF layer; the derivative of the recursion is taken by hand, which is several times faster."""

    @staticmethod
    def forward(
        ctx: Any,
        drive: Tensor,
        decay: Tensor,
        reset: Tensor,
        initial: tuple[Tensor, Tensor],
        tie: Tie,
        slope: Callable[[Tensor], Tensor],
    ) -> Tensor:
        membranes, spikes = torch.empty_like(drive), torch.empty_like(drive)
        membrane, spike = (per_sample(value).expand_as(drive[:, 0]) for value in initial)
        ctx.save_for_backward(membranes, spikes, decay, membrane, spike)
        ctx.slope = slope
        leak, jump = per_sample(decay), per_sample(reset)
        for t in range(drive.shape[1]):
            membrane = lif_membrane(drive[:, t], membrane, spike, leak, jump, out=membranes[:, t])
            spike = fire(membrane, tie, out=spikes[:, t])
        return spikes

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, None, None, None]:
        membranes, spikes, decay, first_membrane, first_spikes = ctx.saved_tensors
        slopes = ctx.slope(membranes)
        grad_drive = torch.empty_like(grad)
        leak = per_sample(decay)
        # The gradient does not pass through the reset, as is usual: only through the leak and the surrogate.
        later = torch.zeros_like(grad[:, 0])
        for t in range(grad.shape[1] - 1, -1, -1):
            later = torch.mul(later, leak, out=grad_drive[:, t]).addcmul_(grad[:, t], slopes[:, t])

        def against(values: Tensor, first: Tensor) -> Tensor:
            """Return the sum over steps and samples of the gradient times the value at the step before."""
            return (grad_drive[:, 1:] * values[:, :-1]).sum((1, 2)) + (grad_drive[:, 0] * first).sum(1)

        grad_decay = against(membranes, first_membrane) if ctx.needs_input_grad[1] else None
        grad_reset = -against(spikes, first_spikes) if ctx.needs_input_grad[2] else None
        return grad_drive, grad_decay, grad_reset, None, None, None


class _Spike(torch.autograd.Function):
    """``1{u ≥ 0}`` with a surrogate derivative."""

    @staticmethod
    def forward(ctx: Any, membrane: Tensor, slope: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(membrane)
        ctx.slope = slope
        return fire(membrane)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (membrane,) = ctx.saved_tensors
        return grad * ctx.slope(membrane), None


class TrainableLayer(nn.Module, ABC):
    """A hidden layer with gradients.

    Parameters
    ----------
    layer : HiddenLayer
        Where training starts.
    slope : function
        The surrogate derivative.
    dynamics : collection of str
        Which of the per-neuron parameters are trained beside the weights. Sources and delays of taps stay as they are.
    """

    weight: nn.Parameter
    bias: nn.Parameter
    initial_spikes: nn.Parameter

    def __init__(self, layer: HiddenLayer, slope: Callable[[Tensor], Tensor], dynamics: frozenset[str]) -> None:
        super().__init__()
        self._layer, self._slope = layer, slope
        for name, value in layer.tensors().items():
            is_trained = value.is_floating_point() and (name.endswith("weight") or name in dynamics)
            self.register_parameter(name, nn.Parameter(value.clone(), requires_grad=is_trained))

    def forward(self, block: Tensor) -> Tensor:
        """Return spikes (n_subnetworks, n_steps, n_samples, width) for (n_steps, n_samples, n_inputs) or K of those."""
        weight: Tensor = self.weight
        layer = self._layer
        # With few taps, gathering their values takes less memory than a lifted input.
        if layer.has_delays and layer.n_taps * layer.width < layer.n_lifted:
            read = read_taps(layer, block)
            return self.scan((read * weight[:, None, None]).sum(-2) + self.bias[:, None, None])
        if layer.has_delays:
            block, weight = lift(block, layer.max_delay), lifted_weight(layer, weight)
        drive = block.flatten(-3, -2) @ weight + per_sample(self.bias)
        return self.scan(drive.view(len(drive), *block.shape[-3:-1], -1))

    @abstractmethod
    def scan(self, drive: Tensor) -> Tensor:
        """Return the spikes for weighted inputs of shape (n_subnetworks, n_steps, n_samples, width)."""

    @torch.no_grad()
    def project(self) -> None:
        """Bring parameters that a gradient step has moved out of their range back into it."""

    def freeze(self) -> HiddenLayer:
        """Return the layer as it is now, with exact spikes."""
        return self._layer.with_tensors({name: value.detach().clone() for name, value in self.named_parameters()})


class TrainableLIF(TrainableLayer):
    """LIF neurons with gradients."""

    _layer: LIFLayer
    decay: nn.Parameter
    threshold: nn.Parameter
    initial_membrane: nn.Parameter

    def scan(self, drive: Tensor) -> Tensor:
        """Return the spikes for weighted inputs of shape (n_subnetworks, n_steps, n_samples, width)."""
        initial, tie = (self.initial_membrane, self.initial_spikes), self._layer.tie
        spikes: Tensor = _LIFScan.apply(drive, self.decay, self.threshold, initial, tie, self._slope)  # type: ignore[no-untyped-call]
        return spikes

    @torch.no_grad()
    def project(self) -> None:
        """Clip decays to [0, 1] and thresholds to at least 0."""
        self.decay.clamp_(0, 1)
        self.threshold.clamp_(min=0)


class TrainableThreshold(TrainableLayer):
    """Recurrent threshold neurons with gradients."""

    recurrent_weight: nn.Parameter

    def scan(self, drive: Tensor) -> Tensor:
        """Return the spikes for weighted inputs of shape (n_subnetworks, n_steps, n_samples, width)."""
        spikes = per_sample(self.initial_spikes).expand_as(drive[:, 0])
        steps = []
        for t in range(drive.shape[1]):
            membrane = threshold_membrane(drive[:, t], spikes @ self.recurrent_weight)
            spikes = _Spike.apply(membrane, self._slope)  # type: ignore[no-untyped-call]
            steps.append(spikes)
        return torch.stack(steps, dim=1)


def surrogate_slope(surrogate: Surrogate, steepness: float | Tensor, like: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a surrogate derivative whose width is divided by ``steepness``: one number, or one per subnetwork."""
    derivative = SURROGATES[surrogate]
    steep = torch.as_tensor(steepness, dtype=like.dtype, device=like.device)
    return lambda membrane: derivative(membrane * steep.view(-1, *[1] * (membrane.ndim - 1)))
