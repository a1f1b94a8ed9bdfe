r"""Exact pricing by cones, slow: for neurons apart from those of a dictionary, and for numbers of very many bits.

Branch and bound over cones of parameters. In a cone every sample has a few possible spike trains: a step at which all
extreme rays agree is decided, others are open. The sum over samples of the best that each can still contribute is an
upper bound for the cone, its inner point gives a lower bound, and the sample with the widest range is cut next. All
signs are those of exact integers, so a bound rests on no tolerance; sums of the :math:`\lambda` are rounded outwards.

Neurons that do what an atom of a given dictionary does can be left out of the maximum. A cone is then cut until all its
neurons do the same on every sample that is read, whatever its weight, and dropped if an atom does that too.
"""

import heapq
import time
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import count
from math import inf

import numpy as np
import numpy.typing as npt

from ..dictionary import Dictionary, Readout
from .cones import WALL, Cone, Vector
from .integers import SAFE, IntArray
from .lif_family import LIFEvents


def search_cones(
    events: LIFEvents,
    dual: npt.NDArray[np.float64],
    enough: float,
    max_cones: int,
    deadline: float,
    n_found: int,
    exempt: Dictionary | None,
) -> tuple[float, float, IntArray, int, bool]:
    """Maximise ``|Σ dual · spikes|`` over all neurons of a family, or all that no atom of a dictionary equals.

    Returns the largest value found, a bound on it, neurons of high value, the number of cones examined, and whether the
    search was completed.
    """
    merged, weights, samples = _merge(events, dual)
    known = _Known(np.zeros(events.n_steps, dtype=np.int64), frozenset())
    if exempt is not None:
        known = _Known.of(exempt, samples, events.n_steps)
    searches = [_Search(merged, sign * weights, enough, n_found, known) for sign in (1.0, -1.0)]
    n_cones = 0
    while n_cones < max_cones and time.monotonic() < deadline:
        search = max(searches, key=lambda s: s.bound)
        if search.is_done:
            break
        search.advance()
        n_cones += 1
    best = sorted((entry for search in searches for entry in search.found), reverse=True)[:n_found]
    bound = max(search.bound for search in searches)
    # A relative margin for sums of a few thousand numbers in float64.
    margin = 1e-12 * float(np.abs(weights).sum())
    parameters = np.array([parameters for _, parameters in best], dtype=object).reshape(-1, events.dimension)
    is_finished = max(searches, key=lambda s: s.bound).is_done  # the other sign is bounded by it
    return best[0][0] if best else 0.0, bound + margin, parameters, n_cones, is_finished


def _merge(events: LIFEvents, dual: npt.NDArray[np.float64]) -> tuple[LIFEvents, npt.NDArray[np.float64], list[int]]:
    """Merge equal sequences, which have equal spikes.

    Returns what is left, the weights, and a sample for each of them.
    """
    keys: dict[bytes, int] = {}
    rows = [keys.setdefault(repr(sequence.tolist()).encode(), len(keys)) for sequence in events.sums]
    weights = np.zeros((len(keys), dual.shape[1]))
    np.add.at(weights, rows, dual)
    samples = [rows.index(k) for k in range(len(keys))]
    return replace(events, sums=events.sums[samples]), weights, samples


@dataclass(frozen=True, eq=False)
class _Known:
    """The atoms that are not priced, as what a read-out sees of each sample: one integer.

    Parameters
    ----------
    digits : integer array of shape (n_steps,)
        What a spike at each step adds to this integer: read-outs that differ have different sums.
    atoms : frozenset of tuple of int
        The integers of every atom, one per sample.
    """

    digits: IntArray
    atoms: frozenset[tuple[int, ...]]

    @classmethod
    def of(cls, dictionary: Dictionary, samples: list[int], n_steps: int) -> "_Known":
        """Return the atoms of a dictionary, on some of its samples."""
        digits = _digits(dictionary.readout, n_steps)
        rows = dictionary.columns().T.cpu().numpy()  # (n_atoms, n_rows)
        if dictionary.readout == "mean":
            rows = np.rint(rows * n_steps)
        seen = rows.astype(np.int64).astype(digits.dtype)
        if dictionary.readout == "all":
            seen = seen.reshape(len(rows), -1, n_steps) @ digits
        return cls(digits, frozenset(map(tuple, seen[:, samples].tolist())))

    def has(self, seen: IntArray) -> bool:
        """Return whether an atom is seen like that on every sample."""
        return tuple(seen.tolist()) in self.atoms


def _digits(readout: Readout, n_steps: int) -> IntArray:
    if readout == "all":
        return np.array([2**step for step in range(n_steps)], dtype=np.int64 if n_steps < 63 else object)
    digits = np.ones(n_steps, dtype=np.int64)
    if readout == "last":
        digits[:-1] = 0
    return digits


@dataclass(order=True)
class _Open:
    """A cone that may still contain something better; the heap returns the highest bound first."""

    negative_bound: float
    order: int
    cone: Cone = field(compare=False)
    silent: frozenset["_Event"] = field(compare=False)
    depth: int = field(compare=False)
    event: "_Event" = field(compare=False)


_Event = tuple[int, int, int]
"""Sample, step, and the leaky count of past spikes, which identifies the history."""


class _Search:
    """Branch and bound for one sign."""

    def __init__(
        self,
        events: LIFEvents,
        weights: npt.NDArray[np.float64],
        enough: float,
        n_found: int,
        known: _Known,
    ) -> None:
        self.events = events
        self.weights = weights
        self.enough = enough
        self.n_found = n_found
        self.known = known
        self.found: list[tuple[float, Vector]] = []
        self._seen: set[bytes] = set()
        self._order = count()
        self._open: list[_Open] = []
        self._closed = 0.0
        self._try((0,) * events.dimension)  # the apex belongs to every cone, and fires always
        self._consider(events.cone(), frozenset(), 1)

    @property
    def best(self) -> float:
        return self.found[0][0] if self.found else 0.0

    @property
    def bound(self) -> float:
        return max(self._closed, self.best, -self._open[0].negative_bound if self._open else 0.0)

    @property
    def is_done(self) -> bool:
        return not self._open or -self._open[0].negative_bound <= max(self.best, self.enough)

    def advance(self) -> None:
        """Cut the most promising cone in two."""
        top = heapq.heappop(self._open)
        sample, step, reset = top.event
        normal = (*(int(x) for x in self.events.sums[sample, step]), -reset)
        above, below = top.cone.cut(normal, WALL << top.depth)
        self._consider(above, top.silent, top.depth + 1)
        self._consider(below, top.silent | {top.event}, top.depth + 1)

    def _consider(self, cone: Cone, silent: frozenset[_Event], depth: int) -> None:
        bound, event = self._look_ahead(cone, silent)
        if bound > max(self.best, self.enough) and bound > -inf:
            self._try(cone.interior())
        if event is None or bound <= max(self.best, self.enough):
            self._closed = max(self._closed, bound)
        else:
            heapq.heappush(self._open, _Open(-bound, next(self._order), cone, silent, depth, event))

    def _try(self, parameters: Vector) -> None:
        spikes = self.events.simulate(np.array([parameters], dtype=object))[0]
        if self.known.has(spikes @ self.known.digits):
            return
        value = float((self.weights * spikes).sum())
        key = np.packbits(spikes).tobytes()
        if value > 0 and key not in self._seen:
            self._seen.add(key)
            self.found = sorted([*self.found, (value, parameters)], reverse=True)[: self.n_found]

    def _look_ahead(self, cone: Cone, silent: frozenset[_Event]) -> tuple[float, _Event | None]:
        """Return an upper bound over the cone without its apex, and the event to cut it by: None if all are decided.

        Events in ``silent`` are strictly below zero: a tie is no spike there. A cone without neurons to be priced has
        the bound minus infinity.
        """
        generators = [*cone.rays, *cone.lines, *(tuple(-x for x in line) for line in cone.lines)]
        rays = np.array(generators or [(0,) * self.events.dimension], dtype=object)
        sums = self.events.sums
        largest_count = self.events.n_steps * Fraction(self.events.family.decay).denominator ** self.events.n_steps
        largest = int(abs(rays).max()) * max(int(abs(sums).max(initial=0)), largest_count) * self.events.dimension
        rays = rays.astype(np.int64) if largest < SAFE else rays
        sums = sums if rays.dtype != object else sums.astype(object)
        drives = sums @ rays[:, :-1].T  # (n_samples, n_steps, n_rays)
        owner = np.arange(len(sums))
        resets = np.zeros(len(sums), dtype=rays.dtype)
        gains = np.zeros(len(sums))
        digits = self.known.digits
        seen = np.zeros(len(sums), dtype=digits.dtype)
        cuts: dict[int, _Event] = {}
        for step in range(self.events.n_steps):
            values = drives[owner, step] - resets[:, None] * rays[:, -1]
            highest_value = values.max(1)
            can_fire, can_rest = highest_value >= 0, values.min(1) < 0
            for entry in np.flatnonzero(highest_value == 0):
                if (int(owner[entry]), step, int(resets[entry])) in silent:
                    can_fire[entry] = False
            for entry in np.flatnonzero(can_fire & can_rest):
                cuts.setdefault(int(owner[entry]), (int(owner[entry]), step, int(resets[entry])))
            fire, rest = np.flatnonzero(can_fire), np.flatnonzero(can_rest)
            spikes = np.concatenate((np.ones(len(fire), dtype=bool), np.zeros(len(rest), dtype=bool)))
            entries = np.concatenate((fire, rest))
            owner = owner[entries]
            resets = resets[entries]
            gains = gains[entries]
            gains = gains + np.where(spikes, self.weights[owner, step], 0.0)
            seen = seen[entries] + digits[step] * spikes
            if step + 1 < self.events.n_steps:
                resets = self.events.advance(resets, spikes, step + 1)
        highest, lowest = np.full(len(sums), -inf), np.full(len(sums), inf)
        np.maximum.at(highest, owner, gains)
        np.minimum.at(lowest, owner, gains)
        bound = float(highest.sum())
        stakes = highest - lowest
        for sample in np.argsort(-stakes):
            if stakes[sample] <= 0:
                break
            if int(sample) in cuts:
                return bound, cuts[int(sample)]
        if bound == -inf:
            return bound, None
        # All neurons of the cone have the same price; whether it counts depends on what each does.
        last = np.zeros(len(sums), dtype=seen.dtype)
        last[owner] = seen
        undecided = owner[seen != last[owner]]
        if len(undecided):
            return bound, cuts[int(undecided[0])]
        return (-inf if self.known.has(last) else bound), None
