import pytest
from experiments.test_summary import record

from cvxsnn.experiments.experiment import parse_experiment
from cvxsnn.experiments.summary import summarise_experiment
from cvxsnn.experiments.tables import compare_methods


def compared(scores, kind="table", metric="test"):
    """The comparisons of one row with a column per method, whose test scores are given for each seed."""
    cells = [
        {"row": "r", "column": method, "metric": metric, "methods": [method], "seeds": list(range(len(own)))}
        for method, own in scores.items()
    ]
    data = {"title": "Small", "kind": kind, "cell": cells, "defaults": {"task": {"name": "t"}}}
    one = parse_experiment("small", data, "paper")
    records = {name: record(0.5, scores[own.method][own.seed], seconds=1.0) for name, own in one.runs().items()}
    return compare_methods(one, summarise_experiment(one, records))


@pytest.mark.parametrize(
    ("convex", "gradient", "outcome"),
    [
        ([0.91, 0.92, 0.93], [0.80, 0.81, 0.82], "ahead"),
        ([0.80, 0.81, 0.82], [0.91, 0.92, 0.93], "behind"),
        ([0.90, 0.92, 0.94], [0.89, 0.91, 0.93], "level"),
        ([0.92], [0.91], "ahead"),
        ([0.9], [0.9], "level"),
    ],
)
def test_outcome_follows_the_difference_beyond_two_standard_errors(convex, gradient, outcome):
    ((_, row, *_, told),) = compared({"cvx": convex, "sg": gradient})
    assert (row, told) == ("r", outcome)


def test_the_best_column_of_each_kind_is_compared():
    scores = {"cvx": [0.6], "sg-cvx": [0.8], "ridge": [0.7], "sg": [0.5], "sg-sg": [0.9]}
    assert compared(scores) == [("small", "r", "0.800, sg-cvx", "0.900, sg-sg", "behind")]


def test_rows_without_both_kinds_figures_and_costs_are_left_out():
    assert compared({"cvx": [0.6], "ridge": [0.7]}) == []
    assert compared({"sg": [0.6]}) == []
    assert compared({"cvx": [0.6], "sg": [0.7]}, kind="figure") == []
    assert compared({"cvx": [0.6], "sg": [0.7]}, metric="seconds") == []
