"""Small files about every experiment, made from records alone: a Markdown table, its numbers as JSON, a picture."""

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.formatting import plural, printable
from ..core.storage import make_folder, write_atomically
from .experiment import Cell, Experiment, Scale
from .figures import draw_panels
from .metrics import format_number, quantity_of, read_metric
from .summary import (
    NO_NUMBER,
    TOLERANCES,
    VERDICTS,
    CellSummary,
    ExperimentSummary,
    Records,
    finished_runs,
    summarise_experiment,
)

_MEASURED = {
    "n_weights": "weights of the read-out",
    "firing_rate": "spikes per neuron and step",
    "spikes": "spikes per answer",
    "synaptic_operations": "synaptic operations per answer",
    "bytes": "bytes",
    "relative_gap": "relative gap",
}
"""Costs of a network that only some records have."""


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
    pairs = [(experiment, summarise_experiment(experiment, records, scale)) for experiment in experiments]
    files = {"verdicts.md": _verdicts(pairs, records).encode()}
    for experiment, summary in pairs:
        files[f"{summary.name}.md"] = _markdown(experiment, summary, records).encode()
        files[f"{summary.name}.json"] = _json(summary).encode()
        if summary.kind == "figure":
            files[f"{summary.name}.png"] = draw_panels(experiment, summary)
    for name, contents in files.items():
        write_atomically(folder / name, contents)
    return [folder / name for name in files]


def _verdicts(pairs: Sequence[tuple[Experiment, ExperimentSummary]], records: Records) -> str:
    """Return counts of verdicts per experiment, what was proven, and convex read-outs beside gradients."""
    source = " or ".join(dict.fromkeys(experiment.compared_source for experiment, _ in pairs)) or "the paper"
    rows = []
    for experiment, summary in pairs:
        n_runs, done = len(experiment.runs()), finished_runs(experiment, records).values()
        gaps = [abs(gap) for record in done if (gap := read_metric(record, "relative_gap")) is not None]
        runs = f"{len(done)} of {n_runs}" if len(done) < n_runs else n_runs
        link = f"[{summary.name}]({summary.name}.md)"
        largest = format_number(max(gaps, default=None), "gap")
        rows.append([link, *summary.judged.values(), summary.n_unprinted, runs, len(gaps), largest])
    parts = [
        "# Verdicts by experiment",
        _paragraph(
            "Counts of cells, and of runs, which experiments share. A run is certified where its last stage is convex; "
            "its gap is relative to the objective."
        ),
        _table(
            ("experiment", *VERDICTS, f"{NO_NUMBER} {source}", "runs", "certified runs", "largest relative gap"), rows
        ),
    ]
    compared = [row for experiment, summary in pairs for row in compare_methods(experiment, summary)]
    if compared:
        parts += [
            "## Convex read-outs beside surrogate gradients",
            _paragraph(
                "The best mean of a row whose last stage is convex beside the best of surrogate gradients alone, each "
                "with its column. They are level within two standard errors of the difference over seeds."
            ),
            _table(("experiment", "row", "convex", "surrogate gradients", "convex is"), compared),
        ]
    return "\n\n".join(parts) + "\n"


def compare_methods(experiment: Experiment, summary: ExperimentSummary) -> list[tuple[str, ...]]:
    """Return whether a convex read-out is ahead of gradients, for every row and accuracy of a table with both.

    Parameters
    ----------
    experiment : Experiment
    summary : ExperimentSummary

    Returns
    -------
    list of tuple of str
        Experiment, row, the best convex number, the best number of gradients alone, and "ahead", "level" (within two
        standard errors of the difference) or "behind".
    """
    groups: dict[tuple[str, str], dict[bool, list[CellSummary]]] = {}
    for cell, ours in zip(experiment.cells, summary.cells, strict=True):
        if experiment.kind == "table" and ours.mean is not None and quantity_of(ours.metric) == "accuracy":
            is_convex = not {"sg", "sg-sg"}.issuperset(cell.methods)
            groups.setdefault((ours.row, ours.metric), {}).setdefault(is_convex, []).append(ours)
    compared = []
    for (row, metric), kinds in groups.items():
        if len(kinds) == 2:
            best = [max(kinds[is_convex], key=lambda cell: cell.mean or 0.0) for is_convex in (True, False)]
            lead = (best[0].mean or 0.0) - (best[1].mean or 0.0)
            error = math.sqrt(sum((cell.spread or 0.0) ** 2 / cell.n_seeds for cell in best))
            is_level = abs(lead) <= TOLERANCES.n_standard_errors * error
            outcome = "level" if is_level else "ahead" if lead > 0 else "behind"
            texts = [f"{format_number(cell.mean, metric, experiment.digits)}, {cell.column}" for cell in best]
            compared.append((experiment.name, row, *texts, outcome))
    return compared


def _markdown(experiment: Experiment, summary: ExperimentSummary, records: Records) -> str:
    is_figure, columns = summary.kind == "figure", summary.columns
    texts = {
        (cell.row, cell.column): _short_text(ours) if is_figure else _long_text(cell, ours, experiment.digits)
        for cell, ours in zip(experiment.cells, summary.cells, strict=True)
    }
    rows = [[row, *(texts.get((row, column), "") for column in columns)] for row in summary.rows]
    command = f"`cvxsnn reproduce {experiment.reference} --scale {summary.scale}`"
    parts = [
        f"# {_plain(summary.title)}",
        _paragraph(f"{command}: {plural(len(experiment.runs()), 'run')}. {_legend(experiment, summary)}"),
        f"![{_plain(summary.title)}]({summary.name}.png)" if is_figure else "",
        _table(("", *columns), rows),
        *map(_paragraph, experiment.paragraphs),
        "" if is_figure else _costs(experiment, summary, records),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _costs(experiment: Experiment, summary: ExperimentSummary, records: Records) -> str:
    """Return the cost of each cell, one line for those that share their runs, with the command that repeats them."""
    runs_of = [[records[run.run_id] for run in ours.chosen] for ours in summary.cells]

    def mean(runs: Sequence[Mapping[str, Any]], name: str) -> float | None:
        values = [value for run in runs if (value := read_metric(run, name)) is not None]
        return sum(values) / len(values) if values else None

    known = {name for name in _MEASURED for runs in runs_of if mean(runs, name) is not None}
    measured = {name: title for name, title in _MEASURED.items() if {"synaptic_operations", name} <= known}
    formats = {"n_atoms": ",.0f", "n_active": ",.0f", **dict.fromkeys(measured, ""), "seconds": ",.1f"}
    lines: dict[tuple[str, ...], list[object]] = {}
    for cell, ours, runs in zip(experiment.cells, summary.cells, runs_of, strict=True):
        numbers = []
        for name, style in formats.items():
            value = mean(runs, name)
            few_digits = ",.0f" if (value or 0.0) >= 100 else ".2g"
            numbers.append("" if value is None else format(value, style or few_digits))
        devices = " or ".join(sorted({str(run.get("machine", {}).get("device", "")) for run in runs}))
        only = f" --method {cell.methods[0]}" if len(cell.methods) == 1 else ""
        command = f'`cvxsnn reproduce {experiment.reference} --scale {summary.scale} --row "{cell.row}"{only}`'
        if runs:
            key = tuple(run.run_id for run in ours.chosen)
            lines.setdefault(key, [cell.row, " or ".join(ours.methods), *numbers, devices, command])
    head = ("", "method", "columns", "neurons read", *measured.values(), "seconds per run", "device", "command")
    table = _table(head, list(lines.values()))
    return f"## Costs\n\nMeans over the chosen runs, one per seed.\n\n{table}" if lines else ""


def _legend(experiment: Experiment, summary: ExperimentSummary) -> str:
    if summary.kind == "figure":
        return f"Means of {summary.quantity} over seeds; bands are one sample standard deviation either way."
    legend = f"Mean ± sample standard deviation over seeds of {summary.quantity}"
    if summary.has_paper:
        legend += f", {experiment.compared_with} in brackets, the verdict"
    if any(len(cell.methods) > 1 for cell in experiment.cells):
        legend += ", and where validation data choose among methods, the one they chose"
    return f"{legend}."


def _long_text(cell: Cell, ours: CellSummary, digits: int) -> str:
    text = format_number(ours.mean, ours.metric, digits)
    if ours.spread is not None:
        text += f" ± {format_number(ours.spread, ours.metric, digits)}"
    if ours.paper is not None:
        text += f" ({format_number(ours.paper, ours.metric, digits)}) {ours.verdict}"
    if ours.reason and not ours.reason.startswith(NO_NUMBER):
        text += f": {ours.reason}"
    return f"{text}, {' or '.join(ours.methods)}" if len(cell.methods) > 1 and ours.methods else text


def _short_text(ours: CellSummary) -> str:
    lost = "" if ours.n_runs == ours.n_expected_runs else f" ({ours.n_runs} of {ours.n_expected_runs})"
    return format_number(ours.mean, ours.metric) + lost


def _json(summary: ExperimentSummary) -> str:
    """Return one line per cell: a change of one number is a change of one line."""
    plain = summary.as_dict()
    cells = ",\n".join(json.dumps(cell) for cell in plain.pop("cells"))
    head = json.dumps(plain, indent=1).removesuffix("\n}")
    return f'{head},\n "cells": [\n{cells}\n]}}\n'


def _table(columns: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(_plain, line))} |" for line in lines)


def _paragraph(text: str) -> str:
    return textwrap.fill(_plain(text), 120, break_long_words=False, break_on_hyphens=False)


def _plain(value: object) -> str:
    """Return text on one line that does not break a table."""
    return " ".join(printable(str(value)).split()).replace("|", r"\|")
