"""The largest price of any neuron, by branch and bound over boxes of parameters with exact integers.

Scaling a neuron changes no spike, so its parameters lie on the surface of a cube: the faces are the first boxes. The
kernel bounds a box by what each sample can still contribute, and halves it until the bound is small enough. Where many
events meet in one point, halving would go on for ever. Then all neurons near that point are those of a problem with
fewer samples and fewer dimensions, which is searched in the same way.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

from .box_kernel import LEAF, LEFT, STUCK, TILTED, bound_boxes, explore, survey
from .integers import IntArray
from .line_search import climb, random_points
from .spike_trees import SpikeTrees, common_zero, pivot_columns

_LEVELS = 20
"""Halvings of a side of the cube."""

_N_CENTRES = 8
"""Boxes of each batch from whose centres lines are searched."""

_ROOM = 60
"""Bits for sums of products in the kernel."""

_MOST_EXCESS = 24
"""Bits that may be rounded away from longer numbers, which makes bounds larger but keeps them valid."""

_BATCH, _FIRST, _BUDGET = 64, 100, 2000
"""Boxes that the kernel gets at once, and nodes that it may spend on each, at first and later."""

_N_POINTS, _N_SWEEPS, _POINT_BITS = (64, 256, 512), 10, 24
"""Random points from which lines are searched, until a neuron above what is enough is found; how often; and bits to
which the ends are rounded."""

_ENLARGED = (1, 4, 32)
"""How often larger a box that cannot be halved is made, to contain the point where its events meet."""


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Coordinates of a cube in which samples look alike in all directions.

    Parameters
    ----------
    columns : list of int
        The parameters that matter; the others are zero.
    basis : integer array of shape (n_columns, n_columns)
        Row k is the direction of coordinate k.
    normals : array of shape (n_events, n_columns), int64
        The normals in these coordinates.
    slack : int
        0 if they are exact; 1 if they were divided to fit, and err by less than one.
    n_levels : int
        The sides of the cube are from -2^n_levels to 2^n_levels.
    has_wall : bool
        Whether the last coordinate must not be negative.
    n_excess : int
        Bits by which the normals were too long.
    """

    columns: list[int]
    basis: IntArray
    normals: npt.NDArray[np.int64]
    slack: int
    n_levels: int
    has_wall: bool
    n_excess: int = 0

    @classmethod
    def of(cls, trees: SpikeTrees, basis: IntArray | None = None) -> "Coordinates":
        """Return coordinates for some trees, or for what is open of them; along given directions, if there are any."""
        dimension = trees.normals.shape[1]
        columns = pivot_columns(trees.normals)
        has_wall = trees.has_wall and columns[-1] == dimension - 1
        exact = trees.normals[:, columns].astype(object)
        basis = _whitening(exact, has_wall) if basis is None else basis
        turned = exact @ basis.T
        largest = max(sum(abs(int(x)) for x in row) for row in turned)
        n_excess = max(0, largest.bit_length() + _LEVELS - _ROOM + 1)
        if n_excess:
            turned = np.array([[int(x) >> n_excess for x in row] for row in turned], dtype=object)
        return cls(columns, basis, turned.astype(np.int64), int(n_excess > 0), _LEVELS, has_wall, n_excess)

    def faces(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return centres and halves of the faces of the cube."""
        size, dimension = 1 << self.n_levels, len(self.columns)
        centres, halves = [], []
        for axis in range(dimension):
            for sign in (1, -1):
                centre, half = [0] * dimension, [size] * dimension
                if self.has_wall:
                    centre[-1], half[-1] = size // 2, size // 2
                    if axis == dimension - 1 and sign < 0:
                        continue
                centre[axis], half[axis] = sign * size, 0
                centres.append(centre)
                halves.append(half)
        return np.array(centres, dtype=np.int64), np.array(halves, dtype=np.int64)

    def points(self, trees: SpikeTrees, parameters: IntArray) -> npt.NDArray[np.float64]:
        """Return the points of the cube that stand for parameters, more or less."""
        values = trees.normals.astype(np.float64)
        drives = values @ np.asarray(parameters, dtype=object).astype(np.float64).T
        solved = np.linalg.lstsq(self.normals.astype(np.float64), drives, rcond=None)[0].T
        if self.has_wall:
            solved[:, -1] = abs(solved[:, -1])
        largest = abs(solved).max(1, keepdims=True, initial=0.0)
        return np.asarray(solved / np.where(largest > 0, largest, 1.0))

    def parameters(self, point: IntArray, dimension: int) -> IntArray:
        """Return the parameters at a point of the cube, without common factors."""
        found = np.zeros(dimension, dtype=object)
        found[self.columns] = np.asarray(point).astype(object) @ self.basis
        common = int(np.gcd.reduce(found)) or 1
        return np.asarray(found // common)


def _whitening(normals: IntArray, has_wall: bool) -> IntArray:
    """Return integer directions along which the normals are of equal size and uncorrelated, more or less.

    The columns are independent, so that there are at least as many rows.
    """
    values = normals.astype(np.float64)
    values /= max(1.0, float(abs(values).max()))
    n_free = values.shape[1] - has_wall
    basis = np.zeros((values.shape[1], values.shape[1]))
    if n_free:
        scale = np.sqrt((values[:, :n_free] ** 2).mean(0)) + 1e-30
        _, spread, axes = np.linalg.svd(values[:, :n_free] / scale, full_matrices=False)
        basis[:n_free, :n_free] = axes / np.maximum(spread, 1e-9 * spread[0])[:, None] / scale
    if has_wall:
        own = np.abs(values[:, :n_free] @ basis[:n_free, :n_free].T).mean() if n_free else 1.0
        basis[-1, -1] = own / max(float(abs(values[:, -1]).mean()), 1e-30)
    largest = np.concatenate((abs(basis).max(0), abs(basis).max(1)))
    whole = np.rint(basis * (2.0**8 / largest.min()))
    result = np.array([[int(x) for x in row] for row in whole], dtype=object)
    if len(pivot_columns(result)) < len(result):  # rounding made it singular
        return np.eye(len(result), dtype=np.int64).astype(object)
    return result


@dataclass
class Found:
    """What a search has found.

    Parameters
    ----------
    value : float
        The largest size of a sum.
    bound : float
        A bound on all sizes.
    parameters : list of (float, integer array)
        Neurons and the sizes of their sums.
    n_boxes : int
        Number of boxes examined.
    is_finished : bool
        Whether all boxes were searched.
    is_exact : bool
        False if numbers were too long for a search, and nothing was searched.
    proof : Proof, optional
        How boxes were halved, if it was kept.
    """

    value: float = 0.0
    bound: float = 0.0
    parameters: list[tuple[float, IntArray]] = field(default_factory=list)
    n_boxes: int = 0
    is_finished: bool = True
    is_exact: bool = True
    proof: "Proof | None" = None


@dataclass
class Proof:
    """How boxes were halved.

    Parameters
    ----------
    frame : Coordinates
        The coordinates of the boxes.
    codes : dict of bytes to bytes
        For each box that was searched, by its centre and halves: the axes along which parts of it were halved, in the
        order of a walk that visits the lower half first, and what ends the walk where a part was not halved.
    closer : dict of bytes to tuple
        For each box in which events meet: how often larger it was made, and the proof of what is open there.
    left : Boxes, optional
        The boxes from which an earlier search goes on.
    bound : float
        The largest bound of all others.
    """

    frame: Coordinates
    codes: dict[bytes, bytes] = field(default_factory=dict)
    closer: dict[bytes, tuple[int, "Proof | None"]] = field(default_factory=dict)
    left: "Boxes | None" = None
    bound: float = 0.0

    def walk(self) -> tuple[str, list[tuple[int, "Proof | None"]]]:
        """Return all halvings of all faces as one text, and what was looked at more closely, in this order.

        A letter is the axis along which a box is halved, and is followed by its lower and its upper half; "." is a box
        whose own bound is enough, "," one whose bound by a linear function is, "!" one that was looked at more closely.
        """
        text: list[str] = []
        uses: list[tuple[int, Proof | None]] = []

        def visit(centre: npt.NDArray[np.int64], half: npt.NDArray[np.int64]) -> None:
            key = key_of(centre, half)
            if key in self.closer:
                text.append("!")
                uses.append(self.closer[key])
                return
            parts = [(centre, half)]
            for code in self.codes.get(
                key, bytes([TILTED])
            ):  # bounds of what was left may be those of linear functions
                own, size = parts.pop()
                if code in (LEAF, TILTED):
                    text.append("." if code == LEAF else ",")
                elif code in (STUCK, LEFT):
                    if key_of(own, size) == key:  # it was left as it is
                        text.append(",")
                    else:
                        visit(own, size)
                else:
                    text.append(chr(ord("a") + code))
                    smaller = size.copy()
                    smaller[code] //= 2
                    for sign in (1, -1):  # the lower half is visited first
                        moved = own.copy()
                        moved[code] += sign * smaller[code]
                        parts.append((moved, smaller))

        for centre, half in zip(*self.frame.faces(), strict=True):
            visit(centre, half)
        return "".join(text), uses


def key_of(centre: npt.NDArray[np.int64], half: npt.NDArray[np.int64]) -> bytes:
    return bytes(centre.tobytes() + half.tobytes())


@dataclass
class BoxSearch:
    """A search for the largest price, and its limits.

    Parameters
    ----------
    enough : float
        Sizes up to this need no search.
    max_boxes : int
        Limit on the boxes examined.
    deadline : float
        When to stop, by ``time.monotonic``.
    is_thorough : bool
        Whether to search for the largest size even if a neuron above ``enough`` is known.
    keeps_proof : bool
        Whether to keep how boxes were halved, so that others can check it.
    is_group : bool
        Whether the size of a sum over several outputs is its Euclidean norm, or its largest entry.
    pulse : callable, optional
        Called as ``pulse(n_boxes, n_open)`` again and again; True stops the search.
    start : integer array of shape (n_neurons, dimension), optional
        Neurons near which better ones are looked for first.
    is_inner : bool
        Whether this is a search of what is open near a point, as a part of another search.
    """

    enough: float = 0.0
    max_boxes: int = 10**9
    deadline: float = inf
    is_thorough: bool = True
    keeps_proof: bool = False
    is_group: bool = False
    pulse: Callable[[int, int], bool] | None = None
    start: IntArray | None = None
    is_inner: bool = False

    def run(self, trees: SpikeTrees, resumed: Proof | None = None) -> Found:
        """Search all parameters, or go on with an earlier search of the same trees."""
        dimension = trees.normals.shape[1]
        found = Found()
        self._try(trees, np.zeros(dimension, dtype=object), found)  # fires always
        found.bound = found.value
        if len(trees.roots) == 0 or not trees.normals.any():
            return found
        frame, depth = Coordinates.of(trees) if resumed is None else resumed.frame, trees.depth
        if frame.n_excess > _MOST_EXCESS:
            found.is_exact = found.is_finished = False
            found.bound = self._size(np.abs(trees.offset) + _most(trees))
            return found
        open_boxes = Boxes.faces(frame)
        if resumed is not None and resumed.left is not None:
            open_boxes, found.bound = resumed.left, max(found.bound, resumed.bound)
        n_levels = len(frame.columns) * (frame.n_levels + 1) + 1
        found.proof = (resumed or Proof(frame)) if self.keeps_proof else None
        problem = (frame.normals, frame.slack, trees.edges, trees.gains, trees.roots, trees.offset)
        known: dict[bytes, tuple[float, Proof | None]] = {}
        if len(open_boxes) and not self.is_inner and self.max_boxes and time.monotonic() < self.deadline:
            self._look_around(trees, frame, found)
        first: int | None = None
        while len(open_boxes):
            if first is None and found.value > self.enough:
                first = found.n_boxes
            # A search that is content with some neurons goes on for as long as it took to find the first.
            is_content = not self.is_thorough and first is not None and found.n_boxes >= 2 * first
            if is_content and not self.is_inner:
                self._climb(trees, frame, frame.points(trees, np.array([own for _, own in found.parameters])), found)
            if is_content or self._must_stop(found.n_boxes, len(open_boxes)):
                found.is_finished = False
                limit = self._size(np.abs(trees.offset) + _most(trees))
                bounds = open_boxes.bounds
                if found.proof is not None:  # those of larger boxes may be smaller, but others look at each by itself
                    left = (np.ascontiguousarray(open_boxes.centres), np.ascontiguousarray(open_boxes.halves))
                    bounds, _ = bound_boxes(*problem, int(trees.has_lift), *left, self.enough, depth)
                found.bound = max(found.bound, float(np.minimum(bounds, limit).max()))
                break
            batch, open_boxes = open_boxes.split(min(_BATCH, self.max_boxes - found.n_boxes))
            if not self.is_inner:
                size = np.maximum(1, abs(batch.centres[:_N_CENTRES]).max(1, keepdims=True, initial=0))
                self._climb(trees, frame, batch.centres[:_N_CENTRES] / size, found)
            # The first boxes are large: small budgets leave many parts of them, each with a best neuron of its own.
            budget = _FIRST if found.n_boxes < _BATCH * _FIRST else _BUDGET
            budget = max(1, min(budget, (self.max_boxes - found.n_boxes) // len(batch)))
            target = max(self.enough, found.value) if self.is_thorough else self.enough
            again = [open_boxes]
            for part, own in _explore_all(
                problem, trees.has_lift, batch, target, budget, n_levels, depth, self.is_group, self.keeps_proof
            ):
                (
                    codes,
                    n_codes,
                    left,
                    left_bounds,
                    n_left,
                    held,
                    held_halves,
                    held_bounds,
                    is_last,
                    n_held,
                    done,
                    values,
                    points,
                ) = own
                found.n_boxes += int(n_codes.sum() - n_left.sum())
                found.bound = max(found.bound, float(done.max()))
                for i, (value, point) in enumerate(zip(values, points, strict=True)):
                    if found.proof is not None:
                        found.proof.codes[key_of(part.centres[i], part.halves[i])] = codes[i, : n_codes[i]].tobytes()
                    if value > found.value or value > self.enough:
                        self._try(trees, frame.parameters(point, dimension), found)
                    rows = slice(n_left[i])
                    closest = np.full(n_left[i], part.closest[i])
                    again.append(Boxes(left[i, rows, 0], left[i, rows, 1], left_bounds[i, rows], closest))
                    rows = slice(n_held[i])
                    boxes = Boxes(held[i, rows], held_halves[i, rows], held_bounds[i, rows], is_last[i, rows])
                    again.append(self._look_closely(trees, frame, boxes, depth, known, found))
            open_boxes = Boxes.join(again)
        return found

    def _must_stop(self, n_boxes: int, n_open: int) -> bool:
        is_told = self.pulse is not None and self.pulse(n_boxes, n_open)
        return is_told or n_boxes >= self.max_boxes or time.monotonic() >= self.deadline

    def _look_closely(
        self,
        trees: SpikeTrees,
        frame: Coordinates,
        boxes: "Boxes",
        depth: int,
        known: dict[bytes, tuple[float, Proof | None]],
        found: Found,
    ) -> "Boxes":
        """Search boxes in which events meet, as problems with fewer samples; return those that must be halved."""
        again = []
        for number in range(len(boxes)):
            bound, centre, half = float(boxes.bounds[number]), boxes.centres[number], boxes.halves[number]
            if bound <= max(self.enough, found.value, found.bound):
                found.bound = max(found.bound, bound)
                continue
            if found.value > self.enough and not self.is_thorough:
                found.bound = max(found.bound, bound)
                continue
            is_last = bool(boxes.closest[number])
            for factor in _ENLARGED if is_last else _ENLARGED[:1]:
                parts = survey(
                    frame.normals,
                    frame.slack,
                    trees.edges,
                    trees.gains,
                    trees.roots,
                    trees.offset,
                    int(trees.has_lift),
                    centre,
                    np.where(half <= 1, factor * half, half),
                    depth,
                )
                key = b"|".join(part.tobytes() for part in parts)
                if key not in known:
                    known[key] = self._search_near(trees, trees.within(*parts), frame, centre, found)
                if known[key][0] < bound:
                    bound = known[key][0]
                    if found.proof is not None:
                        found.proof.closer[key_of(centre, half)] = (factor, known[key][1])
                if bound <= max(self.enough, found.value):
                    break
            if is_last or bound <= max(self.enough, found.value):
                found.bound = max(found.bound, bound)
            else:
                again.append(number)
                if found.proof is not None:
                    found.proof.closer.pop(key_of(centre, half), None)
        closest = boxes.halves[again].max(1, initial=0) // 8
        return Boxes(boxes.centres[again], boxes.halves[again], boxes.bounds[again], closest)

    def _search_near(
        self, trees: SpikeTrees, near: SpikeTrees, frame: Coordinates, centre: npt.NDArray[np.int64], found: Found
    ) -> tuple[float, Proof | None]:
        """Return a bound on what is open near a point, after a search of it if it has fewer dimensions."""
        rank = len(pivot_columns(near.normals)) if len(near.roots) else 0
        if rank == len(frame.columns):
            return inf, None
        inner = replace(
            self, enough=max(self.enough, found.value), max_boxes=self.max_boxes - found.n_boxes, is_inner=True
        )
        result = inner.run(near)
        found.n_boxes += result.n_boxes
        found.is_finished = found.is_finished and result.is_finished
        if result.value > found.value and len(near.roots):
            point = common_zero(near.normals, frame.parameters(centre, trees.normals.shape[1]))
            step = result.parameters[0][1]
            for shift in (0, 8, 16, 24, 32, 48):
                moved = [(int(x) << shift) + int(y) for x, y in zip(point, step, strict=True)]
                self._try(trees, np.array(moved, dtype=object), found)
                if found.value >= result.value:
                    break
        return result.bound, result.proof

    def _look_around(self, trees: SpikeTrees, frame: Coordinates, found: Found) -> None:
        """Look for neurons of large sizes near those given and near random ones."""
        if self.start is not None and len(self.start):
            self._climb(trees, frame, frame.points(trees, self.start), found)
        for n_points in _N_POINTS:
            seed = int(np.abs(trees.gains).sum() % 2**31) + n_points
            self._climb(trees, frame, random_points(n_points, len(frame.columns), frame.has_wall, seed), found)
            if found.value > self.enough or time.monotonic() >= self.deadline:
                return

    def _climb(self, trees: SpikeTrees, frame: Coordinates, points: npt.NDArray[np.float64], found: Found) -> None:
        """Look for neurons of large sizes along lines from some points."""
        normals = frame.normals.astype(np.float64)
        normals /= max(1.0, float(abs(normals).max()))
        for k in range(len(trees.offset)):
            ends, sizes = climb(
                normals,
                trees.edges,
                trees.gains[:, :, k].astype(np.float64),
                trees.roots,
                float(trees.offset[k]),
                frame.has_wall,
                points,
                _N_SWEEPS,
                len(found.parameters),
            )
            whole = np.rint(ends * 2.0**_POINT_BITS).astype(np.int64)
            for point in whole[sizes > min(self.enough, found.value)]:
                self._try(trees, frame.parameters(point, trees.normals.shape[1]), found)

    def _try(self, trees: SpikeTrees, parameters: IntArray, found: Found) -> None:
        """Keep a neuron if its sum is of some size."""
        if trees.has_wall and int(parameters[-1]) < 0:
            return
        size = self._size(np.abs(trees.value_at(parameters)))
        if size > 0:
            found.parameters = sorted([*found.parameters, (size, parameters)], key=lambda entry: -entry[0])[:512]
            found.value = max(found.value, size)

    def _size(self, sums: npt.NDArray[np.int64]) -> float:
        """Return the size of a sum, rounded up, from the sizes of its entries."""
        if self.is_group:
            return float(np.linalg.norm(np.asarray(sums, dtype=np.float64))) * (1 + (len(sums) + 4) * 2.0**-52)
        return float(np.max(sums))


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes that may still contain something better, with bounds, and the size at which to look at them closely."""

    centres: npt.NDArray[np.int64]
    halves: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.float64]
    closest: npt.NDArray[np.int64]

    @classmethod
    def faces(cls, frame: Coordinates) -> "Boxes":
        """Return the faces of a cube."""
        centres, halves = frame.faces()
        return cls(centres, halves, np.full(len(centres), inf), np.full(len(centres), 1 << frame.n_levels))

    @classmethod
    def join(cls, parts: list["Boxes"]) -> "Boxes":
        """Return all boxes of some parts."""
        return cls(
            np.concatenate([own.centres for own in parts]),
            np.concatenate([own.halves for own in parts]),
            np.concatenate([own.bounds for own in parts]),
            np.concatenate([own.closest for own in parts]),
        )

    def __len__(self) -> int:
        """Return the number of boxes."""
        return len(self.bounds)

    def split(self, n_boxes: int) -> tuple["Boxes", "Boxes"]:
        """Return the boxes with the largest bounds, and the others."""
        order = np.argsort(-self.bounds, kind="stable")
        first, others = order[:n_boxes], np.sort(order[n_boxes:])
        return self.take(first), self.take(others)

    def take(self, rows: npt.NDArray[np.int64]) -> "Boxes":
        """Return some of the boxes."""
        return Boxes(self.centres[rows], self.halves[rows], self.bounds[rows], self.closest[rows])


def _explore_all(
    problem: tuple[Any, ...],
    has_lift: bool,
    boxes: Boxes,
    target: float,
    budget: int,
    n_levels: int,
    depth: int,
    is_group: bool,
    is_simple: bool,
) -> list[tuple[Boxes, tuple[Any, ...]]]:
    """Search boxes, on all processors if they are many."""

    def search(part: Boxes) -> tuple[Boxes, tuple[Any, ...]]:
        found = explore(
            *problem,
            int(has_lift),
            np.ascontiguousarray(part.centres),
            np.ascontiguousarray(part.halves),
            np.ascontiguousarray(part.closest),
            float(target),
            int(budget),
            int(n_levels),
            int(depth),
            is_group,
            is_simple,
        )
        return part, found

    # Asking Numba for its threads would start them, and give those of torch another number.
    n_threads = min(nb.config.NUMBA_NUM_THREADS, len(boxes) // 8)
    if n_threads < 2:
        return [search(boxes)]
    parts = [boxes.take(np.arange(start, len(boxes), 4 * n_threads)) for start in range(4 * n_threads)]
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(search, [part for part in parts if len(part)]))


def _most(trees: SpikeTrees) -> npt.NDArray[np.int64]:
    """Return what the gains of all events can add at most, for each output."""
    most: npt.NDArray[np.int64] = np.abs(trees.gains).max(1, initial=0).sum(0)
    return most
