"""Files: every file that the library writes is written here, whole or not at all.

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load as unpack_tensors
from safetensors.torch import save as pack_tensors
from torch import Tensor, contiguous_format, uint8

from .errors import BudgetError, DataFileError, InvalidInputError, first_line

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]

VERSION = 1
"""Of the files that are written. Older ones can be read, newer ones not."""

MAX_HEADER_BYTES = 2**24
"""Bytes of a header, the names and places of the tensors included: parsed, it may take twenty times as much memory."""

MAX_TENSORS = 2**14
"""Tensors of a file."""

SMALL_FILE_BYTES = 2**22
"""Files up to this size are read at once: safetensors loses 64 bytes with each tensor that it reads one by one."""

_SPARE_BYTES = 2**21
"""Memory that safetensors may need for anything but tensors and headers."""

_FORMAT = "cvxsnn"

_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{16}\.cvxsnn-part", re.DOTALL)
"""Names of files that are being written."""

_UNSYNCED = (errno.EACCES, errno.EINVAL, errno.ENOTSUP, errno.EPERM)
"""Errors of systems on which folders cannot be synchronised."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: after a crash or a loss of power there is the old file or the new one.

    A link stays as it is, and the file that it leads to is written. An existing file keeps its mode and, where
    permitted, its owner; a new one has the mode that the umask leaves. What is no regular file is refused. Files that
    killed writers left half written in the same folder are removed: a writer holds a lock on its own until it ends.
    """
    try:
        before = _regular_file(path)
        target = path.resolve()
        _remove_abandoned(target.parent)
        handle, temporary = _create(target, 0o666 if before is None else 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                if before is not None:
                    _take_over(handle, before)
                file.write(data)
                file.flush()
                os.fsync(handle)
                if fcntl is not None:  # while the lock is held
                    os.replace(temporary, target)
            if fcntl is None:
                os.replace(temporary, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataFileError(
            f"expected to write {path}, got: {reason}; nothing was changed, choose another place"
        ) from error
    _synchronise(target.parent)


def make_folder(folder: Path, purpose: str, remedy: str = "choose another place") -> None:
    """Make a folder, and those above it, where there is none."""
    missing = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataFileError(f"expected a folder for {purpose} at {folder}, got: {reason}; {remedy}") from error
    for place in reversed(missing):
        _synchronise(place.parent)


def try_lock(handle: int, *, wait: bool = False) -> bool | None:
    """Lock an open file until it is closed or the process ends; None where the system has no locks.

    False where somebody else holds the lock, unless that shall be waited for.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def write_tensors(path: Path | str, kind: str, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write tensors and a header; the bytes depend on nothing else.

    Parameters
    ----------
    path : Path or str
    kind : str
        What the file holds; it is asked for when the file is read.
    tensors : mapping of names to tensors
    header : mapping of plain values, as JSON knows them
    """
    plain = {name: value.detach().cpu().clone(memory_format=contiguous_format) for name, value in tensors.items()}
    text = json.dumps(header, sort_keys=True)
    metadata = {"format": _FORMAT, "version": str(VERSION), "kind": kind, "header": text}
    metadata["checksum"] = _checksum(metadata, plain)
    write_atomically(Path(path), _pack(plain, metadata))


def read_tensors(path: Path | str, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the header that :func:`write_tensors` wrote; a damaged file is one sentence."""
    path = Path(path)
    try:
        if not path.is_file():
            found = "a folder" if path.is_dir() else "no regular file" if path.exists() else "nothing"
            raise DataFileError(f"expected a {kind} file at {path}, found {found}")
        _check_header_bytes(path, kind)
        metadata, tensors = _read(path, kind)
    except (SafetensorError, OSError, ValueError, RuntimeError, MemoryError, TypeError, AttributeError) as error:
        if isinstance(error, DataFileError | BudgetError):
            raise
        raise DataFileError(
            f"expected a {kind} file, but {path} is truncated or damaged ({first_line(error)}): copy or make it again"
        ) from None
    expected = metadata.pop("checksum", "")
    if expected != _checksum(metadata, tensors):
        raise DataFileError(
            f"expected the contents of {path} to match their checksum, and they do not: the file was altered or "
            "damaged, copy or make it again"
        )
    try:
        header = json.loads(metadata["header"])
    except (KeyError, ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise DataFileError(f"expected a header in {path}, got none that can be read: make the file again")
    return tensors, header


def is_tensor_file(path: Path, kind: str) -> bool:
    """Return whether a file, whole or not, begins as :func:`write_tensors` begins one of a kind."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            metadata = json.loads(file.read(min(size, MAX_HEADER_BYTES)))["__metadata__"]
        return bool(metadata["format"] == _FORMAT and metadata["kind"] == kind)
    except (LookupError, RecursionError, TypeError, ValueError):
        return False


def _read(path: Path, kind: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata and the tensors of a file; what is wrong with it raises errors of all kinds."""
    if path.stat().st_size <= SMALL_FILE_BYTES:
        data = path.read_bytes()
        check_memory(3 * len(data))
        entries = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        metadata = dict(entries.pop("__metadata__", None) or {})
        _check_metadata(path, kind, metadata, len(entries))
        with suppress(KeyError):  # of rare types, which can be read from open files only
            return metadata, unpack_tensors(data)
    check_memory(0)
    with utf8_name(path) as name, safe_open(name, framework="pt") as file:
        metadata, names = dict(file.metadata() or {}), list(file.keys())
        _check_metadata(path, kind, metadata, len(names))
        return metadata, {name: file.get_tensor(name) for name in names}


def check_memory(n_bytes: int) -> None:
    """Refuse to go on without some free memory: where safetensors finds none, it ends the process."""
    try:
        mmap.mmap(-1, n_bytes + _SPARE_BYTES).close()
    except OSError as error:
        raise BudgetError(
            f"expected {n_bytes + _SPARE_BYTES:,} bytes, so that tensors of a file fit into memory, got fewer "
            f"({error.strerror or error}): end other work or use smaller models"
        ) from None


@contextmanager
def utf8_name(path: Path) -> Iterator[Path]:
    """Yield a name of an existing file that safetensors accepts: it reads names in UTF-8 only."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        with path.open("rb") as file:
            yield Path(f"/dev/fd/{file.fileno()}")
    else:
        yield path


def _regular_file(path: Path) -> os.stat_result | None:
    """Return the state of the file that a path leads to, None if there is none, and refuse all other things."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is a device, a pipe or a socket and no regular file")
    return found


def _create(target: Path, mode: int) -> tuple[int, Path]:
    """Return a new file beside a target, locked and open for writing, and its name."""
    while True:
        temporary = target.with_name(f".{target.name[:50]}.{secrets.token_hex(8)}.cvxsnn-part")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
        # Whoever clears away may have found it before it was locked.
        if try_lock(handle) is not False and os.fstat(handle).st_nlink:
            return handle, temporary
        os.close(handle)


def _take_over(handle: int, before: os.stat_result) -> None:
    """Give a file the owner, where permitted, and the mode of the one that it will replace."""
    if not hasattr(os, "fchmod"):
        return
    now = os.fstat(handle)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        with suppress(OSError):
            os.fchown(handle, before.st_uid, before.st_gid)
    os.fchmod(handle, stat.S_IMODE(before.st_mode))


def _remove_abandoned(folder: Path) -> None:
    """Remove what killed writers left: files whose lock nobody holds."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not _TEMPORARY.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            with suppress(OSError):
                handle = os.open(entry.path, os.O_RDONLY)
                try:
                    if try_lock(handle):
                        os.unlink(entry.path)
                finally:
                    os.close(handle)


def _synchronise(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _UNSYNCED:
            raise DataFileError(
                f"expected {folder} to reach the disk, got: {error.strerror or error}; what was written may be lost"
            ) from error


def _pack(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Return a safetensors file whose header is sorted: safetensors itself writes metadata in any order."""
    check_memory(3 * sum(value.nbytes for value in tensors.values()))
    packed = memoryview(pack_tensors(dict(tensors), dict(metadata)))
    start = 8 + int.from_bytes(packed[:8], "little")
    header = json.dumps(json.loads(bytes(packed[8:start])), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    if len(header) > MAX_HEADER_BYTES or len(tensors) > MAX_TENSORS:
        raise InvalidInputError(
            f"expected at most {MAX_TENSORS:,} tensors and a header of {MAX_HEADER_BYTES:,} bytes, got "
            f"{len(tensors):,} and {len(header):,}: such a file could not be read again"
        )
    return b"".join((len(header).to_bytes(8, "little"), header, packed[start:]))


def _check_header_bytes(path: Path, kind: str) -> None:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if MAX_HEADER_BYTES < size <= path.stat().st_size:
        raise DataFileError(
            f"expected a {kind} file whose header has at most {MAX_HEADER_BYTES:,} bytes, got {size:,} in {path}"
        )


def _check_metadata(path: Path, kind: str, metadata: Mapping[str, str], n_tensors: int) -> None:
    if metadata.get("format") != _FORMAT:
        raise DataFileError(f"expected a {kind} file written by cvxsnn, got another safetensors file: {path}")
    _check_version(path, metadata.get("version", ""))
    if metadata.get("kind") != kind:
        raise DataFileError(f"expected a {kind} file, got {_named(metadata.get('kind'))}: {path}")
    if n_tensors > MAX_TENSORS:
        raise DataFileError(f"expected at most {MAX_TENSORS:,} tensors in {path}, got {n_tensors:,}")


def _named(kind: str | None) -> str:
    return "one of no kind" if kind is None else f"a {kind} file" if kind.isprintable() else f"a {kind!r} file"


def _check_version(path: Path, version: str) -> None:
    if not (version.isdecimal() and version.isascii() and len(version) < 10):
        raise DataFileError(f"expected a file version, got {version[:20]!r}: {path} was altered or damaged")
    if int(version) > VERSION:
        raise DataFileError(
            f"expected a file of version {VERSION} or older, got version {version}: update cvxsnn to read {path}"
        )


def _checksum(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(dict(metadata), sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(uint8).numpy().data)
    return digest.hexdigest()
