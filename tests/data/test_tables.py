"""Tables of pandas: long tables as sequences, and columns as numbers."""

import warnings
from decimal import Decimal

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import assert_one_sentence

from cvxsnn import InvalidInputError
from cvxsnn.data import sequences_from_table
from cvxsnn.data.tables import numbers_of


def long_table(lengths=(3, 1, 2), seed=0):
    rng = np.random.default_rng(seed)
    rows = [(f"s{k}", step, *rng.normal(size=2), k % 2) for k, n in enumerate(lengths) for step in range(n)]
    return pandas.DataFrame(rows, columns=["id", "time", "x", "y", "kind"])


@settings(max_examples=20)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_sequences_come_back_in_order_of_time_however_rows_are_shuffled(lengths, random):
    table = long_table(lengths)
    order = list(range(len(table)))
    random.shuffle(order)
    shuffled = table.iloc[order]
    found = sequences_from_table(shuffled, label="kind")
    assert found.ids.tolist() == list(dict.fromkeys(shuffled["id"]))
    for name, part, label in zip(found.ids, found.X, found.y, strict=True):
        own = table[table["id"] == name]
        assert part.columns.tolist() == ["x", "y"]
        np.testing.assert_array_equal(part, own[["x", "y"]])
        np.testing.assert_array_equal(part.index, own["time"])
        assert label == own["kind"].iloc[0]


def test_columns_may_be_called_anything_and_some_may_be_chosen():
    table = long_table().rename(columns={"id": "case", "time": "t"})
    found = sequences_from_table(table, "case", "t", features=["y", "t"])
    assert found.y is None
    assert found.X[0].columns.tolist() == ["y", "t"]
    assert sequences_from_table(table, "case", "t", "kind", features="x").X[0].shape == (3, 1)


def test_levels_of_the_index_serve_as_columns():
    found = sequences_from_table(long_table().set_index(["id", "time"]), label="kind")
    assert [part.shape for part in found.X] == [(3, 2), (1, 2), (2, 2)]


def test_without_times_rows_stay_in_their_order():
    table = long_table()[::-1]
    found = sequences_from_table(table, time=None, features=["x"])
    np.testing.assert_array_equal(found.X[0]["x"], table[table["id"] == "s2"]["x"])


@pytest.mark.parametrize(
    "convert",
    [
        lambda time: pandas.Timestamp("2024-01-31", tz="UTC") + pandas.to_timedelta(time * 7, unit="h"),
        lambda time: (pandas.Timestamp("2024-01-31") + pandas.to_timedelta(time * 7, unit="h")).astype(str),
        lambda time: pandas.to_timedelta(time, unit="s"),
        lambda time: (time + 8).astype(str),  # 8, 9, 10: letter by letter, 10 comes before 8
        lambda time: time * 0.5,
    ],
    ids=["dates", "text of dates", "durations", "text of numbers", "fractions"],
)
def test_times_of_every_kind_are_put_in_order(convert):
    table = long_table()
    expected = sequences_from_table(table, label="kind")
    found = sequences_from_table(table.assign(time=convert(table["time"]))[::-1], label="kind")
    for part, name in zip(found.X, found.ids, strict=True):
        np.testing.assert_array_equal(part, expected.X[expected.ids.tolist().index(name)])


def test_a_label_in_one_row_of_a_sequence_is_enough():
    table = long_table()
    table["kind"] = table["kind"].where(table["time"] == 0)
    assert sequences_from_table(table, label="kind").y.tolist() == [0, 1, 0]


@pytest.mark.parametrize(("missing", "warns"), [(None, False), (11, True)])
def test_missing_steps_among_regular_ones_are_warned_of(missing, warns):
    table = long_table((20, 20)).drop(index=[] if missing is None else [missing])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sequences_from_table(table, label="kind")
    assert bool(caught) == warns
    if warns:
        assert "gaps, 1 in all, the first after 10 in sequence 's0'" in str(caught[0].message)


def test_irregular_times_are_no_gaps():
    table = long_table((20, 20))
    sequences_from_table(table.assign(time=table["time"] ** 2), label="kind")


TABLE = long_table()
REFUSED = {
    "no table": (lambda: sequences_from_table([[1, 2]]), "expected a pandas DataFrame .* got list"),
    "no rows": (lambda: sequences_from_table(TABLE[:0]), "got no rows"),
    "no column": (lambda: sequences_from_table(TABLE, time="t"), "expected a column 't' in the table, got .*'time'"),
    "no feature": (lambda: sequences_from_table(TABLE, features=["z"]), "expected a column 'z'"),
    "nothing to read": (lambda: sequences_from_table(TABLE[["id", "time"]]), "columns of numbers beside 'id', 'time'"),
    "two of a name": (
        lambda: sequences_from_table(pandas.concat([TABLE, TABLE[["x"]]], axis=1)),
        "different names, got 'x' more than once",
    ),
    "an id as a feature": (
        lambda: sequences_from_table(TABLE, features=["x", "id"]),
        "features without another role, got 'id' too",
    ),
    "a label as a feature": (
        lambda: sequences_from_table(TABLE, label="x", features=["x"]),
        "features without another role, got 'x' too",
    ),
    "a feature twice": (lambda: sequences_from_table(TABLE, features=["x", "x"]), "got 'x' more than once"),
    "an id as a label": (
        lambda: sequences_from_table(TABLE, label="id"),
        "different columns for different roles, got 'id' more than once",
    ),
    "a time twice": (
        lambda: sequences_from_table(pandas.concat([TABLE, TABLE[1:2]])),
        "every time once per sequence, got 1 more than once in sequence 's0'",
    ),
    "two labels": (
        lambda: sequences_from_table(TABLE.assign(kind=[0, 1, 0, 1, 0, 0]), label="kind"),
        "one label per sequence in column 'kind', got 0, 1 in sequence 's0'",
    ),
    "no label": (
        lambda: sequences_from_table(TABLE.assign(kind=TABLE["kind"].where(TABLE["id"] != "s1")), label="kind"),
        "one label per sequence in column 'kind', got none in sequence 's1'",
    ),
    "no id": (
        lambda: sequences_from_table(TABLE.assign(id=TABLE["id"].where(TABLE["x"] != TABLE["x"][1]))),
        "a value of 'id' in every row, got none in 1 row:",
    ),
    "no time": (
        lambda: sequences_from_table(TABLE.assign(time=TABLE["time"].where(TABLE["time"] != 2))),
        "a value of 'time' in every row, got none in 1 row:",
    ),
    "text as a time": (
        lambda: sequences_from_table(TABLE.assign(time=["0", "1", "noon", "0", "0", "1"])),
        "numbers or dates such as 2024-01-31 in the time column 'time', got 'noon'",
    ),
    "text in a column": (
        lambda: sequences_from_table(TABLE.assign(x=[0.5, "?", 1, 2, 3, 4])),
        r"expected numbers in column 'x', got '\?' in row 1",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_tables_are_refused_in_one_sentence(case):
    call, message = REFUSED[case]
    with pytest.raises(InvalidInputError, match=message) as caught:
        call()
    assert_one_sentence(caught.value)


def test_numbers_of_every_type_are_read_and_missing_ones_are_nan():
    table = pandas.DataFrame(
        {
            "float": [1.5, None],
            "bool": [True, False],
            "nullable": pandas.array([3, None], dtype="Int64"),
            "objects": [Decimal("0.5"), None],
            "category": pandas.Categorical([2, 4]),
        }
    )
    expected = [[1.5, 1, 3, 0.5, 2], [np.nan, 0, np.nan, np.nan, 4]]
    np.testing.assert_array_equal(numbers_of(table, "row"), expected)


@pytest.mark.parametrize(
    "column", [["1", "2"], pandas.to_datetime(["2024-01-01", "2024-01-02"]), pandas.to_timedelta([1, 2]), [1j, 2j]]
)
def test_text_times_and_complex_numbers_are_no_numbers(column):
    with pytest.raises(InvalidInputError, match=r"expected numbers in column 'b', got .* in sequence 4"):
        numbers_of(pandas.DataFrame({"a": [1, 2], "b": column}), "sequence 4")


@pytest.mark.parametrize("name", ["id", "label"])
def test_columns_of_lists_are_refused(name):
    columns = {"id": [0, 0, 1], "label": ["a", "a", "b"], "x": [1.0, 2.0, 3.0]}
    table = pandas.DataFrame(columns | {name: [[1], [1], [2]]})
    with pytest.raises(InvalidInputError, match=f"times in column '{name}', got lists"):
        sequences_from_table(table, "id", None, label="label")
