import math

import pytest

from cvxsnn.experiments.metrics import format_difference, format_number, quantity_of, read_metric


def test_a_metric_is_read_from_scores_before_other_facts_and_only_if_finite():
    record = {"scores": {"test": 0.5, "gap": 1.0}, "gap": 2.0, "primal": 3, "dual": math.nan, "flag": True}
    assert read_metric(record, "test") == 0.5
    assert read_metric(record, "gap") == 1.0
    assert read_metric(record, "primal") == 3.0
    assert read_metric(record, "dual") is read_metric(record, "flag") is read_metric(record, "none") is None


@pytest.mark.parametrize(
    ("value", "metric", "text", "difference"),
    [
        (0.5, "test", "0.500", "+0.500"),
        (-0.0001, "test", "-0.000", "0.000"),
        (-1e-9, "gap", "-1.0e-09", "−1.0e-09"),
        (1234.5, "seconds", "1234", "+1234"),
        (None, "test", "–", "–"),
    ],
)
def test_numbers_have_the_digits_of_their_kind(value, metric, text, difference):
    assert format_number(value, metric) == text
    assert format_difference(value, metric) == difference


def test_unknown_metrics_are_accuracies():
    assert quantity_of("10x") == "accuracy"
    assert quantity_of("relative_gap") == "gap"
    assert quantity_of("l1_strength") == quantity_of("l2_strength") == "other"
