"""Searches that are built to be accepted: from every move that the checker of proof files allows, box by box.

The adversary asks the checker itself whether a box may be closed, by which bound, or by a closer look at any factor,
and halves boxes along any axis, in any coordinates. With a bound on prices one below the largest price of a neuron,
which an enumeration knows, no search may succeed; with that price as the bound, both checkers must accept what does.
"""

import json
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from cvxsnn.core.errors import CvxsnnError
from cvxsnn.theory import LIFFamily, enumerate_lif
from cvxsnn.theory import check_certificate as checker
from cvxsnn.theory.check_certificate import Event, Prices, Search, Vector, Work, WrongError

from .forgeries import restate
from .harness import Finding, Hunt
from .proofs import judge, judge_again

_BOXES, _OPERATIONS = 400, 10**7
"""Boxes of a search after which the adversary gives up, and operations of all of its attempts."""


class _GivenUpError(Exception):
    """No move is left."""


class Adversary(Prices):
    """Builds searches in which the checker accepts every box."""

    def __init__(self, rng: np.random.Generator, limit: int, file: checker.ProofFile, is_generic: bool) -> None:
        super().__init__((), limit, not file.negative_threshold, is_generic, Work(_OPERATIONS))
        self.rng, self.built = rng, list[Search]()

    def build(self, total: Vector, trees: list[Event], n_most: int) -> int:
        """Return the number of a search of at most some coordinates that bounds the sums of trees; -1 needs none."""
        always = total
        for tree in trees:
            event: Event | None = tree
            while event is not None:
                always, event = checker.add(always, event.adds[1]), event.then[1]
        normals = {event.normal for event in checker.all_events(trees)}
        if max(map(abs, always)) > self.limit:
            raise _GivenUpError
        if not any(map(any, normals)):
            return -1
        search = self._frame(normals)
        if len(search.columns) > n_most:
            raise _GivenUpError
        is_last = checker.coordinates(search, normals, self.has_wall, self.work)
        whole = [own for own in (checker.turned(tree, search, self.work) for tree in trees) if own is not None]
        code, closer, n_boxes = "", list[Vector](), count()
        for face in checker.faces(len(search.columns), search.levels, is_last):
            waiting = [(face, total, whole)]
            while waiting:
                box, own, kept = waiting.pop()
                if next(n_boxes) > _BOXES:
                    raise _GivenUpError
                narrowed = self.narrow(own, kept, box)
                move = self._close(box, *narrowed, total, whole, len(search.columns) - 1, closer)
                if not move:
                    axes = [axis for axis, side in enumerate(box.half) if side >= 2]
                    if not axes:
                        raise _GivenUpError
                    axis = axes[self.rng.integers(len(axes))]
                    move = chr(ord("a") + axis)
                    lower, upper = box.halves(axis)
                    waiting += [(upper, *narrowed), (lower, *narrowed)]
                code += move
        self.built.append(search._replace(code=code, closer=tuple(closer)))
        return len(self.built) - 1

    def _frame(self, normals: set[Vector]) -> Search:
        """Return a search without boxes, in random coordinates that reach all neurons."""
        rng, width = self.rng, len(next(iter(normals)))
        columns = set(checker.pivots(normals, self.work))
        columns |= {column for column in range(width) if rng.random() < 0.2}
        size, is_last = len(columns), self.has_wall and max(columns) == width - 1
        basis = np.eye(size, dtype=int)
        if rng.integers(2):
            basis += rng.integers(-1, 2, (size, size))
            if is_last:
                basis[-1] = basis[:, -1] = 0
                basis[-1, -1] = rng.integers(1, 3)
        if abs(np.linalg.det(basis)) < 0.5:
            basis = np.eye(size, dtype=int)
        return Search(tuple(sorted(columns)), tuple(map(tuple, basis.tolist())), int(rng.integers(1, 6)), "", ())

    def _close(
        self, box: checker.Box, own: Vector, kept: list[Event], total: Vector, whole: list[Event], n_most: int,
        closer: list[Vector],
    ) -> str:  # fmt: skip
        """Return a move that closes a box, or "" if there is none."""
        for move in self.rng.permutation([".", ",", "!"]):
            if move == "." and self.fits(own, kept, box):
                return "."
            if move == "," and self.fits_tilted(own, kept, box):
                return ","
            if move == "!" and max(box.half) <= 2 and n_most:
                factor, n_built = int(self.rng.choice([1, 1, 2, 3])), len(self.built)
                near_total, near = self.narrow(total, whole, box.enlarged(factor))
                parts = [self.open_parts(tree, box.enlarged(factor)) for tree in near]
                try:
                    number = self.build(near_total, parts, n_most)
                except _GivenUpError:
                    del self.built[n_built:]
                    continue
                closer.append((factor, number))
                return "!"
        return ""


def case(rng: np.random.Generator, folder: Path) -> str:
    """Let the adversary prove something false about one small problem, and something true."""
    file, largest = _draw(rng)
    n_steps = len(file["inputs"][0]) if file["readout"] == "mean" else 1
    bound = -(-largest // n_steps)
    verdicts = []
    for claim in (bound - 1, bound):
        verdict = (
            "nothing to claim" if claim < 0 else _attack(rng, restate(file | {"price_bound": claim, "proofs": []}))
        )
        if claim < bound and verdict == "accepted":
            raise Finding(f"prices up to {claim} are accepted, and a neuron has {largest}: {json.dumps(file)}")
        verdicts.append(verdict)
    return f"{verdicts[1]} with the largest price as the bound"


def _attack(rng: np.random.Generator, file: dict[str, Any]) -> str:
    """Return whether any of some searches is accepted."""
    read = checker.read_certificate(file)
    sums = [checker.leaky_sums(sequence, read.decay, read.bias) for sequence in read.inputs]
    work = Work(_OPERATIONS)
    total, trees = checker.trees_of(read, sums, work)
    limit = read.price_bound * (len(read.inputs[0]) if read.readout == "mean" else 1)
    for _ in range(8):
        adversary = Adversary(rng, limit, read, checker.has_lift(sums, read.bias))
        try:
            adversary.build(total, trees, len(file["inputs"][0][0]) + 2)
        except (_GivenUpError, WrongError, checker.LimitError):
            continue
        file["proofs"] = [own._asdict() for own in adversary.built]
        first, second = judge(file), judge_again(file)
        if first != second:
            raise Finding(f"the checkers differ, {first} and {second}: {json.dumps(file)}")
        if first != "accepted":
            raise Finding(f"every box is accepted, and the file is {first}: {json.dumps(file)}")
        return "accepted"
    return "given up"


def _draw(rng: np.random.Generator) -> tuple[dict[str, Any], int]:
    """Return a file without searches about a small problem, often with ties, and the largest price of a neuron."""
    n_samples, n_steps, n_features = int(rng.integers(2, 6)), int(rng.integers(1, 4)), int(rng.integers(1, 3))
    decay = Fraction(int(rng.integers(5)), 4)
    readout = str(rng.choice(["last", "mean", "all"]))
    largest = int(rng.choice([1, 2, 5]))
    inputs = rng.integers(-largest, largest + 1, (n_samples, n_steps, n_features))
    n_rows = n_samples * (n_steps if readout == "all" else 1)
    has_bias, is_free, resets = (bool(rng.integers(2)) for _ in range(3))
    dual = rng.integers(-4, 5, (n_rows, int(rng.integers(1, 3))))
    if rng.random() < 0.9:  # else the neuron that always fires often has the largest price
        dual[0] -= dual.sum(0)
    file: dict[str, Any] = {
        "format": checker.FORMAT, "penalty": "l1", "loss": "squared", "strength": (0.5).hex(),
        "decay": [decay.numerator, decay.denominator], "bias": has_bias, "negative_threshold": is_free,
        "resets": resets, "readout": readout, "has_intercept": False, "inputs": inputs.tolist(),
        "targets": [[float(x).hex() for x in row] for row in rng.normal(size=dual.shape)],
        "neurons": [], "coef": [], "intercept": [(0.0).hex()] * dual.shape[1],
        "dual": dual.tolist(), "dual_exponent": -4,
    }  # fmt: skip
    try:
        family = LIFFamily(float(decay), has_bias, is_free, resets=resets)
        patterns = enumerate_lif(family, inputs * 1.0, max_patterns=20_000).spikes
    except CvxsnnError:
        return _draw(rng)
    spikes = np.asarray(patterns, dtype=np.int64)
    sums = {"last": spikes[:, :, -1], "mean": spikes.sum(2), "all": spikes.reshape(len(spikes), -1)}[readout]
    return file, int(abs(sums @ dual).max())


HUNT = Hunt(
    "adversary",
    "Searches built from every move that the checker accepts, one below the largest price.",
    case,
    cases=3_000,
    short=20,
    seconds=120.0,
)
