"""Gaps in sequences, and values to fill them with."""

from collections.abc import Sequence
from math import inf
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ...core.checks import check_choice, check_number
from ...core.errors import InvalidInputError
from ..base import FloatArray
from ..inputs import power_of_two
from .base import SequenceTransformer


class SequenceImputer(SequenceTransformer):
    """Fill gaps (NaN) in sequences.

    A feature without any value in a sequence takes its mean over all training steps, whatever the strategy, or
    ``fill_value`` with "constant".

    Parameters
    ----------
    strategy : str
        "linear" interpolates in time between the values before and after a gap; a gap at the start or the end takes the
        nearest value. "forward" repeats the last value before a gap, and uses no later one; a gap at the start takes
        the mean. "mean" takes the mean of the feature over all training steps. "constant" takes ``fill_value``.
    fill_value : float
        Value for the gaps with "constant".

    Attributes
    ----------
    statistics_ : array of shape (n_features,)
        The mean of each feature over all training steps, or ``fill_value`` with "constant".
    n_features_in_ : int
        Number of features per step.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import SequenceImputer
    >>> X = np.array([[1.0, np.nan, 3.0, np.nan]]).reshape(1, 4, 1)
    >>> SequenceImputer().fit_transform(X).ravel().tolist()
    [1.0, 2.0, 3.0, 3.0]
    """

    _learned: ClassVar = {"statistics_": -inf}
    _accepts_nan: ClassVar = True

    statistics_: FloatArray

    def __init__(self, strategy: str = "linear", *, fill_value: float = 0.0) -> None:
        self.strategy = strategy
        self.fill_value = fill_value

    def _check_parameters(self) -> None:
        check_choice("strategy", self.strategy, ("linear", "forward", "mean", "constant"))
        check_number("fill_value", self.fill_value)

    def _learn(self, parts: Sequence[FloatArray]) -> None:
        if self.strategy == "constant":
            self.statistics_ = np.full(self.n_features_in_, float(self.fill_value))
            return
        values = np.concatenate(parts)
        n_known = (~np.isnan(values)).sum(0)
        if not n_known.all():
            raise InvalidInputError(
                f"expected values of every feature, got only NaN for {np.flatnonzero(n_known == 0).tolist()}: drop "
                "such features, or fill them with strategy='constant'"
            )
        unit = power_of_two(np.nanmax(abs(values), 0))  # sums do not overflow
        self.statistics_ = np.nansum(values / unit, 0) / n_known * unit

    def _apply(self, part: FloatArray) -> FloatArray:
        filled = part.copy()
        is_gap = np.isnan(part)
        for feature in np.flatnonzero(is_gap.any(0)):
            gap = is_gap[:, feature]
            filled[gap, feature] = self._fill(part[:, feature], gap, float(self.statistics_[feature]))
        return filled

    def _fill(self, values: FloatArray, gap: npt.NDArray[np.bool_], mean: float) -> FloatArray | float:
        """Return the values for the gaps of one feature of one sequence."""
        steps, known = np.flatnonzero(gap), np.flatnonzero(~gap)
        if self.strategy in ("mean", "constant") or not len(known):
            return mean
        if self.strategy == "linear":
            return np.interp(steps, known, values[known])
        before = np.searchsorted(known, steps) - 1  # the last known step before each gap, -1 if there is none
        return np.where(before >= 0, values[known[before]], mean)
