"""Long lives of estimators: fitted, refused, interrupted, saved, pickled, cloned, certified, explored, in any order.

Beside the estimator is kept what it should be: fitted to nothing, or to one of a few sets of data. After each event it
must answer, to the bit, as a fresh estimator does that was fitted to these data only.
"""

import pickle
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import cvxsnn as cs
from cvxsnn.core.errors import CvxsnnError

from .harness import Hunt
from .refits import Interrupter

_MODELS: tuple[Any, ...] = (
    cs.SpikingClassifier(n_neurons=8, random_state=0),
    cs.SpikingClassifier(n_neurons=8, random_state=0, witnesses="gaussian", l1_strength=0.01),
    cs.SpikingRegressor(n_neurons=8, random_state=0, sparsity=3),
    cs.SpikingRegressor(n_neurons=8, random_state=0, method="r"),
)
_N_DATA = 3
"""Sets of data, each with other features, lengths and labels."""


@cache
def _data(number: int, is_classifier: bool) -> tuple[Any, Any]:
    rng = np.random.default_rng(number)
    X = rng.normal(size=(14, 3 + number, 1 + number))
    total = X.sum((1, 2))
    labels = np.array([["a", "b"], ["b", "c"], ["x", "a"]][number])
    y = labels[(total > np.median(total)).astype(int)] if is_classifier else total
    return list(X) if number == 1 else X, y


@cache
def _expected(kind: int, number: int) -> tuple[str, str]:
    """Return the answers of a fresh estimator, and what it proves."""
    model = clone(_MODELS[kind])
    X, y = _data(number, hasattr(model, "class_weight"))
    model.fit(X, y)
    return repr(model.predict(X).tolist()), str(model.certificate_)


@cache
def _n_lines(kind: int, number: int) -> int:
    """Return the number of lines of the library that a fit runs."""
    watched, model = Interrupter(), clone(_MODELS[kind])
    with watched.watching():
        model.fit(*_data(number, hasattr(model, "class_weight")))
    return len(watched.lines)


class Life(RuleBasedStateMachine):
    """The life of one estimator."""

    @initialize(kind=st.integers(0, len(_MODELS) - 1))
    def begin(self, kind: int) -> None:
        """Begin without a fit."""
        self.kind = kind
        self.model: Any = clone(_MODELS[kind])
        self.is_classifier = hasattr(self.model, "class_weight")
        self.fitted_to: int | None = None

    @property
    def data(self) -> tuple[Any, Any]:
        """The data of the last fit that succeeded."""
        assert self.fitted_to is not None
        return _data(self.fitted_to, self.is_classifier)

    @rule(number=st.integers(0, _N_DATA - 1))
    def fit(self, number: int) -> None:
        """Fit to any data."""
        assert self.model.fit(*_data(number, self.is_classifier)) is self.model
        self.fitted_to = number

    @rule(number=st.integers(0, _N_DATA - 1), place=st.floats(0, 1))
    def interrupted_fit(self, number: int, place: float) -> None:
        """Interrupt a fit at any line."""
        interrupter = Interrupter(int(place * 0.99 * _n_lines(self.kind, number)))
        try:
            with interrupter.watching():
                self.model.fit(*_data(number, self.is_classifier))
        except KeyboardInterrupt:
            return
        self.fitted_to = number  # the lines that a fit runs may be some fewer

    @rule(number=st.integers(0, _N_DATA - 1), name=st.sampled_from(("tol", "l1_strength", "readout", "data")))
    def refused_fit(self, number: int, name: str) -> None:
        """Fit with a parameter or with targets that are refused."""
        X, y = _data(number, self.is_classifier)
        before = self.model.get_params()
        try:
            if name == "data":
                self.model.fit(X, y[:-1])
            else:
                self.model.set_params(**{name: -1}).fit(X, y)
        except CvxsnnError:
            self.model.set_params(**before)
        else:
            raise AssertionError(f"a fit with {name} that makes no sense was accepted")

    @rule()
    def pickled(self) -> None:
        """Go on with the copy that a pickle makes."""
        self.model = pickle.loads(pickle.dumps(self.model))

    @precondition(lambda self: self.fitted_to is not None)
    @rule()
    def saved(self) -> None:
        """Go on with the copy that a file makes."""
        with tempfile.TemporaryDirectory() as folder:
            cs.save(self.model, Path(folder) / "model")
            self.model = cs.load(Path(folder) / "model")

    @rule(is_kept=st.booleans())
    def cloned(self, is_kept: bool) -> None:
        """Make a clone, which is not fitted, and go on with it or not."""
        copy = clone(self.model)
        assert not any(name.endswith("_") for name in vars(copy))
        if is_kept:
            self.model, self.fitted_to = copy, None

    @precondition(lambda self: self.fitted_to is not None and self.model.certificate_ is not None)
    @rule()
    def certified(self) -> None:
        """Certify again from the data of the last fit; others would raise a warning, which is an error here."""
        assert np.isclose(self.model.certify(*self.data).primal, self.model.certificate_.primal, rtol=1e-9, atol=1e-12)

    @precondition(lambda self: self.fitted_to is not None)
    @rule()
    def explored(self) -> None:
        """Make a page, and print a summary."""
        assert "<html" in str(self.model.explore(*self.data, max_seconds=0.1).html)[:1000].lower()
        assert type(self.model).__name__ in str(self.model.summary())

    @invariant()
    def answers_as_it_should(self) -> None:
        """The estimator is as fitted to the data as it should be, and no more."""
        if self.fitted_to is None:
            try:
                self.model.predict(_data(0, self.is_classifier)[0])
            except NotFittedError:
                return
            raise AssertionError("expected an estimator that is not fitted")
        predicted, certificate = _expected(self.kind, self.fitted_to)
        assert repr(self.model.predict(self.data[0]).tolist()) == predicted
        assert str(self.model.certificate_) == certificate


def case(rng: np.random.Generator, folder: Path) -> str:
    """Run a few lives."""
    few = settings(
        max_examples=8,
        stateful_step_count=20,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(int(rng.integers(2**31)))(Life), settings=few)
    return "lived"


HUNT = Hunt(
    "lives",
    "Eight lives of an estimator each: fitted, refused, interrupted, saved, pickled, cloned, explored, in any order.",
    case,
    cases=200,
    short=1,
    seconds=600.0,
)
