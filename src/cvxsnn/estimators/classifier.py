"""Classes from sequences."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ..convex.losses import LOSSES, Loss, Softmax
from ..convex.objective import Objective, weighted_loss
from ..core.checks import check_choice
from ..core.errors import InvalidInputError
from ..data.conversion import FloatArray
from ..data.tasks.task import UNNAMED_HEAD
from ..data.training_set import TrainingSet
from ..network.spiking_network import SpikingNetwork
from .base import PARAMETERS, SpikingEstimator


class SpikingClassifier(ClassifierMixin, SpikingEstimator):  # type: ignore[misc]
    __doc__ = f"""A spiking network that classifies sequences, or rows of features as sequences of one step.

    ``X`` may be an array (n_samples, n_steps, n_features), a list of arrays (n_steps_i, n_features), or anything of
    shape (n_samples, n_features). Labels may be numbers or strings. The default loss is "logistic" for two classes and
    "softmax" for more; other losses treat more classes one against the rest.
{PARAMETERS}    classes_ : array of the labels
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on sequences X with labels y."""
        data = self._training_set(X, y, sample_weight, reset=True)
        targets = np.asarray(data.targets[UNNAMED_HEAD])
        labels = targets.argmax(1) if targets.ndim == 2 else targets
        self._fit(data, Objective(self._loss(), self._readout()), labels)
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Scores: (n_samples,) for two classes, positive for the second; (n_samples, n_classes) for more."""
        scores = self._scores(X)
        if len(self.classes_) > 2:
            return scores
        return scores[:, 0] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most likely class of each sample."""
        scores = self.decision_function(X)
        chosen = (scores >= 0).astype(int) if scores.ndim == 1 else scores.argmax(1)
        predicted: npt.NDArray[Any] = self.classes_[chosen]
        return predicted

    def _has_probabilities(self) -> bool:
        if self.loss not in (None, "logistic", "softmax"):
            raise AttributeError(f"expected loss 'logistic' or 'softmax' for probabilities, got {self.loss!r}")
        return True

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities of the classes, shape (n_samples, n_classes)."""
        scores = torch.from_numpy(self.decision_function(X))
        if scores.ndim == 1:
            second = torch.sigmoid(scores)
            return torch.stack((1 - second, second), dim=1).numpy()
        if self._loss_name == "softmax":
            return torch.softmax(scores, dim=1).numpy()
        shares = torch.sigmoid(scores)
        return (shares / shares.sum(1, keepdim=True)).numpy()

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> FloatArray:
        """Logarithms of the probabilities."""
        logarithms: FloatArray = np.log(self.predict_proba(X))
        return logarithms

    @property
    def _loss_name(self) -> str:
        if self.loss is None:
            return "logistic" if len(self.classes_) == 2 else "softmax"
        return check_choice("loss", self.loss, tuple(LOSSES))

    def _loss(self) -> str | Loss:
        return Softmax(len(self.classes_)) if self._loss_name == "softmax" else self._loss_name

    def _targets(self, y: Any, reset: bool) -> npt.NDArray[Any]:
        if y is None:
            raise InvalidInputError("requires y to be passed, but the target y is None: pass one label a sample")
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        if reset:
            self.classes_ = np.unique(y)
            if len(self.classes_) < 2:
                raise InvalidInputError(
                    f"expected at least two classes, got only one class, {self.classes_[0]!r}: nothing to learn"
                )
        places: npt.NDArray[Any] = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if (self.classes_[places] != y).any():
            raise InvalidInputError(f"expected labels among {self.classes_.tolist()}, got others too")
        if self._loss_name != "softmax" and len(self.classes_) > 2:
            columns: npt.NDArray[Any] = np.eye(len(self.classes_))[places]
            return columns
        # The decision is at zero, so that is where the squared loss must put the middle.
        return 2 * places - 1 if self._loss_name == "squared" else places

    def _validate(self, network: SpikingNetwork, held_out: TrainingSet) -> float:
        with torch.no_grad():
            scores = network(held_out.sequences)
        truth = torch.from_numpy(np.asarray(held_out.targets[UNNAMED_HEAD])).to(scores.device)
        truth = truth.argmax(1) if truth.ndim == 2 else truth.clamp(min=0)
        predicted = (scores[:, 0] >= 0).to(torch.int64) if scores.shape[1] == 1 else scores.argmax(1)
        weight = torch.ones(len(truth)) if held_out.sample_weight is None else held_out.sample_weight
        weight = weight.to(scores.device)
        # Of networks with equally many right answers the one with the lower loss is better: by less than one answer.
        heads, row_weight = Objective(self._loss()).heads(held_out)
        loss = float(weighted_loss(heads, row_weight, scores))
        return float((weight * (predicted == truth)).sum() + 1 / (1 + loss)) / len(truth)
