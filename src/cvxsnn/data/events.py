"""Lists of events, such as those of event cameras and silicon cochleas, as sequences."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.checks import as_array, check_positive_int
from ..core.errors import InvalidInputError
from ..core.formatting import plural


class Events(NamedTuple):
    """The events of one recording.

    Parameters
    ----------
    times : array of shape (n_events,)
        When the events happened, in any unit and order.
    channels : array of shape (n_events,), of integers
        On which channel each event happened, from 0.

    Examples
    --------
    >>> from cvxsnn.data import Events, sequences_from_events
    >>> recording = Events(times=[0.1, 0.2, 2.5], channels=[1, 1, 0])
    >>> [counts] = sequences_from_events([recording], step=1.0, n_channels=2)
    >>> counts.shape
    (3, 2)
    """

    times: Any
    channels: Any


def sequences_from_events(
    recordings: Sequence[Events | tuple[Any, Any]], step: float, n_channels: int, *, duration: float | None = None
) -> list[npt.NDArray[np.float64]]:
    """Count the events of each channel in steps of equal duration.

    Parameters
    ----------
    recordings : sequence of Events or pairs
        Times and channels of the events of each recording. A recording begins at time 0.
    step : float
        The duration of a step, in the unit of the times.
    n_channels : int
        The number of channels.
    duration : float, optional
        The duration of every recording; later events are not counted. By default a recording ends with the step of its
        last event.

    Returns
    -------
    list of arrays of shape (n_steps_i, n_channels)
        The numbers of events, which the estimators accept.

    Examples
    --------
    >>> from cvxsnn.data import sequences_from_events
    >>> [counts] = sequences_from_events([([0.1, 0.2, 2.5], [1, 1, 0])], step=1.0, n_channels=2)
    >>> counts
    array([[0., 2.],
           [0., 0.],
           [1., 0.]])
    """
    check_positive_int("n_channels", n_channels)
    for name, value in (("step", step), ("duration", duration)):
        if value is not None and not 0 < value < float("inf"):
            raise InvalidInputError(f"expected {name} to be a finite number above zero, got {value!r}")
    return [_count(number, events, step, n_channels, duration) for number, events in enumerate(recordings)]


def _count(number: int, events: Any, step: float, n_channels: int, duration: float | None) -> npt.NDArray[np.float64]:
    try:
        times, channels = (np.asarray(as_array(f"recording {number}", part)) for part in events)
    except InvalidInputError:
        raise
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"expected recording {number} to be a pair of times and channels, got {type(events).__name__}"
        ) from None
    if times.ndim != 1 or times.shape != channels.shape:
        raise InvalidInputError(
            f"expected one channel for each time of recording {number}, got shapes {times.shape} and {channels.shape}"
        )
    if times.dtype.kind not in "iuf" or not np.isfinite(times).all() or (times < 0).any():
        raise InvalidInputError(
            f"expected finite times from 0 on in recording {number}, got others: subtract the time at which it begins"
        )
    if len(channels) and (channels.dtype.kind not in "iu" or not 0 <= channels.min() <= channels.max() < n_channels):
        raise InvalidInputError(
            f"expected whole channels from 0 to {n_channels - 1} in recording {number}, got others: number the channels"
        )
    steps, channels = np.floor_divide(times, step).astype(np.int64), channels.astype(np.int64)
    if duration is None:
        n_steps = int(steps.max(initial=0)) + 1
    else:
        n_steps = max(1, int(np.ceil(duration / step)))
        channels, steps = channels[times < duration], steps[times < duration]
    # A single late event, or a wrong unit of time, would ask for any amount of memory.
    n_values, most = n_steps * n_channels, 2**30
    if n_values > most:
        raise InvalidInputError(
            f"expected at most {most:,} values per recording, got {plural(n_steps, 'step')} of "
            f"{plural(n_channels, 'channel')} in recording {number}: pass a longer step"
        )
    counts = np.bincount(steps * n_channels + channels, minlength=n_values)[:n_values]
    return counts.reshape(n_steps, n_channels).astype(np.float64)
