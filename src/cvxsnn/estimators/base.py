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

from ..convex import Certificate, Solution, solve
from ..convex.objective import Objective
from ..core.checks import as_real, check_device, foreign_errors, relative_weights
from ..core.errors import InvalidInputError, OtherDataWarning
from ..core.progress import ShownProgress
from ..core.seeds import child_generator
from ..data.sequences import DataFingerprint, Sequences, TrainingSet, stratified_order
from ..data.tasks.task import UNNAMED_HEAD
from ..dictionary.base import parse_readout
from ..fitting.engine import Family, Fitted, fit
from ..fitting.gradient import Split
from ..fitting.judges import HeldOut
from ..fitting.methods import METHODS, Settings, train
from ..fitting.program import Program
from ..fitting.scores import Score
from ..fitting.search import Tuning, tune_witnesses
from ..fitting.surrogate.settings import SurrogateSettings
from ..network.energy import count_operations
from ..network.reconstruction import Proof, reconstruct
from ..network.spiking_network import SpikingNetwork
from ..network.summary import summarise
from ..theory.complete_certificate import CompleteCertificate, certify_complete
from .choices import DEFAULTS, EstimatorChoices
from .history import History, StageSummary, fit_score, summarise_fit, summarise_search, summarise_stage
from .inputs import count_samples, feature_scale, read_inputs, refuse_long_table, standardise
from .model_parts import Pickled
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
        cvxsnn.explore.Exploration
            The page, which a notebook shows; ``save(path)`` writes it to a file for a browser.
        """
        check_is_fitted(self)
        from ..explore import explore

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
            state["_pickled"] = Pickled.of(state.pop("network_"), state.pop("_proof"))
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore what a pickle holds, and draw the sampled witnesses again."""
        restored = dict(state)
        if "_pickled" in restored:
            restored["network_"], restored["_proof"] = restored.pop("_pickled").restore()
        super().__setstate__(restored)

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
        seed, program, families = self._seed(), self._program(objective), self._families(data)
        solution: Solution | None
        if self.method == "cvx":
            solution, objective = self._fit_convex(data, program, families, seed, progress)
        else:
            solution, objective = self._train_in_stages(data, program, families, labels, seed, progress)
        self.certificate_ = None if solution is None else solution.certificate
        self._proof = None if solution is None else Proof.of(solution, objective)

    def _fit_convex(
        self,
        data: TrainingSet,
        program: Program,
        families: Family | tuple[Family, ...] | Tuning,
        seed: int,
        progress: ShownProgress,
    ) -> tuple[Solution, Objective]:
        """Sample neurons and read them by the optimum of a convex program."""
        begin, budget = time.perf_counter(), self._budget()
        readouts = self._readouts(data.sequences.n_steps) if self._is_mixed else ()
        earlier: tuple[StageSummary, ...] = ()
        if isinstance(families, Tuning):
            notify = partial(progress, "0. tuning")
            tuned = tune_witnesses(data, program.objective, None, families, seed=seed, callback=notify)
            earlier = (summarise_search(tuned, time.perf_counter() - begin),)
            families, readouts = tuned.family, (tuned.readout,)
            budget = replace(budget, max_seconds=max(0.0, budget.max_seconds - earlier[0].seconds))
        begin = time.perf_counter()
        judge = HeldOut(DEFAULTS.one_held_out, seed=seed) if not self._is_ridge else None
        fitted = fit(
            data, families, program, judge, budget, readouts=readouts, seed=seed, callback=partial(progress, "fit (%)")
        )
        self.network_, objective = reconstruct(fitted.solution), fitted.program.objective
        score = fit_score(fitted.chosen)
        if score is None:
            score = self._validate(self.network_, data)
        self.history_ = History((*earlier, *summarise_fit(fitted, score, time.perf_counter() - begin)))
        self._calibrate(fitted, data)
        return fitted.solution, objective

    def _train_in_stages(
        self,
        data: TrainingSet,
        program: Program,
        families: Any,
        labels: npt.NDArray[Any] | None,
        seed: int,
        progress: ShownProgress,
    ) -> tuple[Solution | None, Objective]:
        """Train by a method with several stages, judged on held-out data."""
        surrogate = self.surrogate or SurrogateSettings(epochs=DEFAULTS.epochs, seed=seed)
        settings = Settings(program, families, surrogate=surrogate, seed=seed)
        train_set, held_out = self._divide(data, labels, seed)
        split = Split(train_set, lambda network: self._validate(network, held_out))
        trained = train(self.method, split, settings, callback=progress, budget=self._budget())
        self.network_, self.history_ = trained.network, History(tuple(map(summarise_stage, trained.history)))
        solution, objective = trained.solution, trained.settings.objective
        if solution is not None and train_set is not data:
            # Validation has chosen the strengths; the read-out itself may learn from all data.
            solution = solve(Proof.of(solution, objective).problem(data), self.tol)
            self.network_ = reconstruct(solution)
        return solution, objective

    def _divide(self, data: TrainingSet, labels: npt.NDArray[Any] | None, seed: int) -> tuple[TrainingSet, TrainingSet]:
        """Return training and validation data, with every class in the first; too few to divide serve as both."""
        n_classes = 1 if labels is None else len(np.unique(labels))
        n_held = min(-(-len(data) // DEFAULTS.one_held_out), len(data) - max(n_classes, 2))
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

    def _calibrate(self, fitted: Fitted, data: TrainingSet) -> None:
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
