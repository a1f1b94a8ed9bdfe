"""Two fits whose data say the same: what must be equal is.

Equal to the bit, for every method and mode:

- constant weights and none; rows of weight zero and no such rows;
- an array, a list of arrays and a tensor; a row of features and a sequence of one step;
- features in other units: times any factor, plus any constant of the order of the values. Standardised features are
  rounded to a grid of 2⁻¹⁶, which absorbs the rounding of the factors (unless a value is within 10⁻¹⁶ of the middle
  between two points of the grid);
- labels with other names in the same order.

Equal to the bit for convex read-outs of sampled neurons: the scores of a regressor of -y, and of a classifier of two
classes with its labels swapped, are the negative ones. The labels must not be swapped if strengths or numbers of
neurons are chosen on rows that are left out: which rows are depends on the number of a class. Gradient methods start
from random output weights, which have no such symmetry. The softmax has an output per class, and rounds otherwise.

Equal up to rounding, for ridge regression: targets times a factor (to the bit, if it is a power of two) or plus a
constant. An L1 strength is in the unit of the targets, so nothing is equal there.

Equal up to the certified gaps, for Gaussian neurons with fixed strengths: the objective, with the samples in another
order, with duplicates instead of integer weights, with classes in another order. Minimisers need not be unique, so
scores are compared for ridge regression of real targets alone, which has one.

No symmetries: the order of features, each of which has its own random weights; the order of steps, as neurons have a
memory; with mixed neurons the order of samples and duplicates, as some neurons take their weights from pairs of
training sequences, and as a sample that is left out is not quite left out if it has a duplicate; weights where neurons
are fitted to sequences that all count alike: the thresholds of "delayed" ones, the scale of a reservoir.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import cvxsnn as cs
from cvxsnn.fitting import SurrogateSettings, Tuning

from .harness import Finding, Hunt

Generator = np.random.Generator
Scores = np.ndarray[Any, Any]

_ROUNDING = 1e-9
"""Relative to the largest score: rounding, times the condition of small ridge regressions."""


@dataclass(frozen=True)
class Fit:
    """Parameters and data."""

    kind: type
    parameters: Mapping[str, Any]
    X: Any
    y: Any
    weight: Any = None

    def run(self) -> Any:
        """Return the fitted estimator."""
        model = self.kind(**self.parameters)
        return model.fit(self.X, self.y) if self.weight is None else model.fit(self.X, self.y, self.weight)


@dataclass(frozen=True)
class Relation:
    """Two fits and what must be equal of them.

    Parameters
    ----------
    name : str
        What differs.
    other : Fit
        The second fit; the first is that of the case, unless ``first`` says otherwise.
    has_other_rows : bool
        Whether the second has other rows, and is asked about those of the first instead of its own.
    back : callable
        What the scores of the second are turned into before they are compared.
    tolerance : float or None
        Largest difference of scores, relative to the largest of them; None compares objectives within their gaps.
    first : Fit, optional
        The first fit.
    """

    name: str
    other: Fit
    has_other_rows: bool = False
    back: Callable[[Scores], Scores] = lambda scores: scores
    tolerance: float | None = 0.0
    first: Fit | None = None


def case(rng: Generator, folder: Path) -> str:
    """Fit twice, and compare."""
    fit, traits = _draw(rng)
    model = fit.run()
    relations = list(_relations(rng, fit, traits))
    for own in rng.permutation(len(relations))[:4]:
        relation = relations[own]
        first = model if relation.first is None else relation.first.run()
        _compare(relation, fit, first, relation.other.run())
    return "equal"


def _compare(relation: Relation, fit: Fit, first: Any, other: Any) -> None:
    """Refuse fits that are not related as they should be."""
    about = f"{relation.name}: {fit.kind.__name__} {fit.parameters}"
    if relation.tolerance is None:
        one, two = first.certificate_, other.certificate_
        if abs(one.primal - two.primal) > one.gap + two.gap + 1e-12 * abs(one.primal):
            raise Finding(f"{about}: objective {two.primal} instead of {one.primal}, gaps {one.gap} and {two.gap}")
        return
    expected = _scores(first, fit.X if relation.first is None else relation.first.X)
    found = relation.back(_scores(other, fit.X if relation.has_other_rows else relation.other.X))
    error = abs(found - expected).max()
    if error > relation.tolerance * abs(expected).max():
        raise Finding(f"{about}: scores differ by {error:.3g}")


def _scores(model: Any, X: Any) -> Scores:
    scores: Scores = model.decision_function(X) if hasattr(model, "classes_") else model.predict(X)
    return scores


# Fits.

_BRIEF = SurrogateSettings(epochs=1, batch_size=16)
_L1: Mapping[str, Any] = {"l1_strength": 0.01}
_RIDGE: Mapping[str, Any] = {"l1_strength": 0.0, "l2_strength": 0.1, "penalty": "elastic-net"}
_MODELS: tuple[tuple[Mapping[str, Any], frozenset[str]], ...] = tuple(
    (parameters, frozenset(traits.split()))
    for parameters, traits in (
        ({}, "convex ridge"),
        ({"readout": "last"}, "convex ridge"),
        ({"readout": "windows-2"}, "convex ridge many-steps"),
        ({"sparsity": 4}, "convex held-out"),
        ({"sparsity": "few"}, "convex held-out"),
        ({"witnesses": "gaussian", **_L1}, "convex gaussian"),
        ({"witnesses": "gaussian", **_RIDGE}, "convex gaussian ridge"),
        ({"witnesses": {"decay": 0.7}, "readout": "last", **_L1}, "convex gaussian"),
        ({"witnesses": "gaussian", **_L1, "intercept": False}, "convex gaussian through-zero"),
        ({"witnesses": "gaussian", "l1_strength": 0.01, "penalty": "group"}, "convex gaussian"),
        ({"witnesses": "gaussian"}, "convex held-out"),
        ({"witnesses": "delayed", **_L1}, "convex"),
        ({"witnesses": "delayed", **_RIDGE}, "convex ridge"),
        ({"witnesses": Tuning(n_trials=1), **_L1}, "convex held-out"),
        ({**_L1}, "convex"),
        ({"witnesses": "gaussian", "method": "sg", "surrogate": _BRIEF}, "gradient"),
        ({"witnesses": "gaussian", "method": "sg-cvx", "surrogate": _BRIEF, **_L1}, "gradient"),
        ({"witnesses": "gaussian", "method": "cvx-sg", "surrogate": _BRIEF, **_L1}, "gradient"),
    )
)
_LOSSES = ("hinge", "squared_hinge", "logistic", "softmax", "squared")


def _draw(rng: Generator) -> tuple[Fit, frozenset[str]]:
    """Return a fit, and what relations hold for it."""
    parameters, traits = _MODELS[rng.integers(len(_MODELS))]
    n_samples, n_steps, n_features = (int(rng.integers(low, high)) for low, high in ((12, 30), (2, 6), (1, 4)))
    X = rng.normal(size=(n_samples, n_steps, n_features))
    y: Any = X.sum((1, 2)) + 0.3 * rng.normal(size=n_samples)
    kind = (cs.SpikingRegressor, cs.SpikingClassifier)[rng.integers(2)]
    parameters = {"n_neurons": int(rng.choice([8, 16])), "random_state": int(rng.integers(1000)), **parameters}
    if kind is cs.SpikingClassifier:
        n_classes = int(rng.integers(2, 4))
        y = y.argsort().argsort() * n_classes // n_samples
        traits |= {"two-classes"} if n_classes == 2 else {"many-classes"}
        if "gaussian" in traits and rng.random() < 0.5:
            parameters["loss"] = str(rng.choice(_LOSSES))
    else:
        traits |= {"real"}
    return Fit(kind, parameters, X, y), traits


# Relations.


def _relations(rng: Generator, fit: Fit, traits: frozenset[str]) -> Iterator[Relation]:
    """Yield the relations that hold for a fit."""
    X, y, n_samples = fit.X, fit.y, len(fit.X)
    yield Relation("constant weights", replace(fit, weight=np.full(n_samples, rng.choice([1.0, 3.0, 0.1]))))
    where = np.sort(rng.integers(n_samples + 1, size=3))
    junk = np.insert(X, where, 100 * rng.normal(size=X.shape[1:]), axis=0)
    weight = np.insert(np.ones(n_samples), where, 0.0)
    yield Relation("rows of weight zero", replace(fit, X=junk, y=np.insert(y, where, y[0]), weight=weight), True)
    yield Relation("a list", replace(fit, X=list(X)))
    yield Relation("a tensor", replace(fit, X=torch.tensor(X)))
    if "many-steps" not in traits:
        yield Relation("rows", replace(fit, X=X[:, 0]), first=replace(fit, X=X[:, :1]))
    units = 2.0 ** rng.integers(-20, 20, X.shape[2])
    yield Relation("units, powers of two", replace(fit, X=X * units))
    units = rng.choice([1000.0, 0.001, 25.4, 1e-9], X.shape[2])
    yield Relation("units", replace(fit, X=X * units))
    yield Relation("another zero", replace(fit, X=X + 1.7))
    if "real" in traits:
        yield from _of_targets(fit, traits)
    else:
        yield from _of_labels(rng, fit, traits)
    if "gaussian" in traits:
        unique = "ridge" in traits and "real" in traits
        tolerance = _ROUNDING if unique else None
        order = rng.permutation(n_samples)
        yield Relation("another order", replace(fit, X=X[order], y=y[order]), True, tolerance=tolerance)
        counts = rng.integers(1, 4, n_samples)
        rows = rng.permutation(np.repeat(np.arange(n_samples), counts))
        weighted = replace(fit, weight=counts)
        yield Relation("duplicates", replace(fit, X=X[rows], y=y[rows]), True, tolerance=tolerance, first=weighted)


def _of_targets(fit: Fit, traits: frozenset[str]) -> Iterator[Relation]:
    if "convex" in traits:
        yield Relation("minus y", replace(fit, y=-fit.y), back=lambda scores: -scores)
    if "ridge" in traits:
        yield Relation("y times a power of two", replace(fit, y=4 * fit.y), back=lambda scores: scores / 4)
        yield Relation("y times 1000", replace(fit, y=1000 * fit.y), back=lambda own: own / 1000, tolerance=_ROUNDING)
        yield Relation("y plus one", replace(fit, y=fit.y + 1), back=lambda own: own - 1, tolerance=_ROUNDING)


def _of_labels(rng: Generator, fit: Fit, traits: frozenset[str]) -> Iterator[Relation]:
    yield Relation("names", replace(fit, y=np.array(["a", "b", "c"])[fit.y]))
    yield Relation("other numbers", replace(fit, y=10 * fit.y - 7))
    if "two-classes" in traits and "convex" in traits and "held-out" not in traits:
        tolerance = None if fit.parameters.get("loss") == "softmax" else 0.0
        yield Relation("swapped labels", replace(fit, y=1 - fit.y), back=lambda own: -own, tolerance=tolerance)
    if "many-classes" in traits and "gaussian" in traits:
        yield Relation("permuted labels", replace(fit, y=rng.permutation(3)[fit.y]), tolerance=None)


HUNT = Hunt(
    "metamorphic",
    "Pairs of fits whose data say the same: other units, order, names, duplicates for weights.",
    case,
    cases=2_000,
    short=15,
    seconds=120.0,
)
