"""Data on disk for the command line: CSV and Parquet tables, read with pandas."""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.errors import Complaints, CvxsnnError, DataFileError, InvalidInputError, first_line
from ..core.formatting import plural
from ..core.libraries import import_library
from ..core.memory import check_fits, dense_bytes
from .tables import check_names, choose_features, list_names, numbers_of, sequences_from_table, show_key

_CSV, _PARQUET = (".csv", ".tsv"), (".parquet", ".pq")
_IMPUTE = "fill them with --impute linear when fitting, or drop them"
_WORDS = "name words for missing values with --missing, or leave the column out"
_COMPRESSIONS = (".gz", ".bz2", ".xz", ".zip", ".zst")


def is_table_file(path: Path) -> bool:
    """Return whether the name of a file says that it is a CSV or Parquet table."""
    return _kind(path) in (*_CSV, *_PARQUET)


@dataclass(frozen=True)
class Columns:
    """Roles of columns, as given by the options of a command.

    Parameters
    ----------
    id, time, label, groups : str or None
        Names of columns.
    features : sequence of str or None
        Names of columns; None for all others.
    is_series : bool
        Whether each row is a sequence, and its columns are the steps of one feature.
    missing : sequence of str
        Words that stand for missing values in the columns of features of a CSV file, besides "NA" and the like.
    """

    id: str | None = None
    time: str | None = None
    label: str | None = None
    features: Sequence[str] | None = None
    is_series: bool = False
    groups: str | None = None
    missing: Sequence[str] = ()


def read_samples(
    path: Path, columns: Columns, *, needs_targets: bool, is_sequential: bool | None = None, has_gaps: bool = False
) -> Any:
    """Return inputs, targets, ids and groups of a table in a file; all but the inputs may be None.

    Parameters
    ----------
    path : Path
        The file.
    columns : Columns
        The roles of columns.
    needs_targets : bool
        Whether a column of labels is needed.
    is_sequential : bool, optional
        Whether the model expects sequences or rows. By default a table with times or repeated ids has one row per step.
    has_gaps : bool
        Whether cells may be empty, because they are filled later.

    Returns
    -------
    X, y, ids, groups : list of DataFrame or of arrays, or DataFrame; arrays or None
        A table per sequence, an array per series, or a table with one row per sample.
    """
    if columns.time is not None and columns.id is None:
        raise InvalidInputError("expected --id with --time, got none: name the column that identifies sequences")
    table = read_table(path, columns)
    if needs_targets and columns.label is None:
        raise InvalidInputError(
            f"expected --label to name the column to predict, got none: choose among {list_names(table.columns)}"
        )
    chosen = choose_features(table, columns.id, columns.time, columns.label, columns.features, columns.groups)
    ids = None if columns.id is None else table[columns.id]
    if is_sequential and ids is None and not columns.is_series:
        raise InvalidInputError("expected --id and --time, or --series, for a model of sequences, got none of them")
    if ids is not None and not columns.is_series and (is_sequential or columns.time is not None or not ids.is_unique):
        return _read_long(table, columns, chosen, has_gaps)
    X, y, groups = table[chosen], *(None if name is None else table[name] for name in (columns.label, columns.groups))
    complaints = Complaints()
    for column, role in ((y, "label"), (groups, "group")):
        if column is not None:
            complaints.collect(_check_given, column, role)
    if columns.is_series:
        X = complaints.collect(_series, X, has_gaps, has_named_steps=columns.features is not None)
    else:
        _check_cells(X, has_gaps, complaints)
    complaints.raise_all()
    y, ids, groups = (None if column is None else column.to_numpy() for column in (y, ids, groups))
    return X, y, ids, groups


def read_table(path: Path, columns: Columns = Columns()) -> Any:
    """Return the table in a CSV or Parquet file.

    Parameters
    ----------
    path : Path
        The file. A CSV file has the names of the columns in its first line; commas, semicolons or tabs separate them.
    columns : Columns
        The roles of columns. That of the ids is read as text, so that 007 does not become 7.

    Returns
    -------
    DataFrame
        The table, with at least one row. Columns without a name, such as an index that pandas has written, are left
        out.
    """
    pandas = import_library("pandas", "tables")
    is_parquet = _kind(path) in _PARQUET
    if is_parquet and columns.missing:
        raise InvalidInputError(
            f"expected a CSV file with --missing, got {path}: in a Parquet file, missing values are null"
        )
    if is_parquet:
        import_library("pyarrow", "tables")
    try:
        table = _read_parquet(pandas, path) if is_parquet else _read_csv(pandas, path, columns)
    except FileNotFoundError:
        raise DataFileError(f"expected a data file at {path}, found nothing") from None
    except CvxsnnError:
        raise
    except Exception as error:  # pandas, pyarrow and the decompressors raise errors of many kinds
        kind = "a Parquet table" if is_parquet else "a CSV table with the names of its columns in the first line"
        raise DataFileError(f"expected {kind}, but {path} cannot be read as one: {first_line(error)}") from None
    if not len(table):
        raise DataFileError(
            f"expected a table with rows in {path}, got {plural(len(table.columns), 'column')} and no rows"
        )
    return table


def _read_long(table: Any, columns: Columns, features: Sequence[str], has_gaps: bool) -> Any:
    """Return the sequences of a table with one row per step, and their groups."""
    assert columns.id is not None
    if columns.time is None:
        warnings.warn(
            "without --time, the rows of a sequence are read in the order in which the file has them", stacklevel=3
        )
    complaints = Complaints()
    wrong = _check_cells(table[features], has_gaps, complaints, table[columns.id])
    wrong = [name for name in wrong if name != columns.time]
    if wrong:  # what is wrong elsewhere is found without them
        table = table.copy()
        table[wrong] = 0.0
    sequences = complaints.collect(sequences_from_table, table, columns.id, columns.time, columns.label, features)
    groups = None
    if columns.groups is not None:  # one per sequence, as labels
        groups = complaints.collect(sequences_from_table, table, columns.id, None, columns.groups, features)
    complaints.raise_all()
    assert sequences is not None
    return *sequences, None if groups is None else groups.y


def _series(table: Any, has_gaps: bool, has_named_steps: bool) -> list[npt.NDArray[np.float64]]:
    """Return rows as sequences of one feature, up to their last number."""
    # Names of steps differ only in their numbers: a label that was not named would be read as a step.
    stems = [re.sub(r"\d+", "", str(name)) for name in table.columns]
    usual = max(stems, key=stems.count)
    unusual = [name for name, stem in zip(table.columns, stems, strict=True) if stem != usual]
    if unusual and not has_named_steps:
        raise InvalidInputError(
            "expected columns of steps with names that differ in their numbers, such as "
            f"{table.columns[stems.index(usual)]!r}, got {list_names(unusual)} too: name a label with --label, an id "
            "with --id, or choose columns with --features"
        )
    values = numbers_of(table, remedy=_WORDS)
    numbers = np.arange(1, values.shape[1] + 1)
    lengths = np.maximum(1, np.where(np.isnan(values), 0, numbers).max(1))
    _check_filled(np.where(numbers <= lengths[:, None], values, 0), table.columns, has_gaps, _IMPUTE)
    return [row[:length, None] for row, length in zip(values, lengths.tolist(), strict=True)]


def _check_given(column: Any, role: str) -> None:
    """Refuse a column of labels or groups with empty cells."""
    (empty,) = np.nonzero(column.isna().to_numpy())
    if len(empty):
        others = f" and {plural(len(empty) - 1, 'other row')}" if len(empty) > 1 else ""
        raise InvalidInputError(
            f"expected a {role} in every row of column {column.name!r}, got none in row {empty[0]}{others}: fill the "
            "column, or drop such rows"
        )


def _check_cells(table: Any, has_gaps: bool, complaints: Complaints, ids: Any = None) -> list[Any]:
    """Collect what is wrong with the cells of features, one column after the other; return the columns with words."""
    wrong = []
    for name in table.columns:
        values = complaints.collect(numbers_of, table[[name]], remedy=_WORDS)
        if values is None:
            wrong.append(name)
            values = np.where(table[[name]].isna(), np.nan, 0.0)  # gaps beside words
        # Only sequences are imputed: the ids are theirs.
        remedy = "fill or drop them first" if ids is None else _IMPUTE
        complaints.collect(_check_filled, values, [name], has_gaps, remedy, ids)
    return wrong


def _check_filled(values: npt.NDArray[np.float64], columns: Any, has_gaps: bool, remedy: str, ids: Any = None) -> None:
    """Refuse infinite cells, and empty ones unless they are filled later."""
    is_gap = np.isnan(values) & (not has_gaps)
    for is_wrong, expected, received, what_to_do in (
        (is_gap, "a number in every cell", "missing value", remedy),
        # 1e400 is read as infinite
        (np.isinf(values), "numbers below 1.8e308", "infinite or larger one", "replace or drop them first"),
    ):
        if is_wrong.any():
            row, column = map(int, np.argwhere(is_wrong)[0])
            place = f"row {row}" if ids is None else f"sequence {show_key(ids.iloc[row])}"
            raise InvalidInputError(
                f"expected {expected}, got {plural(int(is_wrong.sum()), received)}, the first in column "
                f"{columns[column]!r} of {place}: {what_to_do}"
            )


def _kind(path: Path) -> str:
    """Return the suffix of a file, in front of that of a compression."""
    suffix = path.suffix.lower()
    return path.with_suffix("").suffix.lower() if suffix in _COMPRESSIONS else suffix


def _read_parquet(pandas: Any, path: Path) -> Any:
    # A repeated value takes no room in the file, so its size bounds nothing.
    metadata = import_library("pyarrow.parquet", "tables").read_metadata(path)
    n_packed = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    needed = max(n_packed, dense_bytes(metadata.num_rows, metadata.num_columns))
    check_fits(needed, "cpu", f"the table in {path}", "divide it")
    return pandas.read_parquet(path)


def _check_csv_fits(path: Path) -> None:
    """Refuse compressed text that does not fit into memory; unpack it block by block to count its cells."""
    if path.suffix.lower() not in _COMPRESSIONS:
        return
    unpacked = import_library("pandas.io.common", "tables").get_handle(path, "rb", compression="infer", is_text=False)
    with unpacked as file:
        needed = 0
        while block := file.handle.read(2**20):
            # pandas needs about 40 bytes for a cell while it reads it, besides its text.
            needed += len(block) + 40 * sum(map(block.count, (b",", b";", b"\t", b"\n")))
            check_fits(needed, "cpu", f"the table that is packed in {path}", "divide it")


def _read_csv(pandas: Any, path: Path, columns: Columns) -> Any:
    _check_csv_fits(path)
    separator = "\t" if _kind(path) == ".tsv" else ","
    header = str(pandas.read_csv(path, sep=separator, nrows=0, encoding="utf-8-sig").columns[0])
    # Read with the wrong separator, the names of all columns are one name that contains the right one.
    most_frequent = max(",;\t", key=header.count)
    separator = most_frequent if most_frequent in header else separator
    # pandas renames the second of two columns of one name.
    names = pandas.read_csv(
        path, sep=separator, header=None, nrows=1, dtype=str, skipinitialspace=True, encoding="utf-8-sig"
    )
    check_names(names.iloc[0].dropna())
    roles = (columns.id, columns.time, columns.label, columns.groups)
    missing = {name: list(columns.missing) for name in names.iloc[0] if columns.missing and name not in roles}
    # If a comma is the decimal point, semicolons separate the cells.
    decimals = ".," if separator == ";" else "."
    tables = [_parse(pandas, path, separator, decimal, columns.id, missing) for decimal in decimals]
    table = max(tables, key=lambda table: sum(dtype.kind in "biuf" for dtype in table.dtypes))
    is_unnamed = table.columns.str.startswith("Unnamed:")
    if is_unnamed.any():
        warnings.warn(f"{path} has columns without a name: they are left out", stacklevel=3)
    return table.loc[:, ~is_unnamed]


def _parse(
    pandas: Any, path: Path, separator: str, decimal: str, text: str | None, missing: Mapping[str, list[str]]
) -> Any:
    with warnings.catch_warnings():
        # Rows with more cells than there are names would be cut.
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        return pandas.read_csv(
            path,
            sep=separator,
            decimal=decimal,
            index_col=False,
            dtype={} if text is None else {text: str},
            na_values=missing,
            skipinitialspace=True,
            low_memory=False,  # one type for a whole column
            float_precision="round_trip",  # the same bits as in the program that wrote them
            encoding="utf-8-sig",
        )
