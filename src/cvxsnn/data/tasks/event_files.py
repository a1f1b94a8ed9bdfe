"""Recordings of events in the files that tonic reads. Nothing is downloaded: the files must be on this machine."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.errors import CvxsnnError, DataFileError, first_line
from ...core.libraries import import_library
from .files import VARIABLE, Folder, data_folders

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EventFile:
    """One part of a data set, such as its training recordings.

    Parameters
    ----------
    name : str
        The file, or the folder of files, inside of the folder of the data set.
    archive : str
        What is unpacked to get it.
    arguments : mapping of str to object
        The arguments by which tonic's class knows this part.
    n_recordings : int, optional
        The number of recordings. It is checked where each recording is a file of its own.
    """

    name: str
    archive: str
    arguments: Mapping[str, Any]
    n_recordings: int | None = None


@dataclass(frozen=True)
class EventData:
    """A data set that tonic can read.

    Parameters
    ----------
    name : str
        The name of tonic's class, which is also that of the folder with the files.
    files : mapping of str to EventFile
        The parts: "train", "test", and "val" where it is official.
    sensor : tuple of int
        The numbers of values of each of ``coordinates``.
    coordinates : tuple of str
        The fields of an event that say where it happened; the last varies fastest in the numbers of the channels.
    merged : tuple of str
        The coordinates along which neighbours can be merged.
    n_classes : int
        The number of classes.
    groups : callable or None
        Returns who is recorded, given tonic's data set and the path of the part.
    starts_late : bool
        Whether a recording begins with its first event, and not at time 0.
    """

    name: str
    files: Mapping[str, EventFile]
    sensor: tuple[int, ...]
    coordinates: tuple[str, ...]
    merged: tuple[str, ...]
    n_classes: int
    groups: Callable[[Any, Path], IntArray] | None = None
    starts_late: bool = False

    def n_channels(self, merge: int) -> int:
        """Return the number of channels after merging ``merge`` neighbours along each of ``merged``."""
        return int(np.prod(self._shape(merge)))

    def _shape(self, merge: int) -> tuple[int, ...]:
        sizes = zip(self.coordinates, self.sensor, strict=True)
        return tuple(-(-size // merge) if name in self.merged else size for name, size in sizes)

    def open(self, part: str, directory: Folder | None) -> "EventRecordings":
        """Find the files of a part, and return its recordings.

        Files are looked for in ``directory`` alone where it is given, otherwise in the folder that the environment
        variable CVXSNN_DATA names and then in the cache (``~/.cache/cvxsnn``, or under XDG_CACHE_HOME).

        Parameters
        ----------
        part : str
            A key of ``files``.
        directory : path or None
            The folder that contains the folder of the data set, tonic's ``save_to``.

        Returns
        -------
        EventRecordings
            The recordings, which are read one at a time.
        """
        file = self.files[part]
        # The constructor and all calls below read only: what is missing would be downloaded, so it is refused before.
        kind = _offline(getattr(import_library("tonic.datasets", "events"), self.name))
        path = self._find(file, directory)
        with _readable(path, file):
            dataset = kind(str(path.parent.parent), **file.arguments)
            if hasattr(dataset, "data") and dataset.data:  # files in the order of the system become sorted ones
                order = sorted(range(len(dataset.data)), key=dataset.data.__getitem__)
                dataset.data = [dataset.data[index] for index in order]
                dataset.targets = [dataset.targets[index] for index in order]
            n_found, groups = len(dataset), None if self.groups is None else self.groups(dataset, path)
        if n_found == 0 or file.n_recordings not in (None, n_found):
            wanted = "recordings" if file.n_recordings is None else f"{file.n_recordings:,} recordings"
            raise DataFileError(f"expected {wanted} in {path}, found {n_found:,}: unpack {file.archive} once more")
        return EventRecordings(self, file, path, dataset, groups)

    def _find(self, file: EventFile, directory: Folder | None) -> Path:
        folders = data_folders(directory)
        for folder in folders:
            path = folder / self.name / file.name
            if path.exists():
                return path
        places = " or ".join(str(folder / self.name) for folder in folders)
        hint = f" and set {VARIABLE} to the folder that contains {self.name}" if directory is None else ""
        raise DataFileError(
            f"expected {file.name} in {places}, found none: download {file.archive}, unpack it there{hint}"
        )


@dataclass(frozen=True, eq=False)
class EventRecordings:
    """The recordings of one part of a data set.

    Parameters
    ----------
    data : EventData
        The data set.
    file : EventFile
        The part.
    path : Path
        Where it is.
    dataset : object
        What tonic makes of it.
    groups : array of shape (n_recordings,) or None
        Who is recorded.
    """

    data: EventData
    file: EventFile
    path: Path
    dataset: Any
    groups: IntArray | None

    def __len__(self) -> int:
        """Return the number of recordings."""
        return len(self.dataset)

    def read(self, index: int, merge: int) -> tuple[npt.NDArray[Any], IntArray, int]:
        """Read one recording.

        Parameters
        ----------
        index : int
            Its number.
        merge : int
            The number of neighbours that become one channel, along each axis of the sensor.

        Returns
        -------
        times : array of shape (n_events,)
            When the events happened, in microseconds.
        channels : array of shape (n_events,), dtype int64
            Where they happened.
        label : int
            The class.
        """
        with _readable(self.path, self.file):
            events, label = self.dataset[index]
            times = events["t"]
            if self.data.starts_late and len(times):
                times = times - times.min()
            places = tuple(events[name].astype(np.int64) for name in self.data.coordinates)
            # A place outside of the sensor is an error here; it would be another channel otherwise.
            np.ravel_multi_index(places, self.data.sensor)
            scaled = tuple(
                place // merge if name in self.data.merged else place
                for name, place in zip(self.data.coordinates, places, strict=True)
            )
            channels = np.asarray(np.ravel_multi_index(scaled, self.data._shape(merge)), dtype=np.int64)
            return times, channels, int(label)


@contextmanager
def _readable(path: Path, file: EventFile) -> Iterator[None]:
    """Turn errors of other libraries on bad files into one sentence."""
    try:
        yield
    except CvxsnnError:
        raise
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise DataFileError(
            f"expected {path} as {file.archive} contains it, got {first_line(error)!r}: unpack it once more"
        ) from error


def _offline(kind: type) -> type:
    """Return a data set of tonic that takes files as they are, whether their archive is kept or not."""
    # tonic names the folder after the class.
    return type(kind.__name__, (kind,), {"_check_exists": lambda _: True, "download": None})


def _speakers(_: Any, path: Path) -> IntArray:
    with import_library("h5py", "events").File(path, "r") as file:
        return np.asarray(file["extra/speaker"][()], dtype=np.int64)


def _users(dataset: Any, _: Path) -> IntArray:
    """Return the users, whose folders are called user01_fluorescent and so on."""
    return np.array([int(Path(path).parent.name.partition("_")[0].removeprefix("user")) for path in dataset.data])


_HEIDELBERG = "https://zenkelab.org/datasets/"
_MENDELEY = "https://data.mendeley.com/datasets/468j46mzdv"
_FIGSHARE = "https://figshare.com/ndownloader/files/"

EVENT_DATA = {
    "shd": EventData(
        "SHD",
        {
            "train": EventFile("shd_train.h5", f"{_HEIDELBERG}shd_train.h5.zip", {"train": True}),
            "test": EventFile("shd_test.h5", f"{_HEIDELBERG}shd_test.h5.zip", {"train": False}),
        },
        sensor=(700,),
        coordinates=("x",),
        merged=("x",),
        n_classes=20,
        groups=_speakers,
    ),
    "ssc": EventData(
        "SSC",
        {
            "train": EventFile("ssc_train.h5", f"{_HEIDELBERG}ssc_train.h5.zip", {"split": "train"}),
            "val": EventFile("ssc_valid.h5", f"{_HEIDELBERG}ssc_valid.h5.zip", {"split": "valid"}),
            "test": EventFile("ssc_test.h5", f"{_HEIDELBERG}ssc_test.h5.zip", {"split": "test"}),
        },
        sensor=(700,),
        coordinates=("x",),
        merged=("x",),
        n_classes=35,
    ),
    "n_mnist": EventData(
        "NMNIST",
        {
            "train": EventFile("Train", f"train.zip of {_MENDELEY}", {"train": True}, 60_000),
            "test": EventFile("Test", f"test.zip of {_MENDELEY}", {"train": False}, 10_000),
        },
        sensor=(2, 34, 34),
        coordinates=("p", "y", "x"),
        merged=("y", "x"),
        n_classes=10,
    ),
    "dvs_gesture": EventData(
        "DVSGesture",
        {
            "train": EventFile("ibmGestureTrain", f"{_FIGSHARE}38022171", {"train": True}, 1_077),
            "test": EventFile("ibmGestureTest", f"{_FIGSHARE}38020584", {"train": False}, 264),
        },
        sensor=(2, 128, 128),
        coordinates=("p", "y", "x"),
        merged=("y", "x"),
        n_classes=11,
        groups=_users,
        starts_late=True,
    ),
}
"""The data sets by the names of their tasks."""
