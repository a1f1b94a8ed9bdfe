"""Probabilities from the scores of a least-squares read-out."""

from copy import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tolerances import CALIBRATED, ROUNDING

from cvxsnn import SpikingClassifier, load, save
from cvxsnn.convex.objective import logits
from cvxsnn.core.errors import DataFileError
from cvxsnn.core.storage import read_tensors, write_tensors
from cvxsnn.estimators import classifier
from cvxsnn.estimators.classifier import SHIFT_STRENGTH, fit_scale, fit_shift

SHARE_KEPT = 0.7
"""Of the labels of the noisy task; the others are replaced by another class."""


def noisy_task(n_samples, n_classes, seed):
    """Sequences whose class is obvious, and labels of which some are wrong."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(n_classes, size=n_samples)
    X = 2 * classes[:, None, None] + 0.1 * rng.normal(size=(n_samples, 2, 1))
    is_wrong = rng.random(n_samples) > SHARE_KEPT
    return X, (classes + is_wrong * rng.integers(1, n_classes, n_samples)) % n_classes


def calibration_error(probability, labels, n_bins=10):
    """Mean difference of confidence and accuracy, over bins of the confidence."""
    confidence, hits = probability.max(1), probability.argmax(1) == labels
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    return sum(abs((confidence - hits)[bins == one].sum()) for one in range(n_bins)) / len(labels)


@pytest.fixture(scope="module", params=[2, 3], ids=["two classes", "three classes"])
def fitted(request):
    X, y = noisy_task(2000, request.param, 0)
    return SpikingClassifier(n_neurons=60, random_state=0).fit(X, np.array(["a", "b", "c"])[y])


def test_probabilities_are_as_high_as_the_share_of_right_predictions(fitted):
    X, y = noisy_task(4000, len(fitted.classes_), 1)
    probability = fitted.predict_proba(X)
    assert calibration_error(probability, y) < CALIBRATED
    assert probability.max(1).mean() == pytest.approx(SHARE_KEPT, abs=CALIBRATED)
    for factor in (0.5, 2.0):  # another scale would show
        other = torch.softmax(factor * torch.from_numpy(np.log(probability)), 1).numpy()
        assert calibration_error(other, y) > 1.5 * CALIBRATED


@settings(max_examples=30)
@given(arrays(np.float64, (5, 2, 1), elements=st.floats(-100, 100)))
def test_probabilities_sum_to_one_and_the_highest_is_that_of_the_prediction(fitted, inputs):
    probability = fitted.predict_proba(inputs)
    assert (probability >= 0).all()
    np.testing.assert_allclose(probability.sum(1), 1.0, rtol=ROUNDING)
    places = np.searchsorted(fitted.classes_, fitted.predict(inputs))
    assert (probability[np.arange(5), places] == probability.max(1)).all()


@given(st.floats(0.01, 100), st.integers(0, 2**32 - 1))
def test_the_scale_undoes_that_of_the_scores(factor, seed):
    rng = np.random.default_rng(seed)
    scores, labels = rng.normal(size=(50, 3)), rng.integers(3, size=50)
    scores[np.arange(50), labels] += 1
    weight = torch.full((50,), 1 / 50, dtype=torch.float64)
    first, other = (fit_scale(torch.from_numpy(own), labels, weight) for own in (scores, factor * scores))
    assert other * factor == pytest.approx(first, rel=1e-3)


def test_the_scale_has_the_least_log_loss_of_all():
    rng = np.random.default_rng(0)
    scores, labels = torch.from_numpy(rng.normal(size=(200, 1))), (rng.random(200) < 0.5).astype(np.int64)
    scores[:, 0] += torch.from_numpy(labels - 0.5)
    weight = torch.full((200,), 1 / 200, dtype=torch.float64)
    scale = fit_scale(scores, labels, weight)

    def loss(factor):
        return -float(torch.log_softmax(logits(scores, factor), 1)[torch.arange(200), labels].mean())

    assert all(loss(scale) <= loss(factor * scale) for factor in (0.5, 0.9, 1.1, 2.0))


def test_labels_that_are_all_predicted_correctly_do_not_make_probabilities_certain():
    scores, labels = torch.tensor([[-1.0], [1.0]] * 10, dtype=torch.float64), np.array([0, 1] * 10)
    scale = fit_scale(scores, labels, torch.full((20,), 1 / 20, dtype=torch.float64))
    probability = torch.softmax(logits(scores, scale), 1).max()
    assert float(probability) == pytest.approx(1 - 1 / 22, abs=1e-4)


@pytest.mark.parametrize(("loss", "n_classes"), [("logistic", 2), ("logistic", 3), ("softmax", 2), ("softmax", 3)])
def test_only_a_least_squares_read_out_has_a_scale(loss, n_classes, tmp_path):
    """Files of version 0.1.0 have one for every loss over default neurons."""
    X, y = noisy_task(40, n_classes, 0)
    model = SpikingClassifier(n_neurons=20, loss=loss, random_state=0).fit(X, y)
    save(model, tmp_path / "model")
    tensors, header = read_tensors(tmp_path / "model", "model")
    assert "probability_scale" not in header
    write_tensors(tmp_path / "older", "model", tensors, header | {"probability_scale": 3.0})
    np.testing.assert_array_equal(load(tmp_path / "older").predict_proba(X), model.predict_proba(X))


def test_parameters_set_after_a_fit_do_not_change_its_probabilities(fitted):
    X, _ = noisy_task(20, len(fitted.classes_), 2)
    expected = fitted.predict_proba(X)
    for loss in ("logistic", "softmax"):
        model = copy(fitted).set_params(loss=loss)
        np.testing.assert_array_equal(model.predict_proba(X), expected)


def log_loss(scores, labels, scale=1.0):
    return -float(torch.log_softmax(logits(scores, scale), 1)[torch.arange(len(labels)), labels].mean())


@given(st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_shifts_undo_what_favours_a_class(n_outputs, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(max(2, n_outputs), size=4000)
    if n_outputs == 1:
        scores = torch.from_numpy(2.0 * labels[:, None] - 1 + rng.normal(size=(4000, 1)))
    else:
        scores = torch.from_numpy(np.eye(n_outputs)[labels] + rng.normal(size=(4000, n_outputs)))
    favour = torch.from_numpy(rng.uniform(-1, 1, n_outputs))
    weight = torch.full((4000,), 1 / 4000, dtype=torch.float64)
    shift = fit_shift(scores + favour, labels, weight, 1.0)
    moved = shift + favour
    assert log_loss(scores + moved, labels) <= log_loss(scores + favour, labels)
    spread = moved if n_outputs == 1 else moved - moved.mean()
    assert float(spread.abs().max()) < 0.2  # the scores have a spread of one


@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_shifts_minimise_the_penalised_log_loss_of_weighted_samples(n_outputs, seed):
    rng = np.random.default_rng(seed)
    scores, labels = torch.from_numpy(rng.normal(size=(30, n_outputs))), rng.integers(max(2, n_outputs), size=30)
    weight = torch.from_numpy(rng.uniform(size=30))
    weight /= weight.sum()

    def objective(shift):
        n_classes, smooth = max(2, n_outputs), 1 / 32
        target = torch.full((30, n_classes), smooth / (n_classes - 1), dtype=torch.float64)
        target[torch.arange(30), labels] = 1 - smooth
        likelihood = torch.log_softmax(logits(scores + shift, 2.0), 1)
        penalty = SHIFT_STRENGTH * weight.square().sum() * shift.square().sum()
        return float(penalty - weight @ (target * likelihood).sum(1))

    best = fit_shift(scores, labels, weight, 2.0)
    for direction in rng.normal(size=(5, n_outputs)):
        assert objective(best) <= objective(best + 0.01 * torch.from_numpy(direction)) + 1e-9


def rare_class(seed):
    """Sequences of which a fifth are of one class, with overlap."""
    rng = np.random.default_rng(seed)
    y = (rng.random(60) < 0.2).astype(int)
    return y[:, None, None] + rng.normal(size=(60, 4, 1)), y


@pytest.fixture
def always_shifted(monkeypatch):
    monkeypatch.setattr(classifier, "_is_worthwhile", lambda *_: True)


@pytest.mark.usefixtures("always_shifted")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_what_is_certified_is_the_read_out_with_its_shift(n_classes, tmp_path):
    X, y = rare_class(0) if n_classes == 2 else noisy_task(60, 3, 0)
    model = SpikingClassifier(n_neurons=40, random_state=0).fit(X, y)
    shift = torch.tensor(model.proof_.objective.loss.shift, dtype=torch.float64)
    assert len(shift) == (1 if n_classes == 2 else 3)
    assert bool(shift.any())
    assert "shifted by" in str(model.summary())
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.certify(X, y) == model.certify(X, y) == model.certificate_
    assert model.certificate_.relative_gap <= model.tol
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    # The mean of the scores is that of the shifted targets, as at every optimum with an intercept.
    targets = torch.from_numpy(2.0 * y - 1)[:, None] if n_classes == 2 else torch.eye(3, dtype=torch.float64)[y]
    scores = torch.from_numpy(model.decision_function(X)).reshape(targets.shape)
    torch.testing.assert_close(scores.mean(0), targets.mean(0) + shift, rtol=0, atol=1e-9)


@pytest.mark.usefixtures("always_shifted")
def test_a_file_with_another_shift_is_certified_with_its_gap_or_refused(tmp_path):
    X, y = rare_class(1)
    model = SpikingClassifier(n_neurons=40, random_state=0).fit(X, y)
    save(model, tmp_path / "model")
    tensors, header = read_tensors(tmp_path / "model", "model")
    loss = header["proof"]["objective"]["loss"][0]
    moved = [value + 0.1 for value in loss["shift"]]
    for name, entry in {
        "moved": {**loss, "shift": moved},
        "dropped": {"name": "squared"},
        "long": {**loss, "shift": [0.0, 0.0]},
        "logistic": {**loss, "name": "logistic"},
        "nan": {**loss, "shift": [float("nan")]},
    }.items():
        proof = {**header["proof"], "objective": {**header["proof"]["objective"], "loss": [entry]}}
        write_tensors(tmp_path / name, "model", tensors, {**header, "proof": proof})
        if name in ("moved", "dropped"):
            assert load(tmp_path / name).certify(X, y).relative_gap > 1e-3 * abs(model.certificate_.primal)
        else:
            with pytest.raises(DataFileError, match="shift"):
                load(tmp_path / name)


@pytest.mark.parametrize(("favour", "expected"), [(0.0, False), (0.4, True)])
def test_targets_are_shifted_only_where_samples_left_out_clearly_ask_for_it(favour, expected):
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=200)
    scores = torch.from_numpy(np.eye(4)[labels] + 0.3 * rng.normal(size=(200, 4)) + favour * np.eye(4)[0])
    weight = torch.full((200,), 1 / 200, dtype=torch.float64)
    scale = fit_scale(scores, labels, weight)
    shift = fit_shift(scores, labels, weight, scale)
    assert classifier._is_worthwhile(shift, scores, labels, weight, scale) is expected


@pytest.mark.usefixtures("always_shifted")
def test_a_read_out_without_an_intercept_has_no_shift():
    X, y = rare_class(2)
    model = SpikingClassifier(n_neurons=40, intercept=False, random_state=0).fit(X, y)
    assert model.proof_.objective.loss == "squared"
