"""aeon's own checks, and what they do not look at."""

import numpy as np
import pytest

from cvxsnn import SpikingClassifier, SpikingRegressor
from cvxsnn.core.errors import InvalidInputError

pytest.importorskip("aeon", reason="aeon is not installed: pip install 'cvxsnn[aeon]'")

from aeon.testing.estimator_checking import parametrize_with_checks

from cvxsnn.exchange.aeon import AeonSpikingClassifier, AeonSpikingRegressor

SMALL = {"hidden": (16,), "witnesses": "gaussian", "random_state": 0}
RNG = np.random.default_rng(0)
LONG = RNG.normal(size=(40, 3, 12))
SHORT = [series[:, : RNG.integers(5, 13)] for series in LONG]
LABELS = np.where(LONG[:, 0].sum(1) > 0, "up", "down")


@parametrize_with_checks([AeonSpikingClassifier, AeonSpikingRegressor])
def test_estimators_pass_aeons_checks(check):
    check()


@pytest.mark.parametrize("series", [LONG, SHORT], ids=["equal", "unequal"])
def test_channels_are_our_features_and_time_points_our_steps(series):
    model = AeonSpikingClassifier(SpikingClassifier(**SMALL)).fit(series, LABELS)
    sequences = [own.T for own in series]
    twin = SpikingClassifier(**SMALL).fit(sequences, LABELS)
    assert model.estimator_.n_features_in_ == 3
    np.testing.assert_array_equal(model.predict_proba(series), twin.predict_proba(sequences))
    np.testing.assert_array_equal(model.predict(series), twin.predict(sequences))
    assert model.certify(series, LABELS).primal == twin.certificate_.primal


def test_a_regressor_predicts_what_ours_predicts():
    target = LONG[:, 0].sum(1)
    model = AeonSpikingRegressor(SpikingRegressor(**SMALL)).fit(LONG, target)
    sequences = LONG.transpose(0, 2, 1)
    expected = SpikingRegressor(**SMALL).fit(sequences, target).predict(sequences)
    np.testing.assert_array_equal(model.predict(LONG), expected)


def test_random_state_replaces_that_of_the_estimator():
    own = AeonSpikingClassifier(SpikingClassifier(**SMALL), random_state=7).fit(LONG, LABELS)
    assert own.estimator_.random_state == 7
    assert own.estimator.random_state == 0


def test_without_an_estimator_there_is_the_default(monkeypatch):
    monkeypatch.setattr(SpikingRegressor, "fit", lambda self, *_: self)
    model = AeonSpikingRegressor(random_state=0).fit(LONG, LONG[:, 0, 0])
    assert model.estimator_.get_params() == SpikingRegressor(random_state=0).get_params()


def test_a_loss_without_probabilities_gives_the_predicted_class_all_of_it():
    model = AeonSpikingClassifier(SpikingClassifier(**SMALL, loss="hinge")).fit(LONG, LABELS)
    predicted = model.predict_proba(LONG)
    np.testing.assert_array_equal(model.classes_[predicted.argmax(1)], model.predict(LONG))
    assert set(predicted.ravel()) == {0.0, 1.0}


@pytest.mark.parametrize(
    "model", [AeonSpikingClassifier(SpikingRegressor()), AeonSpikingRegressor(SpikingClassifier())]
)
def test_another_kind_of_estimator_is_refused(model):
    with pytest.raises(InvalidInputError, match="expected a Spiking"):
        model.fit(LONG, LABELS if isinstance(model, AeonSpikingClassifier) else np.arange(40.0))


def test_a_fit_that_fails_changes_nothing():
    model = AeonSpikingClassifier(SpikingClassifier(**SMALL)).fit(LONG, LABELS)
    before, predicted = dict(vars(model)), model.predict(LONG)
    model.estimator.set_params(l1_strength=-1.0)
    with pytest.raises(InvalidInputError, match="l1_strength"):
        model.fit(LONG[:, :2], np.where(LABELS == "up", "down", "up"))
    assert all(vars(model)[name] is value for name, value in before.items())
    assert set(vars(model)) == set(before)
    np.testing.assert_array_equal(model.predict(LONG), predicted)
    model.estimator.set_params(l1_strength="auto")
    assert model.fit(LONG[:, :2], LABELS) is model
    assert model.estimator_.n_features_in_ == 2
