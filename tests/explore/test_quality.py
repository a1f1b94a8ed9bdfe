"""How often a model is right, what it confuses, and how well it knows."""

from dataclasses import replace

import numpy as np
import pytest
from explore.models_to_explore import (
    OTHER,
    OTHER_LABELS,
    SEQUENCES,
    fitted_regressor,
    list_classifier,
    sparse_classifier,
    view,
)
from sklearn.metrics import confusion_matrix
from small_models import sums

from cvxsnn.explore import quality
from cvxsnn.explore.quality import calibrate


@pytest.fixture(scope="module")
def model():
    return sparse_classifier(l1_strength=0.03)


@pytest.fixture(scope="module")
def found(model):
    return view(model, OTHER, OTHER_LABELS)


def test_scores_and_confusion_are_those_of_scikit_learn(model, found):
    predicted = model.predict(OTHER)
    assert found.quality.score == model.score(OTHER, OTHER_LABELS)
    assert found.quality.confusion == confusion_matrix(OTHER_LABELS, predicted, labels=model.classes_).tolist()
    assert found.quality.baseline == 20 / 60
    assert found.columns == tuple(model.classes_)


def test_cells_have_the_sequences_that_are_behind_them(model, found):
    predicted = model.predict(OTHER)
    mistakes = [cell for cell in found.quality.cells if cell.truth != cell.predicted]
    assert mistakes
    assert [cell.count for cell in mistakes] == sorted((cell.count for cell in mistakes), reverse=True)
    assert sum(cell.count for cell in found.quality.cells) == len(OTHER)
    for cell in found.quality.cells:
        for sample in cell.samples:
            assert OTHER_LABELS[sample] == found.columns[cell.truth]
            assert predicted[sample] == found.columns[cell.predicted]


def test_the_hardest_have_most_evidence_against_their_class(model, found):
    scores = model.decision_function(OTHER)
    truth = np.searchsorted(model.classes_, OTHER_LABELS)
    rows = np.arange(len(OTHER))
    own = scores[rows, truth]
    scores[rows, truth] = -np.inf
    assert list(found.quality.hardest) == np.argsort(own - scores.max(1), kind="stable")[:12].tolist()


def test_drivers_push_to_the_wrong_class_compared_with_right_answers(model, found):
    """The definition, neuron by neuron."""
    cell = next(cell for cell in found.quality.cells if cell.truth != cell.predicted and cell.drivers)
    features = model.network_.features(model.as_sequences(OTHER)).numpy()
    predicted = np.searchsorted(model.classes_, model.predict(OTHER))
    truth = np.searchsorted(model.classes_, OTHER_LABELS)
    right = features[(truth == cell.truth) & (predicted == cell.truth)].mean(0)
    weight = model.network_.weight.detach().numpy()
    push = (features[list(cell.samples)].mean(0) - right) * (weight[:, cell.predicted] - weight[:, cell.truth])
    order = np.argsort(-push)[: len(cell.drivers)]
    numbers = [int(found.neurons.number[place]) for place, _ in cell.drivers]
    assert numbers == model.network_.neurons.numpy()[order].tolist()
    np.testing.assert_allclose([value for _, value in cell.drivers], push[order], rtol=1e-5)


def test_cells_have_the_average_of_their_inputs_on_one_scale(model, found):
    truth, predicted = OTHER_LABELS, model.predict(OTHER)
    means = [
        OTHER[(truth == found.columns[cell.truth]) & (predicted == found.columns[cell.predicted])].mean(0)
        for cell in found.quality.cells
    ]
    low, high = min(own.min() for own in means), max(own.max() for own in means)
    for cell, mean in zip(found.quality.cells, means, strict=True):
        np.testing.assert_allclose(cell.average / 255, (mean - low) / (high - low), atol=0.51 / 255)


def test_averages_are_of_the_steps_that_sequences_have(monkeypatch):
    model, lists, labels = list_classifier()
    cell = view(model, lists, labels).quality.cells[0]
    predicted = np.searchsorted(model.classes_, model.predict(lists))
    truth = np.searchsorted(model.classes_, labels)
    members = np.flatnonzero((truth == cell.truth) & (predicted == cell.predicted))
    assert len(cell.average) == max(len(lists[member]) for member in members)
    monkeypatch.setattr(quality, "LIMITS", replace(quality.LIMITS, average_bytes=10))
    assert view(model, lists, labels).quality.cells[0].average is None


def test_many_steps_are_shrunk_to_their_means():
    np.testing.assert_allclose(quality.shrink(np.arange(6.0)[:, None], 3), [[0.5], [2.5], [4.5]])
    np.testing.assert_allclose(quality.shrink(np.arange(5.0)[:, None], 2), [[0.5], [3.0]])
    np.testing.assert_allclose(quality.shrink(np.arange(2.0)[:, None], 9), [[0], [1]])


def test_calibration_compares_confidence_with_accuracy():
    found = calibrate(np.array([0.55, 0.58, 0.9, 1.0]), np.array([True, False, True, True]))
    assert found.count == [2, 2]
    np.testing.assert_allclose(found.confidence, (0.565, 0.95))
    assert found.accuracy == [0.5, 1.0]
    assert found.error == pytest.approx((0.065 + 0.05) / 2)


def test_a_model_without_probabilities_has_no_calibration():
    assert view(sparse_classifier(loss="hinge")).quality.calibration is None


def test_a_regressor_is_judged_by_its_errors():
    model = fitted_regressor()
    targets = sums(SEQUENCES)
    found = view(model, SEQUENCES, targets)
    assert found.quality.score == pytest.approx(model.score(SEQUENCES, targets))
    errors = np.abs(model.predict(SEQUENCES) - targets)
    assert list(found.quality.hardest) == np.argsort(-errors, kind="stable")[:12].tolist()
    assert len(found.quality.truth) == len(found.quality.predicted) == len(SEQUENCES)
    assert found.quality.confusion == []
