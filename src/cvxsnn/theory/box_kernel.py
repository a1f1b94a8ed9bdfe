"""Branch and bound over boxes of parameters, compiled: boxes are bounded and halved until no bound is too large.

Numbers are 64-bit integers, so nothing is rounded. A sample is a tree of events: a node is the sign of a linear
function of the parameters, and its two edges lead to the next step after silence and after a spike.
"""

from typing import Any, NamedTuple

import numba as nb
import numpy as np


class Ends(NamedTuple):
    """Codes of boxes that are not halved. Smaller codes are the axis along which a box is halved."""

    tilted: int = 251
    """A linear bound is small enough."""
    leaf: int = 252
    """The constant bound is small enough."""
    last: int = 253
    """The box cannot be halved further, and its bound is too large."""
    stuck: int = 254
    """Events meet here in more than general position: search this box as a problem with fewer dimensions."""
    left: int = 255
    """Not examined: the budget was used up."""


END = Ends()


class _Settings(NamedTuple):
    max_seen: int = 1024
    """Largest number of open events tested for general position; a box with more is halved without the test."""
    max_open: int = 6
    """Largest number of open trees for which the norms of all possible sums are computed."""
    max_ways: int = 8
    """Largest number of sums per open tree."""
    max_sums: int = 256
    """Largest number of combinations of these sums."""


_SETTINGS = _Settings()


class Events(NamedTuple):
    """The events of all samples in the coordinates of a search."""

    normals: Any
    """Linear functions of the parameters, of shape (n_events, dimension); exact up to ``slack``."""
    slack: int
    """0 if the normals are exact, 1 if they were divided to fit into 64 bits."""
    edges: Any
    """Events that follow silence and a spike, of shape (n_events, 2); -1 at the end."""
    gains: Any
    """Amounts that silence and a spike add to the sum, of shape (n_events, 2, n_outputs)."""
    touch: int
    """1 if an event that touches a box from below is silent there, 0 if it may fire."""


class Problem(NamedTuple):
    """Samples as trees of events."""

    # Arrays of a tuple are arguments of every call, so the functions of the inner loop get the events only.
    events: Events
    roots: Any
    """First event of each sample."""
    offset: Any
    """Constant part of the sum, of shape (n_outputs,)."""
    depth: int
    """Largest depth of a tree."""


class _Space(NamedTuple):
    """Scratch memory, reused for each box."""

    stack: Any
    """Branches of a tree that are still to be visited: event, side and depth."""
    sums: Any
    """Sums along the current branch, by depth."""
    seen: Any
    """The open events of a box, truncated to the size of this array."""
    n_seen: Any


class _Open(NamedTuple):
    """The samples that are open on a box: first open events, ranges of their values, ranges of sums on each side."""

    events: Any
    middles: Any
    reaches: Any
    highs: Any
    lows: Any


class Outcome(NamedTuple):
    """Result of a search; the first axis of each array is over the boxes searched."""

    codes: Any
    """How parts were halved, in the order of a walk that visits the lower half first; only ``n_codes`` are used."""
    n_codes: Any
    rest: Any
    """Centres and halves of the parts with codes from ``END.last`` on, in the same order."""
    rest_bounds: Any
    bounds: Any
    """The largest bound of all other parts."""
    values: Any
    """The largest size of a sum at any point that was tried."""
    points: Any
    """The points with these values."""


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _new_space(problem: Problem, n_seen: int) -> _Space:
    stack, sums = (
        np.empty((problem.depth + 1, 3), np.int64),
        np.zeros((problem.depth + 1, len(problem.offset)), np.int64),
    )
    return _Space(stack, sums, np.empty(n_seen, np.int64), np.zeros(1, np.int64))


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _note(space: _Space, event: int) -> None:
    """Record an open event; once the array is full, only count it."""
    if space.n_seen[0] < len(space.seen):
        space.seen[space.n_seen[0]] = event
    space.n_seen[0] += 1


@nb.njit(cache=True, inline="always")  # type: ignore[untyped-decorator]
def _interval(normals: Any, slack: int, event: int, centre: Any, half: Any) -> Any:
    """Return the centre and the half-width of an event's values on a box."""
    middle, reach = np.int64(0), np.int64(0)
    for d in range(normals.shape[1]):
        middle += normals[event, d] * centre[d]
        reach += abs(normals[event, d]) * half[d]
        if slack:  # each entry of the normal errs by less than one
            reach += slack * (abs(centre[d]) + half[d])
    return middle, reach


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _extend(events: Events, space: _Space, event: int, side: int, centre: Any, half: Any, high: Any, low: Any) -> None:
    """Extend ``high`` and ``low`` to all sums of a tree on a box after one side of an event."""
    # A stack and no recursion: Numba crashes when it loads recursive functions from its cache.
    sums, stack, size, depth = space.sums, space.stack, 1, 0
    stack[0, 0], stack[0, 1], stack[0, 2] = event, side, depth
    while size > 0:
        size -= 1
        event, side, depth = stack[size, 0], stack[size, 1], stack[size, 2]
        following = events.edges[event, side]
        for k in range(len(high)):
            sums[depth + 1, k] = sums[depth, k] + events.gains[event, side, k]
            if following < 0:
                high[k] = max(high[k], sums[depth + 1, k])
                low[k] = min(low[k], sums[depth + 1, k])
        if following >= 0:
            middle, reach = _interval(events.normals, events.slack, following, centre, half)
            # The values are from middle - reach to middle + reach. With a lift, neurons with ties need not be examined.
            may_rest, may_fire = middle < reach, middle >= -reach + events.touch
            if may_rest and may_fire:
                _note(space, following)
            if may_rest:
                stack[size, 0], stack[size, 1], stack[size, 2] = following, 0, depth + 1
                size += 1
            if may_fire:
                stack[size, 0], stack[size, 1], stack[size, 2] = following, 1, depth + 1
                size += 1


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _settle(events: Events, event: int, centre: Any, half: Any, total: Any) -> Any:
    """Follow a tree as long as the box decides its events, and add their gains to ``total``.

    Return the first open event, or -1, and the centre and the half-width of its values.
    """
    middle, reach = np.int64(0), np.int64(0)
    while event >= 0:
        middle, reach = _interval(events.normals, events.slack, event, centre, half)
        if -reach + events.touch <= middle < reach:
            break
        side = 1 if middle >= reach else 0
        for k in range(len(total)):
            total[k] += events.gains[event, side, k]
        event = events.edges[event, side]
    return event, middle, reach


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _spread(events: Events, space: _Space, event: int, centre: Any, half: Any, total: Any, high: Any, low: Any) -> bool:
    """Return whether what a tree adds from an open event on depends on the point of a box; if not, add it to ``total``.

    ``high[side]`` and ``low[side]`` receive the range of what it adds on either side, and ``seen`` the open events.
    """
    n_outputs, n_before = len(total), space.n_seen[0]
    _note(space, event)
    for side in (0, 1):
        is_end = events.edges[event, side] < 0
        for k in range(n_outputs):
            gain = events.gains[event, side, k]
            # Dual points have at most 52 bits in all, so that no sum reaches 2^62.
            high[side, k], low[side, k] = (gain, gain) if is_end else (-(2**62), 2**62)
        if not is_end:
            _extend(events, space, event, side, centre, half, high[side], low[side])
    for k in range(n_outputs):
        if max(high[0, k], high[1, k]) != min(low[0, k], low[1, k]):
            return True
    # The tree adds the same everywhere, so its events do not keep the box open.
    space.n_seen[0] = n_before
    for k in range(n_outputs):
        total[k] += high[0, k]
    return False


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _meet(normals: Any, space: _Space) -> bool:
    """Return whether open events seem to meet in a point, or some of them in more than general position.

    Rounding does no harm: the answer only decides when a box is searched as a smaller problem.
    """
    seen, n_seen, dimension = space.seen, space.n_seen[0], normals.shape[1]
    if n_seen < 2 or n_seen > len(seen):
        return False
    rows, rank = np.empty((dimension, dimension)), 0  # rows are orthogonal and of length one
    for i in range(n_seen):
        row = normals[seen[i]].astype(np.float64)
        length = (row * row).sum()
        for k in range(rank):
            row -= (rows[k] * row).sum() * rows[k]
        rest = (row * row).sum()
        if rest > 1e-18 * length:  # squares: below 1e-9 of its length, a row depends on the others
            rows[rank] = row / np.sqrt(rest)
            rank += 1
            if rank == dimension:
                return False
    return bool(rank < n_seen)


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def survey(problem: Problem, centre: Any, half: Any) -> Any:
    """Return the open parts of all trees on a box, as trees.

    Returns
    -------
    tuple of arrays
        The open events, the edges between them, the gains of each side up to the next open event, the first open
        event of each sample that has one, and the sum of all that is decided.
    """
    events, n_events, n_outputs = problem.events, len(problem.events.normals), len(problem.offset)
    space, total = _new_space(problem, 0), problem.offset.copy()
    high, low = np.zeros((2, n_outputs), np.int64), np.zeros((2, n_outputs), np.int64)
    kept, edges, roots = (
        np.empty(n_events, np.int64),
        np.empty((n_events, 2), np.int64),
        [np.int64(0) for _ in range(0)],  # empty, and yet Numba can infer its type
    )
    gains = np.empty((n_events, 2, n_outputs), np.int64)
    waiting = np.empty((problem.depth + 2, 3), np.int64)  # event, the event before it, and the side of that one
    n_kept = 0
    for root in problem.roots:
        first, _, _ = _settle(events, root, centre, half, total)
        if first < 0 or not _spread(events, space, first, centre, half, total, high, low):
            continue
        roots.append(np.int64(n_kept))
        waiting[0, 0], waiting[0, 1], size = first, -1, 1
        while size > 0:
            size -= 1
            event, before, side = waiting[size, 0], waiting[size, 1], waiting[size, 2]
            if before >= 0:
                edges[before, side] = n_kept
            kept[n_kept] = event
            edges[n_kept] = -1
            gains[n_kept] = events.gains[event]
            for side in (1, 0):  # the side of silence is visited first
                following, _, _ = _settle(events, events.edges[event, side], centre, half, gains[n_kept, side])
                if following >= 0:
                    waiting[size, 0], waiting[size, 1], waiting[size, 2] = following, n_kept, side
                    size += 1
            n_kept += 1
    return kept[:n_kept].copy(), edges[:n_kept].copy(), gains[:n_kept].copy(), np.array(roots, dtype=np.int64), total


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _size(high: Any, low: Any, is_group: bool) -> float:
    """Return a bound on the largest entry of a sum between ``low`` and ``high``, or on its Euclidean norm."""
    largest, squares = 0.0, 0.0
    for k in range(len(high)):
        entry = float(max(high[k], -low[k]))
        largest = max(largest, entry)
        squares += entry * entry
    # Each square, sum and root is rounded by at most 2^-53 of itself, so this factor makes the norm an upper bound.
    return np.sqrt(squares) * (1 + (len(high) + 4) * 2.0**-52) if is_group else largest


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _largest_norm(events: Events, opened: Any, n_open: int, centre: Any, half: Any, total: Any) -> float:
    """Return the largest norm of what a few open trees can add to a sum, or infinity if there are too many ways.

    Ranges of single outputs lose the correlation between outputs. If one event is open, the norm of the largest
    sizes can exceed the norms on both sides, and boxes along its hyperplane would be halved to the last level.
    """
    n_outputs, max_ways = len(total), _SETTINGS.max_ways
    # Arrays of fixed sizes: the number of sums grows as the product over open trees.
    ways = np.zeros((_SETTINGS.max_open, max_ways, n_outputs), np.int64)
    n_ways = np.zeros(_SETTINGS.max_open, np.int64)
    stack, sums = np.empty(2 * max_ways, np.int64), np.zeros((2 * max_ways, n_outputs), np.int64)
    total_ways = 1
    for j in range(n_open):
        stack[0], sums[0], size = opened[j], 0, 1
        while size > 0:
            size -= 1
            event, before = stack[size], sums[size].copy()
            middle, reach = _interval(events.normals, events.slack, event, centre, half)
            for side in (0, 1):
                if not (middle >= -reach + events.touch if side else middle < reach):
                    continue
                following = events.edges[event, side]
                if following < 0:
                    if n_ways[j] == max_ways:
                        return np.inf
                    ways[j, n_ways[j]] = before + events.gains[event, side]
                    n_ways[j] += 1
                else:
                    if size == len(stack):
                        return np.inf
                    stack[size], sums[size] = following, before + events.gains[event, side]
                    size += 1
        total_ways *= n_ways[j]
        if total_ways > _SETTINGS.max_sums:
            return np.inf
    largest, sum_ = 0.0, np.zeros(n_outputs, np.int64)
    for number in range(total_ways):
        sum_[:] = total
        rest = number
        for j in range(n_open):
            sum_ += ways[j, rest % n_ways[j]]
            rest //= n_ways[j]
        largest = max(largest, _size(sum_, sum_, True))
    return largest


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _tilted(normals: Any, opened: _Open, n_open: int, half: Any, highest: Any, lowest: Any, target: float) -> float:
    r"""Return a bound on the size of all sums in a box by linear functions, with an allowance for rounding.

    Let z be the value of a sample's event, between -m and M on the box, and let a spike add w more than silence. Then

    .. math:: w [z \ge 0] \le w + \kappa z, \; 0 \le \kappa \le w / m \quad (w > 0), \qquad
              w [z \ge 0] \le -\kappa z, \; 0 \le \kappa \le -w / M \quad (w < 0).

    So the constant bound may be tilted by any such slopes, which oppose each other if no neuron suits all samples. The
    slope of a sample is the largest one if the centre is on its worse side, and zero otherwise. No term is
    larger than what its sample can change, so that rounding changes less than 1e-9 of that.
    """
    worst, tilt = 0.0, np.zeros(len(half))
    for k in range(len(highest)):
        for sign in (1, -1):
            constant = float(highest[k] if sign > 0 else -lowest[k])
            if constant <= target:
                worst = max(worst, constant)
                continue
            tilt[:] = 0.0
            change, stake = 0.0, 0.0
            for j in range(n_open):
                event, middle, reach = opened.events[j], float(opened.middles[j]), float(opened.reaches[j])
                more = float(
                    opened.highs[j, 1, k] - opened.highs[j, 0, k]
                    if sign > 0
                    else opened.lows[j, 0, k] - opened.lows[j, 1, k]
                )
                stake += abs(more)
                if more * middle < 0:
                    slope = more / (reach - middle if more > 0 else reach + middle)
                    change += slope * middle
                    for d in range(len(tilt)):
                        tilt[d] += slope * normals[event, d]
            for d in range(len(tilt)):
                change += abs(tilt[d]) * half[d]
            # All slopes may be zero too, so that the constant bound is never exceeded.
            worst = max(worst, constant + min(change, 0.0) + 1e-9 * stake)
    return worst


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _follow(normals: Any, edges: Any, gains: Any, event: int, point: Any, total: Any) -> None:
    """Add the gains of a sample at one point."""
    while event >= 0:
        value = np.int64(0)
        for d in range(normals.shape[1]):
            value += normals[event, d] * point[d]
        side = 1 if value >= 0 else 0
        for k in range(len(total)):
            total[k] += gains[event, side, k]
        event = edges[event, side]


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _try_points(
    events: Events, opened: _Open, n_open: int, centre: Any, half: Any, total: Any, sign: int, shares: Any,
    is_group: bool, best: float, best_point: Any,
) -> float:  # fmt: skip
    """Compare the sums at the centre and, if few events are open, at the most promising corner with the best one.

    ``shares`` receives, for each axis, how strongly the open sums depend on it.
    """
    normals, edges, gains, dimension = events.normals, events.edges, events.gains, len(centre)
    reaches, highs, lows = opened.reaches, opened.highs, opened.lows
    shares[:] = 0.0
    slope = np.zeros(dimension)
    for j in range(n_open):
        event, stake = opened.events[j], 0.0
        for k in range(len(total)):
            stake += float(max(highs[j, 0, k], highs[j, 1, k]) - min(lows[j, 0, k], lows[j, 1, k]))
        # Never zero: an event without reach is decided.
        stake /= reaches[j]
        # The first output alone: this only decides which corner is tried.
        rise = float(gains[event, 1, 0] - gains[event, 0, 0]) / reaches[j]
        for d in range(dimension):
            shares[d] += stake * abs(normals[event, d]) * half[d]
            slope[d] += rise * normals[event, d]
    for trial in range(2 if n_open <= 4 else 1):
        sums, point = total.copy(), centre.copy()
        if trial == 1:
            point += np.where(sign * slope >= 0, half, -half)
        for j in range(n_open):
            _follow(normals, edges, gains, opened.events[j], point, sums)
        size = _size(sums, sums, is_group)
        if size > best:
            best = size
            best_point[:] = point
    return best


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _choose_axis(half: Any, shares: Any) -> int:
    """Return the axis along which to halve a box, or -1 if it is too small."""
    axis = np.argmax(np.where(half > 1, shares, -1.0))
    if shares[axis] <= 0:  # only later events are open
        axis = np.argmax(half)
    return int(axis) if half[axis] > 1 else -1


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def explore(
    problem: Problem, centres: Any, halves: Any, closest: Any, target: float, budget: int, n_levels: int, is_group: bool
) -> Outcome:
    """Search boxes by branch and bound, with at most ``budget`` nodes each.

    Parameters
    ----------
    problem : Problem
        The trees.
    centres, halves : arrays of shape (n_boxes, dimension)
        The boxes.
    closest : array of shape (n_boxes,)
        Parts up to this size in which events meet are returned with the code ``END.stuck``.
    target : float
        Boxes whose bound is at most this are done.
    budget : int
        Nodes per box.
    n_levels : int
        Largest depth of the tree of boxes.
    is_group : bool
        Whether the size of a sum is its Euclidean norm, or its largest entry.

    Returns
    -------
    Outcome
        How the boxes were halved, bounds, and the best points.
    """
    events = problem.events
    normals, slack = events.normals, events.slack
    n_boxes, dimension = centres.shape
    n_outputs, n_samples = events.gains.shape[2], len(problem.roots)
    n_rest = budget + n_levels + 2
    codes, n_codes = np.empty((n_boxes, n_rest), np.uint8), np.zeros(n_boxes, np.int64)
    rest, rest_bounds = np.empty((n_boxes, n_rest, 2, dimension), np.int64), np.zeros((n_boxes, n_rest))
    bounds, values, points = np.zeros(n_boxes), np.zeros(n_boxes), np.zeros((n_boxes, dimension), np.int64)
    # One row per level of the tree of boxes: the open samples of a box and of its ancestors.
    opened = np.empty((n_levels + 1, 3, n_samples), np.int64)
    n_open, totals = np.zeros(n_levels + 1, np.int64), np.zeros((n_levels + 1, n_outputs), np.int64)
    sizes = np.zeros(n_levels + 1)
    # Boxes to visit: the upper halves of ancestors.
    stack, levels = np.zeros((n_levels + 2, 2, dimension), np.int64), np.zeros(n_levels + 2, np.int64)
    highs, lows = np.zeros((n_samples, 2, n_outputs), np.int64), np.zeros((n_samples, 2, n_outputs), np.int64)
    highest, lowest = np.zeros(n_outputs, np.int64), np.zeros(n_outputs, np.int64)
    space, shares = _new_space(problem, _SETTINGS.max_seen), np.zeros(dimension)
    for box in range(n_boxes):
        n_parts, n_nodes, n_waiting = 0, 0, 1
        stack[0, 0], stack[0, 1], levels[0] = centres[box], halves[box], 0
        while n_waiting > 0:
            n_waiting -= 1
            centre, half, level = stack[n_waiting, 0].copy(), stack[n_waiting, 1].copy(), levels[n_waiting]
            # The bound of the parent is valid for a box that is not examined.
            code, size = END.left, sizes[level - 1] if level > 0 else np.inf
            if n_nodes < budget:
                n_nodes += 1
                kept = 0
                space.n_seen[0] = 0
                total = totals[level]
                total[:] = totals[level - 1] if level > 0 else problem.offset
                highest[:], lowest[:] = 0, 0
                # Events that are decided on a box are decided on its parts: only open trees are followed further.
                for j in range(n_open[level - 1] if level > 0 else n_samples):
                    event = opened[level - 1, 0, j] if level > 0 else problem.roots[j]
                    event, middle, reach = _settle(events, event, centre, half, total)
                    if event < 0 or not _spread(events, space, event, centre, half, total, highs[kept], lows[kept]):
                        continue
                    for k in range(n_outputs):
                        highest[k] += max(highs[kept, 0, k], highs[kept, 1, k])
                        lowest[k] += min(lows[kept, 0, k], lows[kept, 1, k])
                    opened[level, 0, kept], opened[level, 1, kept], opened[level, 2, kept] = event, middle, reach
                    kept += 1
                n_open[level] = kept
                highest += total
                lowest += total
                here = _Open(opened[level, 0], opened[level, 1], opened[level, 2], highs, lows)
                size = _size(highest, lowest, is_group)
                if is_group and kept <= _SETTINGS.max_open and size > max(target, values[box]):
                    size = min(size, _largest_norm(events, here.events, kept, centre, half, total))
                code = END.leaf
                # Linear functions bound entries, not norms, and need exact normals.
                if kept > 1 and not is_group and slack == 0 and size > target:
                    tilted = _tilted(normals, here, kept, half, highest, lowest, target)
                    # The file says which of the two bounds the checker has to compute.
                    if tilted <= target:
                        code = END.tilted
                    size = min(size, tilted)
                if size > max(target, values[box]):
                    sign = 1 if highest[0] >= -lowest[0] else -1
                    values[box] = _try_points(
                        events, here, kept, centre, half, total, sign, shares, is_group, values[box],
                        points[box],
                    )  # fmt: skip
                if kept == 0 or size <= max(target, values[box]):
                    bounds[box] = max(bounds[box], size)
                else:
                    axis = _choose_axis(half, shares)
                    if axis < 0 or level + 1 >= n_levels:
                        code = END.last
                    elif half.max() <= closest[box] and _meet(normals, space):
                        code = END.stuck
                    else:
                        code, sizes[level] = axis, size
                        # Sides are powers of two, so that halves are exact.
                        half[axis] >>= 1
                        for step in (half[axis], -half[axis]):  # the lower half is taken first
                            stack[n_waiting, 0], stack[n_waiting, 1], levels[n_waiting] = centre, half, level + 1
                            stack[n_waiting, 0, axis] += step
                            n_waiting += 1
            codes[box, n_codes[box]] = code
            n_codes[box] += 1
            if code >= END.last:
                rest[box, n_parts, 0], rest[box, n_parts, 1], rest_bounds[box, n_parts] = centre, half, size
                n_parts += 1
    return Outcome(codes, n_codes, rest, rest_bounds, bounds, values, points)
