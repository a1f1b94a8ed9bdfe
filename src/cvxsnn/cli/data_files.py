"""Data files of the commands: NumPy archives, and tables whose columns the options name."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy.typing as npt
from typer import Argument, Option

from ..core.errors import InvalidInputError
from ..core.formatting import plural
from .files import READ

DataFile = Annotated[Path, Argument(help="An .npz file with arrays X and y, or a .csv or .parquet table."), READ]


@dataclass(frozen=True)
class TableOptions:
    """Options of all commands that read data: how to read a table."""

    id_column: Annotated[str | None, Option("--id", help="Column of a table that names the sequence.")] = None
    time: Annotated[str | None, Option(help="Column of a table that orders the steps of a sequence.")] = None
    label: Annotated[str | None, Option(help="Column of a table to predict.")] = None
    features: Annotated[str | None, Option(help="Columns of a table to read, such as x,y; or all others.")] = None
    series: Annotated[bool, Option("--series", help="In a table, each row is a sequence of one feature.")] = False
    missing: Annotated[str | None, Option(help="Words for missing values in a CSV file, such as err,?.")] = None


@dataclass(frozen=True, eq=False)
class Data:
    """Contents of a data file.

    Parameters
    ----------
    X : array, list of arrays, DataFrame or list of DataFrame
        The inputs.
    y, weight, ids, groups : array or None
        The targets, the weights, the names and the groups of the samples.
    is_table : bool
        Whether the file is a table; the command then reports how it was read.
    """

    X: Any
    y: npt.NDArray[Any] | None
    weight: npt.NDArray[Any] | None = None
    ids: npt.NDArray[Any] | None = None
    groups: npt.NDArray[Any] | None = None
    is_table: bool = False

    def __str__(self) -> str:
        """Return the sizes in words."""
        if not isinstance(self.X, list):
            return f"{plural(len(self.X), 'row')}, each a step of {plural(self.X.shape[-1], 'feature')}"
        lengths = sorted(map(len, self.X))
        steps = (f"{lengths[0]} to " if lengths[0] < lengths[-1] else "") + plural(lengths[-1], "step")
        return f"{plural(len(self.X), 'sequence')} of {steps} with {plural(self.X[0].shape[1], 'feature')}"


def read_data(
    path: Path,
    table: TableOptions,
    *,
    needs_targets: bool,
    model: Any = None,
    groups: str | None = None,
    has_gaps: bool = False,
) -> Data:
    """Return the data in a file; of a table, the columns that a fitted model knows. Some models fill gaps."""
    from ..data.npz import read_data as read_npz
    from ..data.table_files import Columns, is_table_file, read_samples
    from ..data.tables import numbers_of
    from ..estimators.pipelines import split_pipeline

    names = None if table.features is None else _listed(table.features)
    missing = () if table.missing is None else _listed(table.missing)
    columns = Columns(table.id_column, table.time, table.label, names, table.series, groups, missing)
    if not is_table_file(path):
        if columns != Columns():
            raise InvalidInputError(
                "expected a .csv or .parquet file for --id, --time, --label, --features, --series, --missing and "
                f"--groups, got {path}"
            )
        return Data(*read_npz(path, needs_targets=needs_targets))
    options, learned = {"has_gaps": has_gaps}, getattr(model, "feature_names_in_", None)
    if learned is not None:
        columns = replace(columns, features=tuple(learned))
    if model is not None:
        transformers, estimator = split_pipeline(model)
        options = {"is_sequential": estimator.is_sequential_, "has_gaps": bool(transformers)}
    X, y, ids, group_of_sample = read_samples(path, columns, needs_targets=needs_targets, **options)
    if model is not None and learned is None and not table.series:  # the model was fitted to columns without names
        X = [numbers_of(part, "row") for part in X] if isinstance(X, list) else numbers_of(X, "row")
    return Data(X, y, None, ids, group_of_sample, is_table=True)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))
