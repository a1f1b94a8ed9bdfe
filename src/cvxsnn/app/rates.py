"""How fast this machine runs the library's own kernels, measured in a few seconds."""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from ..convex.solvers.newton import self_product
from ..convex.solvers.quadratic import minimise_l1_quadratic, solve_semidefinite
from ..core.checks import check_device
from ..dictionary import build_dictionary
from ..neurons import roll_out
from ..witnesses import gaussian_witnesses

_SECONDS = 0.15
"""Time for each kernel, one call to warm up not counted."""

_N_ROWS, _N_ATOMS, _N_ACTIVE = 4096, 1024, 256
_MANY = 9
"""Outputs of a product, beside a product with one, to tell the cost of an entry from the cost of an output."""

_FILE = 32 * 2**20


@dataclass(frozen=True)
class Rates:
    """What one machine does in a second.

    Attributes
    ----------
    device : str
    n_threads : int
        Threads of the processor that shared the work.
    updates : float
        Steps of neurons: leak, reset, threshold.
    real_macs, spike_macs : float
        Multiplications of a roll-out, with real inputs and with spikes.
    packed : float
        Entries packed, transposed and compared.
    visited : float
        Entries of a packed dictionary that a product D·W or Dᵀ·R goes through.
    products : float
        Entries times outputs of such a product.
    gram_macs, hessian_macs : float
        Multiplications of exact integer Gram matrices, and of real symmetric products, both halves counted.
    cholesky_flops : float
        Operations of a float64 Cholesky factor, n³/3 each.
    streamed : float
        Bytes of a float64 matrix in one product with a vector.
    steps : float
        Active-set steps on matrices so small that nothing but the calls costs time.
    disk : float
        Bytes written to, and read from, the folder for temporary files.
    """

    device: str
    n_threads: int
    updates: float
    real_macs: float
    spike_macs: float
    packed: float
    visited: float
    products: float
    gram_macs: float
    hessian_macs: float
    cholesky_flops: float
    streamed: float
    steps: float
    disk: float


def measure_rates(device: torch.device | str = "cpu") -> Rates:
    """Time the kernels on a device, in about three seconds."""
    place = check_device(device)
    seconds = partial(_best_seconds, place=place)
    updates, real_macs, spike_macs = _rollout_rates(place, seconds)
    dense, right_of_dense = _random(place, _N_ROWS, _N_ATOMS), _random(place, _N_ATOMS)
    spikes = dense < -0.5
    dictionary = build_dictionary(spikes)
    rows = _random(place, _N_ROWS, _MANY)
    one, many = (seconds(partial(dictionary.rmatvec, rows[:, :m].contiguous())) for m in (1, _MANY))
    # The time of a product is a line: so much for an entry, and so much for each of its outputs.
    each = max((many - one) / (_MANY - 1), 0.05 * one)
    n_entries = _N_ROWS * _N_ATOMS
    factor = _random(place, _N_ROWS, _N_ACTIVE)
    matrix = self_product(factor)
    right = factor[0]
    small, start = torch.eye(8, dtype=torch.float64, device=place), torch.zeros(8, dtype=torch.float64, device=place)
    strength = torch.full_like(start, 0.5)
    return Rates(
        device=str(place),
        n_threads=torch.get_num_threads(),
        updates=updates,
        real_macs=real_macs,
        spike_macs=spike_macs,
        packed=n_entries / seconds(lambda: build_dictionary(spikes)),
        visited=n_entries / max(one - each, 0.05 * one),
        products=n_entries / each,
        gram_macs=n_entries * _N_ATOMS / seconds(dictionary.gram),
        hessian_macs=_N_ROWS * _N_ACTIVE**2 / seconds(lambda: self_product(factor * rows[:, :1])),
        cholesky_flops=_N_ACTIVE**3 / 3 / seconds(lambda: solve_semidefinite(matrix, right, 1e-9)),
        streamed=8 * n_entries / seconds(partial(torch.mv, dense, right_of_dense)),
        # Two steps: from zero to the minimiser, and to see that it is one.
        steps=2 / seconds(lambda: minimise_l1_quadratic(small, start + 1, strength, start, tolerance=1e-9)),
        disk=_disk_rate(),
    )


def _rollout_rates(place: torch.device, seconds: Callable[[Callable[[], object]], float]) -> tuple[float, float, float]:
    """Neuron steps, multiplications with real inputs, and with spikes, in a second.

    One narrow layer is all steps, one that reads many features and one that reads many spikes add multiplications.
    """
    n_samples, n_steps, wide, width = 256, 16, 256, 512
    inputs = _random(place, n_samples, n_steps, wide)

    def time_of(n_features: int, hidden: tuple[int, ...]) -> float:
        witnesses = gaussian_witnesses(n_features, hidden)
        return seconds(lambda: roll_out(witnesses.layers, inputs[..., :n_features]))

    n_updates, n_macs = n_samples * n_steps * width, n_samples * n_steps * width * wide
    narrow, broad, deep = time_of(1, (width,)), time_of(wide, (width,)), time_of(1, (wide, width))
    layers = 1 + wide / width
    return (
        n_updates / narrow,
        n_macs / max(broad - narrow, 0.05 * broad),
        n_macs / max(deep - layers * narrow, 0.05 * deep),
    )


def _disk_rate() -> float:
    """Bytes a second, the slower of writing and reading; what was just written may be read from memory."""
    data = os.urandom(_FILE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        begin = time.perf_counter()
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        written = time.perf_counter() - begin
        begin = time.perf_counter()
        path.read_bytes()
        return _FILE / max(written, time.perf_counter() - begin)


def _best_seconds(run: Callable[[], object], place: torch.device) -> float:
    """The shortest of as many calls as fit into the time, two at least, after one to warm up."""
    # Where one thread does the work, its own time: other people's jobs are no property of the machine.
    is_alone = place.type == "cpu" and torch.get_num_threads() == 1
    clock = time.thread_time if is_alone else time.perf_counter
    run()
    taken: list[float] = []
    while len(taken) < 2 or sum(taken) < _SECONDS:
        begin = clock()
        run()
        if place.type == "cuda":
            torch.cuda.synchronize(place)
        taken.append(clock() - begin)
    return min(taken)


def _random(place: torch.device, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(place)
