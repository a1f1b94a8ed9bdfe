"""Searches that go on where an earlier one stopped, from the boxes that a certificate file lists."""

from typing import Any

import numpy as np

from ..core.errors import InvalidInputError
from .box_kernel import LEAF, LEFT, bound_boxes
from .box_search import Boxes, Coordinates, Proof, key_of
from .spike_trees import SpikeTrees


def resume_proof(trees: SpikeTrees, listed: dict[str, Any], enough: float) -> Proof:
    """Return a search that has halved the boxes of a list already, and is to go on with those that need it.

    Bounds are computed again, so that nothing rests on what the file says of them. Boxes that were looked at more
    closely are looked at again.

    Parameters
    ----------
    trees : SpikeTrees
        The same trees as those of the earlier search.
    listed : dict of str to object
        The outermost search of a certificate file.
    enough : float
        Boxes with bounds up to this are done.

    Returns
    -------
    Proof
        What :meth:`BoxSearch.run` goes on with.
    """
    frame = Coordinates.of(trees, np.array(listed["basis"], dtype=object))
    if list(listed["columns"]) != frame.columns or listed["levels"] != frame.n_levels:
        raise InvalidInputError("expected a certificate file of the same search, got one of other parameters")
    proof, text = Proof(frame), iter(listed["code"])
    ends: list[tuple[bytes, int, list[int], list[int]]] = []
    for centre, half in zip(*frame.faces(), strict=True):
        code, waiting = bytearray(), [(centre.tolist(), half.tolist())]
        key = key_of(centre, half)
        while waiting:
            own, size = waiting.pop()
            letter = next(text, ".")
            if letter in ".!":
                ends.append((key, len(code), own, size))
                code.append(LEAF)
                continue
            axis = ord(letter) - ord("a")
            if not 0 <= axis < len(size) or size[axis] < 2:
                raise InvalidInputError(
                    "expected a list of boxes that are halved, got a certificate file of another kind"
                )
            code.append(axis)
            smaller = [*size[:axis], size[axis] // 2, *size[axis + 1 :]]
            for sign in (1, -1):
                waiting.append(([*own[:axis], own[axis] + sign * smaller[axis], *own[axis + 1 :]], smaller))
        proof.codes[key] = bytes(code)
    centres, halves = (np.array([end[k] for end in ends], dtype=np.int64) for k in (2, 3))
    problem = (frame.normals, frame.slack, trees.edges, trees.gains, trees.roots, trees.offset)
    bounds = bound_boxes(*problem, int(trees.has_lift), centres, halves, trees.depth)
    is_open = bounds > enough
    proof.bound = float(bounds[~is_open].max(initial=0.0))
    proof.left = Boxes(
        centres[is_open], halves[is_open], bounds[is_open], np.full(int(is_open.sum()), 1 << frame.n_levels)
    )
    codes = {key: bytearray(code) for key, code in proof.codes.items()}
    for number in np.flatnonzero(is_open):
        key, place, *_ = ends[number]
        codes[key][place] = LEFT
    proof.codes.update({key: bytes(code) for key, code in codes.items()})
    return proof
