"""What samples can contribute to a price: trees of events, whose nodes are signs of linear functions of parameters.

A spike is a sign, and it decides which sign comes next. This is all that a search for the best neuron needs to know
about a family, so that one search serves threshold neurons, LIF neurons, delays and deeper networks with fixed lower
layers.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd

import numpy as np
import numpy.typing as npt

from ..core.errors import BudgetError
from .integers import SAFE, IntArray
from .lif_family import LIFEvents
from .tree_reduction import reduce_trees

_MAX_EVENTS = 2_000_000


@dataclass(frozen=True, eq=False)
class SpikeTrees:
    """Samples as trees of events, with what each spike adds to the price.

    Parameters
    ----------
    normals : integer array of shape (n_events, dimension)
        An event is a spike where ``normals @ parameters >= 0``.
    edges : array of shape (n_events, 2)
        The next event after silence and after a spike; -1 at the end.
    gains : integer array of shape (n_events, 2, n_outputs)
        What silence and a spike add.
    roots : array of shape (n_samples,)
        The first event of each sample.
    offset : integer array of shape (n_outputs,)
        What is added whatever the parameters are.
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
        keys: dict[bytes, int] = {}
        rows = [keys.setdefault(repr(sequence.tolist()).encode(), len(keys)) for sequence in events.sums]
        merged = np.zeros((len(keys), *weights.shape[1:]), dtype=np.int64)
        np.add.at(merged, rows, weights)
        samples = np.array([rows.index(k) for k in range(len(keys))], dtype=np.int64)
        used = np.flatnonzero(merged.any((1, 2)))
        merged, samples = merged[used], samples[used]
        n_steps = int(np.flatnonzero(merged.any((0, 2)))[-1]) + 1 if len(used) else 0
        n_events = len(used) * (2**n_steps - 1)
        if n_events > _MAX_EVENTS:
            raise BudgetError(
                f"expected at most {_MAX_EVENTS:,} events of samples, steps and histories, got {n_events:,}: use fewer "
                "steps or samples"
            )
        normals = []
        edges = []
        gains = []
        sums, place = events.sums[samples], 0
        resets = np.zeros((len(used), 1), dtype=events.sums.dtype)
        first = np.arange(len(used), dtype=np.int64)
        for step in range(n_steps):
            width = resets.shape[1]  # histories, sample by sample
            own = np.repeat(sums[:, step, None], width, axis=1)
            normals.append(np.concatenate((own, -resets[:, :, None]), axis=2).reshape(-1, events.dimension))
            added = np.zeros((len(used), width, 2, merged.shape[2]), dtype=np.int64)
            added[:, :, 1] = merged[:, step, None]
            gains.append(added.reshape(-1, 2, merged.shape[2]))
            place += len(used) * width
            number = np.arange(len(used) * width, dtype=np.int64)[:, None]
            is_last = step + 1 == n_steps
            edges.append(np.full((len(number), 2), -1) if is_last else place + 2 * number + np.array([0, 1]))
            if not is_last:
                both = [events.advance(resets, np.full(resets.shape, fired), step + 1) for fired in (False, True)]
                resets = np.stack(both, axis=2).reshape(len(used), -1)
        if n_steps == 0:
            normals, edges = (
                [events.sums[:0, 0] @ np.zeros((events.dimension - 1, events.dimension), int)],
                [first[:, None]],
            )
            gains = [np.zeros((0, 2, merged.shape[2]), dtype=np.int64)]
        has_wall = not events.family.negative_threshold
        trees = (
            np.concatenate(normals),
            np.concatenate(edges).astype(np.int64).reshape(-1, 2),
            np.concatenate(gains),
            first,
            np.zeros(merged.shape[2], dtype=np.int64),
        )
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
        return [int(x) for x in self.values_at(np.asarray(parameters, dtype=object)[None])[0]]

    def values_at(self, parameters: IntArray) -> npt.NDArray[np.int64]:
        """Return the sums that neurons get, of shape (n_neurons, n_outputs)."""
        found = np.zeros((len(parameters), len(self.offset)), dtype=np.int64)
        for row, own in enumerate(parameters):
            fires = np.array(_products(self.normals, own) >= 0, dtype=np.int64)
            total, level = self.offset.copy(), self.roots
            while len(level):
                side = fires[level]
                total = total + self.gains[level, side].sum(0)
                level = self.edges[level, side]
                level = level[level >= 0]
            found[row] = total
        return found

    def within(
        self, events: IntArray, edges: IntArray, gains: IntArray, roots: IntArray, offset: IntArray
    ) -> "SpikeTrees":
        """Return what is open on a box, from a survey of it."""
        return replace(self, normals=self.normals[events], edges=edges, gains=gains, roots=roots, offset=offset)


def _products(normals: IntArray, parameters: IntArray) -> IntArray:
    """Return exact products, in 64 bits where they fit."""
    largest = max(1, int(abs(normals).max(initial=0))) * max(1, int(abs(parameters).max(initial=0))) * len(parameters)
    kind = np.int64 if largest < SAFE else object
    return np.asarray(normals.astype(kind) @ parameters.astype(kind))


def _has_parallel_steps(sums: IntArray) -> bool:
    """Return whether the inputs of two steps of a sequence have the same direction."""
    if sums.size == 0:
        return False
    primitive = sums // np.maximum(np.gcd.reduce(sums, axis=2), 1)[:, :, None]
    return any(bool((primitive[:, t] == primitive[:, s]).all(1).any()) for t in range(sums.shape[1]) for s in range(t))


def _has_lift(events: LIFEvents) -> bool:
    """Return whether the first feature, or the sum of all, is positive at every step."""
    sums = events.sums
    return bool((sums.sum(2) > 0).all() or (sums > 0).all((0, 1)).any())


def pivot_columns(rows: IntArray) -> list[int]:
    """Return the columns that do not depend on those before them, in exact arithmetic."""
    n_columns = rows.shape[1]
    basis: list[tuple[int, list[int]]] = []  # rows in echelon form, each with its pivot
    for row in rows if rows.dtype == object else np.unique(rows, axis=0):
        own = [int(x) for x in row]
        for pivot, other in basis:
            if own[pivot]:
                scale, take = other[pivot], own[pivot]
                own = [scale * a - take * b for a, b in zip(own, other, strict=True)]
        if any(own):
            common = gcd(*own)
            pivot = next(i for i, x in enumerate(own) if x)
            basis.append((pivot, [x // common for x in own]))
            basis.sort(key=lambda entry: entry[0])
            if len(basis) == n_columns:
                break
    return sorted(pivot for pivot, _ in basis)


def common_zero(normals: IntArray, near: IntArray) -> IntArray:
    """Return the point nearest to ``near`` at which all normals vanish, times a positive number."""
    rows: list[list[Fraction]] = []
    for row in normals:
        own = [Fraction(int(x)) for x in row]
        for other in rows:  # Gram-Schmidt without roots
            share = _dot(own, other) / _dot(other, other)
            own = [a - share * b for a, b in zip(own, other, strict=True)]
        if any(own):
            rows.append(own)
    point = [Fraction(int(x)) for x in near]
    for other in rows:
        share = _dot(point, other) / _dot(other, other)
        point = [a - share * b for a, b in zip(point, other, strict=True)]
    scale = np.lcm.reduce(np.array([x.denominator for x in point], dtype=object))
    whole = [int(x * int(scale)) for x in point]
    common = gcd(*whole) or 1
    return np.array([x // common for x in whole], dtype=object)


def _dot(a: list[Fraction], b: list[Fraction]) -> Fraction:
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))
