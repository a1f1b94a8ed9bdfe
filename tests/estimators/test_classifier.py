"""Labels, scores and probabilities, class weights, and losses for real targets."""

from functools import partial

import numpy as np
import pandas
import pytest
from estimators.samples import FITTED, LABELS, SEQUENCES, THREE_LABELS, assert_certified_again
from sklearn.utils.class_weight import compute_sample_weight
from small_models import assert_close_certificates, assert_one_sentence, classes_of, classifier, make_lists
from tolerances import EASY_SCORE, FLOAT64_MEAN, ROUNDING

from cvxsnn import InvalidInputError, SpikingClassifier, load, save
from cvxsnn.convex.losses import LOSSES, Squared
from cvxsnn.fitting import SurrogateSettings
from cvxsnn.witnesses import Normal, Uniform

RARE = np.where(classes_of(SEQUENCES, 8) == 0, "rare", "common")
WEIGHTS = ["balanced", {"rare": 3.0, "common": 0.5}]


@pytest.mark.parametrize("class_weight", WEIGHTS, ids=str)
def test_class_weights_are_sample_weights(class_weight):
    weighted = classifier(class_weight=class_weight).fit(SEQUENCES, RARE)
    explicit = classifier().fit(SEQUENCES, RARE, sample_weight=compute_sample_weight(class_weight, RARE))
    assert_close_certificates(weighted.certificate_, explicit.certificate_)
    assert_close_certificates(weighted.certify(SEQUENCES, RARE), weighted.certificate_)


def test_class_weights_multiply_sample_weights():
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(RARE))
    both = classifier(class_weight="balanced").fit(SEQUENCES, RARE, sample_weight=weight)
    product = classifier().fit(SEQUENCES, RARE, sample_weight=weight * compute_sample_weight("balanced", RARE))
    assert_close_certificates(both.certificate_, product.certificate_)


def test_a_heavy_class_is_predicted_more_often():
    light, heavy = (
        classifier(class_weight={"rare": weight, "common": 1.0}, l1_strength=0.05).fit(SEQUENCES, RARE)
        for weight in (0.1, 50.0)
    )
    assert (heavy.predict(SEQUENCES) == "rare").sum() > (light.predict(SEQUENCES) == "rare").sum()


def test_lists_of_sequences_have_class_weights_too():
    sequences = make_lists()
    labels = classes_of(sequences)
    model = classifier(class_weight="balanced").fit(sequences, labels)
    assert model.score(sequences, labels) > 0.8


def test_class_weights_survive_a_model_file(tmp_path):
    labels = classes_of(SEQUENCES)
    model = classifier(class_weight={0: 2.0, np.int64(1): 0.5}).fit(SEQUENCES, labels)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.class_weight == {0: 2.0, 1: 0.5}
    assert_close_certificates(again.certify(SEQUENCES, labels), model.certificate_)


def test_labels_of_another_length_are_refused_in_one_sentence():
    with pytest.raises(InvalidInputError, match="each of 48 samples, got 47") as caught:
        classifier(class_weight="balanced").fit(SEQUENCES, RARE[:-1])
    assert_one_sentence(caught.value)


def test_an_unknown_preset_is_refused():
    with pytest.raises(ValueError, match="balanced"):
        classifier(class_weight="equal").fit(SEQUENCES, RARE)


class OwnSquared(Squared):
    """A loss of a user's own for real targets."""

    name = "own_squared"


def test_a_registered_loss_for_real_targets_decides_as_the_squared_loss():
    LOSSES.register(OwnSquared.name, OwnSquared)
    try:
        ours, theirs = (classifier(loss=loss).fit(SEQUENCES, RARE) for loss in (OwnSquared.name, "squared"))
        assert ours.certificate_.primal == pytest.approx(theirs.certificate_.primal, rel=2 * ours.tol)
        assert (ours.predict(SEQUENCES) == theirs.predict(SEQUENCES)).all()
    finally:
        LOSSES.unregister(OwnSquared.name)


LOSS_NAMES = ("logistic", "softmax", "hinge", "squared_hinge", "squared")


@pytest.mark.parametrize(
    "names",
    [("no", "yes"), (False, True), (1.0, 2.0), (-1, 1), (-7, 3, 12), ("b", "a", "c"), (np.int8(4), np.int8(5))],
    ids=str,
)
def test_predictions_are_the_labels_that_were_given(names):
    labels = np.array(names)[classes_of(SEQUENCES, len(names))]
    model = classifier().fit(SEQUENCES, labels)
    predicted = model.predict(SEQUENCES)
    np.testing.assert_array_equal(model.classes_, np.unique(labels))
    assert predicted.dtype == labels.dtype
    assert np.mean(predicted == labels) >= EASY_SCORE


NEEDS_NUMPY_2 = pytest.mark.skipif(np.__version__ < "2", reason="older versions of NumPy have no such type")
TEXTS = ["up" if label else "down" for label in LABELS]


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(list, id="list"),
        pytest.param(partial(np.array, dtype=object), id="objects"),
        pytest.param(lambda texts: np.array(texts, dtype="T"), id="StringDType", marks=NEEDS_NUMPY_2),
        pytest.param(pandas.Series, id="Series"),
        pytest.param(partial(pandas.Series, dtype=object), id="Series of objects"),
        pytest.param(partial(pandas.Series, dtype="category"), id="Series of categories"),
    ],
)
def test_text_is_predicted_as_an_array_that_files_can_hold(wrap, tmp_path):
    model = classifier().fit(SEQUENCES, wrap(TEXTS))
    save(model, tmp_path / "model")
    for own in (model, load(tmp_path / "model")):
        predicted = own.predict(SEQUENCES)
        assert predicted.dtype == model.classes_.dtype == "<U4"
        np.savez(tmp_path / "predicted.npz", y=predicted)
        with np.load(tmp_path / "predicted.npz", allow_pickle=False) as file:
            assert np.mean(file["y"] == TEXTS) >= EASY_SCORE


def test_labels_that_differ_in_a_null_character_at_the_end_stay_apart():
    labels = ["up" if label else "up\0" for label in LABELS]
    predicted = classifier().fit(SEQUENCES, labels).predict(SEQUENCES)
    assert np.mean([own == label for own, label in zip(predicted, labels, strict=True)]) >= EASY_SCORE


# Scores and probabilities.


@pytest.mark.parametrize("loss", LOSS_NAMES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_loss_separates_two_classes_and_three(loss, n_classes):
    labels = classes_of(SEQUENCES, n_classes)
    model = classifier(loss=loss, hidden=(64,)).fit(SEQUENCES, labels)
    scores = model.decision_function(SEQUENCES)
    assert scores.shape == ((48,) if n_classes == 2 else (48, 3))
    assert model.score(SEQUENCES, labels) >= EASY_SCORE
    by_score = (scores >= 0).astype(int) if n_classes == 2 else scores.argmax(1)
    np.testing.assert_array_equal(model.predict(SEQUENCES), by_score)
    assert model.certificate_.relative_gap <= model.tol
    assert_certified_again(model, SEQUENCES, labels)


@pytest.mark.parametrize("loss", [None, "logistic", "softmax"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_sum_to_one_and_agree_with_the_decision(loss, n_classes):
    labels = classes_of(SEQUENCES, n_classes)
    model = classifier(loss=loss).fit(SEQUENCES, labels)
    probabilities = model.predict_proba(SEQUENCES)
    assert probabilities.shape == (48, n_classes)
    assert (probabilities >= 0).all()
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=FLOAT64_MEAN)
    np.testing.assert_array_equal(model.classes_[probabilities.argmax(1)], model.predict(SEQUENCES))
    np.testing.assert_array_equal(model.predict_log_proba(SEQUENCES), np.log(probabilities))


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "squared"])
def test_losses_without_probabilities_offer_none(loss):
    model = classifier(loss=loss).fit(SEQUENCES, LABELS)
    assert not hasattr(model, "predict_proba")
    assert not hasattr(model, "predict_log_proba")


def test_the_probability_of_two_classes_is_the_logistic_of_the_score():
    scores = FITTED.decision_function(SEQUENCES)
    np.testing.assert_allclose(FITTED.predict_proba(SEQUENCES)[:, 1], 1 / (1 + np.exp(-scores)), rtol=ROUNDING)


def test_surrogate_gradients_learn_an_easy_rule():
    model = classifier("sg", surrogate=SurrogateSettings(epochs=25)).fit(SEQUENCES, LABELS)
    assert model.score(SEQUENCES, LABELS) >= EASY_SCORE


@pytest.mark.parametrize(
    "parameters",
    [
        {"neuron": "threshold"},
        {"neuron": "threshold", "hidden": (12, 24)},
        {"penalty": "group"},
        {"penalty": "elastic-net", "l2_strength": 0.001},
        {"readout": "last"},
        {"hidden": (12, 24), "n_subnetworks": 2},
        {"hidden": 24},
        {"hidden": [24]},
        {"intercept": False},
        {"standardize": False},
        {"decay": Uniform(0.2, 0.4), "threshold": 0.5, "bias": Normal(0.0, 1.0), "gain": 2.0},
        {"l1_strength": "auto"},
        {"random_state": None},
        {"random_state": np.random.RandomState(3)},
        {"verbose": True},
        {"tol": 1e-3},
    ],
    ids=lambda options: "RandomState" if "RandomState" in str(options) else str(options),
)
def test_a_classifier_works_with(parameters):
    model = classifier(**parameters).fit(SEQUENCES, THREE_LABELS)
    assert model.score(SEQUENCES, THREE_LABELS) > 0.6
    assert model.certificate_.relative_gap <= model.tol
    assert_certified_again(model, SEQUENCES, THREE_LABELS)


def test_a_strong_penalty_leaves_the_share_of_the_classes():
    model = classifier(l1_strength=100.0).fit(SEQUENCES, THREE_LABELS)
    assert not model.network_.weight.any()
    np.testing.assert_allclose(model.predict_proba(SEQUENCES), 1 / 3, atol=model.tol**0.5)


@pytest.mark.parametrize(("label", "shown"), [(0.0, "0.0"), (True, "True"), ("a", "'a'"), (3, "3")])
def test_a_single_class_is_refused_by_its_name(label, shown):
    with pytest.raises(InvalidInputError, match=f"got only one class, {shown}: nothing to learn") as caught:
        classifier().fit(SEQUENCES, np.full(len(SEQUENCES), label))
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("witnesses", ["auto", "delayed", {"neuron": "threshold"}], ids=str)
def test_models_that_cannot_be_priced_say_how_to_fit_one_that_can(witnesses):
    model = SpikingClassifier(n_neurons=16, random_state=0, witnesses=witnesses).fit(SEQUENCES, LABELS)
    with pytest.raises(InvalidInputError, match=r"price all.*: fit with witnesses=\{'decay': 0.5\}$") as caught:
        model.certify_complete(SEQUENCES, LABELS)
    assert_one_sentence(caught.value)
    remedy = eval(str(caught.value).split("witnesses=")[1])
    model.set_params(witnesses=remedy).fit(SEQUENCES, LABELS)
    assert model.certify_complete(SEQUENCES, LABELS, max_seconds=1).certificate.scope == "complete"
