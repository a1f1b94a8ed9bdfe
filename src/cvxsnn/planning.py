"""What a job will take, before it starts: memory, time, and where it can run.

Memory is arithmetic (:mod:`cvxsnn.memory`). Time is work, counted below, divided by rates that were measured on this
machine (:mod:`cvxsnn.rates`). How many steps a solver takes and how many coefficients it ends with nobody knows before:
the constants here are what runs on the paper's tasks and on random dictionaries took, see ``docs/scaling.md``.
"""

from dataclasses import asdict, dataclass, fields
from math import ceil, log2, sqrt
from typing import Any, Literal

import torch

from .checks import check_choice, check_device, check_divides, check_int_at_least, check_positive_int
from .convex.active_set import MAX_ATOMS
from .dictionary import Readout
from .errors import BudgetError, InvalidInputError
from .memory import (
    DENSE_COPIES,
    GROUPING_COPIES,
    available_bytes,
    build_bytes,
    dense_bytes,
    dictionary_bytes,
    format_bytes,
    gram_bytes,
    hessian_bytes,
    n_planes_of,
)
from .neurons.rollout import CHUNK_BYTES
from .rates import Rates, measure_rates
from .text_table import align

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

_LIBRARIES = 2**26
"""Buffers that torch and BLAS keep for themselves once they work."""

_SHARD_BYTES = 2**28
"""Memory for the shards that are being read, where the dictionary is on disk."""

_HESSIAN_BLOCK = 3 * 8 * 2**24
"""Bytes of a block of rows of the working set: as numbers, times a root, and as BLAS wants it."""


@dataclass(frozen=True)
class Cluster:
    """Machines like this one, with other numbers of cores or GPUs each. GPUs, where there are any, do the work."""

    n_machines: int = 1
    n_cores: int | None = None
    n_gpus: int = 0

    def __post_init__(self) -> None:
        """Refuse a cluster of nothing."""
        check_positive_int("n_machines", self.n_machines)
        check_int_at_least("n_gpus", self.n_gpus, 0)
        if self.n_cores is not None:
            check_positive_int("n_cores", self.n_cores)

    def speed(self, rates: Rates) -> float:
        """How many times the measured rates one machine of the cluster reaches, if all its parts count."""
        if rates.device != "cpu":
            return float(max(1, self.n_gpus))
        return (self.n_cores or rates.n_threads) / rates.n_threads

    def __str__(self) -> str:
        """The parts in words."""
        parts = f"{self.n_gpus} GPUs" if self.n_gpus else f"{self.n_cores or 'as many'} cores"
        return f"{self.n_machines} machines of {parts}"


@dataclass(frozen=True)
class Plan:
    """A forecast.

    Attributes
    ----------
    job : str
        Sizes and terms on one line.
    solver : str
        The one that ``solve`` would take.
    place : str
        "in memory on cpu", "in memory on cuda", "out of core on cpu" or "nowhere".
    fits : bool
    memory : dict of str to int
        Bytes of each part on one machine; they are not all alive at once.
    peak, available : int
        Bytes at the worst moment on one machine, the interpreter not counted, and bytes there are.
    seconds : dict of str to float
        Of each stage.
    assumptions : tuple of str
        What was taken for granted, one sentence each.
    rates : Rates
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
    rates: Rates

    @property
    def total_seconds(self) -> float:
        """Of all stages."""
        return sum(self.seconds.values())

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return asdict(self) | {"total_seconds": self.total_seconds}

    def memory_rows(self) -> list[tuple[str, str]]:
        """Parts and their bytes, for tables."""
        rows = [(name, format_bytes(size)) for name, size in self.memory.items()]
        return [*rows, ("peak", format_bytes(self.peak)), ("available", format_bytes(self.available))]

    def time_rows(self) -> list[tuple[str, str]]:
        """Stages and their times, for tables."""
        rows = [(name, format_seconds(seconds)) for name, seconds in self.seconds.items()]
        return [*rows, ("total", format_seconds(self.total_seconds))]

    def __str__(self) -> str:
        """Two small tables, the place, and what was assumed."""
        return "\n".join(
            [
                self.job,
                align(("memory", ""), self.memory_rows()),
                align(("time", ""), self.time_rows()),
                f"runs {self.place}, solver {self.solver}",
                *(f"assumed: {sentence}" for sentence in self.assumptions),
            ]
        )


@dataclass(frozen=True)
class _Work:
    """What a stage does, counted in the units of :class:`Rates`."""

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
class _Job:
    """The sizes behind a plan."""

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

    @property
    def n_rows(self) -> int:
        return self.n_samples * self.n_steps if self.readout == "all" else self.n_samples

    @property
    def n_planes(self) -> int:
        return n_planes_of(self.readout, self.n_steps)

    @property
    def n_entries(self) -> int:
        return self.n_rows * self.n_columns * self.n_planes

    @property
    def solver(self) -> str:
        if self.loss == "squared" and self.n_columns <= MAX_ATOMS:
            return "active-set"
        return "interior-point" if self.loss == "hinge" else "newton"

    @property
    def width(self) -> int:
        """Outputs that are solved for together; the others are problems of their own."""
        return self.n_outputs if self.loss == "softmax" else 1

    @property
    def halvings(self) -> float:
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
    def n_passes(self) -> float:
        """Products Dᵀ·R of a solve, for each group of outputs solved for together."""
        if self.solver == "newton":
            return 2 + _NEWTON_STEPS * self.halvings
        return 2.0

    def rollout(self) -> _Work:
        n_subnetworks = self.n_columns // self.hidden[-1]
        times = self.n_samples * self.n_steps * n_subnetworks
        upper = sum(below * width for below, width in zip(self.hidden, self.hidden[1:], strict=False))
        return _Work(
            updates=times * sum(self.hidden),
            real_macs=times * self.n_features * self.hidden[0],
            spike_macs=times * upper,
        )

    def building(self) -> _Work:
        return _Work(packed=self.n_entries)

    def solving(self) -> _Work:
        n_problems = self.n_outputs // self.width
        entries = self.n_rows * self.n_columns
        size = _TYPICAL_SIZE * self.n_active
        visited, products = self.n_passes * self.n_entries, self.n_passes * self.n_entries * self.width
        if self.solver == "active-set":
            # Products and the Gram matrix are shared by the outputs.
            n_steps = n_problems * _SIGN_STEPS_OF_PATH * self.halvings
            return _Work(
                visited=visited,
                products=products * n_problems,
                gram_macs=entries * self.n_columns,
                cholesky_flops=n_steps * size**3 / 3,
                streamed=n_steps * 8 * (self.n_columns**2 + 4 * size**2),
                steps=n_steps * _CALLS_OF_STEP,
            )
        if self.solver == "interior-point":
            n_steps = n_problems * (_INTERIOR_STEPS + 1.5 * self.halvings)
            return _Work(
                packed=n_problems * self.n_entries,
                visited=n_problems * visited,
                products=n_problems * products,
                hessian_macs=n_steps * entries * self.n_columns,
                cholesky_flops=n_steps * self.n_columns**3 / 3,
                streamed=n_steps * _INTERIOR_PASSES * 8 * entries,
                steps=n_steps * _CALLS_OF_STEP,
            )
        n_newton = n_problems * _NEWTON_STEPS * self.halvings
        working = _TYPICAL_SIZE * self.n_working
        n_steps = n_newton * _SIGN_STEPS_OF_MODEL
        # A softmax adds a product over all entries to one for each of its outputs.
        blocks = 1 / self.width + (self.width > 1)
        return _Work(
            packed=n_problems * self.n_entries,
            visited=n_problems * visited,
            products=n_problems * products,
            hessian_macs=n_newton * self.n_rows * working**2 * blocks,
            cholesky_flops=n_steps * size**3 / 3,
            streamed=n_steps * 8 * 4 * working**2,
            steps=(n_steps + n_newton) * _CALLS_OF_STEP,
        )

    def certifying(self) -> _Work:
        share = 1 + min(1.0, self.n_active / self.n_columns)
        return _Work(visited=share * self.n_entries, products=share * self.n_entries * self.n_outputs)

    def memory(self) -> dict[str, int]:
        """Bytes of each part."""
        parts = {
            "libraries": _LIBRARIES,
            "inputs": 4 * self.n_samples * self.n_steps * self.n_features,
            "roll-out chunk": 3 * CHUNK_BYTES,
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
            block = min(_HESSIAN_BLOCK, 3 * dense_bytes(self.n_rows, self.n_working))
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
        widths = ", ".join(map(str, self.hidden))
        return (
            f"{self.n_rows:,} rows × {self.n_columns:,} columns, {self.n_steps} steps, {self.n_features} features, "
            f"hidden ({widths}), {self.loss} loss with {self.n_outputs} outputs, readout {self.readout}, strength "
            f"{self.strength_ratio:g} of the critical one"
        )


def plan(
    n_samples: int,
    n_witnesses: int,
    n_steps: int,
    *,
    n_features: int = 16,
    hidden: tuple[int, ...] | None = None,
    n_outputs: int = 1,
    loss: Loss = "squared",
    readout: Readout = "last",
    strength_ratio: float = 0.01,
    n_active: int | None = None,
    device: str = "auto",
    memory: int | None = None,
    cluster: Cluster | None = None,
    rates: Rates | None = None,
) -> Plan:
    """Foresee the memory and the time of a dictionary and of a certified solve over it.

    Parameters
    ----------
    n_samples, n_witnesses, n_steps, n_features : int
        Sequences, columns, steps of a sequence, numbers of a step.
    hidden : tuple of int, optional
        Widths of the hidden layers of one subnetwork; one layer of all witnesses when not given.
    n_outputs : int
    loss : "squared", "logistic", "softmax" or "hinge"
    readout : "last", "mean" or "all"
    strength_ratio : float
        Strength of the penalty, relative to the one at which all coefficients are zero.
    n_active : int, optional
        Active atoms of an output, where an earlier solve has shown them: time grows with their third power, and a guess
        may be wrong by several times.
    device : "auto", "cpu" or "cuda"
        "auto" is the GPU where there is one.
    memory : int, optional
        Bytes of one machine; what this one has available when not given.
    cluster : Cluster, optional
        This machine when not given.
    rates : Rates, optional
        Measured here and now when not given.
    """
    check_choice("loss", loss, ("squared", "logistic", "softmax", "hinge"))
    check_choice("readout", readout, ("last", "mean", "all"))
    if not 0 < strength_ratio < 1:
        raise InvalidInputError(f"expected strength_ratio between 0 and 1, got {strength_ratio!r}")
    n_witnesses = check_positive_int("n_witnesses", n_witnesses)
    widths = tuple(check_positive_int("hidden", width) for width in hidden or (n_witnesses,))
    check_divides("the last width of hidden", widths[-1], n_witnesses, "columns")
    job = _Job(
        n_samples=check_positive_int("n_samples", n_samples),
        n_columns=n_witnesses,
        n_steps=check_positive_int("n_steps", n_steps),
        n_features=check_positive_int("n_features", n_features),
        hidden=widths,
        n_outputs=check_positive_int("n_outputs", n_outputs),
        loss=loss,
        readout=readout,
        strength_ratio=float(strength_ratio),
        known_active=None if n_active is None else check_positive_int("n_active", n_active),
    )
    machines = cluster or Cluster()
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() or machines.n_gpus else "cpu"
    rates = rates or measure_rates(check_device(device))
    room = check_positive_int("memory", memory) if memory is not None else available_bytes(rates.device)
    if room is None:
        raise InvalidInputError("expected the system to tell how much memory there is, it does not: pass memory")
    return _forecast(job, rates, room, machines)


def _forecast(job: _Job, rates: Rates, room: int, cluster: Cluster) -> Plan:
    n_machines = cluster.n_machines
    # Each machine has its share of the rows, and all of what has the size of the columns.
    share = job if n_machines == 1 else _Job(**{**asdict(job), "n_samples": ceil(job.n_samples / n_machines)})
    parts = share.memory()
    in_memory, on_disk = (share.peak(parts, on_disk=on_disk) for on_disk in (False, True))
    is_streamed = in_memory > room and rates.device == "cpu" and job.solver != "interior-point"
    peak = on_disk if is_streamed else in_memory
    fits = peak <= room
    speed = cluster.speed(rates)
    stages = {
        "roll-out": job.rollout(),
        "dictionary": job.building(),
        "solve": job.solving(),
        "certificate": job.certifying(),
    }
    seconds = {name: work.seconds(rates, speed, n_machines) for name, work in stages.items()}
    if is_streamed:
        n_problems = job.n_outputs // job.width if job.solver == "newton" else 1
        n_readings = 3 + job.n_passes * n_problems
        seconds["disk"] = n_readings * parts["dictionary"] / rates.disk
    way = "out of core" if is_streamed else "in memory"
    return Plan(
        job=str(job),
        solver=job.solver,
        place=f"{way} on {rates.device}" + (f", {cluster}" if n_machines > 1 else "") if fits else "nowhere",
        fits=fits,
        memory=parts,
        peak=peak,
        available=room,
        seconds=seconds,
        assumptions=_assumptions(job, rates, cluster),
        rates=rates,
    )


def check_plan(found: Plan) -> None:
    """Refuse a job that fits nowhere, before it starts."""
    if not found.fits:
        raise BudgetError(
            f"expected a job within {format_bytes(found.available)}, but {found.job} need {format_bytes(found.peak)} "
            f"with solver {found.solver!r}: use fewer rows or witnesses, or more machines"
        )


def _assumptions(job: _Job, rates: Rates, cluster: Cluster) -> tuple[str, ...]:
    steps = {
        "active-set": f"{_SIGN_STEPS_OF_PATH * job.halvings:.0f} active-set steps an output",
        "newton": f"{_NEWTON_STEPS * job.halvings:.0f} Newton steps a problem",
        "interior-point": f"{_INTERIOR_STEPS + 1.5 * job.halvings:.0f} interior-point steps an output",
    }[job.solver]
    found = [
        f"{steps}, {job.n_active:,} active coefficients of outputs solved for together"
        + (" (a guess: say n_active where it is known)" if job.known_active is None else ""),
        "all rows and all columns are distinct: merging makes real problems smaller",
        f"rates of this machine, {rates.device} with {rates.n_threads} threads",
    ]
    if cluster.n_machines > 1 or cluster.speed(rates) != 1:
        found.append(
            f"{cluster}, each part as fast as the one measured, rows shared out evenly, messages free; quadratic "
            "models on one machine"
        )
    return tuple(found)


def format_seconds(seconds: float) -> str:
    """A time for people."""
    for limit, size, unit in ((1.0, 1e-3, "ms"), (120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172_800.0, 3600.0, "h")):
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86_400:,.1f} days"
