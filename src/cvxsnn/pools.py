"""Optima over pools of witnesses far too large to hold: solve over a few, price all, let in those that would help.

A pool exists as seeds. Its blocks are drawn when they are priced, the same every time, and only the columns of a small
working set are held, beside as many bits as the memory budget has room for. A witness violates the dual point λ when
``|λᵀd| > l1_strength``; when none of the pool does, the optimum over the working set is the one over the pool. Until
then the largest price bounds how much there is to gain, so the gap is valid whenever one stops.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

import torch
from torch import Tensor

from . import bits
from .checks import check_positive_int
from .convex import Certificate, ConvergenceWarning, ConvexProblem, Solution, Status, certify_with_bound, solve
from .convex.certificate import checked_certificate
from .dictionary import SpikeDictionary, build_dictionary
from .errors import InvalidInputError
from .seeds import check_seed, child_seed
from .training_set import Objective, TrainingSet
from .witnesses import Provenance, WitnessSet, gaussian_witnesses, join_witnesses, single_out

_BLOCK = 4096
"""Witnesses drawn at once."""

_GROWTH = 4
"""Factor between the nested pools on the way to the whole one."""

_ENTERING = 1024
"""Witnesses that enter the working set at once: the most violating ones."""

_LEAST_COLUMNS = 4096
"""Columns that the working set may have without anybody having to leave."""

_IDLE = 0.9
"""Share of the strength below which a column without a coefficient is idle."""


@dataclass(frozen=True)
class WitnessPool:
    """Sampled witnesses that exist as seeds.

    Parameters
    ----------
    n_features : int
    family : mapping
        Arguments of :func:`cvxsnn.gaussian_witnesses` other than ``n_features``, ``n_subnetworks`` and ``seed``. Each
        subnetwork has a last hidden layer of ``family["hidden"][-1]`` witnesses, which share the layers below.
    n_witnesses : int
        Rounded up to whole subnetworks.
    seed : int
    """

    n_features: int
    family: Mapping[str, Any]
    n_witnesses: int
    seed: int = 0

    def __post_init__(self) -> None:
        """Round up, and refuse what no pool can be drawn from."""
        check_positive_int("n_witnesses", self.n_witnesses)
        check_seed(self.seed)
        hidden = self.family.get("hidden")
        if not isinstance(hidden, Sequence) or not hidden:
            raise InvalidInputError(
                f"expected a family with the widths of its hidden layers, got hidden={hidden!r}: pass (64, 128)"
            )
        if self.family.get("neuron", "lif") != "lif":
            raise InvalidInputError("expected LIF neurons in a pool, got threshold neurons, which read each other")
        object.__setattr__(self, "n_witnesses", -(-self.n_witnesses // self._width) * self._width)

    @property
    def _width(self) -> int:
        return int(self.family["hidden"][-1])

    @cached_property
    def starts(self) -> list[int]:
        """The first witness of each block, and the end."""
        step = max(1, _BLOCK // self._width) * self._width
        return [*range(0, self.n_witnesses, step), self.n_witnesses]

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.starts) - 1

    def block(self, number: int) -> WitnessSet:
        """One block, which depends on its number, the family and the seed alone."""
        n_witnesses = self.starts[number + 1] - self.starts[number]
        family = {name: value for name, value in self.family.items() if name != "n_subnetworks"}
        seed = child_seed(self.seed, "pool", number)
        return gaussian_witnesses(self.n_features, n_subnetworks=n_witnesses // self._width, seed=seed, **family)

    def take(self, witnesses: Tensor) -> WitnessSet:
        """Some of the witnesses, each with a subnetwork of its own."""
        blocks = torch.searchsorted(torch.tensor(self.starts), witnesses.cpu(), right=True) - 1
        parts, places = [], []
        for number in sorted(set(blocks.tolist())):
            own = torch.nonzero(blocks == number).squeeze(1)
            parts.append(single_out(self.block(number), witnesses.cpu()[own] - self.starts[number]))
            places.append(own)
        recipe = {"pool": {"n_witnesses": self.n_witnesses, "seed": self.seed}}
        joined = join_witnesses(parts).take(torch.argsort(torch.cat(places)))
        return replace(joined, provenance=Provenance("pretrained", recipe))


@dataclass(frozen=True)
class PoolRound:
    """One time around the pool.

    Attributes
    ----------
    n_witnesses : int, of the pool, which grows
    n_columns : int, of the working set
    n_violators : int
    primal, dual : float, bounds on the optimum over the pool
    seconds : float, since the start
    """

    n_witnesses: int
    n_columns: int
    n_violators: int
    primal: float
    dual: float
    seconds: float


@dataclass(frozen=True, eq=False)
class PoolSolution:
    """An optimum over a pool.

    Attributes
    ----------
    solution : Solution, over the working set, with the certificate over the pool
    pool : WitnessPool, of which the first ``certificate.n_witnesses`` are what the certificate is about
    members : Tensor, the witnesses of the pool that the atoms come from
    rounds : tuple of PoolRound
    """

    solution: Solution
    pool: WitnessPool
    members: Tensor
    rounds: tuple[PoolRound, ...]

    @property
    def certificate(self) -> Certificate:
        """Over the pool."""
        return self.solution.certificate


def solve_pool(
    pool: WitnessPool,
    data: TrainingSet,
    objective: Objective,
    l1_strength: float,
    *,
    penalty: str = "l1",
    intercept: bool = False,
    tol: float = 1e-6,
    memory_budget: int = 2**30,
    max_seconds: float = inf,
    start: PoolSolution | None = None,
    spikes: "PoolSpikes | None" = None,
    report: Callable[[PoolRound], None] | None = None,
) -> PoolSolution:
    """Solve the convex program over every witness of a pool.

    The pool grows: the optimum over a small part of it, certified, is where that over a larger part begins. Whoever
    stops early, by ``max_seconds`` or Ctrl-C, is left with the last certificate, which says how many witnesses it is
    about.

    Parameters
    ----------
    pool : WitnessPool
    data : TrainingSet
    objective : Objective
    l1_strength : float
    penalty, intercept
        As for :class:`cvxsnn.ConvexProblem`.
    tol : float
        Relative gap to certify, over the whole pool.
    memory_budget : int
        Bytes for spikes of the pool that are kept from one round to the next; the others are drawn again.
    max_seconds : float
    start : PoolSolution, optional
        Over the same pool, at another strength or of other data.
    spikes : PoolSpikes, optional
        To share what was drawn between strengths.
    report : function, optional
        Told of every round.
    """
    if any(given is not None and given.pool != pool for given in (start, spikes)):
        raise InvalidInputError("expected a start and spikes of the same pool, got those of another one")
    if spikes is not None and (spikes.data is not data or spikes.readout != objective.readout):
        raise InvalidInputError("expected spikes of the same data and read-out, got those of others")
    spikes = PoolSpikes(pool, data, objective, memory_budget) if spikes is None else spikes

    def problem_of(dictionary: SpikeDictionary) -> ConvexProblem:
        return objective.problem(dictionary, data, l1_strength=l1_strength, penalty=penalty, intercept=intercept)

    begin = time.monotonic()
    rounds: list[PoolRound] = []
    working = _WorkingSet(spikes, problem_of, start)
    proven: PoolSolution | None = None
    try:
        for n_blocks in _growing(pool.n_blocks) if start is None else [pool.n_blocks]:
            # A part of the pool need not be solved to the end: more witnesses will change it anyway.
            goal = tol if n_blocks == pool.n_blocks else max(tol, 1e-3)
            while True:
                solution = working.solve(0.5 * goal)
                prices = _price(spikes, n_blocks, solution, working)
                dual = certify_with_bound(solution.problem, solution.dual_point, prices.largest.tolist())
                certificate = checked_certificate(
                    solution.problem, Certificate(solution.certificate.primal, dual, "pool", pool.starts[n_blocks])
                )
                rounds.append(
                    PoolRound(
                        pool.starts[n_blocks],
                        working.n_columns,
                        prices.n_violators,
                        certificate.primal,
                        certificate.dual,
                        time.monotonic() - begin,
                    )
                )
                proven = working.proven(replace(solution, certificate=certificate), rounds)
                if report is not None:
                    report(rounds[-1])
                is_late = time.monotonic() - begin >= max_seconds
                if certificate.relative_gap <= goal or len(prices.members) == 0 or is_late:
                    break
                working.exchange(prices)
            if is_late:
                break
    except KeyboardInterrupt:
        if proven is None:
            raise
    assert proven is not None
    solution = replace(proven.solution, status=_status(proven, tol))
    if not solution.has_converged:
        certificate = solution.certificate
        warnings.warn(
            f"expected a certified relative gap of {tol:g} over {pool.n_witnesses:,} witnesses, got "
            f"{certificate.relative_gap:.2e} over {certificate.n_witnesses:,}: {solution.status.value}",
            ConvergenceWarning,
            stacklevel=2,
        )
    dictionary = solution.problem.dictionary
    assert isinstance(dictionary, SpikeDictionary)
    dictionary = replace(dictionary, witnesses=pool.take(proven.members).to(data.inputs.device))
    return replace(proven, solution=replace(solution, problem=problem_of(dictionary)), rounds=tuple(rounds))


def _status(proven: PoolSolution, tol: float) -> Status:
    if proven.certificate.n_witnesses == proven.pool.n_witnesses and proven.certificate.relative_gap <= tol:
        return Status.CONVERGED
    was_done = proven.certificate.n_witnesses == proven.pool.n_witnesses and proven.rounds[-1].n_violators == 0
    return Status.STALLED if was_done else Status.STOPPED


class PoolSpikes:
    """The dictionaries of a pool's blocks, kept while there is room, drawn again when there is none."""

    def __init__(self, pool: WitnessPool, data: TrainingSet, objective: Objective, memory_budget: int = 2**30) -> None:
        self.pool, self.data, self.readout, self._room = pool, data, objective.readout, memory_budget
        self._kept: dict[int, SpikeDictionary] = {}

    def of(self, witnesses: WitnessSet) -> SpikeDictionary:
        """The spikes of any witnesses on the data."""
        inputs, lengths = self.data.inputs, self.data.lengths
        return build_dictionary(witnesses.to(inputs.device), inputs, self.readout, lengths=lengths)

    def block(self, number: int) -> SpikeDictionary:
        """The distinct spikes of a block; ``witness_of_atom`` counts from the block's start."""
        if number in self._kept:
            return self._kept[number]
        drawn = self.of(self.pool.block(number))
        # The witnesses themselves are drawn again when they are needed; their spikes are what costs time.
        spikes = replace(drawn, witnesses=None, atom_of_witness=drawn.witness_of_atom.new_empty(0))
        if spikes.packed.numel() <= self._room:
            self._room -= spikes.packed.numel()
            self._kept[number] = spikes
        return spikes


@dataclass(frozen=True, eq=False)
class _Prices:
    """What pricing the pool at one dual point found.

    Attributes
    ----------
    largest : Tensor of shape (n_outputs,), a correlation that no witness's exceeds in any output, or in norm
    n_violators : int, counting equal patterns of one block once
    members : Tensor, the most violating witnesses that are not in the working set
    packed : Tensor, their spikes
    """

    largest: Tensor
    n_violators: int
    members: Tensor
    packed: Tensor


def _price(spikes: PoolSpikes, n_blocks: int, solution: Solution, working: "_WorkingSet") -> _Prices:
    problem = solution.problem
    largest = torch.zeros(problem.n_outputs, dtype=torch.float64, device=solution.dual_point.device)
    n_violators = 0
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    for number in range(n_blocks):
        block = spikes.block(number)
        correlation = block.rmatvec(solution.dual_point)
        price = problem.penalty.atom_norms(correlation)
        if problem.penalty.name == "l1":
            largest = torch.maximum(largest, correlation.abs().amax(0))
        else:  # one row whose norm is the largest price
            largest[0] = torch.maximum(largest[0], price.max())
        chosen = torch.nonzero(price > problem.l1_strength * (1 + 1e-12)).squeeze(1)
        n_violators += len(chosen)
        if len(chosen) > _ENTERING:
            chosen = chosen[torch.topk(price[chosen], _ENTERING).indices]
        found.append((price[chosen], block.witness_of_atom[chosen] + spikes.pool.starts[number], block.packed[chosen]))
        if len(found) >= 16:  # so that what was found does not pile up
            found = [_best(found)]
    price, members, packed = _best(found)
    fresh = working.are_new(packed)
    return _Prices(largest, n_violators, members[fresh], packed[fresh])


def _best(found: list[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """The most violating of several finds, each pattern once."""
    price, members, packed = (torch.cat(parts) for parts in zip(*found, strict=True))
    if len(price) == 0:
        return price, members, packed
    order = torch.argsort(price, descending=True, stable=True)
    order = order[bits.group_equal(packed[order].view(torch.int64).flatten(1)).first][:_ENTERING]
    return price[order], members[order], packed[order]


class _WorkingSet:
    """The columns at hand, and the solution over them to start from."""

    def __init__(
        self,
        spikes: PoolSpikes,
        problem_of: Callable[[SpikeDictionary], ConvexProblem],
        start: PoolSolution | None,
    ) -> None:
        self._pool, self._problem_of = spikes.pool, problem_of
        self._solution: Solution | None = None
        self._limit = _LEAST_COLUMNS
        if start is None:
            self._dictionary = spikes.block(0)
            self._members = self._dictionary.witness_of_atom
        else:
            # Rolled out again, so that the columns are those of the data at hand, whatever the start was solved on.
            self._dictionary = spikes.of(spikes.pool.take(start.members))
            self._members = start.members[self._dictionary.witness_of_atom]
            coef = start.solution.coef.new_zeros(self._dictionary.n_atoms, start.solution.coef.shape[1])
            coef.index_add_(0, self._dictionary.atom_of_witness, start.solution.coef)
            self._solution = replace(start.solution, coef=coef)
        self._dictionary = _renumbered(self._dictionary)

    @property
    def n_columns(self) -> int:
        return self._dictionary.n_atoms

    def solve(self, tol: float) -> Solution:
        problem = self._problem_of(self._dictionary)
        begin = None if self._solution is None else replace(self._solution, problem=problem)
        with warnings.catch_warnings():  # the pool's own gap is what counts
            warnings.simplefilter("ignore", ConvergenceWarning)
            self._solution = solve(problem, tol, start=begin)
        return self._solution

    def proven(self, solution: Solution, rounds: list[PoolRound]) -> PoolSolution:
        return PoolSolution(solution, self._pool, self._members, tuple(rounds))

    def are_new(self, packed: Tensor) -> Tensor:
        """Which patterns the working set does not have."""
        own = self._dictionary.packed
        groups = bits.group_equal(torch.cat((own, packed)).view(torch.int64).flatten(1))
        return groups.first[groups.inverse[len(own) :]] >= len(own)

    def exchange(self, prices: _Prices) -> None:
        """Let violators in and, where there are too many columns, idle ones out."""
        assert self._solution is not None
        solution = self._solution
        kept = torch.ones(self.n_columns, dtype=torch.bool, device=solution.coef.device)
        if self.n_columns + len(prices.members) > self._limit:
            self._limit = 3 * self._limit // 2 + 1  # so that nobody leaves and comes back for ever
            problem = solution.problem
            price = problem.penalty.atom_norms(self._dictionary.rmatvec(solution.dual_point))
            kept = solution.coef.any(1) | (price > _IDLE * problem.l1_strength)
        self._members = torch.cat((self._members[kept], prices.members))
        self._dictionary = _renumbered(
            replace(self._dictionary, packed=torch.cat((self._dictionary.packed[kept], prices.packed)))
        )
        coef = torch.cat((solution.coef[kept], solution.coef.new_zeros(len(prices.members), solution.coef.shape[1])))
        self._solution = replace(solution, coef=coef)


def _renumbered(dictionary: SpikeDictionary) -> SpikeDictionary:
    """One witness an atom."""
    each = torch.arange(dictionary.n_atoms, device=dictionary.device)
    return replace(dictionary, atom_of_witness=each, witness_of_atom=each, witnesses=None)


def _growing(n_blocks: int) -> Iterator[int]:
    """Numbers of blocks on the way to all of them."""
    size = 1
    while size < n_blocks:
        yield size
        size *= _GROWTH
    yield n_blocks
