"""Drift: a small number for data whose scores are unlike those of samples left out, and rarely for others."""

import numpy as np
import pytest
import small_models
from small_models import assert_one_sentence

from cvxsnn import InvalidInputError, SpikingClassifier, SpikingRegressor, load, save


def draw(n_samples, seed):
    return np.random.default_rng([7, seed]).normal(size=(n_samples, 4, 2))


def labels_of(sequences):
    return np.digitize(sequences[:, :, 0].sum(1), [-1.0, 1.0])


@pytest.fixture(scope="module")
def model():
    sequences = draw(400, 0)
    return SpikingClassifier(n_neurons=60, random_state=0).fit(sequences, labels_of(sequences))


def test_alarms_for_data_like_those_of_the_fit_are_as_rare_as_stated(model):
    found = np.array([model.drift(draw(60, seed)) for seed in range(1, 201)])
    # At most one in ten, and 200 draws of a tenth are below 30 with a probability of 98 %.
    assert np.sum(found < 0.1) < 30
    assert np.sum(found < 0.01) < 8
    assert found.max() == 1.0


@pytest.mark.parametrize("change", [lambda x: x + 0.7, lambda x: 3 * x, lambda x: x * [0.0, 1.0]])
def test_data_that_have_changed_are_noticed(model, change):
    assert model.drift(change(draw(100, 1))) < 1e-3


def test_scores_are_those_of_samples_left_out(model):
    sequences = draw(400, 0)
    targets = np.eye(3)[labels_of(sequences)]
    seen, left_out = (np.square(scores - targets).mean() for scores in (model._outputs(sequences), model._left_out))
    assert left_out > 1.02 * seen


def test_few_scores_are_kept_of_many_samples():
    sequences = draw(1200, 0)
    model = SpikingRegressor(n_neurons=10, random_state=0).fit(sequences, sequences.sum((1, 2)))
    assert len(model._left_out) == 400


def test_files_and_predictors_keep_the_scores(model, tmp_path):
    save(model, tmp_path / "model.safetensors")
    sequences = draw(50, 3)
    for predict_only in (False, True):
        loaded = load(tmp_path / "model.safetensors", predict_only=predict_only)
        assert loaded.drift(sequences) == model.drift(sequences)


def test_models_without_left_out_samples_are_refused():
    sequences = draw(48, 0)
    other = small_models.classifier("sg").fit(sequences, labels_of(sequences))
    with pytest.raises(InvalidInputError, match="left samples out") as caught:
        other.drift(sequences)
    assert_one_sentence(caught.value)
