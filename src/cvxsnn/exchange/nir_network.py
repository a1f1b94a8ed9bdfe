"""NIR graphs of other libraries, run by nirtorch."""

from typing import Any

import torch
from torch import Tensor, nn

from ..core.checks import Array
from ..core.errors import InvalidInputError, first_line
from ..core.libraries import import_library
from .nir_modules import nirtorch_node_map


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
            _check_edges(graph)
            with torch.random.fork_rng(devices=[]):  # new layers draw random weights
                self.graph: nn.Module = nirtorch.nir_to_torch(graph, node_map, dtype=dtype)
            self._spiking = _last_spiking_node(graph)
        except Exception as error:  # nirtorch raises all kinds of errors on graphs that do not fit together
            raise InvalidInputError(f"expected a graph that nirtorch can run, got {first_line(error)!r}") from None
        self.dtype = dtype

    def forward(self, inputs: Array) -> Tensor:
        """Return outputs (n_samples, n_steps, ...) for inputs (n_samples, n_steps, ...), from the initial state."""
        inputs = torch.as_tensor(inputs).to(self.dtype)
        state, outputs = None, []
        if inputs.ndim < 3 or 0 in inputs.shape:
            raise InvalidInputError(
                f"expected inputs of shape (n_samples, n_steps, ...) with at least one of each, got "
                f"{tuple(inputs.shape)}"
            )
        try:
            for step in inputs.unbind(1):
                output, state = self.graph(step, state)
                outputs.append(output)
            return torch.stack(outputs, dim=1)
        except Exception as error:  # of the graph's code, which nirtorch has made
            raise InvalidInputError(
                f"expected a graph that runs on steps of shape {tuple(inputs.shape[2:])}, but it raises "
                f"{type(error).__name__}: {first_line(error)}; check its shapes and edges"
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

        def record(module: nn.Module, given: Any, output: Any) -> None:
            fired = output[0] if isinstance(output, tuple) else output
            steps.append(fired.flatten(1) != 0)

        handle = self.graph.get_submodule(self._spiking).register_forward_hook(record)
        try:
            self(inputs)
        finally:
            handle.remove()
        return torch.stack(steps, dim=1)


def _check_edges(graph: Any) -> None:
    """Refuse edges from or to nowhere."""
    for edge in graph.edges:
        if not {*edge} <= {*graph.nodes}:
            raise InvalidInputError(f"an edge {edge!r} without a node")


def _last_spiking_node(graph: Any) -> str | None:
    """Return the name, as nirtorch spells it, of the spiking node with the shortest path to the output."""
    kinds = ("IF", "LIF", "CubaLIF", "Threshold")
    reached = [name for name, node in graph.nodes.items() if type(node).__name__ == "Output"]
    for name in reached:  # grows as it is read
        if type(graph.nodes[name]).__name__ in kinds:
            return str(import_library("nirtorch.nir_interpreter", "nir")._sanitize_name(name))
        reached += [source for source, target in graph.edges if target == name and source not in reached]
    return None
