"""Tables and pictures of the classifier on the UCR sets, made from the records and the published accuracies alone."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from scipy.stats import rankdata

from .defaults_report import QUIET, critical_difference
from .measure import console
from .memory import data_directory
from .solvers_report import ROOT, markdown_table, write_section

Record = dict[str, Any]
Floats = npt.NDArray[np.float64]

RECORDS = ROOT / "benchmarks" / "results" / "ucr.jsonl"
PICTURES = ROOT / "docs" / "images"
OURS, SMALL, BEST, SECOND = "default", "small", "HC2", "MR-Hydra"
SIZES = ("6,000 neurons", "24,000 neurons")
"""Sizes of the kinds alone, without the comparison with other families."""

METHOD = """`CVXSNN_DATA=... python -m benchmarks ucr`: `SpikingClassifier()` ("default") on 41 sets of the UCR archive,
official division, means of the seeds; "small" has `n_neurons=3000`. The accuracies of the others are those of the
tsml-eval project on the same division. These sets were looked at during development; no setting is chosen for a set.
"""


def read_records() -> list[Record]:
    """What has been measured."""
    return [json.loads(line) for line in RECORDS.read_text().splitlines()] if RECORDS.exists() else []


def read_peers() -> Mapping[str, Mapping[str, float]]:
    """Published accuracies by classifier and set."""
    peers: Mapping[str, Mapping[str, float]] = json.loads((data_directory() / "ucr" / "peers.json").read_text())
    return peers


class Found:
    """The official division: accuracies of all contenders on the sets that have records of the default."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = [own for own in records if own["resample"] == 0]
        self.sets = sorted({own["set"] for own in self.records if own["contender"] == OURS})
        self.peers = read_peers()

    def values(self, name: str, quantity: str = "accuracy") -> Floats:
        """One mean over seeds for each set; NaN where there is no record."""
        if name in self.peers and quantity == "accuracy":
            return np.array([self.peers[name][own] for own in self.sets])
        found: dict[str, list[float]] = {own: [] for own in self.sets}
        for own in self.records:
            is_quiet = not quantity.endswith("seconds") or own["load"] <= QUIET
            if own["contender"] == name and own["set"] in found and is_quiet and own.get(quantity) is not None:
                found[own["set"]].append(own[quantity])
        return np.array([np.mean(values) if values else math.nan for values in found.values()])

    def by_seed(self, name: str) -> dict[int, float]:
        """The mean accuracy of each seed with which all sets were learned."""
        rows: dict[int, list[float]] = {}
        for own in self.records:
            if own["contender"] == name and own["set"] in self.sets:
                rows.setdefault(own["seed"], []).append(own["accuracy"])
        return {seed: float(np.mean(row)) for seed, row in sorted(rows.items()) if len(row) == len(self.sets)}

    def ranks(self) -> dict[str, float]:
        """Mean ranks of the default among the published classifiers, best first."""
        everybody = [OURS, *self.peers]
        ranks = rankdata(-np.array([self.values(name) for name in everybody]), axis=0).mean(1)
        return dict(sorted(zip(everybody, ranks.tolist(), strict=True), key=lambda item: item[1]))


def render(records: Sequence[Record]) -> None:
    """Print the tables, put them on the page of results, and draw the pictures."""
    found = Found(records)
    if not found.sets:
        return
    parts = [METHOD.strip(), markdown_table(_means(found)), markdown_table(_sets(found))]
    if len(ablation := _ablation(found)) > 1:
        parts += [
            "Parts of the default, 3,000 neurons unless the name says otherwise, one seed:",
            markdown_table(ablation),
        ]
    if pairs := _resampled(records):
        parts += ["Training and test data divided anew, one seed:", markdown_table(pairs)]
    for part in parts:
        console.print(part, soft_wrap=True, markup=False)
    write_section("ucr", "\n\n".join(parts))
    draw(found, records)


def _means(found: Found) -> list[list[str]]:
    """A header, and a row for each classifier: mean accuracy and rank, better, equal and worse than the default."""
    ranks, ours = found.ranks(), found.values(OURS)
    rows = [["classifier", "mean accuracy", "mean rank", "default better / equal / worse", "seconds of a fit"]]
    for name in [*ranks, SMALL]:
        own = found.values(name)
        if np.isnan(own).any():
            continue
        difference = np.round(ours - own, 9)
        counts = " / ".join(
            str(int(n)) for n in ((difference > 0).sum(), (difference == 0).sum(), (difference < 0).sum())
        )
        seconds = found.values(name, "fit_seconds")
        timed = "–" if np.isnan(seconds).all() else f"{np.nanmedian(seconds):.2f}"
        rank = f"{ranks[name]:.2f}" if name in ranks else "–"
        rows.append([name, f"{own.mean():.4f}", rank, "" if name == OURS else counts, timed])
    seeds = ", ".join(f"{mean:.4f}" for mean in found.by_seed(OURS).values())
    rows[1 + list(ranks).index(OURS)][0] = f"**{OURS}** (seeds {seeds})"
    return rows


def _sets(found: Found) -> list[list[str]]:
    """A header, and a row for each set; the best accuracy is bold."""
    names = [OURS, SMALL, BEST, SECOND, "H-InceptionTime", "MiniROCKET"]
    values = np.array([found.values(name) for name in names])
    neurons, seconds = found.values(OURS, "neurons"), found.values(OURS, "fit_seconds")
    gaps = [
        max(own["gap"] for own in found.records if own["set"] == task and own["contender"] == OURS)
        for task in found.sets
    ]
    rows = [["set", *names, "neurons", "relative gap", "seconds of a fit"]]
    for number, task in enumerate(found.sets):
        cells = ["–" if math.isnan(value) else f"{value:.4f}" for value in values[:, number]]
        best = f"{np.nanmax(values[:, number]):.4f}"
        cells = [f"**{cell}**" if cell == best else cell for cell in cells]
        time = "–" if math.isnan(seconds[number]) else f"{seconds[number]:.2f}"
        rows.append([task, *cells, f"{neurons[number]:,.0f}", f"{gaps[number]:.0e}", time])
    return rows


def _ablation(found: Found) -> list[list[str]]:
    """A header, and the mean accuracy of each part of the default."""
    known = (*found.peers, OURS, SMALL, "MiniRocket", "MR-Hydra")
    names = dict.fromkeys(own["contender"] for own in found.records if own["contender"] not in known)
    rows = [["neurons", "mean accuracy", "of a fit: seconds"]]
    for name in (SMALL, *names):
        own, seconds = found.values(name), found.values(name, "fit_seconds")
        if not np.isnan(own).any():
            timed = "–" if np.isnan(seconds).all() else f"{np.nanmedian(seconds):.2f}"
            rows.append([name, f"{own.mean():.4f}", timed])
    return rows


def _resampled(records: Sequence[Record]) -> list[list[str]]:
    """A header, and a row for each opponent: pairs of set and division that both have learned."""
    by_key = {(own["contender"], own["set"], own["resample"]): own for own in records if own["resample"] > 0}
    rows = [["against", "pairs", "default better / equal / worse", "mean, default", "mean, opponent"]]
    for name in dict.fromkeys(contender for contender, *_ in by_key if contender != OURS):
        keys = [rest for contender, *rest in by_key if contender == name and (OURS, *rest) in by_key]
        ours, own = (np.array([by_key[who, *key]["accuracy"] for key in keys]) for who in (OURS, name))
        counts = " / ".join(f"{np.mean(is_so):.0%}" for is_so in (ours > own, ours == own, ours < own))
        rows.append([name, f"{len(keys):,}", counts, f"{ours.mean():.4f}", f"{own.mean():.4f}"])
    return rows if len(rows) > 1 else []


def draw(found: Found, records: Sequence[Record]) -> None:
    """Draw mean ranks, accuracy against size and seconds, and accuracies against the two strongest of the others."""
    figure, axes = plt.subplot_mosaic("rsb;rth", figsize=(13, 8.4), layout="constrained")
    _draw_ranks(axes["r"], found.ranks(), len(found.sets))
    _draw_sizes(axes["s"], found)
    _draw_seconds(axes["t"], records)
    for own, name, title in (("b", BEST, "HIVE-COTE 2"), ("h", SECOND, "MultiRocket-Hydra")):
        _draw_scatter(axes[own], found.values(name), found.values(OURS), title)
    PICTURES.mkdir(exist_ok=True)
    figure.savefig(PICTURES / "ucr.png", dpi=120)
    plt.close(figure)


def _draw_seconds(axes: Axes, records: Sequence[Record]) -> None:
    """Draw mean accuracy against the median time of a fit, over the divisions made anew, all on one machine."""
    resampled = [own for own in records if own["resample"] > 0]
    for name in dict.fromkeys(own["contender"] for own in resampled):
        rows = [own for own in resampled if own["contender"] == name]
        seconds = float(np.median([own["fit_seconds"] for own in rows]))
        accuracy = float(np.mean([own["accuracy"] for own in rows]))
        label = "SpikingClassifier()" if name == OURS else name
        axes.scatter(seconds, accuracy, color="C0" if name == OURS else "0.5", zorder=2)
        axes.annotate(label, (seconds, accuracy), xytext=(6, 4), textcoords="offset points", fontsize="small")
    axes.set_xscale("log")
    axes.set_xlim(0.1, 20)
    axes.margins(y=0.2)
    axes.set_xlabel("seconds of a fit (median, 2 threads)")
    axes.set_ylabel("mean accuracy, divided anew")


def _draw_sizes(axes: Axes, found: Found) -> None:
    for name in (SMALL, *SIZES, OURS):
        accuracy, neurons = found.values(name).mean(), found.values(name, "neurons").mean()
        if not math.isnan(accuracy):
            label = "SpikingClassifier()" if name == OURS else f"{neurons:,.0f} neurons"
            axes.scatter(neurons, accuracy, color="C0" if name == OURS else "0.5", zorder=2)
            axes.annotate(label, (neurons, accuracy), xytext=(6, 4), textcoords="offset points", fontsize="small")
    for name, title in ((BEST, "HIVE-COTE 2"), (SECOND, "MultiRocket-Hydra"), ("MiniROCKET", "MiniRocket")):
        axes.axhline(found.values(name).mean(), color="0.75", linewidth=1, zorder=0)
        axes.annotate(
            title, (2600, found.values(name).mean()), xytext=(0, 3), textcoords="offset points", fontsize="small"
        )
    axes.set_xscale("log")
    axes.set_xlim(2500, 60_000)
    ticks = [3000, 6000, 12_000, 24_000]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("neurons that are read")
    axes.set_ylabel("mean test accuracy")


def _draw_ranks(axes: Axes, ranks: Mapping[str, float], n_sets: int) -> None:
    places, difference = np.arange(len(ranks)), critical_difference(len(ranks), n_sets)
    best = min(ranks.values())
    axes.axvspan(best, best + difference, color="0.92", zorder=0, label="critical difference to the best")
    axes.scatter(list(ranks.values()), places, color=["C0" if name == OURS else "0.5" for name in ranks], zorder=2)
    axes.set_yticks(places, ["SpikingClassifier()" if name == OURS else name for name in ranks])
    axes.invert_yaxis()
    axes.set_xlabel(f"mean rank over {n_sets} sets (1 is best)")
    axes.legend(loc="lower left", fontsize="small")


def _draw_scatter(axes: Axes, theirs: Floats, ours: Floats, title: str) -> None:
    lowest = float(min(theirs.min(), ours.min())) - 0.02
    axes.plot([lowest, 1], [lowest, 1], color="0.6", linewidth=1, zorder=0)
    axes.scatter(theirs, ours, s=22)
    axes.set_xlabel(f"{title}, test accuracy")
    axes.set_ylabel("SpikingClassifier(), test accuracy")
    above, below = int((np.round(ours - theirs, 9) > 0).sum()), int((np.round(ours - theirs, 9) < 0).sum())
    axes.set_title(f"better on {above}, worse on {below} of {len(ours)} sets", fontsize="medium")
    axes.set_aspect("equal")
