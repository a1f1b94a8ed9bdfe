"""Systems that are solved within the memory of their matrix."""

import pytest
import torch
from tolerances import ROUNDING

import cvxsnn as cs
from cvxsnn.convex.solvers import active_set
from cvxsnn.convex.solvers.in_place import solve_in_place


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
    monkeypatch.setattr(active_set, "_has_room_for_copies", lambda gram: False)
    monkeypatch.setattr(active_set, "solve_in_place", lambda *own: solved.append(own) or solve_in_place(*own))
    for other in expected:
        found = cs.solve(problem.with_strength(0.0, other.problem.l2_strength), tol=1e-9)
        assert found.certificate.relative_gap <= 1e-9
        torch.testing.assert_close(found.certificate.primal, other.certificate.primal, rtol=1e-9, atol=ROUNDING)
    assert len(solved) == 2
