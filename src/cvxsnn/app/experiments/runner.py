"""Runs many configurations on all cores, and loses nothing when it is stopped.

A record is written the moment its run is finished, whole or not at all. What is there is not done again, what is
damaged is named and done again. Runs go wherever joblib carries tasks; all who carry them must see the same folder.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from joblib import parallel_config

from ...core.errors import DataFileError
from ...core.parallel import run_tasks
from ...training.methods import METHODS
from .experiment import RunConfig
from .records import Damaged, RecordStore
from .run import execute_together


@dataclass(frozen=True)
class Outcome:
    """What a call of :func:`run_all` did.

    Attributes
    ----------
    n_done, n_failed, n_skipped : int
    damaged : tuple of Damaged, records that were made again
    """

    n_done: int
    n_failed: int
    n_skipped: int
    damaged: tuple[Damaged, ...]


def run_all(
    runs: Mapping[str, RunConfig],
    store: RecordStore,
    *,
    n_jobs: int | None = -1,
    device: str = "cpu",
    retry_failed: bool = False,
    report: Callable[[str, int, int], None] | None = None,
) -> Outcome:
    """Carry out the runs that have no record yet.

    Parameters
    ----------
    runs : mapping of ids to configurations
    store : RecordStore
    n_jobs : int or None
        Processes; -1 is one for each core, None what ``joblib.parallel_config`` says. On a GPU these are one: several
        share it if you say so.
    device : str
    retry_failed : bool
        Whether runs whose record is a failure are tried again.
    report : function, optional
        Called as ``report("runs", done, total)``.
    """
    records, damaged = store.read_all()
    kept = {name for name, record in records.items() if record.get("status") == "done" or not retry_failed}
    waiting = {name: config for name, config in runs.items() if name not in kept}
    n_skipped = len(runs) - len(waiting)
    counts = {"done": 0, "failed": 0}
    tell = report or (lambda *_: None)
    tell("runs", n_skipped, len(runs))
    tasks = [
        (names, [waiting[name] for name in names], device, str(store.folder.absolute()))
        for names in _shared_out(waiting, device)
    ]
    for _, statuses in run_tasks(_run, tasks, n_jobs=n_jobs if device == "cpu" else max(1, n_jobs or 1)):
        for status in statuses:
            counts[status] += 1
        tell("runs", n_skipped + sum(counts.values()), len(runs))
    own = tuple(record for record in damaged if record.path.stem in runs)
    return Outcome(counts["done"], counts["failed"], n_skipped, own)


def _shared_out(waiting: Mapping[str, RunConfig], device: str) -> list[list[str]]:
    """Runs to be done together: on a GPU those whose gradient stages can train side by side, else each alone."""
    # Slow ones first: the last to finish should not be a long one that began late.
    order = sorted(waiting, key=lambda name: -_effort(waiting[name]))
    if device == "cpu":
        return [[name] for name in order]
    groups: dict[str, list[str]] = {}
    for name in order:
        is_gradient = set(METHODS[waiting[name].method].stages) == {"gradient"}
        groups.setdefault(waiting[name].shape_id if is_gradient else name, []).append(name)
    return list(groups.values())


def _run(names: Sequence[str], configs: Sequence[RunConfig], device: str, folder: str) -> list[str]:
    """Some runs in a process of its own, which also keeps their records: nothing waits to be written."""
    torch.set_num_threads(1)
    with parallel_config("sequential"):  # runs fill all cores; what is inside of one stays where it is
        records = execute_together(configs, device, Path(folder).parent / "stages")
    try:
        for name, record in zip(names, records, strict=True):
            RecordStore(Path(folder)).write(name, record)
    except DataFileError as error:
        raise DataFileError(
            f"{error}; free some space or choose another --output, then run the same command again"
        ) from None
    return [str(record["status"]) for record in records]


def _effort(config: RunConfig) -> float:
    """A rough guess of how long a run takes, for ordering only."""
    widths: list[Any] = list(config.family.get("hidden", [1]))
    depth_cost = sum(a * b for a, b in zip([widths[0], *widths], widths, strict=False))
    gradient = 10.0 if "sg" in config.method else 1.0
    return gradient * float(depth_cost) * float(config.task.get("n_train", 2000))
