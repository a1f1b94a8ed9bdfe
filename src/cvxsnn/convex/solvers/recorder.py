"""Keeping the history of a solve."""

import time

from ..solution import Progress


class Recorder:
    """Collects moments of a solve."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._stop = 0.0
        self._history: list[Progress] = []

    @property
    def seconds(self) -> float:
        """Time since the start, or from the start to the stop."""
        return (self._stop or time.perf_counter()) - self._start

    def stop(self) -> float:
        """Stop the clock, once; give the time it shows."""
        self._stop = self._stop or time.perf_counter()
        return self.seconds

    @property
    def history(self) -> tuple[Progress, ...]:
        """All moments so far."""
        return tuple(self._history)

    def record(self, primal: float, dual: float, n_active: int) -> None:
        """Add a moment."""
        self._history.append(Progress(self.seconds, (primal - dual) / max(primal, 1e-300), n_active))
