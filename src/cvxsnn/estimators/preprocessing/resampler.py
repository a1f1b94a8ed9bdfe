"""Interpolation to other numbers of steps."""

from collections.abc import Sequence
from math import floor
from typing import ClassVar

import numpy as np

from ...core.checks import check_number, check_positive_int
from ...core.errors import InvalidInputError
from ...core.memory import check_fits, dense_bytes
from ..base import FloatArray
from .base import SequenceTransformer


class SequenceResampler(SequenceTransformer):
    """Change the number of steps by linear interpolation in time.

    The first and the last step are kept. Values between the new steps are not averaged: smooth sequences
    with fast oscillations yourself before you make them much shorter.

    Parameters
    ----------
    n_steps : int, optional
        The number of steps that all sequences get. A single step is the middle of a sequence.
    factor : float, optional
        Factor of the number of steps of each sequence, at least one step. Pass this or ``n_steps``.

    Attributes
    ----------
    n_features_in_ : int
        Number of features per step.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import SequenceResampler
    >>> X = [np.array([[0.0], [2.0], [4.0]]), np.array([[1.0], [3.0]])]
    >>> [x.ravel().tolist() for x in SequenceResampler(n_steps=5).fit_transform(X)]
    [[0.0, 1.0, 2.0, 3.0, 4.0], [1.0, 1.5, 2.0, 2.5, 3.0]]
    """

    _learned: ClassVar = {}

    def __init__(self, n_steps: int | None = None, *, factor: float | None = None) -> None:
        self.n_steps = n_steps
        self.factor = factor

    def _check_parameters(self) -> None:
        if (self.n_steps is None) == (self.factor is None):
            raise InvalidInputError(
                f"expected either n_steps or factor, got n_steps={self.n_steps!r} and factor={self.factor!r}"
            )
        if self.n_steps is not None:
            check_positive_int("n_steps", self.n_steps)
        elif check_number("factor", self.factor) <= 0:
            raise InvalidInputError(f"expected factor to be above zero, got {self.factor!r}")

    def _learn(self, parts: Sequence[FloatArray]) -> None:
        """Learn nothing but the number of features."""

    def _apply(self, part: FloatArray) -> FloatArray:
        last = len(part) - 1
        n_steps = self.n_steps if self.factor is None else max(1, floor(min(self.factor * len(part) + 0.5, 2.0**62)))
        assert n_steps is not None
        # Four arrays of the size of the result are held at once.
        check_fits(4 * dense_bytes(n_steps, part.shape[1]), "cpu", "a resampled sequence", "choose fewer steps")
        times = np.linspace(0, last, n_steps) if n_steps > 1 else np.array([last / 2])
        before = np.minimum(times.astype(int), max(last - 1, 0))
        share = (times - before)[:, None]
        resampled: FloatArray = (1 - share) * part[before] + share * part[np.minimum(before + 1, last)]
        return resampled
