"""Proofs over all neurons that are kept in a file, can be stopped at any time, and go on from there."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from ..convex import Certificate, ConvexProblem, Solution, solve
from ..convex.certificate import checked_certificate
from ..convex.losses import Loss
from ..core.checks import Array
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..data.sequences import TrainingSet, as_inputs
from ..dictionary import Readout, build_dictionary
from ..network.reconstruction import Proof
from .certificate_file import (
    as_rows,
    network_of,
    read_hints,
    read_neurons,
    save_certificate,
    search_boxes,
    statement,
    whole_dual,
)
from .column_generation import CompleteSolution, Round, solve_complete, witnesses_of
from .complete_certificate import family_of
from .integers import IntArray
from .lif_family import LIFEvents, LIFFamily


@dataclass(frozen=True)
class _Settings:
    proof_share: float = 0.25
    """Share of the relative gap that prices above the strength may make."""
    search_share: float = 0.7
    """Share of the time for finding neurons."""
    last_tol: float = 1e-9
    """Relative gap of the read-out of the network in the file, over its own neurons."""


_SETTINGS = _Settings()


def prove_complete(
    path: str | os.PathLike[str],
    inputs: Array,
    targets: Array | Mapping[str, Array],
    family: LIFFamily,
    loss: str | Loss | Mapping[str, str | Loss] = "squared",
    l1_strength: float = 0.1,
    *,
    readout: Readout = "last",
    intercept: bool = False,
    tol: float = 1e-3,
    max_seconds: float = inf,
    seed: int = 0,
    callback: Callable[[Round], None] | None = None,
    pulse: Callable[[int, int], bool] | None = None,
) -> CompleteSolution:
    """Find a network that is optimal over all neurons of a family, and keep its proof in a file.

    Column generation finds the neurons, then boxes over all neurons prove the bound. Whenever this stops, the file is
    a valid certificate. If the file exists, the work goes on from its neurons and its boxes. Nothing in it is believed:
    objectives and bounds are computed again.

    Parameters
    ----------
    path : str or path
        The certificate file.
    inputs : array of shape (n_samples, n_steps, n_features)
        The sequences.
    targets : array of shape (n_rows,) or (n_rows, n_outputs)
        The targets.
    family : LIFFamily
        The neurons to optimise over.
    loss : "squared" or "logistic"
        The loss.
    l1_strength : float
        The strength of the L1 penalty.
    readout : "last", "all" or "mean"
        Which steps the read-out sees.
    intercept : bool
        Whether a constant without penalty is added to each output.
    tol : float
        Relative gap to prove.
    max_seconds : float
        Limit on the time.
    seed : int
        Seed of the random neurons to start with.
    callback : callable, optional
        Called with each :class:`Round` of column generation.
    pulse : callable, optional
        Called as ``pulse(n_boxes, n_open)`` while boxes are searched. Return True to stop; later calls must also
        return True. The file then holds the bound proven so far.

    Returns
    -------
    CompleteSolution
        The network in the file; its certificate is what the file proves.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from cvxsnn import theory
    >>> inputs = np.array([[1.0, 0.5, 1.0], [-1.0, 1.0, 0.25]])[:, :, None]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = theory.prove_complete(Path(folder) / "proof.json", inputs, [1.0, -1.0], theory.LIFFamily(0.5))
    >>> found.certificate.scope, found.certificate.relative_gap <= 1e-3
    ('complete', True)
    """
    deadline = time.monotonic() + max_seconds
    inputs = as_inputs(inputs).cpu()
    events = family.on(inputs)

    def problem_of(neurons: IntArray) -> ConvexProblem:
        dictionary = build_dictionary(witnesses_of(events, neurons), inputs, readout)
        return ConvexProblem(dictionary, targets, loss, l1_strength, intercept=intercept)

    def left() -> float:
        return max(0.0, deadline - time.monotonic())

    def is_stopped() -> bool:
        return left() == 0 or (pulse is not None and pulse(0, 0))

    limits: dict[str, Any] = {"tol": _SETTINGS.proof_share * tol, "pulse": pulse}
    stated = statement(events, problem_of(_any_neuron(events)), inputs)
    work = _Work(generated=_any_neuron(events)[:0])
    if Path(path).exists():
        # The file is a list of hints: neurons to start from, and boxes to look at. All numbers are computed again.
        hints = read_hints(path, stated, events)
        problem = problem_of(np.concatenate((_any_neuron(events), hints.generated)))
        work.generated = hints.generated
        work.take_network(_solve_last(problem_of, events, hints.neurons))
        for one in hints.searches:
            # Where better neurons are known, another dual point will prove more.
            seconds = 0.0 if one.has_violators else left()
            work.take_evidence(
                search_boxes(events, problem, stated, one.dual, one.unit, one.searches, max_seconds=seconds, **limits)
            )
        work.save(path, stated)
    if work.relative_gap > tol and not (work.evidence and is_stopped()):
        found = solve_complete(
            inputs, targets, family, loss, l1_strength, readout=readout, intercept=intercept, tol=tol, seed=seed,
            callback=callback, start=work.generated if len(work.generated) else None,
            max_seconds=_SETTINGS.search_share * left(), pulse=pulse,
        )  # fmt: skip
        work.generated = found.parameters
        dual, unit = whole_dual(found.solution.problem, found.solution.dual_point)
        evidence = search_boxes(events, found.solution.problem, stated, dual, unit, max_seconds=left(), **limits)
        work.take_network(_solve_last(problem_of, events, read_neurons(found.solution, found.parameters)))
        work.take_evidence(evidence)
        work.save(path, stated)
    return work.result(family)


@dataclass
class _Work:
    """The best network and the best bound so far, both computed here, and what a search can go on from."""

    generated: IntArray
    neurons: IntArray | None = None
    solution: Solution | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    pending: dict[str, Any] | None = None

    def take_network(self, found: tuple[IntArray, Solution]) -> None:
        """Keep the better network."""
        if self.solution is None or found[1].certificate.primal < self.solution.certificate.primal:
            self.neurons, self.solution = found

    def take_evidence(self, found: dict[str, Any]) -> None:
        """Keep what proves more, the other search if it is not finished, and the neurons that were found."""
        best, other = self.evidence, found
        if not best or found["lower_bound"] >= best["lower_bound"]:
            best, other = other, best
        self.evidence = best
        if other:
            self.pending = None if other["is_finished"] else other
        known = set(map(tuple, self.generated.tolist()))
        rows = [row for row in found["violators"] if tuple(row) not in known]
        self.generated = np.concatenate((self.generated, as_rows(rows, self.generated.shape[1])))

    @property
    def relative_gap(self) -> float:
        """The relative gap that the file proves."""
        if self.solution is None or not self.evidence:
            return inf
        return self.certificate.relative_gap

    @property
    def certificate(self) -> Certificate:
        """What the file proves."""
        assert self.solution is not None
        stated = Certificate(self.solution.certificate.primal, self.evidence["lower_bound"], "complete")
        return checked_certificate(stated)

    def save(self, path: str | os.PathLike[str], stated: dict[str, Any]) -> None:
        """Write the file."""
        assert self.solution is not None
        assert self.neurons is not None
        if self.evidence:
            file = stated | network_of(self.solution, self.neurons, self.generated) | self.evidence
            save_certificate(path, file | {"pending": self.pending})

    def result(self, family: LIFFamily) -> CompleteSolution:
        """Return the network with what is proven of it."""
        assert self.solution is not None
        assert self.neurons is not None
        solution = replace(self.solution, certificate=self.certificate)
        return CompleteSolution(solution, self.certificate, family, (), self.neurons)


def _any_neuron(events: LIFEvents) -> IntArray:
    """Return the neuron that always fires, as a row."""
    return np.zeros((1, events.dimension), dtype=object)


def _solve_last(
    problem_of: Callable[[IntArray], ConvexProblem], events: LIFEvents, neurons: IntArray
) -> tuple[IntArray, Solution]:
    """Return neurons and their optimal read-out, to the last digits."""
    neurons = neurons if len(neurons) else _any_neuron(events)
    return neurons, solve(problem_of(neurons), _SETTINGS.last_tol)


def prove_proof(
    path: str | os.PathLike[str],
    proof: Proof,
    data: TrainingSet,
    *,
    tol: float = 1e-3,
    max_seconds: float = inf,
    callback: Callable[[Round], None] | None = None,
    pulse: Callable[[int, int], bool] | None = None,
) -> CompleteSolution:
    """Do what :func:`prove_complete` does, for the family, the data and the objective of a model."""
    family = family_of(proof.witnesses, data.sequences.n_steps)
    if not isinstance(family, LIFFamily) or len(proof.witnesses.layers) > 1:
        raise InvalidInputError(
            f"expected one layer of neurons with one decay for a certificate in a file, got {proof.witnesses}: fit "
            "with hidden=(n,) and witnesses={'decay': 0.5}"
        )
    objective = proof.objective
    lengths = data.sequences.lengths
    if lengths is not None:
        raise InvalidInputError(
            f"expected sequences of equal length for a certificate in a file, got from {int(lengths.min())} to "
            f"{int(lengths.max())} steps: cut or resample them and fit again, or certify without a file"
        )
    is_plain = data.sample_weight is None and objective.timestep_weighting == "uniform"
    if (
        not is_plain
        or objective.head_weights
        or proof.l2_strength
        or (proof.penalty.name != "l1" and proof.coef.shape[1] > 1)
    ):
        raise InvalidInputError(
            "expected a model of one head with the L1 penalty, on sequences of equal weight, for a certificate "
            f"in a file, got penalty {proof.penalty.name!r} and {plural(proof.coef.shape[1], 'output')}: fit with "
            "penalty='l1' and without sample weights"
        )
    return prove_complete(
        path, data.inputs, data.targets, family, objective.loss, proof.l1_strength, readout=objective.readout,
        intercept=proof.has_intercept, tol=tol, max_seconds=max_seconds, callback=callback, pulse=pulse,
    )  # fmt: skip
