"""What a solve returns: coefficients with a certificate."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .certificate import Certificate
from .problem import ConvexProblem
from .solvers.base import Progress, Status


class Certified:
    """What coefficients with a certificate have in common, whatever the program is over."""

    coef: Tensor
    status: Status
    certificate: Certificate
    solver: str

    @property
    def has_converged(self) -> bool:
        """Whether the certificate is within the tolerance asked for."""
        return self.status is Status.CONVERGED

    @property
    def support(self) -> Tensor:
        """Atoms with a coefficient that is not zero."""
        return torch.nonzero(self.coef.any(1)).squeeze(1)

    def __repr__(self) -> str:
        """Return status, support and certificate on one line."""
        size = f"{len(self.support)} of {len(self.coef)} atoms"
        return f"{type(self).__name__}({self.status.name}, {size}, {self.certificate})"


@dataclass(frozen=True, eq=False, repr=False)
class Solution(Certified):
    """Coefficients with a certificate.

    Parameters
    ----------
    problem : ConvexProblem
        The program that was solved.
    coef : Tensor of shape (n_atoms, n_outputs), float64
        The coefficients.
    intercept : Tensor of shape (n_outputs,)
        The intercept, zero for problems without one.
    dual_point : Tensor of shape (n_rows, n_outputs)
        The point λ behind the lower bound. If the penalty is a norm, ``|λᵀd| ≤ l1_strength`` for every atom d.
    status : Status
        How the solve ended.
    certificate : Certificate
        The proof of how good the coefficients are.
    solver : str
        The solver that ran, or several if heads have different ones.
    history : tuple of Progress
        The gap that the solver computed, over time.
    seconds : float
        The time that it took, certificate included.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> problem = cs.ConvexProblem([[1, 0], [1, 1], [0, 1]], [2.0, 2.0, 0.0], loss="squared", l1_strength=0.1)
    >>> solution = cs.solve(problem)
    >>> solution.support.tolist()
    [0]
    """

    problem: ConvexProblem
    coef: Tensor
    intercept: Tensor
    dual_point: Tensor
    status: Status
    certificate: Certificate
    solver: str
    history: tuple[Progress, ...]
    seconds: float

    def scores(self) -> Tensor:
        """Return the fitted scores on the dictionary's rows.

        Returns
        -------
        Tensor of shape (n_rows, n_outputs)
            The scores DW + b.
        """
        return self.problem.dictionary.matvec(self.coef) + self.intercept
