"""Remembering one bit: whether the first bit of a sequence differs from the last."""

from typing import Any, Literal

import numpy as np

from ...core.checks import check_choice, check_int_at_least
from ...core.seeds import child_generator
from ..task import UNNAMED_HEAD, SequenceData, Task, check_sizes, draw_splits

Encoding = Literal["one-hot", "bit"]


def first_last_xor(
    n_steps: int,
    *,
    encoding: Encoding = "one-hot",
    n_train: int = 2000,
    n_val: int = 2000,
    n_test: int = 4000,
    seed: int = 0,
) -> Task:
    """Return the task of predicting the exclusive or of the first and the last of ``n_steps`` random bits.

    The four pairs (first, last) are equally frequent in each split, up to rounding, so that neither bit alone says
    anything about the label; the bits between are uniform.

    Parameters
    ----------
    n_steps : int
        Number of steps, at least 2.
    encoding : {"one-hot", "bit"}, default="one-hot"
        Two inputs per step, of which number ``bit`` is 1, or the bit itself as one input.
    n_train : int, default=2000
        Number of training sequences; ``finetune`` has as many.
    n_val : int, default=2000
        Number of validation sequences; ``finetune_val`` has as many.
    n_test : int, default=4000
        Number of test sequences.
    seed : int, default=0
        Seed of the bits, which also depend on ``n_steps`` and the split, but not on the encoding.

    Returns
    -------
    Task
        The task.

    Examples
    --------
    >>> from cvxsnn import tasks
    >>> task = tasks.first_last_xor(6, encoding="bit", n_train=4)
    >>> bits = task.train.inputs[..., 0].astype(int)
    >>> bool((task.train.targets == bits[:, 0] ^ bits[:, -1]).all())
    True
    """
    settings: dict[str, Any] = dict(locals())
    settings["n_steps"] = n_steps = check_int_at_least("n_steps", n_steps, 2)
    check_choice("encoding", encoding, ("one-hot", "bit"))
    check_sizes(settings, "n_train", "n_val", "n_test")

    def draw(split: str, n_samples: int) -> SequenceData:
        generator = child_generator(seed, "first_last_xor", n_steps, split)
        bits = generator.integers(2, size=(n_samples, n_steps))
        bits[:, 0], bits[:, -1] = np.divmod(generator.permutation(np.arange(n_samples) % 4), 2)
        inputs = np.eye(2)[bits] if encoding == "one-hot" else bits[:, :, None]
        return SequenceData(inputs.astype(np.float32), bits[:, 0] ^ bits[:, -1])

    splits = draw_splits(draw, settings)
    return Task(name="first_last_xor", **splits, n_classes={UNNAMED_HEAD: 2}, settings=settings)
