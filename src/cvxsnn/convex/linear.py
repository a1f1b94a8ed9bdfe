"""Symmetric linear systems: products, Cholesky factors with a ridge where rounding requires one, factors in place."""

from itertools import pairwise

import torch
from scipy.linalg.blas import dsyrk, ssyrk
from torch import Tensor


def self_product(factor: Tensor) -> Tensor:
    """Return ``factorᵀ factor``, at little more than half the work of a general product."""
    size = factor.shape[1]
    if factor.device.type == "cpu" and size:
        # Torch does not expose BLAS's symmetric product. In Fortran's order it fills the upper triangle.
        is_transposed = factor.T.is_contiguous()
        columns = factor.numpy() if is_transposed else factor.contiguous().numpy().T
        symmetric = dsyrk if factor.dtype == torch.float64 else ssyrk
        triangle = torch.from_numpy(symmetric(1.0, columns, trans=is_transposed)).T
        return torch.tril(triangle) + torch.tril(triangle, -1).T
    product = factor.new_empty(size, size)
    n_blocks = 6 if size > 128 else 1  # one product is faster for a small matrix
    for top, bottom in pairwise(size * k // n_blocks for k in range(n_blocks + 1)):
        product[top:bottom, top:] = factor[:, top:bottom].T @ factor[:, top:]
        product[bottom:, top:bottom] = product[top:bottom, bottom:].T
    return product


def factorise(matrix: Tensor) -> Tensor | None:
    """Return the Cholesky factor of a matrix, with a ridge if rounding leaves it none; None if no ridge helps."""
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(matrix)
    if not bool(info):  # before the search for the largest entry, which needs memory of its own
        return factor
    ridge = torch.finfo(matrix.dtype).eps * float(_largest_entry(matrix))
    for _ in range(20):  # the last ridge makes any matrix of finite numbers positive definite
        shifted = matrix.clone()
        shifted.diagonal().add_(ridge)
        factor, info = torch.linalg.cholesky_ex(shifted)
        if not bool(info):
            return factor
        ridge *= 100
    return None


def solve_semidefinite(matrix: Tensor, right: Tensor, ridge: Tensor | float) -> Tensor:
    """Solve ``(matrix + diag(ridge)) x = right``, with a larger ridge if the matrix has no Cholesky factor.

    The solution is zero if no ridge helps, because entries are infinite or NaN.

    Parameters
    ----------
    matrix : Tensor of shape (n, n), or (m, n, n) for several systems
    right : Tensor of shape (n,), or (m, n)
    ridge : float, or Tensor of the shape of ``right``
    """
    ridge = torch.as_tensor(ridge, dtype=matrix.dtype, device=matrix.device)
    for _ in range(20):  # as in factorise
        shifted = matrix.clone()
        shifted.diagonal(dim1=-2, dim2=-1).add_(ridge)
        solved, info = _solve(shifted, right)
        if not bool(info.any()):
            return solved
        least = 1e-15 * _largest_entry(matrix)[..., None]
        ridge = torch.where(info[..., None] > 0, torch.maximum(100 * ridge, least), ridge)
    return torch.where(info[..., None] > 0, 0.0, solved)


def _largest_entry(matrix: Tensor) -> Tensor:
    return matrix.abs().flatten(-2).amax(-1) if matrix.numel() else matrix.new_zeros(matrix.shape[:-2])


def _solve(matrix: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return the solutions, and one integer per system, nonzero if it has no Cholesky factor."""
    # A GPU factorises large matrices faster in parallel streams than as a batch.
    if matrix.is_cuda and matrix.ndim == 3 and len(matrix) > 1 and matrix.shape[1] >= 256:
        return _solve_in_streams(matrix, right)
    factor, info = torch.linalg.cholesky_ex(matrix)
    return torch.cholesky_solve(right[..., None], factor)[..., 0], info


def _solve_in_streams(matrices: Tensor, rights: Tensor) -> tuple[Tensor, Tensor]:
    caller = torch.cuda.current_stream(matrices.device)
    streams = [torch.cuda.Stream(matrices.device) for _ in matrices]  # type: ignore[no-untyped-call]
    solved, info = torch.empty_like(rights), torch.empty(len(matrices), dtype=torch.int32, device=matrices.device)
    for number, stream in enumerate(streams):
        stream.wait_stream(caller)
        with torch.cuda.stream(stream):
            factor, info[number] = torch.linalg.cholesky_ex(matrices[number])
            solved[number] = torch.cholesky_solve(rights[number, :, None], factor)[:, 0]
    for stream in streams:
        caller.wait_stream(stream)
    return solved, info


class FactorInPlace:
    r"""The Cholesky factor of :math:`A + \rho I`, when memory has no room for a copy of A.

    The factor L overwrites the lower triangle of A, one block of columns at a time:

    .. math::
        L_{kk} L_{kk}^\top = A_{kk} + \rho I - \sum_{j<k} L_{kj} L_{kj}^\top, \qquad
        L_{ik} L_{kk}^\top = A_{ik} - \sum_{j<k} L_{ij} L_{kj}^\top \quad (i > k) .

    The upper triangle stays, so that A can be restored.

    Parameters
    ----------
    matrix : Tensor of shape (n, n)
        The matrix A, symmetric to the bit. Its lower triangle is invalid until :meth:`restore` is called.
    ridge : float
        The number ρ.
    n_at_once : int
        Columns of a block; only blocks are copied. 4,096 are enough for efficient products.

    Attributes
    ----------
    is_whole : bool
        Whether the factor exists in spite of rounding.
    """

    def __init__(self, matrix: Tensor, ridge: float, n_at_once: int = 4096) -> None:
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
            block = solved[start:stop].addmm_(matrix[start:stop, :start], solved[:start], alpha=-1)
            block.copy_(torch.linalg.solve_triangular(matrix[start:stop, start:stop], block.clone(), upper=False))
        for start, stop in reversed(self._blocks):
            block = solved[start:stop].addmm_(matrix[stop:, start:stop].T, solved[stop:], alpha=-1)
            block.copy_(torch.linalg.solve_triangular(matrix[start:stop, start:stop].T, block.clone(), upper=True))
        return solved

    def restore(self) -> None:
        """Restore the lower triangle of the matrix from the upper one."""
        for (start, stop), corner in zip(self._blocks, self._corners, strict=False):
            self._matrix[start:stop, start:stop] = corner
            self._matrix[stop:, start:stop] = self._matrix[start:stop, stop:].T
        self._corners = []


def solve_in_place(matrix: Tensor, right: Tensor, ridge: float, n_at_once: int = 4096) -> Tensor | None:
    """Solve (A + ρI) X = B within the memory of A, and leave A as it was, whatever happens.

    Parameters are those of :class:`FactorInPlace`. Returns None if rounding leaves the matrix no factor.
    """
    factor = FactorInPlace(matrix, ridge, n_at_once)
    try:
        return factor.solve(right) if factor.is_whole else None
    finally:
        factor.restore()
