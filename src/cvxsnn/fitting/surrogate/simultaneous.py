"""Networks of one architecture that are evaluated simultaneously, with exact spikes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...dictionary import Readout
from ...network.spiking_network import NetworkState, OutputHead, decide
from ...neurons import HiddenLayer, Stepper
from ..scores import TaskScore


@dataclass(frozen=True, eq=False)
class SimultaneousNetworks:
    """Networks whose subnetworks are stacked as if they belonged to one network, each with its own read-out.

    Parameters
    ----------
    layers : sequence of HiddenLayer
        The layers of n_networks × n_subnetworks subnetworks.
    weight : Tensor of shape (n_networks, n_read, n_outputs)
        The output weights.
    intercept : Tensor of shape (n_networks, n_outputs)
        The intercepts.
    heads : tuple of OutputHead
        The heads, which the networks have in common.
    readout : "last", "all", "mean" or "windows-k"
        What is read of the spikes.
    neurons : Tensor of shape (n_read,)
        The neurons of each network that are read.
    windows_read : Tensor of shape (n_read,), optional
        The window in which each is read.
    """

    layers: Sequence[HiddenLayer]
    weight: Tensor
    intercept: Tensor
    heads: tuple[OutputHead, ...]
    readout: Readout
    neurons: Tensor
    windows_read: Tensor | None = None

    def start(self, n_samples: int, n_steps: int) -> NetworkState:
        """Return the state before the first of ``n_steps`` steps."""
        counts = self.weight.new_zeros(len(self.weight), n_samples, len(self.neurons), dtype=torch.float64)
        return NetworkState.before(Stepper(self.layers), n_samples, counts, self.readout, n_steps)

    def step(self, state: NetworkState, inputs: Tensor) -> tuple[NetworkState, Tensor]:
        """Advance by one step of inputs (n_networks, n_samples, n_features), as :meth:`SpikingNetwork.step` does."""
        n_networks = len(self.weight)
        n_subnetworks = self.layers[0].n_subnetworks // n_networks
        layers, spikes = state.stepper.step_each(state.layers, inputs.repeat_interleave(n_subnetworks, 0))
        spikes = spikes.view(n_networks, n_subnetworks, *spikes.shape[1:]).transpose(1, 2).flatten(-2)
        read = spikes[..., self.neurons].to(torch.float64)
        state, features = state.after(layers, read, self.readout, self.windows_read)
        return state, features @ self.weight.double() + self.intercept.double()[:, None]


@torch.no_grad()
def score_simultaneously(networks: SimultaneousNetworks, scores: Sequence[TaskScore]) -> list[float]:
    """Return each network's score by its own function; these must be of one shape."""
    device = networks.weight.device
    inputs = torch.stack([torch.from_numpy(score.data.inputs) for score in scores]).to(device)
    targets = {
        head: torch.stack([torch.from_numpy(score.data.heads[head]) for score in scores]).to(device)
        for head in scores[0].data.heads
    }
    feedback = scores[0].task.feedback
    n_samples, n_steps = inputs.shape[1:3]
    state, answers = networks.start(n_samples, n_steps), dict[str, Tensor]()
    right = []
    for step in range(n_steps):
        block = inputs[:, :, step].clone()
        if feedback is not None and step > 0:
            block[..., feedback.feature] = answers[feedback.head].to(block.dtype)
        state, outputs = networks.step(state, block)
        answers = decide(networks.heads, outputs)
        if all(values.ndim == 3 for values in targets.values()):
            right.append(torch.stack([answers[head] == y[:, :, step] for head, y in targets.items()]).all(0))
    if not right:
        right = [torch.stack([answers[head] == y for head, y in targets.items()]).all(0)]
    return torch.stack(right).double().mean((0, 2)).tolist()
