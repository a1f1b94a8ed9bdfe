"""One self-contained page about all experiments: our numbers beside the paper's, made from records alone."""

import base64
import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ..errors import DataFileError
from ..storage import write_atomically
from .experiment import Cell, Experiment, RunConfig, Scale
from .figures import draw_panel, flattened, panels_of, printable
from .records import Damaged
from .summary import (
    VERDICTS,
    CellSummary,
    ExperimentSummary,
    Records,
    RunWithoutResult,
    Verdict,
    quantity_of,
    summarise,
    what_is_wrong,
)

_TITLE = "The paper's experiments, reproduced"
_NOTHING = "–"
_MAX_ROWS_IN_SIGHT = 8

_CLASSES: dict[Verdict, str] = {
    "matches": "matches",
    "better": "better",
    "worse": "worse",
    "cannot tell": "unknown",
}

_FACTS = ("relative_gap", "l1_strength", "learning_rate", "weight_decay", "n_active", "seconds")
"""Of a record, shown for every run that has them."""

_STYLE = """
:root { color-scheme: light dark; --text: #1c2024; --soft: #5b646d; --page: #fff; --card: #f6f7f9; --line: #d9dde2;
  --link: #0b57b0; --matches: #1a6fb5; --better: #16794a; --worse: #b3391f; --unknown: #69727b }
@media screen and (prefers-color-scheme: dark) { :root { --text: #e4e7ea; --soft: #a2abb4; --page: #14171a;
  --card: #1e2327; --line: #394047; --link: #82b7f5; --matches: #78b4ee; --better: #5fc794; --worse: #f2937d;
  --unknown: #9ba5ae } }
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100%; scroll-padding-top: 1rem }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere }
header, main, footer { max-width: 76rem; margin: 0 auto; padding: 0 1rem }
header { padding-top: 2rem } footer { padding-bottom: 3rem }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .5rem }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 .25rem } h3 { font-size: 1rem; margin: 1.5rem 0 .5rem }
p, ul, ol { margin: .5rem 0; max-width: 48rem }
a { color: var(--link) } a:focus-visible, summary:focus-visible, .scroll:focus-visible { outline: 2px solid var(--link);
  outline-offset: 2px }
code { font: .875em ui-monospace, monospace }
section { border-top: 1px solid var(--line); margin-top: 2.5rem; padding-top: 1.5rem }
.soft { color: var(--soft) } .small { font-size: .8125rem; line-height: 1.4 }
.notice { border-left: 4px solid var(--worse); background: var(--card); padding: .6rem .9rem; max-width: 48rem }
.strip { display: grid; grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: .75rem; margin: 1.25rem 0;
  padding: 0; list-style: none; max-width: none }
.strip li { background: var(--card); border-top: 4px solid var(--verdict); padding: .5rem .9rem .6rem }
.strip b { display: block; font-size: 1.75rem; line-height: 1.2; font-variant-numeric: tabular-nums }
.strip .small { display: block }
.matches { --verdict: var(--matches) } .better { --verdict: var(--better) }
.worse { --verdict: var(--worse) } .unknown { --verdict: var(--unknown) }
.verdict { color: var(--verdict); font-weight: 600; white-space: nowrap }
.contents li { margin: .3rem 0 } .contents .small { display: block }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 1rem 0 }
dl.facts dt { color: var(--soft) } dl.facts dd { margin: 0; min-width: 0 }
.scroll { overflow-x: auto; margin: .75rem 0 }
table { border-collapse: collapse; font-size: .875rem; line-height: 1.4; overflow-wrap: normal }
caption { text-align: left; color: var(--soft); padding-bottom: .4rem }
th, td { text-align: left; vertical-align: top; padding: .4rem .75rem; border-bottom: 1px solid var(--line) }
thead th { border-bottom: 2px solid var(--line); vertical-align: bottom }
tbody th { font-weight: 600 }
.grid tbody th { position: sticky; left: 0; background: var(--page); min-width: 6rem; max-width: 11rem; z-index: 1 }
.grid tbody td { min-width: 9.5rem } .grid td.filled { border-left: 4px solid var(--verdict); background: var(--card) }
.grid { border-collapse: separate; border-spacing: 3px } .grid th, .grid td { border-bottom: 0 }
.ours { font-size: 1.0625rem; font-variant-numeric: tabular-nums; white-space: nowrap }
.grid .line { display: block } .difference { white-space: nowrap } .compact td { font-variant-numeric: tabular-nums }
.compact td:first-child { min-width: 11rem }
.sentence { min-width: 18rem; max-width: 40rem; overflow-wrap: anywhere }
.back { margin-left: 1rem; white-space: nowrap }
details { margin: .5rem 0 } summary { cursor: pointer; padding: .35rem 0; color: var(--link) }
figure { margin: 1rem 0 } figure img { width: 100%; max-width: 45rem; height: auto;
  display: block } .panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
  gap: 1rem }
@media (max-width: 30rem) { h1 { font-size: 1.4rem } .strip { grid-template-columns: 1fr 1fr }
  dl.facts { grid-template-columns: 1fr; gap: 0 } dl.facts dd { margin-bottom: .5rem }
  th, td { padding: .35rem .5rem } .grid tbody th { min-width: 4.25rem; max-width: 5.5rem }
  .grid tbody td { min-width: 7rem } }
@page { size: A4 landscape; margin: 12mm }
@media print { body { font-size: 10pt } header, main, footer { max-width: none; padding: 0 }
  table { font-size: 7.5pt } .ours { font-size: 8.5pt } table .small { font-size: 6.5pt } th, td { padding: 2pt 4pt }
  .grid tbody td, .grid tbody th, .compact td:first-child, .sentence { min-width: 0 } .scroll { overflow: visible }
  .panels { grid-template-columns: 1fr 1fr }
  .grid tbody th { position: static } .back { display: none } thead { display: table-header-group }
  tr, figure, .strip { break-inside: avoid } h2, h3 { break-after: avoid } a { color: inherit }
  .strip li, .grid td.filled { print-color-adjust: exact; -webkit-print-color-adjust: exact }
  details.numbers::details-content { content-visibility: visible; block-size: auto } }
"""


def write_report(
    path: Path, experiments: Sequence[Experiment], records: Records, damaged: Sequence[Damaged], scale: Scale
) -> None:
    """Write the page of :func:`render_report` whole or not at all; its folder is made if it is not there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataFileError(
            f"expected to write the report into {path.parent}, got: {error.strerror}; choose another place"
        ) from error
    write_atomically(path, render_report(experiments, records, damaged, scale).encode())


def render_report(experiments: Sequence[Experiment], records: Records, damaged: Sequence[Damaged], scale: Scale) -> str:
    """The page as text. It depends on its arguments alone, so equal records give equal pages.

    Parameters
    ----------
    experiments : sequence of Experiment, in the order of the page
    records : mapping of run ids to records; those of other runs are ignored
    damaged : sequence of Damaged, records that could not be read
    scale : "paper" or "smoke", what the experiments were loaded at
    """
    summaries = [summarise(experiment, records, scale) for experiment in experiments]
    anchors = _anchors(experiments)
    lost = {one.path.stem: one for one in damaged}
    sections = "".join(
        _section(experiment, summary, anchor, records, lost)
        for experiment, summary, anchor in zip(experiments, summaries, anchors, strict=True)
    )
    smoke = (
        '<p class="notice"><b>Smoke scale.</b> Sizes, seeds and cells are cut down to try the machinery. These numbers '
        "say nothing about the paper's, which are shown for orientation only.</p>"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{_TITLE}</title>\n<link rel="icon" href="data:,">\n<style>{_STYLE}</style>\n</head>\n<body>\n'
        f'<header id="top">\n<h1>{_TITLE}</h1>\n'
        "<p>Every number is a mean over seeds. For each seed, the method that scores highest on validation data is "
        "chosen, and its score on test data is reported, with the sample standard deviation over seeds after ±. "
        "A verdict compares our number with the paper's for the same methods: <b>better</b> in a column of surrogate "
        "gradients means that this baseline does better here than in the paper.</p>\n"
        f"{smoke if scale == 'smoke' else ''}{_strip(summaries)}{_how_judged()}"
        f"{_circumstances(experiments, records, damaged)}</header>\n"
        f"<main>\n{_contents(summaries, anchors, damaged)}{sections}{_damaged_section(damaged, experiments)}</main>\n"
        '<footer><p class="small soft">Made by cvxsnn from records, with no network and no scripts. '
        '<a href="#top">Back to the top</a></p></footer>\n</body>\n</html>\n'
    )


def _escape(value: object) -> str:
    return html.escape(printable(str(value)))


def _anchors(experiments: Sequence[Experiment]) -> list[str]:
    """A different name for each section, made of harmless characters."""
    anchors: list[str] = []
    for number, experiment in enumerate(experiments):
        anchor = "experiment-" + (re.sub(r"[^a-z0-9]+", "-", experiment.name.lower()).strip("-") or str(number))
        anchors.append(anchor if anchor not in anchors else f"{anchor}--{number}")
    return anchors


def number_text(value: float | None, metric: str) -> str:
    """A number in as many digits as its kind needs."""
    if value is None:
        return _NOTHING
    quantity = quantity_of(metric)
    return f"{value:.3f}" if quantity == "accuracy" else f"{value:.1e}" if quantity == "gap" else f"{value:.4g}"


def _signed(value: float | None, metric: str) -> str:
    if value is None:
        return _NOTHING
    size = number_text(abs(value), metric)
    return size if float(size) == 0 else ("−" if value < 0 else "+") + size


def _fact(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_fact(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_fact(one) for one in value)
    return _NOTHING if value is None else str(value)


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _strip(summaries: Sequence[ExperimentSummary]) -> str:
    counts = {verdict: sum(summary.verdicts[verdict] for summary in summaries) for verdict in VERDICTS}
    n_unprinted = sum(1 for summary in summaries for cell in summary.cells if cell.paper is None)
    which = "all" if n_unprinted == counts["cannot tell"] else str(n_unprinted)
    why = f'<span class="small soft">{which} of them have no number in the paper</span>' if n_unprinted else ""
    tiles = "".join(
        f'<li class="{_CLASSES[verdict]}"><b>{count}</b><span class="verdict">{verdict}</span> '
        f"{why if verdict == 'cannot tell' else ''}</li>"
        for verdict, count in counts.items()
    )
    total = _plural(sum(counts.values()), "number")
    return f'<ul class="strip" aria-label="Verdicts on {total}">{tiles}</ul>\n'


def _how_judged() -> str:
    return (
        "<details><summary>How a verdict is reached</summary><ul>"
        "<li>An accuracy <b>matches</b> where it is within 0.02 of the paper's, or within two standard errors of the "
        "mean over seeds; beyond that, more is <b>better</b> and less is <b>worse</b>.</li>"
        "<li>A duality gap <b>matches</b> where it is at most 1e-6 for every seed and the paper's is, too; it is "
        "<b>better</b> where only ours is. Larger ones go by which is smaller.</li>"
        "<li>Other quantities match within 2 % of the paper's value or two standard errors.</li>"
        "<li>Nothing <b>can be told</b> while a run is missing or has failed, or where the paper gives no number. The "
        "mean of the runs that are there is shown all the same.</li></ul></details>\n"
    )


def _circumstances(experiments: Sequence[Experiment], records: Records, damaged: Sequence[Damaged]) -> str:
    """When, on what and with what the records came about."""
    ids = {run_id for experiment in experiments for run_id in experiment.runs()}
    used = [records[run_id] for run_id in sorted(ids) if run_id in records]
    n_failed = sum(1 for record in used if what_is_wrong(record))
    counts = [f"{len(used)} of {_plural(len(ids), 'run')} recorded", f"{n_failed} failed", f"{len(damaged)} damaged"]
    seconds = [record["seconds"] for record in used if isinstance(record.get("seconds"), int | float)]
    facts = [
        ("Records", ", ".join(counts)),
        ("Finished", _period(record.get("finished") for record in used)),
        ("Computing time", f"{_duration(math.fsum(seconds))}, all runs added up" if seconds else _NOTHING),
        ("Machines", _distinct(record.get("machine") for record in used)),
        ("Versions", _distinct(record.get("versions") for record in used)),
    ]
    items = "".join(f"<dt>{name}</dt><dd>{_escape(value)}</dd>" for name, value in facts)
    return f'<dl class="facts small">{items}</dl>\n'


def _period(stamps: Iterable[object]) -> str:
    moments = []
    for stamp in stamps:
        try:
            moment = datetime.fromisoformat(str(stamp))
        except ValueError:
            continue
        moments.append(moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC))
    if not moments:
        return _NOTHING
    first, last = (f"{moment:%Y-%m-%d %H:%M}" for moment in (min(moments), max(moments)))
    return f"{first} UTC" if first == last else f"{first} to {last} UTC"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def _distinct(tables: Iterable[object]) -> str:
    found = dict.fromkeys(_fact(table) for table in tables if table)
    return "; ".join(found) or _NOTHING


def _contents(summaries: Sequence[ExperimentSummary], anchors: Sequence[str], damaged: Sequence[Damaged]) -> str:
    items = []
    for summary, anchor in zip(summaries, anchors, strict=True):
        n_unprinted = sum(cell.paper is None for cell in summary.cells)
        told = {**summary.verdicts, "cannot tell": summary.verdicts["cannot tell"] - n_unprinted}
        counts = ", ".join(
            [
                f'<span class="{_CLASSES[verdict]}"><span class="verdict">{count} {verdict}</span></span>'
                for verdict, count in told.items()
                if count
            ]
            + ([f"{n_unprinted} without a number in the paper"] if n_unprinted else [])
        )
        items.append(
            f'<li><a href="#{anchor}">{_escape(summary.title)}</a>'
            f'<span class="small soft">{counts or "nothing at this scale"}</span></li>'
        )
    if damaged:
        items.append(f'<li><a href="#damaged">{_plural(len(damaged), "damaged record")}</a></li>')
    listed = f'<ol class="contents">{"".join(items)}</ol>' if items else "<p>There are no experiments to show.</p>"
    return f'<nav aria-label="Contents" id="contents"><h2>Contents</h2>{listed}</nav>\n'


def _section(
    experiment: Experiment, summary: ExperimentSummary, anchor: str, records: Records, lost: Mapping[str, Damaged]
) -> str:
    paragraphs = [part for part in re.split(r"\n\s*\n", experiment.description.strip()) if part]
    description = [f"<p>{_escape(' '.join(part.split()))}</p>" for part in paragraphs]
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
        f'<h2 id="{anchor}-title">{_escape(experiment.title)}</h2>\n'
        f'<p class="small soft">{experiment.kind} <code>{_escape(experiment.name)}</code>, '
        f'{_escape(experiment.quantity)}<a class="back" href="#contents">back to the contents</a></p>\n'
        f"{''.join(description[:1])}\n{body}\n{_notes(anchor, notes)}{''.join(description[1:])}\n"
        f"{_without_result(summary, places, lost)}"
        f"{_settings(experiment)}{_runs(experiment, records, places)}</section>\n"
    )


def _notes(anchor: str, notes: Sequence[str]) -> str:
    items = "".join(f'<li id="{anchor}-note-{n}">{_escape(note)}</li>' for n, note in enumerate(notes, 1))
    return f'<ol class="small soft">{items}</ol>\n' if notes else ""


def _grid(summary: ExperimentSummary, anchor: str, notes: Sequence[str]) -> str:
    """Rows × columns, each cell with our number, the paper's, and what to think of it."""
    rows = list(dict.fromkeys(cell.row for cell in summary.cells))
    columns = list(dict.fromkeys(cell.column for cell in summary.cells))
    places: dict[tuple[str, str], list[CellSummary]] = {}
    for cell in summary.cells:
        places.setdefault((cell.row, cell.column), []).append(cell)
    head = "".join(f'<th scope="col">{_escape(column)}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{_escape(row)}</th>'
        + "".join(_grid_cell(places.get((row, column), []), anchor, notes) for column in columns)
        + "</tr>\n"
        for row in rows
    )
    return _scrolling(
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
            f'<span class="difference">Δ {_signed(cell.difference, cell.metric)}</span></span>'
            if cell.paper is not None
            else ""
        )
        seeds = f"{cell.n_seeds} of {_plural(cell.n_expected_seeds, 'seed')}"
        parts.append(
            f'<div class="{_CLASSES[cell.verdict]}">'
            f'<span class="line ours"><b>{number_text(cell.mean, cell.metric)}</b>{spread}</span>'
            f'{paper}<span class="line"><span class="verdict">{cell.verdict}</span>{mark}</span>'
            f'<span class="line small soft">{_escape(", ".join(methods) or "no method")}, {seeds}</span>'
            + (f'<span class="line small soft">{_escape(cell.reason)}</span>' if cell.reason else "")
            + "</div>"
        )
    return f'<td class="filled {_CLASSES[cells[0].verdict]}">{"".join(parts)}</td>'


def _scrolling(label: str, table: str) -> str:
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{_escape(label)}">{table}</div>\n'


def _table(label: str, columns: Sequence[str], rows: Iterable[Sequence[object]], classes: Sequence[str] = ()) -> str:
    head = "".join(f'<th scope="col">{_escape(column)}</th>' for column in columns)
    named = [f' class="{name}"' if name else "" for name in classes] or [""] * len(columns)
    body = "".join(
        "<tr>" + "".join(f"<td{name}>{_escape(cell)}</td>" for name, cell in zip(named, row, strict=True)) + "</tr>\n"
        for row in rows
    )
    return _scrolling(label, f'<table class="compact"><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>')


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
    table = _table(
        f"Runs without a result: {summary.title}",
        ("cell", "method", "seed", "status", "what happened", "run"),
        rows,
        ("", "", "", "", "sentence", ""),
    )
    counts = f"{_plural(n_failed, 'run')} failed, {len(ordered) - n_failed} missing"
    is_open = " open" if len(ordered) <= _MAX_ROWS_IN_SIGHT else ""
    return f'<details class="numbers"{is_open}><summary>Runs without a result: {counts}</summary>{table}</details>\n'


def _status_and_sentence(run: RunWithoutResult, damage: Damaged | None) -> tuple[str, str]:
    if run.status == "missing" and damage is not None:
        return "damaged", f"Its record {damage.path.name} has {damage.reason}."
    return run.status, run.sentence


def _settings_of(configs: Iterable[RunConfig]) -> dict[str, str]:
    """Every setting of a cell's runs; where runs differ, all values."""
    found: dict[str, dict[str, None]] = {}
    for config in configs:
        for name, value in flattened(config.as_dict()):
            found.setdefault(name, {})[_fact(value)] = None
    return {name: " | ".join(values) for name, values in found.items()}


def _settings(experiment: Experiment) -> str:
    """What all cells share, then what they differ in; together, the whole configuration of every run."""
    groups: dict[tuple[tuple[str, str], ...], list[Cell]] = {}
    for cell in experiment.cells:
        settings = _settings_of(config for configs in cell.configs.values() for config in configs)
        groups.setdefault(tuple(sorted(settings.items())), []).append(cell)
    if not groups:
        return ""
    names = sorted({name for settings in groups for name, _ in settings}, key=_settings_order)
    values = {name: [dict(settings).get(name, _NOTHING) for settings in groups] for name in names}
    shared = [(name, values[name][0]) for name in names if len(set(values[name])) == 1]
    differing = [name for name in names if len(set(values[name])) > 1]
    tables = _table(
        f"Settings of all cells: {experiment.title}", ("setting", "value in all cells"), shared, ("", "sentence")
    )
    if differing:
        rows = [
            (_cell_names(cells), *(values[name][number] for name in differing))
            for number, cells in enumerate(groups.values())
        ]
        tables += _table(f"Settings that differ: {experiment.title}", ("cells", *differing), rows)
    return f"<details><summary>Settings</summary>{tables}</details>\n"


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
            _fact(record["val"]),
            _fact(record.get("scores")),
            *(_fact(record.get(name)) for name in facts),
            run_id,
        )
        for run_id, (config, record) in done.items()
    ]
    columns = ("cells", "method", "seed", "validation", "scores", *(name.replace("_", " ") for name in facts), "run")
    table = _table(f"Finished runs: {experiment.title}", columns, rows)
    return f"<details><summary>{_plural(len(rows), 'finished run')}</summary>{table}</details>\n"


def _damaged_section(damaged: Sequence[Damaged], experiments: Sequence[Experiment]) -> str:
    if not damaged:
        return ""
    labels = {run_id: config.label for experiment in experiments for run_id, config in experiment.runs().items()}
    rows = [(one.path.name, one.reason, labels.get(one.path.stem, "no run of this page")) for one in damaged]
    return (
        '<section id="damaged" aria-labelledby="damaged-title"><h2 id="damaged-title">Damaged records</h2>'
        "<p>These files were not used. Remove them and run the experiments again to replace them.</p>"
        f"{_table('Damaged records', ('file', 'what it has', 'run'), rows, ('', 'sentence', ''))}</section>\n"
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
        f'<img alt="{_escape(alt)}; the numbers follow as a table" src="data:image/png;base64,{light}"></picture>'
    )
