"""Proofs over all neurons that are kept in a file, can be stopped at any time, and go on from there."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from ..convex import Certificate, ConvexProblem, solve
from ..convex.certificate import checked_certificate
from ..convex.losses import Loss
from ..core.checks import Array
from ..core.errors import InvalidInputError
from ..data.sequences import TrainingSet, as_inputs
from ..dictionary import Readout, build_dictionary
from ..network.reconstruction import Proof
from .certificate_file import load_certificate, network_of, save_certificate, search_boxes, statement, whole_dual
from .column_generation import CompleteSolution, Round, solve_complete, witnesses_of
from .complete_certificate import family_of
from .integers import IntArray
from .lif_family import LIFEvents, LIFFamily

_PROOF_SHARE, _SEARCH_SHARE = 0.25, 0.7
"""Share of the relative gap that prices above the strength may make, and of the time for finding neurons."""

_LAST_TOL = 1e-9
"""Relative gap of the read-out of the network in the file, over its own neurons."""


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
    a valid certificate. If the file exists, the work goes on from it: with its boxes if they were not finished, and
    with its neurons.

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
        Called as ``pulse(n_boxes, n_open)`` while boxes are searched; once it returns True, it must do so again, and
        the work ends with what is proven by then.

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
    options: dict[str, Any] = {"readout": readout, "intercept": intercept}

    def problem_of(neurons: IntArray) -> ConvexProblem:
        dictionary = build_dictionary(witnesses_of(events, neurons), inputs, readout)
        return ConvexProblem(dictionary, targets, loss, l1_strength, intercept=intercept)

    def left() -> float:
        return max(0.0, deadline - time.monotonic())

    def is_stopped() -> bool:
        return left() == 0 or (pulse is not None and pulse(0, 0))

    limits: dict[str, Any] = {"tol": _PROOF_SHARE * tol, "pulse": pulse}
    file: dict[str, Any] = {}
    if Path(path).exists():
        file = load_certificate(path)
        problem = problem_of(events.representable(_neurons(file["generated"], events)))
        _check_same(file, statement(events, problem, inputs), path)
        left_over = file.pop("pending", None) or (None if file["is_finished"] else dict(file))
        # Where better neurons are known, another dual point will prove more.
        if left_over and left_over["proofs"] and not left_over["violators"]:
            dual, unit = np.array(left_over["dual"], dtype=np.int64), 2.0 ** left_over["dual_exponent"]
            proofs = left_over["proofs"]
            _adopt(file, search_boxes(events, problem, dual, unit, proofs, max_seconds=left(), **limits))
            save_certificate(path, file)
    if not file or (_relative_gap(file) > tol and not is_stopped()):
        start = events.representable(_neurons(file["generated"], events)) if file else None
        found = solve_complete(
            inputs, targets, family, loss, l1_strength, **options, tol=tol, start=start, seed=seed, callback=callback,
            max_seconds=_SEARCH_SHARE * left(), pulse=pulse,
        )  # fmt: skip
        fresh = statement(events, found.solution.problem, inputs) | network_of(found)
        dual, unit = whole_dual(found.solution.problem, found.solution.dual_point)
        evidence = search_boxes(events, found.solution.problem, dual, unit, max_seconds=left(), **limits)
        if file and file["primal"] < fresh["primal"]:
            fresh |= {name: file[name] for name in ("primal", "neurons", "coef", "intercept")}
        file |= fresh
        _adopt(file, evidence)
        save_certificate(path, file)
    # The network in the file is solved to the last digits.
    neurons = _neurons(file["neurons"] or file["generated"][:1], events)
    solution = solve(problem_of(neurons), _LAST_TOL)
    certificate = Certificate(solution.certificate.primal, file["lower_bound"], "complete")
    found = CompleteSolution(
        replace(solution, certificate=certificate),
        checked_certificate(solution.problem, certificate),
        family,
        (),
        neurons,
    )
    save_certificate(path, file | network_of(found) | {"generated": file["generated"]})
    return found


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
            "with hidden=(n,) and decay=0.5"
        )
    objective = proof.objective
    is_plain = (
        data.sample_weight is None and data.sequences.lengths is None and objective.timestep_weighting == "uniform"
    )
    if (
        not is_plain
        or objective.head_weights
        or proof.l2_strength
        or (proof.penalty.name != "l1" and proof.coef.shape[1] > 1)
    ):
        raise InvalidInputError(
            "expected a model of one head with the L1 penalty, on sequences of equal length and weight, for a "
            f"certificate in a file, got penalty {proof.penalty.name!r} and {proof.coef.shape[1]} outputs: fit with "
            "penalty='l1' and without sample weights"
        )
    return prove_complete(
        path, data.inputs, data.targets, family, objective.loss, proof.l1_strength, readout=objective.readout,
        intercept=proof.has_intercept, tol=tol, max_seconds=max_seconds, callback=callback, pulse=pulse,
    )  # fmt: skip


def _neurons(rows: list[list[int]], events: LIFEvents) -> IntArray:
    return np.array(rows, dtype=object).reshape(-1, events.dimension)


def _adopt(file: dict[str, Any], evidence: dict[str, Any]) -> None:
    """Keep what proves more, what is not finished, and the neurons that were found."""
    if evidence["lower_bound"] >= file.get("lower_bound", -inf):
        file |= evidence
    elif not evidence["is_finished"]:
        file["pending"] = evidence
    file["generated"] += [row for row in evidence["violators"] if row not in file["generated"]]


def _relative_gap(file: dict[str, Any]) -> float:
    certificate = Certificate(file["primal"], file["lower_bound"], "complete")
    return checked_certificate("a certificate file", certificate).relative_gap


def _check_same(file: dict[str, Any], expected: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Refuse to go on with a file about something else."""
    other = [name for name, value in expected.items() if file.get(name) != value]
    if other:
        raise InvalidInputError(
            f"expected a certificate file about the same data and objective, to go on with it, got one with another "
            f"{', '.join(other)}: give another name than {path}"
        )
