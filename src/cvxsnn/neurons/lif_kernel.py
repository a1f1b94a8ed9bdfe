"""The LIF equation over all steps in one GPU kernel: drives are read once, membranes never leave the registers.

Step by step, a GPU spends its time on moving membranes to its memory and back. The operations and their order are those
of :func:`cvxsnn.neurons.lif.lif_membrane`, each rounded by itself, so that spikes are the same to the bit.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .layer import LayerState

if TYPE_CHECKING:
    from .lif import LIFLayer

try:  # comes with torch where there is CUDA, and is not needed elsewhere
    import triton
    import triton.language as tl
except ImportError:
    triton = None
else:

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
        keeps_all: tl.constexpr,
        tie_fires: tl.constexpr,
        block: tl.constexpr,
    ):
        subnetwork = tl.program_id(1).to(tl.int64)
        entry = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
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


_BLOCK = 1024
"""Neurons × samples of one program."""


def can_scan(drive: Tensor) -> bool:
    """Whether the kernel can run where the drives are."""
    return triton is not None and drive.is_cuda


def scan_lif(layer: "LIFLayer", drive: Tensor, state: LayerState, spikes: Tensor | None) -> Tensor:
    """As :meth:`cvxsnn.neurons.layer.HiddenLayer.scan`; ``state`` is left as it was."""
    n_subnetworks, n_steps, n_samples, width = drive.shape
    last = torch.empty_like(state.spikes, dtype=torch.bool)
    written = last if spikes is None else spikes
    grid = (triton.cdiv(n_samples * width, _BLOCK), n_subnetworks)
    with torch.cuda.device(drive.device):
        _scan[grid](
            drive.contiguous(),
            state.membrane,
            state.spikes,
            layer.decay.contiguous(),
            layer.threshold.contiguous(),
            written.view(torch.int8),
            n_steps,
            n_samples * width,
            width,
            keeps_all=spikes is not None,
            tie_fires=layer.tie == "ge",
            block=_BLOCK,
            enable_fp_fusion=False,
        )
    return last if spikes is None else spikes[:, -1]
