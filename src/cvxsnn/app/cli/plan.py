"""``cvxsnn plan``: memory and a rough time of a job, before it starts."""

import json
from typing import Annotated

import typer

from .common import command, parse_widths, say


@command
def plan(
    rows: Annotated[int, typer.Option(help="Sequences; with --readout all each of their steps is a row.")],
    columns: Annotated[int, typer.Option(help="Witnesses.")],
    steps: Annotated[int, typer.Option(help="Steps per sequence.")],
    outputs: Annotated[int, typer.Option(help="Outputs, or classes of a softmax.")] = 1,
    features: Annotated[int, typer.Option(help="Numbers per step.")] = 16,
    hidden: Annotated[str | None, typer.Option(help="Widths of a subnetwork's layers, such as 256,512.")] = None,
    taps: Annotated[int | None, typer.Option(help="Synapses per neuron, in layers with delays.")] = None,
    loss: Annotated[str, typer.Option(help="squared, logistic, softmax or hinge.")] = "squared",
    readout: Annotated[str, typer.Option(help="last, mean or all.")] = "last",
    windows: Annotated[int | None, typer.Option(help="Windows of time for --readout mean.")] = None,
    strength_ratio: Annotated[float, typer.Option(help="Strength, relative to the critical one.")] = 0.01,
    active: Annotated[int | None, typer.Option(help="Active atoms per output, where known.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: cuda where there is one.")] = "auto",
    memory: Annotated[str | None, typer.Option(help="Of one machine, such as 64GB; what is available here.")] = None,
    machines: Annotated[int, typer.Option(help="Machines that share the rows.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the memory and a rough time of a job, from rates measured here in about a second."""
    from ...core.memory import parse_bytes
    from ..planning import plan as forecast

    found = forecast(
        rows,
        columns,
        steps,
        n_features=features,
        hidden=None if hidden is None else parse_widths(hidden),
        n_taps=taps,
        n_outputs=outputs,
        loss=loss,  # type: ignore[arg-type]
        readout=readout,
        windows=windows,
        strength_ratio=strength_ratio,
        n_active=active,
        device=device,
        memory=None if memory is None else parse_bytes(memory),
        n_machines=machines,
    )
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2))
    else:
        say(str(found))
