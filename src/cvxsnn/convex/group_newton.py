"""Group norm: Newton steps on the atoms whose outputs are not all zero.

Away from zero the norm of an atom's outputs is smooth, so active atoms are moved by Newton's method on the objective
itself; an atom whose outputs are carried through zero is set to zero, and one whose correlation exceeds the strength is
nudged away from it. A hinge is replaced by its envelope, which narrows as the gap closes.
"""

from math import inf

import torch
from torch import Tensor

from .certificate import lower_bound
from .envelope import NARROWEST, has_hinge, smoothed
from .hessian import loss_hessian
from .problem import ConvexProblem
from .recorder import Recorder
from .solution import Status

_MAX_BACKTRACKS = 30
_MIN_NEWCOMERS = 20
_TINY = 1e-10
_DAMPINGS = (1e-13, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e2)
_STEPS = (1.0, 0.5, 0.25)
_FLAT = 1e-2
"""Curvature to assume at least, where the loss is linear."""


def solve_group_newton(
    problem: ConvexProblem,
    coef: Tensor,
    intercept: Tensor,
    recorder: Recorder,
    *,
    tolerance: float,
    max_iterations: int = 1000,
) -> tuple[Tensor, Tensor, Tensor, Status]:
    """Minimise a problem with the group penalty; give coef, intercept, dual candidate and status."""
    point = _Point(problem, coef, intercept)
    width = 1.0 if has_hinge(problem) else 0.0
    smooth = smoothed(problem, width)
    best_primal, best_coef, best_intercept = inf, coef, intercept
    best_bound, best_dual = -inf, problem.null_dual
    status, idle, best_gap = Status.ITERATION_LIMIT, 0, inf
    for _ in range(max_iterations):
        primal = point.objective(problem)
        bound, feasible = lower_bound(problem, smooth.unit_dual(point.scores))
        if primal < best_primal:
            best_primal, best_coef, best_intercept = primal, point.coef, point.intercept
        if bound > best_bound:
            best_bound, best_dual = bound, feasible
        recorder.record(best_primal, best_bound, int(point.coef.any(1).sum()))
        gap = (best_primal - best_bound) / max(best_primal, 1e-300)
        if gap <= tolerance:
            status = Status.CONVERGED
            break
        idle = 0 if gap < 0.99 * best_gap else idle + 1
        best_gap = min(gap, best_gap)
        if idle > 60:
            status = Status.STALLED
            break
        nudged = _nudge(smooth, point)
        moved = _newton_step(smooth, nudged) or (None if nudged is point else nudged)
        # Rounding the hinge costs up to half the width: once the rest of the gap is less, narrow it.
        is_spent = moved is None or primal - bound <= width
        if width > 0 and is_spent and width > NARROWEST:
            width *= 0.2
            smooth = smoothed(problem, width)
        elif moved is None:
            status = Status.STALLED
            break
        point = moved or point
    return best_coef, best_intercept, -problem.row_weight[:, None] * best_dual, status


class _Point:
    """Coefficients, intercept, and the scores they give."""

    def __init__(self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, scores: Tensor | None = None) -> None:
        self.coef, self.intercept = coef, intercept
        self.scores = problem.dictionary.matvec(coef) + intercept if scores is None else scores

    def objective(self, problem: ConvexProblem) -> float:
        return float(problem.loss_value(self.scores) + problem.l1_strength * problem.penalty.value(self.coef))


def _nudge(problem: ConvexProblem, point: _Point) -> _Point:
    """Move the worst violators off zero, against their gradient, as far as the objective falls."""
    correlation = problem.correlation(problem.unit_dual(point.scores))
    norms = torch.where(point.coef.any(1), 0.0, problem.penalty.atom_norms(correlation))
    n_active = int(point.coef.any(1).sum())
    n_new = min(int((norms > problem.l1_strength).sum()), max(_MIN_NEWCOMERS, n_active // 2))
    if n_new == 0:
        return point
    atoms = torch.topk(norms, n_new).indices
    direction = torch.zeros_like(point.coef)
    direction[atoms] = -correlation[atoms] * (1 - problem.l1_strength / norms[atoms])[:, None]
    change = problem.dictionary.matvec(direction)
    here, step = point.objective(problem), 1.0
    for _ in range(4 * _MAX_BACKTRACKS):
        moved = _Point(problem, point.coef + step * direction, point.intercept, point.scores + step * change)
        if moved.objective(problem) < here:
            return moved
        step *= 0.5
    return point


def _newton_step(problem: ConvexProblem, point: _Point) -> _Point | None:
    """One Newton step on the active atoms and the intercept; None if the objective cannot be lowered."""
    atoms = torch.nonzero(point.coef.any(1)).squeeze(1)
    n_outputs, n_atoms = problem.n_outputs, len(atoms)
    n_columns = n_atoms + problem.intercept
    place = torch.arange(n_columns, device=atoms.device).repeat(n_outputs)
    outputs = torch.arange(n_outputs, device=atoms.device).repeat_interleave(n_columns)
    value = point.coef[atoms]
    norm = value.norm(dim=1, keepdim=True)
    unit = value / norm
    dual = problem.unit_dual(point.scores)
    gradient = problem.correlation(dual)[atoms] + problem.l1_strength * unit
    if problem.intercept:
        gradient = torch.cat((gradient, (problem.row_weight @ dual)[None]))
    hessian = loss_hessian(problem, point.scores, atoms, place, outputs)
    blocks = hessian.view(n_outputs, n_columns, n_outputs, n_columns)
    diagonal = torch.arange(n_atoms, device=atoms.device)
    bend = torch.eye(n_outputs, dtype=unit.dtype, device=unit.device) - unit[:, :, None] * unit[:, None, :]
    blocks[:, diagonal, :, diagonal] += problem.l1_strength * bend / norm[:, :, None]
    here = point.objective(problem)
    for damping in _DAMPINGS:
        direction = _damped_direction(hessian, gradient, damping)
        # So close that the objective no longer shows progress, the gap, which is of first order, still does.
        slack = _TINY * here if -float((direction * gradient).sum()) <= _TINY * here else 0.0
        for step in _STEPS:
            ahead = value + step * direction[:n_atoms]
            through_zero = (ahead * value).sum(1, keepdim=True) <= 1e-6 * norm.square()
            intercept = point.intercept + step * direction[-1] if problem.intercept else point.intercept
            for chosen in (torch.where(through_zero, 0.0, ahead), ahead):
                coef = torch.zeros_like(point.coef)
                coef[atoms] = chosen
                moved = _Point(problem, coef, intercept)
                if moved.objective(problem) < here + slack:
                    return moved
    return None


def _damped_direction(hessian: Tensor, gradient: Tensor, damping: float) -> Tensor:
    """Levenberg's step, of the gradient's shape (n_columns, n_outputs)."""
    largest = max(float(hessian.diagonal().max()), _FLAT) if len(hessian) else _FLAT
    while True:
        shifted = hessian.clone()
        shifted.diagonal().add_(damping * largest)
        factor, info = torch.linalg.cholesky_ex(shifted)
        if int(info) == 0:
            step = torch.cholesky_solve(-gradient.T.reshape(-1, 1), factor)
            return step.view(gradient.shape[1], gradient.shape[0]).T
        damping *= 100
