"""The classifier as it comes beside its peers, on tasks of this project and on the sets inside aeon's wheel.

Nothing is chosen per task by hand. aeon's classifiers have their default parameters; the reservoir, logistic regression
and surrogate gradients choose a few settings on training data. What is measured is kept as one JSON object a line in
``results/defaults.jsonl``; a run that was interrupted goes on where it stopped, ``--again`` measures anew what has been
measured, and ``--render`` measures nothing. Everybody fits a few sequences first, which compiles what is compiled.
"""

import argparse
import os
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numba
import numpy as np
import torch
from threadpoolctl import threadpool_limits

from .defaults_peers import CONTENDERS, Contender, TooSlowError
from .defaults_report import Record, add_record, key_of, read_records, render, write_records
from .defaults_tasks import TASKS, Data
from .measure import console

SEEDS = (0, 1, 2)


def measure(contender: Contender, data: Data, seed: int, n_threads: int, is_cold: bool) -> Record:
    """Fit and test once, after a fit to few sequences if nothing is compiled yet."""
    load = os.getloadavg()[0]
    torch.set_num_threads(n_threads)
    numba.set_num_threads(min(n_threads, numba.config.NUMBA_NUM_THREADS))
    with threadpool_limits(n_threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if is_cold:
            few = contender.prepare(data.few())
            with suppress(TooSlowError):  # while it compiles
                contender.fit(few.X, few.y, seed, n_threads).predict(few.X_test)
        data = contender.prepare(data)
        begin = time.perf_counter()
        try:
            fitted = contender.fit(data.X, data.y, seed, n_threads)
        except TooSlowError as reason:
            return {"skipped": str(reason), "threads": n_threads, "load": load}
        fit_seconds = time.perf_counter() - begin
        begin = time.perf_counter()
        predicted = fitted.predict(data.X_test)
        return {
            "accuracy": float(np.mean(predicted == data.y_test)),
            "fit_seconds": fit_seconds,
            "predict_seconds": time.perf_counter() - begin,
            "threads": n_threads,
            "load": load,
            **fitted.facts,
        }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what there are no records of, and print all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks defaults", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=tuple(TASKS), default=tuple(TASKS), metavar="TASK")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--peers", nargs="+", choices=tuple(CONTENDERS), default=tuple(CONTENDERS), metavar="PEER")
    parser.add_argument("--threads", type=int, default=2, help="threads of each fit")
    parser.add_argument("--again", action="store_true", help="forget the records that were asked for, and measure anew")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    options = parser.parse_args([] if arguments is None else arguments)
    if options.again:
        chosen = (options.only, options.peers, options.seeds)
        write_records(own for own in read_records() if not all(map(_is_among, key_of(own)[:3], chosen)))
    warm: set[tuple[str, str]] = set()
    for task in () if options.render else options.only:
        for seed in options.seeds:
            parts = _parts(task, seed, options.peers)
            for (name, part), data in parts.items():
                record = measure(CONTENDERS[name], data, seed, options.threads, (task, name) not in warm)
                warm.add((task, name))
                add_record({"task": task, "contender": name, "seed": seed, "part": part, **record})
                score = f"{record['accuracy']:.4f}" if "accuracy" in record else f"left out, {record['skipped']}"
                console.print(f"{task}, seed {seed}, part {part}, {name}: {score}")
    render(read_records())


def _is_among(value: Any, chosen: Sequence[Any]) -> bool:
    return value in chosen


def _parts(task: str, seed: int, peers: Sequence[str]) -> dict[tuple[str, int], Data]:
    """What there are no records of: contender and part, with the data."""
    done = {key_of(own) for own in read_records()}
    parts = TASKS[task](seed)
    return {
        (name, part): data for name in peers for part, data in enumerate(parts) if (task, name, seed, part) not in done
    }
