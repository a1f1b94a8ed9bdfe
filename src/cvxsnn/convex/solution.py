"""What a solve returns: coefficients, a dual point, a typed status, the certificate, and how it went."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

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
        The gap that the solver saw, over time.
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


@dataclass(frozen=True, eq=False)
class RegularizationPath:
    """Solutions at falling strengths.

    Parameters
    ----------
    solutions : tuple of Solution
        One per strength, each with its certificate.
    seconds : float
        The time for all of them.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> problem = cs.ConvexProblem([[1, 0], [1, 1], [0, 1]], [2.0, 2.0, 0.0], loss="squared")
    >>> path = cs.solve_path(problem, [1.0, 0.1])
    >>> [len(solution.support) for solution in path]
    [1, 1]
    """

    solutions: tuple[Solution, ...]
    seconds: float

    @property
    def strengths(self) -> Tensor:
        """The strengths, falling."""
        return torch.tensor([solution.problem.l1_strength for solution in self.solutions], dtype=torch.float64)

    def __len__(self) -> int:
        """Return the number of strengths."""
        return len(self.solutions)

    def __iter__(self) -> Iterator[Solution]:
        """Go from the largest strength to the smallest."""
        return iter(self.solutions)

    def __getitem__(self, index: int) -> Solution:
        """Return the solution at one strength."""
        return self.solutions[index]

    def select(self, score: Callable[[Solution], Any]) -> Solution:
        """Return the solution with the highest score, for example accuracy on validation data.

        Parameters
        ----------
        score : callable
            Accepts a solution and returns a number, or anything else that can be compared.

        Returns
        -------
        Solution
            The best one; of equal ones that of the largest strength.
        """
        return max(self.solutions, key=score)
