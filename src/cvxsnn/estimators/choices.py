"""The parameters of the estimators: which values they accept, and the arguments of the engine that follow from them."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from math import inf
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from ..convex import Loss, Objective
from ..core.checks import check_bool, check_choice, check_number, check_positive_int
from ..core.errors import InvalidInputError
from ..data import Sequences, TrainingSet
from ..dictionary import Readout
from ..dictionary.base import parse_readout
from ..fitting.engine import Budget, find_method
from ..fitting.few import Sparsity
from ..fitting.program import Program
from ..fitting.search import Tuning
from ..fitting.surrogate_settings import SurrogateSettings
from ..neurons import TARGETS, find_target
from ..witnesses import Normal, Uniform, WitnessSet
from ..witnesses.families import family_kind
from ..witnesses.mixed import STEPS_FOR_DELAYS, mixtures_for
from ..witnesses.tap_sampling import has_variation


@dataclass(frozen=True)
class Defaults:
    """Values of parameters that are not set."""

    n_neurons: int = 4096
    """Neurons of one family for a convex read-out."""

    n_trained: int = 1024
    """Neurons of gradient methods and of recurrent models, which cost more per neuron."""

    trials: tuple[int, int] = (64, 192)
    """The fewest and the most families that a search tries. With more than the data can rank, luck decides."""

    n_compared: int = 1024
    """Neurons that a search compares families with. With few sequences, fewer do not separate them reliably."""

    shares: tuple[int, int, int] = (8, 2, 1)
    """Shares of neurons and sequences in the rounds of a search."""

    one_held_out: int = 5
    """One in this many samples is held out to choose an epoch or the strengths of a trained network."""

    epochs: int = 50
    """Epochs of gradient stages."""


DEFAULTS = Defaults()

_DEFAULT_FAMILY: Mapping[str, Any] = {"decay": Uniform(0.5, 1.0), "bias": Normal(0.0, 0.5)}
_PAPERS_FAMILY: Mapping[str, Any] = {"decay": 0.9, "threshold": 1.0, "bias": 0.0, "gain": 1.0}
_NAMED = ("auto", "mixed", "search", "gaussian", "delayed")


def _expect(description: str, valid: tuple[type, ...] | Callable[[Any], bool]) -> Callable[[str, Any], None]:
    """Return a check that refuses values of other types, or for which ``valid`` is false."""

    def check(name: str, value: Any) -> None:
        if not (isinstance(value, valid) if isinstance(valid, tuple) else valid(value)):
            raise InvalidInputError(f"expected {name} to be {description}, got {value!r}")

    return check


_FAMILIES = "a family (a mapping of arguments of gaussian_witnesses or delayed_witnesses), a WitnessSet or a Tuning"

_CHECKS: Mapping[str, tuple[tuple[str | None, ...], Callable[[str, Any], object]]] = {
    "n_neurons": (("auto",), check_positive_int),
    "witnesses": (_NAMED, _expect(f"{', '.join(map(repr, _NAMED))}, {_FAMILIES}", (Mapping, WitnessSet, Tuning))),
    "target": ((None, *TARGETS), _expect("the name of a chip", (str,))),
    "readout": ((None,), _expect("'mean', 'last' or 'windows-k'", lambda value: parse_readout(value).kind != "all")),
    "penalty": ((), _expect("a name", (str,))),
    "l1_strength": (("auto",), check_number),
    "l2_strength": (("auto",), check_number),
    "sparsity": ((None, "accuracy", "few"), check_positive_int),
    "intercept": ((), check_bool),
    "standardize": ((), check_bool),
    "warm_start": ((), check_bool),
    "tol": ((), _expect("above zero", lambda value: check_number("tol", value) > 0)),
    "max_seconds": ((None,), _expect("zero or above", lambda value: check_number("max_seconds", value) >= 0)),
    "surrogate": ((None,), _expect("SurrogateSettings", (SurrogateSettings,))),
    "random_state": ((None,), _expect("an integer, a RandomState or None", (int, np.integer, np.random.RandomState))),
}
"""The words that a parameter accepts, including None, and the check of any other value.

:class:`Program` checks the name of the penalty; ``loss``, ``layout``, ``device`` and ``verbose`` are checked where they
are read.
"""


@dataclass(eq=False, repr=False)
class EstimatorChoices(BaseEstimator):  # type: ignore[misc]
    """The parameters of an estimator, and the families, programs and budgets that follow from them.

    The docstrings of the estimators contain the sections below.

    Parameters
    ----------
    method : str
        How to train. "cvx" samples hidden neurons and finds the optimal read-out. "sg" trains all layers by surrogate
        gradients. "sg-cvx", "sg-sg" and "cvx-sg" have two stages. "varpro" trains the hidden layers by surrogate
        gradients and solves for the optimal read-out after every epoch. "r" is a reservoir.
    hidden : tuple of int, optional
        Widths of the hidden layers, instead of ``n_neurons``.
    n_neurons : int or "auto"
        Number of neurons of one hidden layer. For mixed witnesses "auto" is 3,000 of kinds and 8,192 of a mixture, or
        12,000 and 16,384 if that promises a clearly lower error and there are at most 5,000 samples. For a single
        family it is 4,096; for methods other than "cvx", and for neurons that read each other, 1,024.
    witnesses : "auto", "mixed", "search", "gaussian", "delayed", mapping, WitnessSet or Tuning
        The hidden neurons. "mixed" samples one layer, whose thresholds and weights come from the training data. For
        sequences of nine or more steps it has neurons of several kinds (:class:`cvxsnn.witnesses.Kinds`), or a mixture
        of families with delays (:class:`cvxsnn.witnesses.Mixed`) if its leave-one-out errors are clearly lower; for
        shorter ones, and if ``readout`` is given, a mixture. "search" searches for one family; a
        :class:`cvxsnn.fitting.Tuning` says how. "auto" is "mixed" for the method "cvx" with one hidden layer, "search"
        for "cvx" with several, for "varpro" neurons that read the latest steps, whose first weights are differences of
        training sequences, and for other methods Gaussian weights with decays between 0.5 and 1. "gaussian" is the
        paper's family: decay 0.9, threshold 1, Gaussian weights. "delayed" samples neurons that read 25 inputs each at
        random delays, with thresholds from the training data. A mapping is a family: arguments of
        :func:`cvxsnn.gaussian_witnesses` such as ``decay``, ``threshold``, ``bias``, ``gain``, ``neuron`` and
        ``n_subnetworks``, or, with a key ``"geometry"``, of :func:`cvxsnn.delayed_witnesses`. ``hidden`` may be left
        out. A :class:`cvxsnn.WitnessSet` is used as it is.
    target : "loihi", "xylo-audio2", "xylo-imu" or None
        A chip. Neurons of the chip are sampled within its limits, and the certificate is about the spikes that it
        makes. ``X`` has counts of spikes, which are not standardised. Given ``witnesses`` must be neurons of the chip.
        A network that does not fit is refused.
    readout : "mean", "last", "windows-k" or statistics such as "mean+burst", optional
        Read the mean of the spikes over the steps, the spikes of the last step, the means in k windows of time, or
        statistics: "mean", "burst", "root", "ever", "last" and "first". By default the mean; kinds have statistics of
        their own, and mixtures and a search may find that the last step has a lower error.
    loss : str, optional
        The loss. A classifier has by default "squared" for ridge regression of mixed witnesses, else "logistic" for two
        classes and "softmax" for more; losses other than "softmax" treat more than two classes one against the rest. A
        regressor has "squared".
    penalty : "auto", "l1", "group", "elastic-net" or "group-elastic-net"
        The penalty of the read-out: a norm of every weight, or of the weights of a neuron together. The elastic nets
        add half the sum of squares. "auto" is ridge, an elastic net without a norm, for mixed witnesses and over
        trained neurons ("sg-cvx" and "varpro") unless ``l1_strength`` is given, and "l1" otherwise.
    l1_strength : float or "auto"
        Strength of the norm. "auto" chooses it on samples left out. For the elastic nets it may be zero, which is
        ridge, and "auto" includes that.
    l2_strength : float or "auto"
        Strength of the sum of squares, for the elastic nets. "auto" chooses it on samples left out. For other
        penalties it is zero.
    sparsity : int, "few", "accuracy" or None
        How many of the hidden neurons are read, for methods that end with a convex read-out. An integer is the most.
        "few" reads the fewest whose error is within one standard error of the best. Neurons are selected on some
        samples, and their errors measured on others. For the default with an integer, as many neurons are also trained
        ("varpro"), and taken if they err less on samples left out. None and "accuracy" read all of them. The
        certificate covers the neurons that are read.
    intercept : bool
        Whether the read-out has an unpenalised constant.
    layout : "channels-last" or "channels-first", optional
        How arrays are read: (n_samples, n_steps, n_features), the default, or (n_samples, n_channels, n_steps) as in
        aeon and sktime, where a channel is a feature; likewise each array of a list. Tables always have one row per
        step.
    standardize : bool
        Whether each feature is shifted and scaled to mean 0 and variance 1 over the training data; to a smaller
        variance if it hardly ever differs from one value. ``network_`` reads the result.
    tol : float
        Relative gap to certify.
    max_seconds : float, optional
        Time for a fit. Steps expected to overrun are skipped, and the best choice so far is solved and certified;
        :meth:`summary` says so. Always done are a first comparison of 3,000 neurons on at most 1,000 samples, the first
        family of a search or the first epoch of a gradient stage, and the final solve; with ``n_neurons`` or
        ``sparsity``, the neurons or the selection they set.
    surrogate : SurrogateSettings, optional
        Settings of gradient stages. By default 50 epochs; for "varpro" :data:`cvxsnn.fitting.PROJECTION`, 40 epochs in
        batches of 32 at a learning rate of 0.005. Their ``spike_penalty`` makes trained neurons fire less.
    device : str
        Where to compute, such as "cpu" or "cuda"; "auto" is the GPU if there is one.
    warm_start : bool
        Whether ``fit`` on a fitted model keeps its neurons, scales and classes, and solves for the read-out alone,
        from the present solution, on the data passed. Strengths that are numbers are set; all other choices stay as
        they were. To add samples without those so far, see ``partial_fit`` and ``update``.
    random_state : int, RandomState or None
        Seed of neurons, held-out data and batches. None gives another model at every call of ``fit``.
    verbose : bool or "auto"
        Whether to show progress: True from the start, False never, and "auto" if ``fit`` takes more than three seconds.
        In a terminal, and in a notebook with ``ipywidgets``, it is a bar on standard error. Elsewhere it is lines of
        level INFO of the logger "cvxsnn".

    Attributes
    ----------
    network_ : SpikingNetwork
        The trained network.
    certificate_ : Certificate or None
        The certificate of the read-out; None if it was not found by convex optimisation: nothing is proven then.
        "sg-cvx" and "varpro" keep the trained read-out if it validates better than every optimum.
    history_ : History
        One summary per stage of training; prints as a table. See also :meth:`summary`.
    input_scale_ : tuple of two arrays of shape (n_features,)
        Mean and scale of each feature: ``network_`` reads ``(X - mean) / scale``.
    is_sequential_ : bool
        Whether ``X`` has sequences rather than rows of features.
    n_features_in_ : int
        Number of features per step.
    feature_names_in_ : array of str
        Names of the features, if ``X`` has tables whose columns have names.
    """

    method: str = "cvx"
    hidden: tuple[int, ...] | None = None
    _: KW_ONLY
    n_neurons: int | str = "auto"
    witnesses: str | Mapping[str, Any] | WitnessSet | Tuning = "auto"
    target: str | None = None
    readout: str | None = None
    loss: str | None = None
    penalty: str = "auto"
    l1_strength: float | str = "auto"
    l2_strength: float | str = "auto"
    sparsity: int | str | None = None
    intercept: bool = True
    layout: str | None = None
    standardize: bool = True
    tol: float = 1e-6
    max_seconds: float | None = None
    surrogate: SurrogateSettings | None = None
    device: str = "cpu"
    warm_start: bool = False
    random_state: int | np.random.RandomState | None = None
    verbose: bool | str = "auto"

    def _check_parameters(self) -> None:
        """Refuse invalid parameters, and valid ones that exclude each other."""
        method = find_method(self.method)
        for name, (words, check) in _CHECKS.items():
            value = getattr(self, name)
            if isinstance(value, str) and any(words):
                is_number = check in (check_number, check_positive_int)
                check_choice(
                    f"{name}, unless it is a number," if is_number else name, value, tuple(filter(None, words))
                )
            elif value is not None or None not in words:
                check(name, value)
        if self.hidden is not None and self.n_neurons != "auto":
            raise InvalidInputError(
                f"expected hidden or n_neurons, got hidden={self.hidden!r} and n_neurons={self.n_neurons!r}: drop one"
            )
        if self.witnesses == "mixed" and not self._is_mixed:
            raise InvalidInputError(
                "expected method 'cvx' and one hidden layer for mixed witnesses, got other parameters: pass "
                "witnesses='search' or a family"
            )
        if self.target is not None:
            self._check_target(self.target)
        is_sparse = self.sparsity is not None and self.sparsity != "accuracy"
        if is_sparse and method.stages[-1] != "convex":
            raise InvalidInputError(
                f"expected a method that ends with a convex read-out for sparsity={self.sparsity!r}, got "
                f"{self.method!r}: use 'cvx' or 'sg-cvx'"
            )
        # These two refuse widths, penalties and strengths that are not valid.
        self._widths()
        self._program(Objective("squared"))

    def _check_target(self, name: str) -> None:
        """Refuse parameters with which the network would not be one of the chip, or too large for it."""
        is_given = isinstance(self.witnesses, (Mapping, WitnessSet))
        wrong = {
            "method": self.method != "cvx",
            "hidden": len(self._widths()) > 1,
            "witnesses": not (is_given or self.witnesses == "auto"),
        }
        if any(wrong.values()):
            given = " and ".join(f"{key}={getattr(self, key)!r}" for key, is_wrong in wrong.items() if is_wrong)
            raise InvalidInputError(
                f"expected method 'cvx', one hidden layer and witnesses 'auto', a family or a WitnessSet for "
                f"target={name!r}, got {given}: leave that out"
            )
        target = find_target(name)
        n_read = self.sparsity if isinstance(self.sparsity, int) else self._widths()[0]
        if not is_given:
            target.check_most("neuron", target.n_neurons, n_read)

    def _seed(self) -> int:
        seed = self.random_state
        # Drawing advances a RandomState: the next fit gets another seed, as in scikit-learn.
        return int(seed if isinstance(seed, (int, np.integer)) else check_random_state(seed).randint(2**31))

    @property
    def _is_mixed(self) -> bool:
        """Whether neurons of several families are sampled together."""
        named = isinstance(self.witnesses, str) and self.witnesses in ("auto", "mixed")
        return named and self.method == "cvx" and len(self._widths()) == 1 and self.target is None

    @property
    def _is_chosen(self) -> bool:
        """Whether the library chooses neurons of one layer, whose read-out is ridge regression by default."""
        return self._is_mixed or (self.target is not None and self.witnesses == "auto")

    @property
    def _is_ridge(self) -> bool:
        """Whether the read-out is ridge regression, the default for neurons that the library chooses."""
        is_open = self.penalty == self.l1_strength == self.l2_strength == "auto"
        return self._is_chosen and is_open and self.loss in (None, "squared")

    def _program(self, objective: Objective) -> Program:
        """Return the convex program of the read-out."""
        if self._is_ridge:
            return Program.ridge(objective, intercept=self.intercept, tol=self.tol)
        penalty = self.penalty
        strengths: Any = (self.l1_strength, self.l2_strength)
        if penalty == "auto" and self.l1_strength == "auto":
            if find_method(self.method).stages[0] in ("gradient", "projection"):
                penalty, strengths = "elastic-net", (0.0, self.l2_strength)  # what "auto" is after training
            elif self._is_chosen:
                penalty = "elastic-net"
        return Program(objective, penalty, *strengths, intercept=self.intercept, tol=self.tol)

    def _budget(self) -> Budget:
        sparsity: Sparsity | None = None if self.sparsity == "accuracy" else self.sparsity  # type: ignore[assignment]
        n_neurons = None if self.hidden is None and self.n_neurons == "auto" else self._widths()[-1]
        return Budget(n_neurons, inf if self.max_seconds is None else float(self.max_seconds), sparsity)

    def _objective(self, loss: str | Loss) -> Objective:
        return Objective(loss, "mean" if self.readout is None else self.readout)

    def _has_kinds(self, sequences: Sequences) -> bool:
        """Return whether kinds of lateral neurons, which have a read-out of their own, are tried first."""
        return self._is_mixed and self.readout is None and is_long(sequences)

    def _readouts(self, sequences: Sequences) -> tuple[Readout, ...]:
        """Return the read-outs to choose from; none if there is no choice."""
        if self.readout is not None or sequences.n_steps == 1:
            return ()
        # Neurons of chips see little of the order of steps, unlike those whose windows of time come from the data.
        has_windows = self.target is not None and sequences.lengths is None and sequences.n_steps >= STEPS_FOR_DELAYS
        return ("mean", "last", "windows-4") if has_windows else ("mean", "last")

    def _families(self, data: TrainingSet) -> Any:
        """Return a family, several mixtures to choose from, or how to search for a family."""
        if self._is_mixed:
            sequences = data.sequences
            if self._has_kinds(sequences):
                return ("kinds", "kinds and last", "all")
            return mixtures_for(sequences.n_steps, sequences.n_features)
        if self.target is not None and self.witnesses == "auto":
            return {"target": self.target, "n_witnesses": self._widths()[0]}
        if isinstance(self.witnesses, WitnessSet):
            return self.witnesses
        hidden = self._widths()
        method = find_method(self.method)
        if isinstance(self.witnesses, Mapping):
            family = self.witnesses
            if "n_witnesses" in family_kind(family).__dataclass_fields__:  # one layer of neurons of several kinds
                return {"n_witnesses": hidden[-1], **family}
            n_subnetworks = family.get("n_subnetworks", 1)
            if self.hidden is None and isinstance(n_subnetworks, int) and n_subnetworks > 1:
                hidden = (max(1, hidden[0] // n_subnetworks),)  # n_neurons counts those of all subnetworks
        elif self.witnesses == "delayed":
            family = {"geometry": "scattered"}
        elif self.witnesses == "gaussian":
            family = _PAPERS_FAMILY
        elif isinstance(self.witnesses, Tuning) or (method.stages[0] == "convex" and method.hidden == "sampled"):
            return self._tuning(data, hidden)
        elif method.stages[0] == "projection" and has_variation(data.sequences):
            family = trained_family(data.sequences.n_steps, data.sequences.n_features)
        else:
            family = _DEFAULT_FAMILY
        return {"hidden": hidden, "n_subnetworks": 1, "neuron": "lif", **family}

    def _tuning(self, data: TrainingSet, hidden: tuple[int, ...]) -> Tuning:
        """Return how to search, with the sizes and the time of the estimator."""
        fewest, most = DEFAULTS.trials
        default = Tuning(
            n_trials=min(max(len(data) // (2 * DEFAULTS.one_held_out), fewest), most),
            n_subnetworks="auto" if self.hidden is None and self.method == "cvx" else 1,
            n_compared=DEFAULTS.n_compared,
            shares=DEFAULTS.shares,
        )
        tuning = self.witnesses if isinstance(self.witnesses, Tuning) else default
        if tuning is default or self.hidden is not None or self.n_neurons != "auto":
            tuning = replace(tuning, n_witnesses=hidden[-1], hidden=None if self.hidden is None else hidden)
        return replace(
            tuning,
            readouts=tuning.readouts or self._readouts(data.sequences),
            max_seconds=min(tuning.max_seconds, self._budget().max_seconds or 1e-9),
        )

    def _widths(self) -> tuple[int, ...]:
        """Return the widths of the hidden layers."""
        if self.hidden is not None:
            # As objects: NumPy would convert True beside 3 to an integer before it could be refused.
            widths = tuple(check_positive_int("hidden", width) for width in np.ravel(np.asarray(self.hidden, object)))
            if not widths:
                raise InvalidInputError("expected hidden to list the layers' widths, got none: pass (256,)")
            return widths
        if not isinstance(self.n_neurons, str):
            return (check_positive_int("n_neurons", self.n_neurons),)
        if self.target is not None and not isinstance(self.sparsity, int):
            return (min(DEFAULTS.n_neurons, find_target(self.target).n_neurons),)
        is_recurrent = isinstance(self.witnesses, Mapping) and self.witnesses.get("neuron", "lif") != "lif"
        return (DEFAULTS.n_neurons if self.method == "cvx" and not is_recurrent else DEFAULTS.n_trained,)


def trained_family(n_steps: int, n_features: int) -> Mapping[str, Any]:
    """Return neurons to train: they read the latest steps of all features, or of neighbours among many."""
    n_delays = min(n_steps, max(12, 64 // n_features))
    box = n_delays, min(n_features, 1024 // n_delays)
    return {"geometry": "box", "box": box, "max_delay": n_delays - 1, "fan_in": None, "weights": "differences"}


def is_long(sequences: Sequences) -> bool:
    """Return whether neurons with delays, whose thresholds come from the data, suit some sequences."""
    return sequences.n_steps >= STEPS_FOR_DELAYS and has_variation(sequences)
