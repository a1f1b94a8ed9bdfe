"""Data that are rare, heavy, far from zero or all alike: a fit works, or says in one sentence why it cannot."""

import numpy as np
import pytest
from small_models import BRIEF, assert_one_sentence, classifier, make_lists, make_sequences, regressor, sums

from cvxsnn.convex.losses import LOSSES
from cvxsnn.convex.objective import Objective
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data import TrainingSet
from cvxsnn.fitting import Tuning, tune_witnesses

SEQUENCES = make_sequences(60)
TARGETS = sums(SEQUENCES)
FIXED = {"witnesses": "gaussian"}
CHOOSING = {**FIXED, "l1_strength": "auto"}


def rare_labels(*counts):
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))


@pytest.mark.parametrize("counts", [(58, 2), (59, 1), (30, 28, 2), (30, 29, 1)])
@pytest.mark.parametrize("loss", LOSSES)
def test_rare_classes_are_fitted_with_every_loss(loss, counts):
    labels = rare_labels(*counts)
    model = classifier(loss=loss, **CHOOSING).fit(SEQUENCES, labels)
    assert model.classes_.tolist() == sorted(set(labels))
    assert model.certificate_.relative_gap <= model.tol


@pytest.mark.parametrize("method", ["sg", "sg-cvx", "cvx-sg"])
@pytest.mark.parametrize("loss", ["hinge", "logistic", "softmax"])
def test_rare_classes_are_fitted_with_gradients(loss, method):
    labels = rare_labels(30, 29, 1)
    assert classifier(method, loss=loss, surrogate=BRIEF, **FIXED).fit(SEQUENCES, labels).predict(SEQUENCES).shape == (
        60,
    )


@pytest.mark.parametrize("counts", [(58, 2), (59, 1), (20, 20, 20), (30, 25, 3, 1, 1), (2,) * 30])
def test_every_class_is_trained_on_and_samples_are_held_out_if_classes_are_rare(counts):
    labels = rare_labels(*counts)
    model = classifier()
    data = TrainingSet(SEQUENCES, {"label": labels})
    kept, held = (labels[rows] for rows in model._divide(data, seed=0))
    assert set(kept) == set(labels)
    if len(kept) < 60:
        assert len(kept) + len(held) == 60
        shares = np.bincount(held, minlength=len(counts)) - len(held) / 60 * np.array(counts)
        assert np.abs(shares).max() < 2 + len(counts)
    assert (len(kept) == 60) == (len(counts) > 0.2 * 60)


def test_a_search_on_a_part_of_the_samples_meets_every_class():
    labels = np.zeros(400, dtype=int)
    labels[7] = 1
    data = TrainingSet(make_sequences(400, 3, 2), {"label": labels})
    tuning = Tuning(n_witnesses=8, n_trials=1, n_layers=1, min_rows=20, shares=(20, 20, 20))
    met = []

    def score(network):
        met.append(bool(network.weight.any()))  # ridge regression on one class only has no weights
        return 0.0

    for seed in range(4):
        tune_witnesses(data, Objective("logistic"), score, tuning, seed=seed)
    assert len(met) >= 4
    assert all(met)


@pytest.mark.parametrize("make", [classifier, regressor])
@pytest.mark.parametrize("factor", [2.0**-30, 2.0**900, 2.0**-900])
def test_a_power_of_two_in_all_weights_changes_no_bit(make, factor):
    weight = np.random.default_rng(0).random(60)
    y = TARGETS if make is regressor else TARGETS > 0.5
    plain, scaled = (make(**CHOOSING).fit(SEQUENCES, y, own) for own in (weight, factor * weight))
    assert plain.certificate_ == scaled.certificate_
    np.testing.assert_array_equal(plain._outputs(SEQUENCES), scaled._outputs(SEQUENCES))


@pytest.mark.parametrize("make", [classifier, regressor])
@pytest.mark.parametrize("factor", [1e-6, 3.0, 1e300, 1e-300])
def test_a_factor_of_all_weights_chooses_the_same_strength(make, factor):
    weight = np.random.default_rng(0).choice([0.1, 0.7, 1.3], 60)
    y = TARGETS if make is regressor else TARGETS > 0.5
    plain, scaled = (make(**CHOOSING).fit(SEQUENCES, y, own) for own in (weight, factor * weight))
    assert scaled.history_[-1].l1_strength == pytest.approx(plain.history_[-1].l1_strength, rel=1e-9)
    assert scaled.certificate_.primal == pytest.approx(plain.certificate_.primal, rel=1e-6)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_weights_whose_sum_overflows_are_certified_as_equal_ones(make):
    y = TARGETS if make is regressor else TARGETS > 0.5
    plain, heavy = (make(**CHOOSING).fit(SEQUENCES, y, own) for own in (None, np.full(60, 1e308)))
    assert heavy.certificate_ == plain.certificate_
    assert heavy.certificate_.primal > 0


@pytest.mark.parametrize(
    "data",
    [make_sequences(60), make_lists() + make_lists(1)[:12], make_sequences(60)[:, 0]],
    ids=["sequences", "lists", "rows"],
)
@pytest.mark.parametrize("make", [classifier, regressor])
def test_samples_without_weight_are_as_good_as_not_there(make, data):
    targets = sums(data)
    y = targets if make is regressor else np.where(targets > 0.5, "up", "down")
    counts = np.random.default_rng(1).random(60) < 0.6
    y_given = y.copy()
    y_given[~counts] = 1e9 if make is regressor else "not a class"
    parameters = {**CHOOSING, **({"class_weight": "balanced"} if make is classifier else {})}
    chosen = [own for own, is_there in zip(data, counts, strict=True) if is_there]
    chosen = chosen if isinstance(data, list) else np.array(chosen)
    with_all = make(**parameters).fit(data, y_given, counts.astype(float))
    without = make(**parameters).fit(chosen, y[counts], np.ones(counts.sum()))
    assert with_all.certificate_ == without.certificate_
    np.testing.assert_array_equal(with_all._outputs(data), without._outputs(data))
    assert with_all.certify(data, y_given, counts.astype(float)) == without.certify(chosen, y[counts])


@pytest.mark.parametrize("witnesses", ["gaussian", "mixed"])
@pytest.mark.parametrize("offset", [1e3, -1e6, 1e12])
def test_a_regressor_follows_targets_far_from_zero(offset, witnesses):
    options = {**CHOOSING, "witnesses": witnesses}
    near, far = (regressor(**options).fit(SEQUENCES, TARGETS + own) for own in (0.0, offset))
    assert far.certificate_.relative_gap <= far.tol
    assert far.score(SEQUENCES, TARGETS + offset) == pytest.approx(near.score(SEQUENCES, TARGETS), abs=1e-3)
    constant = regressor(**options).fit(SEQUENCES, np.full(60, offset))
    assert (constant.predict(SEQUENCES) == offset).all()


def test_gradients_refuse_targets_that_single_precision_cannot_tell_apart():
    assert regressor("sg", **FIXED).fit(SEQUENCES, TARGETS + 1e3).predict(SEQUENCES).shape == (60,)
    with pytest.raises(
        InvalidInputError, match=r"variation is below torch.float32 resolution .*: subtract the mean"
    ) as error:
        regressor("sg", **FIXED).fit(SEQUENCES, TARGETS + 1e9)
    assert_one_sentence(error.value)


def test_targets_that_overflow_are_one_sentence():
    with pytest.raises(InvalidInputError, match="overflow or underflow in float64") as error:
        regressor(**CHOOSING).fit(SEQUENCES, 1e200 * TARGETS)
    assert_one_sentence(error.value)


ODD = {
    "a constant feature": (np.dstack((SEQUENCES[:8, :, :1], np.ones((8, 4, 1)))), np.arange(8) % 2),
    "constants only": (np.ones((8, 4, 2)), np.arange(8) % 2),
    "one sample per class": (SEQUENCES[:3], np.arange(3)),
    "two samples": (SEQUENCES[:2], np.arange(2)),
    "one step": (SEQUENCES[:9, :1], np.arange(9) % 3),
    "equal sequences": (np.repeat(SEQUENCES[:1], 6, axis=0), np.arange(6) % 2),
}


@pytest.mark.parametrize("witnesses", ["auto", "search", "gaussian", "delayed"])
@pytest.mark.parametrize("name", ODD)
def test_odd_data_are_fitted(name, witnesses):
    X, y = ODD[name]
    options = {"hidden": (8,), "l1_strength": "auto", "witnesses": witnesses}
    if witnesses == "search":
        options["n_trials"] = 2
    if (name, witnesses) == ("constants only", "delayed"):
        with pytest.raises(InvalidInputError, match=r"sequences that vary .* got a constant"):
            classifier(**options).fit(X, y)
        return
    assert set(classifier(**options).fit(X, y).predict(X)) <= set(y)
    for number, loss in enumerate(LOSSES):
        penalty = ("l1", "group", "elastic-net", "group-elastic-net")[number % 4]
        model = classifier(loss=loss, penalty=penalty, **options).fit(X, y)
        assert set(model.predict(X)) <= set(y)
    assert np.isfinite(regressor(**options).fit(X, y).predict(X)).all()
