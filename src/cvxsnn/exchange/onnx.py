"""Networks as ONNX graphs of plain nodes, whose spikes are those of Python.

Sums over synapses are products of whole numbers in float64, which are exact in any order, so that no runtime can change
a spike. All steps of a layer are computed at once; only membranes, feedback and runs of spikes need a Scan over time.
"""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..core import __version__
from ..core.errors import InvalidInputError
from ..core.formatting import printable
from ..core.libraries import import_library
from ..core.storage import write_atomically
from ..data.sequences import window_of_step
from ..network import SpikingNetwork
from ..neurons.exact import INPUT_UNIT
from .c.export import compile_model, is_classifier, scale_of
from .c.program import CLayer, Floats, Integers, Program, Segment, Taps, runs

_OPSET, _IR = 18, 8
_LARGEST_SUM = 2**53 - 1
"""Whole numbers up to here, and so all their sums, are exact in float64."""

_STEP, _NEURON = 1, 2
"""Axes of arrays (n_samples, n_steps, n_neurons)."""


def export_onnx(model: Any, path: Path | str, *, n_steps: int | None = None) -> None:
    """Write a fitted model as an ONNX graph that has the same spikes as Python, to the bit.

    Its input is ``X``, float64 of shape (n_samples, n_steps, n_features), any number of sequences of any one length;
    inputs are standardised inside. Its outputs are ``scores`` and, for classifiers, ``class``, the number of the class
    from 0; the metadata has the labels.

    Statistics of spikes are the same numbers as in Python, too; scores may differ in their last digits, by at most the
    ``tolerance`` in the metadata, because a runtime adds in another order. Sequences whose sums would not be exact,
    which Python refuses, have scores NaN and class -1.

    Parameters
    ----------
    model : SpikingClassifier, SpikingRegressor or SpikingNetwork
        The model: LIF or threshold neurons, or lateral neurons in the first layer. Others are refused.
    path : Path or str
        Path of the file, which ends in ``.onnx``. An existing one is replaced.
    n_steps : int, optional
        Number of steps of all sequences; required for read-outs of windows of time, and ignored by others.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> X = np.random.default_rng(0).normal(size=(60, 5, 2))
    >>> model = cs.SpikingClassifier(n_neurons=64, random_state=0).fit(X, X.sum((1, 2)) > 0)
    >>> try:
    ...     import onnxruntime
    ... except ImportError:
    ...     onnxruntime = None
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "model.onnx"
    ...     if onnxruntime:
    ...         cs.export_onnx(model, path)
    ...         (classes,) = onnxruntime.InferenceSession(path).run(["class"], {"X": X})
    ...         assert (model.classes_[classes] == model.predict(X)).all()
    """
    path = Path(path)
    if path.suffix != ".onnx":
        raise InvalidInputError(f"expected a path that ends in .onnx, got {path}: choose another name")
    onnx = import_library("onnx", "onnx")
    estimator, network, program = compile_model(model, n_steps)
    written = onnx.helper.make_model(
        _write_graph(onnx, network, program, scale_of(estimator), is_classifier(estimator, network)),
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
        producer_name="cvxsnn",
        producer_version=__version__,
    )
    notes = {"tolerance": repr(program.tolerance)}
    if hasattr(estimator, "classes_"):
        notes["classes"] = json.dumps([printable(str(label)) for label in estimator.classes_.tolist()])
    onnx.helper.set_model_props(written, notes)
    onnx.checker.check_model(written, full_check=True)
    write_atomically(path, written.SerializeToString())


class _Graph:
    """The nodes of a graph, or of the body of a Scan, in the making; arrays among inputs of nodes become constants."""

    def __init__(self, onnx: Any, numbers: Iterator[int] | None = None) -> None:
        self.onnx, self.numbers = onnx, numbers or count()
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *inputs: Any, name: str | None = None, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        name = name or f"{kind}_{next(self.numbers)}"
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        self.nodes.append(self.onnx.helper.make_node(kind, names, [name], name, **attributes))
        return name

    def constant(self, value: Any, name: str | None = None) -> str:
        """Add a constant and return its name."""
        name = name or f"constant_{next(self.numbers)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def cast(self, value: str, dtype: npt.DTypeLike) -> str:
        """Convert to a type."""
        return self.add("Cast", value, to=self._type(dtype))

    def scan(
        self, body: "_Graph", width: int, starts: dict[str, Any], steps: str, results: dict[str, Any]
    ) -> list[str]:
        """Add a Scan over steps, which its body reads as ``step``, and return the names of its results.

        Parameters
        ----------
        body : _Graph
            The body.
        width : int
            Number of neurons.
        starts : dict of str to tuple
            The states in the body: their types, and the names of their values before the first step.
        steps : str
            What has an axis of steps, of the type of the first state.
        results : dict of str to type
            The states after a step, in the same order, and then what is kept of each step.
        """
        shape = ["n_samples", width]
        inputs = [(name, kind, shape) for name, (kind, _) in starts.items()]
        outputs = [(name, kind, shape) for name, kind in results.items()]
        names = [f"{name}_of_all" for name in results]
        n_kept = len(results) - len(starts)
        node = self.onnx.helper.make_node(
            "Scan",
            [*(start for _, start in starts.values()), steps],
            names,
            body=body.finish("body", [*inputs, ("step", inputs[0][1], shape)], outputs),
            num_scan_inputs=1,
            scan_input_axes=[_STEP],
            **({"scan_output_axes": [_STEP] * n_kept} if n_kept else {}),
        )
        self.nodes.append(node)
        return names

    def finish(self, name: str, inputs: list[Any], outputs: list[Any]) -> Any:
        """Return the graph, with inputs and outputs that are names, types and shapes."""
        helper = self.onnx.helper
        values = [
            [helper.make_tensor_value_info(own, self._type(dtype), shape) for own, dtype, shape in each]
            for each in (inputs, outputs)
        ]
        return helper.make_graph(self.nodes, name, *values, self.constants)

    def _type(self, dtype: npt.DTypeLike) -> int:
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _write_graph(onnx: Any, network: SpikingNetwork, program: Program, scale: Any, is_classifier: bool) -> Any:
    """Return the graph of a program."""
    graph = _Graph(onnx)
    inputs: list[Any] = [("X", np.float64, ["n_samples", program.n_steps or "n_steps", network.n_features])]
    values = "X" if scale is None else graph.add("Div", graph.add("Sub", "X", scale[0]), scale[1])
    values = graph.add("Round", graph.add("Div", values, INPUT_UNIT))
    rows = _write_views(graph, program, values)
    is_exact = _write_check(graph, program, rows)
    for number, layer in enumerate(program.layers, 1):
        rows = _write_layer(graph, layer, rows, f"spikes_{number}")
    scores = _write_readout(graph, program, rows, is_every=network.readout == "all")
    if network.readout == "all":
        is_exact = graph.add("Unsqueeze", is_exact, [_STEP])
    axes = ["n_samples", "n_steps"] if network.readout == "all" else ["n_samples"]
    n_outputs = program.weight.shape[1]
    graph.add("Where", is_exact, scores, np.nan, name="scores")
    outputs: list[Any] = [("scores", np.float64, [*axes, n_outputs])]
    if is_classifier:
        best = graph.add("ArgMax", "scores", axis=-1, keepdims=0)
        if n_outputs == 1:
            best = graph.cast(graph.add("Squeeze", graph.add("Greater", "scores", 0.0), [-1]), np.int64)
        graph.add("Where", graph.add("Squeeze", is_exact, [-1]), best, np.int64(-1), name="class")
        outputs.append(("class", np.int64, axes))
    return graph.finish("cvxsnn", inputs, outputs)


def _write_views(graph: _Graph, program: Program, values: str) -> str:
    """Return the views of the inputs that are read, (n_samples, n_steps, n_rows), in their units."""
    before = graph.add("Concat", _between(graph, values, 0, 1), _between(graph, values, 0, -1), axis=_STEP)
    seen = {"values": values, "changes": graph.add("Sub", values, before)}
    for name, view in (("squares", "values"), ("squared changes", "changes")):
        seen[name] = graph.add("Round", graph.add("Mul", graph.add("Mul", seen[view], seen[view]), INPUT_UNIT))
    rows = program.layers[0].rows
    parts = [
        graph.add("Gather", seen[program.views[view]], rows[first:last, 1], axis=_NEURON)
        for view, first, last in runs((view,) for view in rows[:, 0].tolist())
    ]
    return graph.add("Concat", *parts, axis=_NEURON)


def _write_check(graph: _Graph, program: Program, rows: str) -> str:
    """Return whether the sums of each sequence are exact, (n_samples, 1)."""
    first = program.layers[0]
    limit = float(_LARGEST_SUM // max(1, (first.taps.levels << first.shift).max()))
    size = graph.add("Abs", rows)
    is_exact = _write_all(graph, graph.add("LessOrEqual", size, limit))
    if program.views == ("values",):  # as in Python, where sums of whole numbers need fewer bits
        whole = graph.add("Mul", size, INPUT_UNIT)
        is_small = graph.add("LessOrEqual", whole, limit)
        is_whole = graph.add("And", is_small, graph.add("Equal", whole, graph.add("Round", whole)))
        is_exact = graph.add("Or", is_exact, _write_all(graph, is_whole))
    return graph.add("Unsqueeze", is_exact, [1])


def _write_all(graph: _Graph, values: str) -> str:
    """Return whether all values of each sequence are true, (n_samples,)."""
    least = graph.add("ReduceMin", graph.cast(values, np.float64), [_STEP, _NEURON], keepdims=0)
    return graph.cast(least, np.bool_)


def _between(graph: _Graph, values: str, first: int, last: int) -> str:
    """Return some of the steps."""
    return graph.add("Slice", values, [first], [last], [_STEP])


def _write_sums(graph: _Graph, taps: Taps, rows: str, n_rows: int) -> str:
    """Return the sums of all neurons, (n_samples, n_steps, n_neurons), in their units."""
    places = np.unique(taps.place) if len(taps.place) else np.zeros(1, dtype=np.int64)
    delays = places // n_rows
    parts = []
    for delay in np.unique(delays).tolist():
        late = rows
        if delay:
            late = _between(graph, graph.add("Pad", rows, [0, delay, 0, 0, 0, 0]), 0, -delay)
        parts.append(graph.add("Gather", late, places[delays == delay] % n_rows, axis=_NEURON))
    return graph.add("MatMul", graph.add("Concat", *parts, axis=_NEURON), _weights(graph, taps, places))


def _weights(graph: _Graph, taps: Taps, places: Integers) -> str:
    """Return the whole weights from places to neurons as float64; the file has them in a narrow type."""
    weight = np.zeros((len(places), len(taps.unit)), dtype=np.int64)
    neurons = np.repeat(np.arange(len(taps.unit)), np.diff(taps.start))
    np.add.at(weight, (np.searchsorted(places, taps.place), neurons), taps.weight)
    kinds = (np.min_scalar_type(limit) for limit in (weight.min(), -weight.max() - 1))
    return graph.cast(graph.constant(weight.astype(np.result_type(*kinds, np.int8))), np.float64)


def _write_layer(graph: _Graph, layer: CLayer, rows: str, name: str) -> str:
    """Return the spikes of a layer, 0 or 1 in float64, (n_samples, n_steps, n_neurons)."""
    sums = _write_sums(graph, layer.taps, rows, layer.n_rows)
    parts = []
    for block in layer.blocks:
        mine = slice(block.first, block.last)
        own = graph.add("Slice", sums, [block.first], [block.last], [_NEURON])
        if block.kind == "level":
            parts.append(graph.cast(graph.add("GreaterOrEqual", own, layer.level[mine].astype(np.float64)), np.float64))
        elif block.kind == "group":
            parts.append(_write_groups(graph, layer, mine, own))
        else:
            parts.append(_write_dynamics(graph, layer, mine, own, name))
    return graph.add("Concat", *parts, axis=_NEURON, name=name)


def _write_groups(graph: _Graph, layer: CLayer, mine: slice, sums: str) -> str:
    """Return the spikes of groups: of each, the first neuron with the largest sum fires."""
    numbers = np.arange(mine.start, mine.stop)
    group = np.searchsorted(layer.group_ends, numbers, "right")
    group -= group[0]
    first = np.searchsorted(group, np.arange(group[-1] + 1))
    place = numbers - mine.start - first[group]
    # Smaller groups have their first neuron several times, which changes neither the largest sum nor who has it first.
    members = np.repeat(first[:, None], place.max() + 1, axis=1)
    members[group, place] = np.arange(len(place))
    rivals = graph.add("Gather", graph.add("Mul", sums, 2.0 ** layer.shift[mine]), members, axis=_NEURON)
    winner = graph.add("Gather", graph.add("ArgMax", rivals, axis=-1, keepdims=0), group, axis=_NEURON)
    return graph.cast(graph.add("Equal", winner, place), np.float64)


def _write_dynamics(graph: _Graph, layer: CLayer, mine: slice, sums: str, name: str) -> str:
    """Return the spikes of neurons with membranes or feedback, each operation rounded as in Python."""
    real = np.float64 if layer.layer.weight.dtype == torch.float64 else np.float32
    width = mine.stop - mine.start

    def parameter(name: str) -> npt.NDArray[Any]:
        return layer.parameter(name)[mine].astype(real)

    def start(name: str) -> tuple[Any, str]:
        shape = graph.add("Concat", graph.add("Shape", sums, end=1), [width], axis=0)
        return real, graph.add("Expand", parameter(name), shape)

    def scaled(graph: _Graph, sums: str, unit: Floats) -> str:
        return graph.add("Mul", graph.cast(sums, real), unit.astype(real))

    drive = graph.add("Add", scaled(graph, sums, layer.taps.unit[mine]), parameter("bias"))
    body = _Graph(graph.onnx, graph.numbers)
    spikes, is_strict = f"spikes_of_{name}", getattr(layer.layer, "tie", "ge") == "gt"
    states = {f"spike_of_{name}": start("initial_spikes")}
    if layer.recurrent is not None:
        before = body.cast(f"spike_of_{name}", np.float64)
        feedback = body.add("MatMul", before, _weights(body, layer.recurrent, np.arange(width)))
        membrane = body.add("Add", "step", scaled(body, feedback, layer.recurrent.unit[mine]))
    else:
        states[f"membrane_of_{name}"] = start("initial_membrane")
        leaked = body.add("Mul", f"membrane_of_{name}", parameter("decay"))
        reset = body.add("Mul", f"spike_of_{name}", parameter("threshold"))
        membrane = body.add("Sub", body.add("Add", leaked, "step"), reset)
    fired = body.cast(body.add("Greater" if is_strict else "GreaterOrEqual", membrane, real(0)), real)
    results = {fired: real} | ({} if layer.recurrent is not None else {membrane: real})
    results[body.add("Identity", fired, name=spikes)] = real
    return graph.cast(graph.scan(body, width, states, drive, results)[-1], np.float64)


def _write_readout(graph: _Graph, program: Program, spikes: str, *, is_every: bool) -> str:
    """Return the scores: of every step, or of the statistics of sequences."""
    if is_every:
        features = graph.add("Gather", spikes, program.places, axis=_NEURON)
    else:
        parts = [_write_statistic(graph, program, segment, spikes) for segment in program.segments]
        features = graph.add("Concat", *parts, axis=1, name="features")
    return graph.add("Add", graph.add("MatMul", features, program.weight), program.intercept)


def _write_statistic(graph: _Graph, program: Program, segment: Segment, spikes: str) -> str:
    """Return the entries of a statistic, (n_samples, n_columns)."""
    columns, statistic = slice(segment.first, segment.last), segment.statistic
    own = graph.add("Gather", spikes, program.places[columns], axis=_NEURON)
    if statistic == "last":
        return graph.add("Gather", own, -1, axis=_STEP)
    n_steps = graph.add("Shape", own, start=1, end=2)
    if statistic == "ever":
        return graph.add("ReduceMax", own, [_STEP], keepdims=0)
    if statistic == "burst":
        numbers = _write_runs(graph, own, segment.last - segment.first)
    elif statistic == "first":  # T − t
        left = graph.add("Range", graph.add("Squeeze", n_steps), 0, -1)
        left = graph.add("Unsqueeze", graph.cast(left, np.float64), [1])
        numbers = graph.add("ReduceMax", graph.add("Mul", own, left), [_STEP], keepdims=0)
    else:
        if program.windows is not None:
            window = window_of_step(np.arange(program.n_steps), program.n_windows, program.n_steps)
            own = graph.add("Mul", own, (window[:, None] == program.windows[columns]).astype(np.float64))
        numbers = graph.add("ReduceSum", own, [_STEP], keepdims=0)
    # A count times a rounded reciprocal, as in Python. A runtime may turn 1 / T into one division, and Reciprocal not.
    share = program.n_windows / program.n_steps if program.n_steps else graph.cast(n_steps, np.float64)
    shares = graph.add("Mul", numbers, graph.add("Reciprocal", share) if isinstance(share, str) else share)
    return graph.add("Sqrt", shares) if statistic == "root" else shares


def _write_runs(graph: _Graph, spikes: str, width: int) -> str:
    """Return the length of the longest run of spikes."""
    body = _Graph(graph.onnx, graph.numbers)
    run = body.add("Mul", body.add("Add", "run", 1.0), "step")
    longest = body.add("Max", "longest", run)
    zeros = graph.add("Mul", graph.add("Gather", spikes, 0, axis=_STEP), 0.0)
    states = {"run": (np.float64, zeros), "longest": (np.float64, zeros)}
    return graph.scan(body, width, states, spikes, {run: np.float64, longest: np.float64})[1]
