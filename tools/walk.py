"""Print the walk of ``SpikingClassifier().fit``: the files whose functions it calls, in the order of their first calls.

A change of room is a call from a function in one folder of the package to a function in another. Checks, seeds and the
like (``core``) are called from everywhere and are counted apart.

python tools/walk.py            # a table
python tools/walk.py --check    # fails if the walk is longer than it should be
"""

import sys
from collections import Counter
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import cvxsnn as cs

MOST_FILES, MOST_CHANGES = 44, 411
ROOT = Path(cs.__file__).parent


def walk() -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """Return how often functions of each file are called, in the order of the first calls, and calls between rooms."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 8, 2))
    y = np.where(X[:, :, 0].sum(1) > X[:, :, 1].sum(1), "up", "down")
    cs.SpikingClassifier(n_neurons=8, random_state=0).fit(X[:20], y[:20])  # compiles, which would be counted slowly
    calls: Counter[str] = Counter()
    changes: Counter[tuple[str, str]] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        file = file_of(frame.f_code.co_filename)
        if event != "call" or file is None:
            return
        calls[file] += 1
        caller = frame.f_back
        while caller is not None and file_of(caller.f_code.co_filename) is None:
            caller = caller.f_back
        if caller is not None:
            rooms = room_of(str(file_of(caller.f_code.co_filename))), room_of(file)
            changes[rooms] += rooms[0] != rooms[1]

    sys.setprofile(count)
    try:
        cs.SpikingClassifier(random_state=0).fit(X, y)
    finally:
        sys.setprofile(None)
    return calls, changes


@cache
def file_of(path: str) -> str | None:
    """Return a file's path inside the package; None for files of other packages."""
    return Path(path).relative_to(ROOT).as_posix() if Path(path).is_relative_to(ROOT) else None


def room_of(file: str) -> str:
    """Return the folder that a file is in."""
    return file.partition("/")[0]


def rooms_in_order(files: list[str]) -> list[str]:
    """Return the rooms in the order in which they are first entered; ``core`` is everywhere and left out."""
    return list(dict.fromkeys(room for file in files if (room := room_of(file)) != "core"))


def main(arguments: list[str]) -> int:
    """Print the walk."""
    calls, changes = walk()
    to_core = sum(number for rooms, number in changes.items() if "core" in rooms)
    n_changes = changes.total() - to_core
    print(f"{len(calls)} files; rooms: {' → '.join(rooms_in_order(list(calls)))}")
    print(f"{n_changes} changes of room, and {to_core} calls of core")
    for number, (file, n_calls) in enumerate(calls.items(), 1):
        print(f"{number:3} {file:36} {n_calls:6,} calls")
    return int("--check" in arguments and (len(calls) > MOST_FILES or n_changes > MOST_CHANGES))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
