"""Squared loss with the L1 norm, ridge or both: one Gram matrix, then exact active-set steps on it.

Ridge alone is one linear system for all outputs, of the size of the atoms or of the rows, whichever are fewer.
"""

from math import inf

import torch
from torch import Tensor

from ...core.memory import available_bytes, check_fits, symmetric_bytes
from ..losses import Squared
from ..problem import ConvexProblem
from .admm import alternate
from .base import Callback, Solver, SolverResult, Status, is_late
from .in_place import solve_in_place
from .quadratic import factorise, minimise_l1_quadratics

MAX_ATOMS, MAX_ATOMS_GPU = 10_000, 20_000
"""Atoms up to which the whole Gram matrix is formed: 800 MB; on a GPU, which forms it quickly, 3.2 GB."""

GRAM_COPIES = 3
"""Matrices alive while a system is solved: the Gram matrix, the same with a quadratic, and its factor."""

_FORMING = 1.4
"""Matrices alive while a Gram matrix is formed: itself, the quarter of it that is being summed, and as many products in
half the bytes."""

_FEW_ABOVE = 1 / 15
"""Strength, relative to the critical one, above which so few atoms are active that the whole Gram matrix is not worth
its time."""

_FIRST, _GROWTH, _SLACK = 48, 2.0, 1e-9
"""Atoms of the first working set, by how much it grows, and the relative violation that rounding may leave."""

_SIMULTANEOUS = 16
"""Outputs that a GPU solves for at once: each has a matrix of its active atoms."""

_NEGLIGIBLE, _ROUNDED = 1e-15, 1e-9
"""Strength, relative to the largest correlation, that rounding swallows; and the one below which the tolerance is that
of rounding."""

_FALL = 0.3
"""Factor between the strengths on the way to the requested one."""


class ActiveSet(Solver):
    """Active-set steps on the Gram matrix, for the squared loss and the L1 norm; exact up to rounding."""

    name = "active-set"
    solves = "head"
    merges_rows = False
    loss_kinds = (Squared,)
    max_iterations = 1

    def is_fast_for(self, problem: ConvexProblem) -> bool:
        """Return whether the whole Gram matrix is there, or worth its memory."""
        return forms_gram(problem) or _is_wide_ridge(problem)

    def prepare(self, problem: ConvexProblem) -> None:
        """Form the Gram matrix at once: a path begins with few active atoms and ends with many."""
        if forms_gram(problem):
            problem.row_workspace.get(weighted_gram, problem)

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
        """Minimise a problem of one head to rounding; outputs are independent of each other."""
        (head,) = problem.heads
        if _is_wide_ridge(problem):
            coef = _solve_by_rows(problem)
            return SolverResult(coef, _best_intercept(problem, coef), Status.CONVERGED)
        linear = -problem.null_correlation / head.weight
        few = problem.l1_strength >= _FEW_ABOVE * problem.critical_strength and not has_gram(problem)
        coef = coef.clone()
        done = 0
        while few and done < problem.n_outputs:
            found = _solve_few(problem, done, linear[:, done], deadline)
            if found is None:
                break
            coef[:, done] = found
            done += 1
        if done < problem.n_outputs:
            gram = problem.row_workspace.get(weighted_gram, problem)
            strengths = problem.l1_strength / head.weight, problem.l2_strength / head.weight
            if not problem.l1_strength and not _has_room_for_copies(gram):
                found = solve_in_place(gram, linear, strengths[1])
                coef = coef if found is None else found
            else:
                gram = _with_quadratic(problem, gram)
                coef[:, done:] = minimise_quadratic(gram, linear[:, done:], *strengths, coef[:, done:], deadline)
        status = Status.TIME_LIMIT if is_late(deadline) else Status.CONVERGED
        return SolverResult(coef, _best_intercept(problem, coef), status)


def _best_intercept(problem: ConvexProblem, coef: Tensor) -> Tensor:
    (head,) = problem.heads
    if not problem.intercept:
        return coef.new_zeros(problem.n_outputs)
    return problem.row_weight @ (head.targets - problem.dictionary.matvec(coef))


def _is_wide_ridge(problem: ConvexProblem) -> bool:
    """Return whether ridge is solved by a matrix of the size of the rows, of which there are fewer than atoms."""
    n_rows, n_atoms = problem.dictionary.shape
    fits = problem.dictionary.is_in_memory and (n_rows <= MAX_ATOMS or problem.dictionary.device.type == "cuda")
    return not problem.l1_strength and n_rows < n_atoms and fits and not has_gram(problem)


def _solve_by_rows(problem: ConvexProblem) -> Tensor:
    """Return the coefficients of ridge, W = DᵀΩ½A with (S + rI) A = Ω½Y, for columns that are centred if need be."""
    (head,) = problem.heads
    weight, root = problem.row_weight, problem.row_weight.sqrt()[:, None]
    targets = head.targets - weight @ head.targets if problem.intercept else head.targets
    system = problem.row_workspace.get(row_products, problem).clone()
    system.diagonal().add_(problem.l2_strength / head.weight)
    factor = factorise(system)
    if factor is None:
        return targets.new_zeros(problem.dictionary.n_atoms, problem.n_outputs)
    solved = root * torch.cholesky_solve(root * targets, factor)
    if problem.intercept:
        solved = solved - weight[:, None] * solved.sum(0)
    return problem.dictionary.rmatvec(solved)


def row_products(problem: ConvexProblem) -> Tensor:
    """Return S = Ω½DDᵀΩ½, the weighted products of rows, of centred columns if there is an intercept."""
    weight, root = problem.row_weight, problem.row_weight.sqrt()[:, None]
    n_rows = problem.dictionary.n_rows
    check_fits(gram_bytes(n_rows), weight.device, f"the products of {n_rows:,} rows", "use fewer rows")
    products = problem.dictionary.row_gram()
    if problem.intercept:
        mean = products @ weight
        products.sub_(mean).sub_(mean[:, None]).add_(weight @ mean)
    return products.mul_(root).mul_(root.T)


def gram_bytes(n_atoms: int) -> int:
    """Return the peak of solving by a Gram matrix, in bytes; ridge gets by with :func:`forming_bytes`."""
    return GRAM_COPIES * symmetric_bytes(n_atoms)


def forming_bytes(size: int) -> int:
    """Return the peak of forming a matrix of products, in bytes."""
    return int(_FORMING * symmetric_bytes(size))


def _has_room_for_copies(gram: Tensor) -> bool:
    available = available_bytes(gram.device)
    return available is None or (GRAM_COPIES - 1) * symmetric_bytes(len(gram)) <= available


def has_gram(problem: ConvexProblem) -> bool:
    """Return whether the Gram matrix was formed already."""
    return problem.row_workspace.has(weighted_gram)


def forms_gram(problem: ConvexProblem) -> bool:
    """Return whether the whole Gram matrix is there, or worth its memory."""
    n_atoms, device = problem.dictionary.n_atoms, problem.dictionary.device
    if has_gram(problem):
        return True
    if device.type != "cuda":
        return n_atoms <= MAX_ATOMS
    if problem.l1_strength == 0:  # one factorisation, which needs no copy
        return forming_bytes(n_atoms) <= (available_bytes(device) or 0)
    return n_atoms <= MAX_ATOMS_GPU and gram_bytes(n_atoms) <= (available_bytes(device) or 0)


def weighted_gram(problem: ConvexProblem, atoms: Tensor | None = None) -> Tensor:
    """Return the weighted products of columns over the rows; of centred columns if there is an intercept.

    An optimal intercept makes the residual's mean zero, which is the same as centring columns and targets.
    """
    weight, dictionary = problem.row_weight, problem.dictionary
    n_chosen = dictionary.n_atoms if atoms is None else len(atoms)
    purpose = f"the Gram matrix of {n_chosen:,} atoms"
    check_fits(forming_bytes(n_chosen), dictionary.device, purpose, "use fewer witnesses")
    # In place: these are the largest matrices there are.
    if atoms is None and bool((weight == weight[0]).all()):
        gram = dictionary.gram().mul_(weight[0])
    else:
        gram = torch.zeros(n_chosen, n_chosen, dtype=torch.float64, device=dictionary.device)
        for rows, block in dictionary.iterate_rows(atoms=atoms):
            gram.addmm_((block * weight[rows, None]).T, block)
    if problem.intercept:
        means = problem.row_workspace.get(column_means, problem)
        means = means if atoms is None else means[atoms]
        gram.addr_(means, means, alpha=-1)
    return gram


def column_means(problem: ConvexProblem) -> Tensor:
    """Return the weighted mean of each column."""
    return problem.dictionary.rmatvec(problem.row_weight[:, None])[:, 0]


def _with_quadratic(problem: ConvexProblem, gram: Tensor) -> Tensor:
    """Return the Gram matrix plus ``l2_strength``, which is divided by the weight of the head as well."""
    if not problem.l2_strength:
        return gram
    gram = gram.clone()
    gram.diagonal().add_(problem.l2_strength / problem.heads[0].weight)
    return gram


def _solve_few(problem: ConvexProblem, output: int, linear: Tensor, deadline: float) -> Tensor | None:
    """Solve over the atoms that are likely to be active, and add what violates optimality; None if they are many."""
    (head,) = problem.heads
    dictionary, weight = problem.dictionary, problem.row_weight
    targets, strength = head.targets[:, output], problem.l1_strength / head.weight
    coef, gradient = torch.zeros_like(linear), -linear
    chosen = torch.zeros_like(linear, dtype=torch.bool)
    n_new = _FIRST
    while int(chosen.sum()) + n_new <= dictionary.n_atoms // 4:
        violation = torch.where(chosen, 0.0, gradient.abs() - strength * (1 + _SLACK))
        n_violating = int((violation > 0).sum())
        if n_violating == 0 or is_late(deadline):
            return coef
        chosen[torch.topk(violation, min(n_new, n_violating)).indices] = True
        atoms = torch.nonzero(chosen).squeeze(1)
        sub = _with_quadratic(problem, weighted_gram(problem, atoms))
        coef[atoms] = follow(sub, linear[atoms, None], strength, coef[atoms, None], deadline)[:, 0]
        residual = dictionary.matvec(coef[:, None])[:, 0] - targets
        if problem.intercept:
            residual = residual - weight @ residual
        # Of atoms that are not chosen, whose coefficients are zero: the quadratic adds nothing there.
        gradient = dictionary.rmatvec((weight * residual)[:, None])[:, 0]
        n_new = int(_GROWTH * n_new)
    return None


def minimise_quadratic(
    gram: Tensor, linear: Tensor, l1_strength: float, l2_strength: float, start: Tensor, deadline: float = inf
) -> Tensor:
    """Minimise ``½ xᵀGx − cᵀx + s‖x‖₁`` for several c, where ``l2_strength`` is on the diagonal of G already.

    Parameters
    ----------
    gram : Tensor of shape (n_atoms, n_atoms)
    linear, start : Tensor of shape (n_atoms, n_outputs)
    l1_strength, l2_strength : float
    deadline : float
        When to return what was found so far, as :func:`.base.is_late` compares it.

    Returns
    -------
    Tensor of shape (n_atoms, n_outputs)
    """
    if l2_strength and l1_strength <= _NEGLIGIBLE * float(linear.abs().max()):
        factor = factorise(gram)
        return start if factor is None else torch.cholesky_solve(linear, factor)
    found = alternate(gram, linear, l1_strength, l2_strength, start, deadline) if l2_strength else None
    return follow(gram, linear, l1_strength, start, deadline) if found is None else found


def follow(gram: Tensor, linear: Tensor, strength: float, start: Tensor, deadline: float = inf) -> Tensor:
    """Solve at falling strengths, so that active sets grow towards their final sizes and not beyond.

    Parameters
    ----------
    gram : Tensor of shape (n_atoms, n_atoms)
    linear, start : Tensor of shape (n_atoms, n_outputs)
    strength : float
    deadline : float
        When to return what was found so far.

    Returns
    -------
    Tensor of shape (n_atoms, n_outputs)
        The start, if the squares of these numbers are not finite.
    """
    # A GPU needs as long for several outputs as for one; a CPU is faster with one at a time.
    n_most = _SIMULTANEOUS if gram.is_cuda else 1
    if start.shape[1] > n_most:
        groups = zip(torch.split(linear, n_most, dim=1), torch.split(start, n_most, dim=1), strict=True)
        return torch.cat([follow(gram, own, strength, x, deadline) for own, x in groups], dim=1)
    linear, x = linear.T.contiguous(), start.T.contiguous()
    level = (x @ gram - linear).abs().amax(1)
    if not bool(level.isfinite().all()):
        return start
    largest = linear.abs().amax(1)
    while True:
        level = (_FALL * level).clamp_min(max(strength, _NEGLIGIBLE * float(largest.max())))
        tolerance = torch.where(level > _ROUNDED * largest, 1e-12 * level, _NEGLIGIBLE * largest)
        levels = level[:, None].expand_as(x)
        x = minimise_l1_quadratics(gram, linear, levels, x, tolerance=tolerance, deadline=deadline)
        if bool((level <= max(strength, _NEGLIGIBLE * float(largest.max()))).all()) or is_late(deadline):
            return x.T
