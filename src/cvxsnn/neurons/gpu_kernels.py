"""The LIF equation over all steps in GPU kernels: membranes never leave the registers.

Step by step, a GPU spends its time on moving membranes to its memory and back. One kernel reads drives; in the other,
for neurons with delays, each tap loads a row of values that is shifted in time, and spikes are counted. The operations
and their order are those of :func:`cvxsnn.neurons.lif.lif_membrane`, each rounded by itself, so that spikes are the
same to the bit.
"""

import warnings
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..core import gpu
from .layer import LayerState
from .tap_kernel import TapTable

try:  # triton comes with torch for CUDA
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

if TYPE_CHECKING:
    from .lif import LIFLayer

if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _scan_lif(  # type: ignore[no-untyped-def]
        drives,
        membranes,
        initial_spikes,
        decays,
        resets,
        written,
        n_steps,
        size,
        width,
        n_blocks,
        keeps_all: tl.constexpr,
        tie_fires: tl.constexpr,
        block: tl.constexpr,
    ):
        program = tl.program_id(0).to(tl.int64)  # offsets of large arrays exceed 32 bits
        subnetwork = program // n_blocks
        entry = program % n_blocks * block + tl.arange(0, block)
        is_inside = entry < size
        neuron = subnetwork * width + entry % width
        decay = tl.load(decays + neuron, mask=is_inside, other=0.0)
        reset = tl.load(resets + neuron, mask=is_inside, other=0.0)
        membrane = tl.load(membranes + subnetwork * size + entry, mask=is_inside, other=0.0)
        spike = tl.load(initial_spikes + subnetwork * size + entry, mask=is_inside, other=0.0)
        at = subnetwork * n_steps * size + entry
        for _ in range(n_steps):
            leaked = membrane * decay
            driven = leaked + tl.load(drives + at, mask=is_inside, other=0.0)
            membrane = driven - spike * reset
            fires = membrane >= 0 if tie_fires else membrane > 0
            spike = fires.to(membrane.dtype)
            if keeps_all:
                tl.store(written + at, fires.to(tl.int8), mask=is_inside)
            at += size
        if not keeps_all:
            tl.store(written + subnetwork * size + entry, spike.to(tl.int8), mask=is_inside)

    @triton.jit  # type: ignore[untyped-decorator]
    def _scan_taps(  # type: ignore[no-untyped-def]
        values,
        starts,
        rows,
        delays,
        weights,
        biases,
        decays,
        resets,
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
        reset = tl.load(resets + neuron)
        first = tl.load(starts + neuron)
        stop = tl.load(starts + neuron + 1)
        membrane = tl.zeros((block,), dtype=biases.dtype.element_ty) + tl.load(membranes + neuron)
        spike = tl.zeros((block,), dtype=biases.dtype.element_ty) + tl.load(spikes + neuron)
        count = tl.zeros((block,), dtype=tl.int32)
        at = neuron * n_slots * n_samples + sample
        current = tl.full((), -1, tl.int32)
        for step in range(n_steps):
            total = tl.zeros((block,), dtype=weights.dtype.element_ty)
            for tap in range(first, stop):
                when = step - tl.load(delays + tap)
                row = when * n_rows + tl.load(rows + tap)
                value = tl.load(values + row * n_samples + sample, mask=is_inside & (when >= 0), other=0)
                total += tl.load(weights + tap) * value.to(total.dtype)
            # The sum is exact; it is rounded once, to the dtype of the layer, before the bias is added.
            leaked = membrane * decay
            driven = leaked + (total.to(membrane.dtype) + bias)
            membrane = driven - spike * reset
            fires = membrane >= 0 if tie_fires else membrane > 0
            spike = fires.to(membrane.dtype)
            if is_common:
                slot = tl.load(slots + step)
                if slot != current:  # a window ends: its counts leave the registers
                    if current >= 0:
                        tl.store(counts + at + current * n_samples, count.to(counts.dtype.element_ty), mask=is_inside)
                    count = tl.zeros((block,), dtype=tl.int32)
                    current = slot
                count += fires.to(tl.int32)
            else:
                slot = tl.load(slots + step * slot_stride + sample, mask=is_inside, other=-1)
                where = counts + at + slot * n_samples
                is_counted = is_inside & (slot >= 0) & fires
                tl.store(where, tl.load(where, mask=is_counted, other=0) + 1, mask=is_counted)
        if is_common and current >= 0:
            tl.store(counts + at + current * n_samples, count.to(counts.dtype.element_ty), mask=is_inside)


def can_scan(device: torch.device) -> bool:
    """Return whether the kernels can run on a device."""
    return triton is not None and gpu.is_gpu(device) and _compiles(device)


@cache
def _compiles(device: torch.device) -> bool:
    """Return whether Triton can compile the kernels for a device; it needs a C compiler and a recent device."""
    from .lif import LIFLayer

    ones = torch.ones(1, 1, 1, device=device)
    zero = torch.zeros(1, 1, 1, dtype=torch.int32, device=device)
    counts = torch.zeros(1, 1, 1, dtype=torch.uint8, device=device)
    layer = LIFLayer(ones, source=zero, delay=zero, n_sources=1)
    try:
        scan_lif(layer, ones[None], layer.initial_state(1), None)
        scan_taps_gpu(layer, TapTable.of(layer, torch.float32, inputs_are_shared=True), ones, zero[0], counts)
    except Exception as error:  # whatever Triton raises, layers can take one step at a time
        reason = f"because the kernels do not run: {error}"
        warnings.warn(f"LIF layers take one step at a time on {device}, {reason}", stacklevel=3)
        return False
    return True


def scan_lif(layer: "LIFLayer", drive: Tensor, state: LayerState, spikes: Tensor | None) -> Tensor:
    """As :meth:`cvxsnn.neurons.layer.HiddenLayer.scan`; ``state`` is left as it was."""
    n_subnetworks, n_steps, n_samples, width = drive.shape
    written = spikes
    if written is None:
        written = torch.empty(n_subnetworks, n_samples, width, dtype=torch.bool, device=drive.device)
    tensors = (drive, state.membrane, state.spikes, layer.decay, layer.threshold)
    size, block = n_samples * width, 1024  # neurons × samples of one program
    n_blocks = triton.cdiv(size, block)
    flags = {"keeps_all": spikes is not None, "tie_fires": layer.tie == "ge"}
    arguments = (*(value.contiguous() for value in tensors), written.view(torch.int8), n_steps, size, width, n_blocks)
    gpu.launch(_scan_lif, n_subnetworks * n_blocks, *arguments, block=block, **flags)
    return written if spikes is None else spikes[:, -1]


def scan_taps_gpu(layer: "LIFLayer", table: TapTable, values: Tensor, slots: Tensor, counts: Tensor) -> None:
    """As :func:`cvxsnn.neurons.tap_kernel.scan_taps`, with counts that are zero before; values may be bytes."""
    n_steps, n_rows, n_samples = values.shape
    n_neurons, n_slots, _ = counts.shape
    block = min(1024, triton.next_power_of_2(n_samples))  # the more samples, the fewer times taps are read
    n_blocks = triton.cdiv(n_samples, block)
    taps = (table.starts, table.row, table.delay, table.weight)
    parameters = (layer.bias, layer.decay, layer.threshold, layer.initial_membrane, layer.initial_spikes)
    arrays = (values, *taps, *(value.flatten().contiguous() for value in parameters), slots.contiguous(), counts)
    sizes = (n_steps, n_rows, n_samples, n_slots, n_blocks, slots.shape[1])
    flags = {"is_common": slots.shape[1] == 1, "tie_fires": layer.tie == "ge"}
    gpu.launch(_scan_taps, n_neurons * n_blocks, *arrays, *sizes, block=block, **flags)
