"""Accuracy against spikes per answer: witnesses with delays whose thresholds are quantiles from several ranges.

MNIST in 28 steps, 6,000 training images. The taps of a neuron fill a box of 12 delays and 12 inputs, its weights are a
difference of two training windows, and the range of quantiles decides how often it fires. Validation images choose the
strength of a ridge read-out, and the first 2,000 test images are looked at once. What is measured is kept as one JSON
object a line in ``results/delays_rates.jsonl``; a run that was interrupted goes on where it stopped, and ``--render``
measures nothing.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch

import cvxsnn as cs
from cvxsnn.data.tasks import Task, mnist_seq
from cvxsnn.neurons import count_spikes

from .delays import Case, accuracy, box, fit, sequences_of
from .lines import add_line, read_lines
from .measure import console, make_table
from .memory import data_directory

RECORDS = Path(__file__).parent / "results" / "delays_rates.jsonl"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "delays-rates.png"
RANGES = ((0.05, 0.95), (0.5, 0.98), (0.8, 0.99), (0.9, 0.99), (0.97, 0.998))
SIZES = (512, 1024, 2048)
SEEDS = (0, 1, 2)
STRENGTHS = tuple(10.0**exponent for exponent in np.arange(-2.0, -9.1, -0.5))
"""Strengths that validation data choose from: counts of few spikes vary little, and need small ones."""

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#000000")
"""Colours that colour-blind readers tell apart (Okabe and Ito)."""

Range = tuple[float, float]


def load(seed: int) -> list[Task]:
    """MNIST in 28 steps, with the first 2,000 test images."""
    return [mnist_seq(28, n_train=6000, n_val=2000, n_test=2000, directory=data_directory(), seed=seed)]


def measure(task: Task, quantiles: Range, n_columns: int, seed: int) -> dict[str, Any]:
    """Draw witnesses, choose the strength on validation data, test once, and count spikes on the test data."""
    begin = time.perf_counter()
    families = [(1.0, box(12, 12, quantiles=quantiles))]
    sizes = {"n_columns": n_columns, "n_pool": n_columns}
    case = Case("rates", load, "mean", {"box 12 x 12": families}, goal=0.0, strengths=STRENGTHS, **sizes)
    fitted = fit(case, task, families, seed, "cpu")
    network = cs.reconstruct(fitted.best)
    inputs = sequences_of(task.test, "cpu")
    predicted = np.concatenate([network(part).argmax(-1).numpy() for part in inputs.split(500)])
    n_spikes = sum(int(count_spikes(network.layers, part).sum()) for part in inputs.split(500))
    return {
        "validation": float(fitted.validation.max()),
        "test": accuracy(predicted, task.test.heads["label"]),
        "spikes": n_spikes / len(inputs),
        "neurons": network.n_active,
        "l2_strength": fitted.best.problem.l2_strength,
        "gap": fitted.best.certificate.relative_gap,
        "seconds": time.perf_counter() - begin,
    }


def values_of(records: Sequence[Mapping[str, Any]], name: str, quantiles: Range, n_columns: int) -> list[float]:
    """What was measured in one setting, for each seed."""
    return [own[name] for own in records if (tuple(own["quantiles"]), own["columns"]) == (quantiles, n_columns)]


def render(records: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of the means over seeds."""
    table = make_table(
        "MNIST-Seq, 28 steps, box 12 × 12: thresholds at quantiles from a range",
        "quantiles",
        "columns",
        "spikes per answer",
        "spikes per neuron",
        "test accuracy",
        "largest gap",
    )
    settings = sorted({(tuple(own["quantiles"]), own["columns"]) for own in records})
    for quantiles, n_columns in settings:
        own = {name: values_of(records, name, quantiles, n_columns) for name in ("spikes", "neurons", "test", "gap")}
        spikes, neurons, test = (float(np.mean(own[name])) for name in ("spikes", "neurons", "test"))
        cells = f"{n_columns:,}", f"{spikes:,.0f}", f"{spikes / neurons:.2f}", f"{test:.4f}", f"{max(own['gap']):.0e}"
        table.add_row(f"{quantiles[0]:g} to {quantiles[1]:g}", *cells)
    console.print(table)
    draw(records, settings)


def draw(records: Sequence[Mapping[str, Any]], settings: Sequence[tuple[Range, int]]) -> None:
    """Draw accuracy against spikes: means and ranges over seeds, one line per range of quantiles."""
    axes = plt.subplots(figsize=(7, 4.2), layout="constrained")[1]
    for quantiles, colour, marker in zip(RANGES, COLOURS, "osD^v", strict=True):
        sizes = [n_columns for own, n_columns in settings if own == quantiles]
        spikes, test = ([values_of(records, name, quantiles, size) for size in sizes] for name in ("spikes", "test"))
        x, y = ([np.mean(own) for own in values] for values in (spikes, test))
        label = f"{quantiles[0]:g} to {quantiles[1]:g}"
        axes.plot(x, y, marker=marker, markersize=5, color=colour, label=label)
        axes.vlines(x, [min(own) for own in test], [max(own) for own in test], color=colour, linewidth=0.8)
        for size, *place in zip(sizes, x, y, strict=True):
            axes.annotate(f"{size:,}", place, xytext=(5, -8), textcoords="offset points", fontsize=7)
    axes.set_xscale("log")
    ticks = [300, 1000, 3000, 10_000, 30_000]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set(xlim=(280, 45_000), xlabel="spikes per answer", ylabel="test accuracy (first 2,000 images)")
    axes.set_title("MNIST in 28 steps: few spikes by thresholds at high quantiles\n512, 1,024 and 2,048 neurons; "
                   "means and ranges over 3 seeds", fontsize="medium")  # fmt: skip
    axes.legend(title="range of quantiles", fontsize="small", title_fontsize="small", loc="lower right")
    axes.grid(alpha=0.3)
    axes.figure.savefig(PICTURE, dpi=120)
    plt.close(axes.figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what there are no records of, print and draw all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks delays_rates", description=__doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--columns", nargs="+", type=int, default=SIZES)
    parser.add_argument("--render", action="store_true", help="measure nothing")
    options = parser.parse_args([] if arguments is None else arguments)
    torch.set_num_threads(1)
    for seed in () if options.render else options.seeds:
        done = {(tuple(own["quantiles"]), own["columns"], own["seed"]) for own in read_lines(RECORDS)}
        (task,) = load(seed)
        for n_columns in options.columns:
            for quantiles in RANGES:
                if (quantiles, n_columns, seed) in done:
                    continue
                setting = {"quantiles": quantiles, "columns": n_columns, "seed": seed}
                record = setting | measure(task, quantiles, n_columns, seed)
                console.print(str(record))
                add_line(RECORDS, record)
    render(read_lines(RECORDS))
