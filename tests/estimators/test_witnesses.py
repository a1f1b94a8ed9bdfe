"""Which neurons an estimator samples when it is left to itself, and how it searches for them."""

import numpy as np
import pytest
from small_models import classes_of, make_sequences

from cvxsnn import SpikingClassifier

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
