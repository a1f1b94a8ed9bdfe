"""Few neurons on six tasks: selected from many, trained by surrogate gradients, or trained with an optimal read-out.

All trained neurons have the same taps and first weights. Surrogate gradients choose learning rate and epoch on a fifth
of the training data, with at least 1,500 steps, and then train again on all of it, as "varpro" does, whose settings are
the same for all tasks. Test data are used once per fit. What is measured is kept as one JSON object a line in
``results/small.jsonl``; a run that was interrupted goes on where it stopped.
"""

import argparse
import json
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from joblib import Parallel, delayed

import cvxsnn as cs
from cvxsnn.estimators.choices import trained_family
from cvxsnn.fitting import PROJECTION, Program, Settings, Split

from .defaults_tasks import TASKS, Data
from .measure import console
from .solvers_report import ROOT, markdown_table, write_section

RECORDS = ROOT / "benchmarks" / "results" / "small.jsonl"
PICTURE = ROOT / "docs" / "images" / "small.png"
NAMES = (
    "digits, T = 8",
    "JapaneseVowels",
    "spoken digits, unheard speaker",
    "MNIST-Seq, T = 28",
    "OSULeaf",
    "ItalyPowerDemand",
)
SIZES, SEEDS = (16, 64, 256), (0, 1, 2)
RATES = (0.003, 0.01, 0.03)
CONTENDERS = ("selected", "sg", "sg-cvx", "varpro", "sparsity=n")

STEPS = 1500
"""Steps of surrogate gradients, at least."""

METHOD = """`CVXSNN_DATA=... python -m benchmarks small`: test accuracy with 16, 64 and 256 neurons, means of the seeds;
the largest certified relative gap; and processor seconds of a fit, of surrogate gradients with all learning rates.
"selected" is forward selection from the neurons of the default; "sparsity=n" is the estimator, which trains where that
errs less on samples left out. Of the spoken digits, one speaker is tested and not heard in training.
"""

Record = dict[str, Any]


class Selected(cs.SpikingClassifier):
    """The estimator without training."""

    def _try_training(self, fitted: Any, data: Any, *_: Any) -> Any:
        return fitted.solution, fitted.program.objective, data


def load(name: str, seed: int) -> Data:
    """The first part of a task."""
    return TASKS[name](seed)[0]


def fit_gradients(data: Data, method: str, size: int, seed: int) -> cs.SpikingClassifier:
    """Train at the rate that validates best."""
    taps = trained_family(max(map(len, data.X)), np.shape(data.X[0])[1])
    given = {"hidden": (size,), "witnesses": taps, "random_state": seed, "verbose": False}
    epochs = max(PROJECTION.epochs, math.ceil(STEPS * PROJECTION.batch_size / len(data.y)))
    fits = []
    for rate in RATES:
        surrogate = replace(PROJECTION, learning_rate=rate, epochs=epochs, seed=seed)
        fits.append(cs.SpikingClassifier(method, surrogate=surrogate, **given).fit(data.X, data.y))
    best = max(fits, key=lambda model: model.history_[-1].score)
    if method == "sg":  # again, on all samples and for as many epochs
        rows = best.training_set(data.X, data.y)
        scores = best.history_[0].scores
        epochs = max(1, scores.index(max(scores)))
        settings = Settings(
            Program(cs.convex.Objective(best._loss(), "mean")),
            {**best.witnesses, "hidden": (size,)},
            surrogate=replace(best.surrogate, epochs=epochs, schedule="constant" if epochs < 20 else "cosine"),
            seed=seed,
        )
        best.network_ = cs.train("sg", Split(rows, lambda network: best._validate(network, rows)), settings).network
    return best


def fit(data: Data, contender: str, size: int, seed: int) -> cs.SpikingClassifier:
    """Fit a contender."""
    if contender in ("sg", "sg-cvx"):
        return fit_gradients(data, contender, size, seed)
    if contender == "varpro":
        return cs.SpikingClassifier("varpro", (size,), random_state=seed, verbose=False).fit(data.X, data.y)
    kind = Selected if contender == "selected" else cs.SpikingClassifier
    return kind(sparsity=size, random_state=seed, verbose=False).fit(data.X, data.y)


def measure(name: str, contender: str, size: int, seed: int) -> Record:
    """Fit and test once."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    data = load(name, seed)
    begin = time.process_time()
    model = fit(data, contender, size, seed)
    seconds = time.process_time() - begin
    gap = None if model.certificate_ is None else model.certificate_.relative_gap
    return {
        "task": name,
        "contender": contender,
        "neurons": size,
        "seed": seed,
        "accuracy": float(np.mean(model.predict(data.X_test) == data.y_test)),
        "seconds": seconds,
        "gap": gap,
        "trained": "projection" in [stage.name for stage in model.history_],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what there are no records of, and print all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks small", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="TASK")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time, each with one thread")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--render", action="store_true", help="measure nothing")
    options = parser.parse_args([] if arguments is None else arguments)
    done = {_key(record) for record in read_records(options.records)}
    wanted = [
        (name, contender, size, seed)
        for seed, size, contender, name in product(options.seeds, options.sizes, CONTENDERS, options.only)
        if (name, contender, size, seed) not in done
    ]
    if not options.render:
        with options.records.open("a") as file:
            for record in Parallel(options.jobs, return_as="generator_unordered")(
                delayed(measure)(*key) for key in wanted
            ):
                file.write(json.dumps(record) + "\n")
                file.flush()
                console.print(record)
    render(read_records(options.records))


def read_records(path: Path) -> list[Record]:
    """What has been measured."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def render(records: Sequence[Record]) -> None:
    """Print the table, put it on the page of results, and draw the picture."""
    table = [["task", "neurons", "seeds", *CONTENDERS, "largest gap", "seconds: sg, varpro, sparsity=n"]]
    for name, size in product(NAMES, SIZES):
        rows = _paired(records, name, size)
        if not rows:
            continue
        means = {who: _mean(rows, who, "accuracy") for who in CONTENDERS}
        best = f"{max(value for value in means.values() if value is not None):.3f}"
        cells = ["–" if value is None else f"{value:.3f}" for value in means.values()]
        gaps = [own["gap"] for own in rows if own["gap"] is not None]
        times = [_mean(rows, who, "seconds") for who in ("sg", "varpro", "sparsity=n")]
        table.append(
            [
                name,
                str(size),
                str(len({own["seed"] for own in rows})),
                *(f"**{cell}**" if cell == best else cell for cell in cells),
                f"{max(gaps):.0e}" if gaps else "–",
                ", ".join("–" if value is None else f"{value:.0f}" for value in times),
            ]
        )
    text = f"{METHOD}\n{markdown_table(table)}"
    console.print(text, soft_wrap=True, markup=False)
    write_section("small", text)
    draw(records)


def draw(records: Sequence[Record]) -> None:
    """Draw accuracy against neurons on each task."""
    figure, axes = plt.subplots(2, 3, figsize=(10, 6), layout="constrained")
    for axis, name in zip(axes.flat, NAMES, strict=True):
        for who, colour in zip(CONTENDERS, ("0.6", "tab:orange", "tab:red", "tab:blue", "black"), strict=True):
            means = [_mean(_paired(records, name, size), who, "accuracy") for size in SIZES]
            points = [(size, mean) for size, mean in zip(SIZES, means, strict=True) if mean is not None]
            style = "--" if who == "sparsity=n" else "-"
            axis.plot(*zip(*points, strict=True), style, color=colour, marker="o", markersize=4, label=who)
        axis.set_xscale("log")
        axis.set_xticks(SIZES, map(str, SIZES))
        axis.set_xticks([], minor=True)
        axis.set_title(name, fontsize="medium")
    for axis in axes[1]:
        axis.set_xlabel("neurons that are read")
    for axis in axes[:, 0]:
        axis.set_ylabel("test accuracy")
    axes[0, 0].legend(fontsize="small")
    figure.savefig(PICTURE, dpi=120)
    plt.close(figure)


def _paired(records: Sequence[Record], name: str, size: int) -> list[Record]:
    """Return the records of the seeds with which all contenders were measured."""
    rows = [own for own in records if (own["task"], own["neurons"]) == (name, size)]
    seeds = [{own["seed"] for own in rows if own["contender"] == who} for who in CONTENDERS]
    common = set.intersection(*seeds)
    return [own for own in rows if own["seed"] in common]


def _mean(rows: Sequence[Record], contender: str, quantity: str) -> float | None:
    values = [own[quantity] for own in rows if own["contender"] == contender]
    return float(np.mean(values)) if values else None


def _key(record: Record) -> tuple[str, str, int, int]:
    return record["task"], record["contender"], record["neurons"], record["seed"]
