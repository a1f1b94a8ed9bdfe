"""Data that users pass as X, read as sequences: arrays, lists of arrays or of tables, rows.

scikit-learn is imported by the functions that need it: predictions from arrays do not.
"""

import warnings
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..core.checks import as_array, as_real, check_choice, foreign_errors
from ..core.errors import InvalidInputError, InvalidTypeError
from ..core.formatting import plural
from ..data import Sequences
from ..data.sequences import FILL_SEQUENCES, as_matrix, check_finite
from ..data.tables import check_names, is_frame, list_names, numbers_of, show_key

_MOST_SORTED = 10_000
"""Steps from which the range of most values is taken."""


def read_inputs(estimator: Any, X: Any, *, reset: bool) -> Sequences:
    """Return ``X`` as sequences, checked against the data of ``fit``.

    Parameters
    ----------
    estimator : SpikingEstimator
        Its ``layout`` says how to read arrays.
    X : array, list of arrays or of tables, table
        Sequences, or rows.
    reset : bool
        Whether to set ``n_features_in_``, ``feature_names_in_`` and ``is_sequential_`` rather than to check them.

    Returns
    -------
    Sequences
        The values in float64.
    """
    if estimator.layout is not None:
        check_choice("layout", estimator.layout, ("channels-last", "channels-first"))
    X = as_numpy(X)
    read = _read_rows if is_tabular(X) else _read_sequences
    sequences = read(estimator, X, reset)
    if reset:
        estimator.is_sequential_ = read is _read_sequences
    return sequences


def as_numpy(X: Any) -> Any:
    """Return an array of another library with three axes or more, such as a DataArray of xarray, as one of NumPy."""
    is_known = isinstance(X, (np.ndarray, torch.Tensor))
    if is_known or not hasattr(X, "__array__") or getattr(X, "ndim", 0) < 3:
        return X
    with foreign_errors():
        return np.asarray(X)


def is_tabular(data: Any) -> bool:
    """Return whether data are one row per sample, in any form that scikit-learn accepts, rather than sequences."""
    if isinstance(data, (np.ndarray, torch.Tensor)) and data.dtype != object:
        return data.ndim != 3
    if isinstance(data, Mapping):
        data = list(data.values())
    elif _is_series(data):
        data = data.tolist()
    if not isinstance(data, (Sequence, np.ndarray)) or isinstance(data, str):
        return True
    return not any(n_axes(part) == 2 for part in data)


def _read_rows(estimator: Any, X: Any, reset: bool) -> Sequences:
    """Return rows as sequences of one step."""
    if not reset and estimator.is_sequential_:
        raise InvalidInputError(
            f"expected sequences with {plural(estimator.n_features_in_, 'feature')} as in fit, got rows of features: "
            "pass an "
            "array (n_samples, n_steps, n_features), or a list of one array or table per sequence, [x] for a single one"
        )
    if estimator.layout == "channels-first":
        raise InvalidInputError(
            "expected an array (n_samples, n_channels, n_steps) or a list of arrays (n_channels, n_steps_i) for "
            "layout='channels-first', got rows: pass X[:, None, :] if each row is a series of one channel"
        )
    if is_frame(X):
        numbers_of(X, "row")
    elif hasattr(X, "column_names"):  # a table of pyarrow, which scikit-learn reads
        check_names(X.column_names)
    X = as_array("X", X)
    _refuse_loose_rows(X)
    with foreign_errors():
        _check_rows(np.asarray(X) if isinstance(X, list) else X)
        rows = _validate(estimator, X, reset, dtype=np.float64, ensure_all_finite=False)
    check_finite(rows, "rows", "impute them first, for example with SimpleImputer of scikit-learn")
    return Sequences(rows[:, None, :])


def _validate(estimator: Any, X: Any, reset: bool, **options: Any) -> Any:
    """Check data as scikit-learn does, or, for a model that only predicts, rows of numbers alone."""
    if hasattr(estimator, "get_params"):
        from sklearn.utils.validation import validate_data

        return validate_data(estimator, X, reset=reset, **options)
    if "dtype" not in options:  # sequences, whose features and names have been checked
        return X
    learned = getattr(estimator, "feature_names_in_", None)
    if learned is not None and hasattr(X, "columns") and list(X.columns) != list(learned):
        raise InvalidInputError(f"expected the columns of fit, {list_names(learned)}, got {list_names(X.columns)}")
    rows = as_real("rows", X)
    if rows.ndim != 2 or rows.shape[1] != estimator.n_features_in_:
        raise InvalidInputError(
            f"expected rows of {plural(estimator.n_features_in_, 'feature')} as in fit, got shape {rows.shape}"
        )
    return rows


def _check_rows(X: Any) -> None:
    """Refuse arrays that scikit-learn would read as numbers silently, and those without two axes in one sentence."""
    if not isinstance(X, np.ndarray):
        is_array = any(hasattr(X, name) for name in ("__len__", "__array__", "shape"))
        is_sparse = hasattr(X, "tocsr")  # one of them is a mapping; scikit-learn has a sentence for all
        if isinstance(X, (str, bytes)) or (isinstance(X, Mapping) and not is_sparse) or not is_array:
            raise InvalidTypeError(f"expected sequences or rows of numbers, got {type(X).__name__}")
        return
    if X.dtype.kind in "MmSUV":
        raise InvalidInputError(f"expected X to be real numbers, got {X.dtype}: convert them first")
    if X.ndim != 2:
        remedy = "Reshape your data with X.reshape(-1, 1) if there is a single feature, or X.reshape(1, -1) if a sample"
        if X.ndim > 3:
            remedy = "join the axes of a step, for example by X.reshape(*X.shape[:2], -1)"
        raise InvalidInputError(
            "expected sequences of shape (n_samples, n_steps, n_features) or rows of shape (n_samples, n_features), "
            f"got an array of shape {X.shape}: {remedy}"
        )


def _refuse_loose_rows(X: Any) -> None:
    """Refuse lists of numbers that could be rows of features as well as series: of unequal lengths, or in a Series."""
    if not (_is_series(X) or isinstance(X, (list, tuple)) or (isinstance(X, np.ndarray) and X.dtype == object)):
        return
    lengths = {len(part) for part in X if n_axes(part) == 1}
    if lengths and (len(lengths) > 1 or _is_series(X)):
        sizes = " to ".join(dict.fromkeys([str(min(lengths)), str(max(lengths))]))
        raise InvalidInputError(
            "expected rows of equal length in an array or a table, or sequences of shape (n_steps, n_features), got "
            f"{type(X).__name__} of lists of {sizes} numbers: pass np.stack(X) if these are "
            "features, or [np.reshape(x, (-1, 1)) for x in X] if each is a series of one feature"
        )


def count_samples(X: Any, y: npt.NDArray[Any]) -> int:
    """Return the number of samples; refuse data and targets of unequal length."""
    from sklearn.utils.validation import _num_samples

    with foreign_errors():
        n_samples = int(_num_samples(X))
    if len(y) != n_samples:
        remedy = "; if X has one row per step, pass cvxsnn.data.sequences_from_table(X, id=...)" if is_frame(X) else ""
        raise InvalidInputError(
            f"expected one target for each of {plural(n_samples, 'sample')}, got {len(y)}: X and y differ in "
            f"length{remedy}"
        )
    return n_samples


def read_labels(name: str, values: Any) -> npt.NDArray[Any]:
    """Return one label per sample as numbers or as strings, which a file can hold.

    Missing labels, numbers beside strings, and labels of other types are refused.

    Parameters
    ----------
    name : str
        What the labels are in messages, such as "label".
    values : array
        The labels in any form that scikit-learn accepts.

    Returns
    -------
    array of shape (n_samples,)
        The same labels.
    """
    from sklearn.utils.validation import column_or_1d

    values = as_array(f"{name}s", values)
    dtypes = values.dtypes if hasattr(values, "dtypes") and values.ndim == 2 else [getattr(values, "dtype", None)]
    if isinstance(values, list) or (isinstance(values, np.ndarray) and values.dtype.kind == "T"):
        values = np.asarray(values, dtype=object)  # else NumPy would make strings of numbers beside strings
    elif any(hasattr(dtype, "na_value") for dtype in dtypes):
        # pandas' own integers, truth values and texts: scikit-learn would make floats
        values = values.to_numpy(dtype=object)
    with foreign_errors():
        labels: npt.NDArray[Any] = column_or_1d(values, warn=True)
    if len(labels) == 0:
        raise InvalidInputError(f"expected one {name} per sample, got none")
    is_object = labels.dtype == object
    for number, label in enumerate(labels) if labels.dtype.kind in "Of" else ():
        is_nan = isinstance(label, (float, np.floating)) and label != label
        if label is None or is_nan or type(label).__name__ in ("NAType", "NaTType"):  # pandas' own
            raise InvalidInputError(
                f"expected a {name} for every sample, got {label} for sample {number}: drop samples without a {name}"
            )
    kinds = {str(labels.dtype): labels.dtype.type}
    if is_object:
        kinds = {type(label).__name__: type(label) for label in labels}
    unsupported = [kind for kind, of_kind in kinds.items() if not issubclass(of_kind, (str, Real, np.bool_))]
    are_text = {issubclass(kind, str) for kind in kinds.values()}
    if is_object and not unsupported and len(are_text) == 1:
        plain = np.asarray(labels.tolist())
        unsupported = ["object"] if plain.dtype == object else []  # integers of more than 64 bits
        # NumPy drops null characters at the end of a string: labels that have some stay objects.
        labels = plain if are_text == {False} or (plain == labels).all() else labels
    if unsupported:
        raise InvalidInputError(
            f"expected {name}s that are numbers or strings, got {unsupported[0]}: convert them, for example by "
            "astype(str)"
        )
    if len(are_text) > 1:
        names = " and ".join(sorted(kinds))
        raise InvalidInputError(f"expected {name}s of one type, got {names}: convert them first, for example to str")
    return labels


def read_groups(groups: Any, n_samples: int) -> npt.NDArray[np.int64] | None:
    """Return the number of the group of each sample, from labels of any kind; None if there are no groups."""
    if groups is None:
        return None
    if n_axes(groups) != 1:
        raise InvalidInputError(
            f"expected one group for each of {plural(n_samples, 'sample')} in an array of one axis, got "
            f"{plural(n_axes(groups), 'axis', 'axes')}: pass one column"
        )
    labels = read_labels("group", groups)
    if len(labels) != n_samples:
        raise InvalidInputError(f"expected one group for each of {plural(n_samples, 'sample')}, got {len(labels)}")
    numbers: npt.NDArray[np.int64] = np.unique(labels, return_inverse=True)[1]
    return numbers


def _read_sequences(estimator: Any, X: Any, reset: bool) -> Sequences:
    """Return sequences in the layout of the estimator, with their names learned or checked."""
    example, layout = None, estimator.layout
    arrays: Any
    if isinstance(X, (np.ndarray, torch.Tensor)) and X.dtype != object:
        arrays = X if layout != "channels-first" else np.ascontiguousarray(np.swapaxes(as_array("X", X), 1, 2))
    else:
        keys, parts = parts_of(X)
        has_names = any(map(is_frame, parts))
        example = parts[0] if has_names else None
        arrays = (_read_frames if has_names else _read_matrices)(keys, parts, layout)
    sequences = Sequences.from_raw(arrays)
    if reset and layout is None and example is None and sequences.n_steps == 1 and sequences.n_features >= 10:
        raise InvalidInputError(  # more likely a series of a single channel
            "expected sequences (n_samples, n_steps, n_features), got a single step of "
            f"{plural(sequences.n_features, 'feature')} each: give the estimator layout='channels-first' if X is "
            "(n_samples, n_channels, n_steps), or layout='channels-last' if there is indeed one step"
        )
    example = sequences.inputs[0].numpy() if example is None else example
    _check_as_in_fit(estimator, sequences, _names_of(example), reset)
    _validate(estimator, example, reset, skip_check_array=True)
    return sequences


def parts_of(X: Any) -> tuple[Sequence[Any], list[Any]]:
    """Return names and values of the sequences of a list, a mapping or a Series."""
    if isinstance(X, Mapping):
        return list(X), list(X.values())
    return (X.index.tolist(), X.tolist()) if _is_series(X) else (range(len(X)), list(X))


def _read_matrices(keys: Sequence[Any], parts: list[Any], layout: str | None) -> list[npt.NDArray[np.float64]]:
    """Return arrays (n_steps_i, n_features)."""
    matrices = [as_matrix(key, part) for key, part in zip(keys, parts, strict=True)]
    if layout == "channels-first":
        return [matrix.T for matrix in matrices]
    heights, widths = ({matrix.shape[axis] for matrix in matrices} for axis in (0, 1))
    if len(widths) > 1 and len(heights) == 1:
        raise InvalidInputError(
            f"expected arrays (n_steps_i, n_features) with equally many features, got {heights.pop()} rows and from "
            f"{min(widths)} to {max(widths)} columns: if they are (n_channels, n_steps_i), give the estimator "
            "layout='channels-first'"
        )
    return matrices


def _read_frames(keys: Sequence[Any], frames: list[Any], layout: str | None) -> list[npt.NDArray[np.float64]]:
    """Return the values of tables with the same columns."""
    if layout == "channels-first":
        raise InvalidInputError(
            "expected arrays for layout='channels-first', got tables, whose columns are the features: leave layout out"
        )
    if not all(map(is_frame, frames)):
        raise InvalidInputError("expected a list of tables or a list of arrays, got both: use one or the other")
    columns = list(frames[0].columns)
    values = []
    for key, frame in zip(keys, frames, strict=True):
        if list(frame.columns) != columns:
            raise InvalidInputError(
                f"expected the columns of sequence {show_key(keys[0])}, {list_names(columns)}, in every sequence, got "
                f"{list_names(frame.columns)} in sequence {show_key(key)}: select the same columns in one order"
            )
        values.append(numbers_of(frame, f"sequence {show_key(key)}"))
        for column, numbers in zip(columns, values[-1].T, strict=True):
            check_finite(numbers, f"numbers in column {column!r} of sequence {show_key(key)}", FILL_SEQUENCES)
    return values


def _check_as_in_fit(estimator: Any, sequences: Sequences, names: npt.NDArray[Any] | None, reset: bool) -> None:
    """Refuse sequences with other features than those of ``fit``, or for a model of rows."""
    if reset:
        return
    learned = getattr(estimator, "feature_names_in_", None)
    if learned is not None and names is not None and list(names) != list(learned):
        raise InvalidInputError(
            f"expected the columns of fit, {list_names(learned)}, got {list_names(names)}: select the columns "
            "model.feature_names_in_ in this order"
        )
    if sequences.n_features != estimator.n_features_in_ or not estimator.is_sequential_:
        expected = "sequences with" if estimator.is_sequential_ else "rows of"
        raise InvalidInputError(
            f"expected {expected} {plural(estimator.n_features_in_, 'feature')} as in fit, got sequences with "
            f"{plural(sequences.n_features, 'feature')} and up to {plural(sequences.n_steps, 'step')}"
        )


def _names_of(table: Any) -> npt.NDArray[Any] | None:
    """Return the names of columns as scikit-learn defines them: None for arrays, and for columns that are numbered."""
    if isinstance(table, np.ndarray):
        return None
    from sklearn.utils.validation import _get_feature_names

    try:
        return _get_feature_names(table)  # type: ignore[no-any-return]
    except TypeError:
        raise InvalidInputError(
            "expected names of columns that are all strings, got others too: frame.columns = frame.columns.astype(str)"
        ) from None


def _is_series(data: Any) -> bool:
    return hasattr(data, "iloc") and data.ndim == 1


def n_axes(part: Any) -> int:
    """Return the number of axes of an array; a list has one more than its first entry."""
    if hasattr(part, "ndim"):
        return int(part.ndim)
    if not isinstance(part, Sequence) or isinstance(part, str):
        return 0
    return 1 + (n_axes(part[0]) if len(part) else 0)


def feature_scale(
    sequences: Sequences, sample_weight: npt.NDArray[np.float64] | None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return mean and spread of each feature over all steps without padding; the spread of a constant is 1.

    A feature that hardly ever differs from one value, such as a pixel at the border of an image, has a small standard
    deviation for its range. Its spread is raised, so that the ratio of range to spread is at most twice the median.
    """
    # In units of the largest value of each feature, a power of two, squares neither overflow nor vanish.
    values: npt.NDArray[np.float64] = sequences.inputs.numpy()
    unit = power_of_two(abs(values).max((0, 1)))
    values = values / unit
    n_samples, n_steps, n_features = values.shape
    weight = np.ones((n_samples, n_steps)) if sample_weight is None else np.tile(sample_weight[:, None], n_steps)
    inside = sequences.is_inside()
    if inside is not None:
        weight = weight * inside.numpy()
    if weight.sum() == 0:
        return np.zeros(n_features), np.ones(n_features)
    share = (weight / weight.sum())[:, :, None]
    is_counted = share > 0
    lowest = values.min((0, 1), initial=np.inf, where=is_counted)
    extent = values.max((0, 1), initial=-np.inf, where=is_counted) - lowest
    # A constant feature is zero once its mean is subtracted, and not the rounding of its mean.
    mean = np.where(extent == 0, lowest, (share * values).sum((0, 1)))
    spread = np.sqrt((share * (values - mean) ** 2).sum((0, 1)))
    varies = spread > 1e-12  # in these units, anything smaller is the rounding of a constant
    if varies.any():
        spread = np.maximum(spread, 0.5 * extent / np.median(extent[varies] / spread[varies]))
    spread = np.where(varies, spread, 0.0) * unit
    return mean * unit, np.where(spread > 0, spread, 1.0)  # a spread may also underflow in the old unit


def warn_of_giants(sequences: Sequences, scale: npt.NDArray[np.float64], names: Sequence[Any] | None) -> None:
    """Warn of features in which so few values dwarf the others that these are the same once divided by the scale.

    Heavy tails are no reason: without one value in a thousand at either end, the range of the others must be less than
    a hundredth of the scale.
    """
    inside = sequences.is_inside()
    values = (sequences.inputs if inside is None else sequences.inputs[inside]).numpy().reshape(-1, len(scale))
    sample = values[:: -(-len(values) // _MOST_SORTED)]
    n_ends = max(1, len(sample) // 1000)
    if len(sample) < 20:  # too few to call any of them extreme
        return
    low, high = np.partition(sample, (n_ends, -1 - n_ends), axis=0)[[n_ends, -1 - n_ends]]
    for feature in np.flatnonzero((high > low) & (high / 2 - low / 2 < scale / 200)):
        column = values[:, feature]
        value = column[abs(column / 2 - np.median(sample[:, feature]) / 2).argmax()]
        warnings.warn(
            f"{value:.6g} in column {show_key(feature if names is None else names[feature])} dwarfs the other values, "
            "which neurons can hardly tell apart once the column is standardised: replace it if it is wrong, or take "
            "logarithms",
            stacklevel=5,
        )


def standardise(
    values: npt.NDArray[np.float64], mean: npt.NDArray[np.float64], scale: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return values minus their mean, divided by their scale; refuse results that are not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled: npt.NDArray[np.float64] = (values - mean) / scale
        if not np.isfinite(scaled).all():
            # The difference of two huge values overflows, that of their quarters does not.
            scaled = (values / 4 - mean / 4) / (scale / 4)
    if not np.isfinite(scaled).all():
        raise InvalidInputError(
            f"expected values that can be divided by a scale of {scale.min():.3g}, got some up to "
            f"{abs(values).max():.3g}: scale them like those of fit"
        )
    return scaled


def power_of_two(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the largest powers of two that are not above positive values; divided by them, no number is rounded."""
    powers: npt.NDArray[np.float64] = np.ldexp(1.0, np.frexp(values)[1] - 1)
    return powers
