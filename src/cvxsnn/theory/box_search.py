"""The largest price of any neuron, by branch and bound over boxes of parameters with exact integers.

Scaling a neuron changes no spike, so its parameters lie on the surface of a cube: the faces are the first boxes. The
kernel bounds a box by what each sample can still contribute, and halves it until the bound is small enough. Where many
events meet in one point, halving would go on for ever. Then all neurons near that point are those of a problem with
fewer samples and fewer dimensions, which is searched in the same way.
"""

import time
from bisect import insort
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from .box_kernel import END, Events, Outcome, Problem, explore, survey
from .integers import IntArray
from .line_search import climb, random_points
from .spike_trees import SpikeTrees, common_zero, pivot_columns


@dataclass(frozen=True)
class SearchSettings:
    """How boxes are searched."""

    n_levels: int = 20
    """Halvings of a side of the cube."""
    n_bits: int = 60
    """Bits for sums of products in the kernel."""
    max_excess: int = 24
    """Bits that may be rounded away from longer numbers, which makes bounds larger but keeps them valid."""
    batch: int = 64
    """Boxes that the kernel gets at once."""
    first_budget: int = 100
    """Nodes per box in the first batches. The first boxes are large, and each of their parts may have good neurons."""
    budget: int = 2000
    """Nodes per box later."""
    n_centres: int = 8
    """Boxes of each batch from whose centres lines are searched."""
    n_points: tuple[int, ...] = (64, 256, 512)
    """Random points from which lines are searched, until a neuron above what is enough is found."""
    n_sweeps: int = 10
    """Lines searched from each point, per parameter."""
    point_bits: int = 24
    """Bits to which the ends of lines are rounded."""
    enlarged: tuple[int, ...] = (1, 4, 32)
    """Factors by which a box that cannot be halved is enlarged, to contain the point where its events meet."""
    max_neurons: int = 512
    """Neurons of large sums that are kept."""


_SETTINGS = SearchSettings()


class Boxes(NamedTuple):
    """Boxes that may still contain something better."""

    centres: npt.NDArray[np.int64]
    halves: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.float64]
    closest: npt.NDArray[np.int64]
    """Sizes at which to look more closely at parts in which events meet."""

    @property
    def n_boxes(self) -> int:
        """Number of boxes."""
        return len(self.bounds)

    def take(self, rows: npt.NDArray[Any]) -> "Boxes":
        """Return some of the boxes."""
        return Boxes(*(values[rows] for values in self))

    def split(self, n_boxes: int) -> tuple["Boxes", "Boxes"]:
        """Return the boxes with the largest bounds, and the others."""
        order = np.argsort(-self.bounds, kind="stable")
        return self.take(order[:n_boxes]), self.take(np.sort(order[n_boxes:]))


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Coordinates of a cube in which samples look alike in all directions.

    Parameters
    ----------
    trees : SpikeTrees
        The samples.
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

    trees: SpikeTrees
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
        n_excess = max(0, largest.bit_length() + _SETTINGS.n_levels - _SETTINGS.n_bits + 1)
        if n_excess:
            turned = np.array([[int(x) >> n_excess for x in row] for row in turned], dtype=object)
        return cls(
            trees, columns, basis, turned.astype(np.int64), int(n_excess > 0), _SETTINGS.n_levels, has_wall, n_excess
        )

    @cached_property
    def problem(self) -> Problem:
        """The trees in these coordinates."""
        trees = self.trees
        events = Events(self.normals, self.slack, trees.edges, trees.gains, int(trees.has_lift))
        return Problem(events, trees.roots, trees.offset, trees.depth)

    def faces(self) -> Boxes:
        """Return the faces of the cube."""
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
        n_faces = len(centres)
        return Boxes(np.array(centres), np.array(halves), np.full(n_faces, inf), np.full(n_faces, size))

    def points(self, parameters: IntArray) -> npt.NDArray[np.float64]:
        """Return the points of the cube that stand for parameters, more or less."""
        values = self.trees.normals.astype(np.float64)
        drives = values @ np.asarray(parameters, dtype=object).astype(np.float64).T
        solved = np.linalg.lstsq(self.normals.astype(np.float64), drives, rcond=None)[0].T
        if self.has_wall:
            solved[:, -1] = abs(solved[:, -1])
        largest = abs(solved).max(1, keepdims=True, initial=0.0)
        return np.asarray(solved / np.where(largest > 0, largest, 1.0))

    def parameters(self, point: IntArray) -> IntArray:
        """Return the parameters at a point of the cube, without common factors."""
        parameters = np.zeros(self.trees.normals.shape[1], dtype=object)
        parameters[self.columns] = np.asarray(point).astype(object) @ self.basis
        return np.asarray(parameters // (int(np.gcd.reduce(parameters)) or 1))


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
    codes : dict of bytes to bytearray
        For each box that was searched, by its centre and halves: the codes of its parts, in the order of a walk that
        visits the lower half first.
    closer : dict of bytes to tuple
        For each box in which events meet: how often larger it was made, and the proof of what is open there.
    left : Boxes, optional
        The boxes from which an earlier search goes on.
    bound : float
        The largest bound of all others.
    """

    frame: Coordinates
    codes: dict[bytes, bytearray] = field(default_factory=dict)
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
            for code in self.codes.get(key, bytearray([END.tilted])):  # what was left may have linear bounds
                middle, size = parts.pop()
                if code < END.tilted:
                    text.append(chr(ord("a") + code))
                    smaller = size.copy()
                    smaller[code] //= 2
                    for sign in (1, -1):  # the lower half is visited first
                        moved = middle.copy()
                        moved[code] += sign * smaller[code]
                        parts.append((moved, smaller))
                elif code == END.leaf:
                    text.append(".")
                elif code == END.tilted or key_of(middle, size) == key:  # the box was left as it is
                    text.append(",")
                else:
                    visit(middle, size)

        faces = self.frame.faces()
        for centre, half in zip(faces.centres, faces.halves, strict=True):
            visit(centre, half)
        return "".join(text), uses


Known = dict[bytes, tuple[float, Proof | None]]
"""Bounds on trees that were searched already, and their proofs."""


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
        found = Found()
        self._try(trees, np.zeros(trees.normals.shape[1], dtype=object), found)  # fires always
        found.bound = found.value
        if len(trees.roots) == 0 or not trees.normals.any():
            return found
        frame = Coordinates.of(trees) if resumed is None else resumed.frame
        limit = self._size(np.abs(trees.offset) + np.abs(trees.gains).max(1, initial=0).sum(0))
        if frame.n_excess > _SETTINGS.max_excess:
            found.is_exact = found.is_finished = False
            found.bound = limit
            return found
        boxes = frame.faces()
        if resumed is not None and resumed.left is not None:
            boxes, found.bound = resumed.left, max(found.bound, resumed.bound)
        found.proof = (resumed or Proof(frame)) if self.keeps_proof else None
        known: Known = {}
        if boxes.n_boxes and not self.is_inner and self.max_boxes and time.monotonic() < self.deadline:
            self._look_around(frame, found)
        n_before_first: int | None = None
        while boxes.n_boxes:
            if n_before_first is None and found.value > self.enough:
                n_before_first = found.n_boxes
            # A search that is content with some neurons goes on for as long as it took to find the first.
            is_content = not self.is_thorough and n_before_first is not None and found.n_boxes >= 2 * n_before_first
            if is_content and not self.is_inner:
                self._climb(frame, frame.points(np.array([neuron for _, neuron in found.parameters])), found)
            if is_content or self._must_stop(found.n_boxes, boxes.n_boxes):
                found.is_finished = False
                # The bound of a parent may be smaller than that of a part, but the checker sees each part by itself.
                bounds = boxes.bounds if found.proof is None else bound_boxes(frame.problem, boxes, self.enough)[0]
                found.bound = max(found.bound, float(np.minimum(bounds, limit).max()))
                break
            batch, boxes = boxes.split(min(_SETTINGS.batch, self.max_boxes - found.n_boxes))
            if not self.is_inner:
                centres = batch.centres[: _SETTINGS.n_centres]
                self._climb(frame, centres / np.maximum(1, abs(centres).max(1, keepdims=True, initial=0)), found)
            again = [boxes]
            for part, outcome in self._explore(frame, batch, found):
                again += self._take(frame, part, outcome, known, found)
            boxes = Boxes(*map(np.concatenate, zip(*again, strict=True)))
        return found

    def _must_stop(self, n_boxes: int, n_open: int) -> bool:
        is_told = self.pulse is not None and self.pulse(n_boxes, n_open)
        return is_told or n_boxes >= self.max_boxes or time.monotonic() >= self.deadline

    def _explore(self, frame: Coordinates, boxes: Boxes, found: Found) -> list[tuple[Boxes, Outcome]]:
        """Search boxes with the kernel, on all processors if they are many."""
        is_early = found.n_boxes < _SETTINGS.batch * _SETTINGS.first_budget
        budget = _SETTINGS.first_budget if is_early else _SETTINGS.budget
        budget = max(1, min(budget, (self.max_boxes - found.n_boxes) // boxes.n_boxes))
        target = float(max(self.enough, found.value) if self.is_thorough else self.enough)
        n_levels = len(frame.columns) * (frame.n_levels + 1) + 1

        def search(part: Boxes) -> tuple[Boxes, Outcome]:
            arrays = map(np.ascontiguousarray, (part.centres, part.halves, part.closest))
            return part, explore(frame.problem, *arrays, target, budget, n_levels, self.is_group, self.keeps_proof)

        # Asking Numba for its threads would start them, and give those of torch another number.
        n_threads = min(nb.config.NUMBA_NUM_THREADS, boxes.n_boxes // 8)
        if n_threads < 2:
            return [search(boxes)]
        parts = [boxes.take(np.arange(start, boxes.n_boxes, 4 * n_threads)) for start in range(4 * n_threads)]
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(search, [part for part in parts if part.n_boxes]))

    def _take(self, frame: Coordinates, boxes: Boxes, outcome: Outcome, known: Known, found: Found) -> Iterator[Boxes]:
        """Keep what the kernel found in some boxes, and yield the parts that are still to be searched."""
        codes = [outcome.codes[i, :n_codes] for i, n_codes in enumerate(outcome.n_codes)]
        found.n_boxes += sum(int((code != END.left).sum()) for code in codes)
        found.bound = max(found.bound, float(outcome.bounds.max()))
        for i, code in enumerate(codes):
            if found.proof is not None:
                found.proof.codes[key_of(boxes.centres[i], boxes.halves[i])] = bytearray(code.tobytes())
            if outcome.values[i] > min(found.value, self.enough):
                self._try(frame.trees, frame.parameters(outcome.points[i]), found)
            ends = code[code >= END.last]
            n_ends, is_left = len(ends), ends == END.left
            if n_ends == 0:
                continue
            rest, closest = outcome.rest[i, :n_ends], np.full(n_ends, boxes.closest[i])
            parts = Boxes(rest[:, 0], rest[:, 1], outcome.rest_bounds[i, :n_ends], closest)
            if is_left.all():
                yield parts
                continue
            yield parts.take(is_left)
            yield self._look_closely(frame, parts.take(~is_left), ends[~is_left] == END.last, known, found)

    def _look_closely(
        self, frame: Coordinates, boxes: Boxes, is_last: npt.NDArray[np.bool_], known: Known, found: Found
    ) -> Boxes:
        """Search boxes in which events meet, as problems with fewer samples; return those that must be halved."""
        again = []
        for number in range(boxes.n_boxes):
            bound = float(boxes.bounds[number])
            centre = boxes.centres[number]
            half = boxes.halves[number]
            is_enough = bound <= max(self.enough, found.value, found.bound)
            if is_enough or (found.value > self.enough and not self.is_thorough):
                found.bound = max(found.bound, bound)
                continue
            for factor in _SETTINGS.enlarged if is_last[number] else (1,):
                parts = survey(frame.problem, centre, np.where(half <= 1, factor * half, half))
                key = b"|".join(part.tobytes() for part in parts)
                if key not in known:
                    known[key] = self._search_near(frame, frame.trees.within(*parts), centre, found)
                if known[key][0] < bound:
                    bound = known[key][0]
                    if found.proof is not None:
                        found.proof.closer[key_of(centre, half)] = (factor, known[key][1])
                if bound <= max(self.enough, found.value):
                    break
            if is_last[number] or bound <= max(self.enough, found.value):
                found.bound = max(found.bound, bound)
            else:
                again.append(number)
                if found.proof is not None:
                    found.proof.closer.pop(key_of(centre, half), None)
        rest = boxes.take(np.array(again, dtype=np.int64))
        return rest._replace(closest=rest.halves.max(1, initial=0) // 8)

    def _search_near(
        self, frame: Coordinates, near: SpikeTrees, centre: npt.NDArray[np.int64], found: Found
    ) -> tuple[float, Proof | None]:
        """Return a bound on what is open near a point, after a search of it if it has fewer dimensions."""
        rank = len(pivot_columns(near.normals)) if len(near.roots) else 0
        if rank == len(frame.columns):
            return inf, None
        enough, max_boxes = max(self.enough, found.value), self.max_boxes - found.n_boxes
        result = replace(self, enough=enough, max_boxes=max_boxes, is_inner=True).run(near)
        found.n_boxes += result.n_boxes
        found.is_finished = found.is_finished and result.is_finished
        if result.value > found.value and len(near.roots):
            point = common_zero(near.normals, frame.parameters(centre))
            step = result.parameters[0][1]
            for shift in (0, 8, 16, 24, 32, 48):  # closer and closer to the point, until the other spikes are kept
                moved = [(int(x) << shift) + int(y) for x, y in zip(point, step, strict=True)]
                self._try(frame.trees, np.array(moved, dtype=object), found)
                if found.value >= result.value:
                    break
        return result.bound, result.proof

    def _look_around(self, frame: Coordinates, found: Found) -> None:
        """Look for neurons of large sizes near those given and near random ones."""
        if self.start is not None and len(self.start):
            self._climb(frame, frame.points(self.start), found)
        for n_points in _SETTINGS.n_points:
            seed = int(np.abs(frame.trees.gains).sum() % 2**31) + n_points
            self._climb(frame, random_points(n_points, len(frame.columns), frame.has_wall, seed), found)
            if found.value > self.enough or time.monotonic() >= self.deadline:
                return

    def _climb(self, frame: Coordinates, points: npt.NDArray[np.float64], found: Found) -> None:
        """Look for neurons of large sizes along lines from some points."""
        normals, trees = frame.normals.astype(np.float64), frame.trees
        normals /= max(1.0, float(abs(normals).max()))
        for k in range(len(trees.offset)):
            gains, offset = trees.gains[:, :, k].astype(np.float64), float(trees.offset[k])
            problem = frame.problem._replace(
                events=frame.problem.events._replace(normals=normals, gains=gains), offset=offset
            )
            ends, sizes = climb(problem, frame.has_wall, points, _SETTINGS.n_sweeps, len(found.parameters))
            whole = np.rint(ends * 2.0**_SETTINGS.point_bits).astype(np.int64)
            for point in whole[sizes > min(self.enough, found.value)]:
                self._try(trees, frame.parameters(point), found)

    def _try(self, trees: SpikeTrees, parameters: IntArray, found: Found) -> None:
        """Keep a neuron if its sum is of some size."""
        if trees.has_wall and int(parameters[-1]) < 0:
            return
        size = self._size(np.abs(trees.value_at(parameters)))
        if size > 0:
            insort(found.parameters, (size, parameters), key=lambda entry: -entry[0])
            del found.parameters[_SETTINGS.max_neurons :]
            found.value = max(found.value, size)

    def _size(self, sums: npt.NDArray[np.int64]) -> float:
        """Return the size of a sum, rounded up, from the sizes of its entries."""
        if self.is_group:
            return float(np.linalg.norm(np.asarray(sums, dtype=np.float64))) * (1 + (len(sums) + 4) * 2.0**-52)
        return float(np.max(sums))


def bound_boxes(problem: Problem, boxes: Boxes, enough: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return a bound on the sums in each box, and whether it is a linear one, as the checker can repeat them."""
    arrays = map(np.ascontiguousarray, (boxes.centres, boxes.halves, boxes.closest))
    outcome = explore(problem, *arrays, float(enough), 1, 1, False, True)
    return np.maximum(outcome.bounds, outcome.rest_bounds[:, 0]), outcome.codes[:, 0] == END.tilted
