"""Exact products of packed columns, and of packed rows: whole numbers, multiplied as bytes where that is faster."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..core import bits
from ..core.memory import share_of

_TRIANGLE = 4
"""Blocks per side in which a matrix of products is formed, to make use of its symmetry."""

_BLOCK, _BLOCK_GPU = 2**26, 2**30
"""Numbers unpacked at once: 64 MiB of bytes, a GiB on a GPU."""

_LARGEST_INT8, _LARGEST_SAFE = 127, 79
"""The largest count that a byte with a sign holds; and up to which every processor is exact: those without instructions
for products of bytes add pairs of them in 16 bits."""


def iterate_column_products(packed: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Iterate over blocks of the products of all pairs of columns, on and above the diagonal.

    Parameters
    ----------
    packed : Tensor of shape (n_atoms, at most 8 planes, n_bytes), dtype uint8
        The bits of each count, in planes.

    Yields
    ------
    atoms : slice
        The rows of the matrix of products that the block has. Its columns begin where these do, and go to the end.
    products : Tensor, dtype float64
        Whole numbers.
    """
    most, in_bytes = _arithmetic(packed)
    for top, bottom in pairwise(_edges(len(packed))):
        n_rows = _block_size(packed.device, len(packed) - top, most, in_bytes)
        total = torch.zeros(bottom - top, len(packed) - top, dtype=torch.float64, device=packed.device)
        for own in torch.split(packed[top:], max(64, n_rows // 64 * 64) // 8, dim=2):
            total.add_(_products(join_counts(own, _dtype(in_bytes)), bottom - top, most))
        yield slice(top, bottom), total


def assemble(blocks: Iterable[tuple[slice, Tensor]], size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a symmetric matrix, from blocks on and above its diagonal.

    Parameters
    ----------
    blocks : iterable of (slice, Tensor)
        Rows of the matrix, from the diagonal on.
    size : int
        The number of rows.
    dtype : torch.dtype
        The type of the result.
    device : torch.device
        Its device.

    Returns
    -------
    Tensor of shape (size, size)
        The matrix.
    """
    whole = torch.empty(size, size, dtype=dtype, device=device)
    for rows, block in blocks:
        whole[rows, rows.start :] = block
        whole[rows.stop :, rows] = block[:, rows.stop - rows.start :].T
    return whole


def row_products(packed: Tensor, n_rows: int) -> Tensor:
    """Return the products of all pairs of rows.

    Parameters
    ----------
    packed : Tensor of shape (n_atoms, at most 8 planes, n_bytes), dtype uint8
        The bits of each count, in planes.
    n_rows : int
        The number of rows.

    Returns
    -------
    Tensor of shape (n_rows, n_rows), dtype float64
        Whole numbers.
    """
    most, in_bytes = _arithmetic(packed)
    n_atoms = _block_size(packed.device, 8 * packed.shape[2], most, in_bytes)
    if in_bytes:
        blocks = torch.split(packed, max(32, n_atoms // 32 * 32))
        total = torch.zeros(n_rows, n_rows, dtype=torch.float64, device=packed.device)
        for own in blocks:
            counts = _as_rows(join_counts(own, torch.uint8)[:, :n_rows])
            for top, bottom in pairwise(_edges(n_rows)):  # above the diagonal, mirrored below
                total[top:bottom, top:].add_(_products(counts[top:], bottom - top, most))
        for top, bottom in pairwise(_edges(n_rows)):
            total[bottom:, top:bottom] = total[top:bottom, bottom:].T
        return total
    # Sums over few atoms would stay exact in float32; those over all atoms do in float64.
    blocks = torch.split(packed, 4096)
    total = torch.zeros(n_rows, n_rows, dtype=torch.float64)
    for own in blocks:
        numbers = join_counts(own, torch.uint8)[:, :n_rows].double().numpy(force=True)
        total += torch.from_numpy(numbers.T @ numbers)
    return total.to(packed.device)


def _arithmetic(packed: Tensor) -> tuple[int, bool]:
    """Return the largest count, and whether counts are multiplied as bytes."""
    most = 2 ** packed.shape[1] - 1
    return most, _multiplies_bytes(packed.device, most)


def _block_size(device: torch.device, n_others: int, most: int, in_bytes: bool) -> int:
    """Return how many rows of columns, or atoms of rows, memory has room for, and no sum of products overflows."""
    n_numbers = share_of(device, _BLOCK_GPU) if device.type == "cuda" else _BLOCK
    return min(n_numbers // n_others, (2**31 - 1 if in_bytes else 2**24) // most**2)


def _dtype(in_bytes: bool) -> torch.dtype:
    return torch.uint8 if in_bytes else torch.float32


def _as_rows(counts: Tensor) -> Tensor:
    """Return columns as rows, padded to a multiple of 8 entries, which products of bytes require on a GPU."""
    n_atoms, n_rows = counts.shape
    rows = counts.new_zeros(n_rows, -(-n_atoms // 32) * 32)
    rows[:, :n_atoms] = counts.T
    return rows


def join_counts(packed: Tensor, dtype: torch.dtype) -> Tensor:
    """Return entries of packed columns as integers, shape (n_atoms, 8 · n_bytes), with zeros for the padding."""
    n_bits = 8 * packed.shape[2]
    if packed.is_cuda and packed.shape[1] > 1 and dtype == torch.uint8:
        from .count_kernel_gpu import can_join_planes, join_planes

        if can_join_planes(packed.device):
            return join_planes(packed)
    total = bits.unpack(packed[:, 0], n_bits, dtype)
    for plane in range(1, packed.shape[1]):
        total.add_(bits.unpack(packed[:, plane], n_bits, dtype), alpha=2**plane)
    return total


def _multiplies_bytes(device: torch.device, most: int) -> bool:
    """Return whether torch has products of bytes on this device that are exact for numbers up to ``most``."""
    if not hasattr(torch, "_int_mm"):
        return False
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (7, 5)
    return device.type == "cpu" and most <= _LARGEST_SAFE


def _products(columns: Tensor, n_first: int, most: int) -> Tensor:
    """Return the products of the first columns with all, given as rows of a matrix of whole numbers up to ``most``.

    The matrix is of type uint8 or float32.
    """
    # Bytes are multiplied at four times the speed of float32, and more on a GPU, and are as exact.
    n_columns, n_rows = columns.shape
    if columns.dtype != torch.uint8:
        return columns[:n_first] @ columns.T
    n_padded, n_padded_first = (max(32, -(-size // 8) * 8) for size in (n_columns, n_first))
    if columns.is_cuda and n_padded > n_columns:  # it requires tiles of 8, and at least 17 rows
        columns = pad(columns, (0, 0, 0, n_padded - n_columns))
    # Bytes with a sign hold x − h: a product xy is (x − h)(y − h) + hx + hy − h². Sums may overflow, but not the last.
    shift = 128 if most > _LARGEST_INT8 else 0
    if shift:
        offset = shift * (columns.sum(1, dtype=torch.int32) - shift // 2 * n_rows)
        columns = columns - shift
    columns = columns.view(torch.int8)
    product = torch._int_mm(columns[: n_padded_first if columns.is_cuda else n_first], columns.T)
    if shift:
        product.add_(offset[: len(product), None]).add_(offset)
    return product[:n_first, :n_columns]


def _edges(size: int) -> list[int]:
    """Return where the blocks of a matrix of products begin and end."""
    n_blocks = _TRIANGLE if size > 64 * _TRIANGLE else 1
    return [*(size * k // n_blocks // 8 * 8 for k in range(n_blocks)), size]
