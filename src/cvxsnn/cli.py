"""The command line: ``cvxsnn demo``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from .errors import CvxsnnError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Spiking networks trained to a certified optimum.")
console = Console()

_BAR = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeElapsedColumn(),
    TimeRemainingColumn(),
)


@app.callback()
def main() -> None:
    """Spiking networks trained to a certified optimum."""


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("cvxsnn-demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the witnesses.")] = 0,
) -> None:
    """Train spiking networks on tasks that need no files, print certificates, write a report."""
    from .demo import EXPERIMENTS, run
    from .report import COLUMNS, rows, write_report

    try:
        results = []
        bar = Progress(*_BAR, console=console, transient=True)
        with bar:
            job = bar.add_task("starting", total=len(EXPERIMENTS))
            for experiment in EXPERIMENTS:
                bar.update(job, description=experiment.name)
                results.append(run(experiment, seed))
                bar.advance(job)
        table = Table(*COLUMNS, title="Certified read-outs of sampled spiking neurons")
        for row in rows(results):
            table.add_row(*row)
        console.print(table)
        console.print(f"report: {write_report(results, output)}", soft_wrap=True)
    except CvxsnnError as error:
        Console(stderr=True).print(f"cvxsnn: {error}", style="red", soft_wrap=True)
        raise typer.Exit(1) from None
