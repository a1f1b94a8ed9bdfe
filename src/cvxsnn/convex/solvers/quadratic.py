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

from math import inf

import torch
from torch import Tensor

from ..rounding import UNIT
from .base import is_late

_RIDGE = 1e-13
"""Proximal term relative to the largest diagonal entry, so that singular Gram matrices have a factor; the fixed point
of the iteration is not moved by it."""

_CLIPPED_STEPS = (1.0, 0.5, 0.2, 0.05)

_MAX_IDLE, _ROUNDING, _ROUNDINGS = 2, 1e-6, 8
"""Iterations without progress after which only rounding errors are left, at a violation this small relative to the
strength, or of so many units of rounding of the gradient's terms."""

_MAX_FULL_STEPS = 10
"""Full steps after which signs are called far from final."""

_SETTLED = 0.1
"""Violation inside the support, relative to that outside, at which newcomers are admitted."""

_LEAST_NEWCOMERS, _NEWCOMER_SHARE = 100, 0.5
"""Newcomers that are admitted at once: so many, or this share of the support. Near-copies of a useful coordinate
violate optimality as much as it does, until it has been admitted."""

_MAX_ATTEMPTS, _FIRST_RIDGE, _RIDGE_FACTOR = 20, 1e-15, 100.0
"""Ridges to try before a matrix is left alone, the first of them relative to its largest entry, and the factor from one
to the next: the last makes any matrix of finite numbers positive definite."""

_WORTH_A_STREAM = 256
"""Size from which a GPU factorises matrices faster in parallel streams than as a batch."""


_FEW = 0.25
"""Share of the coordinates below which products use only their rows of the Gram matrix."""


def minimise_l1_quadratic(
    gram: Tensor,
    linear: Tensor,
    strength: Tensor,
    start: Tensor,
    *,
    tolerance: float,
    max_iterations: int = 1000,
    deadline: float = inf,
) -> Tensor:
    """Minimise ``½ xᵀGx − cᵀx + Σ s_j |x_j|``, as far as it gets before the deadline.

    Parameters
    ----------
    gram : Tensor of shape (p, p), symmetric positive semidefinite
    linear, strength, start : Tensor of shape (p,)
        Coordinates of zero strength are free.
    tolerance : float
        Largest violation of the optimality conditions that is left.
    """
    limits = linear.new_full((1,), tolerance)
    search = _ActiveSets(gram, linear[None], strength[None], start[None], limits)
    return search.run(max_iterations, deadline)[0]


def minimise_l1_quadratics(
    gram: Tensor,
    linear: Tensor,
    strength: Tensor,
    start: Tensor,
    *,
    tolerance: Tensor,
    max_iterations: int = 1000,
    deadline: float = inf,
) -> Tensor:
    """Minimise several problems with one Gram matrix, as :func:`minimise_l1_quadratic` does one.

    Parameters
    ----------
    gram : Tensor of shape (p, p)
    linear, strength, start : Tensor of shape (m, p)
    tolerance : Tensor of shape (m,)
    """
    return _ActiveSets(gram, linear, strength, start, tolerance).run(max_iterations, deadline)


def minimise_from_near(
    gram: Tensor, linear: Tensor, strength: float, start: Tensor, *, tolerance: float
) -> Tensor | None:
    """Minimise ``½ xᵀGx − cᵀx + s‖x‖₁`` by full steps, from a start whose signs are nearly those of the optimum.

    Every step solves for the coordinates in the support with their signs held fixed. Then those with the wrong sign
    leave, and all that violate optimality enter (the primal-dual active-set method of Hintermüller, Ito and Kunisch,
    2002). From far away it may go in circles.

    Parameters
    ----------
    gram : Tensor of shape (p, p), symmetric positive definite
    linear, start : Tensor of shape (p,)
    strength : float
    tolerance : float
        Largest violation of the optimality conditions that is left.

    Returns
    -------
    Tensor of shape (p,), or None
        The optimum; None if it was not found in a few steps.
    """
    sign = start.sign()
    for _ in range(_MAX_FULL_STEPS):
        chosen = torch.nonzero(sign).squeeze(1)
        factor, info = torch.linalg.cholesky_ex(gram.index_select(0, chosen).index_select(1, chosen))
        if bool(info):
            return None
        right = (linear - strength * sign)[chosen, None]
        x = torch.zeros_like(start).index_put_((chosen,), torch.cholesky_solve(right, factor)[:, 0])
        slope = _product(gram, x[None])[0] - linear
        is_wrong = x * sign < 0
        violates = (sign == 0) & (slope.abs() > strength + tolerance)
        is_settled = float((slope + strength * sign)[chosen].abs().max()) <= tolerance if len(chosen) else True
        if is_settled and not bool((is_wrong | violates).any()):
            return x
        sign = torch.where(violates, -slope.sign(), torch.where(is_wrong, 0.0, sign))
    return None


class _ActiveSets:
    """Problems that are being solved, one per row, and the progress of each."""

    def __init__(self, gram: Tensor, linear: Tensor, strength: Tensor, start: Tensor, tolerance: Tensor) -> None:
        self._gram, self._x = gram, start.clone()
        self._ridge = _RIDGE * float(gram.diagonal().max().clamp_min(1e-100))
        self._linear, self._strength, self._tolerance = linear, strength, tolerance[:, None]
        self._limits = tolerance.tolist()
        self._rounding = (_ROUNDING * strength.amax(1)).tolist()
        self._unit = _ROUNDINGS * UNIT
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
        own = self._rows()
        x, strength, tolerance = self._x[own], self._strength[own], self._tolerance[own]
        gradient = _product(self._gram, x) - self._linear[own]
        in_support = (x != 0) | (strength == 0)
        violation = torch.where(in_support, (gradient + strength * x.sign()).abs(), gradient.abs() - strength)
        size = self._unit * (self._linear[own].abs().amax(1) + self._largest * x.abs().sum(1))
        extremes = torch.stack((violation.amax(1), violation.masked_fill(~in_support, 0.0).amax(1), size))
        worst, inside, rounding = extremes.tolist()
        is_over = [self._is_over(problem, worst[row], rounding[row]) for row, problem in enumerate(self._open)]
        if all(is_over):
            self._open = []
            return
        # Newcomers wait until the support has nearly settled; otherwise collinear ones would enter and leave for ever.
        limits = [max(self._limits[problem], _SETTLED * w) for problem, w in zip(self._open, worst, strict=True)]
        is_settled = [within <= limit for within, limit in zip(inside, limits, strict=True)]
        if any(is_settled):
            newcomers = _newcomers(violation, in_support, tolerance)
            in_support |= newcomers if all(is_settled) else newcomers & _mask(is_settled, x)
        if any(is_over):
            in_support &= ~_mask(is_over, x)
        moved = _sign_step(self._gram, strength, x, gradient, in_support, self._ridge)
        is_lost = ~moved.isfinite().all(1, keepdim=True)
        moved = torch.where(_mask(is_over, x) | is_lost, x, moved)
        stays = (moved == x).all(1).tolist()
        self._x[own] = moved
        self._open = [problem for problem, stay in zip(self._open, stays, strict=True) if not stay]

    def _rows(self) -> slice | Tensor:
        """Return where the open problems are."""
        everyone = len(self._open) == len(self._x)
        return slice(None) if everyone else torch.tensor(self._open, device=self._x.device)

    def _is_over(self, problem: int, worst: float, rounding: float) -> bool:
        """Return whether a problem is solved, or as good as rounding lets it be."""
        self._n_idle[problem] = 0 if worst < 0.5 * self._best[problem] else self._n_idle[problem] + 1
        self._best[problem] = min(self._best[problem], worst)
        is_rounding = self._n_idle[problem] > _MAX_IDLE and worst <= max(self._rounding[problem], rounding)
        return worst <= self._limits[problem] or is_rounding


def _newcomers(violation: Tensor, in_support: Tensor, tolerance: Tensor) -> Tensor:
    """Return the worst violators outside of each support."""
    is_new = (violation > tolerance) & ~in_support
    n_most = max(_LEAST_NEWCOMERS, int(_NEWCOMER_SHARE * in_support.sum(1).max()))
    if n_most < is_new.shape[1]:
        outside = violation.masked_fill(~is_new, -inf)
        is_new &= violation >= outside.topk(n_most, dim=1).values[:, -1:]
    return is_new


def _mask(rows: list[bool], like: Tensor) -> Tensor:
    return torch.tensor(rows, device=like.device)[:, None]


def _product(gram: Tensor, x: Tensor) -> Tensor:
    """Return the rows of x times the Gram matrix."""
    support = torch.nonzero(x.any(0)).squeeze(1)
    if len(support) > _FEW * x.shape[1]:
        return x @ gram
    return x.index_select(1, support) @ gram.index_select(0, support)


def _sign_step(gram: Tensor, strength: Tensor, x: Tensor, gradient: Tensor, support: Tensor, ridge: float) -> Tensor:
    """Return the best points on the way to the minimisers over ``support`` with signs held fixed."""
    places, is_real = _packed_places(support)
    value, slope, penalty = (_taken(values, places, is_real) for values in (x, gradient, strength))
    quadratic = _submatrices(gram, places, is_real)
    while True:
        sign = torch.where(value != 0, value.sign(), -slope.sign())
        direction = solve_semidefinite(quadratic, -(slope + penalty * sign), ridge)
        # A newcomer that would leave zero against its assumed sign stays out.
        stays = (value != 0) | (direction * sign >= 0) | (penalty == 0)
        if bool(stays.all()):
            break
        if len(x) == 1:
            kept = torch.nonzero(stays[0]).squeeze(1)
            places, value, slope, penalty = (part.index_select(1, kept) for part in (places, value, slope, penalty))
            quadratic = quadratic.index_select(1, kept).index_select(2, kept)
        else:
            slope, penalty = torch.where(stays, slope, 0.0), torch.where(stays, penalty, 0.0)
            quadratic = _restricted(quadratic, stays)
    crosses = ((value + direction) * sign < 0) & (penalty > 0) & (value != 0)
    crossing = torch.where(crosses, -value / direction, torch.inf)
    # Either stop at one of the crossings, which always descends, or clip everything that crosses within some step,
    # which sets many coordinates to zero at once.
    ends, change = _changes_at_crossings(value, slope, penalty * sign, direction, quadratic, crossing)
    least, place = change.min(1, keepdim=True)
    end = ends.gather(1, place)
    clipped_steps = torch.tensor(_CLIPPED_STEPS, dtype=value.dtype, device=value.device)[:, None]
    clipped = torch.where(crossing[:, None] <= clipped_steps, 0.0, value[:, None] + clipped_steps * direction[:, None])
    shift = clipped - value[:, None]
    clipped_change = (shift * slope[:, None]).sum(2) + 0.5 * (shift @ quadratic * shift).sum(2)
    clipped_change = clipped_change + ((clipped.abs() - value.abs()[:, None]) * penalty[:, None]).sum(2)
    clipped_least, place = clipped_change.min(1, keepdim=True)
    chosen = torch.where(
        clipped_least < least,
        clipped.take_along_dim(place[:, :, None], 1)[:, 0],
        torch.where(crossing == end, 0.0, value + end * direction),
    )
    # Padding adds zeros.
    return torch.zeros_like(x).scatter_add_(1, places, chosen)


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
    return ends, ends * along + 0.5 * ends.square() * curvature - 2 * (lost + ends * turned)


def _packed_places(support: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the places of the true entries of each row, (m, a), padded to the longest; and which are no padding."""
    rows, columns = torch.nonzero(support, as_tuple=True)
    if len(support) == 1 and len(columns):
        return columns[None], None
    counts = support.sum(1)
    starts = counts.cumsum(0) - counts
    inside = torch.arange(len(rows), device=rows.device) - starts[rows]
    size = max(1, int(counts.max()))
    places = rows.new_zeros(len(support), size)
    places[rows, inside] = columns
    return places, torch.arange(size, device=rows.device) < counts[:, None]


def _taken(values: Tensor, places: Tensor, is_real: Tensor | None) -> Tensor:
    chosen = values.gather(1, places)
    return chosen if is_real is None else torch.where(is_real, chosen, 0.0)


def _submatrices(gram: Tensor, places: Tensor, is_real: Tensor | None) -> Tensor:
    """Return the rows and columns of the Gram matrix at these places, (m, a, a)."""
    if is_real is None:
        return gram.index_select(0, places[0]).index_select(1, places[0])[None]
    return _restricted(gram[places[:, :, None], places[:, None, :]], is_real)


def _restricted(quadratic: Tensor, stays: Tensor) -> Tensor:
    """Return the matrices with a one on the diagonal, and nothing beside it, where a coordinate does not stay."""
    identity = torch.eye(quadratic.shape[1], dtype=quadratic.dtype, device=quadratic.device)
    return torch.where(stays[:, :, None] & stays[:, None, :], quadratic, identity)


def solve_semidefinite(matrix: Tensor, right: Tensor, ridge: Tensor | float) -> Tensor:
    """Solve ``(matrix + diag(ridge)) x = right``, with a larger ridge where the matrix has no Cholesky factor yet.

    The solution of a system that has none with any ridge, because it has infinite entries or NaN, is zero.

    Parameters
    ----------
    matrix : Tensor of shape (n, n), or (m, n, n) for several systems
    right : Tensor of shape (n,), or (m, n)
    ridge : float, or Tensor of the shape of ``right``
    """
    ridge = torch.as_tensor(ridge, dtype=matrix.dtype, device=matrix.device)
    least = _FIRST_RIDGE * _largest_entry(matrix)[..., None]
    for _ in range(_MAX_ATTEMPTS):
        shifted = matrix.clone()
        shifted.diagonal(dim1=-2, dim2=-1).add_(ridge)
        solved, info = _solve(shifted, right)
        if not bool(info.any()):
            return solved
        ridge = torch.where(info[..., None] > 0, torch.maximum(_RIDGE_FACTOR * ridge, least), ridge)
    return torch.where(info[..., None] > 0, 0.0, solved)


def factorise(matrix: Tensor) -> Tensor | None:
    """Return the Cholesky factor of a matrix, with a ridge where rounding leaves it none; None if no ridge helps."""
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(matrix)
    if not bool(info):  # before the largest entry is looked for, which takes memory of its own
        return factor
    ridge = torch.finfo(matrix.dtype).eps * float(_largest_entry(matrix))
    for _ in range(_MAX_ATTEMPTS):
        if not bool(info):
            return factor
        shifted = matrix.clone()
        shifted.diagonal().add_(ridge)
        factor, info = torch.linalg.cholesky_ex(shifted)
        ridge *= _RIDGE_FACTOR
    return None


def _largest_entry(matrix: Tensor) -> Tensor:
    return matrix.abs().flatten(-2).amax(-1) if matrix.numel() else matrix.new_zeros(matrix.shape[:-2])


def _solve(matrix: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return the solutions, and an integer per system that is not zero where it has no Cholesky factor."""
    if matrix.is_cuda and matrix.ndim == 3 and len(matrix) > 1 and matrix.shape[1] >= _WORTH_A_STREAM:
        return _solve_in_streams(matrix, right)
    factor, info = torch.linalg.cholesky_ex(matrix)
    return torch.cholesky_solve(right[..., None], factor)[..., 0], info


def _solve_in_streams(matrices: Tensor, rights: Tensor) -> tuple[Tensor, Tensor]:
    """Solve each system in a CUDA stream of its own."""
    caller = torch.cuda.current_stream(matrices.device)
    streams = [torch.cuda.Stream(matrices.device) for _ in matrices]  # type: ignore[no-untyped-call]
    solved, info = torch.empty_like(rights), torch.empty(len(matrices), dtype=torch.int32, device=matrices.device)
    for number, stream in enumerate(streams):
        stream.wait_stream(caller)
        with torch.cuda.stream(stream):
            factor, info[number] = torch.linalg.cholesky_ex(matrices[number])
            solved[number] = torch.cholesky_solve(rights[number, :, None], factor)[:, 0]
    for stream in streams:
        caller.wait_stream(stream)
    return solved, info
