"""Claims: of several processes that could do the same work, one does it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import DataFileError
from .storage import try_lock


@contextmanager
def claim(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Claim the work that a file stands for, and yield whether it is ours until the end of the block.

    A claim is a lock on the file, so it ends with the process that holds it, however that ends. Where the file system
    has no locks, everybody's claim is granted.

    Parameters
    ----------
    path : Path
        The file, which is made and removed again.
    wait : bool
        Whether to wait until others give up their claim.
    """
    try:
        handle = _locked(path, wait)
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


def remove_abandoned(folder: Path, pattern: str) -> None:
    """Remove the files of claims that nobody holds: after a loss of power they may still be there.

    Parameters
    ----------
    folder : Path
        Where the claims are.
    pattern : str
        Names of their files, as :meth:`pathlib.Path.glob` reads them.
    """
    for path in folder.glob(pattern):
        with suppress(DataFileError), claim(path):
            pass


def _locked(path: Path, wait: bool) -> int | None:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
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
        os.close(handle)  # its owner has removed it since: claim it anew
