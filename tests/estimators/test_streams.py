"""Streams answer step by step as the model does for the sequences so far."""

import numpy as np
import pytest
import torch
from estimators.samples import FITTED, LABELS, SEQUENCES, THREE_LABELS
from safetensors.torch import load_file, save_file
from sklearn.pipeline import make_pipeline
from small_models import classes_of, classifier, make_sequences, regressor, sums

import cvxsnn as cs
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.witnesses import Kinds, kinds

LONG = 5 + 3 * make_sequences(n_steps=10)
"""Sequences that have to be standardised, long enough for kinds of neurons."""

CLASSES = classes_of(LONG, 3)
KINDS = Kinds(n_witnesses=60, kinds=tuple(kinds.KINDS))

MODELS = {
    "last": lambda: classifier(readout="last").fit(LONG, classes_of(LONG)),
    "mean, three classes": lambda: classifier(readout="mean").fit(LONG, classes_of(LONG, 3)),
    "several layers": lambda: classifier(hidden=(8, 24)).fit(LONG, classes_of(LONG)),
    "delays": lambda: classifier(witnesses="delayed").fit(LONG, classes_of(LONG)),
    "threshold neurons": lambda: classifier(neuron="threshold", readout="mean").fit(LONG, classes_of(LONG)),
    "trained": lambda: classifier("sg").fit(LONG, classes_of(LONG)),
    "kinds": lambda: cs.SpikingClassifier(witnesses=KINDS, readout=kinds.readout_of(kinds.KINDS)).fit(LONG, CLASSES),
    "mixture": lambda: cs.SpikingClassifier(n_neurons=60, readout="last", random_state=0).fit(LONG, classes_of(LONG)),
    "statistics": lambda: regressor(readout="mean+burst+root+ever+first").fit(LONG, sums(LONG)),
    "two targets": lambda: regressor().fit(LONG, LONG.sum(1)[:, :2]),
}


@pytest.fixture(scope="module", params=MODELS, ids=str)
def model(request):
    return MODELS[request.param]()


def answers(model, sequences):
    answer = model.decision_function if isinstance(model, cs.SpikingClassifier) else model.predict
    return answer(sequences)


def test_every_step_is_answered_as_the_sequences_up_to_there(model):
    stream, alone = model.stream(n_streams=7), model.stream()
    for t in range(LONG.shape[1]):
        expected = answers(model, LONG[:7, : t + 1])
        scores = stream.step(LONG[:7, t])
        own = alone.step(LONG[2, t])
        # Features are equal to the bit; their products with the weights are summed in another order.
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(own, expected[2], rtol=0, atol=1e-12)
        assert np.shape(own) == expected.shape[1:]
        if isinstance(model, cs.SpikingClassifier):
            assert np.array_equal(stream.predict(), model.predict(LONG[:7, : t + 1]))
            assert alone.predict() == stream.predict()[2]
        else:
            assert np.array_equal(stream.predict(), scores)
    assert stream.n_steps == 10


def test_streams_go_on_from_copies_and_from_files(model, tmp_path):
    stream = model.stream(n_streams=2)
    for t in range(6):
        stream.step(LONG[:2, t])
    branch, resumed = stream.copy(), model.stream(n_streams=2)
    save_file(stream.state_dict(), tmp_path / "state.safetensors")
    resumed.load_state_dict(load_file(tmp_path / "state.safetensors"))
    branch.step(-LONG[:2, 6])
    for t in range(6, 10):
        assert np.array_equal(stream.step(LONG[:2, t]), resumed.step(LONG[:2, t]))
    assert (stream.n_steps, branch.n_steps, resumed.n_steps) == (10, 7, 10)
    branch.reset()
    for t in range(10):
        scores = branch.step(LONG[2:4, t])
    np.testing.assert_allclose(scores, answers(model, LONG[2:4]), rtol=0, atol=1e-12)


def test_the_models_have_the_neurons_that_their_names_say():
    lateral, mixture = MODELS["kinds"]().network_, MODELS["mixture"]().network_
    assert type(lateral.layers[0]).__name__ == "LateralLayer"
    assert lateral.readout == "mean+burst+root+ever+last"
    assert (mixture.readout, mixture.layers[0].has_delays) == ("last", True)


def test_windows_need_the_number_of_steps():
    model = classifier(windows=3).fit(LONG, classes_of(LONG))
    with pytest.raises(InvalidInputError, match=r"got none: pass n_steps$"):
        model.stream()
    stream = model.stream(n_steps=10)
    for x in LONG[4]:
        score = stream.step(x)
    assert score == pytest.approx(model.decision_function(LONG[4:5])[0], abs=1e-12)
    with pytest.raises(InvalidInputError, match="got one more"):
        stream.step(LONG[4, 0])


def test_a_stream_keeps_the_model_that_it_began_with():
    model = classifier().fit(SEQUENCES, LABELS)
    stream, expected = model.stream(n_streams=48), model.predict(SEQUENCES)
    model.fit(SEQUENCES * 9, np.where(LABELS == 0, "b", "a"))
    for t in range(4):
        stream.step(SEQUENCES[:, t])
    assert np.array_equal(stream.predict(), expected)


def test_a_stream_follows_a_pipeline_whose_steps_are_transformed_alone():
    pipeline = make_pipeline(cs.SequenceScaler("common"), classifier()).fit(SEQUENCES, LABELS)
    stream = pipeline[-1].stream()
    for x in SEQUENCES[0]:
        score = stream.step(pipeline[:-1].transform([[x]])[0][0])
    assert score == pytest.approx(pipeline.decision_function(SEQUENCES[:1])[0], abs=1e-12)


def test_text_labels_are_predicted():
    model = classifier().fit(SEQUENCES, np.array(["a", "b", "c"])[THREE_LABELS])
    stream = model.stream()
    stream.step(SEQUENCES[0, 0])
    assert stream.predict() in model.classes_


STATE = FITTED.stream().state_dict()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cs.SpikingClassifier().stream(), "not fitted yet"),
        (lambda: classifier().fit(SEQUENCES[:, 0], LABELS).stream(), "expected a model of sequences, got one of rows"),
        (lambda: FITTED.stream(0), "n_streams"),
        (lambda: FITTED.stream().predict(), "expected at least one step"),
        (lambda: FITTED.stream().step([1.0, 2.0]), r"shape \(n_features,\) = \(3,\), got shape \(2,\)"),
        (lambda: FITTED.stream(2).step([1.0, 2.0, 3.0]), r"\(n_streams, n_features\) = \(2, 3\), got shape \(3,\)"),
        (lambda: FITTED.stream().step([1.0, np.nan, 3.0]), "expected finite features, got NaN: pass the last value"),
        (lambda: FITTED.stream().step(["a", "b", "c"]), "expected a step to be real numbers"),
        (lambda: FITTED.stream(2).load_state_dict(STATE), "expected the state of 2 streams of this model, got other"),
        (lambda: FITTED.stream().load_state_dict({}), "expected the state of 1 stream of this model"),
        (lambda: FITTED.stream().load_state_dict(STATE | {"counts": torch.zeros(3)}), "got other tensors counts: pass"),
    ],
)
def test_misuse_is_explained_in_one_sentence(call, message):
    with pytest.raises(Exception, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
