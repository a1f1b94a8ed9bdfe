"""Check a certificate of a global optimum, with whole numbers and fractions only.

python check_certificate.py proof.json

The file states: no read-out of any neurons of a family, however many, has an objective below a bound on these data.
This program shares no code with the library that wrote the file. It uses Python's integers, fractions and, for
logarithms, decimals of 60 digits; what it trusts besides is in docs/global-optimum.md.
"""

import json
import sys
from collections.abc import Iterable
from decimal import Decimal, getcontext
from fractions import Fraction
from math import gcd
from operator import mul
from pathlib import Path
from typing import Any

Vector = list[int]
Decay = tuple[int, int, int]  # the decay is the first number divided by the second; the third is 1 if spikes reset
Tree = (
    Any  # nested tuples: a normal, what silence adds, the tree that follows, what a spike adds, the tree that follows
)

getcontext().prec = 60
TINY = Decimal(10) ** -45  # more than all roundings of 60 digits together
SHIFT = 96  # bits after the point of slopes, which are rounded towards zero


class WrongError(Exception):
    """The certificate proves less than it says."""


def expect(holds: bool, message: str) -> None:
    """Refuse a certificate."""
    if not holds:
        raise WrongError(message)


def exact(text: str) -> Fraction:
    """Return a hexadecimal float as a fraction."""
    return Fraction(float.fromhex(text))


def is_whole(value: Any) -> bool:
    """Return whether a number, or every number of a list, is an integer."""
    return all(map(is_whole, value)) if isinstance(value, list) else isinstance(value, int)


# ---- neurons ------------------------------------------------------------------------------------------------------


def leaky_sums(inputs: Any, decay: Decay, bias: bool) -> list[list[Vector]]:
    """Return leaky sums of each sequence, of ones too if there is a bias; step t is scaled by q^(t-1)."""
    p, q, _ = decay
    sums = []
    for sequence in inputs:
        own, total = [], None
        for t, values in enumerate(sequence):
            drive = [*values, 1] if bias else list(values)
            total = [p * a + q**t * x for a, x in zip(total or [0] * len(drive), drive, strict=True)]
            own.append(total)
        sums.append(own)
    return sums


def spikes(sums: list[Vector], decay: Decay, neuron: Vector) -> Vector:
    """Return the spikes of one neuron on one sequence."""
    p, q, reset = decay
    count = 0
    fired: Vector = []
    for t, total in enumerate(sums):
        if t:
            count = p * count + reset * q**t * fired[-1]
        fired.append(int(sum(map(mul, total, neuron[:-1])) - count * neuron[-1] >= 0))
    return fired


def grow(sums: list[Vector], decay: Decay, weights: list[Vector], step: int = 0, count: int = 0) -> Tree:
    """Return the tree of events of one sequence: (normal, what silence adds, then, what a spike adds, then)."""
    if not any(any(row) for row in weights[step:]):
        return None
    p, q, reset = decay
    following = [
        grow(sums, decay, weights, step + 1, p * count + reset * q ** (step + 1) * fired)
        if step + 1 < len(sums)
        else None
        for fired in (0, 1)
    ]
    nothing = [0] * len(weights[step])
    return ([*sums[step], -count], nothing, following[0], list(weights[step]), following[1])


def decided_by(normal: Vector, other: Vector, fired: int, wall: bool) -> bool:
    """Return whether an event is on the side on which another is, for all neurons.

    This holds if it is a positive multiple of the other, up to a multiple of the threshold that helps.
    """
    pivot = next((d for d, x in enumerate(other[:-1]) if x), None)
    if pivot is None or normal[pivot] * other[pivot] <= 0:
        return False
    a, b = abs(other[pivot]), abs(normal[pivot])
    rest = a * normal[-1] - b * other[-1]
    is_parallel = all(a * x == b * y for x, y in zip(normal[:-1], other[:-1], strict=True))
    return is_parallel and (rest == 0 or (wall and (rest > 0) == bool(fired)))


def reduced(
    tree: Tree | None, known: list[tuple[Vector, int]], wall: bool, nothing: Vector
) -> tuple[Vector, Tree | None]:
    """Return what a tree adds for certain and what is left of it, where the sides of some events are known."""
    total = nothing
    while tree is not None:
        fired = next((own for other, own in known if decided_by(tree[0], other, own, wall)), None)
        if fired is None:
            break
        total, tree = add(total, tree[1 + 2 * fired]), tree[2 + 2 * fired]
    if tree is None:
        return total, None
    parts = []
    for fired in (0, 1):
        added, rest = reduced(tree[2 + 2 * fired], [*known, (tree[0], fired)], wall, nothing)
        parts.append((add(tree[1 + 2 * fired], added), rest))
    for fired in (0, 1):  # an event decides nothing if one side, where the event is on the other, does the same
        here, there = parts[fired], parts[1 - fired]
        added, rest = reduced(there[1], [*known, (tree[0], fired)], wall, nothing)
        if (add(there[0], added), rest) == here:
            return add(total, there[0]), there[1]
    return total, (tree[0], *parts[0], *parts[1])


# ---- prices: every neuron is in a box -----------------------------------------------------------------------------


def product(a: Iterable[int], b: Iterable[int]) -> int:
    """Return the product of a vector with a vector."""
    return sum(map(mul, a, b))


def independent_columns(rows: list[Vector]) -> Vector:
    """Return the columns that do not depend on those before them."""
    basis: list[tuple[int, Vector]] = []
    for row in rows:
        own = list(row)
        for pivot, other in basis:
            if own[pivot]:
                scale, take = other[pivot], own[pivot]
                own = [scale * a - take * b for a, b in zip(own, other, strict=True)]
        if any(own):
            common = gcd(*own)
            basis.append((next(i for i, x in enumerate(own) if x), [x // common for x in own]))
            basis.sort()
    return [pivot for pivot, _ in basis]


def events(trees: list[Tree]) -> list[Vector]:
    """Return the normals of all events."""
    found, waiting = [], list(trees)
    while waiting:
        tree = waiting.pop()
        if tree is not None:
            found.append(tree[0])
            waiting += [tree[2], tree[4]]
    return found


def turned(tree: Tree, columns: Vector, basis: list[Vector]) -> Tree:
    """Return a tree with normals in the coordinates of boxes and their absolute values."""
    if tree is None:
        return None
    normal, rest, after_rest, fire, after_fire = tree
    own = tuple(product([normal[c] for c in columns], row) for row in basis)
    return (
        own,
        tuple(map(abs, own)),
        rest,
        turned(after_rest, columns, basis),
        fire,
        turned(after_fire, columns, basis),
        normal,
    )


def add(a: Vector, b: Vector) -> Vector:
    """Return the sum of two vectors."""
    return [x + y for x, y in zip(a, b, strict=True)]


def side(tree: Tree, centre: Vector, half: Vector, lift: bool) -> int | None:
    """Return 1 for a spike everywhere in a box, 0 for silence, None if it is open.

    With a lift only neurons without ties matter, and a box that is touched from below is silent.
    """
    middle, reach = product(tree[0], centre), product(tree[1], half)
    if middle >= reach:
        return 1
    return 0 if (middle <= -reach if lift else middle < -reach) else None


def spread(tree: Tree, centre: Vector, half: Vector, lift: bool) -> tuple[Vector, Vector]:
    """Return the range of what a tree adds in a box, for each output."""
    decided = side(tree, centre, half, lift)
    return open_spread(tree, centre, half, lift, (0, 1) if decided is None else (decided,))


def open_spread(
    tree: Tree, centre: Vector, half: Vector, lift: bool, sides: tuple[int, ...] = (0, 1)
) -> tuple[Vector, Vector]:
    """Return the same for a tree whose first event may be on some sides."""
    if len(sides) == 2 and tree[3] is None and tree[5] is None:
        return list(map(min, tree[2], tree[4])), list(map(max, tree[2], tree[4]))
    ranges = []
    for fired in sides:
        added, then = tree[2 + 2 * fired], tree[3 + 2 * fired]
        low, high = ([0] * len(added),) * 2 if then is None else spread(then, centre, half, lift)
        ranges.append((add(added, low), add(added, high)))
    lows, highs = zip(*ranges, strict=True)
    return [min(x) for x in zip(*lows, strict=True)], [max(x) for x in zip(*highs, strict=True)]


def is_small(low: Vector, high: Vector, limit: int) -> bool:
    """Return whether every entry of every sum in a range is at most of the size of the limit."""
    return all(-limit <= x and y <= limit for x, y in zip(low, high, strict=True))


def tilted_fits(kept: list[Tree], total: Vector, centre: Vector, half: Vector, lift: bool, limit: int) -> bool:
    """Return whether linear functions bound all sums in a box by the limit.

    If a spike adds w more than silence, and z is the event, between -m and M: then w [z >= 0] is at most w + c z for
    any c from 0 to w / m, and for a negative w at most c z for any c from w / M to 0.
    """
    sides: list[Any] = [
        [open_spread(tree, centre, half, lift, (fired,)) for fired in (0, 1)]
        + [product(tree[0], centre), product(tree[1], half), tree[0]]
        for tree in kept
    ]
    for k in range(len(total)):
        for sign, which in ((1, 1), (-1, 0)):
            most = [(sign * rest[which][k], sign * fire[which][k]) for rest, fire, *_ in sides]
            bound, tilt = (sign * total[k] + sum(map(max, most))) << SHIFT, [0] * len(half)
            if bound <= limit << SHIFT:
                continue
            for (silent, spike), (_, _, middle, reach, normal) in zip(most, sides, strict=True):
                more = spike - silent
                if more * middle >= 0:
                    continue
                slope = (abs(more) << SHIFT) // (reach + abs(middle))
                slope = slope if more > 0 else -slope
                bound += slope * middle
                tilt = [a + slope * b for a, b in zip(tilt, normal, strict=True)]
            if bound + product(map(abs, tilt), half) > limit << SHIFT:
                return False
    return True


def narrow(trees: list[Tree], total: Vector, centre: Vector, half: Vector, lift: bool) -> tuple[list[Tree], Vector]:
    """Return the trees that are open in a box, from their first open event, and the sum of all others."""
    kept = []
    for tree in trees:
        while tree is not None:
            fired = side(tree, centre, half, lift)
            if fired is None:
                low, high = open_spread(tree, centre, half, lift)
                if low == high:
                    total, tree = add(total, low), None
                break
            total, tree = add(total, tree[2 + 2 * fired]), tree[3 + 2 * fired]
        if tree is not None:
            kept.append(tree)
    return kept, total


def collapsed(tree: Tree, centre: Vector, half: Vector, lift: bool) -> Tree:
    """Return what is open of a tree in a box, with its own normals; the first event is open."""
    parts = []
    for fired in (0, 1):
        added, then = tree[2 + 2 * fired], tree[3 + 2 * fired]
        while then is not None and (decided := side(then, centre, half, lift)) is not None:
            added, then = add(added, then[2 + 2 * decided]), then[3 + 2 * decided]
        parts += [added, None if then is None else collapsed(then, centre, half, lift)]
    return (tree[6], *parts)


def check_price(
    trees: list[Tree], total: Vector, proof: Any, proofs: list[Any], limit: int, wall: bool, lift: bool
) -> int:
    """Check that no parameters give the trees a sum above the limit; return the number of boxes."""
    trees = [tree for tree in trees if tree is not None]
    always = total
    for tree in trees:  # all parameters zero: every event is a tie, which fires
        while tree is not None:
            always, tree = add(always, tree[3]), tree[4]
    expect(is_small(always, always, limit), "the neuron that always fires has a larger price")
    normals = events(trees)
    if not any(map(any, normals)):
        return 1
    expect(proof is not None, "a search is missing")
    columns = proof["columns"]
    expect(
        columns == sorted(set(columns))
        and set(independent_columns(normals)) <= set(columns) <= set(range(len(normals[0]))),
        "the parameters of a search are not those that matter",
    )
    basis = proof["basis"]
    expect(len(basis) == len(columns), "the coordinates of a search have another dimension")
    expect(len(independent_columns(basis)) == len(columns), "the coordinates of a search do not reach all neurons")
    has_wall = wall and columns[-1] == len(normals[0]) - 1
    if has_wall:
        expect(
            basis[-1][-1] > 0 and not any(basis[-1][:-1]) and not any(row[-1] for row in basis[:-1]),
            "the threshold is no coordinate of its own",
        )
    trees = [turned(tree, columns, basis) for tree in trees]
    size, n_axes = 1 << proof["levels"], len(columns)
    code, uses, place, n_boxes = proof["code"], iter(proof["closer"]), 0, 0
    for axis in range(n_axes):
        for sign in (1, -1):
            if has_wall and axis == n_axes - 1 and sign < 0:
                continue
            centre, half = [0] * n_axes, [size] * n_axes
            if has_wall:
                centre[-1] = half[-1] = size // 2
            centre[axis], half[axis] = sign * size, 0
            waiting = [(centre, half, trees, total)]
            while waiting:
                centre, half, kept, own = waiting.pop()
                n_boxes += 1
                expect(place < len(code), "the list of boxes ends too early: a region is missing")
                letter = code[place]
                place += 1
                if letter == "!":
                    factor, number = next(uses)
                    wide = [factor * h if h <= 1 else h for h in half]
                    near, decided = narrow(trees, total, centre, wide, lift)
                    parts = [collapsed(tree, centre, wide, lift) for tree in near]
                    expect(number < len(proofs), "a search is missing")
                    inner = None if number < 0 else proofs[number]
                    n_boxes += check_price(parts, decided, inner, proofs, limit, wall, lift)
                    continue
                kept, own = narrow(kept, own, centre, half, lift)
                if letter == ",":
                    expect(
                        tilted_fits(kept, own, centre, half, lift, limit),
                        "a box may contain a neuron of a larger price, by its linear bound",
                    )
                    continue
                if letter == ".":
                    low = high = own
                    for tree in kept:
                        least, most = open_spread(tree, centre, half, lift)
                        low, high = add(low, least), add(high, most)
                    expect(is_small(low, high, limit), "a box may contain a neuron of a larger price")
                    continue
                cut = ord(letter) - ord("a")
                expect(
                    0 <= cut < n_axes and half[cut] > 1 and half[cut] % 2 == 0, "a box is halved along no axis of it"
                )
                smaller = half.copy()
                smaller[cut] //= 2
                for step in (smaller[cut], -smaller[cut]):
                    moved = centre.copy()
                    moved[cut] += step
                    waiting.append((moved, smaller, kept, own))
    expect(place == len(code), "the list of boxes goes on after the last one")
    return n_boxes


# ---- the convex program -------------------------------------------------------------------------------------------


def decimal(value: Fraction) -> Decimal:
    """Return a fraction as a decimal."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def logistic(margin: Fraction) -> Decimal:
    """Return log(1 + exp(-margin)), rounded up."""
    value = decimal(margin)
    small = (-abs(value)).exp()
    return (1 + small).ln() + max(Decimal(0), -value) + TINY


def entropy(share: Fraction) -> Decimal:
    """Return p log p + (1 - p) log(1 - p), rounded up."""
    value = decimal(share)
    return sum((x * x.ln() for x in (value, 1 - value) if x > 0), Decimal(0)) + TINY


def read(sequence: Vector, readout: str) -> list[Fraction]:
    """Return what is read of the spikes of one sequence: one row, or one per step."""
    if readout == "all":
        return [Fraction(x) for x in sequence]
    return [Fraction(sequence[-1])] if readout == "last" else [Fraction(sum(sequence), len(sequence))]


def primal_value(file: Any, sums: list[list[Vector]], decay: Decay, targets: list[list[Fraction]]) -> Decimal:
    """Return the objective of the network in the file, rounded up."""
    coef = [[exact(x) for x in row] for row in file["coef"]]
    constant = [exact(x) for x in file["intercept"]]
    expect(file["has_intercept"] or not any(constant), "there is an intercept where there must be none")
    scores = []
    for own in sums:
        rows = [read(spikes(own, decay, neuron), file["readout"]) for neuron in file["neurons"]]
        for t in range(len(rows[0]) if rows else (len(own) if file["readout"] == "all" else 1)):
            score = list(constant)
            for row, weights in zip(rows, coef, strict=True):
                if row[t]:
                    score = [a + row[t] * w for a, w in zip(score, weights, strict=True)]
            scores.append(score)
    pairs = [(f, y) for row, target in zip(scores, targets, strict=True) for f, y in zip(row, target, strict=True)]
    if file["loss"] == "squared":
        loss = decimal(sum(((f - y) ** 2 for f, y in pairs), Fraction(0)) / 2 / len(targets)) + TINY
    else:
        loss = sum((logistic(f * y) for f, y in pairs), Decimal(0)) / len(targets) + TINY
    norm = decimal(sum((abs(w) for row in coef for w in row), Fraction(0)))
    return loss + decimal(exact(file["strength"])) * norm + TINY


def dual_value(file: Any, dual: list[Vector], targets: list[list[Fraction]], limit: int) -> Decimal:
    """Return the value of the dual point, shrunk until the constraint holds, rounded down."""
    unit, strength = Fraction(2) ** file["dual_exponent"], exact(file["strength"])
    largest = limit * unit
    shrink = min(Fraction(1), strength / largest) if largest > 0 else Fraction(1)
    if file["has_intercept"]:
        expect(all(sum(column) == 0 for column in zip(*dual, strict=True)), "the dual point is not balanced")
    total = Decimal(0)
    for row, target in zip(dual, targets, strict=True):
        for whole, y in zip(row, target, strict=True):
            u = -len(targets) * shrink * unit * whole
            if file["loss"] == "squared":
                total -= decimal(u * u / 2 + u * y)
            else:
                expect(0 <= -u * y <= 1, "the dual point is outside the domain of the loss")
                total -= entropy(-u * y)
    return total / len(targets) - TINY


def check(file: Any) -> tuple[Decimal, Decimal, int]:
    """Check a certificate; return the objective, the lower bound and the number of boxes."""
    expect(file["format"] == "cvxsnn complete certificate 1", "another format")
    expect(file["loss"] in ("squared", "logistic") and file["penalty"] == "l1", "another loss or penalty")
    names = ("decay", "inputs", "neurons", "dual", "dual_exponent", "price_bound")
    expect(all(is_whole(file[name]) for name in names), "a number is not whole")
    inner = ("columns", "basis", "levels", "closer")
    expect(all(is_whole(own[name]) for own in file["proofs"] for name in inner), "a number is not whole")
    decay: Decay = (*file["decay"], int(file.get("resets", True)))
    bias, wall = file["bias"], not file["negative_threshold"]
    expect(0 <= decay[0] <= decay[1] > 0, "a decay is between 0 and 1")
    sums = leaky_sums(file["inputs"], decay, bias)
    targets = [[exact(x) for x in row] for row in file["targets"]]
    expect(file["loss"] == "squared" or all(abs(y) == 1 for row in targets for y in row), "labels are -1 and 1")
    expect(not wall or all(neuron[-1] >= 0 for neuron in file["neurons"]), "a threshold is negative")
    primal = primal_value(file, sums, decay, targets)
    n_steps, n_outputs = len(file["inputs"][0]), len(targets[0])
    dual, limit = file["dual"], file["price_bound"]
    weights = []
    for number in range(len(sums)):
        if file["readout"] == "all":
            weights.append(dual[number * n_steps : (number + 1) * n_steps])
        elif file["readout"] == "last":
            weights.append([[0] * n_outputs] * (n_steps - 1) + [dual[number]])
        else:
            weights.append([dual[number]] * n_steps)
    alone = sums
    if not decay[2]:  # without resets, steps do not depend on each other
        alone, weights = [[step] for own in sums for step in own], [[row] for own in weights for row in own]
    # A mean is a sum over the steps divided by their number: here the limit is multiplied instead.
    scale = n_steps if file["readout"] == "mean" else 1
    merged: dict[str, tuple[list[Vector], list[Vector]]] = {}
    for own, row in zip(alone, weights, strict=True):
        key = json.dumps(own)
        known = merged.get(key, (own, [[0] * n_outputs] * len(own)))
        merged[key] = (own, [add(a, b) for a, b in zip(known[1], row, strict=True)])
    always, trees = [0] * n_outputs, []
    for own, row in merged.values():
        added, tree = reduced(grow(own, decay, row), [], wall, [0] * n_outputs)
        always = add(always, added)
        trees.append(tree)
    width = len(sums[0][0])
    lift = bias or all(sum(s) > 0 for own in sums for s in own)
    lift = lift or any(all(s[d] > 0 for own in sums for s in own) for d in range(width))
    proofs = file["proofs"]
    n_boxes = check_price(trees, always, proofs[-1] if proofs else None, proofs, limit * scale, wall, lift)
    bound = dual_value(file, dual, targets, limit)
    expect(decimal(exact(file["primal"])) >= primal - TINY * 10, "the objective is larger than stated")
    expect(decimal(exact(file["lower_bound"])) <= bound + TINY * 10, "the lower bound is smaller than stated")
    return primal, bound, n_boxes


def main() -> int:
    """Check one file."""
    sys.setrecursionlimit(10_000)
    file = json.loads(Path(sys.argv[1]).read_text())
    try:
        primal, bound, n_boxes = check(file)
    except WrongError as error:
        print(f"NOT PROVEN: {error}")
        return 1
    print(f"checked: {n_boxes} boxes cover all neurons of the family")
    print(f"objective of the network:  {primal:.12g}")
    print(f"no network is below:       {bound:.12g}")
    print(f"relative gap:              {(primal - bound) / abs(primal) if primal else Decimal(0):.3g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
