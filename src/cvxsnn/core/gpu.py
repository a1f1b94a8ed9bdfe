"""What a GPU requires of calls that a CPU accepts in any shape.

Code asks :func:`is_gpu` which algorithm to use, and makes the following calls through this module only. Tests run both
without a GPU, against stand-ins that refuse what a GPU refuses.

Products of bytes, ``torch._int_mm``
    Both matrices are int8. The first has more than 16 rows. The shared dimension and the columns of the second are
    positive multiples of 8, so zeros pad them. The first is contiguous and the second the transpose of a contiguous
    matrix: for some sizes, cuBLAS has no kernel for other layouts. The compute capability is 7.5 or higher.
Kernels of Triton
    A grid has one axis, of at most 2³¹ − 1 programs; the others would end at 65,535. A block is a power of two, of at
    most 2²⁰ entries. Arrays are contiguous and on one device; kernels are not told their strides. Sizes below 2³¹ are
    32-bit integers inside, so a kernel multiplies them with 64-bit numbers only, or sums that exceed 2³¹ wrap around.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

MULTIPLE = 8
"""Of which both dimensions of bytes to multiply are multiples."""

LEAST_ROWS = 32
"""Rows of bytes to multiply: a multiple above 16."""

MOST_PROGRAMS = 2**31 - 1
MOST_ENTRIES = 2**20


def is_gpu(device: torch.device) -> bool:
    """Return whether a device computes as a GPU does."""
    return device.type == "cuda"


def has_byte_products(device: torch.device) -> bool:
    """Return whether a GPU multiplies bytes."""
    return hasattr(torch, "_int_mm") and torch.cuda.get_device_capability(device) >= (7, 5)


def byte_products(rows: Tensor, n_first: int) -> Tensor:
    """Return the products of the first rows of signed bytes with all rows, on a GPU, as 32-bit integers."""
    n_rows, n_columns = rows.shape
    n_padded, n_padded_first = (max(LEAST_ROWS, size + -size % MULTIPLE) for size in (n_rows, n_first))
    padding = (0, -n_columns % MULTIPLE, 0, n_padded - n_rows)
    rows = pad(rows, padding) if any(padding) else rows.contiguous()
    return torch._int_mm(rows[:n_padded_first], rows.T)[:n_first, :n_rows]


def launch(kernel: Any, n_programs: int, *arguments: Tensor | int, block: int, **constants: bool) -> None:
    """Run a kernel of Triton on arrays and sizes; raise an AssertionError if the call breaks the rules above."""
    arrays = [value for value in arguments if isinstance(value, Tensor)]
    is_valid = 0 < n_programs <= MOST_PROGRAMS and block & (block - 1) == 0 and 0 < block <= MOST_ENTRIES
    if not is_valid or not all(value.is_contiguous() and value.device == arrays[0].device for value in arrays):
        raise AssertionError("expected a grid, a block and arrays that follow the rules of cvxsnn.core.gpu")
    with torch.cuda.device(arrays[0].device):
        # With fusion, leak and input would be rounded once, and spikes would differ from those of a CPU.
        kernel[(n_programs,)](*arguments, block=block, enable_fp_fusion=False, **constants)
