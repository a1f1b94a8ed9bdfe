"""The time of a fit: how much has passed, and whether the next step is likely to end in time."""

import time
from math import inf

SOLVE_SHARE = 0.4
"""Upper bound on the time of the final solve, relative to the judgement of the same neurons and rows."""


class Clock:
    """Forecasts how long neurons and rows take, from the largest trial so far.

    Parameters
    ----------
    max_seconds : float
        The time from now on.
    n_rows : int
        The number of rows that the final solve has.
    n_neurons : int
        The least number of neurons that it has.
    """

    def __init__(self, max_seconds: float, n_rows: int, n_neurons: int) -> None:
        self._begin, self._max_seconds = time.perf_counter(), max_seconds
        self._n_rows, self._n_neurons = n_rows, n_neurons
        self._largest = (0, 0, 0.0, 0.0)

    def is_late(self) -> bool:
        """Return whether the time is up."""
        return time.perf_counter() - self._begin > self._max_seconds

    def note(self, n_neurons: int, n_rows: int, spikes: float, judgement: float) -> None:
        """Remember the seconds that a trial took: for the spikes of its neurons, and for its judgement."""
        # The largest is the closest to the trials that are forecast from it.
        self._largest = max(self._largest, (n_neurons, n_rows, spikes, judgement))

    def has_time(self, n_neurons: int, n_rows: int) -> bool:
        """Return whether a trial, and the fit of these neurons to all rows after it, is likely to end in time."""
        if self._max_seconds == inf or not self._largest[0]:
            return True
        spikes, judgement = self._forecast(n_neurons, n_rows)
        last_spikes, last_judgement = self._forecast(max(n_neurons, self._n_neurons), self._n_rows)
        # A trial on all rows has computed the spikes of the final solve already.
        after = SOLVE_SHARE * last_judgement + last_spikes * (n_rows < self._n_rows)
        return time.perf_counter() - self._begin + spikes + judgement + after <= self._max_seconds

    def _forecast(self, n_neurons: int, n_rows: int) -> tuple[float, float]:
        """Return the seconds of spikes and judgement of a trial, rather too many than too few."""
        most_neurons, most_rows, spikes, judgement = self._largest
        # Spikes take time in proportion to neurons and rows. A judgement multiplies rows or columns, whichever are
        # fewer, and decomposes the product, which takes the cube of its size.
        work = n_neurons / most_neurons * n_rows / most_rows
        size = min(n_neurons, n_rows) / min(most_neurons, most_rows)
        return spikes * work, judgement * max(work * size, size**3)
