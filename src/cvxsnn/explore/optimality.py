"""Why a read-out is optimal: how objective and lower bound meet, and the optima at other strengths."""

import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace

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
    """Objective and lower bound of a solver's result after some iterations.

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


_NO_DATA = (
    "The training data are not available, so only results stored with the model are shown. Pass the training data "
    "(--train FILE on the command line) to see more."
)

_NO_TIME = "There was no time to solve the problem again, so only results stored with the model are shown."


def prove(subject: Subject, problem: ConvexProblem | None, max_seconds: float) -> SimpleNamespace:
    """Explain what is proven, with certificates of intermediate results if the problem can be solved again.

    Parameters
    ----------
    subject : Subject
        The model.
    problem : ConvexProblem or None
        The problem that it solves; None if the training data are not available.
    max_seconds : float
        Time for solving again.

    Returns
    -------
    SimpleNamespace
        ``certificate`` of the training, or None; ``relative_gap``, its gap as a share of the objective;
        ``proven`` and ``not_proven``, sentences on what the certificate covers and what it does not; ``moments``, a
        list of :class:`Moment`; the ``solver``; and ``source``, a sentence on where the moments come from.
    """
    nothing = "Nothing is proven: the read-out was trained by gradient descent, which has no certificate."
    texts = {"proven": nothing, "not_proven": "", "solver": "", "source": ""}
    result = SimpleNamespace(certificate=None, relative_gap=None, moments=[], **texts)
    if subject.proof is None:
        return result
    result.certificate = certificate = subject.proof.certificate
    result.relative_gap = certificate.relative_gap
    # The text explains what is proven first, and begins its second part with these words.
    proven, marker, not_proven = " ".join(certificate.explain().splitlines()).partition("Not proven")
    result.proven, result.not_proven = proven.rstrip(), marker + not_proven
    if problem is None or max_seconds <= 0:
        result.source = _NO_DATA if problem is None else _NO_TIME
        return result
    started = time.perf_counter()
    moments, solver = approach(problem, max_seconds)
    if not solver:
        result.source = "The problem is too large to be solved again for this page."
        return result
    result.moments = moments
    result.solver = solver
    end = moments[-1]
    each = "Each point is a certificate of its own, computed from the training data."
    steps = "in one step" if end.iterations == 1 else f"with at most {end.iterations} iterations"
    result.source = f"For this page the problem was solved again by the solver {solver}, {steps}. {each}"
    if len(moments) == 2 and end.primal - end.dual <= LIMITS.tolerance * end.primal:
        slow, name = approach(problem, max_seconds - (time.perf_counter() - started), in_small_steps=True)
        if slow[-1].primal - slow[-1].dual <= LIMITS.close * slow[0].primal:
            result.moments = slow
            result.source = (
                f"The solver of this model, {solver}, takes a single step. To show how the two meet, the problem was "
                f"solved again in small steps, by {name}. {each}"
            )
    return result


def find_path(subject: Subject, problem: ConvexProblem | None, rows: IntArray, max_seconds: float) -> SimpleNamespace:
    """Find the optima of the same neurons at other strengths, as many as the time allows.

    Parameters
    ----------
    subject : Subject
        The model.
    problem : ConvexProblem or None
        The problem that it solves.
    rows : array of int
        Sequences of the page on which to score.
    max_seconds : float
        Time for the path.

    Returns
    -------
    SimpleNamespace
        ``penalty`` and ``loss``, their names; ``n_samples`` that scores are of; ``note``, why points are missing, or
        all of them. ``points`` from the largest strength, each with ``l1_strength``, ``l2_strength``, ``score``
        (accuracy or R²), ``n_neurons`` that are read, ``relative_gap``, ``synaptic`` operations and ``energy`` (joules
        of 32-bit arithmetic in 45 nm) per sequence, and ``is_own``, whether it is the model of the page.
    """
    path = SimpleNamespace(points=[], penalty="", loss="", n_samples=0, note="")
    if problem is None or subject.proof is None or max_seconds <= 0:
        path.note = _NO_TIME if problem is not None else _NO_DATA
        if subject.proof is None:
            path.note = "Models without a certificate have no path."
        return path
    l1_strength = problem.l1_strength
    l2_strength = problem.l2_strength
    largest = problem.critical_strength
    if largest <= 0:
        path.note = "All strengths give the same read-out: none at all."
        return path
    # The path goes beyond the strength of the model, which may be zero.
    smallest = min(l1_strength / 4 or largest, largest * LIMITS.smallest_ratio)
    deadline, solution = time.perf_counter() + max_seconds, None
    # At the critical strength itself, no neuron is read.
    for strength in np.geomspace(largest * 0.999, smallest, LIMITS.strengths).tolist():
        seconds = deadline - time.perf_counter()
        if l2_strength and strength < LIMITS.few_active * largest:
            seconds -= problem.dictionary.n_atoms**3 / LIMITS.dense_rate  # a factorisation cannot be interrupted
        at_strength = problem.with_strength(strength, l2_strength)
        solution = _solve(at_strength, LIMITS.path_tolerance, seconds, solution) if seconds > 0 else None
        if solution is None or solution.status is Status.TIME_LIMIT:
            path.note = (
                f"The path has {len(path.points)} of {LIMITS.strengths} strengths: weaker ones need more memory than "
                f"there is, or more time than {max_seconds:.0f} seconds."
            )
            break
        path.points.append(_point(subject, reconstruct(solution), solution.certificate, at_strength, rows))
    path.points.append(_point(subject, subject.network, subject.proof.certificate, problem, rows, is_own=True))
    path.points.sort(key=lambda point: -point.l1_strength)
    path.penalty, path.n_samples = name_of_penalty(problem.penalty), len(rows)
    path.loss = " + ".join(dict.fromkeys(head.loss.name for head in problem.heads))
    return path


def approach(problem: ConvexProblem, max_seconds: float, *, in_small_steps: bool = False) -> tuple[list[Moment], str]:
    """Return certificates after more and more iterations, and the name of the solver.

    By default the solver that suits the problem starts afresh for each of them. In small steps, a solver that takes
    many of them continues from one to the next.
    """
    coef = problem.row_weight.new_zeros(problem.dictionary.n_atoms, problem.n_outputs)
    without_weights, _ = certify(problem, coef, problem.null_intercept)
    moments = [Moment(0, without_weights.primal, without_weights.dual)]
    name = ""
    start = None
    deadline = time.perf_counter() + max_seconds
    for iterations in LIMITS.small_steps if in_small_steps else LIMITS.iterations:
        seconds = deadline - time.perf_counter()
        if seconds <= 0:
            break
        if in_small_steps:
            more = iterations - moments[-1].iterations
            start = solution = _solve(problem, LIMITS.tolerance, seconds, start, more, "reference")
        else:
            # From a warm start, the number of iterations would mean nothing.
            solution = _solve(problem, LIMITS.tolerance, seconds, None, iterations)
        if solution is None or (in_small_steps and solution.status is Status.TIME_LIMIT):
            break
        name = solution.solver
        moments.append(Moment(iterations, solution.certificate.primal, solution.certificate.dual))
        if solution.status in (Status.CONVERGED, Status.TIME_LIMIT):
            break
    return moments, name


def _solve(
    problem: ConvexProblem,
    tol: float,
    seconds: float,
    start: Solution | None,
    iterations: int | None = None,
    solver: str = "auto",
) -> Solution | None:
    """Return a solution, converged or not, or None if memory does not suffice."""
    with warnings.catch_warnings(), suppress(BudgetError):
        # Results before convergence are wanted here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(problem, tol, solver=solver, start=start, max_iterations=iterations, max_seconds=seconds)
    return None


def _point(
    subject: Subject,
    network: SpikingNetwork,
    certificate: Certificate,
    problem: ConvexProblem,
    rows: IntArray,
    is_own: bool = False,
) -> SimpleNamespace:
    sequences = subject.sequences.take(torch.from_numpy(rows))
    # The model is scored on the data of the page, which may be test data; the gap is about the training data.
    with torch.no_grad():
        evidence = subject.evidence(network(sequences).cpu().numpy())
    counted = count_operations(network, sequences.take(slice(0, subject.affordable(LIMITS.path_counted))))
    return SimpleNamespace(
        l1_strength=problem.l1_strength,
        l2_strength=problem.l2_strength,
        score=subject.score(evidence, rows),
        n_neurons=network.n_active,
        relative_gap=certificate.relative_gap,
        synaptic=counted.synaptic_per_sample,
        energy=counted.energy(),
        is_own=is_own,
    )
