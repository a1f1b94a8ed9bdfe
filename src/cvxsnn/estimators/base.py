"""The base class of classifier and regressor: reads data, fits a network, and certifies its read-out."""

import re
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial, wraps
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from ..convex import Certificate, Loss, Objective, Solution, solve
from ..convex.certificate import Candidate
from ..convex.objective import weighted_loss
from ..core.checks import as_real, check_bool, check_device, foreign_errors, relative_weights
from ..core.errors import InvalidInputError, OtherDataWarning
from ..core.formatting import plural
from ..core.progress import ShownProgress
from ..core.seeds import child_generator
from ..data import Sequences, TrainingSet
from ..data.sequences import DataFingerprint, deal_groups, stratified_order
from ..data.task import UNNAMED_HEAD
from ..dictionary.base import parse_readout
from ..fitting.engine import METHODS, Fitted, find_method, fit
from ..fitting.few import Sparsity
from ..fitting.judges import Verdict
from ..fitting.program import Program
from ..fitting.scores import Score
from ..fitting.search import Tuning, tune_witnesses
from ..fitting.updating import Kept, KeptRows, check_updatable
from ..network import Proof, SpikingNetwork, count_operations, reconstruct, summarise
from ..network.tracing import attribute
from ..neurons import find_target
from ..witnesses import WitnessSet
from .answers import Answers, FloatArray
from .choices import DEFAULTS, EstimatorChoices
from .explanation import Explanation
from .history import History, ModelSummary, StageSummary, of_solution, summarise_fit, summarise_search, trial_score
from .inputs import count_samples, feature_scale, n_axes, read_groups, read_inputs, standardise, warn_of_giants
from .model_parts import read_network, read_proof, write_network, write_proof
from .streams import Stream

if TYPE_CHECKING:
    from ..theory import CompleteCertificate

Method = TypeVar("Method", bound=Callable[..., Any])

Learned = tuple[Solution | None, Objective, TrainingSet]
"""The solution, if there is a proof, with its objective and data."""

MOST_LEFT_OUT = 500
"""Samples left out whose scores a model keeps, to compare those of new data with."""

_KEEPS_NOTHING = (
    "expected a model that keeps what it needs of its training data to be updated, got one that does not: call "
    "partial_fit, in place of fit, to train it"
)

_NAMED_BY_SCIKIT_LEARN = ("n_features_in_", "feature_names_in_")


def all_or_nothing(fit: Method) -> Method:
    """Run a method that fits an estimator on an unfitted copy, whose state the estimator takes over in one step.

    If the method raises or is interrupted, the estimator stays as it was, fitted or not. If it succeeds, nothing of an
    earlier fit is left. Attributes that others set meanwhile, such as parameters, are kept.

    Parameters
    ----------
    fit : method
        It may set any attributes. Those that its class lists as ``_learned`` are missing when it begins.

    Returns
    -------
    method
        The method for the estimator itself.
    """

    @wraps(fit)
    def fit_a_copy(estimator: Any, /, *args: Any, **kwargs: Any) -> Any:
        learned = {*_NAMED_BY_SCIKIT_LEARN, *estimator._learned}
        before = dict(vars(estimator))
        learner = estimator.__new__(type(estimator))
        vars(learner).update((name, value) for name, value in before.items() if name not in learned)
        result = fit(learner, *args, **kwargs)
        after = vars(learner)
        kept = {name: value for name, value in vars(estimator).items() if name in after or name not in before}
        new = {name: value for name, value in after.items() if name not in before or value is not before[name]}
        estimator.__dict__ = kept | new  # one assignment: an interrupt comes before or after it
        return estimator if result is learner else result

    return cast(Method, fit_a_copy)


def is_same_objective(found: Certificate, stated: Certificate) -> bool:
    """Return whether an objective computed now is the stated one, up to rounding.

    Sums are rounded in another order with other numbers of threads. The gap allows for this rounding, which is more
    than usual where an objective is tiny beside its terms.
    """
    share = min(max(1e-9, found.relative_gap), 1e-6)
    return abs(found.primal - stated.primal) <= share * found.primal


class SpikingEstimator(EstimatorChoices, Answers):
    """The base of classifier and regressor."""

    _learned: ClassVar = (
        *("network_", "certificate_", "_proof", "history_", "input_scale_", "is_sequential_", "fingerprint_"),
        *("classes_", "probability_scale_", "is_flat_", "_kept", "_left_out"),
    )
    """Attributes that ``fit`` sets, besides the number and the names of the features."""

    certificate_: Certificate | None
    _proof: Proof | None
    history_: History
    input_scale_: tuple[FloatArray, FloatArray]
    is_sequential_: bool
    fingerprint_: DataFingerprint | None = None
    probability_scale_: float | None = None
    _kept: Kept | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Insert the documentation of the parameters that the estimators share."""
        super().__init_subclass__(**options)
        if cls.__doc__ and EstimatorChoices.__doc__:
            _, parameters, attributes = re.split(r"\n\w+\n-+\n", cleandoc(EstimatorChoices.__doc__))
            text = cleandoc(cls.__doc__).replace("(shared parameters)", parameters.strip())
            cls.__doc__ = text.replace("(shared attributes)", attributes)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Train on sequences with labels or real targets.

        Parameters
        ----------
        X : array or list of arrays
            Sequences of shape (n_samples, n_steps, n_features), a list of arrays or tables (n_steps_i, n_features), or
            rows of shape (n_samples, n_features).
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            The labels of a classifier, or the targets of a regressor.
        sample_weight : array of shape (n_samples,), optional
            The weight of each sample; the ``class_weight`` of a classifier multiplies it.
        groups : array of shape (n_samples,), optional
            The group of each sample, any numbers or strings, such as the person who was recorded. Samples of one group
            are left out together wherever samples are left out, so that errors are those of new groups.

        Returns
        -------
        SpikingClassifier or SpikingRegressor
            The fitted estimator.
        """
        if hasattr(self, "network_") and check_bool("warm_start", self.warm_start):
            return self._fit_readout(X, y, sample_weight, groups)
        return self._fit(X, y, sample_weight, groups)

    @all_or_nothing
    def _fit(
        self, X: Any, y: Any, sample_weight: Any, groups: Any = None, classes: Any = None, keeps: bool = False
    ) -> Self:
        """Train from the start; ``keeps`` says whether to keep what :meth:`update` needs."""
        data = self._read(X, y, sample_weight, reset=True, groups=groups, classes=classes)
        objective = self._objective(self._loss())
        parse_readout(objective.readout).check_length(data.sequences.n_steps)
        # The read-out of trained neurons need not be least squares, which alone can be updated.
        learn = partial(self._fit_convex, may_train=not keeps) if self.method == "cvx" else self._train_in_stages
        with ShownProgress(self.verbose) as progress:
            solution, objective, data = learn(data, objective, self._seed(), progress)
        self._keep(solution, objective, data)
        if keeps and solution is not None and solution.problem.centre is None:
            rows = KeptRows.of(self.proof_, data, self._unit(X, y, sample_weight), solution.problem.dictionary)
            self._kept = rows.smallest(self.intercept)
        return self

    def compress(self, sparsity: Sparsity, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Return a model that reads fewer of the hidden neurons, as ``sparsity=`` does, without sampling them again.

        Neurons are selected from those of this model, and strengths are chosen again. For the default with an integer,
        as many neurons are also trained, and taken if they err less on samples left out. The model itself stays as it
        is.

        Parameters
        ----------
        sparsity : int or "few"
            The most neurons to read, or the fewest whose error is within one standard error of the best.
        X : array or list of arrays
            The sequences that the model was fitted to.
        y : array
            Their targets.
        sample_weight : array of shape (n_samples,), optional
            Their weights.
        groups : array of shape (n_samples,), optional
            Their groups.

        Returns
        -------
        SpikingClassifier or SpikingRegressor
            The smaller model, whose certificate covers the neurons that it reads.
        """
        if not isinstance(sparsity, (int, np.integer)) and not (isinstance(sparsity, str) and sparsity == "few"):
            raise InvalidInputError(f"expected a number of neurons or 'few', got {sparsity!r}: pass 64, say")
        witnesses, readout = self.proof_.witnesses, self.network_.readout
        self.data_of_fit(X, y, sample_weight)
        smaller = self._twin(sparsity=sparsity)
        data = smaller._read(X, y, sample_weight, reset=False, groups=groups)
        objective = replace(smaller._objective(smaller._loss()), readout=readout)
        with ShownProgress(self.verbose) as progress:
            return smaller._keep(*smaller._fit_convex(data, objective, smaller._seed(), progress, witnesses))

    def update(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add samples to a model that :meth:`partial_fit` trained, without those that it was trained on.

        The read-out by least squares is solved again and certified over all samples so far. Neurons, the units of what
        is read of them, scales of features and the strength of ridge stay as they are, and so does the scale of
        probabilities; fit again on everything if the data have changed much. For this the model keeps the spikes of
        all neurons on all samples, one to four bytes for each number read of a neuron, or their sums, 8 bytes times the
        square of these numbers, whichever is smaller. Model files and pickles contain them too.

        Parameters
        ----------
        X : array or list of arrays
            New sequences or rows, as in ``fit``.
        y : array
            Their targets; labels of a classifier must be among ``classes_``.
        sample_weight : array of shape (n_samples,), optional
            Their weights, in the same unit as those of earlier calls.

        Returns
        -------
        SpikingClassifier or SpikingRegressor
            The estimator. ``history_`` has one more stage, whose score is that of the new samples before they were
            added.
        """
        proof, begin = self.proof_, time.perf_counter()
        check_updatable(proof)
        if self._kept is None:
            raise InvalidInputError(_KEEPS_NOTHING)
        data = self._read(X, y, sample_weight, reset=False)
        rows = KeptRows.of(proof, data, self._unit(X, y, sample_weight))
        score = self._score_of(rows.scores(proof), data)
        solution, kept = self._kept.add(proof, rows, self.tol)
        return self._take_over(proof, solution, "update", score, begin, fingerprint_=None, _kept=kept)

    def _fit_readout(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> Self:
        """Solve for the read-out of the same neurons on other data, from the present solution."""
        proof, begin = self.proof_, time.perf_counter()
        data = self._read(X, y, sample_weight, reset=False, groups=groups)
        given = [None if isinstance(value, str) else float(value) for value in (self.l1_strength, self.l2_strength)]
        problem = proof.problem(data)
        problem = problem.with_strength(problem.l1_strength if given[0] is None else given[0], given[1])
        start = Candidate(problem, problem.dictionary.coefficients(proof.support, proof.coef), proof.intercept)
        score = self._score_of(problem.dictionary.matvec(start.coef) + start.intercept, data)
        solution = solve(problem, self.tol, start=start)
        learned = {"fingerprint_": DataFingerprint.of(data), "_kept": None, "_left_out": None}
        return self._take_over(proof, solution, "convex", score, begin, **learned)

    def _take_over(
        self, proof: Proof, solution: Solution, stage: str, score: Score, begin: float, **learned: Any
    ) -> Self:
        """Set what another solution for the same neurons decides, in one assignment."""
        network = reconstruct(solution)
        summary = StageSummary(stage, score, time.perf_counter() - begin, network.n_active, **of_solution(solution))
        learned |= {
            "network_": network,
            "_proof": Proof.of(solution, proof.objective),
            "certificate_": solution.certificate,
            "history_": History((*self.history_, summary)),
        }
        self.__dict__ = self.__dict__ | learned
        return self

    def _can_be_updated(self) -> bool:
        """Raise an AttributeError unless :meth:`partial_fit` is possible, with these parameters and after this fit."""
        is_squared = self.loss == "squared" or not hasattr(self, "class_weight")  # the loss of a regressor
        is_ridge = is_squared and self.penalty.endswith("elastic-net") and self.l1_strength == 0
        is_plain = self.method == "cvx" and getattr(self, "class_weight", None) != "balanced"
        if not (is_plain and (is_ridge or self._is_ridge)):
            raise AttributeError(
                "expected method 'cvx' and least squares with ridge alone, as by default, and no "
                "class_weight='balanced' for partial_fit, got other parameters: call fit on all samples"
            )
        if hasattr(self, "network_") and self._kept is None:
            raise AttributeError(_KEEPS_NOTHING)
        return True

    def _unit(self, X: Any, y: Any, sample_weight: Any) -> float:
        """Return the largest weight, which those of a training set are divided by."""
        y = self.read_targets(y)
        return self._weights(y, sample_weight, count_samples(X, y))[1]

    def stream(self, n_streams: int | None = None, *, n_steps: int | None = None) -> Stream:
        """Return an object that reads sequences a step at a time and says what the model answers so far.

        Its spikes and features are those of the complete sequences bit for bit, and its scores equal theirs up to the
        order of sums in float64. Steps are raw features, which it standardises. If the model is the last step of a
        pipeline, call ``pipeline[-1].stream()`` and pass steps through the others first, as
        ``pipeline[:-1].transform([[x]])[0][0]``. This is right for transformers that treat each step alone, such as
        ``SequenceScaler("common")``.

        Parameters
        ----------
        n_streams : int, optional
            Number of sequences that arrive side by side. By default a single one, without an axis for the streams.
        n_steps : int, optional
            Number of steps that will arrive; required for ``readout="windows-k"``. Windows still to come count as
            silent.

        Returns
        -------
        Stream
            The stream, before its first step.
        """
        check_is_fitted(self)
        return Stream(self, n_streams, n_steps)

    def certify(self, X: Any, y: Any, sample_weight: Any = None) -> Certificate:
        """Certify the read-out again on the data that the model was fitted to.

        If the data differ, an :class:`OtherDataWarning` names the differences, and the certificate applies to the data
        passed in.

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
        return self.proof_.certify(self.data_of_fit(X, y, sample_weight))

    def certify_complete(
        self, X: Any, y: Any, sample_weight: Any = None, *, max_seconds: float = 60.0
    ) -> "CompleteCertificate":
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
        from ..theory import certify_complete

        return certify_complete(self.proof_, self.data_of_fit(X, y, sample_weight), max_seconds=max_seconds)

    def with_readout(self, network: SpikingNetwork, proof: Proof) -> Self:
        """Return a copy with another network, whose read-out was certified on the data of the fit.

        Parameters
        ----------
        network : SpikingNetwork
            The other network.
        proof : Proof
            The proof of its read-out.

        Returns
        -------
        SpikingClassifier or SpikingRegressor
            The copy.
        """
        twin = copy(self)
        twin.network_ = network
        twin._proof = proof
        twin.certificate_ = proof.certificate
        twin._kept = twin._left_out = None  # they are about the old network
        return twin

    def summary(self, X: Any = None) -> ModelSummary:
        """Summarise the choices made in training, what is proven, and the cost of a prediction.

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
            certificate=None if self._proof is None else self.proof_.certificate,
            network=summarise(self.network_),
            n_read=self.network_.n_active,
            n_sampled=None if self._proof is None else self._proof.witnesses.n_witnesses,
            operations=None if X is None else count_operations(self.network_, self.as_sequences(X)),
            shift=() if self._proof is None else getattr(self._proof.objective.loss, "shift", ()),
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

    def explain(self, X: Any) -> Explanation | list[Explanation]:
        """Compute which steps and which neurons the scores of sequences are due to.

        The read-out is linear in what it takes from spikes, so that the evidence of steps, and of neurons, adds up to
        the score. For a pipeline, call ``pipeline[-1].explain(pipeline[:-1].transform(X))``.

        Parameters
        ----------
        X : array or list of arrays
            One sequence of shape (n_steps, n_features), or several, as for ``predict``; for a model of rows, one row
            of shape (n_features,), or several.

        Returns
        -------
        Explanation or list of Explanation
            The explanation of the one sequence, or one for each of several.
        """
        check_is_fitted(self)
        is_one = n_axes(X) == (2 if self.is_sequential_ else 1)
        if is_one:
            X = [X] if self.is_sequential_ else np.asarray(X)[None]
        raw = read_inputs(self, X, reset=False)
        network, intercept = self.network_, self.network_.intercept.detach().cpu().numpy()
        numbers = torch.unique(network.neurons).cpu().numpy()
        lengths = np.full(len(raw), raw.n_steps) if raw.lengths is None else raw.lengths.numpy()
        found = attribute(network, self._standardised(raw))
        explanations = []
        for inputs, length, (evidence, of_neurons) in zip(raw.inputs.numpy(), lengths, found, strict=True):
            by_step, by_neuron = (self._margins(part).reshape(len(part), -1) for part in (evidence, of_neurons))
            constant, classes = np.ravel(self._margins(intercept[None])), getattr(self, "classes_", None)
            explanations.append(Explanation(inputs[:length], by_step, by_neuron, numbers, constant, classes))
        return explanations[0] if is_one else explanations

    @property
    def proof_(self) -> Proof:
        """The certified read-out with everything needed to certify it again, except for the data.

        If ``network_`` is another network by now, this raises an error.
        """
        check_is_fitted(self)
        if self._proof is None:
            find_method(self.method)  # which knows all methods if this is not the convex one
            proving = [name for name, kind in METHODS.items() if kind.stages[-1] == "convex"]
            raise InvalidInputError(
                "expected a model whose read-out is the optimum of a convex program, got "
                + (
                    f"method={self.method!r}: only {', '.join(proving)} prove anything"
                    if self.method not in proving
                    else "one that kept its trained read-out, which validated better than every optimum: pass "
                    "penalty='l1' or a strength to have an optimum in any case"
                )
            )
        self._proof.check_network(self.network_)
        return self._proof

    def as_sequences(self, X: Any) -> Sequences:
        """Check data against those of the fit and standardise them, as the network expects.

        Parameters
        ----------
        X : array or list of arrays
            Sequences or rows, as in ``fit``.

        Returns
        -------
        Sequences
            The sequences, on the device of the estimator.
        """
        check_is_fitted(self)
        return self._standardised(read_inputs(self, X, reset=False))

    def training_set(self, X: Any, y: Any, sample_weight: Any = None) -> TrainingSet:
        """Return data as the engine reads them: sequences of the network, targets as numbers, and weights.

        Parameters
        ----------
        X : array or list of arrays
            Sequences or rows, as in ``fit``.
        y : array
            Their targets.
        sample_weight : array of shape (n_samples,), optional
            Their weights. Samples of weight zero are left out.

        Returns
        -------
        TrainingSet
            The data.
        """
        check_is_fitted(self)
        return self._read(X, y, sample_weight, reset=False)

    def differences(self, data: TrainingSet) -> list[str]:
        """Compare data with those that the model was fitted to.

        Parameters
        ----------
        data : TrainingSet
            The data, from :meth:`training_set`.

        Returns
        -------
        list of str
            The differences in words; empty if the data are the same.
        """
        if self.fingerprint_ is not None:
            return self.fingerprint_.differences(DataFingerprint.of(data))
        # After an update there is none of all samples. The objective differs unless the data are the same.
        found, stated = self.proof_.certify(data), self.proof_.certificate
        if is_same_objective(found, stated):
            return []
        return [f"the objective ({found.primal:.6g} instead of {stated.primal:.6g})"]

    def data_of_fit(self, X: Any, y: Any, sample_weight: Any = None) -> TrainingSet:
        """Return the data that the model was fitted to as a training set; warn if they differ.

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
        TrainingSet
            The data.
        """
        data = self.training_set(X, y, sample_weight)
        differences = self.differences(data)
        if differences:
            warnings.warn(
                f"this is not the training data ({' and '.join(differences)} differ): the certificate applies to the "
                "data passed in",
                OtherDataWarning,
                stacklevel=3,
            )
        return data

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle: network and proof as in a model file, with witnesses as their recipe."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "network_" in state:
            network, proof = state.pop("network_"), state.pop("_proof")
            tensors: dict[str, torch.Tensor] = {}
            headers = write_network(network, tensors), None if proof is None else write_proof(proof, tensors)
            # As arrays: a tensor adds hundreds of bytes to a pickle.
            arrays = {name: value.detach().cpu().numpy() for name, value in tensors.items()}
            state["_compact"] = headers, arrays, str(network.weight.device)
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore the state from a pickle, and draw the sampled witnesses again."""
        restored = dict(state)
        if "_compact" in restored:
            (of_network, of_proof), arrays, device = restored.pop("_compact")
            # Arrays that joblib shares with its workers are read-only.
            tensors = {name: torch.from_numpy(value.copy()) for name, value in arrays.items()}
            network = read_network(of_network, tensors)
            restored["_proof"] = None if of_proof is None else read_proof(of_proof, tensors, network).to(device)
            restored["network_"] = network.to(device)
        super().__setstate__(restored)

    def _outputs(self, X: Any) -> FloatArray:
        """Return the outputs of the network, shape (n_samples, n_outputs)."""
        sequences = self.as_sequences(X)
        with torch.no_grad():
            outputs: FloatArray = self.network_(sequences).cpu().numpy()
        return outputs

    def _keep(self, solution: Solution | None, objective: Objective, data: TrainingSet) -> Self:
        """Keep the proof of what was learned."""
        self._proof = None if solution is None else Proof.of(solution, objective)
        self.certificate_ = None if solution is None else solution.certificate
        self.fingerprint_ = DataFingerprint.of(data)
        return self

    def _twin(self, **others: Any) -> Self:
        """Return an estimator without a network that differs in some parameters.

        It has what the data have decided before anything is trained: features, scale and classes.
        """
        twin = type(self)(**{**self.get_params(deep=False), **others})
        for name, value in vars(self).items():
            if name.endswith("_") and name not in ("network_", "certificate_", "history_", "probability_scale_"):
                setattr(twin, name, value)
        return twin

    def _fit_convex(
        self,
        data: TrainingSet,
        objective: Objective,
        seed: int,
        progress: ShownProgress,
        witnesses: WitnessSet | None = None,
        may_train: bool = True,
    ) -> Learned:
        """Sample neurons, if none are given, and find the optimal read-out; or train few where that is better."""
        begin, budget = time.perf_counter(), self._budget()
        families = self._families(data) if witnesses is None else witnesses
        program = self._program(objective)
        readouts = self._readouts(data.sequences) if self._is_chosen and witnesses is None else ()
        earlier: tuple[StageSummary, ...] = ()
        if isinstance(families, Tuning):
            notify = partial(progress, "0. tuning")
            tuned = tune_witnesses(data, objective, None, families, seed=seed, callback=notify)
            earlier = (summarise_search(tuned, time.perf_counter() - begin),)
            families, readouts = tuned.family, (tuned.readout,)
            # The search has used up part of the time for the fit.
            budget = replace(budget, max_seconds=max(0.0, budget.max_seconds - earlier[0].seconds))
        begin = time.perf_counter()
        notify = partial(progress, "fit (%)")
        shift = partial(self._calibrate, program, data)
        fitted = fit(data, families, program, None, budget, readouts=readouts, seed=seed, callback=notify, shift=shift)
        self.network_ = reconstruct(fitted.solution)
        if self.target is not None:
            find_target(self.target).check(self.network_.layers)
        score = trial_score(fitted.chosen)
        if score is None:
            score = self._validate(self.network_, data)
        seconds = time.perf_counter() - begin
        self.history_ = History((*earlier, *summarise_fit(fitted, score, seconds)))
        scores = fitted.chosen.verdict.scores
        if scores is not None:
            every = -(-len(scores) // MOST_LEFT_OUT)
            moved = getattr(fitted.program.objective.loss, "shift", ()) or 0.0
            self._left_out = scores[::every].cpu().numpy() + np.asarray(moved)
        is_few = budget.sparsity not in (None, "few") and fitted.chosen.n_neurons < fitted.n_sampled
        # Trained neurons are none of a chip.
        is_open = may_train and self._is_mixed and self._is_ridge and self.readout is None
        if is_few and is_open and seconds < budget.max_seconds / 2:
            return self._try_training(fitted, data, seed, progress, budget.max_seconds - seconds)
        return fitted.solution, fitted.program.objective, data

    def _try_training(
        self, fitted: Fitted, data: TrainingSet, seed: int, progress: ShownProgress, max_seconds: float
    ) -> Learned:
        """Train as many neurons as were selected, and keep them if they err less on samples left out."""
        from .staged import try_training

        return try_training(self, fitted, data, seed, progress, max_seconds)

    def _train_in_stages(self, data: TrainingSet, objective: Objective, seed: int, progress: ShownProgress) -> Learned:
        """Train by a method with several stages, which held-out data compare."""
        from .staged import train_in_stages

        return train_in_stages(self, data, objective, seed, progress)

    def _divide(self, data: TrainingSet, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the samples to learn from, with some of every class, and those held out; all twice if too few."""
        labels, every = self._classes_of(data), torch.arange(len(data))
        if data.groups is not None:
            rng, same = child_generator(seed, "validation"), np.zeros(len(data))
            folds = deal_groups(data.groups.numpy(), same if labels is None else labels, DEFAULTS.one_held_out, rng)
            held = torch.from_numpy(folds == 0)
            return every[~held], every[held]
        n_classes = 1 if labels is None else len(np.unique(labels))
        # Each class needs a sample to learn from and one to be judged by.
        n_held = min(-(-len(data) // DEFAULTS.one_held_out), len(data) - max(n_classes, 2))
        if n_held < n_classes:
            return every, every
        order = stratified_order(labels, child_generator(seed, "validation"), len(data))
        return order[:-n_held].sort().values, order[-n_held:].sort().values

    def _validate(self, network: SpikingNetwork, held_out: TrainingSet) -> Score:
        """Return the score of a network on held-out data; higher is better."""
        with torch.no_grad():
            return self._score_of(network(held_out.sequences), held_out)

    def _score_of(self, outputs: torch.Tensor, data: TrainingSet) -> Score:
        """Return the score of outputs of a network."""
        heads, weight = Objective(self._loss()).heads(data)
        loss = float(weighted_loss(heads, weight, outputs))
        return self._score(outputs.cpu().numpy(), data, weight.cpu().numpy(), loss)

    def _standardised(self, sequences: Sequences) -> Sequences:
        scaled = standardise(sequences.inputs.numpy(), *self.input_scale_)
        return Sequences(torch.from_numpy(scaled), sequences.lengths).to(check_device(self.device))

    def _read(
        self, X: Any, y: Any, sample_weight: Any, reset: bool, groups: Any = None, classes: Any = None
    ) -> TrainingSet:
        """Return checked data as a training set; ``reset`` learns features, scale and classes from them."""
        self._check_parameters()
        y = self.read_targets(y)
        n_samples = count_samples(X, y)
        weight, groups = self._weights(y, sample_weight, n_samples)[0], read_groups(groups, n_samples)
        if weight is not None and not weight.all():
            # Left out before anything is learned: samples of weight zero must not affect classes, scale or fingerprint.
            counted = np.flatnonzero(weight)
            X = list(X.values()) if isinstance(X, Mapping) else X
            with foreign_errors():
                X = _safe_indexing(X, counted)
            y = y[counted]
            weight = weight[counted]
            groups = None if groups is None else groups[counted]
        if groups is not None and len(np.unique(groups)) < 2:
            raise InvalidInputError("expected at least two groups of samples with weight, got one: pass groups=None")
        sequences = read_inputs(self, X, reset=reset)
        if reset:
            n_features = sequences.n_features
            self.input_scale_ = np.zeros(n_features), np.ones(n_features)
            if self.standardize and self.target is None:
                self.input_scale_ = feature_scale(sequences, weight)
                warn_of_giants(sequences, self.input_scale_[1], getattr(self, "feature_names_in_", None))
        targets = {UNNAMED_HEAD: self._targets(y, reset, classes)}
        of_samples = (None if own is None else torch.from_numpy(own) for own in (weight, groups))
        return TrainingSet(self._standardised(sequences), targets, *of_samples)

    def _weights(self, y: npt.NDArray[Any], sample_weight: Any, n_samples: int) -> tuple[FloatArray | None, float]:
        """Return the weights of the samples divided by the largest, and this; None weighs all alike."""
        if sample_weight is None:
            return None, 1.0
        weight = as_real("sample_weight", sample_weight)
        weight = np.full(n_samples, weight) if weight.ndim == 0 else weight
        if weight.shape != (n_samples,):
            raise InvalidInputError(
                f"expected one sample_weight for each of {plural(n_samples, 'sample')}, got shape {weight.shape}"
            )
        return relative_weights("sample_weight", torch.tensor(weight)).numpy(), float(weight.max())

    @abstractmethod
    def read_targets(self, y: Any) -> npt.NDArray[Any]:
        """Return targets in any form that ``fit`` accepts as an array.

        Parameters
        ----------
        y : array
            Labels, or real targets.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_outputs)
            The same labels or targets.
        """

    @abstractmethod
    def _targets(self, y: npt.NDArray[Any], reset: bool, classes: Any = None) -> npt.NDArray[Any]:
        """Return targets as numbers; ``reset`` learns the classes, unless these are given, or the shape from them."""

    @abstractmethod
    def _loss(self) -> str | Loss:
        """Return the loss of the read-out."""

    @abstractmethod
    def _score(self, outputs: FloatArray, data: TrainingSet, weight: FloatArray, loss: float) -> Score:
        """Return the score of outputs from their loss; the weights of the samples sum to one."""

    @abstractmethod
    def _errors(self, outputs: FloatArray, data: TrainingSet) -> FloatArray:
        """Return the error of each sample: whether it is misclassified, or the squared error."""

    def _classes_of(self, data: TrainingSet) -> npt.NDArray[np.int64] | None:
        """Return the indices of the classes of a classifier."""
        return None

    def _calibrate(self, program: Program, data: TrainingSet, verdict: Verdict) -> Sequence[float]:
        """Fit shifts of the classes, and the scale of probabilities, to the scores of samples left out."""
        return ()
