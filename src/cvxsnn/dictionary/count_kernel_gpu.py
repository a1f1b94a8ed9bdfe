"""Counts from bit planes on a GPU: each byte of every plane is read once, and each count written once."""

from functools import cache

import torch
from torch import Tensor

from ..core.kernels import can_run, tl, triton

if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _join(  # type: ignore[no-untyped-def]
        packed,
        counts,
        n_bytes,
        n_blocks,
        atom_stride,
        plane_stride,
        n_planes: tl.constexpr,
        block: tl.constexpr,
    ):
        program = tl.program_id(0).to(tl.int64)
        atom = program // n_blocks
        place = program % n_blocks * block + tl.arange(0, block)
        is_inside = place < n_bytes
        bit = tl.arange(0, 8)
        total = tl.zeros((block, 8), dtype=tl.int32)
        for plane in tl.static_range(n_planes):
            where = packed + atom * atom_stride + plane * plane_stride + place
            byte = tl.load(where, mask=is_inside, other=0).to(tl.int32)
            total += ((byte[:, None] >> bit[None, :]) & 1) << plane
        where = counts + 8 * (atom * n_bytes + place)[:, None] + bit[None, :]
        tl.store(where, total.to(tl.uint8), mask=is_inside[:, None])


_BLOCK = 128
"""Bytes of a plane that one program reads."""


@cache
def can_join_planes(device: torch.device) -> bool:
    """Return whether the kernel can run on a device."""
    if triton is None or device.type != "cuda":
        return False
    return can_run(
        lambda: join_planes(torch.zeros(1, 2, 8, dtype=torch.uint8, device=device)),
        f"counts are unpacked plane by plane on {device}",
    )


def join_planes(packed: Tensor) -> Tensor:
    """Return the counts of packed columns.

    Parameters
    ----------
    packed : Tensor of shape (n_atoms, n_planes, n_bytes), dtype uint8
        At most eight bit planes (:mod:`cvxsnn.core.bits`).

    Returns
    -------
    Tensor of shape (n_atoms, 8 · n_bytes), dtype uint8
        The counts, with zeros for the padding.
    """
    n_atoms, n_planes, n_bytes = packed.shape
    packed = packed if packed.stride(2) == 1 else packed.contiguous()
    counts = torch.empty(n_atoms, 8 * n_bytes, dtype=torch.uint8, device=packed.device)
    n_blocks = triton.cdiv(n_bytes, _BLOCK)
    with torch.cuda.device(packed.device):
        _join[(n_atoms * n_blocks,)](
            packed, counts, n_bytes, n_blocks, packed.stride(0), packed.stride(1), n_planes=n_planes, block=_BLOCK
        )
    return counts
