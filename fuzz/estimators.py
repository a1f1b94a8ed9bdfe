"""Tiny fits to data of every type, shape, scale and weight: a model that keeps its promises, or one sentence."""

import datetime
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import scipy.sparse
import torch
from sklearn.pipeline import make_pipeline

import cvxsnn as cs
from cvxsnn.core.errors import CvxsnnError
from cvxsnn.fitting import SurrogateSettings, Tuning

from .harness import Finding, Hunt

Generator = np.random.Generator


@dataclass
class Fit:
    """One fit: an estimator, its data, and which of its promises are worth checking."""

    is_classifier: bool
    parameters: dict[str, Any]
    X: Any
    y: Any
    weight: Any
    steps: tuple[Any, ...] = ()
    is_weighted_alike: bool = True

    def __str__(self) -> str:
        """Return what is needed to see the point in a few lines."""
        data = {"X": self.X, "y": self.y, "weight": self.weight}
        shown = ", ".join(f"{name}: {_show(values)}" for name, values in data.items() if values is not None)
        return f"{'classifier' if self.is_classifier else 'regressor'} {self.parameters}, {shown}, {self.steps}"

    def make(self) -> Any:
        """Return an estimator that is not fitted, with its transformers."""
        kind = cs.SpikingClassifier if self.is_classifier else cs.SpikingRegressor
        model = kind(**self.parameters)
        return make_pipeline(*self.steps, model) if self.steps else model

    def fit(self, factor: float | None = None) -> Any:
        """Return a fitted estimator; ``factor`` multiplies the weights."""
        model, weight = self.make(), self.weight
        if weight is None and factor is None:
            return model.fit(self.X, self.y)
        weight = np.ones(_size(self.y)) if weight is None else weight
        weight = weight if factor is None else weight * factor
        name = f"{type(_last(model)).__name__.lower()}__sample_weight" if self.steps else "sample_weight"
        return model.fit(self.X, self.y, **{name: weight})


def case(rng: Generator, folder: Path) -> str:
    """Fit one estimator, and check what it promises."""
    fit = _draw(rng)
    bad = "nothing"
    if rng.random() < 0.6:
        bad, change = _CHANGES[rng.integers(len(_CHANGES))]
        fit = change(rng, fit)
    try:
        model = fit.fit()
    except CvxsnnError as error:
        if "\n" in str(error) or not str(error):
            raise Finding(f"{bad}: expected one sentence, got {str(error)!r}") from error
        if bad == "nothing":
            raise Finding(f"an ordinary fit was refused: {error}; {fit}") from error
        return "refused"
    except Exception as error:
        error.add_note(f"{bad}: {fit}")
        raise
    try:
        _check(rng, fit, model, folder)
    except Exception as error:
        error.add_note(f"{bad}: {fit}")
        if isinstance(error, Finding):
            raise Finding(f"{bad}: {error}; {fit}") from error
        raise
    return "fitted"


def _check(rng: Generator, fit: Fit, model: Any, folder: Path) -> None:
    """Refuse a fitted model that breaks a promise."""
    n_samples, last = _size(fit.y), _last(model)
    _check_predictions(model, fit, n_samples)
    scores = _scores(model, fit.X)
    cs.save(model, folder / "model")
    again = cs.load(folder / "model")
    twins = {"loaded": again, "unpickled": pickle.loads(pickle.dumps(model))}
    if rng.random() < 0.5:
        twins["repeated"] = fit.fit()
    for name, twin in twins.items():
        if not np.array_equal(_scores(twin, fit.X), scores):
            raise Finding(f"the {name} model has other scores, by up to {abs(_scores(twin, fit.X) - scores).max()}")
    if last.certificate_ is not None:
        _check_certificate(fit, model, again)
    if fit.is_weighted_alike and rng.random() < 0.1:
        exact, near = fit.fit(2.0**-30), fit.fit(7.0)
        if not np.array_equal(_scores(exact, fit.X), _scores(fit.fit(1.0), fit.X)):
            raise Finding("weights times 2**-30 give another model")
        if last.certificate_ is not None:
            one, other = _last(exact).certificate_, _last(near).certificate_
            if not np.isclose(one.primal, other.primal, rtol=2 * last.tol, atol=1e-12):
                raise Finding(f"weights times 7 give an objective of {other.primal} instead of {one.primal}")


def _check_predictions(model: Any, fit: Fit, n_samples: int) -> None:
    predicted = model.predict(fit.X)
    n_outputs = 1 if fit.is_classifier else np.asarray(_last(model).network_.n_outputs)
    shapes = [(n_samples,), (n_samples, int(n_outputs))]
    if predicted.shape not in shapes:
        raise Finding(f"expected predictions of shape {shapes}, got {predicted.shape}")
    if not fit.is_classifier:
        if not np.isfinite(predicted).all():
            raise Finding("predictions are not finite")
        return
    classes = _last(model).classes_
    if not set(predicted.tolist()) <= set(classes.tolist()):
        raise Finding(f"predicted {set(predicted.tolist())} of {classes}")
    if hasattr(model, "predict_proba"):
        shares = model.predict_proba(fit.X)
        if shares.shape != (n_samples, len(classes)) or not np.isfinite(shares).all():
            raise Finding(f"probabilities of {len(classes)} classes of shape {shares.shape}, or not finite: {shares}")
        if abs(shares.sum(1) - 1).max() > 1e-9 or shares.min() < 0:
            raise Finding(f"probabilities are no shares of one: {shares}")


def _check_certificate(fit: Fit, model: Any, again: Any) -> None:
    stated = _last(model).certificate_
    X = model[:-1].transform(fit.X) if fit.steps else fit.X
    found = _last(again).certify(X, fit.y, fit.weight)
    for own in (stated, found):
        is_finite = all(map(isfinite, (own.primal, own.dual, own.gap)))
        if not is_finite or own.gap < -1e-9 * max(abs(own.primal), abs(own.dual)):
            raise Finding(f"not finite, or a gap below zero: {own!r}")
    if abs(found.primal - stated.primal) > 1e-9 * max(abs(stated.primal), abs(stated.dual)):
        raise Finding(f"certified again from a file, the objective is {found.primal!r} instead of {stated.primal!r}")
    if found.gap > 2 * stated.gap + 1e-9 * abs(stated.primal):
        raise Finding(f"certified again from a file, the gap is {found.gap!r} instead of {stated.gap!r}")


def _show(values: Any) -> str:
    kind = f"{type(values).__name__} {getattr(values, 'dtype', '')} {tuple(getattr(values, 'shape', ()))}"
    return f"{kind} {' '.join(repr(values).split())[:300]}"


def _scores(model: Any, X: Any) -> np.ndarray:
    return np.asarray(model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X))


def _last(model: Any) -> Any:
    return model[-1] if hasattr(model, "steps") else model


def _size(y: Any) -> int:
    return len(y) if hasattr(y, "__len__") else 0


# What an ordinary fit is drawn from.


def _draw(rng: Generator) -> Fit:
    """Return a fit that must succeed."""
    n_samples, n_steps, n_features = (int(rng.integers(low, high)) for low, high in ((10, 25), (1, 6), (1, 4)))
    X = rng.normal(size=(n_samples, n_steps, n_features))
    is_classifier = bool(rng.random() < 0.6)
    total = X.sum((1, 2)) + 0.3 * rng.normal(size=n_samples)
    n_classes = int(rng.integers(2, 4))
    y: Any = total
    if is_classifier:
        y = total.argsort().argsort() * n_classes // n_samples
    elif rng.random() < 0.25:
        y = np.column_stack((total, X[:, 0, 0]))
    parameters = {"n_neurons": int(rng.choice([8, 16, 32])), "random_state": int(rng.integers(1000))}
    parameters |= _pick(rng, _FAMILIES)
    if parameters.get("witnesses", "auto") in ("auto", "mixed"):
        parameters |= _pick(rng, _MIXED)
    else:
        parameters |= _pick(rng, _STRENGTHS)
        parameters |= _pick(rng, _LOSSES) if is_classifier else {}
    parameters |= _pick(rng, _READOUTS) if n_steps > 1 else {}
    weight = rng.choice([0.5, 1.0, 2.0], n_samples) if rng.random() < 0.2 else None
    fit = Fit(is_classifier, parameters, X, y, weight, is_weighted_alike=parameters.get("method") is None)
    if rng.random() < 0.2 and n_steps > 1:  # a single step is a constant
        fit.steps = _STEPS[rng.integers(len(_STEPS))]
    return fit


def _pick(rng: Generator, choices: tuple[Mapping[str, Any], ...]) -> Mapping[str, Any]:
    return choices[rng.integers(len(choices))]


_BRIEF = SurrogateSettings(epochs=1, batch_size=16)
_FAMILIES: tuple[Mapping[str, Any], ...] = (
    *[{}] * 6,
    *[{"witnesses": "gaussian"}] * 4,
    *[{"witnesses": "delayed"}] * 4,
    {"witnesses": {"decay": 0.5}},
    {"witnesses": {"neuron": "threshold"}},
    {"witnesses": {"decay": 0.8, "threshold": 0.5}},
    {"witnesses": Tuning(n_trials=1)},
    {"witnesses": {"n_subnetworks": 2}, "n_neurons": "auto", "hidden": (6, 8)},
    {"witnesses": "gaussian", "method": "sg", "surrogate": _BRIEF},
)
_MIXED: tuple[Mapping[str, Any], ...] = ({}, {}, {}, {"sparsity": 5}, {"sparsity": "few"}, {"intercept": False})
_STRENGTHS: tuple[Mapping[str, Any], ...] = (
    *[{"l1_strength": 0.01}] * 6,
    {"l1_strength": 0.01, "intercept": False},
    {"l1_strength": 0.01, "penalty": "group"},
    {"l1_strength": 0.01, "l2_strength": 0.01, "penalty": "elastic-net"},
    {"l1_strength": 0.0, "l2_strength": 0.1, "penalty": "group-elastic-net"},
    {"l1_strength": "auto"},
)
_LOSSES: tuple[Mapping[str, Any], ...] = (
    *[{}] * 3,
    *({"loss": loss} for loss in ("hinge", "squared_hinge", "logistic", "softmax", "squared")),
    {"class_weight": "balanced"},
)
_READOUTS: tuple[Mapping[str, Any], ...] = (
    *[{}] * 4,
    {"readout": "last"},
    {"readout": "mean"},
    {"readout": "windows-2"},
)
_STEPS: tuple[tuple[Any, ...], ...] = (
    (cs.SequenceScaler(),),
    (cs.SequenceScaler("common", per_sequence=True, floor=0.01),),
    (cs.SequenceImputer(),),
    (cs.SequenceImputer("forward"), cs.SequenceScaler()),
    (cs.SequenceResampler(3),),
    (cs.SequenceResampler(factor=1.5),),
)


# One thing that is unusual, or wrong, at a time.

Change = Callable[[Generator, Fit], Fit]


def _with_inputs(change: Callable[[Generator, np.ndarray], Any]) -> Change:
    return lambda rng, fit: replace(fit, X=change(rng, fit.X.copy()))


def _with_targets(change: Callable[[Generator, Any], Any]) -> Change:
    return lambda rng, fit: replace(fit, y=change(rng, fit.y))


def _with_labels(change: Callable[[Generator, np.ndarray], Any]) -> Change:
    def to_labels(rng: Generator, fit: Fit) -> Fit:
        return replace(fit, y=change(rng, fit.y)) if fit.is_classifier else fit

    return to_labels


def _with_weights(change: Callable[[Generator, int], Any]) -> Change:
    return lambda rng, fit: replace(fit, weight=change(rng, len(fit.y)), is_weighted_alike=False)


def _with_parameters(**choices: Any) -> Change:
    def change(rng: Generator, fit: Fit) -> Fit:
        name = str(rng.choice(list(choices)))
        own = choices[name]
        return replace(fit, parameters={**fit.parameters, name: own[rng.integers(len(own))]})

    return change


def _put(rng: Generator, values: np.ndarray, value: Any) -> np.ndarray:
    """Return an array with one other value."""
    values = values.astype(np.result_type(values, type(value)) if not isinstance(value, (str, bytes)) else object)
    values.flat[rng.integers(values.size)] = value
    return values


def _scaled(rng: Generator, X: np.ndarray) -> np.ndarray:
    return X * 10.0 ** float(rng.choice([-320, -300, -150, -20, -5, 5, 20, 150, 300]))


def _one_scaled(rng: Generator, X: np.ndarray) -> np.ndarray:
    X[..., 0] *= 10.0 ** float(rng.choice([-300, -8, 8, 300]))
    return X


def _ragged(rng: Generator, X: np.ndarray) -> list[np.ndarray]:
    return [own[: rng.integers(1, len(own) + 1)] for own in X]


def _frames(rng: Generator, X: np.ndarray) -> Any:
    frames = [pandas.DataFrame(own, columns=[f"x{i}" for i in range(own.shape[1])]) for own in X]
    return frames if rng.random() < 0.7 else pandas.Series(frames)


def _masked(rng: Generator, X: np.ndarray) -> Any:
    return np.ma.array(X, mask=rng.random(X.shape) < rng.choice([0.0, 0.1]))


def _rare(rng: Generator, y: np.ndarray) -> np.ndarray:
    labels = np.zeros(len(y), dtype=int)
    labels[rng.integers(len(y), size=rng.integers(1, 3))] = 1
    if rng.random() < 0.5:
        labels[rng.integers(len(y))] = 2
    return labels


_LABELS: tuple[Callable[[np.ndarray], Any], ...] = (
    lambda y: np.array(["a", "b", "c"])[y],
    lambda y: np.array(["a", "b", "c"], dtype=object)[y],
    lambda y: ["x" * 40 + str(own) for own in y],
    lambda y: y - 5,
    lambda y: (y * 2.0).tolist(),
    lambda y: y > 0,
    lambda y: y.astype(np.int8),
    lambda y: y.astype(np.uint64) + 2**63,
    lambda y: torch.tensor(y),
    lambda y: torch.tensor(y).to(torch.bfloat16),
    lambda y: pandas.Series(y, index=range(100, 100 + len(y))),
    lambda y: pandas.Series(np.array(["a", "b", "c"])[y], dtype="category"),
    lambda y: pandas.Series(y, dtype="Int64"),
    lambda y: np.ma.array(y),
    lambda y: y[:, None],
)
_BAD_LABELS: tuple[Callable[[np.ndarray], Any], ...] = (
    lambda y: np.array([b"a", b"b", b"c"])[y],
    lambda y: [own if own else "a" for own in y],
    lambda y: np.array([own if own else "a" for own in y], dtype=object),
    lambda y: np.array([own or None for own in y], dtype=object),
    lambda y: np.ma.array(y, mask=y == 0),
    lambda y: np.zeros(len(y)),
    lambda y: y + 0.5 * (y > 0),
    lambda y: y + 1j,
    lambda y: np.eye(3)[y],
    lambda y: [],
    lambda y: y[:-1],
    lambda y: None,
    lambda y: 3,
    lambda y: "labels",
    lambda y: {1: 2},
    lambda y: np.zeros(len(y), dtype=[("a", float)]),
    lambda y: [[own] * (own + 1) for own in y],
    lambda y: np.where(y == 0, np.nan, y),
    lambda y: pandas.Series(y, dtype="Int64").mask(y == 0),
    lambda y: torch.tensor(y).to("meta"),
)
_TARGETS: tuple[Callable[[Any], Any], ...] = (
    lambda y: y.tolist(),
    lambda y: y.astype(np.float32),
    lambda y: y.astype(object),
    lambda y: np.asfortranarray(y),
    lambda y: torch.tensor(y, requires_grad=not np.issubdtype(y.dtype, np.integer)),
    lambda y: np.ma.array(y),
)
_BAD_TARGETS: tuple[Callable[[Any], Any], ...] = (
    lambda y: y.astype(str) + "x",
    lambda y: y + 1j,
    lambda y: (1000 * y).astype("datetime64[s]"),
    lambda y: np.ma.array(y, mask=y > np.median(y)),
    lambda y: y[:-1],
    lambda y: [],
    lambda y: None,
    lambda y: 0.5,
    lambda y: [10**400] * len(y),
    lambda y: [datetime.datetime(2024, 1, 31)] * len(y),
    lambda y: np.full(len(y), np.nan),
    lambda y: np.full(len(y), np.inf),
    lambda y: torch.tensor(y).to_sparse(),
)
_INPUTS: tuple[Callable[[np.ndarray], Any], ...] = (
    lambda X: X.tolist(),
    lambda X: X.astype(np.float16),
    lambda X: X.astype(np.float32),
    lambda X: X.astype(np.longdouble),
    lambda X: np.round(3 * X).astype(np.int8),
    lambda X: np.round(3 * X).astype(np.int64) * 2**40,
    lambda X: (X > 0).astype(np.uint64) * 2**63,
    lambda X: X > 0,
    lambda X: X.astype(object),
    lambda X: X.astype(">f8"),
    lambda X: np.asfortranarray(X),
    lambda X: X[::-1, ::-1],
    lambda X: torch.tensor(X),
    lambda X: torch.tensor(X, requires_grad=True),
    lambda X: torch.tensor(X).to(torch.bfloat16),
    lambda X: torch.tensor(X).half(),
    lambda X: [torch.tensor(own).to(torch.bfloat16) for own in X],
    lambda X: tuple(X),
    lambda X: dict(enumerate(X)),
    lambda X: X[:, 0],
    lambda X: pandas.DataFrame(X[:, 0]),
    lambda X: X[:, 0].tolist(),
    lambda X: np.lib.stride_tricks.as_strided(X, writeable=False),
)
_BAD_INPUTS: tuple[Callable[[np.ndarray], Any], ...] = (
    lambda X: X + 1j,
    lambda X: [own + 1j for own in X],
    lambda X: X.astype(str),
    lambda X: [own.astype(str) for own in X],
    lambda X: X.astype("datetime64[s]"),
    lambda X: list(X.astype("timedelta64[s]")),
    lambda X: X[:, 0].astype("datetime64[s]"),
    lambda X: [[[datetime.datetime(2024, 1, 31)]]] * len(X),
    lambda X: [own[:-1] if number == 2 else own[:, :0] for number, own in enumerate(X)],
    lambda X: X[:0],
    lambda X: X[:, :0],
    lambda X: X[..., :0],
    lambda X: X[0, 0, 0],
    lambda X: X[:, 0, 0],
    lambda X: X[None],
    lambda X: [],
    lambda X: None,
    lambda X: "sequences",
    lambda X: [None] * len(X),
    lambda X: {1, 2},
    lambda X: iter(X),
    lambda X: scipy.sparse.csr_array(X[:, 0]),
    lambda X: torch.tensor(X).to_sparse(),
    lambda X: torch.tensor(X).to("meta"),
    lambda X: np.zeros(len(X), dtype=[("a", float)]),
    lambda X: [[[10**400]]] * len(X),
    lambda X: [own.tolist() if number else "text" for number, own in enumerate(X)],
    lambda X: [pandas.DataFrame(own).assign(when=pandas.Timestamp("2024-01-31")) for own in X],
)
_WEIGHTS: tuple[Callable[[Generator, int], Any], ...] = (
    lambda rng, n: rng.random(n),
    lambda rng, n: np.full(n, 1e308),
    lambda rng, n: np.full(n, 1e-308),
    lambda rng, n: np.full(n, 5e-324),
    lambda rng, n: (rng.random(n) < 0.8) * 1.0,
    lambda rng, n: rng.integers(1, 4, n),
    lambda rng, n: 10.0 ** rng.integers(-12, 12, n),
    lambda rng, n: rng.random(n).tolist(),
    lambda rng, n: torch.ones(n, dtype=torch.bfloat16),
    lambda rng, n: pandas.Series(rng.random(n)),
    lambda rng, n: 2.0,
)
_BAD_WEIGHTS: tuple[Callable[[Generator, int], Any], ...] = (
    lambda rng, n: -rng.random(n),
    lambda rng, n: np.zeros(n),
    lambda rng, n: np.full(n, np.nan),
    lambda rng, n: np.full(n, np.inf),
    lambda rng, n: np.ones(n + 1),
    lambda rng, n: np.ones((n, 2)),
    lambda rng, n: ["heavy"] * n,
    lambda rng, n: np.ones(n) + 1j,
    lambda rng, n: np.ma.array(np.ones(n), mask=rng.random(n) < 0.5),
    lambda rng, n: np.ones(n, dtype="timedelta64[s]"),
    lambda rng, n: object(),
)

_ODD: tuple[Any, ...] = ("x", -1, 0, np.nan, np.inf, [], (), {}, object(), np.array([1, 2]), 1.5, "", b"x", 10**400)

_CHANGES: tuple[tuple[str, Change], ...] = (
    *[("type of X", _with_inputs(lambda rng, X: _INPUTS[rng.integers(len(_INPUTS))](X)))] * 8,
    *[("no X", _with_inputs(lambda rng, X: _BAD_INPUTS[rng.integers(len(_BAD_INPUTS))](X)))] * 2,
    *[("scale of X", _with_inputs(_scaled))] * 3,
    *[("scale of a feature", _with_inputs(_one_scaled))] * 2,
    ("offset of X", _with_inputs(lambda rng, X: X + 10.0 ** float(rng.integers(3, 300)))),
    ("constant X", _with_inputs(lambda rng, X: np.full_like(X, rng.choice([0.0, 1e-300, 7.0, 1e300])))),
    ("constant feature", _with_inputs(lambda rng, X: X * (np.arange(X.shape[2]) > 0) + 3.0)),
    ("one huge value", _with_inputs(lambda rng, X: _put(rng, X, float(rng.choice([1e6, 1e100, 1.7e308]))))),
    ("one gap", _with_inputs(lambda rng, X: _put(rng, X, float(rng.choice([np.nan, np.inf, -np.inf]))))),
    *[("ragged X", _with_inputs(_ragged))] * 5,
    *[("tables", _with_inputs(_frames))] * 3,
    ("masked X", _with_inputs(_masked)),
    ("equal rows", _with_inputs(lambda rng, X: np.repeat(X[:1], len(X), axis=0))),
    ("few rows", lambda rng, fit: (lambda n: replace(fit, X=fit.X[:n], y=fit.y[:n], weight=None))(rng.integers(1, 5))),
    *[("labels", _with_labels(lambda rng, y: _LABELS[rng.integers(len(_LABELS))](y)))] * 6,
    ("no labels", _with_labels(lambda rng, y: _BAD_LABELS[rng.integers(len(_BAD_LABELS))](y))),
    *[("rare classes", _with_labels(_rare))] * 4,
    *[("targets", _with_targets(lambda rng, y: _TARGETS[rng.integers(len(_TARGETS))](y)))] * 3,
    ("no targets", _with_targets(lambda rng, y: _BAD_TARGETS[rng.integers(len(_BAD_TARGETS))](y))),
    *[
        (
            "scale of y",
            lambda rng, fit: (
                fit
                if fit.is_classifier
                else replace(fit, y=fit.y * 10.0 ** float(rng.choice([-300, -100, -10, 6, 12, 100, 300])))
            ),
        )
    ]
    * 2,
    *[("weights", _with_weights(lambda rng, n: _WEIGHTS[rng.integers(len(_WEIGHTS))](rng, n)))] * 6,
    ("no weights", _with_weights(lambda rng, n: _BAD_WEIGHTS[rng.integers(len(_BAD_WEIGHTS))](rng, n))),
    (
        "a parameter",
        _with_parameters(
            method=_ODD,
            hidden=_ODD,
            n_neurons=_ODD,
            max_seconds=_ODD,
            witnesses=(
                *_ODD,
                {"decay": "x"},
                {"geometry": 1},
                {"threshold": np.nan},
                {"neuron": 3},
                {"fan_in": "x"},
                {"n_subnetworks": -1},
            ),
            readout=(*_ODD, "all", "windows-0", "windows-x"),
            loss=_ODD,
            penalty=_ODD,
            l1_strength=_ODD,
            l2_strength=_ODD,
            sparsity=_ODD,
            intercept=_ODD,
            layout=_ODD,
            standardize=_ODD,
            tol=_ODD,
            surrogate=_ODD,
            device=(*_ODD, "meta", "mps", "xpu", "cuda:99"),
            random_state=_ODD,
            verbose=_ODD,
        ),
    ),
    (
        "a usual parameter",
        _with_parameters(
            standardize=(False,),
            tol=(1e-3, 1e-9),
            max_seconds=(0, 1.0),
            random_state=(0, 2**40, np.int64(3)),
            device=("cpu", "auto"),
        ),
    ),
)

HUNT = Hunt(
    "estimators",
    "Tiny fits to data of every type, shape, scale and weight, with one odd thing at a time.",
    case,
    cases=11_500,
    short=20,
    seconds=60.0,
)
