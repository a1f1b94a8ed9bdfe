"""What classifier and regressor have in common: parameters, data, and how they are fitted and certified."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from numbers import Real
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import _check_sample_weight, _num_samples, check_is_fitted

from ..convex import Certificate, solve
from ..convex.objective import Objective
from ..core.checks import check_choice, check_device, check_positive_int, relative_weights
from ..core.errors import InvalidInputError
from ..core.progress import ShownProgress
from ..core.seeds import child_generator
from ..data.sequences import Sequences, TrainingSet, stratified_order
from ..data.tasks.task import UNNAMED_HEAD
from ..dictionary import Readout
from ..dictionary.packed import parse_readout
from ..network.energy import count_operations
from ..network.reconstruction import Proof, reconstruct
from ..network.spiking_network import SpikingNetwork
from ..network.summary import summarise
from ..neurons import NEURON_MODELS
from ..theory.complete_certificate import CompleteCertificate, certify_complete
from ..training.methods import METHODS, Settings, Stage, train
from ..training.mixture import HELD_OUT, Mixing, MixtureFit, MixtureTrial, fit_mixture
from ..training.scores import Score
from ..training.search import Tuning
from ..training.selection import Sparsity
from ..training.stages import ConvexSettings, Split
from ..training.surrogate.settings import SurrogateSettings
from ..witnesses import Distribution, Normal, Uniform, WitnessSet
from ..witnesses.delayed import N_CALIBRATION, log_calibration
from ..witnesses.family import has_delays, is_reproducible
from .history import History, StageSummary, TrialSummary
from .inputs import read_inputs, refuse_long_table
from .pickling import PickledNetwork, PickledProof
from .summary import ModelSummary

FloatArray = npt.NDArray[np.float64]

_NEURONS, _FEWER_NEURONS = 4096, 1024
"""Sampled by default: LIF neurons for a read-out alone; and those to train, or that read each other."""
_TRIALS = (64, 192)
_TUNING_NEURONS, _TUNING_SHARES = 1024, (8, 2, 1)
"""With which families are compared: on few sequences, a few dozen neurons tell them badly apart."""

_DEFAULT_FAMILY: Mapping[str, Any] = {"decay": Uniform(0.5, 1.0), "bias": Normal(0.0, 0.5)}
_PAPERS_FAMILY: Mapping[str, Any] = {"decay": 0.9, "threshold": 1.0, "bias": 0.0, "gain": 1.0}


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


class SpikingEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """The base of classifier and regressor."""

    _proof: Proof | None
    _is_sequential: bool
    network_: SpikingNetwork
    certificate_: Certificate | None
    history_: History

    def __init__(
        self,
        method: str = "cvx",
        hidden: tuple[int, ...] | None = None,
        n_subnetworks: int | None = None,
        *,
        n_neurons: int | str = "auto",
        max_seconds: float | None = None,
        witnesses: str | Mapping[str, Any] | WitnessSet = "auto",
        n_trials: int | None = None,
        max_tuning_seconds: float | None = None,
        neuron: str = "lif",
        decay: Distribution | float | None = None,
        threshold: Distribution | float | None = None,
        bias: Distribution | float | None = None,
        gain: Distribution | float | None = None,
        fan_in: int | None = None,
        readout: str | None = None,
        windows: int | None = None,
        loss: str | None = None,
        penalty: str = "auto",
        l1_strength: float | str = "auto",
        l2_strength: float | str = "auto",
        sparsity: int | str | None = None,
        intercept: bool = True,
        layout: str | None = None,
        standardize: bool = True,
        validation_fraction: float = 0.2,
        tol: float = 1e-6,
        surrogate: SurrogateSettings | None = None,
        device: str = "cpu",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | str = "auto",
    ) -> None:
        self.method = method
        self.hidden = hidden
        self.n_subnetworks = n_subnetworks
        self.n_neurons = n_neurons
        self.max_seconds = max_seconds
        self.witnesses = witnesses
        self.n_trials = n_trials
        self.max_tuning_seconds = max_tuning_seconds
        self.neuron = neuron
        self.decay = decay
        self.threshold = threshold
        self.bias = bias
        self.gain = gain
        self.fan_in = fan_in
        self.readout = readout
        self.windows = windows
        self.loss = loss
        self.penalty = penalty
        self.l1_strength = l1_strength
        self.l2_strength = l2_strength
        self.sparsity = sparsity
        self.intercept = intercept
        self.layout = layout
        self.standardize = standardize
        self.validation_fraction = validation_fraction
        self.tol = tol
        self.surrogate = surrogate
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def certify(self, X: Any, y: Any, sample_weight: Any = None) -> Certificate:
        """Certify again, from the data that the model was fitted to, how good its read-out is.

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
        return self._checked_proof().certify(self._training_set(X, y, sample_weight))

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
        return certify_complete(self._checked_proof(), self._training_set(X, y, sample_weight), max_seconds=max_seconds)

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
        twin.network_, twin._proof = refit(self._checked_proof(), self._training_set(X, y, sample_weight))
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
        )

    def _restore(self, state: FittedState) -> None:
        """Become the estimator that had learned this; how it was trained is not restored."""
        self.network_, self._proof, self.history_ = state.network, state.proof, History()
        self.certificate_ = None if state.proof is None else state.proof.certificate
        self.n_features_in_, self._is_sequential = state.network.n_features, state.is_sequential
        self._mean, self._scale = state.mean, state.scale
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

    def _train(
        self, data: TrainingSet, objective: Objective, labels: npt.NDArray[Any] | None, progress: ShownProgress
    ) -> None:
        check_choice("method", self.method, tuple(METHODS))
        if not 0 < self.validation_fraction < 1:
            raise InvalidInputError(f"expected validation_fraction between 0 and 1, got {self.validation_fraction!r}")
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
        self.network_, self.history_ = trained.network, History((*earlier, *map(_summarise, trained.history)))
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
            inf if self.max_seconds is None else self.max_seconds,
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

    def _seed(self) -> int:
        seed = self.random_state
        return int(seed if isinstance(seed, (int, np.integer)) else check_random_state(seed).randint(2**31))

    def _settings(self, objective: Objective, family: Mapping[str, Any] | WitnessSet | Tuning, seed: int) -> Settings:
        """Return the settings of training that the parameters stand for."""
        surrogate = None
        if "gradient" in METHODS[self.method].stages:
            surrogate = self.surrogate or SurrogateSettings(epochs=50, seed=seed)
        convex = ConvexSettings(
            self._strength("l1_strength"),
            l2_strength=self._strength("l2_strength"),
            penalty=self._penalty,
            intercept=self.intercept,
            tol=self.tol,
        )
        return Settings(objective, family, convex, surrogate=surrogate, seed=seed)

    @property
    def _is_mixed(self) -> bool:
        """Whether neurons of several families are sampled together, because nothing else was asked for."""
        others = (self.decay, self.threshold, self.bias, self.gain, self.fan_in, self.n_subnetworks)
        is_open = all(value is None for value in others) and self.method == "cvx" and self.neuron == "lif"
        has_one_layer = self.hidden is None or np.size(np.asarray(self.hidden, dtype=object)) == 1
        is_searched = self.n_trials is not None or self.max_tuning_seconds is not None
        named = isinstance(self.witnesses, str) and self.witnesses in ("auto", "mixed")
        return named and is_open and has_one_layer and not is_searched

    @property
    def _is_ridge(self) -> bool:
        """Whether the read-out is that of ridge regression, at the strength that leave-one-out errors choose."""
        is_plain = self.penalty == "auto" and self.l1_strength == "auto" and self.l2_strength == "auto"
        return self._is_mixed and is_plain and self.loss in (None, "squared")

    @property
    def _penalty(self) -> str:
        if self.penalty != "auto":
            return self.penalty
        return "elastic-net" if self._is_mixed and self.l1_strength == "auto" else "l1"

    def _family(self, data: TrainingSet) -> Mapping[str, Any] | WitnessSet | Tuning:
        """Return the witnesses or the family that was named, or how to search for one if none was."""
        given = {"decay": self.decay, "threshold": self.threshold, "bias": self.bias, "gain": self.gain}
        named = {name: value for name, value in given.items() if value is not None}
        if isinstance(self.witnesses, (Mapping, WitnessSet)) and named:
            raise InvalidInputError(
                f"expected dynamics in witnesses or as parameters, got both: drop {', '.join(named)}"
            )
        if isinstance(self.witnesses, WitnessSet):
            return self.witnesses
        hidden, n_subnetworks = self._widths()
        sizes = {"hidden": hidden, "n_subnetworks": n_subnetworks}
        fan_in = {} if self.fan_in is None else {"fan_in": self.fan_in}
        if isinstance(self.witnesses, Mapping):
            return {**sizes, "neuron": self.neuron, **fan_in, **self.witnesses}
        if self.witnesses not in ("auto", "mixed", "search", "gaussian", "delayed"):
            raise InvalidInputError(
                "expected witnesses to be 'auto', 'mixed', 'search', 'gaussian', 'delayed', a family (a mapping of "
                f"arguments of gaussian_witnesses or delayed_witnesses) or a WitnessSet, got {self.witnesses!r}"
            )
        if self.witnesses == "mixed":
            raise InvalidInputError(
                "expected method 'cvx' and one layer of LIF neurons, without dynamics, for mixed witnesses, got other "
                "parameters: pass witnesses='search' or a family"
            )
        if self.witnesses == "delayed":
            return {"geometry": "scattered", **named, **sizes, "neuron": self.neuron, **fan_in}
        is_open = self.witnesses in ("auto", "search") and not named and self.fan_in is None and self.neuron == "lif"
        if is_open and METHODS[self.method].stages[0] == "convex" and METHODS[self.method].hidden == "sampled":
            is_free = self.hidden is None and self.n_subnetworks is None and self.method == "cvx"
            return Tuning(
                n_witnesses=hidden[-1],
                n_trials=self._n_trials(len(data)),
                max_seconds=inf if self.max_tuning_seconds is None else self.max_tuning_seconds,
                readouts=self._readouts(data.sequences.n_steps),
                hidden=None if self.hidden is None else hidden,
                n_subnetworks="auto" if is_free else n_subnetworks,
                n_compared=_TUNING_NEURONS,
                shares=_TUNING_SHARES,
            )
        family = dict(_PAPERS_FAMILY if self.witnesses == "gaussian" else _DEFAULT_FAMILY) | named
        if self.neuron != "lif":
            own = {"bias", "gain", *NEURON_MODELS.find(self.neuron).sampled}
            family = {name: value for name, value in family.items() if name in own}
        return {**family, **sizes, "neuron": self.neuron, **fan_in}

    def _sparsity(self) -> Sparsity | None:
        """Return at most how many neurons are read; None reads all."""
        sparsity = "accuracy" if self.sparsity is None else self.sparsity
        if isinstance(sparsity, str):
            check_choice("sparsity", sparsity, ("accuracy", "few"))
        else:
            sparsity = check_positive_int("sparsity", sparsity)
        if sparsity == "accuracy":
            return None
        if not self._is_ridge:
            raise InvalidInputError(
                f"expected mixed witnesses with their default penalty and loss for sparsity={sparsity!r}, got other "
                "parameters: pass l1_strength instead, which makes other read-outs sparse"
            )
        return "few" if isinstance(sparsity, str) else sparsity

    def _n_neurons(self) -> int | None:
        """Return the number of neurons of a mixture; None leaves it open."""
        if self.hidden is not None:
            return self._widths()[0][0]
        if isinstance(self.n_neurons, str):
            check_choice("n_neurons", self.n_neurons, ("auto",))
            return None
        return check_positive_int("n_neurons", self.n_neurons)

    def _widths(self) -> tuple[tuple[int, ...], int]:
        """Return the widths of the hidden layers, and the number of subnetworks."""
        n_subnetworks = 1 if self.n_subnetworks is None else check_positive_int("n_subnetworks", self.n_subnetworks)
        if self.hidden is None:
            n_neurons = _NEURONS if self.method == "cvx" and self.neuron == "lif" else _FEWER_NEURONS
            return (max(1, n_neurons // n_subnetworks),), n_subnetworks
        widths = tuple(np.ravel(np.asarray(self.hidden, dtype=object)))
        if not widths:
            raise InvalidInputError("expected hidden to list the layers' widths, got none: pass (256,)")
        return tuple(check_positive_int("hidden", width) for width in widths), n_subnetworks

    def _n_trials(self, n_samples: int) -> int:
        """Return the number of trials: as given, or as many as held-out data can tell apart, lest luck decide."""
        if self.n_trials is not None:
            return self.n_trials
        fewest, most = _TRIALS
        return min(max(int(self.validation_fraction * n_samples) // 2, fewest), most)

    def _readout(self) -> Readout:
        """Return the given read-out; by default the mean, unless a search finds the last step to be better."""
        parsed = parse_readout("mean" if self.readout is None else self.readout, self.windows)
        if parsed.kind == "all":
            check_choice("readout", "all", ("last", "mean", "windows-4"))
        return str(parsed)

    def _readouts(self, n_steps: int) -> tuple[Readout, ...]:
        """Return the read-outs that a search chooses from; none if there is no choice."""
        return ("mean", "last") if self.readout is None and self.windows is None and n_steps > 1 else ()

    def _strength(self, name: str) -> Any:
        """Return a strength that was given as a number, or "auto"."""
        strength = getattr(self, name)
        if isinstance(strength, Real) and not isinstance(strength, bool):
            return float(strength)
        return check_choice(name, strength, ("auto",))

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
        scaled = (sequences.inputs.numpy() - self._mean) / self._scale
        return Sequences(torch.from_numpy(scaled), sequences.lengths).to(check_device(self.device))

    def _training_set(self, X: Any, y: Any, sample_weight: Any, reset: bool = False) -> TrainingSet:
        """Return checked data as a training set; ``reset`` learns what to expect of them later."""
        refuse_long_table(X, y)
        weight = self._weights(X, y, sample_weight)
        if weight is not None and y is not None and not weight.all():
            check_lengths(_num_samples(X), _num_samples(y))
            counted = np.flatnonzero(weight)  # the others are as good as not there
            X = list(X.values()) if isinstance(X, Mapping) else X
            X, y, weight = _safe_indexing(X, counted), _safe_indexing(y, counted), weight[counted]
        sequences = self._inputs(X, reset, weight)
        targets = self._targets(y, reset)
        check_lengths(len(sequences), len(targets))
        return TrainingSet(sequences, {UNNAMED_HEAD: targets}, None if weight is None else torch.from_numpy(weight))

    def _weights(self, X: Any, y: Any, sample_weight: Any) -> FloatArray | None:
        """Return the weights of the samples, the largest of them one; None weighs all alike."""
        if sample_weight is None:
            return None
        weight = np.asarray(_check_sample_weight(sample_weight, np.empty((_num_samples(X), 1))), dtype=np.float64)
        return relative_weights("sample_weight", torch.tensor(weight)).numpy()

    @abstractmethod
    def _targets(self, y: Any, reset: bool) -> npt.NDArray[Any]:
        """Return targets as numbers; ``reset`` learns what to expect of them later."""

    @abstractmethod
    def _real_targets(self, targets: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return targets as real numbers for least squares."""

    def _calibrate(self, found: MixtureFit, data: TrainingSet) -> None:
        """Learn what is needed for probabilities from the scores of samples left out."""

    @abstractmethod
    def _validate(self, network: SpikingNetwork, held_out: TrainingSet) -> Score:
        """Return the score of a network on held-out data; higher is better."""


def feature_scale(sequences: Sequences, sample_weight: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Return mean and spread of each feature over all steps but padding; a spread of 1 where nothing varies.

    A feature that hardly ever differs from one value, such as a pixel at the border of an image, has a small standard
    deviation for its range. Its spread is raised, so that the ratio of range to spread is at most twice the median.
    """
    values: FloatArray = sequences.inputs.numpy()
    n_samples, n_steps, n_features = values.shape
    weight = np.ones((n_samples, n_steps)) if sample_weight is None else np.tile(sample_weight[:, None], n_steps)
    inside = sequences.is_inside()
    if inside is not None:
        weight = weight * inside.numpy()
    if weight.sum() == 0:
        return np.zeros(n_features), np.ones(n_features)
    share = (weight / weight.sum())[:, :, None]
    mean = (share * values).sum((0, 1))
    spread = np.sqrt((share * (values - mean) ** 2).sum((0, 1)))
    varies = spread > 1e-12 * (1 + abs(mean))
    counted = np.where(weight[:, :, None] > 0, values, mean)
    extent = counted.max((0, 1)) - counted.min((0, 1))
    if varies.any():
        spread = np.maximum(spread, 0.5 * extent / np.median(extent[varies] / spread[varies]))
    return mean, np.where(varies, spread, 1.0)


def check_lengths(n_samples: int, n_targets: int) -> None:
    """Refuse data and targets of unequal length."""
    if n_targets != n_samples:
        raise InvalidInputError(
            f"expected one target for each of {n_samples} samples, got {n_targets}: X and y differ in length"
        )


def summarise_mixture(found: MixtureFit, seconds: float) -> tuple[StageSummary, StageSummary]:
    """Return what is worth keeping of a mixture: how it was chosen, and the read-out."""
    trial, solution = found.chosen, found.solution
    score: Score = -trial.loss
    if trial.validation.accuracy is not None:
        score = (float(trial.validation.mean("accuracy")[0]), -trial.loss)
    tuning = StageSummary("tuning", score, seconds - solution.seconds, found.n_sampled, n_trials=len(found.trials))
    convex = StageSummary(
        "convex",
        score,
        solution.seconds,
        trial.n_witnesses,
        certificate=solution.certificate,
        l1_strength=solution.problem.l1_strength,
        l2_strength=solution.problem.l2_strength,
        gaps=tuple(moment.relative_gap for moment in solution.history),
    )
    trials = tuple(_summarise_trial(own, own is trial) for own in found.trials)
    chosen: dict[str, Any] = {"family": {"mixture": trial.mixture}, "readout": found.readout}
    return replace(tuning, **chosen, trials=trials, reason=found.reason), convex


def _summarise_trial(trial: MixtureTrial, is_chosen: bool) -> TrialSummary:
    accuracy = trial.validation.accuracy
    return TrialSummary(
        trial.mixture,
        trial.readout,
        trial.n_witnesses,
        trial.n_rows,
        trial.validation.method == HELD_OUT,
        trial.loss,
        None if accuracy is None else float(trial.validation.mean("accuracy")[0]),
        trial.ratio,
        trial.seconds,
        is_chosen,
    )


def _summarise(stage: Stage) -> StageSummary:
    """Return what is worth keeping of a stage: numbers, and none of the data."""
    if stage.tuned is not None:
        family = stage.tuned.family
        summary = StageSummary(stage.name, stage.score, stage.seconds, family["n_subnetworks"] * family["hidden"][-1])
        return replace(summary, n_trials=len(stage.tuned.trials), family=family, readout=stage.tuned.readout)
    assert stage.network is not None
    summary = StageSummary(stage.name, stage.score, stage.seconds, stage.network.n_active)
    if stage.solution is not None:
        return replace(
            summary,
            certificate=stage.solution.certificate,
            l1_strength=stage.solution.problem.l1_strength,
            l2_strength=stage.solution.problem.l2_strength,
            gaps=tuple(moment.relative_gap for moment in stage.solution.history),
        )
    if stage.run is not None:
        epochs = stage.run.history
        losses, scores = tuple(epoch.loss for epoch in epochs[1:]), tuple(epoch.score for epoch in epochs)
        return replace(summary, losses=losses, scores=scores)
    return summary
