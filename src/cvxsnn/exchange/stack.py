"""Networks of snnTorch, SpikingJelly and Norse, as stacks of linear layers and neurons, in our layers."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil, log2
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInputError
from ..dictionary import Readout
from ..network.spiking_network import OutputHead, SpikingNetwork
from ..neurons import LIFLayer
from ..witnesses import Provenance, WitnessSet
from . import norse, snntorch, spikingjelly
from .library import Library
from .merging import FINEST_BITS, DelayLine, with_delays
from .peers import PeerNetwork

LIBRARIES = {"snntorch": snntorch.library, "spikingjelly": spikingjelly.library, "norse": norse.library}
"""Descriptions of the libraries, by the package of their neurons."""


def from_snntorch(
    model: nn.Module | Sequence[nn.Module],
    *,
    readout: Readout | None = None,
    loss: str | None = None,
    weight_bits: int | None = None,
    dtype: torch.dtype | None = None,
) -> WitnessSet | SpikingNetwork:
    """Convert the hidden layers of an snnTorch model, and its read-out if it ends in a linear layer.

    Parameters
    ----------
    model : Module or sequence of Modules
        Alternating ``Linear`` and ``Leaky`` modules, in the order in which they are applied.
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
    """
    return read_stack(snntorch.library(), model, readout, loss, weight_bits, dtype)


def from_spikingjelly(
    model: nn.Module | Sequence[nn.Module],
    *,
    readout: Readout | None = None,
    loss: str | None = None,
    weight_bits: int | None = None,
    dtype: torch.dtype | None = None,
) -> WitnessSet | SpikingNetwork:
    """Convert the hidden layers of a SpikingJelly model, and its read-out if it ends in a linear layer.

    Parameters
    ----------
    model : Module or sequence of Modules
        Alternating ``Linear`` and ``LIFNode`` or ``IFNode`` modules with ``v_reset=None``, in the order in which they
        are applied.
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
    >>> from spikingjelly.activation_based import neuron
    >>> from torch import nn
    >>> from cvxsnn.exchange import from_spikingjelly
    >>> from_spikingjelly([nn.Linear(2, 8), neuron.LIFNode(tau=2.0, v_reset=None, decay_input=False)])
    WitnessSet(pretrained lif, 1 × (2→8))
    """
    return read_stack(spikingjelly.library(), model, readout, loss, weight_bits, dtype)


def from_norse(
    model: nn.Module | Sequence[nn.Module],
    *,
    readout: Readout | None = None,
    loss: str | None = None,
    weight_bits: int | None = None,
    dtype: torch.dtype | None = None,
) -> WitnessSet | SpikingNetwork:
    """Convert the hidden layers of a Norse model, and its read-out if it ends in a linear layer.

    Parameters
    ----------
    model : Module or sequence of Modules
        Alternating ``Linear`` and ``LIFBoxCell`` modules with ``reset_method=reset_subtract``, in the order in which
        they are applied.
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
    >>> from norse.torch import LIFBoxCell, LIFBoxParameters
    >>> from norse.torch.functional.reset import reset_subtract
    >>> from torch import nn, tensor
    >>> from cvxsnn.exchange import from_norse
    >>> cell = LIFBoxCell(LIFBoxParameters(tau_mem_inv=tensor(100.0), reset_method=reset_subtract), dt=0.001)
    >>> from_norse([nn.Linear(2, 8), cell])
    WitnessSet(pretrained lif, 1 × (2→8))
    """
    return read_stack(norse.library(), model, readout, loss, weight_bits, dtype)


@torch.no_grad()
def read_stack(
    library: Library,
    model: nn.Module | Sequence[nn.Module],
    readout: Readout | None,
    loss: str | None,
    weight_bits: int | None,
    dtype: torch.dtype | None,
) -> WitnessSet | SpikingNetwork:
    """Convert a stack of linear layers and neurons; the public ``from_`` functions describe the arguments."""
    modules = [part for part in _leaves(model, library) if not _acts_as(part, nn.Identity, nn.Dropout, nn.Flatten)]
    kinds = {"L": nn.Linear, "D": DelayLine, "N": library.neuron_type}
    letters = (next((name for name, kind in kinds.items() if isinstance(part, kind)), "?") for part in modules)
    stack = re.fullmatch("(D?LN)+(L?)", "".join(letters))
    if stack is None:
        names = ", ".join(type(module).__name__ for module in modules) or "none"
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
    layers, default_dtype = [], exported.sources[0].weight.dtype if exported else torch.float64
    for depth, (linear, neuron, start, source) in enumerate(zip(linears, neurons, starts, sources, strict=True), 1):
        arguments, line = _read(library, linear, neuron, start), lines.get(linear)
        if source is None or not _is_conversion(arguments, line, library, source, depth, linear):
            source, default_dtype = _as_layer(arguments, line, depth, weight_bits), torch.float64
        elif weight_bits is not None:
            source = replace(source, weight_bits=weight_bits)
        layers.append(source.to(linear.weight.device))
    layers = [layer.to(dtype=dtype or default_dtype) for layer in layers]
    if output is None:
        return WitnessSet(tuple(layers), Provenance("pretrained", {"library": library.name}))
    weight, bias = _parameters(output)
    loss = loss or ("softmax" if len(bias) > 1 else "logistic")
    heads = exported.heads if exported else (OutputHead("output", loss, 0, len(bias)),)
    return SpikingNetwork(layers, weight, heads, bias, readout=exported.readout if exported else readout or "last")


def stack_up_to(library: Library, model: nn.Module, last: nn.Module) -> list[nn.Module]:
    """Return the modules of a stack up to and including one of them."""
    modules = list(_leaves(model, library))
    return modules[: modules.index(last) + 1] if last in modules else modules


def _leaves(model: nn.Module | Sequence[nn.Module], library: Library) -> Iterator[nn.Module]:
    """Yield the modules without children in the order in which they were registered; a neuron counts as one module."""
    if isinstance(model, nn.Module):
        children = list(model.children())
        if not children or isinstance(model, (nn.Linear, library.neuron_type)):
            yield model
            return
        model = children
    if not isinstance(model, Iterable) or isinstance(model, str):
        raise InvalidInputError(f"expected a torch.nn.Module or a sequence of them, got {type(model).__name__}")
    for module in model:
        yield from _leaves(module, library)


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


def _read(library: Library, linear: nn.Linear, neuron: nn.Module, start: Tensor | None) -> Mapping[str, Any]:
    """Return the arguments of the LIF layer that a linear layer and a neuron amount to."""
    return library.read(*_parameters(linear), neuron, None if start is None else start.double())


def _is_conversion(
    arguments: Mapping[str, Any],
    line: DelayLine | None,
    library: Library,
    source: LIFLayer,
    depth: int,
    linear: nn.Linear,
) -> bool:
    """Return whether the arguments are those of the converted source, to the bit."""
    dtype = linear.weight.dtype
    expected = library.convert(source, depth, dtype)
    again = _read(library, expected.linear, expected.neuron, expected.initial_membrane.to(dtype))
    return str(line) == str(expected.delay_line) and all(
        torch.equal(value.cpu(), again[name].cpu()) if isinstance(value, Tensor) else value == again[name]
        for name, value in arguments.items()
    )


def _as_layer(arguments: Mapping[str, Any], line: DelayLine | None, depth: int, weight_bits: int | None) -> LIFLayer:
    """Return the layer with the arguments that were read."""
    weight = arguments["weight"]
    if weight_bits is None:
        weight_bits = _roomy_bits(weight) if depth == 1 else FINEST_BITS
    layer = LIFLayer(**{**arguments, "weight": weight[None]}, weight_bits=weight_bits)
    return layer if line is None else with_delays(layer, line.n_inputs)


def _parameters(linear: nn.Linear) -> tuple[Tensor, Tensor]:
    """Return weights (fan_in, width) and bias (width,) in float64."""
    weight = linear.weight.detach().double().T
    return weight, weight.new_zeros(weight.shape[1]) if linear.bias is None else linear.bias.detach().double()


def _roomy_bits(weight: Tensor) -> int:
    """Return the bits of the finest grid on which sums over real inputs stay exact."""
    largest = weight.abs().amax(0)
    terms = (weight.abs().sum(0) / torch.where(largest == 0, 1.0, largest)).max().item()
    # float64 has 53 bits. Inputs are multiples of 2⁻¹⁶, and four more bits leave room for values up to 16.
    return min(FINEST_BITS, 53 - 20 - ceil(log2(max(terms, 1.0))) + 1)
