"""The base class of the transformers of sequences."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ...core.checks import check_positive_int
from ...core.errors import InvalidInputError
from ...data.sequences import FILL_SEQUENCES, as_matrices, check_finite
from ..base import FloatArray, all_or_nothing
from ..inputs import as_numpy, is_tabular


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
                f"expected sequences with {self.n_features_in_} features as in fit, got {parts[0].shape[1]} features"
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
            raise InvalidInputError(f"expected names and values of {n_features} features, got others")
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
        """Return what scikit-learn should know: sequences, not rows."""
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
