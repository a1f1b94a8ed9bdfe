import numpy as np
import pytest

from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data.tasks import Feedback, SequenceData, Task

INPUTS = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
LABELS = np.array([0, 1, 2, 1])
PER_STEP = np.arange(12).reshape(4, 3) % 2


def test_sizes_are_read_from_the_inputs():
    data = SequenceData(INPUTS, LABELS)
    assert (data.n_samples, data.n_steps, data.n_features, len(data)) == (4, 3, 2, 4)


def test_an_unnamed_head_is_called_label():
    np.testing.assert_array_equal(SequenceData(INPUTS, LABELS).heads["label"], LABELS)


def test_heads_may_mix_one_target_a_sequence_and_one_a_step():
    data = SequenceData(INPUTS, {"kind": LABELS, "carry": PER_STEP})
    assert {head: targets.shape for head, targets in data.heads.items()} == {"kind": (4,), "carry": (4, 3)}


def test_arrays_are_kept_as_float32_and_int64():
    data = SequenceData(INPUTS.astype(np.float64), LABELS.astype(np.uint8))
    assert data.inputs.dtype == np.float32
    assert data.targets.dtype == np.int64


def test_arrays_of_the_right_type_are_not_copied():
    data = SequenceData(INPUTS, LABELS)
    assert np.shares_memory(data.inputs, INPUTS)
    assert np.shares_memory(data.take(slice(2)).inputs, INPUTS)


def test_take_keeps_the_order_asked_for_in_inputs_and_every_head():
    taken = SequenceData(INPUTS, {"kind": LABELS, "carry": PER_STEP}).take([3, 0])
    np.testing.assert_array_equal(taken.inputs, INPUTS[[3, 0]])
    np.testing.assert_array_equal(taken.heads["kind"], LABELS[[3, 0]])
    np.testing.assert_array_equal(taken.heads["carry"], PER_STEP[[3, 0]])


def test_take_accepts_a_mask():
    np.testing.assert_array_equal(SequenceData(INPUTS, LABELS).take(LABELS == 1).inputs, INPUTS[[1, 3]])


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (INPUTS[0], LABELS, "shape .n_samples, n_steps, n_features."),
        (np.full_like(INPUTS, np.nan), LABELS, "finite"),
        (np.full(INPUTS.shape, 1e300), LABELS, "finite"),
        (INPUTS, LABELS[:3], r"shape \(4,\) .* or \(4, 3\) .* got shape \(3,\)"),
        (INPUTS, PER_STEP.T, r"got shape \(3, 4\)"),
        (INPUTS, {"sum": PER_STEP, "carry": LABELS[:2]}, "head 'carry'"),
        (INPUTS, LABELS.astype(float), "integers, got float64: number the classes"),
        (INPUTS, np.array(["a", "b", "a", "b"]), "integers, got <U1"),
        (INPUTS, LABELS - 1, "count from 0, got -1"),
        (INPUTS, {}, "at least one head"),
    ],
)
def test_data_that_disagree_are_refused_in_one_sentence(inputs, targets, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        SequenceData(inputs, targets)
    assert "\n" not in str(caught.value)


def make_task(**changes):
    data = SequenceData(INPUTS, {"carry": PER_STEP})
    fields = {"name": "toy", "train": data, "val": data, "test": data, "n_classes": {"carry": 2}}
    return Task(**(fields | changes))


def test_splits_names_every_split_there_is():
    data = SequenceData(INPUTS, {"carry": PER_STEP})
    assert list(make_task().splits) == ["train", "val", "test"]
    assert list(make_task(finetune=data, finetune_val=data, ood={"2x": data}).splits) == [
        "train",
        "val",
        "test",
        "finetune",
        "finetune_val",
        "ood 2x",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_classes": {"carry": 1}}, "below {'carry': 1} in split 'train', got up to"),
        ({"test": SequenceData(INPUTS, LABELS)}, r"heads \['carry'\] in split 'test', .* got 2 and \['label'\]"),
        (
            {"ood": {"2x": SequenceData(INPUTS[:, :, :1], {"carry": PER_STEP})}},
            "2 features .* in split 'ood 2x'",
        ),
        ({"feedback": Feedback("sum", 0)}, r"one of the heads \['carry'\]"),
        ({"feedback": Feedback("carry", 2)}, "feature below 2"),
    ],
)
def test_a_task_whose_parts_disagree_is_refused(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        make_task(**changes)
