import pytest

from cvxsnn.core.formatting import format_bound, format_seconds, format_value, plural, printable


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.123456, "0.1235"),
        (7, "7"),
        ({"hidden": [16, 32], "decay": 0.5}, "hidden 16, 32, decay 0.5"),
        (("a", None), "a, –"),
    ],
)
def test_values_of_records_are_written_as_text(value, text):
    assert format_value(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0123, "12.3 ms"), (5, "5 s"), (600, "10 min"), (36_000, "10 h"), (10**6, "11.6 days")]
)
def test_times_are_written_in_a_unit_that_fits(seconds, text):
    assert format_seconds(seconds) == text


def test_one_is_singular():
    assert [plural(n, "run") for n in (0, 1, 2000)] == ["0 runs", "1 run", "2,000 runs"]
    assert [plural(n, "box", "boxes") for n in (1, 2)] == ["1 box", "2 boxes"]


def test_what_no_page_can_show_is_replaced():
    assert printable("a\x00b\ud800c\n名") == "a\ufffdb\ufffdc\n名"


@pytest.mark.parametrize(
    ("value", "text"), [(1.74e-7, "1.8e-07"), (0.2, "2.0e-01"), (9.91e-3, "1.0e-02"), (0.0, "0"), (3e-12, "3.0e-12")]
)
def test_a_bound_is_rounded_up(value, text):
    assert format_bound(value) == text
    assert float(text) >= value
