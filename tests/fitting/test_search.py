"""Choosing the family of witnesses on validation data."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from tolerances import ROUNDING

import cvxsnn as cs
from cvxsnn import InvalidInputError
from cvxsnn.convex import Objective
from cvxsnn.core.seeds import child_seed
from cvxsnn.data import TrainingSet
from cvxsnn.fitting import search
from cvxsnn.fitting.choosing import choose, judge_for
from cvxsnn.fitting.program import Program, ridge_of, with_heads_of
from cvxsnn.fitting.search import EVOLUTION, Tuning, tune_witnesses
from cvxsnn.network.evaluation import accuracy

XOR = cs.tasks.first_last_xor(6, n_train=200, n_val=200, n_test=400)
DATA = TrainingSet.of(XOR.train)
LOGISTIC = Objective("logistic")
QUICK = Tuning(n_witnesses=64, n_trials=20)
PAPER = {"decay": 0.9, "threshold": 1.0, "bias": 0.0}


def on_validation(network):
    return accuracy(network, XOR, XOR.val)


def tune(settings=QUICK, seed=0, score=on_validation, objective=LOGISTIC, data=DATA, **options):
    return tune_witnesses(data, objective, score, settings, seed=seed, **options)


@cache
def tuned():
    """One search, with the networks that it scored and what it reported."""
    networks, told = [], []

    def score(network):
        networks.append(network)
        return on_validation(network)

    return tune(score=score, callback=lambda *progress: told.append(progress)), networks, told


def outcome(found):
    return [(trial.family, trial.readout, trial.round, trial.score, trial.error) for trial in found.trials]


def read_out(family, data, objective, seed=0):
    """A network of that family, read out by ridge regression."""
    return ridge_of_witnesses(cs.gaussian_witnesses(data.inputs.shape[2], seed=seed, **family), data, objective)[0]


def ridge_of_witnesses(witnesses, data, objective):
    """The network of ridge regression over some witnesses, and its error on rows left out."""
    dictionary = cs.build_dictionary(witnesses, data.sequences, objective.readout)
    problem, ridge = Program(objective, intercept=True).problem(dictionary, data), Program.ridge(objective)
    squared = ridge_of(problem)
    verdict = choose(squared, ridge, judge_for(squared, ridge))
    network = cs.reconstruct(cs.solve(ridge.at(squared, verdict.point), ridge.tol))
    return with_heads_of(problem, network), -verdict.rank


def test_it_finds_a_family_that_adds_where_the_papers_does_not():
    task = cs.tasks.addition(3, 4, n_train=200, n_val=60, n_test=100, n_test_ood=4)
    objective = Objective({"sum": "softmax", "carry": "logistic"}, "all").for_classes(task.n_classes)
    data = TrainingSet.of(task.train)
    found = tune(
        Tuning(n_witnesses=256, n_trials=60),
        score=lambda network: accuracy(network, task, task.val),
        objective=objective,
        data=data,
    )
    usual = {**PAPER, "hidden": found.family["hidden"]}
    best, paper = (accuracy(read_out(family, data, objective), task, task.test) for family in (found.family, usual))
    assert paper < 0.8
    assert best > 0.95


def test_a_search_of_one_seed_is_always_the_same():
    again = tune()
    assert outcome(again) == outcome(tuned()[0])
    assert (again.family, again.readout) == (tuned()[0].family, tuned()[0].readout)
    few = Tuning(n_witnesses=32, n_trials=2)
    assert outcome(tune(few, seed=1)) != outcome(tune(few))


def test_scores_are_those_of_the_networks_tried():
    found, networks, _ = tuned()
    for trial, network in zip(found.trials, networks, strict=True):
        assert trial.score == on_validation(network)
        assert trial.readout == network.readout


def test_errors_and_read_outs_are_those_of_ridge_regression_on_the_training_data():
    found, networks, _ = tuned()
    for trial, network in zip(found.trials, networks, strict=True):
        witnesses = cs.gaussian_witnesses(2, seed=child_seed(0, "tuning", trial.round), **trial.family)
        expected, error = ridge_of_witnesses(witnesses, DATA, LOGISTIC)
        assert trial.error == pytest.approx(error, rel=ROUNDING)
        outputs, other = (own(XOR.val.inputs).detach() for own in (network, expected))
        torch.testing.assert_close(outputs, other, rtol=ROUNDING, atol=ROUNDING)
        assert [head.loss for head in network.heads] == ["logistic"]


def test_without_a_score_the_errors_on_rows_left_out_rank_the_families():
    found = tune(Tuning(n_witnesses=32, n_trials=8), score=None)
    assert all(trial.score == -trial.error for trial in found.trials)
    finalists = [trial for trial in found.trials if trial.round == "finish"]
    best = min(finalists, key=lambda trial: trial.error)
    assert (found.family, found.score) == (best.family, -best.error)


def test_the_best_finalist_is_chosen_and_has_the_size_asked_for():
    found, _, _ = tuned()
    finalists = [trial for trial in found.trials if trial.round == "finish"]
    best = max(finalists, key=lambda trial: (trial.score, -trial.error))
    assert (found.family, found.readout) == (best.family, best.readout)
    assert found.family["hidden"][-1] == 64
    assert len(finalists) == EVOLUTION.finalists


def test_those_that_did_best_are_varied_and_finished():
    found, _, _ = tuned()
    rounds = [trial.round for trial in found.trials]
    assert rounds == sorted(rounds, key=["draw", "vary", "finish"].index)

    def dynamics(trial):
        return {name: value for name, value in trial.family.items() if name != "hidden"}

    drawn = [trial for trial in found.trials if trial.round == "draw"]
    promoted = [dynamics(trial) for trial in found.trials if trial.round == "vary"][: EVOLUTION.parents]
    assert promoted == [dynamics(trial) for trial in sorted(drawn, key=lambda t: t.rank, reverse=True)][: len(promoted)]
    varied = {repr(dynamics(t)): t.rank for t in found.trials if t.round == "vary"}
    finished = [repr(dynamics(trial)) for trial in found.trials if trial.round == "finish"]
    assert finished == sorted(varied, key=varied.__getitem__, reverse=True)[: EVOLUTION.finalists]


@pytest.mark.parametrize("n_trials", [1, 2, 30])
def test_about_as_many_families_are_tried_as_asked_for(n_trials):
    found = tune(Tuning(n_witnesses=32, n_trials=n_trials))
    number = {name: sum(trial.round == name for trial in found.trials) for name in ("draw", "vary", "finish")}
    assert number["draw"] == max(1, n_trials // 2)
    # Parents are tried again at the next size, and variations that were tried before are not.
    assert number["vary"] <= min(EVOLUTION.parents, number["draw"]) + n_trials - number["draw"]
    assert 1 <= number["finish"] <= EVOLUTION.finalists
    if n_trials == 30:
        assert number["vary"] > EVOLUTION.parents


def test_callbacks_rise_to_the_total():
    found, _, told = tuned()
    done = [one for one, _ in told]
    assert len({total for _, total in told}) == 1
    assert done[:-1] == list(range(1, len(found.trials) + 1))
    assert done[-2] <= done[-1] == told[-1][1]


def test_no_fit_begins_when_time_is_up():
    told = []
    found = tune(
        Tuning(n_witnesses=64, n_trials=20, max_seconds=1e-9), callback=lambda *progress: told.append(progress)
    )
    assert len(found.trials) == 1
    assert told[-1][0] == told[-1][1]
    # What was tried small is handed back in the size asked for.
    small = found.trials[0].family
    assert found.family["hidden"][-1] == 64
    assert {**found.family, "hidden": small["hidden"]} == small


def test_time_that_is_up_in_between_leaves_the_best_so_far(monkeypatch):
    clock = iter(np.arange(0.0, 1e6))
    monkeypatch.setattr(search.time, "monotonic", lambda: float(next(clock)))
    found = tune(Tuning(n_witnesses=32, n_trials=20, max_seconds=20.0))
    assert {trial.round for trial in found.trials} == {"draw"}
    best = max(found.trials, key=lambda trial: trial.rank)
    assert {**found.family, "hidden": best.family["hidden"]} == best.family


@pytest.mark.parametrize("n_layers", [1, 2, 4])
def test_families_have_the_layers_asked_for(n_layers):
    found = tune(Tuning(n_witnesses=64, n_layers=n_layers, n_trials=4))
    assert {len(trial.family["hidden"]) for trial in found.trials} == {n_layers}
    assert len(found.family["hidden"]) == n_layers
    assert all(len(found.family[name]) == n_layers for name in ("decay", "threshold", "bias", "gain", "fan_in"))


def test_one_or_two_layers_are_tried_where_none_are_asked_for():
    assert {len(trial.family["hidden"]) for trial in tuned()[0].trials} == {1, 2}


def test_readouts_are_those_asked_for_or_the_objectives_own():
    both = tune(Tuning(n_witnesses=32, n_trials=12, readouts=("last", "mean")))
    assert {trial.readout for trial in both.trials} == {"last", "mean"}
    mean = Objective("logistic", "mean")
    assert {trial.readout for trial in tune(Tuning(n_witnesses=32, n_trials=2), objective=mean).trials} == {"mean"}
    assert {trial.readout for trial in tuned()[0].trials} == {"last"}


def test_small_trials_take_few_sequences_and_neurons_and_finalists_all():
    found = tune(Tuning(n_witnesses=640, n_layers=2, n_trials=2, min_rows=40))
    sizes = {trial.round: (trial.n_rows, trial.family["hidden"]) for trial in found.trials}
    assert sizes == {"draw": (40, (32, 40)), "vary": (50, (40, 160)), "finish": (200, (160, 640))}


def test_the_tuner_takes_what_scores_best_whatever_that_is():
    # The score prefers the smallest decay of the first layer, whatever it does for the task.
    found = tune(Tuning(n_witnesses=32, n_trials=40), score=lambda network: -float(network.layers[0].decay.mean()))
    assert max(trial.score for trial in found.trials) == 0.0
    assert found.family["decay"][0] == cs.witnesses.Constant(0.0)


def test_trials_have_the_shares_of_the_neurons_that_are_asked_for():
    found = tune(Tuning(n_witnesses=640, n_layers=1, n_trials=8, shares=(5, 2, 1)))
    widths = {(trial.round, trial.family["hidden"]) for trial in found.trials}
    assert widths == {("draw", (128,)), ("vary", (320,)), ("finish", (640,))}


@pytest.mark.parametrize(
    ("n_compared", "sizes"),
    [
        (None, {("draw", 1, (64,)), ("vary", 2, (128,)), ("finish", 4, (128,))}),
        (300, {("draw", 1, (32,)), ("vary", 1, (128,)), ("finish", 2, (128,))}),
        (100, {("draw", 1, (32,)), ("vary", 1, (42,)), ("finish", 1, (85,))}),
    ],
)
def test_whole_subnetworks_are_left_out_first(n_compared, sizes):
    tuning = Tuning(n_witnesses=128, n_layers=1, n_subnetworks=4, n_trials=8, n_compared=n_compared, shares=(8, 2, 1))
    found = tune(tuning)
    assert {(trial.round, trial.family["n_subnetworks"], trial.family["hidden"]) for trial in found.trials} == sizes
    assert (found.family["n_subnetworks"], found.family["hidden"]) == (4, (128,))
    assert {trial.n_rows for trial in found.trials} == {len(DATA)}


def test_witnesses_are_parted_among_subnetworks_where_these_have_lower_layers():
    for n_layers, n_subnetworks, hidden in ((1, 1, (256,)), (2, 4, (32, 64))):
        found = tune(Tuning(n_witnesses=256, n_layers=n_layers, n_subnetworks="auto", n_trials=2))
        assert (found.family["n_subnetworks"], found.family["hidden"]) == (n_subnetworks, hidden)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_subnetworks": 0}, "n_subnetworks to be a positive integer, got 0"),
        ({"n_subnetworks": "auto", "hidden": (4,)}, "number of subnetworks for the widths in hidden, got 'auto'"),
        ({"n_compared": 0}, "n_compared to be a positive integer, got 0"),
        ({"n_witnesses": 0}, "n_witnesses to be a positive integer, got 0"),
        ({"n_trials": 0}, "n_trials to be a positive integer, got 0"),
        ({"min_rows": 0}, "min_rows to be a positive integer, got 0"),
        ({"n_layers": 0}, "n_layers to be a positive integer, got 0"),
        ({"max_seconds": 0.0}, "max_seconds above zero, got 0.0"),
        ({"max_seconds": math.nan}, "max_seconds above zero, got nan"),
        ({"shares": (4, 1)}, r"expected three shares, .*, got \(4, 1\)"),
        ({"shares": (4, 0, 1)}, "shares to be a positive integer, got 0"),
    ],
)
def test_searches_that_mean_nothing_are_refused_in_one_sentence(options, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        Tuning(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("hidden", [(24,), (40, 12)])
def test_widths_and_subnetworks_that_are_named_are_those_of_the_family(hidden):
    found = tune(Tuning(hidden=hidden, n_subnetworks=3, n_trials=4))
    assert (found.family["hidden"], found.family["n_subnetworks"]) == (hidden, 3)
    for trial in found.trials:
        assert len(trial.family["hidden"]) == len(hidden)
        assert all(own <= asked for own, asked in zip(trial.family["hidden"], hidden, strict=True))


def test_the_score_is_that_of_the_family_chosen():
    found, _, _ = tuned()
    finalists = [trial for trial in found.trials if trial.round == "finish"]
    assert found.score == max(trial.score for trial in finalists)


def test_a_score_may_be_a_pair_whose_second_entry_breaks_ties():
    found = tune(Tuning(n_witnesses=32, n_trials=40), score=lambda n: (0.0, -float(n.layers[0].decay.mean())))
    assert max(trial.score for trial in found.trials) == (0.0, 0.0)
    assert found.family["decay"][0] == cs.witnesses.Constant(0.0)


LONG_XOR = cs.tasks.first_last_xor(10, n_train=60, n_val=40, n_test=10)


def tune_long(task=LONG_XOR, **options):
    settings = Tuning(**{"n_witnesses": 32, "n_trials": 16, **options})
    return tune_witnesses(TrainingSet.of(task.train), LOGISTIC, lambda own: accuracy(own, task, task.val), settings)


def test_long_sequences_try_families_with_and_without_delays():
    found = tune_long()
    kinds = ["geometry" in trial.family for trial in found.trials if trial.round == "draw"]
    assert 0 < sum(kinds) < len(kinds)
    assert outcome(found) == outcome(tune_long())
    witnesses = cs.witnesses.sample_witnesses(found.family, LONG_XOR.train.inputs)
    assert witnesses.hidden[-1] == 32


def test_short_or_constant_sequences_try_none_with_delays():
    assert not any("geometry" in trial.family for trial in tuned()[0].trials)
    data = TrainingSet(np.ones((40, 12, 2)), {"label": np.arange(40.0) % 2})
    found = tune_witnesses(data, LOGISTIC, lambda own: 0.0, Tuning(n_witnesses=32, n_trials=16))
    assert not any("geometry" in trial.family for trial in found.trials)
