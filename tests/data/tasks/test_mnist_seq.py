import numpy as np
import pytest

from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data.tasks import mnist, mnist_seq

SIZES = {"n_train": 5, "n_val": 3, "n_test": 4}


def standardised(images):
    return (images / 255 - 0.1307) / 0.3081


def test_splits_are_consecutive_runs_of_the_files(stand_in):
    images, labels = stand_in["train"]
    task = mnist_seq(14, **SIZES)
    for split, run in {
        "train": slice(0, 5),
        "val": slice(5, 8),
        "finetune": slice(8, 13),
        "finetune_val": slice(13, 16),
    }.items():
        pixels = task.splits[split].inputs.reshape(-1, 784)
        np.testing.assert_array_equal(pixels, standardised(images[run]).astype(np.float32))
        np.testing.assert_array_equal(task.splits[split].targets, labels[run])
    np.testing.assert_array_equal(task.test.targets, stand_in["t10k"][1][:4])
    assert task.n_classes == {"label": 10}


def test_there_is_no_second_draw_where_images_run_out(stand_in):
    task = mnist_seq(14, **(SIZES | {"n_train": 6}))
    assert task.finetune is None
    assert task.finetune_val is None


@pytest.mark.parametrize("n_steps", [1, 2, 28, 784])
def test_steps_cut_each_image_in_raster_order(stand_in, n_steps):
    data = mnist_seq(n_steps, **SIZES).test
    assert data.inputs.shape == (4, n_steps, 784 // n_steps)
    np.testing.assert_array_equal(data.inputs.reshape(4, 784), mnist_seq(1, **SIZES).test.inputs[:, 0])


def test_permutation_is_one_for_all_images_splits_and_lengths(stand_in):
    plain, permuted = mnist_seq(1, **SIZES), mnist_seq(28, **SIZES, permuted=True)
    # One image has equal grey levels, so the order is recovered from all the training images at once.
    columns = {column.tobytes(): index for index, column in enumerate(plain.train.inputs[:, 0].T.copy())}
    order = [columns[column.tobytes()] for column in permuted.train.inputs.reshape(5, 784).T.copy()]
    assert sorted(order) == list(range(784))
    assert order != sorted(order)
    np.testing.assert_array_equal(permuted.test.inputs.reshape(4, 784), plain.test.inputs[:, 0, order])


def test_seed_chooses_the_permutation_and_nothing_else(stand_in):
    np.testing.assert_array_equal(mnist_seq(7, **SIZES).train.inputs, mnist_seq(7, **SIZES, seed=1).train.inputs)
    permuted = [mnist_seq(7, **SIZES, permuted=True, seed=seed).train.inputs for seed in (0, 0, 1)]
    np.testing.assert_array_equal(permuted[0], permuted[1])
    assert not np.array_equal(permuted[0], permuted[2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_steps": 10}, "n_steps to divide 784 pixels, got 10: pass one of 1, 2, 4, 7, 8, 14"),
        ({"n_steps": 0}, "divide 784 pixels, got 0"),
        ({"n_steps": 14.0}, "divide 784 pixels, got 14.0"),
        ({"n_steps": 14, "n_train": 0}, "n_train to be a positive integer"),
        ({"n_steps": 14, "seed": -1}, "seed to be a non-negative integer"),
        ({"n_steps": 14, "n_copies": -1}, "n_copies to be an integer of at least 0, got -1"),
        ({"n_steps": 14, "distortion": "much"}, "distortion to be"),
        ({"n_steps": 14, "n_train": 59_000}, "at most 60000 .* got 59000 [+] 2000 and 2000: ask for fewer"),
        ({"n_steps": 14, "n_test": 10_001}, "n_test at most 10000, got 6000 [+] 2000 and 10001"),
    ],
)
def test_senseless_arguments_are_refused_before_any_file_is_read(tmp_path, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        mnist_seq(**arguments, directory=tmp_path)


def test_original_files_give_the_known_first_digits(mnist_directory):
    task = mnist_seq(28, n_train=10, n_val=5, n_test=5, directory=mnist_directory)
    assert task.train.targets.tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert task.test.targets.tolist() == [7, 2, 1, 0, 4]
    # The first image is blank but for rows 5 to 24, and blank is (0 - 0.1307) / 0.3081.
    is_blank = (task.train.inputs[0] == np.float32(-0.1307 / 0.3081)).all(axis=1)
    np.testing.assert_array_equal(np.flatnonzero(~is_blank), np.arange(5, 25))


def test_the_constants_are_the_moments_of_the_training_pixels(mnist_directory):
    images, labels = mnist.read_mnist("train", mnist_directory)
    assert images.shape == (60_000, 784)
    assert labels.shape == (60_000,)
    assert images.dtype == np.uint8
    counts = np.bincount(images.ravel(), minlength=256)
    values = standardised(np.arange(256))
    mean = counts @ values / counts.sum()
    variance = counts @ (values - mean) ** 2 / counts.sum()
    np.testing.assert_allclose([mean, variance], [0, 1], atol=1e-3)  # the constants have four digits


def test_distorted_copies_follow_the_training_images_and_no_others(stand_in):
    plain, task = mnist_seq(14, **SIZES), mnist_seq(14, **SIZES, n_copies=2)
    assert task.train.n_samples == 3 * 5
    np.testing.assert_array_equal(task.train.inputs[:5], plain.train.inputs)
    np.testing.assert_array_equal(task.train.targets, np.tile(plain.train.targets, 3))
    for copy in (task.train.inputs[5:10], task.train.inputs[10:]):
        assert not np.array_equal(copy, plain.train.inputs)
    assert not np.array_equal(task.train.inputs[5:10], task.train.inputs[10:])
    for split in ("val", "test", "finetune", "finetune_val"):
        np.testing.assert_array_equal(task.splits[split].inputs, plain.splits[split].inputs)


def test_copies_follow_from_the_seed_and_are_permuted_like_their_images(stand_in):
    first, again, other = (mnist_seq(1, **SIZES, n_copies=1, seed=seed).train.inputs for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    permuted = mnist_seq(1, **SIZES, n_copies=1, permuted=True).train.inputs
    np.testing.assert_array_equal(np.sort(permuted, axis=2), np.sort(first, axis=2))


def test_a_distortion_of_zero_repeats_the_images(stand_in):
    inputs = mnist_seq(7, **SIZES, n_copies=1, distortion=0.0).train.inputs
    np.testing.assert_array_equal(inputs[:5], inputs[5:])
