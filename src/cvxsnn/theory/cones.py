"""Exact polyhedral cones, processed in batches, cut by hyperplanes through the origin.

A cone is kept by its generators, which are integer vectors: lines (both directions) and extreme rays. A cut keeps the
rays on its side and adds one for each pair of adjacent rays on opposite sides (the double description method). Nothing
is ever rounded: coordinates are 64-bit integers as long as products fit, and Python integers after that.

Sets here are *half-open*: a spike is ``a·u ≥ 0`` and silence is ``a·u < 0``, so ties and cells are distinguished. A set
is its closure together with the constraints that must be strict; it is non-empty exactly when no strict constraint is
tight at all rays, and then the sum of the rays lies in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from .integers import SAFE, IntArray

Vector = tuple[int, ...]

_NOT_ZERO = 1
"""The first bit of a mask means "u is not zero": the apex violates it, no ray does."""

WALL = 2
"""The second bit is a constraint that a family of neurons imposes on its parameters from the start."""

_EVERYWHERE = -1
"""The mask of the apex: every constraint is tight there."""


@dataclass
class Cone:
    """One cone.

    Parameters
    ----------
    rays : list of tuple of int
        The extreme rays, without common factors.
    tight : list of int
        For each ray, a bit mask of the constraints that hold with equality there.
    lines : list of tuple of int
        Vectors whose multiples of either sign belong to the cone.
    """

    rays: list[Vector]
    tight: list[int]
    lines: list[Vector]

    @classmethod
    def whole_space(cls, dimension: int) -> "Cone":
        """Return the cone without constraints."""
        return cls([], [], [tuple(int(i == j) for j in range(dimension)) for i in range(dimension)])

    def cut(self, normal: Vector, bit: int) -> tuple["Cone", "Cone"]:
        """Return the closed parts where ``normal·u ≥ 0`` and ``≤ 0``; ``bit`` is the mask of this constraint."""
        for number, line in enumerate(self.lines):
            slope = _dot(normal, line)
            if slope:
                return self._cut_line(number, line if slope > 0 else _negated(line), normal, bit)
        values = [_dot(normal, ray) for ray in self.rays]
        above, below = Cone([], [], self.lines), Cone([], [], self.lines)
        for value, ray, tight in zip(values, self.rays, self.tight, strict=True):
            mask = tight if value else tight | bit
            for side in (above,) if value > 0 else (below,) if value < 0 else (above, below):
                side.rays.append(ray)
                side.tight.append(mask)
        ups = [i for i, value in enumerate(values) if value > 0]
        downs = [i for i, value in enumerate(values) if value < 0]
        for i, j in product(ups, downs):
            common = self.tight[i] & self.tight[j]
            # Two rays span a face of dimension two when no third ray lies on everything that both lie on.
            if not any(common & ~tight == 0 for k, tight in enumerate(self.tight) if k not in (i, j)):
                between = _reduced(
                    tuple(values[i] * b - values[j] * a for a, b in zip(self.rays[i], self.rays[j], strict=True))
                )
                for side in (above, below):
                    side.rays.append(between)
                    side.tight.append(common | bit)
        return above, below

    def _cut_line(self, number: int, line: Vector, normal: Vector, bit: int) -> tuple["Cone", "Cone"]:
        """Cut along a line, which is removed: everything else is projected along it into the hyperplane."""
        slope = _dot(normal, line)

        def project(vector: Vector) -> Vector:
            value = _dot(normal, vector)
            return _reduced(tuple(slope * a - value * b for a, b in zip(vector, line, strict=True)))

        lines = [project(other) for k, other in enumerate(self.lines) if k != number]
        rays = [project(ray) for ray in self.rays]
        masks = [tight | bit for tight in self.tight]
        # The line is tight at every earlier constraint.
        mask = (bit - 1) & ~_NOT_ZERO
        return (
            Cone([*rays, line], [*masks, mask], lines),
            Cone([*rays, _negated(line)], [*masks, mask], lines),
        )

    def interior(self) -> Vector:
        """Return the sum of the rays, a point in the relative interior."""
        dimension = len((self.rays or self.lines)[0]) if self.rays or self.lines else 0
        return tuple(sum(ray[i] for ray in self.rays) for i in range(dimension))


class Frontier:
    """Half-open sets that are cut together, by one constraint each.

    Parameters
    ----------
    cone : Cone
        The first set.
    dimension : int
        Dimension of the space.

    Attributes
    ----------
    origin : array of shape (n_sets,)
        For each set, the one that it came from in the last cut.
    spikes : array of shape (n_sets,), dtype bool
        On which side of the last cut each set lies.
    """

    def __init__(self, cone: Cone, dimension: int) -> None:
        self._dimension = dimension
        self._bit = WALL
        self._rays: IntArray
        self._tight: npt.NDArray[Any]
        self._start: npt.NDArray[np.int64]
        self._strict: npt.NDArray[Any]
        self._lines: list[list[Vector]]
        self.origin = np.zeros(1, dtype=np.int64)
        self.spikes = np.zeros(1, dtype=bool)
        self._pack([(cone, 0)])

    def __len__(self) -> int:
        """Return the number of sets."""
        return len(self._strict)

    def cone(self, number: int) -> Cone:
        """Return the closure of one set."""
        rows = slice(self._start[number] + 1, self._start[number + 1])  # the first row is the apex
        rays = [tuple(ray) for ray in self._rays[rows].tolist()]
        return Cone(rays, list(self._tight[rows]), list(self._lines[number]))

    def witnesses(self) -> Iterator[Vector]:
        """Yield a point of each set."""
        for number in range(len(self)):
            yield (
                _reduced(self.cone(number).interior())
                if self._start[number + 1] - self._start[number] > 1
                else ((0,) * self._dimension)
            )

    def cut(self, normals: IntArray) -> None:
        """Replace each set by its non-empty parts where its constraint, a row of ``normals``, is a spike or silence."""
        self._bit *= 2
        bit = self._bit
        values = self._values(normals)
        has_up = np.maximum.reduceat(values, self._start[:-1]) > 0
        has_down = np.minimum.reduceat(values, self._start[:-1]) < 0
        n_zero = np.add.reduceat(values == 0, self._start[:-1])
        has_lines = np.array([bool(lines) for lines in self._lines])
        is_plain = ~has_lines & ~(has_up & has_down) & ~(has_down & (n_zero > 1))
        # Where all rays are strictly below, only the apex can fire, and only if nothing so far was silent.
        apex_fires = is_plain & has_down & (self._strict == 0)
        parts: list[tuple[Cone, int, int, bool]] = []
        for number in np.flatnonzero(~is_plain):
            parts += self._cut_one(int(number), tuple(int(x) for x in normals[number]), bit)
        for number in np.flatnonzero(apex_fires):
            parts.append((Cone([], [], []), 0, int(number), True))
        kept = np.flatnonzero(is_plain)
        self._keep(kept, ~has_down[kept], parts)

    def _rows(self, sets: IntArray, sizes: IntArray) -> IntArray:
        """Return the indices of the rays of some sets, set by set."""
        shift = np.repeat(self._start[:-1][sets] - np.concatenate(([0], np.cumsum(sizes)[:-1])), sizes)
        return shift.astype(np.int64) + np.arange(int(sizes.sum()))

    def _cut_one(self, number: int, normal: Vector, bit: int) -> list[tuple[Cone, int, int, bool]]:
        strict = int(self._strict[number])
        above, below = self.cone(number).cut(normal, bit)
        parts = []
        if _is_nonempty(above, strict):
            parts.append((above, strict, number, True))
        if _is_nonempty(below, strict | bit | _NOT_ZERO):
            parts.append((below, strict | bit | _NOT_ZERO, number, False))
        return parts

    def _values(self, normals: IntArray) -> IntArray:
        sizes = np.diff(self._start)
        largest = int(abs(self._rays).max(initial=1)) * int(abs(normals).max(initial=1)) * self._dimension
        if largest >= SAFE and self._rays.dtype != object:
            self._rays = self._rays.astype(object)
        repeated = np.repeat(normals.astype(self._rays.dtype), sizes, axis=0)
        values: IntArray = (self._rays * repeated).sum(1)
        return values

    def _keep(self, kept: IntArray, spikes: npt.NDArray[np.bool_], parts: list[tuple[Cone, int, int, bool]]) -> None:
        """Keep the sets that lie on one side, and the parts of those that do not."""
        sizes = np.diff(self._start)[kept]
        rows = self._rows(kept, sizes)
        rays, tight = self._rays[rows], self._tight[rows]
        strict, lines = self._strict[kept].copy(), [self._lines[k] for k in kept]
        strict[~spikes] = [mask | _NOT_ZERO for mask in strict[~spikes]]
        self._pack([(cone, mask) for cone, mask, _, _ in parts])
        if len(kept):
            dtype = object if object in (rays.dtype, self._rays.dtype) else np.int64
            self._rays = np.concatenate((rays.astype(dtype), self._rays.astype(dtype)))
            self._tight = np.concatenate((tight, self._tight))
            self._start = np.concatenate((np.concatenate(([0], np.cumsum(sizes))), self._start[1:] + int(sizes.sum())))
            self._strict = np.concatenate((strict, self._strict))
            self._lines = lines + self._lines
        self.origin = np.concatenate((kept, np.array([number for _, _, number, _ in parts], dtype=np.int64)))
        self.spikes = np.concatenate((spikes, np.array([fires for *_, fires in parts], dtype=bool)))

    def _pack(self, sets: list[tuple[Cone, int]]) -> None:
        apex = (0,) * self._dimension
        rays = [ray for cone, _ in sets for ray in (apex, *cone.rays)]
        dtype = np.int64 if max((max(map(abs, ray)) for ray in rays), default=0) < 2**31 else object
        self._rays = np.array(rays, dtype=dtype).reshape(-1, self._dimension)
        self._tight = _objects([mask for cone, _ in sets for mask in (_EVERYWHERE, *cone.tight)])
        self._start = np.concatenate(([0], np.cumsum([1 + len(cone.rays) for cone, _ in sets]))).astype(np.int64)
        self._strict = _objects([mask for _, mask in sets])
        self._lines = [cone.lines for cone, _ in sets]


def _is_nonempty(cone: Cone, strict: int) -> bool:
    everywhere = _EVERYWHERE
    for tight in cone.tight:
        everywhere &= tight
    return everywhere & strict == 0


def _dot(a: Vector, b: Vector) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _negated(vector: Vector) -> Vector:
    return tuple(-x for x in vector)


def _reduced(vector: Vector) -> Vector:
    divisor = gcd(*vector)
    return tuple(x // divisor for x in vector) if divisor > 1 else vector


def _objects(values: list[int]) -> npt.NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
