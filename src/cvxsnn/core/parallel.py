"""Tasks carried out wherever joblib is told to: in this process, in several, on a cluster.

What a task raises is the caller's; what joblib raises is about those who carry the tasks, for example a worker that was
killed, and then the tasks without an answer are handed out again. A task must give the same answer wherever and however
often it is carried out.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeVar

import cloudpickle
import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from numpy.typing import NDArray

Value = TypeVar("Value")
Answer = TypeVar("Answer")

_PATIENCE = 3
"""Failures in a row, with no answer in between, after which tasks are not handed out again."""


class Shared(Generic[Value]):
    """A value that many tasks read, shipped once for all of them.

    It travels as one array of bytes. Joblib maps large arrays into the memory of its processes, and puts what says that
    it is large on a Dask cluster once a call.

    Parameters
    ----------
    value : anything that can be pickled, closures included
    """

    def __init__(self, value: Value) -> None:
        self.value = value

    @cached_property
    def _shipped(self) -> tuple[str, NDArray[np.uint8]]:
        return uuid.uuid4().hex, np.frombuffer(cloudpickle.dumps(self.value), dtype=np.uint8)

    def __sizeof__(self) -> int:
        """Bytes that travel."""
        return self._shipped[1].nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        """Name and bytes."""
        return _received, self._shipped


def _received(name: str, pickled: NDArray[np.uint8]) -> Shared[Any]:
    """The value, unpacked once a process and not once a task."""
    place = _place(name)
    if not place:
        place.append(Shared(cloudpickle.loads(pickled)))
    return place[0]


@lru_cache(maxsize=2)  # what all tasks of a solve read, and what those of its present round do
def _place(name: str) -> list[Shared[Any]]:
    return []


def carry_out(
    function: Callable[..., Answer],
    tasks: Sequence[tuple[Any, ...]],
    *,
    n_jobs: int | None = None,
    is_late: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[int, Answer]]:
    """Yield the number and the answer of each task, in any order, as they come.

    Parameters
    ----------
    function : function of a module, which is called as ``function(*task)``
    tasks : sequence of tuples
        Large values in them as :class:`Shared`.
    n_jobs : int, optional
        As for :class:`joblib.Parallel`: what ``joblib.parallel_config`` says, or else one, which is this process.
    is_late : function
        Once it returns True, no further task is handed out; those that were are finished.
    """
    if effective_n_jobs(n_jobs) == 1:
        for number, task in enumerate(tasks):
            if is_late():
                return
            yield number, function(*task)
        return
    left = dict(enumerate(tasks))
    n_failures = 0
    while left:
        waiting = (delayed(_answer)(function, number, *task) for number, task in list(left.items()) if not is_late())
        try:
            for number, answer in _make_parallel(n_jobs)(waiting):
                del left[number]
                n_failures = 0
                yield number, answer
            return
        except _TaskError as failed:
            raise failed.error from failed
        except Exception:
            n_failures += 1
            if n_failures > _PATIENCE:
                raise


class _TaskError(Exception):
    """What a task raised, told apart from what its carrier raised."""

    @property
    def error(self) -> Exception:
        error: Exception = self.args[0]
        return error


def _answer(function: Callable[..., Answer], number: int, *task: Any) -> tuple[int, Answer]:
    try:
        return number, function(*task)
    except Exception as error:
        raise _TaskError(error) from error


def _make_parallel(n_jobs: int | None) -> Parallel:
    """Answers as they come, where the backend can tell (Ray's and multiprocessing's cannot), or all at the end."""
    is_told = get_active_backend()[0].supports_return_generator
    return Parallel(n_jobs, return_as="generator_unordered" if is_told else "list")


@contextmanager
def one_thread() -> Iterator[None]:
    """Floating-point sums in one order, however many threads there are."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)
