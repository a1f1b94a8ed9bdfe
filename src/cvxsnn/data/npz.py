"""Data on disk for the command line: NumPy archives with sequences, labels and the like."""

from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import CvxsnnError, DataFileError, InvalidInputError, first_line
from ..core.memory import check_fits
from .sequences import check_lengths

_ROLES = {
    "X": (("X", "inputs"), "biuf", "numbers (bool, int or float)", "convert it before np.savez"),
    "y": (("y", "targets", "labels"), "biufU", "numbers or text", "save text as y.astype(str)"),
    "sample_weight": (("sample_weight",), "biuf", "numbers", "convert it before np.savez"),
}
"""Names that an array may have in a file, the kinds of its dtype, and words for messages."""


def read_data(path: Path, *, needs_targets: bool) -> tuple[Any, Any, Any]:
    """Return inputs, targets and sample weights of a ``.npz`` file; the latter two may be None.

    Sequences of unequal length are an array ``X`` padded at the end and an array ``lengths``.
    """
    try:
        # NumPy would leave the file of a damaged archive open.
        with open(path, "rb") as file:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise DataFileError(f"expected an archive with arrays X and y in {path}, got a single array")
            # An archive may be compressed a thousandfold, so its contents are measured before they are read.
            needed = sum(member.file_size for member in archive.zip.infolist())
            check_fits(needed, "cpu", f"the contents of {path}", "divide it")
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
    values: dict[str, Any] = {}
    for role, (names, kinds, content, remedy) in _ROLES.items():
        array = values[role] = next((arrays[name] for name in names if name in arrays), None)
        if array is None and (role == "X" or (role == "y" and needs_targets)):
            wanted = "X and y" if needs_targets else "X"
            raise DataFileError(f"expected arrays {wanted} in {path}, got {sorted(arrays)}: save them with np.savez")
        if array is not None and (array.dtype.kind not in kinds or array.ndim == 0 or array.size == 0):
            raise InvalidInputError(
                f"expected an array {role} of {content}, one or more per sample, got {array.dtype} of shape "
                f"{array.shape}: {remedy}"
            )
    if "lengths" in arrays:
        lengths = check_lengths(arrays["lengths"], values["X"].shape).tolist()
        values["X"] = [sequence[:length] for sequence, length in zip(values["X"], lengths, strict=True)]
    return values["X"], values["y"], values["sample_weight"]
