"""Tables on disk: CSV and Parquet files, read with pandas."""

import warnings
from pathlib import Path
from typing import Any

from ..core.errors import DataFileError, first_line
from ..core.libraries import import_library

_CSV, _PARQUET = (".csv", ".tsv"), (".parquet", ".pq")
_COMPRESSIONS = (".gz", ".bz2", ".xz", ".zip", ".zst")


def is_table_file(path: Path) -> bool:
    """Return whether the name of a file says that it is a CSV or Parquet table."""
    return _kind(path) in (*_CSV, *_PARQUET)


def read_table(path: Path, text: str | None = None) -> Any:
    """Return the table in a CSV or Parquet file.

    Parameters
    ----------
    path : Path
        The file. A CSV file has the names of the columns in its first line; commas, semicolons or tabs separate them.
    text : str, optional
        A column that is read as text, so that 007 does not become 7.

    Returns
    -------
    DataFrame
        The table, with at least one row. A first column without a name, as pandas writes the index, is left out.
    """
    pandas = import_library("pandas", "tables")
    is_parquet = _kind(path) in _PARQUET
    if is_parquet:
        import_library("pyarrow", "tables")
    try:
        table = pandas.read_parquet(path) if is_parquet else _read_csv(pandas, path, text)
    except FileNotFoundError:
        raise DataFileError(f"expected a data file at {path}, found nothing") from None
    except (ArithmeticError, EOFError, LookupError, MemoryError, OSError, RuntimeError, ValueError) as error:
        kind = "a Parquet table" if is_parquet else "a CSV table with the names of its columns in the first line"
        raise DataFileError(f"expected {kind}, but {path} is something else: {first_line(error)}") from None
    if not len(table):
        raise DataFileError(f"expected a table with rows in {path}, got {len(table.columns)} columns and no rows")
    return table


def _kind(path: Path) -> str:
    """Return the suffix of a file, in front of that of a compression."""
    suffix = path.suffix.lower()
    return path.with_suffix("").suffix.lower() if suffix in _COMPRESSIONS else suffix


def _read_csv(pandas: Any, path: Path, text: str | None) -> Any:
    options = {"encoding": "utf-8-sig", "skipinitialspace": True, "low_memory": False}
    options["dtype"] = {} if text is None else {text: str}
    separator = "\t" if _kind(path) == ".tsv" else ","
    header = str(pandas.read_csv(path, sep=separator, nrows=0, encoding="utf-8-sig").columns[0])
    other = max(",;\t", key=header.count)
    table = pandas.read_csv(path, sep=other if other in header else separator, **options)
    if str(table.columns[0]).startswith("Unnamed:"):
        warnings.warn(f"the first column of {path} has no name and is left out", stacklevel=3)
        table = table.iloc[:, 1:]
    return table
