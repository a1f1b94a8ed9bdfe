"""Branch and bound over boxes of parameters, compiled: each box is bounded and halved until nothing in it is too large.

Numbers are 64-bit integers, so nothing is rounded. A sample is a tree of events: a node is the sign of a linear
function of the parameters, and its two edges lead to the next step after a spike and after silence.
"""

from typing import Any

import numba as nb
import numpy as np

TILTED, LEAF, STUCK, LEFT = 252, 253, 254, 255
"""What follows in the code of a box that is not halved: a bound by a linear function, a bound by a constant, a box too
small to be halved, or a box left open."""


_STEP = 0.75
"""How far towards the border of a box the second linear bound is chosen."""

_MOST_SEEN = 1024
"""Open events among which those that meet are looked for."""

_MOST_OPEN, _MOST_WAYS, _MOST_SUMS = 6, 8, 256
"""Open trees of which all sums are compared for a norm, ways of each, and sums."""


@nb.njit(cache=True, inline="always")  # type: ignore[untyped-decorator]
def _interval(normals: Any, event: int, centre: Any, half: Any, slack: int) -> Any:
    """Return the centre and the half-width of an event's values on a box."""
    middle, reach = np.int64(0), np.int64(0)
    for d in range(normals.shape[1]):
        middle += normals[event, d] * centre[d]
        reach += abs(normals[event, d]) * half[d]
        if slack:
            reach += slack * (abs(centre[d]) + half[d])
    return middle, reach


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _range(
    normals: Any,
    slack: int,
    edges: Any,
    gains: Any,
    touch: int,
    event: int,
    centre: Any,
    half: Any,
    high: Any,
    low: Any,
    stack: Any,
    sums: Any,
    seen: Any,
    n_seen: Any,
) -> None:
    """Add to ``high`` and ``low`` the range of what a tree may give on a box, and to ``seen`` its open events."""
    n_outputs = len(high)
    for k in range(n_outputs):
        sums[0, k] = 0
        sums[len(sums) - 2, k], sums[len(sums) - 1, k] = -(2**62), 2**62
    stack[0], size = event, 1
    while size > 0:
        size -= 1
        own = stack[size]
        middle, reach = _interval(normals, own, centre, half, slack)
        may_rest, may_fire = middle < reach, middle >= -reach + touch
        if may_rest and may_fire:
            if n_seen[0] < len(seen):
                seen[n_seen[0]] = own
            n_seen[0] += 1
        for side in (0, 1):
            if (may_fire if side else may_rest) and edges[own, side] < 0:
                for k in range(n_outputs):
                    value = sums[size, k] + gains[own, side, k]
                    sums[len(sums) - 2, k] = max(sums[len(sums) - 2, k], value)
                    sums[len(sums) - 1, k] = min(sums[len(sums) - 1, k], value)
        # Both children go on the stack above the place of their parent, whose sums are read last.
        goes_on_rest, goes_on_fire = may_rest and edges[own, 0] >= 0, may_fire and edges[own, 1] >= 0
        if goes_on_rest and goes_on_fire:
            for k in range(n_outputs):
                sums[size + 1, k] = sums[size, k] + gains[own, 1, k]
                sums[size, k] += gains[own, 0, k]
            stack[size], stack[size + 1] = edges[own, 0], edges[own, 1]
            size += 2
        elif goes_on_rest or goes_on_fire:
            side = 1 if goes_on_fire else 0
            for k in range(n_outputs):
                sums[size, k] += gains[own, side, k]
            stack[size] = edges[own, side]
            size += 1
    for k in range(n_outputs):
        high[k] += sums[len(sums) - 2, k]
        low[k] += sums[len(sums) - 1, k]


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _assess(
    normals: Any,
    slack: int,
    edges: Any,
    gains: Any,
    touch: int,
    event: int,
    middle: int,
    reach: int,
    centre: Any,
    half: Any,
    total: Any,
    high: Any,
    low: Any,
    stack: Any,
    sums: Any,
    seen: Any,
    n_seen: Any,
) -> Any:
    """Follow a tree on a box: add what is decided to ``total`` and return the first open event, or -1, and its values.

    ``middle`` and ``reach`` are the values of the first event. ``high[side]`` and ``low[side]`` receive the range of
    what the open part may add on either side of the first open event, and ``seen`` the open events.
    """
    n_outputs = len(total)
    while True:
        if middle >= reach:
            side = 1
        elif middle < -reach + touch:
            side = 0
        else:
            break
        for k in range(n_outputs):
            total[k] += gains[event, side, k]
        event = edges[event, side]
        if event < 0:
            return -1, middle, reach
        middle, reach = _interval(normals, event, centre, half, slack)
    n_before = n_seen[0]
    if n_seen[0] < len(seen):
        seen[n_seen[0]] = event
    n_seen[0] += 1
    for side in (0, 1):
        for k in range(n_outputs):
            high[side, k] = low[side, k] = gains[event, side, k]
        if edges[event, side] >= 0:
            _range(
                normals, slack, edges, gains, touch, edges[event, side], centre, half, high[side], low[side], stack,
                sums, seen, n_seen,
            )  # fmt: skip
    for k in range(n_outputs):
        if max(high[0, k], high[1, k]) != min(low[0, k], low[1, k]):
            return event, middle, reach
    n_seen[0] = n_before
    for k in range(n_outputs):
        total[k] += high[0, k]
    return -1, middle, reach


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _meet(normals: Any, seen: Any, n_seen: int, rows: Any) -> bool:
    """Return whether events seem to meet in a point, or some of them in more than they would in general position.

    This only decides when to look more closely, so that rounding does no harm.
    """
    dimension = normals.shape[1]
    if n_seen < 2 or n_seen > len(seen):
        return False
    rank = 0  # rows are orthogonal and of length one
    for i in range(n_seen):
        length = 0.0
        for d in range(dimension):
            rows[rank, d] = normals[seen[i], d]
            length += rows[rank, d] ** 2
        for k in range(rank):
            share = 0.0
            for d in range(dimension):
                share += rows[k, d] * rows[rank, d]
            for d in range(dimension):
                rows[rank, d] -= share * rows[k, d]
        rest = 0.0
        for d in range(dimension):
            rest += rows[rank, d] ** 2
        if rest <= 1e-18 * length:
            continue
        for d in range(dimension):
            rows[rank, d] /= np.sqrt(rest)
        rank += 1
        if rank == dimension:
            return False
    return rank < n_seen


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def survey(
    normals: Any,
    slack: int,
    edges: Any,
    gains: Any,
    roots: Any,
    offset: Any,
    touch: int,
    centre: Any,
    half: Any,
    depth: int,
) -> Any:
    """Return what is open on a box.

    Returns
    -------
    tuple of arrays
        The sums of what is decided; the first open event of each sample that has one; the events that may follow them;
        and for each of those 0 for silence, 1 for a spike and 2 if it is open.
    """
    n_outputs = len(offset)
    total = offset.copy()
    high, low = np.zeros((2, n_outputs), np.int64), np.zeros((2, n_outputs), np.int64)
    stack, sums = np.empty(depth + 2, np.int64), np.zeros((depth + 4, n_outputs), np.int64)
    seen, n_seen = np.empty(0, np.int64), np.zeros(1, np.int64)
    first = np.empty(len(roots), np.int64)
    n_first = 0
    for j in range(len(roots)):
        middle, reach = _interval(normals, roots[j], centre, half, slack)
        event, _, _ = _assess(
            normals, slack, edges, gains, touch, roots[j], middle, reach, centre, half, total, high, low, stack, sums,
            seen, n_seen,
        )  # fmt: skip
        if event >= 0:
            first[n_first] = event
            n_first += 1
    visited, states, size = [np.int64(0) for _ in range(0)], [np.int64(0) for _ in range(0)], 0
    for j in range(n_first):
        stack[0], size = first[j], 1
        while size > 0:
            size -= 1
            event = stack[size]
            middle, reach = _interval(normals, event, centre, half, slack)
            state = 1 if middle >= reach else 0 if middle < -reach + touch else 2
            visited.append(event)
            states.append(np.int64(state))
            for side in (0, 1):
                if state in (side, 2) and edges[event, side] >= 0:
                    stack[size] = edges[event, side]
                    size += 1
    return total, first[:n_first], np.array(visited, dtype=np.int64), np.array(states, dtype=np.int64)


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _size(high: Any, low: Any, is_group: bool) -> float:
    """Return a bound on the largest entry of a sum between ``low`` and ``high``, or on its Euclidean norm."""
    largest, squares = 0.0, 0.0
    for k in range(len(high)):
        entry = float(max(high[k], -low[k]))
        largest = max(largest, entry)
        squares += entry * entry
    # Each square, sum and root is rounded by less than 2^-53 of itself.
    return np.sqrt(squares) * (1 + (len(high) + 4) * 2.0**-52) if is_group else largest


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _largest_norm(
    normals: Any,
    slack: int,
    edges: Any,
    gains: Any,
    touch: int,
    opened: Any,
    n_open: int,
    centre: Any,
    half: Any,
    total: Any,
) -> float:
    """Return the largest norm of what a few open trees can add to a sum, or infinity if there are too many ways.

    Ranges of single outputs do not tell which of their ends go together: where one event is open, the norm of the
    largest sizes may be that of neither side, and all boxes along its hyperplane would be halved to the end.
    """
    n_outputs = len(total)
    ways = np.zeros((_MOST_OPEN, _MOST_WAYS, n_outputs), np.int64)
    n_ways = np.zeros(_MOST_OPEN, np.int64)
    stack, sums = np.empty(2 * _MOST_WAYS, np.int64), np.zeros((2 * _MOST_WAYS, n_outputs), np.int64)
    total_ways = 1
    for j in range(n_open):
        stack[0], size, is_first = opened[j], 1, True
        sums[0] = 0
        while size > 0:
            size -= 1
            event, before = stack[size], sums[size].copy()
            middle, reach = _interval(normals, event, centre, half, slack)
            for side in (0, 1):
                can_be = middle < reach if side == 0 else middle >= -reach + touch
                if not (is_first or can_be):
                    continue
                following = edges[event, side]
                if following < 0:
                    if n_ways[j] == _MOST_WAYS:
                        return np.inf
                    ways[j, n_ways[j]] = before + gains[event, side]
                    n_ways[j] += 1
                else:
                    if size == len(stack):
                        return np.inf
                    stack[size], sums[size] = following, before + gains[event, side]
                    size += 1
            is_first = False
        total_ways *= n_ways[j]
        if total_ways > _MOST_SUMS:
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
def _tilt(
    normals: Any,
    opened: Any,
    middles: Any,
    reaches: Any,
    n_open: int,
    highs: Any,
    lows: Any,
    k: int,
    sign: int,
    moved: Any,
    tilt: Any,
) -> Any:
    """Fill ``tilt`` with the sum of all slopes at a point; return what it adds at the centre, and all that is open.

    The slope of a sample is the largest one if the point, which is ``moved`` from the centre, is on its worse side, and
    zero otherwise.
    """
    tilt[:] = 0.0
    added, stake = 0.0, 0.0
    is_centre = not moved.any()
    for j in range(n_open):
        event, middle, reach = opened[j], float(middles[j]), float(reaches[j])
        more = float(highs[j, 1, k] - highs[j, 0, k] if sign > 0 else lows[j, 0, k] - lows[j, 1, k])
        stake += abs(more)
        there = middle
        if not is_centre:
            for d in range(len(tilt)):
                there += normals[event, d] * moved[d]
        if more * there >= 0:
            continue
        slope = more / (reach - middle if more > 0 else reach + middle)
        added += slope * middle
        for d in range(len(tilt)):
            tilt[d] += slope * normals[event, d]
    return added, stake


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _tilted(
    normals: Any,
    opened: Any,
    middles: Any,
    reaches: Any,
    n_open: int,
    half: Any,
    highs: Any,
    lows: Any,
    highest: Any,
    lowest: Any,
    target: float,
    is_simple: bool,
    work: Any,
) -> float:
    r"""Return a bound on the size of all sums in a box by linear functions, with an allowance for rounding.

    Let z be the value of a sample's event, between -m and M on the box, and let a spike add w more than silence. Then

    .. math:: w [z \ge 0] \le w + \kappa z, \; 0 \le \kappa \le w / m \quad (w > 0), \qquad
              w [z \ge 0] \le -\kappa z, \; 0 \le \kappa \le -w / M \quad (w < 0).

    So the constant bound may be tilted by any such slopes, which oppose each other where samples cannot all have their
    way. They are chosen for the centre, then for a point on the way to where this bound is largest; means of both are
    bounds, too. No term is larger than what its sample can change, so that rounding changes less than 1e-9 of that.
    """
    dimension, worst = len(half), 0.0
    tilt, other, moved = work[0], work[1], work[2]
    for k in range(len(highest)):
        for sign in (1, -1):
            constant = float(highest[k] if sign > 0 else -lowest[k])
            if constant <= target:
                worst = max(worst, constant)
                continue
            moved[:] = 0.0
            added, stake = _tilt(normals, opened, middles, reaches, n_open, highs, lows, k, sign, moved, tilt)
            best, largest = added, 0.0
            for d in range(dimension):
                best += abs(tilt[d]) * half[d]
                largest = max(largest, abs(tilt[d]) * half[d])
            best = min(best, 0.0)
            if constant + best + 1e-9 * stake > target and largest > 0 and not is_simple:
                for d in range(dimension):
                    moved[d] = _STEP * half[d] * (tilt[d] * half[d] / largest)
                more, _ = _tilt(normals, opened, middles, reaches, n_open, highs, lows, k, sign, moved, other)
                for part in range(1, 5):
                    share = 0.25 * part
                    mean = (1 - share) * added + share * more
                    for d in range(dimension):
                        mean += abs((1 - share) * tilt[d] + share * other[d]) * half[d]
                    best = min(best, mean)
            worst = max(worst, constant + best + 1e-9 * stake)
    return worst


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def bound_boxes(
    normals: Any,
    slack: int,
    edges: Any,
    gains: Any,
    roots: Any,
    offset: Any,
    touch: int,
    centres: Any,
    halves: Any,
    target: float,
    depth: int,
) -> Any:
    """Return a bound on the sizes of all sums in each of some boxes, and whether it is a linear one.

    Linear bounds are tried where constant ones are above the target, and are those that others can repeat.
    """
    n_outputs, n_samples, dimension = len(offset), len(roots), normals.shape[1]
    bounds, is_tilted = np.zeros(len(centres)), np.zeros(len(centres), np.bool_)
    highs, lows = np.zeros((n_samples, 2, n_outputs), np.int64), np.zeros((n_samples, 2, n_outputs), np.int64)
    opened, middles = np.empty(n_samples, np.int64), np.empty(n_samples, np.int64)
    reaches, work = np.empty(n_samples, np.int64), np.zeros((3, dimension))
    stack, sums = np.empty(depth + 2, np.int64), np.zeros((depth + 4, n_outputs), np.int64)
    seen, n_seen = np.empty(0, np.int64), np.zeros(1, np.int64)
    for box in range(len(centres)):
        total, kept = offset.copy(), 0
        highest, lowest = np.zeros(n_outputs, np.int64), np.zeros(n_outputs, np.int64)
        for j in range(n_samples):
            middle, reach = _interval(normals, roots[j], centres[box], halves[box], slack)
            event, middle, reach = _assess(
                normals, slack, edges, gains, touch, roots[j], middle, reach, centres[box], halves[box], total,
                highs[kept], lows[kept], stack, sums, seen, n_seen,
            )  # fmt: skip
            if event >= 0:
                for k in range(n_outputs):
                    highest[k] += max(highs[kept, 0, k], highs[kept, 1, k])
                    lowest[k] += min(lows[kept, 0, k], lows[kept, 1, k])
                opened[kept], middles[kept], reaches[kept] = event, middle, reach
                kept += 1
        highest += total
        lowest += total
        bounds[box] = _size(highest, lowest, False)
        if slack == 0 and kept > 1 and bounds[box] > target:
            better = _tilted(
                normals, opened, middles, reaches, kept, halves[box], highs, lows, highest, lowest, target, True, work
            )
            is_tilted[box] = better <= target
            bounds[box] = min(bounds[box], better)
    return bounds, is_tilted


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _follow(normals: Any, edges: Any, gains: Any, event: int, point: Any, total: Any) -> None:
    """Add what a sample gives at one point."""
    while event >= 0:
        value = np.int64(0)
        for d in range(normals.shape[1]):
            value += normals[event, d] * point[d]
        side = 1 if value >= 0 else 0
        for k in range(len(total)):
            total[k] += gains[event, side, k]
        event = edges[event, side]


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def explore(
    normals: Any,
    slack: int,
    edges: Any,
    gains: Any,
    roots: Any,
    offset: Any,
    touch: int,
    centres: Any,
    halves: Any,
    closest: Any,
    target: float,
    budget: int,
    n_levels: int,
    depth: int,
    is_group: bool,
    is_simple: bool,
) -> Any:
    """Search some boxes, each for at most ``budget`` nodes.

    Parameters
    ----------
    normals : array of shape (n_events, dimension)
        The events' linear functions, up to ``slack`` per coordinate.
    slack : int
        0 if the normals are exact, or 1.
    edges : array of shape (n_events, 2)
        The events that follow silence and a spike; -1 at the end.
    gains : array of shape (n_events, 2, n_outputs)
        What silence and a spike add.
    roots : array of shape (n_samples,)
        The first event of each sample.
    offset : array of shape (n_outputs,)
        What is added whatever the parameters are.
    touch : int
        1 if a box that an event touches from below is silent there, 0 if it may fire.
    centres, halves : arrays of shape (n_boxes, dimension)
        The boxes.
    closest : array of shape (n_boxes,)
        Parts up to this size, in which events meet, are returned to be looked at more closely.
    target : float
        Boxes whose bound is at most this are done.
    budget : int
        Nodes per box.
    n_levels : int
        Largest depth of the tree of boxes.
    depth : int
        Largest number of events of a sample, one after the other.
    is_group : bool
        Whether the size of a sum is its Euclidean norm, or its largest entry.
    is_simple : bool
        Whether linear bounds are chosen for the centres only, so that others can repeat it.

    Returns
    -------
    tuple of arrays
        Per box: the code of its tree and its length; the boxes that are left, with bounds, and their number; those that
        are stuck, with bounds, whether they can be halved no more, and their number; the largest bound of
        a leaf; the largest size found and where.
    """
    n_boxes, dimension = centres.shape
    n_outputs, n_samples = gains.shape[2], len(roots)
    codes = np.empty((n_boxes, budget + n_levels + 2), np.uint8)
    n_codes = np.zeros(n_boxes, np.int64)
    left = np.empty((n_boxes, n_levels + 2, 2, dimension), np.int64)
    left_bounds = np.zeros((n_boxes, n_levels + 2))
    n_left = np.zeros(n_boxes, np.int64)
    stuck = np.empty((n_boxes, budget + 1, dimension), np.int64)
    stuck_halves = np.empty((n_boxes, budget + 1, dimension), np.int64)
    stuck_bounds = np.zeros((n_boxes, budget + 1))
    is_last = np.zeros((n_boxes, budget + 1), np.bool_)
    n_stuck = np.zeros(n_boxes, np.int64)
    bounds = np.zeros(n_boxes)
    values = np.zeros(n_boxes)
    points = np.zeros((n_boxes, dimension), np.int64)
    for box in range(n_boxes):
        opened = np.empty((n_levels + 1, n_samples), np.int64)
        middles = np.empty((n_levels + 1, n_samples), np.int64)
        reaches = np.empty((n_levels + 1, n_samples), np.int64)
        n_open = np.zeros(n_levels + 1, np.int64)
        totals = np.zeros((n_levels + 1, n_outputs), np.int64)
        centre = np.zeros((n_levels + 1, dimension), np.int64)
        half = np.zeros((n_levels + 1, dimension), np.int64)
        visits, axes = np.zeros(n_levels + 1, np.int64), np.zeros(n_levels + 1, np.int64)
        sizes = np.zeros(n_levels + 1)
        highs, lows = np.zeros((n_samples, 2, n_outputs), np.int64), np.zeros((n_samples, 2, n_outputs), np.int64)
        highest, lowest = np.zeros(n_outputs, np.int64), np.zeros(n_outputs, np.int64)
        total, point = np.zeros(n_outputs, np.int64), np.zeros(dimension, np.int64)
        stack, sums = np.empty(depth + 2, np.int64), np.zeros((depth + 4, n_outputs), np.int64)
        shares, slope = np.zeros(dimension), np.zeros(dimension)
        seen, n_seen = np.empty(_MOST_SEEN, np.int64), np.zeros(1, np.int64)
        rows, work = np.empty((dimension, dimension)), np.zeros((3, dimension))
        centre[0], half[0] = centres[box], halves[box]
        level, is_new, n_nodes = 0, True, 0
        while level >= 0:
            if is_new:
                if n_nodes >= budget:
                    codes[box, n_codes[box]] = LEFT
                    n_codes[box] += 1
                    left[box, n_left[box], 0], left[box, n_left[box], 1] = centre[level], half[level]
                    left_bounds[box, n_left[box]] = sizes[level - 1] if level > 0 else np.inf
                    n_left[box] += 1
                    level, is_new = level - 1, False
                    continue
                n_nodes += 1
                kept = 0
                n_seen[0] = 0
                totals[level, :] = totals[level - 1] if level > 0 else offset
                highest[:], lowest[:] = 0, 0
                axis = axes[level - 1] if level > 0 else 0
                step = half[level, axis]
                move = step if level > 0 and visits[level - 1] == 2 else -step
                for j in range(n_open[level - 1] if level > 0 else n_samples):
                    if level > 0 and slack == 0:
                        event = opened[level - 1, j]
                        middle = middles[level - 1, j] + normals[event, axis] * move
                        reach = reaches[level - 1, j] - abs(normals[event, axis]) * step
                    else:
                        event = opened[level - 1, j] if level > 0 else roots[j]
                        middle, reach = _interval(normals, event, centre[level], half[level], slack)
                    event, middle, reach = _assess(
                        normals, slack, edges, gains, touch, event, middle, reach, centre[level], half[level],
                        totals[level], highs[kept], lows[kept], stack, sums, seen, n_seen,
                    )  # fmt: skip
                    if event < 0:
                        continue
                    for k in range(n_outputs):
                        highest[k] += max(highs[kept, 0, k], highs[kept, 1, k])
                        lowest[k] += min(lows[kept, 0, k], lows[kept, 1, k])
                    opened[level, kept], middles[level, kept], reaches[level, kept] = event, middle, reach
                    kept += 1
                n_open[level] = kept
                for k in range(n_outputs):
                    highest[k] += totals[level, k]
                    lowest[k] += totals[level, k]
                sizes[level] = _size(highest, lowest, is_group)
                if is_group and kept <= _MOST_OPEN and sizes[level] > max(target, values[box]):
                    exact = _largest_norm(
                        normals,
                        slack,
                        edges,
                        gains,
                        touch,
                        opened[level],
                        kept,
                        centre[level],
                        half[level],
                        totals[level],
                    )
                    sizes[level] = min(sizes[level], exact)
                leaf = LEAF
                # Linear functions bound entries, not norms, and need exact normals.
                if kept > 1 and not is_group and slack == 0 and sizes[level] > target:
                    better = _tilted(
                        normals, opened[level], middles[level], reaches[level], kept, half[level], highs, lows,
                        highest, lowest, target, is_simple, work,
                    )  # fmt: skip
                    if better <= target:
                        leaf = TILTED
                    sizes[level] = min(sizes[level], better)
                # The value at the centre, and where few events are open at the most promising corner.
                if sizes[level] > max(target, values[box]):
                    shares[:], slope[:] = 0.0, 0.0
                    for j in range(kept):
                        event = opened[level, j]
                        stake, rise = 0.0, 0.0
                        for k in range(n_outputs):
                            stake += float(max(highs[j, 0, k], highs[j, 1, k]) - min(lows[j, 0, k], lows[j, 1, k]))
                        stake /= reaches[level, j]
                        rise = float(gains[event, 1, 0] - gains[event, 0, 0]) / reaches[level, j]
                        for d in range(dimension):
                            shares[d] += stake * abs(normals[event, d]) * half[level, d]
                            slope[d] += rise * normals[event, d]
                    sign = 1 if highest[0] >= -lowest[0] else -1
                    for trial in range(2 if kept <= 4 else 1):
                        total[:] = totals[level]
                        for d in range(dimension):
                            point[d] = centre[level, d]
                            if trial == 1:
                                point[d] += half[level, d] if sign * slope[d] >= 0 else -half[level, d]
                        for j in range(kept):
                            _follow(normals, edges, gains, opened[level, j], point, total)
                        size = _size(total, total, is_group)
                        if size > values[box]:
                            values[box] = size
                            points[box] = point
                if kept == 0 or sizes[level] <= max(target, values[box]):
                    bounds[box] = max(bounds[box], sizes[level])
                    codes[box, n_codes[box]] = leaf
                    n_codes[box] += 1
                    level, is_new = level - 1, False
                    continue
                axis, largest = -1, -1.0
                for d in range(dimension):
                    if half[level, d] > 1 and shares[d] > largest:
                        axis, largest = d, shares[d]
                if axis >= 0 and largest <= 0:  # what is open depends on later events only
                    for d in range(dimension):
                        if half[level, d] > half[level, axis]:
                            axis = d
                if (
                    axis < 0
                    or level + 1 >= n_levels
                    or (half[level].max() <= closest[box] and _meet(normals, seen, n_seen[0], rows))
                ):
                    codes[box, n_codes[box]] = STUCK
                    n_codes[box] += 1
                    stuck[box, n_stuck[box]], stuck_halves[box, n_stuck[box]] = centre[level], half[level]
                    stuck_bounds[box, n_stuck[box]] = sizes[level]
                    is_last[box, n_stuck[box]] = axis < 0 or level + 1 >= n_levels
                    n_stuck[box] += 1
                    level, is_new = level - 1, False
                    continue
                codes[box, n_codes[box]] = axis
                n_codes[box] += 1
                axes[level], visits[level] = axis, 0
            if visits[level] == 2:
                level, is_new = level - 1, False
                continue
            axis = axes[level]
            step = half[level, axis] >> 1
            centre[level + 1], half[level + 1] = centre[level], half[level]
            centre[level + 1, axis] += step if visits[level] == 1 else -step
            half[level + 1, axis] = step
            visits[level] += 1
            level, is_new = level + 1, True
    return (
        codes,
        n_codes,
        left,
        left_bounds,
        n_left,
        stuck,
        stuck_halves,
        stuck_bounds,
        is_last,
        n_stuck,
        bounds,
        values,
        points,
    )
