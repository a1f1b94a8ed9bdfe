"""Linear systems with matrices that are positive semidefinite, or would be without rounding."""

import torch
from torch import Tensor

from ..errors import CvxsnnError

_MAX_ATTEMPTS = 20


class FactorisationError(CvxsnnError, ArithmeticError):
    """A matrix that should be positive semidefinite is not even close."""


def solve_semidefinite(matrix: Tensor, right: Tensor, ridge: Tensor | float) -> Tensor:
    """Solve ``(matrix + diag(ridge)) x = right``, with a larger ridge where the matrix has no Cholesky factor yet."""
    for _ in range(_MAX_ATTEMPTS):
        shifted = matrix.clone()
        shifted.diagonal().add_(ridge)
        factor, info = torch.linalg.cholesky_ex(shifted)
        if int(info) == 0:
            return torch.cholesky_solve(right[:, None], factor)[:, 0]
        ridge = 100 * ridge
    raise FactorisationError(
        "expected a positive semidefinite matrix, got NaN, infinite or very negative numbers: scale the targets and "
        "weights so that their squares do not overflow"
    )
