"""Atomic writes: every file of the library is written here, completely or not at all.

Tensors and a JSON header go into one safetensors file, which is checked when it is read. Reading a file never runs
code: safetensors holds numbers, the header is JSON.
"""

import errno
import hashlib
import json
import mmap
import os
import re
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load as unpack_tensors
from safetensors.torch import save as pack_tensors
from torch import Tensor, contiguous_format, uint8

from . import claims
from .errors import BudgetError, DataFileError, InvalidInputError, first_line


@dataclass(frozen=True)
class Limits:
    """Limits of tensor files."""

    version: int = 1
    """Version of the files that are written. Older ones can be read, newer ones cannot."""
    header_bytes: int = 2**24
    """Limit of the header, which may take twenty times as much memory once parsed."""
    tensors: int = 2**14
    spare_bytes: int = 2**21
    """Memory that safetensors may need for anything but tensors and headers."""


LIMITS = Limits()

_PART = "cvxsnn-part"
"""Suffix of files that are being written."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file atomically: after a crash or a power failure there is either the old file or the new one.

    A link is kept, and its target is written. An existing file keeps its mode and, where permitted, its owner; a new
    one has the mode that the umask leaves. Anything but a regular file is refused. Files that killed writers left half
    written in the same folder are removed: a writer holds a lock on its file until it ends.
    """
    try:
        before = _regular_file(path)
        target = path.resolve()
        claims.remove_abandoned(target.parent, f".*.{'[0-9a-f]' * 16}.{_PART}")
        temporary = target.with_name(f".{target.name[:50]}.{secrets.token_hex(8)}.{_PART}")
        # A replacement is private until it has the owner and the mode of the old file.
        handle = claims.open_locked(temporary, 0o666 if before is None else 0o600, wait=True)
        assert handle is not None  # it has waited
        try:
            with os.fdopen(handle, "wb") as file:
                if before is not None:
                    _take_over(handle, before)
                file.write(data)
                file.flush()
                # The data must reach the disk before their name does, or a crash could leave an empty file.
                os.fsync(handle)
                if hasattr(os, "O_BINARY"):
                    file.close()  # Windows does not rename open files
                os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise DataFileError(
            f"expected to write {path}, got: {_reason(error)}; nothing was changed, choose another place"
        ) from error
    _synchronise(target.parent)


def make_folder(folder: Path, purpose: str, remedy: str = "choose another place") -> None:
    """Make a folder and its parents if they do not exist."""
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise DataFileError(f"expected a folder for {purpose} at {folder}, got: {_reason(error)}; {remedy}") from error
    for path in reversed(missing):
        _synchronise(path.parent)


def write_tensors(path: Path | str, kind: str, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write tensors and a header; the bytes depend on nothing else.

    Parameters
    ----------
    path : Path or str
    kind : str
        The kind of contents, which :func:`read_tensors` asks for.
    tensors : mapping of names to tensors
    header : mapping of values that JSON can represent
    """
    plain = {name: value.detach().cpu().clone(memory_format=contiguous_format) for name, value in tensors.items()}
    text = json.dumps(header, sort_keys=True)
    metadata = {"format": "cvxsnn", "version": str(LIMITS.version), "kind": kind, "header": text}
    metadata["checksum"] = _checksum(metadata, plain)
    check_memory(3 * sum(value.nbytes for value in plain.values()))
    packed = memoryview(pack_tensors(plain, metadata))
    start = 8 + int.from_bytes(packed[:8], "little")
    # safetensors writes metadata in random order: sorted, equal contents give equal bytes.
    entries = json.dumps(json.loads(bytes(packed[8:start])), sort_keys=True, separators=(",", ":")).encode()
    entries += b" " * (-len(entries) % 8)
    if len(entries) > LIMITS.header_bytes or len(plain) > LIMITS.tensors:
        raise InvalidInputError(
            f"expected at most {LIMITS.tensors:,} tensors and a header of {LIMITS.header_bytes:,} bytes, got "
            f"{len(plain):,} and {len(entries):,}: such a file could not be read again"
        )
    write_atomically(Path(path), b"".join((len(entries).to_bytes(8, "little"), entries, packed[start:])))


def read_tensors(path: Path | str, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the header that :func:`write_tensors` wrote; refuse a damaged file in one sentence."""
    path = Path(path)
    if not path.is_file():
        received = "a folder" if path.is_dir() else "no regular file" if path.exists() else "nothing"
        raise DataFileError(f"expected a {kind} file at {path}, found {received}")
    try:
        check_memory(3 * path.stat().st_size)
        data = path.read_bytes()
        metadata = _checked_metadata(path, kind, data)
        tensors, header = unpack_tensors(data), dict(json.loads(metadata["header"]))
    except (DataFileError, BudgetError):
        raise
    except Exception as error:  # parsing damaged contents raises errors of many types
        raise DataFileError(
            f"expected a {kind} file, but {path} is truncated or damaged, or another file ({first_line(error)}): copy "
            "or make it again"
        ) from None
    expected = metadata.pop("checksum", "")
    if expected != _checksum(metadata, tensors):
        raise DataFileError(
            f"expected the contents of {path} to match their checksum, and they do not: the file was altered or "
            "damaged, copy or make it again"
        )
    return tensors, header


def is_tensor_file(path: Path, kind: str) -> bool:
    """Return whether a file, complete or not, has the header that :func:`write_tensors` writes for a kind."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            metadata = json.loads(file.read(min(size, LIMITS.header_bytes)))["__metadata__"]
        return bool(metadata["format"] == "cvxsnn" and metadata["kind"] == kind)
    except (LookupError, RecursionError, TypeError, ValueError):
        return False


def check_memory(n_bytes: int) -> None:
    """Raise an error if memory is short, because safetensors would abort the process."""
    try:
        mmap.mmap(-1, n_bytes + LIMITS.spare_bytes).close()
    except OSError as error:
        raise BudgetError(
            f"expected {n_bytes + LIMITS.spare_bytes:,} bytes of free memory for the tensors of a file, got fewer "
            f"({error.strerror or error}): end other work or use smaller models"
        ) from None


def _regular_file(path: Path) -> os.stat_result | None:
    """Return the stat of a regular file, or None if there is nothing at the path; refuse anything else."""
    try:
        state = os.stat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(state.st_mode):
        kind = "folder" if stat.S_ISDIR(state.st_mode) else "device, a pipe or a socket and no regular file"
        raise OSError(errno.EINVAL, f"it is a {kind}")
    return state


def _take_over(handle: int, before: os.stat_result) -> None:
    """Give a file the owner, where permitted, and the mode of the one that it will replace."""
    if not hasattr(os, "fchmod"):
        return
    now = os.fstat(handle)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        with suppress(OSError):
            os.fchown(handle, before.st_uid, before.st_gid)
    # Last: a change of owner may clear bits of the mode.
    os.fchmod(handle, stat.S_IMODE(before.st_mode))


def _synchronise(folder: Path) -> None:
    """Flush the entries of a folder to the disk, on systems that support it."""
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EINVAL, errno.ENOTSUP, errno.EPERM):
            raise DataFileError(
                f"expected to flush {folder} to the disk, got: {_reason(error)}; new files in it may be lost"
            ) from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _checked_metadata(path: Path, kind: str, data: bytes) -> dict[str, str]:
    """Return the metadata of a file; a damaged file raises errors of many types."""
    size = int.from_bytes(data[:8], "little")
    if LIMITS.header_bytes < size <= len(data):
        raise DataFileError(
            f"expected a {kind} file whose header has at most {LIMITS.header_bytes:,} bytes, got {size:,} in {path}"
        )
    entries = json.loads(data[8 : 8 + size])
    metadata = dict(entries.pop("__metadata__", None) or {})
    version, received = metadata.get("version", ""), metadata.get("kind", "nameless")
    if metadata.get("format") != "cvxsnn":
        problem = f"expected a {kind} file written by cvxsnn, got another safetensors file: {path}"
    elif not re.fullmatch("[0-9]{1,9}", version):
        problem = f"expected a file version, got {version[:20]!r}: {path} was altered or damaged"
    elif int(version) > (newest := LIMITS.version):
        problem = f"expected a file of version {newest} or older, got version {version}: update cvxsnn to read {path}"
    elif received != kind:
        name = received if received.isprintable() else repr(received)
        problem = f"expected a {kind} file, got a {name} file: {path}"
    elif len(entries) > LIMITS.tensors:
        problem = f"expected at most {LIMITS.tensors:,} tensors in {path}, got {len(entries):,}"
    else:
        return metadata
    raise DataFileError(problem)


def _checksum(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(dict(metadata), sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name]
        # The same bytes in another type or shape are other numbers.
        digest.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(uint8).numpy().data)
    return digest.hexdigest()
