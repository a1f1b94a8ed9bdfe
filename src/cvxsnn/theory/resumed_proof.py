"""Searches that go on where an earlier one stopped, from the boxes that a certificate file lists."""

from math import inf

import numpy as np

from ..core.errors import InvalidInputError
from .box_kernel import END, survey
from .box_search import Boxes, Coordinates, Proof, bound_boxes, key_of
from .check_certificate import Search
from .integers import IntArray
from .spike_trees import SpikeTrees, pivot_columns


def resume_proof(trees: SpikeTrees, searches: tuple[Search, ...], enough: float, number: int = -1) -> Proof:
    """Return a search that has halved the boxes of a list already, and is to go on with those that need it.

    Bounds are computed again, so that nothing rests on what the file says of them.

    Parameters
    ----------
    trees : SpikeTrees
        The same trees as those of the earlier search.
    searches : tuple of Search
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
    listed = searches[number]
    if list(listed.columns) != pivot_columns(trees.normals):
        raise InvalidInputError("expected a certificate file of the same search, got one of other parameters")
    frame = Coordinates.of(trees, np.array(listed.basis, dtype=object))
    # Enlarged boxes must stay within the bits of the kernel's sums.
    if listed.levels != frame.n_levels or any(factor >= 2**20 for factor, _ in listed.closer):
        raise InvalidInputError("expected a certificate file of the same search, got one of other boxes")
    if len(pivot_columns(frame.basis)) < len(frame.basis) or (frame.has_wall and not _has_own_threshold(frame.basis)):
        raise InvalidInputError("expected coordinates of all neurons in a certificate file, got others")
    proof = Proof(frame)
    text = iter(listed.code)
    uses = iter(listed.closer)
    ends: list[tuple[bytes, int, list[int], list[int]]] = []
    closer: dict[int, tuple[int, ...]] = {}
    for centre, half in zip(*frame.faces()[:2], strict=True):
        face, waiting = key_of(centre, half), [(centre.tolist(), half.tolist())]
        codes = proof.codes[face] = bytearray()
        while waiting:
            middle, size = waiting.pop()
            letter = next(text, ".")
            if letter in ".,!":
                if letter == "!" and (use := next(uses, None)) is not None:
                    closer[len(ends)] = use
                ends.append((face, len(codes), middle, size))
                codes.append(END.leaf)
                continue
            axis = ord(letter) - ord("a")
            if not 0 <= axis < len(size) or size[axis] < 2:
                raise InvalidInputError("expected boxes that are halved in a certificate file, got other letters")
            codes.append(axis)
            smaller = [*size[:axis], size[axis] // 2, *size[axis + 1 :]]
            for sign in (1, -1):
                waiting.append(([*middle[:axis], middle[axis] + sign * smaller[axis], *middle[axis + 1 :]], smaller))
    centres, halves = (np.array([end[k] for end in ends], dtype=np.int64) for k in (2, 3))
    boxes = Boxes(centres, halves, np.zeros(len(ends)), np.full(len(ends), 1 << frame.n_levels))
    bounds, is_tilted = bound_boxes(frame.problem, boxes, enough)
    known: dict[bytes, tuple[float, Proof | None]] = {}
    for end, (factor, inner) in closer.items():
        wide = np.where(halves[end] <= 1, factor * halves[end], halves[end])
        parts = survey(frame.problem, centres[end], wide)
        key = b"|".join(part.tobytes() for part in parts) + str(inner).encode()
        if key not in known:
            known[key] = _bound_near(trees.within(*parts), searches, enough, inner)
        bound, near = known[key]
        if bound <= enough:
            bounds[end] = bound
            proof.closer[key_of(centres[end], halves[end])] = (factor, near)
    is_open = bounds > enough
    proof.bound = float(bounds[~is_open].max(initial=0.0))
    proof.left = boxes._replace(bounds=bounds).take(is_open)
    for code, numbers in ((END.tilted, np.flatnonzero(is_tilted)), (END.left, (*closer, *np.flatnonzero(is_open)))):
        for number in numbers:
            face, index, *_ = ends[number]
            proof.codes[face][index] = code
    return proof


def _has_own_threshold(basis: IntArray) -> bool:
    """Return whether the last coordinate is a positive multiple of the threshold, and changes nothing else."""
    return bool(basis[-1, -1] > 0) and not basis[-1, :-1].any() and not basis[:-1, -1].any()


def _bound_near(
    near: SpikeTrees, searches: tuple[Search, ...], enough: float, number: int
) -> tuple[float, Proof | None]:
    """Return a bound on what is open near a point, and the proof of it; infinity if the file has no finished one."""
    always = float(max(map(abs, near.value_at(np.zeros(near.normals.shape[1], dtype=object)))))
    if len(near.roots) == 0 or not near.normals.any():
        return always, None
    if number < 0:
        return inf, None
    proof = resume_proof(near, searches, enough, number)
    return (inf, None) if proof.left is None or proof.left.n_boxes else (max(always, proof.bound), proof)
