r"""The engine under every second-order solver: a quadratic plus a weighted L1 norm, by active sets.

.. math:: \min_x \tfrac12 x^\top G x - c^\top x + \sum_j s_j |x_j|

Each iteration adds all coordinates that violate optimality to the support, minimises the quadratic with the signs held
fixed, and goes to the best point on the way there, among those at which a sign would change (feature-sign search of
Lee, Battle, Raina and Ng, 2006, with blocks of coordinates). The objective falls at every step and the number of sign
patterns is finite. Spike dictionaries are nearly collinear, which ruins methods that look at one coordinate at a time,
but their active sets are small, and a Cholesky factor of those does not mind.
"""

from math import inf

import torch
from torch import Tensor

from .cholesky import solve_semidefinite

_RIDGE = 1e-13
"""Proximal term relative to the largest diagonal entry, so that singular Gram matrices have a factor; the fixed point
of the iteration is not moved by it."""

_CLIPPED_STEPS = (1.0, 0.5, 0.2, 0.05)

_MAX_IDLE, _ROUNDING = 2, 1e-6
"""Iterations without progress, at a violation this small, after which rounding is to blame."""

_SETTLED = 0.1
"""Violation inside the support, relative to that outside, at which newcomers are admitted."""


def minimise_l1_quadratic(
    gram: Tensor, linear: Tensor, strength: Tensor, start: Tensor, *, tolerance: float, max_iterations: int = 1000
) -> Tensor:
    """Minimise ``½ xᵀGx − cᵀx + Σ s_j |x_j|``.

    Parameters
    ----------
    gram : Tensor of shape (p, p), symmetric positive semidefinite
    linear, strength, start : Tensor of shape (p,)
        Coordinates of zero strength are free.
    tolerance : float
        Largest violation of the optimality conditions that is left.
    """
    x = start.clone()
    ridge = _RIDGE * float(gram.diagonal().max().clamp_min(1e-100))
    is_free = strength == 0
    best, n_idle = inf, 0
    for _ in range(max_iterations):
        gradient = gram @ x - linear
        in_support = (x != 0) | is_free
        violation = torch.where(in_support, (gradient + strength * x.sign()).abs(), gradient.abs() - strength)
        worst = float(violation.max())
        n_idle = 0 if worst < 0.5 * best else n_idle + 1
        best = min(best, worst)
        if worst <= tolerance or (n_idle > _MAX_IDLE and worst <= _ROUNDING * float(strength.max())):
            break
        # Newcomers wait until the support has nearly settled, or collinear ones would come and go for ever.
        if float(violation.masked_fill(~in_support, 0.0).max()) <= max(tolerance, _SETTLED * worst):
            in_support |= violation > tolerance
        active = torch.nonzero(in_support).squeeze(1)
        moved = _sign_step(gram, strength, x, gradient, active, ridge)
        if torch.equal(moved, x):
            break
        x = moved
    return x


def _sign_step(gram: Tensor, strength: Tensor, x: Tensor, gradient: Tensor, active: Tensor, ridge: float) -> Tensor:
    """The best point on the way to the minimiser over ``active`` with signs held fixed."""
    while True:
        value, slope = x[active], gradient[active]
        sign = torch.where(value != 0, value.sign(), -slope.sign())
        penalty = strength[active]
        quadratic = gram.index_select(0, active).index_select(1, active)
        direction = solve_semidefinite(quadratic, -(slope + penalty * sign), ridge)
        # A newcomer must leave zero towards the side its sign was taken from, or else it stays out.
        astray = (value == 0) & (direction * sign < 0) & (penalty > 0)
        if not bool(astray.any()):
            break
        active = active[~astray]
    crosses = ((value + direction) * sign < 0) & (penalty > 0) & (value != 0)
    crossing = torch.where(crosses, -value / direction, torch.inf)
    # Either stop at one of the crossings, which is sure to descend, or clip everything that crosses within some step,
    # which clears out many coordinates at once.
    ends = torch.cat((crossing[crosses], crossing.new_ones(1)))
    curvature = direction @ (quadratic @ direction)
    change = ends * (slope @ direction) + 0.5 * ends.square() * curvature
    change = change + (value + ends[:, None] * direction).abs() @ penalty - value.abs() @ penalty
    best = ends[change.argmin()]
    clipped_steps = torch.tensor(_CLIPPED_STEPS, dtype=value.dtype, device=value.device)[:, None]
    clipped = torch.where(crossing <= clipped_steps, 0.0, value + clipped_steps * direction)
    shift = clipped - value
    clipped_change = shift @ slope + 0.5 * (shift @ quadratic * shift).sum(1)
    clipped_change = clipped_change + clipped.abs() @ penalty - value.abs() @ penalty
    moved = torch.zeros_like(x)
    if bool(clipped_change.min() < change.min()):
        moved[active] = clipped[clipped_change.argmin()]
    else:
        moved[active] = torch.where(crossing == best, 0.0, value + best * direction)
    return moved
