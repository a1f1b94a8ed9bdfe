"""Handwritten digits of MNIST, read a few pixels at a time."""

from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from ...core.checks import check_divides, check_int_at_least, check_number, check_positive_int
from ...core.errors import InvalidInputError
from ...core.seeds import child_generator
from ..task import UNNAMED_HEAD, SequenceData, Task, check_sizes
from .distortion import distort_images
from .files import FILES, Folder

Part = Literal["train", "t10k"]
N_IMAGES = {"train": 60_000, "t10k": 10_000}


def mnist_seq(
    n_steps: int,
    *,
    permuted: bool = False,
    n_train: int = 6000,
    n_val: int = 2000,
    n_test: int = 2000,
    directory: Folder | None = None,
    seed: int = 0,
    n_copies: int = 0,
    distortion: float = 1.0,
) -> Task:
    """Return the task of classifying 28×28 images of digits, ``784 / n_steps`` pixels per step in raster order.

    Pixels are standardised with mean 0.1307 and standard deviation 0.3081. The splits are consecutive runs of the
    original files: ``train`` and ``val`` open the training file; ``finetune`` and ``finetune_val``, of the same sizes,
    follow where enough images remain and are None otherwise; ``test`` opens the test file.

    Parameters
    ----------
    n_steps : int
        Number of steps, a divisor of 784.
    permuted : bool, default=False
        Whether to read the pixels in one fixed random order instead, the same for every image and every ``n_steps``.
    n_train : int, default=6000
        Number of training images; ``n_train + n_val`` is at most 60,000.
    n_val : int, default=2000
        Number of validation images.
    n_test : int, default=2000
        Number of test images, at most 10,000.
    directory : path, optional
        The folder of the files; see :func:`cvxsnn.data.tasks.mnist.read_mnist` for the default.
    seed : int, default=0
        Seed of the order of the pixels and of the distortions; unused without them.
    n_copies : int, default=0
        Number of distorted copies of each training image, which follow the images in ``train``. No other split has any.
    distortion : float, default=1.0
        Strength of the distortions; see :func:`cvxsnn.data.tasks.distortion.distort_images`.

    Returns
    -------
    Task
        The task.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> try:
    ...     task = cs.tasks.mnist_seq(28, directory="path/to/files")
    ...     print(task.train.inputs.shape)
    ... except cs.CvxsnnError:
    ...     print("the files are not there")
    the files are not there
    """
    settings: dict[str, Any] = dict(locals())
    settings["n_steps"] = n_steps = check_divides("n_steps", n_steps, 784, "pixels")
    check_sizes(settings, "n_train", "n_val", "n_test")
    n_copies = check_int_at_least("n_copies", n_copies, 0)
    distortion = check_number("distortion", distortion)
    if n_train + n_val > N_IMAGES["train"] or n_test > N_IMAGES["t10k"]:
        raise InvalidInputError(
            f"expected n_train + n_val to be at most {N_IMAGES['train']} and n_test at most {N_IMAGES['t10k']}, "
            f"got {n_train} + {n_val} and {n_test}: ask for fewer images"
        )
    generator = child_generator(seed, "mnist_seq", "permutation")
    order = generator.permutation(784) if permuted else np.arange(784)
    # One standardised value for each of the 256 grey levels: images stay bytes until they are part of a split.
    standardised = ((np.arange(256) / 255 - 0.1307) / 0.3081).astype(np.float32)

    def run(part: Part, start: int, size: int, n_copies: int = 0) -> SequenceData:
        """Return consecutive images of a file, and then distorted copies of them."""
        images, labels = (content[start : start + size] for content in files[part])
        copies = [images := images.reshape(-1, 28, 28)]
        for number in range(n_copies):
            copies.append(distort_images(images, child_generator(seed, "mnist_seq", "distortion", number), distortion))
        pixels = standardised[np.concatenate(copies).reshape(-1, 784)[:, order]]
        return SequenceData(pixels.reshape(len(pixels), n_steps, -1), np.tile(labels, len(copies)).astype(np.int64))

    files = {part: read_mnist(part, directory) for part in get_args(Part)}
    splits: dict[str, Any] = {}
    second = n_train + n_val
    if 2 * second <= N_IMAGES["train"]:
        splits = {"finetune": run("train", second, n_train), "finetune_val": run("train", second + n_train, n_val)}
    ignored = ("directory",) if n_copies else ("directory", "n_copies", "distortion")
    return Task(
        name="mnist_seq",
        train=run("train", 0, n_train, n_copies),
        val=run("train", n_train, n_val),
        test=run("t10k", 0, n_test),
        **splits,
        n_classes={UNNAMED_HEAD: 10},
        settings={name: value for name, value in settings.items() if name not in ignored},
    )


def mnist_pixels(
    permuted: Literal[False] | int = False, *, n_val: int = 10_000, directory: Folder | None = None, n_copies: int = 0
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
        The folder of the files; see :func:`cvxsnn.data.tasks.mnist.read_mnist` for the default.
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
    n_val = check_positive_int("n_val", n_val)
    if n_val >= N_IMAGES["train"]:
        raise InvalidInputError(f"expected n_val below {N_IMAGES['train']}, the training images, got {n_val}")
    task = mnist_seq(
        784,
        permuted=permuted is not False,
        n_train=N_IMAGES["train"] - n_val,
        n_val=n_val,
        n_test=N_IMAGES["t10k"],
        directory=directory,
        seed=int(permuted),
        n_copies=n_copies,
    )
    settings = {"permuted": permuted, "n_val": n_val, **({"n_copies": n_copies} if n_copies else {})}
    return replace(task, name="mnist_pixels", finetune=None, finetune_val=None, settings=settings)


def read_mnist(part: Part, directory: Folder | None = None) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Read the images and labels of one part of MNIST.

    Files may be gzipped or not. Only ``directory`` is searched if it is given; otherwise the folder that the
    environment variable CVXSNN_DATA names, and then the cache (``~/.cache/cvxsnn``, or under XDG_CACHE_HOME), each with
    its subfolder ``mnist``. Files in neither are downloaded to the cache.

    Parameters
    ----------
    part : {"train", "t10k"}
        Training or test images.
    directory : path, optional
        The folder of the files.

    Returns
    -------
    images : array of shape (n_images, 784), dtype uint8, read-only
        Grey levels in raster order.
    labels : array of shape (n_images,), dtype uint8, read-only
        Digits from 0 to 9.
    """
    images, labels = (FILES[f"mnist {part} {content}"].read(directory) for content in ("images", "labels"))
    # The checksums vouch for the headers, so they are skipped: 16 bytes before the images, 8 before the labels.
    pixels = np.frombuffer(images, dtype=np.uint8, offset=16).reshape(-1, 784)
    return pixels, np.frombuffer(labels, dtype=np.uint8, offset=8)
