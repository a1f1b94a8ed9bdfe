"""Data on disk for the command line: NumPy archives with sequences, labels and the like."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.errors import CvxsnnError, DataFileError, InvalidInputError, first_line
from ..core.memory import check_fits
from .sequences import check_lengths

_NAMES = {"X": ("X", "inputs"), "y": ("y", "targets", "labels"), "lengths": ("lengths",), "weight": ("sample_weight",)}


def read_data(path: Path, *, needs_targets: bool) -> tuple[Any, Any, Any]:
    """Return inputs, targets and sample weights of a ``.npz`` file; the latter two may be None.

    Sequences of unequal length are an array ``X`` padded at the end and an array ``lengths``.
    """
    try:
        # NumPy does not close what it opened when an archive is damaged.
        with open(path, "rb") as file:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise DataFileError(f"expected an archive with arrays X and y in {path}, got a single array")
            needed = sum(member.file_size for member in archive.zip.infolist())
            check_fits(needed, "cpu", f"what is packed in {path}", "divide it")
            members = {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise DataFileError(f"expected a data file at {path}, found nothing") from None
    except CvxsnnError:
        raise
    except Exception as error:  # NumPy, zipfile and zlib raise errors of many kinds on damaged or manipulated files
        raise DataFileError(
            f"expected a NumPy archive (np.savez) of numbers or strings, but {path} is something else: "
            f"{first_line(error)}"
        ) from None
    arrays = {name: value for name, value in members.items() if isinstance(value, np.ndarray)}
    roles = {key: next((arrays[name] for name in names if name in arrays), None) for key, names in _NAMES.items()}
    if roles["X"] is None or (needs_targets and roles["y"] is None):
        wanted = "X and y" if needs_targets else "X"
        raise DataFileError(f"expected arrays {wanted} in {path}, got {sorted(arrays)}: save them with np.savez")
    inputs: Any = roles["X"]
    _check_array("X", inputs, "biuf", "numbers (bool, int or float)", "convert it before np.savez")
    if roles["y"] is not None:
        _check_array("y", roles["y"], "biufU", "numbers or text", "save text as y.astype(str)")
    if roles["weight"] is not None:
        _check_array("sample_weight", roles["weight"], "biuf", "numbers", "convert it before np.savez")
    if roles["lengths"] is not None:
        lengths = check_lengths(roles["lengths"], inputs.shape)
        inputs = [sequence[:length] for sequence, length in zip(inputs, lengths.tolist(), strict=True)]
    return inputs, roles["y"], roles["weight"]


def _check_array(name: str, array: npt.NDArray[Any], kinds: str, content: str, remedy: str) -> None:
    """Refuse an array of another kind, a single value, or an empty array."""
    if array.dtype.kind not in kinds or array.ndim == 0 or array.size == 0:
        raise InvalidInputError(
            f"expected an array {name} of {content}, one or more per sample, got {array.dtype} of shape {array.shape}: "
            f"{remedy}"
        )
