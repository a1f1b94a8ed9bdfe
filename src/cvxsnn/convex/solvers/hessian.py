"""Hessians of the loss over a few coefficients."""

from itertools import pairwise

import torch
from scipy.linalg.blas import dsyrk
from torch import Tensor

from ...core.memory import check_fits, hessian_bytes, share_of
from ..losses import Softmax
from ..problem import ConvexProblem

_BLOCK, _BLOCK_GPU = 2**24, 2**28
"""Numbers of a block of rows over all entries: 128 MiB of float64; 2 GiB on a GPU."""

_TRIANGLE, _SMALL = 6, 128
"""Blocks a side in which symmetric products are formed, and the size below which one block is faster."""


def loss_hessian(
    problem: ConvexProblem,
    curvature: Tensor,
    atoms: Tensor,
    place: Tensor,
    outputs: Tensor,
    precision: torch.dtype = torch.float64,
) -> Tensor:
    """Hessian of the weighted loss, in float64, with respect to some entries of the coefficients.

    Parameters
    ----------
    problem : ConvexProblem
    curvature : Tensor of shape (n_rows, n_outputs), as ``problem.curvature`` gives it
    atoms : Tensor of shape (n_columns,)
    place, outputs : Tensor of shape (n_entries,)
        Column and output of each entry, sorted by output. Column ``len(atoms)`` is the intercept.
    precision : torch.dtype
        In which products are formed.
    """
    size = len(place)
    remedy = "raise l1_strength, or use fewer witnesses"
    check_fits(hessian_bytes(size), curvature.device, f"the Hessian over {size:,} active coefficients", remedy)
    hessian = torch.zeros(size, size, dtype=torch.float64, device=curvature.device)
    edges = torch.searchsorted(outputs, torch.arange(problem.n_outputs + 1, device=outputs.device)).tolist()
    n_numbers = share_of(curvature.device, 8 * _BLOCK_GPU) // 8 if curvature.is_cuda else _BLOCK
    n_rows = max(1, n_numbers // max(1, size))
    for rows, columns in problem.dictionary.iterate_rows(n_rows, precision, atoms):
        if problem.intercept:
            columns = torch.cat((columns, columns.new_ones(len(columns), 1)), dim=1)
        for head in problem.heads:
            bend = curvature[rows, head.columns].to(precision)
            weight = (head.weight * problem.row_weight[rows]).to(precision)
            for output in range(head.columns.start, head.columns.stop):
                entries = slice(edges[output], edges[output + 1])
                root = (weight * bend[:, output - head.columns.start]).sqrt()
                chosen = columns if problem.n_outputs == 1 else columns[:, place[entries]]
                hessian[entries, entries] += self_product(chosen * root[:, None])
            if isinstance(head.loss, Softmax):
                entries = slice(edges[head.columns.start], edges[head.columns.stop])
                spread = columns[:, place[entries]] * bend[:, outputs[entries] - head.columns.start]
                hessian[entries, entries] -= self_product(spread * weight.sqrt()[:, None])
    if precision != torch.float64:  # rounding must not make a singular Hessian indefinite
        hessian.diagonal().add_(1e-6 * hessian.diagonal().max())
    return hessian


def self_product(factor: Tensor) -> Tensor:
    """``factorᵀ factor``, at little more than half the work of a general product."""
    if factor.device.type == "cpu" and factor.dtype == torch.float64 and factor.shape[1]:
        # What torch lacks: BLAS's symmetric product, here in Fortran's order. It fills the upper triangle.
        is_transposed = factor.T.is_contiguous()
        columns = factor.numpy() if is_transposed else factor.contiguous().numpy().T
        triangle = torch.from_numpy(dsyrk(1.0, columns, trans=is_transposed)).T
        return torch.tril(triangle) + torch.tril(triangle, -1).T
    size = factor.shape[1]
    product = factor.new_empty(size, size)
    edges = [size * k // _TRIANGLE for k in range(_TRIANGLE + 1)] if size > _SMALL else [0, size]
    for top, bottom in pairwise(edges):  # block by block above the diagonal, mirrored below it
        product[top:bottom, top:] = factor[:, top:bottom].T @ factor[:, top:]
        product[bottom:, top:bottom] = product[top:bottom, bottom:].T
    return product
