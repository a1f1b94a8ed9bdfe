"""A fit succeeds as a whole or changes nothing."""

import numpy as np
import pandas
import pytest
import torch
from estimators.samples import LABELS, LISTS, SEQUENCES
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from small_models import BRIEF, CONVEX_METHODS, OTHER_METHODS, classifier, regressor, sums

from cvxsnn import (
    InvalidInputError,
    SequenceImputer,
    SequenceResampler,
    SequenceScaler,
    SpikingClassifier,
    SpikingRegressor,
)
from cvxsnn.estimators import base
from fuzz.refits import Interrupter, State, copy_of

MIXED = {"n_neurons": 8, "random_state": 0}
TARGETS = sums(SEQUENCES)
WIDE = np.concatenate((SEQUENCES, SEQUENCES), axis=2)
NAMED = [pandas.DataFrame(own, columns=list("abc")) for own in SEQUENCES]


def one_class(model):
    model.fit(SEQUENCES, np.zeros(len(SEQUENCES)))


def other_lengths(model):
    model.fit(WIDE, LABELS[1:])


def negative_strength(model):
    model.set_params(l1_strength=-1.0).fit(WIDE, LABELS)


@pytest.mark.parametrize("refused", [one_class, other_lengths, negative_strength])
@pytest.mark.parametrize("make", [classifier, lambda: SpikingClassifier(**MIXED)], ids=["sampled", "mixed"])
def test_a_refused_fit_changes_nothing(make, refused):
    model = make().fit(SEQUENCES, LABELS)
    parameters = model.get_params()
    before = State.of(model, SEQUENCES)
    with pytest.raises(InvalidInputError):
        refused(model)
    model.set_params(**parameters)
    before.refuse_other(model, SEQUENCES, refused.__name__)


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        (SpikingClassifier(**MIXED), LABELS),
        (SpikingClassifier(**MIXED, sparsity=3), LABELS),
        (SpikingRegressor(**MIXED), TARGETS),
        (classifier(), LABELS),
        (classifier("sg"), LABELS),
        (SequenceScaler(), None),
        (SequenceImputer(), None),
        (SequenceResampler(3), None),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("is_fitted", [True, False])
def test_an_interrupted_fit_changes_nothing(model, targets, is_fitted):
    model = clone(model)
    if is_fitted:
        model.fit(SEQUENCES, targets)
    before = State.of(model, SEQUENCES)
    other = None if targets is None else targets[::-1]
    watched = Interrupter()
    with watched.watching():
        copy_of(model).fit(WIDE, other)
    last = len(watched.lines) - 1
    n_interrupted = 0
    for place in {0, 20, last // 10, last // 2, 9 * last // 10, last - 20, *range(last - 10, last + 1)}:
        interrupted = copy_of(model)
        try:
            with Interrupter(place).watching():
                interrupted.fit(WIDE, other)
        except KeyboardInterrupt:
            before.refuse_other(interrupted, SEQUENCES, f"at {watched.lines[place]}")
            n_interrupted += 1
            if not is_fitted:
                with pytest.raises(NotFittedError):
                    check_is_fitted(interrupted)
    assert n_interrupted >= 10


def test_nothing_of_an_earlier_fit_is_left():
    model = SpikingClassifier(**MIXED).fit(NAMED, LABELS)
    assert model.probability_scale_ is not None
    model.set_params(l1_strength=0.01).fit(SEQUENCES[:, 0], LABELS)
    assert set(vars(model)) == set(vars(clone(model).fit(SEQUENCES[:, 0], LABELS)))
    model.set_params(witnesses="gaussian").fit(SEQUENCES, LABELS)
    assert model.probability_scale_ is None
    assert not hasattr(model, "feature_names_in_")
    scaler = SequenceScaler().fit(NAMED).fit(SEQUENCES)
    assert not hasattr(scaler, "feature_names_in_")


@pytest.mark.parametrize("method", [*CONVEX_METHODS, *OTHER_METHODS])
def test_all_that_a_fit_sets_is_listed(method):
    models = [classifier(method).fit(NAMED, LABELS), regressor(method).fit(LISTS, sums(LISTS))]
    if method == "cvx":
        models += [SpikingClassifier(**MIXED).fit(NAMED, LABELS), SpikingRegressor(**MIXED).fit(SEQUENCES, TARGETS)]
    for model in models:
        listed = {"n_features_in_", "feature_names_in_", *model._learned}
        assert set(vars(model)) - set(model.get_params()) <= listed


def test_attributes_that_are_no_part_of_the_fit_are_kept():
    class Counting(SpikingClassifier):
        def fit(self, X, y, sample_weight=None):  # noqa: N803
            self.n_fits_ = getattr(self, "n_fits_", 0) + 1
            return super().fit(X, y, sample_weight)

    model = Counting(**MIXED).fit(SEQUENCES, LABELS).fit(SEQUENCES, LABELS)
    assert model.n_fits_ == 2
    with config_context(enable_metadata_routing=True):
        model.set_fit_request(sample_weight=True).fit(SEQUENCES, LABELS)
        assert model.get_metadata_routing().fit.requests == {"sample_weight": True}


def test_parameters_set_meanwhile_are_kept_and_not_used():
    model = SpikingRegressor(**MIXED)

    class Meddling:
        def __array__(self, dtype=None, copy=None):
            model.set_params(intercept=False, tol=1e-3)
            return TARGETS

    model.fit(SEQUENCES, Meddling())
    assert (model.intercept, model.tol) == (False, 1e-3)
    np.testing.assert_array_equal(
        model.predict(SEQUENCES), SpikingRegressor(**MIXED).fit(SEQUENCES, TARGETS).predict(SEQUENCES)
    )


def test_a_random_state_is_advanced():
    model = SpikingRegressor(n_neurons=8, random_state=np.random.RandomState(0))
    first, second = (model.fit(SEQUENCES, TARGETS).predict(SEQUENCES) for _ in range(2))
    assert (first != second).any()


def test_strengths_are_checked_before_anything_is_sampled(monkeypatch):
    monkeypatch.setattr(base, "fit", None)
    with pytest.raises(InvalidInputError, match="l1_strength"):
        SpikingClassifier(l1_strength=-1.0).fit(SEQUENCES, LABELS)


def test_a_fit_needs_no_gradients_of_its_caller():
    """The mode of torch is that of the caller, and an interrupt in its exit leaves gradients off."""
    expected = classifier("sg", surrogate=BRIEF).fit(SEQUENCES, LABELS).predict(SEQUENCES)
    with torch.no_grad():
        model = classifier("sg", surrogate=BRIEF).fit(SEQUENCES, LABELS)
        assert not torch.is_grad_enabled()
    np.testing.assert_array_equal(model.predict(SEQUENCES), expected)
