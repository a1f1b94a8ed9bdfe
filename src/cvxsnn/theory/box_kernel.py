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
    """Too small to be halved, and the bound is too large."""
    stuck: int = 254
    """Events meet here in more than general position: to be searched as a problem of fewer dimensions."""
    left: int = 255
    """Not examined: the budget was used up."""


END = Ends()


class _Settings(NamedTuple):
    step: float = 0.75
    """Where the second linear bound is chosen, as a share of the way to the border of a box."""
    max_seen: int = 1024
    """Open events that are tested for general position; with more, a box is halved without the test."""
    max_open: int = 6
    """Open trees for which norms of all sums are compared."""
    max_ways: int = 8
    """Sums of one open tree that are compared."""
    max_sums: int = 256
    """Sums over all open trees that are compared."""


_SETTINGS = _Settings()


class Events(NamedTuple):
    """The events of all samples in the coordinates of a search."""

    normals: Any
    """Linear functions of the parameters, of shape (n_events, dimension), up to ``slack`` per coordinate."""
    slack: int
    """0 if the normals are exact, or 1."""
    edges: Any
    """Events that follow silence and a spike, of shape (n_events, 2); -1 at the end."""
    gains: Any
    """What silence and a spike add to the sum, of shape (n_events, 2, n_outputs)."""
    touch: int
    """1 if an event that touches a box from below is silent there, 0 if it may fire."""


class Problem(NamedTuple):
    """Samples as trees of events."""

    # Arrays of a tuple are arguments of every call, so the functions of the inner loop get the events only.
    events: Events
    roots: Any
    """First event of each sample."""
    offset: Any
    """What is added to the sum for all parameters, of shape (n_outputs,)."""
    depth: int
    """Largest number of events of a sample, one after the other."""


class _Space(NamedTuple):
    """Memory that is used again for each box."""

    stack: Any
    sums: Any
    seen: Any
    n_seen: Any


class _Open(NamedTuple):
    """The samples that are open on a box: their first open events, the values of these, and the ranges on each side."""

    events: Any
    middles: Any
    reaches: Any
    highs: Any
    lows: Any


class Outcome(NamedTuple):
    """What a search of some boxes returns; the first axis of each array is that of the boxes."""

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
    """Where it is."""


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _new_space(problem: Problem, n_seen: int) -> _Space:
    stack = np.empty(problem.depth + 2, np.int64)
    sums = np.zeros((problem.depth + 4, len(problem.offset)), np.int64)
    return _Space(stack, sums, np.empty(n_seen, np.int64), np.zeros(1, np.int64))


@nb.njit(cache=True, inline="always")  # type: ignore[untyped-decorator]
def _interval(normals: Any, slack: int, event: int, centre: Any, half: Any) -> Any:
    """Return the centre and the half-width of an event's values on a box."""
    middle, reach = np.int64(0), np.int64(0)
    for d in range(normals.shape[1]):
        middle += normals[event, d] * centre[d]
        reach += abs(normals[event, d]) * half[d]
        if slack:
            reach += slack * (abs(centre[d]) + half[d])
    return middle, reach


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _range(events: Events, space: _Space, event: int, centre: Any, half: Any, high: Any, low: Any) -> None:
    """Add to ``high`` and ``low`` the range of what a tree may give on a box, and to ``seen`` its open events."""
    n_outputs = len(high)
    most = len(space.sums) - 2
    least = len(space.sums) - 1
    for k in range(n_outputs):
        space.sums[0, k] = 0
        space.sums[most, k], space.sums[least, k] = -(2**62), 2**62
    space.stack[0], size = event, 1
    while size > 0:
        size -= 1
        event = space.stack[size]
        middle, reach = _interval(events.normals, events.slack, event, centre, half)
        may_rest, may_fire = middle < reach, middle >= -reach + events.touch
        if may_rest and may_fire:
            if space.n_seen[0] < len(space.seen):
                space.seen[space.n_seen[0]] = event
            space.n_seen[0] += 1
        for side in (0, 1):
            if (may_fire if side else may_rest) and events.edges[event, side] < 0:
                for k in range(n_outputs):
                    value = space.sums[size, k] + events.gains[event, side, k]
                    space.sums[most, k] = max(space.sums[most, k], value)
                    space.sums[least, k] = min(space.sums[least, k], value)
        # The first child replaces its parent on the stack, so the parent's sums are overwritten last.
        goes_on_rest, goes_on_fire = may_rest and events.edges[event, 0] >= 0, may_fire and events.edges[event, 1] >= 0
        if goes_on_rest and goes_on_fire:
            for k in range(n_outputs):
                space.sums[size + 1, k] = space.sums[size, k] + events.gains[event, 1, k]
                space.sums[size, k] += events.gains[event, 0, k]
            space.stack[size], space.stack[size + 1] = events.edges[event, 0], events.edges[event, 1]
            size += 2
        elif goes_on_rest or goes_on_fire:
            side = 1 if goes_on_fire else 0
            for k in range(n_outputs):
                space.sums[size, k] += events.gains[event, side, k]
            space.stack[size] = events.edges[event, side]
            size += 1
    for k in range(n_outputs):
        high[k] += space.sums[most, k]
        low[k] += space.sums[least, k]


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _assess(
    events: Events, space: _Space, event: int, middle: int, reach: int, centre: Any, half: Any, total: Any,
    high: Any, low: Any,
) -> Any:  # fmt: skip
    """Follow a tree on a box: add what is decided to ``total`` and return the first open event, or -1, and its values.

    ``middle`` and ``reach`` are the values of the first event. ``high[side]`` and ``low[side]`` receive the range of
    what the open part may add on either side of the first open event, and ``seen`` the open events.
    """
    n_outputs = len(total)
    while True:
        if middle >= reach:
            side = 1
        elif middle < -reach + events.touch:
            side = 0
        else:
            break
        for k in range(n_outputs):
            total[k] += events.gains[event, side, k]
        event = events.edges[event, side]
        if event < 0:
            return -1, middle, reach
        middle, reach = _interval(events.normals, events.slack, event, centre, half)
    n_before = space.n_seen[0]
    if space.n_seen[0] < len(space.seen):
        space.seen[space.n_seen[0]] = event
    space.n_seen[0] += 1
    for side in (0, 1):
        for k in range(n_outputs):
            high[side, k] = low[side, k] = events.gains[event, side, k]
        if events.edges[event, side] >= 0:
            _range(events, space, events.edges[event, side], centre, half, high[side], low[side])
    for k in range(n_outputs):
        if max(high[0, k], high[1, k]) != min(low[0, k], low[1, k]):
            return event, middle, reach
    space.n_seen[0] = n_before
    for k in range(n_outputs):
        total[k] += high[0, k]
    return -1, middle, reach


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _meet(normals: Any, space: _Space, rows: Any) -> bool:
    """Return whether open events seem to meet in a point, or some of them in more than general position.

    This only decides when to look more closely, so that rounding does no harm.
    """
    seen = space.seen
    n_seen = space.n_seen[0]
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
    return bool(rank < n_seen)


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def survey(problem: Problem, centre: Any, half: Any) -> Any:
    """Return what is open on a box as trees.

    Returns
    -------
    tuple of arrays
        The open events, the edges between them, what their sides add up to the next open event, the first open event
        of each sample that has one, and the sum of what is decided.
    """
    normals, slack, edges, gains, touch = problem.events
    n_outputs = len(problem.offset)
    space = _new_space(problem, 0)
    total = problem.offset.copy()
    high, low = np.zeros((2, n_outputs), np.int64), np.zeros((2, n_outputs), np.int64)
    waiting = np.empty((problem.depth + 2, 2), np.int64)  # events, and which edge leads to them
    kept, roots = [np.int64(0) for _ in range(0)], [np.int64(0) for _ in range(0)]
    following, added = [np.int64(0) for _ in range(0)], [np.int64(0) for _ in range(0)]
    for root in problem.roots:
        middle, reach = _interval(normals, slack, root, centre, half)
        first, _, _ = _assess(problem.events, space, root, middle, reach, centre, half, total, high, low)
        if first < 0:
            continue
        roots.append(np.int64(len(kept)))
        waiting[0, 0] = first
        waiting[0, 1] = -1
        size = 1
        while size > 0:
            size -= 1
            event, edge = waiting[size]
            if edge >= 0:
                following[edge] = np.int64(len(kept))
            kept.append(event)
            for _ in range(2):
                following.append(np.int64(-1))
            n_added = len(added)
            for _ in range(2 * n_outputs):
                added.append(np.int64(0))
            for side in (1, 0):  # the side of silence is visited first
                here, after = n_added + side * n_outputs, event
                state = side
                while after >= 0 and state < 2:
                    for k in range(n_outputs):
                        added[here + k] += gains[after, state, k]
                    after = edges[after, state]
                    if after >= 0:
                        middle, reach = _interval(normals, slack, after, centre, half)
                        state = 1 if middle >= reach else 0 if middle < -reach + touch else 2
                if after >= 0:
                    waiting[size, 0], waiting[size, 1] = after, 2 * len(kept) - 2 + side
                    size += 1
    shape = (len(kept), 2, n_outputs)
    return (
        np.array(kept, dtype=np.int64), np.array(following, dtype=np.int64).reshape(-1, 2),
        np.array(added, dtype=np.int64).reshape(shape), np.array(roots, dtype=np.int64), total,
    )  # fmt: skip


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
def _largest_norm(events: Events, opened: Any, n_open: int, centre: Any, half: Any, total: Any) -> float:
    """Return the largest norm of what a few open trees can add to a sum, or infinity if there are too many ways.

    Ranges of single outputs do not tell which of their ends go together: where one event is open, the norm of the
    largest sizes may be that of neither side, and all boxes along its hyperplane would be halved to the end.
    """
    n_outputs, max_ways = len(total), _SETTINGS.max_ways
    ways = np.zeros((_SETTINGS.max_open, max_ways, n_outputs), np.int64)
    n_ways = np.zeros(_SETTINGS.max_open, np.int64)
    stack = np.empty(2 * max_ways, np.int64)
    sums = np.zeros((2 * max_ways, n_outputs), np.int64)
    total_ways = 1
    for j in range(n_open):
        stack[0] = opened[j]
        size = 1
        is_first = True
        sums[0] = 0
        while size > 0:
            size -= 1
            event, before = stack[size], sums[size].copy()
            middle, reach = _interval(events.normals, events.slack, event, centre, half)
            for side in (0, 1):
                can_be = middle < reach if side == 0 else middle >= -reach + events.touch
                if not (is_first or can_be):
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
            is_first = False
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
def _tilt(normals: Any, opened: _Open, n_open: int, k: int, sign: int, moved: Any, tilt: Any) -> Any:
    """Fill ``tilt`` with the sum of all slopes at a point; return what it adds at the centre, and all that is open.

    The slope of a sample is the largest one if the point, which is ``moved`` from the centre, is on its worse side, and
    zero otherwise.
    """
    tilt[:] = 0.0
    added, stake = 0.0, 0.0
    is_centre = not moved.any()
    for j in range(n_open):
        event = opened.events[j]
        middle = float(opened.middles[j])
        reach = float(opened.reaches[j])
        more = float(
            opened.highs[j, 1, k] - opened.highs[j, 0, k] if sign > 0 else opened.lows[j, 0, k] - opened.lows[j, 1, k]
        )
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
    normals: Any, opened: _Open, n_open: int, half: Any, highest: Any, lowest: Any, target: float, is_simple: bool,
    tilts: Any,
) -> float:  # fmt: skip
    r"""Return a bound on the size of all sums in a box by linear functions, with an allowance for rounding.

    Let z be the value of a sample's event, between -m and M on the box, and let a spike add w more than silence. Then

    .. math:: w [z \ge 0] \le w + \kappa z, \; 0 \le \kappa \le w / m \quad (w > 0), \qquad
              w [z \ge 0] \le -\kappa z, \; 0 \le \kappa \le -w / M \quad (w < 0).

    So the constant bound may be tilted by any such slopes, which oppose each other where samples cannot all have their
    way. They are chosen for the centre, then for a point on the way to where this bound is largest; means of both are
    bounds, too. No term is larger than what its sample can change, so that rounding changes less than 1e-9 of that.
    """
    dimension, worst = len(half), 0.0
    tilt = tilts[0]
    other = tilts[1]
    moved = tilts[2]
    for k in range(len(highest)):
        for sign in (1, -1):
            constant = float(highest[k] if sign > 0 else -lowest[k])
            if constant <= target:
                worst = max(worst, constant)
                continue
            moved[:] = 0.0
            added, stake = _tilt(normals, opened, n_open, k, sign, moved, tilt)
            best, largest = added, 0.0
            for d in range(dimension):
                best += abs(tilt[d]) * half[d]
                largest = max(largest, abs(tilt[d]) * half[d])
            best = min(best, 0.0)
            if constant + best + 1e-9 * stake > target and largest > 0 and not is_simple:
                for d in range(dimension):
                    moved[d] = _SETTINGS.step * half[d] * (tilt[d] * half[d] / largest)
                more, _ = _tilt(normals, opened, n_open, k, sign, moved, other)
                for part in range(1, 5):
                    share = 0.25 * part
                    mean = (1 - share) * added + share * more
                    for d in range(dimension):
                        mean += abs((1 - share) * tilt[d] + share * other[d]) * half[d]
                    best = min(best, mean)
            worst = max(worst, constant + best + 1e-9 * stake)
    return worst


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


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _try_points(
    events: Events, opened: _Open, n_open: int, centre: Any, half: Any, total: Any, sign: int, shares: Any,
    slope: Any, point: Any, sums: Any, is_group: bool, best: float, best_point: Any,
) -> float:  # fmt: skip
    """Compare the sums at the centre and, where few events are open, at the most promising corner with the best one.

    ``shares`` receives how much of what is open depends on each axis.
    """
    normals = events.normals
    edges = events.edges
    gains = events.gains
    dimension = len(centre)
    reaches = opened.reaches
    highs = opened.highs
    lows = opened.lows
    shares[:], slope[:] = 0.0, 0.0
    for j in range(n_open):
        event, stake = opened.events[j], 0.0
        for k in range(len(total)):
            stake += float(max(highs[j, 0, k], highs[j, 1, k]) - min(lows[j, 0, k], lows[j, 1, k]))
        stake /= reaches[j]
        rise = float(gains[event, 1, 0] - gains[event, 0, 0]) / reaches[j]
        for d in range(dimension):
            shares[d] += stake * abs(normals[event, d]) * half[d]
            slope[d] += rise * normals[event, d]
    for trial in range(2 if n_open <= 4 else 1):
        sums[:] = total
        for d in range(dimension):
            point[d] = centre[d]
            if trial == 1:
                point[d] += half[d] if sign * slope[d] >= 0 else -half[d]
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
    axis, largest = -1, -1.0
    for d in range(len(half)):
        if half[d] > 1 and shares[d] > largest:
            axis, largest = d, shares[d]
    if axis >= 0 and largest <= 0:  # what is open depends on later events only
        for d in range(len(half)):
            if half[d] > half[axis]:
                axis = d
    return axis


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def explore(
    problem: Problem, centres: Any, halves: Any, closest: Any, target: float, budget: int, n_levels: int,
    is_group: bool, is_simple: bool,
) -> Outcome:  # fmt: skip
    """Search some boxes, each for at most ``budget`` nodes.

    Parameters
    ----------
    problem : Problem
        The trees.
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
    is_group : bool
        Whether the size of a sum is its Euclidean norm, or its largest entry.
    is_simple : bool
        Whether linear bounds are chosen for the centres only, so that the checker can repeat them.

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
    rest = np.empty((n_boxes, n_rest, 2, dimension), np.int64)
    rest_bounds = np.zeros((n_boxes, n_rest))
    bounds = np.zeros(n_boxes)
    values = np.zeros(n_boxes)
    points = np.zeros((n_boxes, dimension), np.int64)
    # One row per level: a box and its ancestors, which wait for their upper halves.
    opened = np.empty((n_levels + 1, 3, n_samples), np.int64)
    n_open, totals = np.zeros(n_levels + 1, np.int64), np.zeros((n_levels + 1, n_outputs), np.int64)
    centre = np.zeros((n_levels + 1, dimension), np.int64)
    half = np.zeros((n_levels + 1, dimension), np.int64)
    visits = np.zeros(n_levels + 1, np.int64)
    axes = np.zeros(n_levels + 1, np.int64)
    sizes = np.zeros(n_levels + 1)
    highs, lows = np.zeros((n_samples, 2, n_outputs), np.int64), np.zeros((n_samples, 2, n_outputs), np.int64)
    highest, lowest = np.zeros(n_outputs, np.int64), np.zeros(n_outputs, np.int64)
    space = _new_space(problem, _SETTINGS.max_seen)
    rows = np.empty((dimension, dimension))
    tilts = np.zeros((3, dimension))
    shares, slope = np.zeros(dimension), np.zeros(dimension)
    point, total = np.zeros(dimension, np.int64), np.zeros(n_outputs, np.int64)
    for box in range(n_boxes):
        n_parts = 0
        centre[0], half[0] = centres[box], halves[box]
        level = 0
        is_new = True
        n_nodes = 0
        while level >= 0:
            if is_new:
                code = END.left
                if n_nodes < budget:
                    n_nodes += 1
                    kept = 0
                    space.n_seen[0] = 0
                    totals[level, :] = totals[level - 1] if level > 0 else problem.offset
                    highest[:], lowest[:] = 0, 0
                    axis = axes[level - 1] if level > 0 else 0
                    step = half[level, axis]
                    move = step if level > 0 and visits[level - 1] == 2 else -step
                    for j in range(n_open[level - 1] if level > 0 else n_samples):
                        if level > 0 and slack == 0:  # only one coordinate has changed since the parent
                            event = opened[level - 1, 0, j]
                            middle = opened[level - 1, 1, j] + normals[event, axis] * move
                            reach = opened[level - 1, 2, j] - abs(normals[event, axis]) * step
                        else:
                            event = opened[level - 1, 0, j] if level > 0 else problem.roots[j]
                            middle, reach = _interval(normals, slack, event, centre[level], half[level])
                        event, middle, reach = _assess(
                            events, space, event, middle, reach, centre[level], half[level], totals[level],
                            highs[kept], lows[kept],
                        )  # fmt: skip
                        if event < 0:
                            continue
                        for k in range(n_outputs):
                            highest[k] += max(highs[kept, 0, k], highs[kept, 1, k])
                            lowest[k] += min(lows[kept, 0, k], lows[kept, 1, k])
                        opened[level, 0, kept] = event
                        opened[level, 1, kept] = middle
                        opened[level, 2, kept] = reach
                        kept += 1
                    n_open[level] = kept
                    for k in range(n_outputs):
                        highest[k] += totals[level, k]
                        lowest[k] += totals[level, k]
                    here = _Open(opened[level, 0], opened[level, 1], opened[level, 2], highs, lows)
                    sizes[level] = _size(highest, lowest, is_group)
                    if is_group and kept <= _SETTINGS.max_open and sizes[level] > max(target, values[box]):
                        norm = _largest_norm(events, here.events, kept, centre[level], half[level], totals[level])
                        sizes[level] = min(sizes[level], norm)
                    code = END.leaf
                    # Linear functions bound entries, not norms, and need exact normals.
                    if kept > 1 and not is_group and slack == 0 and sizes[level] > target:
                        better = _tilted(normals, here, kept, half[level], highest, lowest, target, is_simple, tilts)
                        if better < sizes[level]:  # also if this is below a neuron that was found, not the target
                            code, sizes[level] = END.tilted, better
                    if sizes[level] > max(target, values[box]):
                        sign = 1 if highest[0] >= -lowest[0] else -1
                        values[box] = _try_points(
                            events, here, kept, centre[level], half[level], totals[level], sign, shares, slope,
                            point, total, is_group, values[box], points[box],
                        )  # fmt: skip
                    if kept == 0 or sizes[level] <= max(target, values[box]):
                        bounds[box] = max(bounds[box], sizes[level])
                    else:
                        axis = _choose_axis(half[level], shares)
                        if axis < 0 or level + 1 >= n_levels:
                            code = END.last
                        elif half[level].max() <= closest[box] and _meet(normals, space, rows):
                            code = END.stuck
                        else:
                            code = axis
                            axes[level] = axis
                            visits[level] = 0
                codes[box, n_codes[box]] = code
                n_codes[box] += 1
                if code >= END.last:
                    rest[box, n_parts, 0], rest[box, n_parts, 1] = centre[level], half[level]
                    # A box that was not examined has the bound of its parent.
                    size = sizes[level] if code != END.left else sizes[level - 1] if level > 0 else np.inf
                    rest_bounds[box, n_parts] = size
                    n_parts += 1
                if code >= END.tilted:
                    level, is_new = level - 1, False
                    continue
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
    return Outcome(codes, n_codes, rest, rest_bounds, bounds, values, points)
