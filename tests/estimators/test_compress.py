"""Fitted models whose neurons are selected again, or trained in smaller number."""

import numpy as np
import pytest
from small_models import assert_close_certificates, assert_one_sentence

from cvxsnn import InvalidInputError, SpikingClassifier, SpikingRegressor, load, save
from cvxsnn.core.errors import OtherDataWarning
from cvxsnn.fitting import SurrogateSettings, engine

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 10, 2))
SUMS = X[:, :, 0].sum(1)
LABELS = np.where(X[:, :, 1].sum(1) < SUMS, "up", "down")
NEURONS = {"n_neurons": 150, "random_state": 0}
SHORT = {"n_neurons": 60, "witnesses": "gaussian", "random_state": 0}


@pytest.mark.parametrize("sparsity", [9, "few"])
@pytest.mark.parametrize(("kind", "y"), [(SpikingClassifier, LABELS), (SpikingRegressor, SUMS)])
def test_a_compressed_model_is_the_one_of_sparsity(kind, y, sparsity, monkeypatch):
    full, direct = kind(**NEURONS).fit(X, y), kind(**NEURONS, sparsity=sparsity).fit(X, y)
    drawn, sample = [], engine.sample
    monkeypatch.setattr(engine, "sample", lambda *given: drawn.append(given[0]) or sample(*given))
    before = full.predict(X)
    small = full.compress(sparsity, X, y)
    assert drawn[0] is full.proof_.witnesses
    assert np.array_equal(small.predict(X), direct.predict(X))
    assert small.certificate_.relative_gap <= small.tol
    assert_close_certificates(small.certify(X, y), direct.certificate_)
    assert [stage.name for stage in small.history_] == [stage.name for stage in direct.history_]
    assert (small.sparsity, full.sparsity) == (sparsity, None)
    assert np.array_equal(full.predict(X), before)


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "logistic", "l1_strength": 1e-3},
        {"penalty": "l1", "l1_strength": 1e-3},
        {"method": "sg-cvx", "l2_strength": 1e-3, "surrogate": SurrogateSettings(epochs=1)},
        {"method": "varpro", "l2_strength": 1e-3, "surrogate": SurrogateSettings(epochs=1)},
        {"class_weight": "balanced", "readout": "windows-2", "l1_strength": 1e-3},
    ],
    ids=str,
)
def test_every_certified_model_can_be_compressed(options, tmp_path):
    model = SpikingClassifier(**SHORT, **options).fit(X, LABELS)
    save(model, tmp_path / "model")
    for own in (model, load(tmp_path / "model")):
        small = own.compress(7, X, LABELS)
        assert 0 < len(set(small.network_.neurons.tolist())) <= 7
        assert_close_certificates(small.certify(X, LABELS), small.certificate_)
        assert small.certificate_.scope == "selected"
    again = small.compress(3, X, LABELS)
    assert len(set(again.network_.neurons.tolist())) <= 3 < len(set(small.network_.neurons.tolist()))


def test_a_trained_model_can_be_compressed_further():
    model = SpikingClassifier(n_neurons=40, sparsity=12, random_state=0).fit(X, LABELS)
    assert model.compress(5, X, LABELS).certify(X, LABELS).relative_gap <= model.tol


def test_other_data_are_used_with_a_warning():
    model = SpikingClassifier(**SHORT).fit(X, LABELS)
    with pytest.warns(OtherDataWarning, match="not the training data"):
        small = model.compress(7, X[:90], LABELS[:90])
    assert small.certify(X[:90], LABELS[:90]).relative_gap <= small.tol


@pytest.mark.parametrize("sparsity", [None, "accuracy", 2.5, 0, True, np.array([3, 5])])
def test_what_is_not_a_number_of_neurons_is_refused_in_one_sentence(sparsity):
    model = SpikingClassifier(**SHORT).fit(X, LABELS)
    with pytest.raises(InvalidInputError, match="expected") as refused:
        model.compress(sparsity, X, LABELS)
    assert_one_sentence(refused.value)
    trained = SpikingClassifier("sg", (5,), surrogate=SurrogateSettings(epochs=1)).fit(X, LABELS)
    with pytest.raises(InvalidInputError, match="expected a model whose read-out is the optimum"):
        trained.compress(3, X, LABELS)
