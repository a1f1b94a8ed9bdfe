"""Floating-point data as exact integers: every float is an integer times a power of two."""

from fractions import Fraction
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..core.checks import Array
from ..core.errors import InvalidInputError

IntArray = npt.NDArray[Any]
"""Integers: int64, or Python integers in an array of objects."""


SAFE = 2**62
"""Sums of products below this fit into 64 bits."""


def as_integers(values: Array) -> tuple[IntArray, float]:
    """Write values as integers times a power of two.

    Returns
    -------
    integers : array of the same shape
        Small integers as int64, others as Python integers.
    unit : float
        The power of two: ``values == integers * unit``, exactly.
    """
    array = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    if array.dtype.kind not in "biuf" or array.size == 0:
        raise InvalidInputError(f"expected real numbers, got {array.dtype} of shape {array.shape}")
    if not np.isfinite(array).all():
        raise InvalidInputError("expected finite numbers, got NaN or infinite values")
    exact = [Fraction(x) for x in array.ravel().tolist()]
    unit = Fraction(1, max(x.denominator for x in exact))  # the denominators of floats are powers of two
    whole = [int(x / unit) for x in exact]
    common = gcd(*whole)
    power = common & -common or 1  # the largest power of two that divides all
    return narrow(np.array([x // power for x in whole], dtype=object).reshape(array.shape)), float(unit * power)


def narrow(values: IntArray) -> IntArray:
    """Return the same integers, as int64 if all of them are small."""
    largest = max((abs(int(x)) for x in values.flat), default=0)
    return values.astype(np.int64) if largest < 2**31 else values
