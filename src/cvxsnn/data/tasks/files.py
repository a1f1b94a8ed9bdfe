"""Data files that somebody else publishes: found on this machine or downloaded, and always checked."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ...core.errors import DataFileError

VARIABLE = "CVXSNN_DATA"

_TIMEOUT_S = 10.0
_N_RETRIES = 2

Folder = str | os.PathLike[str]
Content = TypeVar("Content")


@dataclass(frozen=True)
class PublishedFile:
    """Where a file comes from, and which names it may have on this machine.

    Parameters
    ----------
    names : pair of str
        Names that it may have on this machine; a download is kept under the second.
    url : str
        Where it is published.
    subfolder : str
        Folder, inside of one with data, where the file is looked for too and where a download is kept.
    collection : str
        What to get where nothing can be downloaded, as in "the four MNIST files".
    """

    names: tuple[str, str]
    url: str
    subfolder: str
    collection: str

    def read(self, directory: Folder | None, unpack: Callable[[bytes, str, str], Content]) -> Content:
        """Return the content of the file.

        It is looked for in ``directory`` alone where it is given, otherwise in the folder that the environment variable
        CVXSNN_DATA names and then in the cache (``~/.cache/cvxsnn``, or under XDG_CACHE_HOME). A file that is in
        neither is downloaded to the cache.

        Parameters
        ----------
        directory : path or None
            The folder to search.
        unpack : function
            Called with the bytes, their origin, and what to do if they are not the original; returns the content or
            raises :class:`~cvxsnn.core.errors.DataFileError`.

        Returns
        -------
        whatever ``unpack`` returns
        """
        for path in self._places(directory):
            if path.is_file():
                return unpack(_read_bytes(path), str(path), f"delete it and put {self.url} in its place")
        if directory is not None:
            raise DataFileError(
                f"expected {' or '.join(self.names)} in {directory}, found neither: download {self.url} into it, "
                f"or leave directory out to search the folder that {VARIABLE} names and then the network"
            )
        remedy = f"get {self.collection} elsewhere and set {VARIABLE} to their folder"
        path = self._download(lambda content: unpack(content, self.url, remedy), remedy)
        return unpack(_read_bytes(path), str(path), f"delete it and put {self.url} in its place")

    def _places(self, directory: Folder | None) -> Iterator[Path]:
        for folder in data_folders(directory):
            for place in (folder, folder / self.subfolder):
                yield from (place / name for name in self.names)

    def _download(self, check: Callable[[bytes], object], remedy: str) -> Path:
        """Download the file to the cache, if it passes a check, and return its path."""
        import pooch  # type: ignore[import-untyped]  # slow to import, and needed for downloads alone
        from requests import RequestException

        folder, name = _cache() / self.subfolder, self.names[1]
        fetcher = pooch.Pooch(folder, "", {name: None}, {name: self.url}, retry_if_failed=_N_RETRIES)
        download = pooch.HTTPDownloader(timeout=_TIMEOUT_S)

        def download_and_check(url: str, output: str, _: Any) -> None:
            download(url, output, None)
            # Checked before it is kept, so that a bad answer never settles in the cache. No checksum of the download
            # itself is compared: the same contents may be packed in several ways.
            check(Path(output).read_bytes())

        logger = pooch.get_logger()
        level = logger.level
        logger.setLevel("WARNING")  # a library does not print
        try:
            return Path(fetcher.fetch(name, downloader=download_and_check))
        except DataFileError:
            raise
        except RequestException as error:
            raise DataFileError(
                f"expected {name} on this machine or at {self.url}, found no such file and could not download it "
                f"({error}): {remedy}"
            ) from error
        except OSError as error:
            raise DataFileError(
                f"expected to keep the download as {folder / name}, got {error}: set XDG_CACHE_HOME to a folder that "
                "can be written"
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


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataFileError(f"expected to read {path}, got {error}: make it readable") from error
