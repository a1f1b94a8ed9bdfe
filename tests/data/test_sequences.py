"""Sequences: raw data, padding, what is refused; and sequences with their targets."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from small_models import assert_one_sentence

import cvxsnn as cs
from cvxsnn import InvalidInputError
from cvxsnn.core.seeds import child_generator
from cvxsnn.data import Sequences, TrainingSet
from cvxsnn.data.sequences import as_inputs, deal_groups, similar_lengths

NUMBERS = st.floats(-1e6, 1e6)
INPUTS = torch.randn(6, 4, 3, generator=torch.Generator().manual_seed(0))
LABELS = np.array([0, 1, 0, 1, 1, 0])


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 3), st.data())
def test_sequences_are_padded_with_zeros_at_the_end(lengths, n_features, data):
    parts = [data.draw(arrays.arrays(np.float64, (length, n_features), elements=NUMBERS)) for length in lengths]
    found = Sequences.from_raw(parts)
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
    for given_data in (data.astype(dtype), list(data.astype(dtype)), torch.tensor(data.astype(dtype))):
        found = Sequences.from_raw(given_data)
        assert found.inputs.dtype == torch.float64
        assert found.lengths is None
        np.testing.assert_array_equal(found.inputs, data)


def test_a_tensor_with_a_gradient_is_read_too():
    data = torch.ones(2, 3, 1, requires_grad=True)
    np.testing.assert_array_equal(Sequences.from_raw(data).inputs, np.ones((2, 3, 1)))
    np.testing.assert_array_equal(Sequences.from_raw(list(data)).inputs, np.ones((2, 3, 1)))


def test_a_list_of_unequal_sequences_is_sent_to_from_raw():
    with pytest.raises(InvalidInputError, match=r"use Sequences\.from_raw, which pads"):
        Sequences([np.ones((2, 3)), np.ones((4, 3))])


def test_sequences_of_equal_length_are_inputs():
    inputs = torch.ones(2, 3, 1)
    assert torch.equal(as_inputs(Sequences(inputs)), inputs)
    with pytest.raises(InvalidInputError, match=r"equal length, got .* lengths 2 to 3.*: crop them"):
        as_inputs(Sequences(inputs, [3, 2]))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ([np.ones((2, 3)), np.ones((2, 4))], r"same number of features per step, got \[3, 4\]"),
        ([np.ones((2, 3)), np.ones((0, 3))], "at least one step per sequence, got none in sequence 1"),
        ([np.ones((2, 3)), np.ones(3)], r"sequence 1 to have shape \(n_steps, n_features\), got \(3,\)"),
        ([[[1.0], [2.0, 3.0]]], "sequence 0 to be numbers in rows of equal length"),
        ([[["one"]]], "sequence 0 to be real numbers, got text"),
        (np.full((1, 1, 1), "one"), "sequences to be real numbers, got text"),
        (np.full((1, 1, 1), 1j), "sequences to be real numbers, got complex ones"),
        (np.ones((2, 0, 3)), r"non-empty sequences, got shape \(2, 0, 3\)"),
        ([np.ones((1, 2)), np.full((3, 2), np.nan)], "finite sequences, got NaN: fill the gaps with SequenceImputer"),
        (np.full((2, 2, 2), -np.inf), "finite sequences, got infinite values"),
        (np.array([[[np.nan], [np.inf]]]), "finite sequences, got infinite values"),
    ],
)
def test_what_is_no_sequence_is_refused_in_one_sentence(data, complaint):
    with pytest.raises(InvalidInputError, match=complaint) as caught:
        Sequences.from_raw(data)
    assert_one_sentence(caught.value)


def test_a_split_of_a_task_becomes_a_training_set():
    task = cs.tasks.addition(2, 3, n_train=5, n_val=2, n_test=2, n_test_ood=2)
    data = TrainingSet.of(task.train)
    assert len(data) == 5
    assert np.array_equal(data.inputs.numpy(), task.train.inputs)
    assert data.targets.keys() == {"sum", "carry"}
    assert TrainingSet.of(data) is data


def test_some_of_the_sequences_keep_their_targets_weights_and_lengths():
    data = TrainingSet(Sequences(INPUTS, [1, 2, 3, 4, 1, 2]), {"label": LABELS}, torch.arange(6.0))
    assert data.groups is None
    taken = data.take(torch.tensor([4, 1]))
    assert torch.equal(taken.inputs, INPUTS[[4, 1]])
    assert taken.targets["label"].tolist() == [1, 1]
    assert taken.sample_weight.tolist() == [4.0, 1.0]
    assert taken.sequences.lengths.tolist() == [1, 2]


def test_moving_keeps_everything():
    given = TrainingSet(Sequences(INPUTS, [1, 2, 3, 4, 1, 2]), {"label": LABELS}, torch.arange(6.0), LABELS)
    data = given.to("cpu")
    assert data.groups.tolist() == LABELS.tolist()
    assert torch.equal(data.inputs, INPUTS)
    assert data.sample_weight.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.sequences.lengths.tolist() == [1, 2, 3, 4, 1, 2]


def test_lengths_that_fill_every_sequence_are_none():
    assert TrainingSet(Sequences(INPUTS, np.full(6, 4)), {"label": LABELS}).sequences.lengths is None


def test_some_of_the_sequences_keep_their_groups():
    data = TrainingSet(INPUTS, {"label": LABELS}, groups=np.array([5, 5, 7, 7, 7, 9]))
    assert data.take(torch.tensor([4, 1, 2])).groups.tolist() == [7, 5, 7]
    assert data.take(torch.tensor([4, 1, 5])).groups is None  # each is its own


@given(st.integers(0, 2**31), st.integers(4, 30), st.integers(2, 6), st.integers(1, 3))
def test_groups_are_dealt_whole_and_no_fold_is_empty(seed, n_groups, n_folds, n_classes):
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.arange(n_groups).repeat(rng.integers(1, 6, n_groups)))
    labels = rng.integers(0, n_classes, len(groups))
    owners = [set(groups[labels == label]) for label in np.unique(labels)]
    alone = set().union(*(own for own in owners if len(own) == 1))
    if n_groups - len(alone) < 2:
        with pytest.raises(InvalidInputError, match="two groups or more that can be left out"):
            deal_groups(groups, labels, n_folds, rng)
        return
    folds = deal_groups(groups, labels, n_folds, rng)
    for group in range(n_groups):
        (fold,) = set(folds[groups == group])
        assert (fold == -1) == (group in alone)
    assert set(folds) - {-1} == set(range(min(n_folds, n_groups - len(alone))))


def test_groups_are_dealt_by_size_and_class_and_the_seed():
    sizes, classes = np.array([40, 10, 10, 10, 10, 20, 20, 20, 20]), np.array([0, 0, 0, 0, 0, 1, 1, 1, 1])
    groups = np.arange(9).repeat(sizes)
    of_first = set()
    for seed in range(8):
        folds = deal_groups(groups, classes[groups], 2, child_generator(seed))
        counts = np.array([np.bincount(folds[classes[groups] == label]) for label in (0, 1)])
        assert counts.tolist() == [[40, 40], [40, 40]]
        of_first.add(folds[0])
    assert of_first == {0, 1}


def test_a_rare_class_weighs_as_much_as_a_frequent_one():
    groups = np.arange(6).repeat(50)
    labels = np.zeros(300, dtype=int)
    labels[[0, 60]] = 1  # one sample each in groups 0 and 1
    for seed in range(8):
        folds = deal_groups(groups, labels, 2, child_generator(seed))
        assert folds[0] != folds[60]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TrainingSet(INPUTS[0], {"label": LABELS}), "got 2 dimensions"),
        (lambda: TrainingSet(INPUTS, {"label": LABELS}, np.ones(5)), r"each of 6 sequences, got shape \(5,\)"),
        (lambda: TrainingSet(INPUTS, {"label": LABELS}, np.ones((6, 1))), r"got shape \(6, 1\)"),
        (lambda: TrainingSet(Sequences(INPUTS, np.zeros(6, int)), {"label": LABELS}), "lengths from 1 to 4"),
        (
            lambda: TrainingSet(INPUTS, {"label": LABELS}, groups=np.ones(5, int)),
            "one integer for the group of each of 6",
        ),
        (lambda: TrainingSet(INPUTS, {"label": LABELS}, groups=np.ones(6)), r"got torch.float64 of shape \(6,\)"),
        (lambda: TrainingSet(Sequences(INPUTS, np.ones(5, int)), {"label": LABELS}), "lengths to be 6 integers"),
    ],
)
def test_misuse_is_refused_in_one_sentence(call, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=80))
def test_groups_of_similar_length_have_every_sequence_once_and_little_padding(lengths):
    groups = similar_lengths(torch.tensor(lengths))
    assert sorted(torch.cat(groups).tolist()) == list(range(len(lengths)))
    assert all(group.tolist() == sorted(group.tolist()) for group in groups)
    padded = sum(len(group) * max(lengths[place] for place in group.tolist()) for group in groups)
    assert padded <= 2 * sum(lengths) + 8 * max(lengths)  # a group of their own would cost the short ones more


def test_steps_that_are_padding_everywhere_are_trimmed():
    sequences = Sequences(np.arange(30.0).reshape(3, 5, 2), [2, 5, 2])
    short = sequences.take(torch.tensor([0, 2])).trim()
    assert (short.n_steps, short.lengths) == (2, None)
    assert torch.equal(short.inputs, sequences.inputs[[0, 2], :2])
    whole = sequences.trim()
    assert (whole.n_steps, whole.lengths.tolist()) == (5, [2, 5, 2])
    equal = Sequences(np.ones((3, 5, 2)))
    assert equal.trim() is equal
