"""Heads: the outputs of a network that belong to each target, and their decisions."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..convex.losses import LOSSES
from ..core.errors import InvalidInputError


@dataclass(frozen=True)
class OutputHead:
    """Some of a network's outputs, and the loss that they were trained for.

    Parameters
    ----------
    name : str
        The name of the head.
    loss : str
        A key of :data:`cvxsnn.convex.losses.LOSSES`.
    start : int
        The first output column.
    stop : int
        The column after the last.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> problem = cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05)
    >>> network = cs.reconstruct(cs.solve(problem))
    >>> [head.name for head in network.heads]
    ['label']
    """

    name: str
    loss: str
    start: int
    stop: int

    @property
    def columns(self) -> slice:
        """The outputs of this head."""
        return slice(self.start, self.stop)


def decide(heads: Sequence[OutputHead], scores: Tensor) -> dict[str, Tensor]:
    """Return the class that each head decides for, from scores of shape (..., n_outputs)."""
    decisions = {}
    for head in heads:
        kind = LOSSES.get(head.loss)
        if kind is not None and kind.is_regression:
            raise InvalidInputError(
                f"expected a loss for classes, got head {head.name!r} with {head.loss!r}: call the network for scores"
            )
        columns = scores[..., head.columns]
        # Several binary columns are one class against the rest each.
        decisions[head.name] = columns.argmax(-1) if columns.shape[-1] > 1 else (columns[..., 0] >= 0).to(torch.int64)
    return decisions


def check_heads(heads: Sequence[OutputHead], n_outputs: int) -> None:
    """Refuse heads that do not divide the outputs in order, or whose names are not distinct."""
    bounds = [0, *(head.stop for head in heads)]
    is_plain = all(
        isinstance(head.name, str) and isinstance(head.loss, str) and type(head.start) is type(head.stop) is int
        for head in heads
    )
    if (
        not is_plain
        or [head.start for head in heads] != bounds[:-1]
        or bounds != sorted(set(bounds))
        or bounds[-1] != n_outputs
        or len({head.name for head in heads}) < len(heads)
    ):
        raise InvalidInputError(f"expected heads that share out {n_outputs} outputs, got {list(heads)}")
