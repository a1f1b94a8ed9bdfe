"""Too little of something: disk, file size, permission, memory, or time that runs forwards.

Work that cannot store its results says so in one sentence and damages nothing; with enough of everything it continues
to the same bits. Disks are small file systems in memory, mounted where only this process sees them. The clock of the
machine is not touched: libfaketime shows processes another one.
"""

import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fuzz.harness import Finding, Hunt, Skip

from .processes import Child, End, Report, run
from .work import WORKS, check_kept, finish, list_files, undisturbed

_STORING = ("saves", "checkpoints", "shards", "sweep")
_NOBODY = 65534
_NEW_MOUNTS, _PRIVATE = 0x20000, 0x44000  # CLONE_NEWNS; MS_REC | MS_PRIVATE
_REMOUNT = 32
_NO_MEMORY = ("MemoryError", "allocate memory", "bad_alloc", "[enforce fail", "fit into memory")
"""What says that there was no memory; torch has sentences of its own."""


def case(rng: np.random.Generator, folder: Path) -> str:
    """Let some work run into a shortage, and then to its end."""
    shortage = str(rng.choice(list(SHORTAGES)))
    return f"{shortage}: {SHORTAGES[shortage](rng, str(rng.choice(_STORING)), folder)}"


def _full_disk(rng: np.random.Generator, name: str, folder: Path) -> str:
    n_pages = sum(-(-size // 4096) for size in undisturbed(name).files.values())
    size = 4096 * int(rng.integers(2, n_pages + 3))
    outcome = run(lambda report: _on_small_disk(name, folder, size))
    if outcome.status != "finished":
        raise Skip("no right to mount") if "may not mount" in outcome.text else Finding(outcome.text)
    return str(outcome.values[0])


def mount_small_disk(folder: Path, size: int) -> None:
    """Mount a file system of some bytes in memory, where only this process sees it."""
    libc = ctypes.CDLL(None, use_errno=True)
    mounted = (
        libc.unshare(_NEW_MOUNTS) == 0
        and libc.mount(b"none", b"/", None, _PRIVATE, None) == 0
        and libc.mount(b"none", str(folder).encode(), b"tmpfs", 0, b"size=%d" % size) == 0
    )
    if not mounted:
        raise PermissionError("may not mount")


def become_nobody() -> None:
    """Give up the rights of the superuser, who may write everywhere."""
    if os.getuid() == 0:
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)


def limit_file_size(size: int) -> None:
    """Let no file of this process be larger than some bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _on_small_disk(name: str, folder: Path, size: int) -> list[str]:
    mount_small_disk(folder, size)
    end = run(lambda report: WORKS[name].do(folder, report))
    _check_manners(name, folder, end, "No space left on device")
    ctypes.CDLL(None).mount(b"none", str(folder).encode(), b"tmpfs", _REMOUNT, b"size=100m")
    finish(name, folder)
    return [end.status]


def _small_files(rng: np.random.Generator, name: str, folder: Path) -> str:
    size = int(rng.uniform(0.1, 1.1) * max(undisturbed(name).files.values()))

    def work(report: Report) -> None:
        limit_file_size(size)
        WORKS[name].do(folder, report)

    end = run(work)
    _check_manners(name, folder, end, "File too large")
    finish(name, folder)
    return end.status


def _read_only_folder(rng: np.random.Generator, name: str, folder: Path) -> str:
    own = folder / "own"
    own.mkdir()
    child = Child(lambda report: WORKS[name].do(own, report))
    if child.wait_for(rng.uniform(0, undisturbed(name).seconds)):
        child.send(signal.SIGKILL)
    child.wait()
    before = sorted(list_files(own))
    for path in (own, *own.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    folder.chmod(0o755)

    def work(report: Report) -> None:
        with TemporaryDirectory(prefix="cvxsnn-torture-") as other:
            WORKS[name].do(Path(other), lambda steps: None)  # its modules may be out of reach for nobody
        become_nobody()
        WORKS[name].do(own, report)

    end = run(work)
    if sorted(list_files(own)) != before:
        raise Finding(f"{name} changed a read-only folder from {before} to {sorted(list_files(own))}")
    _check_manners(name, own, end, "denied", before)
    for path in (own, *own.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    finish(name, own)
    return end.status


def _little_memory(rng: np.random.Generator, name: str, folder: Path) -> str:
    undisturbed(name)  # what it imports takes memory, too
    spare = int(2 ** rng.uniform(12, 25))

    def work(report: Report) -> None:
        with _memory_left(spare):
            WORKS[name].do(folder, report)

    end = run(work)
    if end.status != "finished" and not any(words in end.text for words in _NO_MEMORY):
        raise Finding(f"{name} with {spare} bytes of memory: {end.status}: {end.text}")
    check_kept(name, folder, end.steps)
    if name == "sweep":  # a run without enough memory has failed, and is tried again where that is asked for
        for path in (folder / "out").rglob("*.json"):
            if '"failed"' in path.read_text():
                path.unlink()
    finish(name, folder)
    return "finished" if end.status == "finished" else "out of memory"


@contextmanager
def _memory_left(n_bytes: int) -> Iterator[None]:
    """Use up the memory that the process has, and let it have some bytes more."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size, before[1]))
    used: list[bytearray] = []
    for length in (2**20, 2**16, 2**12, 2**9):
        with suppress(MemoryError):
            while True:
                used.append(bytearray(length))
    resource.setrlimit(resource.RLIMIT_AS, (size + n_bytes, before[1]))
    try:
        yield
    finally:
        used.clear()
        resource.setrlimit(resource.RLIMIT_AS, before)


def _clock_set_back(rng: np.random.Generator, name: str, folder: Path) -> str:
    libraries = glob(os.environ.get("LIBFAKETIME", "/usr/lib/*/faketime/libfaketime.so.1"))
    if not libraries:
        raise Skip("no libfaketime")
    own = folder / "own"
    own.mkdir()
    clock = folder / "clock"
    clock.write_text("+0d\n")
    environment = os.environ | {
        "LD_PRELOAD": libraries[0],
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    command = [sys.executable, "-c", f"from torture.work import WORKS; from pathlib import Path\nprint(flush=True)\n"
               f"WORKS[{name!r}].do(Path({str(own)!r}), lambda steps: None)"]  # fmt: skip
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            child.communicate(timeout=rng.uniform(0, 2 * undisturbed(name).seconds))
        except subprocess.TimeoutExpired:
            clock.write_text(f"-{rng.integers(1, 4000)}d\n")
        text = child.communicate()[1]
    if child.returncode:
        raise Finding(f"{name} with a clock set back: {text}")
    finish(name, own)
    return "finished"


def _check_manners(name: str, folder: Path, end: End, reason: str, before: Sequence[str] = ()) -> None:
    """Raise a finding unless work ended or said why it could not, and left whole files only."""
    if end.status == "finished":
        return
    if end.status != "refused" or "\n" in end.text:
        raise Finding(f"expected one sentence about {reason!r}, {name} {end.status}: {end.text}")
    if reason not in end.text:
        raise Finding(f"expected {reason!r} to be named, got {end.text!r}")
    check_kept(name, folder, end.steps)
    left = [file for file in list_files(folder) if Path(file).name.startswith(".") and file not in before]
    if left:
        raise Finding(f"expected no temporary files after {end.text!r}, got {left}")


SHORTAGES: dict[str, Callable[[np.random.Generator, str, Path], str]] = {
    "full disk": _full_disk,
    "small files": _small_files,
    "read-only folder": _read_only_folder,
    "little memory": _little_memory,
    "clock set back": _clock_set_back,
}
"""What there may be too little of: functions that let some work run into it, and then to its end."""

HUNT = Hunt("shortages", "Too little disk, permission or memory; a clock set back.", case, 100, 3, seconds=120.0)
