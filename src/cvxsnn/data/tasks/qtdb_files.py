"""The two published files of ECG-QTDB: found on this machine or downloaded, and always checked."""

import hashlib
import io
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.io import loadmat

from ...core.errors import DataFileError
from .files import Folder, PublishedFile

N_CLASSES = 6

_SOURCE = "https://raw.githubusercontent.com/byin-cwi/Efficient-spiking-networks/"
_PLACES = {
    "train": "1331f6c052e73d48eb71a1dc62239948e874ecb2/data/QTDB_train.mat",
    "test": "25a29e8d1ebfef6df6a7689d76000f702a21e8d7/NMI_vis/ecg/QTDB_test.mat",
}
_MD5 = {"train": "39790ebc28587c94a2245fae7475e6f2", "test": "4deb6d02f9dae171ad99f2b372926cc0"}


def read_qtdb(
    part: Literal["train", "test"], directory: Folder | None = None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Read the recordings of one part of ECG-QTDB.

    Files are looked for in ``directory`` alone where it is given, otherwise in the folder that the environment variable
    CVXSNN_DATA names and then in the cache (``~/.cache/cvxsnn``, or under XDG_CACHE_HOME); in each, a subfolder
    ``qtdb`` counts too. What is in neither is downloaded to the cache.

    Parameters
    ----------
    part : {"train", "test"}
        Training or test recordings.
    directory : path, optional
        The folder of the files.

    Returns
    -------
    inputs : array of shape (n_samples, 1301, 4), dtype float32
        Level crossings of two leads: -1, 0 or 1.
    labels : array of shape (n_samples, 1301), dtype int64
        The wave that each step belongs to, from 0 to 5; 0 where there is no label.
    is_labelled : array of shape (n_samples, 1301), dtype bool
        Which steps have a label.
    """
    name = f"QTDB_{part}.mat"
    file = PublishedFile((name, name), _SOURCE + _PLACES[part], "qtdb", "the two QTDB files")
    content = file.read(directory, partial(_unpack, part))
    one_hot = content["y"]
    return content["x"].astype(np.float32), np.asarray(one_hot.argmax(2), dtype=np.int64), one_hot.sum(2) > 0


def _unpack(part: str, content: bytes, origin: str, remedy: str) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a file, and refuse anything but the original."""
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 != _MD5[part]:
        raise DataFileError(
            f"expected {origin} to be the original QTDB_{part}.mat with MD5 {_MD5[part]}, got {len(content)} bytes "
            f"with MD5 {md5}: {remedy}"
        )
    arrays: dict[str, npt.NDArray[Any]] = loadmat(io.BytesIO(content), variable_names=("x", "y"))
    return arrays
