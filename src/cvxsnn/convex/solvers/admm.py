r"""Elastic nets with many active coefficients, by the alternating direction method of multipliers.

Coefficients W that the loss sees and coefficients Z that the norm sees are drawn together:

.. math::
    W &\leftarrow \arg\min_W\ F(DW + b) + \tfrac{r}{2} \|W\|^2 + \tfrac{\rho}{2} \|W - Z + U\|^2, \\
    Z &\leftarrow \mathrm{prox}(W + U), \qquad U \leftarrow U + W - Z .

The first step is ridge: for the squared loss one Cholesky factor serves all outputs and all iterations, for other
losses it is a Newton step by conjugate gradients. The second sets coefficients to zero. Because r > 0 the iteration
converges linearly, in some tens of steps if ρ is of the size of s over a typical coefficient, which ridge tells. W,
which solves a smooth problem, gives the dual point, and Z, which is sparse, the coefficients.
"""

from math import inf

import torch
from torch import Tensor

from ..problem import ConvexProblem
from .base import Callback, Solver, SolverResult, Status, is_late
from .newton import Newton
from .newton_cg import RidgeSteps, check_columns_fit
from .quadratic import factorise, minimise_from_near

_OVER = 1.6
"""Over-relaxation of W towards the next step."""

_PULL = 2.0
"""ρ relative to s over the mean coefficient of ridge."""

_CHECK_EVERY, _MAX_STEPS = 5, 300

_ROUGH, _FIRST_STEPS = 1e-2, 20
"""Relative gap to which ridge is solved before the first step, and the most Newton steps for it."""

_ROUNDING = 2e-15
"""Violation of optimality, relative to the largest correlation, that rounding leaves."""

_EXACT = 1e-9
"""Gap of a quadratic, relative to what it explains, at which the signs are taken for final."""

_FIRST_LOOK, _FEW = 10, 1 / 8
"""Step after which, and share of active coefficients below which, an active set is faster than alternating."""

_MANY, _WEAK = 1000, 0.05
"""Coefficients from which the Hessian of all of them is worth avoiding, and strength, relative to the critical one,
above which few of them are active."""

_UNBALANCED, _FACTOR, _PATIENCE = 10.0, 4.0, 20
"""Ratio of the two residuals at which ρ is changed, by which factor, and after how many steps."""


class ADMM(Solver):
    """Alternating directions, for a smooth loss and the L1 norm with a quadratic."""

    name = "admm"
    solves = "head"
    needs = "elastic net"
    max_iterations = _MAX_STEPS

    def is_fast_for(self, problem: ConvexProblem) -> bool:
        """Return whether so many coefficients may be active that their Hessian would be large."""
        is_weak = problem.l1_strength <= _WEAK * problem.critical_strength
        is_large = problem.n_outputs * problem.dictionary.n_atoms >= _MANY
        return is_weak and is_large and problem.dictionary.is_in_memory

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
        strength = problem.l1_strength
        check_columns_fit(problem)
        steps = RidgeSteps(problem.with_strength(0.0), coef, intercept, deadline)
        steps.minimise(_ROUGH, _FIRST_STEPS, callback=lambda *_: None)
        balance = _Balance(strength, problem.l2_strength, steps.coef)
        z = coef.clone()
        multiplier = -(steps.correlation + problem.l2_strength * steps.coef).clamp(-strength, strength)
        for step in range(1, max_iterations + 1):
            rho = balance.rho
            steps.pull(z - multiplier / rho, rho)
            ahead = _OVER * steps.coef + (1 - _OVER) * z
            before, z = z, problem.penalty.prox(ahead + multiplier / rho, strength / rho)
            multiplier = multiplier + rho * (ahead - z)
            if step % _CHECK_EVERY == 0:
                primal = problem.objective(z, problem.dictionary.matvec(z) + steps.intercept)
                bound = steps.bound(problem, primal, tolerance)
                callback(primal, bound, int((z != 0).sum()))
                if primal - bound <= tolerance * primal:
                    dual = -problem.row_weight[:, None] * steps.dual
                    return SolverResult(z, steps.intercept, Status.CONVERGED, dual)
            if is_late(deadline):
                break
            balance.update(steps.coef, z, before, multiplier)
        # Without much of a quadratic it converges slowly, and active sets go on from here.
        return Newton().solve(
            problem,
            z,
            steps.intercept,
            tolerance=tolerance,
            max_iterations=Newton.max_iterations,
            deadline=deadline,
            callback=callback,
        )


def alternate(
    gram: Tensor, linear: Tensor, l1_strength: float, l2_strength: float, start: Tensor, deadline: float = inf
) -> Tensor | None:
    """Minimise ``½ xᵀGx − cᵀx + s‖x‖₁`` for several c, where ``l2_strength`` is on the diagonal of G.

    Parameters
    ----------
    gram : Tensor of shape (p, p)
    linear, start : Tensor of shape (p, m)
    l1_strength, l2_strength : float
    deadline : float
        When to give up, as :func:`.base.is_late` compares it.

    Returns
    -------
    Tensor of shape (p, m), or None
        The optimum up to rounding; None where active sets are faster, or G is too nearly singular.
    """
    factor, info = torch.linalg.cholesky_ex(gram)
    if bool(info):
        return None
    balance = _Balance(l1_strength, l2_strength, torch.cholesky_solve(linear, factor))
    z = start
    multiplier = (linear - gram @ z).clamp(-l1_strength, l1_strength)
    pulled = _pulled(gram, balance.rho)
    for step in range(1, _MAX_STEPS + 1):
        if pulled is None or is_late(deadline):
            return None
        rho = balance.rho
        x = torch.cholesky_solve(linear + rho * z - multiplier, pulled)
        ahead = _OVER * x + (1 - _OVER) * z
        before, raised = z, ahead + multiplier / rho
        z = raised - raised.clamp(-l1_strength / rho, l1_strength / rho)
        multiplier = multiplier + rho * (ahead - z)
        if step == _FIRST_LOOK and float((z != 0).double().mean()) < _FEW:
            return None
        if step % _CHECK_EVERY == 0:
            at_z, at_x = gram @ z, gram @ x
            # The gap between z and the dual point of x. The square that is on the diagonal of G is taken apart.
            outside = linear - at_x + l2_strength * x
            outside = outside - outside.clamp(-l1_strength, l1_strength)
            primal = (z * (0.5 * at_z - linear)).sum(0) + l1_strength * z.abs().sum(0)
            fit = (x * at_x).sum(0) - l2_strength * x.square().sum(0)
            minus_dual = 0.5 * fit + outside.square().sum(0) / (2 * l2_strength)
            if bool((primal + minus_dual <= _EXACT * primal.abs()).all()):
                return _polished(gram, linear, l1_strength, z)
        if balance.update(x, z, before, multiplier):
            pulled = _pulled(gram, balance.rho)
    return None


class _Balance:
    """Chooses ρ: from what ridge finds, and then so that W meets Z about as fast as Z settles."""

    def __init__(self, l1_strength: float, l2_strength: float, ridge_coef: Tensor) -> None:
        self._least, self._n_steps = l2_strength, 0
        self.rho = max(l2_strength, _PULL * l1_strength / max(float(ridge_coef.abs().mean()), 1e-300))

    def update(self, w: Tensor, z: Tensor, before: Tensor, multiplier: Tensor) -> bool:
        """Return whether ρ was changed after this step."""
        self._n_steps += 1
        if self._n_steps < _PATIENCE:
            return False
        apart = float((w - z).norm()) / max(float(z.norm()), 1e-300)
        moved = self.rho * float((z - before).norm()) / max(float(multiplier.norm()), 1e-300)
        if max(apart, moved) <= _UNBALANCED * min(apart, moved):
            return False
        self._n_steps = 0
        before_rho, self.rho = self.rho, max(self._least, self.rho * (_FACTOR if apart > moved else 1 / _FACTOR))
        return self.rho != before_rho


def _pulled(gram: Tensor, rho: float) -> Tensor | None:
    matrix = gram.clone()
    matrix.diagonal().add_(rho)
    return factorise(matrix)


def _polished(gram: Tensor, linear: Tensor, strength: float, near: Tensor) -> Tensor | None:
    """Solve for the coefficients that are active, output by output; None if signs were not final."""
    columns = []
    for own, start in zip(linear.T, near.T, strict=True):
        tolerance = 1e-10 * strength + _ROUNDING * float(own.abs().max())
        x = minimise_from_near(gram, own, strength, start, tolerance=tolerance)
        if x is None:
            return None
        columns.append(x)
    return torch.stack(columns, dim=1)
