"""A pickled estimator: small, and the same."""

import pickle

import numpy as np
import pytest
import torch
from small_models import assert_close_certificates, classes_of, classifier, make_sequences, regressor, sums

from cvxsnn import SpikingClassifier, SpikingRegressor, gaussian_witnesses, save
from cvxsnn.fitting import Tuning

SEQUENCES = make_sequences()
LABELS = classes_of(SEQUENCES)


@pytest.mark.parametrize("kind", [SpikingClassifier, SpikingRegressor])
def test_a_pickle_is_at_most_half_as_large_again_as_a_model_file(tmp_path, kind):
    sequences = make_sequences(400, 6, 3)
    targets = classes_of(sequences, 3) if kind is SpikingClassifier else sums(sequences)
    model = kind(witnesses=Tuning(n_trials=4), random_state=0).fit(sequences, targets)
    save(model, tmp_path / "model")
    assert len(pickle.dumps(model)) <= 1.5 * (tmp_path / "model").stat().st_size


@pytest.mark.parametrize("method", ["cvx", "sg-cvx", "r", "sg"])
@pytest.mark.parametrize("make", [classifier, regressor])
def test_an_unpickled_model_predicts_and_certifies_as_before(make, method):
    targets = LABELS if make is classifier else sums(SEQUENCES)
    model = make(method).fit(SEQUENCES, targets)
    twin = pickle.loads(pickle.dumps(model))
    assert np.array_equal(twin.predict(SEQUENCES), model.predict(SEQUENCES))
    assert str(twin.history_) == str(model.history_)
    assert twin.certificate_ == model.certificate_
    if model.certificate_ is not None:
        assert_close_certificates(twin.certify(SEQUENCES, targets), model.certificate_)
        for layer, own in zip(twin.proof_.witnesses.layers, model.proof_.witnesses.layers, strict=True):
            assert all(torch.equal(value, own.tensors()[name]) for name, value in layer.tensors().items())


@pytest.mark.parametrize(
    "witnesses", ["auto", gaussian_witnesses(3, (12,)).to(dtype=torch.float64)], ids=["sampled", "given"]
)
def test_an_unpickled_elastic_net_has_both_strengths(witnesses):
    options = {"penalty": "elastic-net", "l1_strength": 0.001, "l2_strength": 0.01, "n_trials": 2}
    model = classifier(witnesses=witnesses, **options).fit(SEQUENCES, LABELS)
    twin = pickle.loads(pickle.dumps(model))
    assert (twin.proof_.l1_strength, twin.proof_.l2_strength) == (0.001, 0.01)
    assert twin.l2_strength == 0.01
    assert_close_certificates(twin.certify(SEQUENCES, LABELS), model.certificate_)


def test_pickling_leaves_the_model_as_it_is():
    model = classifier().fit(SEQUENCES, LABELS)
    proof = model.proof_
    pickle.dumps(model)
    assert model.proof_ is proof
