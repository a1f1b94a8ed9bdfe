"""Products of spikes and counts: exact ones of columns and of rows, and sums that round little."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ..core import bits, gpu
from ..core.memory import share_of


@dataclass(frozen=True)
class _Tuning:
    triangle: int = 4
    """Blocks per side of a symmetric matrix of products; only those on and above the diagonal are computed."""

    block_bytes: int = 2**26
    """Bytes of entries that are multiplied at once."""

    block_bytes_gpu: int = 2**30
    """The same on a GPU."""

    largest_exact: int = 79
    """Largest count for which products of bytes are exact on every CPU: CPUs without dot-product instructions add pairs
    of products in 16 bits, where 2 · 127 · 127 would saturate."""

    float32_rows: int = 256
    """Float32 is used if at least this many products of the largest counts add up without rounding."""

    max_lookup_outputs: int = 4
    """Largest number of outputs for which look-up tables are clearly faster than BLAS."""

    table_bytes: int = 64
    """Bytes of a row that are looked up at a time: their tables take 128 KiB of float64, and stay in cache."""

    lookups: int = 2**16
    """Look-ups at a time: 768 KiB for indices and values."""

    sum_rows: int = 128
    """Terms of a partial sum on a GPU, at each of three levels: a term is rounded less often than in one long sum, so
    that certificates are tighter."""


TUNING = _Tuning()


@dataclass(frozen=True)
class Entries:
    """Whole numbers to multiply: atoms by rows of a dictionary.

    Parameters
    ----------
    read : function
        Called with a slice of atoms, a slice of rows and a dtype; returns the entries, of shape (atoms, rows). Slices
        of rows start at multiples of 64.
    n_atoms, n_rows : int
        The shape.
    most : int
        The largest entry.
    device : torch.device
        Device of the entries.
    """

    read: Callable[[slice, slice, torch.dtype], Tensor]
    n_atoms: int
    n_rows: int
    most: int
    device: torch.device

    @property
    def dtype(self) -> torch.dtype:
        """The fastest type in which sums of products are exact."""
        if _multiplies_bytes(self.device, self.most):
            return torch.uint8
        return torch.float32 if TUNING.float32_rows * self.most**2 <= 2**24 else torch.float64

    def n_at_once(self, n_others: int) -> int:
        """Return how many terms fit into memory and add up exactly, for sums of ``n_others`` numbers at once."""
        is_gpu = gpu.is_gpu(self.device)
        n_bytes = share_of(self.device, TUNING.block_bytes_gpu) if is_gpu else TUNING.block_bytes
        # The largest whole number below which all are exact: bytes are summed as int32, floats in their mantissa.
        exact = {torch.uint8: 2**31 - 1, torch.float32: 2**24, torch.float64: 2**53}[self.dtype]
        return max(64, min(n_bytes // (n_others * self.dtype.itemsize), exact // self.most**2) // 64 * 64)


def iterate_column_products(entries: Entries) -> Iterator[tuple[slice, Tensor]]:
    """Iterate over blocks of the products of all pairs of columns, on and above the diagonal.

    Parameters
    ----------
    entries : Entries
        The columns.

    Yields
    ------
    atoms : slice
        The rows of the matrix of products in this block. Its columns begin at the same atom and go to the end.
    products : Tensor, dtype float64
        Whole numbers.
    """
    n_atoms = entries.n_atoms
    for top, bottom in pairwise(_edges(n_atoms)):
        total = torch.zeros(bottom - top, n_atoms - top, dtype=torch.float64, device=entries.device)
        for rows in _slices(entries.n_rows, entries.n_at_once(n_atoms - top)):
            columns = entries.read(slice(top, n_atoms), rows, entries.dtype)
            total.add_(_products(columns, bottom - top, entries.most))
        yield slice(top, bottom), total


def self_product(factor: Tensor) -> Tensor:
    """Return ``factorᵀ factor``, at little more than half the work of a general product."""
    if not gpu.is_gpu(factor.device):
        numbers = factor.numpy()
        return torch.from_numpy(numbers.T @ numbers)  # NumPy calls BLAS's symmetric product; torch does not
    size = factor.shape[1]
    product = factor.new_empty(size, size)
    n_blocks = 6 if size > 128 else 1  # one product is faster for a small matrix
    for top, bottom in pairwise(size * k // n_blocks for k in range(n_blocks + 1)):
        product[top:bottom, top:] = factor[:, top:bottom].T @ factor[:, top:]
        product[bottom:, top:bottom] = product[top:bottom, bottom:].T
    return product


def row_products(entries: Entries) -> Tensor:
    """Return the products of all pairs of rows, of shape (n_rows, n_rows) and dtype float64: whole numbers."""
    n_rows, edges = entries.n_rows, _edges(entries.n_rows)
    total = torch.zeros(n_rows, n_rows, dtype=torch.float64, device=entries.device)
    for atoms in _slices(entries.n_atoms, entries.n_at_once(n_rows)):
        columns = entries.read(atoms, slice(0, n_rows), entries.dtype)
        if columns.dtype != torch.uint8 and not gpu.is_gpu(columns.device):
            total += self_product(columns)
            continue
        rows = columns.T.contiguous() if gpu.is_gpu(columns.device) else columns.T
        for top, bottom in pairwise(edges):
            total[top:bottom, top:].add_(_products(rows[top:], bottom - top, entries.most))
    for top, bottom in pairwise(edges):  # the part above the diagonal is mirrored below
        total[bottom:, top:bottom] = total[top:bottom, bottom:].T
    return total


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
    matrix = torch.empty(size, size, dtype=dtype, device=device)
    for rows, block in blocks:
        matrix[rows, rows.start :] = block
        # The block's own square on the diagonal is symmetric already.
        matrix[rows.stop :, rows] = block[:, rows.stop - rows.start :].T
    return matrix


def _multiplies_bytes(device: torch.device, most: int) -> bool:
    """Return whether torch has products of bytes on this device that are exact for numbers up to ``most``."""
    if most > 255:
        return False
    if gpu.is_gpu(device):
        return gpu.has_byte_products(device)
    return hasattr(torch, "_int_mm") and device.type == "cpu" and most <= TUNING.largest_exact


def _products(columns: Tensor, n_first: int, most: int) -> Tensor:
    """Return the products of the first columns with all, given as rows of a matrix of whole numbers up to ``most``."""
    # Bytes are multiplied at four times the speed of float32, and more on a GPU, and are as exact.
    if columns.dtype != torch.uint8:
        return columns[:n_first] @ columns.T
    if not gpu.is_gpu(columns.device):
        return torch._int_mm(columns[:n_first].view(torch.int8), columns.view(torch.int8).T)
    if most <= 127:
        return gpu.byte_products(columns.view(torch.int8), n_first)
    # Signed bytes store x − h: a product xy is (x − h)(y − h) + hx + hy − h². Sums may overflow, but not the last.
    offset = 128 * (columns.sum(1, dtype=torch.int32) - 64 * columns.shape[1])
    products = gpu.byte_products((columns - 128).view(torch.int8), n_first)
    return products.add_(offset[:n_first, None]).add_(offset)


def _edges(size: int) -> list[int]:
    """Return the starts and ends of the blocks of a matrix of products."""
    n_blocks = TUNING.triangle if size > 64 * TUNING.triangle else 1
    return [*(size * k // n_blocks // 8 * 8 for k in range(n_blocks)), size]


def _slices(size: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, size)) for start in range(0, size, step))


def lookup_product(packed: Tensor, values: Tensor) -> Tensor:
    """Return the product of a packed 0/1 matrix with real columns, in float64, directly from the bytes.

    Eight entries of a row are one byte, and eight real numbers have 256 partial sums: one table look-up does the work
    of eight multiplications, and nothing is unpacked (the method of the four Russians). On a processor, and for few
    outputs, that is 2.5 to 3.7 times as fast as BLAS on unpacked blocks (``python -m benchmarks kernels``).

    Parameters
    ----------
    packed : Tensor of shape (n_rows, n_bytes), dtype uint8
        The bits (:mod:`cvxsnn.core.bits`).
    values : Tensor of shape (at most 8 · n_bytes, n_outputs), dtype float64
        The real columns. Bits beyond its length must be zero.

    Returns
    -------
    Tensor of shape (n_rows, n_outputs), dtype float64
        The product.
    """
    n_rows, n_bytes = packed.shape
    padded = values.new_zeros(values.shape[1], 8 * n_bytes)
    padded[:, : len(values)] = values.T
    width = min(TUNING.table_bytes, n_bytes)
    step = max(1, TUNING.lookups // width)
    bits_of_byte = bits.unpack(torch.arange(256, dtype=torch.uint8)[:, None], 8, values.dtype)
    # The tables of a block lie behind one another, so a byte's entry is at 256 times its number plus its value.
    first_index = 256 * torch.arange(width, dtype=torch.int32)
    indices = torch.empty(min(step, n_rows) * width, dtype=torch.int32)
    sums = torch.empty(indices.shape, dtype=values.dtype)
    ones = values.new_ones(width)
    product = values.new_zeros(values.shape[1], n_rows)
    for first in range(0, n_bytes, width):
        n_tables = min(width, n_bytes - first)
        tables = padded[:, 8 * first : 8 * (first + n_tables)].reshape(-1, n_tables, 8) @ bits_of_byte.T
        for top in range(0, n_rows, step):
            block = packed[top : top + step, first : first + n_tables]
            chosen, looked_up = indices[: block.numel()], sums[: block.numel()]
            torch.add(block, first_index[:n_tables], out=chosen.view(block.shape))
            for table, total in zip(tables.flatten(1), product[:, top : top + step], strict=True):
                torch.index_select(table, 0, chosen, out=looked_up)
                total.addmv_(looked_up.view(block.shape), ones[:n_tables])
    return product.T


def sum_in_levels(across: Tensor, block: Tensor) -> Tensor:
    """Return the products of columns, the rows of a block, with rows of numbers; sums of few terms at each level.

    Parameters
    ----------
    across : Tensor of shape (n_outputs, n_rows)
    block : Tensor of shape (n_atoms, n_rows)

    Returns
    -------
    Tensor of shape (n_atoms, n_outputs)
    """
    size = TUNING.sum_rows
    n_whole = across.shape[1] // size * size
    first, second = (values[:, :n_whole].reshape(len(values), -1, size) for values in (block, across))
    products = torch.bmm(first.transpose(0, 1), second.permute(1, 2, 0))  # one matrix for each sum
    parts = [part.sum(0) for part in torch.split(products, size)]
    if n_whole < across.shape[1]:
        parts.append(block[:, n_whole:] @ across[:, n_whole:].T)
    return torch.stack(parts).sum(0)


def level_roundings(n_rows: int) -> int:
    """Return a bound on the number of roundings of a term of :func:`sum_in_levels`."""
    n_sums = -(-n_rows // TUNING.sum_rows)
    n_parts = -(-n_sums // TUNING.sum_rows) + 1
    return min(n_rows, TUNING.sum_rows) + min(n_sums, TUNING.sum_rows) + n_parts
