"""Accelerated proximal gradient: simple and slow, for every loss and every penalty.

The corners of a loss that is not smooth are rounded over a width that shrinks.
"""

from math import inf

import torch
from torch import Tensor

from ...core.errors import InvalidInputError
from ..certificate import lower_bound
from ..problem import ConvexProblem
from .base import NARROWEST, Budget, Solver, SolverResult, Status, check_dense


class Reference(Solver):
    """Accelerated proximal gradient steps, for every loss of bounded curvature and every penalty."""

    name = "reference"
    max_iterations = 50_000

    def solve(self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, budget: Budget) -> SolverResult:
        """Minimise a whole problem."""
        check_dense(problem, "proximal gradient")
        for smooth in (head.loss.smoothed(1.0) for head in problem.heads):
            if not (smooth.is_smooth and smooth.max_curvature < inf):
                raise InvalidInputError(
                    f"expected a loss that is smooth and of bounded curvature when smoothed, got {smooth.name!r}"
                )
        search = _Descent(problem, coef, intercept, budget)
        if problem.is_smooth:
            search.run(problem)
        else:
            width = 1.0
            while width >= NARROWEST and not search.is_over and search.n_iterations < budget.max_iterations:
                search.run(problem.smoothed(width), until_width=width)
                # A narrower width costs shorter steps, so each stage starts from the solution of a wider one.
                width *= 0.3
        status = Status.TIME_LIMIT if budget.is_late else Status.ITERATION_LIMIT
        status = Status.CONVERGED if search.has_converged else status
        dual = -problem.row_weight[:, None] * search.best_dual
        return SolverResult(search.best_coef, search.best_intercept, status, dual)


class _Descent:
    """The state that survives from one width to the next: iterate, best primal and best dual points."""

    def __init__(self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, budget: Budget) -> None:
        self.problem, self.budget = problem, budget
        self.columns = problem.dictionary.columns()
        self.coef, self.intercept = coef, intercept
        self.best_coef, self.best_intercept = coef, intercept
        self.best_primal, self.best_bound = inf, -inf
        self.best_dual = torch.zeros_like(problem.null_dual)
        self.n_iterations = 0
        self.norm = self._squared_norm()

    @property
    def has_converged(self) -> bool:
        return self.best_primal - self.best_bound <= self.budget.tolerance * self.best_primal < inf

    @property
    def is_over(self) -> bool:
        return self.has_converged or self.budget.is_late

    def run(self, problem: ConvexProblem, until_width: float = 0.0) -> None:
        """Iterate on a smooth problem until the gap of the original one is small, or no larger than its width."""
        curvature = max(head.weight * head.loss.max_curvature for head in problem.heads)
        step = 1.0 / (curvature * self.norm)
        coef, intercept = self.coef, self.intercept
        ahead_coef = coef
        ahead_intercept = intercept
        momentum = 1.0
        while self.n_iterations < self.budget.max_iterations:
            self.n_iterations += 1
            dual = problem.unit_dual(self.columns @ ahead_coef + ahead_intercept) * problem.row_weight[:, None]
            slope = self.columns.T @ dual
            if problem.centre is not None:  # the rest of the quadratic is that without a centre
                slope = slope - problem.l2_strength * problem.centre
            moved = problem.penalty.descend(ahead_coef - step * slope, step, problem.l1_strength, problem.l2_strength)
            shifted = ahead_intercept - step * dual.sum(0) if problem.intercept else intercept
            # Restart when the momentum points uphill.
            uphill = ((ahead_coef - moved) * (moved - coef)).sum()
            uphill += ((ahead_intercept - shifted) * (shifted - intercept)).sum()
            following = 1.0 if bool(uphill > 0) else (1 + (1 + 4 * momentum**2) ** 0.5) / 2
            push = 0.0 if following == 1.0 else (momentum - 1) / following
            ahead_coef, ahead_intercept = moved + push * (moved - coef), shifted + push * (shifted - intercept)
            coef = moved
            intercept = shifted
            momentum = following
            if self.n_iterations % 20 == 0:
                gap = self._update_best(problem, coef, intercept)
                if self.is_over or gap <= until_width:
                    break
        self.coef, self.intercept = coef, intercept

    def _update_best(self, smooth: ConvexProblem, coef: Tensor, intercept: Tensor) -> float:
        """Update the best points of the original problem, and return the gap between the present ones."""
        scores = self.columns @ coef + intercept
        primal = self.problem.objective(coef, scores)
        bound, feasible = lower_bound(self.problem, smooth.unit_dual(scores))
        if primal < self.best_primal:
            self.best_primal = primal
            self.best_coef = coef
            self.best_intercept = intercept
        if bound > self.best_bound:
            self.best_bound, self.best_dual = bound, feasible
        self.budget.record(self.best_primal, self.best_bound, int(coef.any(1).sum()))
        return primal - bound

    def _squared_norm(self) -> float:
        """Return the largest eigenvalue of Dᵀ diag(ω) D, intercept included, by power iteration from above."""
        columns, weight = self.columns, self.problem.row_weight
        if self.problem.intercept:
            columns = torch.cat((columns, columns.new_ones(len(columns), 1)), dim=1)
        vector = columns.T @ weight + 1e-3
        for _ in range(100):
            image = columns.T @ (weight * (columns @ vector))
            vector = image / image.norm().clamp_min(1e-300)
        # Power iteration approaches the eigenvalue from below, and steps beyond 1/L need not descend.
        return 1.01 * float(image.norm()) + 1e-300
