import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler
from small_models import make_lists
from tolerances import ROUNDING

from cvxsnn import SequenceScaler

LISTS = [part * [1.0, 100.0, 0.01] + [0.0, 5.0, -3.0] for part in make_lists()]


def test_features_are_scaled_as_scikit_learn_scales_the_rows_of_all_steps():
    rows = np.concatenate(LISTS)
    scaler, reference = SequenceScaler().fit(LISTS), StandardScaler().fit(rows)
    np.testing.assert_allclose(scaler.mean_, reference.mean_, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(scaler.scale_, reference.scale_, rtol=ROUNDING)
    found = np.concatenate(scaler.transform(LISTS))
    np.testing.assert_allclose(found, reference.transform(rows), rtol=0, atol=ROUNDING)


def test_a_common_scale_keeps_the_proportions_of_the_features():
    rows = np.concatenate(LISTS)
    found = np.concatenate(SequenceScaler("common").fit_transform(LISTS))
    np.testing.assert_allclose(found.std(0) / found[:, 0].std(), rows.std(0) / rows[:, 0].std(), rtol=ROUNDING)
    assert np.sqrt(np.mean(found.std(0) ** 2)) == pytest.approx(1.0)
    np.testing.assert_allclose(found.mean(0), 0.0, atol=ROUNDING)


def test_each_sequence_has_mean_zero_and_spread_one_of_its_own():
    steps = np.random.default_rng(0).normal(size=(5, 20, 2)) * [[[1.0, 50.0]]] * np.arange(1, 6)[:, None, None] + 7
    found = SequenceScaler(per_sequence=True).fit_transform(steps)
    np.testing.assert_allclose(found.mean(1), 0.0, atol=ROUNDING)
    np.testing.assert_allclose(found.std(1), 1.0, rtol=ROUNDING)
    common = SequenceScaler("common", per_sequence=True).fit_transform(steps)
    np.testing.assert_allclose(np.sqrt((common.std(1) ** 2).mean(1)), 1.0, rtol=ROUNDING)
    assert (common[:, :, 0].std(1) < 0.1).all()


def test_constant_features_are_only_centred():
    data = np.stack([np.full((6, 4), 0.1), np.random.default_rng(0).normal(size=(6, 4))], axis=2)
    for parameters in ({}, {"per_sequence": True}, {"scale": "common"}):
        found = SequenceScaler(**parameters).fit_transform(data)
        np.testing.assert_allclose(found[:, :, 0], 0.0, atol=ROUNDING)
        assert found[:, :, 1].std() > 0.5
    assert SequenceScaler().fit(data).scale_[0] == 1.0
    assert (SequenceScaler().fit_transform(data[:1, :1]) == 0).all()


def test_a_floor_bounds_how_much_a_nearly_constant_feature_is_amplified():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(10, 8, 2)) * [1.0, 1e-4]
    assert SequenceScaler().fit_transform(data)[:, :, 1].std() == pytest.approx(1.0)
    scaler = SequenceScaler(floor=0.1).fit(data)
    assert scaler.scale_[1] == pytest.approx(0.1 * np.sqrt(np.mean(data.std((0, 1)) ** 2)))
    assert scaler.scale_[0] == pytest.approx(data[:, :, 0].std())


def test_with_a_floor_flat_sequences_stay_flat():
    data = np.random.default_rng(0).normal(size=(10, 8, 2))
    data[0] = 3 + 1e-6 * data[0]
    amplified = SequenceScaler(per_sequence=True).fit_transform(data)[0]
    assert amplified.std() == pytest.approx(1.0)
    assert abs(SequenceScaler(per_sequence=True, floor=0.1).fit_transform(data)[0]).max() < 1e-4


@given(
    shift=st.floats(-100, 100),
    gain=st.floats(0.01, 100),
    per_sequence=st.booleans(),
    scale=st.sampled_from(["feature", "common"]),
)
@settings(max_examples=30, deadline=None)
def test_units_do_not_matter(shift, gain, per_sequence, scale):
    parts = [np.random.default_rng([1, length]).normal(size=(length, 2)) for length in (5, 9, 3)]
    scaler = SequenceScaler(scale, per_sequence=per_sequence, floor=0.5)
    found = scaler.fit_transform([gain * part + shift for part in parts])
    for own, expected in zip(found, scaler.fit_transform(parts), strict=True):
        np.testing.assert_allclose(own, expected, rtol=0, atol=1e-9)
