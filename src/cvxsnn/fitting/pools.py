"""Optima over pools of witnesses far too large to hold: solve over a few, price all, add those that would help.

Only the columns of a small working set are held, besides as many bits of the pool as the memory budget allows. A
witness violates the dual point λ when ``|λᵀd| > l1_strength``; when none of the pool does, the optimum over the working
set is the one over the pool. Until then the largest price bounds how much there is to gain, so the gap is valid
whenever one stops. Blocks are priced in the workers of joblib, and the result is the same to the bit.

The program is over the distinct atoms of the pool: witnesses with equal spikes are one atom. With a quadratic beside
the norm, an atom with coefficient w has the price ``l1_strength + l2_strength * |w|`` at the optimum. It is above the
strength, so witnesses with the spikes of a column of the working set are recognised by these, and not priced.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from ..convex import Certificate, ConvexProblem, Solution, Status, certify_with_bound, solve
from ..convex.certificate import checked_certificate
from ..convex.objective import Objective
from ..convex.penalties import Penalty
from ..core import bits
from ..core.errors import ConvergenceWarning, InvalidInputError
from ..core.formatting import plural, round_up
from ..core.parallel import limit_threads
from ..data.sequences import TrainingSet
from ..dictionary import SpikeDictionary
from ..dictionary.base import parse_readout
from ..dictionary.pooled import PoolSpikes
from ..network.reconstruction import reconstruct
from ..witnesses.pool import WitnessPool
from .judges import Judge, Verdict
from .program import Point, Program
from .scores import ScoreFunction

_GROWTH = 4
"""Factor between the nested pools on the way to the whole one."""

_ENTERING = 1024
"""Witnesses that enter the working set at once: the most violating ones."""

_LEAST_COLUMNS = 4096
"""Columns that the working set may have before idle ones are dropped."""

_IDLE = 0.9
"""Share of the strength below which a column without a coefficient is idle."""

_PILE = 16
"""Blocks whose violators may pile up before the best are taken."""


@dataclass(frozen=True)
class PoolRound:
    """One pass over the pool.

    Parameters
    ----------
    n_witnesses : int
        The size of the part of the pool that was priced.
    n_columns : int
        The number of columns of the working set.
    n_violators : int
        The number of columns that violate the dual point: of witnesses, or of witnesses in one window of time.
    primal : float
        An upper bound on the optimum over that part.
    dual : float
        A lower bound on it.
    seconds : float
        The time since the start.
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

    Parameters
    ----------
    solution : Solution
        The solution over the working set, with the certificate over the pool.
    pool : WitnessPool
        The pool; the certificate is about its first ``certificate.n_witnesses`` witnesses.
    members : Tensor
        The witnesses of the pool that the atoms come from, in the order of the dictionary's witnesses.
    rounds : tuple of PoolRound
        Every pass over the pool.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import solve_pool
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> pool = cs.witnesses.WitnessPool(2, {"hidden": (16,)}, n_witnesses=256, seed=0)
    >>> data = cs.data.TrainingSet.of(task.train)
    >>> solved = solve_pool(pool, data, cs.convex.Objective("logistic"), 0.01)
    >>> solved.certificate.scope, solved.certificate.n_witnesses
    ('pool', 256)
    """

    solution: Solution
    pool: WitnessPool
    members: Tensor
    rounds: tuple[PoolRound, ...]

    @property
    def certificate(self) -> Certificate:
        """Certificate over the pool."""
        return self.solution.certificate


def solve_pool(
    pool: WitnessPool,
    data: TrainingSet,
    objective: Objective,
    l1_strength: float,
    *,
    l2_strength: float = 0.0,
    penalty: str = "l1",
    intercept: bool = False,
    tol: float = 1e-6,
    memory_budget: int = 2**30,
    max_seconds: float = inf,
    start: PoolSolution | None = None,
    spikes: PoolSpikes | None = None,
    callback: Callable[[PoolRound], None] | None = None,
) -> PoolSolution:
    """Solve the convex program over every witness of a pool.

    The pool grows: the certified optimum over a small part of it is where that over a larger part begins. A solve that
    stops early, by ``max_seconds`` or Ctrl-C, returns the last certificate, which says how many witnesses it is about.

    Parameters
    ----------
    pool : WitnessPool
        The witnesses.
    data : TrainingSet
        The training data.
    objective : Objective
        The loss and the read-out.
    l1_strength : float
        The number that multiplies the norm, above zero: without it every witness of the pool is active.
    l2_strength : float
        The number that multiplies half the sum of squares, for the elastic nets.
    penalty : "l1", "group", "elastic-net" or "group-elastic-net"
        The penalty of the coefficients.
    intercept : bool
        Whether the read-out has an unpenalised constant.
    tol : float
        The relative gap to certify, over the whole pool.
    memory_budget : int
        The bytes for spikes of the pool that are kept from one round to the next; the others are drawn again.
    max_seconds : float
        The time after which no new round begins.
    start : PoolSolution, optional
        A solution over the same pool, at another strength or of other data.
    spikes : PoolSpikes, optional
        Spikes of the pool, to reuse across strengths.
    callback : callable, optional
        Called with every :class:`PoolRound`.

    Returns
    -------
    PoolSolution
        The optimum with its certificate over the pool.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import solve_pool
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> pool = cs.witnesses.WitnessPool(2, {"hidden": (16,)}, n_witnesses=256, seed=0)
    >>> data = cs.data.TrainingSet.of(task.train)
    >>> solved = solve_pool(pool, data, cs.convex.Objective("logistic"), 0.01)
    >>> solved.certificate.scope, solved.certificate.n_witnesses
    ('pool', 256)
    """
    program = Program(objective, penalty, l1_strength, l2_strength, intercept=intercept, tol=tol, pool=pool.n_witnesses)
    if any(known is not None and known.pool != pool for known in (start, spikes)):
        raise InvalidInputError("the start or the spikes belong to another pool: pass those of this pool, or none")
    if spikes is not None and (spikes.sequences is not data.sequences or spikes.readout != objective.readout):
        raise InvalidInputError(
            "the spikes belong to other data or another read-out: pass those of these data, or none"
        )
    spikes = PoolSpikes(pool, data.sequences, objective.readout, memory_budget) if spikes is None else spikes
    return _solve(spikes, data, program, start, max_seconds, callback)


def _solve(
    spikes: PoolSpikes,
    data: TrainingSet,
    program: Program,
    start: PoolSolution | None,
    max_seconds: float = inf,
    callback: Callable[[PoolRound], None] | None = None,
) -> PoolSolution:
    """Solve a program with one pair of strengths, as :func:`solve_pool` describes."""

    def problem_of(dictionary: SpikeDictionary) -> ConvexProblem:
        return program.at(program.problem(dictionary, data), (program.norms()[0], program.quadratics()[0]))

    begin = time.monotonic()
    pool = spikes.pool
    tol = program.tol
    rounds: list[PoolRound] = []
    working = _WorkingSet(spikes, problem_of, start)
    proven: PoolSolution | None = None
    n_blocks, is_late = (1 if start is None else pool.n_blocks), False
    try:
        while not is_late:
            # A part of the pool need not be solved to the end: more witnesses will change it anyway.
            is_whole = n_blocks >= pool.n_blocks
            n_priced = pool.starts[min(n_blocks, pool.n_blocks)]
            goal = tol if is_whole else max(tol, 1e-3)
            # The other half of the gap is for witnesses outside the working set.
            solution = working.solve(0.5 * goal)
            prices = _price(spikes, min(n_blocks, pool.n_blocks), solution, working)
            # Shrunk by the largest price, the dual point is feasible for every witness that was priced.
            dual = certify_with_bound(solution.problem, solution.dual_point, prices.largest.tolist())
            certificate = Certificate(solution.certificate.primal, dual, "pool", n_priced)
            certificate = checked_certificate(certificate)
            bounds, seconds = (certificate.primal, certificate.dual), time.monotonic() - begin
            rounds.append(PoolRound(n_priced, working.n_columns, prices.n_violators, *bounds, seconds))
            proven = PoolSolution(replace(solution, certificate=certificate), pool, working.members, tuple(rounds))
            if callback is not None:
                callback(rounds[-1])
            is_late = time.monotonic() - begin >= max_seconds
            if certificate.relative_gap > goal and len(prices.members) > 0:
                working.exchange(prices)
            elif is_whole:
                break
            else:
                n_blocks *= _GROWTH
    except KeyboardInterrupt:
        if proven is None:
            raise
    assert proven is not None
    certificate, status = proven.certificate, Status.STOPPED
    if certificate.n_witnesses == pool.n_witnesses and certificate.relative_gap <= tol:
        status = Status.CONVERGED
    elif certificate.n_witnesses == pool.n_witnesses and proven.rounds[-1].n_violators == 0:
        status = Status.STALLED  # no witness is missing: the solve over the working set ended at its rounding
    if status is not Status.CONVERGED:
        warnings.warn(
            f"expected a certified relative gap of {tol:g} over {plural(pool.n_witnesses, 'witness', 'witnesses')}, "
            f"got {round_up(certificate.relative_gap, 3):.2e} over {certificate.n_witnesses:,}: {status.value}",
            ConvergenceWarning,
            stacklevel=3,
        )
    return _with_witnesses(replace(proven, solution=replace(proven.solution, status=status)), spikes, problem_of)


@dataclass(frozen=True, eq=False)
class PoolScored(Judge):
    """Rank every optimum over a pool by a function of its network; each starts from the one before.

    Parameters
    ----------
    score : callable
        The score of a network; higher is better.
    pool : WitnessPool
        The witnesses.
    data : TrainingSet
        The training data.
    """

    score: ScoreFunction
    pool: WitnessPool
    data: TrainingSet

    def walk(self, problem: ConvexProblem, program: Program, points: Sequence[Point]) -> Iterator[Verdict]:
        """Yield a verdict for each point, with the certified solution over the pool."""
        spikes = PoolSpikes(self.pool, self.data.sequences, program.objective.readout)
        solved: PoolSolution | None = None
        for norm, quadratic in points:
            solved = _solve(spikes, self.data, replace(program, l1_strength=norm, l2_strength=quadratic), solved)
            yield Verdict((norm, quadratic), self.score(reconstruct(solved.solution)), solution=solved.solution)


def _with_witnesses(
    proven: PoolSolution, spikes: PoolSpikes, problem_of: Callable[[SpikeDictionary], ConvexProblem]
) -> PoolSolution:
    """Return a solution over columns of the pool as one over their witnesses, each in every window of time."""
    n_windows = parse_readout(spikes.readout).n_windows
    witnesses, window = proven.members // n_windows, proven.members % n_windows
    groups = bits.group_equal(witnesses[:, None])
    dictionary = spikes.of(proven.pool.take(witnesses[groups.first]))
    atoms = dictionary.atom_of_column[groups.inverse * n_windows + window]
    coef = _moved(proven.solution.coef, atoms, dictionary)
    solution = replace(proven.solution, problem=problem_of(dictionary), coef=coef)
    return replace(proven, solution=solution, members=witnesses[groups.first])


@dataclass(frozen=True, eq=False)
class _Prices:
    """Prices of some columns at one dual point: witnesses, each in every window of time.

    Parameters
    ----------
    largest : Tensor of shape (n_outputs,)
        A correlation that no column's exceeds in any output, or in norm.
    n_violators : int
        The number of violators; equal patterns of one block count once.
    price : Tensor
        The prices of the most violating columns, best first, each pattern once.
    members : Tensor
        These columns of the pool.
    packed : Tensor
        Their spikes.
    """

    largest: Tensor
    n_violators: int
    price: Tensor
    members: Tensor
    packed: Tensor

    def take(self, chosen: Tensor) -> "_Prices":
        return replace(self, price=self.price[chosen], members=self.members[chosen], packed=self.packed[chosen])


@dataclass(frozen=True, eq=False)
class _Pricing:
    """Prices a block of witnesses at a dual point, but for those with given spikes."""

    dual_point: Tensor
    penalty: Penalty
    l1_strength: float
    exempt: Tensor | None = None

    def __call__(self, block: SpikeDictionary, first_witness: int) -> _Prices:
        with limit_threads(1):  # so that a price is the same to the bit in every worker
            correlation = block.rmatvec(self.dual_point)
        price = self.penalty.atom_norms(correlation)
        # Columns of the working set are in the program already. With a quadratic their prices exceed the strength.
        if self.exempt is not None:
            above = torch.nonzero(price > self.l1_strength).squeeze(1)
            exempt = above[bits.are_among(block.patterns[above], self.exempt)]
            correlation[exempt], price[exempt] = 0.0, 0.0
        if self.penalty.is_separable:
            largest = correlation.abs().amax(0)
        else:  # one row whose norm is the largest price
            unit = torch.eye(1, correlation.shape[1]).to(correlation)
            largest = (unit * price.max() / self.penalty.atom_norms(unit))[0]
        # Active columns have exactly this price, up to rounding, and are no violators.
        chosen = torch.nonzero(price > self.l1_strength * (1 + 1e-12)).squeeze(1)
        members = block.column_of_atom[chosen] + first_witness * block.n_windows
        return _best(_Prices(largest, len(chosen), price[chosen], members, block.patterns[chosen]))


def _price(spikes: PoolSpikes, n_blocks: int, solution: Solution, working: "_WorkingSet") -> _Prices:
    """Return the prices over the first blocks, of patterns that the working set does not have.

    A maximum, a sum and the first of an order without ties: none depends on the order in which blocks are priced.
    """
    problem = solution.problem
    exempt = working.patterns[working.have_high_prices()] if problem.l2_strength else None
    pricing = _Pricing(solution.dual_point, problem.penalty, problem.l1_strength, exempt)
    of_blocks: list[_Prices] = []
    for prices in spikes.judge_blocks(pricing, n_blocks):
        of_blocks.append(prices)
        if len(of_blocks) >= _PILE:  # memory must not grow with the number of blocks
            of_blocks = [_join(of_blocks)]
    prices = _join(of_blocks)
    return prices.take(~bits.are_among(prices.packed, working.patterns))


def _join(of_blocks: list[_Prices]) -> _Prices:
    return _best(
        _Prices(
            torch.stack([prices.largest for prices in of_blocks]).amax(0),
            sum(prices.n_violators for prices in of_blocks),
            torch.cat([prices.price for prices in of_blocks]),
            torch.cat([prices.members for prices in of_blocks]),
            torch.cat([prices.packed for prices in of_blocks]),
        )
    )


def _best(prices: _Prices) -> _Prices:
    """Return the most violating patterns, each once; of equal ones the first column of the pool."""
    if len(prices.members) == 0:
        return prices
    # First by number, then stably by price: without ties, the order does not depend on the order of the blocks.
    order = torch.argsort(prices.members)
    order = order[torch.argsort(prices.price[order], descending=True, stable=True)]
    ordered = prices.take(order)
    return ordered.take(bits.group_equal(ordered.packed.view(torch.int64).flatten(1)).first[:_ENTERING])


class _WorkingSet:
    """The columns of the working set, and the solution over them to start from."""

    def __init__(
        self,
        spikes: PoolSpikes,
        problem_of: Callable[[SpikeDictionary], ConvexProblem],
        start: PoolSolution | None,
    ) -> None:
        self._problem_of = problem_of
        self._solution: Solution | None = None
        self._limit = _LEAST_COLUMNS
        if start is None:
            self._dictionary = spikes.block(0)
            self.members = self._dictionary.column_of_atom
        else:
            # Rolled out again, so that the columns are those of these data, whatever the start was solved on.
            self._dictionary = spikes.of(spikes.pool.take(start.members))
            n_windows, column = self._dictionary.n_windows, self._dictionary.column_of_atom
            self.members = start.members[column // n_windows] * n_windows + column % n_windows
            atoms = self._dictionary.atom_of_column[start.solution.problem.dictionary.column_of_atom]
            self._solution = replace(start.solution, coef=_moved(start.solution.coef, atoms, self._dictionary))
        self._dictionary = _of_atoms(self._dictionary, self._dictionary.patterns)

    @property
    def n_columns(self) -> int:
        return self._dictionary.n_atoms

    def solve(self, tol: float) -> Solution:
        problem = self._problem_of(self._dictionary)
        begin = None if self._solution is None else replace(self._solution, problem=problem)
        with warnings.catch_warnings():  # what counts is the gap over the pool
            warnings.simplefilter("ignore", ConvergenceWarning)
            self._solution = solve(problem, tol, start=begin)
        return self._solution

    @property
    def patterns(self) -> Tensor:
        return self._dictionary.patterns

    def have_high_prices(self) -> Tensor:
        """Return which columns have prices above the strength or within 10% of it, far more than rounding."""
        assert self._solution is not None
        problem = self._solution.problem
        price = problem.penalty.atom_norms(self._dictionary.rmatvec(self._solution.dual_point))
        return price > _IDLE * problem.l1_strength

    def exchange(self, prices: _Prices) -> None:
        """Add violators and, if there are too many columns, drop idle ones."""
        assert self._solution is not None
        solution = self._solution
        kept = torch.ones(self.n_columns, dtype=torch.bool, device=solution.coef.device)
        if self.n_columns + len(prices.members) > self._limit:
            self._limit = 3 * self._limit // 2 + 1  # so that no column is dropped and added for ever
            kept = solution.coef.any(1) | self.have_high_prices()
        # Dropping is safe: a column that is needed again is priced like any other and comes back.
        self.members = torch.cat((self.members[kept], prices.members))
        self._dictionary = _of_atoms(self._dictionary, torch.cat((self.patterns[kept], prices.packed)))
        coef = torch.cat((solution.coef[kept], solution.coef.new_zeros(len(prices.members), solution.coef.shape[1])))
        self._solution = replace(solution, coef=coef)


def _moved(coef: Tensor, atoms: Tensor, dictionary: SpikeDictionary) -> Tensor:
    """Return coefficients for the atoms of a dictionary: row i moves to ``atoms[i]``, and equal atoms add up."""
    return coef.new_zeros(dictionary.n_atoms, coef.shape[1]).index_add_(0, atoms, coef)


def _of_atoms(dictionary: SpikeDictionary, patterns: Tensor) -> SpikeDictionary:
    """Return a dictionary with one column for each of these patterns."""
    identity = torch.arange(len(patterns), device=dictionary.device)
    return replace(dictionary, patterns=patterns, atom_of_column=identity, column_of_atom=identity, witnesses=None)
