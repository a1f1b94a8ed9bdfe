"""Squared loss with few columns: one Gram matrix, then exact active-set steps on it."""

import torch
from torch import Tensor

from ..memory import check_fits, gram_bytes
from .problem import ConvexProblem
from .quadratic import minimise_l1_quadratic
from .recorder import Recorder

MAX_ATOMS = 6000
"""Atoms up to which the whole Gram matrix is formed: 288 MB."""


_FEW_ABOVE = 1 / 15
"""Strength, relative to the critical one, above which so few atoms are active that the others' products are not worth
their time."""

_FIRST, _GROWTH, _SLACK = 48, 2.0, 1e-9
"""Atoms of the first working set, by how much it grows, and the relative violation that rounding may leave."""


def solve_squared(problem: ConvexProblem, coef: Tensor, intercept: Tensor, recorder: Recorder) -> tuple[Tensor, Tensor]:
    """Minimise to rounding; outputs are independent of each other.

    Parameters
    ----------
    problem : ConvexProblem
        One head with the squared loss and the L1 penalty.
    coef, intercept : where to start
    """
    (head,) = problem.heads
    strength = problem.l1_strength / head.weight
    linear = -problem.null_correlation / head.weight
    few = problem.l1_strength >= _FEW_ABOVE * problem.critical_strength and not problem.has_rows("gram")
    coef = coef.clone()
    for output in range(problem.n_outputs):
        found = _solve_few(problem, output, linear[:, output], strength) if few else None
        if found is None:
            gram = problem.share_rows("gram", lambda: weighted_gram(problem))
            found = follow(gram, linear[:, output], strength, coef[:, output])
        coef[:, output] = found
    if problem.intercept:
        intercept = problem.row_weight @ (head.targets - problem.dictionary.matvec(coef))
    return coef, intercept


def prepare_path(problem: ConvexProblem) -> None:
    """Form the Gram matrix at once: a path begins with few active atoms and ends with many."""
    is_squared = any(head.loss.name == "squared" for head in problem.heads)
    if is_squared and problem.penalty.name == "l1" and problem.dictionary.n_atoms <= MAX_ATOMS:
        problem.share_rows("gram", lambda: weighted_gram(problem))


def weighted_gram(problem: ConvexProblem, atoms: Tensor | None = None) -> Tensor:
    """Products of columns over the rows, weighted; of centred columns if there is an intercept.

    An optimal intercept makes the residual's mean zero, which is the same as centring columns and targets.
    """
    weight, dictionary = problem.row_weight, problem.dictionary
    n_chosen = dictionary.n_atoms if atoms is None else len(atoms)
    check_fits(gram_bytes(n_chosen), dictionary.device, f"the Gram matrix of {n_chosen:,} atoms", "use fewer witnesses")
    if atoms is None and bool((weight == weight[0]).all()):
        gram = dictionary.gram() * weight[0]
    else:
        gram = torch.zeros(n_chosen, n_chosen, dtype=torch.float64, device=dictionary.device)
        for rows, block in dictionary.iterate_rows(atoms=atoms):
            gram.addmm_((block * weight[rows, None]).T, block)
    if problem.intercept:
        means = problem.share_rows("means", lambda: dictionary.rmatvec(weight[:, None])[:, 0])
        means = means if atoms is None else means[atoms]
        gram = gram - means[:, None] * means
    return gram


def _solve_few(problem: ConvexProblem, output: int, linear: Tensor, strength: float) -> Tensor | None:
    """Solve over the atoms that are likely to be active, and add what violates optimality; None if they are many."""
    (head,) = problem.heads
    dictionary, weight = problem.dictionary, problem.row_weight
    targets = head.targets[:, output]
    coef, gradient = torch.zeros_like(linear), -linear
    chosen = torch.zeros_like(linear, dtype=torch.bool)
    n_new = _FIRST
    while int(chosen.sum()) + n_new <= dictionary.n_atoms // 4:
        violation = torch.where(chosen, 0.0, gradient.abs() - strength * (1 + _SLACK))
        n_violating = int((violation > 0).sum())
        if n_violating == 0:
            return coef
        chosen[torch.topk(violation, min(n_new, n_violating)).indices] = True
        atoms = torch.nonzero(chosen).squeeze(1)
        coef[atoms] = follow(weighted_gram(problem, atoms), linear[atoms], strength, coef[atoms])
        residual = dictionary.matvec(coef[:, None])[:, 0] - targets
        if problem.intercept:
            residual = residual - weight @ residual
        gradient = dictionary.rmatvec((weight * residual)[:, None])[:, 0]
        n_new = int(_GROWTH * n_new)
    return None


def follow(gram: Tensor, linear: Tensor, strength: float, start: Tensor) -> Tensor:
    """Solve at a falling sequence of strengths, so that the active set grows towards its size and not beyond it."""
    x = start
    level = float((gram @ x - linear).abs().max())
    while True:
        level = max(strength, 0.5 * level)
        x = minimise_l1_quadratic(gram, linear, torch.full_like(x, level), x, tolerance=1e-12 * level)
        if level == strength:
            return x
