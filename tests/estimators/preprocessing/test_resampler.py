import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import make_lists
from tolerances import ROUNDING

from cvxsnn import SequenceResampler
from cvxsnn.core.errors import BudgetError

LISTS = make_lists()


@given(length=st.integers(1, 12), n_steps=st.integers(2, 30), seed=st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_values_are_those_of_numpys_interpolation(length, n_steps, seed):
    part = np.random.default_rng(seed).normal(size=(length, 2))
    (found,) = SequenceResampler(n_steps).fit_transform([part])
    places = np.linspace(0, length - 1, n_steps)
    expected = np.stack([np.interp(places, np.arange(length), column) for column in part.T], axis=1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(found[[0, -1]], part[[0, -1]], rtol=0, atol=ROUNDING)


def test_lines_stay_lines_and_the_same_length_changes_nothing():
    line = np.linspace(0, 1, 7)[:, None] * [2.0, -3.0]
    (found,) = SequenceResampler(16).fit_transform([line])
    np.testing.assert_allclose(found, np.linspace(0, 1, 16)[:, None] * [2.0, -3.0], atol=ROUNDING)
    same = SequenceResampler(factor=1).fit_transform(LISTS)
    for own, part in zip(same, LISTS, strict=True):
        np.testing.assert_allclose(own, part, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize(
    ("factor", "length", "expected"), [(0.5, 7, 4), (0.5, 1, 1), (0.01, 9, 1), (2.5, 3, 8), (2, 1, 2)]
)
def test_a_factor_multiplies_the_number_of_steps(factor, length, expected):
    assert SequenceResampler(factor=factor).fit_transform(np.ones((2, length, 3))).shape == (2, expected, 3)


def test_a_single_step_is_the_middle():
    data = np.array([[[0.0], [1.0], [4.0], [9.0]]])
    assert SequenceResampler(1).fit_transform(data).tolist() == [[[2.5]]]
    assert SequenceResampler(1).fit_transform(data[:, :3]).tolist() == [[[1.0]]]
    assert SequenceResampler(3).fit_transform(data[:, :1]).tolist() == [[[0.0]] * 3]


def test_sequences_of_unequal_length_get_equal_length():
    assert {len(part) for part in SequenceResampler(5).fit_transform(LISTS)} == {5}


@pytest.mark.parametrize("options", [{"n_steps": 10**15}, {"n_steps": 10**30}, {"factor": 1e15}, {"factor": 1e308}])
def test_more_steps_than_memory_holds_are_refused(options):
    with pytest.raises(BudgetError, match=r"a resampled sequence to fit into the memory .*: choose fewer steps"):
        SequenceResampler(**options).fit_transform(np.ones((2, 5, 3)))
