"""Run tasks on the workers that joblib is configured for: this process, several processes or a cluster.

An error that a task raises is raised to the caller. An error of joblib itself is about the workers, for example one
that was killed: tasks without a result are then submitted again. So a task must return the same result wherever and
however often it runs.
"""

import os
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, lru_cache, partial
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

import cloudpickle
import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from numpy.typing import NDArray

from .checks import check_n_jobs

Value = TypeVar("Value")
Result = TypeVar("Result")

_setting_threads = Lock()
_unlimited: ContextVar[int | None] = ContextVar("unlimited", default=None)

if hasattr(os, "register_at_fork"):
    # A forked process has none of the threads that torch has started in its parent, and would wait for them forever.
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


class Shared(Generic[Value]):
    """A value that many tasks read, sent to the workers once for all of them.

    It is sent as one array of bytes: joblib maps large arrays into the memory of its processes. A Dask cluster keeps
    it, too, so that it is not lost with a worker.

    Parameters
    ----------
    value : anything that can be pickled, closures included
    """

    def __init__(self, value: Value) -> None:
        self.value = value

    @cached_property
    def _pickled(self) -> tuple[str, NDArray[np.uint8]]:
        return uuid.uuid4().hex, np.frombuffer(cloudpickle.dumps(self.value), dtype=np.uint8)

    def __sizeof__(self) -> int:
        """Return the number of bytes that are sent."""
        return self._pickled[1].nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a name and an array of bytes."""
        return _unpickle, self._pickled


def _unpickle(name: str, pickled: NDArray[np.uint8]) -> Shared[Any]:
    """Return the value, unpickled once per process and not once per task."""
    slot = _cache_slot(name)
    if not slot:
        slot.append(Shared(cloudpickle.loads(pickled)))
    return slot[0]


@lru_cache(maxsize=2)  # one value for the whole computation, and one for its current round
def _cache_slot(name: str) -> list[Shared[Any]]:
    return []


def run_tasks(
    function: Callable[..., Result],
    tasks: Sequence[tuple[Any, ...]],
    *,
    n_jobs: int | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[int, Result]]:
    """Yield the number and the result of each task, in any order, as they finish.

    Parameters
    ----------
    function : function
        Defined in a module; called as ``function(*task)``.
    tasks : sequence of tuples
        Arguments of each call; wrap large values as :class:`Shared`.
    n_jobs : int, optional
        As for :class:`joblib.Parallel`: by default what ``joblib.parallel_config`` says, or else 1, this process.
    should_stop : function
        Once it returns True, no further task is submitted; those that were are finished.
    """
    check_n_jobs(n_jobs)
    if effective_n_jobs(n_jobs) == 1:
        for number, task in enumerate(tasks):
            if should_stop():
                return
            yield number, function(*task)
        return
    # Results arrive as they are ready if the backend supports it (Ray's does not), otherwise all at the end.
    return_as = "generator_unordered" if get_active_backend()[0].supports_return_generator else "list"
    unfinished = dict(enumerate(tasks))
    n_failures = 0
    while unfinished:
        waiting = (
            delayed(_run)(function, number, *task) for number, task in list(unfinished.items()) if not should_stop()
        )
        try:
            with _kept_by_a_cluster(tasks):
                for number, result in Parallel(n_jobs, return_as=return_as)(waiting):
                    del unfinished[number]
                    n_failures = 0
                    yield number, result
            return
        except _TaskError as failed:
            raise failed.args[0] from failed
        except Exception:  # of a worker, not of a task: what has no result is submitted again
            n_failures += 1
            if n_failures > 3:  # in a row, without a result in between
                raise


class _TaskError(Exception):
    """An error that a task raised, in contrast to those of workers."""


def _run(function: Callable[..., Result], number: int, *task: Any) -> tuple[int, Result]:
    try:
        return number, function(*task)
    except Exception as error:
        raise _TaskError(error) from error


@contextmanager
def _kept_by_a_cluster(tasks: Sequence[tuple[Any, ...]]) -> Iterator[None]:
    """Submit shared values as tasks of a Dask cluster, which computes them again if a worker dies.

    Joblib itself would store each value on one worker, and wait forever if that worker dies.
    """
    backend = get_active_backend()[0]
    kept = getattr(backend, "data_futures", None)
    shared = {id(value): value for task in tasks for value in task if isinstance(value, Shared)}
    if kept is None or not shared:
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")
        kept |= {key: backend.client.submit(_unpickle, *value._pickled, pure=False) for key, value in shared.items()}
    try:
        yield
    finally:
        for key in shared:
            kept.pop(key, None)


@contextmanager
def limit_threads(limit: int) -> Iterator[None]:
    """Let torch use at most ``limit`` threads. Other threads keep their number, and so does :func:`n_threads`."""
    before = torch.get_num_threads()
    if before <= limit:
        yield
        return
    token = _unlimited.set(n_threads())
    try:
        with _setting_threads:
            torch.set_num_threads(limit)
            # torch keeps a number per thread that has computed, and a default for new threads: restore the default.
            helper = Thread(target=torch.set_num_threads, args=(before,))
            helper.start()
            helper.join()
        yield
    finally:
        torch.set_num_threads(before)
        _unlimited.reset(token)


def n_threads() -> int:
    """Return the number of threads of torch without limits, for plain threads that never wait for each other."""
    return _unlimited.get() or torch.get_num_threads()


def idle_cores() -> int:
    """Return the number of cores that are free for this thread and others now; all of them if the system does not say.

    Threads of OpenMP wait for each other thousands of times in a fit. When one has lost its core, all others wait: on a
    busy machine, two threads of OpenMP can take ten times as long as one.
    """
    n_cores, n_running = os.cpu_count() or 1, []
    for _ in range(3):  # what runs for a moment only does not count
        try:
            n_running.append(int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]))
        except (OSError, IndexError, ValueError):
            return n_cores
        time.sleep(0.001)
    return max(1, n_cores + 1 - min(n_running))  # this thread is running, too
