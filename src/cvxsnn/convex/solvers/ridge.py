r"""Ridge: a squared loss is one linear system, other smooth losses take Newton's method by conjugate gradients.

**Squared loss.** One system for all outputs, of the size of the atoms or of the rows, whichever are fewer.

**Other losses.** The Newton system of :math:`F(DW + b) + \tfrac{r}{2}\|W\|^2` has one unknown per atom and output. Its
matrix is never formed: conjugate gradients need products with D alone, for which float32 is precise enough. Their
preconditioner is the same matrix with one curvature per row, the mean over the outputs,

.. math:: M = D^\top \mathrm{diag}(v) D + rI ,

so that one Cholesky factor serves all outputs. With more atoms than rows it is the factor of the smaller matrix
:math:`rI + SS^\top`, where :math:`S = \mathrm{diag}(v)^{1/2} D`.

If the columns do not fit into memory as numbers, products unpack one block of rows at a time, and the preconditioner is
:math:`c\,(G - \bar d \bar d^\top) + rI` with the mean curvature c, so that memory holds one float32 matrix. Its factor
overwrites the lower triangle, and the upper one keeps the matrix for another c.

At any point the gap is the squared norm of the gradient over 2r, apart from the balance of an intercept. This gives the
accuracy to which the last system has to be solved.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, sqrt

import torch
from torch import Tensor

from ...core import gpu
from ...core.formatting import plural
from ...core.memory import available_bytes, check_fits, dense_bytes, symmetric_bytes
from ...dictionary.products import assemble, self_product
from ..certificate import bound_at, lower_bound, relative_gap
from ..linear import FactorInPlace, factorise, from_centre, is_wide, row_products, solve_ridge, weighted_gram
from ..problem import ConvexProblem
from .base import DENSE_COPIES, Budget, Solver, SolverResult, Status, is_late


def must_stream(problem: ConvexProblem) -> bool:
    """Return whether there are many rows, and memory has room for a matrix of all atoms but not for the columns."""
    dictionary = problem.dictionary
    available = available_bytes(dictionary.device)
    if available is None or not dictionary.is_in_memory or dictionary.n_rows < dictionary.n_atoms:
        return False
    return DENSE_COPIES * dense_bytes(*dictionary.shape) > available >= symmetric_bytes(dictionary.n_atoms)


def best_intercept(problem: ConvexProblem, coef: Tensor) -> Tensor:
    """Return the best intercept of a squared loss for given coefficients."""
    (head,) = problem.heads
    if not problem.intercept:
        return coef.new_zeros(problem.n_outputs)
    return problem.row_weight @ (head.targets - problem.dictionary.matvec(coef))


class DirectRidge(Solver):
    """The normal equations of a squared loss, for all outputs at once."""

    name = "ridge"
    scope = "head"
    merges_rows = False
    max_iterations = 1

    def solve(self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, budget: Budget) -> SolverResult:
        """Minimise a problem of one head, exactly up to rounding."""
        moved = from_centre(problem)
        solved = _solve_by_rows(moved) if is_wide(moved) else _solve_by_columns(moved)
        if solved is not None:
            coef = solved if problem.centre is None else problem.centre + solved
        status = Status.STALLED if solved is None else Status.CONVERGED
        return SolverResult(coef, best_intercept(problem, coef), status)


def _solve_by_columns(problem: ConvexProblem) -> Tensor | None:
    """Return W with (G + rI) W = C; None if rounding leaves the matrix no factor."""
    (head,) = problem.heads
    gram = problem.row_workspace.get(weighted_gram, problem)
    return solve_ridge(gram, -problem.null_correlation / head.weight, problem.l2_strength / head.weight)


def _solve_by_rows(problem: ConvexProblem) -> Tensor | None:
    """Return W = DᵀΩ½A with (S + rI) A = Ω½Y; columns and targets are centred if there is an intercept."""
    (head,) = problem.heads
    weight, root = problem.row_weight, problem.row_weight.sqrt()[:, None]
    targets = head.targets - weight @ head.targets if problem.intercept else head.targets
    products = problem.row_workspace.get(row_products, problem)
    solved = solve_ridge(products, root * targets, problem.l2_strength / head.weight)
    if solved is None:
        return None
    solved = root * solved
    # Subtracting ω Σa centres the columns without forming them: Dᵀ(a − ω Σa) = (D − 1d̄ᵀ)ᵀa.
    if problem.intercept:
        solved = solved - weight[:, None] * solved.sum(0)
    return problem.dictionary.rmatvec(solved)


class RidgeCG(Solver):
    """Newton's method by preconditioned conjugate gradients, for a smooth loss with ridge.

    Parameters
    ----------
    is_streamed : bool
        Whether columns are unpacked one block of rows at a time rather than held as numbers.
    """

    name = "ridge"
    scope = "head"
    max_iterations = 200

    def __init__(self, is_streamed: bool = False) -> None:
        self.is_streamed, self.merges_rows = is_streamed, not is_streamed

    def solve(self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, budget: Budget) -> SolverResult:
        """Minimise a problem of one head: all outputs in step, then one by one if that does not converge."""
        result = self._minimise(problem, coef, intercept, budget)
        (head,) = problem.heads
        if result.status is Status.CONVERGED or problem.n_outputs == 1 or not head.loss.is_separable:
            return result
        alone = [
            self._minimise(problem.part(output), result.coef[:, output], result.intercept[output], budget)
            for output in problem.independent_outputs()
        ]
        status = max((part.status for part in alone), key=list(Status).index)
        coef = torch.cat([part.coef for part in alone], dim=1)
        intercept = torch.cat([part.intercept for part in alone])
        return SolverResult(coef, intercept, status)

    def _minimise(self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, budget: Budget) -> SolverResult:
        steps = RidgeSteps(problem, coef, intercept, budget.deadline, self.is_streamed)
        try:
            status = steps.minimise(budget)
        finally:
            steps.release()
        return SolverResult(steps.coef, steps.intercept, status)


@dataclass(frozen=True)
class _Tuning:
    forcing: float = 0.1
    """Largest residual of a system relative to its right side."""
    last_share: float = 0.3
    """Share of the tolerance that the residual of the last system may use."""
    constant_share: float = 0.1
    """The same for an intercept, whose residual costs more."""
    max_products: int = 1000
    """Products with a system after which its solution is used as it is."""
    max_idle: int = 5
    """Steps without progress after which float64 is used, or the solver gives up."""
    flat: float = 0.1
    """Slope, relative to the first one, at which the search along a step ends."""
    short: float = 0.1
    """Step below which the next system is damped: where the curvature is discontinuous, undamped steps oscillate."""
    damping: float = 10.0
    """Factor by which the damping rises, and falls again."""
    stale: float = 1.2
    """Change of the rows' shares of the curvature, from 0 to 2, at which the preconditioner is formed again."""
    mean_change: float = 3.0
    """The same for one mean curvature: the factor by which it may change."""


_TUNING = _Tuning()


class RidgeSteps:
    """An iterate of ridge, the gradient there, and the precision in which its Newton systems are solved.

    ``pull`` adds another quadratic to that of the problem, ½ρ‖W − V‖².
    """

    def __init__(
        self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, deadline: float, is_streamed: bool = False
    ) -> None:
        if not is_streamed:
            n_rows, n_atoms = problem.dictionary.shape
            purpose = f"{plural(n_rows, 'row')} × {plural(n_atoms, 'atom')} as numbers"
            check_fits(dense_bytes(n_rows, n_atoms), problem.dictionary.device, purpose, "use fewer witnesses")
        self.problem = problem
        self.coef = coef
        self.intercept = intercept
        self._deadline = deadline
        self.scores = problem.dictionary.matvec(coef) + intercept
        self._storage = _StreamedColumns if is_streamed else _HeldColumns
        self._precision = torch.float32
        self._columns: _Columns | None = None
        self._damping = 0.0
        self._rho, self._centre = 0.0, coef
        self._update_gradient()

    def minimise(self, budget: Budget) -> Status:
        """Take Newton steps to a relative gap of ``budget.tolerance``, in float32 and then in float64."""
        best_gap = inf
        best_primal = inf
        n_idle = 0
        for _ in range(budget.max_iterations):
            primal = self.problem.objective(self.coef, self.scores)
            bound = self.bound(self.problem, primal, budget.tolerance)
            budget.record(primal, bound, int((self.coef != 0).sum()))
            gap = relative_gap(primal, bound)
            if gap <= budget.tolerance:
                return Status.CONVERGED
            if budget.is_late:
                return Status.TIME_LIMIT
            has_improved = gap < 0.9 * best_gap or primal < (1 - 1e-3 * budget.tolerance) * best_primal
            n_idle = 0 if has_improved else n_idle + 1
            best_gap, best_primal = min(gap, best_gap), min(primal, best_primal)
            # Float32 comes first: a stall there is a matter of precision, and not the end.
            is_last = self._precision == torch.float64
            if not self._advance(budget.tolerance * primal, gap) or n_idle > _TUNING.max_idle:
                if is_last:
                    return Status.STALLED
                self._precision, n_idle = torch.float64, 0
        return Status.ITERATION_LIMIT

    def bound(self, problem: ConvexProblem, primal: float, tolerance: float) -> float:
        """Return the lower bound that the gradient gives on a problem with this loss.

        With an intercept the gradient is no dual point before it is balanced. The gap without that shows whether it
        is worthwhile: above the tolerance, it is not.
        """
        bound, _ = bound_at(problem, self.dual, self.correlation, must_balance=False)
        if problem.intercept and primal - bound <= tolerance * primal:
            bound, _ = lower_bound(problem, self.dual)
        return bound

    def pull(self, centre: Tensor, rho: float) -> None:
        """Take one Newton step towards the minimiser with ½ρ‖W − V‖² added."""
        self._centre, self._rho = centre, rho
        self._advance(0.0, 1.0)

    def release(self) -> None:
        """Restore the matrix that a preconditioner works in, for solves at other strengths."""
        if self._columns is not None:
            self._columns.release()

    def _update_gradient(self) -> None:
        self.dual = self.problem.unit_dual(self.scores)
        self.correlation = self.problem.correlation(self.dual)

    def _advance(self, enough: float, gap: float) -> bool:
        """Take one Newton step; return False if the objective does not fall along it.

        Its system is solved more accurately as the relative gap falls, but not beyond a gap of ``enough``.
        """
        problem = self.problem
        if self._columns is None or self._columns.dtype != self._precision:
            self.release()
            self._columns = self._storage(problem, self._precision)
        ridge = problem.l2_strength + self._rho + self._damping
        system = _System(self._columns, self.scores, ridge)
        self._columns.update(system.row_curvature(), ridge)
        slope = self.correlation + problem.quadratic_slope(self.coef) + self._rho * (self.coef - self._centre)
        gradient = torch.cat((slope, (problem.row_weight @ self.dual)[None]))
        solved = _conjugate_gradients(
            system,
            -gradient.T,
            forcing=min(_TUNING.forcing, sqrt(gap)),
            # The gap is ‖gradient‖² / 2r: a residual of this norm uses up no more than its share.
            enough=sqrt(2 * problem.l2_strength * _TUNING.last_share * enough),
            constant_enough=_TUNING.constant_share * enough,
            deadline=self._deadline,
        )
        move = solved.T.to(self.coef).nan_to_num(0.0, 0.0, 0.0)  # float32 may overflow: float64 comes next
        d_scores = problem.dictionary.matvec(move[:-1]) + move[-1]
        step = self._line_search(move[:-1], d_scores)
        self.coef, self.intercept = self.coef + step * move[:-1], self.intercept + step * move[-1]
        self.scores = self.scores + step * d_scores
        self._update_gradient()
        if step < _TUNING.short:
            # The damping is a ridge on the step, so it leaves the minimiser where it is.
            self._damping = _TUNING.damping * max(self._damping, problem.l2_strength)
        else:
            eased = self._damping / _TUNING.damping
            self._damping = eased if eased > problem.l2_strength else 0.0
        return step > 0

    def _line_search(self, move: Tensor, d_scores: Tensor) -> float:
        """Return a step of at most one that lowers the objective, close to the best one; zero if none does."""
        problem, weighted = self.problem, self.problem.row_weight[:, None] * d_scores

        def slope(step: float) -> float:
            of_loss = (problem.unit_dual(self.scores + step * d_scores) * weighted).sum()
            coef = self.coef + step * move
            pull = problem.quadratic_slope(coef) + self._rho * (coef - self._centre)
            return float(of_loss + (pull * move).sum())

        first = slope(0.0)
        # Not `first >= 0`: NaN must end the search too.
        if not first < 0:
            return 0.0
        low = 0.0
        high = 1.0
        step = 1.0
        for _ in range(40):  # bisection: the objective is convex, so its slope rises
            now = slope(step)
            if abs(now) <= -_TUNING.flat * first or (step == 1.0 and now < 0):
                return step
            low, high = (step, high) if now < 0 else (low, step)
            step = 0.5 * (low + high)
        return low


class _Columns(ABC):
    """Columns as numbers of one type, in blocks of rows, and a preconditioner that suits their storage.

    The preconditioner is the inverse of a matrix close to the Hessian, from which the intercept is eliminated: ``mean``
    has the weighted means of the columns, ``mass`` the sum of the weights.
    """

    mean: Tensor
    mass: float
    ridge = -1.0

    def __init__(self, problem: ConvexProblem, dtype: torch.dtype) -> None:
        self.problem, self.dtype = problem, dtype

    @abstractmethod
    def iterate(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield rows, and their entries, shape (n_rows, n_atoms)."""

    @abstractmethod
    def update(self, weight: Tensor, ridge: float) -> None:
        """Form the preconditioner again if the ridge is another, or the rows' curvature has changed too much."""

    @abstractmethod
    def _solve(self, rights: Tensor) -> Tensor:
        """Return the solutions for right sides of the atoms alone, one per row."""

    def release(self) -> None:
        """Restore a matrix that the preconditioner has overwritten."""
        return

    def precondition(self, residual: Tensor) -> Tensor:
        """Return the preconditioned residual; its last column is that of the intercept."""
        if not self.problem.intercept:
            return torch.cat((self._solve(residual[:, :-1]), residual[:, -1:]), dim=1)
        # Centred columns do not couple with the intercept: eliminate it, solve, and substitute back.
        constant, mean = residual[:, -1:], self.mean.to(residual.dtype)
        solved = self._solve(residual[:, :-1] - constant * mean)
        return torch.cat((solved, constant / self.mass - (solved @ mean)[:, None]), dim=1)


class _HeldColumns(_Columns):
    """Columns that are held in memory, as one block; the preconditioner has one curvature per row."""

    _share: Tensor

    def __init__(self, problem: ConvexProblem, dtype: torch.dtype) -> None:
        super().__init__(problem, dtype)
        self._values = problem.dictionary.columns(dtype=dtype)

    def iterate(self) -> Iterator[tuple[slice, Tensor]]:
        yield slice(0, len(self._values)), self._values

    def update(self, weight: Tensor, ridge: float) -> None:
        mass = max(float(weight.sum()), 1e-30)
        share = weight / mass
        if ridge == self.ridge and float((share - self._share).abs().sum()) <= _TUNING.stale:
            return
        self.mass = mass
        self.ridge = ridge
        self._share = share
        self.mean = share @ self._values if self.problem.intercept else torch.zeros_like(self._values[0])
        scaled = (self._values - self.mean) * weight.sqrt()[:, None]
        is_wide = scaled.shape[1] > scaled.shape[0]
        matrix = self_product(scaled.T if is_wide else scaled)
        matrix.diagonal().add_(ridge)
        factor = factorise(matrix)
        identity = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        self._factor = identity if factor is None else factor
        if gpu.is_gpu(matrix.device):
            # A GPU multiplies far faster than it substitutes; the product stays positive definite.
            self._factor = torch.linalg.solve_triangular(self._factor, identity, upper=False)
        self._scaled = scaled if is_wide else None

    def _solve(self, rights: Tensor) -> Tensor:
        if self._scaled is None:
            return self._divide(rights)
        # Woodbury: (rI + SᵀS)⁻¹ = (I − Sᵀ(rI + SSᵀ)⁻¹S) / r.
        return (rights - self._divide(rights @ self._scaled.T) @ self._scaled) / self.ridge

    def _divide(self, rows: Tensor) -> Tensor:
        if gpu.is_gpu(self._factor.device):
            return rows @ self._factor.T @ self._factor
        return torch.cholesky_solve(rows.T, self._factor).T


class _StreamedColumns(_Columns):
    """Columns that are unpacked one block at a time; the preconditioner has one curvature for all rows."""

    _factor: FactorInPlace | None = None

    def iterate(self) -> Iterator[tuple[slice, Tensor]]:
        dictionary = self.problem.dictionary
        n_numbers = 2**28 if gpu.is_gpu(dictionary.device) else 2**22  # a GiB, or 16 MiB, of float32
        return dictionary.iterate_rows(max(1, n_numbers // dictionary.n_atoms), self.dtype)

    def update(self, weight: Tensor, ridge: float) -> None:
        mass, most = max(float(weight.sum()), 1e-30), _TUNING.mean_change
        if ridge == self.ridge and self.mass / most <= mass <= self.mass * most:
            return
        self.release()
        self.mass = mass
        self.ridge = ridge
        workspace = self.problem.row_workspace
        self.mean = workspace.get(_plain_means, self.problem)
        gram, raised = workspace.get(_centred_gram, self.problem), ridge / mass
        for _ in range(12):  # float32 may leave the matrix no factor: raise the ridge
            self._factor = FactorInPlace(gram, raised)
            if self._factor.is_complete:
                break
            # Only the preconditioner has the larger ridge: it affects the speed and not the solution.
            raised *= 4

    def release(self) -> None:
        """Restore the Gram matrix; the preconditioner must be formed again."""
        if self._factor is not None:
            self._factor.restore()
        self.ridge = -1.0

    def _solve(self, rights: Tensor) -> Tensor:
        # Without a factor, conjugate gradients run without a preconditioner.
        if self._factor is None or not self._factor.is_complete:
            return rights
        return (self._factor.solve(rights.T.float().contiguous()).T / self.mass).to(rights.dtype)


class _System:
    """The Hessian at a point. Vectors have one row per output: the atoms, and last the intercept."""

    def __init__(self, columns: _Columns, scores: Tensor, ridge: float) -> None:
        problem, (head,) = columns.problem, columns.problem.heads
        self.columns = columns
        self.ridge = ridge
        self.has_intercept = problem.intercept
        self.is_shift_invariant = head.loss.is_shift_invariant
        bend, weight = problem.curvature(scores), head.weight * problem.row_weight[:, None]
        coupling = head.loss.coupling(bend)
        self.curvature = (weight * bend).T.to(columns.dtype).contiguous()
        self.coupling = None if coupling is None else (weight.sqrt() * coupling).T.to(columns.dtype).contiguous()

    def row_curvature(self) -> Tensor:
        """Return the diagonal of the rows' Hessians, its mean over the outputs."""
        # Hessians are diag(c) − vvᵀ, so their diagonals are c − v².
        diagonal = self.curvature if self.coupling is None else self.curvature - self.coupling.square()
        return diagonal.mean(0).clamp_min(0)

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
        """Remove the parts of a direction without effect: a constant in all outputs, an unused intercept."""
        if not self.has_intercept:
            direction[:, -1] = 0.0
        elif self.is_shift_invariant:
            direction[:, -1] -= direction[:, -1].mean()
        return direction


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


def _conjugate_gradients(
    system: _System,
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
    z = system.fixed(system.columns.precondition(residual))
    direction, size = z, float((residual * z).sum())
    goal = forcing**2 * size
    for _ in range(_TUNING.max_products):
        image = system.product(direction)
        curvature = float((direction * image).sum())
        # Rounding in float32 can make a direction's curvature zero or negative: stop before dividing by it.
        if not (curvature > 0 and size > 0) or is_late(deadline):
            break
        x += size / curvature * direction
        residual -= size / curvature * image
        z = system.fixed(system.columns.precondition(residual))
        following = float((residual * z).sum())
        of_coef, of_constant = residual[:, :-1].norm(), residual[:, -1].abs().sum()
        if following <= goal or (float(of_coef) <= enough and float(of_constant) <= constant_enough):
            break
        direction, size = z + following / size * direction, following
    return x
