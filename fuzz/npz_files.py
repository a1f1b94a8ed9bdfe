"""Damaged and manipulated NumPy archives: they are read whole, or refused in one sentence."""

import io
import warnings
import zipfile
from functools import cache
from pathlib import Path
from unittest import mock

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

_MEMBERS = (
    "../x",
    "../../x.npy",
    "/cvxsnn-fuzz",
    "a/../../x.npy",
    "..\\x.npy",
    "X.npy",
    "y.npy",
    "lengths",
    "C:\\x",
    "n.npz",
)

_MEMORY = 2**26
"""Bytes that are said to be available: more is refused."""


def case(rng: np.random.Generator, folder: Path) -> str:
    """Read one archive."""
    path = folder / "data.npz"
    np.savez(path, X=rng.normal(size=(4, 3, 2)), y=np.arange(4) % 2, lengths=np.array([3, 2, 1, 3]))
    content = bytearray(path.read_bytes())
    n_written = 4
    match rng.integers(6):
        case 0:
            for _ in range(rng.integers(1, 6)):
                content[rng.integers(len(content))] = rng.integers(256)
        case 1:
            del content[rng.integers(len(content)) :]
        case 2:
            start = rng.integers(len(content))
            content[start:start] = rng.bytes(int(rng.integers(1, 40)))
        case 3:
            content = bytearray(_with_members(rng, bytes(content)))
        case 4:
            n_written = 3
            content = bytearray(_bomb(rng))
        case _:
            n_written = 3
            content = bytearray(_with_header(str(rng.choice(_HEADERS))))
    places = (folder.parent / "x", folder.parent / "x.npy", folder.parents[1] / "x.npy", Path("/cvxsnn-fuzz"))
    free = [place for place in places if not place.exists()]  # others may have files of these names
    path.write_bytes(content)
    (folder / "data.xlsx").write_bytes(content)
    try:
        with mock.patch("cvxsnn.core.memory.available_bytes", return_value=_MEMORY):
            inputs, targets, _ = read_data(path if rng.integers(4) else folder / "data.xlsx", needs_targets=True)
    except CvxsnnError as error:
        if "\n" in str(error):
            raise Finding(f"expected one sentence, got {str(error)!r}") from error
        return "refused"
    finally:
        if {own.name for own in folder.iterdir()} != {"data.npz", "data.xlsx"} or any(map(Path.exists, free)):
            raise Finding(f"expected nothing to be unpacked, found files in {folder}, above it or in /")
    if len(inputs) != n_written or len(targets) != n_written:
        raise Finding(f"read {len(inputs)} sequences and {len(targets)} targets where {n_written} were written")
    return "read"


def _with_members(rng: np.random.Generator, content: bytes) -> bytes:
    """Return an archive with members beside its arrays that lead elsewhere, are links, archives, or there twice."""
    stream = io.BytesIO(content)
    with zipfile.ZipFile(stream, "a") as archive:
        for _ in range(rng.integers(1, 4)):
            member = zipfile.ZipInfo(str(rng.choice(_MEMBERS)))
            if rng.integers(2):
                member.external_attr = 0o120777 << 16  # a symbolic link, whose content is where it leads
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of names that are there already
                archive.writestr(member, content if rng.integers(2) else b"../x")
    return stream.getvalue()


def _bomb(rng: np.random.Generator) -> bytes:
    """Return a small archive of arrays that are large, and may be said to be of another size."""
    content = bytearray(_packed_zeros(int(rng.choice([2**26, 2**34]))))
    if rng.integers(2):
        start = content.find(b"PK\x01\x02")  # the list at the end
        content[start + 20 : start + 28] = rng.bytes(8)
    return bytes(content)


@cache
def _packed_zeros(n_bytes: int) -> bytes:
    """Return an archive of 64 MB of zeros in each array, of which the headers may state more."""
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({n_bytes},)}}\n".encode()
    array = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(2**26)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ("X.npy", "y.npy"):
            archive.writestr(name, array)
    return stream.getvalue()


def _with_header(header: str) -> bytes:
    """Return an archive whose array X has a header of one's own."""
    text = header.encode() + b"\n"
    array = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("X.npy", array)
        archive.writestr("y.npy", array)
    return stream.getvalue()


HUNT = Hunt(
    "npz_files",
    "Damaged and manipulated NumPy archives, zip bombs, and members that lead elsewhere.",
    case,
    cases=10_000,
    short=200,
    seconds=20.0,
)
