"""Signals at any moment: nothing that was stored is lost, and the work continues to the same bits."""

import signal
import time
from pathlib import Path

import numpy as np

from fuzz.harness import Finding, Hunt

from .processes import Child
from .work import WORKS, check_kept, finish, undisturbed

_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP)


def case(rng: np.random.Generator, folder: Path) -> str:
    """Disturb some work by a signal."""
    return disturb(rng, str(rng.choice(list(WORKS))), _SIGNALS[rng.integers(len(_SIGNALS))], folder)


def disturb(rng: np.random.Generator, name: str, number: signal.Signals, folder: Path) -> str:
    """Send a signal at one to four moments, and continue after each."""
    seconds = undisturbed(name).seconds
    n_sent = 0
    for _ in range(rng.integers(1, 5)):
        child = Child(lambda report: WORKS[name].do(folder, report))
        if child.wait_for(rng.uniform(0, seconds)):
            n_sent += 1
            child.send(number)
            if number is signal.SIGSTOP:
                time.sleep(0.02)
                child.send(signal.SIGCONT)
        end = child.wait()
        if end.status not in ("finished", "killed") and not (number is signal.SIGINT and _is_interrupted(end.text)):
            raise Finding(f"{name}, signal {number.name}: {end.status}: {end.text}")
        if number is signal.SIGSTOP and end.status != "finished":
            raise Finding(f"expected {name} to continue after a stop, it ended: {end.text}")
        check_kept(name, folder, end.steps)
    finish(name, folder)
    return f"{number.name} × {n_sent}" if n_sent else "ended before the signal"


def _is_interrupted(text: str) -> bool:
    return text.strip().endswith("KeyboardInterrupt")


HUNT = Hunt("signals", "Kill, terminate, interrupt or stop at any moment.", case, cases=400, short=3, seconds=120.0)
