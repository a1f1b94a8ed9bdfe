"""How much a job is: the bytes it holds, and the work of its stages in the units that rates are measured in.

How many steps a solver takes and how many coefficients it ends with nobody knows before: the constants here are what
runs on the paper's tasks and on random dictionaries took, see ``docs/scaling.md``.
"""

from dataclasses import dataclass, fields
from math import ceil, log2, sqrt
from typing import Literal

from ..convex.solvers.active_set import MAX_ATOMS, MAX_ATOMS_GPU
from ..core.memory import (
    DENSE_COPIES,
    dense_bytes,
    gram_bytes,
    hessian_bytes,
)
from ..dictionary import Readout
from ..dictionary.building import build_bytes
from ..dictionary.packed import GROUPING_COPIES, dictionary_bytes, n_planes_of
from ..neurons.rollout import CHUNK_BYTES, CHUNK_BYTES_GPU
from .rates import Rates

Loss = Literal["squared", "logistic", "softmax", "hinge"]

_ACTIVE, _DENSEST = 0.15, 0.6
"""Active atoms of an output: this times the root of the atoms, in inverse proportion to the strength, up to this share
of the rows or atoms, whichever are fewer."""

_NEWTON_STEPS, _NEWCOMERS = 2.0, 100
"""Newton steps for each halving of the strength, and the atoms that a working set has beyond the active ones."""

_SIGN_STEPS_OF_PATH, _SIGN_STEPS_OF_MODEL = 6, 4
"""Cholesky factors for each halving of the strength on a Gram matrix, and for each of Newton's models."""

_TYPICAL_SIZE = 0.6
"""Size of those factors, and of the working sets, on the way to the last one."""

_INTERIOR_STEPS, _INTERIOR_PASSES = 10.0, 12
"""Interior-point steps beside 1.5 for each halving of the strength, and passes over the dense matrix in each."""

_CALLS_OF_STEP = 3
"""Calls of a step on matrices that are not small, counted in steps on small ones."""

_ROW_VECTORS = 12
"""Vectors of the rows, for each output, that a solve and its certificate hold: scores, duals, gradients, trials."""

_LIBRARIES, _LIBRARIES_GPU = 2**26, 2**31
"""Buffers that torch and BLAS keep for themselves once they work, on a GPU with the columns unpacked for a product."""

_SHARD_BYTES = 2**28
"""Memory for the shards that are being read, where the dictionary is on disk."""

_HESSIAN_BLOCK, _HESSIAN_BLOCK_GPU = 3 * 8 * 2**24, 3 * 8 * 2**28
"""Bytes of a block of rows of the working set: as numbers, times a root, and as BLAS wants it."""


@dataclass(frozen=True)
class Work:
    """What a stage does, counted in the units of :class:`cvxsnn.Rates`."""

    updates: float = 0.0
    real_macs: float = 0.0
    spike_macs: float = 0.0
    packed: float = 0.0
    visited: float = 0.0
    products: float = 0.0
    gram_macs: float = 0.0
    hessian_macs: float = 0.0
    cholesky_flops: float = 0.0
    streamed: float = 0.0
    steps: float = 0.0

    def seconds(self, rates: Rates, speed: float, n_machines: int) -> float:
        """Time on machines that share everything but the quadratic models, which one of them solves."""
        alone = {"cholesky_flops", "streamed"}
        total = self.steps / rates.steps  # calls wait for each other, however many cores there are
        for name in (field.name for field in fields(self) if field.name != "steps"):
            share = speed * (1 if name in alone else n_machines)
            total += getattr(self, name) / (share * getattr(rates, name))
        return total


@dataclass(frozen=True)
class Job:
    """The sizes and terms of a dictionary and of a solve over it.

    Parameters
    ----------
    n_samples, n_columns, n_steps, n_features : int
    hidden : tuple of int
        Widths of the layers of one subnetwork.
    n_outputs : int
    loss : "squared", "logistic", "softmax" or "hinge"
    readout : "last", "mean" or "all"
    strength_ratio : float
        Strength of the penalty, relative to the critical one.
    known_active : int or None
        Active atoms of an output; guessed when None.
    on_gpu : bool
    has_room_for_gram : bool
        Without which ``solve`` does not form one.
    """

    n_samples: int
    n_columns: int
    n_steps: int
    n_features: int
    hidden: tuple[int, ...]
    n_outputs: int
    loss: Loss
    readout: Readout
    strength_ratio: float
    known_active: int | None
    on_gpu: bool = False
    has_room_for_gram: bool = True

    @property
    def n_rows(self) -> int:
        """Of the dictionary."""
        return self.n_samples * self.n_steps if self.readout == "all" else self.n_samples

    @property
    def n_planes(self) -> int:
        """Bits of an entry."""
        return n_planes_of(self.readout, self.n_steps)

    @property
    def n_entries(self) -> int:
        """Bits of the dictionary."""
        return self.n_rows * self.n_columns * self.n_planes

    @property
    def solver(self) -> str:
        """The one that ``solve`` would take."""
        most = MAX_ATOMS_GPU if self.on_gpu else MAX_ATOMS
        if self.loss == "squared" and self.n_columns <= most and self.has_room_for_gram:
            return "active-set"
        return "interior-point" if self.loss == "hinge" else "newton"

    @property
    def width(self) -> int:
        """Outputs that are solved for together; the others are problems of their own."""
        return self.n_outputs if self.loss == "softmax" else 1

    @property
    def halvings(self) -> float:
        """Of the strength, from the critical one."""
        return log2(1 / self.strength_ratio)

    @property
    def n_active(self) -> int:
        """Coefficients, of outputs solved for together, that are not zero in the end."""
        if self.known_active is not None:
            return self.width * min(self.known_active, self.n_columns)
        most = _DENSEST * min(self.n_rows, self.n_columns)
        return ceil(self.width * min(most, _ACTIVE * sqrt(self.n_columns) / self.strength_ratio))

    @property
    def n_working(self) -> int:
        """Entries of the largest Hessian."""
        return min(self.n_active + max(_NEWCOMERS, self.n_active // 2), self.width * self.n_columns)

    @property
    def n_solver_steps(self) -> float:
        """For each group of outputs solved for together."""
        if self.solver == "active-set":
            return _SIGN_STEPS_OF_PATH * self.halvings
        if self.solver == "interior-point":
            return _INTERIOR_STEPS + 1.5 * self.halvings
        return _NEWTON_STEPS * self.halvings

    @property
    def n_passes(self) -> float:
        """Products Dᵀ·R of a solve, for each group of outputs solved for together."""
        return 2 + self.n_solver_steps if self.solver == "newton" else 2.0

    def rollout(self) -> Work:
        """Of all layers, over all steps."""
        n_subnetworks = self.n_columns // self.hidden[-1]
        times = self.n_samples * self.n_steps * n_subnetworks
        upper = sum(below * width for below, width in zip(self.hidden, self.hidden[1:], strict=False))
        return Work(
            updates=times * sum(self.hidden),
            real_macs=times * self.n_features * self.hidden[0],
            spike_macs=times * upper,
        )

    def building(self) -> Work:
        """Of the dictionary, from spikes."""
        return Work(packed=self.n_entries)

    def solving(self) -> Work:
        """For all outputs, by the solver's steps."""
        n_problems = self.n_outputs // self.width
        entries = self.n_rows * self.n_columns
        size = _TYPICAL_SIZE * self.n_active
        visited, products = self.n_passes * self.n_entries, self.n_passes * self.n_entries * self.width
        if self.solver == "active-set":
            # Products and the Gram matrix are shared by the outputs.
            n_steps = n_problems * self.n_solver_steps
            return Work(
                visited=visited,
                products=products * n_problems,
                gram_macs=entries * self.n_columns,
                cholesky_flops=n_steps * size**3 / 3,
                streamed=n_steps * 8 * (self.n_columns**2 + 4 * size**2),
                # A GPU takes the steps of all outputs at once.
                steps=(self.n_solver_steps if self.on_gpu else n_steps) * _CALLS_OF_STEP,
            )
        if self.solver == "interior-point":
            n_steps = n_problems * self.n_solver_steps
            return Work(
                packed=n_problems * self.n_entries,
                visited=n_problems * visited,
                products=n_problems * products,
                hessian_macs=n_steps * entries * self.n_columns,
                cholesky_flops=n_steps * self.n_columns**3 / 3,
                streamed=n_steps * _INTERIOR_PASSES * 8 * entries,
                steps=n_steps * _CALLS_OF_STEP,
            )
        n_newton = n_problems * self.n_solver_steps
        working = _TYPICAL_SIZE * self.n_working
        n_steps = n_newton * _SIGN_STEPS_OF_MODEL
        # A softmax adds a product over all entries to one for each of its outputs.
        blocks = 1 / self.width + (self.width > 1)
        return Work(
            packed=n_problems * self.n_entries,
            visited=n_problems * visited,
            products=n_problems * products,
            hessian_macs=n_newton * self.n_rows * working**2 * blocks,
            cholesky_flops=n_steps * size**3 / 3,
            streamed=n_steps * 8 * 4 * working**2,
            steps=(n_steps + n_newton) * _CALLS_OF_STEP,
        )

    def certifying(self) -> Work:
        """Scores and correlations of all outputs, once."""
        share = 1 + min(1.0, self.n_active / self.n_columns)
        return Work(visited=share * self.n_entries, products=share * self.n_entries * self.n_outputs)

    def memory(self) -> dict[str, int]:
        """Bytes of each part."""
        parts = {
            "libraries": _LIBRARIES_GPU if self.on_gpu else _LIBRARIES,
            "inputs": 4 * self.n_samples * self.n_steps * self.n_features,
            "roll-out chunk": 3 * (CHUNK_BYTES_GPU if self.on_gpu else CHUNK_BYTES),
            "dictionary": dictionary_bytes(self.n_rows, self.n_columns, self.n_planes),
            "building it": build_bytes(self.n_rows, self.n_columns, self.n_planes),
            "row vectors": _ROW_VECTORS * dense_bytes(self.n_rows, self.n_outputs),
        }
        if self.solver == "active-set":
            parts["Gram matrix"] = gram_bytes(self.n_columns)
        elif self.solver == "interior-point":
            parts["dense columns"] = DENSE_COPIES * dense_bytes(self.n_rows, self.n_columns)
            parts["normal matrix"] = gram_bytes(self.n_columns)
        else:
            most = _HESSIAN_BLOCK_GPU if self.on_gpu else _HESSIAN_BLOCK
            block = min(most, 3 * dense_bytes(self.n_rows, self.n_working))
            parts["Hessian"] = hessian_bytes(self.n_working) + block
        return parts

    def peak(self, parts: dict[str, int], *, on_disk: bool) -> int:
        """Bytes at the worst moment: while building, while merging rows, or while solving."""
        system = sum(parts.get(name, 0) for name in ("Gram matrix", "Hessian", "dense columns", "normal matrix"))
        if on_disk:
            building, merging = parts["roll-out chunk"] + _SHARD_BYTES, 0
            solving = _SHARD_BYTES + parts["row vectors"] + system
        else:
            building = parts["inputs"] + parts["roll-out chunk"] + parts["building it"]
            merges = self.solver != "active-set"
            merging = parts["inputs"] + (1 + GROUPING_COPIES) * parts["dictionary"] if merges else 0
            solving = parts["inputs"] + (1 + merges) * parts["dictionary"] + parts["row vectors"] + system
        return parts["libraries"] + max(building, merging, solving)

    def __str__(self) -> str:
        """Sizes and terms on one line."""
        widths = ", ".join(map(str, self.hidden))
        return (
            f"{self.n_rows:,} rows × {self.n_columns:,} columns, {self.n_steps} steps, {self.n_features} features, "
            f"hidden ({widths}), {self.loss} loss with {self.n_outputs} outputs, readout {self.readout}, strength "
            f"{self.strength_ratio:g} of the critical one"
        )
