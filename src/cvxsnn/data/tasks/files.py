"""Data files that somebody else publishes: found on this machine or downloaded, and always checked."""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

from ...core.errors import DataFileError

VARIABLE = "CVXSNN_DATA"

_TIMEOUT_S = 10.0

Folder = str | os.PathLike[str]
Content = TypeVar("Content")


@dataclass(frozen=True)
class PublishedFile:
    """Where a file comes from, and what it may be called here.

    Parameters
    ----------
    names : pair of str
        That it may have on this machine; a download is kept under the second.
    url : str
    subfolder : str
        Of a folder with data, where the file may be too.
    collection : str
        What to get where nothing can be downloaded, as in "the four MNIST files".
    """

    names: tuple[str, str]
    url: str
    subfolder: str
    collection: str

    def read(
        self,
        directory: Folder | None,
        unpack: Callable[[bytes, str, str], Content],
    ) -> Content:
        """The content of the file.

        It is looked for in ``directory`` alone where it is given, otherwise in the folder that the environment variable
        CVXSNN_DATA names and then in the cache (``~/.cache/cvxsnn``, or under XDG_CACHE_HOME). What is in neither is
        downloaded to the cache.

        Parameters
        ----------
        directory : path, optional
        unpack : function
            Called with the bytes, where they are from and what to do if they are not the original; gives the content,
            or raises :class:`cvxsnn.DataFileError`.
        """
        for path in self._places(directory):
            if path.is_file():
                return unpack(_read_bytes(path), str(path), f"delete it and put {self.url} in its place")
        if directory is not None:
            raise DataFileError(
                f"expected {' or '.join(self.names)} in {directory}, found neither: download {self.url} into it, "
                f"or leave directory out to search the folder that {VARIABLE} names and then the network"
            )
        return self._download(unpack)

    def _places(self, directory: Folder | None) -> Iterator[Path]:
        variable = os.environ.get(VARIABLE)
        if directory is not None:
            folders = [Path(directory)]
        elif variable:
            folders = [Path(variable), _cache()]
        else:
            folders = [_cache()]
        for folder in folders:
            for place in (folder, folder / self.subfolder):
                yield from (place / name for name in self.names)

    def _download(self, unpack: Callable[[bytes, str, str], Content]) -> Content:
        path = _cache() / self.subfolder / self.names[1]
        remedy = f"get {self.collection} elsewhere and set {VARIABLE} to their folder"
        try:
            with urlopen(self.url, timeout=_TIMEOUT_S) as response:
                packed: bytes = response.read()
        except (OSError, HTTPException) as error:
            raise DataFileError(
                f"expected {path.name} on this machine or at {self.url}, found no such file and could not download it "
                f"({error}): {remedy}"
            ) from error
        # Checked before it is kept, so that a bad answer never settles in the cache.
        content = unpack(packed, self.url, remedy)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
                complete = Path(scratch) / path.name
                complete.write_bytes(packed)
                os.replace(complete, path)
        except OSError as error:
            raise DataFileError(
                f"expected to keep the download as {path}, got {error}: set XDG_CACHE_HOME to a folder that can be "
                "written"
            ) from error
        return content


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "cvxsnn"


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataFileError(f"expected to read {path}, got {error}: make it readable") from error
