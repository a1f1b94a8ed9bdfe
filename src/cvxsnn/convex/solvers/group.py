r"""Group norm, with a quadratic or without: Newton's method on a rounded norm that is sharpened as the gap closes.

The norm of an atom's outputs is replaced by :math:`\eta_j = \sqrt{\|w_j\|^2 + \epsilon^2}`, and a hinge by its rounded
form. As ε falls the corners come back, and stop Newton's method on the rounded objective. Therefore the slope
:math:`w_j / \eta_j` is kept as a variable :math:`u_j` in the unit ball, and the equation :math:`\eta_j u_j = w_j` is
linearised, which is far closer to linear (Chan, Golub and Mulet, 1999).
"""

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from ..certificate import lower_bound, relative_gap
from ..linear import solve_semidefinite
from ..problem import ConvexProblem
from .base import NARROWEST, Budget, Solver, SolverResult, Status
from .newton import backtrack, loss_hessian


@dataclass(frozen=True)
class _Tuning:
    max_idle: int = 100
    """Steps after which the solver gives up if the gap has not fallen by a twentieth."""
    least_newcomers: int = 20
    """Atoms that enter the working set at once ..."""
    newcomer_share: float = 0.5
    """... or this share of it, if that is more."""
    damping: float = 1e-13
    """Damping relative to the diagonal of the Hessian."""
    flat: float = 1e-2
    """Curvature to assume where the loss is linear."""
    sharpness: float = 0.1
    """Share of the gap that smoothing may add to the objective."""
    steep: float = 0.995
    """Norm of the slope below which an atom counts as zero: its outputs are within ten times the smoothing."""
    rough_above: float = 1e-3
    """Relative gap above which Hessians in float32 are accurate enough, at half the work."""
    widest: float = 1e150
    """Smoothing whose square is finite, for norms of little or no weight."""


_TUNING = _Tuning()


class Group(Solver):
    """Newton's method on a smoothed norm, for smooth losses and the hinge with a group norm."""

    name = "group"
    max_iterations = 1000

    def solve(self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, budget: Budget) -> SolverResult:
        """Minimise a whole problem."""
        search = _SmoothedSearch(problem, coef, intercept, budget.tolerance)
        best_gap = inf
        n_idle = 0
        status = Status.ITERATION_LIMIT
        for _ in range(budget.max_iterations):
            search.assess()
            gap = search.gap
            budget.record(search.best_primal, search.best_bound, int(search.best_coef.any(1).sum()))
            n_idle = 0 if gap < 0.95 * best_gap else n_idle + 1
            best_gap = min(best_gap, gap)
            if gap <= budget.tolerance or n_idle > _TUNING.max_idle:
                status = Status.CONVERGED if gap <= budget.tolerance else Status.STALLED
                break
            if budget.is_late:
                status = Status.TIME_LIMIT
                break
            search.advance()
        dual = -problem.row_weight[:, None] * search.best_dual
        return SolverResult(search.best_coef, search.best_intercept, status, dual)


class _SmoothedSearch:
    """The iterate and the best points seen.

    ``allowance`` bounds the amount that rounded corners add to the objective. ``slope`` is u, with one row per atom.
    ``lean`` is the same for hinges, with one entry per score: there |1 − yf| is the norm that is rounded.
    """

    def __init__(self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, tolerance: float) -> None:
        self.problem, self.tolerance = problem, tolerance
        self.coef, self.intercept = coef, intercept
        self.scores = problem.dictionary.matvec(coef) + intercept
        self.best_primal = inf
        self.best_coef = coef
        self.best_intercept = intercept
        self.best_bound, self.best_dual = -inf, problem.null_dual
        self.targets = torch.cat([head.targets for head in problem.heads], dim=1)
        hinge_weight = [0.0 if h.loss.is_smooth else h.weight for h in problem.heads for _ in h.targets[0]]
        self.hinge_weight = torch.tensor(hinge_weight, dtype=coef.dtype, device=coef.device)
        self.has_hinge = bool(self.hinge_weight.any())
        self.working = coef.any(1)
        self.slope, self.lean = torch.zeros_like(coef), torch.zeros_like(self.scores)
        self.allowance = inf
        self.smooth = problem.smoothed(NARROWEST)
        self.is_settled = True

    @property
    def gap(self) -> float:
        return relative_gap(self.best_primal, self.best_bound)

    def _sharpen_to(self, allowance: float) -> None:
        """Round so that the working atoms add at most ``allowance`` to the objective, and hinges half of it."""
        self.allowance = allowance
        atoms_weight = self.problem.l1_strength * max(1, int(self.working.sum()))
        self.epsilon = min(max(NARROWEST, allowance / atoms_weight), _TUNING.widest) if atoms_weight else _TUNING.widest
        width = max(NARROWEST, allowance / float(self.hinge_weight.sum())) if self.has_hinge else NARROWEST
        self.width = min(width, _TUNING.widest)
        self.smooth = self.problem.smoothed(self.width)

    def assess(self) -> None:
        """Update the best points, add violators to the working set, and sharpen."""
        problem, strength = self.problem, self.problem.l1_strength
        sparse = torch.where(self.slope.norm(dim=1, keepdim=True) < _TUNING.steep, 0.0, self.coef)
        primal = self._offer(sparse, problem.dictionary.matvec(sparse) + self.intercept, inf)
        primal = min(primal, self._offer(self.coef, self.scores, primal))
        dual = self.smooth.unit_dual(self.scores)
        bound, feasible = lower_bound(problem, dual)
        if self.has_hinge:
            # On a narrow hinge the gradient magnifies the rounding of the scores; the slopes kept apart do not.
            kept = -0.5 * self.hinge_weight * self.targets * (1 + self.lean)
            from_slopes = lower_bound(problem, torch.where(self.hinge_weight > 0, kept, dual))
            bound, feasible = max((bound, feasible), from_slopes, key=lambda pair: pair[0])
        if bound > self.best_bound:
            self.best_bound, self.best_dual = bound, feasible
        slope = problem.correlation(dual) + problem.quadratic_slope(self.coef)
        norms = problem.penalty.atom_norms(slope).masked_fill(self.working, 0.0)
        most = max(_TUNING.least_newcomers, int(_TUNING.newcomer_share * self.working.sum()))
        n_new = min(int((norms > strength).sum()), most)
        self.working[torch.topk(norms, n_new).indices] = True
        if n_new or self.is_settled:
            allowance = _TUNING.sharpness * (primal - bound)
            self._sharpen_to(allowance if n_new else min(self.allowance, allowance))

    def _offer(self, coef: Tensor, scores: Tensor, rival: float) -> float:
        primal = self.problem.objective(coef, scores)
        # A point that is not sparse must beat its sparse rival by half the tolerance.
        if primal <= self.best_primal and primal < rival * (1 - 0.5 * self.tolerance):
            self.best_primal = primal
            self.best_coef = coef
            self.best_intercept = self.intercept
        return primal

    def advance(self) -> None:
        """Take one Newton step on the rounded objective, over the working set and the intercept."""
        problem, n_outputs = self.problem, self.problem.n_outputs
        strength, ridge = problem.l1_strength, problem.l2_strength
        atoms = torch.nonzero(self.working).squeeze(1)
        n_atoms, n_columns = len(atoms), len(atoms) + problem.intercept
        column = torch.arange(n_columns, device=atoms.device).repeat(n_outputs)
        outputs = torch.arange(n_outputs, device=atoms.device).repeat_interleave(n_columns)
        value = self.coef[atoms]
        slope = self.slope[atoms]
        short = 1 - self.targets * self.scores
        eta, eta_short = _smooth_norm(value.norm(dim=1, keepdim=True), self.epsilon), _smooth_norm(short, self.width)
        unit, unit_short = value / eta, short / eta_short

        dual = self.smooth.unit_dual(self.scores)
        gradient = problem.correlation(dual)[atoms] + strength * unit + problem.quadratic_slope(self.coef)[atoms]
        if problem.intercept:
            gradient = torch.cat((gradient, (problem.row_weight @ dual)[None]))
        curvature = torch.where(
            self.hinge_weight > 0,
            0.5 * (1 - self.lean * unit_short) / eta_short,
            self.smooth.curvature(self.scores),
        )
        # Curvatures of a narrow hinge differ between rows by far more than float32 resolves.
        precision = torch.float32 if self.gap > _TUNING.rough_above and not self.has_hinge else torch.float64
        hessian = loss_hessian(self.smooth, curvature, atoms, column, outputs, precision)
        blocks = hessian.view(n_outputs, n_columns, n_outputs, n_columns)
        product = slope[:, :, None] * unit[:, None, :]
        # slope and unit agree only at an optimum; symmetrising keeps a Cholesky factor possible before that.
        bend = torch.eye(n_outputs).to(unit) - 0.5 * (product + product.mT)
        diagonal = torch.arange(n_atoms, device=atoms.device)
        blocks[:, diagonal, :, diagonal] += strength * bend / eta[:, :, None] + ridge * torch.eye(n_outputs).to(unit)

        damping = _TUNING.damping * (hessian.diagonal() + _TUNING.flat)
        move = solve_semidefinite(hessian, -gradient.T.reshape(-1), damping).view(n_outputs, n_columns).T
        d_value = move[:n_atoms]
        d_coef = torch.zeros_like(self.coef).index_put_((atoms,), d_value)
        d_intercept = move[n_atoms:].sum(0)
        d_scores = problem.dictionary.matvec(d_coef) + d_intercept
        predicted = float((move * gradient).sum())
        self.is_settled = -predicted <= self.allowance
        step = self._line_search(atoms, d_coef, d_scores, predicted)
        if step == 0:
            # Nothing descends at this width any more, so it would not help to stay at it.
            self._sharpen_to(_TUNING.sharpness * self.allowance)
            return
        d_slope = (d_value - slope * (unit * d_value).sum(1, keepdim=True)) / eta + unit - slope
        slope = slope + step * d_slope
        # Slopes of a norm are in the unit ball; a step on the linearised equation may leave it.
        self.slope[atoms] = slope / slope.norm(dim=1, keepdim=True).clamp_min(1.0)
        d_lean = (1 - self.lean * unit_short) * (-self.targets * d_scores) / eta_short + unit_short - self.lean
        self.lean = (self.lean + step * d_lean).clamp(-1, 1)
        self.coef, self.intercept = self.coef + step * d_coef, self.intercept + step * d_intercept
        self.scores = problem.dictionary.matvec(self.coef) + self.intercept

    def _line_search(self, atoms: Tensor, d_coef: Tensor, d_scores: Tensor, predicted: float) -> float:
        """Return a step that lowers the smoothed objective enough; zero if there is none."""

        def objective(step: float) -> float:
            coef = self.coef[atoms] + step * d_coef[atoms]
            penalty = self.problem.l1_strength * _smooth_norm(coef.norm(dim=1), self.epsilon).sum()
            if self.problem.l2_strength:
                away = coef if self.problem.centre is None else coef - self.problem.centre[atoms]
                penalty = penalty + 0.5 * self.problem.l2_strength * away.square().sum()
            return float(self.smooth.loss_value(self.scores + step * d_scores) + penalty)

        return backtrack(objective, predicted)


def _smooth_norm(norm: Tensor, width: float) -> Tensor:
    return (norm.square() + width**2).sqrt()
