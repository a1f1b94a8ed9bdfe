"""Tables and the picture of the classifier beside its peers, made from the records alone."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from rich import box
from rich.table import Table
from scipy.stats import rankdata, studentized_range

from .defaults_peers import CONTENDERS, DEFAULT, MINIROCKET
from .defaults_tasks import AEON, OWN, TASKS
from .measure import console, make_table

Record = dict[str, Any]
"""How one contender did on one part of a task with one seed: see ``measure`` in :mod:`benchmarks.defaults`."""

Found = Mapping[tuple[str, str], Sequence[Record]]
"""Records by task and contender."""

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "benchmarks" / "results" / "defaults.jsonl"
PICTURE = ROOT / "docs" / "images" / "defaults.png"

MEANS = {"mean, this project": tuple(OWN), "mean, aeon": tuple(AEON), "mean, all": tuple(TASKS)}


def read_records() -> list[Record]:
    """What has been measured."""
    return [json.loads(line) for line in RECORDS.read_text().splitlines()] if RECORDS.exists() else []


def write_records(records: Iterable[Record]) -> None:
    """Keep these records and no others."""
    lines = [json.dumps(own) + "\n" for own in records]
    RECORDS.write_text("".join(lines))


def add_record(record: Record) -> None:
    """Keep one more record."""
    RECORDS.parent.mkdir(exist_ok=True)
    with RECORDS.open("a") as file:
        file.write(json.dumps(record) + "\n")


def key_of(record: Record) -> tuple[str, str, int, int]:
    """Task, contender, seed and part: there is one record of each."""
    return record["task"], record["contender"], record["seed"], record["part"]


def mean_of(found: Found, task: str, name: str, quantity: str) -> float:
    """The mean over seeds and parts; NaN where something is missing or was left out."""
    values = [own.get(quantity, math.nan) for own in found.get((task, name), [])]
    return float(np.mean(values)) if values else math.nan


def render(records: Sequence[Record]) -> None:
    """Print tables of the means, and draw the picture where there are records of both that it compares."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(records, key=key_of):
        found.setdefault((record["task"], record["contender"]), []).append(record)
    names = [name for name in CONTENDERS if any((task, name) in found for task in TASKS)]
    console.print(quantity_table(found, names, "Test accuracy", "accuracy", lambda value: f"{value:.4f}"))
    console.print(quantity_table(found, names, "Seconds of a fit", "fit_seconds", lambda value: f"{value:.1f}"))
    console.print(
        quantity_table(found, names, "Seconds of the predictions", "predict_seconds", lambda value: f"{value:.2f}")
    )
    console.print(facts_table(found))
    if skipped := sorted({own["task"] for own in records if "skipped" in own}):
        console.print(f"Surrogate gradients are left out where they would take too long: {', '.join(skipped)}.")
    ranks = mean_ranks(found, names)
    console.print(f"Mean ranks: {', '.join(f'{name} {rank:.2f}' for name, rank in ranks.items())}")
    if any((task, DEFAULT) in found and (task, MINIROCKET) in found for task in TASKS):
        draw(found, ranks)


def quantity_table(
    found: Found, names: Sequence[str], title: str, quantity: str, form: Callable[[float], str]
) -> Table:
    """One row per task and one per mean; the best of a row is bold if more is better."""
    table = make_table(f"{title}, means over seeds", "task", *names)
    table.box = box.MARKDOWN
    rows = {task: [mean_of(found, task, name, quantity) for name in names] for task in TASKS}
    for title_of_mean, tasks in MEANS.items():
        rows[title_of_mean] = np.mean([rows[task] for task in tasks], axis=0).tolist()
    for row, values in rows.items():
        if np.isnan(values).all():
            continue
        cells = ["–" if math.isnan(value) else form(value) for value in values]
        best = form(np.nanmax(values)) if quantity == "accuracy" else None
        table.add_row(row, *(f"**{cell}**" if cell == best else cell for cell in cells))
    return table


def facts_table(found: Found) -> Table:
    """The largest certified gap and the neurons of the classifier as it comes."""
    table = make_table("The classifier as it comes", "task", "largest gap", "neurons")
    table.box = box.MARKDOWN
    for task in TASKS:
        if own := found.get((task, DEFAULT)):
            gaps = [record["gap"] for record in own if record["gap"] is not None]
            neurons = f"{np.mean([record['neurons'] for record in own]):,.0f}"
            table.add_row(task, f"{max(gaps):.0e}" if gaps else "none", neurons)
    return table


def mean_ranks(found: Found, names: Sequence[str]) -> dict[str, float]:
    """The mean ranks by accuracy, best first, of those that have learned all tasks that any of them has learned."""
    tasks = [task for task in TASKS if any((task, name) in found for name in names)]
    scores = {name: [mean_of(found, task, name, "accuracy") for task in tasks] for name in names}
    scores = {name: values for name, values in scores.items() if not np.isnan(values).any()}
    if not scores:
        return {}
    ranks = rankdata(-np.array(list(scores.values())), axis=0).mean(1)
    return dict(sorted(zip(scores, map(float, ranks), strict=True), key=lambda item: item[1]))


def critical_difference(n_contenders: int, n_tasks: int, level: float = 0.05) -> float:
    """Nemenyi's: mean ranks that differ by more are not equal, at the level."""
    quantile = studentized_range.ppf(1 - level, n_contenders, np.inf) / math.sqrt(2)
    return float(quantile * math.sqrt(n_contenders * (n_contenders + 1) / (6 * n_tasks)))


def draw(found: Found, ranks: Mapping[str, float]) -> None:
    """Our accuracy against MiniRocket's, and the mean ranks."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    _draw_scatter(left, found)
    _draw_ranks(right, ranks, sum((task, DEFAULT) in found for task in TASKS))
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=120)
    plt.close(figure)
    console.print(f"saved: {PICTURE.relative_to(ROOT)}")


def _draw_scatter(axes: Axes, found: Found) -> None:
    lowest = 1.0
    for label, tasks in {"this project": OWN, "aeon": AEON}.items():
        pairs = [[mean_of(found, task, name, "accuracy") for name in (MINIROCKET, DEFAULT)] for task in tasks]
        x, y = np.array(pairs).T
        lowest = float(np.nanmin([lowest, *x, *y]))
        axes.scatter(x, y, label=label, s=24)
    axes.plot([lowest, 1], [lowest, 1], color="0.6", linewidth=1, zorder=0)
    axes.set_xlabel("MiniRocket, test accuracy")
    axes.set_ylabel("SpikingClassifier(), test accuracy")
    axes.set_aspect("equal")
    axes.legend(loc="lower right")


def _draw_ranks(axes: Axes, ranks: Mapping[str, float], n_tasks: int) -> None:
    places = np.arange(len(ranks))
    colours = ["C0" if name == DEFAULT else "0.5" for name in ranks]
    axes.scatter(list(ranks.values()), places, color=colours)
    axes.set_yticks(places, list(ranks))
    axes.invert_yaxis()
    if len(ranks) > 1:
        difference, best = critical_difference(len(ranks), n_tasks), min(ranks.values())
        axes.axvspan(best, best + difference, color="0.9", zorder=0, label="critical difference to the best")
        axes.legend(loc="lower left")
    axes.set_xlabel(f"mean rank over {n_tasks} tasks (1 is best)")
