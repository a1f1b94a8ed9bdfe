"""The parameters of the estimators: what they may be, and what they stand for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from ..convex.losses import Loss
from ..convex.objective import Objective
from ..convex.penalties import make_penalty
from ..core.checks import check_bool, check_choice, check_number, check_positive_int
from ..core.errors import InvalidInputError
from ..data.sequences import TrainingSet
from ..dictionary import Readout
from ..dictionary.base import parse_readout
from ..fitting.engine import Budget, Family
from ..fitting.few import Sparsity
from ..fitting.methods import METHODS
from ..fitting.program import Program
from ..fitting.search import Tuning
from ..fitting.surrogate.settings import SurrogateSettings
from ..witnesses import Normal, Uniform, WitnessSet
from ..witnesses.mixed import mixtures_for


@dataclass(frozen=True)
class Defaults:
    """What parameters that are not set stand for."""

    n_neurons: int = 4096
    """Neurons of one family for a convex read-out."""

    n_trained: int = 1024
    """Neurons to train by gradients, or that read each other: both cost more per neuron."""

    trials: tuple[int, int] = (64, 192)
    """The fewest and the most families that a search tries: more trials than the data can tell apart pick by luck."""

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


def _number_above(low: float, name: str) -> Callable[[Any], object]:
    def check(value: Any) -> None:
        if not check_number(name, value) > low:
            raise InvalidInputError(f"expected {name} to be above {low:g}, got {value!r}")

    return check


def _strength(name: str) -> Callable[[Any], object]:
    def check(value: Any) -> object:
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        return check_number(name, value) if is_number else check_choice(name, value, ("auto",))

    return check


def _check_hidden(value: Any) -> None:
    if value is None:
        return
    widths = np.ravel(np.asarray(value, dtype=object))
    if len(widths) == 0:
        raise InvalidInputError("expected hidden to list the layers' widths, got none: pass (256,)")
    for width in widths:
        check_positive_int("hidden", width)


def _check_n_neurons(value: Any) -> None:
    if isinstance(value, str):
        check_choice("n_neurons", value, ("auto",))
    else:
        check_positive_int("n_neurons", value)


def _check_witnesses(value: Any) -> None:
    if not isinstance(value, (Mapping, WitnessSet, Tuning)) and not (isinstance(value, str) and value in _NAMED):
        raise InvalidInputError(
            "expected witnesses to be 'auto', 'mixed', 'search', 'gaussian', 'delayed', a family (a mapping of "
            f"arguments of gaussian_witnesses or delayed_witnesses), a WitnessSet or a Tuning, got {value!r}"
        )


def _check_sparsity(value: Any) -> None:
    if isinstance(value, str):
        check_choice("sparsity", value, ("accuracy", "few"))
    elif value is not None:
        check_positive_int("sparsity", value)


def _check_seconds(value: Any) -> None:
    if value is not None and check_number("max_seconds", value) < 0:
        raise InvalidInputError(f"expected max_seconds to be zero or above, got {value!r}")


def _check_surrogate(value: Any) -> None:
    if value is not None and not isinstance(value, SurrogateSettings):
        raise InvalidInputError(f"expected surrogate to be SurrogateSettings, got {type(value).__name__}")


def _check_seed(value: Any) -> None:
    if not isinstance(value, (int, np.integer, np.random.RandomState)) and value is not None:
        raise InvalidInputError(f"expected random_state to be an integer, a RandomState or None, got {value!r}")


def _check_readout(value: Any) -> None:
    if value is not None and parse_readout(value).kind == "all":
        check_choice("readout", "all", ("last", "mean", "windows-4"))


_CHECKS: Mapping[str, Callable[[Any], object]] = {
    "method": lambda value: check_choice("method", value, tuple(METHODS)),
    "hidden": _check_hidden,
    "n_neurons": _check_n_neurons,
    "witnesses": _check_witnesses,
    "readout": _check_readout,
    "penalty": lambda value: value if isinstance(value, str) and value == "auto" else make_penalty(value),
    "l1_strength": _strength("l1_strength"),
    "l2_strength": _strength("l2_strength"),
    "sparsity": _check_sparsity,
    "intercept": lambda value: check_bool("intercept", value),
    "standardize": lambda value: check_bool("standardize", value),
    "tol": _number_above(0.0, "tol"),
    "max_seconds": _check_seconds,
    "surrogate": _check_surrogate,
    "random_state": _check_seed,
}
"""One check per parameter. ``loss``, ``layout``, ``device`` and ``verbose`` are checked where they are read."""


class EstimatorChoices(BaseEstimator):  # type: ignore[misc]
    """The parameters of an estimator, and the families, programs and budgets that they stand for."""

    def __init__(
        self,
        method: str = "cvx",
        hidden: tuple[int, ...] | None = None,
        *,
        n_neurons: int | str = "auto",
        witnesses: str | Mapping[str, Any] | WitnessSet | Tuning = "auto",
        readout: str | None = None,
        loss: str | None = None,
        penalty: str = "auto",
        l1_strength: float | str = "auto",
        l2_strength: float | str = "auto",
        sparsity: int | str | None = None,
        intercept: bool = True,
        layout: str | None = None,
        standardize: bool = True,
        tol: float = 1e-6,
        max_seconds: float | None = None,
        surrogate: SurrogateSettings | None = None,
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | str = "auto",
    ) -> None:
        self.method = method
        self.hidden = hidden
        self.n_neurons = n_neurons
        self.witnesses = witnesses
        self.readout = readout
        self.loss = loss
        self.penalty = penalty
        self.l1_strength = l1_strength
        self.l2_strength = l2_strength
        self.sparsity = sparsity
        self.intercept = intercept
        self.layout = layout
        self.standardize = standardize
        self.tol = tol
        self.max_seconds = max_seconds
        self.surrogate = surrogate
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        """Refuse parameters that mean nothing, alone or together."""
        for name, check in _CHECKS.items():
            check(getattr(self, name))
        if self.hidden is not None and self.n_neurons != "auto":
            raise InvalidInputError(
                f"expected hidden or n_neurons, got hidden={self.hidden!r} and n_neurons={self.n_neurons!r}: drop one"
            )
        if self.witnesses == "mixed" and not self._is_mixed:
            raise InvalidInputError(
                "expected method 'cvx' and one hidden layer for mixed witnesses, got other parameters: pass "
                "witnesses='search' or a family"
            )
        is_sparse = self.sparsity is not None and self.sparsity != "accuracy"
        if is_sparse and METHODS[self.method].stages[-1] != "convex":
            raise InvalidInputError(
                f"expected a method that ends with a convex read-out for sparsity={self.sparsity!r}, got "
                f"{self.method!r}: use 'cvx' or 'sg-cvx'"
            )
        self._program(Objective("squared"))

    def _seed(self) -> int:
        seed = self.random_state
        return int(seed if isinstance(seed, (int, np.integer)) else check_random_state(seed).randint(2**31))

    @property
    def _is_mixed(self) -> bool:
        """Whether neurons of several families are sampled together."""
        named = isinstance(self.witnesses, str) and self.witnesses in ("auto", "mixed")
        return named and self.method == "cvx" and len(self._widths()) == 1

    @property
    def _is_ridge(self) -> bool:
        """Whether the read-out is ridge regression, the default for mixed witnesses."""
        is_open = self.penalty == "auto" and _is_auto(self.l1_strength) and _is_auto(self.l2_strength)
        return self._is_mixed and is_open and self.loss in (None, "squared")

    def _program(self, objective: Objective) -> Program:
        """Return what the read-out minimises."""
        if self._is_ridge:
            return Program.ridge(objective, intercept=self.intercept, tol=self.tol)
        penalty = self.penalty
        if penalty == "auto":
            penalty = "elastic-net" if self._is_mixed and _is_auto(self.l1_strength) else "l1"
        strengths: Any = (self.l1_strength, self.l2_strength)
        return Program(objective, penalty, *strengths, intercept=self.intercept, tol=self.tol)

    def _budget(self) -> Budget:
        sparsity: Sparsity | None = None if self.sparsity == "accuracy" else self.sparsity  # type: ignore[assignment]
        n_neurons = None if self.hidden is None and self.n_neurons == "auto" else self._widths()[-1]
        return Budget(n_neurons, inf if self.max_seconds is None else float(self.max_seconds), sparsity)

    def _objective(self, loss: str | Loss) -> Objective:
        return Objective(loss, "mean" if self.readout is None else self.readout)

    def _readouts(self, n_steps: int) -> tuple[Readout, ...]:
        """Return the read-outs to choose from; none if there is no choice."""
        return ("mean", "last") if self.readout is None and n_steps > 1 else ()

    def _families(self, data: TrainingSet) -> Family | tuple[Family, ...] | Tuning:
        """Return the families to choose from, or how to search for one."""
        if self._is_mixed:
            return mixtures_for(data.sequences.n_steps, data.sequences.n_features)
        hidden = self._widths()
        if isinstance(self.witnesses, WitnessSet):
            return self.witnesses
        if isinstance(self.witnesses, Tuning):
            return self._tuning(data, hidden, self.witnesses)
        if isinstance(self.witnesses, Mapping):
            n_subnetworks = self.witnesses.get("n_subnetworks", 1)
            if self.hidden is None and isinstance(n_subnetworks, int) and n_subnetworks > 1:
                hidden = (max(1, hidden[0] // n_subnetworks),)  # n_neurons counts those of all subnetworks
            return {"hidden": hidden, "n_subnetworks": 1, "neuron": "lif", **self.witnesses}
        sizes: Mapping[str, Any] = {"hidden": hidden, "n_subnetworks": 1, "neuron": "lif"}
        if self.witnesses == "delayed":
            return {"geometry": "scattered", **sizes}
        method = METHODS[self.method]
        if self.witnesses != "gaussian" and method.stages[0] == "convex" and method.hidden == "sampled":
            return self._tuning(data, hidden)
        return {**(_PAPERS_FAMILY if self.witnesses == "gaussian" else _DEFAULT_FAMILY), **sizes}

    def _tuning(self, data: TrainingSet, hidden: tuple[int, ...], given: Tuning | None = None) -> Tuning:
        """Return how to search, with the sizes and the time of the estimator."""
        fewest, most = DEFAULTS.trials
        n_trials = min(max(len(data) // (2 * DEFAULTS.one_held_out), fewest), most)
        is_free = self.hidden is None and self.method == "cvx"
        tuning = given or Tuning(
            n_trials=n_trials,
            n_subnetworks="auto" if is_free else 1,
            n_compared=DEFAULTS.n_compared,
            shares=DEFAULTS.shares,
        )
        if self.hidden is not None or self.n_neurons != "auto" or given is None:
            tuning = replace(tuning, n_witnesses=hidden[-1], hidden=None if self.hidden is None else hidden)
        return replace(
            tuning,
            readouts=tuning.readouts or self._readouts(data.sequences.n_steps),
            max_seconds=min(tuning.max_seconds, self._budget().max_seconds or 1e-9),
        )

    def _widths(self) -> tuple[int, ...]:
        """Return the widths of the hidden layers."""
        if self.hidden is not None:
            return tuple(int(width) for width in np.ravel(np.asarray(self.hidden, dtype=object)))
        if not isinstance(self.n_neurons, str):
            return (int(self.n_neurons),)
        reads_itself = isinstance(self.witnesses, Mapping) and self.witnesses.get("neuron", "lif") != "lif"
        return (DEFAULTS.n_neurons if self.method == "cvx" and not reads_itself else DEFAULTS.n_trained,)


def current_parameters(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a model file of an earlier version under their present names.

    Dynamics of neurons, numbers of subnetworks and fan-ins are now part of a family, and windows of a read-out. How a
    search was limited is not kept: it is over.

    Parameters
    ----------
    saved : mapping
        The parameters in the file.

    Returns
    -------
    dict
        Parameters of an estimator.
    """
    dynamics = ("n_subnetworks", "neuron", "decay", "threshold", "bias", "gain", "fan_in")
    retired = (*dynamics, "windows", "n_trials", "max_tuning_seconds", "validation_fraction", "n_jobs")
    kept = {name: value for name, value in saved.items() if name not in retired}
    family = {name: saved[name] for name in dynamics if saved.get(name) is not None and saved[name] != "lif"}
    if family and isinstance(kept.get("witnesses", "auto"), str):
        kept["witnesses"] = family
    if saved.get("windows") is not None:
        kept["readout"] = f"windows-{saved['windows']}"
    return kept


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"
