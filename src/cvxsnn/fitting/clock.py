"""The time of a fit: how much has passed, and whether the next step is likely to end in time."""

import time
from math import inf
from typing import NamedTuple

SOLVE_SHARE = 0.4
"""Upper bound on the time of the final solve of ridge, relative to the judgement of the same neurons and rows."""

LAST_LAPS = 3.0
"""Upper bound on the time of the next strength and the final solve, relative to the last strength that was judged."""


class _Seconds(NamedTuple):
    """The size of a trial, and what each of its steps took."""

    n_neurons: int = 0
    n_rows: int = 0
    spikes: float = 0.0
    judgement: float = 0.0
    solve: float = 0.0


class Clock:
    """Forecasts how long neurons and rows take, from the largest trial so far and from the solver that will run.

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
        self._largest = _Seconds()
        self._own: _Seconds | None = None
        self._lap_begin, self._lap = self._begin, 0.0

    @property
    def is_limited(self) -> bool:
        """Whether time is limited."""
        return self._max_seconds < inf

    @property
    def elapsed(self) -> float:
        """The seconds that have passed."""
        return time.perf_counter() - self._begin

    def is_late(self) -> bool:
        """Return whether another strength and the final solve are likely to end too late, by the last strength."""
        return self.elapsed + LAST_LAPS * self._lap > self._max_seconds

    def lap(self) -> None:
        """Remember that a strength was judged."""
        now = time.perf_counter()
        self._lap_begin, self._lap = now, now - self._lap_begin

    def note(self, n_neurons: int, n_rows: int, spikes: float, judgement: float) -> None:
        """Remember the seconds that a trial took: for the spikes of its neurons, and for its judgement by ridge."""
        # The largest is the closest to the trials that are forecast from it.
        self._largest = max(self._largest, _Seconds(n_neurons, n_rows, spikes, judgement, SOLVE_SHARE * judgement))

    def note_solver(self, n_neurons: int, n_rows: int, solve: float, n_judged: int) -> None:
        """Remember the seconds of a solve of the program itself, which judges at least ``n_judged`` strengths."""
        self._own = _Seconds(n_neurons, n_rows, 0.0, n_judged * solve, solve)

    def has_time(self, n_neurons: int, n_rows: int, *, compares: bool = False) -> bool:
        """Return whether a trial, and the fit of these neurons to all rows after it, is likely to end in time.

        A trial that ``compares`` families is judged by ridge, any other one by the program itself.
        """
        if not self.is_limited or not self._largest.n_neurons:
            return True
        ridge, own = self._largest, self._own or self._largest
        trial = _forecast(ridge, n_neurons, n_rows)
        judgement = trial.judgement if compares else _forecast(own, n_neurons, n_rows).judgement
        n_last = max(n_neurons, self._n_neurons)
        # A trial on all rows has computed the spikes of the final solve already.
        last_spikes = _forecast(ridge, n_last, self._n_rows).spikes * (n_rows < self._n_rows)
        after = last_spikes + _forecast(own, n_last, self._n_rows).solve
        return self.elapsed + trial.spikes + judgement + after <= self._max_seconds

    def has_time_for_fits(self, n_neurons: int, n_rows: int, n_fits: int) -> bool:
        """Return whether each strength may be judged by several fits; not if the time of one is unknown."""
        if not self.is_limited or n_fits == 1:
            return True
        if self._own is None:
            return False
        own = _forecast(self._own, n_neurons, n_rows)
        return self.elapsed + n_fits * own.judgement + own.solve <= self._max_seconds


def _forecast(known: _Seconds, n_neurons: int, n_rows: int) -> _Seconds:
    """Return the seconds of a trial from those of another one, rather too many than too few."""
    # Spikes take time in proportion to neurons and rows. Solvers multiply rows or columns, whichever are fewer, and
    # decompose the product, which takes the cube of its size.
    work = n_neurons / known.n_neurons * n_rows / known.n_rows
    size = min(n_neurons, n_rows) / min(known.n_neurons, known.n_rows)
    growth = max(work * size, size**3)
    return _Seconds(n_neurons, n_rows, known.spikes * work, known.judgement * growth, known.solve * growth)
