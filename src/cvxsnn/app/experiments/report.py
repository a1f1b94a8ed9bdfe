"""One self-contained page about all experiments: our numbers beside the paper's, made from records alone."""

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ...core.errors import DataFileError
from ...core.storage import write_atomically
from .experiment import Experiment, Scale
from .markup import NOTHING, STYLE, VERDICT_CLASSES, escape, fact_text, plural, render_table
from .records import Damaged
from .section import render_section
from .summary import VERDICTS, ExperimentSummary, Records, summarise, what_is_wrong

_TITLE = "The paper's experiments, reproduced"


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
        render_section(experiment, summary, anchor, records, lost)
        for experiment, summary, anchor in zip(experiments, summaries, anchors, strict=True)
    )
    smoke = (
        '<p class="notice"><b>Smoke scale.</b> Sizes, seeds and cells are cut down to try the machinery. These numbers '
        "say nothing about the paper's, which are shown for orientation only.</p>"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{_TITLE}</title>\n<link rel="icon" href="data:,">\n<style>{STYLE}</style>\n</head>\n<body>\n'
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


def _anchors(experiments: Sequence[Experiment]) -> list[str]:
    """A different name for each section, made of harmless characters."""
    anchors: list[str] = []
    for number, experiment in enumerate(experiments):
        anchor = "experiment-" + (re.sub(r"[^a-z0-9]+", "-", experiment.name.lower()).strip("-") or str(number))
        anchors.append(anchor if anchor not in anchors else f"{anchor}--{number}")
    return anchors


def _strip(summaries: Sequence[ExperimentSummary]) -> str:
    counts = {verdict: sum(summary.verdicts[verdict] for summary in summaries) for verdict in VERDICTS}
    n_unprinted = sum(1 for summary in summaries for cell in summary.cells if cell.paper is None)
    which = "all" if n_unprinted == counts["cannot tell"] else str(n_unprinted)
    why = f'<span class="small soft">{which} of them have no number in the paper</span>' if n_unprinted else ""
    tiles = "".join(
        f'<li class="{VERDICT_CLASSES[verdict]}"><b>{count}</b><span class="verdict">{verdict}</span> '
        f"{why if verdict == 'cannot tell' else ''}</li>"
        for verdict, count in counts.items()
    )
    total = plural(sum(counts.values()), "number")
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
    counts = [f"{len(used)} of {plural(len(ids), 'run')} recorded", f"{n_failed} failed", f"{len(damaged)} damaged"]
    seconds = [record["seconds"] for record in used if isinstance(record.get("seconds"), int | float)]
    facts = [
        ("Records", ", ".join(counts)),
        ("Finished", _period(record.get("finished") for record in used)),
        ("Computing time", f"{_duration(math.fsum(seconds))}, all runs added up" if seconds else NOTHING),
        ("Machines", _distinct(record.get("machine") for record in used)),
        ("Versions", _distinct(record.get("versions") for record in used)),
    ]
    items = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts)
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
        return NOTHING
    first, last = (f"{moment:%Y-%m-%d %H:%M}" for moment in (min(moments), max(moments)))
    return f"{first} UTC" if first == last else f"{first} to {last} UTC"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def _distinct(tables: Iterable[object]) -> str:
    found = dict.fromkeys(fact_text(table) for table in tables if table)
    return "; ".join(found) or NOTHING


def _contents(summaries: Sequence[ExperimentSummary], anchors: Sequence[str], damaged: Sequence[Damaged]) -> str:
    items = []
    for summary, anchor in zip(summaries, anchors, strict=True):
        n_unprinted = sum(cell.paper is None for cell in summary.cells)
        told = {**summary.verdicts, "cannot tell": summary.verdicts["cannot tell"] - n_unprinted}
        counts = ", ".join(
            [
                f'<span class="{VERDICT_CLASSES[verdict]}"><span class="verdict">{count} {verdict}</span></span>'
                for verdict, count in told.items()
                if count
            ]
            + ([f"{n_unprinted} without a number in the paper"] if n_unprinted else [])
        )
        items.append(
            f'<li><a href="#{anchor}">{escape(summary.title)}</a>'
            f'<span class="small soft">{counts or "nothing at this scale"}</span></li>'
        )
    if damaged:
        items.append(f'<li><a href="#damaged">{plural(len(damaged), "damaged record")}</a></li>')
    listed = f'<ol class="contents">{"".join(items)}</ol>' if items else "<p>There are no experiments to show.</p>"
    return f'<nav aria-label="Contents" id="contents"><h2>Contents</h2>{listed}</nav>\n'


def _damaged_section(damaged: Sequence[Damaged], experiments: Sequence[Experiment]) -> str:
    if not damaged:
        return ""
    labels = {run_id: config.label for experiment in experiments for run_id, config in experiment.runs().items()}
    rows = [(one.path.name, one.reason, labels.get(one.path.stem, "no run of this page")) for one in damaged]
    return (
        '<section id="damaged" aria-labelledby="damaged-title"><h2 id="damaged-title">Damaged records</h2>'
        "<p>These files were not used. Remove them and run the experiments again to replace them.</p>"
        f"{render_table('Damaged records', ('file', 'what it has', 'run'), rows, ('', 'sentence', ''))}</section>\n"
    )
