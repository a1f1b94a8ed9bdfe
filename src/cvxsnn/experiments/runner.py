"""Run many configurations on all cores, and lose nothing when stopped.

A record is written as soon as its run is finished, whole or not at all. Runs with a record are not repeated; damaged
records are reported and made again. Runs go to joblib's workers, which must all see the same folder. Several processes
may work in one folder: a run is claimed before it is executed, and a claim ends with the process that holds it.
"""

import gc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from joblib import parallel_config

from ..core.claims import claim, remove_abandoned
from ..core.errors import DataFileError
from ..core.parallel import run_tasks
from .experiment import RunConfig
from .files import import_tasks
from .records import Damaged, RecordStore
from .run import execute


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

    def carry_out(names: Sequence[str], wait: bool) -> list[str]:
        """Execute runs, and return those that other processes have claimed."""
        folder, claimed = str(store.folder.absolute()), []
        tasks = [(name, waiting[name], records.get(name), device, folder, wait, imports) for name in names]
        # -1 would put one process per core onto a single GPU.
        for number, status in run_tasks(_run, tasks, n_jobs=n_jobs if device == "cpu" else max(1, n_jobs or 1)):
            if status == "claimed":
                claimed.append(names[number])
            else:
                counts[status] += 1
            notify("runs", n_skipped + counts.total(), len(runs))
        return claimed

    # Slow ones first: the last to finish should not be a long one that began late.
    order = sorted(waiting, key=lambda name: -_effort(waiting[name]))
    # Those of others last, one by one: they are recorded by then, or their process has ended without a record.
    claimed = carry_out(order, wait=False)
    carry_out(claimed, wait=True)
    made_again = tuple(record for record in damaged if record.path.stem in runs)
    return Outcome(counts["done"], counts["failed"], n_skipped + counts["recorded"], made_again)


def _run(
    name: str,
    config: RunConfig,
    before: Mapping[str, Any] | None,
    device: str,
    folder: str,
    wait: bool,
    imports: Sequence[Path],
) -> str:
    """Execute a run in a worker, which also writes its record, so that no record waits to be written.

    The run comes with the record that was read before, if there was one. It is left out if others have claimed it, or
    have recorded it since.
    """
    for path in imports:
        import_tasks(path)
    if device == "cpu":  # a process per core; work on a GPU has all cores for what stays on the CPU
        torch.set_num_threads(1)
    store = RecordStore(Path(folder))
    with claim(store.folder / f".{name}.claim", wait=wait) as is_ours:
        if not is_ours:
            return "claimed"
        # Between reading the records and the claim, another process may have finished the run.
        if store.read(name) not in (None, before):
            return "recorded"
        with parallel_config("sequential"):  # runs use all cores already, so a run stays in one process
            record = execute(config, device, store.folder.parent / "stages")
        if device != "cpu":
            # The next run has other sizes: blocks that torch keeps for reuse would be too small for its matrices.
            gc.collect()
            torch.cuda.empty_cache()
        try:
            store.write(name, record)
        except DataFileError as error:
            raise DataFileError(
                f"{error}; free some space or choose another --output, then run the same command again"
            ) from None
    return str(record["status"])


def _effort(config: RunConfig) -> float:
    """Return a rough guess of how long a run takes, for ordering only."""
    try:
        widths: list[Any] = list(config.family.get("hidden", [1]))
        depth_cost = sum(a * b for a, b in zip([widths[0], *widths], widths, strict=False))
        gradient = 10.0 if "sg" in config.method else 1.0
        return gradient * float(depth_cost) * float(config.task.get("n_train", 2000))
    except (LookupError, OverflowError, TypeError, ValueError):
        return 0.0  # sizes that are no numbers: the run itself says so
