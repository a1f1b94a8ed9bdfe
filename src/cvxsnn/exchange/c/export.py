"""Writing C99 source for a fitted model."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...convex.losses import LOSSES
from ...convex.objective import decide_class
from ...core import __version__
from ...core.errors import InvalidInputError
from ...core.formatting import plural, printable
from ...core.storage import write_atomically
from ...data.sequences import Sequences
from ...estimators.inputs import read_inputs, standardise
from ...estimators.pipelines import network_of, split_pipeline
from ...network import SpikingNetwork
from ...neurons.exact import INPUT_UNIT
from .integers import LONGEST, IntegerModel, in_integers
from .program import CLayer, Floats, Program, compile_network, runs
from .tables import INT32_MAX, write_float, write_integer, write_lines, write_tables

_N_TESTED = 3
_LONGEST_TESTED = 64
"""Number and length of the sequences of the self-test."""


def export_c(
    model: Any,
    path: Path | str,
    *,
    name: str | None = None,
    X: Any = None,
    integers: bool = False,
    n_steps: int | None = None,
) -> None:
    """Write a fitted model as C99 source that has the same spikes as Python, to the bit.

    Besides the source, a header of the same name is written. It states memory, operations, and how to use the
    functions: ``NAME_reset``, ``NAME_step``, ``NAME_scores`` and ``NAME_class``. Nothing is allocated, and no library
    is needed. The source standardises its inputs like the estimator. Statistics of spikes are the same numbers as in
    Python, too; scores may differ in their last digits, because Python adds in another order.

    Parameters
    ----------
    model : SpikingClassifier, SpikingRegressor or SpikingNetwork
        The model.
    path : Path or str
        Path of the source, which ends in ``.c``. Existing files are replaced.
    name : str, optional
        Prefix of all names in C; by default the name of the file.
    X : array or list of arrays, optional
        Sequences as in ``fit``. The first ones become the self-test (``-DNAME_SELF_TEST``), which has random sequences
        otherwise. Required for ``integers``.
    integers : bool
        Whether to do without floating-point numbers. Inputs are then whole numbers that the caller has standardised, in
        units of 2⁻¹⁶; membranes are fixed-point numbers, and weights of the read-out have 32 bits. A model of which any
        spike on ``X`` would change is refused.
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
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cs.export_c(model, Path(folder) / "model.c")
    ...     sorted(file.name for file in Path(folder).iterdir())
    ['model.c', 'model.h']
    """
    path = Path(path)
    if path.suffix != ".c":
        raise InvalidInputError(f"expected a path that ends in .c, got {path}: choose another name")
    if not re.fullmatch(r"[\w .+-]+", path.stem, re.ASCII):
        raise InvalidInputError(f"expected a file name of letters, digits and _, got {path.name!r}: choose another one")
    prefix = re.sub(r"\W", "_", path.stem) if name is None else name
    prefix = f"model_{prefix}" if name is None and not prefix[0].isalpha() else prefix
    if not isinstance(prefix, str) or not re.fullmatch(r"[A-Za-z]\w*", prefix, re.ASCII):
        raise InvalidInputError(f"expected a name of letters, digits and _ that begins with a letter, got {name!r}")
    source, header = _render(model, prefix, path.stem, X, integers, n_steps)
    write_atomically(path.with_suffix(".h"), header.encode())
    write_atomically(path, source.encode())


def compile_model(model: Any, n_steps: int | None) -> tuple[Any, SpikingNetwork, Program]:
    """Return the model without a pipeline of one step, its network and its program; refuse other models.

    Parameters
    ----------
    model : SpikingClassifier, SpikingRegressor, SpikingNetwork or Pipeline
        The model.
    n_steps : int, optional
        Number of steps of all sequences; required for windows of time.

    Returns
    -------
    model : SpikingClassifier, SpikingRegressor or SpikingNetwork
        The model.
    network : SpikingNetwork
        Its network.
    program : Program
        Its program. Two classes have one score, as in ``decision_function``.
    """
    transformers, estimator = split_pipeline(model)
    if transformers:
        names = ", ".join(type(transformer).__name__ for transformer in transformers)
        raise InvalidInputError(
            f"expected a model without other steps, got a pipeline with {names}: export pipeline[-1], and give it data "
            "that these steps have transformed"
        )
    network = network_of(estimator)
    if type(network) is not SpikingNetwork:  # a subclass may compute something else
        raise InvalidInputError(f"expected a SpikingNetwork, got a {type(network).__name__}: export its network")
    program = compile_network(network, n_steps)
    if len(getattr(estimator, "classes_", ())) == 2 and program.weight.shape[1] == 2:
        weight, intercept = np.diff(program.weight), np.diff(program.intercept)
        program = replace(program, weight=weight, intercept=intercept, size=2 * program.size)
    return estimator, network, program


def _render(model: Any, name: str, stem: str, X: Any, integers: bool, n_steps: int | None) -> tuple[str, str]:
    """Return the source and the header."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    model, network, program = compile_model(model, n_steps)
    if network.readout == "all":  # the scores of a step are those of a sequence that ends there
        network = SpikingNetwork(network.layers, network.weight, network.heads, network.intercept, network.neurons)
    labels = getattr(model, "classes_", np.arange(0)).tolist()
    scale = scale_of(model)
    raw, read = _sequences(model, network.n_features, X, n_steps or 24, scale)
    whole = None
    if integers:
        if X is None:
            raise InvalidInputError("expected sequences on which spikes are compared, got none: pass X")
        program, whole = in_integers(network, program, read)
    lengths = {read.n_steps} if read.lengths is None else {*read.lengths.tolist()}
    if program.n_steps and lengths != {program.n_steps}:
        raise InvalidInputError(
            f"expected sequences of {plural(program.n_steps, 'step')}, got others: pass their n_steps"
        )
    tables = write_tables(program, scale, whole)
    values = _values(network.n_features, program, whole) | {
        "name": name,
        "NAME": name.upper(),
        "header": f"{stem}.h",
        "version": __version__,
        "labels": [_in_comment(label) for label in labels],
        "is_classifier": is_classifier(model, network),
        "scales": [] if scale is None else [tuple(map(float, pair)) for pair in zip(*scale, strict=True)],
        "mean": "" if scale is None else ", ".join(map(write_float, scale[0])),
        "scale": "" if scale is None else ", ".join(map(write_float, scale[1])),
        "tables": tables,
        "n_bytes": sum(table.n_bytes for table in tables),
        "test": _test(network, program, whole, raw, read),
        "longest": LONGEST,
        "n_compared": len(read),
        "n_other": 0 if whole is None else _other_classes(network, program, whole, read),
    }
    environment = Environment(
        loader=PackageLoader("cvxsnn.exchange.c", "templates"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    source, header = (environment.get_template(f"model.{ending}").render(values) for ending in ("c", "h"))
    return source, header


def is_classifier(model: Any, network: SpikingNetwork) -> bool:
    """Return whether the scores of a model are those of classes."""
    if hasattr(model, "network_"):
        return hasattr(model, "classes_")
    loss = LOSSES.get(network.heads[0].loss)
    return len(network.heads) == 1 and loss is not None and not loss.is_regression


def _other_classes(network: SpikingNetwork, program: Program, whole: IntegerModel, read: Sequences) -> int:
    """Return for how many sequences the whole scores mean another class."""
    features = network.features(read).cpu()
    n_steps = torch.full((len(read),), read.n_steps) if read.lengths is None else read.lengths
    one, other = program.scores(features), whole.scores(program, features, n_steps.numpy())
    return int((decide_class(one) != decide_class(other)).sum())


def scale_of(model: Any) -> tuple[Floats, Floats] | None:
    """Return mean and scale of the features of an estimator that standardises."""
    scale = getattr(model, "input_scale_", None)
    if scale is None or not (scale[0].any() or (scale[1] != 1).any()):
        return None
    mean, spread = scale
    return mean, spread


def _sequences(
    model: Any, n_features: int, X: Any, n_steps: int, scale: tuple[Floats, Floats] | None
) -> tuple[Sequences, Sequences]:
    """Return sequences as the caller has them, random ones by default, and as the network reads them."""
    mean, spread = (np.zeros(n_features), np.ones(n_features)) if scale is None else scale
    if X is None:
        drawn = np.random.default_rng(0).standard_normal((_N_TESTED, n_steps, n_features))
        # Numbers of few digits.
        raw = Sequences(torch.from_numpy((mean + spread * drawn).astype(np.float32)).double())
    else:
        raw = read_inputs(model, X, reset=False) if hasattr(model, "network_") else Sequences.of(X)
    if raw.n_features != n_features:
        raise InvalidInputError(f"expected sequences of {plural(n_features, 'feature')}, got {raw.n_features}")
    return raw, Sequences(torch.from_numpy(standardise(raw.inputs.numpy(), mean, spread)), raw.lengths)


def _values(n_features: int, program: Program, whole: IntegerModel | None) -> dict[str, Any]:
    """Return what both templates read of a program, apart from tables."""
    top = program.layers[-1]
    statistics = [segment.statistic for segment in program.segments]
    n_lazy = sum(block.last - block.first for block in top.blocks if block.is_lazy)
    n_numbers = sum(segment.last - segment.first for segment in program.segments if segment.statistic != "last")
    layers = [_layer_values(program, depth, whole is not None) for depth in range(len(program.layers))]
    blocks = [block for layer in program.layers for block in layer.blocks]
    dynamic = [block for block in blocks if block.kind in ("membrane", "recurrent")]
    has_shares = any(statistic not in ("ever", "last") for statistic in statistics)
    printed = "scores[i]"
    if whole is not None:
        steps = f" / {program.n_steps or 'state->steps'}" if has_shares else ""
        printed = f"(double)scores[i] * {write_float(whole.unit)}{steps}"
    narrow, views = min(INT32_MAX, program.largest), _views(program)
    return {
        "program": program,
        "integers": whole,
        "number": "double" if whole is None else "int32_t",
        "score": "double" if whole is None else "int64_t",
        "print_score": printed,
        "n_features": n_features,
        "n_outputs": program.weight.shape[1],
        "n_classes": max(2, program.weight.shape[1]),
        "n_windows": program.n_windows,
        "layers": layers,
        "segments": program.segments,
        "views": views,
        "has_changes": any("changes" in view["name"] for view in views),
        "has_squares": any("square" in view["name"] for view in views),
        "has_root": "root" in statistics,
        "has_shares": has_shares,
        "divided": f", divided by {program.n_steps or 'the steps so far'}" if has_shares else "",
        "steps_factor": f" * {program.n_steps or 'steps'}" if whole is not None and has_shares else "",
        "factor": f" * {2**whole.root_bits}" if whole is not None and whole.root_bits else "",
        "n_lazy": n_lazy,
        "has_lazy_groups": any(block.kind == "group" and block.is_lazy for block in blocks),
        "has_eager_groups": any(block.kind == "group" and not block.is_lazy for block in blocks),
        "starts_somewhere": any(layer["starts_membranes"] or layer["starts_spikes"] for layer in layers),
        "n_numbers": n_numbers,
        "n_bursts": sum(segment.last - segment.first for segment in program.segments if segment.statistic == "burst"),
        "narrow_largest": narrow,
        "narrow_limit": f"{narrow / 65536:.6g}",
        "wide_limit": f"{program.largest / 65536:.6g}",
        "step_operations": sum(layer.n_taps(is_lazy=False) for layer in program.layers)
        + sum(3 * (block.last - block.first) for block in dynamic)
        + n_numbers,
        "score_operations": sum(layer.n_taps(is_lazy=True) for layer in program.layers) + program.weight.size,
    }


def _views(program: Program) -> list[dict[str, Any]]:
    """Return the views of the inputs and the rows of the first layer that have them."""
    rows = runs((number,) for number in program.layers[0].rows[:, 0].tolist())
    return [{"name": program.views[number], "first": first, "last": last} for number, first, last in rows]


def _layer_values(program: Program, depth: int, is_whole: bool) -> dict[str, Any]:
    """Return what the templates read of a layer."""
    layer = program.layers[depth]
    number = depth + 1
    group = 0
    n_lazy = sum(block.last - block.first for block in layer.blocks if block.is_lazy)
    blocks = []
    for block in layer.blocks:
        values: dict[str, Any] = {**vars(block), "offset": f" - {n_lazy}" if n_lazy else "", "group_first": group}
        if block.kind == "group":
            group = int(np.searchsorted(layer.group_ends, block.last, "right"))
        blocks.append({**values, "group_last": group})
    dynamic = [block for block in layer.blocks if block.kind in ("membrane", "recurrent")]
    n_membranes = sum(block.last - block.first for block in dynamic if block.kind == "membrane")
    first = dynamic[0].first if dynamic else 0
    is_ring = layer.depth > 1
    array = f"values_{number}" if depth == 0 or is_ring else f"spikes_{depth}"
    sums = [{"suffix": f"{number}", "type": _sum_type(layer, depth), "is_ring": is_ring, "array": array}]
    if layer.recurrent is not None:
        kind = "int32_t" if layer.recurrent.levels.max() <= INT32_MAX else "int64_t"
        sums.append({"suffix": f"recurrent_{number}", "type": kind, "is_ring": False, "array": f"spikes_{number}"})
    is_double = layer.layer.weight.dtype == torch.float64
    return {
        "number": number,
        "blocks": blocks,
        "depth": layer.depth,
        "n_rows": layer.n_rows,
        "size": layer.depth * layer.n_rows,
        "sums": sums,
        "n_membranes": n_membranes,
        "n_dynamic": sum(block.last - block.first for block in dynamic),
        "dynamic_kept": first - n_lazy,
        "n_kept": len(layer.neurons) - n_lazy,
        "real": "int32_t" if is_whole else "double" if is_double else "float",
        "fires": ">" if getattr(layer.layer, "tie", "ge") == "gt" else ">=",
        "starts_membranes": n_membranes > 0 and bool(layer.parameter("initial_membrane")[first:].any()),
        "starts_spikes": bool(dynamic) and bool(layer.parameter("initial_spikes")[first:].any()),
    }


def _sum_type(layer: CLayer, depth: int) -> str:
    """Return the type of sums over the taps: those of spikes are small."""
    return "int32_t" if depth and layer.taps.levels.max() <= INT32_MAX else "int64_t"


def _in_comment(label: object) -> str:
    """Return a label as it can stand in a comment of C."""
    text = printable(json.dumps(label) if isinstance(label, str) else str(label))
    return text.replace("*/", "* /").replace("/*", "/ *")


def _test(
    network: SpikingNetwork, program: Program, whole: IntegerModel | None, raw: Sequences, read: Sequences
) -> dict[str, Any]:
    """Return sequences for the self-test, and their scores."""
    n_steps = program.n_steps or min(_LONGEST_TESTED, read.n_steps)
    few = torch.arange(min(_N_TESTED, len(raw)))
    lengths = torch.full((len(few),), n_steps) if raw.lengths is None else raw.lengths[few].clamp(max=n_steps)
    # All beginnings of a sequence, whose scores are those of its steps; windows are complete at the end alone.
    ends = [torch.arange(length if program.n_steps else 1, length + 1) for length in lengths.tolist()]
    rows = few.repeat_interleave(torch.tensor([len(end) for end in ends]))
    beginnings = Sequences(read.inputs[rows, :n_steps], torch.cat(ends))
    features = network.features(beginnings).cpu()
    scores: npt.NDArray[Any]
    if whole is None:
        inputs, write = raw.inputs[few], write_float
        scores = program.scores(features)
    else:
        inputs, write = torch.round(read.inputs[few] / INPUT_UNIT), write_integer
        scores = whole.scores(program, features, torch.cat(ends).numpy())
    texts = []
    for row in np.split(scores, np.cumsum([len(end) for end in ends])[:-1]):
        texts.append(", ".join(map(write, sum(row[1:], row[0]))))
    steps = [value for row, length in zip(inputs, lengths.tolist(), strict=True) for value in row[:length].flatten()]
    return {
        "lengths": lengths.tolist(),
        "size": len(steps),
        "inputs": write_lines([write(step) for step in steps]),
        "scores": "\n".join(f"        {{ {text} }}," for text in texts),
    }
