import pytest
import torch
from tolerances import ROUNDING

from cvxsnn.convex.solvers.cholesky import solve_semidefinite
from cvxsnn.core.errors import FactorisationError


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


def test_a_tiny_ridge_is_not_rounded_away():
    matrix = torch.diag(torch.tensor([1e-40, -1e-50], dtype=torch.float64))
    solved = solve_semidefinite(matrix, torch.tensor([1e-40, 0.0], dtype=torch.float64), 1e-53)
    assert solved[0] == pytest.approx(1.0, rel=1e-6)
    assert solved[1] == 0


def test_several_systems_are_solved_as_each_alone():
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(4, 9, 6, generator=generator, dtype=torch.float64)
    factors[1] = 0.0
    matrices, right = factors.mT @ factors, torch.randn(4, 6, generator=generator, dtype=torch.float64)
    together = solve_semidefinite(matrices, right, 1e-12)
    alone = torch.stack([solve_semidefinite(*system, 1e-12) for system in zip(matrices, right, strict=True)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=0)
