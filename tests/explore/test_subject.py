"""The models that a page can be about, and the data that belong to them."""

from dataclasses import replace

import numpy as np
import pytest
from explore.models_to_explore import (
    LABELS,
    OTHER,
    OTHER_LABELS,
    SEQUENCES,
    fitted_regressor,
    list_classifier,
    sparse_classifier,
)
from sklearn.pipeline import make_pipeline
from small_models import assert_one_sentence, classifier, sums

from cvxsnn import InvalidInputError, SequenceScaler
from cvxsnn.convex.objective import decide_class
from cvxsnn.explore import subject as subject_module
from cvxsnn.explore.subject import Subject


@pytest.fixture(scope="module")
def model():
    return sparse_classifier()


def test_outputs_and_decisions_are_those_of_the_estimator(model, monkeypatch):
    limits = replace(subject_module.LIMITS, block_bytes=8 * len(model.network_.neurons) * 7)
    monkeypatch.setattr(subject_module, "LIMITS", limits)
    subject = Subject.of_estimator(model, OTHER, OTHER_LABELS)
    outputs = subject.outputs()
    np.testing.assert_allclose(outputs, model.decision_function(OTHER), rtol=1e-12)
    decided = np.array(subject.classes)[decide_class(subject.evidence(outputs))]
    assert decided.tolist() == model.predict(OTHER).tolist()
    np.testing.assert_allclose(subject.probabilities(outputs), model.predict_proba(OTHER))


def test_one_output_is_evidence_for_two_classes():
    labels = np.where(sums(SEQUENCES) > 0, "up", "down")
    model = classifier().fit(SEQUENCES, labels)
    subject = Subject.of_estimator(model, SEQUENCES, labels)
    outputs = subject.outputs()
    evidence = subject.evidence(outputs)
    assert evidence.shape == (len(SEQUENCES), 2)
    np.testing.assert_allclose(evidence[:, 1] - evidence[:, 0], model.decision_function(SEQUENCES))
    assert np.array(subject.classes)[decide_class(evidence)].tolist() == model.predict(SEQUENCES).tolist()
    assert decide_class(np.zeros((1, 2))).tolist() == [0]  # as for the estimator, a tie is the first class


def test_training_data_are_recognised(model):
    assert Subject.of_estimator(model, SEQUENCES, LABELS).is_training
    other = Subject.of_estimator(model, OTHER, OTHER_LABELS)
    assert not other.is_training
    assert other.training is None
    both = Subject.of_estimator(model, OTHER, OTHER_LABELS, (SEQUENCES, LABELS))
    assert not both.is_training
    assert len(both.training) == len(SEQUENCES)


def test_other_data_as_training_data_are_refused(model):
    with pytest.raises(InvalidInputError, match="expected the data that the model was fitted to"):
        Subject.of_estimator(model, SEQUENCES, LABELS, (OTHER, OTHER_LABELS))


@pytest.mark.parametrize("training", [(SEQUENCES,), (SEQUENCES, LABELS, None, 3), SEQUENCES, 3])
def test_training_data_of_another_form_are_refused(model, training):
    with pytest.raises(
        InvalidInputError, match=r"expected training as a tuple .*, got .*: pass training=\(X, y\)"
    ) as caught:
        model.explore(SEQUENCES, LABELS, training=training)
    assert_one_sentence(caught.value)


def test_a_pipeline_transforms_what_it_is_shown_on():
    pipeline = make_pipeline(SequenceScaler(), classifier()).fit(SEQUENCES, LABELS)
    subject = Subject.of_estimator(pipeline, SEQUENCES, LABELS)
    assert subject.is_training
    np.testing.assert_allclose(subject.outputs(), pipeline.decision_function(SEQUENCES))


def test_sequences_of_unequal_length_keep_their_lengths():
    model, lists, labels = list_classifier()
    subject = Subject.of_estimator(model, lists, labels)
    assert subject.lengths.tolist() == [len(own) for own in lists]


def test_a_regressor_has_outputs_and_no_classes():
    model = fitted_regressor()
    subject = Subject.of_estimator(model, SEQUENCES, sums(SEQUENCES))
    assert subject.classes is None
    assert subject.columns == ("output",)
    np.testing.assert_allclose(subject.evidence(subject.outputs())[:, 0], model.predict(SEQUENCES))


def test_other_models_are_refused(model):
    with pytest.raises(InvalidInputError, match="expected a SpikingClassifier or SpikingRegressor"):
        Subject.of_estimator(SequenceScaler(), SEQUENCES, LABELS)
    with pytest.raises(InvalidInputError, match="expected classes numbered as the outputs of the network"):
        Subject.of_estimator(model.network_, SEQUENCES, LABELS.astype(str))
    with pytest.raises(InvalidInputError, match="unknown labels"):
        Subject.of_estimator(model, SEQUENCES, np.full(len(SEQUENCES), "other"))
