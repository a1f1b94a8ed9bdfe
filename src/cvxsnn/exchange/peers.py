"""Our networks in the layers of snnTorch, SpikingJelly and Norse."""

import warnings
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..core.checks import Array
from ..core.errors import LossyExchangeWarning
from ..data.sequences import as_inputs, window_shares
from ..dictionary.base import parse_readout
from ..network.spiking_network import SpikingNetwork
from ..neurons.exact import snap_inputs
from . import norse, snntorch, spikingjelly
from .library import Library, make_linear
from .merging import DelayLine, lif_layers, merge_subnetworks


class PeerNetwork(nn.Module):
    """A stack of another library's layers with the spikes and scores of a :class:`cvxsnn.SpikingNetwork`.

    Parameters
    ----------
    network : SpikingNetwork
        The network to convert.
    library : Library
        The library to convert to.
    dtype : torch.dtype
        Type of the parameters.
    time_first : bool
        Whether inputs and outputs are (n_steps, n_samples, ...), as is usual in the libraries, or (n_samples,
        n_steps, ...), as in cvxsnn.

    Attributes
    ----------
    layers : ModuleList
        Linear layer, neuron, linear layer, neuron, and so on. A :class:`DelayLine` comes before each linear layer that
        also reads past inputs.
    output : Linear
        Reads the last neurons, or each of them in every window of time.
    heads, readout
        Those of the original network.
    sources : tuple of LIFLayer
        The layers that were converted. Measuring membranes from another zero rounds them, so an unchanged layer is
        imported as its source.
    loss_of_exchange : str
        How it differs from the original; empty for an exact exchange.
    """

    def __init__(self, network: SpikingNetwork, library: Library, dtype: torch.dtype, time_first: bool) -> None:
        super().__init__()
        merged = merge_subnetworks(network, library.name)
        layers = [library.convert(layer, depth, dtype) for depth, layer in enumerate(lif_layers(merged), 1)]
        modules = [module for layer in layers for module in (layer.delay_line, layer.linear, layer.neuron)]
        self.layers = nn.ModuleList(module for module in modules if module is not None)
        self.output = make_linear(merged.weight.detach(), merged.intercept.detach(), dtype)
        for depth, layer in enumerate(layers):
            self.register_buffer(f"initial_membrane{depth}", layer.initial_membrane.to(dtype))
        self.sources = tuple(layer.to(dtype=network.layers[0].weight.dtype) for layer in lif_layers(merged))
        self.heads, self.readout, self.time_first = merged.heads, merged.readout, time_first
        self.loss_of_exchange, self._scan = "", library.scan
        self.to(merged.weight.device).eval()

    @property
    def initial_membranes(self) -> list[Tensor]:
        """The membranes before the first step, per layer."""
        return [self.get_buffer(f"initial_membrane{depth}") for depth in range(len(self.sources))]

    def spikes(self, inputs: Array) -> Tensor:
        """Return the spikes of the last hidden layer at all steps, as floats, in the layout of the inputs."""
        return self._in_layout(self._spikes(inputs))

    def forward(self, inputs: Array) -> Tensor:
        """Return scores (n_samples, n_outputs), or those of all steps, in the layout of the inputs, for read-out "all".

        Inputs are rounded to multiples of 2⁻¹⁶, as in the original network.
        """
        spikes, parsed = self._spikes(inputs), parse_readout(self.readout)
        if parsed.kind == "all":
            return self._in_layout(self.output(spikes))
        if parsed.n_windows > 1:
            n_steps = torch.tensor(len(spikes), device=spikes.device)
            shares = window_shares(parsed.n_windows, len(spikes), n_steps, spikes.dtype)
            features = torch.einsum("tij,tw->ijw", spikes, shares).flatten(1)
        else:
            features = spikes[-1] if parsed.kind == "last" else spikes.mean(0)
        scores: Tensor = self.output(features)
        return scores

    def _spikes(self, inputs: Array) -> Tensor:
        weight = self.output.weight
        block = self._in_layout(snap_inputs(as_inputs(inputs).to(weight.device)).to(weight.dtype))
        membranes = iter(self.initial_membranes)
        for module in self.layers:
            if isinstance(module, (DelayLine, nn.Linear)):
                block = module(block)
            else:
                block = self._scan(module, block, next(membranes).expand_as(block[0])).to(block.dtype)
        return block

    def _in_layout(self, values: Tensor) -> Tensor:
        """Convert between time first and the layout of the inputs."""
        return values if self.time_first else values.transpose(0, 1)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Apply ``fn`` to the parameters of Norse's cells too, a tuple that torch does not see."""
        for module in self.layers:
            parameters: Any = getattr(module, "p", None)
            if isinstance(parameters, tuple):
                changed = (fn(value) if isinstance(value, Tensor) else value for value in parameters)
                module.p = type(parameters)(*changed)  # type: ignore[assignment]
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self


def to_snntorch(
    network: SpikingNetwork, *, dtype: torch.dtype = torch.float64, time_first: bool = False
) -> PeerNetwork:
    """Convert a network to snnTorch's layers, without loss.

    Parameters
    ----------
    network : SpikingNetwork
        A network of LIF neurons, with any decays, thresholds, biases and initial membranes.
    dtype : torch.dtype
        Type of the parameters. In float32, rounding occasionally flips a spike (``docs/exchange.md`` says how often).
    time_first : bool
        Whether inputs and outputs are (n_steps, n_samples, ...), as is usual in the library, or (n_samples, n_steps,
        ...), as in cvxsnn.

    Returns
    -------
    PeerNetwork
        A module with the same spikes and scores.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> network = cs.reconstruct(solution)
    >>> theirs = cs.exchange.to_snntorch(network)
    >>> theirs(inputs).shape == network(inputs).shape
    True
    """
    return PeerNetwork(network, snntorch.library(), dtype, time_first)


def to_spikingjelly(
    network: SpikingNetwork, *, dtype: torch.dtype = torch.float64, time_first: bool = False, lossy: bool = False
) -> PeerNetwork:
    """Convert a network to SpikingJelly's layers.

    Parameters
    ----------
    network : SpikingNetwork
        A network of LIF neurons with one decay above 0 per layer, and thresholds that are all positive or all equal.
    dtype : torch.dtype
        Type of the parameters. In float32, rounding occasionally flips a spike (``docs/exchange.md`` says how often).
    time_first : bool
        Whether inputs and outputs are (n_steps, n_samples, ...), as is usual in the library, or (n_samples, n_steps,
        ...), as in cvxsnn.
    lossy : bool
        Whether to replace decays that differ within a layer by their mean. A warning and ``loss_of_exchange`` say so.

    Returns
    -------
    PeerNetwork
        A module with the same spikes and scores, unless the exchange was lossy.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> network = cs.reconstruct(solution)
    >>> theirs = cs.exchange.to_spikingjelly(network)
    >>> theirs(inputs).shape == network(inputs).shape
    True
    """
    network, loss = spikingjelly.with_mean_decays(network) if lossy else (network, "")
    converted = PeerNetwork(network, spikingjelly.library(), dtype, time_first)
    converted.loss_of_exchange = loss
    if loss:
        warnings.warn(f"lossy: {loss}", LossyExchangeWarning, stacklevel=2)
    return converted


def to_norse(network: SpikingNetwork, *, dtype: torch.dtype = torch.float64, time_first: bool = False) -> PeerNetwork:
    """Convert a network to Norse's layers.

    Parameters
    ----------
    network : SpikingNetwork
        A network of LIF neurons with decays below 1, and above 0 where there is a reset.
    dtype : torch.dtype
        Type of the parameters. In float32, rounding occasionally flips a spike (``docs/exchange.md`` says how often).
    time_first : bool
        Whether inputs and outputs are (n_steps, n_samples, ...), as is usual in the library, or (n_samples, n_steps,
        ...), as in cvxsnn.

    Returns
    -------
    PeerNetwork
        A module with the same spikes and scores.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> network = cs.reconstruct(solution)
    >>> theirs = cs.exchange.to_norse(network)
    >>> theirs(inputs).shape == network(inputs).shape
    True
    """
    return PeerNetwork(network, norse.library(), dtype, time_first)
