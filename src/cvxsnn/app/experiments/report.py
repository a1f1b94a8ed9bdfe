"""One self-contained page about all experiments: our numbers beside the paper's, made from records alone."""

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ..formatting import NOTHING, format_seconds, format_value, plural
from ..pages import Table, render_page, write_page
from .experiment import Experiment, Scale
from .metrics import finite, format_difference, format_number
from .records import Damaged
from .section import make_section
from .summary import VERDICTS, Records, Verdict, summarise_experiment, what_is_wrong

_VERDICT_CLASSES: dict[Verdict, str] = {
    "matches": "matches",
    "better": "better",
    "worse": "worse",
    "cannot tell": "unknown",
}
"""Of the stylesheet."""


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
    damaged_runs = {one.path.stem: one for one in damaged}
    sections = [
        make_section(experiment, summary, anchor, records, damaged_runs)
        for experiment, summary, anchor in zip(experiments, summaries, _anchors(experiments), strict=True)
    ]
    is_paper = not any(experiment.source for experiment in experiments)
    values = {
        "title": "The paper's experiments, reproduced" if is_paper else "Experiments",
        "scale": scale,
        "verdict_classes": _VERDICT_CLASSES,
        "counts": {verdict: sum(summary.verdicts[verdict] for summary in summaries) for verdict in VERDICTS},
        "n_unprinted": sum(section.n_unprinted for section in sections),
        "circumstances": _circumstances(experiments, records, damaged),
        "sections": sections,
        "damaged": _damaged_table(damaged, experiments),
    }
    return render_page("report.html", values, {"number": format_number, "signed": format_difference})


def _anchors(experiments: Sequence[Experiment]) -> list[str]:
    """Return a different name for each section, made of harmless characters."""
    anchors: list[str] = []
    for number, experiment in enumerate(experiments):
        anchor = "experiment-" + (re.sub(r"[^a-z0-9]+", "-", experiment.name.lower()).strip("-") or str(number))
        anchors.append(anchor if anchor not in anchors else f"{anchor}--{number}")
    return anchors


def _circumstances(experiments: Sequence[Experiment], records: Records, damaged: Sequence[Damaged]) -> dict[str, str]:
    """Return when, on what and with what the records came about."""
    ids = {run_id for experiment in experiments for run_id in experiment.runs()}
    used = [records[run_id] for run_id in sorted(ids) if run_id in records]
    n_failed = sum(1 for record in used if what_is_wrong(record))
    counts = [f"{len(used)} of {plural(len(ids), 'run')} recorded", f"{n_failed} failed", f"{len(damaged)} damaged"]
    seconds = [time for record in used if (time := finite(record.get("seconds"))) is not None]
    return {
        "Records": ", ".join(counts),
        "Finished": _period(record.get("finished") for record in used),
        "Computing time": f"{format_seconds(math.fsum(seconds))}, the sum over all runs" if seconds else NOTHING,
        "Machines": _distinct(record.get("machine") for record in used),
        "Versions": _distinct(record.get("versions") for record in used),
    }


def _period(stamps: Iterable[object]) -> str:
    moments = []
    for stamp in stamps:
        try:
            moment = datetime.fromisoformat(str(stamp))
            moments.append(moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC))
        except (ValueError, OverflowError):
            continue
    if not moments:
        return NOTHING
    first, last = (f"{moment:%Y-%m-%d %H:%M}" for moment in (min(moments), max(moments)))
    return f"{first} UTC" if first == last else f"{first} to {last} UTC"


def _distinct(tables: Iterable[object]) -> str:
    found = dict.fromkeys(format_value(table) for table in tables if table)
    return "; ".join(found) or NOTHING


def _damaged_table(damaged: Sequence[Damaged], experiments: Sequence[Experiment]) -> Table:
    labels = {run_id: config.label for experiment in experiments for run_id, config in experiment.runs().items()}
    rows = [(one.path.name, one.reason, labels.get(one.path.stem, "no run of this page")) for one in damaged]
    return Table("Damaged records", ("file", "what it has", "run"), rows, prose=("what it has",))
