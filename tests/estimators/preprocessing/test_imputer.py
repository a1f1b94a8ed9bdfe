import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import assert_one_sentence

from cvxsnn import InvalidInputError, SequenceImputer

NAN = np.nan
FIRST = np.array([[NAN, 1.0], [1.0, NAN], [NAN, NAN], [NAN, 4.0], [7.0, NAN]])
SECOND = np.array([[NAN, 3.0], [NAN, 4.0]])
MEANS = [4.0, 3.0]


@pytest.mark.parametrize(
    ("strategy", "first", "second"),
    [
        ("linear", [[1, 1], [1, 2], [3, 3], [5, 4], [7, 4]], [[4, 3], [4, 4]]),
        ("forward", [[4, 1], [1, 1], [1, 1], [1, 4], [7, 4]], [[4, 3], [4, 4]]),
        ("mean", [[4, 1], [1, 3], [4, 3], [4, 4], [7, 3]], [[4, 3], [4, 4]]),
        ("constant", [[-1, 1], [1, -1], [-1, -1], [-1, 4], [7, -1]], [[-1, 3], [-1, 4]]),
    ],
)
def test_gaps_are_filled(strategy, first, second):
    imputer = SequenceImputer(strategy, fill_value=-1)
    found = imputer.fit_transform([FIRST, SECOND])
    np.testing.assert_allclose(found[0], first)
    np.testing.assert_allclose(found[1], second)
    np.testing.assert_allclose(imputer.statistics_, [-1, -1] if strategy == "constant" else MEANS)


def test_a_feature_without_values_in_new_data_takes_the_training_mean():
    for strategy in ("linear", "forward", "mean"):
        found = SequenceImputer(strategy).fit([FIRST, SECOND]).transform(np.full((2, 3, 2), NAN))
        np.testing.assert_allclose(found, np.broadcast_to(MEANS, (2, 3, 2)))


def test_a_feature_without_any_value_is_one_sentence():
    data = np.ones((3, 4, 3))
    data[:, :, 1] = NAN
    with pytest.raises(InvalidInputError, match=r"only NaN for \[1\]: drop such features, or fill them") as caught:
        SequenceImputer().fit(data)
    assert_one_sentence(caught.value)
    assert (SequenceImputer("constant", fill_value=2.0).fit_transform(data)[:, :, 1] == 2.0).all()


def test_forward_uses_no_later_value():
    rng = np.random.default_rng(0)
    data = np.where(rng.random((1, 12, 2)) < 0.4, NAN, rng.normal(size=(1, 12, 2)))
    imputer = SequenceImputer("forward").fit([FIRST])
    whole = imputer.transform(data)
    for n_steps in range(1, 12):
        np.testing.assert_array_equal(imputer.transform(data[:, :n_steps]), whole[:, :n_steps])


@given(st.data(), st.sampled_from(["linear", "forward", "mean", "constant"]))
@settings(max_examples=40, deadline=None)
def test_known_values_stay_gaps_go_and_fills_are_within_range(data, strategy):
    seed, share = data.draw(st.integers(0, 10**6)), data.draw(st.floats(0, 0.95))
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(length, 2)) for length in rng.integers(1, 9, 5)]
    parts.append(np.zeros((1, 2)))  # every feature has a value
    gaps = [np.where(rng.random(part.shape) < share, NAN, part) for part in parts[:-1]] + parts[-1:]
    found = SequenceImputer(strategy).fit_transform(gaps)
    known = np.concatenate(gaps)
    for feature in range(2):
        values = np.concatenate(found)[:, feature]
        is_known = ~np.isnan(known[:, feature])
        np.testing.assert_array_equal(values[is_known], known[is_known, feature])
        assert np.nanmin(known[:, feature]) - 1e-12 <= values.min()
        assert values.max() <= np.nanmax(known[:, feature]) + 1e-12
