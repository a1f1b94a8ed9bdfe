"""Tables of pandas: numbers in named columns, and long tables with one row per step of a sequence.

pandas is an optional library. A table is recognised by what it can do, so that nothing is imported before one is used.
"""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.errors import InvalidInputError
from ..core.libraries import import_library


class TableSequences(NamedTuple):
    """Sequences of a long table, as an estimator takes them.

    Parameters
    ----------
    X : list of DataFrame
        One table per sequence: rows are steps, columns are features, and the index is the time.
    y : array of shape (n_samples,) or None
        The labels, if there is a column of labels.
    ids : array of shape (n_samples,)
        The identifiers of the sequences, in the order of X.

    Examples
    --------
    >>> import pandas
    >>> from cvxsnn.data import sequences_from_table
    >>> table = pandas.DataFrame({"id": ["a", "a", "b"], "time": [0, 1, 0], "x": [0.5, 0.25, 4.0]})
    >>> found = sequences_from_table(table)
    >>> len(found.X), found.y, found.ids.tolist()
    (2, None, ['a', 'b'])
    """

    X: list[Any]
    y: npt.NDArray[Any] | None
    ids: npt.NDArray[Any]


def sequences_from_table(
    table: Any,
    id: str = "id",  # noqa: A002 - the name of the column
    time: str | None = "time",
    label: str | None = None,
    features: Sequence[str] | None = None,
) -> TableSequences:
    """Return the sequences of a long table, which has one row per step.

    Times put the steps of a sequence in order, and nothing else: a network takes one row after the other. If the times
    are regular but some are missing, there is a warning. Resample the table first if the intervals matter.

    Parameters
    ----------
    table : DataFrame
        One row per step. ``id`` and ``time`` may also be levels of its index.
    id : str
        The column that says which sequence a row belongs to.
    time : str or None
        The column of times: numbers, dates, or text with dates in ISO 8601 format. None if the rows are in order.
    label : str, optional
        The column of labels. Each sequence has one label, in all of its rows or in some.
    features : sequence of str, optional
        The columns of numbers to read, by default all others.

    Returns
    -------
    TableSequences
        ``X``, ``y`` and ``ids``, in the order in which the ids first appear.

    Examples
    --------
    >>> import pandas
    >>> from cvxsnn.data import sequences_from_table
    >>> table = pandas.DataFrame(
    ...     {"id": ["a", "a", "b"], "time": [1, 0, 0], "x": [0.5, 0.25, 4.0], "kind": ["up", "up", "down"]}
    ... )
    >>> X, y, ids = sequences_from_table(table, label="kind")
    >>> X[0]["x"].tolist(), y.tolist(), ids.tolist()
    ([0.25, 0.5], ['up', 'down'], ['a', 'b'])
    """
    if not is_frame(table):
        raise InvalidInputError(f"expected a pandas DataFrame with one row per step, got {type(table).__name__}")
    chosen = [features] if isinstance(features, str) else None if features is None else list(features)
    check_roles(id, time, label, chosen)
    special = [name for name in (id, time, label) if name is not None]
    levels = [name for name in table.index.names if name in special and name not in table.columns]
    table = table.reset_index(level=levels) if levels else table
    check_columns(table, [*special, *(chosen or [])])
    if not len(table):
        raise InvalidInputError("expected a table with one row per step, got no rows")
    if chosen is None:
        chosen = [name for name in table.columns if name not in special]
    if not chosen:
        raise InvalidInputError(f"expected columns of numbers beside {list_names(special)}, got none")
    numbers_of(table[chosen], "row")
    for name in special:
        _check_plain(table[name])
    sequence, ids = table[id].factorize()
    _check_known(sequence >= 0, id)
    y = None if label is None else _labels(sequence, ids, table[label])
    order = np.argsort(sequence, kind="stable")
    if time is not None:
        order = _order_by_time(sequence, ids, table[time])
        table = table.set_index(time, drop=time not in chosen)
    rows = table[chosen].iloc[order]
    ends = np.cumsum(np.bincount(sequence))
    parts = [rows.iloc[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    return TableSequences(parts, y, np.asarray(ids))


def is_frame(value: Any) -> bool:
    """Return whether a value is a table of pandas."""
    return hasattr(value, "columns") and hasattr(value, "iloc")


def list_names(names: Iterable[Any]) -> str:
    """Return names as a message lists them, the first few if there are many."""
    listed, most = list(names), 8
    return ", ".join(map(show_key, listed[:most])) + (", ..." if len(listed) > most else "")


def show_key(key: Any) -> str:
    """Return the name of a row, a sequence or a column as a message shows it: 3, and not np.int64(3)."""
    return repr(key.item() if isinstance(key, np.generic) else key)


def check_columns(table: Any, names: Iterable[str]) -> None:
    """Refuse a table that lacks one of these columns, or has two columns of one name."""
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise InvalidInputError(
            f"expected a column {list_names(missing)} in the table, got the columns {list_names(table.columns)}: "
            "choose among these"
        )
    check_names(table.columns)


def check_roles(id: str | None, time: str | None, label: str | None, features: Sequence[str] | None) -> None:  # noqa: A002
    """Refuse a column that would be two things at once; times alone may be read as numbers, too."""
    named = Counter(name for name in (id, time, label) if name is not None)
    twice = [name for name, count in named.items() if count > 1]
    if twice:
        raise InvalidInputError(
            f"expected different columns for id, time and label, got {list_names(twice)} more than once: name others"
        )
    other = [name for name in features or () if name in (id, label)]
    if other:
        raise InvalidInputError(
            f"expected features beside the id and the label, got {list_names(other)} too: leave it out of the features"
        )
    check_names(features or ())


def check_names(columns: Iterable[Any]) -> None:
    """Refuse two columns of one name."""
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise InvalidInputError(
            f"expected columns with different names, got {list_names(twice)} more than once: rename or drop them"
        )


def numbers_of(table: Any, where: str) -> npt.NDArray[np.float64]:
    """Return the values of a table as numbers; one sentence names a column of other things.

    Parameters
    ----------
    table : DataFrame
        Columns of numbers. Missing values are NaN in the result.
    where : str
        Where the table is, for the message; "row" stands for the row of the first value that is no number.

    Returns
    -------
    array of shape (n_rows, n_columns)
        The numbers.
    """
    check_names(table.columns)
    for place, dtype in enumerate(table.dtypes):
        if dtype.kind in "biuf":
            continue
        column = table.iloc[:, place].dropna()
        others = [n for n, value in enumerate(column) if dtype.kind != "O" or not isinstance(value, (Real, Decimal))]
        if others:
            # One word makes text of all the numbers in a column of a file: the word is to blame.
            row = next((n for n in others if not _reads_as_number(str(column.iloc[n]))), others[0])
            spot = f"row {show_key(column.index[row])}" if where == "row" else where
            raise InvalidInputError(
                f"expected numbers in column {table.columns[place]!r}, got {str(column.iloc[row])!r} in {spot}: make "
                "them numbers, or leave the column out"
            )
    numbers: npt.NDArray[np.float64] = table.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_known(is_known: npt.NDArray[np.bool_], name: str) -> None:
    if not is_known.all():
        n_rows = int((~is_known).sum())
        raise InvalidInputError(
            f"expected a value of {name!r} in every row, got none in {n_rows} rows: drop these rows"
        )


def _check_plain(column: Any) -> None:
    """Refuse lists and the like, which pandas cannot compare."""
    try:
        column.factorize()
    except TypeError:
        raise InvalidInputError(
            f"expected numbers, strings or times in column {column.name!r}, got lists or the like: choose another one"
        ) from None


def _labels(sequence: npt.NDArray[np.intp], ids: Any, labels: Any) -> npt.NDArray[Any]:
    """Return the label of each sequence, which all of its rows that have one must agree on."""
    pandas = import_library("pandas", "tables")
    known = pandas.DataFrame({"sequence": sequence, "label": labels.array}).dropna().drop_duplicates()
    n_labels = np.bincount(known["sequence"], minlength=len(ids))
    if n_labels.max() > 1:
        place = int(n_labels.argmax())
        found = known["label"][known["sequence"] == place]
        raise InvalidInputError(
            f"expected one label per sequence, got {list_names(found)} in sequence {show_key(ids[place])}: check the "
            f"column {labels.name!r}, or give the parts ids of their own"
        )
    if n_labels.min() == 0:
        place = int(n_labels.argmin())
        raise InvalidInputError(
            f"expected a label in column {labels.name!r} for every sequence, got none for {show_key(ids[place])}"
        )
    return np.asarray(known.sort_values("sequence")["label"])


def _order_by_time(sequence: npt.NDArray[np.intp], ids: Any, times: Any) -> npt.NDArray[np.intp]:
    """Return the order of the rows by sequence and time; refuse a time that comes twice."""
    times = _as_times(times)
    rank, _ = times.factorize(sort=True)
    _check_known(rank >= 0, times.name)
    order = np.lexsort((rank, sequence))
    is_within = np.diff(sequence[order]) == 0
    repeated = is_within & (np.diff(rank[order]) == 0)
    if repeated.any():
        row = order[int(repeated.argmax())]
        raise InvalidInputError(
            f"expected every time once per sequence, got {times.iloc[row]} more than once in sequence "
            f"{show_key(ids[sequence[row]])}: drop or average repeated rows"
        )
    moments = times.astype("int64") if times.dtype.kind in "Mm" else times
    steps = np.diff(moments.to_numpy(dtype=np.float64)[order])
    _warn_of_gaps(np.where(is_within, steps, np.nan), lambda row: (ids[sequence[order[row]]], times.iloc[order[row]]))
    return np.asarray(order)


def _as_times(times: Any) -> Any:
    """Return times that have an order: text is read as dates, and never compared letter by letter."""
    if times.dtype.kind in "iufMm":
        return times
    pandas = import_library("pandas", "tables")
    numbers = pandas.to_numeric(times, errors="coerce")
    others = times[numbers.isna() & times.notna()]
    try:
        return pandas.to_datetime(times, format="ISO8601") if len(others) else numbers
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"expected numbers or dates such as 2024-01-31 in the time column {times.name!r}, got "
            f"{str(others.iloc[0])!r}: convert it with pandas.to_numeric or pandas.to_datetime"
        ) from None


def _warn_of_gaps(steps: npt.NDArray[np.float64], row_of: Any) -> None:
    """Warn if most steps within sequences are of one length and some are of twice that, or more."""
    if np.isnan(steps).all():
        return
    usual = np.nanmedian(steps)
    is_gap = steps > 1.5 * usual
    if is_gap.any() and (abs(steps - usual) <= 0.01 * usual).sum() >= 0.8 * (~np.isnan(steps)).sum():
        key, moment = row_of(int(is_gap.argmax()))
        warnings.warn(
            f"the times have gaps, {int(is_gap.sum())} in all, the first after {moment} in sequence {show_key(key)}: "
            "rows are read one after the other, so insert the missing rows and impute them if the intervals matter",
            stacklevel=4,
        )
