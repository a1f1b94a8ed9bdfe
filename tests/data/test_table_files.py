import importlib
import sys

import numpy as np
import pandas
import pytest
from small_models import assert_one_sentence

from cvxsnn import CvxsnnError
from cvxsnn.core.errors import BudgetError, MissingLibraryError
from cvxsnn.data.table_files import Columns, is_table_file, read_samples, read_table

TABLE = pandas.DataFrame({"id": ["007", "007", "8"], "time": [1, 0, 0], "x": [0.5, 0.25, 4.0], "kind": ["u", "u", "d"]})


@pytest.mark.parametrize("name", ["a.csv", "a.CSV", "a.csv.gz", "a.tsv", "a.parquet", "a.pq"])
def test_tables_are_known_by_their_names(tmp_path, name):
    assert is_table_file(tmp_path / name)


@pytest.mark.parametrize("name", ["a.npz", "a", "a.gz", "csv"])
def test_other_files_are_no_tables(tmp_path, name):
    assert not is_table_file(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.csv", {}),
        ("a.csv", {"sep": ";"}),
        ("a.csv", {"sep": ";", "decimal": ","}),
        ("a.tsv", {"sep": "\t"}),
        ("a.csv.gz", {}),
        ("a.csv", {"encoding": "utf-8-sig"}),
    ],
)
def test_csv_files_are_read_whatever_separates_the_cells(tmp_path, name, options):
    TABLE.to_csv(tmp_path / name, index=False, **options)
    pandas.testing.assert_frame_equal(read_table(tmp_path / name, Columns("id")), TABLE)


def test_parquet_files_are_read(tmp_path):
    TABLE.to_parquet(tmp_path / "a.parquet")
    pandas.testing.assert_frame_equal(read_table(tmp_path / "a.parquet"), TABLE)


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv.xz", "a.csv.zip", "a.parquet"])
def test_a_small_file_of_a_large_table_is_refused(tmp_path, monkeypatch, name):
    table = pandas.DataFrame(dict.fromkeys("abcdefg", np.zeros(2**15)))
    getattr(table, "to_parquet" if name == "a.parquet" else "to_csv")(tmp_path / name, index=False)
    assert (tmp_path / name).stat().st_size < 2**15
    assert len(read_table(tmp_path / name)) == len(table)
    monkeypatch.setattr("cvxsnn.core.memory.NEGLIGIBLE", 0)
    monkeypatch.setattr("cvxsnn.core.memory.available_bytes", lambda device: 2**20)
    with pytest.raises(BudgetError, match=r"the table .* to fit into the memory of cpu, .*: divide it") as caught:
        read_table(tmp_path / name)
    assert_one_sentence(caught.value)


def test_an_index_without_a_name_is_left_out(tmp_path):
    TABLE.to_csv(tmp_path / "a.csv")
    with pytest.warns(UserWarning, match=r"a.csv has columns without a name: they are left out"):
        table = read_table(tmp_path / "a.csv", Columns("id"))
    pandas.testing.assert_frame_equal(table, TABLE)


def test_times_or_repeated_ids_make_a_table_long(tmp_path):
    TABLE.to_csv(tmp_path / "a.csv", index=False)
    X, y, ids, _ = read_samples(tmp_path / "a.csv", Columns("id", "time", "kind"), needs_targets=True)
    assert [part["x"].tolist() for part in X] == [[0.25, 0.5], [4.0]]
    assert (y.tolist(), ids.tolist()) == (["u", "d"], ["007", "8"])
    with pytest.warns(UserWarning, match="without --time, the rows of a sequence are read in the order"):
        X, *_ = read_samples(tmp_path / "a.csv", Columns("id", features=["x"]), needs_targets=False)
    assert [part["x"].tolist() for part in X] == [[0.5, 0.25], [4.0]]


def test_a_table_with_different_ids_has_one_row_per_sample_unless_sequences_are_expected(tmp_path):
    TABLE[1:].to_csv(tmp_path / "a.csv", index=False)
    columns = Columns("id", label="kind")
    X, y, ids, _ = read_samples(tmp_path / "a.csv", columns, needs_targets=True)
    assert X.columns.tolist() == ["time", "x"]
    assert (y.tolist(), ids.tolist()) == (["u", "d"], ["007", "8"])
    with pytest.warns(UserWarning, match="without --time"):
        X, *_ = read_samples(tmp_path / "a.csv", columns, needs_targets=True, is_sequential=True)
    assert [part.shape for part in X] == [(1, 2), (1, 2)]


@pytest.mark.parametrize("is_series", [False, True])
@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"id": "id", "features": ("x", "id")}, "features without another role, got 'id' too"),
        ({"label": "kind", "features": ("kind",)}, "features without another role, got 'kind' too"),
        ({"id": "kind", "label": "kind"}, "different columns for different roles, got 'kind' more than once"),
        ({"features": ("x", "x")}, "different names, got 'x' more than once"),
        ({"features": ("x", "nothing")}, "expected a column 'nothing' in the table"),
        ({"features": ("x", "kind")}, "expected numbers in column 'kind', got 'u'"),
    ],
)
def test_a_column_has_one_role(tmp_path, columns, complaint, is_series):
    TABLE[1:].to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(CvxsnnError, match=complaint) as caught:
        read_samples(tmp_path / "a.csv", Columns(is_series=is_series, **columns), needs_targets=False)
    assert_one_sentence(caught.value)


def test_a_series_ends_at_its_last_number(tmp_path):
    (tmp_path / "a.csv").write_text("name,0,1,2\na,1,2,3\nb,4,,\n")
    X, y, ids, _ = read_samples(tmp_path / "a.csv", Columns("name", is_series=True), needs_targets=False)
    np.testing.assert_array_equal(X[0], [[1], [2], [3]])
    np.testing.assert_array_equal(X[1], [[4]])
    assert (y, ids.tolist()) == (None, ["a", "b"])


LONG = Columns("id", "time", "kind")
REFUSED = {
    "nothing": (None, LONG, "expected a data file at .*, found nothing"),
    "empty": ("", LONG, "expected a CSV table with the names of its columns in the first line"),
    "no rows": ("id,time,x,kind\n", LONG, "expected a table with rows in .*, got 4 columns and no rows"),
    "bytes": (b"\x8b\xff\x00", LONG, "cannot be read as one"),
    "a longer row": ("id,time,x,kind\na,0,1,u\nb,0,1,u,7\n", LONG, "Expected 4 fields in line 3, saw 5"),
    "longer rows": ("id,time,x,kind\na,0,1,u,7\n", LONG, "cannot be read as one: Length of header"),
    "no label option": ("id,x\na,1\n", Columns("id"), "expected --label to name .* choose among 'id', 'x'"),
    "no such label": ("id,x\na,1\n", Columns("id", label="kind"), "expected a column 'kind' in the table"),
    "no such id": ("id,x\na,1\n", Columns("name", label="x"), "expected a column 'name' in the table"),
    "times without ids": ("id,x\na,1\n", Columns(time="t", label="x"), "expected --id with --time"),
    "only labels": ("id,x\na,1\n", Columns("id", label="x"), "columns of numbers beside 'id', 'x'"),
    "text": ("id,time,x,kind\na,0,1,u\na,1,?,u\n", LONG, r"expected numbers in column 'x', got '\?' in row 1"),
    "a gap": (
        "id,time,x,kind\na,0,1,u\na,1,,u\n",
        LONG,
        "got 1 missing value, the first in column 'x' of sequence 'a': .* --impute linear",
    ),
    "a gap in rows": (
        "x,kind\n1,u\n,u\n",
        Columns(label="kind"),
        "got 1 missing value, the first in column 'x' of row 1: fill or",
    ),
    "an infinite cell": (
        "x,kind\n1,u\ninf,u\n",
        Columns(label="kind"),
        "got 1 infinite or larger one, the first in column 'x' of row 1",
    ),
    "a cell beyond float64": (
        "id,time,x,kind\na,0,1,u\na,1,1e400,u\n",
        LONG,
        "1 infinite or larger one, the first in column 'x' of sequence 'a'|numbers in column 'x', got '1e400' in row 1",
    ),
    "two columns of one name": ("x;x;kind\n1;2;u\n", Columns(label="kind"), "different names, got 'x' more than once"),
    "a row without label": (
        "x,kind\n1,u\n2,\n",
        Columns(label="kind"),
        "every row of column 'kind', got none in row 1",
    ),
    "a gap in a series": (
        "a1,a2,k\n1,2,u\n,2,u\n",
        Columns(label="k", is_series=True),
        "got 1 missing value, the first in column 'a1' of row 1",
    ),
    "a column that is no step": (
        "t1,t2,k,u\n1,2,3,4\n",
        Columns(label="k", is_series=True),
        "names that differ in their numbers, such as 't1', got 'u' too: name a label with --label",
    ),
    "an empty series": (
        "a1,a2,k\n1,2,u\n,,u\n",
        Columns(label="k", is_series=True),
        "got 1 missing value, the first in column 'a1' of row 1",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_files_are_refused_in_one_sentence(tmp_path, case):
    content, columns, message = REFUSED[case]
    path = tmp_path / "a.csv"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CvxsnnError, match=message) as caught:
        read_samples(path, columns, needs_targets=True)
    assert_one_sentence(caught.value)


def test_a_damaged_parquet_file_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(CvxsnnError, match=r"expected a Parquet table, but .*a.parquet cannot be read as one") as caught:
        read_table(tmp_path / "a.parquet")
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zip"])
def test_a_damaged_compressed_file_is_refused_in_one_sentence(tmp_path, suffix):
    path = tmp_path / f"a.csv.{suffix}"
    TABLE.to_csv(path, index=False)
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            read_table(path)
        except CvxsnnError as error:
            assert_one_sentence(error)


@pytest.mark.parametrize(("library", "name"), [("pandas", "a.csv"), ("pyarrow", "a.parquet")])
def test_a_missing_library_is_named_with_what_to_install(tmp_path, monkeypatch, library, name):
    def refuse(module):
        if module == library:
            raise ModuleNotFoundError(f"No module named {module!r}")
        return sys.modules[module]

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(MissingLibraryError, match=rf"expected {library} to be installed.*cvxsnn\[tables\]") as caught:
        read_table(tmp_path / name)
    assert_one_sentence(caught.value)
