"""NIR graphs, whole and damaged: they run as their nodes say, or are refused in one sentence."""

import copy
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cvxsnn import LIFLayer, SpikingNetwork
from cvxsnn.core.errors import CvxsnnError
from cvxsnn.exchange import NIRNetwork, from_nir, to_nir, write_nir
from cvxsnn.network import OutputHead

from .harness import Finding, Hunt, Skip

try:
    import nir
    import nirtorch  # noqa: F401 - runs graphs of others
except ImportError:
    nir = None

_STEPS = (1e-4, 1e-3, 1.0, 0.3, 1e-9)


def case(rng: np.random.Generator, folder: Path) -> str:
    """Import one graph."""
    if nir is None:
        raise Skip("nir or nirtorch is not installed")
    dt = float(rng.choice(_STEPS))
    kind = rng.choice(("round trip", "other graph", "damaged network", "damaged graph"))
    if kind == "round trip":
        return _round_trip(rng, folder, dt)
    if kind == "other graph":
        return _other_graph(rng, folder, dt)
    if kind == "damaged network":
        graph = _export(_draw_network(rng), dt)
        if graph is None:
            return "network refused"
    else:
        graph = _draw_graph(rng, dt)
    what = _damage(graph, rng)
    return _import_damaged(graph, what, rng, folder, dt)


def _round_trip(rng: np.random.Generator, folder: Path, dt: float) -> str:
    """A network comes back with the same spikes and scores."""
    network = _draw_network(rng)
    graph = _export(network, dt)
    if graph is None:
        return "network refused"
    back = from_nir(_through_file(graph, folder, rng))
    inputs = _draw_inputs(rng, network.n_features)
    if not isinstance(back, SpikingNetwork):
        raise Finding(f"expected a SpikingNetwork again, got {type(back).__name__} of {network}")
    expected, found = (_scores(own, inputs) for own in (network, back))
    if not torch.allclose(expected, found, 1e-12, 1e-12):
        raise Finding(f"expected the scores {expected.flatten()[:5]} of {network}, got {found.flatten()[:5]}")
    _compare_with_nodes(network, graph, inputs, dt)
    return "round trip"


def _other_graph(rng: np.random.Generator, folder: Path, dt: float) -> str:
    """A graph of other people's nodes runs as the equations of its nodes say."""
    graph = _draw_graph(rng, dt)
    inputs = _draw_inputs(rng, int(graph.nodes["input"].input_type["input"][0]))
    expected = _run_by_hand(graph, inputs.numpy(), dt)
    found = from_nir(_through_file(graph, folder, rng), dt=dt)(inputs)
    if not np.allclose(expected, found.detach().numpy(), 1e-9, 1e-9):
        raise Finding(f"expected {expected.flat[:5]}, got {found.flatten()[:5]} of {_describe(graph)}")
    return "other graph"


def _import_damaged(graph: Any, what: str, rng: np.random.Generator, folder: Path, dt: float) -> str:
    """A damaged graph is refused, or still runs as its nodes say."""
    n_features = int(np.prod(next(iter(_first_shape(graph)), (3,))))
    inputs = _draw_inputs(rng, n_features)
    try:
        path = folder / "graph.nir"
        if rng.integers(3) == 0:
            try:
                nir.write(path, graph)
            except Exception:  # what NIR itself does not write is passed as it is
                path = graph
            else:
                if rng.integers(2):
                    content = bytearray(path.read_bytes())
                    for _ in range(rng.integers(1, 5)):
                        content[rng.integers(len(content))] = rng.integers(256)
                    path.write_bytes(content)
                    what = f"{what}, bytes changed"
        else:
            path = graph
        module = from_nir(path, dt=None if graph.metadata.get("generator") == "cvxsnn" else dt)
        outputs = _scores(module, inputs) if isinstance(module, SpikingNetwork) else module(inputs)
    except CvxsnnError as error:
        if "\n" in str(error) or len(str(error)) < 20:
            raise Finding(f"expected one sentence, got {str(error)!r} after {what}") from error
        return "damage refused"
    if "bytes" in what:
        return "damage read"
    if isinstance(module, SpikingNetwork):
        _compare_with_nodes(module, graph, inputs, float(graph.metadata.get("dt", dt)))
    elif _has_order(graph):
        expected = _run_by_hand(graph, inputs.numpy(), dt)
        if not np.allclose(expected, outputs.detach().numpy(), 1e-9, 1e-9, equal_nan=True):
            raise Finding(f"expected {expected.flat[:5]}, got {outputs.flatten()[:5]} after {what}: {_describe(graph)}")
    return "damage run"


def _compare_with_nodes(network: SpikingNetwork, graph: Any, inputs: Tensor, dt: float) -> None:
    """Compare a network with its graph, run node by node as a graph of others."""
    stranger = nir.NIRGraph(nodes=graph.nodes, edges=graph.edges, metadata={}, type_check=False)
    expected = NIRNetwork(stranger, dt, torch.float64)(inputs).detach()
    everything = SpikingNetwork(
        network.layers, network.weight, network.heads, network.intercept, network.neurons, readout="all"
    )
    found = _scores(everything, inputs).reshape(expected.shape)
    if not torch.allclose(expected, found, 1e-6, 1e-6):
        n_apart = int((~torch.isclose(expected, found, 1e-6, 1e-6)).sum())
        raise Finding(f"expected the scores of the nodes, got others at {n_apart} of {found.numel()} of {network}")


@torch.no_grad()
def _scores(network: SpikingNetwork, inputs: Tensor) -> Tensor:
    return network(inputs)


def _export(network: SpikingNetwork, dt: float) -> Any:
    try:
        return to_nir(network, dt=dt)
    except CvxsnnError as error:
        if "\n" in str(error):
            raise Finding(f"expected one sentence, got {str(error)!r}") from error
        return None


def _through_file(graph: Any, folder: Path, rng: np.random.Generator) -> Any:
    if rng.integers(2):
        return graph
    write_nir(graph, folder / "graph.nir")
    return folder / "graph.nir"


def _draw_inputs(rng: np.random.Generator, n_features: int) -> Tensor:
    """Return sequences on the grid of real inputs, some blank."""
    values = rng.integers(-32, 33, size=(3, 6, n_features)) / 16
    values[:, : rng.integers(3)] = 0
    return torch.from_numpy(values)


def _draw_network(rng: np.random.Generator) -> SpikingNetwork:
    """Return a network of neurons of any kind, with whole weights, so that sums and ties are exact."""
    n_subnetworks, sizes = int(rng.integers(1, 4)), rng.integers(1, 5, size=rng.integers(2, 4))
    layers = []
    for depth, (n_inputs, width) in enumerate(pairwise(sizes)):
        shape = (n_subnetworks, int(width))

        def pick(*choices: float, shape: tuple[int, int] = shape) -> Tensor:
            few = rng.choice(choices, size=rng.integers(1, len(choices) + 1), replace=False)
            return torch.from_numpy(rng.choice(few, size=shape)).double()

        taps: dict[str, Any] = {}
        n_taps = int(n_inputs)
        if rng.integers(3) == 0:
            n_taps = int(rng.integers(1, 5))
            sources = rng.integers(n_inputs, size=(n_subnetworks, n_taps, width))
            delays = rng.integers(4, size=(n_subnetworks, n_taps, width))
            taps = {"source": torch.from_numpy(sources), "delay": torch.from_numpy(delays), "n_sources": int(n_inputs)}
        weight = torch.from_numpy(rng.integers(-3, 4, size=(n_subnetworks, n_taps, width)) / 2)
        layers.append(
            LIFLayer(
                weight.double(),
                bias=pick(0.0, -0.5, 0.25),
                decay=pick(0.5, 0.0, 1.0, 0.75),
                threshold=pick(1.0, 0.5, 0.0, -0.5),
                initial_membrane=pick(0.0, -1.0, 0.5),
                initial_spikes=pick(0.0, 1.0) if rng.integers(3) == 0 else 0.0,
                tie=str(rng.choice(["ge", "gt"])),
                **taps,
            ).to(dtype=torch.float32 if rng.integers(4) == 0 and not depth else torch.float64)
        )
    layers = [layer.to(dtype=layers[0].weight.dtype) for layer in layers]
    n_outputs, n_neurons = int(rng.integers(1, 4)), n_subnetworks * int(sizes[-1])
    return SpikingNetwork(
        layers,
        torch.from_numpy(rng.normal(size=(n_neurons, n_outputs))),
        [OutputHead("output", "squared", 0, n_outputs)],
        torch.from_numpy(rng.normal(size=n_outputs)),
        torch.from_numpy(rng.permutation(n_neurons)),
        readout=str(rng.choice(["last", "all", "mean"])),
    )


def _draw_graph(rng: np.random.Generator, dt: float) -> Any:
    """Return a graph of several branches of nodes, which are added up."""
    width = int(rng.integers(1, 4))
    nodes: dict[str, Any] = {"input": nir.Input(np.array([width]))}
    edges: list[tuple[str, str]] = []
    joint = "input"
    for depth in range(rng.integers(1, 4)):
        ends = []
        for branch in range(rng.integers(1, 3)):
            source = joint
            for place in range(rng.integers(1, 4)):
                name = f"node_{depth}_{branch}_{place}"
                nodes[name] = _draw_node(rng, width, dt)
                edges.append((source, name))
                source = name
            ends.append(source)
        joint = f"node_{depth}_sum"
        nodes[joint] = nir.Scale(np.ones(width))
        edges += [(end, joint) for end in ends]
    nodes["output"] = nir.Output(np.array([width]))
    edges.append((joint, "output"))
    return nir.NIRGraph(nodes=nodes, edges=edges, metadata={})


def _draw_node(rng: np.random.Generator, width: int, dt: float) -> Any:
    tau = dt / rng.choice([0.25, 0.5, 1.0], size=width)
    ones, zeros = np.ones(width), np.zeros(width)
    threshold = rng.choice([0.5, 1.0], size=width)
    return {
        "affine": lambda: nir.Affine(rng.integers(-2, 3, (width, width)) / 2, rng.integers(-2, 3, width) / 4),
        "linear": lambda: nir.Linear(rng.integers(-2, 3, (width, width)) / 2),
        "scale": lambda: nir.Scale(rng.integers(-2, 3, width) / 2),
        "threshold": lambda: nir.Threshold(threshold),
        "delay": lambda: nir.Delay(dt * rng.integers(4, size=width)),
        "i": lambda: nir.I(ones / dt),
        "li": lambda: nir.LI(tau, ones, zeros),
        "if": lambda: nir.IF(ones / dt, threshold, zeros),
        "lif": lambda: nir.LIF(tau, ones, zeros, threshold, zeros),
        "cubali": lambda: nir.CubaLI(tau, tau[::-1].copy(), ones, zeros, ones),
        "cubalif": lambda: nir.CubaLIF(tau, tau[::-1].copy(), ones, zeros, threshold, zeros, ones),
    }[
        str(
            rng.choice(["affine", "linear", "scale", "threshold", "delay", "i", "li", "if", "lif", "cubali", "cubalif"])
        )
    ]()


def _run_by_hand(graph: Any, inputs: np.ndarray, dt: float) -> np.ndarray:
    """Return the outputs of a graph without cycles, from the equations of its nodes."""
    order, state, outputs = _order(graph), {}, []
    for step in np.moveaxis(inputs, 1, 0):
        values: dict[str, Any] = {}
        for name in order:
            node = graph.nodes[name]
            sources = [values[start] for start, end in sorted({*graph.edges}) if end == name]
            given = step if type(node).__name__ == "Input" else sum(sources[1:], sources[0]) if sources else None
            values[name] = given if given is None else _step_node(node, given, state.setdefault(name, {}), dt)
        outputs.append(values["output"])
    return np.stack(outputs, 1)


def _step_node(node: Any, x: np.ndarray, state: dict[str, Any], dt: float) -> np.ndarray:
    kind = type(node).__name__
    if kind in ("Input", "Output"):
        return x
    if kind in ("Affine", "Linear"):
        return x @ node.weight.T + (node.bias if kind == "Affine" else 0.0)
    if kind == "Scale":
        return x * node.scale
    if kind == "Threshold":
        return (x > node.threshold).astype(float)
    if kind == "Delay":
        past = state.setdefault("past", [])
        past.append(x)
        steps = np.rint(node.delay / dt).astype(int)
        columns = [past[-1 - n][:, i] if n < len(past) else np.zeros(len(x)) for i, n in enumerate(steps)]
        return np.stack(columns, 1)
    if kind.startswith("Cuba"):
        state["synapse"] = state.get("synapse", 0.0) + dt / node.tau_syn * (node.w_in * x - state.get("synapse", 0.0))
        x = state["synapse"]
    before = state.get("membrane", 0.0 * x)
    if kind in ("I", "IF"):
        membrane = before + dt * node.r * x
    else:
        tau = node.tau_mem if kind.startswith("Cuba") else node.tau
        membrane = before + dt / tau * (node.v_leak - before + node.r * x)
    state["membrane"] = membrane
    if not hasattr(node, "v_threshold"):
        return membrane
    fires = membrane > node.v_threshold
    state["membrane"] = np.where(fires, node.v_reset, membrane)
    return fires.astype(float)


def _order(graph: Any) -> list[str]:
    """Return the names of nodes in an order in which each comes after those that it reads."""
    left, order = set(graph.nodes), []
    while left:
        ready = sorted(name for name in left if not any(end == name and start in left for start, end in graph.edges))
        if not ready:
            return []
        order += ready
        left -= set(ready)
    return order


def _has_order(graph: Any) -> bool:
    """Return whether a graph has no cycle, an input, an output, and only nodes that are read by the reference."""
    kinds = {type(node).__name__ for node in graph.nodes.values()}
    known = {
        "Input",
        "Output",
        "Affine",
        "Linear",
        "Scale",
        "Threshold",
        "Delay",
        "I",
        "LI",
        "IF",
        "LIF",
        "CubaLI",
        "CubaLIF",
    }
    read = {end for _, end in graph.edges} | {"input"}
    return bool(_order(graph)) and kinds <= known and {"Input", "Output"} <= kinds and set(graph.nodes) <= read


def _first_shape(graph: Any) -> list[Any]:
    return [node.input_type["input"] for node in graph.nodes.values() if type(node).__name__ == "Input"]


def _damage(graph: Any, rng: np.random.Generator) -> str:
    """Change one thing in a graph, and say which."""
    names = list(graph.nodes)
    name = str(rng.choice(names))
    node = graph.nodes[name]
    kind = rng.choice(["node", "edge", "new edge", "array", "array", "array", "type", "name", "metadata"])
    if kind == "node":
        del graph.nodes[name]
    elif kind == "edge":
        del graph.edges[rng.integers(len(graph.edges))]
    elif kind == "new edge":
        graph.edges.append((name, str(rng.choice([*names, "nowhere"]))))
    elif kind == "name":
        graph.nodes[str(rng.choice(["", "a.b", "☃", "input", "output", "1", "x y"]))] = graph.nodes.pop(name)
    elif kind == "type":
        graph.nodes[name] = rng.choice([None, 3, nir.Flatten({"input": np.array([2])}, 0, -1), nir.Scale(np.ones(7))])
    elif kind == "metadata":
        return _damage_metadata(graph, rng)
    else:
        fields = [key for key, value in vars(node).items() if isinstance(value, np.ndarray)]
        if not fields:
            return _damage(graph, rng)
        field = str(rng.choice(fields))
        graph.nodes[name] = node = copy.copy(node)
        kind = f"array {field}"
        setattr(node, field, _odd(getattr(node, field), rng))
    return f"{kind} of {name} ({type(node).__name__})"


def _odd(array: np.ndarray, rng: np.random.Generator) -> Any:
    """Return an array with another value, shape or type."""
    changed = np.array(array, dtype=float)
    change = rng.integers(6)
    if change < 3 and changed.size:
        changed.flat[rng.integers(changed.size)] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -1.0, 1e300, 1e-300, 0.3])
        return changed
    return [changed[..., None], changed[:0], changed.astype(str), None, changed.astype(complex), np.array(2.0)][change]


def _damage_metadata(graph: Any, rng: np.random.Generator) -> str:
    odd: list[Any] = [None, "", "[]", "{}", -1, np.nan, 1e-4, "lif", "{" * 5000, [], True]
    value = odd[rng.integers(len(odd))]
    if "network" in graph.metadata and rng.integers(2):
        header = json.loads(graph.metadata["network"])
        key = str(rng.choice(list(header)))
        place: Any = header
        if isinstance(header[key], list) and header[key] and rng.integers(2):
            place, key = header[key][0], str(rng.choice(list(header[key][0])))
        place[key] = None if isinstance(value, float) else value
        graph.metadata["network"] = json.dumps(header)
        return f"{key} of the network = {value!r}"
    key = str(rng.choice(["generator", "dt", "lossy", "network", "other"]))
    graph.metadata[key] = value
    return f"metadata {key} = {value!r}"


def _describe(graph: Any) -> str:
    return f"{ {name: type(node).__name__ for name, node in graph.nodes.items()} }, {graph.edges}"


HUNT = Hunt("nir_graphs", "NIR graphs: round trips, graphs of others, damaged ones.", case, cases=2_000, short=20)
