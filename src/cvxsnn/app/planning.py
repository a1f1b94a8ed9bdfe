"""What a job will need before it starts: memory, a rough time, and where it can run.

Memory is arithmetic (:mod:`cvxsnn.core.memory`). Time is rough: work divided by rates that are measured here
(:mod:`cvxsnn.app.rates`), and nobody knows beforehand how many steps a solver takes and how many coefficients it ends
with. The constants below are what the paper's tasks and random dictionaries took, see ``docs/scaling.md``.
"""

from dataclasses import asdict, dataclass, replace
from math import ceil, log2, sqrt
from typing import Any, Literal

import torch

from ..convex.solvers.active_set import MAX_ATOMS, MAX_ATOMS_GPU, gram_bytes
from ..convex.solvers.base import DENSE_COPIES
from ..convex.solvers.newton import hessian_bytes
from ..core.checks import check_choice, check_device, check_divides, check_positive_int
from ..core.errors import InvalidInputError
from ..core.memory import available_bytes, dense_bytes, format_bytes
from ..core.text_table import align
from ..dictionary import Readout
from ..dictionary.building import build_bytes
from ..dictionary.packed import GROUPING_COPIES, dictionary_bytes
from ..dictionary.readout import ParsedReadout, parse_readout
from ..neurons.rollout import CHUNK_BYTES, CHUNK_BYTES_GPU
from .formatting import format_seconds
from .rates import UPDATE_MACS, Rates, measure_rates

_LARGEST = 10**18
"""Largest size that is planned for: far above what any machine holds, far below where times overflow."""

PlannedLoss = Literal["squared", "logistic", "softmax", "hinge"]

_SPIKE_MAC, _TAP_MAC, _GRAM_MAC, _CHOLESKY_MAC, _PACKING = 0.3, 2.5, 0.2, 1.1, 4.0
"""Costs of a multiplication with a spike, of one at a tap, of one in an integer Gram matrix, of one in a Cholesky
factor (n³ of them), and of an entry while a dictionary is built, relative to what the rates measure."""
_TAP_BYTES = 12 + 24
"""Bytes of a tap: weight, source and delay, and the same in the lists that a kernel reads."""
_STEP_SECONDS, _DISK_RATE = 1e-3, 4e8
"""Time that the calls of a solver's step take on the smallest matrices, and bytes per second of a disk."""
_ACTIVE, _DENSEST = 0.15, 0.6
"""Active atoms of an output: this times the root of the atoms, in inverse proportion to the strength, up to this share
of the rows or atoms, whichever are fewer."""
_TYPICAL_SIZE, _NEWCOMERS = 0.6, 100
"""Size of working sets on the way to the last one, and their atoms beyond the active ones."""
_ROW_VECTORS = 12
"""Vectors of the rows, per output, that a solve and its certificate hold: scores, duals, gradients, trials."""
_LIBRARIES, _LIBRARIES_GPU, _SHARDS = 2**26, 2**31, 2**28
"""Bytes that torch and BLAS keep for themselves, on a GPU with unpacked columns, and of shards that are being read."""
_HESSIAN_BLOCK, _HESSIAN_BLOCK_GPU = 3 * 8 * 2**24, 3 * 8 * 2**28
"""Bytes of a block of rows of the working set: as numbers, times a root, and as BLAS wants it."""


@dataclass(frozen=True)
class Plan:
    """A forecast: exact for memory, rough for time.

    Attributes
    ----------
    job : str, sizes and terms on one line
    solver : str, the one that ``solve`` would choose
    place : str, "in memory on cpu", "in memory on cuda", "out of core on cpu" or "nowhere"
    fits : bool
    memory : dict of str to int, bytes of each part on one machine; they are not all alive simultaneously
    peak, available : int, bytes at the worst moment on one machine without the interpreter, and bytes there are
    seconds : dict of str to float, of each stage
    assumptions : tuple of str, one sentence each
    """

    job: str
    solver: str
    place: str
    fits: bool
    memory: dict[str, int]
    peak: int
    available: int
    seconds: dict[str, float]
    assumptions: tuple[str, ...]

    @property
    def total_seconds(self) -> float:
        """Rough time of all stages."""
        return sum(self.seconds.values())

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return asdict(self) | {"total_seconds": self.total_seconds}

    def __str__(self) -> str:
        """Return two small tables, the place, and what was assumed."""
        sizes = {**self.memory, "peak": self.peak, "available": self.available}
        times = {**self.seconds, "total": self.total_seconds}
        lines = [
            self.job,
            align(("memory", ""), [(name, format_bytes(size)) for name, size in sizes.items()]),
            align(("rough time", ""), [(name, f"~{format_seconds(time)}") for name, time in times.items()]),
            f"runs {self.place}, solver {self.solver}",
        ]
        return "\n".join([*lines, *(f"assumed: {sentence}" for sentence in self.assumptions)])


def plan(
    n_samples: int,
    n_witnesses: int,
    n_steps: int,
    *,
    n_features: int = 16,
    hidden: tuple[int, ...] | None = None,
    n_taps: int | None = None,
    n_outputs: int = 1,
    loss: PlannedLoss = "squared",
    readout: Readout = "last",
    windows: int | None = None,
    strength_ratio: float = 0.01,
    n_active: int | None = None,
    device: str = "auto",
    memory: int | None = None,
    n_machines: int = 1,
    rates: Rates | None = None,
) -> Plan:
    """Return the memory and a rough time of a dictionary and of a certified solve over it.

    Parameters
    ----------
    n_samples, n_witnesses, n_steps, n_features : int
        Sequences, witnesses, steps per sequence, numbers per step.
    hidden : tuple of int, optional
        Widths of the hidden layers of one subnetwork; by default one layer of all witnesses.
    n_taps : int, optional
        Synapses per neuron, in layers with delays; by default layers without delays, which read all that is below.
    n_outputs : int
        Outputs, or classes of a softmax.
    loss : {"squared", "logistic", "softmax", "hinge"}
    readout : {"last", "mean", "all"}
        With "all", each step is a row.
    windows : int, optional
        Windows of time for readout "mean", each of which is a column of every witness.
    strength_ratio : float
        Strength of the penalty, relative to the smallest one at which all coefficients are zero.
    n_active : int, optional
        Active atoms per output, where an earlier solve has shown them. The time grows with their third power, and the
        guess that replaces them may be wrong by several times.
    device : {"auto", "cpu", "cuda"}
        "auto" is the GPU where there is one.
    memory : int, optional
        Bytes of one machine; by default what this one has available.
    n_machines : int
        Machines like this one, which share the rows.
    rates : Rates, optional
        By default measured here and now.
    """
    check_choice("loss", loss, ("squared", "logistic", "softmax", "hinge"))
    parsed = parse_readout(readout, windows)
    if not 0 < strength_ratio < 1:
        raise InvalidInputError(f"expected strength_ratio between 0 and 1, got {strength_ratio!r}")
    sizes = {"n_samples": n_samples, "n_witnesses": n_witnesses, "n_steps": n_steps, "n_features": n_features}
    for name, size in (sizes | {"n_outputs": n_outputs, "n_machines": n_machines}).items():
        _check_size(name, size)
    parsed.check_length(n_steps)
    n_columns = n_witnesses * parsed.n_windows
    widths = tuple(_check_size("hidden", width) for width in hidden or (n_witnesses,))
    check_divides("the last width of hidden", widths[-1], n_witnesses, "witnesses")
    rates = rates or measure_rates(check_device(device))
    on_gpu = torch.device(rates.device).type == "cuda"
    room = available_bytes(rates.device) if memory is None else _check_size("memory", memory)
    if room is None:
        raise InvalidInputError("expected the system to tell how much memory there is, it does not: pass memory")
    n_active = None if n_active is None else _check_size("n_active", n_active)
    n_taps = None if n_taps is None else _check_size("n_taps", n_taps)
    most = (MAX_ATOMS_GPU if gram_bytes(n_columns) <= room else 0) if on_gpu else MAX_ATOMS
    job = _Job(
        n_samples=n_samples,
        n_columns=n_columns,
        n_steps=n_steps,
        n_features=n_features,
        hidden=widths,
        n_taps=n_taps,
        n_outputs=n_outputs,
        loss=loss,
        readout=parsed,
        strength_ratio=float(strength_ratio),
        known_active=n_active,
        on_gpu=on_gpu,
        has_gram=n_columns <= most,
    )
    # Each machine has its share of the rows, and all of what has the size of the columns.
    share = replace(job, n_samples=ceil(n_samples / n_machines))
    parts = share.memory()
    peak = share.peak(parts)
    is_streamed = peak > room and not on_gpu and job.solver != "interior-point"
    seconds = job.seconds(rates, n_machines)
    if is_streamed:
        peak = share.peak_on_disk(parts)
        seconds["disk"] = (3 + job.n_passes) * parts["dictionary"] / _DISK_RATE
    place = f"{'out of core' if is_streamed else 'in memory'} on {rates.device}"
    assumptions = job.assumptions(rates)
    if n_machines > 1:
        place += f", {n_machines} machines"
        assumptions.append("machines as fast as this one, messages free, quadratic models on one of them")
    return Plan(
        job=str(job),
        solver=job.solver,
        place=place if peak <= room else "nowhere",
        fits=peak <= room,
        memory=parts,
        peak=peak,
        available=room,
        seconds=seconds,
        assumptions=tuple(assumptions),
    )


def _check_size(name: str, value: int) -> int:
    """Return a size whose products with the others are numbers of float64."""
    if check_positive_int(name, value) > _LARGEST:
        raise InvalidInputError(f"expected {name} of at most {_LARGEST:.0e}, got a larger number")
    return int(value)


@dataclass(frozen=True)
class _Job:
    """The sizes and terms of a dictionary and of a solve over it."""

    n_samples: int
    n_columns: int
    n_steps: int
    n_features: int
    hidden: tuple[int, ...]
    n_taps: int | None
    n_outputs: int
    loss: PlannedLoss
    readout: ParsedReadout
    strength_ratio: float
    known_active: int | None
    on_gpu: bool
    has_gram: bool

    @property
    def n_rows(self) -> int:
        return self.readout.n_rows(self.n_samples, self.n_steps)

    @property
    def n_subnetworks(self) -> int:
        return self.n_columns // self.readout.n_windows // self.hidden[-1]

    @property
    def n_planes(self) -> int:
        return self.readout.n_planes(self.n_steps)

    @property
    def solver(self) -> str:
        if self.loss == "squared" and self.has_gram:
            return "active-set"
        return "interior-point" if self.loss == "hinge" else "newton"

    @property
    def width(self) -> int:
        """Outputs that are solved for together; the others are problems of their own."""
        return self.n_outputs if self.loss == "softmax" else 1

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
        """Steps per problem, by halvings of the strength."""
        halvings = log2(1 / self.strength_ratio)
        return {"active-set": 6 * halvings, "interior-point": 10 + 1.5 * halvings, "newton": 2 * halvings}[self.solver]

    @property
    def n_passes(self) -> float:
        """Products with the dictionary in a solve of all outputs."""
        return 2 + (self.n_solver_steps * self.n_outputs / self.width if self.solver == "newton" else 0)

    def seconds(self, rates: Rates, n_machines: int) -> dict[str, float]:
        """Return the rough time of each stage; one machine solves the quadratic models, all share the rest."""
        layers = zip((self.n_features, *self.hidden), self.hidden, strict=False)
        macs = [
            width * (UPDATE_MACS + (self.n_taps * _TAP_MAC if self.n_taps else below * (_SPIKE_MAC if n else 1)))
            for n, (below, width) in enumerate(layers)
        ]
        n_networks = self.n_samples * self.n_steps * self.n_subnetworks
        product = self.n_rows * self.n_columns * self.n_planes / rates.products
        n_steps = self.n_outputs / self.width * self.n_solver_steps
        squares, n_factors, order = _GRAM_MAC * self.n_columns**2, n_steps, _TYPICAL_SIZE * self.n_active
        if self.solver == "interior-point":
            squares, order = n_steps * self.n_columns**2, float(self.n_columns)
        elif self.solver == "newton":
            # A softmax adds a product over all entries to one for each of its outputs.
            blocks = 1 / self.width + (self.width > 1)
            squares, n_factors = n_steps * blocks * (_TYPICAL_SIZE * self.n_working) ** 2, 4 * n_steps
        models = n_factors * (_CHOLESKY_MAC * order**3 / rates.dense_macs + _STEP_SECONDS)
        rest = self.n_passes * self.width * product + self.n_rows * squares / rates.dense_macs
        shared = {
            "roll-out": n_networks * sum(macs) / rates.neuron_macs,
            "dictionary": _PACKING * product,
            "solve": rest,
            "certificate": 2 * self.n_outputs * product,
        }
        times = {name: seconds / n_machines for name, seconds in shared.items()}
        return times | {"solve": times["solve"] + models}

    def memory(self) -> dict[str, int]:
        """Return the bytes of each part."""
        parts = {
            "libraries": _LIBRARIES_GPU if self.on_gpu else _LIBRARIES,
            "inputs": 4 * self.n_samples * self.n_steps * self.n_features,
            **({"taps": _TAP_BYTES * self.n_taps * sum(self.hidden) * self.n_subnetworks} if self.n_taps else {}),
            "roll-out chunk": 3 * (CHUNK_BYTES_GPU if self.on_gpu else CHUNK_BYTES),
            "dictionary": dictionary_bytes(self.n_rows, self.n_columns, self.n_planes),
            "building it": build_bytes(self.n_rows, self.n_columns, self.n_planes),
            "row vectors": _ROW_VECTORS * dense_bytes(self.n_rows, self.n_outputs),
        }
        if self.solver == "active-set":
            return parts | {"Gram matrix": gram_bytes(self.n_columns)}
        if self.solver == "interior-point":
            dense = DENSE_COPIES * dense_bytes(self.n_rows, self.n_columns)
            return parts | {"dense columns": dense, "normal matrix": gram_bytes(self.n_columns)}
        most = _HESSIAN_BLOCK_GPU if self.on_gpu else _HESSIAN_BLOCK
        block = min(most, 3 * dense_bytes(self.n_rows, self.n_working))
        return parts | {"Hessian": hessian_bytes(self.n_working) + block}

    def peak(self, parts: dict[str, int]) -> int:
        """Return the bytes at the worst moment: while building, while merging rows, or while solving."""
        merges = self.solver != "active-set"
        building = parts["roll-out chunk"] + parts["building it"]
        merging = (1 + GROUPING_COPIES) * parts["dictionary"] if merges else 0
        solving = (1 + merges) * parts["dictionary"] + self._solver_bytes(parts)
        return parts["libraries"] + parts["inputs"] + parts.get("taps", 0) + max(building, merging, solving)

    def peak_on_disk(self, parts: dict[str, int]) -> int:
        """Return the same where the dictionary is on disk."""
        own = parts["libraries"] + parts.get("taps", 0) + _SHARDS
        return own + max(parts["roll-out chunk"], self._solver_bytes(parts))

    def _solver_bytes(self, parts: dict[str, int]) -> int:
        systems = ("row vectors", "Gram matrix", "Hessian", "dense columns", "normal matrix")
        return sum(parts.get(name, 0) for name in systems)

    def assumptions(self, rates: Rates) -> list[str]:
        guess = " (a guess: say n_active where it is known)" if self.known_active is None else ""
        return [
            f"{self.n_solver_steps:.0f} {self.solver} steps per problem, {self.n_active:,} active coefficients{guess}",
            "all rows and all columns are distinct: merging makes real problems smaller",
            f"rates of this machine, {rates.device} with {rates.n_threads} threads; times may be several times off",
        ]

    def __str__(self) -> str:
        widths = ", ".join(map(str, self.hidden))
        taps = f" with {self.n_taps} taps per neuron" if self.n_taps else ""
        return (
            f"{self.n_rows:,} rows × {self.n_columns:,} columns, {self.n_steps} steps, {self.n_features} features, "
            f"hidden ({widths}){taps}, {self.loss} loss with {self.n_outputs} outputs, readout {self.readout}, "
            f"strength {self.strength_ratio:g} of the critical one"
        )
