"""Exact polyhedral cones, processed in batches, cut by hyperplanes through the origin.

A cone is kept by its generators, which are integer vectors: lines (both directions) and extreme rays. A cut keeps the
rays on its side and adds one for each pair of adjacent rays on opposite sides (the double description method). Nothing
is ever rounded: coordinates are 64-bit integers as long as products fit, and Python integers after that.

Sets here are *half-open*: a spike is ``a·u ≥ 0`` and silence is ``a·u < 0``, so ties and cells are distinguished. A set
is its closure together with the constraints that must be strict; it is non-empty exactly when no strict constraint is
tight at all rays, and then the sum of the rays lies in it.
"""

from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import gcd
from operator import and_
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .integers import SAFE, IntArray, narrow

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
                # One half of a line that the hyperplane crosses is on each side, and no pairs of rays need be compared.
                return self._cut_line(number, line if slope > 0 else _negated(line), normal, bit)
        values = [_dot(normal, ray) for ray in self.rays]
        above, below = Cone([], [], self.lines), Cone([], [], self.lines)
        for value, ray, tight in zip(values, self.rays, self.tight, strict=True):
            for side, is_on_it in ((above, value >= 0), (below, value <= 0)):
                if is_on_it:
                    side.rays.append(ray)
                    side.tight.append(tight if value else tight | bit)
        ups, downs = ([i for i, value in enumerate(values) if sign * value > 0] for sign in (1, -1))
        for i, j in product(ups, downs):
            common = self.tight[i] & self.tight[j]
            # Two rays span a face of dimension two when no third ray lies on everything that both lie on.
            if not any(common & ~tight == 0 for k, tight in enumerate(self.tight) if k not in (i, j)):
                between = _combined(values[i], self.rays[j], values[j], self.rays[i])
                for side in (above, below):
                    side.rays.append(between)
                    side.tight.append(common | bit)
        return above, below

    def _cut_line(self, number: int, line: Vector, normal: Vector, bit: int) -> tuple["Cone", "Cone"]:
        """Cut along a line, which is removed: everything else is projected along it into the hyperplane."""
        slope = _dot(normal, line)
        lines, rays = (
            [_combined(slope, vector, _dot(normal, vector), line) for vector in vectors]
            for vectors in (self.lines[:number] + self.lines[number + 1 :], self.rays)
        )
        # The line is tight at every earlier constraint.
        masks = [*(tight | bit for tight in self.tight), (bit - 1) & ~_NOT_ZERO]
        return Cone([*rays, line], masks, lines), Cone([*rays, _negated(line)], masks, lines)

    def generators(self) -> list[Vector]:
        """Return the rays, and both directions of each line."""
        return [*self.rays, *self.lines, *map(_negated, self.lines)]

    def interior(self) -> Vector:
        """Return the sum of the rays, a point in the relative interior."""
        return tuple(map(sum, zip(*self.rays, strict=True))) or (0,) * len(next(iter(self.lines), ()))


class HalfOpen(NamedTuple):
    """A half-open set: its closure, the mask of its strict constraints, and the generators of the closure as rows."""

    cone: Cone
    strict: int
    rows: IntArray

    @classmethod
    def of(cls, cone: Cone, strict: int, dimension: int) -> "HalfOpen":
        """Return a set; its first row is the apex."""
        # The apex also gives every set at least one row, which ``reduceat`` needs.
        return cls(cone, strict, narrow(np.array([(0,) * dimension, *cone.rays], dtype=object)))


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
    sets : list of HalfOpen
        The sets.
    origin : array of shape (n_sets,)
        For each set, the one that it came from in the last cut.
    spikes : array of shape (n_sets,), dtype bool
        On which side of the last cut each set lies.
    """

    def __init__(self, cone: Cone, dimension: int) -> None:
        self._dimension = dimension
        self._bit = WALL
        self.sets = [HalfOpen.of(cone, 0, dimension)]
        self.origin = np.zeros(1, dtype=np.int64)
        self.spikes = np.zeros(1, dtype=bool)

    def __len__(self) -> int:
        """Return the number of sets."""
        return len(self.sets)

    def witnesses(self) -> IntArray:
        """Return a point of each set, one per row."""
        return np.array([_reduced(tuple(sum(part.rows.astype(object)))) for part in self.sets], dtype=object)

    def cut(self, normals: IntArray) -> None:
        """Replace each set by its non-empty parts where its constraint, a row of ``normals``, is a spike or silence."""
        self._bit *= 2
        rows = np.concatenate([part.rows for part in self.sets])
        sizes = [len(part.rows) for part in self.sets]
        # Overflow of 64-bit integers would be silent, so that long numbers become Python integers.
        if int(abs(rows).max(initial=1)) * int(abs(normals).max(initial=1)) * self._dimension >= SAFE:
            rows = rows.astype(object)
        values = (rows * np.repeat(normals.astype(rows.dtype), sizes, axis=0)).sum(1)
        start = np.cumsum([0, *sizes[:-1]])
        has_up, has_down = np.maximum.reduceat(values, start) > 0, np.minimum.reduceat(values, start) < 0
        n_zero = np.add.reduceat(values == 0, start)
        has_lines = np.array([bool(part.cone.lines) for part in self.sets])
        # Most sets lie on one side and stay as they are. Besides those with rays on both sides, sets below are cut if a
        # ray is on the hyperplane, where ties fire: the apex is one zero, so that there are more than one.
        is_plain = ~has_lines & ~(has_up & has_down) & ~(has_down & (n_zero > 1))
        parts: list[tuple[HalfOpen, int, bool]] = []
        for number in np.flatnonzero(is_plain):
            part, fires = self.sets[number], not has_down[number]
            parts.append((part if fires else part._replace(strict=part.strict | _NOT_ZERO), number, fires))
        for number in np.flatnonzero(~is_plain):
            cone, strict, _ = self.sets[number]
            above, below = cone.cut(tuple(int(x) for x in normals[number]), self._bit)
            for closure, mask, fires in ((above, strict, True), (below, strict | self._bit | _NOT_ZERO, False)):
                if _is_nonempty(closure, mask):
                    parts.append((HalfOpen.of(closure, mask, self._dimension), number, fires))
        # If all rays are strictly below, only the apex can fire, and only if nothing so far was silent.
        for number in np.flatnonzero(is_plain & has_down):
            if self.sets[number].strict == 0:
                parts.append((HalfOpen.of(Cone([], [], []), 0, self._dimension), number, True))
        self.sets = [part for part, _, _ in parts]
        self.origin = np.array([number for _, number, _ in parts], dtype=np.int64)
        self.spikes = np.array([fires for *_, fires in parts], dtype=bool)

    def take(self, origin: npt.NDArray[np.int64]) -> None:
        """Replace all sets by the sets ``origin``, in that order and with repetitions."""
        self.sets = [self.sets[number] for number in origin]


def _is_nonempty(cone: Cone, strict: int) -> bool:
    return reduce(and_, cone.tight, _EVERYWHERE) & strict == 0


def _dot(a: Vector, b: Vector) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _negated(vector: Vector) -> Vector:
    return tuple(-x for x in vector)


def _combined(a: int, u: Vector, b: int, v: Vector) -> Vector:
    """Return a u - b v without common factors."""
    return _reduced(tuple(a * x - b * y for x, y in zip(u, v, strict=True)))


def _reduced(vector: Vector) -> Vector:
    divisor = gcd(*vector)
    return tuple(x // divisor for x in vector) if divisor > 1 else vector
