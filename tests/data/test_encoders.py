import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data.encoders import encode_delta, encode_latency, encode_rate

UNIT = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 5)), elements=st.floats(0, 1))
ENCODERS = [encode_rate, encode_latency]


@pytest.mark.parametrize("encode", ENCODERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_give_arrays_and_tensors_the_same_tensors(encode, dtype):
    values = np.random.default_rng(0).random((3, 4)).astype(dtype)
    values.flags.writeable = False
    spikes = encode(values, 6)
    assert spikes.shape == (3, 6, 4)
    assert spikes.dtype == dtype
    same = encode(torch.tensor(values), 6)
    assert isinstance(same, torch.Tensor)
    assert same.dtype == getattr(torch, np.dtype(dtype).name)
    np.testing.assert_array_equal(same, spikes)


@pytest.mark.parametrize("encode", ENCODERS)
def test_integers_become_float32(encode):
    assert encode(np.array([[0, 1]]), 3).dtype == np.float32


@pytest.mark.parametrize("encode", ENCODERS)
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([[0.5, np.nan]]), r"within \[0, 1\], got some from nan"),
        (np.array([[0.5, 1.5]]), r"within \[0, 1\], got some from 0.5 to 1.5: scale them"),
        (np.array([[-0.1, 0.5]]), r"got some from -0.1 to 0.5"),
        (np.zeros(3), r"shape \(n_samples, n_features\), got shape \(3,\)"),
        (np.zeros((0, 3)), r"got shape \(0, 3\)"),
        (np.zeros((1, 1), dtype=complex), "real numbers"),
    ],
)
def test_values_that_are_no_rates_are_refused(encode, values, message):
    for own in (values, torch.tensor(values)):
        with pytest.raises(InvalidInputError, match=message) as caught:
            encode(own, 5)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("encode", ENCODERS)
@pytest.mark.parametrize("n_steps", [0, -1, 2.5, True])
def test_steps_must_be_a_positive_integer(encode, n_steps):
    with pytest.raises(InvalidInputError, match="n_steps to be a positive integer"):
        encode(np.zeros((1, 1)), n_steps)


def test_rates_are_the_values():
    values = np.array([[0.0, 0.1, 0.5, 0.9, 1.0]])
    rates = encode_rate(values, 20_000)[0].mean(0)
    assert rates[0] == 0
    assert rates[-1] == 1
    np.testing.assert_allclose(rates, values[0], atol=5 * 0.5 / np.sqrt(20_000))  # five standard deviations


def test_rates_draw_each_step_and_feature_by_itself():
    spikes = encode_rate(np.full((2, 3), 0.5), 10_000).transpose(0, 2, 1).reshape(6, -1)
    correlation = np.corrcoef(np.concatenate([spikes[:, 1:], spikes[:, :-1]]))
    np.testing.assert_allclose(correlation, np.eye(12), atol=5 / np.sqrt(10_000))


def test_seed_alone_moves_the_rates():
    values = np.full((2, 3), 0.5)
    np.testing.assert_array_equal(encode_rate(values, 50), encode_rate(values, 50, seed=0))
    assert (encode_rate(values, 50) != encode_rate(values, 50, seed=1)).any()
    # The same draws for other values: what fires at a lower rate fires at a higher one too.
    assert (encode_rate(values, 50) <= encode_rate(values + 0.2, 50)).all()
    with pytest.raises(InvalidInputError, match="seed to be a non-negative integer"):
        encode_rate(values, 50, seed=-1)


def step_of(values, n_steps, **options):
    """When each value of a row fires; -1 for never."""
    spikes = encode_latency(np.array([values]), n_steps, **options)[0]
    assert (spikes.sum(0) <= 1).all()
    return np.where(spikes.any(0), spikes.argmax(0), -1).tolist()


def test_latencies_follow_their_formulas():
    assert step_of([1.0, 0.75, 0.5, 0.01, 0.009, 0.0], 5) == [0, 1, 2, 4, -1, -1]
    decades = step_of([1.0, 0.1, 0.01, 0.001, 0.0001], 7, scale="logarithmic", threshold=1e-3)
    assert decades == [0, 2, 4, 6, -1]


def test_halves_go_to_the_even_step():
    assert step_of([0.5, 0.25, 0.75], 3) == [1, 2, 0]


@given(values=UNIT, n_steps=st.integers(1, 9), scale=st.sampled_from(["linear", "logarithmic"]))
def test_larger_values_never_fire_later(values, n_steps, scale):
    spikes = encode_latency(values, n_steps, scale=scale)
    np.testing.assert_array_equal(spikes.sum(1), values >= 0.01)
    order = np.argsort(values, axis=1)
    steps = np.take_along_axis(np.where(spikes.any(1), spikes.argmax(1), n_steps), order, axis=1)
    assert (np.diff(steps, axis=1) <= 0).all()


@pytest.mark.parametrize("threshold", [0, 1, -0.5, np.nan])
def test_latency_needs_a_threshold_between_zero_and_one(threshold):
    with pytest.raises(InvalidInputError, match="threshold above 0 and below 1"):
        encode_latency(np.zeros((1, 1)), 5, threshold=threshold)


def test_latency_knows_two_scales():
    with pytest.raises(InvalidInputError, match="scale to be one of 'linear', 'logarithmic', got 'square'"):
        encode_latency(np.zeros((1, 1)), 5, scale="square")


def test_changes_fire_on_or_off():
    sequence = np.array([[1.0, 2.0, 2.25, 1.25, 1.0]]).T[None]
    assert encode_delta(sequence, 0.5)[0].T.tolist() == [[0, 1, 0, 0, 0], [0, 0, 0, 1, 0]]
    assert encode_delta(sequence, 1.0)[0].T.tolist() == [[0, 1, 0, 0, 0], [0, 0, 0, 1, 0]]  # ties fire
    assert encode_delta(torch.tensor(sequence), 1.5).sum() == 0


@given(arrays(np.float64, (2, 6, 3), elements=st.floats(-10, 10)))
def test_on_and_off_change_places_when_the_sign_does(sequences):
    spikes, negated = encode_delta(sequences, 0.5), encode_delta(-sequences, 0.5)
    np.testing.assert_array_equal(spikes[:, :, :3], negated[:, :, 3:])
    assert not (spikes[:, :, :3] * spikes[:, :, 3:]).any()
    assert not spikes[:, 0].any()


@pytest.mark.parametrize(
    ("sequences", "threshold", "message"),
    [
        (np.zeros((2, 3)), 0.1, r"expected sequences of shape \(n_samples, n_steps, n_features\)"),
        (np.full((1, 2, 1), np.nan), 0.1, "finite sequences"),
        (np.zeros((1, 2, 1)), 0.0, "threshold to be a number above zero, got 0.0"),
        (np.zeros((1, 2, 1)), np.nan, "threshold to be a number above zero, got nan"),
    ],
)
def test_senseless_changes_are_refused(sequences, threshold, message):
    with pytest.raises(InvalidInputError, match=message):
        encode_delta(sequences, threshold)


def time_last(spikes):
    """From snnTorch's (n_steps, n_samples, n_features) to ours."""
    return spikes.transpose(0, 1)


def test_linear_latencies_are_those_of_snntorch():
    spikegen = pytest.importorskip("snntorch.spikegen")
    values = torch.from_numpy(np.random.default_rng(0).random((40, 30), dtype=np.float32))
    theirs = spikegen.latency(values, num_steps=12, threshold=0.05, linear=True, normalize=True, clip=True)
    assert torch.equal(encode_latency(values, 12, threshold=0.05), time_last(theirs))


def test_changes_are_those_of_snntorch():
    spikegen = pytest.importorskip("snntorch.spikegen")
    sequences = torch.from_numpy(np.random.default_rng(0).random((8, 20, 5), dtype=np.float32))
    theirs = time_last(spikegen.delta(time_last(sequences), threshold=0.2, padding=True, off_spike=True))
    spikes = encode_delta(sequences, 0.2)
    assert torch.equal(spikes[:, :, :5] - spikes[:, :, 5:], theirs)


def test_rates_are_distributed_as_those_of_snntorch():
    spikegen = pytest.importorskip("snntorch.spikegen")
    values = torch.linspace(0, 1, 21)[None]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = time_last(spikegen.rate(values, num_steps=20_000))[0]
    ours = encode_rate(values, 20_000)[0]
    for moment in (torch.mean, torch.var):
        torch.testing.assert_close(moment(ours, 0), moment(theirs, 0), atol=7 * 0.5 / 20_000**0.5, rtol=0)
