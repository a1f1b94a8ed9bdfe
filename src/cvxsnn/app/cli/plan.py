"""``cvxsnn plan``: memory and a rough time of a job, before it starts."""

import json
from itertools import zip_longest
from typing import Annotated

import typer
from rich.table import Table

from .common import app, parse_widths, plain_errors, say, show


@app.command()
def plan(
    rows: Annotated[int, typer.Option(help="Sequences; with --readout all each of their steps is a row.")],
    columns: Annotated[int, typer.Option(help="Witnesses.")],
    steps: Annotated[int, typer.Option(help="Steps of a sequence.")],
    outputs: Annotated[int, typer.Option(help="Outputs, or classes of a softmax.")] = 1,
    features: Annotated[int, typer.Option(help="Numbers of a step.")] = 16,
    hidden: Annotated[str | None, typer.Option(help="Widths of a subnetwork's layers, such as 256,512.")] = None,
    loss: Annotated[str, typer.Option(help="squared, logistic, softmax or hinge.")] = "squared",
    readout: Annotated[str, typer.Option(help="last, mean or all.")] = "last",
    strength_ratio: Annotated[float, typer.Option(help="Strength, relative to the critical one.")] = 0.01,
    active: Annotated[int | None, typer.Option(help="Active atoms of an output, where known.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: cuda where there is one.")] = "auto",
    memory: Annotated[str | None, typer.Option(help="Of one machine, such as 64GB; what is available here.")] = None,
    machines: Annotated[int, typer.Option(help="Machines of a cluster.")] = 1,
    cores: Annotated[int | None, typer.Option(help="Cores of each; as many threads as here by default.")] = None,
    gpus: Annotated[int, typer.Option(help="GPUs of each; then they do the work.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Foresee memory and time of a job, from rates measured here in a few seconds."""
    from ...core.memory import parse_bytes
    from ..planning import Cluster
    from ..planning import plan as foresee

    with plain_errors():
        found = foresee(
            rows,
            columns,
            steps,
            n_features=features,
            hidden=None if hidden is None else parse_widths(hidden),
            n_outputs=outputs,
            loss=loss,  # type: ignore[arg-type]
            readout=readout,  # type: ignore[arg-type]
            strength_ratio=strength_ratio,
            n_active=active,
            device=device,
            memory=None if memory is None else parse_bytes(memory),
            cluster=Cluster(machines, cores, gpus),
        )
        if as_json:
            typer.echo(json.dumps(found.as_dict(), indent=2))
            return
        say(found.job)
        table = Table("memory", "", "time", " ", title_justify="left")
        for line in zip_longest(found.memory_rows(), found.time_rows(), fillvalue=("", "")):
            table.add_row(*line[0], *line[1])
        show(table)
        style = "green" if found.fits else "red"
        say(f"runs {found.place}, solver {found.solver}", style)
        for sentence in found.assumptions:
            say(f"assumed: {sentence}")
