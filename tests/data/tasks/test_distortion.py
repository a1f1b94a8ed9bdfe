"""Distorted copies of images."""

import numpy as np
import pytest

from cvxsnn.data.tasks.distortion import distort_images


def blob(row=14, column=14, size=6):
    image = np.zeros((28, 28), dtype=np.uint8)
    image[row - size // 2 : row + size // 2, column - size // 2 : column + size // 2] = 255
    return image


def centre(image):
    rows, columns = np.indices(image.shape)
    total = image.sum(dtype=np.int64)
    return np.array([(rows * image).sum() / total, (columns * image).sum() / total])


def test_a_strength_of_zero_changes_nothing():
    images = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
    np.testing.assert_array_equal(distort_images(images, np.random.default_rng(1), 0.0), images)


def test_copies_differ_from_their_images_and_from_each_other():
    images = np.stack([blob()] * 4)
    copies = distort_images(images, np.random.default_rng(0))
    assert copies.shape == images.shape
    assert copies.dtype == np.uint8
    assert len({own.tobytes() for own in (*images[:1], *copies)}) == 5


def test_the_generator_decides():
    images = np.stack([blob()] * 4)
    first, again, other = (distort_images(images, np.random.default_rng(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_blobs_stay_near_their_places_and_keep_about_their_mass():
    images = np.stack([blob(14, 14)] * 200)
    copies = distort_images(images, np.random.default_rng(0))
    moved = np.array([centre(own) for own in copies]) - centre(images[0])
    assert np.abs(moved).max() < 4
    assert np.abs(moved.mean(0)).max() < 0.3
    mass = copies.sum((1, 2), dtype=np.int64) / images[0].sum(dtype=np.int64)
    assert 0.9 < mass.mean() < 1.1


@pytest.mark.parametrize("axis", [0, 1])
def test_distortions_of_both_axes_are_alike(axis):
    copies = distort_images(np.stack([blob()] * 400), np.random.default_rng(2))
    moved = np.array([centre(own) for own in copies]) - centre(blob())
    assert 0.4 < moved[:, axis].std() < 1.2


def test_more_images_than_are_distorted_at_once_all_get_a_copy():
    copies = distort_images(np.stack([blob()] * 4099), np.random.default_rng(0))
    assert len({own.tobytes() for own in copies}) == 4099
