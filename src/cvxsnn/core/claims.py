"""Locks on files, so that only one of several processes does a piece of work."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from .errors import DataFileError

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]


@contextmanager
def claim(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Claim a piece of work by locking its file; yield whether the claim succeeded.

    The system releases the lock when the process ends, however it ends. If the file system has no locks, every claim
    succeeds.

    Parameters
    ----------
    path : Path
        The file, which is created and removed again.
    wait : bool
        Whether to wait until other processes release the lock.
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
            # Removed before the lock is released: afterwards it might be the file of another process.
            with suppress(OSError):
                os.unlink(path)
            os.close(handle)


def open_locked(path: Path, mode: int = 0o666, *, wait: bool = False) -> int | None:
    """Open and lock a file, which is created if needed, and return its handle; None if another process locks it."""
    while True:
        with ExitStack() as stack:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), mode)
            stack.callback(os.close, handle)
            if try_lock(handle, wait=wait) is False:
                return None
            # The previous holder of the lock may have removed the file: then it must be made again.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(path)):
                    stack.pop_all()
                    return handle


def remove_abandoned(folder: Path, pattern: str) -> None:
    """Remove the files of a folder that match a pattern and that no process locks: killed processes left them."""
    for path in folder.glob(pattern):
        if path.is_file() and not path.is_symlink():
            with suppress(OSError), path.open("rb") as file:
                if try_lock(file.fileno()):
                    path.unlink()


def try_lock(handle: int, *, wait: bool = False) -> bool | None:
    """Lock an open file until it is closed; return False if another process locks it, None if there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
