"""Triton, which comes with torch for CUDA, and a test whether it can compile kernels."""

import warnings
from collections.abc import Callable

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

__all__ = ["can_run", "tl", "triton"]


def can_run(kernel: Callable[[], object], without: str) -> bool:
    """Return whether a kernel compiles and runs; Triton needs a C compiler and a recent device.

    Parameters
    ----------
    kernel : callable
        Runs the kernel on arbitrary numbers.
    without : str
        What happens without the kernel; the warning starts with it.

    Returns
    -------
    bool
        False, with a warning, if Triton cannot compile it.
    """
    try:
        kernel()
    except Exception as error:  # whatever Triton raises, callers have another way
        warnings.warn(f"{without}, because the kernel does not run: {error}", stacklevel=3)
        return False
    return True
