import pytest
import torch
from convex.problems import SMOOTH_LOSSES, TWO_HEADS, Kind
from tolerances import FINITE_DIFFERENCE, ROUNDING, SINGLE_PRECISION
from torch import Tensor

from cvxsnn import ConvexProblem
from cvxsnn.convex.solvers import linear_algebra as module
from cvxsnn.convex.solvers.linear_algebra import loss_hessian, self_product, solve_semidefinite
from cvxsnn.core.errors import FactorisationError

STEP = 1e-5


def draw_entries(problem: ConvexProblem) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores, all atoms, and the place and output of every coefficient."""
    n_rows, n_atoms, n_outputs = problem.shape
    scores = torch.randn(n_rows, n_outputs, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    place, outputs = torch.arange(n_atoms).repeat(n_outputs), torch.arange(n_outputs).repeat_interleave(n_atoms)
    return scores, torch.arange(n_atoms), place, outputs


@pytest.mark.parametrize(
    ("precision", "tolerance"), [(torch.float32, SINGLE_PRECISION), (torch.float64, FINITE_DIFFERENCE)]
)
@pytest.mark.parametrize("loss", [*SMOOTH_LOSSES, *TWO_HEADS[:2]])
def test_hessian_is_the_slope_of_the_gradient(loss: str, precision: torch.dtype, tolerance: float) -> None:
    problem = Kind(loss, columns="few_rows", weighted=True).draw(0)
    scores, atoms, place, outputs = draw_entries(problem)
    hessian = loss_hessian(problem, problem.curvature(scores), atoms, place, outputs, precision)
    for entry, (atom, output) in enumerate(zip(place, outputs, strict=True)):
        move = torch.zeros_like(scores)
        move[:, output] = STEP * problem.dictionary.columns()[:, atom]
        ahead, behind = (problem.correlation(problem.unit_dual(scores + sign * move)) for sign in (1, -1))
        slope = ((ahead - behind) / (2 * STEP)).T.flatten()
        torch.testing.assert_close(hessian[entry], slope, rtol=0, atol=tolerance)


def test_intercepts_are_a_column_of_ones() -> None:
    problem = Kind("softmax", intercept=True, weighted=True).draw(0)
    scores, *_ = draw_entries(problem)
    outputs = torch.arange(3)
    hessian = loss_hessian(problem, problem.curvature(scores), torch.arange(0), torch.zeros_like(outputs), outputs)
    probability, weight = torch.softmax(scores, 1), problem.row_weight[:, None]
    expected = torch.diag((weight * probability).sum(0)) - probability.T @ (weight * probability)
    torch.testing.assert_close(hessian, expected, rtol=0, atol=ROUNDING)


def test_blocks_of_rows_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Kind("softmax", weighted=True).draw(0)
    scores, *entries = draw_entries(problem)
    whole = loss_hessian(problem, problem.curvature(scores), *entries)
    monkeypatch.setattr(module, "_BLOCK", 1)
    blocked = loss_hessian(problem, problem.curvature(scores), *entries)
    torch.testing.assert_close(blocked, whole, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_rough_hessians_of_singular_problems_are_not_indefinite(loss: str) -> None:
    problem = Kind(loss, columns="collinear").draw(0)
    scores, *entries = draw_entries(problem)
    hessian = loss_hessian(problem, problem.curvature(scores), *entries, torch.float32)
    assert float(torch.linalg.eigvalsh(hessian)[0]) > 0


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, SINGLE_PRECISION), (torch.float64, ROUNDING)])
@pytest.mark.parametrize("size", [0, 1, 7, 200])
def test_self_product_is_the_product_with_the_transpose(size: int, dtype: torch.dtype, tolerance: float) -> None:
    factor = torch.randn(30, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 30**0.5
    product = self_product(factor.to(dtype))
    torch.testing.assert_close(product.double(), factor.T @ factor, rtol=0, atol=tolerance)


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
