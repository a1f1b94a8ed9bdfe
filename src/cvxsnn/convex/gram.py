"""Products of columns and of rows: the matrices of the normal equations, formed once per problem and shared."""

import torch
from torch import Tensor

from ..core.memory import available_bytes, check_fits, symmetric_bytes
from .problem import ConvexProblem

MAX_ATOMS, MAX_ATOMS_GPU = 10_000, 20_000
"""Largest size of a whole Gram matrix: 800 MB; on a GPU, which forms it quickly, 3.2 GB."""

GRAM_COPIES = 3
"""Matrices alive while a system is solved: the Gram matrix, the same with a quadratic, and its factor."""


def gram_bytes(n_atoms: int) -> int:
    """Return the peak memory of solving with a Gram matrix, in bytes."""
    return GRAM_COPIES * symmetric_bytes(n_atoms)


def _forming_bytes(size: int) -> int:
    """Return the peak memory of forming a Gram matrix: itself, and the quarter that is summed, twice."""
    return int(1.4 * symmetric_bytes(size))


def has_gram(problem: ConvexProblem) -> bool:
    """Return whether the Gram matrix was formed before."""
    return problem.row_workspace.has(weighted_gram)


def is_gram_worthwhile(problem: ConvexProblem) -> bool:
    """Return whether the whole Gram matrix exists, or is worth its memory."""
    n_atoms, device = problem.dictionary.n_atoms, problem.dictionary.device
    if has_gram(problem):
        return True
    if device.type != "cuda":
        return n_atoms <= MAX_ATOMS
    if problem.l1_strength == 0:  # one factorisation, which may be done in place
        return _forming_bytes(n_atoms) <= (available_bytes(device) or 0)
    return n_atoms <= MAX_ATOMS_GPU and gram_bytes(n_atoms) <= (available_bytes(device) or 0)


def has_room_for_copies(gram: Tensor) -> bool:
    """Return whether a Gram matrix that exists can be copied and factorised."""
    available = available_bytes(gram.device)
    return available is None or (GRAM_COPIES - 1) * symmetric_bytes(len(gram)) <= available


def weighted_gram(problem: ConvexProblem, atoms: Tensor | None = None) -> Tensor:
    """Return the weighted products of columns over the rows; of centred columns if there is an intercept.

    An optimal intercept makes the residual's mean zero, which is the same as centring columns and targets.
    """
    weight, dictionary = problem.row_weight, problem.dictionary
    n_chosen = dictionary.n_atoms if atoms is None else len(atoms)
    purpose = f"the Gram matrix of {n_chosen:,} atoms"
    check_fits(_forming_bytes(n_chosen), dictionary.device, purpose, "use fewer witnesses")
    # In place: no other matrices are as large.
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


def row_products(problem: ConvexProblem) -> Tensor:
    """Return S = Ω½DDᵀΩ½, the weighted products of rows; of centred columns if there is an intercept."""
    weight, root = problem.row_weight, problem.row_weight.sqrt()[:, None]
    n_rows = problem.dictionary.n_rows
    check_fits(gram_bytes(n_rows), weight.device, f"the products of {n_rows:,} rows", "use fewer rows")
    products = problem.dictionary.row_gram()
    if problem.intercept:
        mean = products @ weight
        products.sub_(mean).sub_(mean[:, None]).add_(weight @ mean)
    return products.mul_(root).mul_(root.T)
