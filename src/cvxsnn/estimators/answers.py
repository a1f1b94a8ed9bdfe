"""What a fitted model answers, from the outputs of its network: labels, probabilities or targets."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..convex.objective import decide_class, logits
from ..core.errors import InvalidInputError
from ..network import SpikingNetwork

FloatArray = npt.NDArray[np.float64]


class Answers(ABC):
    """A network whose outputs have a meaning."""

    network_: SpikingNetwork
    _left_out: FloatArray | None = None

    def drift(self, X: Any) -> float:
        """Compare the scores of new data with those of the samples that the fit has left out.

        Parameters
        ----------
        X : array or list of arrays
            Independent sequences or rows, as in ``fit``; some 30 or more, so that differences show.

        Returns
        -------
        float
            How probable a difference as large as theirs is for data like those of the fit. Of batches of such data, at
            most 1 % are below 0.01. It is the p-value of a Kolmogorov–Smirnov test, the smallest of the outputs times
            their number. Drift that leaves the scores as they are is not seen.

        Examples
        --------
        >>> import numpy as np
        >>> from cvxsnn import SpikingRegressor
        >>> X = np.random.default_rng(0).normal(size=(300, 5, 2))
        >>> model = SpikingRegressor(n_neurons=64, random_state=0).fit(X[:200], X[:200].sum((1, 2)))
        >>> model.drift(X[200:]) > 0.01, model.drift(X[200:] + 1) > 0.01
        (True, False)
        """
        outputs = self._outputs(X)
        if self._left_out is None:
            raise InvalidInputError(
                "expected a model whose fit has left samples out, got one without their scores: method 'cvx' with "
                "strengths that it chooses has them, unless the model is of an earlier version"
            )
        from scipy.stats import ks_2samp  # slow to import

        values = [float(ks_2samp(*pair).pvalue) for pair in zip(self._left_out.T, outputs.T, strict=True)]
        return min(1.0, len(values) * min(values))

    @abstractmethod
    def _outputs(self, X: Any) -> FloatArray:
        """Return the outputs of the network, shape (n_samples, n_outputs)."""

    @abstractmethod
    def decide(self, outputs: FloatArray) -> npt.NDArray[Any]:
        """Return predictions from outputs of the network.

        Parameters
        ----------
        outputs : array of shape (n_samples, n_outputs)
            Outputs of ``network_``.

        Returns
        -------
        array
            Of a classifier the index of the class in ``classes_``; of a regressor the targets, in the shape they had
            in ``fit``.
        """

    @abstractmethod
    def _margins(self, outputs: FloatArray) -> FloatArray:
        """Return the scores of the classes as ``decision_function`` does, or targets: a linear function."""

    @abstractmethod
    def _predictions(self, outputs: FloatArray) -> npt.NDArray[Any]:
        """Return what ``predict`` does: labels or targets."""


class ClassAnswers(Answers):
    """The answers of a classifier."""

    classes_: npt.NDArray[Any]
    probability_scale_: float | None

    def decision_function(self, X: Any) -> FloatArray:
        """Compute the scores of the classes.

        Parameters
        ----------
        X : array or list of arrays
            Sequences or rows, as in ``fit``.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_classes)
            For two classes one score, positive for the second; for more one score per class.
        """
        return self._margins(self._outputs(X))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict labels.

        Parameters
        ----------
        X : array or list of arrays
            Sequences or rows, as in ``fit``.

        Returns
        -------
        array of shape (n_samples,)
            The most likely class of each sample.
        """
        return self._predictions(self._outputs(X))

    def decide(self, outputs: FloatArray) -> npt.NDArray[np.int64]:
        """Return the index of the predicted class in ``classes_``.

        Parameters
        ----------
        outputs : array of shape (n_samples, n_outputs)
            Outputs of ``network_``.

        Returns
        -------
        array of shape (n_samples,)
            The indices.
        """
        return decide_class(outputs)

    def _margins(self, outputs: FloatArray) -> FloatArray:
        """Return scores of the classes: for two of them, a single one."""
        if len(self.classes_) > 2:
            return outputs
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs[:, 1] - outputs[:, 0]

    def _predictions(self, outputs: FloatArray) -> npt.NDArray[Any]:
        """Return the labels of the predicted classes."""
        labels: npt.NDArray[Any] = self.classes_[self.decide(outputs)]
        return labels

    def probabilities(self, outputs: FloatArray) -> FloatArray:
        """Return the probabilities of the classes from outputs of the network.

        Parameters
        ----------
        outputs : array of shape (n_samples, n_outputs)
            Outputs of ``network_``.

        Returns
        -------
        array of shape (n_samples, n_classes)
            The probabilities, which sum to one for each sample.
        """
        scores, loss = torch.from_numpy(outputs), self.network_.heads[0].loss
        if loss == "logistic" and scores.shape[1] > 1:  # one class against the rest
            shares = torch.sigmoid(scores)
            return (shares / shares.sum(1, keepdim=True)).numpy()
        # The other losses train probabilities directly.
        scale = self.probability_scale_ if loss == "squared" else None
        return torch.softmax(logits(scores, scale or 1.0), dim=1).numpy()


class TargetAnswers(Answers):
    """The answers of a regressor."""

    is_flat_: bool

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
        return self.decide(self._outputs(X))

    def decide(self, outputs: FloatArray) -> FloatArray:
        """Return the predicted targets from outputs of the network.

        Parameters
        ----------
        outputs : array of shape (n_samples, n_outputs)
            Outputs of ``network_``.

        Returns
        -------
        array
            The targets, in the shape they had in ``fit``.
        """
        return outputs[:, 0] if self.is_flat_ else outputs

    def _margins(self, outputs: FloatArray) -> FloatArray:
        return self.decide(outputs)

    def _predictions(self, outputs: FloatArray) -> FloatArray:
        return self.decide(outputs)
