"""What a solve returns: coefficients, a dual point, a typed status, the certificate, and how it went."""

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from .certificate import Certificate
from .problem import ConvexProblem


class Status(Enum):
    """How a solve ended."""

    CONVERGED = "the certified relative gap is within the tolerance"
    ITERATION_LIMIT = "the solver used up its iterations"
    STALLED = "the solver could not improve further in float64"
    STOPPED = "it was stopped before the end"


@dataclass(frozen=True)
class Progress:
    """One moment of a solve, as the solver saw it: seconds since the start, relative gap, active coefficients."""

    seconds: float
    relative_gap: float
    n_active: int


class Proven:
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
        """Status, support and certificate on one line."""
        size = f"{len(self.support)} of {len(self.coef)} atoms"
        return f"{type(self).__name__}({self.status.name}, {size}, {self.certificate})"


@dataclass(frozen=True, eq=False, repr=False)
class Solution(Proven):
    """Coefficients with proof.

    Attributes
    ----------
    problem : ConvexProblem
    coef : Tensor of shape (n_atoms, n_outputs), float64
    intercept : Tensor of shape (n_outputs,), zero for problems without one
    dual_point : Tensor of shape (n_rows, n_outputs), feasible: ``|dual_pointᵀ d| ≤ l1_strength`` for every atom d
    status : Status
    certificate : Certificate
    solver : str
    history : tuple of Progress
    seconds : float
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
        """Fitted scores on the dictionary's rows, shape (n_rows, n_outputs)."""
        return self.problem.dictionary.matvec(self.coef) + self.intercept
