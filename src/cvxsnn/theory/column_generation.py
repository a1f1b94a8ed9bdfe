"""Optima over *all* neurons of a family without enumerating them: solve, price, add, until nothing can be gained."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ..convex import Certificate, ConvexProblem, Solution, certify_with_bound, solve
from ..convex.certificate import checked_certificate
from ..convex.losses import Loss
from ..convex.penalties import GroupL2, Penalty, check_prices, check_strengths, make_penalty
from ..core.checks import Array
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..core.seeds import child_generator
from ..data.sequences import as_inputs
from ..dictionary import Readout, build_dictionary
from ..witnesses import Provenance, WitnessSet
from .family_union import FamilyUnion, UnionEvents
from .integers import IntArray
from .lif_family import LIFEvents, LIFFamily, check_complete_readout
from .pricing import Price, price


@dataclass(frozen=True)
class _Settings:
    solver_share: float = 0.02
    """Share of the relative gap that may come from the solver."""
    gap_share: float = 0.9
    """Share of the relative gap that a proof aims at."""
    n_added: int = 64
    """Neurons that one round adds at most."""
    start_bits: int = 12
    """Bits of the weights of random neurons to start with."""
    max_stale: int = 2
    """Rounds without new atoms after which the search ends."""


_SETTINGS = _Settings()


@dataclass(frozen=True)
class Round:
    """One round of column generation.

    Parameters
    ----------
    n_atoms : int
        Number of atoms in the dictionary.
    primal : float
        The best upper bound on the complete optimum so far.
    dual : float
        The best lower bound so far.
    n_boxes : int
        Number of boxes examined while pricing.
    seconds : float
        Time since the start.
    """

    n_atoms: int
    primal: float
    dual: float
    n_boxes: int
    seconds: float


@dataclass(frozen=True, eq=False)
class CompleteSolution:
    """An optimum over all neurons of a family.

    Parameters
    ----------
    solution : Solution
        The solution over the generated neurons; its own certificate is about those.
    certificate : Certificate
        The certificate over all neurons, with scope "complete".
    family : LIFFamily or FamilyUnion
        The neurons that it covers.
    rounds : tuple of Round
        The rounds of column generation.
    parameters : integer array of shape (n_neurons, dimension)
        The neurons generated, from which a longer search can start.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import theory
    >>> inputs = np.array([[1.0, 0.5, 1.0], [-1.0, 1.0, 0.25]])[:, :, None]
    >>> family = theory.LIFFamily(decay=0.5)
    >>> found = theory.solve_complete(inputs, [1.0, -1.0], family, "squared", 0.1)
    >>> found.certificate.scope, found.certificate.relative_gap <= 1e-4
    ('complete', True)
    """

    solution: Solution
    certificate: Certificate
    family: LIFFamily | FamilyUnion
    rounds: tuple[Round, ...]
    parameters: IntArray

    def __str__(self) -> str:
        """Return the bounds and the neurons that they are about."""
        return f"{self.certificate}: {self.family}"


def solve_complete(
    inputs: Array,
    targets: Array | Mapping[str, Array],
    family: LIFFamily | FamilyUnion,
    loss: str | Loss | Mapping[str, str | Loss] = "squared",
    l1_strength: float = 0.1,
    *,
    l2_strength: float = 0.0,
    penalty: str | Penalty = "l1",
    readout: Readout = "last",
    intercept: bool = False,
    tol: float = 1e-4,
    n_start: int = 256,
    start: IntArray | None = None,
    max_rounds: int = 200,
    max_boxes: int = 10**9,
    max_seconds: float = inf,
    seed: int = 0,
    callback: Callable[[Round], None] | None = None,
    pulse: Callable[[int, int], bool] | None = None,
) -> CompleteSolution:
    """Solve the convex program over every LIF neuron of a family.

    Each round solves over the neurons generated so far, prices the dual point over all neurons, and adds those that
    violate it. The proven bound on the price turns the dual point into one of the complete problem, so the certificate
    is valid whenever the search stops. Neurons with equal spikes, as far as they are read, count as one, which matters
    with an ``l2_strength`` only.

    Parameters
    ----------
    inputs : array of shape (n_samples, n_steps, n_features)
        The sequences.
    targets : array of shape (n_rows,) or (n_rows, n_outputs)
        The targets, as for :class:`cvxsnn.ConvexProblem`.
    family : LIFFamily or FamilyUnion
        The neurons to optimise over.
    loss : str or Loss
        The loss, as for :class:`cvxsnn.ConvexProblem`.
    l1_strength : float
        The number that multiplies the norm, above zero: without it every neuron is active.
    l2_strength : float
        The number that multiplies half the sum of squares, for the elastic nets.
    penalty : str or Penalty
        The penalty, as for :class:`cvxsnn.ConvexProblem`.
    readout : "last", "all" or "mean"
        Which steps the read-out sees.
    intercept : bool
        Whether a constant without penalty is added to each output.
    tol : float
        Relative gap of the complete problem to reach.
    n_start : int
        Number of random neurons to start with.
    start : integer array of shape (n_neurons, dimension), optional
        More neurons to start with, such as the ``parameters`` of an earlier result: then its work is not done again.
    max_rounds : int
        Limit on the rounds.
    max_boxes : int
        Limit on the boxes that one pricing examines.
    max_seconds : float
        Limit on the time.
    seed : int
        Seed of the random neurons.
    callback : callable, optional
        Called with each :class:`Round`.
    pulse : callable, optional
        Called as ``pulse(n_boxes, n_open)`` while boxes are searched. Return True to stop; later calls must also
        return True. The bound proven so far is returned.

    Returns
    -------
    CompleteSolution
        The solution with a certificate over all neurons of the family.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import theory
    >>> inputs = np.array([[1.0, 0.5, 1.0], [-1.0, 1.0, 0.25]])[:, :, None]
    >>> family = theory.LIFFamily(decay=0.5)
    >>> found = theory.solve_complete(inputs, [1.0, -1.0], family, "squared", 0.1)
    >>> found.certificate.scope, found.certificate.relative_gap <= 1e-4
    ('complete', True)
    """
    check_strengths(l1_strength, l2_strength, make_penalty(penalty))
    check_prices(l1_strength, "all neurons of a family")
    readout = check_complete_readout(readout)
    begin = time.monotonic()
    inputs = as_inputs(inputs).cpu()
    events = family.on(inputs)
    parameters = _random_neurons(events, n_start, seed)
    if start is not None:
        parameters = np.concatenate((parameters, events.representable(np.asarray(start, dtype=object))))
    best: tuple[float, Solution] | None = None
    best_dual = -inf
    rounds = []
    n_stale = 0
    for _ in range(max_rounds):
        problem = ConvexProblem(
            build_dictionary(witnesses_of(events, parameters), inputs, readout),
            targets,
            loss,
            l1_strength,
            l2_strength=l2_strength,
            penalty=penalty,
            intercept=intercept,
        )
        if problem.n_outputs > 1 and isinstance(problem.penalty, GroupL2) and l2_strength:
            raise InvalidInputError(
                f"expected one output, or penalty 'l1', 'group' or 'elastic-net' for an optimum over all neurons, got "
                f"{plural(problem.n_outputs, 'output')} with penalty {problem.penalty.name!r}"
            )
        solution = solve(problem, _SETTINGS.solver_share * tol)
        if best is None or solution.certificate.primal < best[0]:
            best = (solution.certificate.primal, solution)
        left = max_seconds - (time.monotonic() - begin)
        found = price_dual(
            events,
            problem,
            solution.dual_point,
            _enough(problem, solution, best[0], tol),
            # Late, or if the last neurons were known already, a bound is worth more than another neuron.
            is_thorough=n_stale > 0 or left < 0.5 * max_seconds,
            max_boxes=max_boxes,
            max_seconds=left,
            start=parameters[problem.dictionary.column_of_atom.cpu()[solution.support.cpu()].numpy()],
            pulse=pulse,
        )
        best_dual = max(best_dual, certify_with_bound(problem, solution.dual_point, found.bounds))
        rounds.append(Round(problem.dictionary.n_atoms, best[0], best_dual, found.n_boxes, time.monotonic() - begin))
        if callback is not None:
            callback(rounds[-1])
        certificate = checked_certificate(Certificate(best[0], best_dual, "complete"))
        is_late = time.monotonic() - begin >= max_seconds or (pulse is not None and pulse(0, 0))
        if certificate.relative_gap <= tol or is_late or found.value <= l1_strength:
            break
        fresh = events.representable(found.parameters)
        is_stale = len(fresh) == 0 or (len(rounds) > 1 and rounds[-1].n_atoms == rounds[-2].n_atoms)
        n_stale = n_stale + 1 if is_stale else 0
        if n_stale > _SETTINGS.max_stale:
            # No float64 layer can hold the better neurons: the bound stays valid, but they cannot be read.
            break
        parameters = np.concatenate((parameters, fresh.reshape(-1, events.dimension)))
    assert best is not None
    return CompleteSolution(best[1], certificate, family, tuple(rounds), parameters)


def _enough(problem: ConvexProblem, solution: Solution, primal: float, tol: float) -> float:
    """Return the largest price, at least the strength, at which the gap is within the tolerance."""
    is_group = isinstance(problem.penalty, GroupL2)
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = 0.5 * (low + high)
        limit = (1 + middle) * problem.l1_strength
        bounds = [limit, *[0.0 if is_group else limit] * (problem.n_outputs - 1)]
        dual = certify_with_bound(problem, solution.dual_point, bounds)
        low, high = (middle, high) if primal - dual <= _SETTINGS.gap_share * tol * abs(primal) else (low, middle)
    return (1 + low) * problem.l1_strength


@dataclass(frozen=True, eq=False)
class SolutionPrice:
    """Prices of a dual point over all neurons.

    Parameters
    ----------
    prices : tuple of Price
        One price per output, or one for all of them.
    bounds : tuple of float
        One number per output, as :func:`cvxsnn.convex.certify_with_bound` expects them.
    """

    prices: tuple[Price, ...]
    bounds: tuple[float, ...]

    @property
    def value(self) -> float:
        """The largest price found."""
        return max(found.value for found in self.prices)

    @property
    def n_boxes(self) -> int:
        """Number of boxes examined."""
        return sum(found.n_boxes for found in self.prices)

    @property
    def parameters(self) -> IntArray:
        """Neurons with high prices."""
        return np.concatenate([found.parameters for found in self.prices])


def price_dual(
    events: LIFEvents | UnionEvents, problem: ConvexProblem, dual_point: Tensor, enough: float, **limits: Any
) -> SolutionPrice:
    """Price a dual point over all neurons: output by output, or for a group all of them at once.

    If the problem has an ``l2_strength``, prices of active atoms are above the strength; then neurons that do what an
    atom does, as far as they are read, are not priced. ``limits`` are those of :func:`price`.
    """
    readout = check_complete_readout(problem.dictionary.readout)
    weights = spread_over_steps(dual_point.detach().cpu().numpy(), readout, events)
    weights = weights / (events.n_steps if readout == "mean" else 1)
    limits |= {"enough": enough, "n_found": _SETTINGS.n_added}
    n_outputs = weights.shape[2]
    exempt = problem.dictionary if problem.l2_strength else None
    if exempt is None and isinstance(problem.penalty, GroupL2) and n_outputs > 1:
        found = price(events, weights, is_group=True, **limits)
        # A vector with this norm: certify_with_bound takes the norm of the bounds on single outputs.
        return SolutionPrice((found,), (found.bound, *[0.0] * (n_outputs - 1)))
    prices = tuple(price(events, weights[:, :, k], exempt=exempt, **limits) for k in range(n_outputs))
    return SolutionPrice(prices, tuple(found.bound for found in prices))


def spread_over_steps(dual: npt.NDArray[Any], readout: Readout, events: LIFEvents | UnionEvents) -> npt.NDArray[Any]:
    """Return a dual point as weights of single spikes, (n_samples, n_steps, n_outputs); for "mean", times n_steps."""
    weights = np.zeros((events.n_samples, events.n_steps, dual.shape[1]), dtype=dual.dtype)
    if readout == "all":
        weights[:] = dual.reshape(weights.shape)
    elif readout == "last":
        weights[:, -1] = dual
    else:
        weights[:] = dual[:, None]
    return weights


def witnesses_of(events: LIFEvents | UnionEvents, parameters: IntArray) -> WitnessSet:
    """Return neurons with these parameters as witnesses."""
    return WitnessSet(
        (events.layer(parameters),), Provenance("pretrained", {"method": "pricing", "family": events.family.record()})
    )


def _random_neurons(events: LIFEvents | UnionEvents, n_neurons: int, seed: int) -> IntArray:
    if isinstance(events, UnionEvents):
        return events.random(lambda own: _random_neurons(own, n_neurons, seed))
    generator = child_generator(seed, "column generation", "start")
    scale = 2.0**_SETTINGS.start_bits / np.array(
        [1.0] * events.n_weights + [events.unit] * (events.dimension - events.n_weights)
    )
    drawn = np.rint(generator.standard_normal((n_neurons, events.dimension)) * scale)
    if not events.family.negative_threshold:
        drawn[:, -1] = abs(drawn[:, -1])
    return np.array([[int(x) for x in row] for row in drawn], dtype=object)
