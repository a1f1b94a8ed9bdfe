import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from small_models import assert_one_sentence

from cvxsnn import InvalidInputError
from cvxsnn.data.conversion import as_sequences, is_tabular

NUMBERS = st.floats(-1e6, 1e6)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 3), st.data())
def test_sequences_are_padded_with_zeros_at_the_end(lengths, n_features, data):
    parts = [data.draw(arrays.arrays(np.float64, (length, n_features), elements=NUMBERS)) for length in lengths]
    found = as_sequences(parts)
    padded, found = found.inputs.numpy(), found.lengths
    assert padded.shape == (len(parts), max(lengths), n_features)
    assert (found is None) == (len(set(lengths)) == 1)
    if found is not None:
        np.testing.assert_array_equal(found, lengths)
    for row, part in zip(padded, parts, strict=True):
        np.testing.assert_array_equal(row[: len(part)], part)
        assert not row[len(part) :].any()


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint8, bool])
def test_numbers_of_any_type_become_float64(dtype):
    data = np.arange(12).reshape(2, 3, 2) % 2
    for given_data in (data.astype(dtype), list(data.astype(dtype)), torch.from_numpy(data.astype(dtype))):
        found = as_sequences(given_data)
        assert found.inputs.dtype == torch.float64
        assert found.lengths is None
        np.testing.assert_array_equal(found.inputs, data)


def test_a_tensor_with_a_gradient_is_read_too():
    data = torch.ones(2, 3, 1, requires_grad=True)
    np.testing.assert_array_equal(as_sequences(data).inputs, np.ones((2, 3, 1)))
    np.testing.assert_array_equal(as_sequences(list(data)).inputs, np.ones((2, 3, 1)))


@pytest.mark.parametrize(
    ("data", "tabular"),
    [
        (np.ones((2, 3)), True),
        (np.ones((2, 3, 4)), False),
        (torch.ones(2, 3), True),
        (torch.ones(2, 3, 4), False),
        ([[1.0, 2.0], [3.0, 4.0]], True),
        ([[[1.0], [2.0]], [[3.0]]], False),
        ([np.ones((2, 3)), np.ones((1, 3))], False),
        ((torch.ones(2, 3), torch.ones(1, 3)), False),
        ([np.ones(3), np.ones(3)], True),
        (np.ones((2, 3)).astype(object), True),
        (np.ones((2, 3, 4)).astype(object), False),
        ([], True),
        ("text", True),
        (["some", "text"], True),
        (None, True),
        (3.0, True),
    ],
    ids=repr,
)
def test_rows_and_sequences_are_told_apart(data, tabular):
    assert is_tabular(data) is tabular


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ([np.ones((2, 3)), np.ones((2, 4))], r"same number of features a step, got \[3, 4\]"),
        ([np.ones((2, 3)), np.ones((0, 3))], "at least one step a sequence, got none in sequence 1"),
        ([np.ones((2, 3)), np.ones(3)], r"sequence 1 to have shape \(n_steps, n_features\), got \(3,\)"),
        ([[[1.0], [2.0, 3.0]]], "sequence 0 to be numbers of shape"),
        ([[["one"]]], "sequence 0 to be numbers of shape"),
        (np.full((1, 1, 1), "one"), "sequences of real numbers, got <U3"),
        (np.full((1, 1, 1), 1j), "sequences of real numbers, got complex128"),
        (np.ones((2, 0, 3)), r"non-empty sequences, got shape \(2, 0, 3\)"),
        ([np.ones((1, 2)), np.full((3, 2), np.nan)], "finite sequences, got NaN or infinite"),
        (np.full((2, 2, 2), -np.inf), "finite sequences, got NaN or infinite"),
    ],
)
def test_what_is_no_sequence_is_refused_in_one_sentence(data, complaint):
    with pytest.raises(InvalidInputError, match=complaint) as caught:
        as_sequences(data)
    assert_one_sentence(caught.value)
