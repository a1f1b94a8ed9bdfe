"""Print the walk of ``SpikingClassifier().fit``: the files whose functions it calls, in the order of their first calls.

python tools/walk.py            # a table
python tools/walk.py --check    # fails if the walk is longer than it should be
"""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import cvxsnn as cs

MOST_FILES = 53
ROOT = Path(cs.__file__).parent


def walk() -> Counter[str]:
    """Return how often functions of each file are called, in the order of the first calls."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 8, 2))
    y = np.where(X[:, :, 0].sum(1) > X[:, :, 1].sum(1), "up", "down")
    cs.SpikingClassifier(n_neurons=8, random_state=0).fit(X[:20], y[:20])  # compiles, which would be counted slowly
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            calls[path.relative_to(ROOT).as_posix()] += 1

    sys.setprofile(count)
    try:
        cs.SpikingClassifier(random_state=0).fit(X, y)
    finally:
        sys.setprofile(None)
    return calls


def rooms_in_order(files: list[str]) -> list[str]:
    """Return the rooms in the order in which they are first entered; ``core`` is everywhere and left out."""
    return list(dict.fromkeys(room for file in files if (room := file.partition("/")[0]) != "core"))


def main(arguments: list[str]) -> int:
    """Print the walk."""
    calls = walk()
    print(f"{len(calls)} files; rooms: {' → '.join(rooms_in_order(list(calls)))}")
    for number, (file, n_calls) in enumerate(calls.items(), 1):
        print(f"{number:3} {file:36} {n_calls:6,} calls")
    return int("--check" in arguments and len(calls) > MOST_FILES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
