"""Large symmetric systems, solved within the memory of their matrix."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

_BLOCK = 4096
"""Columns that are factorised at once: enough for efficient products, and few enough for copies of them."""


def solve_in_place(matrix: Tensor, right: Tensor, ridge: float, n_at_once: int = _BLOCK) -> Tensor | None:
    r"""Solve :math:`(A + \rho I) X = B`, where there is no room for a copy of A.

    The Cholesky factor L takes the place of the lower triangle of A, a block of columns at a time:

    .. math::
        L_{kk} L_{kk}^\top = A_{kk} + \rho I - \sum_{j<k} L_{kj} L_{kj}^\top, \qquad
        L_{ik} L_{kk}^\top = A_{ik} - \sum_{j<k} L_{ij} L_{kj}^\top \quad (i > k) .

    Then the lower triangle is restored from the upper one, and A is as it was, whatever happens.

    Parameters
    ----------
    matrix : Tensor of shape (n, n)
        The matrix A, symmetric to the bit. It holds other numbers in the meantime.
    right : Tensor of shape (n, n_right)
        The right sides B.
    ridge : float
        The number ρ.
    n_at_once : int
        Columns of a block. Copies are made of blocks only.

    Returns
    -------
    Tensor of shape (n, n_right), or None
        The solutions X; None if rounding leaves the matrix no factor.
    """
    blocks = list(pairwise([*range(0, len(matrix), n_at_once), len(matrix)]))
    corners: list[Tensor] = []
    try:
        for start, stop in blocks:
            corner = matrix[start:stop, start:stop]
            corners.append(corner.clone())
            corner.diagonal().add_(ridge)
            matrix[start:, start:stop].addmm_(matrix[start:, :start], matrix[start:stop, :start].T, alpha=-1)
            factor, info = torch.linalg.cholesky_ex(corner)
            if bool(info):
                return None
            corner.copy_(factor)
            below = matrix[stop:, start:stop]
            below.copy_(torch.linalg.solve_triangular(factor.T, below, upper=True, left=False))
        return _substitute(matrix, right, blocks)
    finally:
        for (start, stop), corner in zip(blocks, corners, strict=False):
            matrix[start:stop, start:stop] = corner
            matrix[stop:, start:stop] = matrix[start:stop, stop:].T


def _substitute(factor: Tensor, right: Tensor, blocks: Sequence[tuple[int, int]]) -> Tensor:
    """Return the solutions X of LLᵀX = B, by forward and backward substitution."""
    solved = right.clone()
    for start, stop in blocks:
        solved[start:stop].addmm_(factor[start:stop, :start], solved[:start], alpha=-1)
        _divide(factor[start:stop, start:stop], solved[start:stop], upper=False)
    for start, stop in reversed(blocks):
        solved[start:stop].addmm_(factor[stop:, start:stop].T, solved[stop:], alpha=-1)
        _divide(factor[start:stop, start:stop].T, solved[start:stop], upper=True)
    return solved


def _divide(corner: Tensor, own: Tensor, *, upper: bool) -> None:
    own.copy_(torch.linalg.solve_triangular(corner, own.clone(), upper=upper))
