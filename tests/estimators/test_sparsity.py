"""Estimators that read few neurons."""

import pickle

import numpy as np
import pytest
from small_models import assert_close_certificates, assert_one_sentence

from cvxsnn import InvalidInputError, SpikingClassifier, SpikingRegressor, load, save
from cvxsnn.fitting import SurrogateSettings

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 6, 2))
SUMS = X[:, :, 0].sum(1)
LABELS = np.where(X[:, :, 0].sum(1) > X[:, :, 1].sum(1), "up", "down")
NEURONS = {"n_neurons": 150, "random_state": 0}


@pytest.mark.parametrize("readout", [None, "windows-2"])
def test_at_most_as_many_neurons_are_read_as_asked_for(readout):
    model = SpikingClassifier(**NEURONS, sparsity=9, readout=readout).fit(X, LABELS)
    assert len(set(model.network_.neurons.tolist())) == 9
    assert [stage.n_neurons for stage in model.history_][:2] == [150, 9]
    assert model.score(X, LABELS) > 0.8
    assert np.allclose(model.predict_proba(X).sum(1), 1)
    assert_close_certificates(model.certify(X, LABELS), model.certificate_)


def test_a_regressor_reads_few_neurons_for_all_its_outputs():
    targets = np.stack((SUMS, -2 * SUMS + X[:, :, 1].sum(1)), axis=1)
    model = SpikingRegressor(**NEURONS, sparsity=20).fit(X, targets)
    assert len(model.network_.neurons) == 20
    assert model.score(X, targets) > 0.5


def test_few_are_as_good_as_all_within_one_standard_error():
    few = SpikingClassifier(**NEURONS, sparsity="few").fit(X, LABELS)
    everything = SpikingClassifier(**NEURONS).fit(X, LABELS)
    assert len(few.network_.neurons) < len(everything.network_.neurons)
    assert few.history_[-1].score[0] > everything.history_[-1].score[0] - 0.1


def test_few_says_what_each_number_of_neurons_costs():
    model = SpikingClassifier(**NEURONS, sparsity="few").fit(X, LABELS)
    front = [trial for trial in model.summary().trials if trial.n_spikes is not None]
    assert [trial.n_neurons for trial in front] == [8, 16, 32, 64, 128]
    assert sum(trial.is_chosen for trial in front) == 1
    for own in (front[0], front[2]):
        direct = SpikingClassifier(**NEURONS, sparsity=own.n_neurons, readout=own.readout).fit(X, LABELS).summary(X)
        assert own.n_bytes == direct.network.n_bytes
        assert own.n_spikes == direct.operations.total.n_spikes / len(X)
    lines = str(model.summary()).splitlines()
    (header,) = [line for line in lines if "read-out  neurons" in line]
    assert header.endswith("bytes")
    assert f"{front[0].n_spikes:,.0f}" in lines[lines.index(header) + len(model.summary().trials) - 4]


def test_the_default_reads_all_neurons():
    default, named = (SpikingClassifier(**NEURONS, sparsity=own).fit(X, LABELS) for own in (None, "accuracy"))
    assert np.array_equal(default.decision_function(X), named.decision_function(X))
    assert default.certificate_.scope == "sampled"


def test_the_certificate_says_that_it_is_about_the_selected_neurons(tmp_path):
    # With a read-out that is given, neurons are selected and not trained.
    model = SpikingClassifier(**NEURONS, sparsity=9, readout="mean").fit(X, LABELS)
    save(model, tmp_path / "model.safetensors")
    for again in (model, load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(again.predict(X), model.predict(X))
        assert again.certificate_.scope == again.certify(X, LABELS).scope == "selected"
        assert "selected from a larger sample" in again.certificate_.explain()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sparsity": 0}, "sparsity"),
        ({"sparsity": 1.5}, "sparsity"),
        ({"sparsity": True}, "sparsity"),
        ({"sparsity": "many"}, "'few'"),
        ({"sparsity": 9, "method": "sg"}, "a method that ends with a convex read-out"),
        ({"sparsity": 9, "hidden": (9, 20), "n_neurons": "auto"}, "one subnetwork of one layer"),
    ],
    ids=str,
)
def test_what_cannot_be_sparse_is_refused_in_one_sentence(options, message):
    with pytest.raises(InvalidInputError, match=message) as refused:
        SpikingClassifier(**{**NEURONS, **options}).fit(X, LABELS)
    assert_one_sentence(refused.value)


def test_too_few_samples_to_choose_neurons_are_refused_in_one_sentence():
    with pytest.raises(InvalidInputError, match="at least 10 samples") as refused:
        SpikingRegressor(**NEURONS, sparsity=3).fit(X[:9], SUMS[:9])
    assert_one_sentence(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        {"penalty": "l1"},
        {"l1_strength": 1e-3},
        {"loss": "logistic"},
        {"witnesses": "gaussian"},
        {"method": "sg-cvx", "surrogate": SurrogateSettings(epochs=1)},
    ],
    ids=str,
)
def test_every_convex_read_out_can_be_sparse(options):
    model = SpikingClassifier(**{**NEURONS, **options}, sparsity=9).fit(X, LABELS)
    assert 0 < len(set(model.network_.neurons.tolist())) <= 9
    assert_close_certificates(model.certify(X, LABELS), model.certificate_)
