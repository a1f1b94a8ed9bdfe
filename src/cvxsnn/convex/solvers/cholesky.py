"""Linear systems with matrices that are positive semidefinite, or would be without rounding."""

import torch
from torch import Tensor

from ...core.errors import FactorisationError

_MAX_ATTEMPTS = 20

_WORTH_A_STREAM = 256
"""Size from which a GPU factorises matrices faster side by side than as a batch."""


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
