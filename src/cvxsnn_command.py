"""The command ``cvxsnn``, which Ctrl-C ends in one line also while its libraries are being loaded.

It is not in the package, because importing anything from there loads all of them.
"""

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Load the command line and run it."""
    # torch reads this when it loads. Runs of different sizes otherwise fragment the memory of a GPU: a quarter of it
    # was reserved and unusable. Only Linux has such segments.
    if sys.platform == "linux" and "PYTORCH_ALLOC_CONF" not in os.environ:
        os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else whoever started it wants no interrupts
        signal.signal(signal.SIGINT, _leave)
    from cvxsnn.cli import app

    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app()


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: libraries that are half loaded turn an exception into others, or swallow it."""
    os.write(2, b"cvxsnn: interrupted; nothing was started\n")
    os._exit(130)
