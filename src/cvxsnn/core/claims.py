"""Locks on files: of several processes that could do the same work, one does it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import DataFileError

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]


@contextmanager
def claim(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Claim the work that a file stands for, and yield whether it is ours until the end of the block.

    A claim is a lock on the file, so it ends with the process that holds it, however that ends. Where the file system
    has no locks, every claim is granted.

    Parameters
    ----------
    path : Path
        The file, which is made and removed again.
    wait : bool
        Whether to wait until others give up their claim.
    """
    try:
        handle = open_locked(path, wait=wait)
    except OSError as error:
        raise DataFileError(
            f"expected to claim work by {path}, got: {error.strerror or error}; choose another place"
        ) from error
    try:
        yield handle is not None
    finally:
        if handle is not None:
            with suppress(OSError):
                os.unlink(path)
            os.close(handle)


def open_locked(path: Path, mode: int = 0o666, *, wait: bool = False) -> int | None:
    """Return a handle of a file, made if there is none, and locked; None if somebody else has locked it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), mode)
        try:
            if try_lock(handle, wait=wait) is False:
                os.close(handle)
                return None
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(path)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # whoever had the lock has removed the file: make it again


def remove_abandoned(folder: Path, pattern: str) -> None:
    """Remove the files of a folder that match a pattern and that nobody has locked: killed processes left them."""
    for path in folder.glob(pattern):
        with suppress(OSError):
            if path.is_symlink() or not path.is_file():
                continue
            handle = os.open(path, os.O_RDONLY)
            try:
                if try_lock(handle):
                    os.unlink(path)
            finally:
                os.close(handle)


def try_lock(handle: int, *, wait: bool = False) -> bool | None:
    """Lock an open file until it is closed or the process ends; False if somebody else has, None without locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
