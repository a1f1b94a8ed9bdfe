"""The parameters of the estimators, and what they stand for: settings of training, families, read-outs, strengths."""

from collections.abc import Mapping
from math import inf
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from ..convex.objective import Objective
from ..convex.penalties import make_penalty
from ..core.checks import check_bool, check_choice, check_n_jobs, check_number, check_positive_int
from ..core.errors import InvalidInputError
from ..data.sequences import TrainingSet
from ..dictionary import Readout
from ..dictionary.readout import parse_readout
from ..neurons import NEURON_MODELS
from ..training.methods import METHODS, Settings
from ..training.search import Tuning
from ..training.selection import Sparsity
from ..training.stages import ConvexSettings
from ..training.surrogate.settings import SurrogateSettings
from ..witnesses import Distribution, Normal, Uniform, WitnessSet

_NEURONS, _FEWER_NEURONS = 4096, 1024
"""Sampled by default: LIF neurons for a read-out alone; and those to train, or that read each other."""
_TRIALS = (64, 192)
_TUNING_NEURONS, _TUNING_SHARES = 1024, (8, 2, 1)
"""With which families are compared: on few sequences, a few dozen neurons tell them badly apart."""

_DEFAULT_FAMILY: Mapping[str, Any] = {"decay": Uniform(0.5, 1.0), "bias": Normal(0.0, 0.5)}
_PAPERS_FAMILY: Mapping[str, Any] = {"decay": 0.9, "threshold": 1.0, "bias": 0.0, "gain": 1.0}


class EstimatorChoices(BaseEstimator):  # type: ignore[misc]
    """The parameters of an estimator, each checked when it is used."""

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

    def _check_parameters(self) -> None:
        """Refuse parameters of a type or size that means nothing; combinations are checked where they are used."""
        check_choice("method", self.method, tuple(METHODS))
        NEURON_MODELS.find(self.neuron)
        if not isinstance(self.penalty, str) or self.penalty != "auto":
            make_penalty(self.penalty)
        self._n_neurons()
        check_bool("intercept", self.intercept)
        check_bool("standardize", self.standardize)
        if not 0 < check_number("validation_fraction", self.validation_fraction) < 1:
            raise InvalidInputError(f"expected validation_fraction between 0 and 1, got {self.validation_fraction!r}")
        if not check_number("tol", self.tol) > 0:
            raise InvalidInputError(f"expected tol to be above zero, got {self.tol!r}")
        if not self._has_default_penalty:
            self._convex_settings()
        for name in ("max_seconds", "max_tuning_seconds"):
            self._seconds(name)
        if self.max_seconds is not None and not self._is_ridge:
            raise InvalidInputError(
                "expected max_seconds only with mixed witnesses and their default penalty and loss, got other "
                "parameters: drop it, or limit a search by max_tuning_seconds"
            )
        if self.n_trials is not None:
            check_positive_int("n_trials", self.n_trials)
        check_n_jobs(self.n_jobs)
        if self.surrogate is not None and not isinstance(self.surrogate, SurrogateSettings):
            raise InvalidInputError(f"expected surrogate to be SurrogateSettings, got {type(self.surrogate).__name__}")
        seed = self.random_state
        if not isinstance(seed, (int, np.integer, np.random.RandomState)) and seed is not None:
            raise InvalidInputError(f"expected random_state to be an integer, a RandomState or None, got {seed!r}")

    def _seed(self) -> int:
        seed = self.random_state
        return int(seed if isinstance(seed, (int, np.integer)) else check_random_state(seed).randint(2**31))

    def _settings(self, objective: Objective, family: Mapping[str, Any] | WitnessSet | Tuning, seed: int) -> Settings:
        """Return the settings of training that the parameters stand for."""
        surrogate = None
        if "gradient" in METHODS[self.method].stages:
            surrogate = self.surrogate or SurrogateSettings(epochs=50, seed=seed)
        return Settings(objective, family, self._convex_settings(), surrogate=surrogate, seed=seed)

    def _convex_settings(self) -> ConvexSettings:
        return ConvexSettings(
            self._strength("l1_strength"),
            l2_strength=self._strength("l2_strength"),
            penalty=self._penalty,
            intercept=self.intercept,
            tol=self.tol,
        )

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
        return self._is_mixed and self._has_default_penalty and self.loss in (None, "squared")

    @property
    def _has_default_penalty(self) -> bool:
        return self.penalty == "auto" and _is_auto(self.l1_strength) and _is_auto(self.l2_strength)

    @property
    def _penalty(self) -> str:
        if self.penalty != "auto":
            return self.penalty
        return "elastic-net" if self._is_mixed and _is_auto(self.l1_strength) else "l1"

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
        named_families = ("auto", "mixed", "search", "gaussian", "delayed")
        if not isinstance(self.witnesses, str) or self.witnesses not in named_families:
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
                max_seconds=self._seconds("max_tuning_seconds"),
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
        """Return the number of neurons that was asked for; None leaves it open."""
        if isinstance(self.n_neurons, str):
            check_choice("n_neurons", self.n_neurons, ("auto",))
            return None if self.hidden is None else self._widths()[0][0]
        if self.hidden is not None:
            raise InvalidInputError(
                f"expected hidden or n_neurons, got hidden={self.hidden!r} and n_neurons={self.n_neurons!r}: drop one"
            )
        return check_positive_int("n_neurons", self.n_neurons)

    def _widths(self) -> tuple[tuple[int, ...], int]:
        """Return the widths of the hidden layers, and the number of subnetworks."""
        n_subnetworks = 1 if self.n_subnetworks is None else check_positive_int("n_subnetworks", self.n_subnetworks)
        if self.hidden is None or self.n_neurons != "auto":
            default = _NEURONS if self.method == "cvx" and self.neuron == "lif" else _FEWER_NEURONS
            return (max(1, (self._n_neurons() or default) // n_subnetworks),), n_subnetworks
        widths = tuple(np.ravel(np.asarray(self.hidden, dtype=object)))
        if not widths:
            raise InvalidInputError("expected hidden to list the layers' widths, got none: pass (256,)")
        return tuple(check_positive_int("hidden", width) for width in widths), n_subnetworks

    def _seconds(self, name: str = "max_seconds") -> float:
        """Return the time after which nothing more is tried."""
        given = getattr(self, name)
        seconds = inf if given is None else check_number(name, given)
        if seconds < 0:
            raise InvalidInputError(f"expected {name} to be zero or above, got {given!r}")
        return seconds

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
            return check_number(name, strength)
        return check_choice(name, strength, ("auto",))


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"
