import pytest
import torch
from tolerances import ROUNDING

import cvxsnn as cs
from cvxsnn.convex import linear
from cvxsnn.convex.linear import factorise, solve_in_place, solve_semidefinite


def products(n: int, rank: int) -> torch.Tensor:
    columns = torch.randn(rank, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    gram = columns.T @ columns
    return torch.triu(gram) + torch.triu(gram, 1).T


@pytest.mark.parametrize("n_at_once", [1, 3, 8, 20, 64])
def test_solutions_are_those_of_a_copy_and_the_matrix_is_left_as_it_was(n_at_once):
    matrix = products(20, 12)
    before = matrix.clone()
    right = torch.randn(20, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    solved = solve_in_place(matrix, right, 0.1, n_at_once)
    expected = torch.linalg.solve(before + 0.1 * torch.eye(20, dtype=torch.float64), right)
    torch.testing.assert_close(solved, expected, rtol=1e-10, atol=1e-12)
    assert torch.equal(matrix, before)


@pytest.mark.parametrize("n_at_once", [4, 64])
def test_a_matrix_without_a_factor_is_left_as_it_was(n_at_once):
    matrix = -products(10, 10)
    before = matrix.clone()
    assert solve_in_place(matrix, torch.ones(10, 1, dtype=torch.float64), 0.1, n_at_once) is None
    assert torch.equal(matrix, before)


def test_an_interruption_leaves_the_matrix_as_it_was(monkeypatch):
    matrix = products(20, 20)
    before, factorise, calls = matrix.clone(), torch.linalg.cholesky_ex, []

    def interrupted(corner):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return factorise(corner)

    monkeypatch.setattr(torch.linalg, "cholesky_ex", interrupted)
    with pytest.raises(KeyboardInterrupt):
        solve_in_place(matrix, torch.ones(20, 1, dtype=torch.float64), 0.1, 4)
    assert torch.equal(matrix, before)


def test_ridge_without_room_for_copies_is_certified_at_every_strength(monkeypatch):
    rng = torch.Generator().manual_seed(0)
    columns = torch.rand(200, 30, generator=rng) < 0.4
    targets = torch.randn(200, 2, generator=rng, dtype=torch.float64)
    problem = cs.ConvexProblem(columns, targets, "squared", 0.0, l2_strength=0.1, penalty="elastic-net", intercept=True)
    expected = [cs.solve(problem.with_strength(0.0, own), tol=1e-9) for own in (0.1, 0.01)]
    solved = []
    monkeypatch.setattr(linear, "available_bytes", lambda device: 0)
    monkeypatch.setattr(linear, "solve_in_place", lambda *own: solved.append(own) or solve_in_place(*own))
    for other in expected:
        found = cs.solve(problem.with_strength(0.0, other.problem.l2_strength), tol=1e-9)
        assert found.certificate.relative_gap <= 1e-9
        torch.testing.assert_close(found.certificate.primal, other.certificate.primal, rtol=1e-9, atol=ROUNDING)
    assert len(solved) == 2


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


def test_a_system_without_a_solution_has_the_solution_zero() -> None:
    nan, one = torch.full((2, 2), torch.nan).double(), torch.ones(2).double()
    assert not bool(solve_semidefinite(nan, one, 1e-14).any())
    both = solve_semidefinite(torch.stack((nan, torch.eye(2).double())), torch.stack((one, one)), 0.0)
    assert torch.equal(both, torch.stack((0 * one, one)))
    assert factorise(nan) is None


def test_the_ridge_follows_the_largest_entry_of_an_indefinite_block() -> None:
    # What a Hessian in float32 is at scores near 94: tiny off the diagonal, and rounding errors on it.
    matrix = torch.full((3, 3), 3.5e-18, dtype=torch.float64).fill_diagonal_(-1e-19)
    solved = solve_semidefinite(matrix, torch.ones(3, dtype=torch.float64), 1e-113)
    assert bool((solved.isfinite() & (solved != 0)).all())
    assert factorise(matrix) is not None


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
