import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.pipeline import make_pipeline
from small_models import assert_one_sentence, regressor

from cvxsnn import InvalidInputError, SequenceScaler, forecast, make_windows

SINES = np.stack([np.sin(np.arange(160) / 4), np.cos(np.arange(160) / 4)], axis=1)
NEURONS = {"hidden": (128,), "witnesses": "delayed", "penalty": "elastic-net", "l1_strength": 0.0}


class Continue:
    """Continues an arithmetic sequence exactly, by ``horizon`` steps; remembers what it was shown."""

    def __init__(self, horizon=1):
        self.horizon, self.shapes = horizon, []

    def predict(self, windows):
        self.shapes.append(windows.shape)
        slope = windows[:, -1] - windows[:, -2]
        ahead = [windows[:, -1] + (step + 1) * slope for step in range(self.horizon)]
        return np.stack(ahead, axis=1).reshape(len(windows), -1).squeeze()


@given(
    n_times=st.integers(2, 25),
    n_features=st.integers(1, 3),
    window=st.integers(1, 6),
    horizon=st.integers(1, 4),
    stride=st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_windows_are_slices_of_the_series(n_times, n_features, window, horizon, stride):
    series = np.arange(float(n_times * n_features)).reshape(n_times, n_features)
    if n_times < window + horizon:
        with pytest.raises(InvalidInputError, match="expected series of at least"):
            make_windows(series, window, horizon, stride)
        return
    X, y = make_windows(series, window, horizon, stride)
    starts = range(0, n_times - window - horizon + 1, stride)
    assert X.shape == (len(starts), window, n_features)
    assert y.shape == ((len(starts),) if horizon * n_features == 1 else (len(starts), horizon * n_features))
    following = y.reshape(-1, horizon, n_features)
    for start, own, after in zip(starts, X, following, strict=True):
        np.testing.assert_array_equal(own, series[start : start + window])
        np.testing.assert_array_equal(after, series[start + window : start + window + horizon])


def test_no_window_reaches_into_another_series():
    X, y = make_windows([np.arange(5.0), np.arange(100.0, 104.0)], window=2)
    assert X[:, :, 0].tolist() == [[0, 1], [1, 2], [2, 3], [100, 101], [101, 102]]
    assert y.tolist() == [2, 3, 4, 102, 103]


def test_series_may_come_in_many_forms():
    expected = make_windows(SINES, 5, 2)
    for series in (torch.tensor(SINES), [SINES], SINES[None], [SINES.tolist()]):
        for own, other in zip(make_windows(series, 5, 2), expected, strict=True):
            np.testing.assert_array_equal(own, other)
    numbers = [0.0, 1.0, 2.0, 3.0]
    for series in (numbers, np.array(numbers), torch.tensor(numbers), [numbers], tuple(numbers)):
        assert make_windows(series, 2)[1].tolist() == [2.0, 3.0]


def test_frames_are_series_too():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(SINES, columns=["sin", "cos"])
    np.testing.assert_array_equal(make_windows(frame, 5)[0], make_windows(SINES, 5)[0])
    np.testing.assert_array_equal(make_windows(frame["sin"], 5)[1], SINES[5:, 0])
    assert forecast(Continue(), frame, 3, window=5).shape == (3, 2)


@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_a_forecast_feeds_predictions_back(horizon):
    line = np.arange(10.0)[:, None] * [1.0, -2.0] + [0.0, 5.0]
    ahead = np.arange(10.0, 17.0)[:, None] * [1.0, -2.0] + [0.0, 5.0]
    model = Continue(horizon)
    np.testing.assert_allclose(forecast(model, line, 7, window=4), ahead)
    assert model.shapes == [(1, 4, 2)] * -(-7 // horizon)
    np.testing.assert_allclose(forecast(model, line[:, 1], 7, window=4), ahead[:, 1])
    several = forecast(model, np.stack([line, 10 * line]), 7, window=4)
    np.testing.assert_allclose(several, np.stack([ahead, 10 * ahead]))
    assert forecast(model, line.tolist(), 1, window=10).shape == (1, 2)


def test_only_the_last_window_counts():
    history = np.concatenate((np.random.default_rng(0).normal(size=20), np.arange(4.0)))
    np.testing.assert_allclose(forecast(Continue(), history, 3, window=4), [4.0, 5.0, 6.0])


@pytest.mark.parametrize("n_features", [1, 2])
@pytest.mark.parametrize("horizon", [1, 3])
def test_a_spiking_regressor_forecasts_sines(n_features, horizon):
    series = SINES[:, :n_features]
    X, y = make_windows(series[:120], 12, horizon)
    model = regressor(**NEURONS).fit(X, y)
    assert model.predict(X).shape == y.shape
    assert model.score(X, y) > 0.95
    found = forecast(model, series[:120], 25, window=12)
    assert found.shape == (25, n_features)
    assert np.sqrt(np.mean(np.square(found - series[120:145]))) < 0.4  # of 0.7, the standard deviation of a sine
    one = forecast(model, series[:120], 1, window=12)
    np.testing.assert_array_equal(one[0], model.predict(series[None, 108:120]).reshape(horizon, -1)[0])


def test_a_pipeline_forecasts():
    X, y = make_windows(100 + 10 * SINES[:, 0], 12)
    model = make_pipeline(SequenceScaler(), regressor(**NEURONS)).fit(X, y)
    found = forecast(model, 100 + 10 * SINES[:, 0], 10, window=12)
    assert found.shape == (10,)
    assert 80 < found.min() < found.max() < 120


BAD = {
    "a short series": (lambda: make_windows(np.arange(5.0), 4, 2), "at least 6 steps .* got 5 in series 0"),
    "a short series among others": (lambda: make_windows([np.arange(9.0), np.arange(3.0)], 4), "got 3 in series 1"),
    "window": (lambda: make_windows(SINES, 0), "window to be a positive integer"),
    "horizon": (lambda: make_windows(SINES, 2, 0), "horizon to be a positive integer"),
    "stride": (lambda: make_windows(SINES, 2, stride=1.5), "stride to be a positive integer"),
    "gaps": (lambda: make_windows(np.full(9, np.nan), 2), "fill the gaps with SequenceImputer"),
    "infinite": (lambda: make_windows(np.full(9, np.inf), 2), "infinite values"),
    "no series": (lambda: make_windows([], 2), "or nothing"),
    "a number": (lambda: make_windows(3.0, 2), "got 0 axes"),
    "four axes": (lambda: make_windows(SINES[None, None], 2), "got 4 axes"),
    "text": (lambda: make_windows(["a", "b", "c"], 1), "to be real numbers, got text"),
    "features that differ": (lambda: make_windows([SINES, SINES[:, :1]], 2), "same number of features"),
    "a short history": (
        lambda: forecast(Continue(), np.arange(3.0), 2, window=4),
        "history of at least 4 steps, the window of the model, got 3",
    ),
    "no steps ahead": (lambda: forecast(Continue(), SINES, 0, window=4), "n_steps to be a positive integer"),
    "gaps in a history": (lambda: forecast(Continue(), np.full(9, np.nan), 2, window=4), "SequenceImputer"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case):
    call, complaint = BAD[case]
    with pytest.raises(InvalidInputError, match=complaint) as caught:
        call()
    assert_one_sentence(caught.value)


def test_a_model_of_other_features_is_one_sentence():
    class Three:
        def predict(self, windows):
            return np.zeros((len(windows), 3))

    with pytest.raises(InvalidInputError, match="predicts all 2 features of a step, got 3 outputs"):
        forecast(Three(), SINES, 4, window=5)
