import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data.tasks import first_last_xor

SMALL = {"n_train": 40, "n_val": 20, "n_test": 30}


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 30), st.integers(1, 50), st.integers(0, 100))
def test_label_is_the_exclusive_or_and_the_four_pairs_are_balanced(n_steps, size, seed):
    task = first_last_xor(n_steps, encoding="bit", n_train=size, n_val=size, n_test=size, seed=seed)
    for data in task.splits.values():
        first, last = data.inputs[:, 0, 0].astype(int), data.inputs[:, -1, 0].astype(int)
        np.testing.assert_array_equal(data.targets, (first != last).astype(int))
        pairs = np.bincount(2 * first + last, minlength=4)
        assert pairs.max() - pairs.min() <= 1


def test_default_sizes_are_those_of_the_tables():
    task = first_last_xor(14)
    assert {split: data.inputs.shape for split, data in task.splits.items()} == {
        "train": (2000, 14, 2),
        "val": (2000, 14, 2),
        "test": (4000, 14, 2),
        "finetune": (2000, 14, 2),
        "finetune_val": (2000, 14, 2),
    }
    assert task.n_classes == {"label": 2}
    assert task.feedback is None
    assert not task.ood


def test_one_hot_says_the_same_as_the_bit():
    one_hot, bit = first_last_xor(5, **SMALL), first_last_xor(5, encoding="bit", **SMALL)
    np.testing.assert_array_equal(one_hot.train.inputs.sum(axis=2), 1)
    np.testing.assert_array_equal(one_hot.train.inputs[:, :, 1:], bit.train.inputs)
    np.testing.assert_array_equal(one_hot.train.targets, bit.train.targets)


def test_bits_between_are_balanced_whatever_the_label():
    data = first_last_xor(6, encoding="bit", **(SMALL | {"n_train": 20_000})).train
    for label in (0, 1):
        shares = data.take(data.targets == label).inputs[:, 1:-1, 0].mean(axis=0)
        np.testing.assert_allclose(shares, 1 / 2, atol=6 * np.sqrt(1 / 4 / 10_000))  # six standard errors


def test_rows_are_shuffled():
    first = first_last_xor(4, encoding="bit", **SMALL).train.inputs[:, 0, 0]
    assert not np.array_equal(first, np.sort(first))
    assert not np.array_equal(first[:-4], first[4:])


def test_changing_one_size_moves_no_other_split_and_splits_differ():
    task, larger = first_last_xor(8, **SMALL), first_last_xor(8, **(SMALL | {"n_train": 60}))
    np.testing.assert_array_equal(task.test.inputs, larger.test.inputs)
    np.testing.assert_array_equal(task.finetune_val.inputs, larger.finetune_val.inputs)
    assert not np.array_equal(task.train.inputs, task.finetune.inputs)
    assert not np.array_equal(task.train.inputs, first_last_xor(8, **SMALL, seed=1).train.inputs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_steps": 1}, "n_steps to be an integer of at least 2, got 1"),
        ({"n_steps": 4, "encoding": "gray"}, "'one-hot', 'bit', got 'gray'"),
        ({"n_steps": 4, "n_test": -3}, "n_test to be a positive integer, got -3"),
    ],
)
def test_senseless_arguments_are_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        first_last_xor(**arguments)
