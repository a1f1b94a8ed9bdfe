"""Published data files: found on this machine or downloaded, and always checked."""

import gzip
import hashlib
import io
import os
import re
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import DataFileError, first_line

VARIABLE = "CVXSNN_DATA"
MOST_BYTES = 2**27
"""Limit of unpacked bytes, five times the size of the largest data set."""

Folder = str | os.PathLike[str]


@dataclass(frozen=True)
class PublishedFile:
    """A file with its origin and its checksum.

    Parameters
    ----------
    names : pair of str
        Names that it may have on this machine; a download is kept under the second.
    url : str
        Where it is published.
    subfolder : str
        Subfolder of a data folder that is searched, too; downloads are kept in that of the cache.
    collection : str
        Name of the data in advice to get them elsewhere, such as "the four MNIST files".
    md5 : str
        The checksum of the unpacked content.
    unpack : function, optional
        Returns the content of the file, given its bytes and its origin.
    as_bytes : function, optional
        Returns the part of the content that is checked.
    """

    names: tuple[str, str]
    url: str
    subfolder: str
    collection: str
    md5: str
    unpack: Callable[[bytes, str], Any] = lambda content, origin: content
    as_bytes: Callable[[Any], bytes] = lambda content: content

    def read(self, directory: Folder | None) -> Any:
        """Return the content of the file.

        Only ``directory`` is searched if it is given; otherwise the folder that the environment variable CVXSNN_DATA
        names, and then the cache (``~/.cache/cvxsnn``, or under XDG_CACHE_HOME). A file in neither is downloaded to the
        cache.

        Parameters
        ----------
        directory : path or None
            The folder to search.

        Returns
        -------
        object
            The unpacked content.
        """
        folders = [path for folder in data_folders(directory) for path in (folder, folder / self.subfolder)]
        candidates = (folder / name for folder in folders for name in self.names)
        path = next(filter(Path.is_file, candidates), None)
        if path is None and directory is not None:
            raise DataFileError(
                f"expected {' or '.join(self.names)} in {directory}, found neither: download {self.url} into it, "
                f"or leave directory out to search the folder that {VARIABLE} names and then the network"
            )
        path = path or self._download()
        try:
            packed = path.read_bytes()
        except OSError as error:
            raise DataFileError(f"expected to read {path}, got {error}: make it readable") from error
        return self._checked(packed, str(path), f"delete it and put {self.url} in its place")

    def _checked(self, packed: bytes, origin: str, remedy: str) -> Any:
        """Return the unpacked content, and refuse anything but the original."""
        try:
            content = self.unpack(packed, origin)
        except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, zlib.error) as error:
            raise DataFileError(f"expected {origin} to be complete, got {first_line(error)}: {remedy}") from error
        md5 = hashlib.md5(self.as_bytes(content), usedforsecurity=False).hexdigest()
        if md5 != self.md5:
            raise DataFileError(
                f"expected {origin} to hold the original of {self.collection} with MD5 {self.md5}, got other content "
                f"with MD5 {md5}: {remedy}"
            )
        return content

    def _download(self) -> Path:
        """Download the file to the cache, if it passes the check, and return its path."""
        import pooch  # type: ignore[import-untyped]  # slow to import, and needed for downloads alone

        folder, name = _cache() / self.subfolder, self.names[1]
        fetcher = pooch.Pooch(folder, "", {name: None}, {name: self.url}, retry_if_failed=2)
        download = pooch.HTTPDownloader(timeout=10.0)
        remedy = f"get {self.collection} elsewhere and set {VARIABLE} to their folder"

        def download_and_check(url: str, output: str, _: Any) -> None:
            download(url, output, None)
            # Checked before it is kept, so that a bad answer never stays in the cache. No checksum of the download
            # itself is compared: the same contents may be packed in several ways.
            self._checked(Path(output).read_bytes(), self.url, remedy)

        logger = pooch.get_logger()
        level = logger.level
        logger.setLevel("WARNING")  # a library does not print
        try:
            return Path(fetcher.fetch(name, downloader=download_and_check))
        except DataFileError:  # which is an OSError, too
            raise
        except OSError as error:  # also errors of requests
            raise DataFileError(
                f"expected {name} on this machine or at {self.url}, found no such file and could not download it "
                f"({error}): {remedy}, or XDG_CACHE_HOME to a folder that can be written"
            ) from error
        finally:
            logger.setLevel(level)


def data_folders(directory: Folder | None) -> list[Path]:
    """Return the folders to search: the one given, or that of the environment variable and the cache."""
    if directory is not None:
        return [Path(directory)]
    variable = os.environ.get(VARIABLE)
    return [Path(variable), _cache()] if variable else [_cache()]


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "cvxsnn"


def _gunzip(packed: bytes, origin: str) -> bytes:
    if not origin.endswith(".gz"):
        return packed
    with gzip.open(io.BytesIO(packed)) as file:
        return file.read(MOST_BYTES)  # a small file may unpack to any size; the checksum refuses what was cut off


def _unzip_recordings(packed: bytes, _: str) -> dict[str, bytes]:
    """Return the recordings in a zip file by name."""
    pattern = re.compile(r"(?:.*/)?recordings/(\d_[a-z]+_\d+\.wav)")
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        members = {match[1]: member for member in archive.infolist() if (match := pattern.fullmatch(member.filename))}
        n_bytes = sum(member.file_size for member in members.values())
        if n_bytes > MOST_BYTES:
            raise OSError(f"recordings of {n_bytes:,} bytes, more than {MOST_BYTES:,}")
        return {name: archive.read(member) for name, member in members.items()}


def _digests(files: dict[str, bytes]) -> bytes:
    # With their names, which contain the labels.
    return b"".join(hashlib.md5(name.encode() + files[name], usedforsecurity=False).digest() for name in sorted(files))


def _mnist(name: str, md5: str) -> PublishedFile:
    url = f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz"
    return PublishedFile((name, f"{name}.gz"), url, "mnist", "the four MNIST files", md5, _gunzip)


def _qtdb(name: str, folder: str, md5: str) -> PublishedFile:
    url = f"https://raw.githubusercontent.com/byin-cwi/Efficient-spiking-networks/{folder}/{name}"
    return PublishedFile((name, name), url, "qtdb", "the two QTDB files", md5)


FILES = {
    "mnist train images": _mnist("train-images-idx3-ubyte", "6bbc9ace898e44ae57da46a324031adb"),
    "mnist train labels": _mnist("train-labels-idx1-ubyte", "a25bea736e30d166cdddb491f175f624"),
    "mnist t10k images": _mnist("t10k-images-idx3-ubyte", "2646ac647ad5339dbf082846283269ea"),
    "mnist t10k labels": _mnist("t10k-labels-idx1-ubyte", "27ae3e4e09519cfbb04c329615203637"),
    "qtdb train": _qtdb(
        "QTDB_train.mat", "1331f6c052e73d48eb71a1dc62239948e874ecb2/data", "39790ebc28587c94a2245fae7475e6f2"
    ),
    "qtdb test": _qtdb(
        "QTDB_test.mat", "25a29e8d1ebfef6df6a7689d76000f702a21e8d7/NMI_vis/ecg", "4deb6d02f9dae171ad99f2b372926cc0"
    ),
    # GitHub packs an archive anew when it is asked for one, so the bytes of the zip file may differ from day to day,
    # and the branch may gain recordings. The recordings themselves are checked, however they are packed.
    "spoken digits": PublishedFile(
        ("free-spoken-digit-dataset-master.zip", "free-spoken-digit-dataset.zip"),
        "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/heads/master.zip",
        "spoken_digits",
        "free-spoken-digit-dataset.zip with its 3,000 recordings",
        "42a86519d165ca32775e88ced2b02641",
        _unzip_recordings,
        _digests,
    ),
}
"""The files by the data that they contain."""
