"""Large symmetric systems, solved within the memory of their matrix."""

from itertools import pairwise

import torch
from torch import Tensor

_BLOCK = 4096
"""Columns that are factorised at once: enough for efficient products, and few enough for copies of them."""


class FactorInPlace:
    r"""The Cholesky factor of :math:`A + \rho I`, where there is no room for a copy of A.

    The factor L takes the place of the lower triangle of A, a block of columns at a time:

    .. math::
        L_{kk} L_{kk}^\top = A_{kk} + \rho I - \sum_{j<k} L_{kj} L_{kj}^\top, \qquad
        L_{ik} L_{kk}^\top = A_{ik} - \sum_{j<k} L_{ij} L_{kj}^\top \quad (i > k) .

    The upper triangle stays, so that A can be restored.

    Parameters
    ----------
    matrix : Tensor of shape (n, n)
        The matrix A, symmetric to the bit. It holds other numbers until :meth:`restore` is called.
    ridge : float
        The number ρ.
    n_at_once : int
        Columns of a block. Copies are made of blocks only.

    Attributes
    ----------
    is_whole : bool
        Whether rounding left the matrix a factor.
    """

    def __init__(self, matrix: Tensor, ridge: float, n_at_once: int = _BLOCK) -> None:
        self._matrix, self.is_whole = matrix, False
        self._blocks = list(pairwise([*range(0, len(matrix), n_at_once), len(matrix)]))
        self._corners: list[Tensor] = []
        try:
            self.is_whole = all(self._factorise(start, stop, ridge) for start, stop in self._blocks)
        finally:
            if not self.is_whole:
                self.restore()

    def _factorise(self, start: int, stop: int, ridge: float) -> bool:
        """Factorise a block of columns; return False if it has no factor."""
        matrix, corner = self._matrix, self._matrix[start:stop, start:stop]
        self._corners.append(corner.clone())
        corner.diagonal().add_(ridge)
        matrix[start:, start:stop].addmm_(matrix[start:, :start], matrix[start:stop, :start].T, alpha=-1)
        factor, info = torch.linalg.cholesky_ex(corner)
        if bool(info):
            return False
        corner.copy_(factor)
        below = matrix[stop:, start:stop]
        below.copy_(torch.linalg.solve_triangular(factor.T, below, upper=True, left=False))
        return True

    def solve(self, right: Tensor) -> Tensor:
        """Return the solutions X of LLᵀX = B, by forward and backward substitution; B has shape (n, n_right)."""
        matrix, solved = self._matrix, right.clone()
        for start, stop in self._blocks:
            own = solved[start:stop].addmm_(matrix[start:stop, :start], solved[:start], alpha=-1)
            own.copy_(torch.linalg.solve_triangular(matrix[start:stop, start:stop], own.clone(), upper=False))
        for start, stop in reversed(self._blocks):
            own = solved[start:stop].addmm_(matrix[stop:, start:stop].T, solved[stop:], alpha=-1)
            own.copy_(torch.linalg.solve_triangular(matrix[start:stop, start:stop].T, own.clone(), upper=True))
        return solved

    def restore(self) -> None:
        """Restore the lower triangle of the matrix from the upper one."""
        for (start, stop), corner in zip(self._blocks, self._corners, strict=False):
            self._matrix[start:stop, start:stop] = corner
            self._matrix[stop:, start:stop] = self._matrix[start:stop, stop:].T
        self._corners = []


def solve_in_place(matrix: Tensor, right: Tensor, ridge: float, n_at_once: int = _BLOCK) -> Tensor | None:
    """Solve (A + ρI) X = B, and leave A as it was, whatever happens.

    Parameters
    ----------
    matrix : Tensor of shape (n, n)
        The matrix A, symmetric to the bit. It holds other numbers in the meantime.
    right : Tensor of shape (n, n_right)
        The right sides B.
    ridge : float
        The number ρ.
    n_at_once : int
        Columns that are factorised at once.

    Returns
    -------
    Tensor of shape (n, n_right), or None
        The solutions X; None if rounding leaves the matrix no factor.
    """
    factor = FactorInPlace(matrix, ridge, n_at_once)
    if not factor.is_whole:
        return None
    try:
        return factor.solve(right)
    finally:
        factor.restore()
