"""Real numbers from sequences."""

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import column_or_1d

from ..core.checks import as_real, check_choice
from ..core.errors import InvalidInputError
from ..data import TrainingSet
from ..data.task import UNNAMED_HEAD
from .answers import FloatArray, TargetAnswers
from .base import SpikingEstimator


class SpikingRegressor(RegressorMixin, TargetAnswers, SpikingEstimator):  # type: ignore[misc]
    """A spiking network that predicts real numbers from sequences, or from rows of features.

    ``X`` is as for :class:`SpikingClassifier`; ``y`` has shape (n_samples,) or (n_samples, n_outputs).

    Parameters
    ----------
    (shared parameters)

    Attributes
    ----------
    (shared attributes)

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import SpikingRegressor
    >>> X = np.random.default_rng(0).normal(size=(60, 5, 2))
    >>> y = X.sum((1, 2))
    >>> model = SpikingRegressor(n_neurons=64, random_state=0).fit(X, y)
    >>> model.predict(X[:3]).shape
    (3,)
    >>> model.certificate_.relative_gap <= model.tol
    True
    """

    @available_if(SpikingEstimator._can_be_updated)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on a first part of the data, or add samples to a model that this method trained.

        The first call is :meth:`fit`, which also keeps what later calls need; these are :meth:`update`. The choice of
        neurons, scales and strength is that of the first call, so its samples should be many and like the others.
        With an integer ``sparsity``, neurons are only selected, and none are trained.

        Parameters
        ----------
        X : array or list of arrays
            Sequences or rows, as in ``fit``.
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.
        sample_weight : array of shape (n_samples,), optional
            Their weights, in the same unit for all calls.

        Returns
        -------
        SpikingRegressor
            The estimator.
        """
        if not hasattr(self, "network_"):
            return self._fit(X, y, sample_weight, keeps=True)
        return self.update(X, y, sample_weight)

    def read_targets(self, y: Any) -> FloatArray:
        """Return targets in any form that ``fit`` accepts as an array of numbers.

        Parameters
        ----------
        y : array
            The targets.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_outputs)
            The same targets.
        """
        if y is None:
            raise InvalidInputError("requires y to be passed, but the target y is None: pass one number per sample")
        targets = as_real("targets", y)
        if targets.ndim not in (1, 2) or 0 in targets.shape:
            raise InvalidInputError(
                f"expected targets of shape (n_samples,) or (n_samples, n_outputs), got shape {targets.shape}"
            )
        return targets

    def _targets(self, y: FloatArray, reset: bool, classes: Any = None) -> FloatArray:
        if not np.isfinite(y).all():
            raise InvalidInputError("expected finite targets, got NaN or infinite values: impute or drop those rows")
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        if reset:
            self.is_flat_ = y.ndim == 1
        if self.is_flat_ != (y.ndim == 1):
            raise InvalidInputError(f"expected targets with as many axes as in fit, got shape {y.shape}")
        return y

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("loss", "squared" if self.loss is None else self.loss, ("squared",))

    def _loss(self) -> str:
        return "squared"

    def _errors(self, outputs: FloatArray, data: TrainingSet) -> FloatArray:
        targets = np.asarray(data.targets[UNNAMED_HEAD]).reshape(outputs.shape)
        errors: FloatArray = np.square(outputs - targets).mean(1)
        return errors

    def _score(self, outputs: FloatArray, data: TrainingSet, weight: FloatArray, loss: float) -> float:
        return -2 * loss  # the loss is half the squared error
