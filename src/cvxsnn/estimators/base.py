"""What classifier and regressor have in common: parameters, data, and how they are fitted and certified."""

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from ..convex import Certificate, solve
from ..convex.objective import Objective
from ..core.checks import as_real, check_device, foreign_errors, relative_weights
from ..core.errors import InvalidInputError, OtherDataWarning
from ..core.progress import ShownProgress
from ..core.seeds import child_generator
from ..data.sequences import DataFingerprint, Sequences, TrainingSet, stratified_order
from ..data.tasks.task import UNNAMED_HEAD
from ..dictionary.readout import parse_readout
from ..network.energy import count_operations
from ..network.reconstruction import Proof, reconstruct
from ..network.spiking_network import SpikingNetwork
from ..network.summary import summarise
from ..theory.complete_certificate import CompleteCertificate, certify_complete
from ..training.methods import METHODS, train
from ..training.mixture import Mixing, MixtureFit, fit_mixture
from ..training.scores import Score
from ..training.search import Tuning
from ..training.selection import Sparsity
from ..training.stages import Split
from ..witnesses.delayed import N_CALIBRATION, log_calibration
from ..witnesses.family import has_delays, is_reproducible
from .choices import EstimatorChoices
from .history import History, StageSummary, summarise_mixture, summarise_stage
from .inputs import count_samples, feature_scale, read_inputs, refuse_long_table, standardise
from .pickling import PickledNetwork, PickledProof
from .summary import ModelSummary

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FittedState:
    """What an estimator has learned from data: all that predictions and certificates need besides its parameters.

    Parameters
    ----------
    network : SpikingNetwork
        The network.
    mean : array of shape (n_features,)
        What is subtracted from each feature.
    scale : array of shape (n_features,)
        What each feature is divided by.
    is_sequential : bool
        Whether it was fitted to sequences rather than to rows of features.
    proof : Proof or None
        How to certify the read-out again, where it is the optimum of a convex program.
    feature_names : array of str or None
        Names of the features, where they had any.
    classes : array or None
        The labels of a classifier.
    is_flat : bool
        Whether the targets of a regressor had one axis.
    probability_scale : float or None
        What scores are multiplied by before they become probabilities, where that was fitted.
    fingerprint : DataFingerprint or None
        The fingerprint of the training data; files of earlier versions have none.
    """

    network: SpikingNetwork
    mean: FloatArray
    scale: FloatArray
    is_sequential: bool
    proof: Proof | None
    feature_names: npt.NDArray[Any] | None
    classes: npt.NDArray[Any] | None
    is_flat: bool
    probability_scale: float | None = None
    fingerprint: DataFingerprint | None = None


class SpikingEstimator(EstimatorChoices, ABC):
    """The base of classifier and regressor."""

    _learned: ClassVar = (
        *("network_", "certificate_", "history_", "classes_", "_proof", "_mean", "_scale"),
        *("_is_sequential", "_is_flat", "_probability_scale", "_fingerprint"),
    )
    """Attributes that ``fit`` sets, besides the number and the names of the features."""

    _proof: Proof | None
    _is_sequential: bool
    network_: SpikingNetwork
    certificate_: Certificate | None
    history_: History
    _fingerprint: DataFingerprint | None = None

    def certify(self, X: Any, y: Any, sample_weight: Any = None) -> Certificate:
        """Certify again, from the data that the model was fitted to, how good its read-out is.

        An :class:`OtherDataWarning` says what differs if the data are others. The certificate holds for the data given.

        Parameters
        ----------
        X : array or list of arrays
            The sequences that the model was fitted to.
        y : array
            Their targets.
        sample_weight : array of shape (n_samples,), optional
            Their weights.

        Returns
        -------
        Certificate
            Bounds on the optimum over the sampled neurons.
        """
        proof = self._checked_proof()
        found, stated = proof.certify(self._same_data(X, y, sample_weight)), proof.certificate
        if self._fingerprint is None and abs(found.primal - stated.primal) > 1e-9 * max(1.0, abs(stated.primal)):
            _warn_of_other_data([f"the objective ({found.primal:.6g} instead of {stated.primal:.6g})"])
        return found

    def certify_complete(
        self, X: Any, y: Any, sample_weight: Any = None, *, max_seconds: float = 60.0
    ) -> CompleteCertificate:
        """Bound how much *any* LIF neurons with the same decay could gain, by pricing all of them exactly.

        If the neurons have delays, only neurons that read by the same taps are covered.

        Parameters
        ----------
        X : array or list of arrays
            The sequences that the model was fitted to.
        y : array
            Their targets.
        sample_weight : array of shape (n_samples,), optional
            Their weights.
        max_seconds : float
            The time for each output.

        Returns
        -------
        CompleteCertificate
            Bounds on the optimum over all such neurons.
        """
        return certify_complete(self._checked_proof(), self._same_data(X, y, sample_weight), max_seconds=max_seconds)

    def with_refitted_readout(
        self,
        refit: Callable[[Proof, TrainingSet], tuple[SpikingNetwork, Proof]],
        X: Any,
        y: Any,
        sample_weight: Any = None,
    ) -> Self:
        """Return a copy with another network and its proof, found on the data of the fit.

        Parameters
        ----------
        refit : callable
            ``refit(proof, data)`` returns the new network and its proof.
        X : array or sequence of arrays
            The inputs that the model was fitted to.
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            The targets that it was fitted to.
        sample_weight : array of shape (n_samples,), optional
            The weights that it was fitted with.

        Returns
        -------
        SpikingEstimator
            The copy.
        """
        twin = copy(self)
        twin.network_, twin._proof = refit(self._checked_proof(), self._same_data(X, y, sample_weight))
        twin.certificate_ = twin._proof.certificate
        return twin

    def summary(self, X: Any = None) -> ModelSummary:
        """Tell what was tried, what was chosen and why, what is proven, and what an answer costs.

        Parameters
        ----------
        X : array or list of arrays, optional
            Sequences on which to count spikes and synaptic operations. A few hundred are enough.

        Returns
        -------
        ModelSummary
            The summary, which prints as text.
        """
        check_is_fitted(self)
        return ModelSummary(
            name=type(self).__name__,
            history=self.history_,
            certificate=self.certificate_,
            network=summarise(self.network_),
            n_read=self.network_.n_active,
            n_sampled=None if self._proof is None else self._proof.witnesses.n_witnesses,
            operations=None if X is None else count_operations(self.network_, self._inputs(X, reset=False)),
        )

    def explore(
        self,
        X: Any,
        y: Any,
        *,
        training: tuple[Any, ...] | None = None,
        name: str | None = None,
        max_seconds: float = 60.0,
    ) -> Any:
        """Make a page about the model: what it does, why it is optimal, its neurons, single sequences and costs.

        Parameters
        ----------
        X : array or list of arrays
            Sequences to show the model on.
        y : array
            Their targets.
        training : tuple, optional
            The sequences, targets and, if there were any, sample weights that the model was fitted to, for the sections
            on the optimum and the path. Not needed if ``X`` and ``y`` are these.
        name : str, optional
            The title of the page; by default the class of the model.
        max_seconds : float
            Time for solving the problem again at other strengths.

        Returns
        -------
        cvxsnn.app.explore.Exploration
            The page, which a notebook shows; ``save(path)`` writes it to a file for a browser.
        """
        check_is_fitted(self)
        from ..app.explore import explore

        return explore(self, X, y, training=training, name=name, max_seconds=max_seconds)

    @property
    def proof_(self) -> Proof:
        """The certified read-out with all that it takes to certify it again, except for the data."""
        return self._checked_proof()

    @property
    def input_scale_(self) -> tuple[FloatArray, FloatArray]:
        """Mean and spread by which each feature is standardised, two arrays of shape (n_features,)."""
        return self._mean, self._scale

    def _state(self) -> FittedState:
        """Return what was learned, for a file."""
        check_is_fitted(self)
        return FittedState(
            network=self.network_,
            mean=self._mean,
            scale=self._scale,
            is_sequential=self._is_sequential,
            proof=self._proof,
            feature_names=getattr(self, "feature_names_in_", None),
            classes=getattr(self, "classes_", None),
            is_flat=getattr(self, "_is_flat", True),
            probability_scale=getattr(self, "_probability_scale", None),
            fingerprint=self._fingerprint,
        )

    def _restore(self, state: FittedState) -> None:
        """Become the estimator that had learned this; how it was trained is not restored."""
        self.network_, self._proof, self.history_ = state.network, state.proof, History()
        self.certificate_ = None if state.proof is None else state.proof.certificate
        self.n_features_in_, self._is_sequential = state.network.n_features, state.is_sequential
        self._mean, self._scale, self._fingerprint = state.mean, state.scale, state.fingerprint
        if state.feature_names is not None:
            self.feature_names_in_ = state.feature_names
        if state.classes is None:
            self._is_flat = state.is_flat
        else:
            self.classes_, self._probability_scale = state.classes, state.probability_scale

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle holds: sampled witnesses as their recipe, as in a model file."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "network_" in state:
            state["network_"] = PickledNetwork.of(state["network_"])
        proof: Proof | None = state.get("_proof")
        if proof is not None and is_reproducible(proof.witnesses):
            state["_proof"] = PickledProof.of(proof)
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore what a pickle holds, and draw the sampled witnesses again."""
        packed = {name: value for name, value in state.items() if isinstance(value, (PickledNetwork, PickledProof))}
        super().__setstate__({**state, **{name: value.restore() for name, value in packed.items()}})

    def _checked_proof(self) -> Proof:
        check_is_fitted(self)
        if self._proof is None:
            raise InvalidInputError(
                f"expected a model whose read-out is the optimum of a convex program, got method={self.method!r}: only "
                f"{', '.join(name for name, kind in METHODS.items() if kind.stages[-1] == 'convex')} prove anything"
            )
        return self._proof

    def _scores(self, X: Any) -> FloatArray:
        """Return the outputs of the network, shape (n_samples, n_outputs)."""
        check_is_fitted(self)
        sequences = self._inputs(X, reset=False)
        with torch.no_grad():
            scores: FloatArray = self.network_(sequences).cpu().numpy()
        return scores

    def _fit(self, data: TrainingSet, objective: Objective, labels: npt.NDArray[Any] | None) -> None:
        """Train on the data; what is held out for validation is stratified by ``labels``."""
        with ShownProgress(self.verbose) as progress:
            self._train(data, objective, labels, progress)
        self._fingerprint = DataFingerprint.of(data)

    def _train(
        self, data: TrainingSet, objective: Objective, labels: npt.NDArray[Any] | None, progress: ShownProgress
    ) -> None:
        parse_readout(objective.readout).check_length(data.sequences.n_steps)
        seed, family, sparsity = self._seed(), None, self._sparsity()
        earlier: tuple[StageSummary, ...] = ()
        if self._is_mixed:
            found = self._fit_mixture(data, seed, sparsity, progress)
            if self._is_ridge:
                return
            family, earlier = found.solution.problem.dictionary.witnesses, self.history_[:1]
            objective = replace(objective, readout=found.readout)
        settings = self._settings(objective, self._family(data) if family is None else family, seed)
        has_gradients = "gradient" in METHODS[self.method].stages
        needs_validation = has_gradients or not settings.convex.is_fixed or isinstance(settings.family, Tuning)
        train_set, held_out = self._divide(data, labels, settings.seed) if needs_validation else (data, data)
        split = Split(train_set, lambda network: self._validate(network, held_out))
        trained = train(self.method, split, settings, callback=progress, n_jobs=self.n_jobs)
        if isinstance(trained.settings.family, Mapping) and has_delays(trained.settings.family):
            log_calibration(len(train_set), trained.settings.family.get("n_calibration", N_CALIBRATION))
        self.network_, self.history_ = trained.network, History((*earlier, *map(summarise_stage, trained.history)))
        solution, objective = trained.solution, trained.settings.objective
        if solution is not None and train_set is not data:
            # Validation has chosen the strengths; the read-out itself may learn from all data.
            solution = solve(Proof.of(solution, objective).problem(data), self.tol)
            self.network_ = reconstruct(solution)
        self.certificate_ = None if solution is None else solution.certificate
        self._proof = None if solution is None else Proof.of(solution, objective)

    def _fit_mixture(
        self, data: TrainingSet, seed: int, sparsity: Sparsity | None, progress: ShownProgress
    ) -> MixtureFit:
        """Choose a mixture of neurons with delays, and read them by ridge regression."""
        mixing = Mixing(
            self._n_neurons(),
            self._readouts(data.sequences.n_steps) or (self._readout(),),
            self.intercept,
            self.tol,
            self._seconds(),
            sparsity,
        )
        targets = self._real_targets(np.asarray(data.targets[UNNAMED_HEAD]))
        real = TrainingSet(data.sequences, {UNNAMED_HEAD: targets}, data.sample_weight)
        begin = time.perf_counter()
        notify = partial(progress, "fit (%)")
        found = fit_mixture(real, Objective("squared"), mixing, seed=seed, callback=notify)
        self.network_ = reconstruct(found.solution)
        self.history_ = History(summarise_mixture(found, time.perf_counter() - begin))
        self.certificate_ = found.solution.certificate
        self._proof = Proof.of(found.solution, Objective("squared", found.readout))
        self._calibrate(found, real)
        return found

    def _divide(self, data: TrainingSet, labels: npt.NDArray[Any] | None, seed: int) -> tuple[TrainingSet, TrainingSet]:
        """Return training and validation data, with every class in the first; too few to divide serve as both."""
        n_classes = 1 if labels is None else len(np.unique(labels))
        n_held = min(int(np.ceil(self.validation_fraction * len(data))), len(data) - max(n_classes, 2))
        if n_held < n_classes:
            return data, data
        order = stratified_order(labels, child_generator(seed, "validation"), len(data))
        return data.take(order[:-n_held].sort().values), data.take(order[-n_held:].sort().values)

    def _inputs(self, X: Any, reset: bool, sample_weight: FloatArray | None = None) -> Sequences:
        """Return standardised sequences; ``reset`` learns names and scale of the features from them."""
        sequences = read_inputs(self, X, reset=reset)
        if reset:
            self._mean, self._scale = np.zeros(self.n_features_in_), np.ones(self.n_features_in_)
            if self.standardize:
                self._mean, self._scale = feature_scale(sequences, sample_weight)
        scaled = standardise(sequences.inputs.numpy(), self._mean, self._scale)
        return Sequences(torch.from_numpy(scaled), sequences.lengths).to(check_device(self.device))

    def _training_set(self, X: Any, y: Any, sample_weight: Any, reset: bool = False) -> TrainingSet:
        """Return checked data as a training set; ``reset`` learns what to expect of them later."""
        self._check_parameters()
        refuse_long_table(X, y)
        y = self._read_targets(y)
        weight = self._weights(X, y, sample_weight)
        if weight is not None and not weight.all():
            check_lengths(count_samples(X), len(y))
            counted = np.flatnonzero(weight)  # the others are as good as not there
            X = list(X.values()) if isinstance(X, Mapping) else X
            with foreign_errors():
                X = _safe_indexing(X, counted)
            y, weight = y[counted], weight[counted]
        sequences = self._inputs(X, reset, weight)
        targets = self._targets(y, reset)
        check_lengths(len(sequences), len(targets))
        return TrainingSet(sequences, {UNNAMED_HEAD: targets}, None if weight is None else torch.from_numpy(weight))

    def _same_data(self, X: Any, y: Any, sample_weight: Any) -> TrainingSet:
        """Return the data that the model was fitted to, as a training set; warn of others."""
        data = self._training_set(X, y, sample_weight)
        if self._fingerprint is not None:
            _warn_of_other_data(self._fingerprint.differences(DataFingerprint.of(data)))
        return data

    def _weights(self, X: Any, y: npt.NDArray[Any], sample_weight: Any) -> FloatArray | None:
        """Return the weights of the samples, the largest of them one; None weighs all alike."""
        if sample_weight is None:
            return None
        n_samples = count_samples(X)
        weight = as_real("sample_weight", sample_weight)
        weight = np.full(n_samples, weight) if weight.ndim == 0 else weight
        if weight.shape != (n_samples,):
            raise InvalidInputError(
                f"expected one sample_weight for each of {n_samples} samples, got shape {weight.shape}"
            )
        return relative_weights("sample_weight", torch.tensor(weight)).numpy()

    @abstractmethod
    def _read_targets(self, y: Any) -> npt.NDArray[Any]:
        """Return what was passed as y as an array with one entry or row per sample."""

    @abstractmethod
    def _targets(self, y: npt.NDArray[Any], reset: bool) -> npt.NDArray[Any]:
        """Return targets as numbers; ``reset`` learns what to expect of them later."""

    @abstractmethod
    def _real_targets(self, targets: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return targets as real numbers for least squares."""

    def _calibrate(self, found: MixtureFit, data: TrainingSet) -> None:
        """Learn what is needed for probabilities from the scores of samples left out."""

    @abstractmethod
    def _validate(self, network: SpikingNetwork, held_out: TrainingSet) -> Score:
        """Return the score of a network on held-out data; higher is better."""


def check_lengths(n_samples: int, n_targets: int) -> None:
    """Refuse data and targets of unequal length."""
    if n_targets != n_samples:
        raise InvalidInputError(
            f"expected one target for each of {n_samples} samples, got {n_targets}: X and y differ in length"
        )


def _warn_of_other_data(differences: Sequence[str]) -> None:
    if differences:
        warnings.warn(
            f"these are not the data that the model was fitted to: {' and '.join(differences)} differ; what is "
            "certified now holds for the data given",
            OtherDataWarning,
            stacklevel=4,
        )
