"""Why a read-out is optimal: objective and lower bound on the way to the certificate, and at other strengths."""

import time
import warnings
from dataclasses import dataclass

import numpy as np
import torch

from ...convex import Certificate, ConvexProblem, Solution, certify, solve
from ...convex.penalties import name_of_penalty
from ...convex.solvers.base import Status
from ...core.errors import BudgetError, ConvergenceWarning
from ...network.energy import count_operations
from ...network.reconstruction import reconstruct
from ...network.spiking_network import SpikingNetwork
from ..formatting import format_bound
from .subject import IntArray, Subject

N_STRENGTHS = 18
SMALLEST_RATIO = 2e-3
TOLERANCE = 1e-4
_OWN_TOLERANCE = 1e-6
_N_COUNTED = 64
_ITERATIONS = 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377
_SMALL_STEPS = "proximal-gradient"
"""A solver of many small steps, to show how objective and bound meet where the model's own takes a single one."""
_MANY_ITERATIONS = 20, 40, 60, 100, 160, 260, 420, 700, 1100
_CLOSE = 0.05
"""Share of the first objective that the gap of the last of the small steps may have, to be shown."""
_ZERO_GAP = 1e-13
_FEW_ACTIVE = 1 / 15
"""Share of the critical strength above which few neurons are active, and matrices are small."""
_DENSE_RATE = 2e10
"""Operations per second that a factorisation of a matrix of all neurons is expected to do."""


@dataclass(frozen=True)
class Moment:
    """A certificate of what a solver had found after some iterations.

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
        One sentence on what the certificate covers, and one on what it does not.
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
    told = (certificate, gap, _proven(certificate, gap), _not_proven(certificate))
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
    if len(moments) == 2 and end.primal - end.dual <= _OWN_TOLERANCE * end.primal:
        left = max_seconds - (time.perf_counter() - started)
        slow = small_steps(problem, left)
        if slow[-1].primal - slow[-1].dual <= _CLOSE * slow[0].primal:
            moments = slow
            source = f"The solver of this model, {solver}, takes a single step. To show how the two meet, the problem "
            source += f"was solved again in small steps, by {_SMALL_STEPS}. {each}"
    return Optimality(*told, moments, solver, source)


def find_path(subject: Subject, problem: ConvexProblem | None, rows: IntArray, max_seconds: float) -> Path:
    """Return optima at other strengths, as many as the time allows; scores are on some rows of the page's data."""
    if problem is None or subject.proof is None:
        return Path((), note=_NO_DATA if subject.proof is not None else "Models without a certificate have no path.")
    if max_seconds <= 0:
        return Path((), note=_NO_TIME)
    own, l2_strength = problem.l1_strength, problem.l2_strength
    largest = problem.critical_strength
    if largest <= 0:
        return Path((), note="All strengths give the same read-out: none at all.")
    smallest = min(own / 4, largest * SMALLEST_RATIO) if own > 0 else largest * SMALLEST_RATIO
    strengths = [float(value) for value in np.geomspace(largest * 0.999, smallest, N_STRENGTHS)]
    deadline, start, note = time.perf_counter() + max_seconds, None, ""
    points: list[PathPoint] = []
    for strength in strengths:
        left = deadline - time.perf_counter()
        if l2_strength and strength < _FEW_ACTIVE * largest:
            left -= problem.dictionary.n_atoms**3 / _DENSE_RATE  # which cannot be interrupted
        found = None if left <= 0 else _solve(problem.with_strength(strength, l2_strength), TOLERANCE, left, start)
        if found is None or found.status is Status.TIME_LIMIT:
            note = (
                f"The path has {len(points)} of {N_STRENGTHS} strengths: weaker ones need more than the time of "
                f"{max_seconds:.0f} seconds, or than the memory, that there is for it."
            )
            break
        start = found
        points.append(_point(subject, reconstruct(found), found.certificate, strength, l2_strength, rows, False))
    points.append(_point(subject, subject.network, subject.proof.certificate, own, l2_strength, rows, True))
    points.sort(key=lambda point: -point.l1_strength)
    losses = " + ".join(dict.fromkeys(head.loss.name for head in problem.heads))
    return Path(tuple(points), name_of_penalty(problem.penalty), losses, len(rows), note)


def _proven(certificate: Certificate, gap: float) -> str:
    over = {
        "sampled": "of these sampled neurons",
        "selected": "of these selected neurons",
        "pool": "of the neurons of the pool",
        "complete": "of any neurons of the family",
    }[certificate.scope]
    bound = (
        "lower at all, to the precision of float64"
        if gap <= _ZERO_GAP
        else f"lower by more than {format_bound(gap)} of it"
    )
    return (
        f"Proven: on the training data, no other output weights {over} make the objective (loss plus penalty, "
        f"{certificate.primal:.6g}) {bound}."
    )


def _not_proven(certificate: Certificate) -> str:
    new_data = "Not proven: that it answers correctly on sequences that it was not trained on"
    if certificate.scope == "complete":
        return f"{new_data}."
    return f"{new_data}, or that other hidden neurons would not do better."


def approach(problem: ConvexProblem, max_seconds: float) -> tuple[tuple[Moment, ...], str]:
    """Return certificates after more and more iterations, each from the start, and the name of the solver."""
    moments, solver = [_beginning(problem)], ""
    deadline = time.perf_counter() + max_seconds
    for iterations in _ITERATIONS:
        left = deadline - time.perf_counter()
        found = None if left <= 0 else _solve(problem, _OWN_TOLERANCE, left, None, iterations)
        if found is None:
            break
        solver = found.solver
        moments.append(Moment(iterations, found.certificate.primal, found.certificate.dual))
        if found.status in (Status.CONVERGED, Status.TIME_LIMIT):
            break
    return tuple(moments), solver


def small_steps(problem: ConvexProblem, max_seconds: float) -> tuple[Moment, ...]:
    """Return certificates on the way of a solver that takes many small steps, as far as the time allows."""
    moments, start = [_beginning(problem)], None
    deadline = time.perf_counter() + max_seconds
    for iterations in _MANY_ITERATIONS:
        left = deadline - time.perf_counter()
        more = iterations - moments[-1].iterations
        found = None if left <= 0 else _solve(problem, _OWN_TOLERANCE, left, start, more, _SMALL_STEPS)
        if found is None or found.status is Status.TIME_LIMIT:
            break
        start = found
        moments.append(Moment(iterations, found.certificate.primal, found.certificate.dual))
        if found.status is Status.CONVERGED:
            break
    return tuple(moments)


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
        outputs = network(some).cpu().numpy()
    evidence, truth = subject.evidence(outputs), subject.targets[rows]
    if subject.classes is None:
        truth = truth.reshape(evidence.shape)
        spread = np.square(truth - truth.mean(0)).sum() or 1.0
        score = 1.0 - float(np.square(truth - evidence).sum() / spread)
    else:
        score = float((subject.decide(evidence) == truth).mean())
    counted = count_operations(network, some.take(slice(0, _N_COUNTED)))
    return PathPoint(
        l1_strength=l1_strength,
        l2_strength=l2_strength,
        score=score,
        n_neurons=network.n_active,
        relative_gap=max(certificate.relative_gap, 0.0),
        synaptic=counted.synaptic_per_sample,
        energy=counted.energy(),
        is_own=is_own,
    )
