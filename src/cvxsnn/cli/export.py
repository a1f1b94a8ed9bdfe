"""``cvxsnn export``: a saved model in a format of other libraries or of chips, or as C source."""

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

import cvxsnn as cs

from ..core.errors import InvalidInputError
from ..core.formatting import plural
from .common import ModelFile, command, say
from .data_files import TableOptions, read_data
from .files import ARRAYS, EXPORT, GRAPH, HEADER, ONNX, READ, SOURCE


@command
def export(
    model: ModelFile,
    table: TableOptions,
    output: Annotated[Path, Option("-o", "--output", help="Where to write."), EXPORT],
    to: Annotated[
        Literal["nir", "c", "onnx", "xylo", "loihi"],
        Option(help="A NIR graph, C99 source and a header, ONNX, or the arrays that configure a chip."),
    ] = "nir",
    lossy: Annotated[bool, Option("--lossy", help="NIR: plain LIF nodes, which reset differently.")] = False,
    dt: Annotated[float, Option(help="NIR: seconds per step.")] = 1e-4,
    integers: Annotated[bool, Option("--integers", help="C: no floating-point numbers; needs --data.")] = False,
    data: Annotated[Path | None, Option(help="C: data of the fit, for the self-test and --integers."), READ] = None,
    steps: Annotated[int | None, Option(min=1, help="C, ONNX: steps of all sequences, for windows of time.")] = None,
) -> None:
    """Write a saved model in a format of other libraries or of chips, or as C source for microcontrollers."""
    loaded = cs.load(model)
    if lossy and to != "nir":
        raise InvalidInputError(f"expected --lossy with --to nir, got --to {to}, which has the same spikes")
    if (integers or data is not None) and to != "c":
        raise InvalidInputError(f"expected --integers and --data with --to c, got --to {to}")
    if steps is not None and to not in ("c", "onnx"):
        raise InvalidInputError(f"expected --steps with --to c or --to onnx, got --to {to}")
    if to in ("xylo", "loihi"):
        ARRAYS.check(output)
        write = cs.export_loihi if to == "loihi" else cs.export_xylo
        write(loaded, output)
        say(f"saved: {output}")
        return
    if to == "c":
        if integers and data is None:
            raise InvalidInputError("expected the data of the fit for --integers, to compare spikes: pass --data")
        header = output.with_suffix(".h")
        SOURCE.check(output)
        HEADER.check(header)
        known = loaded if hasattr(loaded, "is_sequential_") else None
        samples = None if data is None else read_data(data, table, needs_targets=False, model=known)
        cs.export_c(loaded, output, X=None if samples is None else samples.X, integers=integers, n_steps=steps)
        say(f"saved: {output} and {header}")
        return
    if to == "onnx":
        ONNX.check(output)
        cs.export_onnx(loaded, output, n_steps=steps)
        say(f"saved: {output}")
        return
    GRAPH.check(output)
    _write_nir(loaded, output, lossy, dt)


def _write_nir(model: Any, output: Path, lossy: bool, dt: float) -> None:
    """Write a NIR graph."""
    from ..estimators.pipelines import network_of, split_pipeline
    from ..exchange.nir import to_nir, write_nir

    transformers, estimator = split_pipeline(model)
    graph = to_nir(network_of(estimator), lossy=lossy, dt=dt)
    note, scale = "", getattr(estimator, "input_scale_", None)
    if scale is not None:
        graph.metadata |= {"input_mean": scale[0], "input_scale": scale[1]}
        note = "; it reads (X − input_mean) / input_scale, see its metadata"
    if transformers:
        names = ", ".join(type(transformer).__name__ for transformer in transformers)
        note += f"; X is what the pipeline's other steps return: {names}"
    write_nir(graph, output)
    kind = "lossy" if lossy else "exact"
    say(f"saved: {output}, {kind} graph of {plural(len(graph.nodes), 'node')}, dt {dt:g} s{note}")
