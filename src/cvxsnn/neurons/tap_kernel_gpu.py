"""LIF neurons with delays on a GPU: sums over taps, membranes and spike counts in one kernel.

One program is one neuron and a block of samples. Each tap loads a row of values that is shifted in time, and neither
drives nor membranes leave the registers. The operations and their order are those of
:func:`cvxsnn.neurons.lif.lif_membrane`, each rounded by itself, so that spikes are the same to the bit.
"""

from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..core.kernels import can_run, tl, triton

if TYPE_CHECKING:
    from .lif import LIFLayer
    from .tap_kernel import TapTable

if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _scan(  # type: ignore[no-untyped-def]
        values,
        starts,
        rows,
        delays,
        weights,
        biases,
        decays,
        thresholds,
        membranes,
        spikes,
        slots,
        counts,
        n_steps,
        n_rows,
        n_samples,
        n_slots,
        n_blocks,
        slot_stride,
        is_common: tl.constexpr,
        tie_fires: tl.constexpr,
        block: tl.constexpr,
    ):
        program = tl.program_id(0).to(tl.int64)
        neuron = program // n_blocks
        sample = program % n_blocks * block + tl.arange(0, block)
        is_inside = sample < n_samples
        bias = tl.load(biases + neuron)
        decay = tl.load(decays + neuron)
        threshold = tl.load(thresholds + neuron)
        first = tl.load(starts + neuron)
        stop = tl.load(starts + neuron + 1)
        membrane = tl.zeros((block,), dtype=biases.dtype.element_ty) + tl.load(membranes + neuron)
        spike = tl.zeros((block,), dtype=biases.dtype.element_ty) + tl.load(spikes + neuron)
        count = tl.zeros((block,), dtype=tl.int32)
        place = neuron * n_slots * n_samples + sample
        current = tl.full((), -1, tl.int32)
        for step in range(n_steps):
            total = tl.zeros((block,), dtype=weights.dtype.element_ty)
            for tap in range(first, stop):
                when = step - tl.load(delays + tap)
                row = when * n_rows + tl.load(rows + tap)
                value = tl.load(values + row * n_samples + sample, mask=is_inside & (when >= 0), other=0)
                total += tl.load(weights + tap) * value.to(total.dtype)
            leaked = membrane * decay
            driven = leaked + (total.to(membrane.dtype) + bias)
            membrane = driven - spike * threshold
            fires = membrane >= 0 if tie_fires else membrane > 0
            spike = fires.to(membrane.dtype)
            if is_common:
                slot = tl.load(slots + step)
                if slot != current:  # a window ends: its counts leave the registers
                    if current >= 0:
                        tl.store(
                            counts + place + current * n_samples, count.to(counts.dtype.element_ty), mask=is_inside
                        )
                    count = tl.zeros((block,), dtype=tl.int32)
                    current = slot
                count += fires.to(tl.int32)
            else:
                slot = tl.load(slots + step * slot_stride + sample, mask=is_inside, other=-1)
                where = counts + place + slot * n_samples
                is_counted = is_inside & (slot >= 0) & fires
                tl.store(where, tl.load(where, mask=is_counted, other=0) + 1, mask=is_counted)
        if is_common and current >= 0:
            tl.store(counts + place + current * n_samples, count.to(counts.dtype.element_ty), mask=is_inside)


@cache
def can_scan_taps(device: torch.device) -> bool:
    """Return whether the kernel can run on a device."""
    if triton is None or device.type != "cuda":
        return False
    from .lif import LIFLayer
    from .tap_kernel import TapTable

    one = torch.ones(1, 1, 1, device=device)
    zero = torch.zeros(1, 1, 1, dtype=torch.int32, device=device)
    layer = LIFLayer(one, source=zero, delay=zero, n_sources=1)
    counts = torch.zeros(1, 1, 1, dtype=torch.uint8, device=device)

    def scan_one() -> None:
        scan_taps_gpu(layer, TapTable.of(layer, torch.float32, inputs_are_shared=True), one, zero[0], counts)

    return can_run(scan_one, f"layers with delays take one step at a time on {device}")


def scan_taps_gpu(layer: "LIFLayer", table: "TapTable", values: Tensor, slots: Tensor, counts: Tensor) -> None:
    """As :func:`cvxsnn.neurons.tap_kernel.scan_taps`, with counts that are zero before; values may be bytes."""
    n_steps, n_rows, n_samples = values.shape
    n_neurons, n_slots, _ = counts.shape
    block = min(1024, triton.next_power_of_2(n_samples))  # the more samples, the fewer times taps are read
    n_blocks = triton.cdiv(n_samples, block)
    own = (layer.bias, layer.decay, layer.threshold, layer.initial_membrane, layer.initial_spikes)
    with torch.cuda.device(values.device):
        _scan[(n_neurons * n_blocks,)](
            values,
            table.starts,
            table.row,
            table.delay,
            table.weight,
            *(value.flatten().contiguous() for value in own),
            slots.contiguous(),
            counts,
            n_steps,
            n_rows,
            n_samples,
            n_slots,
            n_blocks,
            slots.shape[1],
            is_common=slots.shape[1] == 1,
            tie_fires=layer.tie == "ge",
            block=block,
            enable_fp_fusion=False,
        )
