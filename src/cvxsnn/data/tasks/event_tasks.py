"""Recordings of silicon cochleas and event cameras, as counts of events in steps of equal duration.

They are read by tonic, an extra: ``pip install "cvxsnn[events]"``. Nothing is downloaded: the files must be on this
machine.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.checks import check_number
from ...core.errors import DataFileError, InvalidInputError, first_line
from ...core.formatting import plural
from ...core.libraries import import_library
from ...core.memory import check_fits
from ..events import sequences_from_events
from ..task import UNNAMED_HEAD, SequenceData, Task, check_sizes, hold_out
from .files import VARIABLE, Folder, data_folders


@dataclass(frozen=True)
class EventPart:
    """One part of a data set, such as its training recordings.

    Parameters
    ----------
    name : str
        The file, or the folder of files, inside of the folder of the data set.
    archive : str
        The archive that contains it.
    n_recordings : int, optional
        The number of recordings. It is checked where each recording is a file of its own.
    """

    name: str
    archive: str
    n_recordings: int | None = None


@dataclass(frozen=True)
class EventData:
    """A data set that tonic can read.

    Parameters
    ----------
    name : str
        The name of tonic's class, which is also that of the folder with the files.
    parts : mapping of str to EventPart
        "train", "test", and "val" where it is official.
    sensor : mapping of str to int
        The coordinates of an event and their numbers of values; the last varies fastest in the numbers of the channels.
        Neighbours can be merged along all but the polarity "p".
    n_classes : int
        The number of classes.
    group_of_recording : callable or None
        Returns the recorded person of each recording, given tonic's data set and the path of the part.
    starts_late : bool
        Whether a recording begins with its first event, and not at time 0.
    """

    name: str
    parts: Mapping[str, EventPart]
    sensor: Mapping[str, int]
    n_classes: int
    group_of_recording: Callable[[Any, Path], npt.NDArray[Any]] | None = None
    starts_late: bool = False


def shd(
    step: float = 0.01,
    *,
    duration: float = 1.4,
    merge: int = 5,
    n_val_speakers: int = 2,
    directory: Folder | None = None,
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
    return _make("shd", dict(locals()), "n_val_speakers")


def ssc(step: float = 0.01, *, duration: float = 1.0, merge: int = 5, directory: Folder | None = None) -> Task:
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
    return _make("ssc", dict(locals()))


def n_mnist(
    step: float = 0.01,
    *,
    duration: float = 0.3,
    merge: int = 2,
    n_val: int = 10_000,
    directory: Folder | None = None,
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
        Side of the squares of pixels that are added up to one: 2 makes 17 × 17 of 34 × 34, 578 channels.
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
    return _make("n_mnist", dict(locals()), "n_val")


def dvs_gesture(
    step: float = 0.1,
    *,
    duration: float = 6.0,
    merge: int = 4,
    n_val_users: int = 4,
    directory: Folder | None = None,
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
        Side of the squares of pixels that are added up to one: 4 makes 32 × 32 of 128 × 128, 2,048 channels.
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
    return _make("dvs_gesture", dict(locals()), "n_val_users")


def _make(name: str, settings: dict[str, Any], held_out: str | None = None) -> Task:
    """Return a task; the setting called ``held_out`` is how much of the training data is for validation."""
    data, directory = EVENT_DATA[name], settings.pop("directory")
    for key in ("step", "duration"):
        settings[key] = check_number(key, settings[key])
    # Files count in microseconds, so whole ones divide time without rounding.
    step, duration = (round(settings[key] * 1_000_000) for key in ("step", "duration"))
    if not 0 < step <= duration:
        raise InvalidInputError(
            f"expected a step of a microsecond or more and a duration of a step or more, got step={settings['step']!r} "
            f"and duration={settings['duration']!r} seconds"
        )
    check_sizes(settings, "merge", *([held_out] if held_out else []))
    recordings = {split: _Recordings(data, split, directory) for split in data.parts}
    chosen = {split: np.arange(len(part.groups)) for split, part in recordings.items()}
    if held_out:
        is_val = hold_out(recordings["train"].groups, held_out, settings, name)
        recordings["val"], chosen["val"] = recordings["train"], np.flatnonzero(is_val)
        chosen["train"] = np.flatnonzero(~is_val)
    splits: dict[str, Any] = {
        split: part.count(chosen[split], step, duration, settings["merge"]) for split, part in recordings.items()
    }
    return Task(name=name, **splits, n_classes={UNNAMED_HEAD: data.n_classes}, settings=settings)


class _Recordings:
    """The recordings of one part of a data set, which are read one at a time.

    If ``directory`` is None, the folder that the environment variable CVXSNN_DATA names and then the cache
    (``~/.cache/cvxsnn``, or under XDG_CACHE_HOME) are searched.
    """

    def __init__(self, data: EventData, split: str, directory: Folder | None) -> None:
        self._data, self._part = data, (part := data.parts[split])
        # tonic selects a part by the name of an official split, if there are three, and by a flag otherwise.
        official = {"split": "valid" if split == "val" else split}
        selection = official if "val" in data.parts else {"train": split == "train"}
        # tonic would download missing files; _find refuses them first. tonic names the folder after the class.
        kind = getattr(import_library("tonic.datasets", "events"), data.name)
        offline = type(data.name, (kind,), {"_check_exists": lambda _: True, "download": None})
        self._path = self._find(directory)
        with self._readable():
            self._dataset = dataset = offline(str(self._path.parent.parent), **selection)
            if getattr(dataset, "data", None):  # files in the order of the file system: sort them
                pairs = sorted(zip(dataset.data, dataset.targets, strict=True))
                dataset.data, dataset.targets = map(list, zip(*pairs, strict=True))
            find = data.group_of_recording
            self.groups = np.arange(len(dataset)) if find is None else find(dataset, self._path)
        if len(dataset) == 0 or part.n_recordings not in (None, len(dataset)):
            wanted = "" if part.n_recordings is None else f"{part.n_recordings:,} "
            raise DataFileError(
                f"expected {wanted}recordings in {self._path}, found {len(dataset):,}: unpack {part.archive} once more"
            )

    def count(self, chosen: npt.NDArray[np.intp], step: int, duration: int, merge: int) -> SequenceData:
        """Count the events of some of the recordings, per step and channel, and return them with their labels."""
        sensor = self._data.sensor
        factors = [1 if name == "p" else merge for name in sensor]
        shape = [-(-size // factor) for size, factor in zip(sensor.values(), factors, strict=True)]
        n_steps, n_channels = -(-duration // step), math.prod(shape)
        purpose = f"{plural(len(chosen), 'sequence')} of {plural(n_steps, 'step')} and {plural(n_channels, 'channel')}"
        remedy = "pass a longer step, a shorter duration or a larger merge"
        check_fits(4 * len(chosen) * n_steps * n_channels, "cpu", purpose, remedy)
        inputs = np.empty((len(chosen), n_steps, n_channels), dtype=np.float32)
        labels = np.empty(len(chosen), dtype=np.int64)
        for row, index in enumerate(chosen.tolist()):
            with self._readable():
                events, labels[row] = self._dataset[index]
                times = events["t"]
                if self._data.starts_late and len(times):
                    times = times - times.min()
                coordinates = [events[name].astype(np.int64) for name in sensor]
                # Checks the bounds of the sensor: after merging, a coordinate beyond them could pass.
                np.ravel_multi_index(tuple(coordinates), tuple(sensor.values()))
                cells = tuple(value // factor for value, factor in zip(coordinates, factors, strict=True))
                recording = times, np.ravel_multi_index(cells, tuple(shape))
                [inputs[row]] = sequences_from_events([recording], step, n_channels, duration=duration)
        return SequenceData(inputs, labels)

    def _find(self, directory: Folder | None) -> Path:
        folders = [folder / self._data.name for folder in data_folders(directory)]
        path = next((folder / self._part.name for folder in folders if (folder / self._part.name).exists()), None)
        if path is not None:
            return path
        hint = f" and set {VARIABLE} to the folder that contains {self._data.name}" if directory is None else ""
        raise DataFileError(
            f"expected {self._part.name} in {' or '.join(map(str, folders))}, found none: download "
            f"{self._part.archive}, unpack it there{hint}"
        )

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn errors that other libraries raise about bad files into one sentence."""
        try:
            yield
        except (OSError, LookupError, TypeError, ValueError) as error:
            raise DataFileError(
                f"expected {self._path} as {self._part.archive} contains it, got {first_line(error)!r}: unpack it once "
                "more"
            ) from error


def _speakers(_: Any, path: Path) -> npt.NDArray[Any]:
    with import_library("h5py", "events").File(path, "r") as file:
        return np.asarray(file["extra/speaker"][()], dtype=np.int64)


def _users(dataset: Any, _: Path) -> npt.NDArray[Any]:
    """Return the users, whose folders are called user01_fluorescent and so on."""
    return np.array([int(Path(path).parent.name.partition("_")[0].removeprefix("user")) for path in dataset.data])


def _heidelberg(name: str, *splits: str) -> dict[str, EventPart]:
    """Return parts that are one file each."""
    files = {split: f"{name}_{'valid' if split == 'val' else split}.h5" for split in splits}
    return {split: EventPart(file, f"https://zenkelab.org/datasets/{file}.zip") for split, file in files.items()}


def _folders(train: tuple[str, str, int], test: tuple[str, str, int]) -> dict[str, EventPart]:
    """Return parts that are folders: the name, the archive and the number of recordings of each."""
    return {"train": EventPart(*train), "test": EventPart(*test)}


_MENDELEY = "of https://data.mendeley.com/datasets/468j46mzdv"
_FIGSHARE = "https://figshare.com/ndownloader/files/"
EVENT_DATA = {
    "shd": EventData("SHD", _heidelberg("shd", "train", "test"), {"x": 700}, 20, _speakers),
    "ssc": EventData("SSC", _heidelberg("ssc", "train", "val", "test"), {"x": 700}, 35),
    "n_mnist": EventData(
        "NMNIST",
        _folders(("Train", f"train.zip {_MENDELEY}", 60_000), ("Test", f"test.zip {_MENDELEY}", 10_000)),
        {"p": 2, "y": 34, "x": 34},
        10,
    ),
    "dvs_gesture": EventData(
        "DVSGesture",
        _folders(("ibmGestureTrain", f"{_FIGSHARE}38022171", 1_077), ("ibmGestureTest", f"{_FIGSHARE}38020584", 264)),
        {"p": 2, "y": 128, "x": 128},
        11,
        _users,
        starts_late=True,
    ),
}
"""The data sets by the names of their tasks."""
