import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from small_models import classes_of, classifier, make_sequences

from cvxsnn import InvalidInputError, SequenceScaler
from cvxsnn.estimators.pipelines import as_the_network_reads, network_of, split_pipeline

SEQUENCES = make_sequences()


@pytest.fixture(scope="module")
def model():
    return classifier().fit(SEQUENCES, classes_of(SEQUENCES))


def test_a_network_stands_for_itself_and_an_estimator_for_its_network(model):
    assert network_of(model) is network_of(model.network_) is model.network_
    with pytest.raises(InvalidInputError, match=r"expected a SpikingNetwork or a fitted estimator, got dict$"):
        network_of({})


def test_what_the_network_reads_gives_the_scores_of_the_estimator(model):
    read = np.stack([as_the_network_reads(model, sequence) for sequence in SEQUENCES])
    scores = model.network_(read).detach().numpy()[:, 0]
    np.testing.assert_array_equal(scores, model.decision_function(SEQUENCES))
    assert as_the_network_reads(model.network_, read) is read


def test_a_pipeline_is_split_and_has_no_network_of_its_own(model):
    scaler = SequenceScaler().fit(SEQUENCES)
    pipeline = make_pipeline(scaler, model)
    assert split_pipeline(pipeline) == ([scaler], model)
    assert split_pipeline(model) == ([], model)
    with pytest.raises(InvalidInputError, match=r"got Pipeline: pass its last step, pipeline\[-1\]"):
        network_of(pipeline)
