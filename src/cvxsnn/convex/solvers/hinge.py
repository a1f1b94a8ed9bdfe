r"""Hinge loss with the L1 penalty or the elastic net: a primal-dual interior-point method.

With :math:`Z = \mathrm{diag}(y) D`, the program and its dual are

.. math::
    \min_{w, \xi \ge 0} \omega^\top \xi + s \|w\|_1 + \tfrac{r}{2} \|w - w_0\|_2^2
    \;\text{ s.t. }\; Zw + \xi \ge 1, \qquad
    \max_{0 \le \alpha \le \omega, w} 1^\top \alpha - \tfrac{r}{2} (\|w\|_2^2 - \|w_0\|_2^2)
    \;\text{ s.t. }\; |Z^\top \alpha - r(w - w_0)| \le s .

For r = 0 both have strictly feasible points that are easy to write down, so only the four complementarity products are
left to drive to zero, and the loss of feasibility by rounding. Each step costs one Cholesky factor of the size of the
atoms or the rows, whichever are fewer (Mehrotra's predictor and corrector share it). For r > 0 the coefficients occur
in the dual as well, so both points take steps of one length, and :math:`Z^\top \alpha - r(w - w_0)` is a separate
variable: inside its bounds from the start, and equal to this expression at the end. For s = 0 that variable is zero,
and the coefficients are free, as an intercept always is.
"""

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from ...dictionary.products import self_product
from ..certificate import lower_bound, relative_gap
from ..problem import ConvexProblem
from .base import Budget, Solver, SolverResult, Status, check_dense


@dataclass(frozen=True)
class _Tuning:
    centring_power: int = 3
    """Mehrotra's exponent of the predicted decrease."""
    step_to_boundary: float = 0.995
    """Share of the longest step that stays inside of the bounds."""
    rough_above: float = 1e-2
    """Relative gap above which a matrix formed in float32 is accurate enough."""
    polish_below: float = 1e-6
    """Relative gap below which the active sets are worth guessing."""
    dense_below: float = 0.1
    """Gap, as a share of the tolerance, at which small coefficients are kept: if they tend to zero, the gap without
    them is within the tolerance by then."""
    trimmed: float = 0.5
    """Share of the tolerance that setting the smallest of them to zero may add to the objective."""


_TUNING = _Tuning()


class InteriorPoint(Solver):
    """A primal-dual interior-point method, for the hinge loss with the L1 norm or the elastic net."""

    name = "hinge"
    scope = "output"
    max_iterations = 200

    def solve(self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, budget: Budget) -> SolverResult:
        """Minimise a problem of one output. Steps begin inside of the bounds; a start is used beside a centre only."""
        check_dense(problem, "the interior-point method")
        (head,), tolerance = problem.heads, budget.tolerance
        labels, weight = head.targets[:, 0], head.weight * problem.row_weight
        columns = problem.dictionary.columns()
        if problem.intercept:
            columns = torch.cat((columns, columns.new_ones(len(columns), 1)), dim=1)
        margin = columns * labels[:, None]
        is_intercept = torch.zeros(margin.shape[1], dtype=torch.bool, device=margin.device)
        if problem.intercept:
            is_intercept[-1] = True
        ridge = torch.where(is_intercept, 0.0, problem.l2_strength).to(margin)
        best, strength = _Best(problem, margin, weight, is_intercept), problem.l1_strength
        centre = torch.zeros_like(ridge)
        if problem.centre is not None:
            centre[~is_intercept] = problem.centre[:, 0]
        state = _State.inside(margin, weight, strength, ridge, centre, is_intercept)
        if problem.centre is not None:
            # Interior points tend to an optimum of zero, at which every row has its margin, without reaching it.
            start = torch.cat((coef[:, 0], intercept)) if problem.intercept else coef[:, 0]
            best.offer(start, best.alpha)
        status = Status.ITERATION_LIMIT
        for _ in range(budget.max_iterations):
            coef = state.sparse_coef(strength)
            best.offer(coef, state.alpha)
            if problem.l2_strength:
                best.keep_dense(state.coef)
                best.use_dense(tolerance, _TUNING.dense_below * tolerance)
            elif tolerance < best.relative_gap < _TUNING.polish_below:
                best.offer(*_polish(margin, weight, strength, is_intercept, coef, state.alpha))
            budget.record(best.primal, max(best.dual, 0.0), int((coef != 0).sum()))
            if best.relative_gap <= tolerance:
                status = Status.CONVERGED
                break
            if budget.is_late:
                status = Status.TIME_LIMIT
                break
            # The balance that a free coefficient requires is an equation, which float32 would leave unsolved.
            is_rough = best.relative_gap > _TUNING.rough_above and not bool(state.is_free.any())
            has_moved = is_rough and state.advance(margin, weight, strength, torch.float32)
            if not has_moved and not state.advance(margin, weight, strength, torch.float64):
                if problem.l2_strength:
                    best.use_dense(tolerance, inf)
                else:
                    best.offer(*_polish(margin, weight, strength, is_intercept, coef, state.alpha))
                status = Status.CONVERGED if best.relative_gap <= tolerance else Status.STALLED
                break
        n_atoms = problem.dictionary.n_atoms
        constant, dual = best.coef[n_atoms:].sum()[None], (labels * best.alpha)[:, None]
        return SolverResult(best.coef[:n_atoms, None], constant, status, dual)


class _Best:
    """The best coefficients and the best dual variable seen so far."""

    def __init__(self, problem: ConvexProblem, margin: Tensor, weight: Tensor, is_intercept: Tensor) -> None:
        self._problem = problem
        self._margin = margin
        self._weight = weight
        self._is_intercept = is_intercept
        # At zero coefficients every hinge is one.
        self.coef = margin.new_zeros(margin.shape[1])
        self.primal = float(weight.sum() + problem.penalty_value(self.coef[~is_intercept, None]))
        self.alpha, self.dual = torch.zeros_like(weight), 0.0
        self._dense, self._dense_primal = self.coef, inf

    @property
    def relative_gap(self) -> float:
        return relative_gap(self.primal, self.dual)

    def offer(self, coef: Tensor, alpha: Tensor) -> None:
        """Keep coefficients and dual variable if they are better; the dual variable is made feasible first."""
        primal = self._objective(coef)
        if primal < self.primal:
            self.primal, self.coef = primal, coef
        dual, alpha = self._quadratic_dual(alpha) if self._problem.l2_strength else self._linear_dual(alpha)
        if dual > self.dual:
            self.dual, self.alpha = dual, alpha

    def keep_dense(self, coef: Tensor) -> None:
        """Keep the best coefficients that were not made sparse, separately from the sparse ones."""
        primal = self._objective(coef)
        if primal < self._dense_primal:
            self._dense_primal, self._dense = primal, coef

    def use_dense(self, tolerance: float, enough: float) -> None:
        """Use the coefficients that were not made sparse if the sparse ones miss the tolerance.

        Their gap must be at most ``enough``. Their smallest entries are set to zero as far as the tolerance admits.
        """
        is_enough = self._dense_primal - self.dual <= enough * self._dense_primal
        if self.relative_gap > tolerance and is_enough and self._dense_primal < self.primal:
            self.coef = self._trimmed(self._dense, _TUNING.trimmed * tolerance * self._dense_primal)
            self.primal = self._objective(self.coef)

    def _trimmed(self, coef: Tensor, cost: float) -> Tensor:
        """Return the coefficients without the smallest, at a loss that rises by no more than a cost."""
        # A hinge has slope one at most, so dropping w_j raises the loss by at most |w_j| Σ_i ω_i |z_ij|, and the
        # quadratic by at most r |w_j w₀_j|.
        slope = (self._weight @ self._margin.abs()).masked_fill(self._is_intercept, inf)
        if self._problem.centre is not None:
            slope[~self._is_intercept] += self._problem.l2_strength * self._problem.centre[:, 0].abs()
        costs, order = (slope * coef.abs()).sort()
        return coef.index_fill(0, order[costs.cumsum(0) <= cost], 0.0)

    def _objective(self, coef: Tensor) -> float:
        excess = (1 - self._margin @ coef).clamp_min(0)
        atoms, problem = coef[~self._is_intercept, None], self._problem
        return float(self._weight @ excess + problem.penalty_value(atoms))

    def _linear_dual(self, alpha: Tensor) -> tuple[float, Tensor]:
        alpha = torch.minimum(alpha.clamp_min(0), self._weight)
        correlation = self._margin.T @ alpha
        balanced = float(correlation[self._is_intercept].abs().sum()) <= 1e-12 * float(alpha.sum())
        norm = float(correlation[~self._is_intercept].abs().max())
        # Scaling α into the constraint keeps its other bounds, which contain zero.
        alpha = alpha * min(1.0, self._problem.l1_strength / norm if norm > 0 else 1.0)
        return float(alpha.sum()) if balanced else -inf, alpha

    def _quadratic_dual(self, alpha: Tensor) -> tuple[float, Tensor]:
        labels, row_weight = self._problem.heads[0].targets[:, 0], self._problem.row_weight
        bound, unit_dual = lower_bound(self._problem, (-labels * alpha / row_weight)[:, None])
        return bound, -labels * row_weight * unit_dual[:, 0]


def _polish(
    margin: Tensor, weight: Tensor, strength: float, is_free: Tensor, coef: Tensor, alpha: Tensor
) -> tuple[Tensor, Tensor]:
    """Solve the optimality conditions exactly on the guessed active sets, by the least change of both points.

    Rows on the corner of the hinge have a margin of one, and active columns a correlation of the strength; an interior
    point shows these sets long before its digits are right.
    """
    active = torch.nonzero((coef != 0) | is_free).squeeze(1)
    short = 1 - margin @ coef
    share = alpha / weight
    corner = torch.nonzero(torch.minimum(share, 1 - share) > short.abs()).squeeze(1)
    alpha = torch.where(share > 0.5, weight, 0.0).index_put_((corner,), alpha[corner])
    block = margin[corner][:, active]
    # At an optimum an active atom's correlation is ±s, with the sign of its coefficient, and the intercept's is zero.
    wanted = strength * torch.where(is_free, 0.0, coef.sign())[active] - margin[:, active].T @ alpha
    try:
        pseudo_inverse = torch.linalg.pinv(block, rtol=1e-11)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # singular values may not converge
        return coef, alpha
    coef, alpha = coef.clone(), alpha.clone()
    coef[active] += pseudo_inverse @ short[corner]
    alpha[corner] += pseudo_inverse.T @ wanted
    return coef, alpha


class _State:
    """A primal-dual pair that is strictly inside of all bounds, with slacks that are variables of their own.

    ``coef`` is w, ``positive − negative`` as well, ``slack`` is Zw + ξ − 1, ``excess`` is ξ, ``alpha`` the dual
    variable, ``pull`` is Zᵀα − r(w − w₀) − ``residual``, and zero if ``is_free``. ``ridge`` is r, zero for an
    intercept, ``centre`` is w₀.
    """

    def __init__(
        self, margin: Tensor, ridge: Tensor, centre: Tensor, is_free: Tensor, alpha: Tensor, pull: Tensor, half: float
    ) -> None:
        n_rows, n_columns = margin.shape
        self.ridge = ridge
        self.centre = centre
        self.is_free = is_free
        self.alpha = alpha
        self.is_linear = not bool(ridge.any())
        self.coef = margin.new_zeros(n_columns)
        self.positive, self.negative = margin.new_full((n_columns,), half), margin.new_full((n_columns,), half)
        self.slack, self.excess = margin.new_ones(n_rows), margin.new_full((n_rows,), 2.0)
        self._set_pull(margin, pull)

    @classmethod
    def inside(
        cls, margin: Tensor, weight: Tensor, strength: float, ridge: Tensor, centre: Tensor, is_intercept: Tensor
    ) -> "_State":
        """Return a state inside of all bounds: zero coefficients made of equal halves, a multiple of the row weights.

        For r = 0 the multiple is so small that there is no residual. For r > 0 the halves are such that the products of
        a small strength are no smaller than those of the rows.
        """
        for label in margin[:, is_intercept].T:  # an intercept requires classes of equal mass
            up, down = weight[label > 0].sum(), weight[label < 0].sum()
            weight = weight * torch.minimum(up, down) / torch.where(label > 0, up, down)
        correlation = margin.T @ weight
        if bool(ridge.any()):
            is_free = is_intercept if strength else torch.ones_like(is_intercept)
            alpha = 0.5 * weight
            pull = (0.5 * correlation).clamp(-0.5 * strength, 0.5 * strength)
            half = max(1.0, float(alpha.mean()) / strength) if strength else 1.0
            return cls(margin, ridge, centre, is_free, alpha, pull, half)
        largest = float(correlation[~is_intercept].abs().max())
        share = 0.5 * min(1.0, strength / largest) if largest > 0 else 0.5
        return cls(margin, ridge, centre, is_intercept, share * weight, share * correlation, 1.0)

    def _set_pull(self, margin: Tensor, pull: Tensor) -> None:
        """Set the pull, for r = 0 to the correlation, which leaves no residual but that of free coefficients."""
        correlation = margin.T @ self.alpha
        self.pull = (correlation if self.is_linear else pull).masked_fill(self.is_free, 0.0)
        self.residual = correlation - self.ridge * (self.coef - self.centre) - self.pull

    def sparse_coef(self, strength: float) -> Tensor:
        """Return the coefficients, with those set to zero whose halves are smaller than their dual slacks."""
        is_active = (self.positive > strength - self.pull) | (self.negative > strength + self.pull)
        return torch.where(is_active | self.is_free, self.coef, 0.0)

    def advance(self, margin: Tensor, weight: Tensor, strength: float, precision: torch.dtype) -> bool:
        """Take a predictor-corrector step, its matrix formed in ``precision``; return False if rounding prevents it."""
        upper = (strength - self.pull).masked_fill(self.is_free, 1.0)
        lower = (strength + self.pull).masked_fill(self.is_free, 1.0)
        beta = weight - self.alpha
        penalised = ~self.is_free
        n_products = 2 * len(weight) + 2 * int(penalised.sum())

        def complementarity(p: Tensor, q: Tensor, r: Tensor, x: Tensor, a: Tensor, e: Tensor) -> float:
            total = a @ r + (weight - a) @ x
            total = total + ((strength - e) * p + (strength + e) * q)[penalised].sum()
            return float(total) / n_products

        drift = margin @ self.coef + self.excess - 1 - self.slack
        # Slacks are eliminated row by row, and the halves column by column: only w and α remain.
        row_scale = self.slack / self.alpha + self.excess / beta
        column_scale = torch.where(penalised, 1.0 / (self.positive / upper + self.negative / lower), 0.0)
        system = _System(margin, row_scale, column_scale + self.ridge, precision)
        if not system.is_definite:
            return False

        def solve(c1: Tensor, c2: Tensor, c3: Tensor, c4: Tensor) -> tuple[Tensor, ...]:
            right = c1 / self.alpha - c2 / beta - drift
            halves = torch.where(penalised, c3 / upper - c4 / lower, 0.0)
            d_coef, fit, d_alpha = system.solve(right, column_scale * halves + self.residual)
            # For r > 0, rw nearly cancels the correlation; the residual takes up what the first equation leaves out.
            d_pull = margin.T @ d_alpha if self.is_linear else column_scale * (d_coef - halves)
            # Of two complementarity equations the one with the larger divisor is solved; the other move follows from
            # feasibility, which would otherwise be lost to rounding as the divisors vanish.
            rise, fall = (c3 + self.positive * d_pull) / upper, (c4 - self.negative * d_pull) / lower
            d_positive = torch.where(upper < lower, d_coef + fall, rise).where(penalised, 0.5 * d_coef)
            d_negative = torch.where(upper < lower, fall, rise - d_coef).where(penalised, -0.5 * d_coef)
            gape, over = (c1 - self.slack * d_alpha) / self.alpha, (c2 + self.excess * d_alpha) / beta
            d_slack = torch.where(self.alpha < beta, fit + over + drift, gape)
            d_excess = torch.where(self.alpha < beta, over, gape - fit - drift)
            return d_positive, d_negative, d_slack, d_excess, d_alpha, d_pull, d_coef

        products = (self.alpha * self.slack, beta * self.excess, upper * self.positive, lower * self.negative)
        mu = complementarity(self.positive, self.negative, self.slack, self.excess, self.alpha, self.pull)
        if not mu > 0:  # rounding has used up the products, and nothing is left to follow
            return False
        affine = solve(*(-product for product in products))
        step_p, step_d = self._steps(affine, beta, strength, penalised, 1.0)
        ahead = [value + step_p * d for value, d in zip(self._primal(), affine[:4], strict=True)]
        ahead += [self.alpha + step_d * affine[4], self.pull + step_d * affine[5]]
        after = complementarity(*ahead)
        # Mehrotra: the more the predictor alone achieves, the less centring is needed.
        centre = mu * (max(after, 0.0) / mu) ** _TUNING.centring_power
        d_p, d_n, d_s, d_x, d_a, d_e, _ = affine
        # The products of moves that the predictor's linearisation leaves out.
        second = (d_a * d_s, -d_a * d_x, -d_e * d_p, d_e * d_n)
        moves = solve(*(centre - product - cross for product, cross in zip(products, second, strict=True)))
        step_p, step_d = self._steps(moves, beta, strength, penalised, _TUNING.step_to_boundary)
        if max(step_p, step_d) < 1e-10:
            return False
        self.positive, self.negative, self.slack, self.excess = (
            value + step_p * d for value, d in zip(self._primal(), moves[:4], strict=True)
        )
        self.coef = self.positive - self.negative if self.is_linear else self.coef + step_p * moves[6]
        # The larger half follows from the smaller one; for a free coefficient, only their difference means anything.
        derived = self.is_free if self.is_linear else torch.ones_like(self.is_free)
        smaller = torch.minimum(self.positive, self.negative).masked_fill(self.is_free, 1.0)
        self.positive = torch.where(derived, self.coef.clamp_min(0) + smaller, self.positive)
        self.negative = torch.where(derived, (-self.coef).clamp_min(0) + smaller, self.negative)
        if self.is_linear:
            self.coef = self.positive - self.negative
        self.alpha = self.alpha + step_d * moves[4]
        self._set_pull(margin, self.pull + step_d * moves[5])
        return True

    def _primal(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.positive, self.negative, self.slack, self.excess

    def _steps(
        self, moves: tuple[Tensor, ...], beta: Tensor, strength: float, penalised: Tensor, share: float
    ) -> tuple[float, float]:
        """Return the longest primal and dual steps that stay inside, times ``share``; they are equal for r > 0."""
        d_p, d_n, d_s, d_x, d_a, d_e, _ = moves
        halves = ((self.positive[penalised], d_p[penalised]), (self.negative[penalised], d_n[penalised]))
        primal = (*halves, (self.slack, d_s), (self.excess, d_x))
        pull, d_e = self.pull[penalised], d_e[penalised]
        dual = ((self.alpha, d_a), (beta, -d_a), (strength - pull, -d_e), (strength + pull, d_e))
        longest = _longest(primal, share), _longest(dual, share)
        return longest if self.is_linear else (min(longest), min(longest))


class _System:
    """The equations Hw − Zᵀa = g and Zw + Ra = b, for diagonal H ≥ 0 and R > 0.

    Of w and a, the one with more entries is eliminated, so that the factor has a row for each atom or each sample,
    whichever are fewer. Columns with H = 0, as that of an intercept, cannot be eliminated and are solved for apart.
    """

    def __init__(self, margin: Tensor, row_scale: Tensor, column_scale: Tensor, precision: torch.dtype) -> None:
        self.margin = margin
        self.row_scale = row_scale
        self.column_scale = column_scale
        self.is_wide, self.is_apart = margin.shape[0] < margin.shape[1], column_scale == 0
        if self.is_wide:
            factor = (margin * torch.where(self.is_apart, 0.0, column_scale.rsqrt())).T
        else:
            factor = margin * row_scale.rsqrt()[:, None]
        matrix = self_product(factor.to(precision)).to(torch.float64)
        matrix.diagonal().add_(row_scale if self.is_wide else column_scale)
        self.factor, info = torch.linalg.cholesky_ex(matrix)
        if int(info):
            # Near the optimum the scales span so many orders of magnitude that rounding may cost definiteness.
            matrix.diagonal().add_(1e-14 * matrix.diagonal().max())
            self.factor, info = torch.linalg.cholesky_ex(matrix)
        self.is_definite = not int(info)

    def solve(self, right: Tensor, pull: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return w, Zw and a for the right sides b = ``right`` and g = ``pull``."""
        margin, row_scale = self.margin, self.row_scale
        if not self.is_wide:
            target = margin.T @ (right / row_scale) + pull
            coef = torch.cholesky_solve(target[:, None], self.factor)[:, 0]
            fit = margin @ coef
            return coef, fit, (right - fit) / row_scale
        coef, alpha = self._solve_wide(right, pull)
        # Without a second solve for what rounding has left, programs with a tiny s and r = 0 take many more steps.
        left = right - margin @ coef - row_scale * alpha
        more_coef, more_alpha = self._solve_wide(left, pull + margin.T @ alpha - self.column_scale * coef)
        coef, alpha = coef + more_coef, alpha + more_alpha
        return coef, margin @ coef, alpha

    def _solve_wide(self, right: Tensor, pull: Tensor) -> tuple[Tensor, Tensor]:
        # (Z H⁻¹ Zᵀ + R) a = b − Z H⁻¹ g − Z₀w₀ and Z₀ᵀa = −g₀, where Z₀ and w₀ are the columns apart.
        margin, apart = self.margin, self.is_apart
        short = right - margin @ torch.where(apart, 0.0, pull / self.column_scale)
        solved = torch.cholesky_solve(torch.cat((short[:, None], margin[:, apart]), dim=1), self.factor)
        alpha, shifts = solved[:, 0], solved[:, 1:]
        sought = margin[:, apart].T @ alpha + pull[apart]
        of_apart = torch.linalg.solve_ex(margin[:, apart].T @ shifts, sought)[0]
        alpha = alpha - shifts @ of_apart
        coef = (margin.T @ alpha + pull) / self.column_scale
        coef[apart] = of_apart
        return coef, alpha


def _longest(pairs: tuple[tuple[Tensor, Tensor], ...], share: float) -> float:
    limits = [float((-value / move)[move < 0].min()) for value, move in pairs if bool((move < 0).any())]
    return min(1.0, share * min(limits, default=1.0 / share))
