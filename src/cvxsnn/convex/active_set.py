"""Squared loss with few columns: one Gram matrix, then exact active-set steps on it."""

import torch
from torch import Tensor

from .problem import ConvexProblem
from .quadratic import minimise_l1_quadratic
from .recorder import Recorder

MAX_ATOMS = 6000
"""Atoms up to which the whole Gram matrix is formed: 288 MB."""


def solve_squared(problem: ConvexProblem, coef: Tensor, intercept: Tensor, recorder: Recorder) -> tuple[Tensor, Tensor]:
    """Minimise to rounding; outputs are independent of each other.

    Parameters
    ----------
    problem : ConvexProblem
        One head with the squared loss and the L1 penalty.
    coef, intercept : where to start
    """
    (head,) = problem.heads
    gram, linear, means = problem.share("normal_equations", lambda: normal_equations(problem))
    targets_mean = problem.row_weight @ head.targets
    strength = problem.l1_strength / head.weight
    coef = coef.clone()
    for output in range(problem.n_outputs):
        coef[:, output] = _follow(gram, linear[:, output], strength, coef[:, output])
    if problem.intercept:
        intercept = targets_mean - means @ coef
    return coef, intercept


def normal_equations(problem: ConvexProblem) -> tuple[Tensor, Tensor, Tensor]:
    """Gram matrix, correlations with the targets, and column means, all weighted; centred if there is an intercept.

    An optimal intercept makes the residual's mean zero, which is the same as centring columns and targets.
    """
    (head,) = problem.heads
    weight = problem.row_weight[:, None]
    gram = _weighted_gram(problem)
    moments = problem.dictionary.rmatvec(weight * torch.cat((torch.ones_like(weight), head.targets), dim=1))
    means, linear = moments[:, 0], moments[:, 1:]
    if problem.intercept:
        gram = gram - means[:, None] * means
        linear = linear - means[:, None] * (problem.row_weight @ head.targets)
    return gram, linear, means


def _weighted_gram(problem: ConvexProblem) -> Tensor:
    weight, dictionary = problem.row_weight, problem.dictionary
    if bool((weight == weight[0]).all()):
        return dictionary.gram() * weight[0]
    total = torch.zeros(dictionary.n_atoms, dictionary.n_atoms, dtype=torch.float64, device=dictionary.device)
    for rows, block in dictionary.iterate_rows():
        total.addmm_((block * weight[rows, None]).T, block)
    return total


def _follow(gram: Tensor, linear: Tensor, strength: float, start: Tensor) -> Tensor:
    """Solve at a falling sequence of strengths, so that the active set grows towards its size and not beyond it."""
    x = start
    level = float((gram @ x - linear).abs().max())
    while True:
        level = max(strength, 0.5 * level)
        x = minimise_l1_quadratic(gram, linear, torch.full_like(x, level), x, tolerance=1e-12 * level)
        if level == strength:
            return x
