"""Why a read-out is optimal: objective and lower bound on the way to the certificate, and at other strengths."""

import time
import warnings
from dataclasses import dataclass

import numpy as np
import torch

from ..convex import Certificate, ConvexProblem, Solution, Status, certify, solve
from ..convex.penalties import name_of_penalty
from ..core.errors import BudgetError, ConvergenceWarning
from ..network.energy import count_operations
from ..network.reconstruction import reconstruct
from ..network.spiking_network import SpikingNetwork
from .limits import LIMITS
from .subject import IntArray, Subject


@dataclass(frozen=True)
class Moment:
    """A certificate of what a solver had solution after some iterations.

    Parameters
    ----------
    iterations : int
        Iterations of the solver; 0 for a read-out without weights.
    primal : float
        The objective.
    dual : float
        The lower bound on the objective of any read-out.
    """

    iterations: int
    primal: float
    dual: float


@dataclass(frozen=True)
class Optimality:
    """What is proven, and how it came about.

    Parameters
    ----------
    certificate : Certificate or None
        What was proven when the model was trained; None if nothing was.
    relative_gap : float or None
        Its gap as a share of the objective, at least zero.
    proven, not_proven : str
        What the certificate covers, and what it does not, in a few sentences.
    moments : tuple of Moment
        Certificates on the way; empty if the training data are not at hand.
    solver : str
        The solver.
    source : str
        Where the moments come from, in words.
    """

    certificate: Certificate | None
    relative_gap: float | None
    proven: str
    not_proven: str
    moments: tuple[Moment, ...]
    solver: str
    source: str


@dataclass(frozen=True)
class PathPoint:
    """The optimum at one strength.

    Parameters
    ----------
    l1_strength, l2_strength : float
        The strengths.
    score : float
        Accuracy, or R², on the data of the page.
    n_neurons : int
        Neurons that are read.
    relative_gap : float
        The certified gap as a share of the objective.
    synaptic : float
        Synaptic operations per sequence.
    energy : float
        Joules per sequence, of 32-bit arithmetic in 45 nm.
    is_own : bool
        Whether it is the model of this page.
    """

    l1_strength: float
    l2_strength: float
    score: float
    n_neurons: int
    relative_gap: float
    synaptic: float
    energy: float
    is_own: bool


@dataclass(frozen=True)
class Path:
    """Optima of the same neurons at falling strengths.

    Parameters
    ----------
    points : tuple of PathPoint
        The optima, from the largest strength; empty if there is no path.
    penalty : str
        The penalty.
    loss : str
        The loss.
    n_samples : int
        Sequences that scores are of.
    note : str
        Why points are missing, or all of them.
    """

    points: tuple[PathPoint, ...]
    penalty: str = ""
    loss: str = ""
    n_samples: int = 0
    note: str = ""


_NO_DATA = (
    "The training data are not at hand: only what the model remembers is shown. Pass them as training data "
    "(--train FILE on the command line) to see more."
)

_NO_TIME = "There was no time for solving the problem again: only what the model remembers is shown."


def prove(subject: Subject, problem: ConvexProblem | None, max_seconds: float) -> Optimality:
    """Return what is proven, with certificates on the way to it where the problem is at hand."""
    if subject.proof is None:
        nothing = "Nothing is proven: the read-out was trained by gradient descent, which has no certificate."
        return Optimality(None, None, nothing, "", (), "", "")
    certificate = subject.proof.certificate
    gap = max(certificate.relative_gap, 0.0)
    sentences = certificate.explain().splitlines()
    first = next(number for number, sentence in enumerate(sentences) if sentence.startswith("Not proven"))
    told = (certificate, gap, " ".join(sentences[:first]), " ".join(sentences[first:]))
    if problem is None or max_seconds <= 0:
        return Optimality(*told, (), "", _NO_DATA if problem is None else _NO_TIME)
    started = time.perf_counter()
    moments, solver = approach(problem, max_seconds)
    if not solver:
        return Optimality(*told, (), "", "The problem is too large to be solved again for this page.")
    end = moments[-1]
    each = "Each point is a certificate of its own, computed from the training data."
    steps = "in one step" if end.iterations == 1 else f"with at most {end.iterations} iterations"
    source = f"For this page the problem was solved again by the solver {solver}, {steps}. {each}"
    if len(moments) == 2 and end.primal - end.dual <= LIMITS.tolerance * end.primal:
        slow, name = approach(problem, max_seconds - (time.perf_counter() - started), in_small_steps=True)
        if slow[-1].primal - slow[-1].dual <= LIMITS.close * slow[0].primal:
            moments = slow
            source = f"The solver of this model, {solver}, takes a single step. To show how the two meet, the problem "
            source += f"was solved again in small steps, by {name}. {each}"
    return Optimality(*told, moments, solver, source)


def find_path(subject: Subject, problem: ConvexProblem | None, rows: IntArray, max_seconds: float) -> Path:
    """Return optima at other strengths, as many as the time allows; scores are on some rows of the page's data."""
    if problem is None or subject.proof is None:
        return Path((), note=_NO_DATA if subject.proof is not None else "Models without a certificate have no path.")
    if max_seconds <= 0:
        return Path((), note=_NO_TIME)
    l1_strength, l2_strength = problem.l1_strength, problem.l2_strength
    largest = problem.critical_strength
    if largest <= 0:
        return Path((), note="All strengths give the same read-out: none at all.")
    smallest = min(l1_strength / 4 or largest, largest * LIMITS.smallest_ratio)
    strengths = [float(value) for value in np.geomspace(largest * 0.999, smallest, LIMITS.strengths)]
    deadline, start, note = time.perf_counter() + max_seconds, None, ""
    points: list[PathPoint] = []
    for strength in strengths:
        left = deadline - time.perf_counter()
        if l2_strength and strength < LIMITS.few_active * largest:
            left -= problem.dictionary.n_atoms**3 / LIMITS.dense_rate  # which cannot be interrupted
        solution = (
            None
            if left <= 0
            else _solve(problem.with_strength(strength, l2_strength), LIMITS.path_tolerance, left, start)
        )
        if solution is None or solution.status is Status.TIME_LIMIT:
            note = (
                f"The path has {len(points)} of {LIMITS.strengths} strengths: weaker ones need more than the time of "
                f"{max_seconds:.0f} seconds, or than the memory, that there is for it."
            )
            break
        start = solution
        points.append(_point(subject, reconstruct(solution), solution.certificate, strength, l2_strength, rows, False))
    points.append(_point(subject, subject.network, subject.proof.certificate, l1_strength, l2_strength, rows, True))
    points.sort(key=lambda point: -point.l1_strength)
    losses = " + ".join(dict.fromkeys(head.loss.name for head in problem.heads))
    return Path(tuple(points), name_of_penalty(problem.penalty), losses, len(rows), note)


def approach(
    problem: ConvexProblem, max_seconds: float, *, in_small_steps: bool = False
) -> tuple[tuple[Moment, ...], str]:
    """Return certificates after more and more iterations, and the name of the solver.

    By default the solver that suits the problem starts afresh for each of them. In small steps, a solver that takes
    many of them goes on from one to the next.
    """
    moments, name, start = [_beginning(problem)], "", None
    deadline = time.perf_counter() + max_seconds
    for iterations in LIMITS.small_steps if in_small_steps else LIMITS.iterations:
        left = deadline - time.perf_counter()
        if left <= 0:
            break
        if in_small_steps:
            more = iterations - moments[-1].iterations
            start = solution = _solve(problem, LIMITS.tolerance, left, start, more, "proximal-gradient")
        else:
            solution = _solve(problem, LIMITS.tolerance, left, None, iterations)
        if solution is None or (in_small_steps and solution.status is Status.TIME_LIMIT):
            break
        name = solution.solver
        moments.append(Moment(iterations, solution.certificate.primal, solution.certificate.dual))
        if solution.status in (Status.CONVERGED, Status.TIME_LIMIT):
            break
    return tuple(moments), name


def _beginning(problem: ConvexProblem) -> Moment:
    """Return the certificate of a read-out without weights."""
    coef = problem.row_weight.new_zeros(problem.dictionary.n_atoms, problem.n_outputs)
    zero, _ = certify(problem, coef, problem.null_intercept)
    return Moment(0, zero.primal, zero.dual)


def _solve(
    problem: ConvexProblem,
    tol: float,
    seconds: float,
    start: Solution | None,
    iterations: int | None = None,
    solver: str = "auto",
) -> Solution | None:
    """Return a solution, converged or not, or None if memory does not suffice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            return solve(problem, tol, solver=solver, start=start, max_iterations=iterations, max_seconds=seconds)
        except BudgetError:
            return None


def _point(
    subject: Subject,
    network: SpikingNetwork,
    certificate: Certificate,
    l1_strength: float,
    l2_strength: float,
    rows: IntArray,
    is_own: bool,
) -> PathPoint:
    some = subject.sequences.take(torch.from_numpy(rows))
    with torch.no_grad():
        evidence = subject.evidence(network(some).cpu().numpy())
    counted = count_operations(network, some.take(slice(0, LIMITS.path_counted)))
    return PathPoint(
        l1_strength=l1_strength,
        l2_strength=l2_strength,
        score=subject.score(evidence, rows),
        n_neurons=network.n_active,
        relative_gap=max(certificate.relative_gap, 0.0),
        synaptic=counted.synaptic_per_sample,
        energy=counted.energy(),
        is_own=is_own,
    )
