"""Neurons with high prices, found quickly and without a proof: exact maxima along lines, one after the other.

Along a line of parameters each sample changes what it gives at a few points only. Sorted, with running sums, they give
the best point of the line. From there the next line is searched, in another direction, until no line is better.
Floating point is enough here: whoever uses the points computes their prices exactly.
"""

from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

from .box_kernel import Problem

_APART = 1e-9
"""Parts of a line that are shorter than this, compared with the place, are not entered: rounding could miss them."""


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _best_on_line(problem: Problem, point: Any, way: Any, low: float, high: float) -> Any:
    """Return the largest size of the sum on the line ``point + t way`` between two ends, and the best t."""
    normals, _, edges, gains, _ = problem.events
    roots = problem.roots
    n_samples = len(roots)
    room = 4 * n_samples + 64
    places = np.empty(room)
    changes = np.empty(room)
    n_places = 0
    stack, ends = np.empty(64, np.int64), np.empty((64, 2))
    own_sums = np.empty(64)
    total = problem.offset
    for j in range(n_samples):
        stack[0] = roots[j]
        ends[0, 0] = low
        ends[0, 1] = high
        own_sums[0] = 0.0
        size = 1
        while size > 0:
            size -= 1
            event = stack[size]
            start = ends[size, 0]
            end = ends[size, 1]
            added = own_sums[size]
            if event < 0:
                if added != 0.0:
                    if n_places + 2 > len(places):
                        more, most = np.empty(2 * len(places)), np.empty(2 * len(places))
                        more[:n_places], most[:n_places] = places[:n_places], changes[:n_places]
                        places, changes = more, most
                    if start == low:
                        total += added
                    else:
                        places[n_places], changes[n_places] = start, added
                        n_places += 1
                    if end != high:
                        places[n_places], changes[n_places] = end, -added
                        n_places += 1
                continue
            middle, rise = 0.0, 0.0
            for d in range(len(point)):
                middle += normals[event, d] * point[d]
                rise += normals[event, d] * way[d]
            cut = -middle / rise if rise != 0.0 else np.inf
            if rise != 0.0 and start < cut < end:
                first = 0 if rise > 0 else 1  # the side before the cut
                stack[size] = edges[event, first]
                ends[size, 0] = start
                ends[size, 1] = cut
                own_sums[size] = added + gains[event, first]
                stack[size + 1] = edges[event, 1 - first]
                ends[size + 1, 0] = cut
                ends[size + 1, 1] = end
                own_sums[size + 1] = added + gains[event, 1 - first]
                size += 2
            else:
                is_above = middle >= 0 if rise == 0.0 else (rise > 0) == (cut <= start)
                side = 1 if is_above else 0
                stack[size] = edges[event, side]
                ends[size, 0] = start
                ends[size, 1] = end
                own_sums[size] = added + gains[event, side]
                size += 1
    order = np.argsort(places[:n_places])
    best, best_place = -1.0, 0.0
    before = low
    for k in range(n_places + 1):
        after = places[order[k]] if k < n_places else high
        if abs(total) > best and after - before > _APART * (1.0 + abs(after if np.isfinite(after) else before)):
            best = abs(total)
            if np.isfinite(before) and np.isfinite(after):
                best_place = 0.5 * (before + after)
            elif np.isfinite(before):
                best_place = before + 1.0 + abs(before)
            elif np.isfinite(after):
                best_place = after - 1.0 - abs(after)
            else:
                best_place = 0.0
        if k < n_places:
            total += changes[order[k]]
            before = after
    return best, best_place


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def climb(problem: Problem, has_wall: bool, points: Any, n_sweeps: int, seed: int) -> Any:
    """Improve points along lines in turn; return them and the sizes of their sums.

    Parameters
    ----------
    problem : Problem
        The trees of one output; normals, gains of shape (n_events, 2) and the offset are floats.
    has_wall : bool
        Whether the last parameter must not be negative.
    points : array of shape (n_points, dimension)
        Where to start.
    n_sweeps : int
        How often to go along as many lines as there are parameters, at most.
    seed : int
        Seed of the lines' directions.

    Returns
    -------
    tuple of arrays
        The points, of shape (n_points, dimension), and their sizes.
    """
    np.random.seed(seed)  # noqa: NPY002 (Numba knows no other)
    n_points, dimension = points.shape
    found, sizes = points.copy(), np.zeros(n_points)
    way = np.zeros(dimension)
    for i in range(n_points):
        point = found[i]
        for _ in range(n_sweeps):
            before = sizes[i]
            for d in range(2 * dimension):
                for k in range(dimension):
                    way[k] = np.random.normal() if d >= dimension else 0.0  # noqa: NPY002
                if d < dimension:
                    way[d] = 1.0
                low, high = -np.inf, np.inf
                if has_wall and way[-1] != 0.0:
                    if way[-1] > 0:
                        low = -point[-1] / way[-1]
                    else:
                        high = -point[-1] / way[-1]
                size, place = _best_on_line(problem, point, way, low, high)
                if size > sizes[i]:
                    sizes[i] = size
                    largest = 0.0
                    for k in range(dimension):
                        point[k] += place * way[k]
                        largest = max(largest, abs(point[k]))
                    for k in range(dimension):
                        point[k] /= max(largest, 1e-300)
            if sizes[i] <= before:
                break
    return found, sizes


def random_points(n_points: int, dimension: int, has_wall: bool, seed: int) -> npt.NDArray[np.float64]:
    """Return points of a cube, evenly in all directions."""
    drawn = np.random.default_rng(seed).standard_normal((n_points, dimension))
    if has_wall:
        drawn[:, -1] = abs(drawn[:, -1])
    return np.asarray(drawn / abs(drawn).max(1, keepdims=True))
