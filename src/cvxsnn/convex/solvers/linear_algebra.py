"""Linear algebra of the second-order solvers: Hessians of the loss, and systems that are nearly singular."""

from itertools import pairwise

import torch
from scipy.linalg.blas import dsyrk
from torch import Tensor

from ...core.errors import FactorisationError
from ...core.memory import check_fits, share_of, symmetric_bytes
from ..problem import ConvexProblem

_BLOCK, _BLOCK_GPU = 2**24, 2**28
"""Numbers of a block of rows over all entries: 128 MiB of float64; 2 GiB on a GPU."""

_TRIANGLE, _SMALL = 6, 128
"""Blocks a side in which symmetric products are formed, and the size below which one block is faster."""

GRAM_COPIES, HESSIAN_COPIES = 3, 5
"""Matrices alive while a Gram matrix is centred (counts or products, the product of means, and the result), and while
a Hessian is formed (the sum, BLAS's triangle, both halves, and their sum)."""

_MAX_ATTEMPTS = 20

_WORTH_A_STREAM = 256
"""Size from which a GPU factorises matrices faster side by side than as a batch."""


def gram_bytes(n_atoms: int) -> int:
    """Return the peak of forming a Gram matrix, in bytes."""
    return GRAM_COPIES * symmetric_bytes(n_atoms)


def hessian_bytes(n_entries: int) -> int:
    """Return the peak of forming a Hessian over some entries of the coefficients, in bytes."""
    return HESSIAN_COPIES * symmetric_bytes(n_entries)


def loss_hessian(
    problem: ConvexProblem,
    curvature: Tensor,
    atoms: Tensor,
    place: Tensor,
    outputs: Tensor,
    precision: torch.dtype = torch.float64,
) -> Tensor:
    """Return the Hessian of the weighted loss, in float64, with respect to some entries of the coefficients.

    Parameters
    ----------
    problem : ConvexProblem
    curvature : Tensor of shape (n_rows, n_outputs), as ``problem.curvature`` gives it
    atoms : Tensor of shape (n_columns,)
    place, outputs : Tensor of shape (n_entries,)
        Column and output of each entry, sorted by output. Column ``len(atoms)`` is the intercept.
    precision : torch.dtype
        In which products are formed.
    """
    size = len(place)
    remedy = "raise l1_strength, or use fewer witnesses"
    check_fits(hessian_bytes(size), curvature.device, f"the Hessian over {size:,} active coefficients", remedy)
    hessian = torch.zeros(size, size, dtype=torch.float64, device=curvature.device)
    edges = torch.searchsorted(outputs, torch.arange(problem.n_outputs + 1, device=outputs.device)).tolist()
    n_numbers = share_of(curvature.device, 8 * _BLOCK_GPU) // 8 if curvature.is_cuda else _BLOCK
    n_rows = max(1, n_numbers // max(1, size))
    for rows, columns in problem.dictionary.iterate_rows(n_rows, precision, atoms):
        if problem.intercept:
            columns = torch.cat((columns, columns.new_ones(len(columns), 1)), dim=1)
        for head in problem.heads:
            bend = curvature[rows, head.columns].to(precision)
            weight = (head.weight * problem.row_weight[rows]).to(precision)
            for output in range(head.columns.start, head.columns.stop):
                entries = slice(edges[output], edges[output + 1])
                root = (weight * bend[:, output - head.columns.start]).sqrt()
                chosen = columns if problem.n_outputs == 1 else columns[:, place[entries]]
                hessian[entries, entries] += self_product(chosen * root[:, None])
            coupling = head.loss.coupling(bend)
            if coupling is not None:
                entries = slice(edges[head.columns.start], edges[head.columns.stop])
                spread = columns[:, place[entries]] * coupling[:, outputs[entries] - head.columns.start]
                hessian[entries, entries] -= self_product(spread * weight.sqrt()[:, None])
    if precision != torch.float64:  # rounding must not make a singular Hessian indefinite
        hessian.diagonal().add_(1e-6 * hessian.diagonal().max())
    return hessian


def self_product(factor: Tensor) -> Tensor:
    """``factorᵀ factor``, at little more than half the work of a general product."""
    if factor.device.type == "cpu" and factor.dtype == torch.float64 and factor.shape[1]:
        # What torch lacks: BLAS's symmetric product, here in Fortran's order. It fills the upper triangle.
        is_transposed = factor.T.is_contiguous()
        columns = factor.numpy() if is_transposed else factor.contiguous().numpy().T
        triangle = torch.from_numpy(dsyrk(1.0, columns, trans=is_transposed)).T
        return torch.tril(triangle) + torch.tril(triangle, -1).T
    size = factor.shape[1]
    product = factor.new_empty(size, size)
    edges = [size * k // _TRIANGLE for k in range(_TRIANGLE + 1)] if size > _SMALL else [0, size]
    for top, bottom in pairwise(edges):  # block by block above the diagonal, mirrored below it
        product[top:bottom, top:] = factor[:, top:bottom].T @ factor[:, top:]
        product[bottom:, top:bottom] = product[top:bottom, bottom:].T
    return product


def solve_semidefinite(matrix: Tensor, right: Tensor, ridge: Tensor | float) -> Tensor:
    """Solve ``(matrix + diag(ridge)) x = right``, with a larger ridge where the matrix has no Cholesky factor yet.

    Parameters
    ----------
    matrix : Tensor of shape (n, n), or (m, n, n) for several systems
    right : Tensor of shape (n,), or (m, n)
    ridge : float, or Tensor of the shape of ``right``
    """
    ridge = torch.as_tensor(ridge, dtype=matrix.dtype, device=matrix.device)
    for _ in range(_MAX_ATTEMPTS):
        shifted = matrix.clone()
        shifted.diagonal(dim1=-2, dim2=-1).add_(ridge)
        solved, info = _solve(shifted, right)
        if not bool(info.any()):
            return solved
        ridge = torch.where(info[..., None] > 0, 100 * ridge, ridge)
    raise FactorisationError(
        "expected a positive semidefinite matrix, got NaN, infinite or very negative numbers: scale the targets and "
        "weights so that their squares do not overflow"
    )


def _solve(matrix: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Solutions, and what is not zero where a matrix has no Cholesky factor."""
    if matrix.is_cuda and matrix.ndim == 3 and len(matrix) > 1 and matrix.shape[1] >= _WORTH_A_STREAM:
        return _solve_in_streams(matrix, right)
    factor, info = torch.linalg.cholesky_ex(matrix)
    return torch.cholesky_solve(right[..., None], factor)[..., 0], info


def _solve_in_streams(matrices: Tensor, rights: Tensor) -> tuple[Tensor, Tensor]:
    """Each system in a CUDA stream of its own."""
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
