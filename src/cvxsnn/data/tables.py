"""Tables of pandas: numbers in named columns, and long tables with one row per step of a sequence.

pandas is an optional library. Tables are recognised by their attributes, so that pandas is imported only when needed.
"""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import pairwise
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.errors import Complaints, InvalidInputError
from ..core.formatting import plural
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
    >>> sequences = sequences_from_table(table)
    >>> len(sequences.X), sequences.y, sequences.ids.tolist()
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

    Times only order the steps of a sequence: a network reads one row after the other. A warning reports times that
    are missing from a regular grid. Resample the table first if the intervals matter.

    Parameters
    ----------
    table : DataFrame
        One row per step. ``id`` and ``time`` may also be levels of its index.
    id : str
        The column with the identifier of the sequence of each row.
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
    features = [features] if isinstance(features, str) else features
    special = [name for name in (id, time, label) if name is not None]
    levels = [name for name in table.index.names if name in special and name not in table.columns]
    table = table.reset_index(level=levels) if levels else table
    chosen = choose_features(table, id, time, label, features)
    if not len(table):
        raise InvalidInputError("expected a table with one row per step, got no rows")
    complaints = Complaints()
    complaints.collect(numbers_of, table[chosen])
    named = complaints.collect(_sequence_of_row, table[id])
    if named is None:
        complaints.raise_all()
    assert named is not None
    sequence, ids = named
    y = None if label is None else complaints.collect(_labels, sequence, ids, table[label])
    order = None if time is None else complaints.collect(_order_by_time, sequence, ids, table[time])
    complaints.raise_all()
    if order is None:
        order = np.argsort(sequence, kind="stable")
    else:
        table = table.set_index(time, drop=time not in chosen)
    rows = table[chosen].iloc[order]
    parts = [rows.iloc[start:end] for start, end in pairwise([0, *np.cumsum(np.bincount(sequence))])]
    return TableSequences(parts, y, np.asarray(ids))


def is_frame(value: Any) -> bool:
    """Return whether a value is a table of pandas."""
    return hasattr(value, "columns") and hasattr(value, "iloc")


def list_names(names: Iterable[Any]) -> str:
    """Return names for a message, separated by commas; only the first few if there are many."""
    listed, most = list(names), 8
    return ", ".join(map(show_key, listed[:most])) + (", ..." if len(listed) > most else "")


def show_key(key: Any) -> str:
    """Return the name of a row, a sequence or a column for a message: 3 instead of np.int64(3)."""
    return repr(key.item() if isinstance(key, np.generic) else key)


def choose_features(
    table: Any,
    id: str | None,  # noqa: A002
    time: str | None,
    label: str | None,
    features: Sequence[str] | None,
    groups: str | None = None,
) -> list[str]:
    """Return the features, by default all columns without another role; refuse missing columns and double roles."""
    roles = [name for name in (id, time, label, groups) if name is not None]
    check_names(roles, "different columns for different roles", "name others")
    if wrong := [name for name in features or () if name in (id, label, groups)]:  # times may be features, too
        raise InvalidInputError(
            f"expected features without another role, got {list_names(wrong)} too: leave it out of the features"
        )
    check_names(features or ())
    if missing := [name for name in (*roles, *(features or ())) if name not in table.columns]:
        raise InvalidInputError(
            f"expected a column {list_names(missing)} in the table, got the columns {list_names(table.columns)}: "
            "choose among these"
        )
    check_names(table.columns)
    chosen = list(features or [name for name in table.columns if name not in roles])
    if not chosen:
        raise InvalidInputError(f"expected columns of numbers beside {list_names(roles)}, got none")
    return chosen


def check_names(
    columns: Iterable[Any], expected: str = "columns with different names", remedy: str = "rename or drop them"
) -> None:
    """Refuse two columns of one name."""
    if twice := [name for name, count in Counter(columns).items() if count > 1]:
        raise InvalidInputError(f"expected {expected}, got {list_names(twice)} more than once: {remedy}")


def numbers_of(
    table: Any, where: str = "row", remedy: str = "make them numbers, or leave the column out"
) -> npt.NDArray[np.float64]:
    """Return the values of a table as numbers; refuse columns of anything else.

    Parameters
    ----------
    table : DataFrame
        Columns of numbers. Missing values are NaN in the result.
    where : str
        The table's place in messages; "row" names the row of the first value that is not a number.
    remedy : str
        What to do about other values.

    Returns
    -------
    array of shape (n_rows, n_columns)
        The numbers.
    """
    check_names(table.columns)
    complaints = Complaints()
    for name in table.columns:
        complaints.collect(_check_numbers, table[name], where, remedy)
    complaints.raise_all()
    numbers: npt.NDArray[np.float64] = table.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers


def _check_numbers(column: Any, where: str, remedy: str) -> None:
    """Refuse a column of anything but numbers."""
    if column.dtype.kind in "biuf":
        return
    known = column.dropna()
    is_number = [column.dtype.kind == "O" and isinstance(value, (Real, Decimal)) for value in known]
    texts = known[np.logical_not(is_number)].astype(str)
    if not len(texts):
        return
    # One word in a file turns the numbers of its column into text: name the word. To pandas 2, 1e400 is one.
    words = texts[~np.isfinite(import_library("pandas", "tables").to_numeric(texts, errors="coerce"))]
    words = words if len(words) else texts
    others = f" and {plural(len(words) - 1, 'other cell')}" if len(words) > 1 else ""
    raise InvalidInputError(
        f"expected numbers in column {column.name!r}, got {words.iloc[0]!r} in "
        f"{f'row {show_key(words.index[0])}' if where == 'row' else where}{others}: {remedy}"
    )


def _sequence_of_row(names: Any) -> tuple[npt.NDArray[np.intp], Any]:
    """Return the number of the sequence of each row, and the names of the sequences."""
    sequence, ids = _factorize(names)
    _check_known(sequence >= 0, names.name)
    return sequence, ids


def _check_known(is_known: npt.NDArray[np.bool_], name: str) -> None:
    if not is_known.all():
        n_rows = int((~is_known).sum())
        raise InvalidInputError(
            f"expected a value of {name!r} in every row, got none in {plural(n_rows, 'row')}: drop these rows"
        )


def _factorize(column: Any) -> tuple[npt.NDArray[np.intp], Any]:
    """Number the values of a column; refuse lists and the like, which pandas cannot compare."""
    try:
        return column.factorize()  # type: ignore[no-any-return]
    except TypeError:
        raise InvalidInputError(
            f"expected numbers, strings or times in column {column.name!r}, got lists or the like: choose another one"
        ) from None


def _labels(sequence: npt.NDArray[np.intp], ids: Any, labels: Any) -> npt.NDArray[Any]:
    """Return the label of each sequence; its rows may lack a label, but not differ in it."""
    _factorize(labels)  # refuses lists
    pandas = import_library("pandas", "tables")
    known = pandas.DataFrame({"sequence": sequence, "label": labels.array}).dropna().drop_duplicates()
    n_labels = np.bincount(known["sequence"], minlength=len(ids))
    wrong = np.flatnonzero(n_labels != 1)
    if len(wrong):
        received = list_names(known["label"][known["sequence"] == wrong[0]]) or "none"
        others = f", and not one in {plural(len(wrong) - 1, 'other')}" if len(wrong) > 1 else ""
        raise InvalidInputError(
            f"expected one label per sequence in column {labels.name!r}, got {received} in sequence "
            f"{show_key(ids[wrong[0]])}{others}: fill the column, or give the parts ids of their own"
        )
    return np.asarray(known.sort_values("sequence")["label"])


def _order_by_time(sequence: npt.NDArray[np.intp], ids: Any, times: Any) -> npt.NDArray[np.intp]:
    """Return the order of the rows by sequence and time; refuse a repeated time, and warn of gaps."""
    _factorize(times)  # refuses lists
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
    usual = np.median(steps[is_within]) if is_within.any() else np.inf
    is_gap = is_within & (steps > 1.5 * usual)
    # Irregular times have no gaps: most steps must be of one length.
    if is_gap.any() and (abs(steps[is_within] - usual) <= 0.01 * usual).mean() >= 0.8:
        row = order[int(is_gap.argmax())]
        warnings.warn(
            f"the times have gaps, {int(is_gap.sum())} in all, the first after {times.iloc[row]} in sequence "
            f"{show_key(ids[sequence[row]])}: rows are read one after the other, so insert the missing rows and impute "
            "them if the intervals matter",
            stacklevel=4,
        )
    return np.asarray(order)


def _as_times(times: Any) -> Any:
    """Convert text to numbers or dates, because text would be compared letter by letter."""
    if times.dtype.kind in "iufMm":
        return times
    pandas = import_library("pandas", "tables")
    numbers = pandas.to_numeric(times, errors="coerce")
    not_numbers = times[numbers.isna() & times.notna()]
    try:
        return pandas.to_datetime(times, format="ISO8601") if len(not_numbers) else numbers
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"expected numbers or dates such as 2024-01-31 in the time column {times.name!r}, got "
            f"{str(not_numbers.iloc[0])!r}: convert it with pandas.to_numeric or pandas.to_datetime"
        ) from None
