"""Samples of one group are left out together, whatever judges a fit."""

import numpy as np
import pandas
import pytest
import sklearn
import torch
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from small_models import BRIEF, make_sequences

import cvxsnn as cs
from cvxsnn import SequenceImputer, SpikingClassifier, SpikingRegressor
from cvxsnn.fitting import engine, judges

N_GROUPS, PER_GROUP = 24, 6


def people(n_people, seed, per_person=PER_GROUP):
    """Recordings of people: an offset tells who it is, and thereby the class, which hardly shows otherwise."""
    rng = np.random.default_rng(seed)
    who = np.arange(n_people).repeat(per_person)
    y = rng.permutation(np.arange(n_people) % 2)[who]
    X = rng.normal(size=(n_people, 1, 12))[who] + 0.15 * rng.normal(size=(len(who), 5, 12))
    X[:, :, 0] += 0.6 * (2 * y[:, None] - 1)
    return X, y, who


X, Y, WHO = people(N_GROUPS, 0)
NEW_X, NEW_Y, _ = people(200, 1)
QUICK = {"n_neurons": 300, "random_state": 0, "verbose": False}


def left_out(model):
    return model.history_[-1].score[0]


def test_without_groups_errors_are_those_of_known_people_and_with_groups_of_new_ones():
    known, new = (SpikingClassifier(**QUICK).fit(X, Y, groups=groups) for groups in (None, WHO))
    assert left_out(known) > 0.98
    for model in (known, new):
        assert model.score(NEW_X, NEW_Y) < 0.85
    validation_error = np.sqrt(0.25 / N_GROUPS)
    assert left_out(new) == pytest.approx(new.score(NEW_X, NEW_Y), abs=2 * validation_error)
    assert new.certificate_.relative_gap <= new.tol


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loss": "logistic"},
        {"loss": "logistic", "max_seconds": 0.0},
        {"witnesses": "gaussian", "l1_strength": "auto"},
        {"method": "sg", "surrogate": BRIEF},
        {"method": "sg-cvx", "surrogate": BRIEF},
        {"witnesses": cs.fitting.Tuning(n_witnesses=64, n_trials=8)},
        {"sparsity": 20},
        {"sparsity": "few", "loss": "squared_hinge"},
    ],
    ids=str,
)
def test_whatever_judges_leaves_whole_groups_out(options, monkeypatch):
    """No fit that judges a row knows its group: everything that leaves rows out is asked which ones it fits."""
    n_checked = []

    def check(problem, held, kept):
        n_checked.append(len(set(problem.groups[held].tolist())))
        assert n_checked[-1]
        assert not set(problem.groups[held].tolist()) & set(kept.tolist())

    def parts_of(judge):
        parts = judge._parts

        def checked(self, problem):
            repeats = parts(self, problem)
            for folds in repeats:
                for part in folds:
                    check(problem, part.held, part.problem.groups)
            return repeats

        return checked

    def scores_of(problem, strengths):
        assert len(torch.unique(problem.groups)) > 1
        n_checked.append(1)
        return ridge_scores(problem, strengths)

    ridge_scores, divide = judges.ridge_scores, SpikingClassifier._divide

    def divided(self, data, seed):
        rows = divide(self, data, seed)
        n_checked.append(1)
        train, held = (set(data.groups[own].tolist()) for own in rows)
        assert not train & held
        assert sorted(train | held) == list(range(N_GROUPS))
        return rows

    for judge in (judges.HeldOut, judges.Folds, cs.fitting.few._Selected):
        monkeypatch.setattr(judge, "_parts", parts_of(judge))
    monkeypatch.setattr(judges, "ridge_scores", scores_of)
    monkeypatch.setattr(engine, "ridge_scores", scores_of)
    monkeypatch.setattr(SpikingClassifier, "_divide", divided)
    SpikingClassifier(**{**QUICK, **options}).fit(X, Y, groups=WHO)
    assert n_checked


@pytest.mark.parametrize("kind", [SpikingClassifier, SpikingRegressor])
def test_the_errors_of_a_default_fit_are_those_of_fits_without_each_group(kind):
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 2.0, len(Y))
    targets = Y if kind is SpikingClassifier else X[:, :, 0].sum(1)
    model = kind(**QUICK).fit(X, targets, weight, groups=WHO)
    data, proof = model.training_set(X, targets, weight), model.proof_
    problem = proof.problem(data)
    total, who = 0.0, WHO
    for group in range(N_GROUPS):
        kept, left = (torch.tensor(np.flatnonzero(which)) for which in (who != group, who == group))
        share = float(problem.row_weight[kept].sum())
        without = problem.take_rows(kept).with_strength(0.0, problem.l2_strength / share)
        fitted, own = cs.solve(without, 1e-10), problem.dictionary.take_rows(left)
        difference = own.matvec(fitted.coef) + fitted.intercept - problem.heads[0].targets[left]
        total += float(problem.row_weight[left] @ difference.square().sum(1)) / 2
    stated = model.history_[-1].score
    assert -(stated[1] if kind is SpikingClassifier else stated) == pytest.approx(total, rel=1e-4)


def test_groups_of_one_sample_each_are_no_groups():
    alone, none = (SpikingClassifier(**QUICK).fit(X, Y, groups=groups) for groups in (np.arange(len(Y))[::-1], None))
    np.testing.assert_array_equal(alone.decision_function(X), none.decision_function(X))
    assert [trial.loss for trial in alone.summary().trials] == [trial.loss for trial in none.summary().trials]
    assert alone.probability_scale_ == none.probability_scale_


def test_labels_of_groups_may_be_of_any_kind():
    named = np.array([f"person {who}" for who in WHO])
    first = SpikingClassifier(**QUICK).fit(X, Y, groups=WHO)
    for groups in (named, named.tolist(), pandas.Series(named, index=WHO), torch.tensor(WHO), WHO - 0.5):
        other = SpikingClassifier(**QUICK).fit(X, Y, groups=groups)
        assert left_out(other) == left_out(first)
    assert " by group" in str(first.summary())
    assert " in turn" not in str(first.summary())
    assert " in turn" in str(SpikingClassifier(**QUICK).fit(X, Y).summary())


def test_samples_of_weight_zero_have_no_group():
    extra = np.concatenate([X, X[:4] + 1.0]), np.append(Y, Y[:4]), np.append(WHO, [77] * 4)
    weight = np.append(np.ones(len(Y)), np.zeros(4))
    found = SpikingClassifier(**QUICK).fit(*extra[:2], weight, groups=extra[2])
    assert left_out(found) == left_out(SpikingClassifier(**QUICK).fit(X, Y, np.ones(len(Y)), groups=WHO))
    with pytest.raises(ValueError, match="at least two groups of samples with weight, got one"):
        SpikingRegressor(**QUICK).fit(X, Y, WHO == 1, groups=WHO)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (WHO[:-1], "one group for each of 144 samples, got 143"),
        (np.where(WHO == 3, np.nan, WHO), "a group for every sample, got nan for sample 18"),
        ([None, *WHO[1:].tolist()], "a group for every sample, got None for sample 0"),
        (np.zeros(len(WHO)), "at least two groups of samples with weight, got one: pass groups=None"),
        (np.stack([WHO, WHO], 1), "in an array of one axis, got 2 axes"),
        ([1 + 1j] * len(WHO), "groups that are numbers or strings, got complex"),
        ([1, "a"] * (len(WHO) // 2), "groups of one type, got int and str"),
    ],
)
def test_wrong_groups_are_refused_in_one_sentence(groups, message):
    with pytest.raises(ValueError, match=message) as caught:
        SpikingClassifier(**QUICK).fit(X, Y, groups=groups)
    assert "\n" not in str(caught.value)


def test_classes_of_a_single_group_each_cannot_be_held_out():
    with pytest.raises(ValueError, match="two groups or more that can be left out"):
        SpikingClassifier(**QUICK, loss="logistic").fit(X, Y, groups=Y)
    assert left_out(SpikingClassifier(**QUICK).fit(X, Y, groups=Y)) < 0.5  # nothing was learned about the other class


def test_pipelines_and_searches_pass_groups_on():
    model = make_pipeline(SequenceImputer(), SpikingClassifier(**QUICK))
    model.fit(X, Y, spikingclassifier__groups=WHO)
    assert left_out(model[-1]) < 0.9
    with sklearn.config_context(enable_metadata_routing=True):
        routed = make_pipeline(SequenceImputer(), SpikingClassifier(**QUICK).set_fit_request(groups=True))
        routed.fit(X, Y, groups=WHO)
        assert left_out(routed[-1]) == left_out(model[-1])
        scores = cross_val_score(routed, X, Y, cv=GroupKFold(2), params={"groups": WHO}, error_score="raise")
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("n_compared", [50, 10])
def test_families_are_compared_on_some_rows_of_each_group(monkeypatch, n_compared):
    monkeypatch.setattr(engine, "SIZES", engine.Sizes(rows_compared=n_compared))
    model = SpikingClassifier(**QUICK).fit(make_sequences(len(WHO)), Y, groups=WHO)
    assert model.summary().trials[0].n_samples == n_compared
    assert model.summary().trials[0].is_by_group == (n_compared > N_GROUPS)
