import json
import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvxsnn.experiments.experiment import Experiment, parse_experiment
from cvxsnn.experiments.metrics import read_metric
from cvxsnn.experiments.summary import CellSummary, judge, summarise_experiment

METHODS = ("cvx", "sg", "sg-cvx")

SCORES = st.floats(0, 1)


def experiment(seeds=(0, 1, 2), methods=METHODS, metric="test", paper=0.9) -> Experiment:
    cell = {"row": "r", "column": "c", "metric": metric, "seeds": list(seeds), "methods": list(methods)}
    if paper is not None:
        cell["paper"] = paper
    return parse_experiment("small", {"title": "Small", "cell": [cell], "defaults": {"task": {"name": "t"}}}, "paper")


def record(val, test, **facts):
    return {"status": "done", "val": val, "scores": {"test": test}, **facts}


def records_of(one: Experiment, values):
    """Records by id; ``values[seed][method]`` is a record, or None for a run that is missing."""
    found = {}
    for config in one.runs().values():
        kept = values[config.seed][config.method]
        if kept is not None:
            found[config.id] = kept
    return found


def single_cell(one: Experiment, values) -> CellSummary:
    (cell,) = summarise_experiment(one, records_of(one, values)).cells
    return cell


def by_method(make):
    return st.fixed_dictionaries({seed: st.fixed_dictionaries(dict.fromkeys(METHODS, make)) for seed in (0, 1, 2)})


@given(by_method(st.tuples(SCORES, SCORES)), by_method(SCORES))
def test_choice_depends_on_validation_scores_alone(scores, other_tests):
    one = experiment()
    first = single_cell(one, {s: {m: record(*pair) for m, pair in row.items()} for s, row in scores.items()})
    changed = {s: {m: record(pair[0], other_tests[s][m]) for m, pair in row.items()} for s, row in scores.items()}
    second = single_cell(one, changed)
    assert [(run.seed, run.method) for run in first.chosen] == [(run.seed, run.method) for run in second.chosen]
    assert first.methods == second.methods
    for run in second.chosen:
        assert run.val == max(val for val, _ in scores[run.seed].values())
        assert run.value == other_tests[run.seed][run.method]


@given(by_method(st.tuples(SCORES, SCORES)))
def test_mean_and_spread_are_those_of_the_chosen_runs(scores):
    cell = single_cell(experiment(), {s: {m: record(*pair) for m, pair in row.items()} for s, row in scores.items()})
    values = [run.value for run in cell.chosen]
    assert len(values) == cell.n_seeds == cell.n_expected_seeds == 3
    assert cell.mean == statistics.fmean(values)
    assert cell.spread == statistics.stdev(values)
    assert cell.difference == cell.mean - 0.9
    assert cell.verdict == judge("test", values, 0.9)
    assert cell.reason == ""


def test_of_equal_validation_scores_the_first_method_is_chosen():
    values = {seed: {"cvx": record(0.5, 0.1), "sg": record(0.7, 0.2), "sg-cvx": record(0.7, 0.9)} for seed in range(3)}
    cell = single_cell(experiment(), values)
    assert cell.methods == ("sg",)
    assert cell.mean == pytest.approx(0.2)


def test_chosen_methods_are_listed_most_frequent_first():
    values = {seed: {"cvx": record(0.5, 0.9), "sg": record(seed / 2, 0.9)} for seed in range(3)}
    values[1]["cvx"] = record(0.4, 0.9)
    assert single_cell(experiment(methods=("cvx", "sg")), values).methods == ("sg", "cvx")


def test_one_seed_has_a_mean_and_no_spread():
    cell = single_cell(experiment(seeds=[4], methods=["cvx"]), {4: {"cvx": record(0.9, 0.91)}})
    assert (cell.mean, cell.spread, cell.verdict) == (0.91, None, "matches")


def test_missing_run_is_named_and_forbids_a_verdict():
    values = {seed: {"cvx": record(0.5, 0.9), "sg": record(0.4, 0.1)} for seed in range(3)}
    values[1]["sg"] = None
    cell = single_cell(experiment(methods=("cvx", "sg")), values)
    assert [(run.seed, run.method, run.status) for run in cell.missing] == [(1, "sg", "missing")]
    assert (cell.verdict, cell.reason) == ("cannot tell", "1 of 6 runs missing")
    assert (cell.n_seeds, cell.n_runs, cell.n_expected_runs) == (3, 5, 6)
    assert cell.mean == pytest.approx(0.9)


def test_failed_run_keeps_its_error_and_forbids_a_verdict():
    values = {seed: {"cvx": record(0.5, 0.9)} for seed in range(2)}
    values[1]["cvx"] = {"status": "failed", "error": "InvalidInputError: expected files, got none"}
    cell = single_cell(experiment(seeds=[0, 1], methods=["cvx"]), values)
    (failure,) = cell.failed
    assert (failure.seed, failure.method, failure.status) == (1, "cvx", "failed")
    assert failure.sentence == "InvalidInputError: expected files, got none"
    assert (cell.verdict, cell.reason, cell.n_seeds) == ("cannot tell", "1 of 2 runs failed", 1)


def test_without_any_record_nothing_is_told():
    one = experiment()
    (cell,) = summarise_experiment(one, {}).cells
    assert (cell.mean, cell.spread, cell.difference, cell.methods) == (None, None, None, ())
    assert (cell.verdict, cell.n_seeds, len(cell.missing)) == ("cannot tell", 0, 9)


@pytest.mark.parametrize("paper", [None, math.nan])
def test_without_a_number_in_the_paper_there_is_a_mean_and_no_verdict(paper):
    cell = single_cell(experiment(seeds=[0], methods=["cvx"], paper=paper), {0: {"cvx": record(0.9, 0.91)}})
    assert (cell.mean, cell.paper, cell.difference) == (0.91, None, None)
    assert (cell.verdict, cell.reason) == ("cannot tell", "no number in the paper")


@pytest.mark.parametrize(
    "bad",
    [
        {"status": "done", "val": math.nan, "scores": {"test": 0.9}},
        {"status": "done", "val": None, "scores": {"test": 0.9}},
        {"status": "done", "scores": {"test": 0.9}},
        {"status": "done", "val": 0.9, "scores": {"test": math.inf}},
        {"status": "done", "val": 0.9, "scores": {}},
        {"status": "done", "val": 0.9, "scores": ["test"]},
        {"status": "done", "val": 0.9},
        {"status": "half", "val": 0.9, "scores": {"test": 0.9}},
        {"status": "failed"},
        {},
    ],
)
def test_record_without_usable_numbers_counts_as_failed(bad):
    cell = single_cell(experiment(seeds=[0], methods=["cvx"]), {0: {"cvx": bad}})
    assert len(cell.failed) == 1
    assert cell.failed[0].sentence
    assert (cell.mean, cell.verdict, cell.n_runs) == (None, "cannot tell", 0)


def test_metric_comes_from_scores_first_and_from_other_facts_second():
    facts = {"scores": {"gap": 1.0}, "gap": 2.0, "primal": 3}
    assert read_metric(facts, "gap") == 1.0
    assert read_metric(facts, "primal") == 3.0
    assert read_metric(facts, "dual") is None


def test_gap_of_a_chosen_run_without_certificate_is_a_failure():
    values = {0: {"cvx": record(0.5, 0.9, gap=1e-9), "sg": record(0.6, 0.9)}}
    cell = single_cell(experiment(seeds=[0], methods=("cvx", "sg"), metric="gap", paper=1e-8), values)
    assert (cell.verdict, cell.mean) == ("cannot tell", None)
    assert "'gap'" in cell.failed[0].sentence


@pytest.mark.parametrize(
    ("metric", "values", "paper", "verdict"),
    [
        ("test", [0.92], 0.90, "matches"),
        ("test", [0.88], 0.90, "matches"),
        ("10x", [0.921], 0.90, "better"),
        ("10x", [0.879], 0.90, "worse"),
        ("test", [0.80, 0.90, 1.00], 0.80, "matches"),  # two standard errors are 0.115
        ("test", [0.89, 0.90, 0.91], 0.80, "better"),
        ("test", [0.80, 0.81, 0.79], 0.90, "worse"),
        ("gap", [1e-6], 1e-9, "matches"),
        ("gap", [0.0], 0.0, "matches"),
        ("gap", [1e-7], 1e-3, "better"),
        ("relative_gap", [1e-4], 1e-3, "better"),
        ("relative_gap", [1e-4], 1e-7, "worse"),
        ("relative_gap", [1e-9, 1e-2], 1e-7, "worse"),
        ("relative_gap", [-1.0, 1.0], 1e-7, "worse"),
        ("primal", [0.5], 0.505, "matches"),
        ("primal", [0.4], 0.5, "better"),
        ("primal", [0.6], 0.5, "worse"),
        ("first_error", [7.0], 5.0, "better"),
        ("n_active", [100], 101, "matches"),
        ("n_active", [100], 300, "cannot tell"),
    ],
)
def test_verdict_thresholds(metric, values, paper, verdict):
    assert judge(metric, values, paper) == verdict


@given(st.lists(SCORES, min_size=1, max_size=5), SCORES)
def test_verdict_on_accuracies_follows_the_sign_beyond_the_tolerance(values, paper):
    difference = statistics.fmean(values) - paper
    verdict = judge("test", values, paper)
    if abs(difference) <= 0.02:
        assert verdict == "matches"
    elif verdict != "matches":
        assert verdict == ("better" if difference > 0 else "worse")
    else:
        assert len(values) > 1


def test_smoke_scale_is_never_held_against_the_paper():
    one = experiment(seeds=[0], methods=["cvx"])
    (cell,) = summarise_experiment(one, records_of(one, {0: {"cvx": record(0.9, 0.9)}}), "smoke").cells
    assert (cell.verdict, cell.reason, cell.mean) == ("cannot tell", "smoke scale", 0.9)


def test_dictionary_form_survives_json():
    one = experiment()
    values = {seed: {method: record(0.5, 0.9) for method in METHODS} for seed in range(3)}
    values[2]["sg"] = None
    summary = summarise_experiment(one, records_of(one, values))
    plain = summary.as_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["cells"][0]["mean"] == pytest.approx(0.9)
    assert plain["cells"][0]["missing"][0]["method"] == "sg"
    assert plain["verdicts"] == {"matches": 0, "better": 0, "worse": 0, "cannot tell": 1}


def test_records_of_other_runs_are_ignored():
    one = experiment(seeds=[0], methods=["cvx"])
    records = records_of(one, {0: {"cvx": record(0.9, 0.9)}})
    assert summarise_experiment(one, {**records, "other": record(1.0, 1.0)}) == summarise_experiment(one, records)


def test_experiment_without_cells_has_no_verdicts():
    summary = summarise_experiment(replace(experiment(), cells=()), {})
    assert sum(summary.verdicts.values()) == 0
