import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small_models import (
    BRIEF,
    CONVEX_METHODS,
    OTHER_METHODS,
    assert_close_certificates,
    assert_one_sentence,
    classes_of,
    classifier,
    make_lists,
    make_sequences,
    regressor,
    sums,
)
from tolerances import EASY_SCORE, FLOAT64_MEAN, REFITTED, ROUNDING

from cvxsnn import InvalidInputError, SpikingClassifier, SpikingRegressor
from cvxsnn.training import SurrogateSettings, train
from cvxsnn.witnesses import Normal, Uniform

SEQUENCES = make_sequences()
LISTS = make_lists()
LABELS = classes_of(SEQUENCES)
THREE_LABELS = classes_of(SEQUENCES, 3)
LOSSES = ("logistic", "softmax", "hinge", "squared_hinge", "squared")


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=REFITTED, atol=REFITTED)


def assert_certified_again(model, data, targets, sample_weight=None):
    assert model.certificate_.scope == "sampled"
    assert_close_certificates(model.certify(data, targets, sample_weight), model.certificate_)


# What may be handed over.


@pytest.mark.parametrize("kind", [np.array, torch.tensor, np.ndarray.tolist, list, lambda data: data.astype(object)])
def test_sequences_may_come_in_any_form(kind):
    expected = classifier().fit(SEQUENCES, LABELS)
    model = classifier().fit(kind(SEQUENCES), LABELS)
    assert model.n_features_in_ == 3
    assert model.score(SEQUENCES, LABELS) >= EASY_SCORE
    assert_close(model.decision_function(kind(SEQUENCES)), expected.decision_function(SEQUENCES))


@pytest.mark.parametrize("kind", [np.array, torch.tensor, np.ndarray.tolist, np.float32, np.asfortranarray])
def test_rows_of_features_are_sequences_of_one_step(kind):
    rows = SEQUENCES[:, 0]
    labels = classes_of(rows)
    model = classifier().fit(kind(rows), labels)
    assert model.network_.n_features == 3
    np.testing.assert_array_equal(
        model.predict(kind(rows)), classifier().fit(rows[:, None], labels).predict(rows[:, None])
    )


def test_labels_and_targets_may_be_tensors():
    rows = torch.from_numpy(SEQUENCES)
    assert classifier().fit(rows, torch.from_numpy(LABELS)).score(rows, LABELS) >= EASY_SCORE
    assert regressor().fit(rows, torch.from_numpy(sums(SEQUENCES))).score(rows, sums(SEQUENCES)) >= EASY_SCORE


def test_sequences_of_unequal_length_are_predicted_as_each_is_alone():
    for readout in ("mean", "last"):
        model = classifier(readout=readout).fit(LISTS, classes_of(LISTS))
        together = model.decision_function(LISTS)
        alone = [model.decision_function([sequence])[0] for sequence in LISTS]
        # Spikes are equal to the bit; sums of float64 products may be formed in another order.
        np.testing.assert_allclose(together, alone, rtol=0, atol=ROUNDING)


@given(st.integers(1, 47))
def test_a_sample_is_predicted_alike_alone_in_a_part_and_in_the_whole(start):
    model = FITTED
    whole = model.decision_function(SEQUENCES)
    np.testing.assert_allclose(model.decision_function(SEQUENCES[start:]), whole[start:], rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(model.decision_function(SEQUENCES[start][None]), whole[start], rtol=0, atol=ROUNDING)


FITTED = classifier().fit(SEQUENCES, LABELS)


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


def test_labels_may_be_a_list_of_strings():
    labels = ["up" if label else "down" for label in LABELS]
    assert set(classifier().fit(SEQUENCES, labels).predict(SEQUENCES)) == {"up", "down"}


# Scores and probabilities.


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_loss_separates_two_classes_and_three(loss, n_classes):
    labels = classes_of(SEQUENCES, n_classes)
    model = classifier(loss=loss).fit(SEQUENCES, labels)
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


# Methods and settings.


@pytest.mark.parametrize("method", CONVEX_METHODS)
def test_convex_methods_certify_their_optimum_and_prove_it_again(method):
    model = classifier(method).fit(SEQUENCES, THREE_LABELS)
    assert model.certificate_.relative_gap <= model.tol
    assert_certified_again(model, SEQUENCES, THREE_LABELS)
    assert [stage.name for stage in model.history_][-1] == "convex"


@pytest.mark.parametrize("method", OTHER_METHODS)
def test_other_methods_claim_nothing(method):
    model = classifier(method).fit(SEQUENCES, LABELS)
    assert model.certificate_ is None
    assert model.predict(SEQUENCES).shape == (48,)
    with pytest.raises(InvalidInputError, match=f"method='{method}': only cvx, sg-cvx, r-cvx prove anything") as caught:
        model.certify(SEQUENCES, LABELS)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("method", [*CONVEX_METHODS, *OTHER_METHODS])
def test_every_method_regresses(method):
    model = regressor(method).fit(SEQUENCES, sums(SEQUENCES))
    assert model.predict(SEQUENCES).shape == (48,)
    assert (model.certificate_ is None) == (method in OTHER_METHODS)
    if model.certificate_:
        assert_certified_again(model, SEQUENCES, sums(SEQUENCES))


def test_surrogate_gradients_learn_an_easy_rule():
    model = classifier("sg", surrogate=SurrogateSettings(epochs=25)).fit(SEQUENCES, LABELS)
    assert model.score(SEQUENCES, LABELS) >= EASY_SCORE


@pytest.mark.parametrize(
    "parameters",
    [
        {"neuron": "threshold"},
        {"neuron": "threshold", "hidden": (12, 24)},
        {"penalty": "group"},
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


def test_parameters_reach_the_network():
    model = classifier(hidden=(5, 24), n_subnetworks=2, readout="last", neuron="threshold").fit(SEQUENCES, LABELS)
    assert model.network_.hidden == (5, 24)
    assert model.network_.readout == "last"
    assert model._proof.witnesses.n_subnetworks == 2
    assert model._proof.witnesses.neuron == "threshold"
    assert classifier(intercept=False).fit(SEQUENCES, LABELS).network_.intercept.item() == 0.0


def test_a_strong_penalty_leaves_the_share_of_the_classes():
    model = classifier(l1_strength=100.0).fit(SEQUENCES, THREE_LABELS)
    assert not model.network_.weight.any()
    np.testing.assert_allclose(model.predict_proba(SEQUENCES), 1 / 3, atol=model.tol**0.5)


def test_auto_chooses_a_strength_on_held_out_data_and_solves_on_all(monkeypatch):
    splits = []

    def spy(method, split, settings, **options):
        splits.append(split)
        return train(method, split, settings, **options)

    monkeypatch.setattr("cvxsnn.estimators.base.train", spy)
    model = classifier(l1_strength="auto").fit(SEQUENCES, LABELS)
    assert model._proof.dual_point.shape == (48, 1)
    assert model._proof.l1_strength == model.history_[-1].l1_strength
    assert [len(split.data) for split in splits] == [38]  # a fifth is held out, rounded up
    monkeypatch.undo()
    fixed = classifier(l1_strength=model._proof.l1_strength).fit(SEQUENCES, LABELS)
    assert fixed.certificate_.primal == pytest.approx(model.certificate_.primal, rel=2 * model.tol)


def test_the_same_seed_gives_the_same_predictions_and_another_gives_others():
    for method in ("cvx", "sg", "cvx-sg"):
        first, second, other = (
            classifier(method, surrogate=None if method == "cvx" else BRIEF, random_state=seed)
            .fit(SEQUENCES, LABELS)
            .decision_function(SEQUENCES)
            for seed in (5, 5, 6)
        )
        assert_close(first, second)
        assert abs(first - other).max() > 10 * REFITTED


def test_fitting_again_forgets_what_was_before():
    model = classifier().fit(make_sequences(30, 6, 5), classes_of(make_sequences(30, 6, 5), 3))
    model.fit(SEQUENCES, LABELS)
    assert_close(model.decision_function(SEQUENCES), FITTED.decision_function(SEQUENCES))
    assert_close_certificates(model.certificate_, FITTED.certificate_)
    assert classifier("sg").set_params(hidden=(8,)).fit(SEQUENCES, LABELS).certificate_ is None


def test_features_are_standardised_over_steps_that_are_not_padding():
    shift, scale = np.array([3.0, -40.0, 0.5]), np.array([10.0, 0.01, 1.0])
    plain = classifier().fit(LISTS, classes_of(LISTS))
    moved = classifier().fit([x * scale + shift for x in LISTS], classes_of(LISTS))
    steps = np.concatenate(LISTS)
    np.testing.assert_allclose(plain._mean, steps.mean(0), rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(plain._scale, steps.std(0), rtol=ROUNDING)
    np.testing.assert_allclose(moved._mean, steps.mean(0) * scale + shift, rtol=0, atol=ROUNDING)
    assert moved.score([x * scale + shift for x in LISTS], classes_of(LISTS)) >= EASY_SCORE


def test_a_constant_feature_is_no_obstacle():
    data = SEQUENCES.copy()
    data[:, :, 1] = 7.0
    model = classifier().fit(data, LABELS)
    assert model._scale[1] == 1.0
    assert model.predict(data).shape == (48,)


# scikit-learn's tools.


def test_a_clone_has_the_parameters_and_is_not_fitted():
    model = classifier("sg-cvx", decay=Uniform(0.1, 0.2)).fit(SEQUENCES, LABELS)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "network_")


def test_a_pipeline_and_a_grid_search_work():
    rows = SEQUENCES[:, 0]
    labels = classes_of(rows)
    assert make_pipeline(StandardScaler(), classifier()).fit(rows, labels).score(rows, labels) >= EASY_SCORE
    search = GridSearchCV(classifier(), {"l1_strength": [1e-3, 10.0]}, cv=2).fit(SEQUENCES, LABELS)
    assert search.best_params_ == {"l1_strength": 1e-3}
    assert search.predict(SEQUENCES).shape == (48,)


# Weights.


@pytest.mark.parametrize("kind", [classifier, regressor])
@pytest.mark.parametrize("penalty", ["l1", "group"])
def test_integer_weights_pose_the_problem_of_repeated_rows(kind, penalty):
    weight = np.random.default_rng(1).integers(0, 4, 48)
    targets = THREE_LABELS if kind is classifier else np.stack([sums(SEQUENCES), -SEQUENCES[:, 0, 0]], axis=1)
    # A search would hold out other rows of the one than of the other, and end up with other neurons.
    options = {"standardize": False, "penalty": penalty, "decay": 0.8}
    weighted = kind(**options).fit(SEQUENCES, targets, sample_weight=weight)
    repeated = kind(**options).fit(SEQUENCES.repeat(weight, 0), targets.repeat(weight, 0))
    gap = max(weighted.certificate_.gap, repeated.certificate_.gap)
    assert abs(weighted.certificate_.primal - repeated.certificate_.primal) <= gap + ROUNDING
    assert_certified_again(weighted, SEQUENCES, targets, weight)


def test_weights_decide_between_contradicting_rows():
    data = np.concatenate([SEQUENCES, SEQUENCES])
    labels = np.concatenate([LABELS, 1 - LABELS])
    weight = np.repeat([1.0, 0.01], 48)
    for method in ("cvx", "r"):
        model = classifier(method).fit(data, labels, sample_weight=weight)
        assert model.score(SEQUENCES, LABELS) > 0.8
        assert classifier(method).fit(data, labels, sample_weight=weight[::-1]).score(SEQUENCES, 1 - LABELS) > 0.8


# Regression.


def test_a_regressor_predicts_an_easy_function_in_the_shape_of_its_targets():
    flat = sums(SEQUENCES)
    both = np.stack([flat, SEQUENCES[:, :, 0].sum(1)], axis=1)
    assert regressor().fit(SEQUENCES, flat).score(SEQUENCES, flat) >= EASY_SCORE
    model = regressor(penalty="group", hidden=(64,)).fit(SEQUENCES, both)
    assert model.predict(SEQUENCES).shape == (48, 2)
    assert model.score(SEQUENCES, both) >= EASY_SCORE
    assert_certified_again(model, SEQUENCES, both)
    assert regressor(hidden=(64,)).fit(LISTS, sums(LISTS)).score(LISTS, sums(LISTS)) >= EASY_SCORE


def test_targets_of_any_scale_are_learned_by_gradients():
    targets = 1e4 * sums(SEQUENCES) + 3e5
    model = regressor("sg", surrogate=SurrogateSettings(epochs=60, batch_size=16)).fit(SEQUENCES, targets)
    assert model.score(SEQUENCES, targets) > 0.7


# What is refused.


def spoiled(value):
    data = SEQUENCES.copy()
    data[3, 1, 2] = value
    return data


BAD_FITS = {
    "NaN": lambda: classifier().fit(spoiled(np.nan), LABELS),
    "infinite": lambda: classifier().fit(spoiled(np.inf), LABELS),
    "NaN in a list": lambda: classifier().fit([np.full((2, 3), np.nan), np.ones((3, 3))], [0, 1]),
    "empty array": lambda: classifier().fit(np.zeros((0, 4, 3)), []),
    "no steps": lambda: classifier().fit(np.zeros((48, 0, 3)), LABELS),
    "no features": lambda: classifier().fit(np.zeros((48, 4, 0)), LABELS),
    "one class": lambda: classifier().fit(SEQUENCES, np.ones(48)),
    "no labels": lambda: classifier().fit(SEQUENCES, None),
    "infinite labels": lambda: classifier().fit(SEQUENCES, np.where(LABELS == 0, np.inf, 1.0)),
    "labels with NaN": lambda: classifier().fit(SEQUENCES, np.where(LABELS == 0, np.nan, 1.0)),
    "real labels": lambda: classifier().fit(SEQUENCES, SEQUENCES[:, 0, 0]),
    "labels in columns": lambda: classifier().fit(SEQUENCES, np.ones((48, 2))),
    "fewer labels": lambda: classifier().fit(SEQUENCES, LABELS[:-1]),
    "fewer targets": lambda: regressor().fit(SEQUENCES, LABELS[:-1]),
    "more labels than rows": lambda: classifier().fit(SEQUENCES[:-1, 0], LABELS),
    "four dimensions": lambda: classifier().fit(SEQUENCES[None], LABELS),
    "strings": lambda: classifier().fit(SEQUENCES.astype(str), LABELS),
    "strings in rows": lambda: classifier().fit([["a", "b"], ["c", "d"]], [0, 1]),
    "strings in lists": lambda: classifier().fit([[["a"], ["b"]], [["c"]]], [0, 1]),
    "complex": lambda: classifier().fit(SEQUENCES * 1j, LABELS),
    "features that differ": lambda: classifier().fit([np.ones((2, 3)), np.ones((2, 4))], [0, 1]),
    "steps that differ": lambda: classifier().fit([[[1.0, 2.0], [3.0]], [[1.0, 2.0]]], [0, 1]),
    "empty sequence": lambda: classifier().fit([np.ones((2, 3)), np.ones((0, 3))], [0, 1]),
    "empty list among lists": lambda: classifier().fit([[[1.0, 2.0]], []], [0, 1]),
    "a row among sequences": lambda: classifier().fit([np.ones((2, 3)), np.ones(3)], [0, 1]),
    "method": lambda: classifier("newton").fit(SEQUENCES, LABELS),
    "loss": lambda: classifier(loss="zero_one").fit(SEQUENCES, LABELS),
    "loss of a regressor": lambda: regressor(loss="hinge").fit(SEQUENCES, LABELS),
    "neuron": lambda: classifier(neuron="izhikevich").fit(SEQUENCES, LABELS),
    "readout": lambda: classifier(readout="all").fit(SEQUENCES, LABELS),
    "penalty": lambda: classifier(penalty="l2").fit(SEQUENCES, LABELS),
    "negative strength": lambda: classifier(l1_strength=-1.0).fit(SEQUENCES, LABELS),
    "zero strength": lambda: classifier(l1_strength=0).fit(SEQUENCES, LABELS),
    "strength NaN": lambda: classifier(l1_strength=float("nan")).fit(SEQUENCES, LABELS),
    "strength": lambda: classifier(l1_strength="automatic").fit(SEQUENCES, LABELS),
    "strength true": lambda: classifier(l1_strength=True).fit(SEQUENCES, LABELS),
    "tolerance": lambda: classifier(tol=-1e-6).fit(SEQUENCES, LABELS),
    "seed": lambda: classifier(random_state=-1).fit(SEQUENCES, LABELS),
    "no hidden": lambda: classifier(hidden=()).fit(SEQUENCES, LABELS),
    "width zero": lambda: classifier(hidden=(0,)).fit(SEQUENCES, LABELS),
    "decay": lambda: classifier(decay=1.5).fit(SEQUENCES, LABELS),
    "validation fraction": lambda: classifier("sg", validation_fraction=1.0).fit(SEQUENCES, LABELS),
    "negative weights": lambda: classifier().fit(SEQUENCES, LABELS, sample_weight=np.linspace(-1, 1, 48)),
    "zero weights": lambda: classifier().fit(SEQUENCES, LABELS, sample_weight=np.zeros(48)),
    "NaN weights": lambda: classifier().fit(SEQUENCES, LABELS, sample_weight=np.full(48, np.nan)),
    "fewer weights": lambda: classifier().fit(SEQUENCES, LABELS, sample_weight=np.ones(47)),
    "a class without weight": lambda: classifier().fit(SEQUENCES, LABELS, sample_weight=LABELS),
    "no targets": lambda: regressor().fit(SEQUENCES, None),
    "targets are strings": lambda: regressor().fit(SEQUENCES, ["a"] * 48),
    "infinite targets": lambda: regressor().fit(SEQUENCES, np.full(48, np.inf)),
    "a single target": lambda: regressor().fit(SEQUENCES, 1.0),
    "targets without columns": lambda: regressor().fit(SEQUENCES, np.ones((48, 0))),
    "targets with three dimensions": lambda: regressor().fit(SEQUENCES, np.ones((48, 2, 2))),
    "huge inputs": lambda: classifier(standardize=False).fit(1e30 * SEQUENCES, LABELS),
    "tiny inputs": lambda: classifier(standardize=False).fit(1e-9 * SEQUENCES, LABELS),
    "a reservoir of one step": lambda: classifier("r").fit(SEQUENCES[:, 0], LABELS),
    "a reservoir of threshold neurons": lambda: classifier("r-cvx", neuron="threshold").fit(SEQUENCES, LABELS),
    "fewer features": lambda: FITTED.predict(SEQUENCES[:, :, :2]),
    "NaN to predict": lambda: FITTED.predict(SEQUENCES * np.nan),
    "rows to predict": lambda: FITTED.predict(SEQUENCES[:, 0]),
    "one sequence, not in a list": lambda: FITTED.predict(SEQUENCES[0]),
    "sequences to predict": lambda: classifier().fit(SEQUENCES[:, 0], LABELS).predict(SEQUENCES),
    "fewer features in rows": lambda: classifier().fit(SEQUENCES[:, 0], LABELS).predict(SEQUENCES[:, 0, :2]),
    "unseen labels": lambda: FITTED.certify(SEQUENCES, LABELS + 1),
    "labels of another type": lambda: FITTED.certify(SEQUENCES, LABELS.astype(str)),
    "certify other features": lambda: FITTED.certify(SEQUENCES[:, :, :2], LABELS),
}


@pytest.mark.parametrize("case", BAD_FITS)
def test_bad_input_is_one_sentence(case):
    with pytest.raises(ValueError, match=r"\w\W* \w") as caught:
        BAD_FITS[case]()
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_refused_in_scikit_learns_words(bad):
    rows = SEQUENCES[:, 0].copy()
    rows[0, 0] = bad
    with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
        classifier().fit(rows, LABELS)


def test_nothing_to_fit_is_refused():
    for nothing in ([], np.zeros((0, 3)), None, "text"):
        with pytest.raises(ValueError, match=r"array|convert"):
            classifier().fit(nothing, [])


@pytest.mark.parametrize("kind", [SpikingClassifier, SpikingRegressor])
@pytest.mark.parametrize("use", [lambda m: m.predict(SEQUENCES), lambda m: m.certify(SEQUENCES, LABELS)])
def test_an_unfitted_model_says_so(kind, use):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        use(kind())


def test_a_refused_fit_says_what_differs_in_length():
    with pytest.raises(InvalidInputError, match="each of 48 samples, got 47: X and y differ in length"):
        classifier().fit(SEQUENCES, LABELS[:-1])


def test_refused_weights_are_called_what_the_user_calls_them():
    with pytest.raises(InvalidInputError, match="expected sample_weight to be non-negative"):
        classifier().fit(SEQUENCES, LABELS, sample_weight=np.linspace(-1, 1, 48))


def test_a_refused_prediction_says_what_was_expected():
    with pytest.raises(InvalidInputError, match="expected sequences with 3 features as in fit, got rows of 3 features"):
        FITTED.predict(SEQUENCES[:, 0])


@pytest.mark.parametrize("device", ["abacus", 7.5])
def test_a_device_that_does_not_exist_is_one_sentence(device):
    with pytest.raises(InvalidInputError, match="expected a device"):
        SpikingClassifier(hidden=(4,), device=device).fit(np.eye(6), [0, 1] * 3)


def test_two_rows_are_enough_for_a_regressor():
    model = SpikingRegressor(hidden=(8,), n_trials=2, random_state=0).fit([[0.0], [1.0]], [0.0, 1.0])
    assert model.predict([[0.0], [1.0]]).shape == (2,)


def test_the_device_may_be_left_to_the_machine():
    model = SpikingClassifier(hidden=(6,), n_trials=2, device="auto", random_state=0).fit(SEQUENCES, LABELS)
    assert model.network_.weight.is_cuda == torch.cuda.is_available()
