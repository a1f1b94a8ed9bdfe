"""The engine: families, read-outs, sizes, strengths and few neurons, chosen by errors on rows left out."""

import logging
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from tolerances import ROUNDING

import cvxsnn as cs
from cvxsnn import InvalidInputError
from cvxsnn.convex import Objective
from cvxsnn.convex.left_out import ridge_scores
from cvxsnn.data import Sequences, TrainingSet
from cvxsnn.data.tasks import addition, first_last_xor
from cvxsnn.fitting import (
    Budget,
    Folds,
    HeldOut,
    Judge,
    Program,
    Scored,
    TaskScore,
    Verdict,
    choosing,
    engine,
    fit,
    judges,
    sample,
)
from cvxsnn.fitting.program import QUADRATIC_RATIOS, quadratic_unit
from cvxsnn.network import count_operations, reconstruct, summarise

LEAVE_ONE_OUT = sys.modules["cvxsnn.convex.left_out"]  # which a function of the same name hides
RNG = np.random.default_rng(0)
RIDGE = Program.ridge(Objective("squared", "mean"))
MIXTURES = ("all", "dilated", "scattered")
FAMILY = {"hidden": (20,)}


def training_set(n_samples=60, n_steps=12, weight=None):
    inputs = np.random.default_rng(1).normal(size=(n_samples, n_steps, 2))
    targets = inputs[:, :, 0].mean(1) + 0.1 * np.random.default_rng(2).normal(size=n_samples)
    return TrainingSet(Sequences(inputs), {"label": targets}, weight)


def labelled(n_samples=60):
    data = training_set(n_samples)
    return TrainingSet(data.sequences, {"label": (data.targets["label"] > 0).astype(int)})


def fit_mixed(data, n_neurons=None, families=MIXTURES, readouts=("mean", "last"), program=RIDGE, **options):
    budget = Budget(n_neurons, options.pop("max_seconds", np.inf), options.pop("sparsity", None))
    return fit(data, families, program, budget=budget, readouts=readouts, **options)


def set_sizes(monkeypatch, **sizes):
    monkeypatch.setattr(engine, "SIZES", replace(engine.SIZES, **sizes))


def test_the_solution_is_certified_at_the_strength_with_the_least_error():
    data = training_set()
    fitted = fit_mixed(data, 100, "all", ("mean",))
    problem, verdict = fitted.solution.problem, fitted.chosen.verdict
    assert fitted.solution.certificate.relative_gap <= RIDGE.tol
    losses = []
    for ratio in QUADRATIC_RATIOS:
        scores = ridge_scores(problem, [ratio * quadratic_unit(problem)])[0, :, 0].numpy()
        losses.append(0.5 * np.mean((scores - data.targets["label"]) ** 2))
    assert verdict.point == (0.0, QUADRATIC_RATIOS[int(np.argmin(losses))])
    assert problem.l2_strength == pytest.approx(verdict.point[1] * quadratic_unit(problem), rel=ROUNDING)
    assert fitted.chosen.loss == pytest.approx(min(losses))


def test_what_matters_at_the_end_is_read_there():
    task = first_last_xor(14, encoding="one-hot", n_train=600, n_val=8, n_test=8)
    data = TrainingSet(Sequences(task.train.inputs), {"label": 2.0 * task.train.targets - 1})
    fitted = fit_mixed(data, 1000)
    assert (fitted.program.objective.readout, fitted.chosen.family) == ("last", "scattered")
    assert fitted.solution.problem.dictionary.readout == "last"
    assert float(fitted.chosen.validation.mean("accuracy")[0]) > 0.75
    assert "clearly better than the default" in fitted.reason


@pytest.mark.parametrize("first", ["mean", "last"])
def test_the_default_stays_unless_another_choice_is_clearly_better(first):
    noise = TrainingSet(Sequences(RNG.normal(size=(50, 12, 2))), {"label": RNG.normal(size=50)})
    other = "last" if first == "mean" else "mean"
    fitted = fit_mixed(noise, 60, readouts=(first, other))
    assert (fitted.program.objective.readout, fitted.chosen.family) == (first, "all")
    # The default, the other read-out and two more mixtures; the first was of all neurons and rows already.
    tried = [(trial.family, trial.readout) for trial in fitted.trials]
    assert tried == [("all", first), ("all", other), ("dilated", first), ("scattered", first)]
    assert fitted.chosen is fitted.trials[0]


def test_clearly_better_is_by_more_than_the_standard_error_of_the_difference():
    data = training_set()
    best, other = (fit(data, FAMILY, RIDGE, seed=seed).chosen for seed in (0, 1))
    difference = (other.validation.loss[0] - best.validation.loss[0]).numpy()
    error = difference.std() / np.sqrt(len(difference))
    assert best.is_clearly_better(other) == (difference.mean() > error)
    assert other.is_clearly_better(best) == (-difference.mean() > error)
    assert not best.is_clearly_better(best)


def test_given_families_are_compared_like_mixtures():
    task = first_last_xor(6, n_train=300, n_val=8, n_test=8)
    data = TrainingSet(Sequences(task.train.inputs), {"label": 2.0 * task.train.targets - 1})
    forgetful, good = {"hidden": (64,), "decay": 0.0}, {"hidden": (64,), "decay": 0.9, "fan_in": 2}
    program = Program.ridge(Objective("squared", "last"))
    for families in ([forgetful, good], [good, forgetful]):
        fitted = fit(data, families, program)
        assert fitted.chosen.family is good
        assert [trial.family for trial in fitted.trials] == [*families, good]
        is_default = families[0] is good
        assert ("the default, and nothing else" in fitted.reason) == is_default


def test_a_given_family_is_neither_compared_nor_sized():
    fitted = fit(training_set(), FAMILY, RIDGE)
    assert (len(fitted.trials), fitted.n_sampled, fitted.reason) == (1, 20, "")


def test_given_witnesses_are_read_as_they_are():
    witnesses = cs.gaussian_witnesses(2, (7, 9), seed=5)
    fitted = fit(training_set(), witnesses, RIDGE)
    for layer, given in zip(fitted.solution.problem.dictionary.witnesses.layers, witnesses.layers, strict=True):
        assert torch.equal(layer.weight, given.weight)


def test_witnesses_are_sampled_for_the_features_of_the_data_or_taken_as_they_are():
    data, family = training_set(), {"hidden": (6, 8), "n_subnetworks": 2}
    sampled = sample(family, data, 0)
    assert (sampled.n_features, sampled.hidden, sampled.n_subnetworks) == (2, (6, 8), 2)
    given = cs.gaussian_witnesses(2, (3,))
    assert torch.equal(sample(given, data, 5).layers[0].weight, given.layers[0].weight)
    assert sample("dilated", data, 0, 33).n_witnesses == 33
    with pytest.raises(InvalidInputError, match="read 2 features, got witnesses that read 3"):
        sample(cs.gaussian_witnesses(3, (3,)), data, 0)


@pytest.mark.parametrize(("clearly", "n_neurons"), [(-99.0, 80), (99.0, 40)])
def test_more_neurons_are_sampled_if_the_error_still_falls(monkeypatch, clearly, n_neurons):
    set_sizes(monkeypatch, n_compared=20, n_neurons=(40, 80), clearly=clearly)
    fitted = fit_mixed(training_set(100), None, "all", ("mean",))
    assert fitted.n_sampled == fitted.chosen.n_neurons == n_neurons
    assert [trial.n_neurons for trial in fitted.trials] == [20, n_neurons]


def test_the_fall_is_that_of_leave_one_out_losses_with_half_the_neurons(monkeypatch):
    set_sizes(monkeypatch, n_compared=40, n_neurons=(40, 80))
    falls = []
    fall_by_half = engine._fall_by_half

    def spy(problem, trial):
        falls.append((fall_by_half(problem, trial), problem, trial))
        return falls[-1][0]

    monkeypatch.setattr(engine, "_fall_by_half", spy)
    data = training_set(50)
    fit_mixed(data, None, "all", ("mean",))
    ((fall, problem, trial),) = falls
    columns = problem.dictionary.columns()[:, ::2].numpy()
    half = cs.ConvexProblem(
        cs.dictionary.DenseDictionary(torch.from_numpy(columns)), data.targets["label"], "squared", 0.0,
        l2_strength=1.0, penalty="elastic-net", intercept=True,
    )  # fmt: skip
    scores = ridge_scores(half, [trial.verdict.point[1] * quadratic_unit(half)])[0, :, 0].numpy()
    targets = data.targets["label"]
    falls = 0.5 * (scores - targets) ** 2 - trial.validation.loss[0].numpy()
    assert fall == pytest.approx(falls.mean() / (falls.std() / (len(falls) - 1) ** 0.5), rel=1e-6)


def test_numbers_of_neurons_that_are_given_are_sampled():
    fitted = fit_mixed(training_set(), 37, "all", ("mean",))
    assert (fitted.n_sampled, fitted.chosen.n_neurons, len(fitted.trials)) == (37, 37, 1)


def reasons(data, n_neurons=None, **options):
    return fit_mixed(data, n_neurons, **options).reason


def test_the_reasons_are_those_of_the_choices(monkeypatch):
    data = training_set(100)
    one = {"families": "all", "readouts": ("mean",)}
    no_choice = "'all' and read-out 'mean': no choice was left open"
    default = "'all' and read-out 'mean': the default, and nothing else that was tried was clearly better"
    assert reasons(training_set(30, n_steps=3), 30, **one) == f"{no_choice}; 30 neurons: as you asked"
    set_sizes(monkeypatch, n_compared=20, n_neurons=(40, 80), clearly=-99.0)
    assert reasons(data, **one) == f"{no_choice}; 80 neurons: the errors still fall with the number of neurons"
    set_sizes(monkeypatch, clearly=99.0)
    assert reasons(data, **one) == f"{no_choice}; 40 neurons: 80 do not promise a clearly lower error"
    late = f"{default}, and no time was left to try more; 20 neurons: no time was left to try more"
    assert reasons(data, max_seconds=0) == late
    set_sizes(monkeypatch, rows_compared=50)
    judged = "strength judged on 50 samples: no time was left for all of them"
    assert reasons(data, max_seconds=0) == f"{late}; {judged}"
    set_sizes(monkeypatch, max_rows=50)
    assert reasons(data, **one).endswith("; 40 neurons: for more than 50 samples")
    fitted = fit_mixed(training_set(), 50)
    is_default = (fitted.chosen.family, fitted.program.objective.readout) == ("all", "mean")
    assert ("clearly better than the default" in fitted.reason) != is_default


@pytest.mark.parametrize("n_neurons", [None, 50])
@pytest.mark.parametrize("families", ["all", MIXTURES, FAMILY, [FAMILY, {"hidden": (30,)}]])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_without_time_the_first_choice_is_fitted_and_certified(monkeypatch, families, n_neurons, loss):
    set_sizes(monkeypatch, n_compared=20, n_neurons=(40, 80))
    data = labelled(60)
    program = RIDGE if loss == "squared" else Program(Objective("logistic", "mean"), n_strengths=6)
    fitted = fit(data, families, program, budget=Budget(n_neurons, 0), readouts=("mean", "last"))
    first = families if isinstance(families, (str, dict)) else families[0]
    assert (fitted.chosen.family, fitted.program.objective.readout) == (first, "mean")
    assert fitted.solution.certificate.relative_gap <= program.tol
    assert fitted.solution.problem.dictionary.n_rows == 60
    assert bool(fitted.solution.coef.any())  # a penalty that leaves nothing would be of no use
    labels = data.targets["label"]
    scores = fitted.solution.scores()[:, 0].numpy()
    assert np.mean((scores > (0.5 if loss == "squared" else 0)) == labels) > max(labels.mean(), 1 - labels.mean())


class Clock:
    """A clock that goes on by a second for so many spikes, as many products, and by a share of it for a solve."""

    def __init__(self, monkeypatch, neurons_times_rows, per_solve=0.2):
        self.now = 0.0
        roll, ridge, solve_last = engine._Engine._problem, judges.ridge_scores, engine.solve

        def roll_out(own, program, witnesses, data):
            self.now += witnesses.n_witnesses * len(data) / neurons_times_rows
            return roll(own, program, witnesses, data)

        def judge(problem, strengths):
            self.now += problem.dictionary.n_columns * problem.dictionary.n_rows / neurons_times_rows
            return ridge(problem, strengths)

        def finish(problem, *others, **options):
            self.now += per_solve * problem.dictionary.n_columns * problem.dictionary.n_rows / neurons_times_rows
            return solve_last(problem, *others, **options)

        monkeypatch.setattr(engine.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(engine._Engine, "_problem", roll_out)
        monkeypatch.setattr(judges, "ridge_scores", judge)
        monkeypatch.setattr(engine, "solve", finish)
        monkeypatch.setattr(judges, "solve", finish)


@pytest.mark.parametrize("n_samples", [60, 150])
@pytest.mark.parametrize("readouts", [("mean",), ("mean", "last")])
@pytest.mark.parametrize("max_seconds", [0, 5, 10, 30, 100, 1000])
def test_nothing_is_begun_that_would_end_too_late(monkeypatch, max_seconds, readouts, n_samples):
    set_sizes(monkeypatch, n_compared=20, rows_compared=50, n_neurons=(80, 160), clearly=-99.0)
    clock = Clock(monkeypatch, 20 * 50)
    data = training_set(n_samples)
    fitted = fit_mixed(data, readouts=readouts, max_seconds=max_seconds)
    least = 2 + 1.2 * 20 * n_samples / (20 * 50)  # the first trial, the spikes of all rows, and the final solve
    assert clock.now <= max(max_seconds, least + 1e-9)
    assert fitted.solution.certificate.relative_gap <= 1e-6
    assert fitted.solution.problem.dictionary.n_rows == n_samples
    assert fitted.chosen in fitted.trials
    verdict = fitted.chosen.verdict
    targets = torch.from_numpy(data.targets["label"])[verdict.rows]
    losses = 0.5 * (verdict.scores[:, 0] - targets).square()
    assert torch.allclose(losses, verdict.validation.loss[0])  # scores are those of the rows that are named
    assert ("neurons: no time was left" in fitted.reason) == (fitted.n_sampled < 160)
    assert fitted.n_sampled == {0: 20, 1000: 160}.get(max_seconds, fitted.n_sampled)


@pytest.mark.parametrize("n_samples", [60, 150])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("max_seconds", [0, 5, 40, 100, 300, 10_000])
def test_time_is_limited_by_the_solver_of_the_loss(monkeypatch, max_seconds, loss, n_samples):
    set_sizes(monkeypatch, n_compared=20, rows_compared=50, n_neurons=(80, 160), clearly=-99.0)
    clock = Clock(monkeypatch, 20 * 50, per_solve=4)
    fitted = fit_mixed(labelled(n_samples), program=Program(Objective(loss), n_strengths=6), max_seconds=max_seconds)
    least = 2 + 4 + 5 * 20 * n_samples / (20 * 50)  # the first trial, a solve of it, and spikes and solve of all rows
    assert clock.now <= max(max_seconds, least + 1e-9)
    assert fitted.solution.certificate.relative_gap <= 1e-6
    assert ("neurons: no time was left" in fitted.reason) == (fitted.n_sampled < 160)
    assert ("strength from the middle" in fitted.reason) == (fitted.chosen.verdict.validation is None)
    assert fitted.n_sampled == {0: 20, 10_000: 160}.get(max_seconds, fitted.n_sampled)
    if (max_seconds, n_samples) == (10_000, 60):  # else there may only be time for one part that is held out
        assert fitted.chosen.validation.method == "5 folds"


@pytest.mark.parametrize("penalty", ["l1", "elastic-net"])
def test_the_solve_that_was_timed_is_the_answer_if_nothing_else_was_chosen(monkeypatch, penalty):
    set_sizes(monkeypatch, n_compared=20, n_neurons=(40, 80))
    solves, solve_once = [], engine.solve
    monkeypatch.setattr(engine, "solve", lambda *given, **options: solves.append(0) or solve_once(*given, **options))
    program = Program(Objective("hinge"), penalty)
    fitted = fit(labelled(60), "all", program, budget=Budget(max_seconds=0), readouts=("mean", "last"))
    assert len(solves) == 1
    assert fitted.reason.endswith("strength from the middle of the grid: no time was left to judge others")
    again = solve_once(fitted.solution.problem, program.tol)
    gap = fitted.solution.certificate.gap + again.certificate.gap
    assert abs(fitted.solution.certificate.primal - again.certificate.primal) <= gap


def test_strengths_that_had_no_time_are_those_of_the_choice_that_is_fitted(monkeypatch):
    set_sizes(monkeypatch, n_compared=30, clearly=1e9)  # whatever else is tried, the default stays
    answers = iter([True, True, True])  # for the other read-out and mixtures, and for nothing after them
    monkeypatch.setattr(engine.Clock, "has_time", lambda *sizes, **options: next(answers, False))
    fitted = fit_mixed(training_set())
    assert len(fitted.trials) == 4
    assert fitted.chosen is fitted.trials[0]
    assert (fitted.chosen.family, fitted.chosen.readout) == ("all", fitted.program.objective.readout)


def test_many_rows_are_judged_by_a_fifth_that_is_held_out(monkeypatch):
    monkeypatch.setattr(choosing, "GRID", replace(choosing.GRID, max_left_out=50, few=50))
    set_sizes(monkeypatch, rows_compared=40)
    data = training_set(100)
    fitted = fit_mixed(data, 60)
    verdict = fitted.chosen.verdict
    assert fitted.chosen.n_rows == len(verdict.rows) == len(verdict.scores) == 20
    assert {trial.n_rows for trial in fitted.trials[:-1]} == {40}
    assert fitted.solution.problem.dictionary.n_rows == 100
    error = np.mean((verdict.scores[:, 0].numpy() - data.targets["label"][verdict.rows.numpy()]) ** 2)
    assert error < np.var(data.targets["label"])


@pytest.mark.parametrize("penalty", ["l1", "elastic-net"])
@pytest.mark.parametrize("judge", [HeldOut(), Folds(3), None])
def test_strengths_chosen_on_a_part_are_moved_to_all_rows(judge, penalty):
    program = Program(Objective("logistic", "mean"), penalty, n_strengths=6)
    fitted = fit(labelled(), FAMILY, program, judge)
    verdict, problem = fitted.chosen.verdict, fitted.solution.problem
    at = program.at(problem, verdict.point, verdict.share)
    assert verdict.share == pytest.approx(2 / 3 if isinstance(judge, Folds) else 0.8)
    assert (problem.l1_strength, problem.l2_strength) == pytest.approx((at.l1_strength, at.l2_strength), rel=ROUNDING)
    assert fitted.solution.certificate.relative_gap <= program.tol


@pytest.mark.parametrize("n_samples", [2, 3, 4])
def test_a_handful_of_samples_is_fitted_to_the_tolerance_asked_for(n_samples):
    data = training_set(n_samples)
    program = Program(Objective("squared", "mean"), tol=1e-9)
    assert fit(data, FAMILY, program).solution.certificate.relative_gap <= 1e-9


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_one_pair_of_strengths_is_solved_without_a_judge(monkeypatch, loss):
    monkeypatch.setattr(HeldOut, "walk", None)
    program = Program(Objective(loss, "mean"), "elastic-net", 0.01, 0.1)
    fitted = fit(labelled(), FAMILY, program)
    assert (fitted.solution.problem.l1_strength, fitted.solution.problem.l2_strength) == (0.01, 0.1)
    assert fitted.chosen.validation is None
    assert fitted.chosen.loss == np.inf


@pytest.mark.parametrize(("sparsity", "readout"), [(7, "mean"), (7, "windows-3"), ("few", "mean")])
def test_few_neurons_are_read_by_ridge_and_certified(sparsity, readout):
    data = labelled(80) if sparsity == "few" else training_set(80)
    fitted = fit_mixed(data, 100, "all", (readout,), sparsity=sparsity)
    dictionary, n_chosen = fitted.solution.problem.dictionary, fitted.chosen.n_neurons
    assert n_chosen == 7 if sparsity == 7 else n_chosen in (8, 16, 32, 64)
    assert dictionary.witnesses.n_witnesses == n_chosen
    assert dictionary.n_columns == n_chosen * (3 if readout == "windows-3" else 1)
    assert fitted.n_sampled == 100
    tried = [trial for trial in fitted.trials if trial.n_spikes is not None]
    assert [trial.n_neurons for trial in tried] == ([7] if sparsity == 7 else [8, 16, 32, 64])
    (own,) = [trial for trial in tried if trial is fitted.chosen]
    network = reconstruct(fitted.solution)
    assert own.n_bytes == summarise(network).n_bytes
    assert own.n_spikes == count_operations(network, data.sequences).total.n_spikes / 80  # fewer than are counted
    assert fitted.solution.certificate.relative_gap <= 1e-6
    assert fitted.solution.certificate.scope == "selected"
    assert 2 * fitted.chosen.loss < np.var(data.targets["label"])
    why = "as you asked" if sparsity == 7 else "the fewest within one standard error of the best"
    assert fitted.reason.endswith(f"; {n_chosen} neurons are read: {why}")


@pytest.mark.parametrize(
    ("loss", "penalty", "sparsity"),
    [("logistic", "l1", "few"), ("logistic", "elastic-net", 7), ("hinge", "group", "few"), ("hinge", "l1", 7)],
)
def test_few_neurons_are_read_by_other_losses(loss, penalty, sparsity):
    data = labelled(80)
    program = Program(Objective(loss, "mean"), penalty, n_strengths=4)
    fitted = fit_mixed(data, 100, "all", ("mean",), program, sparsity=sparsity)
    n_chosen = fitted.chosen.n_neurons
    assert n_chosen == 7 if sparsity == 7 else n_chosen in (8, 16, 32, 64)
    assert fitted.solution.problem.dictionary.witnesses.n_witnesses == n_chosen
    assert fitted.solution.problem.heads[0].loss.name == loss
    assert fitted.solution.certificate.relative_gap <= 1e-6
    assert float(fitted.chosen.validation.mean("accuracy")[0]) > 0.7


def test_few_neurons_have_the_strengths_that_are_given():
    program = Program(Objective("squared", "mean"), "elastic-net", 0.0, 0.03, intercept=True)
    fitted = fit_mixed(training_set(80), 100, "all", ("mean",), program, sparsity=7)
    assert (fitted.solution.problem.l1_strength, fitted.solution.problem.l2_strength) == (0.0, 0.03)


def test_all_neurons_are_read_where_there_are_no_more():
    fitted = fit_mixed(training_set(80), 20, "all", ("mean",), sparsity=500)
    assert fitted.chosen.n_neurons == fitted.n_sampled == 20
    assert fitted.reason.endswith("; all neurons are read: no more than 500 differ")


def test_a_comparison_by_squared_loss_is_not_the_answer_of_another_loss():
    program = Program.ridge(Objective("logistic", "mean"))
    fitted = fit_mixed(labelled(), 100, program=program)
    *compared, last = fitted.trials
    assert all((trial.n_rows, trial.n_neurons) == (60, 100) for trial in compared)  # all rows, all neurons
    assert fitted.chosen is last
    assert last.validation.method == "5 folds"  # judged by its own loss
    assert [head.loss.name for head in fitted.solution.problem.heads] == ["logistic"]
    assert fitted.solution.certificate.relative_gap <= program.tol


def test_few_of_many_rows_are_judged_by_a_fifth_that_is_held_out(monkeypatch):
    grid = replace(choosing.GRID, max_left_out=50, few=50)
    monkeypatch.setattr(choosing, "GRID", grid)
    monkeypatch.setattr("cvxsnn.fitting.few.GRID", grid)
    fitted = fit_mixed(training_set(80), 60, "all", ("mean",), sparsity=5)
    assert len(fitted.chosen.verdict.rows) == len(fitted.chosen.verdict.scores) == fitted.chosen.n_rows == 16
    assert fitted.chosen.n_neurons == 5


@pytest.mark.parametrize("program", [RIDGE, Program(Objective("squared", "mean"), n_strengths=4)])
def test_the_seed_decides_everything(program):
    first, again, other = (fit_mixed(training_set(), 50, program=program, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.solution.coef, again.solution.coef)
    assert first.reason == again.reason
    assert not torch.equal(first.solution.coef, other.solution.coef)


PROGRAMS = {
    "ridge": RIDGE,
    "l1": Program(Objective("squared", "mean"), n_strengths=4),
    "net": Program(Objective("squared", "mean"), "elastic-net", n_strengths=4),
    "fixed": Program(Objective("squared", "mean"), l1_strength=0.1),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize(("families", "sparsity"), [(MIXTURES, None), (FAMILY, None), ("all", 5)])
def test_progress_rises_to_a_hundred(families, sparsity, program):
    told = []
    fit_mixed(
        training_set(),
        50,
        families,
        program=program,
        sparsity=sparsity,
        callback=lambda done, total: told.append((done, total)),
    )
    done = [one for one, _ in told]
    assert {total for _, total in told} == {100}
    assert (done[0], done[-1]) == (0, 100)
    assert done == sorted(done)
    assert 100 not in done[:-1]


def test_decisions_on_many_rows_are_logged(monkeypatch, caplog):
    set_sizes(monkeypatch, n_compared=20, n_neurons=(20, 40))
    with caplog.at_level(logging.INFO, "cvxsnn"):
        fit_mixed(training_set(100))
    assert caplog.messages == []
    set_sizes(monkeypatch, rows_compared=30)
    with caplog.at_level(logging.INFO, "cvxsnn"):
        fit_mixed(training_set(300))
    assert caplog.messages == [
        "thresholds and weights are taken from 256 of 300 samples",
        "neurons are compared on 30 of 300 samples",
    ]


def test_all_strengths_of_a_trial_share_one_scale(monkeypatch):
    calls, mean = [], LEAVE_ONE_OUT._mean_eigenvalue
    monkeypatch.setattr(LEAVE_ONE_OUT, "_mean_eigenvalue", lambda problem: calls.append(0) or mean(problem))
    fitted = fit_mixed(training_set(), 100, "all", ("mean",))
    assert len(calls) == len(fitted.trials) == 1  # the final solve takes the scale of the trial


ADDITION = addition(2, 2, n_train=24, n_val=10, n_test=4, n_test_ood=4)
STEPS = Objective({"sum": "softmax", "carry": "logistic"}, "all").for_classes(ADDITION.n_classes)


@pytest.mark.parametrize("sparsity", [None, 6])
def test_several_heads_at_every_step_are_ranked_by_a_score(sparsity):
    score, program = TaskScore(ADDITION, ADDITION.val), Program(STEPS, l1_strength=[0.1, 0.03, 0.001])
    data = TrainingSet.of(ADDITION.train)
    fitted = fit(data, {"hidden": (30,)}, program, Scored(score), Budget(sparsity=sparsity))
    problem = fitted.solution.problem
    assert ([head.name for head in problem.heads], problem.dictionary.readout) == (["sum", "carry"], "all")
    assert fitted.solution.certificate.relative_gap <= program.tol
    assert problem.dictionary.witnesses.n_witnesses == (sparsity or 30)
    ranks = {
        strength: score(cs.reconstruct(cs.solve(problem.with_strength(strength, 0.0), program.tol)))
        for strength in program.l1_strength
    }
    assert len(set(ranks.values())) > 1
    assert problem.l1_strength == max(ranks, key=lambda strength: (ranks[strength], strength))
    assert fitted.chosen.verdict.rank == ranks[problem.l1_strength]


@pytest.mark.parametrize("judge", [None, HeldOut(3), Folds(3)])
def test_several_heads_at_every_step_are_judged_on_samples_left_out(judge):
    fitted = fit(
        TrainingSet.of(ADDITION.train), {"hidden": (30,)}, Program(STEPS, n_strengths=3, smallest_ratio=0.1), judge
    )
    n_steps = ADDITION.train.inputs.shape[1]
    steps = np.unique(fitted.chosen.verdict.rows.numpy() // n_steps, return_counts=True)[1]
    assert set(steps) == {n_steps}
    assert fitted.solution.certificate.relative_gap <= 1e-6


class Four(Judge):
    """A judge that nobody has foreseen: it counts the atoms of a solution, and wants four."""

    def walk(self, problem, program, points):
        """Yield a verdict for each point."""
        for point in points:
            solution = cs.solve(program.at(problem, point), 1e-2)
            yield Verdict(point, -abs(len(solution.support) - 4))


@pytest.mark.parametrize("families", [FAMILY, "all"])
def test_a_judge_of_ones_own_needs_a_walk_and_nothing_else(families):
    data, program = labelled(), Program(Objective("logistic", "mean"), n_strengths=10)
    fitted = fit(data, families, program, Four(), Budget(50))
    assert fitted.solution.certificate.relative_gap <= program.tol
    problem = fitted.solution.problem
    sizes = {norm: -abs(len(cs.solve(program.at(problem, (norm, 0.0)), 1e-2).support) - 4) for norm in program.norms()}
    assert fitted.chosen.verdict.rank == max(sizes.values())
    assert fitted.chosen.verdict.point == (max(norm for norm in sizes if sizes[norm] == max(sizes.values())), 0.0)


def test_a_fit_on_a_busy_machine_leaves_openmp_one_thread(monkeypatch):
    """Threads of OpenMP that have lost their core hold up all others."""
    seen = []

    class Watching(HeldOut):
        def walk(self, problem, program, points):
            seen.append(torch.get_num_threads())
            yield from super().walk(problem, program, points)

    before = torch.get_num_threads()
    task = cs.tasks.first_last_xor(3, n_train=40, n_val=8, n_test=8)
    program = Program(cs.convex.Objective("logistic"), n_strengths=2)
    try:
        torch.set_num_threads(2)
        for n_idle in (1, 2):
            monkeypatch.setattr("cvxsnn.fitting.engine.idle_cores", lambda n_idle=n_idle: n_idle)
            fit(cs.data.TrainingSet.of(task.train), {"hidden": (16,)}, program, Watching())
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 2]
