"""Adam: ``torch.optim.AdamW`` with clipped gradients."""

import torch
from torch import Tensor

from ..surrogate_settings import SurrogateSettings
from .networks import TrainableNetwork


class Adam:
    """AdamW with clipped gradients; only weights decay.

    Parameters
    ----------
    model : TrainableNetwork
        The network to train.
    settings : SurrogateSettings
        The learning rate, the weight decay and the largest norm of a gradient.
    readout_factor : float
        How much larger the steps of the read-out are than those of the hidden layers.
    """

    def __init__(self, model: TrainableNetwork, settings: SurrogateSettings, readout_factor: float) -> None:
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._parameters, self._clip_norm = list(named.values()), settings.clip_norm
        groups: dict[tuple[float, float], list[Tensor]] = {}
        for name, parameter in named.items():
            rate = settings.learning_rate * (readout_factor if name in ("weight", "intercept") else 1.0)
            decay = settings.weight_decay if name.endswith("weight") else 0.0
            groups.setdefault((rate, decay), []).append(parameter)
        self._rates = [rate for rate, _ in groups]
        self._adam = torch.optim.AdamW(
            [{"params": members, "lr": rate, "weight_decay": decay} for (rate, decay), members in groups.items()],
            fused=True,
        )
        # Made before the first step, so that a checkpoint can be read into it.
        for parameter in self._parameters:
            self._adam.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        self.first: dict[str, Tensor] = {name: self._adam.state[p]["exp_avg"] for name, p in named.items()}
        self.second: dict[str, Tensor] = {name: self._adam.state[p]["exp_avg_sq"] for name, p in named.items()}

    @property
    def n_steps(self) -> int:
        """Steps that were made."""
        return int(self._adam.state[self._parameters[0]]["step"])

    @n_steps.setter
    def n_steps(self, value: int) -> None:
        for parameter in self._parameters:
            self._adam.state[parameter]["step"].fill_(value)

    def step(self, share: float) -> None:
        """Move every parameter along its gradient, at this share of the learning rate, and drop the gradients."""
        torch.nn.utils.clip_grad_norm_(self._parameters, self._clip_norm)
        for group, rate in zip(self._adam.param_groups, self._rates, strict=True):
            group["lr"] = share * rate
        self._adam.step()
        self._adam.zero_grad()
