"""The LIF equation over all steps in one GPU kernel: drives are read once, membranes never leave the registers.

Step by step, a GPU spends its time on moving membranes to its memory and back. The operations and their order are those
of :func:`cvxsnn.neurons.lif.lif_membrane`, each rounded by itself, so that spikes are the same to the bit.
"""

from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..core.kernels import can_run, tl, triton
from .layer import LayerState

if TYPE_CHECKING:
    from .lif import LIFLayer

if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _scan(  # type: ignore[no-untyped-def]
        drives,
        membranes,
        initial_spikes,
        decays,
        thresholds,
        written,
        n_steps,
        size,
        width,
        n_blocks,
        keeps_all: tl.constexpr,
        tie_fires: tl.constexpr,
        block: tl.constexpr,
    ):
        program = tl.program_id(0).to(tl.int64)
        subnetwork = program // n_blocks
        entry = program % n_blocks * block + tl.arange(0, block)
        is_inside = entry < size
        neuron = subnetwork * width + entry % width
        decay = tl.load(decays + neuron, mask=is_inside, other=0.0)
        threshold = tl.load(thresholds + neuron, mask=is_inside, other=0.0)
        membrane = tl.load(membranes + subnetwork * size + entry, mask=is_inside, other=0.0)
        spike = tl.load(initial_spikes + subnetwork * size + entry, mask=is_inside, other=0.0)
        place = subnetwork * n_steps * size + entry
        for _ in range(n_steps):
            leaked = membrane * decay
            driven = leaked + tl.load(drives + place, mask=is_inside, other=0.0)
            membrane = driven - spike * threshold
            fires = membrane >= 0 if tie_fires else membrane > 0
            spike = fires.to(membrane.dtype)
            if keeps_all:
                tl.store(written + place, fires.to(tl.int8), mask=is_inside)
            place += size
        if not keeps_all:
            tl.store(written + subnetwork * size + entry, spike.to(tl.int8), mask=is_inside)


def can_scan(drive: Tensor) -> bool:
    """Return whether the kernel can run where the drives are."""
    return triton is not None and drive.is_cuda and _compiles(drive.device)


@cache
def _compiles(device: torch.device) -> bool:
    """Return whether Triton can make a kernel for this device."""
    one = torch.ones(1, 1, 1, 1, device=device)
    written = torch.empty(1, 1, 1, dtype=torch.bool, device=device)
    return can_run(
        lambda: _launch(one, one[:, 0], one[:, 0], one[0, 0], one[0, 0], written, keeps_all=False, tie_fires=True),
        f"LIF layers take one step at a time on {device}",
    )


def scan_lif(layer: "LIFLayer", drive: Tensor, state: LayerState, spikes: Tensor | None) -> Tensor:
    """As :meth:`cvxsnn.neurons.layer.HiddenLayer.scan`; ``state`` is left as it was."""
    n_subnetworks, _, n_samples, width = drive.shape
    written = spikes
    if written is None:
        written = torch.empty(n_subnetworks, n_samples, width, dtype=torch.bool, device=drive.device)
    parameters = (state.membrane, state.spikes, layer.decay, layer.threshold)
    _launch(drive, *parameters, written, keeps_all=spikes is not None, tie_fires=layer.tie == "ge")
    return written if spikes is None else spikes[:, -1]


def _launch(
    drive: Tensor,
    membrane: Tensor,
    initial_spikes: Tensor,
    decay: Tensor,
    threshold: Tensor,
    written: Tensor,
    *,
    keeps_all: bool,
    tie_fires: bool,
) -> None:
    """Run the kernel over all subnetworks; ``written`` is contiguous."""
    n_subnetworks, n_steps, n_samples, width = drive.shape
    block = 1024  # neurons × samples of one program
    n_blocks = triton.cdiv(n_samples * width, block)
    with torch.cuda.device(drive.device):
        _scan[(n_subnetworks * n_blocks,)](
            drive.contiguous(),
            membrane.contiguous(),
            initial_spikes.contiguous(),
            decay.contiguous(),
            threshold.contiguous(),
            written.view(torch.int8),
            n_steps,
            n_samples * width,
            width,
            n_blocks,
            keeps_all=keeps_all,
            tie_fires=tie_fires,
            block=block,
            enable_fp_fusion=False,
        )
