"""NIR graphs of other libraries, run by nirtorch: nodes are torch modules that advance by forward Euler steps."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..core.checks import Array
from ..core.errors import InvalidInputError, first_line
from ..core.libraries import import_library

DT = 1e-4
"""Seconds per step, as in snnTorch and SpikingJelly."""

Stage = tuple[Any, Any, Any]
"""Decay, gain and shift of one Euler step: ``level = decay · level + gain · input + shift``."""


class NIRNetwork(nn.Module):
    """A NIR graph that runs on sequences: a source of spikes for a dictionary, or a network to compare with.

    Parameters
    ----------
    graph : nir.NIRGraph
        The graph.
    dt : float
        Seconds per step.
    dtype : torch.dtype
        Type in which it is computed.

    Examples
    --------
    >>> import numpy as np
    >>> import nir
    >>> import torch
    >>> from cvxsnn.exchange import NIRNetwork, from_nir
    >>> nodes = {
    ...     "input": nir.Input({"input": np.array([2])}),
    ...     "weights": nir.Affine(np.ones((3, 2)), np.zeros(3)),
    ...     "neurons": nir.IF(np.ones(3), np.ones(3)),
    ...     "output": nir.Output({"output": np.array([3])}),
    ... }
    >>> edges = [("input", "weights"), ("weights", "neurons"), ("neurons", "output")]
    >>> network = from_nir(nir.NIRGraph(nodes, edges), dt=1.0)
    >>> isinstance(network, NIRNetwork), tuple(network(torch.ones(4, 5, 2)).shape)
    (True, (4, 5, 3))
    """

    def __init__(self, graph: Any, dt: float, dtype: torch.dtype) -> None:
        super().__init__()
        nirtorch = import_library("nirtorch", "nir")
        node_map = nirtorch_node_map(dt)
        try:
            if any(name not in graph.nodes for edge in graph.edges for name in edge):
                raise InvalidInputError("an edge without a node")
            with torch.random.fork_rng(devices=[]):  # new layers draw random weights
                self.graph: nn.Module = nirtorch.nir_to_torch(graph, node_map, dtype=dtype)
            self._spiking = _last_spiking_node(graph)
        except Exception as error:  # nirtorch raises all kinds of errors on graphs that do not fit together
            raise InvalidInputError(f"expected a graph that nirtorch can run, got {first_line(error)!r}") from None
        self.dtype = dtype

    def forward(self, inputs: Array) -> Tensor:
        """Return outputs (n_samples, n_steps, ...) for inputs (n_samples, n_steps, ...), from the initial state."""
        inputs = torch.as_tensor(inputs).to(self.dtype)
        shape = tuple(inputs.shape)
        if len(shape) < 3 or 0 in shape:
            raise InvalidInputError(f"expected inputs of shape (n_samples, n_steps, ...) without a zero, got {shape}")
        state, outputs = None, []
        try:
            for step in inputs.unbind(1):
                output, state = self.graph(step, state)
                outputs.append(output)
            return torch.stack(outputs, dim=1)
        except Exception as error:  # of the graph's code, which nirtorch has made
            raise InvalidInputError(
                f"expected a graph that runs on steps of shape {shape[2:]}, but it raises {type(error).__name__}: "
                f"{first_line(error)}; check its shapes and edges"
            ) from None

    @torch.no_grad()
    def spikes(self, inputs: Array) -> Tensor:
        """Return the spikes of the neurons nearest to the output.

        Parameters
        ----------
        inputs : array of shape (n_samples, n_steps, ...)
            The sequences.

        Returns
        -------
        Tensor of shape (n_samples, n_steps, n_neurons), dtype bool
            The spikes.
        """
        if self._spiking is None:
            raise InvalidInputError("expected a graph with IF, LIF, CubaLIF or Threshold nodes, got none")
        steps: list[Tensor] = []

        def record(module: nn.Module, arguments: Any, output: Any) -> None:
            fired = output[0] if isinstance(output, tuple) else output
            steps.append(fired.flatten(1) != 0)

        with self.graph.get_submodule(self._spiking).register_forward_hook(record):
            self(inputs)
        return torch.stack(steps, dim=1)


def _last_spiking_node(graph: Any) -> str | None:
    """Return the name, as nirtorch spells it, of the spiking node with the shortest path to the output."""
    reached = [name for name, node in graph.nodes.items() if type(node).__name__ == "Output"]
    for name in reached:  # grows as it is read
        if type(graph.nodes[name]).__name__ in ("IF", "LIF", "CubaLIF", "Threshold"):
            return str(import_library("nirtorch.nir_interpreter", "nir")._sanitize_name(name))
        reached += [source for source, target in graph.edges if target == name and source not in reached]
    return None


def nirtorch_node_map(dt: float = DT) -> dict[type, Callable[[Any], nn.Module]]:
    """Return a map of node types for ``nirtorch.nir_to_torch(graph, nirtorch_node_map(), dtype=...)``.

    It has all types. Affine and convolutions are included because nirtorch 2.6 gets them wrong: it never sets
    the bias of an Affine, so that a random one remains, and it swaps the channels of a convolution.

    Parameters
    ----------
    dt : float
        Seconds per step: NIR's equations are in continuous time, and its files do not contain a step.

    Returns
    -------
    dict of type to callable
        For each type of node, a function that converts it to a module.

    Examples
    --------
    >>> import nir
    >>> from cvxsnn.exchange import nirtorch_node_map
    >>> nir.LIF in nirtorch_node_map()
    True
    """
    check_step(dt)
    nir = import_library("nir", "nir")

    def leak(tau: Any, gain: Any, rest: Any) -> Stage:
        rate = dt / tau
        return 1 - rate, gain * rate, rest * rate

    def neuron(node: Any) -> nn.Module:
        if hasattr(node, "tau_syn"):
            stages = [leak(node.tau_syn, node.w_in, 0.0), leak(node.tau_mem, node.r, node.v_leak)]
        else:
            stages = [leak(node.tau, node.r, node.v_leak) if hasattr(node, "tau") else (1.0, node.r * dt, 0.0)]
        return Neuron(stages, getattr(node, "v_threshold", None), getattr(node, "v_reset", 0.0))

    return {
        **dict.fromkeys((nir.I, nir.IF, nir.LI, nir.LIF, nir.CubaLI, nir.CubaLIF), neuron),
        **dict.fromkeys((nir.Affine, nir.Linear), _affine),
        nir.Scale: lambda node: Neuron([(0.0, node.scale, 0.0)]),
        nir.Threshold: lambda node: Neuron([(0.0, 1.0, 0.0)], node.threshold),
        nir.Delay: lambda node: Delay(node.delay, dt),
        nir.Conv1d: lambda node: _convolution(nn.Conv1d, node),
        nir.Conv2d: lambda node: _convolution(nn.Conv2d, node),
        # NIR counts the axes of a sample, torch those of a batch.
        nir.Flatten: lambda node: nn.Flatten(*(int(axis) + (axis >= 0) for axis in (node.start_dim, node.end_dim))),
        nir.AvgPool2d: _pooling,
        nir.SumPool2d: lambda node: _pooling(node, divisor=1),
    }


class Neuron(nn.Module):
    """A chain of leaky integrators that start at zero; with a threshold, the output is spikes.

    Parameters
    ----------
    stages : sequence of Stage
        The synapse, if there is one, and the membrane. A stage of decay zero has no memory.
    threshold : array, optional
        The neuron fires strictly above it.
    v_reset : array
        The membrane after a spike.
    """

    stages: Tensor
    threshold: Tensor | None
    v_reset: Tensor

    def __init__(self, stages: Sequence[Stage], threshold: Any = None, v_reset: Any = 0.0) -> None:
        super().__init__()
        values = np.stack(np.broadcast_arrays(*(parameter for stage in stages for parameter in stage)))
        self.register_buffer("stages", parameter_of(values.reshape(len(stages), 3, *values.shape[1:])))
        self.register_buffer("threshold", None if threshold is None else parameter_of(threshold))
        self.register_buffer("v_reset", parameter_of(v_reset))

    def forward(self, inputs: Tensor, state: list[Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
        """Return output and state one step later."""
        levels, value = [], inputs
        before = state or [torch.zeros_like(inputs)] * len(self.stages)
        for (decay, gain, shift), level in zip(self.stages, before, strict=True):
            value = decay * level + gain * value + shift
            levels.append(value)
        if self.threshold is None:
            return value, levels
        spikes = value > self.threshold
        levels[-1] = torch.where(spikes, self.v_reset, value)
        return spikes.to(value.dtype), levels


class Delay(nn.Module):
    """Returns each value a number of steps later, and zeros at first.

    Parameters
    ----------
    delay : array
        Seconds, in whole steps, for each value.
    dt : float
        Seconds per step.
    """

    steps: Tensor

    def __init__(self, delay: Any, dt: float) -> None:
        super().__init__()
        self.register_buffer("steps", torch.from_numpy(whole_steps(delay, dt)))
        self._longest = int(self.steps.max())

    def forward(self, inputs: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return output and state, which is the last inputs, one step later."""
        past = inputs.new_zeros(len(inputs), self._longest, *inputs.shape[1:]) if state is None else state
        values = torch.cat((past, inputs[:, None]), dim=1)
        output = values.gather(1, (self._longest - self.steps).expand_as(inputs)[:, None])[:, 0]
        return output, values[:, 1:]


def check_step(dt: Any) -> float:
    """Return the seconds per step, or refuse a value at which time constants lose digits or overflow."""
    try:
        if 1e-12 <= float(dt) <= 1e6:
            return float(dt)
    except (OverflowError, TypeError, ValueError):
        pass
    raise InvalidInputError(f"expected dt to be a number of seconds from 1e-12 to 1e+06, got {dt!r}")


def whole_steps(delay: Any, dt: float) -> npt.NDArray[np.int64]:
    """Return delays in steps, and refuse those that are no whole number of them."""
    exact = np.asarray(delay, dtype=np.float64) / dt
    steps = np.rint(exact)
    # Files may have seconds in float32.
    if not np.all((exact >= 0) & (np.abs(exact - steps) <= 1e-6 * np.maximum(steps, 1))):
        raise InvalidInputError(
            f"expected delays of whole steps of {dt:g} seconds, got delays of {exact.min():g} to {exact.max():g} steps"
        )
    return steps.astype(np.int64)


def _affine(node: Any) -> nn.Module:
    width, fan_in = node.weight.shape[-2:]
    bias = getattr(node, "bias", None)
    return _filled(nn.Linear(fan_in, width, bias=bias is not None), node.weight, bias)


def _convolution(kind: type[nn.Conv1d | nn.Conv2d], node: Any) -> nn.Module:
    n_out, n_in, *kernel = node.weight.shape
    groups = int(node.groups)
    sizes = {name: _sizes(getattr(node, name)) for name in ("stride", "padding", "dilation")}
    return _filled(kind(n_in * groups, n_out, tuple(kernel), groups=groups, **sizes), node.weight, node.bias)


def _pooling(node: Any, divisor: int | None = None) -> nn.Module:
    kernel, stride, padding = map(_sizes, (node.kernel_size, node.stride, node.padding))
    return nn.AvgPool2d(kernel, stride, padding, divisor_override=divisor)


def _filled(module: nn.Module, weight: Any, bias: Any) -> nn.Module:
    module.get_parameter("weight").data = parameter_of(weight)
    if bias is not None:
        module.get_parameter("bias").data = parameter_of(bias)
    return module


def _sizes(value: Any) -> Any:
    """Return a string, an int or a tuple of ints from any form in which it was read."""
    plain = value.decode() if isinstance(value, bytes) else np.asarray(value).tolist()
    return tuple(plain) if isinstance(plain, list) else plain


def parameter_of(value: Any) -> Tensor:
    """Return a parameter of a node in float64; refuse other values than numbers."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or bool(np.isnan(array).any()):
        raise InvalidInputError(f"expected numbers as parameters of nodes, got {array.dtype} or NaN")
    return torch.from_numpy(array.astype(np.float64))
