"""The certificate: a proof, independent of any solver, of how far from optimal some coefficients are.

For the problem  min_W,b  F(DW + b) + P(W)  every dual point Θ (with zero column sums, if there is an intercept)
gives the lower bound −F*(Θ) − P*(−DᵀΘ) on the optimum. If the penalty is a norm, P = s·Ω, the last term is zero if
Ω°(DᵀΘ) ≤ s and infinite elsewhere, so a candidate is made feasible by construction: balanced for the intercept, then
shrunk until the constraint holds. All of it is computed in float64 on the un-reduced problem.

A quadratic ½r‖W‖² beside the norm makes the last term ‖prox(DᵀΘ)‖² / 2r, which for the L1 norm is
Σ max(0, |dᵀΘ| − s)² / 2r: every candidate is feasible. As r falls this term magnifies any violation of the
constraint, so the shrunk candidate, for which it is zero, is tried as well. The better of the two bounds counts.
:func:`_conjugate_of_penalty` has the equation, also for a quadratic ½r‖W − W₀‖² with a centre. There the term may be
negative, and zero is no more than a bound on it for the shrunk candidate.

Both numbers of a certificate account for the rounding of their own evaluation: the primal one is never below the
objective in exact arithmetic, and the dual one never above the optimum, so that no gap is negative, and the true one is
at most the one stated. With γ_n = nu / (1 − nu), u = 2⁻⁵³, of :func:`.losses.gamma`:

* A score is a sum over the k active atoms and an intercept, wrong by at most γ_{k+8} (max|D| ‖w‖₁ + |b|). The loss
  bounds the effect on its value (:meth:`.losses.Loss.value_error`). The remaining sums are of non-negative numbers.
* An entry of DᵀΘ is a sum over n rows, wrong by at most δ = γ_{n+8} max|D| Σ_i ω_i|u_i|. Points are shrunk until the
  constraint holds for every value that DᵀΘ may have. Since prox is a contraction, ‖prox(DᵀΘ)‖ is larger by no more
  than the norm of all these errors.
* The candidate is balanced, and in the domain of ℓ*, up to rounding. A point that is so exactly is near it, and
  :meth:`.losses.Loss.repair` says how much of the bound is lost on the way there, and how far DᵀΘ moves.
* The conjugate is a sum over the rows; each term is wrong by at most :meth:`.losses.Loss.conjugate_error`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite, isnan, sqrt
from typing import Literal

import torch
from torch import Tensor

from ..core.checks import Array
from ..core.errors import CertificateError, CvxsnnError, InvalidInputError
from ..core.formatting import round_down, round_up
from .losses import SMALLEST, UNIT, gamma
from .objective import Head
from .penalties import frobenius_norm
from .problem import ConvexProblem

Scope = Literal["sampled", "selected", "pool", "complete"]

_WITNESSES: dict[Scope, str] = {
    "sampled": "the sampled hidden neurons",
    "selected": "the hidden neurons that were selected from a larger sample",
    "pool": "hidden neurons that were all priced",
    "complete": "every hidden neuron of the family",
}
_REMEDIES: dict[Scope, str] = {
    "sampled": "Sample more of them, or solve over a pool.",
    "selected": "Others of the sample may do so: select more of them.",
    "pool": "A larger pool may hold better ones.",
}
_SMALLEST = 2.0**-900
"""Objective below which terms may have vanished in float64, unless it is zero because all of them are."""

_ZERO_GAP = 1e-13
"""Relative gap that is nothing but the rounding of float64."""

_OPERATIONS = 8
"""Roundings beside those of a sum, at most: weights, scales, and the error bounds themselves."""

VANISHED = 2.0**-1040
"""Bound on the error by underflow of a sum of up to 2³⁴ terms."""


@dataclass(frozen=True)
class Certificate:
    """Proven bounds on the optimum.

    Parameters
    ----------
    primal : float
        The objective at the coefficients.
    dual : float
        A lower bound on the objective at any coefficients.
    scope : "sampled", "selected", "pool" or "complete"
        The witnesses that the bound covers: those that were sampled, or selected from a larger sample; a pool, all of
        whose witnesses were priced; or all witnesses of a family.
    n_witnesses : int, optional
        The size of the pool.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> certificate = cs.Certificate(primal=0.25, dual=0.125)
    >>> print(certificate)
    objective 0.25, proven within 1.25e-01 (relative 5.00e-01) of the optimum over these witnesses
    """

    primal: float
    dual: float
    scope: Scope = "sampled"
    n_witnesses: int | None = None

    def __post_init__(self) -> None:
        """Refuse bounds that contradict each other; values that are not finite have a message of their own."""
        if -inf < self.gap < 0:
            raise CertificateError(
                f"expected a dual value of at most the primal one, got dual value {self.dual!r} above primal value "
                f"{self.primal!r}"
            )

    @property
    def gap(self) -> float:
        """The most by which the optimum can be lower."""
        return self.primal - self.dual

    @property
    def relative_gap(self) -> float:
        """The gap as a share of the objective; infinite if only the objective is zero."""
        if self.primal > 0:
            return self.gap / self.primal
        return inf if self.gap else 0.0

    def explain(self) -> str:
        """Explain what is proven and what is not, in words that require no knowledge of duality.

        Returns
        -------
        str
            A few lines of text.

        Examples
        --------
        >>> import cvxsnn as cs
        >>> print(cs.Certificate(primal=0.25, dual=0.125).explain())
        Training minimises the objective: the loss on the training data plus the penalty on the weights.
        For this model it is 0.25.
        Proven: no output weights for these witnesses (the sampled hidden neurons) give less than 0.125.
        At most 0.125, or 50 % of the objective, can still be gained.
        Not proven: that other hidden neurons could not do better. Sample more of them, or solve over a pool.
        Not proven: anything about new data. Test the model on data that it was not trained on.
        """
        share = f", or {round_up(100 * self.relative_gap, 2):.2g} % of the objective," if self.primal > 0 else ""
        gained = (
            f"At most {round_up(self.gap, 3):.3g}{share} can still be gained."
            if self.gap > _ZERO_GAP * self.primal
            else "The two agree to the precision of float64: nothing can be gained."
        )
        lines = [
            "Training minimises the objective: the loss on the training data plus the penalty on the weights.",
            f"For this model it is {round_up(self.primal, 6):.6g}.",
            f"Proven: no output weights for {self._over} witnesses ({_WITNESSES[self.scope]}) give less than "
            f"{round_down(self.dual, 6):.6g}.",
            gained,
        ]
        if self.scope != "complete":
            lines.append(f"Not proven: that other hidden neurons could not do better. {_REMEDIES[self.scope]}")
        lines.append("Not proven: anything about new data. Test the model on data that it was not trained on.")
        return "\n".join(lines)

    @property
    def _over(self) -> str:
        pool = f"a pool of {self.n_witnesses:,}" if self.n_witnesses is not None else "a pool of"
        return {"sampled": "these", "selected": "these", "pool": pool, "complete": "all"}[self.scope]

    def __str__(self) -> str:
        """Return one line for a person, with numbers rounded up."""
        return (
            f"objective {round_up(self.primal, 9):.9g}, proven within {round_up(self.gap, 3):.2e} (relative "
            f"{round_up(self.relative_gap, 3):.2e}) of the optimum over {self._over} witnesses"
        )


@dataclass(frozen=True, eq=False)
class Candidate:
    """The result of a solver, before it is certified.

    Attributes
    ----------
    problem : ConvexProblem
    coef : Tensor of shape (n_atoms, n_outputs)
    intercept : Tensor of shape (n_outputs,), zero for a problem without one
    duals : tuple of Tensor of shape (n_rows, n_outputs), guesses of the dual point λ
    """

    problem: ConvexProblem
    coef: Tensor
    intercept: Tensor
    duals: tuple[Tensor, ...] = ()

    @classmethod
    def null(cls, problem: ConvexProblem) -> "Candidate":
        """Return zero coefficients with the best intercept, and the dual point that proves them optimal if they are."""
        coef = problem.row_weight.new_zeros(problem.dictionary.n_atoms, problem.n_outputs)
        return cls(problem, coef, problem.null_intercept, (-problem.row_weight[:, None] * problem.null_dual,))

    @cached_property
    def objective(self) -> float:
        """The objective, infinite if it is not finite."""
        if not bool(self.coef.isfinite().all() and self.intercept.isfinite().all()):
            return inf
        return self.problem.objective(self.coef, self.problem.dictionary.matvec(self.coef) + self.intercept)


def certify(
    problem: ConvexProblem, coef: Array, intercept: Array | None = None, dual_candidates: Sequence[Array] = ()
) -> tuple[Certificate, Tensor]:
    """Prove how good some coefficients are.

    Parameters
    ----------
    problem : ConvexProblem
        The program.
    coef : array of shape (n_atoms, n_outputs)
        The coefficients.
    intercept : array of shape (n_outputs,), optional
        The intercept; zero when not given.
    dual_candidates : sequence of arrays of shape (n_rows, n_outputs)
        Guesses λ of the dual point. The best is used; the gradient at ``coef`` is always among them.

    Returns
    -------
    certificate : Certificate
        The objective and the lower bound.
    dual_point : Tensor of shape (n_rows, n_outputs)
        The feasible λ = −Θ behind the lower bound: ``|λᵀd| ≤ l1_strength`` for every atom d if the penalty is a norm.

    Examples
    --------
    >>> import torch
    >>> import cvxsnn as cs
    >>> problem = cs.ConvexProblem([[1, 0], [1, 1], [0, 1]], [2.0, 2.0, 0.0], loss="squared", l1_strength=0.1)
    >>> certificate, dual_point = cs.certify(problem, torch.tensor([[1.85], [0.0]]))
    >>> certificate.gap < 1e-6
    True
    """
    expected = (problem.dictionary.n_atoms, problem.n_outputs)
    weights = torch.as_tensor(coef).to(problem.row_weight)
    if tuple(weights.shape) != expected:
        raise InvalidInputError(f"expected coefficients of shape {expected}, got {tuple(weights.shape)}")
    constant = weights.new_zeros(problem.n_outputs) if intercept is None else torch.as_tensor(intercept).to(weights)
    if not problem.intercept and bool(constant.any()):
        raise InvalidInputError("expected no intercept, or a problem that has one")
    duals = tuple(torch.as_tensor(dual).to(weights) for dual in dual_candidates)
    return certify_all([Candidate(problem, weights, constant, duals)])[0]


def certify_all(candidates: Sequence[Candidate]) -> list[tuple[Certificate, Tensor]]:
    """Certify candidates for several problems with one dictionary, in two passes over it for all of them."""
    dictionary = candidates[0].problem.dictionary
    primals: list[float] = []
    guesses: list[tuple[int, ConvexProblem, Tensor]] = []
    for number, (candidate, score) in enumerate(
        zip(candidates, _each(dictionary.matvec, [candidate.coef for candidate in candidates]), strict=True)
    ):
        # From here on targets are centred: rounding is then relative to their spread, and not to their mean.
        problem, means = candidate.problem.centred
        score = score + (candidate.intercept - means)
        primals.append(upper_bound(problem, candidate.coef, score, candidate.intercept - means))
        # The gradient at the optimum of a smooth loss is an optimal dual point, so no solver has to supply one.
        units = (problem.unit_dual(score), *(_per_weight(problem, dual) for dual in candidate.duals))
        guesses += [(number, problem, problem.dual_domain(unit)) for unit in units]
    weighted = [problem.row_weight[:, None] * guess for _, problem, guess in guesses]
    bounds: list[tuple[float, Tensor]] = [(-inf, torch.empty(0))] * len(candidates)
    for (number, problem, guess), correlation in zip(guesses, _each(dictionary.rmatvec, weighted), strict=True):
        bounds[number] = max(bounds[number], bound_at(problem, guess, correlation), key=lambda pair: pair[0])
    scope: Scope = "complete" if dictionary.is_complete else "selected" if dictionary.is_selection else "sampled"
    return [
        (
            checked_certificate(Certificate(primal, dual, scope)),
            -candidate.problem.row_weight[:, None] * unit_dual,
        )
        for candidate, primal, (dual, unit_dual) in zip(candidates, primals, bounds, strict=True)
    ]


def certify_with_bound(problem: ConvexProblem, dual_point: Tensor, correlation_bounds: Sequence[float]) -> float:
    """Return a lower bound on the optimum over *more* atoms than the dictionary has.

    Parameters
    ----------
    problem : ConvexProblem
        The program; its dictionary gives the rows.
    dual_point : Tensor of shape (n_rows, n_outputs)
        A guess λ of the dual point.
    correlation_bounds : sequence of float
        One proven number per output: ``|λᵀd|`` is at most this for every atom d that is not in the dictionary; for a
        problem without ``l2_strength``, for those in the dictionary too. No atom may have an entry above the
        ``largest_entry`` of the dictionary, which is one for spikes and means.

    Returns
    -------
    float
        The bound.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> problem = cs.ConvexProblem([[1, 0], [1, 1], [0, 1]], [2.0, 2.0, 0.0], loss="squared", l1_strength=0.1)
    >>> solution = cs.solve(problem)
    >>> bound = float((problem.dictionary.columns().double().T @ solution.dual_point).abs().max())
    >>> cs.convex.certify_with_bound(problem, solution.dual_point, [bound]) <= solution.certificate.primal
    True
    """
    problem, _ = problem.centred
    weight = problem.row_weight[:, None]
    unit = _per_weight(problem, dual_point.to(weight))
    domain = problem.dual_domain(unit)
    if not torch.allclose(domain, unit, rtol=1e-9, atol=1e-12):
        raise InvalidInputError("expected a dual point in the domain of the loss, such as a solution's own")
    largest = torch.tensor(correlation_bounds, dtype=torch.float64, device=weight.device)[None]
    # The bounds were proven for the point that was passed. Its projection correlates more by at most this.
    moved = problem.row_weight @ (domain - unit).abs()
    largest = largest + problem.dictionary.largest_entry * (1 + gamma(len(weight) + _OPERATIONS)) * moved
    if not problem.l2_strength:
        return bound_at(problem, domain, largest, n_roundings=len(weight))[0]
    # Atoms that are not in the dictionary add nothing once they satisfy the constraint; those in it need not.
    for columns in problem.independent_outputs():
        part = problem.part(columns)
        error = _correlation_error(part, domain[:, columns], problem.intercept, len(weight))
        domain[:, columns] *= _shrinkage(part, largest[:, columns], error)
    return bound_at(problem, domain, problem.correlation(domain))[0]


def checked_certificate(certificate: Certificate) -> Certificate:
    """Check a certificate and return it; every certificate passes here.

    Values that are not finite are refused.
    """
    _check_range(CertificateError, certificate.primal, certificate.dual, is_zero=True)
    return certificate


def check_scale(problem: ConvexProblem) -> None:
    """Refuse a problem whose loss or gradient overflows or underflows at zero coefficients, where solvers start."""
    scores = problem.null_intercept.expand(len(problem.row_weight), -1)
    entry = problem.dictionary.largest_entry
    _check_range(
        InvalidInputError, float(problem.loss_value(scores)), is_zero=not bool(problem.unit_dual(scores).any())
    )
    _check_range(InvalidInputError, entry * entry, problem.critical_strength * max(1.0, entry), is_zero=entry == 0)


def _check_range(kind: type[CvxsnnError], *values: float, is_zero: bool) -> None:
    """Refuse values that have overflowed, and a first one that has vanished unless ``is_zero`` says that it is zero."""
    if all(map(isfinite, values)) and (is_zero or values[0] >= _SMALLEST):
        return
    raise kind(
        f"expected targets, columns, strengths and weights of order one, got overflow or underflow in float64 "
        f"({' and '.join(f'{value:g}' for value in values)}): rescale the targets and the columns"
    )


def _per_weight(problem: ConvexProblem, dual_point: Tensor) -> Tensor:
    """Return Θ = −λ per unit of row weight."""
    weight = problem.row_weight[:, None]
    return torch.where(weight > 0, -dual_point / weight, 0.0)


def _each(product: Callable[[Tensor], Tensor], matrices: Sequence[Tensor]) -> list[Tensor]:
    """Return a product with each of several matrices, computed in one pass."""
    joined = product(torch.cat(list(matrices), dim=1))
    return list(torch.split(joined, [matrix.shape[1] for matrix in matrices], dim=1))


def relative_gap(primal: float, bound: float) -> float:
    """Return the gap that a solver sees, as a share of its objective."""
    return (primal - bound) / max(primal, 1e-300)


def lower_bound(problem: ConvexProblem, unit_dual: Tensor) -> tuple[float, Tensor]:
    """Return the dual value at a feasible point made from ``unit_dual``, and that point, per unit of row weight."""
    unit_dual = problem.dual_domain(unit_dual)
    return bound_at(problem, unit_dual, problem.correlation(unit_dual))


def bound_at(
    problem: ConvexProblem,
    unit_dual: Tensor,
    correlation: Tensor,
    *,
    must_balance: bool = True,
    n_roundings: int | None = None,
) -> tuple[float, Tensor]:
    """Return :func:`lower_bound` for a point of the dual domain whose correlation with the atoms is known.

    ``n_roundings`` is how often each term of the correlations was rounded, if the dictionary did not compute them.
    With an intercept and ``must_balance=False`` the result is an estimate, not a bound.
    """
    total = 0.0
    chosen = unit_dual.clone()
    parts = problem.independent_outputs()
    n_roundings = problem.dictionary.correlation_roundings if n_roundings is None else n_roundings
    is_balanced = problem.intercept and must_balance
    for columns in parts:
        bound, chosen[:, columns] = _bound_of_part(
            problem.part(columns), unit_dual[:, columns], correlation[:, columns], is_balanced, n_roundings
        )
        total += bound
    # No part is negative, so this factor covers the rounding of their sum.
    return total * (1 - gamma(len(parts))), chosen


def _bound_of_part(
    problem: ConvexProblem, unit_dual: Tensor, correlation: Tensor, is_balanced: bool, n_roundings: int
) -> tuple[float, Tensor]:
    """Return the best of −F*(tΘ), with tΘ inside the constraint, for r > 0 −F*(Θ) − P*(DᵀΘ), and zero, for Θ = 0."""
    error = _correlation_error(problem, unit_dual, is_balanced, n_roundings)
    inside = unit_dual * _shrinkage(problem, correlation, error)
    # Losses are not negative, so −F*(0) = inf F ≥ 0: zero is always a bound.
    bounds = [(0.0, torch.zeros_like(unit_dual)), (_minus_conjugate(problem, inside, is_balanced), inside)]
    if problem.l2_strength:
        of_penalty = _conjugate_of_penalty(problem, correlation, error)
        bounds.append((_minus_conjugate(problem, unit_dual, is_balanced) - of_penalty, unit_dual))
    # With NaN among them, the result of max() would depend on their order.
    return max(bounds, key=lambda pair: -inf if isnan(pair[0]) else pair[0])


def _conjugate_of_penalty(problem: ConvexProblem, correlation: Tensor, error: Tensor) -> float:
    r"""Return an upper bound on P*(−C) for r > 0, for every C whose entries are within δ of this correlation.

    .. math::
        P^*(-C) = \min_{\Omega^\circ(K) \le s} \tfrac{1}{2r} \|C + K\|_2^2 - \langle C + K, W_0 \rangle ,

    because :math:`s\,\Omega(W)` is the maximum of :math:`\langle K, W \rangle`. The best K is the projection of
    :math:`rW_0 - C`, and C + K is then prox(C) if there is no centre. Any K of the constraint gives an upper bound, so
    its rounding needs no allowance. The equal expression
    :math:`\|\mathrm{prox}(rW_0 - C)\|^2 / 2r - \tfrac{r}{2}\|W_0\|^2` would cancel for large r.
    """
    penalty = problem.penalty
    strength = problem.l1_strength
    centre = problem.centre
    if centre is None:
        rest = penalty.prox(correlation, strength)
    else:
        opposite = penalty.project(problem.l2_strength * centre - correlation, strength)
        rest = correlation + opposite * _shrinkage(problem, opposite, torch.zeros_like(error))
    # The Frobenius norm of an error of δ in the correlation of every atom.
    everywhere = sqrt(problem.dictionary.n_atoms) * frobenius_norm(error)
    outside = float(frobenius_norm(rest) + everywhere)
    outside *= (1 + gamma(correlation.numel() + _OPERATIONS)) / sqrt(problem.l2_strength)
    square = 0.5 * outside * outside + VANISHED
    if centre is None:
        return square
    terms, margin = rest * centre, gamma(correlation.numel() + _OPERATIONS)
    # Both sums are of numbers that are not negative: a relative margin covers their own rounding.
    lost = (1 + margin) * float(margin * terms.abs().sum() + error @ centre.abs().sum(0))
    linear = float(terms.sum())
    return square - linear + lost + gamma(_OPERATIONS) * (square + abs(linear)) + VANISHED


def _shrinkage(problem: ConvexProblem, correlation: Tensor, error: Tensor) -> float:
    """Return a factor for a dual point at which the constraint holds, whatever rounding did to the correlation."""
    dual_norm = problem.penalty.dual_norm
    # By the triangle inequality, the true correlation has at most this norm.
    largest = float(dual_norm(correlation) + dual_norm(error.expand_as(correlation)))
    largest *= 1 + gamma(problem.n_outputs + _OPERATIONS)
    if largest <= problem.l1_strength:
        return 1.0
    return problem.l1_strength / largest if isfinite(largest) else 0.0  # NaN proves nothing


def _correlation_error(problem: ConvexProblem, unit_dual: Tensor, is_balanced: bool, n_roundings: int) -> Tensor:
    """Return δ of each output: a bound on the error of an atom's correlation with a feasible point near this one."""
    n_rows, entry = problem.dictionary.n_rows, problem.dictionary.largest_entry
    # Each product may be rounded, and may underflow.
    vanished = n_rows * SMALLEST
    error = gamma(n_roundings + _OPERATIONS) * (problem.row_weight @ unit_dual.abs()) + vanished
    moved = [
        head.weight * head.loss.repair(*of_head, is_balanced=is_balanced)[1]
        for head, of_head in _by_head(problem, unit_dual)
    ]
    return entry * (error + torch.cat(moved)) + 2 * vanished  # also where it is multiplied by small entries


def _minus_conjugate(problem: ConvexProblem, unit_dual: Tensor, is_balanced: bool) -> float:
    """Return a lower bound on −F* at a feasible point near one that is feasible up to rounding."""
    is_weighted, n_rows = problem.row_weight > 0, len(unit_dual)
    total = 0.0
    for head, (dual, targets, weight) in _by_head(problem, unit_dual):
        share, _ = head.loss.repair(dual, targets, weight, is_balanced=is_balanced)
        # Rows without weight are not in the sum. Their conjugate may be infinite, and 0 · ∞ is NaN.
        rows = torch.where(is_weighted, head.loss.conjugate(dual, targets), 0.0)
        errors = torch.where(is_weighted, head.loss.conjugate_error(dual, targets), 0.0)
        lost = (float(share) + gamma(n_rows + 2 * _OPERATIONS)) * (weight @ rows.abs()) + weight @ errors
        # `lost` is itself a rounded sum. Its terms are not negative, so a relative margin covers their rounding.
        total -= head.weight * float(weight @ rows + (1 + gamma(n_rows + _OPERATIONS)) * lost)
    return total - gamma(len(problem.heads)) * abs(total) - VANISHED


def _by_head(problem: ConvexProblem, unit_dual: Tensor) -> list[tuple[Head, tuple[Tensor, Tensor, Tensor]]]:
    """Return each head with its own dual point, per unit of its weight, its targets, and the weights of the rows."""
    return [(h, (unit_dual[:, h.columns] / h.weight, h.targets, problem.row_weight)) for h in problem.heads]


def upper_bound(problem: ConvexProblem, coef: Tensor, scores: Tensor, intercept: Tensor) -> float:
    """Return an upper bound on the objective at scores DW + b: its value plus all rounding errors."""
    n_active, entry = int(coef.any(1).sum()), problem.dictionary.largest_entry
    size = entry * coef.abs().sum(0) + intercept.abs()
    error = gamma(problem.dictionary.score_roundings(n_active) + _OPERATIONS) * size + (
        n_active * SMALLEST if n_active else 0.0
    )
    total = 0.0
    for head in problem.heads:
        of_head, targets = scores[:, head.columns], head.targets
        of_scores = error[head.columns].expand_as(of_head)
        if head.loss.is_regression:  # targets may have been centred
            of_scores = of_scores + 4 * UNIT * targets.abs()
        rows = head.loss.value(of_head, targets) + head.loss.value_error(of_head, targets, of_scores)
        total += head.weight * float(problem.row_weight @ rows)
    # The rounding of W − W₀ is relative to the difference, so the margin below covers it too.
    total += float(problem.penalty_value(coef))
    # Zero with zero gradients is exact. A margin for underflow would make the relative gap one.
    away = coef if problem.centre is None else coef - problem.centre
    is_penalised = bool(away.any() or (problem.l1_strength and coef.any()))
    is_zero = total == 0 and not (is_penalised or bool(problem.unit_dual(scores).any()))
    return 0.0 if is_zero else total * (1 + gamma(len(scores) + coef.numel() + 2 * _OPERATIONS)) + VANISHED
