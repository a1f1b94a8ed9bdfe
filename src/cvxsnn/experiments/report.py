"""One self-contained page about all experiments: our numbers beside the paper's, made from records alone."""

import base64
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from ..core.formatting import NOTHING, format_seconds, format_value, plural
from ..explore.pages import Table, render_page, write_page
from .experiment import Experiment, Scale
from .figures import draw_panels, panels_of
from .metrics import finite, format_difference, format_number
from .records import Damaged
from .summary import VERDICTS, ExperimentSummary, Records, finished_runs, summarise_experiment, what_is_wrong


def write_report(
    path: Path, experiments: Sequence[Experiment], records: Records, damaged: Sequence[Damaged], scale: Scale
) -> None:
    """Write the page of :func:`render_report` whole or not at all; its folder is created if needed."""
    write_page(path, render_report(experiments, records, damaged, scale))


def render_report(experiments: Sequence[Experiment], records: Records, damaged: Sequence[Damaged], scale: Scale) -> str:
    """Return the page as text. It depends on its arguments alone, so equal records give equal pages.

    Parameters
    ----------
    experiments : sequence of Experiment, in the order of the page
    records : mapping of run ids to records; those of other runs are ignored
    damaged : sequence of Damaged, records that could not be read
    scale : "paper" or "smoke", what the experiments were loaded at
    """
    summaries = [summarise_experiment(experiment, records, scale) for experiment in experiments]
    views = []
    for experiment, summary, anchor in zip(experiments, summaries, _anchors(experiments), strict=True):
        cells_of = _cells_of_runs(experiment)
        views.append(
            {
                "experiment": experiment,
                "summary": summary,
                "anchor": anchor,
                "panels": _panels(experiment, summary) if experiment.kind == "figure" and summary.cells else [],
                "without_result": _without_result(summary, cells_of, {one.path.stem: one for one in damaged}),
                "finished": _finished(experiment, records, cells_of),
            }
        )
    labels = {run_id: config.label for experiment in experiments for run_id, config in experiment.runs().items()}
    rows = [(one.path.name, one.reason, labels.get(one.path.stem, "no run of this page")) for one in damaged]
    values = {
        "title": "Experiments" if any(one.source for one in experiments) else "The paper's experiments, reproduced",
        "compared_source": " or ".join(dict.fromkeys(one.compared_source for one in experiments)) or "the paper",
        "scale": scale,
        "verdict_classes": {verdict: verdict.replace("cannot tell", "unknown") for verdict in VERDICTS},
        "counts": {verdict: sum(summary.verdicts[verdict] for summary in summaries) for verdict in VERDICTS},
        "n_unprinted": sum(summary.n_unprinted for summary in summaries),
        "circumstances": _circumstances(experiments, records, damaged),
        "views": views,
        "damaged": Table("Damaged records", ("file", "what it has", "run"), rows, prose=("what it has",)),
    }
    return render_page("report.html", values, {"number": format_number, "signed": format_difference})


def _anchors(experiments: Sequence[Experiment]) -> list[str]:
    """Return a different name for each experiment, made of harmless characters."""
    anchors: list[str] = []
    for number, experiment in enumerate(experiments):
        anchor = "experiment-" + (re.sub(r"[^a-z0-9]+", "-", experiment.name.lower()).strip("-") or str(number))
        anchors.append(anchor if anchor not in anchors else f"{anchor}--{number}")
    return anchors


def _circumstances(experiments: Sequence[Experiment], records: Records, damaged: Sequence[Damaged]) -> dict[str, str]:
    """Return the dates, machines and versions of the records."""
    ids = {run_id for experiment in experiments for run_id in experiment.runs()}
    used = [records[run_id] for run_id in sorted(ids) if run_id in records]
    n_failed = sum(1 for record in used if what_is_wrong(record))
    seconds = [time for record in used if (time := finite(record.get("seconds"))) is not None]

    def distinct(key: str) -> str:
        return "; ".join(dict.fromkeys(format_value(record[key]) for record in used if record.get(key))) or NOTHING

    return {
        "Records": f"{len(used)} of {plural(len(ids), 'run')} recorded, {n_failed} failed, {len(damaged)} damaged",
        "Finished": _period(record.get("finished") for record in used),
        "Computing time": f"{format_seconds(math.fsum(seconds))}, the sum over all runs" if seconds else NOTHING,
        "Machines": distinct("machine"),
        "Versions": distinct("versions"),
    }


def _period(stamps: Iterable[object]) -> str:
    moments = []
    for stamp in stamps:
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(str(stamp))
            moments.append(moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC))
    ends = [f"{moment:%Y-%m-%d %H:%M}" for moment in (min(moments), max(moments))] if moments else []
    return f"{' to '.join(dict.fromkeys(ends))} UTC" if ends else NOTHING


def _panels(experiment: Experiment, summary: ExperimentSummary) -> list[tuple[str, str]]:
    """Return one picture per panel, so that panels fit a narrow window."""
    panels = []
    for title, curves in panels_of(summary).items():
        names = ", ".join(curves.values())
        alt = f"{summary.quantity}{f', {title}' if title else ''}: curves of {names}; the numbers follow as a table"
        png = base64.b64encode(draw_panels(experiment, summary, {title: curves})).decode()
        panels.append((alt, f"data:image/png;base64,{png}"))
    return panels


def _cells_of_runs(experiment: Experiment) -> dict[str, str]:
    """Return, for every run, the names of the cells that use it."""
    columns_of: dict[str, dict[str, dict[str, None]]] = {}
    for cell in experiment.cells:
        for config in itertools.chain(*cell.configs.values()):
            columns_of.setdefault(config.id, {}).setdefault(cell.row, {})[cell.column] = None
    return {
        run_id: "; ".join(f"{row}: {', '.join(columns)}" for row, columns in rows.items())
        for run_id, rows in columns_of.items()
    }


def _without_result(summary: ExperimentSummary, cells_of: Mapping[str, str], damaged: Mapping[str, Damaged]) -> Table:
    # Cells may share a run; one that finished without some cell's metric may have several sentences.
    lost = {(run.run_id, run.sentence): run for cell in summary.cells for run in (*cell.failed, *cell.missing)}
    rows = []
    for run in sorted(lost.values(), key=lambda run: run.status):
        status = str(run.status)
        sentence = run.sentence
        damage = damaged.get(run.run_id)
        if status == "missing" and damage is not None:
            status, sentence = "damaged", f"Its record {damage.path.name} has {damage.reason}."
        rows.append((cells_of[run.run_id], run.method, run.seed, status, sentence, run.run_id))
    columns = ("cell", "method", "seed", "status", "what happened", "run")
    return Table(f"Runs without a result: {summary.title}", columns, rows, prose=("what happened",))


def _finished(experiment: Experiment, records: Records, cells_of: Mapping[str, str]) -> Table:
    """Return every finished run, also those that were not chosen."""
    configs, done = experiment.runs(), finished_runs(experiment, records)
    names = ("relative_gap", "l1_strength", "l2_strength", "learning_rate", "weight_decay", "n_active", "seconds")
    facts = [name for name in names if any(record.get(name) is not None for record in done.values())]
    rows = []
    for run_id, record in done.items():
        values = (format_value(record.get(name)) for name in ("val", "scores", *facts))
        rows.append((cells_of[run_id], configs[run_id].method, configs[run_id].seed, *values, run_id))
    columns = ("cells", "method", "seed", "validation", "scores", *(name.replace("_", " ") for name in facts), "run")
    return Table(f"Finished runs: {experiment.title}", columns, rows)
