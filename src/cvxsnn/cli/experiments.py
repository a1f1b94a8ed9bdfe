"""``cvxsnn demo``, ``reproduce`` and ``report``: the demonstration, the paper's experiments, and users' experiments."""

from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Literal

from rich.markup import escape
from rich.table import Table
from typer import Argument, Exit, Option

from ..core.errors import DataFileError, InvalidInputError
from ..core.formatting import plural
from ..core.progress import ProgressBar
from ..core.storage import make_folder
from .common import command, complain, console, say
from .files import FOLDER, PAGE, READ, REPORT

Names = Annotated[
    list[str] | None,
    Argument(help="Experiments, or your own .toml files; by default the paper's."),
    READ,
]
Imports = Annotated[
    list[Path] | None, Option("--import", help="A Python file that registers tasks; may be repeated."), READ
]
Scale = Annotated[Literal["smoke", "paper"], Option(help="smoke (minutes) or paper (hours).")]


@command
def demo(
    output: Annotated[Path, Option(help="Folder for the report."), FOLDER] = Path("cvxsnn-demo"),
    seed: Annotated[int, Option(min=0, help="Seed of witnesses and batches.")] = 0,
) -> None:
    """Fit a classifier beside others, train by five methods on tasks that need no files, and write a report."""
    from ..experiments import demo as demonstration

    make_folder(output, "output", "choose another --output")
    PAGE.check(output / "index.html")
    results: list[demonstration.DemoResult] = []
    configs = demonstration.demo_configs(seed)
    with ProgressBar(console) as bar:
        bar("demo", 0, len(configs) + 1)
        lead = demonstration.Lead.run(seed)
        for task_name, config in configs:
            bar("demo", len(results) + 1, len(configs) + 1)
            results.append(demonstration.run(task_name, config))
    first = Table(*lead.columns, title=lead.title)
    for row in lead.rows:
        first.add_row(*row)
    console.print(first)
    console.print(f"{escape(lead.verdict)}\n")
    table = Table(*demonstration.COLUMNS, title="Five ways to train a spiking network")
    by_task = {name: list(members) for name, members in groupby(results, key=attrgetter("task_name"))}
    for members in by_task.values():
        for result in members:
            table.add_row(*result.row, end_section=result is members[-1])
    console.print(table)
    console.print(f"[dim]{demonstration.LEGEND}.[/dim]")
    for name, members in by_task.items():
        console.print(f"\n[bold]{escape(name)}[/bold]: {escape(demonstration.judge_task(members))}")
    say(f"report: {demonstration.write_demo_page(results, output, lead=lead)}")


@command
def reproduce(
    names: Names = None,
    scale: Scale = "smoke",
    output: Annotated[Path, Option("-o", "--output", help="Folder for records."), FOLDER] = Path("cvxsnn-results"),
    row: Annotated[list[str] | None, Option(help="Only runs of this row; may be repeated.")] = None,
    method: Annotated[list[str] | None, Option(help="Only runs of this method; may be repeated.")] = None,
    jobs: Annotated[int, Option(help="Processes; -1 is one per core.")] = -1,
    backend: Annotated[str, Option(help="A joblib backend, such as dask or ray once it is registered.")] = "loky",
    scheduler: Annotated[str | None, Option(help="HOST:PORT of a Dask scheduler, for --backend dask.")] = None,
    device: Annotated[str, Option(help="cpu, cuda, or auto: cuda if there is one.")] = "auto",
    retry_failed: Annotated[bool, Option("--retry-failed", help="Try failed runs again.")] = False,
    imports: Imports = None,
    only_list: Annotated[bool, Option("--list", help="Only list the experiments.")] = False,
) -> None:
    """Run the paper's experiments, or your own. Stop it at any time: the same command continues where it stopped."""
    from joblib import parallel_config

    from ..core.checks import check_choice, check_device
    from ..experiments import RecordStore, all_runs, experiment_names, import_tasks, run_all
    from ..experiments.ridge import METHOD as RIDGE
    from ..fitting import METHODS

    # Workers know a task by the absolute path of its file.
    imports = [path.absolute() for path in imports or ()]
    for path in imports:
        import_tasks(path)
    if only_list:
        console.print(_list(names or experiment_names(), scale))
        return
    configs = all_runs(names or experiment_names(), scale, row or ())
    for name in method or ():
        check_choice("--method", name, (*METHODS, RIDGE))
    configs = {name: config for name, config in configs.items() if not method or config.method in method}
    store = RecordStore(output / scale)
    if scheduler is not None and backend != "dask":
        raise InvalidInputError(f"expected --backend dask beside a --scheduler, got --backend {backend}")
    host = {} if scheduler is None else {"scheduler_host": scheduler}
    try:
        workers = parallel_config(backend, n_jobs=jobs, **host)
    except (ValueError, ImportError, TypeError, OSError) as error:
        raise InvalidInputError(
            f"expected an available joblib backend, got {backend!r}: {error}; for Dask name a --scheduler that answers"
        ) from error
    where = str(check_device(device))
    with ProgressBar(console) as bar, workers:
        outcome = run_all(
            configs, store, n_jobs=jobs, device=where, retry_failed=retry_failed, imports=imports, callback=bar
        )
    for record in outcome.damaged:
        say(f"made again: {record.path} had {record.reason}", "yellow")
    say(
        f"{plural(outcome.n_done, 'run')} done, {outcome.n_failed} failed, {outcome.n_skipped} were there already; "
        f"next: cvxsnn {' '.join(['report', *(names or []), *(f'--import {path}' for path in imports)])} "
        f"--records {output} --scale {scale}"
    )
    if outcome.n_failed:
        records, _ = store.read_all()
        errors = [str(record["error"]) for name, record in records.items() if name in configs and "error" in record]
        complain(f"first failure: {errors[0].splitlines()[0]}")
        raise Exit(1)


def _list(names: list[str], scale: Literal["smoke", "paper"]) -> Table:
    from ..data.tasks import TASKS
    from ..experiments import load_experiment

    table = Table("name", "title", "cells", "runs", "data files")
    for name in names:
        experiment = load_experiment(name, scale)
        runs = experiment.runs().values()
        files = dict.fromkeys(TASKS[config.task["name"]].files for config in runs)
        counts = str(len(experiment.cells)), str(len(runs))
        table.add_row(name, experiment.title, *counts, ", ".join(filter(None, files)))
    return table


@command
def report(
    names: Names = None,
    records: Annotated[Path, Option(help="Folder that `cvxsnn reproduce` wrote."), READ] = Path("cvxsnn-results"),
    scale: Scale = "smoke",
    imports: Imports = None,
    output: Annotated[Path, Option("-o", "--output", help="The page to write."), REPORT] = Path("cvxsnn-report.html"),
    tables: Annotated[
        Path | None,
        Option(help="Folder for a table of each experiment, too."),
        FOLDER,
    ] = None,
) -> None:
    """Render records as one page: every table and figure, ours beside the paper's."""
    from ..experiments import RecordStore, experiment_names, import_tasks, load_experiment
    from ..experiments.report import write_report
    from ..experiments.tables import write_tables

    folder = records / scale
    if not folder.is_dir():
        raise DataFileError(f"expected records in {folder}, found no such folder: run `cvxsnn reproduce` first")
    for path in imports or ():
        import_tasks(path.absolute())
    recorded, damaged = RecordStore(folder).read_all()
    experiments = [load_experiment(name, scale) for name in names or experiment_names()]
    if tables is not None:
        make_folder(tables, "tables", "choose another --tables")
    write_report(output, experiments, recorded, damaged, scale)
    say(f"report: {output}")
    if tables is not None:
        written = write_tables(tables, experiments, recorded, scale)
        say(f"tables: {plural(len(written), 'file')} in {tables}")
