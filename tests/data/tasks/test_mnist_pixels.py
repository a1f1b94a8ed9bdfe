import numpy as np
import pytest
from small_models import assert_one_sentence

from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data.tasks import make_task, mnist_pixels, mnist_seq


@pytest.mark.usefixtures("stand_in")
def test_all_images_are_used_and_the_last_are_for_validation():
    task = mnist_pixels(n_val=4)
    assert [len(data) for data in (task.train, task.val, task.test)] == [12, 4, 10]
    assert list(task.splits) == ["train", "val", "test"]
    assert task.train.inputs.shape[1:] == (784, 1)
    raster = mnist_seq(1, n_train=12, n_val=4, n_test=10)
    np.testing.assert_array_equal(task.val.inputs[:, :, 0], raster.val.inputs[:, 0])


@pytest.mark.usefixtures("stand_in")
def test_a_seed_decides_the_order_and_zero_is_one():
    raster, zero, one = (mnist_pixels(seed, n_val=4).test.inputs for seed in (False, 0, 1))
    assert not np.array_equal(zero, raster)
    assert not np.array_equal(zero, one)
    np.testing.assert_array_equal(np.sort(zero, axis=1), np.sort(raster, axis=1))
    np.testing.assert_array_equal(make_task("mnist_pixels", permuted=1, n_val=4).test.inputs, one)


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("arguments", [{"permuted": True}, {"n_val": 16}, {"n_val": 0}])
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(InvalidInputError) as error:
        mnist_pixels(**arguments)
    assert_one_sentence(error.value)


@pytest.mark.usefixtures("stand_in")
def test_copies_follow_the_training_images():
    plain, task = mnist_pixels(n_val=4), mnist_pixels(n_val=4, n_copies=2)
    assert [len(data) for data in (task.train, task.val, task.test)] == [36, 4, 10]
    np.testing.assert_array_equal(task.train.inputs[:12], plain.train.inputs)
    assert task.settings["n_copies"] == 2
