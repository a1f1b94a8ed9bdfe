"""Adding two numbers digit by digit (the paper's appendix "Arithmetic Addition Experimental Details")."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ...core.checks import check_choice, check_int_at_least, check_positive_int
from ...core.seeds import child_generator
from ..task import Feedback, SequenceData, Task, check_sizes, draw_splits

Variant = Literal["carry", "direct"]


def addition(
    base: int = 2,
    n_digits: int = 5,
    variant: Variant = "carry",
    *,
    n_train: int = 2304,
    n_val: int = 512,
    n_test: int = 1024,
    ood_digits: Sequence[int] | None = None,
    n_test_ood: int = 1024,
    seed: int = 0,
) -> Task:
    """Return the task of adding two random numbers, least significant digit first.

    Column t of the sum obeys ``a_t + b_t + carry_in_t = sum_t + base * carry_t`` with ``carry_in_{t+1} = carry_t``
    and ``carry_in_0 = 0``. A sequence has ``n_digits + 1`` columns; the operand digits of the last are 0, so it holds
    the final carry and nothing is ever cut off. Splits are independent draws, so where few sums exist (1,024 in
    base 2 with 5 digits, fewer than the paper's 2,304 training sequences) they overlap.

    Parameters
    ----------
    base : int, default=2
        Base of the digits, at least 2.
    n_digits : int, default=5
        Digits of each operand, in every split but the longer ones.
    variant : {"carry", "direct"}, default="carry"
        Inputs and heads. "carry" has inputs ``(a_t, b_t) / (base - 1)`` and ``carry_in_t``, heads "sum" and "carry",
        and feeds the predicted carry back. "direct" has the two operand digits alone, and the head "sum" alone.
    n_train : int, default=2304
        Number of training sequences; ``finetune`` has as many.
    n_val : int, default=512
        Number of validation sequences; ``finetune_val`` has as many.
    n_test : int, default=1024
        Number of test sequences.
    ood_digits : sequence of int, optional
        Numbers of digits of the longer test sets; by default 2, 5 and 10 times ``n_digits``, in base 2 also 4 times.
        Split "2x" has twice ``n_digits`` digits, and so on.
    n_test_ood : int, default=1024
        Size of each longer test set.
    seed : int, default=0
        Seed of the operands, which also depend on the base, ``n_digits`` and the split, but not on the variant.

    Returns
    -------
    Task
        The task.

    Examples
    --------
    >>> from cvxsnn import tasks
    >>> task = tasks.addition(base=3, n_train=10)
    >>> task.train.inputs.shape, sorted(task.ood), dict(task.n_classes)
    ((10, 6, 3), ['10x', '2x', '5x'], {'sum': 3, 'carry': 2})
    """
    settings: dict[str, Any] = dict(locals())
    settings["base"] = check_int_at_least("base", base, 2)
    check_choice("variant", variant, ("carry", "direct"))
    check_sizes(settings, "n_digits", "n_train", "n_val", "n_test", "n_test_ood")
    if ood_digits is None:
        # The paper's lengths from 5 digits are 10, 20, 50 in base 2 and 10, 25, 50 in the other bases.
        multiples = (2, 4, 5, 10) if base == 2 else (2, 5, 10)
        ood_digits = [multiple * n_digits for multiple in multiples]
    longer = {f"{check_positive_int('ood_digits', digits) / n_digits:g}x": digits for digits in ood_digits}

    def draw(split: str, n_samples: int, digits: int = n_digits) -> SequenceData:
        generator = child_generator(seed, "addition", base, n_digits, split)
        # One sum after another, so that a smaller split is the beginning of a larger one.
        return _add(generator.integers(base, size=(n_samples, digits, 2)), base, variant)

    return Task(
        name="addition",
        **draw_splits(draw, settings),
        ood={key: draw(f"ood {key}", n_test_ood, digits) for key, digits in longer.items()},
        n_classes={"sum": base, "carry": 2} if variant == "carry" else {"sum": base},
        feedback=Feedback(head="carry", feature=2) if variant == "carry" else None,
        settings=settings | {"ood_digits": tuple(longer.values())},
    )


def _add(operands: npt.NDArray[np.int64], base: int, variant: Variant) -> SequenceData:
    """Return sequences of the sums of ``operands``, digits of shape (n_samples, n_digits, 2)."""
    columns = np.pad(operands, ((0, 0), (0, 1), (0, 0)))
    n_samples, n_steps, _ = columns.shape
    column_sum = columns.sum(axis=2)
    carry_in = np.zeros((n_samples, n_steps), dtype=np.int64)
    for step in range(1, n_steps):
        carry_in[:, step] = (column_sum[:, step - 1] + carry_in[:, step - 1]) // base
    carry, digit = np.divmod(column_sum + carry_in, base)

    normalised = columns / (base - 1)
    if variant == "direct":
        return SequenceData(normalised.astype(np.float32), {"sum": digit})
    inputs = np.concatenate([normalised, carry_in[:, :, None]], axis=2)
    return SequenceData(inputs.astype(np.float32), {"sum": digit, "carry": carry})
