"""Normal equations: products of columns and of rows, formed once per problem and shared, and Cholesky factors.

A factor gets a ridge if rounding requires one. If memory has no room for a copy, it overwrites its matrix.
"""

from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from ..core import gpu
from ..core.formatting import plural
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
    if not gpu.is_gpu(device):
        return n_atoms <= MAX_ATOMS
    if problem.l1_strength == 0:  # one factorisation, which may be done in place
        return _forming_bytes(n_atoms) <= (available_bytes(device) or 0)
    return n_atoms <= MAX_ATOMS_GPU and gram_bytes(n_atoms) <= (available_bytes(device) or 0)


def is_wide(problem: ConvexProblem) -> bool:
    """Return whether ridge solves a system of the size of the rows, because there are fewer rows than atoms."""
    n_rows, n_atoms = problem.dictionary.shape
    fits = problem.dictionary.is_in_memory and (n_rows <= MAX_ATOMS or gpu.is_gpu(problem.dictionary.device))
    return n_rows < n_atoms and fits and not has_gram(problem)


def from_centre(problem: ConvexProblem) -> ConvexProblem:
    """Return the program of W − W₀, for one squared loss with ridge: W₀ leaves the targets Y − DW₀ to explain."""
    if problem.centre is None:
        return problem
    (head,) = problem.heads
    targets = head.targets - problem.dictionary.matvec(problem.centre)
    return problem.with_centre(None).with_heads((replace(head, targets=targets),))


def weighted_gram(problem: ConvexProblem, atoms: Tensor | None = None) -> Tensor:
    """Return the weighted products of columns over the rows; of centred columns if there is an intercept.

    An optimal intercept makes the residual's mean zero, which is the same as centring columns and targets.
    """
    weight, dictionary = problem.row_weight, problem.dictionary
    n_chosen = dictionary.n_atoms if atoms is None else len(atoms)
    purpose = f"the Gram matrix of {plural(n_chosen, 'atom')}"
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
        # Row weights sum to one, so centring the columns subtracts just this.
        gram.addr_(means, means, alpha=-1)
    return gram


def column_means(problem: ConvexProblem) -> Tensor:
    """Return the weighted mean of each column."""
    return problem.dictionary.rmatvec(problem.row_weight[:, None])[:, 0]


def row_products(problem: ConvexProblem) -> Tensor:
    """Return S = Ω½DDᵀΩ½, the weighted products of rows; of centred columns if there is an intercept."""
    n_rows = problem.dictionary.n_rows
    check_fits(
        gram_bytes(n_rows), problem.row_weight.device, f"the products of {plural(n_rows, 'row')}", "use fewer rows"
    )
    return weigh_products(problem, problem.dictionary.row_gram())


def weigh_products(problem: ConvexProblem, products: Tensor) -> Tensor:
    """Return :func:`row_products` in place of the products DDᵀ."""
    weight, root = problem.row_weight, problem.row_weight.sqrt()[:, None]
    if problem.intercept:  # K − K ω 1ᵀ − 1 ωᵀ K + ωᵀ K ω: the products of centred columns
        mean = products @ weight
        products.sub_(mean).sub_(mean[:, None]).add_(weight @ mean)
    return products.mul_(root).mul_(root.T)


def with_ridge(matrix: Tensor, ridge: float) -> Tensor:
    """Return a copy of a matrix with a number added to its diagonal."""
    shifted = matrix.clone()
    shifted.diagonal().add_(ridge)
    return shifted


def factorise(matrix: Tensor) -> Tensor | None:
    """Return a Cholesky factor, with a ridge if rounding has made the matrix indefinite; None if no ridge helps."""
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(matrix)
    if not bool(info):  # before the search for the largest entry, which needs memory of its own
        return factor
    ridge = torch.finfo(matrix.dtype).eps * float(_largest_entry(matrix))
    for _ in range(20):  # the last ridge makes any matrix of finite numbers positive definite
        factor, info = torch.linalg.cholesky_ex(with_ridge(matrix, ridge))
        if not bool(info):
            return factor
        ridge *= 100  # the smallest ridge that works moves the solution least
    return None


def solve_semidefinite(matrix: Tensor, right: Tensor, ridge: Tensor | float) -> Tensor:
    """Solve ``(matrix + diag(ridge)) x = right``, with a larger ridge if the matrix has no Cholesky factor.

    The solution is zero if no ridge helps, because entries are infinite or NaN.

    Parameters
    ----------
    matrix : Tensor of shape (n, n), or (m, n, n) for several systems
    right : Tensor of shape (n,), or (m, n)
    ridge : float, or Tensor of the shape of ``right``
    """
    ridge = torch.as_tensor(ridge, dtype=matrix.dtype, device=matrix.device)
    for _ in range(20):  # as in factorise
        shifted = matrix.clone()
        shifted.diagonal(dim1=-2, dim2=-1).add_(ridge)
        solved, info = _solve(shifted, right)
        if not bool(info.any()):
            return solved
        # A ridge of zero would stay zero however often it is multiplied.
        least = 1e-15 * _largest_entry(matrix)[..., None]
        ridge = torch.where(info[..., None] > 0, torch.maximum(100 * ridge, least), ridge)
    return torch.where(info[..., None] > 0, 0.0, solved)


def _largest_entry(matrix: Tensor) -> Tensor:
    return matrix.abs().flatten(-2).amax(-1) if matrix.numel() else matrix.new_zeros(matrix.shape[:-2])


def _solve(matrix: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return the solutions, and one integer per system, nonzero if it has no Cholesky factor."""
    # A GPU factorises large matrices faster in parallel streams than as a batch.
    if gpu.is_gpu(matrix.device) and matrix.ndim == 3 and len(matrix) > 1 and matrix.shape[1] >= 256:
        return _solve_in_streams(matrix, right)
    factor, info = torch.linalg.cholesky_ex(matrix)
    return torch.cholesky_solve(right[..., None], factor)[..., 0], info


def _solve_in_streams(matrices: Tensor, rights: Tensor) -> tuple[Tensor, Tensor]:
    caller = torch.cuda.current_stream(matrices.device)
    streams = [torch.cuda.Stream(matrices.device) for _ in matrices]  # type: ignore[no-untyped-call]
    solved = torch.empty_like(rights)
    info = torch.empty(len(matrices), dtype=torch.int32, device=matrices.device)
    for number, stream in enumerate(streams):
        stream.wait_stream(caller)  # which may still be computing the matrices
        with torch.cuda.stream(stream):
            factor, info[number] = torch.linalg.cholesky_ex(matrices[number])
            solved[number] = torch.cholesky_solve(rights[number, :, None], factor)[:, 0]
    for stream in streams:
        caller.wait_stream(stream)
    return solved, info


class FactorInPlace:
    r"""The Cholesky factor of :math:`A + \rho I`, when memory has no room for a copy of A.

    The factor L overwrites the lower triangle of A, one block of columns at a time:

    .. math::
        L_{kk} L_{kk}^\top = A_{kk} + \rho I - \sum_{j<k} L_{kj} L_{kj}^\top, \qquad
        L_{ik} L_{kk}^\top = A_{ik} - \sum_{j<k} L_{ij} L_{kj}^\top \quad (i > k) .

    The upper triangle stays, so that A can be restored.

    Parameters
    ----------
    matrix : Tensor of shape (n, n)
        The matrix A, symmetric to the bit. Its lower triangle is invalid until :meth:`restore` is called.
    ridge : float
        The number ρ.
    n_at_once : int
        Columns of a block; only blocks are copied. 4,096 are enough for efficient products.

    Attributes
    ----------
    is_complete : bool
        Whether the factor exists in spite of rounding.
    """

    def __init__(self, matrix: Tensor, ridge: float, n_at_once: int = 4096) -> None:
        self._matrix, self.is_complete = matrix, False
        self._blocks = list(pairwise([*range(0, len(matrix), n_at_once), len(matrix)]))
        self._corners: list[Tensor] = []
        try:
            self.is_complete = all(self._factorise(start, stop, ridge) for start, stop in self._blocks)
        finally:
            # After an error too: other problems share this matrix.
            if not self.is_complete:
                self.restore()

    def _factorise(self, start: int, stop: int, ridge: float) -> bool:
        """Factorise a block of columns; return False if it has no factor."""
        matrix, corner = self._matrix, self._matrix[start:stop, start:stop]
        # A block on the diagonal is overwritten on both sides of it: the upper triangle cannot restore it.
        self._corners.append(corner.clone())
        corner.diagonal().add_(ridge)
        matrix[start:, start:stop].addmm_(matrix[start:, :start], matrix[start:stop, :start].T, alpha=-1)
        factor, info = torch.linalg.cholesky_ex(corner)
        if bool(info):
            return False
        corner.copy_(factor)
        below = matrix[stop:, start:stop]
        below.copy_(torch.linalg.solve_triangular(factor.T, below, upper=True, left=False))
        return True

    def solve(self, right: Tensor) -> Tensor:
        """Return the solutions X of LLᵀX = B, by forward and backward substitution; B has shape (n, n_right)."""
        matrix, solved = self._matrix, right.clone()
        for start, stop in self._blocks:
            block = solved[start:stop].addmm_(matrix[start:stop, :start], solved[:start], alpha=-1)
            block.copy_(torch.linalg.solve_triangular(matrix[start:stop, start:stop], block.clone(), upper=False))
        for start, stop in reversed(self._blocks):
            block = solved[start:stop].addmm_(matrix[stop:, start:stop].T, solved[stop:], alpha=-1)
            block.copy_(torch.linalg.solve_triangular(matrix[start:stop, start:stop].T, block.clone(), upper=True))
        return solved

    def restore(self) -> None:
        """Restore the lower triangle of the matrix from the upper one."""
        # There are fewer corners than blocks if a block had no factor.
        for (start, stop), corner in zip(self._blocks, self._corners, strict=False):
            self._matrix[start:stop, start:stop] = corner
            self._matrix[stop:, start:stop] = self._matrix[start:stop, stop:].T
        self._corners = []


def solve_ridge(matrix: Tensor, right: Tensor, ridge: float) -> Tensor | None:
    """Solve (A + ρI) X = B; within the memory of A if it has no room for copies. None if there is no factor."""
    available = available_bytes(matrix.device)
    if available is not None and (GRAM_COPIES - 1) * symmetric_bytes(len(matrix)) > available:
        return solve_in_place(matrix, right, ridge)
    factor = factorise(with_ridge(matrix, ridge))
    return None if factor is None else torch.cholesky_solve(right, factor)


def solve_in_place(matrix: Tensor, right: Tensor, ridge: float, n_at_once: int = 4096) -> Tensor | None:
    """Solve (A + ρI) X = B within the memory of A, and leave A as it was, whatever happens.

    Parameters are those of :class:`FactorInPlace`. Returns None if rounding has made the matrix indefinite.
    """
    factor = FactorInPlace(matrix, ridge, n_at_once)
    try:
        return factor.solve(right) if factor.is_complete else None
    finally:
        factor.restore()
