"""Trees of events without those that others decide.

If two steps of a sequence have parallel inputs, one spike can decide another: a neuron whose membrane is below zero
at the first of two equal steps is below zero at the second. With a threshold that is not negative, more events follow
from each other, since resets lower the membrane. What is left is the same function of the parameters, often in fewer
dimensions.
"""

from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from .integers import IntArray

Normal = tuple[int, ...]
Sums = tuple[int, ...]
Tree = tuple[Any, ...] | None
"""A normal, what silence adds, what follows it, what a spike adds, what follows it."""

Part = tuple[Sums, Tree]
"""What is added for certain, and a tree."""


def reduce_trees(
    normals: IntArray,
    edges: npt.NDArray[np.int64],
    gains: npt.NDArray[np.int64],
    roots: npt.NDArray[np.int64],
    has_wall: bool,
) -> tuple[IntArray, npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return trees that give the same sums with fewer events, and what is added whatever the parameters are.

    Parameters
    ----------
    normals, edges, gains, roots
        The trees, as in :class:`SpikeTrees`.
    has_wall : bool
        Whether the last parameter is not negative.

    Returns
    -------
    tuple of arrays
        Normals, edges, gains, roots and offset.
    """
    kept: list[Normal] = []
    new_edges: list[list[int]] = []
    new_gains: list[list[Sums]] = []
    new_roots: list[int] = []
    offset = [0] * gains.shape[2]

    def build(event: int) -> Tree:
        own = [int(x) for x in normals[event]]
        common = gcd(*own) or 1
        parts: list[Any] = [tuple(x // common for x in own)]
        for side in (0, 1):
            following = int(edges[event, side])
            parts += [tuple(int(x) for x in gains[event, side]), build(following) if following >= 0 else None]
        return tuple(parts)

    def store(tree: tuple[Any, ...]) -> int:
        number = len(kept)
        kept.append(tree[0])
        new_gains.append([tree[1], tree[3]])
        new_edges.append([-1, -1])
        for side in (0, 1):
            if tree[2 + 2 * side] is not None:
                new_edges[number][side] = store(tree[2 + 2 * side])
        return number

    for root in roots:
        added, tree = simplify(build(int(root)), (), has_wall, gains.shape[2])
        offset = [a + b for a, b in zip(offset, added, strict=True)]
        if tree is not None:
            new_roots.append(store(tree))
    shape = (len(kept), normals.shape[1])
    return (
        np.array(kept, dtype=object).reshape(shape).astype(normals.dtype),
        np.array(new_edges, dtype=np.int64).reshape(-1, 2),
        np.array(new_gains, dtype=np.int64).reshape(-1, 2, gains.shape[2]),
        np.array(new_roots, dtype=np.int64),
        np.array(offset, dtype=np.int64),
    )


def simplify(tree: Tree, known: tuple[tuple[Normal, int], ...], has_wall: bool, n_outputs: int) -> Part:
    """Return what is left of a tree where the sides of some events are known."""
    total: Sums = (0,) * n_outputs
    while tree is not None:
        normal = tree[0]
        side = next((own for own in (_implied(normal, *event, has_wall) for event in known) if own is not None), None)
        if side is None:
            break
        total, tree = _add(total, tree[1 + 2 * side]), tree[2 + 2 * side]
    if tree is None:
        return total, None
    parts: list[Part] = []
    for side in (0, 1):
        added, rest = simplify(tree[2 + 2 * side], (*known, (normal, side)), has_wall, n_outputs)
        parts.append((_add(tree[1 + 2 * side], added), rest))
    for side in (0, 1):
        # What follows one side gives what follows the other, where the event is on that side: it decides nothing.
        added, rest = simplify(parts[1 - side][1], (*known, (normal, side)), has_wall, n_outputs)
        if (_add(parts[1 - side][0], added), rest) == parts[side]:
            return _add(total, parts[1 - side][0]), parts[1 - side][1]
    return total, (normal, *parts[0], *parts[1])


def _implied(normal: Normal, other: Normal, side: int, has_wall: bool) -> int | None:
    """Return the side of an event that the side of another decides, or None."""
    pivot = next((d for d, x in enumerate(other[:-1]) if x), None)
    if pivot is None or normal[pivot] * other[pivot] <= 0:
        return None
    a, b = abs(other[pivot]), abs(normal[pivot])
    if any(a * x != b * y for x, y in zip(normal[:-1], other[:-1], strict=True)):
        return None
    rest = a * normal[-1] - b * other[-1]  # a * normal is b * other and this times the threshold
    if rest == 0 or (has_wall and (rest > 0) == (side == 1)):
        return side
    return None


def _add(a: Sums, b: Sums) -> Sums:
    return tuple(x + y for x, y in zip(a, b, strict=True))
