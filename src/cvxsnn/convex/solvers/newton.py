"""Smooth losses with the L1 norm: proximal Newton steps on a working set of coefficients.

At scores f the loss is replaced by its second-order model, which with the penalty is the problem that
:mod:`.quadratic` solves. The model covers only the coefficients that are active or violate optimality, so Hessians stay
small. Rows with equal spikes and targets were merged before, so Hessians are also cheap to form.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite

import torch
from torch import Tensor

from ...core import gpu, memory
from ...dictionary.products import self_product
from ..certificate import bound_at, lower_bound, relative_gap
from ..problem import ConvexProblem
from .base import Budget, Solver, SolverResult, Status
from .quadratic import minimise_l1_quadratic

HESSIAN_COPIES = 5
"""Matrices alive while a Hessian is formed: the sum, BLAS's triangle, both halves, and their sum."""


@dataclass(frozen=True)
class _Tuning:
    level_factor: float = 0.5
    """Strength to aim at next, relative to the largest correlation."""
    least_newcomers: int = 100
    """Coefficients that enter the working set at once ..."""
    newcomer_share: float = 0.5
    """... or this share of the active ones, if that is more."""
    rough_above: float = 1e-4
    """Relative gap above which Hessians in float32 are accurate enough, at half the work."""
    slow: float = 0.9
    """A step is slow if the strength to aim at falls to no less than this share."""
    max_slow: int = 5
    """Slow steps in a row after which Hessians are in float64: the ridge that float32 needs may shorten steps."""
    max_idle: int = 15
    """Steps after which the solver gives up if the gap has not fallen by a tenth."""
    block: int = 2**24
    """Numbers in a block of rows over all entries of a Hessian: 128 MiB of float64; a GPU may use 2 GiB."""


_TUNING = _Tuning()


@dataclass
class _Point:
    """Coefficients, intercept, and the scores they give."""

    coef: Tensor
    intercept: Tensor
    scores: Tensor

    def towards(self, target: "_Point", step: float) -> "_Point":
        """Return the point a share ``step`` of the way to a target."""
        if step == 1.0:
            return target
        return _Point(
            torch.lerp(self.coef, target.coef, step),
            torch.lerp(self.intercept, target.intercept, step),
            torch.lerp(self.scores, target.scores, step),
        )


class Newton(Solver):
    """Proximal Newton steps, for a smooth loss and the L1 norm."""

    name = "l1"
    scope = "output"
    max_iterations = 500

    def solve(self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, budget: Budget) -> SolverResult:
        """Minimise a problem of one head."""
        point = _Point(coef, intercept, problem.dictionary.matvec(coef) + intercept)
        gap = inf
        best_gap = inf
        n_idle = 0
        level = inf
        rough = torch.float32
        n_slow = 0
        status = Status.ITERATION_LIMIT
        for _ in range(budget.max_iterations):
            dual = problem.unit_dual(point.scores)
            correlation = problem.correlation(dual)
            slope = correlation + problem.quadratic_slope(point.coef) if problem.l2_strength else correlation
            largest = float(slope.abs().max())
            # Far from the goal, aim at a larger strength first: the working set then grows to its size from below.
            before = level
            level = max(problem.l1_strength, min(level, _TUNING.level_factor * largest))
            n_slow = n_slow + 1 if level > max(problem.l1_strength, _TUNING.slow * before) else 0
            if n_slow > _TUNING.max_slow:
                rough = torch.float64
            if level == problem.l1_strength:
                primal = _objective(problem, point, level)
                # The gradient is in the dual domain already, except for the balance that an intercept requires.
                bound, _ = lower_bound(problem, dual) if problem.intercept else bound_at(problem, dual, correlation)
                budget.record(primal, bound, int((point.coef != 0).sum()))
                gap = relative_gap(primal, bound)
                n_idle = 0 if gap < 0.9 * best_gap else n_idle + 1
                best_gap = min(gap, best_gap)
                if gap <= budget.tolerance or n_idle >= _TUNING.max_idle:
                    status = Status.CONVERGED if gap <= budget.tolerance else Status.STALLED
                    break
            if budget.is_late:
                status = Status.TIME_LIMIT
                break
            precision = rough if gap > _TUNING.rough_above and n_idle == 0 else torch.float64
            target = _newton_point(problem, point, slope, level, precision, budget.deadline)
            moved = None if target is None else _line_search(problem, point, target, level)
            if moved is not None:
                point = moved
            elif precision == torch.float32:  # the Hessian has lost its small entries, and further ones would, too
                rough = torch.float64
            elif level == problem.l1_strength:
                status = Status.STALLED
                break
            else:
                level *= _TUNING.level_factor
        return SolverResult(point.coef, point.intercept, status)


def _objective(problem: ConvexProblem, point: _Point, strength: float) -> float:
    return float(problem.loss_value(point.scores) + problem.penalty_value(point.coef, strength))


def _newton_point(
    problem: ConvexProblem,
    point: _Point,
    slope: Tensor,
    strength: float,
    precision: torch.dtype,
    deadline: float,
) -> _Point | None:
    """Return the minimiser of the second-order model over the working set; ``slope`` is that of loss and quadratic.

    If the working set is empty, and there is no intercept, the point is the solution up to rounding: None.
    """
    working = _working_set(point.coef, slope, strength)
    outputs, atoms = torch.nonzero(working.T, as_tuple=True)  # sorted by output, as the Hessian's blocks are
    distinct, column = torch.unique(atoms, return_inverse=True)
    if problem.intercept:
        shifted = torch.arange(problem.n_outputs, device=outputs.device)
        (head,) = problem.heads
        if head.loss.is_shift_invariant:
            # The loss does not change if all outputs move together, which would leave the Hessian singular: the
            # intercept of the largest class is held fixed.
            shifted = shifted[shifted != (problem.row_weight @ head.targets).argmax()]
        outputs = torch.cat((outputs, shifted))
        column = torch.cat((column, torch.full_like(shifted, len(distinct))))
        order = torch.argsort(outputs, stable=True)
        outputs, column = outputs[order], column[order]
    if len(outputs) == 0:
        return None
    is_coef = column < len(distinct)
    entries = (distinct[column[is_coef]], outputs[is_coef])
    value = point.intercept[outputs].clone()
    value[is_coef] = point.coef[entries]
    gradient = (problem.row_weight @ problem.unit_dual(point.scores))[outputs]
    gradient[is_coef] = slope[entries]
    hessian = loss_hessian(problem, problem.curvature(point.scores), distinct, column, outputs, precision)
    if problem.l2_strength:
        hessian.diagonal().add_(problem.l2_strength * is_coef.to(hessian))
    linear = hessian @ value - gradient
    tolerance = value.new_full((1,), 1e-10 * strength)
    strengths = strength * is_coef.to(value)
    (solved,) = minimise_l1_quadratic(
        hessian, linear[None], strengths[None], value[None], tolerance=tolerance, deadline=deadline
    )
    coef, intercept = torch.zeros_like(point.coef), point.intercept.clone()
    coef[entries] = solved[is_coef]
    intercept[outputs[~is_coef]] = solved[~is_coef]
    return _Point(coef, intercept, problem.dictionary.matvec(coef) + intercept)


def _working_set(coef: Tensor, slope: Tensor, strength: float) -> Tensor:
    """Return the active coefficients and the worst violators, at most one per atom and few more than are active.

    Near-copies of a useful atom violate optimality as much as it does, until it has been admitted.
    """
    active = coef != 0
    violation = torch.where(active, 0.0, slope.abs() - strength)
    worst, output = violation.max(1)
    n_new = min(int((worst > 0).sum()), max(_TUNING.least_newcomers, int(_TUNING.newcomer_share * active.sum())))
    atoms = torch.topk(worst, n_new).indices
    active[atoms, output[atoms]] = True
    return active


def _line_search(problem: ConvexProblem, point: _Point, target: _Point, strength: float) -> _Point | None:
    """Return the point after a step that lowers the objective enough; None if there is none."""
    gradient = problem.row_weight[:, None] * problem.unit_dual(point.scores)
    # The penalty is convex: its change over the whole step bounds its slope at the start.
    before, after = (problem.penalty_value(p.coef, strength) for p in (point, target))
    predicted = float((gradient * (target.scores - point.scores)).sum()) + float(after - before)
    step = backtrack(lambda step: _objective(problem, point.towards(target, step), strength), predicted)
    return point.towards(target, step) if step else None


def backtrack(objective: Callable[[float], float], predicted: float) -> float:
    """Return the longest of the steps 1, ½, ¼, ... that lowers the objective enough (Armijo); zero if none does."""
    if not isfinite(predicted):  # the model of a step in float32 may have no minimum
        return 0.0
    here, predicted = objective(0.0), min(predicted, 0.0)
    # Close to the goal the objective no longer shows progress, while the gap, which is of first order, still does.
    slack = 1e-10 * here if -predicted <= 1e-10 * here else 0.0
    steps = (0.5**k for k in range(40))
    return next((step for step in steps if objective(step) <= here + 1e-4 * step * predicted + slack), 0.0)


def hessian_bytes(n_entries: int) -> int:
    """Return the peak of forming a Hessian over some entries of the coefficients, in bytes."""
    return HESSIAN_COPIES * 8 * n_entries**2


def loss_hessian(
    problem: ConvexProblem,
    curvature: Tensor,
    atoms: Tensor,
    column: Tensor,
    outputs: Tensor,
    precision: torch.dtype = torch.float64,
) -> Tensor:
    """Return the Hessian of the weighted loss, in float64, with respect to some entries of the coefficients.

    Parameters
    ----------
    problem : ConvexProblem
    curvature : Tensor of shape (n_rows, n_outputs), as ``problem.curvature`` gives it
    atoms : Tensor of shape (n_columns,)
    column, outputs : Tensor of shape (n_entries,)
        Column and output of each entry, sorted by output. Column ``len(atoms)`` is the intercept.
    precision : torch.dtype
        Precision of the products.
    """
    size = len(column)
    if hessian_bytes(size) > memory.NEGLIGIBLE:
        purpose = f"the Hessian over {size:,} active coefficients"
        remedy = "raise l1_strength, or use fewer witnesses"
        memory.check_fits(hessian_bytes(size), curvature.device, purpose, remedy)
    hessian = torch.zeros(size, size, dtype=torch.float64, device=curvature.device)
    edges = torch.searchsorted(outputs, torch.arange(problem.n_outputs + 1, device=outputs.device)).tolist()
    n_numbers = memory.share_of(curvature.device, 2**31) // 8 if gpu.is_gpu(curvature.device) else _TUNING.block
    n_rows = max(1, n_numbers // max(1, size))
    for rows, columns in problem.dictionary.iterate_rows(n_rows, precision, atoms):
        if problem.intercept:
            columns = torch.cat((columns, columns.new_ones(len(columns), 1)), dim=1)
        for head in problem.heads:
            bend = curvature[rows, head.columns].to(precision)
            weight = (head.weight * problem.row_weight[rows]).to(precision)
            for output in range(head.columns.start, head.columns.stop):
                entries = slice(edges[output], edges[output + 1])
                # Columns times the root of the curvature: a product of a matrix with itself is symmetric and cheaper.
                root = (weight * bend[:, output - head.columns.start]).sqrt()
                chosen = columns if problem.n_outputs == 1 else columns[:, column[entries]]
                hessian[entries, entries] += self_product(chosen * root[:, None])
            coupling = head.loss.coupling(bend)
            if coupling is not None:
                entries = slice(edges[head.columns.start], edges[head.columns.stop])
                spread = columns[:, column[entries]] * coupling[:, outputs[entries] - head.columns.start]
                hessian[entries, entries] -= self_product(spread * weight.sqrt()[:, None])
    if precision != torch.float64:  # rounding must not make a singular Hessian indefinite
        hessian.diagonal().add_(1e-6 * hessian.diagonal().max())
    return hessian
