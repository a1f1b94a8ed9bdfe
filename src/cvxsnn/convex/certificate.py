"""The certificate: a proof, independent of any solver, of how far from optimal some coefficients are.

For the problem  min_W,b  F(DW + b) + s·Ω(W)  every dual point Θ with Ω°(DᵀΘ) ≤ s (and zero column sums, where there is
an intercept) gives the lower bound −F*(Θ) on the optimum. A candidate is made feasible by construction: balanced for
the intercept, then shrunk until the constraint holds. All of it is computed in float64 on the un-reduced problem.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

import torch
from torch import Tensor

from ..core.errors import CertificateError, InvalidInputError
from .problem import ConvexProblem

Scope = Literal["sampled", "pool", "complete"]


@dataclass(frozen=True)
class Certificate:
    """Proven bounds on the optimum.

    Attributes
    ----------
    primal : float, objective at the coefficients
    dual : float, a lower bound on the objective at every coefficients
    scope : "sampled" if over these witnesses, "pool" if over a pool that was priced, "complete" if over all witnesses
    n_witnesses : int or None, of the pool
    """

    primal: float
    dual: float
    scope: Scope = "sampled"
    n_witnesses: int | None = None

    @property
    def gap(self) -> float:
        """How much lower the optimum can be at most."""
        return self.primal - self.dual

    @property
    def relative_gap(self) -> float:
        """The gap as a share of the objective, which is never negative."""
        return self.gap / self.primal if self.primal > 0 else self.gap

    def __str__(self) -> str:
        """One line for a person."""
        pool = f"a pool of {self.n_witnesses:,}" if self.n_witnesses is not None else "a pool of"
        over = {"sampled": "these", "pool": pool, "complete": "all"}[self.scope]
        return (
            f"objective {self.primal:.9g}, proven within {self.gap:.2e} (relative {self.relative_gap:.2e}) of the "
            f"optimum over {over} witnesses"
        )


@dataclass(frozen=True, eq=False)
class Candidate:
    """What a solver found, before anybody believes it.

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


def certify(
    problem: ConvexProblem, coef: Tensor, intercept: Tensor | None = None, dual_candidates: Sequence[Tensor] = ()
) -> tuple[Certificate, Tensor]:
    """Prove how good ``coef`` is.

    Parameters
    ----------
    problem : ConvexProblem
    coef : Tensor of shape (n_atoms, n_outputs)
    intercept : Tensor of shape (n_outputs,), optional
    dual_candidates : sequence of Tensor of shape (n_rows, n_outputs)
        Guesses λ of the dual point, of which the best is used; the gradient at ``coef`` is always one of them.

    Returns
    -------
    Certificate
    dual_point : Tensor of shape (n_rows, n_outputs)
        The feasible λ = −Θ behind the dual value: ``|λᵀd| ≤ l1_strength`` for every atom d.
    """
    expected = (problem.dictionary.n_atoms, problem.n_outputs)
    if tuple(coef.shape) != expected:
        raise InvalidInputError(f"expected coefficients of shape {expected}, got {tuple(coef.shape)}")
    if intercept is None:
        intercept = coef.new_zeros(problem.n_outputs)
    elif not problem.intercept and bool(intercept.any()):
        raise InvalidInputError("expected no intercept, or a problem that has one")
    return certify_all([Candidate(problem, coef, intercept, tuple(dual_candidates))])[0]


def certify_all(candidates: Sequence[Candidate]) -> list[tuple[Certificate, Tensor]]:
    """:func:`certify` for several problems with one dictionary, which is gone through twice for all of them."""
    dictionary = candidates[0].problem.dictionary
    coefs = [candidate.coef.to(torch.float64) for candidate in candidates]
    scores = _each(dictionary.matvec, coefs)
    guesses: list[Tensor] = []
    owners: list[int] = []
    primals: list[float] = []
    for owner, (candidate, coef, score) in enumerate(zip(candidates, coefs, scores, strict=True)):
        problem = candidate.problem
        score = score + candidate.intercept
        primals.append(problem.objective(coef, score))
        weight = problem.row_weight[:, None]
        units = [torch.where(weight > 0, -dual / weight, 0.0) for dual in candidate.duals]
        for unit in (problem.unit_dual(score), *units):
            guesses.append(problem.dual_domain(unit))
            owners.append(owner)
    weighted = [candidates[o].problem.row_weight[:, None] * guess for o, guess in zip(owners, guesses, strict=True)]
    bounds: list[tuple[float, Tensor]] = [(-inf, torch.empty(0))] * len(candidates)
    for owner, guess, correlation in zip(owners, guesses, _each(dictionary.rmatvec, weighted), strict=True):
        bound = shrink_to_feasible(candidates[owner].problem, guess, correlation)
        bounds[owner] = max(bounds[owner], bound, key=lambda found: found[0])
    return [
        _checked(candidate.problem, primal, *bound)
        for candidate, primal, bound in zip(candidates, primals, bounds, strict=True)
    ]


def certify_with_bound(problem: ConvexProblem, dual_point: Tensor, correlation_bounds: Sequence[float]) -> float:
    """A lower bound on the optimum over *more* atoms than the dictionary has.

    Parameters
    ----------
    problem : ConvexProblem
        Its dictionary gives the rows.
    dual_point : Tensor of shape (n_rows, n_outputs), a guess λ
    correlation_bounds : sequence of float, one an output
        Proven: ``|λᵀd|`` is at most this for every atom d, in the dictionary or not.
    """
    weight = problem.row_weight[:, None]
    unit = torch.where(weight > 0, -dual_point.to(weight) / weight, 0.0)
    domain = problem.dual_domain(unit)
    if not torch.allclose(domain, unit, rtol=1e-9, atol=1e-12):
        raise InvalidInputError("expected a dual point in the domain of the loss, such as a solution's own")
    largest = torch.tensor(correlation_bounds, dtype=torch.float64, device=weight.device)[None]
    return shrink_to_feasible(problem, domain, largest)[0]


def _checked(problem: ConvexProblem, primal: float, dual: float, unit_dual: Tensor) -> tuple[Certificate, Tensor]:
    scope: Scope = "complete" if problem.dictionary.is_complete else "sampled"
    certificate = checked_certificate(problem, Certificate(primal, dual, scope))
    return certificate, -problem.row_weight[:, None] * unit_dual


def checked_certificate(problem: object, certificate: Certificate) -> Certificate:
    """The certificate, unless its dual value is above the primal one by more than rounding."""
    primal, dual = certificate.primal, certificate.dual
    # n sums of rounding errors relative to the objective, with room to spare; more than that is no rounding.
    if not certificate.gap >= -1e-10 * max(primal, abs(dual), 1e-3):
        raise CertificateError(f"dual value {dual!r} above primal value {primal!r}: {problem!r}")
    return certificate


def _each(product: Callable[[Tensor], Tensor], matrices: Sequence[Tensor]) -> list[Tensor]:
    """A product with each of several matrices, in one go."""
    joined = product(torch.cat(list(matrices), dim=1))
    return list(torch.split(joined, [matrix.shape[1] for matrix in matrices], dim=1))


def lower_bound(problem: ConvexProblem, unit_dual: Tensor) -> tuple[float, Tensor]:
    """The dual value at a feasible point made from ``unit_dual``, and that point; duals are per unit of row weight."""
    unit_dual = problem.dual_domain(unit_dual)
    return shrink_to_feasible(problem, unit_dual, problem.correlation(unit_dual))


def shrink_to_feasible(problem: ConvexProblem, unit_dual: Tensor, correlation: Tensor) -> tuple[float, Tensor]:
    """:func:`lower_bound` for a point of the dual domain whose correlation with the atoms is known."""
    for columns in problem.independent_outputs():
        norm = float(problem.penalty.dual_norm(correlation[:, columns]))
        if norm > problem.l1_strength:
            unit_dual = unit_dual.clone()
            unit_dual[:, columns] *= problem.l1_strength / norm
    return -float(problem.conjugate(unit_dual)), unit_dual
