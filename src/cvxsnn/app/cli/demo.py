"""``cvxsnn demo``: five methods on three tasks, and a page about them."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ...core.storage import make_folder
from .common import command, progress_bar, say, show
from .files import FOLDER, PAGE


@command
def demo(
    output: Annotated[Path, typer.Option(help="Folder for the report."), FOLDER] = Path("cvxsnn-demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of witnesses and batches.")] = 0,
) -> None:
    """Train spiking networks by five methods on tasks that need no files, and write a report."""
    from ..demo import DEMO_TASKS, FIVE_METHODS, DemoResult, run
    from ..demo_page import COLUMNS, LEGEND, judge_task, make_rows, write_demo_page

    make_folder(output, "output", "choose another --output")
    PAGE.check(output / "index.html")
    results: list[DemoResult] = []
    total = len(DEMO_TASKS) * len(FIVE_METHODS)
    with progress_bar() as bar:
        for task in DEMO_TASKS:
            for method in FIVE_METHODS:
                bar("demo", len(results), total)
                results.append(run(task, method, seed))
    table = Table(*COLUMNS, title="Five ways to train a spiking network")
    for number, row in enumerate(make_rows(results)):
        if number and results[number].task_name != results[number - 1].task_name:
            table.add_section()
        table.add_row(*row)
    show(table)
    show(f"[dim]{LEGEND}.[/dim]")
    for name in dict.fromkeys(result.task_name for result in results):
        verdict = judge_task([result for result in results if result.task_name == name])
        show(f"\n[bold]{escape(name)}[/bold]: {escape(verdict)}")
    say(f"report: {write_demo_page(results, output)}")
