"""What a job will take, before it starts: memory, time, and where it can run.

Memory is arithmetic (:mod:`cvxsnn.core.memory`). Time is work (:mod:`cvxsnn.app.workload`), divided by rates that
were measured on this machine (:mod:`cvxsnn.app.rates`).
"""

from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any

import torch

from ..core.checks import check_choice, check_device, check_divides, check_int_at_least, check_positive_int
from ..core.errors import BudgetError, InvalidInputError
from ..core.memory import available_bytes, format_bytes, gram_bytes
from ..core.text_table import align
from ..dictionary import Readout
from .rates import Rates, measure_rates
from .workload import Job, Loss


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
    job = Job(
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
    if device == "auto" and machines.n_gpus:
        device = "cuda"
    rates = rates or measure_rates(check_device(device))
    room = check_positive_int("memory", memory) if memory is not None else available_bytes(rates.device)
    if room is None:
        raise InvalidInputError("expected the system to tell how much memory there is, it does not: pass memory")
    on_gpu = torch.device(rates.device).type == "cuda"
    job = replace(job, on_gpu=on_gpu, has_room_for_gram=not on_gpu or gram_bytes(n_witnesses) <= room)
    return _forecast(job, rates, room, machines)


def _forecast(job: Job, rates: Rates, room: int, cluster: Cluster) -> Plan:
    n_machines = cluster.n_machines
    # Each machine has its share of the rows, and all of what has the size of the columns.
    share = job if n_machines == 1 else replace(job, n_samples=ceil(job.n_samples / n_machines))
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


def _assumptions(job: Job, rates: Rates, cluster: Cluster) -> tuple[str, ...]:
    steps = {
        "active-set": "active-set steps an output",
        "newton": "Newton steps a problem",
        "interior-point": "interior-point steps an output",
    }[job.solver]
    found = [
        f"{job.n_solver_steps:.0f} {steps}, {job.n_active:,} active coefficients of outputs solved for together"
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
