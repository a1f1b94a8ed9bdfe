"""The certificate: a proof, independent of any solver, of how far from optimal some coefficients are.

For the problem  min_W,b  F(DW + b) + s·Ω(W)  every dual point Θ with Ω°(DᵀΘ) ≤ s (and zero column sums, where there is
an intercept) gives the lower bound −F*(Θ) on the optimum. A candidate is made feasible by construction: balanced for
the intercept, then shrunk until the constraint holds. All of it is computed in float64 on the un-reduced problem.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..errors import CvxsnnError
from .problem import ConvexProblem

Scope = Literal["sampled", "complete"]


class CertificateError(CvxsnnError, ArithmeticError):
    """A dual value above the primal value: the arithmetic behind a certificate is wrong."""


@dataclass(frozen=True)
class Certificate:
    """Proven bounds on the optimum.

    Attributes
    ----------
    primal : float, objective at the coefficients
    dual : float, a lower bound on the objective at every coefficients
    scope : "sampled" if over these witnesses, "complete" if over all witnesses
    """

    primal: float
    dual: float
    scope: Scope = "sampled"

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
        return (
            f"objective {self.primal:.9g}, proven within {self.gap:.2e} (relative {self.relative_gap:.2e}) of the "
            f"optimum over {'these' if self.scope == 'sampled' else 'all'} witnesses"
        )


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
    coef = coef.to(torch.float64)
    scores = problem.dictionary.matvec(coef)
    if intercept is not None:
        scores += intercept.to(torch.float64)
    primal = float(problem.loss_value(scores) + problem.l1_strength * problem.penalty.value(coef))
    weight = problem.row_weight[:, None]
    weightless = torch.where(weight > 0, weight, torch.ones_like(weight))
    candidates = [problem.unit_dual(scores)]
    candidates += [torch.where(weight > 0, -given.to(torch.float64) / weightless, 0.0) for given in dual_candidates]
    bounds = [lower_bound(problem, candidate) for candidate in candidates]
    dual, feasible = max(bounds, key=lambda bound: bound[0])
    certificate = Certificate(primal, dual)
    # n sums of rounding errors relative to the objective, with room to spare; more than that is no rounding.
    if not certificate.gap >= -1e-10 * max(primal, abs(dual), 1e-3):
        raise CertificateError(
            f"dual value {certificate.dual!r} above primal value {certificate.primal!r}: {problem!r}"
        )
    return certificate, -weight * feasible


def lower_bound(problem: ConvexProblem, unit_dual: Tensor, correlation: Tensor | None = None) -> tuple[float, Tensor]:
    """The dual value at a feasible point made from ``unit_dual``, and that point, both divided by the row weights.

    ``correlation`` may be given where ``unit_dual`` is in the domain and ``problem.correlation(unit_dual)`` is known.
    """
    if correlation is None or problem.intercept:
        unit_dual = problem.dual_domain(unit_dual)
        correlation = problem.correlation(unit_dual)
    for columns in problem.independent_outputs():
        norm = float(problem.penalty.dual_norm(correlation[:, columns]))
        if norm > problem.l1_strength:
            unit_dual = unit_dual.clone()
            unit_dual[:, columns] *= problem.l1_strength / norm
    return -float(problem.conjugate(unit_dual)), unit_dual
