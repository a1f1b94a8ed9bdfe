r"""Smooth losses with ridge, for dictionaries so large that their columns do not fit into memory as numbers.

The steps are those of :mod:`.newton_cg`. A product with the Hessian unpacks a block of rows at a time, so that memory
holds the packed dictionary and one matrix of float32, the preconditioner: the Cholesky factor of

.. math:: M = c\,(G - \bar d \bar d^\top) + rI ,

with the Gram matrix G of all rows, the means of the columns where there is an intercept, and the mean curvature c. The
factor takes the place of the lower triangle, and the upper one keeps the matrix for another c.
"""

from collections.abc import Iterator
from math import inf

import torch
from torch import Tensor

from ...core.memory import available_bytes, dense_bytes, symmetric_bytes
from ...dictionary.integer_products import assemble
from ..problem import ConvexProblem
from .base import Callback, Solver, SolverResult
from .columns import Columns, StreamedColumns
from .in_place import FactorInPlace
from .newton_cg import Preconditioner, RidgeSteps

_ROOM = 4
"""Matrices of columns as float64 for which there must be room for other solvers."""

_CHANGE = 3.0
"""Factor by which the mean curvature may change before the preconditioner is factorised again."""

_MORE, _MAX_ATTEMPTS = 4.0, 12
"""By how much the ridge of the preconditioner is raised where float32 leaves it no factor, and how often."""


class NewtonStream(Solver):
    """Newton's method by conjugate gradients, with columns that are unpacked a block of rows at a time."""

    name = "newton-stream"
    solves = "head"
    merges_rows = False
    needs = "ridge"
    max_iterations = 200

    def is_fast_for(self, problem: ConvexProblem) -> bool:
        """Return whether rows are many, columns would hardly fit as numbers, and a matrix of all atoms does."""
        dictionary = problem.dictionary
        available = available_bytes(dictionary.device)
        if available is None or not dictionary.is_in_memory or dictionary.n_rows < dictionary.n_atoms:
            return False
        return _ROOM * dense_bytes(*dictionary.shape) > available >= symmetric_bytes(dictionary.n_atoms)

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
        """Minimise a problem of one head, all outputs in step."""
        steps = _StreamedSteps(problem, coef, intercept, deadline)
        try:
            status = steps.minimise(tolerance, max_iterations, callback)
        finally:
            steps.release()
        return SolverResult(steps.coef, steps.intercept, status)


class _StreamedSteps(RidgeSteps):
    """Newton steps without columns in memory."""

    def _hold(self, dtype: torch.dtype) -> Columns:
        return StreamedColumns(self.problem.dictionary, dtype)

    def _precondition(self, weight: Tensor, ridge: float) -> Preconditioner:
        gram = self.problem.row_workspace.get(_centred_gram, self.problem)
        return _GramPreconditioner(gram, self.problem, weight, ridge)

    def release(self) -> None:
        """Restore the matrix that the preconditioner works in, for solves at other strengths."""
        if isinstance(self._preconditioner, _GramPreconditioner):
            self._preconditioner.release()


def _plain_means(problem: ConvexProblem) -> Tensor:
    """Return the means of the columns over rows with equal weights."""
    n_rows = problem.dictionary.n_rows
    return problem.dictionary.rmatvec(torch.full_like(problem.row_weight[:, None], 1 / n_rows))[:, 0]


def _centred_gram(problem: ConvexProblem) -> Tensor:
    """Return the Gram matrix of rows with equal weights in float32, of centred columns if there is an intercept."""
    dictionary = problem.dictionary
    means = problem.row_workspace.get(_plain_means, problem) if problem.intercept else None

    def centred() -> Iterator[tuple[slice, Tensor]]:
        for atoms, products in dictionary.iterate_gram():
            products.div_(dictionary.n_rows)
            if means is not None:  # in float64: the differences are small
                products.addr_(means[atoms], means[atoms.start :], alpha=-1)
            yield atoms, products

    return assemble(centred(), dictionary.n_atoms, torch.float32, dictionary.device)


class _GramPreconditioner(Preconditioner):
    """The inverse of the Hessian with the same curvature for all rows."""

    def __init__(self, gram: Tensor, problem: ConvexProblem, weight: Tensor, ridge: float) -> None:
        means = problem.row_workspace.get(_plain_means, problem)
        mass = float(weight.sum())
        super().__init__(means, mass, problem.intercept)
        self._ridge, more = ridge, ridge / self._mass
        for _ in range(_MAX_ATTEMPTS):
            self._factor = FactorInPlace(gram, more)
            if self._factor.is_whole:
                break
            more *= _MORE

    def is_stale(self, weight: Tensor, ridge: float) -> bool:
        change = float(weight.sum()) / self._mass
        is_stale = ridge != self._ridge or not 1 / _CHANGE <= change <= _CHANGE
        if is_stale:
            self.release()
        return is_stale

    def release(self) -> None:
        """Restore the matrix, for another factor."""
        self._factor.restore()

    def _solve(self, own: Tensor) -> Tensor:
        if not self._factor.is_whole:
            return own
        return (self._factor.solve(own.T.float().contiguous()).T / self._mass).to(own.dtype)
