"""The read-out of a mixture, chosen by errors on rows left out."""

import logging
import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cvxsnn import solve
from cvxsnn.convex import ConvexProblem
from cvxsnn.convex.leave_one_out import ridge_scores
from cvxsnn.convex.objective import Objective
from cvxsnn.data import Sequences, TrainingSet
from cvxsnn.data.tasks import first_last_xor
from cvxsnn.training import mixture
from cvxsnn.training.mixture import Mixing, fit_mixture

LEAVE_ONE_OUT = sys.modules["cvxsnn.convex.leave_one_out"]  # which a function of the same name hides
RNG = np.random.default_rng(0)


def training_set(n_samples=60, n_steps=12, weight=None):
    inputs = np.random.default_rng(1).normal(size=(n_samples, n_steps, 2))
    targets = inputs[:, :, 0].mean(1) + 0.1 * np.random.default_rng(2).normal(size=n_samples)
    return TrainingSet(Sequences(inputs), {"label": targets}, weight)


def test_scores_left_out_are_those_of_fits_without_the_row():
    data = training_set(20)
    found = fit_mixture(data, Objective("squared"), Mixing(n_witnesses=40))
    problem, strength = found.solution.problem, found.solution.problem.l2_strength
    for row in (0, 7, 19):
        kept = torch.tensor([own for own in range(20) if own != row])
        share = 19 / 20  # the weights of the others are not raised when a row is left out
        without = ConvexProblem(
            problem.dictionary.take_rows(kept),
            data.targets["label"][kept.numpy()],
            "squared",
            0.0,
            l2_strength=strength / share,
            penalty="elastic-net",
            intercept=True,
        )
        fitted = solve(without, 1e-10)
        score = problem.dictionary.columns()[row] @ fitted.coef + fitted.intercept
        assert float(found.scores[row, 0]) == pytest.approx(float(score[0]), abs=1e-6)


def test_the_solution_is_certified_at_the_strength_with_the_least_error():
    data = training_set()
    found = fit_mixture(data, Objective("squared"), Mixing(n_witnesses=100, readouts=("mean",)))
    assert found.solution.certificate.relative_gap <= 1e-6
    scale = found.solution.problem.l2_strength / found.chosen.ratio
    losses = []
    for ratio in mixture.RATIOS:
        scores = ridge_scores(found.solution.problem, [ratio * scale])[0, :, 0].numpy()
        losses.append(0.5 * np.mean((scores - data.targets["label"]) ** 2))
    assert found.chosen.ratio == mixture.RATIOS[int(np.argmin(losses))]
    assert found.chosen.loss == pytest.approx(min(losses))


def test_what_matters_at_the_end_is_read_there():
    task = first_last_xor(14, encoding="one-hot", n_train=600, n_val=8, n_test=8)
    labels = 2.0 * task.train.targets - 1
    data = TrainingSet(Sequences(task.train.inputs), {"label": labels})
    found = fit_mixture(data, Objective("squared"), Mixing(n_witnesses=1000))
    assert (found.readout, found.chosen.mixture) == ("last", "scattered")
    assert float(found.chosen.validation.mean("accuracy")[0]) > 0.75


def test_the_default_stays_unless_another_choice_is_clearly_better():
    noise = TrainingSet(Sequences(RNG.normal(size=(50, 12, 2))), {"label": RNG.normal(size=50)})
    found = fit_mixture(noise, Objective("squared"), Mixing(n_witnesses=60))
    assert (found.readout, found.chosen.mixture) == ("mean", "all")
    assert len(found.trials) == 5  # two read-outs, three mixtures of which one was tried already, and the last fit


def test_neurons_are_added_while_the_error_falls(monkeypatch):
    monkeypatch.setattr(mixture, "SIZES", (20, 40, 80, 160))
    found = fit_mixture(training_set(200), Objective("squared"), Mixing(readouts=("mean",)))
    losses = {own.n_witnesses: own.loss for own in found.trials[3:]}
    assert len(losses) > 1
    worth = 0.005 * 0.5 * np.var(training_set(200).targets["label"])
    for smaller, larger in pairwise(sorted(losses)):
        assert (larger <= found.chosen.n_witnesses) == (losses[smaller] - losses[larger] >= worth)


def test_nothing_more_is_tried_when_time_is_over():
    found = fit_mixture(training_set(), Objective("squared"), Mixing(n_witnesses=50, max_seconds=0))
    assert len(found.trials) == 1
    assert found.chosen is found.trials[0]
    assert found.solution.certificate.relative_gap <= 1e-6


class Clock:
    """A clock that goes on by a second for so many spikes, as many products, and for a final solve."""

    def __init__(self, monkeypatch, neurons_times_rows):
        self.now = 0.0
        roll, ridge, solve_last = mixture._MixtureSearch._ridge, mixture.ridge_scores, mixture.solve

        def roll_out(search, data, witnesses, readout):
            self.now += witnesses.n_witnesses * len(data) / neurons_times_rows
            return roll(search, data, witnesses, readout)

        def judge(problem, strengths):
            self.now += problem.dictionary.n_columns * problem.dictionary.n_rows / neurons_times_rows
            return ridge(problem, strengths)

        def finish(problem, *others):
            self.now += 0.2 * problem.dictionary.n_columns * problem.dictionary.n_rows / neurons_times_rows
            return solve_last(problem, *others)

        monkeypatch.setattr(mixture, "time", SimpleNamespace(perf_counter=lambda: self.now))
        monkeypatch.setattr(mixture._MixtureSearch, "_ridge", roll_out)
        monkeypatch.setattr(mixture, "ridge_scores", judge)
        monkeypatch.setattr(mixture, "solve", finish)


@pytest.mark.parametrize("n_samples", [60, 150])
@pytest.mark.parametrize("readouts", [("mean",), ("mean", "last")])
@pytest.mark.parametrize("max_seconds", [0, 5, 10, 30, 60, 100, 300])
def test_nothing_is_begun_that_would_end_too_late(monkeypatch, max_seconds, readouts, n_samples):
    for name, value in {"SIZES": (80, 160), "N_COMPARED": 20, "ROWS_COMPARED": 50, "ROWS_GROWN": 100}.items():
        monkeypatch.setattr(mixture, name, value)
    monkeypatch.setattr(mixture, "_WORTH", -9.0)
    clock = Clock(monkeypatch, 20 * 50)
    data = training_set(n_samples)
    found = fit_mixture(data, Objective("squared"), Mixing(readouts=readouts, max_seconds=max_seconds))
    least = 2 + 1.2 * 20 * n_samples / (20 * 50)  # the first trial, the spikes of all rows, and the final solve
    assert clock.now <= max(max_seconds, least + 1e-9)
    assert found.solution.certificate.relative_gap <= 1e-6
    assert found.solution.problem.dictionary.n_rows == n_samples
    assert found.chosen in found.trials
    targets = torch.from_numpy(data.targets["label"])[found.rows]
    losses = 0.5 * (found.scores[:, 0] - targets).square()
    assert torch.allclose(losses, found.chosen.validation.loss[0])  # scores are those of the rows that are named
    assert ("neurons: no time was left" in found.reason) == (found.n_sampled < 160)
    assert found.n_sampled == {0: 20, 300: 160}.get(max_seconds, found.n_sampled)


def test_held_out_rows_are_not_tried_with_more_strengths_when_time_is_over(monkeypatch):
    solved = []
    monkeypatch.setattr(mixture, "_MAX_ROWS", 50)
    monkeypatch.setattr(mixture, "solve", lambda problem, tol: solved.append(0) or solve(problem, tol))
    found = fit_mixture(training_set(100), Objective("squared"), Mixing(n_witnesses=200, max_seconds=0))
    assert len(solved) == 2  # at one strength, and at the end
    assert len(found.trials) == 1
    assert found.solution.certificate.relative_gap <= 1e-6


def test_many_rows_are_judged_by_a_fifth_that_is_held_out(monkeypatch):
    monkeypatch.setattr(mixture, "_MAX_ROWS", 50)
    monkeypatch.setattr(mixture, "ROWS_COMPARED", 40)
    monkeypatch.setattr(mixture, "ROWS_GROWN", 40)
    data = training_set(100)
    found = fit_mixture(data, Objective("squared"), Mixing(n_witnesses=60))
    assert found.chosen.n_rows == len(found.rows) == len(found.scores) == 20
    assert {own.n_rows for own in found.trials[:-1]} == {40}
    assert found.solution.problem.dictionary.n_rows == 100
    error = np.mean((found.scores[:, 0].numpy() - data.targets["label"][found.rows.numpy()]) ** 2)
    assert error < np.var(data.targets["label"])


def test_the_seed_decides_everything():
    first, again, other = (
        fit_mixture(training_set(), Objective("squared"), Mixing(n_witnesses=50), seed=seed) for seed in (0, 0, 1)
    )
    assert torch.equal(first.solution.coef, again.solution.coef)
    assert not torch.equal(first.solution.coef, other.solution.coef)


def test_progress_ends_at_its_total():
    calls = []
    fit_mixture(
        training_set(),
        Objective("squared"),
        Mixing(n_witnesses=50),
        callback=lambda done, total: calls.append((done, total)),
    )
    assert calls[-1][0] == calls[-1][1]
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_work_on_few_rows_counts_less_than_work_on_all(monkeypatch):
    for name in ("ROWS_COMPARED", "ROWS_GROWN"):
        monkeypatch.setattr(mixture, name, 20)
    calls = []
    fit_mixture(
        training_set(100),
        Objective("squared"),
        Mixing(n_witnesses=50),
        callback=lambda done, total: calls.append((done, total)),
    )
    # Four trials with 20 rows, one with 100, and the solution with 100, each with 50 neurons.
    assert calls == [(100 * rows // 280, 100) for rows in (0, 20, 40, 60, 80, 180, 280)]


def test_work_that_is_not_necessary_is_taken_out_of_the_plan(monkeypatch):
    monkeypatch.setattr(mixture, "SIZES", (20, 40, 400))
    monkeypatch.setattr(mixture, "ROWS_GROWN", 25)
    monkeypatch.setattr(mixture, "_WORTH", 0.99)
    calls = []
    found = fit_mixture(
        training_set(50), Objective("squared"), Mixing(readouts=("mean",)), callback=lambda done, _: calls.append(done)
    )
    assert found.chosen.n_witnesses == 20
    done = 3 * 20 * 50 + (20 + 40) * 25
    # Only 20 neurons are left for the trial with all rows and for the solution.
    assert calls[-2:] == [100 * (done + 20 * 50) // (done + 2 * 20 * 50), 100]


def reasons(data, **mixing):
    return fit_mixture(data, Objective("squared"), Mixing(**mixing)).reason


def test_the_reasons_are_those_of_the_choices(monkeypatch):
    data = training_set(100)
    short = training_set(30, n_steps=3)
    default = "mixture 'all' and read-out 'mean': the default, and nothing else that was tried was clearly better"
    assert reasons(short, n_witnesses=30, readouts=("mean",)) == (
        "mixture 'all' and read-out 'mean': no choice was left open; 30 neurons: as given"
    )
    monkeypatch.setattr(mixture, "SIZES", (20, 40, 80))
    monkeypatch.setattr(mixture, "_WORTH", -9.0)
    assert reasons(data, readouts=("mean",)).endswith("; 80 neurons: the largest number that is tried")
    monkeypatch.setattr(mixture, "_WORTH", 0.99)
    assert reasons(data, readouts=("mean",)).endswith("; 20 neurons: 40 do not lower the error noticeably")
    late = reasons(data, max_seconds=0)
    assert late == f"{default}, and no time was left to try more; 20 neurons: no time was left to try more"
    monkeypatch.setattr(mixture, "_MAX_ROWS", 50)
    monkeypatch.setattr(mixture, "_MOST_BEYOND", 20)
    assert reasons(data, readouts=("mean",)).endswith("; 20 neurons: for more than 50 samples")
    found = fit_mixture(training_set(), Objective("squared"), Mixing(n_witnesses=50))
    is_default = (found.chosen.mixture, found.readout) == ("all", "mean")
    assert ("clearly better than the default" in found.reason) != is_default


def test_decisions_on_many_rows_are_logged(monkeypatch, caplog):
    monkeypatch.setattr(mixture, "SIZES", (20, 40))
    with caplog.at_level(logging.INFO, "cvxsnn"):
        fit_mixture(training_set(100), Objective("squared"))
    assert caplog.messages == []
    monkeypatch.setattr(mixture, "_MAX_ROWS", 250)
    monkeypatch.setattr(mixture, "ROWS_COMPARED", 30)
    monkeypatch.setattr(mixture, "ROWS_GROWN", 40)
    with caplog.at_level(logging.INFO, "cvxsnn"):
        fit_mixture(training_set(300), Objective("squared"))
    assert caplog.messages == [
        "thresholds and weights are taken from 256 of 300 samples",
        "mixtures and read-outs are compared on 30 of 300 samples",
        "numbers of neurons are compared on 40 of 300 samples",
        "strengths are compared on 60 of 300 samples, held out all at once",
    ]


def test_all_strengths_of_a_trial_share_one_scale(monkeypatch):
    passes, centred_rows = [], LEAVE_ONE_OUT._centred_rows
    monkeypatch.setattr(LEAVE_ONE_OUT, "_centred_rows", lambda problem: passes.append(0) or centred_rows(problem))
    found = fit_mixture(training_set(), Objective("squared"), Mixing(n_witnesses=100, readouts=("mean",)))
    assert len(passes) == len(found.trials)  # the final solve takes the scale of the last trial
