"""The part of the report that is about one experiment: its numbers or curves, settings and runs."""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence

from .experiment import Cell, Experiment, RunConfig
from .figures import draw_panel, flattened, panels_of
from .markup import (
    NOTHING,
    VERDICT_CLASSES,
    escape,
    fact_text,
    number_text,
    plural,
    render_table,
    scrolling,
    signed_text,
)
from .records import Damaged
from .summary import CellSummary, ExperimentSummary, Records, RunWithoutResult, what_is_wrong

_MAX_ROWS_IN_SIGHT = 8

_FACTS = ("relative_gap", "l1_strength", "learning_rate", "weight_decay", "n_active", "seconds")
"""Of a record, shown for every run that has them."""


def render_section(
    experiment: Experiment, summary: ExperimentSummary, anchor: str, records: Records, lost: Mapping[str, Damaged]
) -> str:
    """The section as text.

    Parameters
    ----------
    experiment : Experiment
    summary : ExperimentSummary, of it
    anchor : str
        The name that links lead to, of harmless characters.
    records : mapping of run ids to records
    lost : mapping of run ids to Damaged, records that could not be read
    """
    paragraphs = [part for part in re.split(r"\n\s*\n", experiment.description.strip()) if part]
    description = [f"<p>{escape(' '.join(part.split()))}</p>" for part in paragraphs]
    notes = list(dict.fromkeys(cell.note for cell in summary.cells if cell.note))
    if not summary.cells:
        body = "<p>It has no cells at this scale.</p>"
    elif experiment.kind == "figure":
        body = (
            f"{_picture(experiment, summary)}"
            f'<details class="numbers"><summary>The numbers of this figure</summary>{_grid(summary, anchor, notes)}'
            "</details>"
        )
    else:
        body = _grid(summary, anchor, notes)
    places = _places(experiment)
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-title">\n'
        f'<h2 id="{anchor}-title">{escape(experiment.title)}</h2>\n'
        f'<p class="small soft">{experiment.kind} <code>{escape(experiment.name)}</code>, '
        f'{escape(experiment.quantity)}<a class="back" href="#contents">back to the contents</a></p>\n'
        f"{''.join(description[:1])}\n{body}\n{_notes(anchor, notes)}{''.join(description[1:])}\n"
        f"{_without_result(summary, places, lost)}"
        f"{_settings(experiment)}{_runs(experiment, records, places)}</section>\n"
    )


def _picture(experiment: Experiment, summary: ExperimentSummary) -> str:
    """Curves of rows over columns; panels are pictures of their own, so that they fit a narrow window one by one."""
    panels = panels_of(list(dict.fromkeys(cell.row for cell in summary.cells)))
    images = "".join(_panel(experiment, summary, title, curves) for title, curves in panels.items())
    caption = "Lines are means over seeds, bands one sample standard deviation either way."
    if any(cell.paper is not None for cell in summary.cells):
        caption += " Dashed lines with open markers are the paper's."
    return f'<figure><div class="panels">{images}</div><figcaption class="small soft">{caption}</figcaption></figure>\n'


def _panel(experiment: Experiment, summary: ExperimentSummary, title: str, curves: Mapping[str, str]) -> str:
    light, dark = (
        base64.b64encode(draw_panel(experiment, summary, title, curves, ink, page)).decode()
        for ink, page in (("#1c2024", "#ffffff"), ("#e4e7ea", "#14171a"))
    )
    drawn = [name for row, name in curves.items() if any(c.row == row and c.mean is not None for c in summary.cells)]
    alt = f"{summary.quantity}{f', {title}' if title else ''}: curves of {', '.join(drawn) or 'no run yet'}"
    return (
        f'<picture><source media="screen and (prefers-color-scheme: dark)" srcset="data:image/png;base64,{dark}">'
        f'<img alt="{escape(alt)}; the numbers follow as a table" src="data:image/png;base64,{light}"></picture>'
    )


def _grid(summary: ExperimentSummary, anchor: str, notes: Sequence[str]) -> str:
    """Rows × columns, each cell with our number, the paper's, and what to think of it."""
    rows = list(dict.fromkeys(cell.row for cell in summary.cells))
    columns = list(dict.fromkeys(cell.column for cell in summary.cells))
    places: dict[tuple[str, str], list[CellSummary]] = {}
    for cell in summary.cells:
        places.setdefault((cell.row, cell.column), []).append(cell)
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{escape(row)}</th>'
        + "".join(_grid_cell(places.get((row, column), []), anchor, notes) for column in columns)
        + "</tr>\n"
        for row in rows
    )
    return scrolling(
        f"Results: {summary.title}",
        f'<table class="grid"><thead><tr><td></td>{head}</tr></thead>\n<tbody>{body}</tbody></table>',
    )


def _grid_cell(cells: Sequence[CellSummary], anchor: str, notes: Sequence[str]) -> str:
    if not cells:
        return "<td></td>"
    parts = []
    for cell in cells:
        note = notes.index(cell.note) + 1 if cell.note else 0
        mark = f'<sup><a href="#{anchor}-note-{note}" aria-label="note {note}">{note}</a></sup>' if note else ""
        spread = f" ± {number_text(cell.spread, cell.metric)}" if cell.spread is not None else ""
        chosen = [run.method for run in cell.chosen]
        methods = [f"{method} ×{chosen.count(method)}" if len(cell.methods) > 1 else method for method in cell.methods]
        paper = (
            f'<span class="line">paper {number_text(cell.paper, cell.metric)}, '
            f'<span class="difference">Δ {signed_text(cell.difference, cell.metric)}</span></span>'
            if cell.paper is not None
            else ""
        )
        seeds = f"{cell.n_seeds} of {plural(cell.n_expected_seeds, 'seed')}"
        parts.append(
            f'<div class="{VERDICT_CLASSES[cell.verdict]}">'
            f'<span class="line ours"><b>{number_text(cell.mean, cell.metric)}</b>{spread}</span>'
            f'{paper}<span class="line"><span class="verdict">{cell.verdict}</span>{mark}</span>'
            f'<span class="line small soft">{escape(", ".join(methods) or "no method")}, {seeds}</span>'
            + (f'<span class="line small soft">{escape(cell.reason)}</span>' if cell.reason else "")
            + "</div>"
        )
    return f'<td class="filled {VERDICT_CLASSES[cells[0].verdict]}">{"".join(parts)}</td>'


def _notes(anchor: str, notes: Sequence[str]) -> str:
    items = "".join(f'<li id="{anchor}-note-{n}">{escape(note)}</li>' for n, note in enumerate(notes, 1))
    return f'<ol class="small soft">{items}</ol>\n' if notes else ""


def _places(experiment: Experiment) -> dict[str, str]:
    """For every run, the cells it serves, in words."""
    found: dict[str, dict[str, list[str]]] = {}
    for cell in experiment.cells:
        for config in (config for configs in cell.configs.values() for config in configs):
            columns = found.setdefault(config.id, {}).setdefault(cell.row, [])
            if cell.column not in columns:
                columns.append(cell.column)
    return {
        run_id: "; ".join(f"{row}: {', '.join(columns)}" for row, columns in rows.items())
        for run_id, rows in found.items()
    }


def _without_result(summary: ExperimentSummary, places: Mapping[str, str], lost: Mapping[str, Damaged]) -> str:
    # Cells may share a run; one that finished without some cell's metric may have several sentences.
    runs = {(run.run_id, run.sentence): run for cell in summary.cells for run in (*cell.failed, *cell.missing)}
    if not runs:
        return ""
    ordered = sorted(runs.values(), key=lambda run: run.status)
    rows = [
        (places[run.run_id], run.method, run.seed, *_status_and_sentence(run, lost.get(run.run_id)), run.run_id)
        for run in ordered
    ]
    n_failed = sum(run.status == "failed" for run in ordered)
    table = render_table(
        f"Runs without a result: {summary.title}",
        ("cell", "method", "seed", "status", "what happened", "run"),
        rows,
        ("", "", "", "", "sentence", ""),
    )
    counts = f"{plural(n_failed, 'run')} failed, {len(ordered) - n_failed} missing"
    is_open = " open" if len(ordered) <= _MAX_ROWS_IN_SIGHT else ""
    return f'<details class="numbers"{is_open}><summary>Runs without a result: {counts}</summary>{table}</details>\n'


def _status_and_sentence(run: RunWithoutResult, damage: Damaged | None) -> tuple[str, str]:
    if run.status == "missing" and damage is not None:
        return "damaged", f"Its record {damage.path.name} has {damage.reason}."
    return run.status, run.sentence


def _settings(experiment: Experiment) -> str:
    """What all cells share, then what they differ in; together, the whole configuration of every run."""
    groups: dict[tuple[tuple[str, str], ...], list[Cell]] = {}
    for cell in experiment.cells:
        settings = _settings_of(config for configs in cell.configs.values() for config in configs)
        groups.setdefault(tuple(sorted(settings.items())), []).append(cell)
    if not groups:
        return ""
    names = sorted({name for settings in groups for name, _ in settings}, key=_settings_order)
    values = {name: [dict(settings).get(name, NOTHING) for settings in groups] for name in names}
    shared = [(name, values[name][0]) for name in names if len(set(values[name])) == 1]
    differing = [name for name in names if len(set(values[name])) > 1]
    tables = render_table(
        f"Settings of all cells: {experiment.title}", ("setting", "value in all cells"), shared, ("", "sentence")
    )
    if differing:
        rows = [
            (_cell_names(cells), *(values[name][number] for name in differing))
            for number, cells in enumerate(groups.values())
        ]
        tables += render_table(f"Settings that differ: {experiment.title}", ("cells", *differing), rows)
    return f"<details><summary>Settings</summary>{tables}</details>\n"


def _settings_of(configs: Iterable[RunConfig]) -> dict[str, str]:
    """Every setting of a cell's runs; where runs differ, all values."""
    found: dict[str, dict[str, None]] = {}
    for config in configs:
        for name, value in flattened(config.as_dict()):
            found.setdefault(name, {})[fact_text(value)] = None
    return {name: " | ".join(values) for name, values in found.items()}


def _settings_order(name: str) -> tuple[bool, str]:
    return "." in name or name not in ("method", "seed"), name


def _cell_names(cells: Iterable[Cell]) -> str:
    rows: dict[str, dict[str, None]] = {}
    for cell in cells:
        rows.setdefault(cell.row, {})[cell.column] = None
    return "; ".join(f"{row}: {', '.join(columns)}" for row, columns in rows.items())


def _runs(experiment: Experiment, records: Records, places: Mapping[str, str]) -> str:
    """Every finished run, also those that were not chosen."""
    done = {
        run_id: (config, records[run_id])
        for run_id, config in experiment.runs().items()
        if run_id in records and not what_is_wrong(records[run_id])
    }
    if not done:
        return ""
    facts = [name for name in _FACTS if any(record.get(name) is not None for _, record in done.values())]
    rows = [
        (
            places[run_id],
            config.method,
            config.seed,
            fact_text(record["val"]),
            fact_text(record.get("scores")),
            *(fact_text(record.get(name)) for name in facts),
            run_id,
        )
        for run_id, (config, record) in done.items()
    ]
    columns = ("cells", "method", "seed", "validation", "scores", *(name.replace("_", " ") for name in facts), "run")
    table = render_table(f"Finished runs: {experiment.title}", columns, rows)
    return f"<details><summary>{plural(len(rows), 'finished run')}</summary>{table}</details>\n"
