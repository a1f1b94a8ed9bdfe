"""Damaged and manipulated NumPy archives: they are read whole, or refused in one sentence."""

import io
import zipfile
from pathlib import Path

import numpy as np

from cvxsnn.core.errors import CvxsnnError
from cvxsnn.data.npz import read_data

from .harness import Finding, Hunt

_HEADERS = (
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 3)}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (3,)}",
    "{'descr': [('a', '<f8')], 'fortran_order': True, 'shape': (3,)}",
    "{'descr': '<f8', 'shape': __import__('os').mkdir('ran')}",
    "{" * 500,
)


def case(rng: np.random.Generator, folder: Path) -> str:
    """Read one archive."""
    path = folder / "data.npz"
    np.savez(path, X=rng.normal(size=(4, 3, 2)), y=np.arange(4) % 2, lengths=np.array([3, 2, 1, 3]))
    content = bytearray(path.read_bytes())
    n_written = 4
    match rng.integers(4):
        case 0:
            for _ in range(rng.integers(1, 6)):
                content[rng.integers(len(content))] = rng.integers(256)
        case 1:
            del content[rng.integers(len(content)) :]
        case 2:
            start = rng.integers(len(content))
            content[start:start] = rng.bytes(int(rng.integers(1, 40)))
        case _:
            n_written = 3
            content = bytearray(_with_header(str(rng.choice(_HEADERS))))
    path.write_bytes(content)
    try:
        inputs, targets, _ = read_data(path, needs_targets=True)
    except CvxsnnError as error:
        if "\n" in str(error):
            raise Finding(f"expected one sentence, got {str(error)!r}") from error
        return "refused"
    if len(inputs) != n_written or len(targets) != n_written:
        raise Finding(f"read {len(inputs)} sequences and {len(targets)} targets where {n_written} were written")
    return "read"


def _with_header(header: str) -> bytes:
    """Return an archive whose array X has a header of one's own."""
    text = header.encode() + b"\n"
    array = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("X.npy", array)
        archive.writestr("y.npy", array)
    return stream.getvalue()


HUNT = Hunt("npz_files", "Damaged and manipulated NumPy archives.", case, cases=10_000, short=200, seconds=5.0)
