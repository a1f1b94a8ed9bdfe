"""Progress of long work: a bar in a terminal or a notebook, lines in the log elsewhere."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from multiprocessing import parent_process
from typing import Any, ClassVar, Self

import numpy as np
from rich import progress
from rich.console import Console

from .errors import InvalidInputError

_LOGGER = logging.getLogger("cvxsnn")


class ProgressBar(progress.Progress):
    """A callback ``bar(stage, done, total)`` with one line per stage on the terminal, removed at the end."""

    def __init__(self, console: Console | None = None) -> None:
        columns = progress.BarColumn(), progress.MofNCompleteColumn(), progress.TimeElapsedColumn()
        super().__init__(
            progress.TextColumn("{task.description}"),
            *columns,
            progress.TimeRemainingColumn(),
            console=console or Console(stderr=True),
            transient=True,
            redirect_stdout=False,
        )
        self._stages: dict[str, progress.TaskID] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Update the line of a stage."""
        if stage not in self._stages:
            self._stages[stage] = self.add_task(stage, total=total)
        self.update(self._stages[stage], completed=done, total=total)


class LogLines:
    """A callback ``lines(stage, done, total)`` for the log, with the methods of a bar.

    Parameters
    ----------
    clock : callable
        Returns seconds.
    """

    pause: ClassVar = (5.0, 0.1)
    """Least seconds between two lines, and least share of the time so far: long work has fewer lines."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begin = clock()
        self._next = 0.0
        self._stage, self._stage_begin = ("", 0, 0), 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Remember the state."""
        if self._stage[0] != stage:
            self._stage_begin = self._clock()
        self._stage = (stage, done, total)

    def start(self) -> None:
        """Write a line about the latest state, unless there is none or the last line is recent."""
        now = self._clock()
        seconds, (stage, done, total) = now - self._begin, self._stage
        if stage and seconds >= self._next:
            self._next = seconds + max(self.pause[0], self.pause[1] * seconds)
            left = f", about {(now - self._stage_begin) * (total - done) / done:.0f} s left" if done else ""
            _LOGGER.info("%s: %d of %d after %.0f s%s", stage, done, total, seconds, left)

    def stop(self) -> None:
        """Leave the lines in the log."""


class ShownProgress:
    """A callback ``progress(stage, done, total)`` that shows progress of long work.

    In a terminal or a notebook it draws a bar on standard error. Elsewhere, and in workers, whose bars would overwrite
    each other, it logs lines of level INFO, which are invisible unless logging is configured.

    Parameters
    ----------
    verbose : bool or "auto"
        True shows the progress from the start, False never, and "auto" after three seconds.
    console : Console, optional
        Where to show a bar; by default standard error.
    clock : callable
        Returns seconds.
    """

    patience: ClassVar = 3.0
    """Seconds after which "auto" shows progress."""
    tick: ClassVar = 0.5
    """Seconds between two looks at the clock."""

    def __init__(
        self, verbose: Any, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not isinstance(verbose, (int, np.bool_, str)) or verbose not in (True, False, "auto"):
            raise InvalidInputError(f"expected verbose to be True, False or 'auto', got {verbose!r}")
        self._shown: ProgressBar | LogLines | None = None
        if verbose and _can_draw(console := console or Console(stderr=True)):
            self._shown = ProgressBar(console)
        elif verbose and _LOGGER.isEnabledFor(logging.INFO):
            self._shown = LogLines(clock)
        self._clock = clock
        self._due = clock() + (self.patience if verbose == "auto" else 0.0)
        self._lock, self._end = threading.Lock(), threading.Event()
        # A stage may take long without a call, so a thread watches the clock.
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Update the state of a stage."""
        if self._shown is not None:
            with suppress(OSError):  # a terminal that is gone must not end the work
                self._shown(stage, done, total)
            self._show_if_due()

    def _show_if_due(self) -> None:
        with self._lock, suppress(OSError):
            if self._shown is not None and not self._end.is_set() and self._clock() >= self._due:
                self._shown.start()

    def __enter__(self) -> Self:
        """Begin to watch the clock."""
        self._show_if_due()
        if self._shown is not None:
            self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the bar."""
        with self._lock, suppress(OSError):
            self._end.set()
            if self._shown is not None:
                self._shown.stop()
        if self._watcher.is_alive():
            self._watcher.join()

    def _watch(self) -> None:
        while not self._end.wait(self.tick):
            self._show_if_due()


def _can_draw(console: Console) -> bool:
    """Return whether this console can show a bar, and no other thread or process could draw over it."""
    if parent_process() is not None or threading.current_thread() is not threading.main_thread():
        return False
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    try:
        return console.is_interactive and console.file.isatty()
    except ValueError:  # a closed file
        return False
