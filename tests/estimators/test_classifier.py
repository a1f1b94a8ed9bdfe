"""Class weights, and losses for real targets."""

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_sample_weight
from small_models import (
    assert_close_certificates,
    assert_one_sentence,
    classes_of,
    classifier,
    make_lists,
    make_sequences,
)

from cvxsnn import InvalidInputError, load, save
from cvxsnn.convex.losses import LOSSES, Squared

SEQUENCES = make_sequences()
LABELS = np.array(["a", "b", "c"])[classes_of(SEQUENCES, 3)]
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
