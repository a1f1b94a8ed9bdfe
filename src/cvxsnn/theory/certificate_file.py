"""Certificates of global optima in files that others can check without this library.

A file holds the data, the network, a dual point of whole numbers, and the list of boxes that cover all neurons;
docs/proof-files.md defines it. The checker (``check_certificate.py``) has the only reader, so that a search
resumes only files that can be checked.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..convex import Certificate, ConvexProblem, Solution, certify_with_bound
from ..convex.certificate import checked_certificate
from ..core.checks import Array
from ..core.errors import CvxsnnError, DataFileError, InvalidInputError
from ..core.storage import write_atomically
from ..neurons.exact import snap_inputs
from .box_search import BoxSearch, Proof
from .check_certificate import (
    FORMAT,
    ProofFile,
    Search,
    WrongError,
    parse,
    read_certificate,
    read_integer,
    read_matrix,
)  # fmt: skip
from .column_generation import CompleteSolution, read_neurons, spread_over_steps
from .integers import IntArray, as_integers
from .lif_family import LIFEvents, LIFFamily, check_complete_readout
from .pricing import round_dual
from .resumed_proof import resume_proof
from .spike_trees import SpikeTrees


@dataclass(frozen=True)
class _Settings:
    max_exponent: int = 1000
    """Largest exponent of the unit of a dual point in a resumed file: float64 can represent it."""
    dual_bits: int = 52
    """Largest number of bits of the sum of such a dual point: float64 represents it exactly."""
    n_violators: int = 64
    """Largest number of neurons in a file whose prices exceed the strength."""


_SETTINGS = _Settings()


def write_certificate(
    path: str | os.PathLike[str],
    result: CompleteSolution,
    inputs: Array,
    *,
    tol: float = 0.0,
    max_seconds: float = inf,
    pulse: Callable[[int, int], bool] | None = None,
) -> Certificate:
    """Write a certificate over all neurons of a family to a file that can be checked without this library.

    The file contains the sequences and the targets. A search that is stopped leaves a file that proves less.

    Parameters
    ----------
    path : str or path
        The file, in the JSON format.
    result : CompleteSolution
        The result of :func:`solve_complete`, for the squared or the logistic loss and the L1 penalty.
    inputs : array of shape (n_samples, n_steps, n_features)
        The sequences.
    tol : float
        Prices may exceed the strength by this share: larger shares take less time and prove less.
    max_seconds : float
        Limit on the time.
    pulse : callable, optional
        Called as ``pulse(n_boxes, n_open)`` while boxes are searched; True stops the search.

    Returns
    -------
    Certificate
        The certificate that the file proves.

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
    if not isinstance(result.family, LIFFamily):
        raise InvalidInputError(f"expected one family for a certificate in a file, got a union: {result.family}")
    events = result.family.on(inputs)
    dual, unit = whole_dual(problem, solution.dual_point)
    evidence = search_boxes(events, problem, dual, unit, tol=tol, max_seconds=max_seconds, pulse=pulse)
    certificate = checked_certificate(
        problem, Certificate(solution.certificate.primal, evidence["lower_bound"], "complete")
    )
    file = statement(events, problem, inputs) | network_of(solution, result.parameters, result.parameters) | evidence
    save_certificate(path, file)
    return certificate


def save_certificate(path: str | os.PathLike[str], file: dict[str, Any]) -> None:
    """Write a certificate, completely or not at all."""
    write_atomically(Path(path), json.dumps(_plain(file), separators=(",", ":")).encode())


def _plain(value: Any) -> Any:
    """Return a value as it is written in JSON: floats as hexadecimal texts, arrays as lists."""
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        # The checker must read the same number, to the last bit.
        return float(value).hex()
    return int(value) if isinstance(value, np.integer) else value


class SearchHints(NamedTuple):
    """A search to resume: a dual point, the boxes that were examined, and whether better neurons were found."""

    dual: npt.NDArray[np.int64]
    unit: float
    searches: tuple[Search, ...]
    has_violators: bool


class Hints(NamedTuple):
    """Starting points of a search. Types, sizes and ranges are checked; bounds and objectives are computed again."""

    neurons: IntArray
    generated: IntArray
    searches: tuple[SearchHints, ...]


def read_hints(path: str | os.PathLike[str], expected: Mapping[str, Any], events: LIFEvents) -> Hints:
    """Return the starting points of a search from a file about the same data and objective."""
    try:
        file = parse(Path(path).read_text())
        if not isinstance(file, dict) or file.get("format") != FORMAT:
            raise DataFileError(
                f"expected a certificate over all neurons, in the format {FORMAT!r}, got another file: {path}"
            )
        stated = _plain(expected)
        # Texts differ for true and 1, which are equal in Python.
        changed = [name for name in stated if name not in file or repr(file[name]) != repr(stated[name])]
        if changed:
            raise InvalidInputError(
                "expected a certificate file about the same data and objective, to resume it, got one with another "
                f"{', '.join(changed)}: give another name than {path}"
            )
        # The fields of an unfinished search replace those of the file, and are read in the same way.
        contents = [file, *([file | file["pending"]] if file.get("pending") else [])]
        generated = read_matrix("generated", file["generated"], None, events.dimension, read_integer)
        if not events.family.negative_threshold and any(neuron[-1] < 0 for neuron in generated):
            raise ValueError("a threshold is negative")
        return Hints(
            as_rows(read_certificate(file).neurons, events.dimension),
            events.representable(as_rows(generated, events.dimension)),
            tuple(_search_hints(read_certificate(content), bool(content["violators"])) for content in contents),
        )
    except (WrongError, ValueError, KeyError, TypeError) as error:
        # InvalidInputError is a ValueError too, and its own message says more.
        if isinstance(error, CvxsnnError):
            raise
        raise DataFileError(
            f"expected a certificate file as cvxsnn writes it, to resume it, got a damaged or changed one: {path}; "
            "give another name"
        ) from None


def as_rows(rows: Any, width: int) -> IntArray:
    """Return rows of integers as an array, also if there are none."""
    return np.array(rows, dtype=object).reshape(-1, width)


def _search_hints(file: ProofFile, has_violators: bool) -> SearchHints:
    dual = np.array(file.dual, dtype=object)
    if sum(abs(x) for x in dual.flat) >= 2**_SETTINGS.dual_bits or abs(file.dual_exponent) > _SETTINGS.max_exponent:
        raise ValueError("the dual point is too large")
    unit = Fraction(2) ** file.dual_exponent
    shares = dual * np.array(file.targets, dtype=object) * unit * len(dual)  # n λ y
    if file.loss == "logistic" and any(not 0 <= share <= 1 for share in shares.flat):
        raise ValueError("the dual point is outside the domain of the loss")
    return SearchHints(dual.astype(np.int64), float(unit), file.searches, has_violators)


def statement(events: LIFEvents, problem: ConvexProblem, inputs: Array) -> dict[str, Any]:
    """Return the statement of a certificate: the family, the data and the objective."""
    family, head = events.family, problem.heads[0]
    _check_problem(problem)
    ratio = Fraction(family.decay)
    values, _ = as_integers(snap_inputs(family.read(inputs)))
    return {
        "format": FORMAT,
        "decay": [ratio.numerator, ratio.denominator],
        "bias": family.bias,
        "negative_threshold": family.negative_threshold,
        "resets": family.resets,
        "readout": problem.dictionary.readout,
        "loss": head.loss.name,
        "penalty": "l1",
        "strength": float(problem.l1_strength),
        "has_intercept": problem.intercept,
        "inputs": values,
        "targets": head.targets.double().tolist(),
    }


def network_of(solution: Solution, parameters: IntArray, generated: IntArray) -> dict[str, Any]:
    """Return the network, its objective, and all neurons that a search can start from."""
    return {
        "primal": solution.certificate.primal,
        "neurons": read_neurons(solution, parameters),
        "coef": solution.coef[solution.support.cpu()].tolist(),
        "intercept": solution.intercept.tolist(),
        "generated": generated,
    }


def search_boxes(
    events: LIFEvents,
    problem: ConvexProblem,
    dual: npt.NDArray[np.int64],
    unit: float,
    searches: tuple[Search, ...] = (),
    *,
    tol: float = 0.0,
    max_seconds: float = inf,
    pulse: Callable[[int, int], bool] | None = None,
) -> dict[str, Any]:
    """Return the proof of a lower bound: the dual point, the bound on prices, and the boxes.

    The ``searches`` of a file about the same dual point are continued. Neurons whose prices are too high are listed as
    "violators".
    """
    readout = check_complete_readout(problem.dictionary.readout)
    scale = events.n_steps if readout == "mean" else 1
    enough = (1 + tol) * problem.l1_strength / unit * scale
    trees = SpikeTrees.of(events, spread_over_steps(dual, readout, events))
    search = BoxSearch(enough, deadline=time.monotonic() + max_seconds, keeps_proof=True, pulse=pulse)
    result = search.run(trees, resume_proof(trees, searches, enough) if searches and trees.normals.any() else None)
    # The checker compares integers. A larger bound is still valid.
    limit = ceil(Fraction(result.bound) / scale)
    exact = torch.from_numpy(dual.astype(np.float64) * unit)
    return {
        "lower_bound": certify_with_bound(problem, exact, [limit * unit] * problem.n_outputs),
        "dual_exponent": round(np.log2(unit)),
        "dual": dual,
        "price_bound": limit,
        "proofs": _table(result.proof),
        "is_finished": result.is_finished,
        "violators": [neuron for size, neuron in result.parameters if size > enough][: _SETTINGS.n_violators],
    }


def _check_problem(problem: ConvexProblem) -> None:
    head = problem.heads[0]
    if head.loss.name not in ("squared", "logistic") or problem.l2_strength or len(problem.heads) != 1:
        raise InvalidInputError(
            "expected the squared or the logistic loss with the L1 penalty for a certificate in a file, got "
            f"{problem!r}: use loss='squared' and penalty='l1'"
        )
    if bool((problem.row_weight != problem.row_weight[0]).any()):
        raise InvalidInputError("expected rows of equal weight for a certificate in a file, got sample weights")


def whole_dual(problem: ConvexProblem, dual_point: Tensor) -> tuple[npt.NDArray[np.int64], float]:
    """Return a dual point as integers times a power of two, feasible exactly."""
    _check_problem(problem)
    head = problem.heads[0]
    dual, unit = round_dual(dual_point.cpu().numpy())
    if head.loss.name == "logistic":  # 0 <= n λ y <= 1
        signs = head.targets.cpu().numpy().astype(np.int64)
        largest = int(Fraction(1) / (Fraction(unit) * len(problem.row_weight)))
        # Rounding to the nearest integer can leave the domain.
        dual = np.clip(dual * signs, 0, largest) * signs
    if problem.intercept:
        for column in dual.T:
            # The entry nearest to the middle of the domain stays inside when it takes what rounding left over.
            inner = np.argsort(np.abs(np.abs(column) - np.abs(column).max() // 2))
            column[inner[0]] -= int(column.sum())
    return dual, unit


def _table(proof: Proof | None) -> list[dict[str, Any]]:
    """Return a proof and those inside it, each once, the outermost last."""
    numbers: dict[int, int] = {}
    table: list[dict[str, Any]] = []

    def add(proof: Proof | None) -> int:
        if proof is None:
            return -1
        if id(proof) not in numbers:
            if proof.frame.slack:
                raise InvalidInputError(
                    "expected inputs of fewer bits for a certificate in a file: round them, for example to multiples "
                    "of 1/256"
                )
            code, uses = proof.walk()
            closer = tuple((factor, add(inner)) for factor, inner in uses)
            numbers[id(proof)] = len(table)
            frame = proof.frame
            basis = tuple(tuple(int(x) for x in row) for row in frame.basis)
            table.append(Search(tuple(frame.columns), basis, frame.n_levels, code, closer)._asdict())
        return numbers[id(proof)]

    add(proof)
    return table
