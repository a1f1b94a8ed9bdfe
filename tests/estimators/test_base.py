"""Data as scikit-learn's users pass them, and what an estimator keeps."""

import dataclasses
import functools
import pickle
import time

import joblib
import numpy as np
import pytest
import torch
from estimators.samples import FITTED, LABELS, LISTS, SEQUENCES, THREE_LABELS, assert_certified_again, assert_close
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
    make_sequences,
    regressor,
    sums,
)
from tolerances import EASY_SCORE, REFITTED, ROUNDING

from cvxsnn import InvalidInputError, SpikingClassifier, SpikingRegressor, gaussian_witnesses, load, save
from cvxsnn.data import Sequences
from cvxsnn.estimators.inputs import feature_scale
from cvxsnn.fitting import Folds, HeldOut, SurrogateSettings, Tuning, choosing
from cvxsnn.witnesses import Normal, Provenance, Uniform


def test_features_are_scaled_over_steps_that_count():
    data = Sequences(np.array([[[1.0], [3.0]], [[5.0], [999.0]]]), [2, 1])
    mean, spread = feature_scale(data, None)
    assert (mean, spread) == (pytest.approx(3.0), pytest.approx(np.std([1.0, 3.0, 5.0])))
    mean, spread = feature_scale(data, np.array([0.0, 1.0]))
    assert (mean.tolist(), spread.tolist()) == ([5.0], [1.0])


def test_a_feature_that_hardly_varies_is_not_blown_up():
    rng = np.random.default_rng(0)
    values = rng.uniform(size=(500, 4, 4))
    values[:, :, 3] = (rng.random((500, 4)) < 0.001) * 0.5  # like a pixel at the border of an image
    _, spread = feature_scale(Sequences(values), None)
    deviation = values.std((0, 1))
    assert spread[:3] == pytest.approx(deviation[:3])
    ratio = np.median(np.ptp(values, axis=(0, 1)) / deviation)
    assert spread[3] == pytest.approx(0.5 / (2 * ratio))
    assert spread[3] > 2 * deviation[3]
    units = np.array([1e6, 1.0, 1e-6, 10.0])  # units change the spreads and nothing else
    assert feature_scale(Sequences(units * values), None)[1] == pytest.approx(units * spread)
    assert feature_scale(Sequences(values[:, :, 3:]), None)[1] == pytest.approx(deviation[3:])


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
    rows = torch.tensor(SEQUENCES)
    assert classifier().fit(rows, torch.tensor(LABELS)).score(rows, LABELS) >= EASY_SCORE
    assert regressor(hidden=(128,)).fit(rows, torch.tensor(sums(SEQUENCES))).score(rows, sums(SEQUENCES)) >= EASY_SCORE


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
    with pytest.raises(
        InvalidInputError, match=f"method='{method}': only cvx, sg-cvx, varpro prove anything"
    ) as caught:
        model.certify(SEQUENCES, LABELS)
    assert_one_sentence(caught.value)


def test_parameters_reach_the_network():
    model = classifier(hidden=(5, 24), n_subnetworks=2, readout="last", neuron="threshold").fit(SEQUENCES, LABELS)
    assert model.network_.hidden == (5, 24)
    assert model.network_.readout == "last"
    assert model.proof_.witnesses.n_subnetworks == 2
    assert model.proof_.witnesses.neuron == "threshold"
    assert classifier(intercept=False).fit(SEQUENCES, LABELS).network_.intercept.item() == 0.0


@pytest.mark.parametrize(("few", "expected"), [(47, [[10]]), (48, [[9, 9, 10, 10, 10]] * 3)])
def test_auto_chooses_a_strength_on_held_out_data_and_solves_on_all(monkeypatch, few, expected):
    n_left_out = []

    def spy(judge, problem, own):
        repeats = own(judge, problem)
        n_left_out.extend(sorted(len(part.held) for part in folds) for folds in repeats)
        assert all(part.problem.dictionary.n_rows + len(part.held) == 48 for folds in repeats for part in folds)
        return repeats

    monkeypatch.setattr(choosing, "GRID", dataclasses.replace(choosing.GRID, few=few))
    for judge in (HeldOut, Folds):
        monkeypatch.setattr(judge, "_parts", functools.partialmethod(spy, own=judge._parts))
    model = classifier(l1_strength="auto", penalty="l1").fit(SEQUENCES, LABELS)
    assert model.proof_.dual_point.shape == (48, 1)
    assert model.proof_.l1_strength == model.history_[-1].l1_strength
    assert n_left_out == expected  # a fifth, rounded up, or fifths that are drawn three times
    fixed = classifier(l1_strength=model.proof_.l1_strength).fit(SEQUENCES, LABELS)
    assert fixed.certificate_.primal == pytest.approx(model.certificate_.primal, rel=2 * model.tol)


def net(**options):
    return classifier(**{"penalty": "elastic-net", "decay": 0.8, **options})


@pytest.mark.parametrize("kind", [classifier, regressor])
@pytest.mark.parametrize("penalty", ["elastic-net", "group-elastic-net"])
@pytest.mark.parametrize("l1_strength", [0.003, 0.0])
def test_an_elastic_net_at_given_strengths_is_certified(kind, penalty, l1_strength):
    targets = THREE_LABELS if kind is classifier else np.stack([sums(SEQUENCES), -SEQUENCES[:, 0, 0]], axis=1)
    options = {"penalty": penalty, "l1_strength": l1_strength, "l2_strength": 0.01, "decay": 0.8}
    model = kind(**options).fit(SEQUENCES, targets)
    assert (model.proof_.l1_strength, model.proof_.l2_strength) == (l1_strength, 0.01)
    assert model.proof_.penalty.name == penalty
    assert model.certificate_.relative_gap <= model.tol
    assert_certified_again(model, SEQUENCES, targets)
    assert model.score(SEQUENCES, targets) > 0.6


def test_an_elastic_net_alone_chooses_both_strengths_on_held_out_data_and_solves_on_all():
    model = net(l1_strength="auto").fit(SEQUENCES, LABELS)
    stage, proof = model.history_[-1], model.proof_
    assert proof.dual_point.shape == (48, 1)
    assert (proof.l1_strength, proof.l2_strength) == (stage.l1_strength, stage.l2_strength)
    assert proof.l2_strength > 0
    fixed = net(l1_strength=proof.l1_strength, l2_strength=proof.l2_strength).fit(SEQUENCES, LABELS)
    assert fixed.certificate_.primal == pytest.approx(model.certificate_.primal, rel=2 * model.tol)
    assert model.score(SEQUENCES, LABELS) >= EASY_SCORE


def test_a_penalty_without_squares_has_no_second_strength_whatever_is_asked_for():
    options = {"l1_strength": "auto", "decay": 0.8}
    plain = classifier(**options).fit(SEQUENCES, LABELS)
    for l2_strength in ("auto", 0, 0.0):
        model = classifier(l2_strength=l2_strength, **options).fit(SEQUENCES, LABELS)
        assert model.certificate_ == plain.certificate_
        assert model.proof_.l2_strength == 0.0


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
    np.testing.assert_allclose(plain.input_scale_[0], steps.mean(0), rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(plain.input_scale_[1], steps.std(0), rtol=ROUNDING)
    np.testing.assert_allclose(moved.input_scale_[0], steps.mean(0) * scale + shift, rtol=0, atol=ROUNDING)
    assert moved.score([x * scale + shift for x in LISTS], classes_of(LISTS)) >= EASY_SCORE


def test_a_constant_feature_is_no_obstacle():
    data = SEQUENCES.copy()
    data[:, :, 1] = 7.0
    model = classifier().fit(data, LABELS)
    assert model.input_scale_[1][1] == 1.0
    assert model.predict(data).shape == (48,)


# scikit-learn's tools.


def test_a_clone_has_the_parameters_and_is_not_fitted():
    model = classifier("sg-cvx", decay=Uniform(0.1, 0.2), penalty="elastic-net", l2_strength=0.5).fit(SEQUENCES, LABELS)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "network_")


def test_a_pipeline_and_a_grid_search_work():
    rows = SEQUENCES[:, 0]
    labels = classes_of(rows)
    assert make_pipeline(StandardScaler(), classifier()).fit(rows, labels).score(rows, labels) >= EASY_SCORE
    grid = {"l1_strength": [1e-3, 10.0], "l2_strength": [1e-3, 10.0]}
    both = GridSearchCV(net(), grid, cv=2).fit(SEQUENCES, LABELS)
    assert both.best_params_ == {"l1_strength": 1e-3, "l2_strength": 1e-3}
    search = GridSearchCV(classifier(), {"l1_strength": [1e-3, 10.0]}, cv=2).fit(SEQUENCES, LABELS)
    assert search.best_params_ == {"l1_strength": 1e-3}
    assert search.predict(SEQUENCES).shape == (48,)


# Weights.


@pytest.mark.parametrize("kind", [classifier, regressor])
@pytest.mark.parametrize("penalty", ["l1", "group", "elastic-net"])
def test_integer_weights_pose_the_problem_of_repeated_rows(kind, penalty):
    weight = np.random.default_rng(1).integers(0, 4, 48)
    targets = THREE_LABELS if kind is classifier else np.stack([sums(SEQUENCES), -SEQUENCES[:, 0, 0]], axis=1)
    # A search would hold out other rows of the one than of the other, and end up with other neurons.
    options = {"standardize": False, "penalty": penalty, "decay": 0.8}
    options |= {"l2_strength": 0.01} if penalty == "elastic-net" else {}
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
    "squares of the L1 norm": lambda: classifier(l2_strength=0.1).fit(SEQUENCES, LABELS),
    "squares of groups": lambda: classifier(penalty="group", l2_strength=0.1).fit(SEQUENCES, LABELS),
    "negative second strength": lambda: net(l2_strength=-0.1).fit(SEQUENCES, LABELS),
    "negative strength of a net": lambda: net(l1_strength=-0.1).fit(SEQUENCES, LABELS),
    "infinite second strength": lambda: net(l2_strength=float("inf")).fit(SEQUENCES, LABELS),
    "second strength": lambda: net(l2_strength="automatic").fit(SEQUENCES, LABELS),
    "second strength true": lambda: net(l2_strength=True).fit(SEQUENCES, LABELS),
    "second strength none": lambda: net(l2_strength=None).fit(SEQUENCES, LABELS),
    "no strength at all": lambda: net(l1_strength=0.0, l2_strength=0.0).fit(SEQUENCES, LABELS),
    "tolerance": lambda: classifier(tol=-1e-6).fit(SEQUENCES, LABELS),
    "seed": lambda: classifier(random_state=-1).fit(SEQUENCES, LABELS),
    "no hidden": lambda: classifier(hidden=()).fit(SEQUENCES, LABELS),
    "width zero": lambda: classifier(hidden=(0,)).fit(SEQUENCES, LABELS),
    "decay": lambda: classifier(decay=1.5).fit(SEQUENCES, LABELS),
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
    "a reservoir of threshold neurons": lambda: classifier("r", neuron="threshold").fit(SEQUENCES, LABELS),
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


@pytest.mark.parametrize(("bad", "remedy"), [(np.nan, "NaN: impute them first"), (np.inf, "infinite values: replace")])
def test_rows_that_are_not_finite_are_refused(bad, remedy):
    rows = SEQUENCES[:, 0].copy()
    rows[0, 0] = bad
    with pytest.raises(InvalidInputError, match=f"expected finite rows, got {remedy}") as caught:
        classifier().fit(rows, LABELS)
    assert_one_sentence(caught.value)


def test_nothing_to_fit_is_refused():
    for nothing in ([], np.zeros((0, 3)), None, "text"):
        with pytest.raises(InvalidInputError, match="expected one label per sample, got none"):
            classifier().fit(nothing, [])
        with pytest.raises(InvalidInputError, match=r"(?i)expected (sequence|one target for each of)") as caught:
            classifier().fit(nothing, LABELS)
        assert_one_sentence(caught.value)


@pytest.mark.parametrize("kind", [SpikingClassifier, SpikingRegressor])
@pytest.mark.parametrize("use", [lambda m: m.predict(SEQUENCES), lambda m: m.certify(SEQUENCES, LABELS)])
def test_an_unfitted_model_says_so(kind, use):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        use(kind())


def test_a_refused_fit_says_what_differs_in_length():
    with pytest.raises(InvalidInputError, match="each of 48 samples, got 47: X and y differ in length"):
        classifier().fit(SEQUENCES, LABELS[:-1])


def test_refused_weights_are_called_what_the_user_calls_them():
    with pytest.raises(InvalidInputError, match="expected sample_weight to be finite, non-negative"):
        classifier().fit(SEQUENCES, LABELS, sample_weight=np.linspace(-1, 1, 48))


def test_a_refused_prediction_says_what_was_expected():
    with pytest.raises(InvalidInputError, match="expected sequences with 3 features as in fit, got rows of features"):
        FITTED.predict(SEQUENCES[:, 0])


@pytest.mark.parametrize("device", ["abacus", 7.5])
def test_a_device_that_does_not_exist_is_one_sentence(device):
    with pytest.raises(InvalidInputError, match="expected a device"):
        SpikingClassifier(hidden=(4,), device=device).fit(np.eye(6), [0, 1] * 3)


def test_the_device_may_be_left_to_the_machine():
    model = SpikingClassifier(hidden=(6,), device="auto", random_state=0).fit(SEQUENCES, LABELS)
    assert model.network_.weight.is_cuda == torch.cuda.is_available()


# Which neurons are sampled, and how they are searched for.


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
    monkeypatch.setattr("cvxsnn.fitting.methods.tune_witnesses", stop)
    monkeypatch.setattr("cvxsnn.estimators.base.tune_witnesses", stop)
    return fit


def test_the_search_keeps_to_the_widths_asked_for():
    tuning = Tuning(n_subnetworks=2, n_trials=4)
    model = SpikingClassifier(hidden=(20, 12), witnesses=tuning, random_state=0).fit(SEQUENCES, LABELS)
    witnesses = model.proof_.witnesses
    assert (witnesses.hidden, witnesses.n_subnetworks) == ((20, 12), 2)
    assert model.history_[0].name == "tuning"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"witnesses": "search"}, (4096, "auto", None)),
        ({"hidden": np.array([16, 48])}, (48, 1, (16, 48))),
        ({"hidden": np.array(2048), "witnesses": "search"}, (2048, 1, (2048,))),
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
    assert searched(X, y, witnesses="search").n_trials == n_trials
    assert searched(X, y, witnesses=Tuning(n_trials=7)).n_trials == 7


def test_the_number_of_neurons_is_that_of_any_family():
    for options in ({}, {"witnesses": "gaussian"}, {"witnesses": "delayed"}, {"witnesses": {"decay": 0.5}}):
        model = SpikingClassifier(n_neurons=10, l1_strength=0.1, random_state=0, **options).fit(SEQUENCES, LABELS)
        assert model.proof_.witnesses.n_witnesses == 10


def test_a_family_that_is_not_searched_for_has_as_many_neurons():
    for options, hidden, n_subnetworks in (
        ({"witnesses": "gaussian"}, (4096,), 1),
        ({"witnesses": {"decay": 0.5, "n_subnetworks": 4}}, (1024,), 4),
        ({"witnesses": {"neuron": "threshold"}}, (1024,), 1),
    ):
        witnesses = (
            SpikingClassifier(l1_strength=0.1, random_state=0, **options).fit(SEQUENCES, LABELS).proof_.witnesses
        )
        assert (witnesses.hidden, witnesses.n_subnetworks) == (hidden, n_subnetworks)


def test_the_papers_family_and_a_named_one_are_not_searched_for():
    for witnesses in ("gaussian", {"decay": 0.5}, {"neuron": "threshold"}):
        options = {"hidden": (12,), "readout": "mean", "random_state": 0}
        model = SpikingClassifier(witnesses=witnesses, **options).fit(SEQUENCES, LABELS)
        assert [stage.name for stage in model.history_] == ["convex"]


GIVEN = gaussian_witnesses(3, (12,), 2, decay=0.7, seed=5)


def test_witnesses_that_are_given_are_used_as_they_are():
    model = SpikingClassifier(witnesses=GIVEN, l1_strength=0.01, random_state=0).fit(SEQUENCES, LABELS)
    for layer, own in zip(model.proof_.witnesses.layers, GIVEN.layers, strict=True):
        assert all(torch.equal(value, own.tensors()[name]) for name, value in layer.tensors().items())
    assert [stage.name for stage in model.history_] == ["convex"]
    assert clone(model).fit(SEQUENCES, LABELS).certificate_ == model.certificate_


@pytest.mark.parametrize("method", ["cvx", "sg", "r"])
@pytest.mark.parametrize(
    "witnesses",
    [
        GIVEN,
        dataclasses.replace(GIVEN, provenance=Provenance("pretrained")),
        {"decay": Uniform(0.2, 0.9), "hidden": (5, 7), "fan_in": (None, 3), "bias": (0.1, Normal(0.0, 0.5))},
        {"decay": 0.5},
    ],
    ids=["sampled", "pretrained", "layers", "decay"],
)
def test_a_model_with_given_witnesses_or_a_family_can_be_saved(tmp_path, witnesses, method):
    options = {"hidden": (12,), "l1_strength": 0.01, "surrogate": BRIEF, "random_state": 0}
    model = SpikingClassifier(method, witnesses=witnesses, **options).fit(SEQUENCES, LABELS)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert np.array_equal(again.predict(SEQUENCES), model.predict(SEQUENCES))
    if isinstance(witnesses, dict):
        assert again.witnesses == witnesses
    elif witnesses is GIVEN:
        assert torch.equal(again.witnesses.layers[0].weight, GIVEN.layers[0].weight)
    else:
        assert again.witnesses == "auto"


def test_a_family_is_sampled_at_its_own_widths_or_at_those_of_the_estimator():
    family = {"decay": 0.5, "threshold": 0.8}
    own = SpikingClassifier(witnesses={**family, "hidden": (9,)}, hidden=(7,), l1_strength=0.1, random_state=0)
    assert own.fit(SEQUENCES, LABELS).proof_.witnesses.hidden == (9,)
    other = SpikingClassifier(witnesses=family, hidden=(7,), l1_strength=0.1, random_state=0).fit(SEQUENCES, LABELS)
    assert other.proof_.witnesses.hidden == (7,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"witnesses": gaussian_witnesses(2, (4,))}, "witnesses that read 3 features, got witnesses that read 2"),
        ({"witnesses": {"decay": 0.5, "width": 3}}, r"unknown settings \['width'\]; a gaussian family has \[.*\]"),
        (
            {"witnesses": "uniform"},
            "witnesses to be one of 'auto', 'mixed', 'search', 'gaussian', 'delayed', got 'uniform'",
        ),
        (
            {"witnesses": 3},
            "witnesses to be 'auto', 'mixed', .*, a family .*, a WitnessSet or a Tuning, got 3",
        ),
        (
            {"witnesses": {"geometry": "box", "gain": 2.0}},
            r"settings \['gain'\]; a delayed family has \[.*'quantiles'.*\]",
        ),
        ({"witnesses": {"geometry": "box", "bias": 2.0}}, "no bias beside quantiles"),
        ({"witnesses": {"geometry": "box", "max_delay": 99}}, "max_delay below the .* steps"),
        ({"max_seconds": "soon"}, "max_seconds to be a finite number, got 'soon'"),
        ({"max_seconds": -1}, "max_seconds to be zero or above, got -1"),
        ({"n_neurons": 8, "hidden": (9,)}, r"hidden or n_neurons, got hidden=\(9,\) and n_neurons=8"),
        ({"n_neurons": 8, "hidden": (9, 4)}, r"hidden or n_neurons, got hidden=\(9, 4\)"),
        ({"n_neurons": 2.5}, "n_neurons to be a positive integer, got 2.5"),
    ],
)
def test_witnesses_and_times_that_cannot_serve_are_refused_in_one_sentence(options, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        SpikingClassifier(**options).fit(SEQUENCES, LABELS)
    assert_one_sentence(caught.value)


DELAYED = {"geometry": "box", "fan_in": 4, "max_delay": 2, "quantiles": (0.2, 0.8), "box": (2, 2), "decay": 0.5}


def test_the_summary_says_that_time_ended_the_choice():
    summary = str(SpikingClassifier(random_state=0, max_seconds=0).fit(SEQUENCES, LABELS).summary())
    assert "neurons: no time was left to try more." in summary


@pytest.mark.parametrize(
    "options",
    [
        {"method": "sg", "surrogate": SurrogateSettings(epochs=10**6)},
        {"witnesses": "search"},
        {"witnesses": "gaussian"},
        {"loss": "logistic"},
        {"sparsity": 5},
    ],
    ids=str,
)
def test_every_method_ends_in_time(options):
    begin = time.perf_counter()
    model = SpikingClassifier(random_state=0, max_seconds=0, **options).fit(SEQUENCES, LABELS)
    assert model.predict(SEQUENCES).shape == LABELS.shape
    assert time.perf_counter() - begin < 60  # a million epochs would take days


@pytest.mark.parametrize("kind", [SpikingClassifier, SpikingRegressor])
@pytest.mark.parametrize("witnesses", ["delayed", DELAYED], ids=["name", "family"])
def test_neurons_with_delays_are_fitted_saved_and_pickled_to_the_bit(tmp_path, kind, witnesses):
    targets = LABELS if kind is SpikingClassifier else SEQUENCES.sum((1, 2))
    model = kind(witnesses=witnesses, hidden=(30,), random_state=0).fit(SEQUENCES, targets)
    assert model.network_.layers[0].has_delays
    assert [stage.name for stage in model.history_] == ["convex"]
    assert_close_certificates(model.certify(SEQUENCES, targets), model.certificate_)
    save(model, tmp_path / "model")
    score = "decision_function" if kind is SpikingClassifier else "predict"
    for again in (load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert again.witnesses == witnesses
        assert np.array_equal(getattr(again, score)(SEQUENCES), getattr(model, score)(SEQUENCES))
        assert again.certificate_ == model.certificate_
        assert_close_certificates(again.certify(SEQUENCES, targets), model.certificate_)
        for layer, own in zip(again.proof_.witnesses.layers, model.proof_.witnesses.layers, strict=True):
            assert layer.settings() == own.settings()
            assert all(torch.equal(value, own.tensors()[name]) for name, value in layer.tensors().items())
    assert len(pickle.dumps(model)) <= 1.5 * (tmp_path / "model").stat().st_size


def test_a_name_for_delays_has_the_defaults_of_the_sampler():
    fit = {"hidden": (9, 7), "l1_strength": 0.01, "random_state": 0}
    model = SpikingClassifier(witnesses="delayed", **fit).fit(SEQUENCES, LABELS)
    family = {"geometry": "scattered", "hidden": (9, 7), "fan_in": 25, "decay": 0.0, "threshold": 0.0}
    same = SpikingClassifier(witnesses=family, **fit).fit(SEQUENCES, LABELS)
    assert model.certificate_ == same.certificate_


def test_rows_of_features_have_no_delays_to_choose_from():
    model = SpikingClassifier(witnesses="delayed", hidden=(20,), l1_strength=0.01, random_state=0)
    rows = SEQUENCES[:, 0]
    assert model.fit(rows, LABELS).proof_.witnesses.layers[0].max_delay == 0


def test_workers_do_not_change_the_model():
    options = {"hidden": (12,), "witnesses": Tuning(n_trials=4), "random_state": 0}
    one = SpikingClassifier(**options).fit(SEQUENCES, LABELS)
    with joblib.parallel_config(n_jobs=2):
        two = SpikingClassifier(**options).fit(SEQUENCES, LABELS)
    assert one.history_[0].family == two.history_[0].family
    assert one.certificate_ == two.certificate_


def test_without_a_seed_every_fit_gives_another_model():
    model = SpikingClassifier(hidden=(12,), witnesses={"decay": 0.9}, l1_strength=0.01)
    first, second = (model.fit(SEQUENCES, LABELS).certificate_ for _ in range(2))
    assert first != second
