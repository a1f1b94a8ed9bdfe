"""The four original files of MNIST: found on this machine or downloaded, and always checked."""

import gzip
import hashlib
import io
import zlib
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from ...core.errors import DataFileError
from .files import Folder, PublishedFile

N_PIXELS = 28 * 28
N_IMAGES = {"train": 60_000, "t10k": 10_000}

_SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_MOST_BYTES = 2**26
"""Bytes that are unpacked at most: more than the largest file has."""

_MD5_UNPACKED = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


def read_mnist(
    part: Literal["train", "t10k"], directory: Folder | None = None
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Read the images and labels of one part of MNIST.

    Files may be gzipped or not. They are looked for in ``directory`` alone where it is given, otherwise in the folder
    that the environment variable CVXSNN_DATA names and then in the cache (``~/.cache/cvxsnn``, or under
    XDG_CACHE_HOME); in each, a subfolder ``mnist`` counts too. What is in neither is downloaded to the cache.

    Parameters
    ----------
    part : {"train", "t10k"}
        Training or test images.
    directory : path, optional
        The folder of the files.

    Returns
    -------
    images : array of shape (n_images, 784), dtype uint8, read-only
        Grey levels in raster order.
    labels : array of shape (n_images,), dtype uint8, read-only
        Digits from 0 to 9.
    """
    images = _read(f"{part}-images-idx3-ubyte", directory)
    labels = _read(f"{part}-labels-idx1-ubyte", directory)
    # The sums vouch for the headers, so they are skipped: 16 bytes before the images, 8 before the labels.
    return (
        np.frombuffer(images, dtype=np.uint8, offset=16).reshape(-1, N_PIXELS),
        np.frombuffer(labels, dtype=np.uint8, offset=8),
    )


def _read(name: str, directory: Folder | None) -> bytes:
    """Return the unpacked content of the file called ``name``."""
    file = PublishedFile((name, f"{name}.gz"), f"{_SOURCE}{name}.gz", "mnist", "the four MNIST files")
    return file.read(directory, partial(_unpack, name))


def _unpack(name: str, content: bytes, origin: str, remedy: str) -> bytes:
    """Unpack ``content`` where its ``origin`` ends in .gz, and refuse anything but the original file."""
    if origin.endswith(".gz"):
        try:
            with gzip.open(io.BytesIO(content)) as file:
                content = file.read(_MOST_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            raise DataFileError(f"expected {origin} to be a complete gzip file, got {error}: {remedy}") from error
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 != _MD5_UNPACKED[name]:
        raise DataFileError(
            f"expected {origin} to hold the original {name} with MD5 {_MD5_UNPACKED[name]}, "
            f"got {len(content)} bytes with MD5 {md5}: {remedy}"
        )
    return content
