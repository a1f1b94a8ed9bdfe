"""Forecasts of time series: windows of the past as sequences, the values that follow as targets."""

from typing import Any

import numpy as np

from ..core.checks import check_positive_int
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..data.sequences import FILL_SEQUENCES, as_matrices, check_finite
from .answers import FloatArray
from .inputs import n_axes


def make_windows(series: Any, window: int, horizon: int = 1, stride: int = 1) -> tuple[FloatArray, FloatArray]:
    """Cut time series into windows of the past and the values that follow each, for a regressor.

    Parameters
    ----------
    series : array or list of arrays
        One series of shape (n_times,) or (n_times, n_features), several of equal length as one array of shape
        (n_series, n_times, n_features), or a list of series. No window reaches from one series into another.
    window : int
        Number of steps of each window.
    horizon : int
        Number of steps after a window that are to be predicted at once.
    stride : int
        Number of steps from the start of one window to the start of the next.

    Returns
    -------
    X : array of shape (n_windows, window, n_features)
        The windows, in order of time, one series after the other.
    y : array of shape (n_windows,) or (n_windows, horizon * n_features)
        The values that follow. If there are several per window, they are ordered by time and then by feature:
        ``y.reshape(-1, horizon, n_features)``.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import make_windows
    >>> X, y = make_windows(np.arange(6.0), window=3)
    >>> X[:, :, 0].tolist(), y.tolist()
    ([[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 4.0]], [3.0, 4.0, 5.0])
    """
    window, horizon = check_positive_int("window", window), check_positive_int("horizon", horizon)
    stride = check_positive_int("stride", stride)
    pieces = []
    for number, part in enumerate(_as_series(series)):
        if len(part) < window + horizon:
            raise InvalidInputError(
                f"expected series of at least {window + horizon} steps for a window of {window} and a horizon of "
                f"{horizon}, got {len(part)} in series {number}: shorten the window or drop the series"
            )
        # The steps of a window come last in NumPy's view, after the features.
        pieces.append(np.lib.stride_tricks.sliding_window_view(part, window + horizon, axis=0)[::stride])
    windows = np.concatenate(pieces).transpose(0, 2, 1)
    targets = np.ascontiguousarray(windows[:, window:]).reshape(len(windows), -1)
    return np.ascontiguousarray(windows[:, :window]), targets[:, 0] if targets.shape[1] == 1 else targets


def forecast(model: Any, history: Any, n_steps: int, *, window: int) -> FloatArray:
    """Forecast a time series: predict from its last window, append the prediction, and go on from there.

    The first step, or the first steps of a model with a longer horizon, are predicted from the history alone. Later
    ones are predicted from predictions, so that errors add up.

    Parameters
    ----------
    model : fitted regressor
        A regressor that was fitted to :func:`make_windows`, or a pipeline that ends in one.
    history : array of shape (n_times,), (n_times, n_features) or (n_series, n_times, n_features)
        The series so far, or several, which are forecast independently of each other.
    n_steps : int
        Number of steps to forecast.
    window : int
        Number of steps of the windows that the model was fitted to.

    Returns
    -------
    array of shape (n_steps,), (n_steps, n_features) or (n_series, n_steps, n_features)
        The forecast, with as many axes as the history.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import SpikingRegressor, forecast, make_windows
    >>> series = np.sin(np.arange(300) / 5)
    >>> X, y = make_windows(series, window=10)
    >>> model = SpikingRegressor(hidden=(64,), witnesses="delayed", l1_strength=0.001, random_state=0).fit(X, y)
    >>> forecast(model, series, n_steps=20, window=10).shape
    (20,)
    """
    n_steps, window = check_positive_int("n_steps", n_steps), check_positive_int("window", window)
    if isinstance(history, (list, tuple)):
        history = np.asarray(history)
    past = np.stack(_as_series(history))
    n_series, n_times, n_features = past.shape
    if n_times < window:
        raise InvalidInputError(
            f"expected a history of at least {window} steps, the window of the model, got {n_times}: pass more of the "
            "past"
        )
    known = past[:, n_times - window :]
    while known.shape[1] < window + n_steps:
        predicted = np.asarray(model.predict(known[:, -window:]), dtype=np.float64).reshape(n_series, -1)
        if predicted.shape[1] % n_features:
            raise InvalidInputError(
                f"expected a model that predicts all {plural(n_features, 'feature')} of a step, got "
                f"{predicted.shape[1]} outputs: fit it to make_windows of a series with the same features"
            )
        known = np.concatenate((known, predicted.reshape(n_series, -1, n_features)), axis=1)
    forecasts = known[:, window : window + n_steps]
    return (forecasts[0, :, 0], forecasts[0], forecasts)[history.ndim - 1]


def _as_series(series: Any) -> list[FloatArray]:
    """Return one series or several as checked matrices of shape (n_times, n_features)."""
    depth = n_axes(series)
    if depth not in (1, 2, 3) or len(series) == 0:
        raise InvalidInputError(
            "expected one series of shape (n_times,) or (n_times, n_features), or several in a list or an array of "
            f"shape (n_series, n_times, n_features), got {depth} axes or nothing"
        )
    are_several = depth == 3 or (isinstance(series, (list, tuple)) and depth > 1)
    parts = as_matrices([_with_features(part) for part in (series if are_several else [series])])
    for part in parts:
        check_finite(part, "series", FILL_SEQUENCES)
    return parts


def _with_features(part: Any) -> Any:
    """Return a series with an axis for its features."""
    if n_axes(part) != 1:
        return part
    if hasattr(part, "iloc"):
        return part.to_frame()
    return [[value] for value in part] if isinstance(part, (list, tuple)) else part[:, None]
