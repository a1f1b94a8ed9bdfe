"""How fast this machine runs the library's own kernels, measured in about a second."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from ..convex.solvers.newton import self_product
from ..core.checks import check_device
from ..dictionary import build_dictionary
from ..neurons import roll_out
from ..witnesses import gaussian_witnesses

UPDATE_MACS = 25
"""Multiplications that take as long as one neuron's leak, reset and threshold."""


@dataclass(frozen=True)
class Rates:
    """What one machine does per second.

    Attributes
    ----------
    device : str
    n_threads : int, threads of the processor that shared the work
    neuron_macs : float, multiplications of a roll-out, a neuron's step counted as ``UPDATE_MACS`` of them
    products : float, entries times outputs of a product with a packed dictionary
    dense_macs : float, multiplications of a float64 symmetric product
    """

    device: str
    n_threads: int
    neuron_macs: float
    products: float
    dense_macs: float


def measure_rates(device: torch.device | str = "cpu", seconds: float = 0.15) -> Rates:
    """Return the rates of a device, from as many runs of each kernel as fit into some seconds."""
    place = check_device(device)
    best = partial(_best_seconds, place=place, seconds=seconds)
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(4096, 1024, generator=generator, dtype=torch.float64).to(place)
    witnesses, inputs = gaussian_witnesses(64, (512,)), dense.view(256, 256, 64)[:, :16]
    dictionary, residuals, active = build_dictionary(dense < -0.5), dense[:, :4].contiguous(), dense[:, :256]
    return Rates(
        device=str(place),
        n_threads=torch.get_num_threads(),
        neuron_macs=256 * 16 * 512 * (64 + UPDATE_MACS) / best(lambda: roll_out(witnesses.layers, inputs)),
        products=dense.numel() * 4 / best(lambda: dictionary.rmatvec(residuals)),
        dense_macs=len(dense) * 256**2 / best(lambda: self_product(active)),
    )


def _best_seconds(run: Callable[[], object], place: torch.device, seconds: float) -> float:
    """Return the shortest of at least two calls, after one to warm up."""
    # Where one thread does the work, its own time: other people's jobs are no property of the machine.
    is_alone = place.type == "cpu" and torch.get_num_threads() == 1
    clock = time.thread_time if is_alone else time.perf_counter
    run()
    taken: list[float] = []
    while len(taken) < 2 or sum(taken) < seconds:
        begin = clock()
        run()
        if place.type == "cuda":
            torch.cuda.synchronize(place)
        taken.append(clock() - begin)
    return min(taken)
