"""Run many configurations on all cores, and lose nothing when stopped.

A record is written as soon as its run is finished, whole or not at all. Runs with a record are not repeated; damaged
records are reported and made again. Runs go to joblib's workers, which must all see the same folder. Several processes
may work in one folder: a run is claimed before it is executed, and a claim ends with the process that holds it.
"""

import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from joblib import parallel_config

from ..core.claims import claim, remove_abandoned
from ..core.errors import DataFileError
from ..core.parallel import run_tasks
from ..fitting import METHODS
from .experiment import RunConfig
from .files import import_tasks
from .records import Damaged, RecordStore
from .run import execute_together


@dataclass(frozen=True)
class Outcome:
    """The outcome of :func:`run_all`.

    Attributes
    ----------
    n_done, n_failed, n_skipped : int, runs that finished, failed, or have a record that is not ours
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
    imports: Sequence[Path] = (),
    callback: Callable[[str, int, int], None] | None = None,
) -> Outcome:
    """Execute the runs that have no record yet.

    Parameters
    ----------
    runs : mapping of str to RunConfig
        Configurations by their ids.
    store : RecordStore
        Where records are read and written.
    n_jobs : int or None
        Number of processes; -1 is one per core, None what ``joblib.parallel_config`` says. On a GPU the default is one
        process; several share the GPU.
    device : str
        Where to compute.
    retry_failed : bool
        Whether runs whose record is a failure are tried again.
    imports : sequence of Path
        Python files that register tasks, by absolute paths; every worker imports them.
    callback : callable, optional
        Called as ``callback("runs", n_finished, n_runs)``.

    Returns
    -------
    Outcome
        Counts of runs, and damaged records.
    """
    remove_abandoned(store.folder, ".*.claim")
    records, damaged = store.read_all()
    kept = {name for name, record in records.items() if record.get("status") == "done" or not retry_failed}
    waiting = {name: config for name, config in runs.items() if name not in kept}
    n_skipped = len(runs) - len(waiting)
    counts: Counter[str] = Counter()
    notify = callback or (lambda *_: None)
    notify("runs", n_skipped, len(runs))

    def carry_out(groups: Sequence[Sequence[str]], wait: bool) -> list[str]:
        """Execute runs, and return those that other processes have claimed."""
        folder, claimed = str(store.folder.absolute()), []
        groups_of_runs = ([(name, waiting[name], records.get(name)) for name in names] for names in groups)
        tasks = [(group, device, folder, wait, imports) for group in groups_of_runs]
        # -1 would put one process per core onto a single GPU.
        for _, statuses in run_tasks(_run, tasks, n_jobs=n_jobs if device == "cpu" else max(1, n_jobs or 1)):
            claimed += [name for name, status in statuses.items() if status == "claimed"]
            counts.update(status for status in statuses.values() if status != "claimed")
            notify("runs", n_skipped + counts.total(), len(runs))
        return claimed

    # Those of others last, one by one: they are recorded by then, or their process has ended without a record.
    claimed = carry_out(_group(waiting, device), wait=False)
    carry_out([[name] for name in claimed], wait=True)
    made_again = tuple(record for record in damaged if record.path.stem in runs)
    return Outcome(counts["done"], counts["failed"], n_skipped + counts["recorded"], made_again)


def _group(waiting: Mapping[str, RunConfig], device: str) -> list[list[str]]:
    """Return runs to execute together: on a GPU those that can train simultaneously, else each alone."""
    # Slow ones first: the last to finish should not be a long one that began late.
    order = sorted(waiting, key=lambda name: -_effort(waiting[name]))
    if device == "cpu":
        return [[name] for name in order]
    groups: dict[str, list[str]] = {}
    for name in order:
        method = METHODS.get(waiting[name].method)
        is_gradient = method is not None and set(method.stages) == {"gradient"}
        groups.setdefault(waiting[name].shape_id if is_gradient else name, []).append(name)
    return list(groups.values())


def _run(
    runs: Sequence[tuple[str, RunConfig, Mapping[str, Any] | None]],
    device: str,
    folder: str,
    wait: bool,
    imports: Sequence[Path],
) -> dict[str, str]:
    """Execute runs in a worker, which also writes their records, so that no record waits to be written.

    Each run comes with the record that was read before, if there was one. Runs that others have claimed, or have
    recorded since, are left out.
    """
    for path in imports:
        import_tasks(path)
    if device == "cpu":  # a process per core; work on a GPU has all cores for what stays on the CPU
        torch.set_num_threads(1)
    else:
        _let_segments_grow()
    store = RecordStore(Path(folder))
    statuses = {name: "claimed" for name, *_ in runs}
    ours = {}
    with ExitStack() as claims:
        for name, config, before in runs:
            if claims.enter_context(claim(store.folder / f".{name}.claim", wait=wait)):
                statuses[name] = "recorded"
                # Between reading the records and the claim, another process may have finished the run.
                if store.read(name) in (None, before):
                    ours[name] = config
        if not ours:
            return statuses
        with parallel_config("sequential"):  # runs use all cores already, so a run stays in one process
            records = execute_together(list(ours.values()), device, store.folder.parent / "stages")
        if device != "cpu":
            # The next run has other sizes: blocks that torch keeps for reuse would be too small for its matrices.
            gc.collect()
            torch.cuda.empty_cache()
        try:
            for name, record in zip(ours, records, strict=True):
                store.write(name, record)
                statuses[name] = str(record["status"])
        except DataFileError as error:
            raise DataFileError(
                f"{error}; free some space or choose another --output, then run the same command again"
            ) from None
    return statuses


def _let_segments_grow() -> None:
    """Let torch extend the segments of a GPU's memory, unless the user has configured its allocator.

    This must precede the first allocation. Matrices of different sizes otherwise fragment the memory: a fifth of it was
    reserved and unusable when a run ended for lack of memory.
    """
    if sys.platform == "linux" and not os.environ.keys() & {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}:
        # Not by the environment, which torch may have read by now.
        configure = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
        (configure or torch.cuda.memory._set_allocator_settings)("expandable_segments:True")


def _effort(config: RunConfig) -> float:
    """Return a rough guess of how long a run takes, for ordering only."""
    try:
        widths: list[Any] = list(config.family.get("hidden", [1]))
        depth_cost = sum(a * b for a, b in zip([widths[0], *widths], widths, strict=False))
        gradient = 10.0 if "sg" in config.method else 1.0
        return gradient * float(depth_cost) * float(config.task.get("n_train", 2000))
    except (LookupError, OverflowError, TypeError, ValueError):
        return 0.0  # sizes that are no numbers: the run itself says so
