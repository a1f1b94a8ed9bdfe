"""Networks of LIF neurons in the layers of snnTorch, SpikingJelly and Norse: stacks of linear layers and neurons."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from math import ceil, log2
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..core.checks import Array
from ..core.errors import InvalidInputError
from ..data.sequences import as_inputs, window_shares
from ..data.task import UNNAMED_HEAD
from ..dictionary import Readout
from ..dictionary.base import parse_readout
from ..network.spiking_network import OutputHead, SpikingNetwork
from ..neurons import LIFLayer
from ..neurons.exact import snap_inputs
from ..witnesses import Provenance, WitnessSet
from . import norse, snntorch, spikingjelly
from .library import Library, PeerLayer, make_linear
from .merging import FINEST_BITS, DelayLine, lif_layers, merge_subnetworks, with_delays

LIBRARIES = {"snntorch": snntorch.library, "spikingjelly": spikingjelly.library, "norse": norse.library}
"""Descriptions of the libraries, by the package of their neurons."""


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
    """

    def __init__(self, network: SpikingNetwork, library: Library, dtype: torch.dtype, time_first: bool) -> None:
        super().__init__()
        merged = merge_subnetworks(network, library.name)
        layers = [library.convert(layer, depth, dtype) for depth, layer in enumerate(lif_layers(merged), 1)]
        modules = [module for layer in layers for module in (layer.delay_line, layer.linear, layer.neuron)]
        self.layers = nn.ModuleList(module for module in modules if module is not None)
        self.output = make_linear(merged.weight.detach(), merged.intercept.detach(), dtype)
        for depth, layer in enumerate(layers):
            self.register_buffer(f"initial_membrane{depth}", layer.initial_membrane)
        self.sources = tuple(layer.to(dtype=network.layers[0].weight.dtype) for layer in lif_layers(merged))
        self.heads = merged.heads
        self.readout = merged.readout
        self.time_first = time_first
        self._scan = library.scan
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
    network: SpikingNetwork, *, dtype: torch.dtype = torch.float64, time_first: bool = False
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
    >>> theirs = cs.exchange.to_spikingjelly(network)
    >>> theirs(inputs).shape == network(inputs).shape
    True
    """
    return PeerNetwork(network, spikingjelly.library(), dtype, time_first)


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


@torch.no_grad()
def from_snntorch(
    model: nn.Module | Sequence[nn.Module],
    *,
    readout: Readout | None = None,
    loss: str | None = None,
    weight_bits: int | None = None,
    dtype: torch.dtype | None = None,
) -> WitnessSet | SpikingNetwork:
    """Convert the hidden layers of a model of snnTorch, SpikingJelly or Norse, and a linear read-out if it ends in one.

    The library is recognised by its neurons: ``from_snntorch``, ``from_spikingjelly`` and ``from_norse`` are one
    function with three names.

    Parameters
    ----------
    model : Module or sequence of Modules
        ``Linear`` modules and neurons in turn, in the order in which they are applied. The neurons are ``Leaky`` of
        snnTorch, ``LIFNode`` or ``IFNode`` of SpikingJelly with ``v_reset=None``, or ``LIFBoxCell`` of Norse with
        ``reset_method=reset_subtract``.
    readout : "last", "all", "mean" or "windows-k", optional
        How a last linear layer reads the spikes: required if there is one, unless the model was converted by cvxsnn.
    loss : str, optional
        Loss of its outputs: by default "softmax" for several outputs and "logistic" for one.
    weight_bits : int, optional
        Bits per weight, on a grid per neuron (:mod:`cvxsnn.neurons.exact`): a weight moves by at most 2^(−bits) of the
        power of two at or above the neuron's largest. By default 32 bits above the first layer, and in the first as
        many, up to 32, as leave room for real inputs up to 16. Layers that cvxsnn converted, and nobody changed since,
        have the bits that they had.
    dtype : torch.dtype, optional
        Type of the membranes: by default float64, and for a network that cvxsnn converted, and whose hidden layers
        nobody changed since, its own.

    Returns
    -------
    WitnessSet or SpikingNetwork
        The hidden layers; with a last linear layer, a network with that read-out.

    Examples
    --------
    >>> import snntorch as snn
    >>> from torch import nn
    >>> from cvxsnn.exchange import from_snntorch
    >>> from_snntorch([nn.Linear(2, 8), snn.Leaky(beta=0.9)])
    WitnessSet(pretrained lif, 1 × (2→8))

    >>> from spikingjelly.activation_based import neuron
    >>> from cvxsnn.exchange import from_spikingjelly
    >>> from_spikingjelly([nn.Linear(2, 8), neuron.LIFNode(tau=2.0, v_reset=None, decay_input=False)])
    WitnessSet(pretrained lif, 1 × (2→8))

    >>> from norse.torch import LIFBoxCell, LIFBoxParameters
    >>> from norse.torch.functional.reset import reset_subtract
    >>> from torch import tensor
    >>> from cvxsnn.exchange import from_norse
    >>> cell = LIFBoxCell(LIFBoxParameters(tau_mem_inv=tensor(100.0), reset_method=reset_subtract), dt=0.001)
    >>> from_norse([nn.Linear(2, 8), cell])
    WitnessSet(pretrained lif, 1 × (2→8))
    """
    library, leaves = leaves_of(model)
    modules = [module for module in leaves if not _acts_as(module, nn.Identity, nn.Dropout, nn.Flatten)]
    kinds = {"L": nn.Linear, "D": DelayLine, "N": library.neuron_type}
    letters = (next((name for name, kind in kinds.items() if isinstance(part, kind)), "?") for part in modules)
    stack = re.fullmatch("(D?LN)+(L?)", "".join(letters))
    if stack is None:
        names = ", ".join(type(module).__name__ for module in modules)
        raise InvalidInputError(
            f"expected linear layers and {library.name} neurons in turn, got {names}: record the spikes of other "
            "networks for build_dictionary"
        )
    for module in modules:
        _check_plain(module, library)
    linears = [module for module in modules if isinstance(module, nn.Linear)]
    neurons = [module for module in modules if isinstance(module, library.neuron_type)]
    lines = {after: before for before, after in pairwise(modules) if isinstance(before, DelayLine)}
    output = linears.pop() if stack[2] else None
    exported = model if isinstance(model, PeerNetwork) else None
    if output is not None and exported is None and readout is None:
        raise InvalidInputError(
            "expected readout= to say how the last linear layer reads the spikes, got none: pass 'mean' or 'last'"
        )
    starts: Sequence[Tensor | None] = exported.initial_membranes if exported else [None] * len(neurons)
    sources: Sequence[LIFLayer | None] = exported.sources if exported else [None] * len(neurons)
    layers = []
    default_dtype = exported.sources[0].weight.dtype if exported else torch.float64
    for depth, (linear, neuron, start, source) in enumerate(zip(linears, neurons, starts, sources, strict=True), 1):
        theirs = PeerLayer(linear, neuron, start, lines.get(linear))
        arguments = _read(library, theirs)
        if source is None or not _is_conversion(library, theirs, arguments, source, depth):
            weight = arguments["weight"]
            bits = _default_bits(weight, depth) if weight_bits is None else weight_bits
            source = LIFLayer(**arguments | {"weight": weight[None]}, weight_bits=bits)
            default_dtype = torch.float64
            source = source if theirs.delay_line is None else with_delays(source, theirs.delay_line.n_inputs)
        elif weight_bits is not None:
            source = replace(source, weight_bits=weight_bits)
        layers.append(source.to(linear.weight.device))
    layers = [layer.to(dtype=dtype or default_dtype) for layer in layers]
    if output is None:
        return WitnessSet(tuple(layers), Provenance("pretrained", {"library": library.name}))
    weight, bias = _parameters(output)
    loss = loss or ("softmax" if len(bias) > 1 else "logistic")
    heads = exported.heads if exported else (OutputHead(UNNAMED_HEAD, loss, 0, len(bias)),)
    return SpikingNetwork(layers, weight, heads, bias, readout=exported.readout if exported else readout or "last")


from_spikingjelly = from_norse = from_snntorch


def leaves_of(model: nn.Module | Sequence[nn.Module]) -> tuple[Library, list[nn.Module]]:
    """Return the library of a model's neurons, and its modules without children, in the order of registration.

    A neuron counts as one module, whatever it contains.
    """
    roots = _flattened(model)
    kinds = {kind for root in roots for module in root.modules() for kind in type(module).__mro__}
    packages = {kind.__module__.partition(".")[0] for kind in kinds} & LIBRARIES.keys()
    if len(packages) != 1:
        raise InvalidInputError(
            "expected linear layers and snnTorch, SpikingJelly or Norse neurons in turn, got neurons of "
            f"{len(packages)} of these libraries: record the spikes of other networks for build_dictionary"
        )
    library = LIBRARIES[packages.pop()]()

    def leaves(module: nn.Module) -> Iterator[nn.Module]:
        children = [] if isinstance(module, (nn.Linear, library.neuron_type)) else list(module.children())
        yield from chain.from_iterable(map(leaves, children)) if children else [module]

    return library, [leaf for root in roots for leaf in leaves(root)]


def _flattened(model: Any) -> list[nn.Module]:
    """Return the modules of sequences of sequences of modules."""
    if isinstance(model, nn.Module):
        return [model]
    if not isinstance(model, Iterable) or isinstance(model, str):
        raise InvalidInputError(f"expected a torch.nn.Module or a sequence of them, got {type(model).__name__}")
    return [module for part in model for module in _flattened(part)]


def _acts_as(module: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Return whether a module computes what one of these kinds computes: a subclass may compute something else."""
    return any(isinstance(module, kind) and type(module).forward is kind.forward for kind in kinds)


def _check_plain(module: nn.Module, library: Library) -> None:
    """Refuse a module that may compute something else than its parameters say."""
    kind = type(module).__name__
    if module._forward_pre_hooks or module._forward_hooks:
        raise InvalidInputError(f"expected layers without forward hooks, got a {kind} with some: remove them first")
    if not isinstance(module, nn.Linear):
        return
    if not _acts_as(module, nn.Linear, library.linear_type):
        raise InvalidInputError(f"expected torch.nn.Linear layers, got {kind} with a forward of its own")
    if not isinstance(module.weight, nn.Parameter):
        raise InvalidInputError(
            f"expected parameters, got a {kind} whose weights are computed: remove parametrizations first"
        )


def _read(library: Library, layer: PeerLayer) -> dict[str, Any]:
    """Return the arguments of the LIF layer that a layer of the library amounts to."""
    start = layer.initial_membrane
    if type(layer.neuron) not in library.neurons:
        names = " or ".join(kind.__name__ for kind in library.neurons)
        raise InvalidInputError(f"expected {names}, got {type(layer.neuron).__name__}: its dynamics differ from ours")
    return library.read(*_parameters(layer.linear), layer.neuron, None if start is None else start.double())


def _is_conversion(
    library: Library, layer: PeerLayer, arguments: Mapping[str, Any], source: LIFLayer, depth: int
) -> bool:
    """Return whether converting ``source`` gives this layer and its arguments, to the bit."""
    expected = library.convert(source, depth, layer.linear.weight.dtype)
    again = _read(library, expected)
    return str(layer.delay_line) == str(expected.delay_line) and all(
        torch.equal(value.cpu(), again[name].cpu()) if isinstance(value, Tensor) else value == again[name]
        for name, value in arguments.items()
    )


def _parameters(linear: nn.Linear) -> tuple[Tensor, Tensor]:
    """Return weights (fan_in, width) and bias (width,) in float64."""
    weight = linear.weight.detach().double().T
    return weight, weight.new_zeros(weight.shape[1]) if linear.bias is None else linear.bias.detach().double()


def _default_bits(weight: Tensor, depth: int) -> int:
    """Return the bits of the finest grid on which sums stay exact: over spikes, and in the first layer over inputs."""
    largest = weight.abs().amax(0)
    terms = (weight.abs().sum(0) / torch.where(largest == 0, 1.0, largest)).max().item()
    # float64 has 53 bits. Inputs are multiples of 2⁻¹⁶, and four more bits leave room for values up to 16.
    return FINEST_BITS if depth > 1 else min(FINEST_BITS, 53 - 20 - ceil(log2(max(terms, 1.0))) + 1)
