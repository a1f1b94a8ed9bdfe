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
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from .errors import InvalidInputError

_LOGGER = logging.getLogger("cvxsnn")


class ProgressBar:
    """A callback ``bar(stage, done, total)`` with one line per stage on the terminal, removed at the end."""

    def __init__(self, console: Console | None = None) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
            transient=True,
            redirect_stdout=False,
        )
        self._stages: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Update the line of a stage."""
        if stage not in self._stages:
            self._stages[stage] = self._bar.add_task(stage, total=total)
        self._bar.update(self._stages[stage], completed=done, total=total)

    def show(self) -> None:
        """Show the bar, unless it is shown already."""
        self._bar.start()

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()

    def __enter__(self) -> Self:
        """Show the bar."""
        self.show()
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the bar."""
        self.close()


class LogLines:
    """A callback ``lines(stage, done, total)`` for the log.

    Parameters
    ----------
    clock : callable
        Returns seconds.
    """

    pause: ClassVar = (5.0, 0.1)
    """Least seconds between two lines, and least share of the time so far: long work has fewer lines."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._begin, self._next = clock, clock(), 0.0
        self._stage: tuple[str, int, int] | None = None
        self._stage_begin = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Remember the state."""
        if self._stage is None or self._stage[0] != stage:
            self._stage_begin = self._clock()
        self._stage = (stage, done, total)

    def show(self) -> None:
        """Write a line about the latest state, unless the last line is recent."""
        now = self._clock()
        seconds = now - self._begin
        if self._stage is None or seconds < self._next:
            return
        self._next = seconds + max(self.pause[0], self.pause[1] * seconds)
        stage, done, total = self._stage
        left = f", about {(now - self._stage_begin) * (total - done) / done:.0f} s left" if done else ""
        _LOGGER.info("%s: %d of %d after %.0f s%s", stage, done, total, seconds, left)

    def close(self) -> None:
        """Leave the lines in the log."""


class ShownProgress:
    """A callback ``progress(stage, done, total)`` that shows work to a person if it lasts.

    It is a bar on standard error in a terminal or a notebook. Elsewhere, and in workers, whose bars would overwrite
    each other, it is lines of level INFO in the log, which nobody sees unless logging is configured.

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
        self._clock, self._due = clock, clock() + (self.patience if verbose == "auto" else 0.0)
        self._lock, self._end = threading.Lock(), threading.Event()
        # Work may last without a call: a thread looks at the clock.
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Update the state of a stage."""
        if self._shown is not None:
            with suppress(OSError):  # a terminal that is gone must not end the work
                self._shown(stage, done, total)
            self.look()

    def look(self) -> None:
        """Show the progress if it is time to."""
        with self._lock, suppress(OSError):
            if self._shown is not None and not self._end.is_set() and self._clock() >= self._due:
                self._shown.show()

    def __enter__(self) -> Self:
        """Begin to look at the clock."""
        self.look()
        if self._shown is not None:
            self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the bar."""
        with self._lock, suppress(OSError):
            self._end.set()
            if self._shown is not None:
                self._shown.close()
        if self._watcher.is_alive():
            self._watcher.join()

    def _watch(self) -> None:
        while not self._end.wait(self.tick):
            self.look()


def _can_draw(console: Console) -> bool:
    """Return whether a bar can be drawn, and no other thread or process may draw one there."""
    if parent_process() is not None or threading.current_thread() is not threading.main_thread():
        return False
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    try:
        return console.is_interactive and console.file.isatty()
    except ValueError:  # a closed file
        return False
