r"""The engine under every second-order solver: quadratics plus weighted L1 norms, by active sets.

.. math:: \min_x \tfrac12 x^\top G x - c^\top x + \sum_j s_j |x_j|

Each iteration adds the coordinates that violate optimality most to the support, minimises the quadratic with the signs
held fixed, and moves to the best point on the way there, among those at which a sign would change (feature-sign search
of Lee, Battle, Raina and Ng, 2006, with blocks of coordinates). The objective falls at every step and the number of
sign patterns is finite. Spike dictionaries are nearly collinear, which ruins methods that look at one coordinate at a
time, but their active sets are small, and a Cholesky factorisation of those is not affected.

Problems that share a Gram matrix are solved simultaneously, because a GPU needs as long for ten as for one. Only the
number of newcomers that each admits at once depends on the others.
"""

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from ...core import gpu
from ..linear import solve_semidefinite
from .base import is_late


@dataclass(frozen=True)
class _Tuning:
    ridge: float = 1e-13
    """Proximal term relative to the largest diagonal entry, so that singular matrices have a factor. It acts on steps
    and does not move the fixed point."""
    max_idle: int = 2
    """Iterations without progress after which the search ends ..."""
    idle_violation: float = 1e-6
    """... at a violation this small relative to the strength ..."""
    n_units: int = 8
    """... or of this many units of rounding of the gradient's terms."""
    settled: float = 0.1
    """Violation inside the support, relative to that outside, at which newcomers are admitted."""
    least_newcomers: int = 100
    """Newcomers admitted at once. Near-copies of a useful coordinate violate optimality until it has been admitted."""
    newcomer_share: float = 0.5
    """The same as a share of the support, if that is more."""
    few: float = 0.25
    """Share of the coordinates below which products use only their rows of the Gram matrix."""
    fall: float = 0.3
    """Factor between the strengths on the way to the requested one."""
    negligible: float = 1e-15
    """Strength, relative to the largest correlation, that is below rounding."""
    rounded: float = 1e-9
    """The same below which the tolerance is that of rounding."""


_TUNING = _Tuning()


def follow(gram: Tensor, linear: Tensor, strength: float, start: Tensor, deadline: float = inf) -> Tensor:
    """Minimise ``½ xᵀGx − cᵀx + s‖x‖₁`` at falling strengths, so that supports grow to their final sizes from below.

    Parameters
    ----------
    gram : Tensor of shape (p, p)
    linear, start : Tensor of shape (p, n_outputs)
    strength : float
    deadline : float
        Time at which to return the present point, for :func:`.base.is_late`.

    Returns
    -------
    Tensor of shape (p, n_outputs)
        The start, if the squares of these numbers are not finite.
    """
    # A GPU needs as long for 16 outputs as for one; a CPU is faster with one at a time.
    n_most = 16 if gpu.is_gpu(gram.device) else 1
    if start.shape[1] > n_most:
        groups = zip(torch.split(linear, n_most, dim=1), torch.split(start, n_most, dim=1), strict=True)
        return torch.cat([follow(gram, c, strength, x, deadline) for c, x in groups], dim=1)
    linear, x = linear.T.contiguous(), start.T.contiguous()
    level = (x @ gram - linear).abs().amax(1)
    if not bool(level.isfinite().all()):
        return start
    largest = linear.abs().amax(1)
    lowest = max(strength, _TUNING.negligible * float(largest.max()))
    while True:
        # Many coordinates violate a much smaller strength, most of them only because the useful ones are still missing.
        level = (_TUNING.fall * level).clamp_min(lowest)
        tolerance = torch.where(level > _TUNING.rounded * largest, 1e-12 * level, _TUNING.negligible * largest)
        levels = level[:, None].expand_as(x)
        x = minimise_l1_quadratic(gram, linear, levels, x, tolerance=tolerance, deadline=deadline)
        if bool((level <= lowest).all()) or is_late(deadline):
            return x.T


def minimise_l1_quadratic(
    gram: Tensor,
    linear: Tensor,
    strength: Tensor,
    start: Tensor,
    *,
    tolerance: Tensor,
    max_iterations: int = 1000,
    deadline: float = inf,
) -> Tensor:
    """Minimise ``½ xᵀGx − cᵀx + Σ s_j |x_j|`` for several problems with one Gram matrix.

    Parameters
    ----------
    gram : Tensor of shape (p, p), symmetric positive semidefinite
    linear, strength, start : Tensor of shape (m, p)
        Coordinates of zero strength are free.
    tolerance : Tensor of shape (m,)
        Largest violation of the optimality conditions that is left.
    deadline : float
        Time at which to return the present points, for :func:`.base.is_late`.
    """
    return _ActiveSets(gram, linear, strength, start, tolerance).run(max_iterations, deadline)


class _ActiveSets:
    """Problems that are being solved, one per row, and the progress of each."""

    def __init__(self, gram: Tensor, linear: Tensor, strength: Tensor, start: Tensor, tolerance: Tensor) -> None:
        self._gram, self._x = gram, start.clone()
        self._ridge = _TUNING.ridge * float(gram.diagonal().max().clamp_min(1e-100))
        self._linear = linear
        self._strength = strength
        self._tolerance = tolerance[:, None]
        self._limits = tolerance.tolist()
        self._rounding = (_TUNING.idle_violation * strength.amax(1)).tolist()
        self._unit = _TUNING.n_units * 2.0**-53
        self._largest = float(gram.diagonal().max())  # of a semidefinite matrix, no entry is larger
        self._open = list(range(len(start)))
        self._best = [inf for _ in start]
        self._n_idle = [0 for _ in start]

    def run(self, max_iterations: int, deadline: float) -> Tensor:
        """Iterate until all problems are solved, or the time is up, and return the solutions."""
        for _ in range(max_iterations):
            self._iterate()
            if not self._open or is_late(deadline):
                break
        return self._x

    def _iterate(self) -> None:
        """Take one step in every open problem."""
        rows = self._rows()
        x = self._x[rows]
        strength = self._strength[rows]
        tolerance = self._tolerance[rows]
        gradient = _product(self._gram, x) - self._linear[rows]
        in_support = (x != 0) | (strength == 0)
        violation = torch.where(in_support, (gradient + strength * x.sign()).abs(), gradient.abs() - strength)
        size = self._unit * (self._linear[rows].abs().amax(1) + self._largest * x.abs().sum(1))
        extremes = torch.stack((violation.amax(1), violation.masked_fill(~in_support, 0.0).amax(1), size))
        worst, inside, rounding = extremes.tolist()
        is_over = [self._is_over(problem, worst[row], rounding[row]) for row, problem in enumerate(self._open)]
        if all(is_over):
            self._open = []
            return
        # Newcomers wait until the support has nearly settled; otherwise collinear ones would enter and leave for ever.
        limits = [max(self._limits[problem], _TUNING.settled * w) for problem, w in zip(self._open, worst, strict=True)]
        is_settled = [within <= limit for within, limit in zip(inside, limits, strict=True)]
        if any(is_settled):
            newcomers = _newcomers(violation, in_support, tolerance)
            in_support |= newcomers if all(is_settled) else newcomers & _mask(is_settled, x)
        if any(is_over):
            in_support &= ~_mask(is_over, x)
        moved = _sign_step(self._gram, strength, x, gradient, in_support, self._ridge)
        # A problem whose numbers overflow keeps its point, and ends with it.
        is_lost = ~moved.isfinite().all(1, keepdim=True)
        moved = torch.where(_mask(is_over, x) | is_lost, x, moved)
        # A step that changes nothing would be repeated for ever.
        stays = (moved == x).all(1).tolist()
        self._x[rows] = moved
        self._open = [problem for problem, stay in zip(self._open, stays, strict=True) if not stay]

    def _rows(self) -> slice | Tensor:
        """Return the rows of the open problems."""
        everyone = len(self._open) == len(self._x)
        return slice(None) if everyone else torch.tensor(self._open, device=self._x.device)

    def _is_over(self, problem: int, worst: float, rounding: float) -> bool:
        """Return whether a problem is solved, to the tolerance or to the limit of rounding."""
        self._n_idle[problem] = 0 if worst < 0.5 * self._best[problem] else self._n_idle[problem] + 1
        self._best[problem] = min(self._best[problem], worst)
        is_rounding = self._n_idle[problem] > _TUNING.max_idle and worst <= max(self._rounding[problem], rounding)
        return worst <= self._limits[problem] or is_rounding


def _newcomers(violation: Tensor, in_support: Tensor, tolerance: Tensor) -> Tensor:
    """Return the worst violators outside of each support."""
    is_new = (violation > tolerance) & ~in_support
    n_most = max(_TUNING.least_newcomers, int(_TUNING.newcomer_share * in_support.sum(1).max()))
    if n_most < is_new.shape[1]:
        outside = violation.masked_fill(~is_new, -inf)
        is_new &= violation >= outside.topk(n_most, dim=1).values[:, -1:]
    return is_new


def _mask(rows: list[bool], like: Tensor) -> Tensor:
    return torch.tensor(rows, device=like.device)[:, None]


def _product(gram: Tensor, x: Tensor) -> Tensor:
    """Return the rows of x times the Gram matrix."""
    support = torch.nonzero(x.any(0)).squeeze(1)
    if len(support) > _TUNING.few * x.shape[1]:
        return x @ gram
    return x.index_select(1, support) @ gram.index_select(0, support)


def _sign_step(gram: Tensor, strength: Tensor, x: Tensor, gradient: Tensor, support: Tensor, ridge: float) -> Tensor:
    """Return the best points on the way to the minimisers over ``support`` with signs held fixed."""
    positions, is_real = _packed_positions(support)
    value, slope, penalty = (_taken(values, positions, is_real) for values in (x, gradient, strength))
    quadratic = _submatrices(gram, positions, is_real)
    while True:
        sign = torch.where(value != 0, value.sign(), -slope.sign())
        direction = solve_semidefinite(quadratic, -(slope + penalty * sign), ridge)
        # A newcomer that would leave zero against its assumed sign stays out.
        stays = (value != 0) | (direction * sign >= 0) | (penalty == 0)
        if bool(stays.all()):
            break
        if len(x) == 1:
            kept = torch.nonzero(stays[0]).squeeze(1)
            positions, value, slope, penalty = (
                part.index_select(1, kept) for part in (positions, value, slope, penalty)
            )
            quadratic = quadratic.index_select(1, kept).index_select(2, kept)
        else:
            slope, penalty = torch.where(stays, slope, 0.0), torch.where(stays, penalty, 0.0)
            quadratic = _restricted(quadratic, stays)
    crosses = ((value + direction) * sign < 0) & (penalty > 0) & (value != 0)
    if not bool(crosses.any()):  # padding adds zeros
        return torch.zeros_like(x).scatter_add_(1, positions, value + direction)
    crossing = torch.where(crosses, -value / direction, torch.inf)
    # Either stop at one of the crossings, which always descends, or clip everything that crosses within some step,
    # which sets many coordinates to zero at once.
    ends, change = _changes_at_crossings(value, slope, penalty * sign, direction, quadratic, crossing)
    least, best = change.min(1, keepdim=True)
    end = ends.gather(1, best)
    clipped_steps = torch.tensor((1.0, 0.5, 0.2, 0.05), dtype=value.dtype, device=value.device)[:, None]
    clipped = torch.where(crossing[:, None] <= clipped_steps, 0.0, value[:, None] + clipped_steps * direction[:, None])
    shift = clipped - value[:, None]
    clipped_change = (shift * slope[:, None]).sum(2) + 0.5 * (shift @ quadratic * shift).sum(2)
    clipped_change = clipped_change + ((clipped.abs() - value.abs()[:, None]) * penalty[:, None]).sum(2)
    clipped_least, best = clipped_change.min(1, keepdim=True)
    chosen = torch.where(
        clipped_least < least,
        clipped.take_along_dim(best[:, :, None], 1)[:, 0],
        torch.where(crossing == end, 0.0, value + end * direction),
    )
    return torch.zeros_like(x).scatter_add_(1, positions, chosen)


def _changes_at_crossings(
    value: Tensor, slope: Tensor, pull: Tensor, direction: Tensor, quadratic: Tensor, crossing: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the steps at which a coordinate crosses zero, and the full step; and the change of the objective there.

    The penalty changes by ``pull · direction`` per unit step, with the opposite sign for coordinates that have crossed.
    """
    order = crossing.argsort(1)
    ends = crossing.gather(1, order).clamp_max(1.0)
    has_crossed = crossing.gather(1, order) < torch.inf
    ends = torch.cat((ends, ends.new_ones(len(ends), 1)), dim=1)
    crossed = (torch.where(has_crossed, (pull * part).gather(1, order), 0.0) for part in (value, direction))
    lost, turned = (torch.cat((part.cumsum(1), part.sum(1, keepdim=True)), dim=1) for part in crossed)
    curvature = (direction * (quadratic @ direction[:, :, None])[:, :, 0]).sum(1, keepdim=True)
    along = ((slope + pull) * direction).sum(1, keepdim=True)
    # Beyond its crossing |x_j| is −σ_j x_j and no longer σ_j x_j: a difference of −2 σ_j x_j.
    return ends, ends * along + 0.5 * ends.square() * curvature - 2 * (lost + ends * turned)


def _packed_positions(support: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the positions of the true entries of each row, (m, a), padded to the longest; and which are no padding."""
    rows, columns = torch.nonzero(support, as_tuple=True)
    if len(support) == 1 and len(columns):
        return columns[None], None
    counts = support.sum(1)
    starts = counts.cumsum(0) - counts
    inside = torch.arange(len(rows), device=rows.device) - starts[rows]
    size = max(1, int(counts.max()))
    positions = rows.new_zeros(len(support), size)
    positions[rows, inside] = columns
    return positions, torch.arange(size, device=rows.device) < counts[:, None]


def _taken(values: Tensor, positions: Tensor, is_real: Tensor | None) -> Tensor:
    chosen = values.gather(1, positions)
    return chosen if is_real is None else torch.where(is_real, chosen, 0.0)


def _submatrices(gram: Tensor, positions: Tensor, is_real: Tensor | None) -> Tensor:
    """Return the rows and columns of the Gram matrix at these positions, (m, a, a)."""
    if is_real is None:
        return gram.index_select(0, positions[0]).index_select(1, positions[0])[None]
    return _restricted(gram[positions[:, :, None], positions[:, None, :]], is_real)


def _restricted(quadratic: Tensor, stays: Tensor) -> Tensor:
    """Return the matrices with rows and columns of the identity for coordinates that do not stay."""
    # The identity leaves a factor possible, and with a slope of zero such a coordinate does not move.
    identity = torch.eye(quadratic.shape[1], dtype=quadratic.dtype, device=quadratic.device)
    return torch.where(stays[:, :, None] & stays[:, None, :], quadratic, identity)
