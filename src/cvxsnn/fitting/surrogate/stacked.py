"""Adam for several networks that train side by side, each with its own settings."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..surrogate_settings import SurrogateSettings
from .networks import TrainableNetworks

_FIRST_MOMENT = 0.9
_SECOND_MOMENT = 0.999
_EPSILON = 1e-8


class StackedAdam:
    """AdamW with clipped gradients, as :class:`cvxsnn.fitting.surrogate.single.SingleAdam` for each network.

    Parameters
    ----------
    model : TrainableNetworks
        The networks to train.
    settings : sequence of SurrogateSettings
        The settings of each network.
    readout_factors : sequence of float
        How much larger the steps of each network's read-out are than those of its hidden layers.
    """

    def __init__(
        self, model: TrainableNetworks, settings: Sequence[SurrogateSettings], readout_factors: Sequence[float]
    ) -> None:
        like = model.weight

        def column(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]

        self._n_networks = model.n_networks
        self._decays = any(member.weight_decay for member in settings)
        self._rate = column([member.learning_rate for member in settings])
        self._weight_decay = column([member.weight_decay for member in settings])
        self._clip_norm = column([member.clip_norm for member in settings])
        self._readout_factor = column(readout_factors)
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.first = {name: torch.zeros_like(p) for name, p in self._parameters.items()}
        self.second = {name: torch.zeros_like(p) for name, p in self._parameters.items()}
        self.n_steps = 0

    @torch.no_grad()
    def step(self, share: float) -> None:
        """Move every parameter along its gradient, at this share of the learning rate, and drop the gradients."""
        self.n_steps += 1
        grads = {n: self._rows(torch.zeros_like(p) if p.grad is None else p.grad) for n, p in self._parameters.items()}
        squares = torch.stack([grad.square().sum(1) for grad in grads.values()]).sum(0)
        # The same 1e-6 as in torch.nn.utils.clip_grad_norm_, so that a network trains alike alone and beside others.
        shrink = (self._clip_norm / (squares.sqrt()[:, None] + 1e-6)).clamp_max(1.0)
        for name, parameter in self._parameters.items():
            grad, rows = grads[name] * shrink, self._rows(parameter)
            is_readout = name in ("weight", "intercept")
            rate = share * self._rate * self._readout_factor if is_readout else share * self._rate
            if name.endswith("weight") and self._decays:
                # Before the step, as torch.optim.AdamW decays.
                rows.mul_(1 - rate * self._weight_decay)
            first = self._rows(self.first[name]).lerp_(grad, 1 - _FIRST_MOMENT)
            second = self._rows(self.second[name]).mul_(_SECOND_MOMENT).addcmul_(grad, grad, value=1 - _SECOND_MOMENT)
            # Moments start at zero; the divisors undo that bias.
            spread = (second / (1 - _SECOND_MOMENT**self.n_steps)).sqrt_().add_(_EPSILON)
            rows.sub_(rate * first / spread / (1 - _FIRST_MOMENT**self.n_steps))
            parameter.grad = None

    def _rows(self, value: Tensor) -> Tensor:
        """Return one row for each network."""
        return value.view(self._n_networks, -1)
