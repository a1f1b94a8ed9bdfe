"""``cvxsnn export``: a saved model in a format of other libraries."""

from pathlib import Path
from typing import Annotated

import typer

from ...core.errors import InvalidInputError
from .common import ModelFile, app, check_folder, plain_errors, say


@app.command()
def export(
    model: ModelFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write.")],
    to: Annotated[str, typer.Option(help="The format: nir.")] = "nir",
    lossy: Annotated[bool, typer.Option("--lossy", help="Plain LIF nodes, which reset otherwise than ours.")] = False,
    dt: Annotated[float, typer.Option(help="Seconds a step.")] = 1e-4,
) -> None:
    """Write a saved model in a format of others."""
    from ...estimators.files import load
    from ...exchange.nir import to_nir, write_nir
    from ...network.spiking_network import SpikingNetwork

    with plain_errors():
        if to != "nir":
            raise InvalidInputError(
                f"expected --to nir, got {to!r}: other libraries have no file format, so use cvxsnn.exchange in Python"
            )
        check_folder(output)
        found = load(model)
        network = found if isinstance(found, SpikingNetwork) else found.network_
        graph = to_nir(network, lossy=lossy, dt=dt)
        note = ""
        if not isinstance(found, SpikingNetwork):
            graph.metadata |= {"input_mean": found._mean, "input_scale": found._scale}
            note = "; it reads (X − input_mean) / input_scale, see its metadata"
        write_nir(graph, output)
        kind = "lossy" if lossy else "exact"
        say(f"saved: {output}, {kind} graph of {len(graph.nodes)} nodes, dt {dt:g} s{note}")
