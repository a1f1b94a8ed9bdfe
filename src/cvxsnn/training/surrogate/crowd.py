"""Many networks of one architecture that answer side by side, with exact spikes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...data.tasks import SequenceData, Task
from ...dictionary import Readout
from ...network.evaluation import accuracy
from ...network.spiking_network import NetworkState, OutputHead, SpikingNetwork, decide
from ...neurons import HiddenLayer, Stepper


@dataclass(frozen=True, eq=False)
class Crowd:
    """Networks whose subnetworks are stacked as if they belonged to one, each with its own read-out.

    Attributes
    ----------
    layers : sequence of HiddenLayer, of n_networks × n_subnetworks subnetworks
    weight : Tensor of shape (n_networks, n_read, n_outputs)
    intercept : Tensor of shape (n_networks, n_outputs)
    heads : tuple of OutputHead
    neurons : Tensor of shape (n_read,)
    readout : "last", "all" or "mean"
    """

    layers: Sequence[HiddenLayer]
    weight: Tensor
    intercept: Tensor
    heads: tuple[OutputHead, ...]
    neurons: Tensor
    readout: Readout

    def start(self, n_samples: int) -> NetworkState:
        """The state before the first step."""
        counts = self.weight.new_zeros(len(self.weight), n_samples, len(self.neurons), dtype=torch.float64)
        stepper = Stepper(self.layers)
        return NetworkState(stepper, stepper.start(n_samples), counts, 0)

    def step(self, state: NetworkState, inputs: Tensor) -> tuple[NetworkState, Tensor]:
        """Advance by one step of inputs (n_networks, n_samples, n_features), as :meth:`SpikingNetwork.step` does."""
        n_networks = len(self.weight)
        n_subnetworks = self.layers[0].n_subnetworks // n_networks
        layers, spikes = state.stepper.step_each(state.layers, inputs.repeat_interleave(n_subnetworks, 0))
        spikes = spikes.view(n_networks, n_subnetworks, *spikes.shape[1:]).transpose(1, 2).flatten(-2)
        features, n_steps, counts = spikes[..., self.neurons].to(torch.float64), state.n_steps + 1, state.counts
        if self.readout == "mean":
            counts = counts + features
            features = counts * (1.0 / n_steps)
        scores = features @ self.weight.double() + self.intercept.double()[:, None]
        return NetworkState(state.stepper, layers, counts, n_steps), scores


@dataclass(frozen=True, eq=False)
class TaskScore:
    """The score of a network: its accuracy on some data of a task."""

    task: Task
    data: SequenceData

    def __call__(self, network: SpikingNetwork) -> float:
        """The accuracy by which the task judges."""
        return accuracy(network, self.task, self.data)

    @property
    def shape(self) -> tuple[object, ...]:
        """Equal for scores that a crowd can be given side by side."""
        targets = tuple((head, values.shape) for head, values in self.data.heads.items())
        return (self.data.inputs.shape, targets, self.task.feedback)


@torch.no_grad()
def score_crowd(crowd: Crowd, scores: Sequence[TaskScore]) -> list[float]:
    """Every network's score by its own judge; these must be of one shape."""
    device = crowd.weight.device
    inputs = torch.stack([torch.from_numpy(score.data.inputs) for score in scores]).to(device)
    targets = {
        head: torch.stack([torch.from_numpy(score.data.heads[head]) for score in scores]).to(device)
        for head in scores[0].data.heads
    }
    feedback = scores[0].task.feedback
    n_samples, n_steps = inputs.shape[1:3]
    state, answers = crowd.start(n_samples), dict[str, Tensor]()
    right = []
    for step in range(n_steps):
        block = inputs[:, :, step].clone()
        if feedback is not None and step > 0:
            block[..., feedback.feature] = answers[feedback.head].to(block.dtype)
        state, outputs = crowd.step(state, block)
        answers = decide(crowd.heads, outputs)
        if all(values.ndim == 3 for values in targets.values()):
            right.append(torch.stack([answers[head] == y[:, :, step] for head, y in targets.items()]).all(0))
    if not right:
        right = [torch.stack([answers[head] == y for head, y in targets.items()]).all(0)]
    return torch.stack(right).double().mean((0, 2)).tolist()
