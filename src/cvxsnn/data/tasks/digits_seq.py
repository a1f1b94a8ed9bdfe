"""Scikit-learn's bundled 8×8 handwritten digits, read a few pixels at a time: real data that need no file."""

import numpy as np

from ...core.checks import check_divides
from ...core.seeds import child_generator
from ..task import UNNAMED_HEAD, SequenceData, Task


def digits_seq(n_steps: int = 8, *, seed: int = 0) -> Task:
    """Return the task of classifying 8×8 images of digits, ``64 / n_steps`` pixels per step in raster order.

    Grey levels are in [0, 1]. The 1,797 images are split into 1,000 for training, 297 for validation and 500 for
    testing, each with the ten classes in the same proportions; there are too few for a second training draw.

    Parameters
    ----------
    n_steps : int, default=8
        Number of steps, a divisor of 64.
    seed : int, default=0
        Seed of the split, which does not depend on ``n_steps``.

    Returns
    -------
    Task
        The task.

    Examples
    --------
    >>> from cvxsnn import tasks
    >>> tasks.digits_seq(16).train.inputs.shape
    (1000, 16, 4)
    """
    from sklearn.datasets import load_digits  # slow to import
    from sklearn.model_selection import train_test_split

    n_steps = check_divides("n_steps", n_steps, 64, "pixels")
    generator = child_generator(seed, "digits_seq", "split")
    images, labels = load_digits(return_X_y=True)
    # Grey levels go from 0 to 16: the division is exact.
    inputs = (images / 16).astype(np.float32).reshape(-1, n_steps, 64 // n_steps)

    split_seeds = generator.integers(2**32, size=2).tolist()
    every = np.arange(len(labels))
    rest, test = train_test_split(every, test_size=500, stratify=labels, random_state=split_seeds[0])
    train, val = train_test_split(rest, test_size=297, stratify=labels[rest], random_state=split_seeds[1])
    splits = SequenceData(inputs, labels).split(train=train, val=val, test=test)
    settings = {"n_steps": n_steps, "seed": seed}
    return Task(name="digits_seq", **splits, n_classes={UNNAMED_HEAD: 10}, settings=settings)
