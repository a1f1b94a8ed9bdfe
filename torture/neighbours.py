"""Two processes that do the same work in one folder: one may be refused, and the results are those of one process."""

from pathlib import Path

import numpy as np

from fuzz.harness import Finding, Hunt

from .processes import Child
from .work import WORKS, check_kept, finish, undisturbed


def case(rng: np.random.Generator, folder: Path) -> str:
    """Do some work twice at the same time."""
    return disturb(rng, str(rng.choice(list(WORKS))), folder)


def disturb(rng: np.random.Generator, name: str, folder: Path) -> str:
    """Begin, begin again, and wait for both."""
    seconds = undisturbed(name).seconds
    first = Child(lambda report: WORKS[name].do(folder, report))
    first.wait_for(rng.choice([0, rng.uniform(0, seconds)]))
    second = Child(lambda report: WORKS[name].do(folder, report))
    ends = [child.wait() for child in (first, second)]
    for end in ends:
        if end.status not in ("finished", "refused"):
            raise Finding(f"{name} beside another process: {end.status}: {end.text}")
    if all(end.status == "refused" for end in ends):
        raise Finding(f"expected one of two processes to finish {name}, both were refused: {ends[0].text}")
    check_kept(name, folder, max(end.steps for end in ends))
    finish(name, folder)
    return f"{name}: {' and '.join(end.status for end in ends)}"


HUNT = Hunt("neighbours", "Two processes in one folder.", case, cases=100, short=2, seconds=120.0)
