"""Certificates of global optima in files that others can check without this library.

A file holds the data, the network, a dual point of whole numbers, and the list of boxes that cover all neurons;
docs/proof-files.md defines it. Files are read, and the values of dual points computed, by the functions of the checker
(``check_certificate.py``): a search goes on from the files that can be checked, and states what they prove.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf, nextafter
from pathlib import Path
from typing import Any

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
    dual_value,
    parse,
    read_certificate,
    read_integer,
    read_matrix,
)  # fmt: skip
from .column_generation import CompleteSolution, spread_over_steps
from .integers import IntArray, as_integers
from .lif_family import LIFEvents, LIFFamily, check_complete_readout
from .pricing import round_dual
from .resumed_proof import resume_proof
from .spike_trees import SpikeTrees


@dataclass(frozen=True)
class _Settings:
    max_exponent: int = 1000
    """Of the unit of a dual point in a file that is resumed: float64 holds it."""
    dual_bits: int = 52
    """Bits of the sum of such a dual point: float64 holds it exactly."""
    n_violators: int = 64
    """Neurons of too high prices that a file keeps at most."""


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
        What :func:`solve_complete` returned, for the squared or the logistic loss and the L1 penalty.
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
    if not isinstance(result.family, LIFFamily):
        raise InvalidInputError(f"expected one family for a certificate in a file, got a union: {result.family}")
    events = result.family.on(inputs)
    dual, unit = whole_dual(problem, solution.dual_point)
    stated = statement(events, problem, inputs)
    evidence = search_boxes(events, problem, stated, dual, unit, tol=tol, max_seconds=max_seconds, pulse=pulse)
    certificate = checked_certificate(Certificate(solution.certificate.primal, evidence["lower_bound"], "complete"))
    save_certificate(path, stated | network_of(solution, result.parameters, result.parameters) | evidence)
    return certificate


def save_certificate(path: str | os.PathLike[str], file: dict[str, Any]) -> None:
    """Write a certificate, whole or not at all."""
    write_atomically(Path(path), _encoded(file).encode())


def _encoded(file: Mapping[str, Any]) -> str:
    """Return a certificate as JSON, with floats as hexadecimal texts."""

    def plain(values: Mapping[str, Any]) -> dict[str, Any]:
        changed = {float: float.hex, dict: plain}
        return {name: changed.get(type(value), lambda own: own)(value) for name, value in values.items()}  # type: ignore[operator]

    return json.dumps(plain(file), separators=(",", ":"))


@dataclass(frozen=True, eq=False)
class SearchHints:
    """A search to go on with: a dual point, the boxes that were looked at, and whether better neurons were found."""

    dual: npt.NDArray[np.int64]
    unit: float
    searches: tuple[Search, ...]
    has_violators: bool


@dataclass(frozen=True, eq=False)
class Hints:
    """What a search can go on from. Types, sizes and ranges are checked; bounds and objectives are computed again."""

    neurons: IntArray
    generated: IntArray
    searches: tuple[SearchHints, ...]


def read_hints(path: str | os.PathLike[str], expected: Mapping[str, Any], events: LIFEvents) -> Hints:
    """Return what a search can go on from, of a file about the same data and objective."""
    try:
        file = parse(Path(path).read_text())
        if not isinstance(file, dict) or file.get("format") != FORMAT:
            raise DataFileError(
                f"expected a certificate over all neurons, in the format {FORMAT!r}, got another file: {path}"
            )
        stated = json.loads(_encoded(expected))
        # The fields of an unfinished search replace those of the file, and are read in the same way.
        contents = [file, *([file | file["pending"]] if file.get("pending") else [])]
        other = [name for name in stated if any(repr(own.get(name)) != repr(stated[name]) for own in contents)]
        if other:
            raise InvalidInputError(
                "expected a certificate file about the same data and objective, to go on with it, got one with another "
                f"{', '.join(other)}: give another name than {path}"
            )
        generated = read_matrix("generated", file["generated"], None, events.dimension, read_integer)
        if not events.family.negative_threshold and any(neuron[-1] < 0 for neuron in generated):
            raise ValueError("a threshold is negative")
        return Hints(
            as_rows(read_certificate(file).neurons, events.dimension),
            events.representable(as_rows(generated, events.dimension)),
            tuple(_search_hints(read_certificate(one), bool(one["violators"])) for one in contents),
        )
    except (WrongError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, CvxsnnError):
            raise
        raise DataFileError(
            f"expected a certificate file as cvxsnn writes it, to go on with it, got a damaged or changed one: {path}; "
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
    """Return what a certificate is about: the family, the data and the objective."""
    family, head = events.family, problem.heads[0]
    _check_problem(problem)
    ratio = Fraction(family.decay)
    values, _ = as_integers(snap_inputs(family.read(inputs)).cpu().numpy())
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
        "inputs": [[[int(x) for x in step] for step in sequence] for sequence in values],
        "targets": [[float(x).hex() for x in row] for row in head.targets.tolist()],
    }


def read_neurons(solution: Solution, parameters: IntArray) -> IntArray:
    """Return the parameters of the neurons that a solution reads."""
    support = solution.support.cpu()
    return np.asarray(parameters[solution.problem.dictionary.column_of_atom.cpu()[support].numpy()])


def network_of(solution: Solution, parameters: IntArray, generated: IntArray) -> dict[str, Any]:
    """Return the network, its objective, and all neurons from which a search can go on."""
    return {
        "primal": solution.certificate.primal,
        "neurons": _rows(read_neurons(solution, parameters)),
        "coef": [[float(x).hex() for x in row] for row in solution.coef[solution.support.cpu()].tolist()],
        "intercept": [float(x).hex() for x in solution.intercept.tolist()],
        "generated": _rows(generated),
    }


def search_boxes(
    events: LIFEvents,
    problem: ConvexProblem,
    stated: dict[str, Any],
    dual: npt.NDArray[np.int64],
    unit: float,
    searches: tuple[Search, ...] = (),
    *,
    tol: float = 0.0,
    max_seconds: float = inf,
    pulse: Callable[[int, int], bool] | None = None,
) -> dict[str, Any]:
    """Return what proves a lower bound: the dual point, the bound on prices, and the boxes.

    The ``searches`` of a file about the same dual point go on. Neurons whose prices
    are too high are added as "violators". The bound of a dual point that proves less than zero is that of zero.
    """
    readout = check_complete_readout(problem.dictionary.readout)
    scale = events.n_steps if readout == "mean" else 1
    enough = (1 + tol) * problem.l1_strength / unit * scale
    trees = SpikeTrees.of(events, spread_over_steps(dual, readout, events))
    deadline = time.monotonic() + max_seconds
    search = BoxSearch(enough, deadline=deadline, keeps_proof=True, pulse=pulse)
    found = search.run(trees, resume_proof(trees, searches, enough) if searches and trees.normals.any() else None)
    limit = ceil(Fraction(found.bound) / scale)
    evidence = {
        "dual_exponent": round(np.log2(unit)),
        "dual": _rows(dual),
        "price_bound": limit,
        "proofs": _table(found.proof),
        "is_finished": found.is_finished,
        "violators": _rows(np.array([own for size, own in found.parameters if size > enough][: _SETTINGS.n_violators])),
    }
    value = _dual_value(stated | evidence)
    if value < 0:
        return search_boxes(events, problem, stated, 0 * dual, unit) | {"violators": evidence["violators"]}
    exact = torch.from_numpy(dual.astype(np.float64) * unit)
    computed = certify_with_bound(problem, exact, [limit * unit] * problem.n_outputs)
    # Outputs are shrunk together in a file, and one by one here.
    return {"lower_bound": min(computed, _below(value))} | evidence


def _dual_value(file: dict[str, Any]) -> Fraction:
    """Return what the checker computes for the dual point of a file, whatever network and bound the file may state."""
    nothing = {
        "neurons": [], "coef": [], "intercept": [0.0.hex() for _ in file["dual"][0]], "primal": 0.0, "lower_bound": 0.0
    }  # fmt: skip
    return dual_value(read_certificate(json.loads(_encoded(file | nothing))))


def _below(value: Fraction) -> float:
    """Return the largest float that is not above a fraction."""
    near = float(value)
    return near if Fraction(near) <= value else nextafter(near, -inf)


def _rows(values: npt.NDArray[Any]) -> list[list[int]]:
    return [[int(x) for x in row] for row in values]


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
    n_rows, head = len(problem.row_weight), problem.heads[0]
    dual, unit = round_dual(dual_point.cpu().numpy())
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
            closer = tuple((factor, add(inner)) for factor, inner in uses)
            numbers[id(own)] = len(table)
            basis = tuple(tuple(int(x) for x in row) for row in own.frame.basis)
            search = Search(tuple(own.frame.columns), basis, own.frame.n_levels, code, closer)
            table.append(search._asdict())
        return numbers[id(own)]

    add(proof)
    return table
