"""Which neurons an estimator samples when it is left to itself, and how it searches for them."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.base import clone
from small_models import BRIEF, assert_one_sentence, classes_of, make_sequences

from cvxsnn import InvalidInputError, SpikingClassifier, gaussian_witnesses, load, save
from cvxsnn.witnesses import Normal, Provenance, Uniform

SEQUENCES = make_sequences()
LABELS = classes_of(SEQUENCES)


@pytest.fixture
def searched(monkeypatch):
    """Fit an estimator until it searches, and tell for what."""

    def stop(data, objective, score, tuning, **_):
        asked.append(tuning)
        raise KeyboardInterrupt

    def fit(data=SEQUENCES, labels=LABELS, **options):
        with pytest.raises(KeyboardInterrupt):
            SpikingClassifier(random_state=0, **options).fit(data, labels)
        return asked.pop()

    asked = []
    monkeypatch.setattr("cvxsnn.training.methods.tune_witnesses", stop)
    return fit


def test_the_search_keeps_to_the_widths_asked_for():
    model = SpikingClassifier(hidden=(20, 12), n_subnetworks=2, n_trials=4, random_state=0).fit(SEQUENCES, LABELS)
    witnesses = model._proof.witnesses
    assert (witnesses.hidden, witnesses.n_subnetworks) == ((20, 12), 2)
    assert model.history_[0].name == "tuning"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (4096, "auto", None)),
        ({"n_subnetworks": 2}, (2048, 2, None)),
        ({"hidden": np.array([16, 48])}, (48, 1, (16, 48))),
        ({"hidden": np.array(2048), "n_subnetworks": 2}, (2048, 2, (2048,))),
        ({"method": "cvx-sg"}, (1024, 1, None)),
    ],
)
def test_families_are_compared_with_a_thousand_neurons_however_many_are_sampled(searched, options, expected):
    tuning = searched(**options)
    assert (tuning.n_witnesses, tuning.n_subnetworks, tuning.hidden) == expected
    assert (tuning.n_compared, tuning.shares) == (1024, (8, 2, 1))


@pytest.mark.parametrize(("n_samples", "n_trials"), [(10, 64), (1000, 100), (100_000, 192)])
def test_as_many_families_are_tried_as_held_out_data_can_tell_apart(searched, n_samples, n_trials):
    X, y = np.zeros((n_samples, 1)), np.arange(n_samples) % 2
    assert searched(X, y).n_trials == n_trials
    assert searched(X, y, n_trials=7).n_trials == 7


def test_a_family_that_is_not_searched_for_has_as_many_neurons():
    for options, hidden, n_subnetworks in (
        ({"witnesses": "gaussian"}, (4096,), 1),
        ({"decay": 0.5, "n_subnetworks": 4}, (1024,), 4),
        ({"neuron": "threshold"}, (1024,), 1),
    ):
        witnesses = (
            SpikingClassifier(l1_strength=0.1, random_state=0, **options).fit(SEQUENCES, LABELS)._proof.witnesses
        )
        assert (witnesses.hidden, witnesses.n_subnetworks) == (hidden, n_subnetworks)


def test_the_papers_family_and_a_named_one_are_not_searched_for():
    for options in ({"witnesses": "gaussian"}, {"decay": 0.5}, {"neuron": "threshold"}):
        model = SpikingClassifier(hidden=(12,), random_state=0, **options).fit(SEQUENCES, LABELS)
        assert [stage.name for stage in model.history_] == ["convex"]


GIVEN = gaussian_witnesses(3, (12,), 2, decay=0.7, seed=5)


def test_witnesses_that_are_given_are_used_as_they_are():
    model = SpikingClassifier(witnesses=GIVEN, l1_strength=0.01, random_state=0).fit(SEQUENCES, LABELS)
    for layer, own in zip(model._proof.witnesses.layers, GIVEN.layers, strict=True):
        assert all(torch.equal(value, own.tensors()[name]) for name, value in layer.tensors().items())
    assert [stage.name for stage in model.history_] == ["convex"]
    assert clone(model).fit(SEQUENCES, LABELS).certificate_ == model.certificate_


@pytest.mark.parametrize("method", ["cvx", "sg", "r-cvx"])
@pytest.mark.parametrize(
    "witnesses",
    [
        GIVEN,
        dataclasses.replace(GIVEN, provenance=Provenance("pretrained")),
        {"decay": Uniform(0.2, 0.9), "hidden": (5, 7), "fan_in": (None, 3), "bias": (0.1, Normal(0.0, 0.5))},
        {"decay": 0.5},
    ],
    ids=["sampled", "pretrained", "layers", "decay"],
)
def test_a_model_with_given_witnesses_or_a_family_can_be_saved(tmp_path, witnesses, method):
    options = {"hidden": (12,), "l1_strength": 0.01, "surrogate": BRIEF, "random_state": 0}
    model = SpikingClassifier(method, witnesses=witnesses, **options).fit(SEQUENCES, LABELS)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert np.array_equal(again.predict(SEQUENCES), model.predict(SEQUENCES))
    if isinstance(witnesses, dict):
        assert again.witnesses == witnesses
    elif witnesses is GIVEN:
        assert torch.equal(again.witnesses.layers[0].weight, GIVEN.layers[0].weight)
    else:
        assert again.witnesses == "auto"


def test_a_family_is_sampled_at_its_own_widths_or_at_those_of_the_estimator():
    family = {"decay": 0.5, "threshold": 0.8}
    own = SpikingClassifier(witnesses={**family, "hidden": (9,)}, hidden=(7,), l1_strength=0.1, random_state=0)
    assert own.fit(SEQUENCES, LABELS)._proof.witnesses.hidden == (9,)
    other = SpikingClassifier(witnesses=family, hidden=(7,), l1_strength=0.1, random_state=0).fit(SEQUENCES, LABELS)
    named = SpikingClassifier(hidden=(7,), l1_strength=0.1, random_state=0, bias=0.0, **family).fit(SEQUENCES, LABELS)
    assert other.certificate_ == named.certificate_


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"witnesses": gaussian_witnesses(2, (4,))}, "witnesses that read 3 features, got witnesses that read 2"),
        ({"witnesses": GIVEN, "decay": 0.5}, "dynamics in witnesses or as parameters, got both: drop decay"),
        ({"witnesses": {"decay": 0.5}, "bias": 0.5}, "dynamics in witnesses or as parameters, got both: drop bias"),
        ({"witnesses": {"decay": 0.5, "width": 3}}, r"a family of \[.*\], got \['width'\] too"),
        ({"witnesses": "uniform"}, "witnesses to be one of 'auto', 'gaussian', got 'uniform'"),
    ],
)
def test_witnesses_that_cannot_serve_are_refused_in_one_sentence(options, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        SpikingClassifier(**options).fit(SEQUENCES, LABELS)
    assert_one_sentence(caught.value)


def test_workers_do_not_change_the_model():
    one, two = (
        SpikingClassifier(hidden=(12,), n_trials=4, n_jobs=n_jobs, random_state=0).fit(SEQUENCES, LABELS)
        for n_jobs in (None, 2)
    )
    assert one.history_[0].family == two.history_[0].family
    assert one.certificate_ == two.certificate_


def test_without_a_seed_every_fit_gives_another_model():
    model = SpikingClassifier(hidden=(12,), decay=0.9, l1_strength=0.01)
    first, second = (model.fit(SEQUENCES, LABELS).certificate_ for _ in range(2))
    assert first != second
