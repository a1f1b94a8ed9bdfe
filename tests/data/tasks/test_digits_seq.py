import numpy as np
import pytest
from sklearn.datasets import load_digits

from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data.tasks import digits_seq


def rows(*splits):
    """The images of these splits with their labels, as sorted rows."""
    table = np.concatenate([np.column_stack([data.inputs.reshape(len(data), 64), data.targets]) for data in splits])
    return table[np.lexsort(table.T)]


def test_splits_share_all_images_out():
    task = digits_seq()
    assert (len(task.train), len(task.val), len(task.test)) == (1000, 297, 500)
    assert task.finetune is None
    assert task.finetune_val is None
    images, labels = load_digits(return_X_y=True)
    everything = np.column_stack([images / 16, labels])
    np.testing.assert_array_equal(rows(task.train, task.val, task.test), everything[np.lexsort(everything.T)])


def test_every_split_has_the_classes_in_the_same_proportions():
    task = digits_seq(seed=3)
    overall = np.bincount(load_digits().target) / 1797
    for data in task.splits.values():
        np.testing.assert_allclose(np.bincount(data.targets), overall * len(data), atol=1.5)


@pytest.mark.parametrize("n_steps", [1, 2, 16, 64])
def test_steps_cut_the_same_images_in_raster_order(n_steps):
    data = digits_seq(n_steps).test
    assert data.inputs.shape == (500, n_steps, 64 // n_steps)
    np.testing.assert_array_equal(data.inputs.reshape(500, 8, 8), digits_seq(8).test.inputs)


def test_seed_alone_chooses_the_split():
    np.testing.assert_array_equal(digits_seq().train.inputs, digits_seq().train.inputs)
    assert not np.array_equal(digits_seq().train.targets, digits_seq(seed=1).train.targets)


def test_steps_must_divide_the_pixels():
    with pytest.raises(InvalidInputError, match="divide 64 pixels, got 7: pass one of 1, 2, 4, 8, 16, 32, 64"):
        digits_seq(7)
