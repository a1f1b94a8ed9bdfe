from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cvxsnn.core.errors import InvalidInputError
from cvxsnn.theory.integers import as_integers, narrow


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=6))
def test_integers_times_their_unit_are_the_values_exactly(values):
    integers, unit = as_integers(np.array(values))
    assert [Fraction(int(x)) * Fraction(unit) for x in integers] == [Fraction(x) for x in values]
    assert Fraction(unit).numerator == 1 or Fraction(unit).denominator == 1
    assert not np.any(integers) or any(int(x) % 2 for x in integers)


def test_integers_are_int64_only_where_they_are_small():
    assert as_integers(torch.tensor([0.5, -3.0]))[0].dtype == np.int64
    assert as_integers(np.array([2.0**40, 1.0]))[0].dtype == object
    assert narrow(np.array([2**31 - 1], dtype=object)).dtype == np.int64
    assert narrow(np.array([-(2**31)], dtype=object)).dtype == object


@pytest.mark.parametrize("values", [[np.nan], [np.inf], [1j], ["a"], []])
def test_what_is_no_finite_real_number_is_refused(values):
    with pytest.raises(InvalidInputError, match="expected"):
        as_integers(np.array(values))


def test_integers_have_the_shape_of_the_values():
    weights = torch.tensor([[0.5, 1.0], [0.0, -1.5]], requires_grad=True)
    integers, unit = as_integers(weights)
    assert (integers.tolist(), unit) == ([[1, 2], [0, -3]], 0.5)


def test_the_unit_of_zeros_is_one():
    integers, unit = as_integers(np.zeros((2, 1)))
    assert (integers.tolist(), unit) == ([[0], [0]], 1.0)


def test_no_integers_are_small():
    assert narrow(np.empty((0, 2), dtype=object)).dtype == np.int64
