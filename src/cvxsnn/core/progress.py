"""A progress bar with an estimate of the time left, as a callback."""

from types import TracebackType
from typing import Self

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
        )
        self._stages: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Update the line of a stage."""
        if stage not in self._stages:
            self._stages[stage] = self._bar.add_task(stage, total=total)
        self._bar.update(self._stages[stage], completed=done, total=total)

    def __enter__(self) -> Self:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        self._bar.stop()
