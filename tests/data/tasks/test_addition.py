import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import decode_digits, decode_operands

from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data.tasks import Feedback, addition

SMALL = {"n_train": 20, "n_val": 10, "n_test": 15, "n_test_ood": 12}
bases = st.integers(2, 12)


@settings(max_examples=30, deadline=None)
@given(bases, st.integers(1, 30), st.sampled_from(["carry", "direct"]), st.integers(0, 100))
def test_sum_digits_are_those_of_the_integer_sum(base, n_digits, variant, seed):
    task = addition(base, n_digits, variant, **SMALL, seed=seed)
    for data in task.splits.values():
        first, second = decode_operands(data, base)
        assert decode_digits(data.heads["sum"], base) == [a + b for a, b in zip(first, second, strict=True)]


@settings(max_examples=30, deadline=None)
@given(bases, st.integers(1, 12), st.integers(0, 100))
def test_carry_is_what_the_columns_so_far_overflow(base, n_digits, seed):
    data = addition(base, n_digits, **SMALL, ood_digits=(), seed=seed).train
    first, second = decode_operands(data, base)
    for step in range(data.n_steps):
        modulus = base ** (step + 1)
        expected = [(a % modulus + b % modulus) // modulus for a, b in zip(first, second, strict=True)]
        assert data.heads["carry"][:, step].tolist() == expected


def test_a_sum_worked_by_hand():
    # Operands of one digit in base 10 make two columns: find 7 + 8 = 15 among the draws.
    data = addition(10, 1, n_train=2000, n_val=1, n_test=1, ood_digits=()).train
    (rows,) = np.nonzero((data.inputs[:, 0, :2] == np.float32([7 / 9, 8 / 9])).all(axis=1))
    one = data.take(rows[:1])
    np.testing.assert_array_equal(one.inputs, np.float32([[[7 / 9, 8 / 9, 0], [0, 0, 1]]]))
    np.testing.assert_array_equal(one.heads["sum"], [[5, 1]])
    np.testing.assert_array_equal(one.heads["carry"], [[1, 0]])


def test_carry_input_is_the_carry_of_the_step_before():
    for data in addition(3, **SMALL).splits.values():
        np.testing.assert_array_equal(data.inputs[:, 0, 2], 0)
        np.testing.assert_array_equal(data.inputs[:, 1:, 2], data.heads["carry"][:, :-1])


def test_inputs_lie_between_0_and_1_and_reach_both():
    operands = addition(5, **SMALL).train.inputs[:, :-1, :2]
    np.testing.assert_array_equal(np.unique(operands), np.float32([0, 0.25, 0.5, 0.75, 1]))


def test_last_column_has_no_operand_digits():
    for data in addition(3, **SMALL).splits.values():
        np.testing.assert_array_equal(data.inputs[:, -1, :2], 0)


def test_paper_sizes_are_the_default():
    task = addition(3)
    assert {split: (data.n_samples, data.n_steps, data.n_features) for split, data in task.splits.items()} == {
        "train": (2304, 6, 3),
        "val": (512, 6, 3),
        "test": (1024, 6, 3),
        "finetune": (2304, 6, 3),
        "finetune_val": (512, 6, 3),
        "ood 2x": (1024, 11, 3),
        "ood 5x": (1024, 26, 3),
        "ood 10x": (1024, 51, 3),
    }
    assert task.n_classes == {"sum": 3, "carry": 2}
    assert task.feedback == Feedback(head="carry", feature=2)


def test_base_2_has_the_papers_20_digits_too():
    assert {key: data.n_steps - 1 for key, data in addition(2, **SMALL).ood.items()} == {
        "2x": 10,
        "4x": 20,
        "5x": 25,
        "10x": 50,
    }


def test_any_longer_lengths_can_be_asked_for():
    assert {key: data.n_steps for key, data in addition(3, 4, **SMALL, ood_digits=[6, 40]).ood.items()} == {
        "1.5x": 7,
        "10x": 41,
    }


def test_direct_variant_has_the_same_operands_and_no_carry():
    carry, direct = addition(3, **SMALL), addition(3, variant="direct", **SMALL)
    assert direct.feedback is None
    assert direct.n_classes == {"sum": 3}
    for split, data in direct.splits.items():
        np.testing.assert_array_equal(data.inputs, carry.splits[split].inputs[:, :, :2])
        np.testing.assert_array_equal(data.heads["sum"], carry.splits[split].heads["sum"])


def test_changing_one_size_moves_no_other_split():
    task, larger = addition(3, **SMALL), addition(3, **(SMALL | {"n_train": 50}), ood_digits=[10])
    for split in ("val", "test", "finetune_val", "ood 2x"):
        np.testing.assert_array_equal(task.splits[split].inputs, larger.splits[split].inputs)


def test_a_smaller_split_is_the_beginning_of_a_larger_one():
    small, large = addition(3, **SMALL).train, addition(3, **(SMALL | {"n_train": 50})).train
    np.testing.assert_array_equal(small.inputs, large.take(slice(20)).inputs)


def test_splits_and_seeds_are_separate_draws():
    task, other = addition(5, **SMALL), addition(5, **SMALL, seed=1)
    assert not np.array_equal(task.train.inputs, task.finetune.inputs)
    assert not np.array_equal(task.val.inputs, task.finetune_val.inputs)
    assert not np.array_equal(task.train.inputs, other.train.inputs)


def test_digits_are_uniform():
    digits = np.rint(addition(4, n_train=20_000, n_val=1, n_test=1, ood_digits=()).train.inputs[:, :-1, :2] * 3)
    shares = np.bincount(digits.astype(int).ravel(), minlength=4) / digits.size
    np.testing.assert_allclose(shares, 1 / 4, atol=6 * np.sqrt(3 / 16 / digits.size))  # six standard errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"base": 1}, "base to be an integer of at least 2, got 1"),
        ({"base": 2.0}, "base"),
        ({"n_digits": 0}, "n_digits to be a positive integer"),
        ({"variant": "both"}, "'carry', 'direct', got 'both'"),
        ({"n_val": 0}, "n_val to be a positive integer"),
        ({"ood_digits": [10, 0]}, "ood_digits to be a positive integer"),
        ({"seed": -1}, "seed to be a non-negative integer"),
    ],
)
def test_senseless_arguments_are_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        addition(**arguments)
