"""Hinge loss with the L1 penalty as a linear program for HiGHS: an independent opinion."""

import numpy as np
import torch
from scipy import sparse
from scipy.optimize import linprog
from torch import Tensor

from cvxsnn import ConvexProblem, Status
from cvxsnn.convex import Budget, Solver, SolverResult


class LinearProgram(Solver):
    """HiGHS, through SciPy."""

    name = "highs"
    scope = "output"
    max_iterations = 1

    def solve(self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, budget: Budget) -> SolverResult:
        """Minimise a problem of one output."""
        (head,) = problem.heads
        labels, n_atoms = head.targets[:, 0].cpu().numpy(), problem.dictionary.n_atoms
        margin = labels[:, None] * problem.dictionary.columns().cpu().numpy()
        n_rows = len(labels)
        free = [labels[:, None]] if problem.intercept else []
        # Variables: positive and negative parts of the coefficients, the excess of each row, the intercept.
        constraints = sparse.hstack(
            [sparse.csr_matrix(-margin), sparse.csr_matrix(margin), -sparse.eye(n_rows), *(-column for column in free)]
        )
        cost = np.concatenate(
            [
                np.full(2 * n_atoms, problem.l1_strength),
                head.weight * problem.row_weight.cpu().numpy(),
                np.zeros(len(free)),
            ]
        )
        bounds = [(0, None)] * (2 * n_atoms + n_rows) + [(None, None)] * len(free)
        result = linprog(cost, A_ub=constraints, b_ub=-np.ones(n_rows), bounds=bounds, method="highs")
        to = problem.row_weight
        if result.x is None:
            zero = to.new_zeros(n_atoms, 1)
            return SolverResult(zero, to.new_zeros(1), Status.STALLED)
        coef = result.x[:n_atoms] - result.x[n_atoms : 2 * n_atoms]
        intercept = result.x[2 * n_atoms + n_rows :].sum()
        alpha = -result.ineqlin.marginals
        status = Status.CONVERGED if result.status == 0 else Status.ITERATION_LIMIT
        return SolverResult(
            torch.as_tensor(coef).to(to)[:, None],
            torch.as_tensor([intercept]).to(to),
            status,
            torch.as_tensor(labels * alpha).to(to)[:, None],
        )
