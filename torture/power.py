"""Power lost at any moment: what was not synchronised is gone, and the files are the old ones or the new ones.

The system calls of undisturbed work are recorded by strace. A disk that lost its power holds the names as they were
after some of the calls, in order, at least all before the last synchronisation of their folder, and of each file at
least what was synchronised; the rest of a file is missing, zeros, or there. Every such point in time is replayed. Names
change in the order of the calls, as on file systems with a journal.
"""

import os
import re
import select
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fuzz.harness import Finding, Hunt, Skip

from .processes import run
from .work import WORKS, finish, undisturbed

_CALLS = "openat,creat,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,close"
_CALLS += ",link,linkat,symlink,symlinkat,ftruncate,truncate,writev,pwritev,sendfile,copy_file_range,fallocate"
_STEP = "step of work stored"
_LINE = re.compile(r"^(?:\[pid\s+\d+\] |\d+\s+)?(\w+)\((.*)\)\s+= (-?\d+)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


@dataclass(frozen=True)
class _File:
    """A file: what was written to it, and how much of this was synchronised."""

    content: bytes = b""
    synced: bytes | None = None


@dataclass
class _Disk:
    """Names on a disk, of files by their numbers; and the names as they were since they were last synchronised."""

    names: dict[str, int] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    files: list[_File] = field(default_factory=list)
    since: list[tuple[dict[str, int], list[str]]] = field(default_factory=list)


def case(rng: np.random.Generator, folder: Path) -> str:
    """Cut the power under some work."""
    return disturb(rng, str(rng.choice(["saves", "checkpoints", "shards", "sweep"])), folder)


def disturb(rng: np.random.Generator, name: str, folder: Path) -> str:
    """Cut the power at every point in time, read what is left, and continue from one of them."""
    calls = record_calls(name)
    disk = _Disk()
    chosen = int(rng.integers(len(calls)))
    seed = int(rng.integers(2**32))
    after = folder / "after"

    def replay(report: object) -> list[int]:
        """Look at the disk after each call, in one process."""
        own, count, steps = np.random.default_rng(seed), 0, 0
        for number, call in enumerate(calls):
            _apply(disk, call)
            _cut(own, disk, after)
            try:
                found = WORKS[name].look(after)
            except Exception as error:
                raise Finding(f"power lost in {name} after call {number}, {call[:2]}: {error!r}") from error
            steps = int(call[1]) if call[0] == _STEP else steps
            if WORKS[name].count(found) < steps:
                raise Finding(f"power lost in {name} after {steps} steps were stored: {call[:2]} leaves {found}")
            shutil.rmtree(after)
            count += 1
        return [count]

    end = run(replay)
    if end.status != "finished":
        raise Finding(end.text)
    for call in calls[: chosen + 1]:
        _apply(disk, call)
    _cut(rng, disk, after)
    finish(name, after)
    return f"{name}: {end.values[0]} moments"


@cache
def record_calls(name: str) -> list[tuple[str, ...]]:
    """Return the calls of undisturbed work that change its folder, with paths relative to it."""
    if shutil.which("strace") is None:
        raise Skip("no strace")
    undisturbed(name)
    with TemporaryDirectory(prefix="cvxsnn-torture-") as place, TemporaryDirectory(prefix="cvxsnn-torture-") as other:
        folder, log = Path(place).resolve(), Path(other) / "log"
        end = run(lambda report: _traced(name, folder, log))
        if end.status != "finished":
            raise Skip("may not trace") if "may not trace" in end.text else Finding(end.text)
        calls = _parse(log.read_text(), str(folder))
        disk = _Disk()
        for call in calls:
            _apply(disk, call)
        found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        if found != {path: disk.files[number].content for path, number in disk.names.items()}:
            raise Finding(f"expected the recorded calls of {name} to make its files, got {sorted(disk.names)}")
        return calls


def _traced(name: str, folder: Path, log: Path) -> None:
    command = ["strace", "-f", "-xx", "-y", "-s", "100000000", "-e", f"trace={_CALLS}", "-o", str(log)]
    with subprocess.Popen([*command, "-p", str(os.getpid())], stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        select.select([tracer.stderr], [], [])
        if "attached" not in tracer.stderr.readline():
            raise PermissionError("may not trace")
        with open(os.devnull, "wb", buffering=0) as null:
            WORKS[name].do(folder, lambda steps: null.write(b"%s %d" % (_STEP.encode(), steps)))
        tracer.terminate()
        tracer.communicate()


def _parse(text: str, folder: str) -> list[tuple[str, ...]]:
    """Return (name of the call, paths in the folder or file handles, data as hexadecimal digits)."""
    calls: list[tuple[str, ...]] = []
    for line in text.splitlines():
        if "<unfinished" in line or "resumed>" in line:
            raise Skip("calls of several threads are mixed")
        match = _LINE.match(line)
        if match is None or match[3].startswith("-"):
            continue
        kind, arguments, result = match.groups()
        strings = [bytes.fromhex(value.replace("\\x", "")) for value in _TEXT.findall(arguments)]
        if kind in ("write", "fsync", "fdatasync", "close", "ftruncate", "pwrite64"):
            handle = re.match(r"(\d+)<((?:\\x[0-9a-f]{2})*)[<>]", arguments)
            if handle is None:
                continue
            path = bytes.fromhex(handle[2].replace("\\x", "")).decode()
            if path.startswith(folder):
                data = strings[0][: int(result)].hex() if kind == "write" else ""
                calls.append((kind, path[len(folder) + 1 :], data))
            elif strings and strings[0].startswith(_STEP.encode()):
                calls.append((_STEP, strings[0].split()[-1].decode()))
            continue
        paths = [value.decode() for value in strings]
        if kind == "openat" and "O_CREAT" not in arguments and "O_TRUNC" not in arguments:
            continue
        inside = [path[len(folder) + 1 :] for path in paths if path.startswith(folder)]
        if inside:
            calls.append((kind, *inside))
    return calls


def _apply(disk: _Disk, call: tuple[str, ...]) -> None:
    kind, path, *rest = call
    if kind == _STEP:
        return
    changes_names = True
    if kind in ("openat", "creat") and path not in disk.names:
        disk.files.append(_File())
        disk.names[path] = len(disk.files) - 1
    elif kind in ("rename", "renameat", "renameat2"):
        disk.names[rest[0]] = disk.names.pop(path)
    elif kind in ("unlink", "unlinkat"):
        del disk.names[path]
    elif kind in ("mkdir", "mkdirat"):
        disk.folders.append(path)
    else:
        changes_names = False
        number = disk.names.get(path)
        if kind == "write" and number is not None:
            file = disk.files[number]
            disk.files[number] = replace(file, content=file.content + bytes.fromhex(rest[0]))
        elif kind in ("fsync", "fdatasync"):
            if number is not None:
                disk.files[number] = replace(disk.files[number], synced=disk.files[number].content)
            else:
                disk.since.clear()  # a folder: its names are safe now
        elif kind not in ("close", "fsync", "fdatasync", "write", "openat", "creat"):
            raise Finding(f"expected calls whose effect is known, got {kind} of {path}")
    if changes_names or not disk.since:
        disk.since.append((dict(disk.names), list(disk.folders)))


def _cut(rng: np.random.Generator, disk: _Disk, folder: Path) -> None:
    """Write what may be left on a disk into a folder."""
    names, folders = disk.since[rng.integers(len(disk.since))] if disk.since else (disk.names, disk.folders)
    folder.mkdir()
    for path in folders:
        (folder / path).mkdir(parents=True, exist_ok=True)
    for path, number in names.items():
        file = disk.files[number]
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(_left(rng, file))


def _left(rng: np.random.Generator, file: _File) -> bytes:
    """Return what may be left of a file: all that was synchronised, and any part of the rest."""
    safe = file.synced or b""
    rest = len(file.content) - len(safe)
    length = len(safe) + int(rng.choice([0, rest // 2, rest]))
    written = file.content if rng.integers(2) else safe + bytes(rest)
    return written[:length]


HUNT = Hunt("power", "Power lost at every point in time.", case, cases=60, short=1, seconds=300.0)
