"""Handwritten digits of MNIST, one pixel per step."""

from dataclasses import replace
from os import PathLike
from typing import Literal

from ...core.checks import check_positive_int
from ...core.errors import InvalidInputError
from . import mnist_files
from .mnist_seq import mnist_seq
from .task import Task


def mnist_pixels(
    permuted: Literal[False] | int = False,
    *,
    n_val: int = 10_000,
    directory: str | PathLike[str] | None = None,
    n_copies: int = 0,
) -> Task:
    """Return the task of classifying images of digits from their 784 pixels, one per step.

    In raster order this is S-MNIST, in a random order PS-MNIST. All images are used: the test set is the official one
    of 10,000 images, and the last of the 60,000 training images are for validation.

    Parameters
    ----------
    permuted : False or int, default=False
        False reads the pixels in raster order. A whole number is the seed of a random order, the same for all images.
    n_val : int, default=10_000
        Number of validation images.
    directory : path, optional
        The folder of the files; see :func:`cvxsnn.data.tasks.mnist_files.read_mnist` for the default.
    n_copies : int, default=0
        Number of distorted copies of each training image, which follow the images in ``train``; see
        :func:`cvxsnn.tasks.mnist_seq`.

    Returns
    -------
    Task
        The task.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> try:
    ...     task = cs.tasks.mnist_pixels(directory="path/to/files")
    ...     print(task.train.inputs.shape)
    ... except cs.CvxsnnError:
    ...     print("the files are not there")
    the files are not there
    """
    if permuted is True:
        raise InvalidInputError("expected permuted to be False or the seed of an order, got True: pass a whole number")
    n_images = mnist_files.N_IMAGES
    n_val = check_positive_int("n_val", n_val)
    if n_val >= n_images["train"]:
        raise InvalidInputError(f"expected n_val below {n_images['train']}, the training images, got {n_val}")
    task = mnist_seq(
        mnist_files.N_PIXELS,
        permuted=permuted is not False,
        n_train=n_images["train"] - n_val,
        n_val=n_val,
        n_test=n_images["t10k"],
        directory=directory,
        seed=int(permuted),
        n_copies=n_copies,
    )
    settings = {"permuted": permuted, "n_val": n_val, **({"n_copies": n_copies} if n_copies else {})}
    return replace(task, name="mnist_pixels", finetune=None, finetune_val=None, settings=settings)
