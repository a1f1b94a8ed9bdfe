"""Few neurons are trained where that is clearly better than selecting them."""

import re

import numpy as np
import pytest
from tolerances import CERTIFIED_AGAIN

import cvxsnn as cs
from cvxsnn import SpikingClassifier, SpikingRegressor
from cvxsnn.data.tasks import digits_seq

DIGITS = digits_seq(8)
X, Y = DIGITS.train.inputs[:500], DIGITS.train.heads["label"][:500]
FEW = {"n_neurons": 256, "sparsity": 16, "random_state": 0}


@pytest.fixture(scope="module")
def model():
    return SpikingClassifier(**FEW).fit(X, Y)


def test_trained_neurons_answer_where_selected_ones_err_more(model):
    assert model.network_.hidden == (16,)
    assert [stage.name for stage in model.history_] == ["tuning", "convex", "projection", "convex"]
    _, selected, _, trained = model.history_
    assert trained.score[0] > selected.score[0]
    assert re.search(
        r"as many trained ones err 0\.\d+ less on 100 samples left out and are read instead", str(model.summary())
    )


def test_the_certificate_is_that_of_the_trained_neurons_after_saving_too(model, tmp_path):
    assert model.certificate_.relative_gap <= model.tol
    cs.save(model, tmp_path / "model")
    loaded = cs.load(tmp_path / "model")
    for found in (model.certify(X, Y), loaded.certify(X, Y)):
        assert found.primal == pytest.approx(model.certificate_.primal, rel=CERTIFIED_AGAIN)
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert model.predict_proba(X).sum(1) == pytest.approx(np.ones(len(X)))


def test_labels_of_any_kind_come_back(model):
    named = SpikingClassifier(**FEW).fit(X, np.char.add("digit ", Y.astype(str)))
    assert np.array_equal(named.predict(X), np.char.add("digit ", model.predict(X).astype(str)))


@pytest.mark.parametrize("options", [{"readout": "last"}, {"l2_strength": 0.1}, {"max_seconds": 0}])
def test_what_the_user_has_decided_is_not_trained(options):
    fitted = SpikingClassifier(**FEW, **options).fit(X[:120], Y[:120])
    assert "projection" not in [stage.name for stage in fitted.history_]


def test_a_regressor_keeps_what_errs_less():
    target = X.sum((1, 2)) + np.square(X[:, 0]).sum(1)
    fitted = SpikingRegressor(**FEW).fit(X, target)
    assert re.search("as many trained ones err .* on 100 samples left out", str(fitted.summary()))
    assert fitted.certify(X, target).relative_gap <= fitted.tol
