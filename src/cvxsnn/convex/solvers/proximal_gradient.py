"""Accelerated proximal gradient: the fallback that takes every loss and every penalty.

The hinge is not smooth; with its corner rounded it is, and is followed towards the hinge as the width shrinks.
"""

from math import inf

import torch
from torch import Tensor

from ..certificate import lower_bound
from ..losses import Loss
from ..problem import ConvexProblem
from ..solution import Status
from .recorder import Recorder
from .rounded_hinge import NARROWEST, RoundedHinge, has_hinge, smoothed

_CHECK_EVERY = 20


def _max_curvature(loss: Loss) -> float:
    """Largest eigenvalue that the Hessian of one row can have."""
    if isinstance(loss, RoundedHinge):
        return 0.5 / loss.width
    return {"squared": 1.0, "squared_hinge": 2.0, "logistic": 0.25, "softmax": 0.5}[loss.name]


def solve_proximal_gradient(
    problem: ConvexProblem,
    coef: Tensor,
    intercept: Tensor,
    recorder: Recorder,
    *,
    tolerance: float,
    max_iterations: int = 50_000,
) -> tuple[Tensor, Tensor, Tensor, Status]:
    """Minimise; give coef, intercept, dual candidate and status."""
    problem.check_dense("proximal gradient")
    search = _Search(problem, coef, intercept, recorder, tolerance)
    if not has_hinge(problem):
        search.run(problem, max_iterations)
    else:
        width = 1.0
        while width >= NARROWEST and not search.has_converged and search.n_iterations < max_iterations:
            search.run(smoothed(problem, width), max_iterations, until_width=width)
            width *= 0.3
    status = Status.CONVERGED if search.has_converged else Status.ITERATION_LIMIT
    weight = problem.row_weight[:, None]
    return search.best_coef, search.best_intercept, -weight * search.best_dual, status


class _Search:
    """The state that survives from one width to the next: iterate, best primal and best dual points."""

    def __init__(
        self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, recorder: Recorder, tolerance: float
    ) -> None:
        self.problem, self.recorder, self.tolerance = problem, recorder, tolerance
        self.columns = problem.dictionary.columns()
        self.coef, self.intercept = coef, intercept
        self.best_coef, self.best_intercept = coef, intercept
        self.best_primal, self.best_bound = inf, -inf
        self.best_dual = torch.zeros_like(problem.null_dual)
        self.n_iterations = 0
        self.norm = self._squared_norm()

    @property
    def has_converged(self) -> bool:
        return self.best_primal - self.best_bound <= self.tolerance * self.best_primal < inf

    def run(self, problem: ConvexProblem, max_iterations: int, until_width: float = 0.0) -> None:
        """Iterate on a smooth problem until the gap of the real one is small, or no larger than its width."""
        curvature = max(head.weight * _max_curvature(head.loss) for head in problem.heads)
        step = 1.0 / (curvature * self.norm)
        coef, intercept = self.coef, self.intercept
        ahead_coef, ahead_intercept, momentum = coef, intercept, 1.0
        while self.n_iterations < max_iterations:
            self.n_iterations += 1
            dual = problem.unit_dual(self.columns @ ahead_coef + ahead_intercept) * problem.row_weight[:, None]
            moved = problem.penalty.prox(ahead_coef - step * (self.columns.T @ dual), step * problem.l1_strength)
            shifted = ahead_intercept - step * dual.sum(0) if problem.intercept else intercept
            # Restart when the momentum points uphill.
            uphill = ((ahead_coef - moved) * (moved - coef)).sum()
            uphill += ((ahead_intercept - shifted) * (shifted - intercept)).sum()
            following = 1.0 if bool(uphill > 0) else (1 + (1 + 4 * momentum**2) ** 0.5) / 2
            push = 0.0 if following == 1.0 else (momentum - 1) / following
            ahead_coef, ahead_intercept = moved + push * (moved - coef), shifted + push * (shifted - intercept)
            coef, intercept, momentum = moved, shifted, following
            if self.n_iterations % _CHECK_EVERY == 0:
                gap = self._look(problem, coef, intercept)
                if self.has_converged or gap <= until_width:
                    break
        self.coef, self.intercept = coef, intercept

    def _look(self, smooth: ConvexProblem, coef: Tensor, intercept: Tensor) -> float:
        """Update the best points of the real problem; give the gap between the present ones."""
        scores = self.columns @ coef + intercept
        penalty = self.problem.l1_strength * float(self.problem.penalty.value(coef))
        primal = float(self.problem.loss_value(scores)) + penalty
        bound, feasible = lower_bound(self.problem, smooth.unit_dual(scores))
        if primal < self.best_primal:
            self.best_primal, self.best_coef, self.best_intercept = primal, coef, intercept
        if bound > self.best_bound:
            self.best_bound, self.best_dual = bound, feasible
        self.recorder.record(self.best_primal, self.best_bound, int(coef.any(1).sum()))
        return primal - bound

    def _squared_norm(self) -> float:
        """Largest eigenvalue of Dᵀ diag(ω) D, intercept included, by power iteration from above."""
        columns, weight = self.columns, self.problem.row_weight
        if self.problem.intercept:
            columns = torch.cat((columns, columns.new_ones(len(columns), 1)), dim=1)
        vector = columns.T @ weight + 1e-3
        for _ in range(100):
            image = columns.T @ (weight * (columns @ vector))
            vector = image / image.norm().clamp_min(1e-300)
        return 1.01 * float(image.norm()) + 1e-300
