"""Transformers of sequences: an imputer, a scaler and a resampler."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import floor, inf
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ..core.checks import check_bool, check_choice, check_number, check_positive_int
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..core.memory import check_fits, dense_bytes
from ..data.sequences import FILL_SEQUENCES, as_matrices, check_finite
from .answers import FloatArray
from .base import all_or_nothing
from .inputs import as_numpy, is_tabular, power_of_two, standardise

__all__ = ["SequenceImputer", "SequenceResampler", "SequenceScaler"]


class SequenceTransformer(TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """The base of scaler, imputer and resampler: each sequence is transformed by itself."""

    _learned: ClassVar[Mapping[str, float]]
    """Arrays of shape (n_features,) that ``fit`` learns, and a number that all their values must exceed."""
    _accepts_nan: ClassVar[bool] = False

    n_features_in_: int

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from the steps of all sequences.

        Parameters
        ----------
        X : array or list of arrays
            Sequences of shape (n_samples, n_steps, n_features), or a list of arrays or DataFrames of shape
            (n_steps_i, n_features).
        y : None
            Ignored.

        Returns
        -------
        SequenceTransformer
            The fitted transformer.
        """
        self._check_parameters()
        _, parts, names = self._read(X)
        self.n_features_in_ = parts[0].shape[1]
        if names is not None:
            self.feature_names_in_ = names
        self._learn(parts)
        return self

    def transform(self, X: Any) -> Any:
        """Transform sequences.

        Parameters
        ----------
        X : array or list of arrays
            Sequences with as many features as in ``fit``.

        Returns
        -------
        array or list of arrays
            New sequences in float64: an array or a tensor if X is one, and else a list, with DataFrames where X has
            DataFrames.
        """
        check_is_fitted(self)
        self._check_parameters()
        X, parts, names = self._read(X)
        if parts[0].shape[1] != self.n_features_in_:
            raise InvalidInputError(
                f"expected sequences with {plural(self.n_features_in_, 'feature')} as in fit, got {parts[0].shape[1]} "
                "features"
            )
        known = getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and names.tolist() != known.tolist():
            raise InvalidInputError(f"expected the columns {known.tolist()} as in fit, got {names.tolist()}")
        return _in_the_form_of(X, [self._apply(part) for part in parts])

    def _read(self, X: Any) -> tuple[Any, list[FloatArray], npt.NDArray[Any] | None]:
        """Return data as an array or a list, their sequences as checked matrices, and the names of their columns."""
        X = as_numpy(list(X.values()) if isinstance(X, Mapping) else X)
        if is_tabular(X):
            raise InvalidInputError(
                "expected sequences, as one array (n_samples, n_steps, n_features) or a list of arrays (n_steps, "
                "n_features), got something else: for rows of features use the transformers of scikit-learn"
            )
        parts = as_matrices(X)
        for part in parts:
            check_finite(part, "sequences", None if self._accepts_nan else FILL_SEQUENCES)
        return X, parts, _column_names(X)

    def _restore(self, n_features: Any, names: npt.NDArray[Any] | None, learned: Mapping[str, FloatArray]) -> None:
        """Restore the fitted state from finite arrays and different names of a file."""
        self._check_parameters()
        self.n_features_in_ = check_positive_int("n_features", n_features)
        arrays = [*learned.values()] if names is None else [names, *learned.values()]
        is_below = any((learned[name] <= bound).any() for name, bound in self._learned.items())
        if is_below or any(array.shape != (n_features,) for array in arrays):
            raise InvalidInputError(f"expected names and values of {plural(n_features, 'feature')}, got others")
        if names is not None:
            self.feature_names_in_ = names
        self.__dict__.update(learned)

    @abstractmethod
    def _check_parameters(self) -> None:
        """Refuse invalid parameters."""

    @abstractmethod
    def _learn(self, parts: Sequence[FloatArray]) -> None:
        """Set the learned attributes from matrices of shape (n_steps_i, n_features)."""

    @abstractmethod
    def _apply(self, part: FloatArray) -> FloatArray:
        """Return the transform of one sequence of shape (n_steps, n_features)."""

    def __sklearn_tags__(self) -> Any:
        """Return the tags of scikit-learn: sequences, not rows."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.input_tags.allow_nan = self._accepts_nan
        return tags


def _column_names(X: Any) -> npt.NDArray[Any] | None:
    """Return the names that the DataFrames of a list have in common; None if there are none."""
    if isinstance(X, (np.ndarray, torch.Tensor)):
        return None
    names = [part.columns.tolist() for part in X if hasattr(part, "iloc")]
    if not names or not all(isinstance(name, str) for name in names[0]):
        return None
    for others in names:
        if others != names[0]:
            raise InvalidInputError(f"expected the same columns in every DataFrame, got {names[0]} and {others}")
    return np.array(names[0], dtype=object)


def _in_the_form_of(X: Any, parts: Sequence[FloatArray]) -> Any:
    """Return matrices in the form of X: an array, a tensor, or a list with DataFrames where X has DataFrames."""
    if isinstance(X, torch.Tensor):
        return torch.from_numpy(np.stack(parts)).to(X.device)
    if isinstance(X, np.ndarray) and X.dtype != object:
        return np.stack(parts)
    return [_like(original, part) for original, part in zip(X, parts, strict=True)]


def _like(original: Any, part: FloatArray) -> Any:
    if isinstance(original, torch.Tensor):
        return torch.from_numpy(part).to(original.device)
    if not hasattr(original, "iloc"):
        return part
    index = original.index if len(original) == len(part) else None
    return type(original)(part, index=index, columns=original.columns)


class SequenceImputer(SequenceTransformer):
    """Fill gaps (NaN) in sequences.

    A feature without any value in a sequence takes its mean over all training steps, whatever the strategy, or
    ``fill_value`` with "constant".

    There is no ``set_output``: sequences are no rows of a table, and come back in the form in which they were passed.

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


class SequenceResampler(SequenceTransformer):
    """Change the number of steps by linear interpolation in time.

    The first and the last step are kept. Values between the new steps are not averaged: smooth sequences
    with fast oscillations yourself before you make them much shorter.

    There is no ``set_output``: sequences are no rows of a table, and come back in the form in which they were passed.

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
        # A large factor may overflow to infinity, which floor refuses.
        n_steps = self.n_steps if self.factor is None else max(1, floor(min(self.factor * len(part) + 0.5, 2.0**62)))
        assert n_steps is not None
        # Four arrays of the size of the result are held at once.
        check_fits(4 * dense_bytes(n_steps, part.shape[1]), "cpu", "a resampled sequence", "choose fewer steps")
        times = np.linspace(0, last, n_steps) if n_steps > 1 else np.array([last / 2])
        # The last step has no successor: it is its predecessor's, with a share of one.
        before = np.minimum(times.astype(int), max(last - 1, 0))
        share = (times - before)[:, None]
        # Unlike a + share · (b - a), this is exact at both ends and cannot overflow.
        resampled: FloatArray = (1 - share) * part[before] + share * part[np.minimum(before + 1, last)]
        return resampled


class SequenceScaler(SequenceTransformer):
    """Subtract means and divide by standard deviations, over the steps of all sequences or of each one.

    The spiking estimators standardise each feature themselves. Pass ``standardize=False`` to an estimator after this
    transformer, or it will undo a common scale.

    There is no ``set_output``: sequences are no rows of a table, and come back in the form in which they were passed.

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
