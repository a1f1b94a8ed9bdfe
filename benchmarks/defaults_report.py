"""Tables and the picture of the classifier beside its peers, made from the records alone."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from scipy.stats import rankdata, studentized_range

from .defaults_peers import CONTENDERS, DEFAULT, MINIROCKET
from .defaults_tasks import AEON, N_SEEDS, OWN, TASKS
from .measure import console
from .solvers_report import ROOT, markdown_table, write_section

Record = dict[str, Any]
"""How one contender did on one part of a task with one seed: see ``measure`` in :mod:`benchmarks.defaults`."""

Found = Mapping[tuple[str, str], Sequence[Record]]
"""Records by task and contender."""

RECORDS = ROOT / "benchmarks" / "results" / "defaults.jsonl"
PICTURE = ROOT / "docs" / "images" / "defaults.png"

MEANS = {"mean, this project": tuple(OWN), "mean, aeon": tuple(AEON), "mean, all": tuple(TASKS)}

QUIET = 3.0
"""Load of the machine, at most two of it ours, above which seconds mean nothing."""

METHOD = """`CVXSNN_DATA=... python -m benchmarks defaults`: `SpikingClassifier()` ("default") beside its peers, on the
tasks above and on the eight classification sets inside aeon's wheel, divided into training and test data as they come.
Means of three seeds. MiniRocket, MultiRocket-Hydra and QUANT are aeon's, with their default parameters; sequences of
different lengths are padded with zeros at the end for them, and short ones to 10 steps, which they need. "reservoir" is
an echo state network of reservoirpy with 500 units, read by ridge regression; leak, scale of the inputs and whether the
last or the mean state is read are chosen on a fifth of the training data. "logistic" is logistic regression on all
values of a sequence, its strength chosen by cross-validation. "surrogate" trains 256 neurons by surrogate gradients;
read-out, learning rate and epoch are chosen on a fifth of the training data. "gaussian" and "gaussian-2" are
`SpikingClassifier` with the family of the paper, in one layer and in two.
"""


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
    """The mean over seeds and parts; NaN where something was left out, and of seconds on a busy machine."""
    own = found.get((task, name), [])
    if quantity != "accuracy" and any(record.get("load", math.inf) > QUIET for record in own):
        return math.nan
    return float(np.mean([record.get(quantity, math.nan) for record in own])) if own else math.nan


def render(records: Sequence[Record]) -> None:
    """Print the tables, put them on the page of results, and draw the picture where there are records of ours."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(records, key=key_of):
        found.setdefault((record["task"], record["contender"]), []).append(record)
    names = [name for name in CONTENDERS if any((task, name) in found for task in TASKS)]
    ranks, n_ranked = mean_ranks(found, names)
    parts = [METHOD.strip(), "Test accuracy:", markdown_table(quantity_rows(found, names, "accuracy", ".4f"))]
    if len(ranks) > 1:
        listed = ", ".join(f"{name} {rank:.2f}" for name, rank in ranks.items())
        parts.append(f"Mean ranks over the {n_ranked} tasks that all of these have learned: {listed}.")
    if few := [f"{name} on {task}" for (task, name), own in found.items() if len({r["seed"] for r in own}) < N_SEEDS]:
        parts.append(f"Fewer than {N_SEEDS} seeds so far: {', '.join(few)}.")
    if skipped := [task for task in TASKS if any("skipped" in own for own in found.get((task, "surrogate"), []))]:
        parts.append(
            f"Surrogate gradients would take more than two minutes, and are left out, on {', '.join(skipped)}."
        )
    for title, quantity, form in (("a fit", "fit_seconds", ".1f"), ("the predictions", "predict_seconds", ".2f")):
        if len(rows := quantity_rows(found, names, quantity, form)) > 1:
            parts += [f"Seconds of {title}, after a first fit to few sequences:", markdown_table(rows)]
    if len(rows := fact_rows(found)) > 1:
        parts += ["The networks of the default:", markdown_table(rows)]
    if any((task, DEFAULT) in found for task in TASKS) and ranks:
        draw(found, ranks, n_ranked)
        picture = Path("..", PICTURE.relative_to(ROOT)).as_posix()
        parts.append(f"![Accuracy against MiniRocket's, and mean ranks]({picture})")
    for part in parts:
        console.print(part, soft_wrap=True, markup=False)
    write_section("defaults", "\n\n".join(parts))


def quantity_rows(found: Found, names: Sequence[str], quantity: str, form: str) -> list[list[str]]:
    """A header, one row per task and one per mean; the best accuracy of a row is bold."""
    values = {task: [mean_of(found, task, name, quantity) for name in names] for task in TASKS}
    values |= {title: np.mean([values[task] for task in tasks], axis=0).tolist() for title, tasks in MEANS.items()}
    rows = [["task", *names]]
    for title, row in values.items():
        if np.isnan(row).all():
            continue
        cells = ["–" if math.isnan(value) else format(value, form) for value in row]
        best = format(np.nanmax(row), form) if quantity == "accuracy" else None
        rows.append([title, *(f"**{cell}**" if cell == best else cell for cell in cells)])
    return rows


def fact_rows(found: Found) -> list[list[str]]:
    """A header, and per task the largest certified gap and the neurons of the classifier as it comes."""
    rows = [["task", "largest relative gap", "neurons read"]]
    for task in TASKS:
        if own := found.get((task, DEFAULT)):
            gaps = [record["gap"] for record in own if record["gap"] is not None]
            neurons = f"{np.mean([record['neurons'] for record in own]):,.0f}"
            rows.append([task, f"{max(gaps):.0e}" if gaps else "none", neurons])
    return rows


def mean_ranks(found: Found, names: Sequence[str]) -> tuple[dict[str, float], int]:
    """The mean ranks by accuracy, best first, and over how many tasks: those that all have learned.

    Ranked are those that have learned every set of aeon.
    """
    ranked = [name for name in names if all((task, name) in found for task in AEON)]
    tasks = [task for task in TASKS if all((task, name) in found for name in ranked)]
    if not ranked:
        return {}, 0
    scores = [[mean_of(found, task, name, "accuracy") for task in tasks] for name in ranked]
    ranks = rankdata(-np.array(scores), axis=0).mean(1)
    return dict(sorted(zip(ranked, map(float, ranks), strict=True), key=lambda item: item[1])), len(tasks)


def critical_difference(n_contenders: int, n_tasks: int, level: float = 0.05) -> float:
    """Nemenyi's: contenders whose mean ranks differ by more are not equally good, at the level."""
    quantile = studentized_range.ppf(1 - level, n_contenders, np.inf) / math.sqrt(2)
    return float(quantile * math.sqrt(n_contenders * (n_contenders + 1) / (6 * n_tasks)))


def draw(found: Found, ranks: Mapping[str, float], n_ranked: int) -> None:
    """Our accuracy against MiniRocket's, and the mean ranks."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    _draw_scatter(left, found)
    _draw_ranks(right, ranks, n_ranked)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=120)
    plt.close(figure)


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
    axes.scatter(list(ranks.values()), places, color=["C0" if name == DEFAULT else "0.5" for name in ranks])
    axes.set_yticks(places, list(ranks))
    axes.invert_yaxis()
    if len(ranks) > 1:
        difference, best = critical_difference(len(ranks), n_tasks), min(ranks.values())
        axes.axvspan(best, best + difference, color="0.9", zorder=0, label="critical difference to the best")
        axes.legend(loc="lower left")
    axes.set_xlabel(f"mean rank over {n_tasks} tasks (1 is best)")
