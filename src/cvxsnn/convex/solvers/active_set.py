"""Squared loss with few columns: one Gram matrix, then exact active-set steps on it."""

import torch
from torch import Tensor

from ...core.errors import FactorisationError
from ...core.memory import available_bytes, check_fits, gram_bytes
from ..problem import ConvexProblem
from .quadratic import minimise_l1_quadratics
from .recorder import Recorder

MAX_ATOMS, MAX_ATOMS_GPU = 6000, 20_000
"""Atoms up to which the whole Gram matrix is formed: 288 MB; on a GPU, which makes it in no time, 3.2 GB."""

_FEW_ABOVE = 1 / 15
"""Strength, relative to the critical one, above which so few atoms are active that the others' products are not worth
their time."""

_FIRST, _GROWTH, _SLACK = 48, 2.0, 1e-9
"""Atoms of the first working set, by how much it grows, and the relative violation that rounding may leave."""

_IN_STEP = 16
"""Outputs that a GPU solves for at once: each has a matrix of its active atoms at hand."""

_FALL = 0.3
"""Factor between the strengths on the way to the one asked for."""


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
    done = 0
    while few and done < problem.n_outputs:
        found = _solve_few(problem, done, linear[:, done], strength)
        if found is None:
            break
        coef[:, done] = found
        done += 1
    if done < problem.n_outputs:
        gram = problem.share_rows("gram", lambda: weighted_gram(problem))
        coef[:, done:] = follow(gram, linear[:, done:], strength, coef[:, done:])
    if problem.intercept:
        intercept = problem.row_weight @ (head.targets - problem.dictionary.matvec(coef))
    return coef, intercept


def forms_gram(problem: ConvexProblem) -> bool:
    """Whether the whole Gram matrix is there, or worth its memory."""
    n_atoms, device = problem.dictionary.n_atoms, problem.dictionary.device
    if problem.has_rows("gram"):
        return True
    if device.type != "cuda":
        return n_atoms <= MAX_ATOMS
    return n_atoms <= MAX_ATOMS_GPU and gram_bytes(n_atoms) <= (available_bytes(device) or 0)


def prepare_path(problem: ConvexProblem) -> None:
    """Form the Gram matrix at once: a path begins with few active atoms and ends with many."""
    is_squared = any(head.loss.name == "squared" for head in problem.heads)
    if is_squared and problem.penalty.name == "l1" and forms_gram(problem):
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
        sub = weighted_gram(problem, atoms)
        coef[atoms] = follow(sub, linear[atoms, None], strength, coef[atoms, None])[:, 0]
        residual = dictionary.matvec(coef[:, None])[:, 0] - targets
        if problem.intercept:
            residual = residual - weight @ residual
        gradient = dictionary.rmatvec((weight * residual)[:, None])[:, 0]
        n_new = int(_GROWTH * n_new)
    return None


def follow(gram: Tensor, linear: Tensor, strength: float, start: Tensor) -> Tensor:
    """Solve at falling sequences of strengths, so that active sets grow towards their sizes and not beyond them.

    Parameters
    ----------
    gram : Tensor of shape (n_atoms, n_atoms)
    linear, start : Tensor of shape (n_atoms, n_outputs)
    strength : float

    Returns
    -------
    Tensor of shape (n_atoms, n_outputs)
    """
    # A GPU takes as long for several outputs as for one; a processor is better off with one at a time.
    n_most = _IN_STEP if gram.is_cuda else 1
    if start.shape[1] > n_most:
        groups = zip(torch.split(linear, n_most, dim=1), torch.split(start, n_most, dim=1), strict=True)
        return torch.cat([follow(gram, own, strength, x) for own, x in groups], dim=1)
    linear, x = linear.T.contiguous(), start.T.contiguous()
    level = (x @ gram - linear).abs().amax(1)
    if not bool(level.isfinite().all()):
        raise FactorisationError(
            "expected numbers whose squares are finite, got larger ones: scale the columns and the targets down"
        )
    while True:
        level = (_FALL * level).clamp_min(strength)
        x = minimise_l1_quadratics(gram, linear, level[:, None].expand_as(x), x, tolerance=1e-12 * level)
        if bool((level == strength).all()):
            return x.T
