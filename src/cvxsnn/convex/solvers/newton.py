"""Smooth losses with the L1 norm: proximal Newton steps on a working set of coefficients.

At scores f the loss is replaced by its second-order model, which with the penalty is the problem that
:mod:`.quadratic` solves. The model covers only the coefficients that are active or violate optimality, so Hessians stay
small; rows with equal spikes and targets were merged before, so they are also cheap to form.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite

import torch
from scipy.linalg.blas import dsyrk, ssyrk
from torch import Tensor

from ...core import memory
from ..certificate import bound_at, lower_bound
from ..problem import ConvexProblem
from .base import Callback, Solver, SolverResult, Status, is_late
from .quadratic import minimise_l1_quadratic

_MAX_BACKTRACKS = 40
_TINY = 1e-10
_LEVEL_FACTOR = 0.5
_MIN_NEWCOMERS, _NEWCOMER_SHARE = 100, 0.5
_ROUGH_ABOVE = 1e-4
"""Relative gap above which Hessians in float32 are good enough: half the work."""

_SLOW, _MOST_SLOW = 0.9, 5
"""Steps in a row that leave more than this share of the strength aimed at, after which Hessians are in float64: the
ridge that those in float32 need may make steps too short."""

_BLOCK, _BLOCK_GPU = 2**24, 2**28
"""Numbers of a block of rows over all entries of a Hessian: 128 MiB of float64; 2 GiB on a GPU."""

_TRIANGLE, _SMALL = 6, 128
"""Blocks per side in which symmetric products are formed, and the size below which one block is faster."""

HESSIAN_COPIES = 5
"""Matrices alive while a Hessian is formed: the sum, BLAS's triangle, both halves, and their sum."""


@dataclass
class _Point:
    """Coefficients, intercept, and the scores they give."""

    coef: Tensor
    intercept: Tensor
    scores: Tensor

    def towards(self, other: "_Point", step: float) -> "_Point":
        """Return the point a share ``step`` of the way to another."""
        if step == 1.0:
            return other
        return _Point(
            torch.lerp(self.coef, other.coef, step),
            torch.lerp(self.intercept, other.intercept, step),
            torch.lerp(self.scores, other.scores, step),
        )


class Newton(Solver):
    """Proximal Newton steps, for a smooth loss and the L1 norm."""

    name = "newton"
    max_iterations = 500

    def solve(
        self,
        problem: ConvexProblem,
        coef: Tensor,
        intercept: Tensor,
        *,
        tolerance: float,
        max_iterations: int,
        deadline: float = inf,
        callback: Callback,
    ) -> SolverResult:
        """Minimise a problem of one head."""
        point = _Point(coef, intercept, problem.dictionary.matvec(coef) + intercept)
        gap, best_gap, stalled = inf, inf, 0
        level, rough, n_slow = inf, torch.float32, 0
        for _ in range(max_iterations):
            dual = problem.unit_dual(point.scores)
            correlation = problem.correlation(dual)
            slope = correlation + problem.l2_strength * point.coef if problem.l2_strength else correlation
            largest = float(slope.abs().max())
            # Far from the goal, aim at a larger strength first: the working set then grows towards its size from below.
            before, level = level, max(problem.l1_strength, min(level, _LEVEL_FACTOR * largest))
            n_slow = n_slow + 1 if level > max(problem.l1_strength, _SLOW * before) else 0
            if n_slow > _MOST_SLOW:
                rough = torch.float64
            if level == problem.l1_strength:
                primal = _objective(problem, point, level)
                # The gradient is in the dual domain already, except for the balance that an intercept requires.
                bound, _ = lower_bound(problem, dual) if problem.intercept else bound_at(problem, dual, correlation)
                callback(primal, bound, int((point.coef != 0).sum()))
                gap = (primal - bound) / max(primal, 1e-300)
                if gap <= tolerance:
                    return SolverResult(point.coef, point.intercept, Status.CONVERGED)
                stalled = 0 if gap < 0.9 * best_gap else stalled + 1
                best_gap = min(gap, best_gap)
                if stalled >= 15:
                    break
            if is_late(deadline):
                return SolverResult(point.coef, point.intercept, Status.TIME_LIMIT)
            precision = rough if gap > _ROUGH_ABOVE and stalled == 0 else torch.float64
            target = _newton_point(problem, point, correlation, level, precision, deadline)
            moved = _line_search(problem, point, target, level)
            if moved is not None:
                point = moved
            elif precision == torch.float32:  # the Hessian has lost its small entries, and further ones would, too
                rough = torch.float64
            elif level == problem.l1_strength:
                break
            else:
                level *= _LEVEL_FACTOR
        else:
            return SolverResult(point.coef, point.intercept, Status.ITERATION_LIMIT)
        return SolverResult(point.coef, point.intercept, Status.STALLED)


def _objective(problem: ConvexProblem, point: _Point, strength: float) -> float:
    return float(problem.loss_value(point.scores) + problem.penalty.value(point.coef, strength, problem.l2_strength))


def _newton_point(
    problem: ConvexProblem,
    point: _Point,
    correlation: Tensor,
    strength: float,
    precision: torch.dtype,
    deadline: float,
) -> _Point:
    """Return the minimiser of the second-order model over the working set."""
    working = _working_set(point.coef, correlation, strength)
    outputs, atoms = torch.nonzero(working.T, as_tuple=True)  # sorted by output, as the Hessian's blocks are
    distinct, place = torch.unique(atoms, return_inverse=True)
    if problem.intercept:
        ones = torch.arange(problem.n_outputs, device=outputs.device)
        (head,) = problem.heads
        if head.loss.is_shift_invariant:
            # Nothing changes when all outputs move together: that of the largest class stays where it is.
            ones = ones[ones != (problem.row_weight @ head.targets).argmax()]
        outputs = torch.cat((outputs, ones))
        place = torch.cat((place, torch.full_like(ones, len(distinct))))
        order = torch.argsort(outputs, stable=True)
        outputs, place = outputs[order], place[order]
    is_coef = place < len(distinct)
    coef_place = (distinct[place[is_coef]], outputs[is_coef])
    value = point.intercept[outputs].clone()
    value[is_coef] = point.coef[coef_place]
    slope = (problem.row_weight @ problem.unit_dual(point.scores))[outputs]
    slope[is_coef] = correlation[coef_place]
    hessian = loss_hessian(problem, problem.curvature(point.scores), distinct, place, outputs, precision)
    linear = hessian @ value - slope  # the penalty's quadratic adds as much to the product as to the slope
    if problem.l2_strength:
        hessian.diagonal().add_(problem.l2_strength * is_coef.to(hessian))
    solved = minimise_l1_quadratic(
        hessian, linear, strength * is_coef.to(value), value, tolerance=1e-10 * strength, deadline=deadline
    )
    coef, intercept = torch.zeros_like(point.coef), point.intercept.clone()
    coef[coef_place] = solved[is_coef]
    intercept[outputs[~is_coef]] = solved[~is_coef]
    return _Point(coef, intercept, problem.dictionary.matvec(coef) + intercept)


def _working_set(coef: Tensor, correlation: Tensor, strength: float) -> Tensor:
    """Return the active coefficients and the worst violators, at most one per atom and few more than are active.

    Near-copies of a useful atom violate optimality as much as it does, until it has been admitted.
    """
    active = coef != 0
    violation = torch.where(active, 0.0, correlation.abs() - strength)
    worst, output = violation.max(1)
    n_new = min(int((worst > 0).sum()), max(_MIN_NEWCOMERS, int(_NEWCOMER_SHARE * active.sum())))
    atoms = torch.topk(worst, n_new).indices
    active[atoms, output[atoms]] = True
    return active


def _line_search(problem: ConvexProblem, point: _Point, target: _Point, strength: float) -> _Point | None:
    """Backtrack from the full step until the objective falls enough; None if it cannot."""
    here = _objective(problem, point, strength)
    gradient = problem.row_weight[:, None] * problem.unit_dual(point.scores)
    predicted = float((gradient * (target.scores - point.scores)).sum())
    before, after = (problem.penalty.value(p.coef, strength, problem.l2_strength) for p in (point, target))
    predicted += float(after - before)
    if not isfinite(predicted):  # the model of a step in float32 may have no minimum
        return None
    predicted = min(predicted, 0.0)
    # Close to the goal the objective no longer shows progress, while the gap, which is of first order, still does.
    slack = _TINY * here if -predicted <= _TINY * here else 0.0
    step = 1.0
    for _ in range(_MAX_BACKTRACKS):
        candidate = point.towards(target, step)
        if _objective(problem, candidate, strength) <= here + 1e-4 * step * predicted + slack:
            return candidate
        step *= 0.5
    return None


def hessian_bytes(n_entries: int) -> int:
    """Return the peak of forming a Hessian over some entries of the coefficients, in bytes."""
    return HESSIAN_COPIES * 8 * n_entries**2


def loss_hessian(
    problem: ConvexProblem,
    curvature: Tensor,
    atoms: Tensor,
    place: Tensor,
    outputs: Tensor,
    precision: torch.dtype = torch.float64,
) -> Tensor:
    """Return the Hessian of the weighted loss, in float64, with respect to some entries of the coefficients.

    Parameters
    ----------
    problem : ConvexProblem
    curvature : Tensor of shape (n_rows, n_outputs), as ``problem.curvature`` gives it
    atoms : Tensor of shape (n_columns,)
    place, outputs : Tensor of shape (n_entries,)
        Column and output of each entry, sorted by output. Column ``len(atoms)`` is the intercept.
    precision : torch.dtype
        In which products are formed.
    """
    size = len(place)
    remedy = "raise l1_strength, or use fewer witnesses"
    if hessian_bytes(size) > memory.NEGLIGIBLE:
        memory.check_fits(
            hessian_bytes(size), curvature.device, f"the Hessian over {size:,} active coefficients", remedy
        )
    hessian = torch.zeros(size, size, dtype=torch.float64, device=curvature.device)
    edges = torch.searchsorted(outputs, torch.arange(problem.n_outputs + 1, device=outputs.device)).tolist()
    n_numbers = memory.share_of(curvature.device, 8 * _BLOCK_GPU) // 8 if curvature.is_cuda else _BLOCK
    n_rows = max(1, n_numbers // max(1, size))
    for rows, columns in problem.dictionary.iterate_rows(n_rows, precision, atoms):
        if problem.intercept:
            columns = torch.cat((columns, columns.new_ones(len(columns), 1)), dim=1)
        for head in problem.heads:
            bend = curvature[rows, head.columns].to(precision)
            weight = (head.weight * problem.row_weight[rows]).to(precision)
            for output in range(head.columns.start, head.columns.stop):
                entries = slice(edges[output], edges[output + 1])
                root = (weight * bend[:, output - head.columns.start]).sqrt()
                chosen = columns if problem.n_outputs == 1 else columns[:, place[entries]]
                hessian[entries, entries] += self_product(chosen * root[:, None])
            coupling = head.loss.coupling(bend)
            if coupling is not None:
                entries = slice(edges[head.columns.start], edges[head.columns.stop])
                spread = columns[:, place[entries]] * coupling[:, outputs[entries] - head.columns.start]
                hessian[entries, entries] -= self_product(spread * weight.sqrt()[:, None])
    if precision != torch.float64:  # rounding must not make a singular Hessian indefinite
        hessian.diagonal().add_(1e-6 * hessian.diagonal().max())
    return hessian


def self_product(factor: Tensor) -> Tensor:
    """Return ``factorᵀ factor``, at little more than half the work of a general product."""
    if factor.device.type == "cpu" and factor.shape[1]:
        # What torch lacks: BLAS's symmetric product, here in Fortran's order. It fills the upper triangle.
        is_transposed = factor.T.is_contiguous()
        columns = factor.numpy() if is_transposed else factor.contiguous().numpy().T
        symmetric = dsyrk if factor.dtype == torch.float64 else ssyrk
        triangle = torch.from_numpy(symmetric(1.0, columns, trans=is_transposed)).T
        return torch.tril(triangle) + torch.tril(triangle, -1).T
    size = factor.shape[1]
    product = factor.new_empty(size, size)
    edges = [size * k // _TRIANGLE for k in range(_TRIANGLE + 1)] if size > _SMALL else [0, size]
    for top, bottom in pairwise(edges):  # block by block above the diagonal, mirrored below it
        product[top:bottom, top:] = factor[:, top:bottom].T @ factor[:, top:]
        product[bottom:, top:bottom] = product[top:bottom, bottom:].T
    return product
