"""Small files about every experiment, made from records alone: a Markdown table, its numbers as JSON, a picture."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.storage import make_folder, write_atomically
from ..formatting import printable
from .comparison import compare_methods
from .experiment import Cell, Experiment, Scale
from .figures import draw_figure
from .metrics import format_number, read_metric
from .summary import VERDICTS, CellSummary, ExperimentSummary, Records, summarise_experiment, what_is_wrong

_MEASURED = {
    "n_weights": "weights of the read-out",
    "firing_rate": "spikes per neuron and step",
    "spikes": "spikes per answer",
    "synaptic_operations": "synaptic operations per answer",
    "bytes": "bytes",
    "relative_gap": "relative gap",
}
"""Costs of a network that only some records have."""

_NO_PAPER = "no number in the paper"


def write_tables(folder: Path, experiments: Sequence[Experiment], records: Records, scale: Scale) -> list[Path]:
    """Write ``NAME.md`` and ``NAME.json`` of every experiment, ``NAME.png`` of every figure, and ``verdicts.md``.

    Parameters
    ----------
    folder : Path
        Created if needed. Files of these names in it are replaced, others are left alone.
    experiments : sequence of Experiment
    records : mapping of run ids to records; those of other runs are ignored
    scale : "paper" or "smoke", what the experiments were loaded at

    Returns
    -------
    list of Path, what was written
    """
    make_folder(folder, "tables")
    summaries = [summarise_experiment(experiment, records, scale) for experiment in experiments]
    files = {"verdicts.md": _verdicts(experiments, summaries, records).encode()}
    for experiment, summary in zip(experiments, summaries, strict=True):
        files[f"{summary.name}.md"] = _markdown(experiment, summary, records).encode()
        files[f"{summary.name}.json"] = _json(summary).encode()
        if summary.kind == "figure":
            files[f"{summary.name}.png"] = draw_figure(experiment, summary)
    for name, contents in files.items():
        write_atomically(folder / name, contents)
    return [folder / name for name in files]


def _verdicts(experiments: Sequence[Experiment], summaries: Sequence[ExperimentSummary], records: Records) -> str:
    """Return counts of verdicts per experiment, and what was proven."""
    head = ("experiment", *VERDICTS, _NO_PAPER, "runs", "certified runs", "largest relative gap")
    rows = []
    for experiment, summary in zip(experiments, summaries, strict=True):
        expected = experiment.runs()
        done = [records[run_id] for run_id in expected if run_id in records and not what_is_wrong(records[run_id])]
        gaps = [abs(gap) for record in done if (gap := read_metric(record, "relative_gap")) is not None]
        n_unprinted = sum(cell.paper is None for cell in summary.cells)
        # A cell without the paper's number is counted once, and not under "cannot tell" as well.
        verdicts = [n - (n_unprinted if name == "cannot tell" else 0) for name, n in summary.verdicts.items()]
        runs = f"{len(done)} of {len(expected)}" if len(done) < len(expected) else len(done)
        largest = format_number(max(gaps, default=None), "gap")
        rows.append([f"[{summary.name}]({summary.name}.md)", *verdicts, n_unprinted, runs, len(gaps), largest])
    return (
        "# Verdicts by experiment\n\n"
        + _paragraph(
            "Counts of cells, and of runs, which experiments share. A run is certified where its last stage is convex; "
            "its gap is relative to the objective."
        )
        + "\n\n"
        + _table(head, rows)
        + _comparisons(experiments, summaries)
    )


def _comparisons(experiments: Sequence[Experiment], summaries: Sequence[ExperimentSummary]) -> str:
    """Return, row by row, whether a convex read-out is ahead of surrogate gradients."""
    digits = {experiment.name: experiment.digits for experiment in experiments}

    def text(experiment: str, cell: CellSummary) -> str:
        return f"{format_number(cell.mean, cell.metric, digits[experiment])}, {cell.column}"

    rows = [
        [own.experiment, own.row, text(own.experiment, own.convex), text(own.experiment, own.gradient), own.outcome]
        for own in compare_methods(experiments, summaries)
    ]
    if not rows:
        return ""
    legend = (
        "The best mean of a row whose last stage is convex beside the best of surrogate gradients alone, each with its "
        "column. They are level within two standard errors of the difference over seeds."
    )
    head = ("experiment", "row", "convex", "surrogate gradients", "convex is")
    return f"\n## Convex read-outs beside surrogate gradients\n\n{_paragraph(legend)}\n\n{_table(head, rows)}"


def _markdown(experiment: Experiment, summary: ExperimentSummary, records: Records) -> str:
    rows = list(dict.fromkeys(cell.row for cell in summary.cells))
    columns = list(dict.fromkeys(cell.column for cell in summary.cells))
    texts: dict[tuple[str, str], str] = {}
    for cell, found in zip(experiment.cells, summary.cells, strict=True):
        text = _short_text(found) if summary.kind == "figure" else _long_text(cell, found, experiment.digits)
        texts[cell.row, cell.column] = text
    table = _table(("", *columns), [[row, *(texts.get((row, column), "") for column in columns)] for row in rows])
    command = f"`cvxsnn reproduce {experiment.reference} --scale {summary.scale}`"
    parts = [
        f"# {_plain(summary.title)}",
        _paragraph(f"{command}: {len(experiment.runs())} runs. {_legend(experiment, summary)}"),
        *([f"![{_plain(summary.title)}]({summary.name}.png)"] if summary.kind == "figure" else []),
        table.rstrip(),
        *(_paragraph(part) for part in experiment.description.strip().split("\n\n") if part.strip()),
        *([_costs(experiment, summary, records)] if summary.kind == "table" else []),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _costs(experiment: Experiment, summary: ExperimentSummary, records: Records) -> str:
    """Return the cost of each cell, one line for those that share their runs, with the command that repeats them."""
    measured = {
        name: title
        for name, title in _MEASURED.items()
        if any(read_metric(records[run.run_id], name) is not None for cell in summary.cells for run in cell.chosen)
    }
    if "synaptic_operations" not in measured:
        measured = {}
    lines: dict[tuple[str, ...], list[object]] = {}
    for cell, found in zip(experiment.cells, summary.cells, strict=True):
        runs = [records[run.run_id] for run in found.chosen]
        if not runs:
            continue

        def mean(name: str, runs: Sequence[Mapping[str, Any]] = runs) -> float | None:
            values = [value for run in runs if (value := read_metric(run, name)) is not None]
            return sum(values) / len(values) if values else None

        atoms, read, seconds = mean("n_atoms"), mean("n_active"), mean("seconds")
        only = f" --method {cell.methods[0]}" if len(cell.methods) == 1 else ""
        lines.setdefault(
            tuple(run.run_id for run in found.chosen),
            [
                cell.row,
                " or ".join(found.methods),
                "" if atoms is None else f"{atoms:,.0f}",
                "" if read is None else f"{read:,.0f}",
                *("" if (own := mean(name)) is None else _size(own) for name in measured),
                "" if seconds is None else f"{seconds:,.1f}",
                " or ".join(sorted({str(run.get("machine", {}).get("device", "")) for run in runs})),
                f'`cvxsnn reproduce {experiment.reference} --scale {summary.scale} --row "{cell.row}"{only}`',
            ],
        )
    if not lines:
        return ""
    head = ("", "method", "columns", "neurons read", *measured.values(), "seconds per run", "device", "command")
    return "## Costs\n\nMeans over the chosen runs, one per seed.\n\n" + _table(head, list(lines.values())).rstrip()


def _size(value: float) -> str:
    """Return a size or a rate in few digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _legend(experiment: Experiment, summary: ExperimentSummary) -> str:
    if summary.kind == "figure":
        return f"Means of {summary.quantity} over seeds; bands are one sample standard deviation either way."
    legend = f"Mean ± sample standard deviation over seeds of {summary.quantity}"
    if any(cell.paper is not None for cell in summary.cells):
        legend += f", {experiment.compared_with} in brackets, the verdict"
    if any(len(cell.methods) > 1 for cell in experiment.cells):
        legend += ", and where validation data choose among methods, the one they chose"
    return f"{legend}."


def _long_text(cell: Cell, found: CellSummary, digits: int) -> str:
    text = format_number(found.mean, found.metric, digits)
    if found.spread is not None:
        text += f" ± {format_number(found.spread, found.metric, digits)}"
    if found.paper is not None:
        text += f" ({format_number(found.paper, found.metric, digits)}) {found.verdict}"
    if found.reason and found.reason != _NO_PAPER:
        text += f": {found.reason}"
    return f"{text}, {' or '.join(found.methods)}" if len(cell.methods) > 1 and found.methods else text


def _short_text(found: CellSummary) -> str:
    is_whole = found.n_runs == found.n_expected_runs
    return format_number(found.mean, found.metric) + (
        "" if is_whole else f" ({found.n_runs} of {found.n_expected_runs})"
    )


def _json(summary: ExperimentSummary) -> str:
    """Return one line per cell: a change of one number is a change of one line."""
    plain = summary.as_dict()
    cells = ",\n".join(json.dumps(cell) for cell in plain.pop("cells"))
    head = json.dumps(plain, indent=1).removesuffix("\n}")
    return f'{head},\n "cells": [\n{cells}\n]}}\n'


def _table(columns: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(_plain(entry) for entry in line) + " |\n" for line in lines)


def _paragraph(text: str) -> str:
    return textwrap.fill(_plain(text), 120, break_long_words=False, break_on_hyphens=False)


def _plain(value: object) -> str:
    """Return text on one line that does not break a table."""
    return " ".join(printable(str(value)).split()).replace("|", r"\|")
