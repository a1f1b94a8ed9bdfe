"""Spiking networks with surrogate gradients: one, or several of one architecture that train side by side."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...core.errors import InvalidInputError
from ...data.sequences import window_shares
from ...dictionary.base import parse_readout
from ...network.spiking_network import SpikingNetwork
from ...neurons.layer import stack_layers
from ...neurons.registry import make_trainable
from ...neurons.surrogate import Surrogate, TrainableLayer
from .dropout import Dropout
from .simultaneous import SimultaneousNetworks


def architecture(network: SpikingNetwork) -> tuple[object, ...]:
    """Return what networks that train side by side have in common."""
    taps = tuple((layer.has_delays, layer.n_taps) for layer in network.layers)
    return network.n_features, network.n_subnetworks, network.hidden, taps, network.heads, network.readout


class TrainableNetworks(nn.Module):
    """Networks of one architecture, in the arithmetic of the layers they start from.

    Their subnetworks are stacked as if they belonged to one network, so that they share every product and every step;
    nothing else is shared, and each has its own read-out.

    Parameters
    ----------
    networks : sequence of SpikingNetwork
        The networks to start from.
    surrogate : "sigmoid", "fast_sigmoid" or "arctan"
        The surrogate derivative of the spike.
    steepness : sequence of float
        The steepness of the surrogate derivative, for each network.
    dynamics : frozenset of str
        The names of the per-neuron parameters that are trained besides the weights.
    """

    _columns: Tensor

    def __init__(
        self,
        networks: Sequence[SpikingNetwork],
        surrogate: Surrogate,
        steepness: Sequence[float],
        dynamics: frozenset[str],
    ) -> None:
        super().__init__()
        first = networks[0]
        for network in networks[1:]:
            if architecture(network) != architecture(first):
                raise InvalidInputError("expected networks of one architecture to train side by side, got several")
            if not torch.equal(network.columns, first.columns):
                raise InvalidInputError("expected networks that read the same neurons to train side by side")
        self._heads, self._readout = first.heads, parse_readout(first.readout)
        self.n_networks, self._n_subnetworks = len(networks), first.n_subnetworks
        self.register_buffer("_columns", first.columns.clone(), persistent=False)
        n_columns = first.n_subnetworks * first.hidden[-1] * first.n_windows
        # Indexing would copy the features at every step.
        self._reads_all = first.columns.tolist() == list(range(n_columns))
        steep = torch.tensor(steepness, device=first.weight.device).repeat_interleave(first.n_subnetworks)
        self.layers = nn.ModuleList(
            make_trainable(stack_layers([network.layers[depth] for network in networks]), surrogate, steep, dynamics)
            for depth in range(len(first.layers))
        )
        dtype = first.layers[0].weight.dtype
        self.weight = nn.Parameter(torch.stack([network.weight.detach() for network in networks]).to(dtype))
        self.intercept = nn.Parameter(torch.stack([network.intercept.detach() for network in networks]).to(dtype))

    def forward(self, inputs: Tensor, lengths: Tensor | None = None, dropout: Dropout | None = None) -> Tensor:
        """Return scores (n_networks, n_samples, n_outputs), with n_steps before the outputs if every step is read.

        Parameters
        ----------
        inputs : Tensor of shape (n_networks, n_samples, n_steps, n_features)
            The inputs of each network, in the networks' dtype and on the grid of inputs.
        lengths : Tensor of shape (n_networks, n_samples), optional
            The numbers of steps.
        dropout : Dropout, optional
            What to hide.

        Returns
        -------
        Tensor
            The scores.
        """
        return self.run(inputs, lengths, dropout)[0]

    def run(
        self, inputs: Tensor, lengths: Tensor | None = None, dropout: Dropout | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Return scores as :meth:`forward` does, and the spikes of each layer.

        Parameters
        ----------
        inputs : Tensor of shape (n_networks, n_samples, n_steps, n_features)
            The inputs of each network.
        lengths : Tensor of shape (n_networks, n_samples), optional
            The numbers of steps.
        dropout : Dropout, optional
            What to hide from the next layer.

        Returns
        -------
        scores : Tensor
            The scores.
        spikes : list of Tensor of shape (n_networks * n_subnetworks, n_steps, n_samples, width)
            The spikes.
        """
        block = inputs.transpose(1, 2)
        block = block if dropout is None else dropout.hide(block, 0)
        # The subnetworks of one network share its inputs; those of several networks read different ones.
        block = block[0] if len(block) == 1 else block.repeat_interleave(self._n_subnetworks, 0)
        fired = []
        for depth, layer in enumerate(self.layers, 1):
            fired.append(layer(block))
            block = fired[-1] if dropout is None else dropout.hide(fired[-1], depth)
        spikes = block.view(self.n_networks, self._n_subnetworks, *block.shape[1:]).permute(0, 3, 2, 1, 4)
        features = self._read(spikes, lengths)
        flat = features.reshape(self.n_networks, -1, features.shape[-2] * features.shape[-1])
        scores = (flat if self._reads_all else flat[..., self._columns]) @ self.weight + self.intercept[:, None]
        return scores.view(*features.shape[:-2], -1), fired

    def firing_rates(self, fired: Sequence[Tensor], lengths: Tensor | None = None) -> Tensor:
        """Return the share of neurons and steps that have a spike, (n_networks,).

        Parameters
        ----------
        fired : sequence of Tensor of shape (n_networks * n_subnetworks, n_steps, n_samples, width)
            The spikes of each layer.
        lengths : Tensor of shape (n_networks, n_samples), optional
            The numbers of steps.

        Returns
        -------
        Tensor
            The rates.
        """
        n_neurons = self._n_subnetworks * sum(block.shape[-1] for block in fired)
        n_spikes = torch.stack([block.sum(-1) for block in fired]).sum(0)
        n_spikes = n_spikes.view(self.n_networks, self._n_subnetworks, *n_spikes.shape[1:]).sum(1) / n_neurons
        if lengths is None:
            return n_spikes.mean((1, 2))
        inside = torch.arange(n_spikes.shape[1], device=lengths.device)[:, None] < lengths[:, None]
        return (n_spikes * inside).sum((1, 2)) / lengths.sum(1)

    def _read(self, spikes: Tensor, lengths: Tensor | None) -> Tensor:
        """Return the features of spikes (n_networks, n_samples, n_steps, n_subnetworks, width)."""
        n_networks, n_samples, n_steps = spikes.shape[:3]
        if self._readout.kind == "all":
            return spikes
        if self._readout.kind == "last":
            if lengths is None:
                return spikes[:, :, -1]
            return spikes[torch.arange(n_networks)[:, None], torch.arange(n_samples), lengths - 1]
        if self._readout.n_windows > 1:
            ends = torch.full((1, 1), n_steps, device=spikes.device) if lengths is None else lengths
            shares = window_shares(self._readout.n_windows, n_steps, ends, spikes.dtype)
            return torch.einsum("nitkj,nitw->nikjw", spikes, shares.expand(n_networks, n_samples, -1, -1)).flatten(-2)
        if lengths is None:
            return spikes.mean(2)
        inside = torch.arange(n_steps, device=spikes.device) < lengths[..., None]
        return (spikes * inside[..., None, None]).sum(2) / lengths[..., None, None]

    def freeze_all(self) -> SimultaneousNetworks:
        """Return the networks as they are now, with exact spikes."""
        layers = [layer.freeze() for layer in self._trained_layers()]
        weight, intercept = self.weight.detach(), self.intercept.detach()
        return SimultaneousNetworks(layers, weight, intercept, self._heads, str(self._readout), *self._read_where())

    def freeze(self, number: int) -> SpikingNetwork:
        """Return one of the networks as it is now, with exact spikes."""
        members = slice(number * self._n_subnetworks, (number + 1) * self._n_subnetworks)
        layers = [layer.freeze().take(members) for layer in self._trained_layers()]
        weight, intercept = self.weight[number].detach(), self.intercept[number].detach()
        neurons, windows = self._read_where()
        return SpikingNetwork(layers, weight, self._heads, intercept, neurons, str(self._readout), windows)

    def _read_where(self) -> tuple[Tensor, Tensor | None]:
        """Return the neurons that are read, and their windows."""
        n_windows = self._readout.n_windows
        return self._columns // n_windows, self._columns % n_windows if n_windows > 1 else None

    def project(self) -> None:
        """Move parameters that have left their range back into it."""
        for layer in self._trained_layers():
            layer.project()

    def _trained_layers(self) -> list[TrainableLayer]:
        return [layer for layer in self.layers if isinstance(layer, TrainableLayer)]
