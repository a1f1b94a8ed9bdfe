"""``cvxsnn plan``: memory and a rough time of a job, before it starts."""

import json
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from typer import Option

from .common import command, say


@dataclass(frozen=True)
class Job:
    """The sizes of a dictionary and of a solve over it; each field is an option of ``cvxsnn plan``."""

    rows: Annotated[int, Option(help="Sequences; with --readout all each of their steps is a row.")]
    columns: Annotated[int, Option(help="Witnesses.")]
    steps: Annotated[int, Option(help="Steps per sequence.")]
    outputs: Annotated[int, Option(help="Outputs, or classes of a softmax.")] = 1
    features: Annotated[int, Option(help="Features per step.")] = 16
    hidden: Annotated[str | None, Option(help="Widths of a subnetwork's layers, such as 256,512.")] = None
    taps: Annotated[int | None, Option(help="Synapses per neuron, in layers with delays.")] = None
    loss: Annotated[str, Option(help="squared, logistic, softmax or hinge.")] = "squared"
    readout: Annotated[str, Option(help="last, mean or all.")] = "last"
    windows: Annotated[int | None, Option(help="Windows of time for --readout mean.")] = None
    active: Annotated[int | None, Option(help="Active atoms per output, if known.")] = None
    device: Annotated[str, Option(help="cpu, cuda, or auto: cuda if there is one.")] = "auto"
    memory: Annotated[str | None, Option(help="Such as 64GB; by default what is available here.")] = None


@command
def plan(job: Job, as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False) -> None:
    """Print the memory and a rough time of a job, from rates measured here in about a second."""
    from .planning import make_plan

    planned = make_plan(job)
    if as_json:
        numbers = asdict(planned) | {"total_seconds": sum(planned.seconds.values())}
        typer.echo(json.dumps(numbers, indent=2))
    else:
        say(str(planned))
