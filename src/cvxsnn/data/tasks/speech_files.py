"""The Free Spoken Digit Dataset: found on this machine or downloaded, and always checked; and other wav files."""

import hashlib
import io
import re
import struct
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy.typing as npt
from scipy.io import wavfile

from ...core.errors import DataFileError, first_line
from .files import Folder, PublishedFile

SAMPLE_RATE = 8000
SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")

# GitHub packs an archive anew when it is asked for one, so the bytes of the zip file may differ from day to day, and
# the branch may gain recordings. What is checked is therefore the recordings themselves, however they are packed.
_FILE = PublishedFile(
    names=("free-spoken-digit-dataset-master.zip", "free-spoken-digit-dataset.zip"),
    url="https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/heads/master.zip",
    subfolder="spoken_digits",
    collection="free-spoken-digit-dataset.zip with its 3,000 recordings",
)
_MOST_BYTES = 2**27
"""Bytes that are unpacked at most: five times as many as the recordings have."""

_MD5_RECORDINGS = "42a86519d165ca32775e88ced2b02641"
_RECORDING = re.compile(r"(?:.*/)?recordings/(\d_[a-z]+_\d+\.wav)")


@dataclass(frozen=True, eq=False)
class Recording:
    """One spoken digit.

    Attributes
    ----------
    digit : int
    speaker : str
    take : int
    waveform : array of shape (n_points,), at ``SAMPLE_RATE`` points per second
    """

    digit: int
    speaker: str
    take: int
    waveform: npt.NDArray[Any]


def read_recordings(directory: Folder | None = None) -> list[Recording]:
    """Return all recordings, ordered by digit, speaker and take.

    The dataset's zip file is looked for in ``directory`` alone where it is given, otherwise in the folder that the
    environment variable CVXSNN_DATA names and then in the cache (``~/.cache/cvxsnn``, or under XDG_CACHE_HOME); in
    each, a subfolder ``spoken_digits`` counts too. If it is in neither it is downloaded to the cache.
    """
    files = _FILE.read(directory, _unpack)
    recordings = []
    for name, content in files.items():
        digit, speaker, take = name.removesuffix(".wav").split("_")
        recordings.append(Recording(int(digit), speaker, int(take), read_wav(content)[0]))
    return sorted(recordings, key=lambda own: (own.digit, own.speaker, own.take))


def read_wav(file: str | PathLike[str] | bytes) -> tuple[npt.NDArray[Any], int]:
    """Read a wav file, or the bytes of one; several channels are mixed down to their mean.

    Parameters
    ----------
    file : path or bytes
        The file, or its contents.

    Returns
    -------
    waveform : array of shape (n_points,)
        Numbers as they are in the file.
    sample_rate : int
        Points per second.

    Examples
    --------
    >>> import io
    >>> import numpy as np
    >>> from scipy.io import wavfile
    >>> from cvxsnn.data.tasks import read_wav
    >>> file = io.BytesIO()
    >>> wavfile.write(file, 8000, np.zeros(800, dtype=np.int16))
    >>> waveform, sample_rate = read_wav(file.getvalue())
    >>> len(waveform), sample_rate
    (800, 8000)
    """
    origin = "bytes" if isinstance(file, bytes) else str(file)
    try:
        with warnings.catch_warnings():
            # Of chunks that are not sound, such as who recorded it.
            warnings.simplefilter("ignore", wavfile.WavFileWarning)
            sample_rate, waveform = wavfile.read(io.BytesIO(file) if isinstance(file, bytes) else file)
    except (OSError, EOFError, ValueError, struct.error) as error:
        raise DataFileError(
            f"expected {origin} to be a wav file that can be read, got {first_line(error)}: convert it to PCM wav"
        ) from error
    return (waveform if waveform.ndim == 1 else waveform.mean(1)), int(sample_rate)


def _unpack(packed: bytes, origin: str, remedy: str) -> dict[str, bytes]:
    """Return the recordings in a zip file by name, in order; refuse anything but the originals."""
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            found = {match[1]: own for own in archive.infolist() if (match := _RECORDING.fullmatch(own.filename))}
            n_bytes = sum(own.file_size for own in found.values())
            if n_bytes > _MOST_BYTES:
                raise DataFileError(
                    f"expected {origin} to hold recordings of at most {_MOST_BYTES:,} bytes, got {n_bytes:,}: {remedy}"
                )
            files = {name: archive.read(own) for name, own in found.items()}
    except DataFileError:
        raise
    except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, zlib.error) as error:
        raise DataFileError(
            f"expected {origin} to be a complete zip file, got {first_line(error)}: {remedy}"
        ) from error
    md5 = hashlib.md5(usedforsecurity=False)
    for name in sorted(files):
        md5.update(hashlib.md5(name.encode() + files[name], usedforsecurity=False).digest())
    if md5.hexdigest() != _MD5_RECORDINGS:
        raise DataFileError(
            f"expected {origin} to hold the 3000 original recordings, together with MD5 {_MD5_RECORDINGS}, "
            f"got {len(files)} with MD5 {md5.hexdigest()}: {remedy}"
        )
    return files
