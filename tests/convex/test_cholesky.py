import pytest
import torch
from tolerances import ROUNDING

from cvxsnn.convex.cholesky import FactorisationError, solve_semidefinite


@pytest.mark.parametrize("ridge", [1e-14, torch.full((6,), 1e-14).double()])
def test_definite_systems_are_solved(ridge: float | torch.Tensor) -> None:
    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(9, 6, generator=generator, dtype=torch.float64)
    x = torch.randn(6, generator=generator, dtype=torch.float64)
    solved = solve_semidefinite(factor.T @ factor, factor.T @ (factor @ x), ridge)
    torch.testing.assert_close(solved, x, rtol=ROUNDING, atol=0)


def test_the_ridge_grows_until_rounding_is_outweighed() -> None:
    # Slightly indefinite, as a singular matrix is after rounding.
    matrix = torch.diag(torch.tensor([1.0, -1e-10], dtype=torch.float64))
    solved = solve_semidefinite(matrix, torch.tensor([1.0, 0.0], dtype=torch.float64), 1e-14)
    torch.testing.assert_close(solved, torch.tensor([1.0, 0.0], dtype=torch.float64), rtol=1e-7, atol=0)


def test_nan_is_an_error() -> None:
    with pytest.raises(FactorisationError, match="got NaN, infinite or very negative numbers"):
        solve_semidefinite(torch.full((2, 2), torch.nan).double(), torch.ones(2).double(), 1e-14)
