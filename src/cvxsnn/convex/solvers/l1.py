r"""The L1 norm, with a quadratic or without, for smooth losses. Newton's method for them is in ``newton.py``.

**Squared loss** (:class:`ActiveSet`): one Gram matrix, then exact active-set steps on it (:mod:`.quadratic`).

**Elastic nets with many active coefficients** (:class:`ADMM`, and the start of :class:`ActiveSet`): alternating
directions. Coefficients W that the loss sees and coefficients Z that the norm sees are drawn together:

.. math::
    W &\leftarrow \arg\min_W\ F(DW + b) + \tfrac{r}{2} \|W - W_0\|^2 + \tfrac{\rho}{2} \|W - Z + U\|^2, \\
    Z &\leftarrow \mathrm{prox}(W + U), \qquad U \leftarrow U + W - Z .

The first step is ridge: one Cholesky factor for all outputs of a squared loss, one Newton step by conjugate gradients
for other losses. The second sets coefficients to zero. Because r > 0 the iteration converges linearly, in some tens of
steps if ρ is of the size of s over a typical coefficient, which ridge estimates. W, which solves a smooth problem,
gives the dual point, and Z, which is sparse, the coefficients.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

import torch
from torch import Tensor

from ..linear import has_gram, weighted_gram, with_ridge
from ..problem import ConvexProblem
from .base import Budget, Solver, SolverResult, Status, is_late
from .newton import Newton
from .quadratic import follow
from .ridge import RidgeSteps, best_intercept


@dataclass(frozen=True)
class _Tuning:
    few_above: float = 1 / 15
    """Strength, relative to the critical one, above which few atoms are active: a whole Gram matrix is not worth it."""
    first: int = 48
    """Atoms of the first working set; twice as many are added each time."""
    max_share: int = 4
    """Working sets give up beyond one atom in this many."""
    over: float = 1.6
    """Over-relaxation of W towards the next step of alternating directions."""
    pull: float = 2.0
    """First ρ relative to s over the mean coefficient of ridge."""
    unbalanced: float = 10.0
    """Ratio of the two residuals at which ρ is changed."""
    factor: float = 4.0
    """Factor by which ρ is changed."""
    patience: int = 20
    """Steps before ρ is changed again."""
    check_every: int = 5
    """Steps from one gap to the next."""
    max_steps: int = 300
    """Steps after which active sets take over."""
    first_look: int = 10
    """Step at which the active coefficients of a quadratic are counted ..."""
    few: float = 1 / 8
    """... and their share below which active sets are faster."""
    settled: float = 1e-9
    """Gap of a quadratic, relative to its objective, at which signs are nearly final."""
    rough: float = 1e-2
    """Relative gap to which ridge is solved before the first step."""
    many: int = 1000
    """Coefficients from which the Hessian of all of them is worth avoiding ..."""
    weak: float = 0.05
    """... if the strength, relative to the critical one, is so small that many may be active."""


_TUNING = _Tuning()


class ActiveSet(Solver):
    """Active-set steps on the Gram matrix, for the squared loss; exact up to rounding."""

    name = "l1"
    scope = "head"
    merges_rows = False
    max_iterations = 1

    def prepare(self, problem: ConvexProblem) -> None:
        """Form the Gram matrix at once: a path begins with few active atoms and ends with many."""
        problem.row_workspace.get(weighted_gram, problem)

    def solve(self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, budget: Budget) -> SolverResult:
        """Minimise a problem of one head; outputs are independent of each other."""
        (head,) = problem.heads
        linear, strength = -problem.null_slope / head.weight, problem.l1_strength / head.weight
        coef, n_done = coef.clone(), 0
        if problem.l1_strength >= _TUNING.few_above * problem.critical_strength and not has_gram(problem):
            while n_done < problem.n_outputs:
                solved = _solve_few(problem, n_done, linear[:, n_done], budget.deadline)
                if solved is None:
                    break
                coef[:, n_done] = solved
                n_done += 1
        if n_done < problem.n_outputs:
            gram = _with_quadratic(problem, problem.row_workspace.get(weighted_gram, problem))
            # The loss has the head's weight: strengths are divided by it instead of multiplying the Gram matrix.
            ridge, rest = problem.l2_strength / head.weight, slice(n_done, None)
            coef[:, rest] = minimise_quadratic(gram, linear[:, rest], strength, ridge, coef[:, rest], budget.deadline)
        status = Status.TIME_LIMIT if budget.is_late else Status.CONVERGED
        return SolverResult(coef, best_intercept(problem, coef), status)


def _with_quadratic(problem: ConvexProblem, gram: Tensor) -> Tensor:
    """Return the Gram matrix plus ``l2_strength``, which is divided by the weight of the head like the strength."""
    return with_ridge(gram, problem.l2_strength / problem.heads[0].weight) if problem.l2_strength else gram


def _solve_few(problem: ConvexProblem, output: int, linear: Tensor, deadline: float) -> Tensor | None:
    """Solve over the atoms that are likely to be active, and add violators of optimality; None if they become many."""
    (head,) = problem.heads
    dictionary, weight = problem.dictionary, problem.row_weight
    targets, strength = head.targets[:, output], problem.l1_strength / head.weight
    coef, gradient = torch.zeros_like(linear), -linear
    chosen = torch.zeros_like(linear, dtype=torch.bool)
    n_new = _TUNING.first
    while int(chosen.sum()) + n_new <= dictionary.n_atoms // _TUNING.max_share:
        violation = torch.where(chosen, 0.0, gradient.abs() - strength * (1 + 1e-9))  # 1e-9 is rounding
        n_violating = int((violation > 0).sum())
        if n_violating == 0 or is_late(deadline):
            return coef
        chosen[torch.topk(violation, min(n_new, n_violating)).indices] = True
        atoms = torch.nonzero(chosen).squeeze(1)
        sub = _with_quadratic(problem, weighted_gram(problem, atoms))
        coef[atoms] = follow(sub, linear[atoms, None], strength, coef[atoms, None], deadline)[:, 0]
        residual = dictionary.matvec(coef[:, None])[:, 0] - targets
        if problem.intercept:
            residual = residual - weight @ residual
        # Only the gradient of atoms that are not chosen counts, and their coefficients are zero.
        gradient = dictionary.rmatvec((weight * residual)[:, None])[:, 0]
        if problem.centre is not None:
            gradient = gradient - problem.l2_strength / head.weight * problem.centre[:, output]
        n_new *= 2
    return None


def minimise_quadratic(
    gram: Tensor, linear: Tensor, l1_strength: float, l2_strength: float, start: Tensor, deadline: float
) -> Tensor:
    """Minimise ``½ xᵀGx − cᵀx + s‖x‖₁`` for several c; ``l2_strength`` is on the diagonal of G already.

    Alternating directions find the signs if many coefficients are active, active sets the values.
    """
    if l2_strength:
        near = _nearly_minimise(gram, linear, l1_strength, l2_strength, start, deadline)
        start = start if near is None else near
    return follow(gram, linear, l1_strength, start, deadline)


def _nearly_minimise(
    gram: Tensor, linear: Tensor, l1_strength: float, l2_strength: float, start: Tensor, deadline: float
) -> Tensor | None:
    """Return coefficients whose signs are nearly optimal; None if few are active, or G is nearly singular."""
    # The factor solves ridge, which gives the scale of the first ρ.
    factor, info = torch.linalg.cholesky_ex(gram)
    if bool(info):
        return None

    @lru_cache(maxsize=1)
    def factor_with(rho: float) -> Tensor:
        factor: Tensor = torch.linalg.cholesky_ex(with_ridge(gram, rho)).L  # exists, as that of G does
        return factor

    def pull(centre: Tensor, rho: float) -> Tensor:
        return torch.cholesky_solve(linear + rho * centre, factor_with(rho))

    multiplier = (linear - gram @ start).clamp(-l1_strength, l1_strength)
    rho = _first_rho(l1_strength, l2_strength, torch.cholesky_solve(linear, factor))
    steps = _alternate(pull, start, multiplier, l1_strength, rho, l2_strength)
    for step, (x, z) in enumerate(islice(steps, _TUNING.max_steps), 1):
        if is_late(deadline) or (step == _TUNING.first_look and float((z != 0).double().mean()) < _TUNING.few):
            return None
        if step % _TUNING.check_every == 0:
            at_z, at_x = gram @ z, gram @ x
            # The gap between z and the dual point of x. The quadratic is on the diagonal of G and counts by itself.
            outside = linear - at_x + l2_strength * x
            outside = outside - outside.clamp(-l1_strength, l1_strength)
            primal = (z * (0.5 * at_z - linear)).sum(0) + l1_strength * z.abs().sum(0)
            fit = (x * at_x).sum(0) - l2_strength * x.square().sum(0)
            minus_dual = 0.5 * fit + outside.square().sum(0) / (2 * l2_strength)
            if bool((primal + minus_dual <= _TUNING.settled * primal.abs()).all()):
                return z
    return None


def is_dense(problem: ConvexProblem) -> bool:
    """Return whether an elastic net may have so many active coefficients that their Hessian is large."""
    is_weak = problem.l1_strength <= _TUNING.weak * problem.critical_strength
    is_large = problem.n_outputs * problem.dictionary.n_atoms >= _TUNING.many
    return bool(problem.l2_strength) and is_weak and is_large and problem.dictionary.is_in_memory


class ADMM(Solver):
    """Alternating directions, for a smooth loss and an elastic net."""

    name = "l1"
    scope = "head"
    max_iterations = _TUNING.max_steps

    def solve(self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, budget: Budget) -> SolverResult:
        """Minimise a problem of one head."""
        strength = problem.l1_strength
        steps = RidgeSteps(problem.with_strength(0.0), coef, intercept, budget.deadline)
        steps.minimise(Budget(_TUNING.rough, 20, budget.deadline))

        def pull(centre: Tensor, rho: float) -> Tensor:
            steps.pull(centre, rho)
            return steps.coef

        # The multiplier of W = Z is a subgradient of s‖Z‖₁, so its entries are at most s.
        multiplier = -(steps.correlation + problem.quadratic_slope(steps.coef)).clamp(-strength, strength)
        rho = _first_rho(strength, problem.l2_strength, steps.coef)
        alternation = _alternate(pull, coef, multiplier, strength, rho, problem.l2_strength)
        z = coef
        for step, (_, z) in enumerate(islice(alternation, budget.max_iterations), 1):
            if step % _TUNING.check_every == 0:
                primal = problem.objective(z, problem.dictionary.matvec(z) + steps.intercept)
                bound = steps.bound(problem, primal, budget.tolerance)
                budget.record(primal, bound, int((z != 0).sum()))
                if primal - bound <= budget.tolerance * primal:
                    dual = -problem.row_weight[:, None] * steps.dual
                    return SolverResult(z, steps.intercept, Status.CONVERGED, dual)
            if budget.is_late:
                break
        # If the quadratic is weak it converges slowly, and active sets go on from here.
        return Newton().solve(problem, z, steps.intercept, replace(budget, max_iterations=Newton.max_iterations))


def _first_rho(l1_strength: float, l2_strength: float, ridge_coef: Tensor) -> float:
    return max(l2_strength, _TUNING.pull * l1_strength / max(float(ridge_coef.abs().mean()), 1e-300))


def _alternate(
    pull: Callable[[Tensor, float], Tensor], z: Tensor, multiplier: Tensor, strength: float, rho: float, least: float
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield W and Z after each step; ``pull(V, ρ)`` returns a W with ½ρ‖W − V‖² added to its objective.

    ρ is changed, but not below ``least``, so that W meets Z about as fast as Z settles.
    """
    n_steps = 0
    while True:
        w = pull(z - multiplier / rho, rho)
        ahead = _TUNING.over * w + (1 - _TUNING.over) * z
        raised = ahead + multiplier / rho
        before, z = z, raised - raised.clamp(-strength / rho, strength / rho)
        multiplier = multiplier + rho * (ahead - z)
        yield w, z
        n_steps += 1
        # A larger ρ draws W to Z, and a smaller one lets Z move: the larger of the two residuals decides.
        if n_steps >= _TUNING.patience:
            apart = float((w - z).norm()) / max(float(z.norm()), 1e-300)
            moved = rho * float((z - before).norm()) / max(float(multiplier.norm()), 1e-300)
            if max(apart, moved) > _TUNING.unbalanced * min(apart, moved):
                n_steps = 0
                rho = max(least, rho * (_TUNING.factor if apart > moved else 1 / _TUNING.factor))
