"""Reading a stack of linear layers and neurons of another library, described by a :class:`Library`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil, log2
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInputError
from ..dictionary import Readout
from ..network.heads import OutputHead
from ..network.spiking_network import SpikingNetwork
from ..neurons import LIFLayer
from ..neurons.lif import Tie
from ..witnesses import Provenance, WitnessSet
from .delays import DelayLine, with_delays
from .peer_network import Library, PeerNetwork

_NO_ACTION = (nn.Identity, nn.Dropout, nn.Flatten)
"""Layers that leave a sequence of vectors unchanged outside of training."""

_FINEST_BITS = 32
_REAL_INPUT_BITS = 20
"""Real inputs are multiples of 2⁻¹⁶; four more bits leave room for values up to 16."""
_SUM_BITS = 53


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
    modules = [module for module in _leaves(model, library.neuron_type) if not _acts_as(module, _NO_ACTION)]
    output = modules.pop() if modules and isinstance(modules[-1], nn.Linear) else None
    lines = {after: before for before, after in pairwise(modules) if isinstance(before, DelayLine)}
    acting = [module for module in modules if not isinstance(module, DelayLine)]
    linears, neurons = acting[::2], acting[1::2]
    is_stack = len(linears) == len(neurons) > 0 and all(isinstance(linear, nn.Linear) for linear in linears)
    is_stack &= lines.keys() <= {*linears} and len(acting) + len(lines) == len(modules)
    if not is_stack or not all(isinstance(neuron, library.neuron_type) for neuron in neurons):
        names = ", ".join(type(module).__name__ for module in modules) or "none"
        raise InvalidInputError(
            f"expected linear layers and {library.name} neurons in turn, got {names}: for other networks, record "
            "the spikes and pass them to build_dictionary as an array"
        )
    for linear in (*linears, *([] if output is None else [output])):
        _check_linear(linear, library)
    _check_no_hooks([*modules, *([] if output is None else [output])])
    ours = model if isinstance(model, PeerNetwork) else None
    if output is not None and ours is None and readout is None:
        raise InvalidInputError(
            "expected readout= to say how the last linear layer reads the spikes, got none: pass 'mean' where its "
            "outputs are averaged over the steps or summed, as by default in reconstruct_readout, or 'last'"
        )
    starts: Sequence[Tensor | None] = ours.initial_membranes if ours else [None] * len(neurons)
    sources: Sequence[LIFLayer | None] = ours.sources if ours else [None] * len(neurons)
    layers, own_dtype = [], torch.float64 if ours is None else ours.sources[0].weight.dtype
    for depth, (linear, neuron, start, source) in enumerate(zip(linears, neurons, starts, sources, strict=True), 1):
        read, line = _read(library, linear, neuron, start), lines.get(linear)
        if source is None or not _is_conversion(read, line, library, source, depth, linear):
            source, own_dtype = _as_layer(read, line, depth, weight_bits), torch.float64
        elif weight_bits is not None:
            source = replace(source, weight_bits=weight_bits)
        layers.append(source.to(linear.get_parameter("weight").device))
    layers = [layer.to(dtype=dtype or own_dtype) for layer in layers]
    if output is None:
        return WitnessSet(tuple(layers), Provenance("pretrained", {"library": library.name}))
    weight, bias = _parameters(output)
    loss = loss or ("softmax" if len(bias) > 1 else "logistic")
    heads = ours.heads if ours else (OutputHead("output", loss, 0, len(bias)),)
    return SpikingNetwork(layers, weight, heads, bias, readout=ours.readout if ours else readout or "last")


def _read(library: Library, linear: nn.Module, neuron: nn.Module, start: Tensor | None) -> Mapping[str, Any]:
    """Return the arguments of a LIF layer that a linear layer and a neuron stand for."""
    return library.read_neuron(*_parameters(linear), neuron, None if start is None else start.double())


def _is_conversion(
    read: Mapping[str, Any], line: DelayLine | None, library: Library, source: LIFLayer, depth: int, linear: nn.Module
) -> bool:
    """Return whether what was read is what a layer reads like after its conversion, to the bit."""
    dtype = linear.get_parameter("weight").dtype
    expected = library.convert(source, depth, dtype)
    if str(line) != str(expected.delay_line):
        return False
    again = _read(library, expected.linear, expected.neuron, expected.initial_membrane.to(dtype))
    return all(
        torch.equal(value.cpu(), again[name].cpu()) if isinstance(value, Tensor) else value == again[name]
        for name, value in read.items()
    )


def _as_layer(read: Mapping[str, Any], line: DelayLine | None, depth: int, weight_bits: int | None) -> LIFLayer:
    """Return the layer with the arguments that were read."""
    weight = read["weight"]
    finest = _roomy_bits(weight) if depth == 1 else _FINEST_BITS
    bits = finest if weight_bits is None else weight_bits
    layer = LIFLayer(**{**read, "weight": weight[None]}, weight_bits=bits)
    return layer if line is None else with_delays(layer, line.n_inputs)


def stack_up_to(library: Library, model: nn.Module, last: nn.Module) -> list[nn.Module]:
    """Return the modules that act, up to and including one of them."""
    modules = list(_leaves(model, library.neuron_type))
    return modules[: modules.index(last) + 1] if last in modules else modules


def _leaves(model: nn.Module | Sequence[nn.Module], neuron_type: type) -> Iterator[nn.Module]:
    """Yield the modules that act, in the order in which they were registered; a neuron counts as one module."""
    if isinstance(model, nn.Module):
        children = list(model.children())
        if not children or isinstance(model, (nn.Linear, neuron_type)):
            yield model
            return
        model = children
    if not isinstance(model, Iterable) or isinstance(model, str):
        raise InvalidInputError(
            f"expected a torch.nn.Module or a sequence of them, got {type(model).__name__}: pass a model or its layers"
        )
    for module in model:
        yield from _leaves(module, neuron_type)


def _acts_as(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> bool:
    """Return whether a module does what one of these kinds does: a subclass may do something else."""
    return any(isinstance(module, kind) and type(module).forward is kind.forward for kind in kinds)


def _check_linear(module: nn.Module, library: Library) -> None:
    """Refuse a linear layer that may compute something else than its weights say."""
    if not _acts_as(module, (nn.Linear, library.linear_type)):
        raise InvalidInputError(
            f"expected torch.nn.Linear layers, got {type(module).__name__} with a forward of its own, which may "
            "compute something else: replace it by a plain one with the same effect"
        )
    if not isinstance(module.weight, nn.Parameter):
        raise InvalidInputError(
            f"expected linear layers whose weights are parameters, got a {type(module).__name__} whose weights are "
            "computed, as by weight norm: remove that first, for example with "
            "torch.nn.utils.parametrize.remove_parametrizations"
        )


def _check_no_hooks(modules: Sequence[nn.Module]) -> None:
    for module in modules:
        if module._forward_pre_hooks or module._forward_hooks:
            raise InvalidInputError(
                f"expected layers without forward hooks, got a {type(module).__name__} with some, which may change its "
                "values: remove them first"
            )


def probe_tie(spike: Callable[[Tensor], Tensor]) -> Tie:
    """Return whether a library's spike function fires at zero; refuse functions other than a step."""
    below, at, above = spike(torch.tensor([-1.0, 0.0, 1.0])).detach().tolist()
    if (below, above) != (0.0, 1.0) or at not in (0.0, 1.0):
        raise InvalidInputError(
            f"expected neurons whose spikes are a step from 0 to 1, got {below:g}, {at:g} and {above:g} below, at and "
            "above the threshold"
        )
    return "ge" if at == 1.0 else "gt"


def _parameters(linear: nn.Module) -> tuple[Tensor, Tensor]:
    """Return weights (fan_in, width) and bias (width,) in float64."""
    weight = linear.get_parameter("weight").detach().double().T
    bias = linear.bias
    return weight, weight.new_zeros(weight.shape[1]) if bias is None else torch.as_tensor(bias).detach().double()


def _roomy_bits(weight: Tensor) -> int:
    """Return the bits of the finest grid on which sums over real inputs stay exact."""
    largest = weight.abs().amax(0)
    terms = (weight.abs().sum(0) / torch.where(largest == 0, 1.0, largest)).max().item()
    return min(_FINEST_BITS, _SUM_BITS - _REAL_INPUT_BITS - ceil(log2(max(terms, 1.0))) + 1)
