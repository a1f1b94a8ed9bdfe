"""A fitted estimator in words."""

import dataclasses
import itertools
import logging
import pickle
from functools import partial

import numpy as np
import pytest
from estimators.samples import FITTED, LABELS, SEQUENCES
from sklearn.exceptions import NotFittedError
from small_models import classifier, regressor, sums

from cvxsnn import Certificate, SpikingClassifier, SpikingRegressor, load, save
from cvxsnn.core import progress
from cvxsnn.core.formatting import round_up
from cvxsnn.data import Sequences
from cvxsnn.fitting import choosing, engine
from cvxsnn.network.energy import count_operations
from cvxsnn.witnesses.mixed import MIXTURES

LONGER = np.random.default_rng(0).normal(size=(40, 10, 2))
ABOVE = (LONGER.sum((1, 2)) > 0).astype(int)
MIXED = SpikingClassifier(n_neurons=20, random_state=0).fit(LONGER, ABOVE)


def test_every_mixture_that_was_tried_is_listed_with_its_errors_and_the_chosen_one_is_marked():
    summary = MIXED.summary()
    assert [(trial.mixture, trial.readout) for trial in summary.trials] == [
        ("kinds", "mean+burst+root+ever"),
        ("kinds and last", "mean+burst+root+ever+last"),
        ("all", "mean"),
        ("all", "last"),
    ]
    short = SpikingClassifier(n_neurons=20, random_state=0).fit(LONGER[:, :6], ABOVE).summary()
    assert {trial.mixture for trial in short.trials} <= set(MIXTURES)
    assert sum(trial.is_chosen for trial in summary.trials) == 1
    assert not any(trial.is_held_out for trial in summary.trials)
    lines = str(summary).splitlines()[4:8]
    for trial, line in zip(summary.trials, lines, strict=True):
        cells = [
            *trial.mixture.split(),
            trial.readout,
            str(trial.n_neurons),
            "40",
            "in",
            "turn",
            f"{trial.accuracy:.4f}",
            f"{trial.loss:.5g}",
        ]
        assert line.split()[:-1] == ["*"] * trial.is_chosen + cells
    accuracy, minus_loss = MIXED.history_[0].score
    (chosen,) = [trial for trial in summary.trials if trial.is_chosen]
    assert (chosen.accuracy, chosen.loss) == (accuracy, -minus_loss)


def test_samples_that_are_held_out_at_once_are_told_from_those_left_out_in_turn(monkeypatch):
    monkeypatch.setattr(choosing, "GRID", dataclasses.replace(choosing.GRID, max_left_out=30, few=30))
    monkeypatch.setattr(engine, "SIZES", dataclasses.replace(engine.SIZES, rows_compared=25))
    summary = SpikingClassifier(n_neurons=20, random_state=0).fit(LONGER, ABOVE).summary()
    assert [(trial.n_samples, trial.is_held_out) for trial in summary.trials] == [(25, False)] * 4 + [(8, True)]
    assert str(summary).count(" 25 in turn ") == 4
    assert str(summary).count(" 8 at once ") == 1


def test_the_reason_names_what_was_chosen():
    (chosen,) = [trial for trial in MIXED.summary().trials if trial.is_chosen]
    (line,) = [line for line in str(MIXED.summary()).splitlines() if line.startswith("Chosen: ")]
    assert line.startswith(f"Chosen: {chosen.mixture!r} and read-out {chosen.readout!r}: ")
    assert line.endswith("20 neurons: as you asked.")


def test_the_certificate_is_put_into_words():
    text = str(FITTED.summary())
    assert f"objective (loss plus penalty, {round_up(FITTED.certificate_.primal, 6):.6g}) by more than" in text
    assert "for these 24 hidden neurons" in text
    assert "Not proven: that no other hidden neurons do better, or anything about new data." in text
    complete = dataclasses.replace(FITTED.summary(), certificate=Certificate(0.5, 0.4, "complete"))
    assert "any hidden neurons of the family lower the training objective (loss plus penalty, 0.5)" in str(complete)
    assert "by more than 0.1, which is 0.2 of it." in str(complete)
    assert "Not proven: anything about new data." in str(complete)
    assert "Proven: nothing." in str(classifier("sg").fit(SEQUENCES, LABELS).summary())


def test_neurons_that_were_selected_are_called_so():
    model = SpikingClassifier(sparsity=5, n_neurons=40, random_state=0).fit(SEQUENCES, LABELS)
    assert "no other weights for these 5 hidden neurons, selected from a larger sample, lower" in str(model.summary())


def test_an_answer_costs_what_is_counted_on_the_data():
    mean, spread = MIXED.input_scale_
    counted = count_operations(MIXED.network_, Sequences((LONGER - mean) / spread))
    summary = MIXED.summary(LONGER)
    assert summary.operations == counted
    assert f"{counted.synaptic_per_sample:,.0f} synaptic operations (mean of 40 sequences)" in str(summary)
    assert f"{counted.total.n_spikes / 40:,.0f} spikes" in str(summary)
    assert "pass sequences to summary" in str(MIXED.summary())
    assert "pass sequences to summary" not in str(summary)


def test_the_neurons_that_are_read_are_counted():
    model = classifier(l1_strength=0.05).fit(SEQUENCES, LABELS)
    assert model.network_.n_active < 24
    assert f"Size: {model.network_.n_active} of 24 neurons " in str(model.summary())


def test_a_model_from_a_file_says_that_its_history_is_not_known(tmp_path):
    save(MIXED, tmp_path / "model")
    loaded = load(tmp_path / "model").summary(LONGER)
    assert "Training: not known." in str(loaded)
    assert str(loaded).splitlines()[2:] == str(MIXED.summary(LONGER)).splitlines()[-4:]


def test_a_pickled_model_has_the_same_summary():
    assert str(pickle.loads(pickle.dumps(MIXED)).summary(LONGER)) == str(MIXED.summary(LONGER))


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        (classifier("cvx", n_trials=4), LABELS),
        (classifier("sg-cvx"), LABELS),
        (classifier("r"), LABELS),
        (regressor(), sums(SEQUENCES)),
        (SpikingRegressor(n_neurons=20, random_state=0), sums(SEQUENCES)),
        (SpikingClassifier(n_neurons=20, random_state=0, loss="logistic", l1_strength=0.01), LABELS),
    ],
    ids=["search", "sg-cvx", "r", "regressor", "mixed regressor", "mixed logistic"],
)
def test_every_fit_has_a_summary(model, targets):
    summary = model.fit(SEQUENCES, targets).summary(SEQUENCES)
    text = repr(summary)
    assert text.startswith(f"{type(model).__name__}: SpikingNetwork(")
    assert f"Training: {summary.seconds:.1f} s" in text
    assert "None" not in text


def test_a_mixture_is_remembered_when_another_loss_follows():
    model = SpikingClassifier(n_neurons=20, random_state=0, loss="logistic", l1_strength=0.01).fit(SEQUENCES, LABELS)
    assert [stage.name for stage in model.history_] == ["tuning", "convex"]
    assert model.summary().trials == model.history_[0].trials != ()


def test_a_model_that_is_not_fitted_has_no_summary():
    with pytest.raises(NotFittedError):
        SpikingClassifier().summary()


def test_nothing_is_printed_by_default(capfd):
    SpikingClassifier(n_neurons=10, random_state=0).fit(SEQUENCES, LABELS)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("model", "stages"),
    [
        (SpikingClassifier(n_neurons=10, random_state=0), {"fit (%)"}),
        (SpikingClassifier(n_neurons=10, random_state=0, loss="logistic", l1_strength=0.01), {"fit (%)"}),
        (classifier("sg"), {"1. gradient"}),
        (classifier("cvx", n_trials=4), {"0. tuning", "fit (%)"}),
    ],
    ids=["mixed", "mixed logistic", "sg", "search"],
)
def test_every_stage_is_reported_to_the_log(monkeypatch, caplog, capfd, model, stages):
    hours = partial(progress.ShownProgress, clock=itertools.count(0, 3600).__next__)  # every call is worth a line
    monkeypatch.setattr("cvxsnn.estimators.base.ShownProgress", hours)
    with caplog.at_level(logging.INFO, "cvxsnn"):
        model.fit(SEQUENCES, LABELS)
    assert {message.rpartition(":")[0] for message in caplog.messages} == stages
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("n_samples", "is_logged"), [(10, False), (9, True)])
def test_thresholds_from_a_part_of_the_samples_are_logged(caplog, n_samples, is_logged):
    family = {"geometry": "scattered", "fan_in": 3, "n_calibration": n_samples}
    with caplog.at_level(logging.INFO, "cvxsnn"):
        classifier(witnesses=family).fit(SEQUENCES[:10], LABELS[:10])
    expected = ["thresholds and weights are taken from 9 of 10 samples"] if is_logged else []
    assert caplog.messages == expected
