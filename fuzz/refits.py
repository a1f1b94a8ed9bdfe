"""Fits of fitted estimators that are refused, run out of memory or are interrupted: they change nothing.

An interrupt comes at a line of the library, drawn from all that a fit runs: half of them at any tenth line that is
run, half at the first run of any line, so that loops do not crowd out the rest.
"""

import linecache
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from opcode import opmap
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

import cvxsnn as cs
from cvxsnn.core.errors import CvxsnnError
from cvxsnn.fitting import SurrogateSettings, Tuning

from .harness import Finding, Hunt

Generator = np.random.Generator

_SOURCE = str(Path(cs.__file__).parent)
_INTERRUPTS = 12
"""Interrupted fits per case."""

_NOT_FITTED = "not fitted"


class Interrupter:
    """Count the lines of the library that are run, and raise at one of them, or after it where Python can.

    Parameters
    ----------
    at : int, optional
        Number of the line at which to raise; by default none.
    error : BaseException
        What to raise.

    Attributes
    ----------
    lines : list of (str, int)
        File and number of each line that was run.
    """

    def __init__(self, at: int | None = None, error: BaseException | None = None) -> None:
        self.at = at
        self.error = KeyboardInterrupt() if error is None else error
        self.lines: list[tuple[str, int]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what this thread runs."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, value: Any) -> Any:
        return self._step if frame.f_code.co_filename.startswith(_SOURCE) else None

    def _step(self, frame: FrameType, event: str, value: Any) -> Any:
        if event == "line":
            self.lines.append((frame.f_code.co_filename, frame.f_lineno))
            if self.at is not None and len(self.lines) > self.at and _can_interrupt(frame):
                self.at = None
                raise self.error
        return self._step


def _can_interrupt(frame: FrameType) -> bool:
    """Return whether Python looks for interrupts before this line: not between the end of a block and its exit.

    Nor does it where a line merely returns a value.
    """
    code, start = frame.f_code, frame.f_lasti
    instructions = code.co_code[start : start + 6]
    is_load = set(instructions[::2]) == {opmap["LOAD_CONST"]}
    leaves_a_block = is_load and {code.co_consts[place] for place in instructions[1::2]} == {None}
    line = linecache.getline(code.co_filename, frame.f_lineno).strip()
    return not leaves_a_block and ("(" in line or not line.startswith("return "))


@dataclass(frozen=True)
class State:
    """What there is to see of an estimator: its attributes, those of its steps, and its answers."""

    attributes: tuple[Mapping[str, Any], ...]
    answers: str
    summary: str

    @classmethod
    def of(cls, model: Any, X: Any) -> "State":
        """Return the state of an estimator that is asked about X."""
        parts, answers = _parts(model), _answers(model, X)
        has_summary = answers != _NOT_FITTED and hasattr(parts[-1], "summary")
        return cls(tuple(dict(vars(own)) for own in parts), answers, str(parts[-1].summary()) if has_summary else "")

    def refuse_other(self, model: Any, X: Any, when: str) -> None:
        """Refuse an estimator that is not in this state."""
        now = State.of(model, X)
        for old, new in zip(self.attributes, now.attributes, strict=True):
            changed = {
                name for name in {*old, *new} if name not in old or name not in new or old[name] is not new[name]
            }
            if changed:
                raise Finding(f"{when}, a fit has left other {sorted(changed)}")
        for old, new in ((self.answers, now.answers), (self.summary, now.summary)):
            if new != old:
                raise Finding(f"{when}, a fit has left other answers: {new} instead of {old}")


def case(rng: Generator, folder: Path) -> str:
    """Fit an estimator, and let a second fit fail."""
    make, is_classifier = _MODELS[rng.integers(len(_MODELS))]
    model, (X, y) = make(), _data(rng, is_classifier)
    is_fitted = rng.random() < 0.9
    if is_fitted:
        model.fit(X, y)
    name, change = _CHANGES[rng.integers(len(_CHANGES))]
    other = change(rng, model, *_data(rng, is_classifier))
    # A pipeline of scikit-learn fits one step after the other; each of our steps is whole by itself.
    is_whole = not hasattr(model, "steps")
    before, twin = State.of(model, X), clone(model)
    watched = Interrupter()
    try:
        with watched.watching():
            twin.fit(*other)
    except CvxsnnError:
        try:
            model.fit(*other)
        except CvxsnnError:
            pass
        else:
            raise Finding(f"{name}: a refit was accepted that a first fit refuses: {model}") from None
        if is_whole:
            before.refuse_other(model, X, f"refused ({name})")
        return f"refused: {name}"
    after = State.of(twin, other[0])
    for place in _places(rng, watched.lines):
        error = KeyboardInterrupt() if rng.random() < 0.8 else MemoryError()
        interrupter = Interrupter(place, error)
        copied = copy_of(model)
        start = State.of(copied, X)
        try:
            with interrupter.watching():
                copied.fit(*other)
        except type(error) as raised:
            if raised is not error:
                raise
            torch.set_grad_enabled(True)  # an interrupt in the exit of torch.no_grad() leaves it off
            where = f"at {interrupter.lines[-1]} ({name}, {type(error).__name__})"
            if is_whole:
                start.refuse_other(copied, X, where)
            else:
                _refuse_mixed_steps(start, copied, twin, where)
    n_threads = threading.active_count()
    model.fit(*other)
    if threading.active_count() > n_threads:
        raise Finding("a fit has left a thread behind")
    if (found := State.of(model, other[0])).answers != after.answers:
        raise Finding(f"a refit ({name}) has other answers than a first fit: {found.answers}, {after.answers}")
    for refitted, fitted in zip(found.attributes, after.attributes, strict=True):
        if set(refitted) != set(fitted):
            raise Finding(f"a refit ({name}) has kept or lost {sorted(set(refitted) ^ set(fitted))}")
    return "interrupted" if is_fitted else "interrupted before any fit"


def _places(rng: Generator, lines: list[tuple[str, int]]) -> list[int]:
    """Return numbers of lines that are run, at which to interrupt."""
    first = {line: place for place, line in reversed(list(enumerate(lines)))}
    tenths = rng.integers(len(lines) // 10 + 1, size=_INTERRUPTS // 2) * 10
    starts = rng.choice(list(first.values()), _INTERRUPTS - len(tenths))
    return [int(place) for place in (*tenths, *starts)]


def _parts(model: Any) -> list[Any]:
    """Return an estimator, or the steps of a pipeline."""
    return [own for _, own in model.steps] if hasattr(model, "steps") else [model]


def copy_of(model: Any) -> Any:
    """Return an estimator with the same attributes, objects and all."""
    if hasattr(model, "steps"):
        return type(model)([(name, copy_of(own)) for name, own in model.steps])
    copied = type(model).__new__(type(model))
    vars(copied).update(vars(model))
    return copied


def _answers(model: Any, X: Any) -> str:
    """Return what an estimator answers, as text."""
    try:
        for own in _parts(model):
            check_is_fitted(own)
    except NotFittedError:
        return _NOT_FITTED
    last = _parts(model)[-1]
    try:
        if not hasattr(model, "predict"):
            return repr([np.asarray(own).tolist() for own in model.transform(X)])
        return repr((model.predict(X).tolist(), str(last.certificate_), str(last.network_)))
    except CvxsnnError as error:  # a parameter was replaced by one that makes no sense
        return str(error)


def _refuse_mixed_steps(start: State, model: Any, twin: Any, where: str) -> None:
    """Refuse a pipeline with a step that has parts of two fits; each is as it was, or as a complete fit leaves it."""
    for old, own, done in zip(start.attributes, _parts(model), _parts(twin), strict=True):
        now = vars(own)
        is_old = set(now) == set(old) and all(now[name] is old[name] for name in old)
        is_new = set(now) == set(vars(done)) and all(repr(now[name]) == repr(vars(done)[name]) for name in now)
        if not is_old and not is_new:
            raise Finding(f"{where}, a fit has left a mixture in {type(own).__name__}")


# Tiny estimators of every method and mode.

_BRIEF = SurrogateSettings(epochs=1, batch_size=16)
_TINY: Mapping[str, Any] = {"random_state": 0, "n_neurons": 8}
_GAUSSIAN: Mapping[str, Any] = {**_TINY, "witnesses": "gaussian", "l1_strength": 0.01, "surrogate": _BRIEF}
_SETTINGS: tuple[Mapping[str, Any], ...] = (
    _TINY,
    {"random_state": 0, "hidden": (8,)},
    {"random_state": 0, "hidden": (4, 6), "l1_strength": 0.01},
    {**_TINY, "sparsity": 3},
    {**_TINY, "sparsity": "few"},
    {**_TINY, "l1_strength": 0.01},
    {**_TINY, "readout": "last"},
    {**_TINY, "witnesses": "delayed", "l1_strength": 0.01},
    {**_TINY, "witnesses": Tuning(n_trials=1), "l1_strength": 0.01},
    {**_TINY, "witnesses": "gaussian", "l1_strength": 0.0, "l2_strength": 0.1, "penalty": "elastic-net"},
    *({**_GAUSSIAN, "method": method} for method in ("cvx", "sg", "sg-cvx", "sg-sg", "cvx-sg", "r")),
)
_LOSSES: tuple[Mapping[str, Any], ...] = (
    {**_TINY, "class_weight": "balanced"},
    *({**_GAUSSIAN, "loss": loss} for loss in ("hinge", "squared_hinge", "logistic", "softmax", "squared")),
)


def _maker(kind: Callable[..., Any], settings: Mapping[str, Any]) -> Callable[[], Any]:
    return lambda: kind(**settings)


_MODELS: tuple[tuple[Callable[[], Any], bool], ...] = (
    *((_maker(cs.SpikingClassifier, own), True) for own in (*_SETTINGS, *_LOSSES)),
    *((_maker(cs.SpikingRegressor, own), False) for own in _SETTINGS),
    (cs.SequenceScaler, False),
    (lambda: cs.SequenceScaler("common", floor=0.01), False),
    (cs.SequenceImputer, False),
    (lambda: cs.SequenceImputer("constant"), False),
    (lambda: cs.SequenceResampler(3), False),
    (lambda: make_pipeline(cs.SequenceScaler(), cs.SpikingClassifier(**_TINY)), True),
    (lambda: make_pipeline(cs.SequenceImputer(), cs.SequenceScaler(), cs.SpikingRegressor(**_GAUSSIAN)), False),
)


def _data(rng: Generator, is_classifier: bool) -> tuple[Any, Any]:
    """Return sequences with targets; those of a regressor are windows of a series, as for a forecast."""
    if not is_classifier:
        return cs.make_windows(np.sin(np.arange(20.0) / 3 + rng.random()) + 0.1 * rng.normal(size=20), window=4)
    X = rng.normal(size=(16, 4, 1))
    return X, np.where(X.sum((1, 2)).argsort().argsort() < 8, "a", "b")


# What a second fit is given.

Change = Callable[[Generator, Any, Any, Any], tuple[Any, Any]]


def _swapped(rng: Generator, model: Any, X: Any, y: Any) -> tuple[Any, Any]:
    return X, np.where(y == "a", "b", "a") if y.dtype.kind == "U" else -y


def _other_targets(rng: Generator, model: Any, X: Any, y: Any) -> tuple[Any, Any]:
    return X, np.array(["x", "y", "z"])[np.arange(len(y)) % 3] if y.dtype.kind == "U" else np.column_stack((y, y**2))


def _wide(rng: Generator, model: Any, X: Any, y: Any) -> tuple[Any, Any]:
    return rng.normal(size=(*X.shape[:2], int(rng.integers(2, 4)))), y


def _ragged(rng: Generator, model: Any, X: Any, y: Any) -> tuple[Any, Any]:
    return [own[: rng.integers(3, 5)] for own in X], y


def _tables(rng: Generator, model: Any, X: Any, y: Any) -> tuple[Any, Any]:
    return [pandas.DataFrame(own, columns=["value"]) for own in X], y


def _with_gap(rng: Generator, model: Any, X: Any, y: Any) -> tuple[Any, Any]:
    X = X.copy()
    X[-1, 0, 0] = np.inf
    return X, y


def _with_parameter(**choices: Any) -> Change:
    def change(rng: Generator, model: Any, X: Any, y: Any) -> tuple[Any, Any]:
        own = _parts(model)[-1]
        known = [name for name in choices if name in own.get_params()]
        if known:
            name = str(rng.choice(known))
            own.set_params(**{name: choices[name]})
        return X, y

    return change


_CHANGES: tuple[tuple[str, Change], ...] = (
    *[("labels in the other order", _swapped)] * 3,
    *[("other targets", _other_targets)] * 3,
    *[("other features", _wide)] * 3,
    *[("other lengths", _ragged)] * 3,
    *[("tables", _tables)] * 2,
    ("rows", lambda rng, model, X, y: (X[:, 0], y)),
    ("one class", lambda rng, model, X, y: (X, y[:1].repeat(len(y)))),
    ("too few targets", lambda rng, model, X, y: (X, y[1:])),
    ("no targets", lambda rng, model, X, y: (X, None)),
    ("an infinite value", _with_gap),
    (
        "a parameter that is refused",
        _with_parameter(
            l1_strength=-1.0,
            penalty="other",
            n_neurons=0,
            readout="other",
            class_weight={"a": -1},
            sparsity=-1,
            witnesses="other",
            device="other",
            floor=-1.0,
            strategy="other",
            n_steps=0,
        ),
    ),
)

HUNT = Hunt(
    "refits",
    "Fits of fitted estimators that are refused, run out of memory or are interrupted at any line.",
    case,
    cases=2_000,
    short=12,
    seconds=120.0,
)
