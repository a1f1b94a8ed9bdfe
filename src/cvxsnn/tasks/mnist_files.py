"""The four original files of MNIST: found on this machine or downloaded, and always checked."""

import gzip
import hashlib
import os
import tempfile
import zlib
from http.client import HTTPException
from pathlib import Path
from typing import Literal
from urllib.request import urlopen

import numpy as np
import numpy.typing as npt

from ..errors import DataFileError

N_PIXELS = 28 * 28
N_IMAGES = {"train": 60_000, "t10k": 10_000}

_SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_TIMEOUT_S = 10.0
_VARIABLE = "CVXSNN_DATA"
_MD5_UNPACKED = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


def read_mnist(
    part: Literal["train", "t10k"], directory: str | os.PathLike[str] | None = None
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Read the images and labels of one part of MNIST.

    Files may be gzipped or not. They are looked for in ``directory`` alone where it is given, otherwise in the folder
    that the environment variable CVXSNN_DATA names and then in the cache (``~/.cache/cvxsnn``, or under
    XDG_CACHE_HOME); in each, a subfolder ``mnist`` counts too. What is in neither is downloaded to the cache.

    Parameters
    ----------
    part : {"train", "t10k"}
    directory : path, optional

    Returns
    -------
    images : array of shape (n_images, 784), dtype uint8, read-only
        Grey levels in raster order.
    labels : array of shape (n_images,), dtype uint8, read-only
    """
    images = _read(f"{part}-images-idx3-ubyte", directory)
    labels = _read(f"{part}-labels-idx1-ubyte", directory)
    # The sums vouch for the headers, so they are skipped: 16 bytes before the images, 8 before the labels.
    return (
        np.frombuffer(images, dtype=np.uint8, offset=16).reshape(-1, N_PIXELS),
        np.frombuffer(labels, dtype=np.uint8, offset=8),
    )


def _read(name: str, directory: str | os.PathLike[str] | None) -> bytes:
    """The unpacked content of the file called ``name``."""
    variable = os.environ.get(_VARIABLE)
    if directory is not None:
        folders = [Path(directory)]
    elif variable:
        folders = [Path(variable), _cache()]
    else:
        folders = [_cache()]
    for folder in folders:
        for path in (place / f"{name}{suffix}" for place in (folder, folder / "mnist") for suffix in ("", ".gz")):
            if path.is_file():
                return _read_file(name, path)
    if directory is not None:
        raise DataFileError(
            f"expected {name} or {name}.gz in {directory}, found neither: download {_SOURCE}{name}.gz into it, "
            f"or leave directory out to search the folder that {_VARIABLE} names and then the network"
        )
    return _download(name, _cache() / "mnist" / f"{name}.gz")


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "cvxsnn"


def _read_file(name: str, path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataFileError(f"expected to read {path}, got {error}: make it readable") from error
    remedy = f"delete it and put {_SOURCE}{name}.gz in its place"
    return _unpack(name, content, str(path), remedy)


def _download(name: str, path: Path) -> bytes:
    url = f"{_SOURCE}{name}.gz"
    remedy = f"get the four MNIST files elsewhere and set {_VARIABLE} to their folder"
    try:
        with urlopen(url, timeout=_TIMEOUT_S) as response:
            packed: bytes = response.read()
    except (OSError, HTTPException) as error:
        raise DataFileError(
            f"expected {path.name} on this machine or at {url}, found no such file and could not download it "
            f"({error}): {remedy}"
        ) from error
    # Checked before it is kept, so that a bad answer never settles in the cache.
    content = _unpack(name, packed, url, remedy)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            complete = Path(scratch) / path.name
            complete.write_bytes(packed)
            os.replace(complete, path)
    except OSError as error:
        raise DataFileError(
            f"expected to keep the download as {path}, got {error}: set XDG_CACHE_HOME to a folder that can be written"
        ) from error
    return content


def _unpack(name: str, content: bytes, origin: str, remedy: str) -> bytes:
    """Unpack ``content`` where its ``origin`` ends in .gz, and refuse anything but the original file."""
    if origin.endswith(".gz"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DataFileError(f"expected {origin} to be a complete gzip file, got {error}: {remedy}") from error
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 != _MD5_UNPACKED[name]:
        raise DataFileError(
            f"expected {origin} to hold the original {name} with MD5 {_MD5_UNPACKED[name]}, "
            f"got {len(content)} bytes with MD5 {md5}: {remedy}"
        )
    return content
