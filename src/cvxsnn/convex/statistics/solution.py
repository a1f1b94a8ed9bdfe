"""What a solve from sums over the rows returns."""

from dataclasses import dataclass

from torch import Tensor

from ..certificate import Certificate
from ..solution import Certified
from ..solvers.base import Status
from .problem import StatisticsProblem


@dataclass(frozen=True, eq=False, repr=False)
class StatisticsSolution(Certified):
    """Coefficients with a certificate, for a problem whose rows are gone.

    Parameters
    ----------
    problem : StatisticsProblem
        The program that was solved.
    coef : Tensor of shape (n_atoms, n_outputs), float64
        The coefficients.
    intercept : Tensor of shape (n_outputs,)
        The intercept, zero for problems without one.
    dual_scale : Tensor of shape (n_outputs,)
        The dual point is λ = −τ (e − ē) / n for the residuals e = DW + b − Y and these numbers τ.
    dual_correlation : Tensor of shape (n_atoms, n_outputs)
        The products λᵀd for every atom d. They are at most ``l1_strength`` in absolute value, except in outputs with
        ``l2_strength`` above zero and τ = 1, whose bound has no such constraint.
    status : Status
        How the solve ended.
    certificate : Certificate
        The proof of how good the coefficients are.
    solver : str
        The solver that ran.
    seconds : float
        The time that it took.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> batches = [(inputs[:20], inputs[:20, -1, 0]), (inputs[20:], inputs[20:, -1, 0])]
    >>> statistics = cs.convex.gather_statistics(cs.gaussian_witnesses(2, (16,), seed=0), batches)
    >>> solution = cs.convex.solve_statistics(statistics, l1_strength=0.01)
    >>> solution.certificate.relative_gap <= 1e-6
    True
    """

    problem: StatisticsProblem
    coef: Tensor
    intercept: Tensor
    dual_scale: Tensor
    dual_correlation: Tensor
    status: Status
    certificate: Certificate
    solver: str
    seconds: float
