"""Our estimators as estimators of aeon.

aeon's arrays have channels before time points, ours have steps before features; this is all that is converted.
The module needs aeon and is not part of ``import cvxsnn``: ``from cvxsnn.exchange.aeon import AeonSpikingClassifier``.
"""

from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from ..convex import Certificate
from ..core.checks import check_type
from ..core.libraries import import_library
from ..estimators import SpikingClassifier, SpikingRegressor
from ..estimators.base import all_or_nothing

__all__ = ["AeonSpikingClassifier", "AeonSpikingRegressor"]

_BaseClassifier: Any = import_library("aeon.classification", "aeon").BaseClassifier
_BaseRegressor: Any = import_library("aeon.regression", "aeon").BaseRegressor


def _steps_first(X: Any) -> Any:
    """Return series of shape (n_channels, n_timepoints) as sequences of shape (n_steps, n_features)."""
    if isinstance(X, np.ndarray):
        return np.ascontiguousarray(X.transpose(0, 2, 1))
    return [np.ascontiguousarray(series.T) for series in X]


class _Wrapper:
    """Common part of classifier and regressor."""

    _tags: ClassVar = {
        "X_inner_type": ["np-list", "numpy3D"],
        "capability:multivariate": True,
        "capability:unequal_length": True,
    }
    _wrapped: type[SpikingClassifier] | type[SpikingRegressor]
    _learned: ClassVar = ()  # aeon itself removes what an earlier fit has learned
    estimator_: SpikingClassifier | SpikingRegressor

    def __init__(self, estimator: Any = None, random_state: int | np.random.RandomState | None = None) -> None:
        self.estimator = estimator
        self.random_state = random_state
        super().__init__()

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> Self:
        """Fit to series and targets.

        Parameters
        ----------
        X : array of shape (n_cases, n_channels, n_timepoints) or list of arrays
            The series.
        y : array of shape (n_cases,)
            Their targets.

        Returns
        -------
        AeonSpikingClassifier or AeonSpikingRegressor
            The fitted estimator.
        """
        fitted: Self = super().fit(X, y)  # type: ignore[misc]
        return fitted

    def certify(self, X: Any, y: Any) -> Certificate:
        """Certify again, from the data that the model was fitted to, how good its read-out is.

        Parameters
        ----------
        X : array of shape (n_cases, n_channels, n_timepoints) or list of arrays
            The series that the model was fitted to.
        y : array of shape (n_cases,)
            Their targets.

        Returns
        -------
        Certificate
            Bounds on the optimum over the sampled neurons.
        """
        model: Any = self
        model._check_is_fitted()
        return self.estimator_.certify(_steps_first(model._preprocess_collection(X, store_metadata=False)), y)

    def _fit(self, X: Any, y: Any) -> Self:
        estimator = self._wrapped() if self.estimator is None else clone(self.estimator)
        check_type(estimator, self._wrapped, f"a {self._wrapped.__name__} or None")
        if self.random_state is not None:
            estimator.set_params(random_state=self.random_state)
        self.estimator_ = estimator.fit(_steps_first(X), y)
        return self

    def _predict(self, X: Any) -> npt.NDArray[Any]:
        return self.estimator_.predict(_steps_first(X))

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        """Return parameters for aeon's checks: faster than the defaults."""
        return {"estimator": cls._wrapped(hidden=(16,), witnesses="gaussian", random_state=0)}


class AeonSpikingClassifier(_Wrapper, _BaseClassifier):  # type: ignore[misc]
    """A :class:`cvxsnn.SpikingClassifier` with the conventions of aeon's classifiers.

    Series are arrays of shape (n_cases, n_channels, n_timepoints), or lists of arrays (n_channels, n_timepoints_i) if
    they differ in length.

    Parameters
    ----------
    estimator : SpikingClassifier, optional
        The classifier with its parameters; it is copied, not fitted. By default ``SpikingClassifier()``.
    random_state : int, RandomState or None
        Replaces the ``random_state`` of ``estimator``, unless it is None.

    Attributes
    ----------
    estimator_ : SpikingClassifier
        The fitted classifier, with ``certificate_`` and ``network_``.
    classes_ : array
        The labels, sorted.
    n_classes_ : int
        Number of labels.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import SpikingClassifier
    >>> from cvxsnn.exchange.aeon import AeonSpikingClassifier
    >>> X = np.random.default_rng(0).normal(size=(60, 2, 5))
    >>> y = np.where(X[:, 0].sum(1) > X[:, 1].sum(1), "up", "down")
    >>> model = AeonSpikingClassifier(SpikingClassifier(hidden=(64,), l1_strength=0.01), random_state=0).fit(X, y)
    >>> model.predict_proba(X[:3]).shape
    (3, 2)
    """

    _wrapped = SpikingClassifier

    def _predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        has_probabilities = hasattr(self.estimator_, "predict_proba")  # some losses have none
        predicted: npt.NDArray[np.float64] = (
            self.estimator_.predict_proba(_steps_first(X)) if has_probabilities else super()._predict_proba(X)
        )
        return predicted


class AeonSpikingRegressor(_Wrapper, _BaseRegressor):  # type: ignore[misc]
    """A :class:`cvxsnn.SpikingRegressor` with the conventions of aeon's regressors.

    Series are as for :class:`AeonSpikingClassifier`.

    Parameters
    ----------
    estimator : SpikingRegressor, optional
        The regressor with its parameters; it is copied, not fitted. By default ``SpikingRegressor()``.
    random_state : int, RandomState or None
        Replaces the ``random_state`` of ``estimator``, unless it is None.

    Attributes
    ----------
    estimator_ : SpikingRegressor
        The fitted regressor, with ``certificate_`` and ``network_``.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import SpikingRegressor
    >>> from cvxsnn.exchange.aeon import AeonSpikingRegressor
    >>> X = np.random.default_rng(0).normal(size=(60, 2, 5))
    >>> model = AeonSpikingRegressor(SpikingRegressor(hidden=(64,), l1_strength=0.1), random_state=0)
    >>> model = model.fit(X, X.sum((1, 2)))
    >>> model.predict(X[:3]).shape
    (3,)
    """

    _wrapped = SpikingRegressor
