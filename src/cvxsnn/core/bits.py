"""0/1 matrices as packed bits: packing, transposing, counting, and finding equal rows.

A packed matrix is a uint8 tensor whose last axis holds the bits, eight per byte, lowest first, padded with zeros to
whole 64-bit words. All operations are on 64-bit integers, so results are the same on every device.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from . import gpu


def packed_bytes(n_bits: int) -> int:
    """Return the bytes of a packed row of ``n_bits`` bits."""
    return (n_bits + 63) // 64 * 8


def pack(bits: Tensor) -> Tensor:
    """Pack the last axis of a bool tensor."""
    n_bits = bits.shape[-1]
    padded = bits
    # Words of 64 bits can only be read at multiples of eight bytes.
    if n_bits % 64 or bits.storage_offset() % 8:
        padded = bits.new_zeros(*bits.shape[:-1], 8 * packed_bytes(n_bits))
        padded[..., :n_bits] = bits
    # Read eight bytes of 0 or 1 as one word; the product collects their low bits in its top byte.
    words = padded.flatten().view(torch.int64)
    return ((words * 0x0102040810204080) >> 56).to(torch.uint8).view(*bits.shape[:-1], packed_bytes(n_bits))


def unpack(packed: Tensor, n_bits: int, dtype: torch.dtype = torch.bool, out: Tensor | None = None) -> Tensor:
    """Return the first ``n_bits`` bits of the last axis, as 0 and 1 of ``dtype``.

    Pass ``out``, a contiguous tensor with eight entries per byte of ``packed``, to avoid new memory; a GPU still needs
    one byte per entry.
    """
    buffer = None if out is None else out[: 8 * packed.numel()].view(-1, 8)
    if gpu.is_gpu(packed.device):  # a GPU computes bits faster than it looks them up in a table
        ones = (packed.reshape(-1, 1) >> _shifts(packed.device)).bitwise_and_(1)
        bits = ones.to(dtype) if buffer is None else buffer.copy_(ones)
    else:
        bits = torch.index_select(_byte_table(dtype, packed.device), 0, packed.reshape(-1).to(torch.int32), out=buffer)
    return bits.view(*packed.shape[:-1], 8 * packed.shape[-1])[..., :n_bits]


def transpose(packed: Tensor, n_bits: int) -> Tensor:
    """Return the packed transpose of a matrix of shape (n_rows, n_bits)."""
    n_rows = packed.shape[0]
    tiles = packed.new_zeros(packed_bytes(n_rows) * 8, packed.shape[1])
    tiles[:n_rows] = packed
    # Gather eight rows by one byte into a word, and transpose it as an 8 × 8 tile by three rounds of swaps.
    words = tiles.view(-1, 8, packed.shape[1]).transpose(1, 2).contiguous().view(torch.int64).squeeze(-1)
    for shift, mask in ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0)):
        swap = (words ^ (words >> shift)) & mask
        words ^= swap ^ (swap << shift)
    columns = words.unsqueeze(-1).view(torch.uint8).permute(1, 2, 0)
    return columns.reshape(-1, tiles.shape[0] // 8)[:n_bits].contiguous()


def complement(packed: Tensor, n_bits: int) -> Tensor:
    """Flip the first ``n_bits`` bits; the padding stays zero."""
    return packed ^ pack(torch.ones(n_bits, dtype=torch.bool, device=packed.device))


def count(packed: Tensor) -> Tensor:
    """Return the number of ones along the last axis, dtype int64."""
    words = packed.view(torch.int64)
    # The classical population count: sums in fields of 2, 4, then 8 bits; a last product adds the bytes up.
    words = words - ((words >> 1) & 0x5555555555555555)
    words = (words & 0x3333333333333333) + ((words >> 2) & 0x3333333333333333)
    words = (words + (words >> 4)) & 0x0F0F0F0F0F0F0F0F
    return (((words * 0x0101010101010101) >> 56) & 0x7F).sum(-1)


class Groups(NamedTuple):
    """Equal rows of a matrix, the groups in order of first appearance.

    Attributes
    ----------
    first : Tensor of shape (n_groups,), the first row of each group
    inverse : Tensor of shape (n_rows,), the group of each row
    counts : Tensor of shape (n_groups,), rows in each group
    """

    first: Tensor
    inverse: Tensor
    counts: Tensor


def group_equal(words: Tensor) -> Groups:
    """Group the equal rows of an int64 matrix of shape (n_rows, n_words).

    Rows are sorted by a 64-bit hash and then compared with the first row of their group, so the answer is exact; two
    different rows with the same hash cost a second hash, never an error.
    """
    for salt in range(64):
        groups = _ordered(*torch.unique(hash_rows(words, salt), return_inverse=True, return_counts=True)[1:])
        blocks = torch.split(torch.arange(len(words), device=words.device), _rows_at_once(words))
        if all(torch.equal(words[groups.first[groups.inverse[rows]]], words[rows]) for rows in blocks):
            return groups
    raise AssertionError("64 independent hashes of 64 bits collided")


def are_among(packed: Tensor, others: Tensor) -> Tensor:
    """Return a mask of the entries along the first axis of a packed tensor that another one also has."""
    groups = group_equal(torch.cat((others, packed)).view(torch.int64).flatten(1))
    return groups.first[groups.inverse[len(others) :]] < len(others)


def hash_rows(words: Tensor, salt: int = 0) -> Tensor:
    """Return a 64-bit hash of each row of an int64 matrix."""
    first, second, third = _multipliers(words.shape[1], salt, words.device)
    hashes = words.new_empty(len(words))
    blocks = (torch.split(values, _rows_at_once(words)) for values in (hashes, words))
    for out, block in zip(*blocks, strict=True):
        mixed = block * first + second
        # A product carries bits upwards only; the shift brings the upper half down again.
        mixed ^= mixed >> 32
        torch.sum(mixed * third, dim=1, out=out)
    return hashes


def _rows_at_once(words: Tensor) -> int:
    """Return the number of rows in a block of 512 MiB: copies of all rows might not fit into memory."""
    return max(1, 2**26 // max(1, words.shape[1]))


def _ordered(inverse: Tensor, counts: Tensor) -> Groups:
    rows = torch.arange(len(inverse), device=inverse.device)
    first = torch.full_like(counts, len(inverse)).scatter_reduce_(0, inverse, rows, "amin")
    # By first appearance: the order of the hashes depends on the salt.
    order = torch.argsort(first)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device)
    return Groups(first[order], rank[inverse], counts[order])


@cache
def _multipliers(n_words: int, salt: int, device: torch.device) -> Tensor:
    draws = np.random.default_rng(salt).integers(-(2**63), 2**63 - 1, (3, n_words), dtype=np.int64)
    # Odd numbers are invertible modulo 2**64, so a product loses no bit.
    return torch.from_numpy(draws | 1).to(device)


@cache
def _byte_table(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the eight bits of every byte, lowest first."""
    return ((torch.arange(256)[:, None] >> torch.arange(8)) & 1).to(device=device, dtype=dtype)


@cache
def _shifts(device: torch.device) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=device)
