"""Distorted copies of images: turned, scaled, sheared, shifted, and bent."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate


@dataclass(frozen=True)
class _Largest:
    angle: float = math.radians(10.0)
    """Largest angle."""

    scale: float = 0.1
    """Largest relative change of each side."""

    shear: float = 0.1
    """Largest shear."""

    shift: float = 1.0
    """Largest shift along each side, in pixels."""

    bend: float = 0.8
    """Standard deviation of the displacements at the knots of a bend, in pixels."""

    knots: int = 6
    """Knots along each side of an image, between which displacements are interpolated."""

    images: int = 4096
    """Images that are distorted at once."""


_LARGEST = _Largest()


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
    for start in range(0, len(images), _LARGEST.images):
        part = slice(start, start + _LARGEST.images)
        copies[part] = _distort(torch.tensor(images[part]), rng, strength).numpy()
    return copies


def _distort(images: Tensor, rng: np.random.Generator, strength: float) -> Tensor:
    n_images, height, width = images.shape
    origins = _affine(n_images, height, width, rng, strength) + _bend(n_images, height, width, rng, strength)
    copies = grid_sample(images[:, None].float(), origins, align_corners=False)[:, 0]
    return copies.round_().clamp_(0, 255).to(torch.uint8)


def _affine(n_images: int, height: int, width: int, rng: np.random.Generator, strength: float) -> Tensor:
    """Return where each pixel of the copies comes from, from −1 to 1 along each side, (n_images, height, width, 2)."""
    ranges = [[_LARGEST.angle], [_LARGEST.scale], [_LARGEST.scale], [_LARGEST.shear]]
    angle, wide, high, shear = strength * rng.uniform(-1, 1, (4, n_images)) * ranges
    shift = strength * _LARGEST.shift * rng.uniform(-1, 1, (n_images, 2)) * 2 / [width, height]
    cosine, sine = np.cos(angle), np.sin(angle)
    turn = np.stack((np.stack((cosine, -sine), -1), np.stack((sine, cosine), -1)), -2)
    stretch = np.stack((np.stack((1 + wide, shear), -1), np.stack((0 * shear, 1 + high), -1)), -2)
    maps = torch.from_numpy(np.concatenate((turn @ stretch, shift[:, :, None]), -1)).float()
    return torch.nn.functional.affine_grid(maps, [n_images, 1, height, width], align_corners=False)


def _bend(n_images: int, height: int, width: int, rng: np.random.Generator, strength: float) -> Tensor:
    """Return smooth displacements in the same units."""
    knots = (
        strength * _LARGEST.bend * rng.standard_normal((n_images, 2, _LARGEST.knots, _LARGEST.knots), dtype=np.float32)
    )
    smooth = interpolate(torch.from_numpy(knots), (height, width), mode="bicubic", align_corners=True)
    return smooth.permute(0, 2, 3, 1) * (2 / torch.tensor([width, height]))
