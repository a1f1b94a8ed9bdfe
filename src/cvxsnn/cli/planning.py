"""Memory and rough time of a job before it starts: arithmetic on bytes, and rates measured on this machine.

Memory is an upper estimate. Time is work divided by two rates; nobody knows beforehand how many steps a solver takes,
so it may be several times off.
"""

import timeit
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch

from ..core.checks import check_choice, check_device, check_divides, check_positive_int
from ..core.errors import InvalidInputError
from ..core.formatting import align, format_seconds, plural
from ..core.memory import available_bytes, dense_bytes, format_bytes, parse_bytes, symmetric_bytes
from ..dictionary.base import parse_readout
from ..dictionary.spikes import GROUPING_COPIES, dictionary_bytes
from ..neurons import roll_out
from ..witnesses import gaussian_witnesses
from .common import parse_widths
from .plan import Job


@dataclass(frozen=True)
class Assumptions:
    """Costs that are assumed rather than computed."""

    largest: int = 10**18
    """Largest size that is planned: beyond any machine, and its products do not overflow float64."""
    update: int = 25
    """Multiplications that take as long as one neuron's leak, reset and threshold."""
    tap_bytes: int = 36
    """Bytes per synapse with a delay: weight, source and delay, and again in the lists that the kernel reads."""
    libraries: int = 2**28
    """Bytes for torch, BLAS and the blocks of a roll-out."""
    row_vectors: int = 12
    """Vectors with one entry per row and output during a solve: scores, duals, gradients, trial points."""
    working_atoms: int = 5000
    """Most atoms in the working set of an iterative solver, unless the number of active atoms is given."""
    solver_steps: int = 20
    """Linear systems per problem of an iterative solver; a squared loss with a Gram matrix takes one."""
    gram_atoms: int = 10_000
    """Most atoms for which the squared loss is solved with one Gram matrix of all of them."""
    dense_copies: int = 3
    """Copies of the columns in float64 that the interior point method (hinge loss) needs."""


ASSUMED = Assumptions()


class Rates(NamedTuple):
    """Multiplications per second of a roll-out, and of a dense float64 product."""

    roll_out: float
    dense: float


@dataclass(frozen=True)
class Plan:
    """Forecast of a job.

    Attributes
    ----------
    title : str, sizes on one line
    place : str, "in memory on cpu", "in memory on cuda", "out of core on cpu" or "nowhere"
    fits : bool
    memory : dict of str to int, bytes of each part; they are not all alive at the same time
    peak, available : int, bytes needed at the worst moment, and bytes available
    seconds : dict of str to float, rough time of each stage
    """

    title: str
    place: str
    fits: bool
    memory: dict[str, int]
    peak: int
    available: int
    seconds: dict[str, float]

    def __str__(self) -> str:
        """Return two small tables and where the job runs."""
        sizes = {**self.memory, "peak": self.peak, "available": self.available}
        times = {**self.seconds, "total": sum(self.seconds.values())}
        memory = align(("memory", ""), [(name, format_bytes(size)) for name, size in sizes.items()])
        time = align(("rough time", ""), [(name, f"~{format_seconds(value)}") for name, value in times.items()])
        note = "assumed: all rows and columns are distinct; times may be several times off"
        return f"{self.title}\n{memory}\n{time}\nruns {self.place}\n{note}"


def make_plan(job: Job, rates: Rates | None = None) -> Plan:
    """Return the memory and the rough time of a dictionary and a certified solve.

    Parameters
    ----------
    job : Job
        The sizes.
    rates : Rates, optional
        By default measured on this machine in about a second.
    """
    check_choice("--loss", job.loss, ("squared", "logistic", "softmax", "hinge"))
    parsed = parse_readout(job.readout, job.windows)
    widths = (job.columns,) if job.hidden is None else parse_widths(job.hidden)
    sizes = [(f"--{name}", value) for name, value in asdict(job).items() if isinstance(value, int)]
    for name, size in (*sizes, *(("--hidden", width) for width in widths)):
        if check_positive_int(name, size) > ASSUMED.largest:
            raise InvalidInputError(f"expected {name} of at most {ASSUMED.largest:.0e}, got a larger number")
    parsed.check_length(job.steps)
    check_divides("the last width of --hidden", widths[-1], job.columns, "witnesses")
    device = check_device(job.device)
    available = available_bytes(device) if job.memory is None else parse_bytes(job.memory)
    if available is None:
        raise InvalidInputError("the available memory of this system is unknown: pass --memory")

    n_rows = parsed.n_rows(job.rows, job.steps)
    n_columns = job.columns * parsed.n_windows
    n_networks = job.columns // widths[-1]
    layers = zip((job.features, *widths), widths, strict=False)
    n_synapses = n_networks * sum(width * (job.taps or below) for below, width in layers)
    is_direct = job.loss == "squared" and n_columns <= ASSUMED.gram_atoms
    n_together = job.outputs if job.loss == "softmax" else 1  # other losses solve one problem per output
    order = n_columns
    if not is_direct and job.loss != "hinge":
        order = n_together * min(job.active or ASSUMED.working_atoms, n_rows, n_columns)

    stored = dictionary_bytes(n_rows, n_columns, str(parsed), job.steps)
    columns_as_numbers = ASSUMED.dense_copies * dense_bytes(n_rows, n_columns) if job.loss == "hinge" else 0
    parts = {
        "inputs": 4 * job.rows * job.steps * job.features,
        "synapses": (ASSUMED.tap_bytes if job.taps else 4) * n_synapses,
        "dictionary": stored,
        "building it": GROUPING_COPIES * stored,
        "row vectors": ASSUMED.row_vectors * dense_bytes(n_rows, job.outputs),
        "solver": symmetric_bytes(order) + columns_as_numbers,
    }
    solving = parts["row vectors"] + parts["solver"]
    always = ASSUMED.libraries + parts["synapses"]
    # Solvers other than the direct one hold a second dictionary, with equal rows merged.
    in_memory = always + parts["inputs"] + max(parts["building it"], (2 - is_direct) * stored + solving)
    # The interior point method needs all columns in memory, and dictionaries on disk are read by the CPU.
    streams = in_memory > available and device.type == "cpu" and job.loss != "hinge"
    peak = always + solving if streams else in_memory
    place = f"{'out of core' if streams else 'in memory'} on {device}" if peak <= available else "nowhere"

    rates = rates or measure_rates(device)
    n_updates = job.rows * job.steps * n_networks * sum(widths)
    n_systems = 1 if is_direct else ASSUMED.solver_steps * job.outputs / n_together
    seconds = {
        "roll-out": (job.rows * job.steps * n_synapses + ASSUMED.update * n_updates) / rates.roll_out,
        "solve": n_systems * (n_rows * order**2 + order**3) / rates.dense,
    }
    title = f"{plural(n_rows, 'row')} × {plural(n_columns, 'column')}, {plural(job.steps, 'step')}, "
    title += f"{plural(job.features, 'feature')}, hidden {widths}, "
    title += f"{job.loss} loss with {plural(job.outputs, 'output')}, readout {parsed}"
    return Plan(title, place, peak <= available, parts, peak, available, seconds)


def measure_rates(device: torch.device) -> Rates:
    """Return the rates of a device, measured in about a second."""
    n_samples = 256
    n_steps = 16
    n_features = 64
    n_neurons = 512
    dense = torch.randn(4096, n_neurons, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(device)
    witnesses = gaussian_witnesses(n_features, (n_neurons,))
    inputs = dense.flatten()[: n_samples * n_steps * n_features].view(n_samples, n_steps, n_features)
    n_updates = n_samples * n_steps * n_neurons
    return Rates(
        n_updates * (n_features + ASSUMED.update) / _best_seconds(lambda: roll_out(witnesses.layers, inputs), device),
        dense.numel() * n_neurons / _best_seconds(lambda: dense.T @ dense, device),
    )


def _best_seconds(function: Callable[[], object], device: torch.device) -> float:
    """Return the shortest of three calls, after one to warm up."""

    def call() -> None:
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # calls return before a GPU has finished

    # Other processes only ever add time, so the shortest is the closest to the machine's own rate.
    return min(timeit.repeat(call, number=1, repeat=4)[1:])
