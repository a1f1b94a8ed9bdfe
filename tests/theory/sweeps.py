"""A rotating sweep: the largest price of threshold neurons on points of a plane with a bias, by another algorithm."""

from functools import cmp_to_key

import numpy as np


def sweep(points, weights):
    """Return the largest |Σ weights · fires| over all lines, in whole numbers: O(n² log n).

    The best pattern is that of a line through a point, moved or turned a little: turn a line around each point, and
    keep the sum of the weights on its positive side. A line that points lie on is moved or turned a little: then it has
    all of them on one side, or those ahead of the pivot on one side and those behind it on the other.
    """
    points, best = [tuple(map(int, p)) for p in points], max(0, abs(sum(weights)))
    for pivot in set(points):
        here = sum(w for p, w in zip(points, weights, strict=True) if p == pivot)
        others = [((p[0] - pivot[0], p[1] - pivot[1]), w) for p, w in zip(points, weights, strict=True) if p != pivot]
        # Directions modulo half a turn, each with the weights ahead of the pivot and behind it.
        rays = {}
        for (x, y), w in others:
            is_ahead = (y, x) > (0, 0)
            g = np.gcd(x, y)
            key = (x // g, y // g) if is_ahead else (-x // g, -y // g)
            ahead, behind = rays.get(key, (0, 0))
            rays[key] = (ahead + w * is_ahead, behind + w * (not is_ahead))
        order = sorted(rays, key=cmp_to_key(lambda a, b: -1 if a[0] * b[1] - a[1] * b[0] > 0 else 1))
        # The line begins along the first direction, turned back a little: what is ahead of it is on its left.
        left = sum(ahead for ahead, _ in rays.values())
        total = left + sum(behind for _, behind in rays.values())
        for key in order:
            ahead, behind = rays[key]
            off = left - ahead  # strictly on the left of the line through the pivot
            for one in (off, total - off - ahead - behind):  # this side, or the other one
                for on_line in (0, ahead, behind, here + ahead, here + behind, here + ahead + behind):
                    best = max(best, abs(one + on_line))
            left = off + behind
        for one in (left, total - left):
            best = max(best, abs(one), abs(one + here))
    return best
