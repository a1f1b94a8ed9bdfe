"""``cvxsnn export``: a saved model in a format of other libraries."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

import cvxsnn as cs

from ..core.formatting import plural
from .common import ModelFile, command, say
from .files import GRAPH


@command
def export(
    model: ModelFile,
    output: Annotated[Path, Option("-o", "--output", help="Where to write."), GRAPH],
    to: Annotated[Literal["nir"], Option(help="The format. Other libraries have none: use Python.")] = "nir",
    lossy: Annotated[bool, Option("--lossy", help="Plain LIF nodes, which reset differently.")] = False,
    dt: Annotated[float, Option(help="Seconds per step.")] = 1e-4,
) -> None:
    """Write a saved model in a format of other libraries."""
    from ..estimators.pipelines import network_of, split_pipeline
    from ..exchange.nir import to_nir, write_nir

    transformers, estimator = split_pipeline(cs.load(model))
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
