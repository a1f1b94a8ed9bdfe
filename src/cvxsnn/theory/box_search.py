"""The largest price of any neuron, by branch and bound over boxes of parameters with exact integers.

Scaling a neuron changes no spike, so its parameters lie on the surface of a cube: the faces are the first boxes. The
kernel bounds a box by the largest contribution of each sample, and halves it until the bound is small enough. If many
events meet in one point, halving would never end. But all neurons near that point are those of a problem with fewer
samples and fewer dimensions, which is searched in the same way.
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
    """Limits and sizes of the search."""

    n_levels: int = 20
    """Halvings of a side of the cube."""
    n_bits: int = 60
    """Bits for sums of products in the kernel."""
    max_excess: int = 24
    """Bits that may be rounded away from longer numbers, which makes bounds larger but keeps them valid."""
    batch: int = 64
    """Boxes per call of the kernel."""
    first_budget: int = 100
    """Nodes per box in the first batches. The first boxes are large, and each of their parts may have good neurons."""
    budget: int = 2000
    """Nodes per box later."""
    n_centres: int = 8
    """Number of boxes per batch whose centres start line searches."""
    n_points: tuple[int, ...] = (64, 256, 512)
    """Numbers of random points that start line searches, in turn, until a neuron above ``enough`` is found."""
    n_sweeps: int = 10
    """Sweeps of line searches from each point."""
    point_bits: int = 24
    """Bits to which the ends of lines are rounded."""
    enlarged: tuple[int, ...] = (1, 4, 32)
    """Factors by which a box that cannot be halved is enlarged, to contain the point where its events meet."""
    max_neurons: int = 512
    """Number of neurons kept, those with the largest sums."""


_SETTINGS = SearchSettings()


class Boxes(NamedTuple):
    """Boxes that may still contain something better."""

    centres: npt.NDArray[np.int64]
    halves: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.float64]
    closest: npt.NDArray[np.int64]
    """Largest size of a part at which events that meet are searched as a smaller problem."""

    @property
    def n_boxes(self) -> int:
        """Number of boxes."""
        return len(self.bounds)

    def take(self, rows: npt.NDArray[Any]) -> "Boxes":
        """Return some of the boxes."""
        return Boxes(*(values[rows] for values in self))

    def split(self, n_boxes: int) -> tuple["Boxes", "Boxes"]:
        """Return the boxes with the largest bounds, and the others."""
        # Stable and sorted again: equal bounds keep their order, so that a search can be repeated exactly.
        order = np.argsort(-self.bounds, kind="stable")
        return self.take(order[:n_boxes]), self.take(np.sort(order[n_boxes:]))


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Coordinates of the cube of parameters, chosen so that the normals have similar sizes in all directions.

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
        """Return coordinates for some trees; the directions are those of ``basis``, or computed."""
        dimension = trees.normals.shape[1]
        columns = pivot_columns(trees.normals)
        has_wall = trees.has_wall and columns[-1] == dimension - 1
        exact = trees.normals[:, columns].astype(object)
        basis = _whitening(exact, has_wall) if basis is None else basis
        turned = exact @ basis.T
        largest = max(sum(abs(int(x)) for x in row) for row in turned)
        # An event is at most the sum of its normal's sizes times 2^n_levels, and this must fit the kernel's sums.
        n_excess = max(0, largest.bit_length() + _SETTINGS.n_levels - _SETTINGS.n_bits + 1)
        if n_excess:
            # A shift rounds down, by less than one; every interval is widened by this slack.
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
        axes = np.repeat(np.eye(dimension, dtype=np.int64), 2, axis=0)
        centres, halves = size * axes * np.tile([[1], [-1]], (dimension, 1)), size * (1 - axes)
        if self.has_wall:  # the last coordinate is from 0 to the size: the last face is left out, the others are halved
            centres, halves = centres[:-1], halves[:-1]
            centres[:-1, -1] = halves[:-1, -1] = size // 2
        return Boxes(centres, halves, np.full(len(centres), inf), np.full(len(centres), size))

    def points(self, parameters: IntArray) -> npt.NDArray[np.float64]:
        """Return the points of the cube nearest to given parameters, in floating point."""
        values = self.trees.normals.astype(np.float64)
        # Least squares in floating point are enough: these points only start line searches.
        drives = values @ np.asarray(parameters, dtype=object).astype(np.float64).T
        solved = np.linalg.lstsq(self.normals.astype(np.float64), drives, rcond=None)[0].T
        if self.has_wall:
            solved[:, -1] = abs(solved[:, -1])
        largest = abs(solved).max(1, keepdims=True, initial=0.0)
        return np.asarray(solved / np.where(largest > 0, largest, 1.0))

    def parameters(self, point: IntArray) -> IntArray:
        """Return the parameters at a point of the cube, without common factors."""
        parameters = np.zeros(self.trees.normals.shape[1], dtype=object)
        # Without common factors more products fit into 64 bits, where sums are fastest.
        parameters[self.columns] = np.asarray(point).astype(object) @ self.basis
        return np.asarray(parameters // (int(np.gcd.reduce(parameters)) or 1))


def _whitening(normals: IntArray, has_wall: bool) -> IntArray:
    """Return integer directions along which the normals are approximately uncorrelated and of equal size.

    The columns are independent, so that there are at least as many rows.
    """
    values = normals.astype(np.float64)
    values /= max(1.0, float(abs(values).max()))
    n_free = values.shape[1] - has_wall
    # The threshold keeps a coordinate of its own, so that its wall is a face of the cube.
    basis = np.zeros((values.shape[1], values.shape[1]))
    if n_free:
        scale = np.sqrt((values[:, :n_free] ** 2).mean(0)) + 1e-30
        # Along directions that barely matter the basis would grow without limit, so the spread is bounded from below.
        _, spread, axes = np.linalg.svd(values[:, :n_free] / scale, full_matrices=False)
        basis[:n_free, :n_free] = axes / np.maximum(spread, 1e-9 * spread[0])[:, None] / scale
    if has_wall:
        mean_size = np.abs(values[:, :n_free] @ basis[:n_free, :n_free].T).mean() if n_free else 1.0
        basis[-1, -1] = mean_size / max(float(abs(values[:, -1]).mean()), 1e-30)
    largest = np.concatenate((abs(basis).max(0), abs(basis).max(1)))
    # Every row and column has an entry of at least 8 bits, so that rounding makes none of them zero.
    rounded = np.rint(basis * (2.0**8 / largest.min()))
    result = np.array([[int(x) for x in row] for row in rounded], dtype=object)
    if len(pivot_columns(result)) < len(result):  # rounding made it singular
        return np.eye(len(result), dtype=np.int64).astype(object)
    return result


@dataclass
class SearchResult:
    """Result of a search, updated while it runs.

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
        For each box in which events meet: the factor by which it was enlarged, and the proof of its smaller problem.
    left : Boxes, optional
        The boxes that an earlier search left open.
    bound : float
        The largest bound of all other boxes.
    """

    frame: Coordinates
    codes: dict[bytes, bytearray] = field(default_factory=dict)
    closer: dict[bytes, tuple[int, "Proof | None"]] = field(default_factory=dict)
    left: "Boxes | None" = None
    bound: float = 0.0

    def walk(self) -> tuple[str, list[tuple[int, "Proof | None"]]]:
        """Return the halvings of all faces as one text, and the closer looks in the order of their boxes.

        A letter is the axis along which a box is halved, and is followed by its lower and its upper half; "." is a box
        whose constant bound is small enough, "," one whose linear bound is, "!" one that a smaller problem bounds.
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
            # Boxes that were never searched are listed with the linear bound, which never exceeds the constant one.
            for code in self.codes.get(key, bytearray([END.tilted])):
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
        Called as ``pulse(n_boxes, n_open)`` before each batch; return True to stop.
    start : integer array of shape (n_neurons, dimension), optional
        Neurons that start the first line searches.
    is_inner : bool
        Whether this is a part of another search, over the trees that are open near a point.
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

    def run(self, trees: SpikeTrees, resumed: Proof | None = None) -> SearchResult:
        """Search all parameters, or resume an earlier search of the same trees."""
        result = SearchResult()
        self._try(trees, np.zeros(trees.normals.shape[1], dtype=object), result)  # fires always
        result.bound = result.value
        if len(trees.roots) == 0 or not trees.normals.any():
            return result
        frame = Coordinates.of(trees) if resumed is None else resumed.frame
        # No sum exceeds all gains together: a valid bound even if nothing is searched.
        limit = self._size(np.abs(trees.offset) + np.abs(trees.gains).max(1, initial=0).sum(0))
        if frame.n_excess > _SETTINGS.max_excess:
            result.is_exact = result.is_finished = False
            result.bound = limit
            return result
        boxes = frame.faces()
        if resumed is not None and resumed.left is not None:
            boxes, result.bound = resumed.left, max(result.bound, resumed.bound)
        result.proof = (resumed or Proof(frame)) if self.keeps_proof else None
        known: Known = {}
        # Good neurons come first: a large value lets a thorough search drop more boxes.
        if boxes.n_boxes and not self.is_inner and self.max_boxes and time.monotonic() < self.deadline:
            self._look_around(frame, result)
        n_before_first: int | None = None
        while boxes.n_boxes:
            if n_before_first is None and result.value > self.enough:
                n_before_first = result.n_boxes
            # Unless it is thorough, a search stops after twice the number of boxes that the first neuron took.
            is_content = not self.is_thorough and n_before_first is not None and result.n_boxes >= 2 * n_before_first
            if is_content and not self.is_inner:
                self._climb(frame, frame.points(np.array([neuron for _, neuron in result.parameters])), result)
            is_stopped = self.pulse is not None and self.pulse(result.n_boxes, boxes.n_boxes)
            if is_content or is_stopped or result.n_boxes >= self.max_boxes or time.monotonic() >= self.deadline:
                result.is_finished = False
                # The bound of a parent may be smaller than that of a part, but the checker bounds each part separately.
                bounds = boxes.bounds if result.proof is None else bound_boxes(frame.problem, boxes, self.enough)[0]
                result.bound = max(result.bound, float(np.minimum(bounds, limit).max()))
                break
            batch, boxes = boxes.split(min(_SETTINGS.batch, self.max_boxes - result.n_boxes))
            if not self.is_inner:
                centres = batch.centres[: _SETTINGS.n_centres]
                self._climb(frame, centres / np.maximum(1, abs(centres).max(1, keepdims=True, initial=0)), result)
            remaining = [boxes]
            for part, outcome in self._explore(frame, batch, result):
                remaining += self._take(frame, part, outcome, known, result)
            boxes = Boxes(*map(np.concatenate, zip(*remaining, strict=True)))
        return result

    def _explore(self, frame: Coordinates, boxes: Boxes, result: SearchResult) -> list[tuple[Boxes, Outcome]]:
        """Search boxes with the kernel, in several threads if there are many."""
        is_early = result.n_boxes < _SETTINGS.batch * _SETTINGS.first_budget
        budget = _SETTINGS.first_budget if is_early else _SETTINGS.budget
        budget = max(1, min(budget, (self.max_boxes - result.n_boxes) // boxes.n_boxes))
        # A thorough search drops boxes that cannot beat the best neuron; otherwise only ``enough`` is proven.
        target = float(max(self.enough, result.value) if self.is_thorough else self.enough)
        # Each side is halved at most ``frame.n_levels`` times.
        n_levels = len(frame.columns) * (frame.n_levels + 1) + 1

        def search(part: Boxes) -> tuple[Boxes, Outcome]:
            arrays = map(np.ascontiguousarray, (part.centres, part.halves, part.closest))
            return part, explore(frame.problem, *arrays, target, budget, n_levels, self.is_group)

        # nb.get_num_threads() would start the threads of Numba and change the number of threads of torch.
        n_threads = min(nb.config.NUMBA_NUM_THREADS, boxes.n_boxes // 8)
        if n_threads < 2:
            return [search(boxes)]
        # Boxes are sorted by bound: interleaved parts share those with large bounds evenly.
        parts = [boxes.take(np.arange(start, boxes.n_boxes, 4 * n_threads)) for start in range(4 * n_threads)]
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(search, [part for part in parts if part.n_boxes]))

    def _take(
        self, frame: Coordinates, boxes: Boxes, outcome: Outcome, known: Known, result: SearchResult
    ) -> Iterator[Boxes]:
        """Store the kernel's results for some boxes, and yield the parts that are still to be searched."""
        codes = [outcome.codes[i, :n_codes] for i, n_codes in enumerate(outcome.n_codes)]
        result.n_boxes += sum(int((code != END.left).sum()) for code in codes)
        result.bound = max(result.bound, float(outcome.bounds.max()))
        for i, code in enumerate(codes):
            if result.proof is not None:
                result.proof.codes[key_of(boxes.centres[i], boxes.halves[i])] = bytearray(code.tobytes())
            # Neurons below the best one are kept too: column generation adds several at a time.
            if outcome.values[i] > min(result.value, self.enough):
                self._try(frame.trees, frame.parameters(outcome.points[i]), result)
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
            yield self._look_closely(frame, parts.take(~is_left), ends[~is_left] == END.last, known, result)

    def _look_closely(
        self, frame: Coordinates, boxes: Boxes, is_last: npt.NDArray[np.bool_], known: Known, result: SearchResult
    ) -> Boxes:
        """Search boxes in which events meet, as problems with fewer samples; return those that must be halved."""
        halved = []
        for number in range(boxes.n_boxes):
            bound, centre, half = float(boxes.bounds[number]), boxes.centres[number], boxes.halves[number]
            # A box below the bound that was reached elsewhere cannot change the result.
            is_enough = bound <= max(self.enough, result.value, result.bound)
            if is_enough or (result.value > self.enough and not self.is_thorough):
                result.bound = max(result.bound, bound)
                continue
            for factor in _SETTINGS.enlarged if is_last[number] else (1,):
                parts = survey(frame.problem, centre, np.where(half <= 1, factor * half, half))
                # Boxes around the same point have the same open trees, which are searched once.
                key = b"|".join(part.tobytes() for part in parts)
                if key not in known:
                    known[key] = self._search_near(frame, frame.trees.within(*parts), centre, result)
                if known[key][0] < bound:
                    bound = known[key][0]
                    if result.proof is not None:
                        result.proof.closer[key_of(centre, half)] = (factor, known[key][1])
                if bound <= max(self.enough, result.value):
                    break
            # A box of the smallest size cannot be halved: its bound counts, however large.
            if is_last[number] or bound <= max(self.enough, result.value):
                result.bound = max(result.bound, bound)
            else:
                halved.append(number)
                if result.proof is not None:  # the proofs of its halves replace that of the box
                    result.proof.closer.pop(key_of(centre, half), None)
        # Parts are surveyed again only when they are much smaller.
        rest = boxes.take(np.array(halved, dtype=np.int64))
        return rest._replace(closest=rest.halves.max(1, initial=0) // 8)

    def _search_near(
        self, frame: Coordinates, near: SpikeTrees, centre: npt.NDArray[np.int64], result: SearchResult
    ) -> tuple[float, Proof | None]:
        """Return a bound on the open parts near a point: infinity, or the result of a search in fewer dimensions."""
        rank = len(pivot_columns(near.normals)) if len(near.roots) else 0
        # Only a search in fewer dimensions is sure to end.
        if rank == len(frame.columns):
            return inf, None
        enough, max_boxes = max(self.enough, result.value), self.max_boxes - result.n_boxes
        inner = replace(self, enough=enough, max_boxes=max_boxes, is_inner=True).run(near)
        result.n_boxes += inner.n_boxes
        result.is_finished = result.is_finished and inner.is_finished
        if inner.value > result.value and len(near.roots):
            point = common_zero(near.normals, frame.parameters(centre))
            step = inner.parameters[0][1]
            for shift in (0, 8, 16, 24, 32, 48):  # closer and closer to the point, until the other spikes are kept
                moved = [(int(x) << shift) + int(y) for x, y in zip(point, step, strict=True)]
                self._try(frame.trees, np.array(moved, dtype=object), result)
                if result.value >= inner.value:
                    break
        return inner.bound, inner.proof

    def _look_around(self, frame: Coordinates, result: SearchResult) -> None:
        """Search lines from the neurons in ``start`` and from random points."""
        if self.start is not None and len(self.start):
            self._climb(frame, frame.points(self.start), result)
        for n_points in _SETTINGS.n_points:
            # The seed is a function of the problem, so that equal problems have equal searches.
            seed = int(np.abs(frame.trees.gains).sum() % 2**31) + n_points
            self._climb(frame, random_points(n_points, len(frame.columns), frame.has_wall, seed), result)
            if result.value > self.enough or time.monotonic() >= self.deadline:
                return

    def _climb(self, frame: Coordinates, points: npt.NDArray[np.float64], result: SearchResult) -> None:
        """Search lines from some points for neurons with large sums."""
        normals, trees = frame.normals.astype(np.float64), frame.trees
        normals /= max(1.0, float(abs(normals).max()))
        for k in range(len(trees.offset)):
            # A line search maximises one output; ``_try`` computes the size over all of them.
            gains, offset = trees.gains[:, :, k].astype(np.float64), float(trees.offset[k])
            problem = frame.problem._replace(
                events=frame.problem.events._replace(normals=normals, gains=gains), offset=offset
            )
            ends, sizes = climb(problem, frame.has_wall, points, _SETTINGS.n_sweeps, len(result.parameters))
            rounded = np.rint(ends * 2.0**_SETTINGS.point_bits).astype(np.int64)
            for point in rounded[sizes > min(self.enough, result.value)]:
                self._try(trees, frame.parameters(point), result)

    def _try(self, trees: SpikeTrees, parameters: IntArray, result: SearchResult) -> None:
        """Compute the exact sum of a neuron, and keep the neuron if the sum is among the largest."""
        if trees.has_wall and int(parameters[-1]) < 0:
            return
        size = self._size(np.abs(trees.value_at(parameters)))
        if size > 0:
            insort(result.parameters, (size, parameters), key=lambda entry: -entry[0])
            del result.parameters[_SETTINGS.max_neurons :]
            result.value = max(result.value, size)

    def _size(self, sums: npt.NDArray[np.int64]) -> float:
        """Return the size of a sum, rounded up, from the sizes of its entries."""
        if self.is_group:  # the factor covers the rounding of squares, sum and root, as in the kernel
            return float(np.linalg.norm(np.asarray(sums, dtype=np.float64))) * (1 + (len(sums) + 4) * 2.0**-52)
        return float(np.max(sums))


def bound_boxes(problem: Problem, boxes: Boxes, enough: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return a bound on the sums in each box, and whether it is a linear one, as the checker can repeat them."""
    arrays = map(np.ascontiguousarray, (boxes.centres, boxes.halves, boxes.closest))
    # One node and one level: the kernel bounds each box and halves none.
    outcome = explore(problem, *arrays, float(enough), 1, 1, False)
    return np.maximum(outcome.bounds, outcome.rest_bounds[:, 0]), outcome.codes[:, 0] == END.tilted
