"""Handwritten digits of MNIST, read a few pixels at a time."""

from os import PathLike

import numpy as np
import numpy.typing as npt

from ...core.checks import check_divides, check_int_at_least, check_number, check_positive_int
from ...core.errors import InvalidInputError
from ...core.seeds import child_generator
from . import mnist_files
from .distortion import distort_images
from .task import UNNAMED_HEAD, SequenceData, Task

# One standardised value for each of the 256 grey levels: images stay bytes until a split asks for them.
_STANDARDISED = ((np.arange(256) / 255 - 0.1307) / 0.3081).astype(np.float32)


def mnist_seq(
    n_steps: int,
    *,
    permuted: bool = False,
    n_train: int = 6000,
    n_val: int = 2000,
    n_test: int = 2000,
    directory: str | PathLike[str] | None = None,
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
        The folder of the files; see :func:`cvxsnn.data.tasks.mnist_files.read_mnist` for the default.
    seed : int, default=0
        Seed of the order of the pixels and of the distortions, without effect unless there are such.
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
    n_steps = check_divides("n_steps", n_steps, mnist_files.N_PIXELS, "pixels")
    n_train = check_positive_int("n_train", n_train)
    n_val = check_positive_int("n_val", n_val)
    n_test = check_positive_int("n_test", n_test)
    n_copies = check_int_at_least("n_copies", n_copies, 0)
    distortion = check_number("distortion", distortion)
    n_images = mnist_files.N_IMAGES
    if n_train + n_val > n_images["train"] or n_test > n_images["t10k"]:
        raise InvalidInputError(
            f"expected n_train + n_val to be at most {n_images['train']} and n_test at most {n_images['t10k']}, "
            f"got {n_train} + {n_val} and {n_test}: ask for fewer images"
        )
    generator = child_generator(seed, "mnist_seq", "permutation")
    order = generator.permutation(mnist_files.N_PIXELS) if permuted else np.arange(mnist_files.N_PIXELS)

    images, labels = mnist_files.read_mnist("train", directory)
    test_images, test_labels = mnist_files.read_mnist("t10k", directory)

    def sequences(images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]) -> SequenceData:
        pixels = _STANDARDISED[images[:, order]]
        return SequenceData(pixels.reshape(len(images), n_steps, -1), labels.astype(np.int64))

    def training_run(start: int, size: int) -> SequenceData:
        return sequences(images[start : start + size], labels[start : start + size])

    def with_copies() -> SequenceData:
        plain = images[:n_train].reshape(n_train, 28, 28)
        rngs = (child_generator(seed, "mnist_seq", "distortion", number) for number in range(n_copies))
        every = [plain, *(distort_images(plain, rng, distortion) for rng in rngs)]
        return sequences(np.concatenate(every).reshape(-1, mnist_files.N_PIXELS), np.tile(labels[:n_train], len(every)))

    n_first_draw = n_train + n_val
    has_second_draw = 2 * n_first_draw <= n_images["train"]
    return Task(
        name="mnist_seq",
        train=with_copies(),
        val=training_run(n_train, n_val),
        test=sequences(test_images[:n_test], test_labels[:n_test]),
        finetune=training_run(n_first_draw, n_train) if has_second_draw else None,
        finetune_val=training_run(n_first_draw + n_train, n_val) if has_second_draw else None,
        n_classes={UNNAMED_HEAD: 10},
        settings={
            "n_steps": n_steps,
            "permuted": permuted,
            "n_train": n_train,
            "n_val": n_val,
            "n_test": n_test,
            "seed": seed,
            **({"n_copies": n_copies, "distortion": distortion} if n_copies else {}),
        },
    )
