"""Check a proof over all neurons, with integers and fractions only.

    python check_certificate.py proof.json [--limit N]

The file states that no network of a family of neurons, however many it reads, has a training objective below a bound.
This program imports nothing of the library that wrote the file, and believes no field of it. The page
docs/proof-files.md defines the file, proves in ten steps that an accepted one is right, and says which functions of
this program the library uses.

Status: 0 if the file proves its statement, 1 if not, 2 if a limit was met before that could be told.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from fractions import Fraction
from itertools import pairwise
from math import gcd
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple

Vector = tuple[int, ...]

FORMAT = "cvxsnn complete certificate 1"


class Limits(NamedTuple):
    """How much is read and computed."""

    n_bytes: int = 1 << 28
    """Of a file."""
    bits: int = 2048
    """Of an integer."""
    exponent: int = 2000
    """Of the unit of the dual point."""
    levels: int = 64
    """Halvings of a side of the cube."""
    events: int = 1 << 21
    """In all trees."""
    scale_bits: int = 1 << 16
    """Of the scale q^t of the last step."""
    words: int = 1 << 25
    """Of 64 bits, in leaky sums or in trees."""
    operations: int = 10**10
    """On words: about half an hour."""
    logarithm: int = 1000
    """Operations that a logarithm of 60 digits takes, about; a sum of fractions takes a tenth of them."""
    shift: int = 96
    """Bits after the point of the slopes of linear bounds."""
    sure: int = 200
    """Beyond this margin, 60 digits do not show log(1 + exp(-margin))."""
    digits: int = 60
    """Of logarithms and exponentials."""
    decimal_exponent: int = 99_999
    """Of decimals."""


LIMITS = Limits()
DIGITS = Context(
    LIMITS.digits, ROUND_CEILING, -LIMITS.decimal_exponent, LIMITS.decimal_exponent,
    traps=[InvalidOperation, DivisionByZero, Overflow],
)  # fmt: skip


class WrongError(Exception):
    """The file does not prove its statement."""


class LimitError(Exception):
    """The file is too large to be checked."""


def expect(holds: bool, message: str) -> None:
    """Refuse a file."""
    if not holds:
        raise WrongError(message)


# ---- the file --------------------------------------------------------------------------------------------------------


def counted(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


class Search(NamedTuple):
    """A search of boxes, as listed in a file."""

    columns: Vector
    basis: tuple[Vector, ...]
    levels: int
    code: str
    closer: tuple[Vector, ...]


class ProofFile(NamedTuple):
    """The content of a file; every field has its type, range and size."""

    decay: Vector
    bias: bool
    negative_threshold: bool
    resets: bool
    readout: str
    loss: str
    strength: Fraction
    has_intercept: bool
    inputs: tuple[tuple[Vector, ...], ...]
    targets: tuple[tuple[Fraction, ...], ...]
    neurons: tuple[Vector, ...]
    coef: tuple[tuple[Fraction, ...], ...]
    intercept: tuple[Fraction, ...]
    primal: Fraction
    lower_bound: Fraction
    dual: tuple[Vector, ...]
    dual_exponent: int
    price_bound: int
    searches: tuple[Search, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of sequences, steps and features."""
        return len(self.inputs), len(self.inputs[0]), len(self.inputs[0][0])

    def __str__(self) -> str:
        """Return the statement in words."""
        p, q = self.decay
        n_samples, n_steps, n_features = self.shape
        threshold = "of either sign" if self.negative_threshold else "of at least zero"
        return (
            f"neurons: decay {p}/{q}, {'with' if self.bias else 'without'} bias, "
            f"{f'reset by thresholds {threshold}' if self.resets else 'not reset'}, read out as {self.readout!r}\n"
            f"objective: {self.loss} loss, L1 penalty of strength {float(self.strength)!r}, "
            f"{'with' if self.has_intercept else 'without'} intercept\n"
            f"data: {counted(n_samples, 'sequence')}, {counted(n_steps, 'step')}, {counted(n_features, 'feature')}, "
            f"{counted(len(self.targets[0]), 'output')}"
        )


HINTS = {"generated", "violators", "pending", "is_finished"}
OPTIONAL = HINTS | {"resets"}
NAMES = {*ProofFile._fields, "format", "penalty", "proofs"} - {"searches", "resets"}


def parse(text: str) -> Any:
    """Return the content of a JSON text in which no name is given twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        expect(len(set(names)) == len(names), "a name is given twice")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise WrongError("the file is not JSON with integers of at most 4,300 digits") from None


def read_integer(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Return an integer within a range."""
    expect(
        type(value) is int and value.bit_length() <= LIMITS.bits,
        f"{name} is not an integer of at most {LIMITS.bits} bits",
    )
    expect((least is None or least <= value) and (most is None or value <= most), f"{name} is out of range")
    return int(value)


def read_float(name: str, value: Any) -> Fraction:
    """Return a finite hexadecimal float as a fraction."""
    try:
        number = float.fromhex(value)
        expect(number.hex() == value, f"{name} is not a hexadecimal float")
        return Fraction(number)
    except (TypeError, ValueError, OverflowError):
        raise WrongError(f"{name} is not a finite hexadecimal float") from None


def read_list(name: str, value: Any, size: int | None, entry: Callable[[str, Any], Any]) -> tuple[Any, ...]:
    """Return a list of a given size, each entry read by a function."""
    expect(type(value) is list and (size is None or len(value) == size), f"{name} is not a list of the right size")
    return tuple(entry(name, one) for one in value)


def read_matrix(name: str, value: Any, rows: int | None, columns: int, entry: Callable[[str, Any], Any]) -> Any:
    """Return a list of rows of equal length."""
    return read_list(name, value, rows, lambda _, row: read_list(name, row, columns, entry))


def length(name: str, value: Any) -> int:
    """Return the length of a list that must not be empty."""
    expect(type(value) is list and len(value) > 0, f"{name} is not a list, or empty")
    return len(value)


def choice(name: str, value: Any, values: Iterable[Any]) -> Any:
    """Return one of some values, of the same type."""
    expect(any(type(value) is type(one) and value == one for one in values), f"{name} is not known")
    return value


def read_certificate(file: Any) -> ProofFile:
    """Return the content of a file, or refuse it."""
    expect(type(file) is dict, "the file is not one JSON object")
    expect(NAMES <= set(file) <= NAMES | OPTIONAL, "names are missing or unknown")
    choice("format", file["format"], [FORMAT])
    choice("penalty", file["penalty"], ["l1"])
    decay = read_list("decay", file["decay"], 2, read_integer)
    expect(0 <= decay[0] <= decay[1] and decay[1] >= 1, "the decay is not between 0 and 1")
    bias, negative, intercept, resets = (
        choice(name, file.get(name, True), [False, True])
        for name in ("bias", "negative_threshold", "has_intercept", "resets")
    )
    readout = choice("readout", file["readout"], ["last", "mean", "all"])
    loss = choice("loss", file["loss"], ["squared", "logistic"])
    n_samples, n_steps = length("inputs", file["inputs"]), length("inputs", file["inputs"][0])
    n_features = length("inputs", file["inputs"][0][0])
    n_rows = n_samples * n_steps if readout == "all" else n_samples
    length("targets", file["targets"])
    n_outputs = length("targets", file["targets"][0])
    width = n_features + bias + 1
    neurons = read_matrix("neurons", file["neurons"], None, width, read_integer)
    read = ProofFile(
        decay=decay,
        bias=bias,
        negative_threshold=negative,
        resets=resets,
        readout=readout,
        loss=loss,
        strength=read_float("strength", file["strength"]),
        has_intercept=intercept,
        inputs=read_list(
            "inputs", file["inputs"], None, lambda name, one: read_matrix(name, one, n_steps, n_features, read_integer)
        ),
        targets=read_matrix("targets", file["targets"], n_rows, n_outputs, read_float),
        neurons=neurons,
        coef=read_matrix("coef", file["coef"], len(neurons), n_outputs, read_float),
        intercept=read_list("intercept", file["intercept"], n_outputs, read_float),
        primal=read_float("primal", file["primal"]),
        lower_bound=read_float("lower_bound", file["lower_bound"]),
        dual=read_matrix("dual", file["dual"], n_rows, n_outputs, read_integer),
        dual_exponent=read_integer("dual_exponent", file["dual_exponent"], -LIMITS.exponent, LIMITS.exponent),
        price_bound=read_integer("price_bound", file["price_bound"], 0),
        searches=tuple(
            read_search(number, one, width)
            for number, one in enumerate(read_list("proofs", file["proofs"], None, lambda _, one: one))
        ),
    )
    expect(read.strength > 0, "the strength is not positive")
    expect(loss == "squared" or all(abs(y) == 1 for row in read.targets for y in row), "labels are not -1 and 1")
    expect(negative or all(neuron[-1] >= 0 for neuron in read.neurons), "a threshold is negative")
    expect(intercept or not any(read.intercept), "there is an intercept where there must be none")
    expect(not intercept or not any(map(sum, zip(*read.dual, strict=True))), "the dual point is not balanced")
    return read


def read_search(number: int, search: Any, width: int) -> Search:
    """Return one search of a file, or refuse it."""
    expect(type(search) is dict and set(search) == set(Search._fields), "a search has other fields")
    n_columns = length("columns", search["columns"])
    columns = read_list("columns", search["columns"], n_columns, lambda name, x: read_integer(name, x, 0, width - 1))
    expect(all(a < b for a, b in pairwise(columns)), "columns are not increasing")
    closer = read_matrix("closer", search["closer"], None, 2, read_integer)
    expect(all(factor >= 1 and -1 <= inner < number for factor, inner in closer), "closer is out of range")
    expect(type(search["code"]) is str, "code is not a text")
    return Search(
        columns,
        read_matrix("basis", search["basis"], n_columns, n_columns, read_integer),
        read_integer("levels", search["levels"], 1, LIMITS.levels),
        search["code"],
        closer,
    )


# ---- neurons ---------------------------------------------------------------------------------------------------------


class Event(NamedTuple):
    """An event of a sequence; first what is about silence, then what is about a spike."""

    normal: Vector
    adds: tuple[Vector, Vector]
    then: "tuple[Event | None, Event | None]"
    slopes: Vector = ()  # the normal in the coordinates of a search
    sizes: Vector = ()  # the absolute values of these


class Work:
    """Counts what is done, and ends it at a limit."""

    def __init__(self, limit: int) -> None:
        self.left = limit
        self.n_boxes = 0

    def spend(self, n_operations: int) -> None:
        """Count operations on numbers."""
        self.left -= n_operations
        if self.left < 0:
            raise LimitError("checking takes more operations than the limit: allow more with --limit")


def words(*values: int) -> int:
    """Return how many words of 64 bits the largest of some integers takes."""
    return 1 + max(value.bit_length() for value in values) // 64


def dot(a: Vector, b: Vector) -> int:
    """Return the product of two vectors of the same length."""
    if len(a) != len(b):
        raise AssertionError("vectors of unequal lengths")
    return sum(map(mul, a, b))


def add(a: Vector, b: Vector) -> Vector:
    """Return the sum of two vectors of the same length."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def leaky_sums(sequence: tuple[Vector, ...], decay: Vector, bias: bool) -> tuple[Vector, ...]:
    """Return the leaky sums of the inputs, and of ones if there is a bias; step t from 0 is scaled by q^t (step 1)."""
    p, q = decay
    sums: list[Vector] = []
    for t, values in enumerate(sequence):
        drive = tuple(q**t * x for x in (*values, 1)[: len(values) + bias])
        sums.append(add(tuple(p * x for x in sums[-1]), drive) if t else drive)
    return tuple(sums)


def spikes(sums: tuple[Vector, ...], decay: Vector, resets: bool, neuron: Vector) -> Vector:
    """Return the spikes of one neuron on one sequence (step 1)."""
    p, q = decay
    count = 0
    fired: list[int] = []
    for t, total in enumerate(sums):
        if t:
            count = p * count + resets * q**t * fired[-1]
        fired.append(int(dot(total, neuron[:-1]) - count * neuron[-1] >= 0))
    return tuple(fired)


def grow(
    sums: tuple[Vector, ...], weights: tuple[Vector, ...], decay: Vector, step: int = 0, count: int = 0
) -> Event | None:
    """Return the tree of events of a sequence, from a step to the last one with a weight (step 3)."""
    if step == len(weights):
        return None
    p, q = decay
    counts = (p * count, p * count + q ** (step + 1))
    then = [grow(sums, weights, decay, step + 1, own) for own in counts]
    return Event((*sums[step], -count), ((0,) * len(weights[step]), weights[step]), (then[0], then[1]))


def common_multiple(vector: Vector, other: Vector) -> tuple[int, int] | None:
    """Return a, b > 0 such that a times a vector is b times another one, which is not zero; None if there are none."""
    pivot = next((d for d, x in enumerate(other) if x), None)
    if pivot is None or vector[pivot] * other[pivot] <= 0:
        return None
    a, b = abs(other[pivot]), abs(vector[pivot])
    return (a, b) if all(a * x == b * y for x, y in zip(vector, other, strict=True)) else None


def is_decided(normal: Vector, known: Vector, fired: int, has_wall: bool) -> bool:
    """Return whether an event is on the side on which a known event is, for all neurons (step 4)."""
    found = common_multiple(normal[:-1], known[:-1])
    if found is None:
        return False
    rest = found[0] * normal[-1] - found[1] * known[-1]
    return rest == 0 or (has_wall and (rest > 0) == bool(fired))


def simplify(
    tree: Event | None, known: tuple[tuple[Vector, int], ...], nothing: Vector, has_wall: bool, work: Work
) -> tuple[Vector, Event | None]:
    """Return what a tree adds for certain and what is left of it, where the sides of some events are known (step 4)."""
    total = nothing
    while tree is not None:
        normal = tree.normal
        work.spend(len(normal) * (1 + len(known)) + len(nothing))
        side = next((fired for other, fired in known if is_decided(normal, other, fired, has_wall)), None)
        if side is None:
            break
        total, tree = add(total, tree.adds[side]), tree.then[side]
    if tree is None:
        return total, None
    sides = [(*known, (tree.normal, fired)) for fired in (0, 1)]
    parts = []
    for fired in (0, 1):
        added, rest = simplify(tree.then[fired], sides[fired], nothing, has_wall, work)
        parts.append((add(tree.adds[fired], added), rest))
    for fired in (0, 1):
        added, rest = simplify(parts[1 - fired][1], sides[fired], nothing, has_wall, work)
        if (add(parts[1 - fired][0], added), rest) == parts[fired]:  # the other part is right on both sides
            return add(total, parts[1 - fired][0]), parts[1 - fired][1]
    return total, Event(tree.normal, (parts[0][0], parts[1][0]), (parts[0][1], parts[1][1]))


def has_parallel_steps(sums: tuple[Vector, ...]) -> bool:
    """Return whether an event of a sequence may decide another; if not, there is nothing to simplify."""
    return any(common_multiple(a, b) is not None for i, a in enumerate(sums) for b in sums[:i])


def trees_of(file: ProofFile, sums: list[tuple[Vector, ...]], work: Work) -> tuple[Vector, list[Event]]:
    """Return what is added for certain and the trees of all sequences (step 3)."""
    n_samples, n_steps, _ = file.shape
    nothing = (0,) * len(file.targets[0])
    weights: list[tuple[Vector, ...]] = []
    for number in range(n_samples):
        if file.readout == "all":
            weights.append(file.dual[number * n_steps : (number + 1) * n_steps])
        elif file.readout == "last":
            weights.append((nothing,) * (n_steps - 1) + (file.dual[number],))
        else:
            weights.append((file.dual[number],) * n_steps)
    if not file.resets:  # steps do not depend on each other
        sums = [(step,) for own in sums for step in own]
        weights = [(step,) for own in weights for step in own]
    merged: dict[tuple[Vector, ...], tuple[Vector, ...]] = {}
    for own, rows in zip(sums, weights, strict=True):
        work.spend(len(rows) * len(nothing))
        merged[own] = tuple(map(add, merged[own], rows)) if own in merged else rows
    lengths = [max((t for t, row in enumerate(rows, 1) if any(row)), default=0) for rows in merged.values()]
    n_events = sum((1 << min(n, LIMITS.events.bit_length())) - 1 for n in lengths)
    size = len(sums[0][0]) * words(*(x for own in merged for x in own[-1])) + len(nothing)
    if n_events > LIMITS.events or n_events * size > LIMITS.words:
        raise LimitError("the sequences have too many events")
    work.spend(n_events * size)
    total, trees = nothing, []
    for (own, rows), n_steps in zip(merged.items(), lengths, strict=True):
        tree = grow(own, rows[:n_steps], file.decay)
        work.spend(n_steps**2 * size)
        if has_parallel_steps(own[:n_steps]):
            added, tree = simplify(tree, (), nothing, not file.negative_threshold, work)
            total = add(total, added)
        if tree is not None:
            trees.append(tree)
    return total, trees


def has_lift(sums: list[tuple[Vector, ...]], bias: bool) -> bool:
    """Return whether a direction raises all events, so that only generic neurons matter (step 5)."""
    steps = [step for own in sums for step in own]
    return (
        bias
        or all(sum(step) > 0 for step in steps)
        or any(all(step[d] > 0 for step in steps) for d in range(len(steps[0])))
    )


# ---- prices: every neuron is in a box --------------------------------------------------------------------------------


class Box(NamedTuple):
    """A box of a search: centre and half sides."""

    centre: Vector
    half: Vector

    def halves(self, axis: int) -> "tuple[Box, Box]":
        """Return the lower and the upper half along an axis (step 8)."""
        expect(0 <= axis < len(self.half), "a box is halved along no axis of it")
        side = self.half[axis]
        expect(side >= 2 and side % 2 == 0, "a box is halved that cannot be halved")
        half = (*self.half[:axis], side // 2, *self.half[axis + 1 :])
        lower, upper = (
            Box((*self.centre[:axis], self.centre[axis] + step, *self.centre[axis + 1 :]), half)
            for step in (-side // 2, side // 2)
        )
        return lower, upper

    def enlarged(self, factor: int) -> "Box":
        """Return a box that contains this one (step 9)."""
        return Box(self.centre, tuple(factor if side == 1 else side for side in self.half))


def all_events(trees: Iterable[Event | None]) -> Iterator[Event]:
    """Yield all events of some trees."""
    waiting = list(trees)
    while waiting:
        event = waiting.pop()
        if event is not None:
            yield event
            waiting += event.then


def pivots(rows: Iterable[Vector], work: Work) -> set[int]:
    """Return the columns that are no linear combinations of columns before them (step 6)."""
    echelon: list[tuple[int, Vector]] = []
    for row in rows:
        for pivot, other in echelon:
            if row[pivot]:
                row = tuple(other[pivot] * a - row[pivot] * b for a, b in zip(row, other, strict=True))
                work.spend(len(row) * words(*row) ** 2)
                common = gcd(*row) or 1
                row = tuple(x // common for x in row)
        if any(row):
            echelon.append((next(i for i, x in enumerate(row) if x), row))
            echelon.sort()
            if len(echelon) == len(row):
                break
    return {pivot for pivot, _ in echelon}


def coordinates(search: Search, normals: set[Vector], has_wall: bool, work: Work) -> bool:
    """Refuse coordinates that do not reach all neurons; return whether the last one must not be negative (step 6)."""
    columns, basis = search.columns, search.basis
    expect(pivots(normals, work) <= set(columns), "the parameters of a search are not all that matter")
    expect(len(pivots(basis, work)) == len(columns), "the coordinates of a search do not reach all neurons")
    is_last = has_wall and columns[-1] == len(next(iter(normals))) - 1
    if is_last:
        expect(basis[-1][-1] > 0, "the threshold has no positive coordinate")
        expect(not any(basis[-1][:-1]), "the coordinate of the threshold changes other parameters")
        expect(not any(row[-1] for row in basis[:-1]), "the threshold is no coordinate of its own")
    return is_last


def turned(event: Event | None, search: Search, work: Work) -> Event | None:
    """Return a tree with its normals in the coordinates of a search (step 6)."""
    if event is None:
        return None
    normal = tuple(event.normal[column] for column in search.columns)
    work.spend(len(normal) ** 2)
    slopes = tuple(dot(normal, row) for row in search.basis)
    then = (turned(event.then[0], search, work), turned(event.then[1], search, work))
    return Event(event.normal, event.adds, then, slopes, tuple(map(abs, slopes)))


def faces(n_axes: int, levels: int, is_last_positive: bool) -> Iterator[Box]:
    """Yield the faces of the cube (step 7)."""
    size = 1 << levels
    for axis in range(n_axes):
        for sign in (1, -1):
            centre, half = [0] * n_axes, [size] * n_axes
            if is_last_positive:
                centre[-1] = half[-1] = size // 2
            if not (is_last_positive and axis == n_axes - 1 and sign < 0):
                centre[axis], half[axis] = sign * size, 0
                yield Box(tuple(centre), tuple(half))


class Prices:
    """Checks that no neuron has sums beyond a limit."""

    def __init__(self, searches: tuple[Search, ...], limit: int, has_wall: bool, is_generic: bool, work: Work) -> None:
        self.searches = searches
        self.limit = limit
        self.has_wall = has_wall
        self.is_generic = is_generic
        self.work = work
        self.known: set[tuple[int, Vector, tuple[Event, ...]]] = set()
        self.room = LIMITS.words  # for what is known

    def side(self, event: Event, box: Box) -> int | None:
        """Return 1 for a spike everywhere in a box, 0 for silence, None if the event is open (step 9)."""
        self.work.spend(len(box.half) + len(event.adds[0]))
        middle, reach = dot(event.slopes, box.centre), dot(event.sizes, box.half)
        if middle >= reach:
            return 1
        return 0 if middle < -reach or (self.is_generic and middle == -reach) else None

    def ranges(self, event: Event, box: Box, sides: tuple[int, ...] = (0, 1)) -> tuple[Vector, Vector]:
        """Return the least and the largest sums of a tree in a box, if its first event is on given sides (step 9)."""
        lows, highs = [], []
        for fired in sides:
            low = high = event.adds[fired]
            then = event.then[fired]
            if then is not None:
                side = self.side(then, box)
                least, most = self.ranges(then, box, (0, 1) if side is None else (side,))
                low, high = add(low, least), add(high, most)
            lows.append(low)
            highs.append(high)
        return tuple(map(min, zip(*lows, strict=True))), tuple(map(max, zip(*highs, strict=True)))

    def follow(self, added: Vector, event: Event | None, box: Box) -> tuple[Vector, Event | None]:
        """Return what a tree adds up to its first open event, and the tree from there (step 9)."""
        while event is not None and (side := self.side(event, box)) is not None:
            added, event = add(added, event.adds[side]), event.then[side]
        return added, event

    def narrow(self, total: Vector, trees: Iterable[Event], box: Box) -> tuple[Vector, list[Event]]:
        """Return what is added for certain in a box, and the trees that are open there, from their first open event."""
        kept = []
        for tree in trees:
            total, event = self.follow(total, tree, box)
            if event is not None:
                low, high = self.ranges(event, box)
                if low == high:
                    total = add(total, low)
                else:
                    kept.append(event)
        return total, kept

    def open_parts(self, event: Event, box: Box) -> Event:
        """Return what is open in a box of a tree whose first event is (step 9)."""
        (silent, rest), (spike, after) = (self.follow(event.adds[i], event.then[i], box) for i in (0, 1))
        then = tuple(None if own is None else self.open_parts(own, box) for own in (rest, after))
        return Event(event.normal, (silent, spike), (then[0], then[1]))

    def fits(self, total: Vector, trees: list[Event], box: Box) -> bool:
        """Return whether the sums over all trees of their least and largest values are within the limit (step 9)."""
        low = high = total
        for tree in trees:
            least, most = self.ranges(tree, box)
            low, high = add(low, least), add(high, most)
        return -self.limit <= min(low) and max(high) <= self.limit

    def fits_tilted(self, total: Vector, trees: list[Event], box: Box) -> bool:
        """Return whether linear functions bound all sums by the limit (step 9)."""
        self.work.spend(len(trees) * len(total) * len(box.half))
        ranges = [[self.ranges(tree, box, (fired,)) for fired in (0, 1)] for tree in trees]
        for k in range(len(total)):
            for sign, end in ((1, 1), (-1, 0)):  # the largest sums, and the largest negative ones
                constant, tilt = sign * total[k], (0,) * len(box.half)
                gain = 0  # what the linear functions change at the centre, times 2^shift
                for tree, (rest, fire) in zip(trees, ranges, strict=True):
                    silent, spike = sign * rest[end][k], sign * fire[end][k]
                    constant += max(silent, spike)
                    more, middle = spike - silent, dot(tree.slopes, box.centre)
                    if more * middle < 0:
                        slope = (abs(more) << LIMITS.shift) // (dot(tree.sizes, box.half) + abs(middle))
                        slope = slope if more > 0 else -slope
                        gain += slope * middle
                        tilt = add(tilt, tuple(slope * x for x in tree.slopes))
                gain += dot(tuple(map(abs, tilt)), box.half)
                if constant + min(0, -(-gain >> LIMITS.shift)) > self.limit:
                    return False
        return True

    def check(
        self, total: Vector, trees: list[Event], number: int, report: Callable[[float], None] | None = None
    ) -> None:
        """Refuse trees with which a neuron may have sums beyond the limit (steps 6 to 9)."""
        always = total
        for tree in trees:
            event: Event | None = tree
            while event is not None:
                always, event = add(always, event.adds[1]), event.then[1]
        expect(max(map(abs, always)) <= self.limit, "the neuron that always fires has a larger price")
        normals = {event.normal for event in all_events(trees)}
        if not any(map(any, normals)):
            return
        expect(number >= 0, "a search is missing")
        search = self.searches[number]
        is_last_positive = coordinates(search, normals, self.has_wall, self.work)
        whole = [tree for tree in (turned(tree, search, self.work) for tree in trees) if tree is not None]
        letters, closer = iter(enumerate(search.code, 1)), iter(search.closer)
        for face in faces(len(search.columns), search.levels, is_last_positive):
            waiting = [(face, total, whole)]
            while waiting:
                box, own, kept = waiting.pop()
                self.work.n_boxes += 1
                place, letter = next(letters, (0, ""))
                expect(letter != "", "the list of boxes ends too early: a region is missing")
                if report is not None:
                    report(place / len(search.code))
                if letter == "!":
                    use = next(closer, None)
                    if use is None:
                        raise WrongError("a closer look is missing")
                    factor, inner = use
                    is_smaller = inner < 0 or len(self.searches[inner].columns) < len(search.columns)
                    expect(is_smaller, "a closer look has no fewer parameters")
                    self.look_closer(total, whole, box.enlarged(factor), inner)
                    continue
                own, kept = self.narrow(own, kept, box)
                if letter == ".":
                    expect(self.fits(own, kept, box), "a box may contain a neuron of a larger price")
                elif letter == ",":
                    expect(
                        self.fits_tilted(own, kept, box), "a box may contain a neuron of a larger price (linear bound)"
                    )
                else:
                    lower, upper = box.halves(ord(letter) - ord("a"))
                    waiting += [(upper, own, kept), (lower, own, kept)]
        expect(next(letters, None) is None, "the list of boxes goes on after the last one")
        expect(next(closer, None) is None, "there are more closer looks than boxes for them")

    def look_closer(self, total: Vector, trees: list[Event], box: Box, number: int) -> None:
        """Check what is open in a box for all parameters, once."""
        total, near = self.narrow(total, trees, box)
        parts = [self.open_parts(tree, box) for tree in near]
        key = (number, total, tuple(parts))
        if key not in self.known:
            self.check(total, parts, number)
            size = sum(len(event.normal) + 2 * len(total) for event in all_events(parts))
            if size <= self.room:
                self.room -= size
                self.known.add(key)


# ---- the convex program ----------------------------------------------------------------------------------------------


def above(value: Fraction) -> Decimal:
    """Return a fraction as a decimal, rounded up."""
    return DIGITS.divide(Decimal(value.numerator), Decimal(value.denominator))


def exp_above(value: Fraction) -> Fraction:
    """Return a number above the exponential (step 10)."""
    return Fraction(DIGITS.next_plus(DIGITS.exp(above(value))))


def log_above(value: Fraction) -> Fraction:
    """Return a number that is not below the logarithm (step 10)."""
    rounded = above(value)
    return Fraction(0) if rounded == 1 else Fraction(DIGITS.next_plus(DIGITS.ln(rounded)))


def logistic(margin: Fraction) -> Fraction:
    """Return log(1 + exp(-margin)), rounded up (step 10)."""
    return max(Fraction(0), -margin) + log_above(1 + exp_above(-min(abs(margin), Fraction(LIMITS.sure))))


def entropy(share: Fraction) -> Fraction:
    """Return p log p + (1 - p) log(1 - p), rounded up (step 10)."""
    return sum((p * log_above(p) for p in (share, 1 - share) if p > 0), Fraction(0))


def column(fired: Vector, readout: str) -> list[Fraction]:
    """Return the rows of a neuron's column that belong to one sequence."""
    if readout == "all":
        return [Fraction(x) for x in fired]
    return [Fraction(fired[-1])] if readout == "last" else [Fraction(sum(fired), len(fired))]


def primal_value(file: ProofFile, sums: list[tuple[Vector, ...]]) -> Fraction:
    """Return the objective of the network in the file, rounded up (step 1)."""
    loss = Fraction(0)
    targets = iter(file.targets)
    for own in sums:
        scores = [list(file.intercept) for _ in range(len(own) if file.readout == "all" else 1)]
        for neuron, weights in zip(file.neurons, file.coef, strict=True):
            fired = spikes(own, file.decay, file.resets, neuron)
            for row, value in enumerate(column(fired, file.readout)):
                if value:
                    scores[row] = [f + value * w for f, w in zip(scores[row], weights, strict=True)]
        for score in scores:
            for f, y in zip(score, next(targets), strict=True):
                loss += (f - y) ** 2 / 2 if file.loss == "squared" else logistic(f * y)
    return loss / len(file.targets) + file.strength * sum((abs(w) for row in file.coef for w in row), Fraction(0))


def dual_value(file: ProofFile) -> Fraction:
    """Return the value of the dual point, shrunk until its prices are at most the strength, rounded down (step 2)."""
    unit, n_rows = Fraction(2) ** file.dual_exponent, len(file.targets)
    largest = file.price_bound * unit
    shrink = min(Fraction(1), file.strength / largest) if largest else Fraction(1)
    total = Fraction(0)
    for row, target in zip(file.dual, file.targets, strict=True):
        for whole, y in zip(row, target, strict=True):
            u = -n_rows * shrink * unit * whole
            if file.loss == "squared":
                total -= u * u / 2 + u * y
            else:
                expect(0 <= -u * y <= 1, "the dual point is outside the domain of the loss")
                total -= entropy(-u * y)
    return total / n_rows


class Checked(NamedTuple):
    """What a file proves."""

    primal: Fraction
    bound: Fraction
    n_boxes: int


def check(content: Any, limit: int = LIMITS.operations) -> Checked:
    """Check the content of a file; return the objective, the lower bound and the number of boxes."""
    return check_certificate(read_certificate(content), limit)


def entries(inputs: tuple[tuple[Vector, ...], ...]) -> Iterator[int]:
    """Yield all entries of the inputs."""
    return (x for sequence in inputs for step in sequence for x in step)


def check_certificate(file: ProofFile, limit: int, report: Callable[[float], None] | None = None) -> Checked:
    """Check what was read from a file."""
    work = Work(limit)
    n_samples, n_steps, n_features = file.shape
    if file.decay[1].bit_length() * n_steps > LIMITS.scale_bits:
        raise LimitError("the decay has too many bits for so many steps")
    size = n_samples * n_steps * (n_features + 1) * words(file.decay[1] ** n_steps, *entries(file.inputs))
    if size > LIMITS.words:
        raise LimitError("the inputs have too many bits")
    n_values = len(file.targets) * len(file.targets[0])
    work.spend(size + len(file.neurons) * (size + n_values * LIMITS.logarithm // 10) + 2 * n_values * LIMITS.logarithm)
    sums = [leaky_sums(sequence, file.decay, file.bias) for sequence in file.inputs]
    primal, bound = primal_value(file, sums), dual_value(file)
    expect(file.primal >= primal, "the objective is larger than stated")
    expect(file.lower_bound <= bound, "the lower bound is smaller than stated")
    total, trees = trees_of(file, sums, work)
    price_limit = file.price_bound * (n_steps if file.readout == "mean" else 1)
    prices = Prices(file.searches, price_limit, not file.negative_threshold, has_lift(sums, file.bias), work)
    prices.check(total, trees, len(file.searches) - 1, report)
    expect(bound <= primal, "the bound is above the objective of a network: the checker itself is wrong")
    return Checked(primal, bound, work.n_boxes)


# ---- the program -----------------------------------------------------------------------------------------------------


def shown(value: Fraction, rounding: str, digits: int = 12) -> str:
    """Return a fraction in few digits, rounded in one direction."""
    context = Context(digits, rounding, -LIMITS.decimal_exponent, LIMITS.decimal_exponent)
    return f"{context.divide(Decimal(value.numerator), Decimal(value.denominator)):.{digits}g}"


def relative_gap(found: Checked) -> str:
    """Return the gap as a share of the objective, rounded up."""
    if found.primal == found.bound:
        return "0"
    if found.primal == 0:
        return "none, since the objective is zero and the bound is not"
    return shown((found.primal - found.bound) / found.primal, ROUND_CEILING, 3)


def progress() -> Callable[[float], None]:
    """Return a function that shows on a terminal how much was checked and how long the rest may take."""
    begin = last = time.monotonic()

    def report(share: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > 1:
            last, left = now, (now - begin) * (1 - share) / share
            print(f"\r{100 * share:.0f} % of the boxes, about {left:.0f} s left ", end="", file=sys.stderr, flush=True)

    return report


def judge(path: str, limit: int) -> tuple[int, str]:
    """Return the status of a file and what to print."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(LIMITS.n_bytes + 1)
        if len(data) > LIMITS.n_bytes:
            raise LimitError(f"the file has more than {LIMITS.n_bytes:,} bytes")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise WrongError("the file is not UTF-8") from None
        statement = read_certificate(parse(text))
        found = check_certificate(statement, limit, progress() if sys.stderr.isatty() else None)
    except WrongError as error:
        return 1, f"NOT PROVEN: {error}"
    except (LimitError, OSError) as error:
        return 2, f"NOT CHECKED: {error}"
    except (MemoryError, RecursionError):
        return 2, "NOT CHECKED: the file needs more memory or depth than there is"
    except KeyboardInterrupt:
        return 130, "NOT CHECKED: interrupted"
    boxes = "1 box covers" if found.n_boxes == 1 else f"{found.n_boxes} boxes cover"
    return 0, (
        f"{statement}\n"
        f"checked: {boxes} all neurons of the family\n"
        f"objective of the network:  {shown(found.primal, ROUND_CEILING)}\n"
        f"no network is below:       {shown(found.bound, ROUND_FLOOR)}\n"
        f"relative gap:              {relative_gap(found)}"
    )


def main(arguments: list[str]) -> int:
    """Check one file."""
    path, *option = arguments or [""]
    if not path or (
        option and not (len(option) == 2 and option[0] == "--limit" and option[1].isdecimal() and len(option[1]) < 19)
    ):
        print(__doc__)
        return 2
    status, text = judge(path, int(option[1]) if option else LIMITS.operations)
    try:
        print(text, flush=True)
    except BrokenPipeError:  # the reader has seen enough; the status tells the rest
        sys.stdout = None
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
