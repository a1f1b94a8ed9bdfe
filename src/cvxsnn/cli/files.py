"""Files of the commands: which are read, which are written, and that nothing is destroyed by writing.

The annotation of each path of a command has a role: ``READ``, or an :class:`Output`. ``check_files`` judges all paths
before the command begins.
"""

import csv
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.errors import DataFileError, InvalidInputError
from ..core.storage import is_tensor_file

READ = "read"
"""The role of files that a command reads."""

_COLUMN = re.compile(r"y(_\d+)?|probability_.*", re.DOTALL)
"""Names of columns of predictions."""


@dataclass(frozen=True)
class Output:
    """The role of a file or folder that a command writes.

    Parameters
    ----------
    name : str
        What it is.
    endings : tuple of str
        Endings that its name may have; "" if it may have none. Empty for a folder.
    is_own : callable, optional
        ``is_own(path)`` returns whether an existing file is one of these, which may be replaced. By default the
        command reads the file and judges for itself.
    makes_folder : bool
        Whether the command makes the folder that the file is in.
    """

    name: str
    endings: tuple[str, ...] = ()
    is_own: Callable[[Path], bool] | None = None
    makes_folder: bool = False

    def check(self, path: Path) -> None:
        """Refuse a path that cannot be written, and an existing file of another kind."""
        if not self.endings:
            return
        ending = "" if path.suffix[1:].isdecimal() else path.suffix.lower()  # model-0.5 has none
        if ending not in self.endings:
            known = " or ".join(filter(None, self.endings)) + (" or has no ending" if "" in self.endings else "")
            raise InvalidInputError(
                f"expected a name that ends in {known} for {self.name}, got {path}: choose another name"
            )
        folder = Path(os.path.realpath(path)).parent
        if os.path.isdir(path) or not (self.makes_folder or folder.is_dir()):
            raise DataFileError(
                f"expected a file in an existing folder for {self.name}, got {path}: make the folder first"
            )
        if folder.is_dir() and not os.access(folder, os.W_OK):
            raise DataFileError(
                f"expected a folder in which files may be written for {self.name}, got {path}: permission denied, "
                "choose another place"
            )
        # An empty file, such as mktemp makes, holds nothing that could be lost.
        if self.is_own and os.path.isfile(path) and os.path.getsize(path) and not self.is_own(path):
            raise InvalidInputError(
                f"expected a new file or an earlier one of the same kind for {self.name}, got {path}, which holds "
                "something else: choose another name, or remove it first"
            )


def check_files(inputs: Iterable[Path], outputs: Sequence[tuple[Output, Path]]) -> None:
    """Refuse outputs that are an input, or each other, by whatever names and links, or that destroy something else.

    Parameters
    ----------
    inputs : iterable of Path
        What the command reads.
    outputs : sequence of tuple
        What it writes: roles and paths.
    """
    files = [path for path in inputs if os.path.isfile(path)]
    for number, (role, path) in enumerate(outputs):
        if any(_are_same(path, file) for file in files):
            raise InvalidInputError(
                f"expected a file of its own for {role.name}, got {path}, which the command reads: choose another name"
            )
        if any(_are_same(path, other) for _, other in outputs[:number]):
            raise InvalidInputError(f"expected different files, got {path} for {role.name} too: choose another name")
        role.check(path)


def _are_same(one: Path, other: Path) -> bool:
    """Return whether two paths lead to the same file, or would if it existed."""
    with suppress(OSError, ValueError):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)


def _is_predictions(path: Path) -> bool:
    """Return whether a table or an archive has no other columns or arrays than those that `cvxsnn predict` writes."""
    try:
        if path.suffix.lower() != ".csv":
            with zipfile.ZipFile(path) as archive:
                return {"y.npy"} <= {*archive.namelist()} <= {"y.npy", "ids.npy", "proba.npy"}
        with path.open(newline="", errors="replace") as file:
            names = next(csv.reader(file), [""])
    except (zipfile.BadZipFile, csv.Error):
        return False
    columns = names if _COLUMN.fullmatch(names[0]) else names[1:]  # after the names of the samples
    return bool(columns) and all(map(_COLUMN.fullmatch, columns))


def _is_chip(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return {"cvxsnn_version.npy", "readout_weight.npy"} <= {*archive.namelist()}
    except zipfile.BadZipFile:
        return False


def _is_page(path: Path) -> bool:
    content = path.read_bytes()
    return content[:15].lower() == b"<!doctype html>" and b"cvxsnn" in content


def _is_c(path: Path) -> bool:
    return b"ritten by cvxsnn " in path.read_bytes()[:200]


MODEL = Output("the model", (".safetensors", ""), lambda path: is_tensor_file(path, "model"))
PREDICTIONS = Output("the predictions", (".npz", ".csv"), _is_predictions)
PAGE = Output("the page", (".html", ".htm"), _is_page)
REPORT = replace(PAGE, makes_folder=True)
FIGURE = Output("the figure", (".png",), lambda path: b"Software\0cvxsnn" in path.read_bytes()[:200])
EXPORT = Output("the exported model", (".nir", ".c", ".onnx", ".npz", ""))
ARRAYS = Output("the arrays of a chip", (".npz",), _is_chip)
GRAPH = Output("the graph", (".nir", ""), lambda path: path.read_bytes()[:8] == b"\x89HDF\r\n\x1a\n")
ONNX = Output("the graph", (".onnx",), lambda path: b"cvxsnn" in path.read_bytes()[:40])
SOURCE = Output("the source", (".c",), _is_c)
HEADER = Output("the header", (".h",), _is_c)
PROOF = Output("the certificate", (".json", ""))
FOLDER = Output("the folder")
