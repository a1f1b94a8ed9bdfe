"""Dictionaries of all patterns after operations on them: "complete" is said only where every pattern is left.

All patterns are compared with those of neurons on a grid of parameters, which are simulated without the library. The
sequences are so small that the grid has most of them.
"""

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import torch

import cvxsnn as cs
from cvxsnn import theory
from cvxsnn.convex import Objective
from cvxsnn.core.errors import CvxsnnError
from cvxsnn.data import TrainingSet
from cvxsnn.dictionary import Dictionary, build_dictionary, open_dictionary, stream_dictionary
from cvxsnn.network import Proof

from .harness import Finding, Hunt

Generator = np.random.Generator

_LARGEST = {2: 12, 3: 4, 4: 3}
"""Largest parameter of the grid, by the number of parameters."""


@dataclass(frozen=True)
class Held:
    """A dictionary, and every pattern that neurons on the grid have on its rows, as columns."""

    dictionary: Dictionary
    patterns: np.ndarray

    def lacks(self) -> np.ndarray:
        """Return the patterns, as rows, that no atom has."""
        known = {column.tobytes() for column in self.dictionary.columns().numpy().T.round(9)}
        return np.array([own for own in self.patterns.T.round(9) if own.tobytes() not in known])


def case(rng: Generator, folder: Path) -> str:
    """Enumerate one dictionary, do a few things to it, and look at what is said of it after each."""
    torch.set_num_threads(1)
    n_samples, n_steps, n_features = (int(rng.integers(low, high)) for low, high in ((2, 5), (1, 4), (1, 3)))
    inputs = rng.integers(-2, 3, (n_samples, n_steps, n_features)) * 1.0
    inputs[0, 0, 0] = 1.0
    family = theory.LIFFamily(
        float(rng.choice([0.0, 0.5, 1.0])),
        bias=bool(rng.integers(2)),
        negative_threshold=bool(rng.integers(2)),
        resets=bool(rng.integers(4)),
    )
    readout = str(rng.choice(["last", "all", "mean"]))
    held = Held(theory.complete_dictionary(inputs, family, (), readout), patterns_of(family, inputs, readout))
    if not held.dictionary.is_complete:
        raise Finding(f"an enumeration is not called complete: {family}")
    told = f"{family}, {readout!r}, {inputs.tolist()}"
    said = [_look(held, told)]
    for number in range(int(rng.integers(1, 4))):
        name = str(rng.choice(list(_OPERATIONS)))
        told += f", {name}"
        changed = _OPERATIONS[name](rng, held, inputs, folder / str(number))
        if changed is None:
            break
        held = changed
        said.append(_look(held, told))
    _check_proof(rng, family, inputs, readout, told)
    if not rng.integers(4):
        _check_search(rng, family, inputs, readout, told)
    return said[-1]


def _look(held: Held, told: str) -> str:
    """Check what certificates say of a dictionary."""
    dictionary, lacking = held.dictionary, held.lacks()
    targets = np.where(np.arange(dictionary.n_rows) % 2, 1.0, -1.0)
    scopes = {"complete"} if dictionary.is_complete else set()
    if dictionary.readout != "all" or dictionary.n_rows % dictionary.n_steps == 0:  # a program is about whole sequences
        problem = cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05)
        scopes |= {cs.solve(own, 1e-3).certificate.scope for own in (problem, problem.reduced[0])}
        scopes |= {cs.certify(problem, torch.zeros(dictionary.n_atoms, 1))[0].scope}
    if "complete" in scopes and len(lacking):
        raise Finding(f"{told}: {scopes} without {lacking.tolist()}")
    return "complete" if "complete" in scopes else "a part" if len(lacking) else "all of it, not called complete"


def _check_proof(rng: Generator, family: theory.LIFFamily, inputs: np.ndarray, readout: str, told: str) -> None:
    """Check the scopes of a proof over all patterns, or over some of them, on its own data and on others."""
    whole = theory.complete_dictionary(inputs, family, (), readout)
    n_rows = len(inputs) * (inputs.shape[1] if readout == "all" else 1)
    targets = rng.normal(size=n_rows)
    kept = torch.from_numpy(rng.permutation(whole.n_atoms)[: int(rng.integers(1, whole.n_atoms + 1))])
    solution = cs.solve(cs.ConvexProblem(whole.take_atoms(kept), targets, loss="squared", l1_strength=0.05), 1e-3)
    try:
        proof = Proof.of(solution, Objective("squared", readout))
    except CvxsnnError:
        if len(kept) == whole.n_atoms:
            raise
        return
    if len(kept) < whole.n_atoms:
        raise Finding(f"{told}: a proof of {len(kept)} of {whole.n_atoms} atoms says {proof.certificate}")
    others = inputs + rng.integers(0, 2, inputs.shape)
    for data in (inputs, others):
        shape = targets.reshape(len(inputs), -1) if readout == "all" else targets
        scope = proof.certify(TrainingSet(data, {"label": shape})).scope
        again = Held(build_dictionary(proof.witnesses, data, readout), patterns_of(family, data, readout))
        if scope == "complete" and len(again.lacks()):
            raise Finding(f"{told}: proven again on {data.tolist()}, and called complete")


def _check_search(rng: Generator, family: theory.LIFFamily, inputs: np.ndarray, readout: str, told: str) -> None:
    """Check the bound of a search over all neurons, and that the part it has found is not called complete."""
    patterns, targets = patterns_of(family, inputs, readout), rng.normal(size=(len(inputs), 1))
    if readout == "all":
        targets = np.repeat(targets, inputs.shape[1], axis=1)
    found = theory.solve_complete(
        inputs, targets, family, "squared", 0.05, readout=readout, n_start=2, tol=1e-3, max_seconds=2.0
    )
    columns = theory.complete_dictionary(inputs, family, (), readout)
    best = cs.solve(cs.ConvexProblem(columns, targets.ravel(), loss="squared", l1_strength=0.05), 1e-6).certificate
    own = Held(found.solution.problem.dictionary, patterns)
    if found.certificate.dual > best.primal * (1 + 1e-9) or found.certificate.primal < best.dual * (1 - 1e-9):
        raise Finding(f"{told}: a search says {found.certificate!r}, and the optimum is {best!r}")
    if found.solution.certificate.scope == "complete" and len(own.lacks()):
        raise Finding(f"{told}: the neurons that a search has found are called complete")


# ---- operations ------------------------------------------------------------------------------------------------------


def _take_rows(rng: Generator, held: Held, inputs: np.ndarray, folder: Path) -> Held:
    n_rows = held.dictionary.n_rows
    rows = rng.integers(n_rows, size=int(rng.integers(1, n_rows + 2)))
    return Held(held.dictionary.take_rows(torch.from_numpy(rows)), held.patterns[rows])


def _take_atoms(rng: Generator, held: Held, inputs: np.ndarray, folder: Path) -> Held:
    n_atoms = held.dictionary.n_atoms
    atoms = rng.permutation(n_atoms)
    if rng.integers(3):
        atoms = atoms[: int(rng.integers(1, n_atoms + 1))]
    if rng.integers(3) == 0:  # as many as before, one of them twice
        atoms[-1] = atoms[0]
    return Held(held.dictionary.take_atoms(torch.from_numpy(atoms)), held.patterns)


def _copied(rng: Generator, held: Held, inputs: np.ndarray, folder: Path) -> Held:
    copies: list[Callable[[Dictionary], Dictionary]] = [
        copy.copy,
        copy.deepcopy,
        lambda own: pickle.loads(pickle.dumps(own)),
        lambda own: replace(own, witnesses=None),
    ]
    return Held(copies[rng.integers(len(copies))](held.dictionary), held.patterns)


def _merged(rng: Generator, held: Held, inputs: np.ndarray, folder: Path) -> Held | None:
    """Merge the rows that are equal, and have equal targets."""
    n_rows = held.dictionary.n_rows
    targets = rng.integers(0, 2, n_rows) * 1.0
    if held.dictionary.readout == "all" and n_rows % held.dictionary.n_steps:
        return None
    merged, row_of = cs.ConvexProblem(held.dictionary, targets, loss="squared", l1_strength=0.1).reduced
    first = [int((row_of == number).nonzero()[0]) for number in range(merged.dictionary.n_rows)]
    return Held(merged.dictionary, held.patterns[first])


def _streamed(rng: Generator, held: Held, inputs: np.ndarray, folder: Path) -> Held | None:
    """Write spikes of the witnesses, or of some of them, to disk, and open the folder again."""
    witnesses = held.dictionary.witnesses
    whole = _as_made(held, inputs)
    if witnesses is None or whole is None:
        return None
    if rng.integers(2) and witnesses.n_subnetworks == 1:
        witnesses = witnesses.take_neurons(torch.arange(int(rng.integers(1, witnesses.n_witnesses + 1))))
    batches = [(inputs[:1], np.zeros(1)), (inputs[1:], np.zeros(len(inputs) - 1))]
    options = {"readout": held.dictionary.readout, "shard_rows": 8}
    dictionary, _ = stream_dictionary(witnesses, batches, folder, **options)
    if rng.integers(2):
        dictionary, _ = open_dictionary(folder, witnesses)
    return Held(dictionary, held.patterns)


def _rebuilt(rng: Generator, held: Held, inputs: np.ndarray, folder: Path) -> Held | None:
    """Roll the witnesses, or some of them, out again."""
    witnesses = held.dictionary.witnesses
    if witnesses is None or _as_made(held, inputs) is None:
        return None
    if rng.integers(2) and witnesses.n_subnetworks == 1:
        witnesses = witnesses.take_neurons(torch.arange(int(rng.integers(1, witnesses.n_witnesses + 1))))
    return Held(build_dictionary(witnesses, inputs, held.dictionary.readout), held.patterns)


def _as_made(held: Held, inputs: np.ndarray) -> Held | None:
    """Return what is held if its rows are still those of the sequences, else None."""
    n_rows = len(inputs) * (inputs.shape[1] if held.dictionary.readout == "all" else 1)
    witnesses, readout = held.dictionary.witnesses, held.dictionary.readout
    if witnesses is None or held.dictionary.n_rows != n_rows:
        return None
    again = build_dictionary(witnesses, inputs, readout)
    columns = again.columns()[:, again.atom_of_column[held.dictionary.column_of_atom]]
    return held if torch.equal(columns, held.dictionary.columns()) else None


_OPERATIONS: dict[str, Callable[[Generator, Held, np.ndarray, Path], Held | None]] = {
    "take_rows": _take_rows,
    "take_atoms": _take_atoms,
    "copied": _copied,
    "merged": _merged,
    "streamed": _streamed,
    "rebuilt": _rebuilt,
}


# ---- the grid --------------------------------------------------------------------------------------------------------


def patterns_of(family: theory.LIFFamily, inputs: np.ndarray, readout: str) -> np.ndarray:
    """Return the distinct columns of neurons with small whole parameters; their membranes are exact in float64."""
    n_samples, n_steps, n_features = inputs.shape
    size = n_features + family.bias + 1
    span = range(-_LARGEST[size], _LARGEST[size] + 1)
    grid = np.array(list(product(span, repeat=size)), dtype=float)
    threshold = grid[:, -1] if family.negative_threshold else np.abs(grid[:, -1])
    bias = grid[:, n_features] if family.bias else np.zeros(len(grid))
    membrane, spikes = np.zeros((len(grid), n_samples)), np.zeros((len(grid), n_samples))
    every = []
    for step in range(n_steps):
        membrane = family.decay * membrane + grid[:, :n_features] @ inputs[:, step].T + bias[:, None]
        membrane -= threshold[:, None] * spikes * family.resets
        # The threshold is what a spike subtracts; from zero on, a membrane fires.
        spikes = (membrane >= 0) * 1.0
        every.append(spikes)
    seen = {"last": every[-1], "mean": sum(every) / n_steps, "all": np.stack(every, 2).reshape(len(grid), -1)}[readout]
    return np.unique(seen, axis=0).T


HUNT = Hunt(
    "scopes",
    "Dictionaries of all patterns after operations on them: what is called complete.",
    case,
    cases=3_000,
    short=12,
    seconds=60.0,
)
