"""Real numbers from sequences."""

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import column_or_1d

from ..core.checks import as_real, check_choice
from ..core.errors import InvalidInputError
from ..data.sequences import TrainingSet
from ..data.tasks.task import UNNAMED_HEAD
from ..network.spiking_network import SpikingNetwork
from .base import FloatArray, SpikingEstimator
from .fitting import all_or_nothing
from .parameters import PARAMETERS


class SpikingRegressor(RegressorMixin, SpikingEstimator):  # type: ignore[misc]
    __doc__ = f"""A spiking network that predicts real numbers from sequences, or from rows of features.

    ``X`` is as for :class:`SpikingClassifier`; ``y`` has shape (n_samples,) or (n_samples, n_outputs).
{PARAMETERS.format(loss='It must be "squared".', class_weight="")}
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

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on sequences with real targets.

        Parameters
        ----------
        X : array or list of arrays
            Sequences of shape (n_samples, n_steps, n_features), a list of arrays or tables (n_steps_i, n_features), or
            rows of shape (n_samples, n_features).
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            The targets.
        sample_weight : array of shape (n_samples,), optional
            The weight of each sample.

        Returns
        -------
        SpikingRegressor
            The fitted estimator.
        """
        check_choice("loss", "squared" if self.loss is None else self.loss, ("squared",))
        data = self._training_set(X, y, sample_weight, reset=True)
        self._fit(data, self._objective("squared"), None)
        return self

    def predict(self, X: Any) -> FloatArray:
        """Predict targets.

        Parameters
        ----------
        X : array or list of arrays
            Sequences or rows, as in ``fit``.

        Returns
        -------
        array
            The predicted targets, in the shape they had in ``fit``.
        """
        scores = self._scores(X)
        return scores[:, 0] if self._is_flat else scores

    def _read_targets(self, y: Any) -> FloatArray:
        if y is None:
            raise InvalidInputError("requires y to be passed, but the target y is None: pass one number per sample")
        targets = as_real("targets", y)
        if targets.ndim not in (1, 2) or 0 in targets.shape:
            raise InvalidInputError(
                f"expected targets of shape (n_samples,) or (n_samples, n_outputs), got shape {targets.shape}"
            )
        return targets

    def _targets(self, y: FloatArray, reset: bool) -> FloatArray:
        if not np.isfinite(y).all():
            raise InvalidInputError("expected finite targets, got NaN or infinite values: impute or drop those rows")
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        if reset:
            self._is_flat = y.ndim == 1
        return y

    def _validate(self, network: SpikingNetwork, held_out: TrainingSet) -> float:
        with torch.no_grad():
            scores = network(held_out.sequences).cpu()
        truth = torch.tensor(held_out.targets[UNNAMED_HEAD]).reshape(scores.shape)  # a copy: data may be read-only
        weight = torch.ones(len(truth)) if held_out.sample_weight is None else held_out.sample_weight
        return -float((weight[:, None] * (scores - truth).square()).sum() / weight.sum())
