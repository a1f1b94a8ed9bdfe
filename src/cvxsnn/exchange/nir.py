r"""Exchange with NIR, the Neuromorphic Intermediate Representation.

NIR's own LIF neuron resets to a value, ours by subtraction. A graph of smaller nodes is our neuron exactly:

    Affine ──► LI ──► Threshold ──► Affine (read-out)
               ▲          │
               └── Scale ◄┘   minus the threshold, one step late

Readers start at zero, so the membrane is measured from its initial value: with :math:`V = U - U^0`,

.. math::
    V^t = \beta V^{t-1} + \big(I^t - (1 - \beta) U^0\big) - U_{thr} S^{t-1}, \qquad S^t = 1\{V^t \ge -U^0\},

and LI's Euler step has :math:`\tau = \Delta t / (1 - \beta)` and :math:`R = 1 / (1 - \beta)`. Neurons that do not leak
are integrated by a node I next to LI; each neuron uses one of the two, and the other outputs zero.

Synapses with delays are grouped by their delay: those without one are in the Affine node, and for each delay d in use
there are a Delay node of :math:`d\, \Delta t` seconds and a Linear node behind it, whose output is added to Affine's:

    ──┬─────────────► Affine ──┬──► LI
      └──► Delay ───► Linear ──┘
"""

import io
import json
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..core.checks import check_type
from ..core.errors import DataFileError, InvalidInputError, LossyExchangeWarning, first_line
from ..core.libraries import import_library
from ..core.storage import write_atomically
from ..network.spiking_network import OutputHead, SpikingNetwork
from ..neurons import LIFLayer
from .library import silent_start, tilt
from .merging import check_size, lif_layers, merge_subnetworks, with_delays, without_delays
from .nir_network import DT, NIRNetwork, check_step, parameter_of, whole_steps

_FORMAT = 1
_EXACT = {"bias": "bias", "decay": "decay", "membrane": "initial_membrane", "spikes": "initial_spikes"}
"""Parameters of a layer that nodes round; the metadata of its spiking node has them, under these names."""
_LOSS = "neurons of the NIR graph reset to zero instead of by subtraction, start at rest, and do not fire on ties"

Nodes = dict[str, Any]
Edges = list[tuple[str, str]]


def to_nir(network: SpikingNetwork, *, lossy: bool = False, dt: float = DT) -> Any:
    """Convert a network to a NIR graph that outputs scores at every step.

    Parameters
    ----------
    network : SpikingNetwork
        A network of LIF neurons.
    lossy : bool
        Whether to return a plain graph of LIF nodes instead, which more readers and chips support. Its neurons reset to
        zero, so its spikes differ. A warning and the metadata say so.
    dt : float
        Seconds per step. NIR is in continuous time, so readers must use the same value; the metadata has it.

    Returns
    -------
    nir.NIRGraph
        The graph, for :func:`write_nir` or ``nir.write``.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> network = cs.reconstruct(solution)
    >>> graph = cs.exchange.to_nir(network)
    >>> again = cs.exchange.from_nir(graph)
    >>> bool((again.features(inputs) == network.features(inputs)).all())
    True
    """
    nir = import_library("nir", "nir")
    dt = check_step(dt)
    merged = merge_subnetworks(network, "NIR")
    if merged.n_windows > 1:
        raise InvalidInputError(f"expected readout 'last', 'all' or 'mean' for a NIR graph, got {merged.readout!r}")
    nodes: Nodes = {"input": nir.Input(np.array([merged.n_features]))}
    edges: Edges = []
    headers: list[dict[str, Any]] = []
    source, dtype = "input", network.layers[0].weight.dtype
    for depth, layer in enumerate(lif_layers(merged), 1):
        lifted = without_delays(layer) if layer.has_delays else layer
        *past, present = torch.split(lifted.weight[0], layer.n_inputs)
        plain = lifted.with_tensors({"weight": present[None]})
        parts, links = _plain_layer(nir, plain, dt) if lossy else _exact_layer(nir, plain, dt, dtype)
        targets = [end for start, end in links if start == "1_affine"]
        links.append(("", "1_affine"))  # an edge from the layer below
        delayed = {delay: weight for delay, weight in enumerate(reversed(past), 1) if bool(weight.any())}
        for delay, weight in delayed.items():
            line, linear = _delay_names(delay)
            parts |= {line: nir.Delay(np.full(layer.n_inputs, delay * dt)), linear: nir.Linear(_numpy(weight.T))}
            links += [("", line), (line, linear), *((linear, end) for end in targets)]
        # nirtorch reads nodes in the order of their names, and none may precede those that it depends on.
        nodes |= {_name(depth, part): parts[part] for part in sorted(parts)}
        edges += [(_name(depth, start) if start else source, _name(depth, end)) for start, end in links]
        source = _name(depth, "4_spikes")
        delays = {"delays": list(delayed)} if layer.has_delays else {}
        headers.append({"tie": layer.tie, "weight_bits": lifted.weight_bits, **delays})
    nodes["readout"] = nir.Affine(_numpy(merged.weight.T), _numpy(merged.intercept))
    nodes["output"] = nir.Output(np.array([merged.n_outputs]))
    edges += [(source, "readout"), ("readout", "output")]
    if lossy:
        warnings.warn(f"lossy: {_LOSS}", LossyExchangeWarning, stacklevel=2)
    header = {"format": _FORMAT, "dtype": str(dtype).removeprefix("torch."), "readout": network.readout}
    header |= {"heads": [asdict(head) for head in network.heads], "layers": headers}
    loss = {"reset": "zero", "lossy": _LOSS} if lossy else {"reset": "subtract", "lossy": ""}
    metadata = {"generator": "cvxsnn", "dt": dt, **loss, "network": json.dumps(header)}
    return nir.NIRGraph(nodes=nodes, edges=edges, metadata=metadata)


def from_nir(graph: Any, *, dt: float | None = None, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Convert a NIR graph to a torch module.

    Parameters
    ----------
    graph : nir.NIRGraph, str or Path
        The graph, or the path of its file.
    dt : float, optional
        Seconds per step; by default the value in the graph's metadata, or 1e-4.
    dtype : torch.dtype
        Type in which graphs of other libraries are computed.

    Returns
    -------
    SpikingNetwork or NIRNetwork
        A network for an exact graph that cvxsnn wrote, a :class:`NIRNetwork` for any other.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> network = cs.reconstruct(solution)
    >>> graph = cs.exchange.to_nir(network)
    >>> again = cs.exchange.from_nir(graph)
    >>> bool((again.features(inputs) == network.features(inputs)).all())
    True
    """
    nir = import_library("nir", "nir")
    if isinstance(graph, (str, Path)):
        graph = _read_file(nir.read, Path(graph))
    check_type(graph, nir.NIRGraph, "a NIR graph or the path of one")
    metadata = graph.metadata
    step = check_step(metadata.get("dt", DT) if dt is None else dt)
    if metadata.get("generator") != "cvxsnn" or metadata.get("lossy"):
        return NIRNetwork(graph, step, dtype)
    try:
        network = _network_in(graph.nodes, json.loads(metadata["network"]), step)
        _check_same(graph, to_nir(network, dt=step))  # somebody may have edited the nodes and not the header
        return network
    except Exception as error:  # parts that do not fit together raise all kinds of errors
        raise InvalidInputError(
            "expected a complete network in a graph that cvxsnn wrote, got one that does not fit together: "
            f"{first_line(error)}; remove its metadata to run it like any other graph"
        ) from None


def _check_same(graph: Any, expected: Any) -> None:
    """Refuse a graph that differs from the export of its own network in a node or an edge."""
    if sorted(graph.edges) != sorted(expected.edges) or graph.nodes.keys() != expected.nodes.keys():
        raise InvalidInputError("expected the nodes and edges of the network, got others")
    for name, node in expected.nodes.items():
        is_same = type(graph.nodes[name]) is type(node)
        for key, value in vars(node).items() if is_same else ():
            if isinstance(value, np.ndarray):
                # Time constants are rounded when they are written, and again when they are read.
                read = parameter_of(getattr(graph.nodes[name], key)).numpy()
                is_same = is_same and read.shape == value.shape and np.allclose(read, value, 1e-6, 1e-300)
        if not is_same:
            raise InvalidInputError(f"expected the node {name!r} of the network, got another")


def write_nir(graph: Any, path: Path | str) -> None:
    """Write a graph to a file; an existing file is replaced only when the new one is complete.

    Parameters
    ----------
    graph : nir.NIRGraph
        The graph.
    path : Path or str
        Path of the file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> network = cs.reconstruct(solution)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cs.exchange.write_nir(cs.exchange.to_nir(network), Path(folder) / "network.nir")
    ...     again = cs.exchange.from_nir(Path(folder) / "network.nir")
    >>> len(again.neurons) == len(network.neurons)
    True
    """
    buffer = io.BytesIO()
    import_library("nir", "nir").write(buffer, graph)
    write_atomically(Path(path), buffer.getvalue())


def _name(depth: int, part: str) -> str:
    return f"layer{depth:02}_{part}"


def _delay_names(delay: int) -> tuple[str, str]:
    """Return the names of the Delay node and of the Linear node of a delay."""
    return f"0_delay{delay:07}", f"1_linear{delay:07}"


def _exact_layer(nir: Any, layer: LIFLayer, dt: float, dtype: torch.dtype) -> tuple[Nodes, Edges]:
    """Return the nodes of a layer, from "1_affine" to "4_spikes", and the edges between them."""
    decay, start = layer.decay[0], silent_start(layer)
    # Readers compute in the network's own type or a finer one. A tie must be visible in float32 too.
    threshold = tilt(-start.to(dtype), layer.tie, torch.finfo(torch.float32).tiny)
    exact = {name: _numpy(getattr(layer, key)[0]) for name, key in _EXACT.items()}
    nodes = {
        "1_affine": nir.Affine(_numpy(layer.weight[0].T), _numpy(layer.bias[0] - (1 - decay) * start)),
        "4_spikes": nir.Threshold(_numpy(threshold), metadata=exact),
        "5_reset": nir.Scale(_numpy(-layer.threshold[0])),
    }
    leaks = decay < 1
    if bool(leaks.any()):
        rate = torch.where(leaks, 1 - decay, 1.0)  # neurons without leak have gain 0 here; 1 avoids 0 / 0
        nodes["2_leak"] = nir.LI(_numpy(dt / rate), _numpy(leaks / rate), np.zeros(layer.width))
    if not bool(leaks.all()):
        nodes["3_sum"] = nir.I(_numpy(~leaks) * _inverse(dt))
    edges = [("4_spikes", "5_reset")]
    for membrane in sorted(nodes.keys() & {"2_leak", "3_sum"}):
        edges += [("1_affine", membrane), ("5_reset", membrane), (membrane, "4_spikes")]
    return nodes, edges


def _inverse(dt: float) -> float:
    """Return 1 / dt, rounded so that readers who multiply it by dt get 1 if any number does that."""
    rounded = 1 / dt
    neighbours = (rounded, np.nextafter(rounded, 0), np.nextafter(rounded, np.inf))
    return next((inverse for inverse in neighbours if inverse * dt == 1), rounded)


def _plain_layer(nir: Any, layer: LIFLayer, dt: float) -> tuple[Nodes, Edges]:
    """Return an Affine node and a node of neurons that reset to zero, and the edge between them."""
    rate, threshold = 1 - layer.decay[0], layer.threshold[0]
    if bool((threshold <= 0).any()):
        raise InvalidInputError(f"expected thresholds above 0, got {threshold.min():g}: export without lossy")
    if bool((rate == 0).any() and (rate > 0).any()):
        raise InvalidInputError("expected a layer whose neurons all leak or none, got both: export without lossy")
    v_threshold, zeros = _numpy(threshold), np.zeros(layer.width)
    if bool((rate == 0).all()):
        neuron = nir.IF(np.full(layer.width, 1 / dt), v_threshold, zeros)
    else:
        neuron = nir.LIF(_numpy(dt / rate), _numpy(1 / rate), zeros, v_threshold, zeros)
    affine = nir.Affine(_numpy(layer.weight[0].T), _numpy(layer.bias[0] + rate * threshold))
    return {"1_affine": affine, "4_spikes": neuron}, [("1_affine", "4_spikes")]


def _network_in(nodes: Nodes, header: dict[str, Any], dt: float) -> SpikingNetwork:
    if header["format"] != _FORMAT:
        raise InvalidInputError(f"expected format {_FORMAT}, got {header['format']!r}: update cvxsnn")
    dtype = {"float32": torch.float32, "float64": torch.float64}[header["dtype"]]
    layers = [_layer_in(nodes, depth, each, dt).to(dtype=dtype) for depth, each in enumerate(header["layers"], 1)]
    heads = [OutputHead(**head) for head in header["heads"]]
    weight = parameter_of(nodes["readout"].weight).T
    intercept = parameter_of(nodes["readout"].bias)
    return SpikingNetwork(layers, weight, heads, intercept, readout=header["readout"])


def _layer_in(nodes: Nodes, depth: int, settings: dict[str, Any], dt: float) -> LIFLayer:
    affine, spikes, reset = (nodes[_name(depth, part)] for part in ("1_affine", "4_spikes", "5_reset"))
    exact = {key: parameter_of(spikes.metadata[name]) for name, key in _EXACT.items()}
    weights = {0: parameter_of(affine.weight).T}
    delays = settings.pop("delays", None)
    for delay in delays or ():
        line, linear = (nodes[_name(depth, part)] for part in _delay_names(delay))
        if not np.all(whole_steps(line.delay, dt) == delay):
            raise InvalidInputError(f"expected delays of {delay} steps in layer {depth}, got others")
        weights[delay] = parameter_of(linear.weight).T
    n_inputs, longest = len(weights[0]), max(weights)
    check_size((longest + 1) * weights[0].numel(), f"delays up to {longest}")
    unread = torch.zeros_like(weights[0])
    weight = torch.cat([weights.get(delay, unread) for delay in range(longest, -1, -1)])
    parameters: dict[str, Any] = {**exact, **settings, "threshold": -parameter_of(reset.scale)}
    layer = LIFLayer(weight[None], **parameters)
    return layer if delays is None else with_delays(layer, n_inputs)


def _read_file(read: Callable[[Path], Any], path: Path) -> Any:
    if not path.is_file():
        raise DataFileError(f"expected a NIR file at {path}, found none")
    try:
        return read(path)
    except Exception as error:  # HDF5 and NIR raise all kinds of errors on other files
        raise DataFileError(f"expected a NIR file at {path}, which fails with {first_line(error)}") from None


def _numpy(value: Tensor) -> npt.NDArray[np.float64]:
    array: npt.NDArray[np.float64] = value.detach().cpu().to(torch.float64).contiguous().numpy().copy()
    return array
