"""Contributions of samples to a price: trees of events, whose nodes are signs of linear functions of parameters.

A spike is a sign, and it decides which sign comes next. This is all that a search for the best neuron needs to know
about a family, so that one search serves threshold neurons, LIF neurons, delays and deeper networks with fixed lower
layers.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd, lcm

import numpy as np
import numpy.typing as npt

from ..core.errors import BudgetError
from .integers import SAFE, IntArray
from .lif_family import LIFEvents
from .tree_reduction import reduce_trees

_MAX_EVENTS = 2_000_000


@dataclass(frozen=True, eq=False)
class SpikeTrees:
    """Samples as trees of events, with the amount that each spike adds to the price.

    Parameters
    ----------
    normals : integer array of shape (n_events, dimension)
        An event is a spike where ``normals @ parameters >= 0``.
    edges : array of shape (n_events, 2)
        The next event after silence and after a spike; -1 at the end.
    gains : integer array of shape (n_events, 2, n_outputs)
        Amounts that silence and a spike add.
    roots : array of shape (n_samples,)
        The first event of each sample.
    offset : integer array of shape (n_outputs,)
        The part of the sum that does not depend on the parameters.
    has_wall : bool
        Whether the last parameter must not be negative.
    has_lift : bool
        Whether some direction raises every event, so that neurons with ties have the spikes of others without.
    """

    normals: IntArray
    edges: npt.NDArray[np.int64]
    gains: npt.NDArray[np.int64]
    roots: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]
    has_wall: bool
    has_lift: bool

    @classmethod
    def of(cls, events: LIFEvents, weights: npt.NDArray[np.int64]) -> "SpikeTrees":
        """Return the trees of a family's events, for integer weights of shape (n_samples, n_steps, n_outputs).

        Equal sequences are merged. Those without weights, and steps after the last one with a weight, are left out.
        """
        if not events.family.resets:  # steps are independent of each other, like samples
            events = replace(events, sums=events.sums.reshape(-1, 1, events.dimension - 1))
            weights = weights.reshape(-1, 1, weights.shape[2])
        rows, first = events.distinct()
        merged = np.zeros((len(first), *weights.shape[1:]), dtype=np.int64)
        np.add.at(merged, rows, weights)
        used = np.flatnonzero(merged.any((1, 2)))
        merged, sums = merged[used], events.sums[np.array(first)[used]]
        n_steps = int(np.flatnonzero(merged.any((0, 2)))[-1]) + 1 if len(used) else 0
        n_events = len(used) * (2**n_steps - 1)
        if n_events > _MAX_EVENTS:
            raise BudgetError(
                f"expected at most {_MAX_EVENTS:,} events of samples, steps and histories, got {n_events:,}: use fewer "
                "steps or samples"
            )
        # All histories of all samples, step by step: those of a step are one block of rows.
        normals, n_outputs = [np.zeros((0, events.dimension), dtype=sums.dtype)], merged.shape[2]
        edges, gains = [np.zeros((0, 2), dtype=np.int64)], [np.zeros((0, 2, n_outputs), dtype=np.int64)]
        resets, n_before = np.zeros((len(used), 1), dtype=sums.dtype), 0
        for step in range(n_steps):
            width = resets.shape[1]  # histories, sample by sample
            inputs = np.repeat(sums[:, step, None], width, axis=1)
            normals.append(np.concatenate((inputs, -resets[:, :, None]), axis=2).reshape(-1, events.dimension))
            added = np.zeros((len(used), width, 2, n_outputs), dtype=np.int64)
            added[:, :, 1] = merged[:, step, None]
            gains.append(added.reshape(-1, 2, n_outputs))
            n_before += len(used) * width
            # The events of a step are followed by twice as many: those after silence and after a spike, in turn.
            following = n_before + np.arange(2 * len(used) * width, dtype=np.int64).reshape(-1, 2)
            edges.append(following if step + 1 < n_steps else np.full_like(following, -1))
            both = [events.advance(resets, np.full(resets.shape, fired), step + 1) for fired in (False, True)]
            resets = np.stack(both, axis=2).reshape(len(used), -1)
        roots, offset = np.arange(len(used), dtype=np.int64), np.zeros(n_outputs, dtype=np.int64)
        trees = np.concatenate(normals), np.concatenate(edges), np.concatenate(gains), roots, offset
        has_wall = not events.family.negative_threshold
        # Without parallel steps no event decides another, and the reduction would take time for nothing.
        if _has_parallel_steps(sums[:, :n_steps]):
            trees = reduce_trees(*trees[:4], has_wall)
        return cls(*trees, has_wall, events.family.bias or _has_lift(events))

    @property
    def depth(self) -> int:
        """Largest number of events of a sample, one after the other."""
        level, depth = self.roots, 0
        while len(level):
            depth += 1
            level = self.edges[level].ravel()
            level = np.unique(level[level >= 0])
        return depth

    def value_at(self, parameters: IntArray) -> list[int]:
        """Return the sums that a neuron gets, one per output."""
        largest = [max(1, int(abs(values).max(initial=0))) for values in (self.normals, parameters)]
        # Overflow of 64-bit integers would be silent.
        kind = np.int64 if largest[0] * largest[1] * len(parameters) < SAFE else object
        fires = np.array(self.normals.astype(kind) @ parameters.astype(kind) >= 0, dtype=np.int64)
        total, level = self.offset, self.roots
        while len(level):
            side = fires[level]
            total = total + self.gains[level, side].sum(0)
            level = self.edges[level, side]
            level = level[level >= 0]
        return [int(x) for x in total]

    def within(
        self, events: IntArray, edges: IntArray, gains: IntArray, roots: IntArray, offset: IntArray
    ) -> "SpikeTrees":
        """Return the trees that are open on a box, from a survey of it."""
        return replace(self, normals=self.normals[events], edges=edges, gains=gains, roots=roots, offset=offset)


def _has_parallel_steps(sums: IntArray) -> bool:
    """Return whether the inputs of two steps of a sequence have the same direction."""
    if sums.size == 0:
        return False
    primitive = sums // np.maximum(np.gcd.reduce(sums, axis=2), 1)[:, :, None]
    return any(bool((primitive[:, t] == primitive[:, s]).all(1).any()) for t in range(sums.shape[1]) for s in range(t))


def _has_lift(events: LIFEvents) -> bool:
    """Return whether some feature, or the sum of all, is positive at every step."""
    sums = events.sums
    return bool((sums.sum(2) > 0).all() or (sums > 0).all((0, 1)).any())


def pivot_columns(rows: IntArray) -> list[int]:
    """Return the columns that do not depend on those before them, in exact arithmetic."""
    n_columns = rows.shape[1]
    basis: list[tuple[int, list[int]]] = []  # rows in echelon form, each with its pivot
    # Repeated rows change no rank, but NumPy cannot sort rows of Python integers.
    for normal in rows if rows.dtype == object else np.unique(rows, axis=0):
        row = [int(x) for x in normal]
        for pivot, reduced in basis:
            if row[pivot]:
                scale, take = reduced[pivot], row[pivot]
                row = [scale * a - take * b for a, b in zip(row, reduced, strict=True)]
        if any(row):
            common = gcd(*row)  # otherwise the integers grow with every elimination
            pivot = next(i for i, x in enumerate(row) if x)
            basis.append((pivot, [x // common for x in row]))
            basis.sort(key=lambda entry: entry[0])
            if len(basis) == n_columns:
                break
    return sorted(pivot for pivot, _ in basis)


def common_zero(normals: IntArray, near: IntArray) -> IntArray:
    """Return the point nearest to ``near`` at which all normals vanish, times a positive number."""
    rows: list[list[Fraction]] = []
    for normal in normals:
        row = _orthogonal([Fraction(int(x)) for x in normal], rows)
        if any(row):
            rows.append(row)
    point = _orthogonal([Fraction(int(x)) for x in near], rows)
    scale = lcm(*(x.denominator for x in point))
    integers = [int(x * scale) for x in point]
    return np.array([x // (gcd(*integers) or 1) for x in integers], dtype=object)


def _orthogonal(vector: list[Fraction], rows: list[list[Fraction]]) -> list[Fraction]:
    """Return a vector without its components along orthogonal rows: Gram-Schmidt without roots."""
    for row in rows:
        share = _dot(vector, row) / _dot(row, row)
        vector = [a - share * b for a, b in zip(vector, row, strict=True)]
    return vector


def _dot(a: list[Fraction], b: list[Fraction]) -> Fraction:
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))
