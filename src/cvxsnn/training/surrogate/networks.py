"""Several spiking networks with surrogate gradients, trained side by side."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...core.errors import InvalidInputError
from ...network.spiking_network import SpikingNetwork
from ...neurons.layer import stack_layers
from ...neurons.registry import make_trainable
from ...neurons.surrogate import Surrogate, TrainableLayer
from .crowd import Crowd
from .dropout import Dropout

_FIRST_MOMENT, _SECOND_MOMENT, _EPSILON = 0.9, 0.999, 1e-8


class TrainableNetworks(nn.Module):
    """Networks of one architecture, in the arithmetic of the layers they start from.

    Their subnetworks are stacked as if they belonged to one network, so that they share every product and every step;
    nothing else is shared, and each has its own read-out.

    Parameters
    ----------
    networks : sequence of SpikingNetwork
    surrogate : name of the surrogate derivative
    steepness : sequence of float, one a network
    dynamics : names of the per-neuron parameters to train beside the weights
    """

    _neurons: Tensor

    def __init__(
        self,
        networks: Sequence[SpikingNetwork],
        surrogate: Surrogate,
        steepness: Sequence[float],
        dynamics: frozenset[str],
    ) -> None:
        super().__init__()
        first = networks[0]
        for other in networks[1:]:
            same = (other.n_subnetworks, other.hidden, other.heads, other.readout, other.n_features)
            if same != (first.n_subnetworks, first.hidden, first.heads, first.readout, first.n_features):
                raise InvalidInputError("expected networks of one architecture to train side by side, got several")
            if not torch.equal(other.neurons, first.neurons):
                raise InvalidInputError("expected networks that read the same neurons to train side by side")
        self._heads, self._readout = first.heads, first.readout
        self.n_networks, self._n_subnetworks = len(networks), first.n_subnetworks
        self.register_buffer("_neurons", first.neurons.clone(), persistent=False)
        n_neurons = first.n_subnetworks * first.hidden[-1]
        self._reads_all = first.neurons.tolist() == list(range(n_neurons))
        steep = torch.tensor(steepness, device=first.weight.device).repeat_interleave(first.n_subnetworks)
        self.layers = nn.ModuleList(
            make_trainable(stack_layers([network.layers[depth] for network in networks]), surrogate, steep, dynamics)
            for depth in range(len(first.layers))
        )
        dtype = first.layers[0].weight.dtype
        self.weight = nn.Parameter(torch.stack([network.weight.detach() for network in networks]).to(dtype))
        self.intercept = nn.Parameter(torch.stack([network.intercept.detach() for network in networks]).to(dtype))

    def forward(self, inputs: Tensor, lengths: Tensor | None = None, dropout: Dropout | None = None) -> Tensor:
        """Scores (n_networks, n_samples, n_outputs), with n_steps before the outputs where every step is read.

        Parameters
        ----------
        inputs : Tensor of shape (n_networks, n_samples, n_steps, n_features)
            Of the networks' dtype, on the grid of inputs.
        lengths : Tensor of shape (n_networks, n_samples), optional
        dropout : Dropout, optional
        """
        block = inputs.transpose(1, 2)
        block = block if dropout is None else dropout.hide(block, 0)
        block = block[0] if len(block) == 1 else block.repeat_interleave(self._n_subnetworks, 0)
        for depth, layer in enumerate(self.layers, 1):
            block = layer(block)
            block = block if dropout is None else dropout.hide(block, depth)
        spikes = block.view(self.n_networks, self._n_subnetworks, *block.shape[1:]).permute(0, 3, 2, 1, 4)
        features = self._read(spikes, lengths)
        flat = features.reshape(self.n_networks, -1, features.shape[-2] * features.shape[-1])
        scores = (flat if self._reads_all else flat[..., self._neurons]) @ self.weight + self.intercept[:, None]
        return scores.view(*features.shape[:-2], -1)

    def _read(self, spikes: Tensor, lengths: Tensor | None) -> Tensor:
        """What the read-out sees of spikes (n_networks, n_samples, n_steps, n_subnetworks, width)."""
        n_networks, n_samples, n_steps = spikes.shape[:3]
        if self._readout == "all":
            return spikes
        if self._readout == "last":
            if lengths is None:
                return spikes[:, :, -1]
            return spikes[torch.arange(n_networks)[:, None], torch.arange(n_samples), lengths - 1]
        if lengths is None:
            return spikes.mean(2)
        inside = torch.arange(n_steps, device=spikes.device) < lengths[..., None]
        return (spikes * inside[..., None, None]).sum(2) / lengths[..., None, None]

    def crowd(self) -> Crowd:
        """The networks as they are now, with exact spikes."""
        layers = [layer.freeze() for layer in self._trained_layers()]
        weight, intercept = self.weight.detach(), self.intercept.detach()
        return Crowd(layers, weight, intercept, self._heads, self._neurons, self._readout)

    def freeze(self, number: int) -> SpikingNetwork:
        """One of the networks as it is now, with exact spikes."""
        own = slice(number * self._n_subnetworks, (number + 1) * self._n_subnetworks)
        layers = [layer.freeze().take(own) for layer in self._trained_layers()]
        weight, intercept = self.weight[number].detach(), self.intercept[number].detach()
        return SpikingNetwork(layers, weight, self._heads, intercept, self._neurons, self._readout)

    def project(self) -> None:
        """Bring parameters that a step has moved out of their range back into it."""
        for layer in self._trained_layers():
            layer.project()

    def _trained_layers(self) -> list[TrainableLayer]:
        return [layer for layer in self.layers if isinstance(layer, TrainableLayer)]


class Adam:
    """Adam with decoupled weight decay and clipped gradients, with settings of its own for each network.

    Parameters
    ----------
    networks : TrainableNetworks
    weight_decay, clip_norm : sequence of float, one a network
    readout_steps : sequence of float, one a network
        By how much steps of the read-out are larger than those of the hidden layers.
    """

    def __init__(
        self,
        networks: TrainableNetworks,
        weight_decay: Sequence[float],
        clip_norm: Sequence[float],
        readout_steps: Sequence[float],
    ) -> None:
        like = networks.weight
        self._n_networks, self._decays = networks.n_networks, any(weight_decay)
        self._weight_decay, self._clip_norm, self._readout_steps = (
            torch.tensor(values, dtype=like.dtype, device=like.device)
            for values in (list(weight_decay), list(clip_norm), list(readout_steps))
        )
        self.parameters = {name: p for name, p in networks.named_parameters() if p.requires_grad}
        self.first = {name: torch.zeros_like(p) for name, p in self.parameters.items()}
        self.second = {name: torch.zeros_like(p) for name, p in self.parameters.items()}
        self.n_steps = 0

    @torch.no_grad()
    def step(self, learning_rates: Tensor) -> None:
        """Move every parameter along its gradient, then drop the gradients; one rate a network."""
        self.n_steps += 1
        grads = {n: self._rows(torch.zeros_like(p) if p.grad is None else p.grad) for n, p in self.parameters.items()}
        squares = torch.stack([grad.square().sum(1) for grad in grads.values()]).sum(0)
        shrink = (self._clip_norm / (squares.sqrt() + 1e-6)).clamp_max(1.0)[:, None]
        for name, parameter in self.parameters.items():
            grad, own = grads[name] * shrink, self._rows(parameter)
            is_readout = name in ("weight", "intercept")
            rate = (learning_rates * self._readout_steps if is_readout else learning_rates)[:, None]
            if name.endswith("weight") and self._decays:
                own.mul_(1 - rate * self._weight_decay[:, None])
            first = self._rows(self.first[name]).lerp_(grad, 1 - _FIRST_MOMENT)
            second = self._rows(self.second[name]).mul_(_SECOND_MOMENT).addcmul_(grad, grad, value=1 - _SECOND_MOMENT)
            spread = (second / (1 - _SECOND_MOMENT**self.n_steps)).sqrt_().add_(_EPSILON)
            own.sub_(rate * first / spread / (1 - _FIRST_MOMENT**self.n_steps))
            parameter.grad = None

    def _rows(self, value: Tensor) -> Tensor:
        """One row a network."""
        return value.view(self._n_networks, -1)
