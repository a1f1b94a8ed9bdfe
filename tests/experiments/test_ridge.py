"""Certified ridge as a run of an experiment."""

import gc
import weakref

import numpy as np
import pytest
from small_models import assert_one_sentence

from cvxsnn.convex.linear import weighted_gram
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data.tasks import digits_seq
from cvxsnn.experiments import ridge
from cvxsnn.experiments.experiment import RunConfig, parse_experiment
from cvxsnn.experiments.files import check_configurations
from cvxsnn.experiments.metrics import format_number
from cvxsnn.experiments.run import execute, ridge_settings
from cvxsnn.experiments.summary import judge
from cvxsnn.neurons import count_spikes

FAMILY = {"hidden": [48], "geometry": "scattered", "fan_in": 9, "weights": "differences"}
PARTS = {
    "task": {"name": "digits_seq", "n_steps": 8},
    "family": {"join": [FAMILY, FAMILY | {"fan_in": "all", "quantiles": [0.5, 0.95]}]},
    "objective": {"readout": "windows-2"},
    "surrogate": {},
    "convex": {"l2_ratio": [100.0, 0.01]},
}


def config(seed=0, **parts):
    return RunConfig("ridge", seed, **{name: table | parts.get(name, {}) for name, table in PARTS.items()})


def run(**parts):
    own = config(**parts)
    families, settings = ridge_settings(own)
    return ridge.run_ridge(digits_seq(8), families, own.objective["readout"], settings, 0, "cpu")


def test_a_record_has_what_was_proven_and_what_the_network_costs():
    record = execute(config())
    assert record["status"] == "done"
    assert record["relative_gap"] <= 1e-6
    assert 0.8 < record["scores"]["test"] <= 1
    assert 0.8 < record["val"] <= 1
    assert record["l2_ratio"] == 0.01
    assert record["n_weights"] <= 10 * record["n_atoms"]
    assert 0 < record["firing_rate"] < 1
    assert record["n_neurons"] == pytest.approx(record["spikes"] / record["firing_rate"] / 8)


def test_leave_one_out_or_validation_data_choose_the_strength():
    by_rows, by_validation = run(), run(convex={"choose": "validation"})
    assert by_rows.ratio == by_validation.ratio == 0.01
    assert by_rows.solution.problem.dictionary.n_rows == len(digits_seq(8).train)
    assert np.isclose(by_rows.test, by_validation.test)
    assert by_validation.val != by_rows.val


@pytest.mark.parametrize("choose", ["leave-one-out", "validation"])
def test_a_refit_sees_the_validation_data_too(choose):
    task = digits_seq(8)
    found = run(convex={"choose": choose, "refit": True})
    assert found.solution.problem.dictionary.n_rows == len(task.train) + len(task.val)
    assert found.solution.certificate.relative_gap <= 1e-6


def test_the_weaker_strength_is_not_chosen_by_its_training_error():
    noisy = run(convex={"l2_ratio": [1e-1, 1e-12]})
    assert noisy.ratio == 1e-1


def test_the_squared_hinge_is_certified_and_its_strength_is_chosen_on_validation_data():
    found = run(convex={"loss": "squared_hinge", "choose": "validation", "l2_ratio": [100.0, 0.1]})
    assert found.solution.problem.heads[0].loss.name == "squared_hinge"
    assert found.solution.certificate.relative_gap <= 1e-6
    assert found.ratio == 0.1
    assert 0.8 < found.test <= 1


def test_neurons_that_fire_too_often_are_not_read():
    task = digits_seq(8)
    every, quiet = run(), run(convex={"max_rate": 0.2})
    rates = [count_spikes(own.network.layers, task.train.inputs[:512]).double().mean(0) / 8 for own in (every, quiet)]
    assert rates[0].max() > 0.9
    assert rates[1].max() <= 0.2
    assert 0 < len(rates[1]) < len(rates[0])


def test_files_with_unknown_keys_are_refused():
    data = {"title": "x", "cell": [{"row": "a", "column": "b"}], "defaults": {"methods": ["ridge"], **PARTS}}
    check_configurations(parse_experiment("x", data, "paper"), "x.toml")
    for part, change, message in (
        ("convex", {"strength": 1}, "keys that settings have in x.toml.*'strength'"),
        ("convex", {"choose": "best"}, "choose to be one of 'leave-one-out', 'validation', got 'best'"),
        ("convex", {"loss": "hinge"}, "loss to be one of 'squared', 'squared_hinge', got 'hinge'"),
        ("convex", {"loss": "squared_hinge"}, "choose='validation' for the loss 'squared_hinge', got 'leave-one-out'"),
        ("family", {"join": [FAMILY, {"hiden": [4]}]}, "expected keys among .* got 'hiden'"),
    ):
        changed = {**data, "defaults": {**data["defaults"], part: PARTS[part] | change}}
        with pytest.raises(InvalidInputError, match=message) as caught:
            check_configurations(parse_experiment("x", changed, "paper"), "x.toml")
        assert_one_sentence(caught.value)


def test_an_experiment_says_how_close_is_equal_and_in_how_many_digits():
    assert judge("test", [0.994, 0.995, 0.9945], 0.9928) == "matches"
    assert judge("test", [0.994, 0.995, 0.9945], 0.9928, 0.0) == "better"
    assert judge("test", [0.990, 0.996], 0.9928, 0.0) == "matches"
    assert format_number(0.99425, "test", 4) == "0.9942"
    data = {"title": "x", "cell": [], "digits": 4, "tolerance": 0.0, "compared_with": "a record"}
    experiment = parse_experiment("x", data, "paper")
    assert (experiment.digits, experiment.tolerance, experiment.compared_with) == (4, 0.0, "a record")


@pytest.mark.parametrize(
    "convex",
    [{}, {"refit": True}, {"choose": "validation"}, {"choose": "validation", "refit": True}],
    ids=["rows", "rows, refit", "validation", "validation, refit"],
)
def test_what_chose_the_strength_is_dropped_before_the_next_large_step(monkeypatch, convex):
    """No Gram matrix is kept while data are scored, and no two problems at once."""
    problems, alive_at_scoring = [], []
    make_problem, score = ridge._problem, ridge._accuracy

    def make(*arguments):
        assert not any(problem() for problem in problems)
        problem = make_problem(*arguments)
        problems.append(weakref.ref(problem))
        return problem

    def judge_network(network, data):
        alive = [problem() for problem in problems if problem() is not None]
        alive_at_scoring.append(any(problem.row_workspace.has(weighted_gram) for problem in alive))
        return score(network, data)

    monkeypatch.setattr(ridge, "_problem", make)
    monkeypatch.setattr(ridge, "_accuracy", judge_network)
    gc.disable()  # what only the collector would find is alive when the next matrix is allocated
    try:
        run(convex=convex)
    finally:
        gc.enable()
    assert problems
    assert not any(alive_at_scoring)


def test_nothing_of_a_run_outlives_its_record(monkeypatch):
    dictionaries, build = [], ridge.build_dictionary

    def remember(*arguments, **options):
        dictionary = build(*arguments, **options)
        dictionaries.append(weakref.ref(dictionary))
        return dictionary

    monkeypatch.setattr(ridge, "build_dictionary", remember)
    gc.disable()
    try:
        assert execute(config())["status"] == "done"
        assert [dictionary() for dictionary in dictionaries] == [None]
    finally:
        gc.enable()
