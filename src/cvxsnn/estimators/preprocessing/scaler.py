"""Scaling of values to comparable size."""

from collections.abc import Sequence
from math import inf
from typing import ClassVar

import numpy as np

from ...core.checks import check_bool, check_choice, check_number
from ...core.errors import InvalidInputError
from ..base import FloatArray
from ..inputs import power_of_two, standardise
from .base import SequenceTransformer


class SequenceScaler(SequenceTransformer):
    """Subtract means and divide by standard deviations, over the steps of all sequences or of each one.

    The spiking estimators standardise each feature themselves. Pass ``standardize=False`` to an estimator after this
    transformer, or it will undo a common scale.

    Parameters
    ----------
    scale : str
        "feature" divides each feature by its own standard deviation. "common" divides all features by the root mean
        square of their standard deviations: features with the same unit keep their proportions.
    per_sequence : bool
        Whether each sequence is scaled by its own means and standard deviations (z-normalisation), so that level and
        amplitude of a sequence are lost.
    floor : float
        The smallest standard deviation to divide by, so that noise in a nearly constant feature is not amplified. It is
        a fraction of the common scale of the training data; with ``per_sequence``, of ``scale_``. Constant features are
        divided by 1 if there is no floor.

    Attributes
    ----------
    mean_ : array of shape (n_features,)
        The mean of each feature over all training steps.
    scale_ : array of shape (n_features,)
        Divisor of each feature.
    n_features_in_ : int
        Number of features per step.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import SequenceScaler
    >>> X = [np.array([[0.0, 10.0], [2.0, 30.0]]), np.array([[4.0, 20.0]])]
    >>> [x.round(2).tolist() for x in SequenceScaler().fit_transform(X)]
    [[[-1.22, -1.22], [0.0, 1.22]], [[1.22, 0.0]]]
    """

    _learned: ClassVar = {"mean_": -inf, "scale_": 0.0}

    mean_: FloatArray
    scale_: FloatArray

    def __init__(self, scale: str = "feature", *, per_sequence: bool = False, floor: float = 0.0) -> None:
        self.scale = scale
        self.per_sequence = per_sequence
        self.floor = floor

    def _check_parameters(self) -> None:
        check_choice("scale", self.scale, ("feature", "common"))
        check_bool("per_sequence", self.per_sequence)
        if check_number("floor", self.floor) < 0:
            raise InvalidInputError(f"expected floor to be zero or more, got {self.floor!r}")

    def _learn(self, parts: Sequence[FloatArray]) -> None:
        self.mean_, spread = _moments(np.concatenate(parts))
        # With per_sequence the floor of each sequence is relative to scale_, which has no floor itself.
        floor = 0.0 if self.per_sequence else self.floor * _common(spread)
        self.scale_ = self._divisor(spread, np.full(len(spread), floor))

    def _apply(self, part: FloatArray) -> FloatArray:
        if not self.per_sequence:
            return standardise(part, self.mean_, self.scale_)
        mean, spread = _moments(part)
        return standardise(part, mean, self._divisor(spread, self.floor * self.scale_))

    def _divisor(self, spread: FloatArray, floor: FloatArray) -> FloatArray:
        """Return the divisor of each feature from its standard deviation."""
        shared = spread if self.scale == "feature" else np.full(len(spread), _common(spread))
        divisor: FloatArray = np.maximum(shared, floor)
        return np.where(divisor > 0, divisor, 1.0)


def _moments(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of each column; the latter is exactly zero where a column is constant."""
    unit = power_of_two(abs(values).max(0))  # squares neither overflow nor vanish
    values = values / unit
    mean: FloatArray = values.mean(0)
    spread: FloatArray = values.std(0)
    # A spread below this share of the mean is rounding: the feature is constant.
    return mean * unit, np.where(spread > 1e-12 * abs(mean), spread, 0.0) * unit


def _common(spread: FloatArray) -> float:
    unit = power_of_two(spread.max())
    return float(np.sqrt(np.mean((spread / unit) ** 2)) * unit)
