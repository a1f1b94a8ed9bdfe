"""Distorted copies of images: turned, scaled, sheared, shifted, and bent."""

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate


def distort_images(
    images: npt.NDArray[np.uint8], rng: np.random.Generator, strength: float = 1.0
) -> npt.NDArray[np.uint8]:
    """Return a copy of each image, each distorted in its own way.

    An affine map is drawn for each image (an angle of up to 10 degrees, sides longer or shorter by up to 10 %, a shear
    of up to 0.1, a shift of up to a pixel) and a smooth bend: displacements at 6 × 6 knots with a standard deviation of
    0.8 pixels, interpolated by cubic splines. Pixels are interpolated linearly; outside the image there is zero.

    Parameters
    ----------
    images : array of shape (n_images, n_rows, n_columns), dtype uint8
        The images.
    rng : Generator
        Random number generator.
    strength : float
        Multiplies all of these numbers.

    Returns
    -------
    array of shape (n_images, n_rows, n_columns), dtype uint8
        The copies.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.data.tasks.distortion import distort_images
    >>> images = np.zeros((2, 28, 28), dtype=np.uint8)
    >>> images[:, 10:18, 10:18] = 255
    >>> copies = distort_images(images, np.random.default_rng(0))
    >>> copies.shape, bool((copies != images).any())
    ((2, 28, 28), True)
    """
    copies = np.empty_like(images)
    for start in range(0, len(images), 4096):  # blocks, whose maps and displacements fit into memory
        block = torch.tensor(images[start : start + 4096])[:, None].float()
        origins = _affine(block.shape, rng, strength) + _bend(block.shape, rng, strength)
        distorted = grid_sample(block, origins, align_corners=False)[:, 0]
        copies[start : start + 4096] = distorted.round_().clamp_(0, 255).to(torch.uint8).numpy()
    return copies


def _affine(shape: torch.Size, rng: np.random.Generator, strength: float) -> Tensor:
    """Return where each pixel of the copies comes from, from −1 to 1 along each side, (n_images, height, width, 2)."""
    n_images, _, height, width = shape
    ranges = [[math.radians(10.0)], [0.1], [0.1], [0.1]]
    angle, wide, high, shear = strength * rng.uniform(-1, 1, (4, n_images)) * ranges
    shift = strength * rng.uniform(-1, 1, (n_images, 2)) * 2 / [width, height]
    cosine, sine = np.cos(angle), np.sin(angle)
    turn = np.stack((np.stack((cosine, -sine), -1), np.stack((sine, cosine), -1)), -2)
    stretch = np.stack((np.stack((1 + wide, shear), -1), np.stack((0 * shear, 1 + high), -1)), -2)
    maps = torch.from_numpy(np.concatenate((turn @ stretch, shift[:, :, None]), -1)).float()
    return affine_grid(maps, list(shape), align_corners=False)


def _bend(shape: torch.Size, rng: np.random.Generator, strength: float) -> Tensor:
    """Return smooth displacements in the same units."""
    n_images, _, height, width = shape
    knots = strength * 0.8 * rng.standard_normal((n_images, 2, 6, 6), dtype=np.float32)
    smooth = interpolate(torch.from_numpy(knots), (height, width), mode="bicubic", align_corners=True)
    return smooth.permute(0, 2, 3, 1) * (2 / torch.tensor([width, height]))
