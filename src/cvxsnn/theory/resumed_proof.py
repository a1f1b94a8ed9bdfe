"""Searches that go on where an earlier one stopped, from the boxes that a certificate file lists."""

from math import inf
from typing import Any

import numpy as np

from ..core.errors import InvalidInputError
from .box_kernel import LEAF, LEFT, TILTED, bound_boxes, survey
from .box_search import Boxes, Coordinates, Proof, key_of
from .integers import IntArray
from .spike_trees import SpikeTrees, pivot_columns

_MAX_FACTOR = 2**20
"""Enlarged boxes stay within the room of the kernel's sums."""


def resume_proof(trees: SpikeTrees, proofs: list[dict[str, Any]], enough: float, number: int = -1) -> Proof:
    """Return a search that has halved the boxes of a list already, and is to go on with those that need it.

    Bounds are computed again, so that nothing rests on what the file says of them.

    Parameters
    ----------
    trees : SpikeTrees
        The same trees as those of the earlier search.
    proofs : list of dict of str to object
        The searches of a certificate file.
    enough : float
        Boxes with bounds up to this are done.
    number : int
        Which of the searches it is; by default the last, which is the outermost.

    Returns
    -------
    Proof
        What :meth:`BoxSearch.run` goes on with.
    """
    number %= len(proofs)
    listed = proofs[number]
    check_listed(listed, number, trees.normals.shape[1])
    if listed["columns"] != pivot_columns(trees.normals):
        raise InvalidInputError("expected a certificate file of the same search, got one of other parameters")
    frame = Coordinates.of(trees, np.array(listed["basis"], dtype=object))
    if listed["levels"] != frame.n_levels:
        raise InvalidInputError("expected a certificate file of the same search, got one of other boxes")
    if len(pivot_columns(frame.basis)) < len(frame.basis) or (frame.has_wall and not _has_own_threshold(frame.basis)):
        raise InvalidInputError("expected coordinates of all neurons in a certificate file, got others")
    proof, text, uses = Proof(frame), iter(listed["code"]), iter(listed["closer"])
    ends: list[tuple[bytes, int, list[int], list[int]]] = []
    closer: dict[int, tuple[int, int]] = {}
    for centre, half in zip(*frame.faces(), strict=True):
        code, waiting = bytearray(), [(centre.tolist(), half.tolist())]
        key = key_of(centre, half)
        while waiting:
            own, size = waiting.pop()
            letter = next(text, ".")
            if letter in ".,!":
                if letter == "!" and (use := next(uses, None)) is not None:
                    closer[len(ends)] = use
                ends.append((key, len(code), own, size))
                code.append(LEAF)
                continue
            axis = ord(letter) - ord("a")
            if not 0 <= axis < len(size) or size[axis] < 2:
                raise InvalidInputError("expected boxes that are halved in a certificate file, got other letters")
            code.append(axis)
            smaller = [*size[:axis], size[axis] // 2, *size[axis + 1 :]]
            for sign in (1, -1):
                waiting.append(([*own[:axis], own[axis] + sign * smaller[axis], *own[axis + 1 :]], smaller))
        proof.codes[key] = bytes(code)
    centres, halves = (np.array([end[k] for end in ends], dtype=np.int64) for k in (2, 3))
    problem = (frame.normals, frame.slack, trees.edges, trees.gains, trees.roots, trees.offset, int(trees.has_lift))
    bounds, is_tilted = bound_boxes(*problem, centres, halves, enough, trees.depth)
    known: dict[bytes, tuple[float, Proof | None]] = {}
    for end, (factor, inner) in closer.items():
        wide = np.where(halves[end] <= 1, factor * halves[end], halves[end])
        parts = survey(*problem, centres[end], wide, trees.depth)
        own_key = b"|".join(part.tobytes() for part in parts) + str(inner).encode()
        if own_key not in known:
            known[own_key] = _bound_near(trees.within(*parts), proofs, enough, inner)
        bound, near = known[own_key]
        if bound <= enough:
            bounds[end] = bound
            proof.closer[key_of(centres[end], halves[end])] = (factor, near)
    is_open = bounds > enough
    proof.bound = float(bounds[~is_open].max(initial=0.0))
    proof.left = Boxes(
        centres[is_open], halves[is_open], bounds[is_open], np.full(int(is_open.sum()), 1 << frame.n_levels)
    )
    codes = {key: bytearray(code) for key, code in proof.codes.items()}
    for letter, places in ((TILTED, np.flatnonzero(is_tilted)), (LEFT, (*closer, *np.flatnonzero(is_open)))):
        for end in places:
            key, place, *_ = ends[end]
            codes[key][place] = letter
    proof.codes.update({key: bytes(code) for key, code in codes.items()})
    return proof


def check_listed(listed: Any, number: int, dimension: int) -> None:
    """Refuse a search of a file that has another form than the library writes."""
    columns, basis, closer = listed["columns"], listed["basis"], listed["closer"]
    wholes = [*columns, listed["levels"], *(x for row in [*basis, *closer] for x in row)]
    is_right = (
        all(type(x) is int for x in wholes)
        and isinstance(listed["code"], str)
        and columns == sorted(set(columns))
        and set(columns) <= set(range(dimension))
        and len(basis) == len(columns)
        and all(len(row) == len(columns) for row in basis)
        and all(1 <= factor < _MAX_FACTOR and -1 <= inner < number for factor, inner in closer)
    )
    if not is_right:
        raise InvalidInputError("expected searches of boxes in a certificate file, got something else")


def _has_own_threshold(basis: IntArray) -> bool:
    """Return whether the last coordinate is a positive multiple of the threshold, and changes nothing else."""
    return bool(basis[-1, -1] > 0) and not basis[-1, :-1].any() and not basis[:-1, -1].any()


def _bound_near(
    near: SpikeTrees, proofs: list[dict[str, Any]], enough: float, number: int
) -> tuple[float, Proof | None]:
    """Return a bound on what is open near a point, and the proof of it; infinity if the file has no finished one."""
    always = float(max(map(abs, near.value_at(np.zeros(near.normals.shape[1], dtype=object)))))
    if len(near.roots) == 0 or not near.normals.any():
        return always, None
    if number < 0:
        return inf, None
    proof = resume_proof(near, proofs, enough, number)
    return (inf, None) if proof.left is None or len(proof.left) else (max(always, proof.bound), proof)
