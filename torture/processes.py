"""A piece of work in a process of its own, forked so that it starts within milliseconds and may be disturbed."""

import ctypes
import fcntl
import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from cvxsnn.core.errors import CvxsnnError

torch.set_num_threads(1)

Report = Callable[[int], None]
"""Called by work with the number of steps whose results are stored."""

_DIE_WITH_PARENT = 1


@dataclass
class End:
    """How a process ended.

    Attributes
    ----------
    status : "finished", "refused", "failed" or "killed"
        Refused is an error of the library, failed any other exception.
    text : str
        What it said in the end.
    steps : int
        Steps that it had reported.
    values : list
        What it returned.
    """

    status: str = "killed"
    text: str = ""
    steps: int = 0
    values: list[object] = field(default_factory=list)


_REQUESTS = {signal.SIGINT, signal.SIGTERM}
"""Signals that ask a process to end."""


class Child:
    """A process that does some work.

    Parameters
    ----------
    work : callable
        Called with a function that takes the number of steps stored; what it returns must be JSON.
    """

    def __init__(self, work: Callable[[Report], object]) -> None:
        self._pipe, inside = os.pipe()
        self._text = b""
        # A request to end must not reach the child before it can answer: it would go on as a copy of its parent.
        signal.pthread_sigmask(signal.SIG_BLOCK, _REQUESTS)
        self.pid = os.fork()
        if self.pid == 0:
            _live(work, inside)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _REQUESTS)
        os.close(inside)
        fcntl.fcntl(self._pipe, fcntl.F_SETFL, os.O_NONBLOCK)

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def wait(self) -> End:
        """Wait until the process has ended, and return how; it is killed if waiting is interrupted."""
        try:
            while self._read(None):
                pass
        except BaseException:
            self.send(signal.SIGKILL)
            raise
        finally:
            os.close(self._pipe)
            os.waitpid(self.pid, 0)
        end = End()
        for line in self._text.split(b"\n")[:-1]:  # a line that was cut off was not said
            kind, value = json.loads(line)
            if kind == "step":
                end.steps = value
            else:
                end.status, end.text = kind, str(value)
                end.values = value if isinstance(value, list) else []
        return end

    def wait_for(self, seconds: float) -> bool:
        """Wait for some time; return whether the process still works."""
        limit = time.perf_counter() + seconds
        while (left := limit - time.perf_counter()) > 0:
            if not self._read(left):
                return False
        return True

    def _read(self, seconds: float | None) -> bool:
        if select.select([self._pipe], [], [], seconds)[0]:
            said = os.read(self._pipe, 2**16)
            self._text += said
            return bool(said)
        return True


def run(work: Callable[[Report], object]) -> End:
    """Do some work in a process of its own, to its end."""
    return Child(work).wait()


def _live(work: Callable[[Report], object], pipe: int) -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)

    def say(kind: str, value: object) -> None:
        os.write(pipe, json.dumps([kind, value]).encode() + b"\n")

    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _REQUESTS)
            say("finished", work(lambda steps: say("step", steps)))
        except CvxsnnError as error:
            say("refused", str(error))
        except BaseException:
            say("failed", traceback.format_exc()[-4000:])
    finally:
        os._exit(0)
