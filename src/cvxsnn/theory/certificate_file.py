"""Certificates of global optima in files that others can check without this library.

A file holds the data, the network, a dual point of whole numbers, and the list of boxes that cover all neurons. It is
checked by ``tools/check_certificate.py``, which uses whole numbers and fractions only.
"""

import json
import os
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..convex import Certificate, ConvexProblem, Solution, certify_with_bound
from ..convex.certificate import checked_certificate
from ..core.checks import Array
from ..core.errors import InvalidInputError
from ..core.storage import write_atomically
from ..neurons.exact import snap_inputs
from .box_search import BoxSearch, Found, Proof
from .column_generation import CompleteSolution
from .integers import as_integers
from .lif_family import LIFEvents, check_complete_readout
from .pricing import round_dual
from .spike_trees import SpikeTrees

FORMAT = "cvxsnn complete certificate 1"


def write_certificate(path: str | os.PathLike[str], result: CompleteSolution, inputs: Array) -> Certificate:
    """Write a certificate over all neurons of a family to a file that can be checked without this library.

    The file contains the sequences and the targets.

    Parameters
    ----------
    path : str or path
        The file, in the JSON format.
    result : CompleteSolution
        What :func:`solve_complete` returned, for the squared or the logistic loss and the L1 penalty.
    inputs : array of shape (n_samples, n_steps, n_features)
        The sequences.

    Returns
    -------
    Certificate
        What the file proves.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from cvxsnn import theory
    >>> inputs = np.array([[1.0, 0.5, 1.0], [-1.0, 1.0, 0.25]])[:, :, None]
    >>> found = theory.solve_complete(inputs, [1.0, -1.0], theory.LIFFamily(decay=0.5), "squared", 0.1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     theory.write_certificate(Path(folder) / "proof.json", found, inputs).scope
    'complete'
    """
    solution, problem = result.solution, result.solution.problem
    head, events = problem.heads[0], result.family.on(inputs)
    dual, unit = _whole_dual(problem, solution)
    found, scale = _search(events, problem, dual, unit)
    limit = ceil(Fraction(found.bound) / scale)
    exact = torch.from_numpy(dual.astype(np.float64) * unit)
    lower = certify_with_bound(problem, exact, [limit * unit] * problem.n_outputs)
    certificate = checked_certificate(problem, Certificate(solution.certificate.primal, lower, "complete"))
    ratio = Fraction(result.family.decay)
    values, _ = as_integers(snap_inputs(result.family.read(inputs)).cpu().numpy())
    support = solution.support.cpu()
    neurons = result.parameters[problem.dictionary.column_of_atom.cpu()[support].numpy()]
    file = {
        "format": FORMAT,
        "decay": [ratio.numerator, ratio.denominator],
        "bias": result.family.bias,
        "negative_threshold": result.family.negative_threshold,
        "readout": problem.dictionary.readout,
        "loss": head.loss.name,
        "penalty": "l1",
        "strength": float(problem.l1_strength).hex(),
        "has_intercept": problem.intercept,
        "primal": certificate.primal.hex(),
        "lower_bound": certificate.dual.hex(),
        "inputs": [[[int(x) for x in step] for step in sequence] for sequence in values],
        "targets": [[float(x).hex() for x in row] for row in head.targets.tolist()],
        "neurons": [[int(x) for x in row] for row in neurons],
        "coef": [[float(x).hex() for x in row] for row in solution.coef[support].tolist()],
        "intercept": [float(x).hex() for x in solution.intercept.tolist()],
        "dual_exponent": round(np.log2(unit)),
        "dual": [[int(x) for x in row] for row in dual],
        "price_bound": limit,
        "proofs": _table(found.proof),
    }
    write_atomically(Path(path), json.dumps(file, separators=(",", ":")).encode())
    return certificate


def _whole_dual(problem: ConvexProblem, solution: Solution) -> tuple[npt.NDArray[np.int64], float]:
    """Return the dual point as integers times a power of two, feasible exactly."""
    n_rows, head = len(problem.row_weight), problem.heads[0]
    if head.loss.name not in ("squared", "logistic") or problem.l2_strength or len(problem.heads) != 1:
        raise InvalidInputError(
            "expected the squared or the logistic loss with the L1 penalty for a certificate in a file, got "
            f"{problem!r}: use loss='squared' and penalty='l1'"
        )
    if bool((problem.row_weight != problem.row_weight[0]).any()):
        raise InvalidInputError("expected rows of equal weight for a certificate in a file, got sample weights")
    dual, unit = round_dual(solution.dual_point.cpu().numpy())
    targets = head.targets.cpu().numpy()
    if head.loss.name == "logistic":  # 0 <= n λ y <= 1
        largest = int(Fraction(1) / (Fraction(unit) * n_rows))
        dual = np.clip(dual * targets.astype(np.int64), 0, largest) * targets.astype(np.int64)
    if problem.intercept:
        for column in dual.T:
            excess = int(column.sum())
            inner = np.argsort(np.abs(np.abs(column) - np.abs(column).max() // 2))  # in the middle of the domain
            column[inner[0]] -= excess
    return dual, unit


def _search(events: LIFEvents, problem: ConvexProblem, dual: npt.NDArray[np.int64], unit: float) -> tuple[Found, int]:
    """Return a search with its proof, and by what sums over the steps must be divided."""
    readout = check_complete_readout(problem.dictionary.readout)
    weights = np.zeros((events.n_samples, events.n_steps, dual.shape[1]), dtype=np.int64)
    if readout == "all":
        weights = dual.reshape(weights.shape)
    elif readout == "last":
        weights[:, -1] = dual
    else:
        weights[:] = dual[:, None]
    scale = events.n_steps if readout == "mean" else 1
    search = BoxSearch(problem.l1_strength / unit * scale, keeps_proof=True)
    return search.run(SpikeTrees.of(events, weights)), scale


def _table(proof: Proof | None) -> list[dict[str, Any]]:
    """Return a proof and those inside it, each once, the outermost last."""
    numbers: dict[int, int] = {}
    table: list[dict[str, Any]] = []

    def add(own: Proof | None) -> int:
        if own is None:
            return -1
        if id(own) not in numbers:
            if own.frame.slack:
                raise InvalidInputError(
                    "expected inputs of fewer bits for a certificate in a file: round them, for example to multiples "
                    "of 1/256"
                )
            code, uses = own.walk()
            closer = [[factor, add(inner)] for factor, inner in uses]
            numbers[id(own)] = len(table)
            table.append(
                {
                    "columns": list(own.frame.columns),
                    "basis": [[int(x) for x in row] for row in own.frame.basis],
                    "levels": own.frame.n_levels,
                    "code": code,
                    "closer": closer,
                }
            )
        return numbers[id(own)]

    add(proof)
    return table
