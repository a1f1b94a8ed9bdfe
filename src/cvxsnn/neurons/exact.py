"""Synaptic sums without rounding, so that spikes do not depend on the order of addition.

A spike is the sign of a sum, and floating-point sums change in the last bit with the batch size, the number of threads
and the device: near a tie, so would the spike. Here the factors lie on dyadic grids,

* each neuron's weights are integers times a power of two of its own (:func:`snap_weights`),
* inputs are integers times ``INPUT_UNIT`` (:func:`snap_inputs`), spikes are 0 or 1,

so every partial sum is an integer times a power of two. As long as that integer fits into the mantissa, nothing is ever
rounded, and any order gives the same bits. :func:`exact_product` picks the narrowest type in which this holds.
What follows the sum (leak, reset, bias) is elementwise, in one fixed order of correctly rounded operations.
"""

import math

import torch
from torch import Tensor

from ..core import gpu
from ..core.errors import InvalidInputError

INPUT_UNIT = 2.0**-16
"""Resolution at which input values are read."""

WEIGHT_BITS = 15
"""Bits of a sampled weight, including its sign. Fixed-point chips have words of 16 bits, and processors sum products of
spikes with two bytes four times as fast as products with floats."""


def snap_weights(weight: Tensor, bits: int = WEIGHT_BITS) -> Tensor:
    """Round each neuron's weights to ``bits``-bit integers times a power of two of its own.

    Parameters
    ----------
    weight : Tensor of shape (..., fan_in, width)
    bits : int
        Sign included, so that the largest weight of a neuron is at most ``2**(bits - 1)`` of its units.

    Returns
    -------
    Tensor like ``weight``. Snapping twice changes nothing.
    """
    unit = weight_unit(weight, bits)
    return torch.round(weight / unit) * unit


def weight_levels(weight: Tensor, bits: int = WEIGHT_BITS) -> float:
    """Return the largest integer that a snapped neuron can reach with inputs of one: ``max_i Σ_j |w_ij| / unit_i``.

    A neuron's unit is the largest power of two of which all its weights are multiples.
    """
    # Powers of two divide without rounding.
    levels = (weight.double() / weight_unit(weight, bits).double()).abs().to(torch.int64)
    lowest_bit = torch.where(levels == 0, 2**62, levels & -levels).amin(-2)
    largest: float = (levels.sum(-2).double() / lowest_bit).max().item()
    return largest


def weight_unit(weight: Tensor, bits: int) -> Tensor:
    """Return the power of two of which each neuron's snapped weights are multiples, (..., 1, width)."""
    mantissa, exponent = torch.frexp(weight.abs().amax(-2, keepdim=True))
    # 2**e itself needs no bit more than the numbers below it.
    exponent = exponent - (mantissa == 0.5).to(exponent.dtype)
    unit = torch.ldexp(torch.ones_like(mantissa), exponent - (bits - 1))
    # The unit of tiny weights would underflow to zero, by which nothing can be divided.
    return unit.clamp_min(torch.finfo(weight.dtype).tiny)


def snap_inputs(inputs: Tensor) -> Tensor:
    """Read real inputs on the grid of ``INPUT_UNIT``, in float64 (which holds the grid points exactly)."""
    return torch.round(inputs.double() / INPUT_UNIT) * INPUT_UNIT


def input_levels(inputs: Tensor) -> float:
    """Return the largest integer among the inputs, counted in the coarsest unit that holds them all."""
    largest: float = inputs.abs().max().item()
    # Whole numbers need no fractional bits: with fewer levels, more products fit into float32.
    if bool((inputs == inputs.round()).all()):
        return max(largest, 1.0)
    return largest / INPUT_UNIT + 0.5  # snapping may round up by half a unit


def product_dtype(levels_of_weights: float, levels_of_inputs: float) -> torch.dtype:
    """Return the narrowest type in which no partial sum is rounded.

    float32 products may be computed in fewer bits when the user relaxed ``torch.set_float32_matmul_precision``; then
    float64 is used, which no such setting touches.
    """
    largest = levels_of_weights * levels_of_inputs
    # Up to these bounds all integers are exact, and a larger product of levels is not rounded down to them.
    if largest <= 2.0**24 and _multiplies_in_full_float32():
        return torch.float32
    if largest <= 2.0**53 - 1:
        return torch.float64
    bits = math.floor(min(math.log2(largest), 1099)) + 1  # the product itself may overflow to infinity
    raise InvalidInputError(
        f"expected inputs whose weighted sums fit into 53 bits, so that spikes are reproducible, got {bits} bits: "
        f"scale the inputs down by 2**{bits - 53} or more, for example by standardising them"
    )


def _multiplies_in_full_float32() -> bool:
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # torch raises this once a precision has been set for one backend only
        return False


def exact_product(inputs: Tensor, weight: Tensor, out: Tensor, scratch: "ScratchArrays") -> None:
    """Write ``inputs @ weight`` into ``out``: summed exactly in the factors' dtype, then rounded once to ``out``'s.

    Parameters
    ----------
    inputs : Tensor of shape (n_rows, fan_in), shared by all subnetworks, or (n_subnetworks, n_rows, fan_in)
    weight : Tensor of shape (n_subnetworks, fan_in, width), of the dtype given by :func:`product_dtype`
    out : Tensor of shape (n_subnetworks, n_rows, width)
    """
    total = out if out.dtype == weight.dtype else scratch.array("product", out.shape, weight.dtype, out.device)
    inputs = inputs.expand(len(weight), *inputs.shape[-2:])
    # A batched call beats a loop if each product is small.
    if gpu.is_gpu(weight.device) or inputs.shape[1] * weight.shape[2] < 2**14:
        torch.bmm(inputs, weight, out=total)
    else:
        for k in range(len(weight)):  # a CPU's threads share one large product better than a batch of them
            torch.mm(inputs[k], weight[k], out=total[k])
    if total is not out:
        out.copy_(total)


class ScratchArrays:
    """Arrays that are reused: allocating them anew would cost more than the arithmetic in them."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return an uninitialised array; the next one of the same name takes its place."""
        size = math.prod(shape)
        buffer = self._buffers.get((name, dtype, device))
        if buffer is None or buffer.numel() < size:
            buffer = self._buffers[name, dtype, device] = torch.empty(size, dtype=dtype, device=device)
        return buffer[:size].view(shape)
