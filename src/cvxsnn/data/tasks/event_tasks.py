"""Recordings of silicon cochleas and event cameras, as counts of events in steps of equal duration.

They are read by tonic, an extra: ``pip install "cvxsnn[events]"``.
"""

from os import PathLike
from typing import Any

import numpy as np

from ...core.checks import check_number, check_positive_int
from ...core.errors import DataFileError, InvalidInputError
from ...core.memory import check_fits
from ...core.seeds import child_generator
from ..events import sequences_from_events
from .event_files import EVENT_DATA, EventRecordings, IntArray
from .task import UNNAMED_HEAD, SequenceData, Task

_MICROSECONDS = 1_000_000


def shd(
    step: float = 0.01,
    *,
    duration: float = 1.4,
    merge: int = 5,
    n_val_speakers: int = 2,
    directory: str | PathLike[str] | None = None,
    seed: int = 0,
) -> Task:
    """Return the Spiking Heidelberg Digits: spoken digits in two languages, 20 classes, 700 channels.

    There are 8,156 recordings to train on and 2,264 to test on, most of them of two speakers who are not in the
    training data. Validation holds out whole speakers, too. ``shd_train.h5`` and ``shd_test.h5`` must be in a folder
    ``SHD``, where tonic puts them.

    Parameters
    ----------
    step : float, default=0.01
        The duration of a step, in seconds.
    duration : float, default=1.4
        The duration of all sequences, in seconds; later events are left out.
    merge : int, default=5
        The number of neighbouring channels that are added up to one: 5 makes 140 channels of 700.
    n_val_speakers : int, default=2
        Number of speakers of the training data that are held out for validation, drawn at random.
    directory : path, optional
        The folder that contains ``SHD``. By default, the folder that the environment variable CVXSNN_DATA names and
        then the cache are searched. Nothing is downloaded.
    seed : int, default=0
        Seed of the choice of validation speakers.

    Returns
    -------
    Task
        The task.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> try:
    ...     task = cs.tasks.shd(directory="path/to/files")
    ...     print(task.train.inputs.shape)
    ... except cs.CvxsnnError:
    ...     print("the recordings, or the library tonic, are not there")
    the recordings, or the library tonic, are not there
    """
    return _by_group("shd", _Bins(step, duration, merge), "n_val_speakers", n_val_speakers, directory, seed)


def ssc(
    step: float = 0.01, *, duration: float = 1.0, merge: int = 5, directory: str | PathLike[str] | None = None
) -> Task:
    """Return the Spiking Speech Commands: 35 spoken words, 700 channels.

    There are 75,466 recordings to train on, 9,981 to validate on and 20,382 to test on; these splits are official.
    ``ssc_train.h5``, ``ssc_valid.h5`` and ``ssc_test.h5`` must be in a folder ``SSC``, where tonic puts them.

    Parameters
    ----------
    step : float, default=0.01
        The duration of a step, in seconds.
    duration : float, default=1.0
        The duration of all sequences, in seconds; later events are left out.
    merge : int, default=5
        The number of neighbouring channels that are added up to one: 5 makes 140 channels of 700.
    directory : path, optional
        The folder that contains ``SSC``. By default, the folder that the environment variable CVXSNN_DATA names and
        then the cache are searched. Nothing is downloaded.

    Returns
    -------
    Task
        The task.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> try:
    ...     task = cs.tasks.ssc(directory="path/to/files")
    ...     print(task.train.inputs.shape)
    ... except cs.CvxsnnError:
    ...     print("the recordings, or the library tonic, are not there")
    the recordings, or the library tonic, are not there
    """
    bins = _Bins(step, duration, merge)
    parts = {part: EVENT_DATA["ssc"].open(part, directory) for part in ("train", "val", "test")}
    return _make("ssc", {part: bins.count(own) for part, own in parts.items()}, bins.settings)


def n_mnist(
    step: float = 0.01,
    *,
    duration: float = 0.3,
    merge: int = 2,
    n_val: int = 10_000,
    directory: str | PathLike[str] | None = None,
    seed: int = 0,
) -> Task:
    """Return N-MNIST: handwritten digits before an event camera of 34 × 34 pixels that moves three times.

    There are 60,000 recordings to train on and 10,000 to test on. Events are brighter or darker pixels, which are
    different channels. The folders ``Train`` and ``Test`` must be in a folder ``NMNIST``, where tonic puts them.

    Parameters
    ----------
    step : float, default=0.01
        The duration of a step, in seconds.
    duration : float, default=0.3
        The duration of all sequences, in seconds; later events are left out.
    merge : int, default=2
        Squares of so many pixels on a side are added up to one: 2 makes 17 × 17 of 34 × 34, 578 channels.
    n_val : int, default=10_000
        Number of training recordings that are held out for validation, drawn at random.
    directory : path, optional
        The folder that contains ``NMNIST``. By default, the folder that the environment variable CVXSNN_DATA names and
        then the cache are searched. Nothing is downloaded.
    seed : int, default=0
        Seed of the choice of validation recordings.

    Returns
    -------
    Task
        The task.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> try:
    ...     task = cs.tasks.n_mnist(directory="path/to/files")
    ...     print(task.train.inputs.shape)
    ... except cs.CvxsnnError:
    ...     print("the recordings, or the library tonic, are not there")
    the recordings, or the library tonic, are not there
    """
    bins, n_val = _Bins(step, duration, merge), check_positive_int("n_val", n_val)
    train, test = (EVENT_DATA["n_mnist"].open(part, directory) for part in ("train", "test"))
    if n_val >= len(train):
        raise InvalidInputError(f"expected n_val below {len(train)}, the training recordings, got {n_val}")
    is_val = np.zeros(len(train), dtype=bool)
    is_val[child_generator(seed, "n_mnist", "validation").permutation(len(train))[:n_val]] = True
    splits = _divide(bins, train, is_val) | {"test": bins.count(test)}
    return _make("n_mnist", splits, {**bins.settings, "n_val": n_val, "seed": seed})


def dvs_gesture(
    step: float = 0.1,
    *,
    duration: float = 6.0,
    merge: int = 4,
    n_val_users: int = 4,
    directory: str | PathLike[str] | None = None,
    seed: int = 0,
) -> Task:
    """Return DVS128 Gesture: 11 gestures of 29 users before an event camera of 128 × 128 pixels.

    There are 1,077 recordings to train on and 264 to test on, of other users, as tonic cuts them. Validation holds out
    whole users, too. Events are brighter or darker pixels, which are different channels; a recording begins with its
    first event. The folders ``ibmGestureTrain`` and ``ibmGestureTest`` must be in a folder ``DVSGesture``, where tonic
    puts them.

    Parameters
    ----------
    step : float, default=0.1
        The duration of a step, in seconds.
    duration : float, default=6.0
        The duration of all sequences, in seconds; later events are left out.
    merge : int, default=4
        Squares of so many pixels on a side are added up to one: 4 makes 32 × 32 of 128 × 128, 2,048 channels.
    n_val_users : int, default=4
        Number of users of the training data that are held out for validation, drawn at random.
    directory : path, optional
        The folder that contains ``DVSGesture``. By default, the folder that the environment variable CVXSNN_DATA names
        and then the cache are searched. Nothing is downloaded.
    seed : int, default=0
        Seed of the choice of validation users.

    Returns
    -------
    Task
        The task.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> try:
    ...     task = cs.tasks.dvs_gesture(directory="path/to/files")
    ...     print(task.train.inputs.shape)
    ... except cs.CvxsnnError:
    ...     print("the recordings, or the library tonic, are not there")
    the recordings, or the library tonic, are not there
    """
    return _by_group("dvs_gesture", _Bins(step, duration, merge), "n_val_users", n_val_users, directory, seed)


class _Bins:
    """How events are counted: in steps, up to a duration, in channels that may be merged."""

    def __init__(self, step: float, duration: float, merge: int) -> None:
        self.settings: dict[str, Any] = {
            "step": check_number("step", step),
            "duration": check_number("duration", duration),
            "merge": check_positive_int("merge", merge),
        }
        # Files have whole microseconds, in which nothing is rounded.
        self._step, self._duration = (round(self.settings[name] * _MICROSECONDS) for name in ("step", "duration"))
        if not 0 < self._step <= self._duration:
            raise InvalidInputError(
                f"expected a step of a microsecond or more and a duration of a step or more, got step={step!r} and "
                f"duration={duration!r} seconds"
            )

    def count(self, recordings: EventRecordings, chosen: IntArray | None = None) -> SequenceData:
        """Return the counts and labels of some of the recordings."""
        merge, chosen = self.settings["merge"], np.arange(len(recordings)) if chosen is None else chosen
        n_steps, n_channels = -(-self._duration // self._step), recordings.data.n_channels(merge)
        check_fits(
            4 * len(chosen) * n_steps * n_channels,
            "cpu",
            f"{len(chosen):,} sequences of {n_steps:,} steps and {n_channels:,} channels",
            "pass a longer step, a shorter duration or a larger merge",
        )
        inputs = np.empty((len(chosen), n_steps, n_channels), dtype=np.float32)
        labels = np.empty(len(chosen), dtype=np.int64)
        for row, index in enumerate(chosen.tolist()):
            times, channels, labels[row] = recordings.read(index, merge)
            try:
                [inputs[row]] = sequences_from_events(
                    [(times, channels)], self._step, n_channels, duration=self._duration
                )
            except InvalidInputError as error:
                raise DataFileError(
                    f"expected events in recording {index} of {recordings.path}, got an error ({error})"
                ) from None
        return SequenceData(inputs, labels)


def _by_group(
    name: str, bins: _Bins, argument: str, n_groups: int, directory: str | PathLike[str] | None, seed: int
) -> Task:
    """Return a task whose validation data are of other speakers or users than the training data."""
    n_groups = check_positive_int(argument, n_groups)
    train, test = (EVENT_DATA[name].open(part, directory) for part in ("train", "test"))
    assert train.groups is not None
    groups = np.unique(train.groups)
    if n_groups >= len(groups):
        raise InvalidInputError(f"expected {argument} below {len(groups)}, those in the training data, got {n_groups}")
    drawn = child_generator(seed, name, "validation").permutation(groups)[:n_groups]
    splits = _divide(bins, train, np.isin(train.groups, drawn)) | {"test": bins.count(test)}
    return _make(name, splits, {**bins.settings, argument: n_groups, "seed": seed})


def _divide(bins: _Bins, recordings: EventRecordings, is_val: Any) -> dict[str, SequenceData]:
    return {
        "train": bins.count(recordings, np.flatnonzero(~is_val)),
        "val": bins.count(recordings, np.flatnonzero(is_val)),
    }


def _make(name: str, splits: dict[str, SequenceData], settings: dict[str, Any]) -> Task:
    return Task(
        name=name,
        train=splits["train"],
        val=splits["val"],
        test=splits["test"],
        n_classes={UNNAMED_HEAD: EVENT_DATA[name].n_classes},
        settings=settings,
    )
