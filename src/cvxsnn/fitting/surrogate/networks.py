"""A spiking network with surrogate gradients."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...data.sequences import window_shares
from ...dictionary.base import parse_readout
from ...network.spiking_network import SpikingNetwork
from ...neurons.registry import make_trainable
from ...neurons.surrogate import Surrogate, TrainableLayer
from .dropout import Dropout


class TrainableNetwork(nn.Module):
    """A network in the arithmetic of the layers it starts from.

    Parameters
    ----------
    network : SpikingNetwork
        The network to start from.
    surrogate : "sigmoid", "fast_sigmoid" or "arctan"
        The surrogate derivative of the spike.
    steepness : float
        The steepness of the surrogate derivative.
    dynamics : frozenset of str
        The names of the per-neuron parameters that are trained besides the weights.
    """

    _columns: Tensor

    def __init__(
        self, network: SpikingNetwork, surrogate: Surrogate, steepness: float, dynamics: frozenset[str]
    ) -> None:
        super().__init__()
        self._heads, self._readout = network.heads, parse_readout(network.readout)
        self._n_subnetworks = network.n_subnetworks
        self.register_buffer("_columns", network.columns.clone(), persistent=False)
        n_columns = network.n_subnetworks * network.hidden[-1] * network.n_windows
        # Indexing would copy the features at every step.
        self._reads_all = network.columns.tolist() == list(range(n_columns))
        layers = (make_trainable(layer, surrogate, steepness, dynamics) for layer in network.layers)
        self.layers = nn.ModuleList(layers)
        dtype = network.layers[0].weight.dtype
        self.weight = nn.Parameter(network.weight.detach().to(dtype, copy=True))
        self.intercept = nn.Parameter(network.intercept.detach().to(dtype, copy=True))

    def forward(self, inputs: Tensor, lengths: Tensor | None = None, dropout: Dropout | None = None) -> Tensor:
        """Return scores (n_samples, n_outputs), with n_steps before the outputs if every step is read.

        Parameters
        ----------
        inputs : Tensor of shape (n_samples, n_steps, n_features)
            The inputs, in the network's dtype and on the grid of inputs.
        lengths : Tensor of shape (n_samples,), optional
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
        inputs : Tensor of shape (n_samples, n_steps, n_features)
            The inputs.
        lengths : Tensor of shape (n_samples,), optional
            The numbers of steps.
        dropout : Dropout, optional
            What to hide from the next layer.

        Returns
        -------
        scores : Tensor
            The scores.
        spikes : list of Tensor of shape (n_subnetworks, n_steps, n_samples, width)
            The spikes.
        """
        block = inputs.transpose(0, 1)
        block = block if dropout is None else dropout.hide(block[None], 0)[0]
        fired = []
        for depth, layer in enumerate(self.layers, 1):
            fired.append(layer(block))
            block = fired[-1] if dropout is None else dropout.hide(fired[-1], depth)
        features = self._read(block.permute(2, 1, 0, 3), lengths)
        flat = features.reshape(-1, features.shape[-2] * features.shape[-1])
        flat = flat if self._reads_all else flat[:, self._columns]
        # As a batch of one, since torch rounds the product with a single column otherwise.
        scores: Tensor = (flat[None] @ self.weight[None] + self.intercept)[0]
        return scores.view(*features.shape[:-2], -1), fired

    def firing_rate(self, fired: Sequence[Tensor], lengths: Tensor | None = None) -> Tensor:
        """Return the share of neurons and steps that have a spike.

        Parameters
        ----------
        fired : sequence of Tensor of shape (n_subnetworks, n_steps, n_samples, width)
            The spikes of each layer.
        lengths : Tensor of shape (n_samples,), optional
            The numbers of steps.

        Returns
        -------
        Tensor
            The rate.
        """
        n_neurons = self._n_subnetworks * sum(block.shape[-1] for block in fired)
        n_spikes = torch.stack([block.sum(-1) for block in fired]).sum(0).sum(0) / n_neurons
        if lengths is None:
            return n_spikes.mean()
        inside = torch.arange(len(n_spikes), device=lengths.device)[:, None] < lengths
        return (n_spikes * inside).sum() / lengths.sum()

    def _read(self, spikes: Tensor, lengths: Tensor | None) -> Tensor:
        """Return the features of spikes (n_samples, n_steps, n_subnetworks, width)."""
        n_samples, n_steps = spikes.shape[:2]
        if self._readout.kind == "all":
            return spikes
        if self._readout.kind == "last":
            return spikes[:, -1] if lengths is None else spikes[torch.arange(n_samples), lengths - 1]
        if self._readout.n_windows > 1:
            ends = torch.full((1,), n_steps, device=spikes.device) if lengths is None else lengths
            shares = window_shares(self._readout.n_windows, n_steps, ends, spikes.dtype)
            return torch.einsum("itkj,itw->ikjw", spikes, shares.expand(n_samples, -1, -1)).flatten(-2)
        if lengths is None:
            return spikes.mean(1)
        inside = torch.arange(n_steps, device=spikes.device) < lengths[:, None]
        return (spikes * inside[..., None, None]).sum(1) / lengths[:, None, None]

    def freeze(self) -> SpikingNetwork:
        """Return the network as it is now, with exact spikes."""
        layers = [layer.freeze() for layer in self._trained_layers()]
        n_windows = self._readout.n_windows
        windows = self._columns % n_windows if n_windows > 1 else None
        weight, intercept = self.weight.detach(), self.intercept.detach()
        neurons = self._columns // n_windows
        return SpikingNetwork(layers, weight, self._heads, intercept, neurons, str(self._readout), windows)

    def project(self) -> None:
        """Move parameters that have left their range back into it."""
        for layer in self._trained_layers():
            layer.project()

    def _trained_layers(self) -> list[TrainableLayer]:
        return [layer for layer in self.layers if isinstance(layer, TrainableLayer)]
