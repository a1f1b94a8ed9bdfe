r"""Smooth losses with ridge: Newton's method by conjugate gradients, for optima in which every coefficient is active.

The Newton system of :math:`F(DW + b) + \tfrac{r}{2}\|W\|^2` has as many unknowns as there are atoms times outputs. Its
matrix is never formed: conjugate gradients need products with D alone, for which float32 is precise enough. Their
preconditioner is the same matrix with one curvature per row, the mean over the outputs,

.. math:: M = D^\top \mathrm{diag}(v) D + rI ,

so that one Cholesky factor serves all outputs. With more atoms than rows it is the factor of the smaller matrix
:math:`rI + SS^\top`, where :math:`S = \mathrm{diag}(v)^{1/2} D`.

At any point the gap is the squared norm of the gradient over 2r, apart from the balance of an intercept. So it is known
how exactly the last system has to be solved.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf, sqrt

import torch
from torch import Tensor

from ...core.memory import check_fits, dense_bytes
from ..certificate import bound_at, lower_bound
from ..problem import ConvexProblem
from .base import Callback, Solver, SolverResult, Status, is_late
from .columns import Columns, HeldColumns
from .newton import self_product
from .quadratic import factorise

_FORCING, _LAST_SHARE, _CONSTANT_SHARE = 0.1, 0.3, 0.1
"""Residual of a system relative to its right side, and shares of the tolerance that the residual of the last may be:
that of the coefficients, and that of an intercept, which costs more."""

_MAX_PRODUCTS, _MAX_IDLE = 1000, 5

_MAX_HALVINGS, _FLAT = 40, 0.1
"""Of the search along a step, and slope relative to the first one at which it ends."""

_SHORT, _DAMPING = 0.1, 10.0
"""Step below which the next system is damped, and by how much more: at the corners of a curvature that jumps, undamped
steps go to and fro."""

_STALE = 1.2
"""Change of the rows' shares of the curvature, from 0 to 2, at which the preconditioner is formed anew."""


class NewtonCG(Solver):
    """Newton's method by preconditioned conjugate gradients, for a smooth loss and ridge."""

    name = "newton-cg"
    solves = "head"
    needs = "ridge"
    max_iterations = 200

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
        """Minimise a problem of one head: all outputs in step, and one by one those of a loss that needs it."""
        check_columns_fit(problem)
        found = _minimise(problem, coef, intercept, tolerance, max_iterations, deadline, callback)
        (head,) = problem.heads
        if found.status is Status.CONVERGED or problem.n_outputs == 1 or not head.loss.is_separable:
            return found
        alone = [
            _minimise(
                problem.part(own),
                found.coef[:, own],
                found.intercept[own],
                tolerance,
                max_iterations,
                deadline,
                callback,
            )
            for own in problem.independent_outputs()
        ]
        status = max((own.status for own in alone), key=list(Status).index)
        return SolverResult(
            torch.cat([own.coef for own in alone], dim=1), torch.cat([own.intercept for own in alone]), status
        )


def _minimise(
    problem: ConvexProblem,
    coef: Tensor,
    intercept: Tensor,
    tolerance: float,
    max_iterations: int,
    deadline: float,
    callback: Callback,
) -> SolverResult:
    steps = RidgeSteps(problem, coef, intercept, deadline)
    status = steps.minimise(tolerance, max_iterations, callback)
    return SolverResult(steps.coef, steps.intercept, status)


def check_columns_fit(problem: ConvexProblem) -> None:
    """Refuse a problem whose columns as numbers would not fit."""
    dictionary = problem.dictionary
    purpose = f"{dictionary.n_rows:,} rows × {dictionary.n_atoms:,} atoms as numbers"
    check_fits(dense_bytes(*dictionary.shape), dictionary.device, purpose, "use fewer witnesses")


class RidgeSteps:
    """An iterate of ridge, the gradient there, and the precision in which its Newton systems are solved.

    ``pull`` minimises instead with another quadratic beside that of the problem, ½ρ‖W − V‖².
    """

    def __init__(self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, deadline: float = inf) -> None:
        self.problem, self.coef, self.intercept, self._deadline = problem, coef, intercept, deadline
        self.scores = problem.dictionary.matvec(coef) + intercept
        self.precision = torch.float32
        self._columns: Columns | None = None
        self._preconditioner: Preconditioner | None = None
        self._damping = 0.0
        self._rho, self._centre = 0.0, coef
        self._look()

    def minimise(self, tolerance: float, max_iterations: int, callback: Callback) -> Status:
        """Take Newton steps to a relative gap of ``tolerance``; those in float64 come after those in float32."""
        best_gap, best_primal, n_idle = inf, inf, 0
        for _ in range(max_iterations):
            primal = self.problem.objective(self.coef, self.scores)
            bound = self.bound(self.problem, primal, tolerance)
            callback(primal, bound, int((self.coef != 0).sum()))
            gap = (primal - bound) / max(primal, 1e-300)
            if gap <= tolerance:
                return Status.CONVERGED
            if is_late(self._deadline):
                return Status.TIME_LIMIT
            has_improved = gap < 0.9 * best_gap or primal < (1 - 1e-3 * tolerance) * best_primal
            n_idle = 0 if has_improved else n_idle + 1
            best_gap, best_primal = min(gap, best_gap), min(primal, best_primal)
            is_last = self.precision == torch.float64
            if not self._advance(tolerance * primal, gap) or n_idle > _MAX_IDLE:
                if is_last:
                    return Status.STALLED
                self.precision, n_idle = torch.float64, 0
        return Status.ITERATION_LIMIT

    def bound(self, problem: ConvexProblem, primal: float, tolerance: float) -> float:
        """Return the lower bound that the gradient gives on a problem with this loss.

        With an intercept the gradient is no dual point before it is balanced, but tells whether that is worth it: a gap
        above the tolerance is that of the gradient as it is.
        """
        bound, _ = bound_at(problem, self.dual, self.correlation, must_balance=False)
        if problem.intercept and primal - bound <= tolerance * primal:
            bound, _ = lower_bound(problem, self.dual)
        return bound

    def pull(self, centre: Tensor, rho: float) -> None:
        """Take one Newton step towards the minimiser with ½ρ‖W − V‖² added."""
        self._centre, self._rho = centre, rho
        self._advance(0.0, 1.0)

    def _look(self) -> None:
        problem = self.problem
        self.dual = problem.unit_dual(self.scores)
        self.correlation = problem.correlation(self.dual)

    def _hold(self, dtype: torch.dtype) -> Columns:
        """Return the columns in a precision, which a preconditioner is made of."""
        self._preconditioner = None
        return HeldColumns(self.problem.dictionary.columns(dtype=dtype))

    def _precondition(self, weight: Tensor, ridge: float) -> "Preconditioner":
        """Return a preconditioner for the curvature of the rows."""
        assert isinstance(self._columns, HeldColumns)
        return _WeightedPreconditioner(self._columns.values, weight, ridge, self.problem.intercept)

    def _advance(self, enough: float, relative_gap: float) -> bool:
        """Take one Newton step; return False if the objective does not fall along it.

        Its system is solved the more exactly the smaller the gap is, but not beyond a gap of ``enough``.
        """
        problem = self.problem
        if self._columns is None or self._columns.dtype != self.precision:
            self._columns = self._hold(self.precision)
        ridge = problem.l2_strength + self._rho + self._damping
        system = _System.at(problem, self._columns, self.scores, ridge)
        weight = system.row_curvature()
        if self._preconditioner is None or self._preconditioner.is_stale(weight, ridge):
            self._preconditioner = self._precondition(weight, ridge)
        slope = self.correlation + problem.l2_strength * self.coef + self._rho * (self.coef - self._centre)
        gradient = torch.cat((slope, (problem.row_weight @ self.dual)[None]))
        solved = _conjugate_gradients(
            system,
            self._preconditioner,
            -gradient.T,
            forcing=min(_FORCING, sqrt(relative_gap)),
            enough=sqrt(2 * problem.l2_strength * _LAST_SHARE * enough),
            constant_enough=_CONSTANT_SHARE * enough,
            deadline=self._deadline,
        )
        move = solved.T.to(self.coef).nan_to_num(0.0, 0.0, 0.0)  # float32 may overflow: float64 comes next
        d_scores = problem.dictionary.matvec(move[:-1]) + move[-1]
        step = self._line_search(move[:-1], d_scores)
        self.coef, self.intercept = self.coef + step * move[:-1], self.intercept + step * move[-1]
        self.scores = self.scores + step * d_scores
        self._look()
        if step < _SHORT:
            self._damping = max(_DAMPING * self._damping, _DAMPING * problem.l2_strength)
        elif self._damping:
            eased = self._damping / _DAMPING
            self._damping = eased if eased > problem.l2_strength else 0.0
        return step > 0

    def _line_search(self, move: Tensor, d_scores: Tensor) -> float:
        """Return a step of at most one along which the objective falls, nearly as far as it does; zero if none."""
        problem, weighted = self.problem, self.problem.row_weight[:, None] * d_scores

        def slope(step: float) -> float:
            of_loss = (problem.unit_dual(self.scores + step * d_scores) * weighted).sum()
            coef = self.coef + step * move
            pull = problem.l2_strength * coef + self._rho * (coef - self._centre)
            return float(of_loss + (pull * move).sum())

        first = slope(0.0)
        if not first < 0:
            return 0.0
        low, high, step = 0.0, 1.0, 1.0
        for _ in range(_MAX_HALVINGS):  # the objective is convex, so its slope rises
            now = slope(step)
            if abs(now) <= -_FLAT * first or (step == 1.0 and now < 0):
                return step
            low, high = (step, high) if now < 0 else (low, step)
            step = 0.5 * (low + high)
        return low


@dataclass(frozen=True, eq=False)
class _System:
    """The Hessian at a point. Vectors have a row per output: the atoms, and last the intercept."""

    columns: Columns
    curvature: Tensor
    coupling: Tensor | None
    ridge: float
    has_intercept: bool
    is_shift_invariant: bool

    @classmethod
    def at(cls, problem: ConvexProblem, columns: Columns, scores: Tensor, ridge: float) -> "_System":
        (head,) = problem.heads
        bend = problem.curvature(scores)
        coupling = head.loss.coupling(bend)
        weight = head.weight * problem.row_weight[:, None]
        return cls(
            columns,
            (weight * bend).T.to(columns.dtype).contiguous(),
            None if coupling is None else (weight.sqrt() * coupling).T.to(columns.dtype).contiguous(),
            ridge,
            problem.intercept,
            head.loss.is_shift_invariant,
        )

    def row_curvature(self) -> Tensor:
        """Return the diagonal of the rows' Hessians, its mean over the outputs."""
        own = self.curvature if self.coupling is None else self.curvature - self.coupling.square()
        return own.mean(0).clamp_min(0)

    def product(self, direction: Tensor) -> Tensor:
        """Return the Hessian times a direction."""
        product = torch.zeros_like(direction)
        for rows, block in self.columns.iterate():
            scores = direction[:, :-1] @ block.T
            if self.has_intercept:
                scores += direction[:, -1:]
            image = self.curvature[:, rows] * scores
            if self.coupling is not None:
                image -= self.coupling[:, rows] * (self.coupling[:, rows] * scores).sum(0)
            product[:, :-1].addmm_(image, block)
            if self.has_intercept:
                product[:, -1] += image.sum(1)
        product[:, :-1] += self.ridge * direction[:, :-1]
        return product

    def fixed(self, direction: Tensor) -> Tensor:
        """Return a direction that leaves alone what changes nothing: a constant in all outputs, or no intercept."""
        if not self.has_intercept:
            direction[:, -1] = 0.0
        elif self.is_shift_invariant:
            direction[:, -1] -= direction[:, -1].mean()
        return direction


class Preconditioner(ABC):
    """The inverse of a matrix that is like the Hessian; that of the intercept is eliminated.

    Parameters
    ----------
    mean : Tensor of shape (n_atoms,)
        The weighted means of the columns; zeros without an intercept.
    mass : float
        The sum of the weights.
    has_intercept : bool
        Whether there is one.
    """

    def __init__(self, mean: Tensor, mass: float, has_intercept: bool) -> None:
        self._mean, self._mass, self._has_intercept = mean, max(mass, 1e-30), has_intercept

    @abstractmethod
    def is_stale(self, weight: Tensor, ridge: float) -> bool:
        """Return whether the ridge is another, or the rows' curvature has changed too much since."""

    @abstractmethod
    def _solve(self, own: Tensor) -> Tensor:
        """Return the solutions for right sides of the atoms alone, one per row."""

    def apply(self, residual: Tensor) -> Tensor:
        """Return the preconditioned residual."""
        own, constant, mean = residual[:, :-1], residual[:, -1:], self._mean.to(residual.dtype)
        if self._has_intercept:
            own = own - constant * mean
        solved = self._solve(own)
        if self._has_intercept:
            constant = constant / self._mass - (solved @ mean)[:, None]
        return torch.cat((solved, constant), dim=1)


class _WeightedPreconditioner(Preconditioner):
    """The inverse of the Hessian with one curvature per row."""

    def __init__(self, columns: Tensor, weight: Tensor, ridge: float, has_intercept: bool) -> None:
        mass = max(float(weight.sum()), 1e-30)
        mean = weight @ columns / mass if has_intercept else columns.new_zeros(columns.shape[1])
        super().__init__(mean, mass, has_intercept)
        self._weight, self._ridge = weight, ridge
        scaled = (columns - self._mean) * weight.sqrt()[:, None]
        self._is_wide = scaled.shape[1] > scaled.shape[0]
        matrix = self_product(scaled.T if self._is_wide else scaled)
        matrix.diagonal().add_(ridge)
        found = factorise(matrix)
        self._factor = torch.eye(len(matrix)).to(matrix) if found is None else found
        if matrix.is_cuda:  # a GPU multiplies far faster than it substitutes; the product stays positive definite
            identity = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
            self._factor = torch.linalg.solve_triangular(self._factor, identity, upper=False)
        self._scaled = scaled if self._is_wide else None

    def is_stale(self, weight: Tensor, ridge: float) -> bool:
        now, then = (own / own.sum().clamp_min(1e-30) for own in (weight, self._weight))
        return ridge != self._ridge or float((now - then).abs().sum()) > _STALE

    def _solve(self, own: Tensor) -> Tensor:
        if self._scaled is None:
            return self._divide(own)
        return (own - self._divide(own @ self._scaled.T) @ self._scaled) / self._ridge

    def _divide(self, rows: Tensor) -> Tensor:
        if self._factor.is_cuda:
            return rows @ self._factor.T @ self._factor
        return torch.cholesky_solve(rows.T, self._factor).T


def _conjugate_gradients(
    system: _System,
    preconditioner: Preconditioner,
    right: Tensor,
    *,
    forcing: float,
    enough: float,
    constant_enough: float,
    deadline: float,
) -> Tensor:
    """Solve a system until its residual is small enough, or has fallen enough in the norm of the preconditioner."""
    residual = system.fixed(right.to(system.columns.dtype).contiguous())
    x = torch.zeros_like(residual)
    z = system.fixed(preconditioner.apply(residual))
    direction, size = z, float((residual * z).sum())
    goal = forcing**2 * size
    for _ in range(_MAX_PRODUCTS):
        image = system.product(direction)
        curvature = float((direction * image).sum())
        if not (curvature > 0 and size > 0) or is_late(deadline):
            break
        x += size / curvature * direction
        residual -= size / curvature * image
        z = system.fixed(preconditioner.apply(residual))
        following = float((residual * z).sum())
        of_coef, of_constant = residual[:, :-1].norm(), residual[:, -1].abs().sum()
        if following <= goal or (float(of_coef) <= enough and float(of_constant) <= constant_enough):
            break
        direction, size = z + following / size * direction, following
    return x
