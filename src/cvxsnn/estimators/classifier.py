"""Classes from sequences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize, minimize_scalar
from sklearn.base import ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from ..convex import LOSSES, Loss
from ..convex.losses import Softmax
from ..convex.objective import decide_class, logits, make_row_weight
from ..core.checks import check_choice, check_number, foreign_errors, relative_weights
from ..core.errors import InvalidInputError
from ..data import TrainingSet
from ..data.task import UNNAMED_HEAD
from ..fitting.judges import Verdict
from ..fitting.program import Program
from .answers import ClassAnswers, FloatArray
from .base import SpikingEstimator
from .inputs import read_labels


@dataclass(eq=False, repr=False)
class SpikingClassifier(ClassifierMixin, ClassAnswers, SpikingEstimator):  # type: ignore[misc]
    """A spiking network that classifies sequences, or rows of features as sequences of one step.

    ``X`` may be an array (n_samples, n_steps, n_features), a list with an array (n_steps_i, n_features) or a table of
    pandas per sequence, or anything of shape (n_samples, n_features). Labels may be numbers or strings.

    Parameters
    ----------
    (shared parameters)
    class_weight : mapping, "balanced" or None
        Weights of the classes, which multiply those of the samples. "balanced" gives all classes the same total.

    Attributes
    ----------
    (shared attributes)
    classes_ : array
        The labels, sorted.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import SpikingClassifier
    >>> X = np.random.default_rng(0).normal(size=(60, 5, 2))
    >>> y = np.where(X[:, :, 0].sum(1) > X[:, :, 1].sum(1), "up", "down")
    >>> model = SpikingClassifier(n_neurons=64, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:3]).shape
    (3, 2)
    >>> model.certificate_.relative_gap <= model.tol
    True
    """

    class_weight: str | Mapping[Any, float] | None = field(default=None, kw_only=True)

    @available_if(SpikingEstimator._can_be_updated)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train on a first part of the data, or add samples to a model that this method trained.

        The first call is :meth:`fit`, which also keeps what later calls need; these are :meth:`update`. The choice of
        neurons, scales and strength is that of the first call, so its samples should be many and like the others.
        With an integer ``sparsity``, neurons are only selected, and none are trained.

        Parameters
        ----------
        X : array or list of arrays
            Sequences or rows, as in ``fit``.
        y : array of shape (n_samples,)
            Their labels.
        classes : array, optional
            All labels that any call may have. By default those of the first call.
        sample_weight : array of shape (n_samples,), optional
            Their weights, in the same unit for all calls.

        Returns
        -------
        SpikingClassifier
            The estimator.
        """
        if not hasattr(self, "network_"):
            return self._fit(X, y, sample_weight, classes=classes, keeps=True)
        if classes is not None and {*read_labels("class", classes).tolist()} != {*self.classes_.tolist()}:
            raise InvalidInputError(
                f"expected the classes of the first call, {self.classes_.tolist()}, got others: leave classes out"
            )
        return self.update(X, y, sample_weight)

    def _has_probabilities(self) -> bool:
        if self.loss not in (None, "logistic", "softmax") and not self._is_ridge:
            raise AttributeError(f"expected loss 'logistic' or 'softmax' for probabilities, got {self.loss!r}")
        return True

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatArray:
        """Predict the probabilities of the classes.

        Parameters
        ----------
        X : array or list of arrays
            Sequences or rows, as in ``fit``.

        Returns
        -------
        array of shape (n_samples, n_classes)
            The probabilities, which sum to one for each sample.
        """
        return self.probabilities(self._outputs(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> FloatArray:
        """Predict the logarithms of the probabilities of the classes.

        Parameters
        ----------
        X : array or list of arrays
            Sequences or rows, as in ``fit``.

        Returns
        -------
        array of shape (n_samples, n_classes)
            The logarithms.
        """
        logarithms: FloatArray = np.log(self.predict_proba(X))
        return logarithms

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.loss is not None:
            check_choice("loss", self.loss, tuple(LOSSES))
        if isinstance(self.class_weight, Mapping):
            for label, weight in self.class_weight.items():
                check_number(f"class_weight[{label!r}]", weight)
        elif self.class_weight is not None:
            check_choice("class_weight", self.class_weight, ("balanced",))

    def _weights(self, y: npt.NDArray[Any], sample_weight: Any, n_samples: int) -> tuple[FloatArray | None, float]:
        weight, unit = super()._weights(y, sample_weight, n_samples)
        if self.class_weight is None:
            return weight, unit
        weight = np.ones(len(y)) if weight is None else weight
        counted = np.flatnonzero(weight)  # "balanced" must not count samples of weight zero
        with foreign_errors():
            weight[counted] *= compute_sample_weight(self.class_weight, y[counted])
        relative = relative_weights("sample_weight times class_weight", torch.from_numpy(weight)).numpy()
        return relative, unit * float(weight.max())

    @property
    def _loss_name(self) -> str:
        """The loss of the fit; before, the one that the parameters ask for."""
        if hasattr(self, "network_"):
            return self.network_.heads[0].loss
        if self.loss is not None:
            return self.loss
        return "squared" if self._is_ridge else "logistic" if len(self.classes_) == 2 else "softmax"

    def _loss(self) -> str | Loss:
        return Softmax(len(self.classes_)) if self._loss_name == "softmax" else self._loss_name

    def read_targets(self, y: Any) -> npt.NDArray[Any]:
        """Return labels in any form that ``fit`` accepts as an array of numbers or strings.

        Parameters
        ----------
        y : array
            The labels.

        Returns
        -------
        array of shape (n_samples,)
            The same labels.
        """
        if y is None:
            raise InvalidInputError("requires y to be passed, but the target y is None: pass one label per sample")
        return read_labels("label", y)

    def _targets(self, y: npt.NDArray[Any], reset: bool, classes: Any = None) -> npt.NDArray[Any]:
        with foreign_errors():
            assert_all_finite(y, input_name="y")
            check_classification_targets(y)
        if reset:
            self.classes_ = np.unique(y if classes is None else read_labels("class", classes))
            if len(self.classes_) < 2:
                label = y.tolist()[0]
                raise InvalidInputError(
                    f"expected at least two classes, got only one class, {label!r}: nothing to learn"
                )
        unknown = {*y.tolist()} - {*self.classes_.tolist()}
        if unknown:
            raise InvalidInputError(
                f"unknown labels {sorted(unknown, key=str)[:5]}: the fitted classes are {self.classes_.tolist()}"
            )
        # The classes are sorted, unless somebody has changed them, and every label is among them.
        order = np.argsort(self.classes_)
        indices: npt.NDArray[Any] = order[np.searchsorted(self.classes_, y, sorter=order)]
        if self._loss_name != "softmax" and len(self.classes_) > 2:
            one_hot: npt.NDArray[Any] = np.eye(len(self.classes_))[indices]
            return one_hot
        # A decision is the sign of the output, so the classes of a loss for real targets are -1 and 1.
        return 2 * indices - 1 if LOSSES[self._loss_name].is_regression else indices

    def _classes_of(self, data: TrainingSet) -> npt.NDArray[np.int64]:
        targets = np.asarray(data.targets[UNNAMED_HEAD])
        classes: npt.NDArray[np.int64] = targets.argmax(1) if targets.ndim == 2 else targets.clip(min=0)
        return classes

    def _calibrate(self, program: Program, data: TrainingSet, verdict: Verdict) -> Sequence[float]:
        if self._loss() != "squared" or verdict.scores is None or verdict.rows is None:
            return ()
        rows, scores = verdict.rows.cpu(), verdict.scores.cpu()
        labels = self._classes_of(data)[rows.numpy()]
        weight = None if data.sample_weight is None else data.sample_weight[rows]
        weight = make_row_weight(weight, "uniform", len(rows), 1, torch.device("cpu"))
        self.probability_scale_ = fit_scale(scores, labels, weight)
        if not program.intercept:
            return ()
        shift = fit_shift(scores, labels, weight, self.probability_scale_)
        if not _is_worthwhile(shift, scores, labels, weight, self.probability_scale_):
            return ()
        self.probability_scale_ = fit_scale(scores + shift, labels, weight)
        return tuple(shift.tolist())

    def _errors(self, outputs: FloatArray, data: TrainingSet) -> FloatArray:
        errors: FloatArray = (decide_class(outputs) != self._classes_of(data)).astype(float)
        return errors

    def _score(self, outputs: FloatArray, data: TrainingSet, weight: FloatArray, loss: float) -> tuple[float, float]:
        share = float(weight @ (1 - self._errors(outputs, data)))
        # Rounded, so that rounding does not rank networks with equally many right answers: the loss ranks those.
        return round(share * 2**40) / 2**40, -loss


SHIFT_STRENGTH = 5.0
"""Strength of the squared shifts beside the sum of the log-losses of all samples, as if each had a standard deviation
of 0.32 beside targets that are one or two apart. Chosen on thirds of training data."""

SHIFT_GAIN = 0.5
"""Least gain in the log-likelihood of all samples left out for which targets are shifted. Smaller ones are noise:
chosen on thirds of training data, where a quarter of the fits has all the gain."""


def fit_scale(scores: Tensor, labels: npt.NDArray[np.int64], weight: Tensor) -> float:
    """Return the scale that minimises the mean log-loss of the probabilities.

    Each label is smoothed by 1 / (n + 2), as in Platt's method, so that samples that are all classified correctly do
    not make probabilities certain.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_outputs)
        Scores of samples left out. One output is positive for the second of two classes.
    labels : array of shape (n_samples,)
        The classes, from 0.
    weight : Tensor of shape (n_samples,)
        Weights of the samples, which sum to one.

    Returns
    -------
    float
        The scale, above zero.
    """
    target = _smoothed(labels, max(2, scores.shape[1]))
    size = float(scores.square().mean().sqrt()) or 1.0  # the bounds below are relative to it
    unscaled = logits(scores, 1.0)

    def loss(exponent: float) -> float:
        likelihood = torch.log_softmax(10**exponent / size * unscaled, dim=1)
        return -float(weight @ (target * likelihood).sum(1))

    # The loss is convex in the scale, so it has a single minimum over the exponents, too.
    return float(10 ** minimize_scalar(loss, bounds=(-3.0, 5.0), method="bounded").x / size)


def fit_shift(scores: Tensor, labels: npt.NDArray[np.int64], weight: Tensor, scale: float) -> Tensor:
    """Return what to add to the scores of each class so that their probabilities have the least log-loss.

    Shifts are penalised by their squares, less the more samples there are. With many classes, or classes of different
    sizes, scores of samples left out favour some classes; a read-out fitted to all samples does not show it.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_outputs)
        Scores of samples left out.
    labels : array of shape (n_samples,)
        The classes, from 0.
    weight : Tensor of shape (n_samples,)
        Weights of the samples, which sum to one.
    scale : float
        The factor that makes probabilities of scores.

    Returns
    -------
    Tensor of shape (n_outputs,)
        The shifts.
    """
    target = _smoothed(labels, max(2, scores.shape[1]))
    strength = SHIFT_STRENGTH * float(weight @ weight)  # 1/n for equal weights
    unscaled = logits(scores, 1.0)

    def loss(values: FloatArray) -> tuple[float, FloatArray]:
        shift = torch.from_numpy(values)
        of_classes = torch.nn.functional.pad(shift, (unscaled.shape[1] - len(shift), 0))
        likelihood = torch.log_softmax(scale * (unscaled + of_classes), dim=1)
        slope = scale * (weight @ (likelihood.exp() - target))[-scores.shape[1] :]
        value = strength * float(shift @ shift) - float(weight @ (target * likelihood).sum(1))
        return value, (slope + 2 * strength * shift).numpy()

    found = minimize(loss, np.zeros(scores.shape[1]), jac=True, method="L-BFGS-B")
    return torch.from_numpy(np.asarray(found.x, dtype=np.float64))


def _is_worthwhile(shift: Tensor, scores: Tensor, labels: npt.NDArray[np.int64], weight: Tensor, scale: float) -> bool:
    """Return whether shifts raise the log-likelihood of all samples clearly, and misclassify no more of them."""
    target = _smoothed(labels, max(2, scores.shape[1]))
    n_samples = 1 / float(weight @ weight)  # as many as have this weight if it is equal
    shares, likelihoods = [], []
    for own in (scores, scores + shift):
        likelihood = torch.log_softmax(logits(own, scale), dim=1)
        likelihoods.append(n_samples * float(weight @ (target * likelihood).sum(1)))
        shares.append(float(weight @ (decide_class(own) == torch.from_numpy(labels)).to(weight)))
    return likelihoods[1] >= likelihoods[0] + SHIFT_GAIN and shares[1] >= shares[0]


def _smoothed(labels: npt.NDArray[np.int64], n_classes: int) -> Tensor:
    smooth = 1 / (len(labels) + 2)
    target = torch.full((len(labels), n_classes), smooth / (n_classes - 1), dtype=torch.float64)
    target[torch.arange(len(labels)), torch.from_numpy(labels)] = 1 - smooth
    return target
